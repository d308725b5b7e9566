//! Tests push requests from third-party clients: JSON from pino-loki and winston-loki, and
//! snappy-compressed protobuf from winston-loki.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::{check_counted, start};
use crate::daemon::not_owned;
use crate::site::{Site, lost_line};
use crate::skipped::{skip, target_directory};

const JOBS: &str = "namespaces: [{name: alpha}, {name: beta}]\n\
    rules:\n\
    - {message: distributed run lock release failed, event: release_failed, namespace: alpha, id: run_id, where: {job: alpha}}\n\
    - {message: distributed run lock release failed, event: release_failed, namespace: beta, id: run_id, where: {job: beta}}\n\
    logs: [push: ]\n";

/// `scripts/install.sh test` installs the clients here.
fn clients() -> PathBuf {
    target_directory().join("node/clients")
}

/// Returns whether the clients are installed. Tests that need missing clients are skipped.
fn are_installed() -> bool {
    let are_installed = clients().join("installed.json").exists();
    if !are_installed {
        skip("the clients are not installed; `scripts/install.sh test` installs them");
    }
    are_installed
}

/// Waits for the client and returns its standard error.
fn send(client: &str, address: SocketAddr, lines: &str) -> String {
    let mut command = Command::new("node");
    command.args(["push.js", client, &format!("http://{address}")]).current_dir(clients());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{client}: {printed}");
    printed
}

fn check_labels(client: &str) {
    if !are_installed() {
        return;
    }
    let site = Site::new();
    site.configure(JOBS);
    let daemon = site.start_configured(&[]);
    let line = |job: &str| format!("{job} {}\n", lost_line());
    let lines: String = ["alpha", "beta", "beta", "gamma"].map(line).concat();
    assert_eq!(send(client, daemon.address, &lines), "");
    daemon.wait_for(&not_owned("alpha", "release"), 1.0);
    daemon.wait_for(&not_owned("beta", "release"), 2.0);
    daemon.wait_for("redis_lock_exporter_log_lines_total{source=\"push\"}", 4.0);
}

#[test]
fn pino_pushes_json() {
    check_labels("pino");
}

#[test]
fn winston_pushes_json() {
    check_labels("winston-json");
}

#[test]
fn winston_pushes_protobuf() {
    check_labels("winston-protobuf");
}

/// Forwards connections, but cuts off the response on the first one. Returns the number of
/// connections.
fn cut_first_answer(upstream: SocketAddr) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    // The thread runs until the test process exits.
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let is_first = count.fetch_add(1, Ordering::Relaxed) == 0;
            let server = TcpStream::connect(upstream).unwrap();
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut from, &mut to));
            thread::spawn(move || answer(server, client, is_first));
        }
    });
    (address, connections)
}

fn answer(mut server: TcpStream, mut client: TcpStream, is_cut: bool) {
    if is_cut {
        // The daemon counts and saves the lines before it responds.
        let _ = server.read(&mut [0; 64]);
        let _ = server.shutdown(Shutdown::Both);
        let _ = client.shutdown(Shutdown::Both);
    } else {
        let _ = std::io::copy(&mut server, &mut client);
        let _ = client.shutdown(Shutdown::Write);
    }
}

#[test]
fn a_client_retry_after_a_lost_response_counts_once() {
    if !are_installed() {
        return;
    }
    for client in ["winston-protobuf", "winston-json"] {
        let site = Site::new();
        let daemon = start(&site);
        let (address, connections) = cut_first_answer(daemon.address);
        let lines: String = (0..5).map(|_| format!("engine {}\n", lost_line())).collect();
        let printed = send(client, address, &lines);
        assert!(printed.contains("again:"), "{printed}");
        assert!(connections.load(Ordering::Relaxed) >= 2);
        check_counted(&daemon, 5.0, 5.0);
    }
}
