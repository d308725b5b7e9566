//! Tests Unix sockets, sockets from systemd, and several addresses at once.

use std::fs;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use super::{Secured, TLS, curl};
use crate::daemon::{BINARY, Daemon, command, text};
use crate::redis::eventually;
use crate::site::Site;

/// Starts the daemon with this additional address.
fn start_on(site: &Site, address: &str) -> Daemon {
    let logs = site.full_path("logs/*.log");
    Daemon::start(&["--preset", "cordum", "--logs.path", &logs, "--web.listen-address", address])
}

/// Returns the log of a daemon that cannot start on this address.
fn refusal(site: &Site, address: &str) -> String {
    let logs = site.full_path("logs/*.log");
    let arguments = ["--preset", "cordum", "--logs.path", &logs, "--web.listen-address", address];
    let log = Daemon::try_start(&arguments, |command| command).err().expect("the daemon starts but must not");
    assert!(log.contains("exit status: 2"), "{log}");
    log
}

fn over(socket: &str, path: &str) -> u16 {
    curl(&["--unix-socket", socket, &format!("http://exporter{path}")]).status
}

#[test]
fn a_unix_socket_works_next_to_a_tcp_address() {
    let site = Site::new();
    let socket = site.full_path("exporter.sock");
    let daemon = start_on(&site, &format!("unix://{socket}?mode=660"));
    eventually("metrics over the socket", || (over(&socket, "/metrics") == 200).then_some(()));
    assert_eq!(daemon.get("/metrics").status, 200);
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o660);
    assert!(daemon.log().contains(&format!("address=unix://{socket}")), "{}", daemon.log());
    assert_eq!(daemon.stop().code(), Some(0));
    assert!(!fs::exists(&socket).unwrap(), "the daemon must remove its socket when it stops");
}

#[test]
fn only_a_stale_socket_is_replaced() {
    let site = Site::new();
    let socket = site.full_path("exporter.sock");
    let address = format!("unix://{socket}");
    let daemon = start_on(&site, &address);
    eventually("an answer on the socket", || (over(&socket, "/-/healthy") == 200).then_some(()));

    assert!(refusal(&site, &address).contains("another process answers on this socket"));
    assert_eq!(over(&socket, "/-/healthy"), 200, "the first daemon must keep running");

    daemon.kill();
    assert!(fs::exists(&socket).unwrap());
    let daemon = start_on(&site, &address);
    eventually("an answer on the socket again", || (over(&socket, "/-/healthy") == 200).then_some(()));
    drop(daemon);

    fs::remove_file(&socket).unwrap();
    fs::write(&socket, "precious").unwrap();
    assert!(refusal(&site, &address).contains("there is a file that is no socket"));
    assert_eq!(fs::read_to_string(&socket).unwrap(), "precious");
}

#[test]
fn tls_works_over_a_unix_socket() {
    let secured = Secured::new(TLS);
    let socket = secured.site.full_path("exporter.sock");
    let _daemon = secured.start(&["--web.listen-address", &format!("unix://{socket}")]);
    let ca = secured.path("ca.pem");
    let status = || curl(&["--cacert", &ca, "--unix-socket", &socket, "https://localhost/metrics"]).status;
    eventually("metrics over the socket", || (status() == 200).then_some(()));
    assert_eq!(over(&socket, "/metrics"), 0);
}

/// Starts the binary with a socket as descriptor 3, as systemd does. Returns the process and its
/// log.
fn activated(site: &Site, socket: OwnedFd, flags: &[&str]) -> (Process, String) {
    let log = site.full_path("log");
    let mut command = Command::new("bash");
    command.args(["-c", r#"exec 3<&0 0</dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@""#, "bash", BINARY]);
    command
        .args(["--logs.path", &site.full_path("logs/*.log"), "--preset", "cordum", "--web.systemd-socket"])
        .args(flags);
    command.stdin(Stdio::from(socket)).stderr(fs::File::create(&log).unwrap()).stdout(Stdio::null());
    (Process(command.spawn().unwrap()), log)
}

struct Process(std::process::Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn sockets_inherited_from_systemd_work() {
    let site = Site::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (_process, log) = activated(&site, listener.into(), &[]);
    eventually("metrics over the inherited socket", || {
        (curl(&[&format!("http://{address}/metrics")]).status == 200).then_some(())
    });
    let log = fs::read_to_string(log).unwrap();
    assert_eq!(log.matches("serving http").count(), 1, "the default address is not used: {log}");

    let site = Site::new();
    let path = site.path("systemd.sock");
    let (mut process, _) = activated(&site, UnixListener::bind(&path).unwrap().into(), &[]);
    eventually("metrics over the inherited socket", || (over(text(&path), "/metrics") == 200).then_some(()));
    let stopped = Command::new("kill").arg(process.0.id().to_string()).status().unwrap();
    assert!(stopped.success() && process.0.wait().unwrap().success());
    assert!(fs::exists(&path).unwrap(), "the daemon must not remove systemd's socket");
}

#[test]
fn a_socket_passed_by_systemd_socket_activate_works() {
    let site = Site::new();
    let socket = site.full_path("activated.sock");
    let mut command = Command::new("systemd-socket-activate");
    command.args([
        "--listen",
        &socket,
        BINARY,
        "--logs.path",
        &site.full_path("logs/*.log"),
        "--preset",
        "cordum",
        "--web.systemd-socket",
    ]);
    command.stderr(fs::File::create(site.path("log")).unwrap()).stdin(Stdio::null()).stdout(Stdio::null());
    let _process =
        Process(command.spawn().expect("systemd-socket-activate is missing: scripts/install.sh installs it"));
    eventually("systemd-socket-activate to listen", || fs::exists(&socket).unwrap().then_some(()));
    let log = || fs::read_to_string(site.path("log")).unwrap();
    assert!(!log().contains("serving http"), "the exporter started before the first request: {}", log());
    // The first request starts the exporter, and waits for it instead of being refused.
    eventually("metrics over the activated socket", || (over(&socket, "/metrics") == 200).then_some(()));
    assert_eq!(log().matches("serving http").count(), 1, "the default address is not used: {}", log());
}

#[test]
fn a_missing_systemd_socket_is_reported() {
    let site = Site::new();
    let output = command(&["--logs.path", &site.full_path("logs/*.log"), "--preset", "cordum", "--web.systemd-socket"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("systemd passed no sockets"));
}
