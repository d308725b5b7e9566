//! What hostile and very large requests make of the exporter: of its memory, and of its answers to others.

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
/// The largest that is taken.
const MAX_BYTES: usize = 8 << 20;
const CLIENTS: usize = 8;
/// What the largest request becomes in memory, beside its text.
const BECOMES: usize = 40 << 20;
/// For the allocator.
const SLACK: usize = 8 << 20;

/// The most that was ever resident, in bytes.
fn peak(daemon: &Daemon) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

/// The pattern again and again, as often as it fits.
fn filled(start: &str, pattern: &str) -> Vec<u8> {
    let count = (MAX_BYTES - start.len()) / pattern.len();
    format!("{start}{}", pattern.repeat(count)).into_bytes()
}

/// Lines with 128 empty labels each, two bytes a label.
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

/// As much as one request may hold: 100,000 lines with two labels each.
fn most() -> Vec<u8> {
    let entry = r#"["1","",{"a":"b","c":"d"}]"#;
    format!(r#"{{"streams":[{{"stream":{{}},"values":[{}]}}]}}"#, vec![entry; 100_000].join(",")).into_bytes()
}

#[test]
fn hostile_requests_take_no_more_memory_than_is_said() {
    for (what, headers, body, status) in [
        ("streams", JSON, filled(r#"{"streams":["#, "{},"), 400),
        ("a list as a label", JSON, filled(r#"{"streams":[{"stream":{"a":["#, "0,"), 400),
        ("empty labels", PROTOBUF, empty_labels(), 400),
        ("as much as may be", JSON, most(), 204),
    ] {
        // Each of its own: what the allocator keeps of one kind is no memory of the next one.
        let site = Site::new();
        site.configure("presets: [cordum]\nlogs: [{push: {}}]\n");
        let daemon = site.start_configured(&[]);
        assert_eq!(push(&daemon, &losses(1)).status, 204);
        let before = peak(&daemon);
        thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| post(&daemon, headers, &body).status)).collect();
            for client in clients {
                // A machine that is slow may tell some to come again.
                let got = client.join().unwrap();
                assert!(got == status || got == 429 || got == 503, "{what}: {got}");
            }
        });
        let growth = peak(&daemon) - before;
        // The bodies, one of them unpacked, and what it becomes.
        let said = CLIENTS * body.len() + MAX_BYTES + BECOMES + SLACK;
        assert!(growth < said as u64, "{what}: {} MiB, not {}", growth >> 20, said >> 20);
        assert_eq!(push(&daemon, &losses(1)).status, 204);
    }
}

/// More lines about locks than are remembered of many small requests.
#[test]
fn a_very_large_request_that_is_repeated_counts_once() {
    const LINES: usize = 8_500;
    let site = Site::new();
    site.configure("presets: [cordum]\nlogs: [{push: {}}]\n");
    let daemon = site.start_configured(&[]);
    // A slow machine may need more time than a client is made to wait, who comes again then.
    let taken = |daemon: &Daemon, body: &Value| {
        eventually("taken", || match push(daemon, body).status {
            204 => Some(()),
            429 | 503 => None,
            status => panic!("{status}"),
        });
    };
    let value = |at: usize| json!([(1_782_394_624_000_000_000 + at).to_string(), "release failed: lock not owned"]);
    let values: Vec<Value> = (0..LINES).map(value).collect();
    let large = json!({"streams": [{"stream": {"job": "large"}, "values": values}]});
    taken(&daemon, &large);
    // Somebody else's comes in between, and the exporter is killed before the client has its answer.
    taken(&daemon, &losses(1));
    daemon.kill();
    let daemon = site.start_configured(&[]);
    taken(&daemon, &large);
    daemon.wait("repeated", |daemon| daemon.scrape()[DUPLICATES] >= LINES as f64);
    assert_eq!(daemon.scrape()[EVENTS], LINES as f64 + 1.0);
}

/// With one thread for everything that must not wait.
#[test]
fn others_are_answered_while_a_very_large_request_is_searched() {
    let site = Site::new();
    site.configure("presets: [cordum]\nlogs: [{push: {}}]\n");
    let (config, state) = (site.place("config.yaml"), site.place("state"));
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
        // 503: a slow machine does not get done with it in time.
        assert!([204, 503].contains(&client.join().unwrap()));
        let whole = started.elapsed();
        assert!(longest < whole / 2, "waited {longest:?} while a request took {whole:?}");
    });
}
