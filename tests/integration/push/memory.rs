//! What hostile and very large requests make of the exporter's memory.

use std::fs;
use std::thread;

use serde_json::Value;

use super::{DUPLICATES, EVENTS, losses, post, push};
use crate::daemon::{Daemon, not_owned};
use crate::redis::eventually;
use crate::site::Site;

const JSON: &str = "Content-Type: application/json\r\n";
const PROTOBUF: &str = "Content-Type: application/x-protobuf\r\n";
/// The largest that is taken.
const MAX_BYTES: usize = 8 << 20;
const CLIENTS: usize = 8;
/// 64 MiB of bodies, or few of them and what three requests become, with some slack for the allocator.
const MAX_GROWTH: u64 = 160 << 20;

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
    let site = Site::new();
    site.configure("presets: [cordum]\nlogs: [{push: {}}]\n");
    let daemon = site.start_configured(&[]);
    assert_eq!(push(&daemon, &losses(1)).status, 204);
    let before = peak(&daemon);
    for (what, headers, body, status) in [
        ("streams", JSON, filled(r#"{"streams":["#, "{},"), 400),
        ("a list as a label", JSON, filled(r#"{"streams":[{"stream":{"a":["#, "0,"), 400),
        ("empty labels", PROTOBUF, empty_labels(), 400),
        ("as much as may be", JSON, most(), 204),
    ] {
        thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| post(&daemon, headers, &body).status)).collect();
            for client in clients {
                // A machine that is slow may tell some to come again.
                let got = client.join().unwrap();
                assert!(got == status || got == 429, "{what}: {got}");
            }
        });
        let growth = peak(&daemon) - before;
        assert!(growth < MAX_GROWTH, "{what}: {} MiB", growth >> 20);
    }
    assert_eq!(push(&daemon, &losses(1)).status, 204);
}

/// More lines about locks than are remembered of many small requests.
#[test]
fn a_very_large_request_that_is_repeated_counts_once() {
    const LINES: usize = 10_000;
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
    let large = losses(LINES);
    taken(&daemon, &large);
    // Somebody else's comes in between, and the exporter is killed before the client has its answer.
    taken(&daemon, &losses(1));
    daemon.kill();
    let daemon = site.start_configured(&[]);
    taken(&daemon, &large);
    daemon.wait("repeated", |daemon| daemon.scrape()[DUPLICATES] >= LINES as f64);
    let samples = daemon.scrape();
    let counted = LINES as f64 + 1.0;
    assert_eq!((samples[EVENTS], samples[&not_owned("workflow", "release")]), (counted, counted));
}
