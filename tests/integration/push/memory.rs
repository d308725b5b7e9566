//! Tests the effect of hostile and very large requests on the exporter's memory and on its
//! responses to others.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{DUPLICATES, EVENTS, losses, post, push};
use crate::daemon::Daemon;
use crate::redis::eventually;
use crate::site::Site;

const JSON: &str = "Content-Type: application/json\r\n";
const PROTOBUF: &str = "Content-Type: application/x-protobuf\r\n";
/// The largest accepted request.
const MAX_BYTES: usize = 8 << 20;
const CLIENTS: usize = 8;
/// The memory that the largest request needs in addition to its text.
const BECOMES: usize = 40 << 20;
/// Overhead of the allocator.
const SLACK: usize = 8 << 20;

/// Returns the peak resident memory in bytes.
fn peak(daemon: &Daemon) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

/// Repeats the pattern as often as it fits.
fn filled(start: &str, pattern: &str) -> Vec<u8> {
    let count = (MAX_BYTES - start.len()) / pattern.len();
    format!("{start}{}", pattern.repeat(count)).into_bytes()
}

/// Lines with 128 empty labels each, two bytes per label.
fn empty_labels() -> Vec<u8> {
    let labels = [0x1a, 0x00].repeat(128);
    let entry = [&[0x12, 0x80, 0x02], &labels[..]].concat();
    let entries = entry.repeat((MAX_BYTES - 16) / entry.len());
    let mut message = vec![0x0a];
    let mut length = entries.len();
    while length >= 0x80 {
        message.push(length as u8 | 0x80);
        length >>= 7;
    }
    message.push(length as u8);
    message.extend_from_slice(&entries);
    snap::raw::Encoder::new().compress_vec(&message).unwrap()
}

/// The maximum content of one request: 100,000 lines with two labels each.
fn most() -> Vec<u8> {
    let entry = r#"["1","",{"a":"b","c":"d"}]"#;
    format!(r#"{{"streams":[{{"stream":{{}},"values":[{}]}}]}}"#, vec![entry; 100_000].join(",")).into_bytes()
}

#[test]
fn hostile_requests_stay_within_the_documented_memory_limit() {
    for (what, headers, body, status) in [
        ("streams", JSON, filled(r#"{"streams":["#, "{},"), 400),
        ("a list as a label", JSON, filled(r#"{"streams":[{"stream":{"a":["#, "0,"), 400),
        ("empty labels", PROTOBUF, empty_labels(), 400),
        ("as much as may be", JSON, most(), 204),
    ] {
        // Each request uses a new process, because the allocator may keep memory of an earlier
        // request.
        let site = Site::new();
        site.configure("presets: [cordum]\nlogs: [{push: {}}]\n");
        let daemon = site.start_configured(&[]);
        assert_eq!(push(&daemon, &losses(1)).status, 204);
        let before = peak(&daemon);
        thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| post(&daemon, headers, &body).status)).collect();
            for client in clients {
                // A slow machine may ask some clients to retry.
                let got = client.join().unwrap();
                assert!(got == status || got == 429 || got == 503, "{what}: {got}");
            }
        });
        let growth = peak(&daemon) - before;
        // The bodies, one of them decompressed, and its parsed form.
        let limit = CLIENTS * body.len() + MAX_BYTES + BECOMES + SLACK;
        assert!(growth < limit as u64, "{what}: {} MiB, not {}", growth >> 20, limit >> 20);
        assert_eq!(push(&daemon, &losses(1)).status, 204);
    }
}

/// More lines about locks than the exporter remembers of many small requests.
#[test]
fn a_very_large_repeated_request_counts_once() {
    const LINES: usize = 8_500;
    let site = Site::new();
    site.configure("presets: [cordum]\nlogs: [{push: {}}]\n");
    let daemon = site.start_configured(&[]);
    // A slow machine may need more time than the exporter lets a client wait. The client then
    // retries.
    let taken = |daemon: &Daemon, body: &Value| {
        eventually("the exporter to accept the request", || match push(daemon, body).status {
            204 => Some(()),
            429 | 503 => None,
            status => panic!("{status}"),
        });
    };
    let value = |at: usize| json!([(1_782_394_624_000_000_000 + at).to_string(), "release failed: lock not owned"]);
    let values: Vec<Value> = (0..LINES).map(value).collect();
    let large = json!({"streams": [{"stream": {"job": "large"}, "values": values}]});
    taken(&daemon, &large);
    // Another client's request arrives in between, and the exporter is killed before the first
    // client receives its response.
    taken(&daemon, &losses(1));
    daemon.kill();
    let daemon = site.start_configured(&[]);
    taken(&daemon, &large);
    daemon.wait("the repeated lines are counted as duplicates", |daemon| daemon.scrape()[DUPLICATES] >= LINES as f64);
    assert_eq!(daemon.scrape()[EVENTS], LINES as f64 + 1.0);
}

/// Uses one thread for all work that must not wait.
#[test]
fn other_requests_are_answered_while_a_very_large_request_is_searched() {
    let site = Site::new();
    site.configure("presets: [cordum]\nlogs: [{push: {}}]\n");
    let (config, state) = (site.full_path("config.yaml"), site.full_path("state"));
    let arguments = ["--config.file", &config, "--state.dir", &state];
    let daemon = Daemon::start_with(&arguments, |command| command.env("TOKIO_WORKER_THREADS", "1"));
    daemon.wait_ready();
    let body = most();
    thread::scope(|scope| {
        let started = Instant::now();
        let client = scope.spawn(|| post(&daemon, JSON, &body).status);
        let mut longest = Duration::ZERO;
        while !client.is_finished() {
            let asked = Instant::now();
            assert_eq!(daemon.get("/-/healthy").status, 200);
            longest = longest.max(asked.elapsed());
        }
        // 503: a slow machine does not finish the request in time.
        assert!([204, 503].contains(&client.join().unwrap()));
        let whole = started.elapsed();
        assert!(longest < whole / 2, "another request waited {longest:?} while the large one took {whole:?}");
    });
}
