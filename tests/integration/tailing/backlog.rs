//! Tests a long backlog, which the program searches in two places at once. It must not lose, repeat
//! or misplace lines at the boundaries.

use std::fs;

use crate::daemon::command;
use crate::site::{Site, lost_line};

/// Several times the amount that is read and searched ahead in one turn (8 MiB).
const LONG: usize = 60_000_000;
/// Slightly more than that amount. Split lines take longer, because the program parses every one of
/// them.
const LONG_ENOUGH: usize = 9_000_000;

struct Backlog {
    text: Vec<u8>,
    /// The offsets of the lines about lost locks.
    offsets: Vec<u64>,
    lines: u64,
}

/// Lines of very different lengths, some longer than a block, a few longer than allowed. This many
/// of 4000 count.
fn backlog(bytes: usize, counting: u64, wrap: impl Fn(&str, u64) -> String) -> Backlog {
    let mut backlog = Backlog { text: Vec::with_capacity(bytes + (4 << 20)), offsets: Vec::new(), lines: 0 };
    let mut seed = 1u64;
    while backlog.text.len() < bytes {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = seed >> 40;
        let line = match number % 4000 {
            0 => "x".repeat(300_000),
            1 => "y".repeat(1_500_000),
            2.. if number % 4000 < counting => {
                backlog.offsets.push(backlog.text.len() as u64);
                lost_line()
            }
            other => format!("{{\"msg\":\"nothing to see\",\"padding\":\"{}\"}}", "z".repeat(other as usize % 900)),
        };
        let wrapped = wrap(&line, number);
        backlog.lines += wrapped.lines().count() as u64;
        backlog.text.extend_from_slice(wrapped.as_bytes());
    }
    backlog
}

fn check_replay(site: &Site, backlog: &Backlog) {
    fs::write(site.path("logs/app.log"), &backlog.text).unwrap();
    let replayed = command(&["replay", "--preset", "cordum", "--output", "events", &site.full_path("logs/app.log")]);
    let offsets: Vec<u64> = String::from_utf8(replayed.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["offset"].as_u64().unwrap())
        .collect();
    assert_eq!(offsets, backlog.offsets, "replay must find every line at its offset, once and in order");
}

fn check(site: &Site, backlog: &Backlog) {
    check_replay(site, backlog);
    site.configure("presets: [cordum]\nlogs: [{path: SITE/logs/*.log, start_at: beginning}]\n");
    // The test kills the daemon in the middle, more than once.
    for _ in 0..3 {
        let daemon = site.start_configured(&[]);
        daemon.wait("the first lines are read", |daemon| {
            daemon.scrape()[&site.series("log_lines_total", "logs/*.log")] > 0.0
        });
        daemon.kill();
    }
    let daemon = site.start_configured(&[]);
    let (lines, events) = (site.series("log_lines_total", "logs/*.log"), site.series("log_events_total", "logs/*.log"));
    daemon.wait("all lines are read", |daemon| daemon.scrape()[&lines] >= backlog.lines as f64);
    let samples = daemon.scrape();
    assert_eq!(samples[&lines], backlog.lines as f64);
    assert_eq!(samples[&events], backlog.offsets.len() as f64);
    assert_eq!(samples[&site.series("log_bytes_total", "logs/*.log")], backlog.text.len() as f64);
}

#[test]
fn every_line_of_a_long_backlog_counts_once() {
    check(&Site::new(), &backlog(LONG, 100, |line, _| format!("{line}\n")));
}

fn cut(line: &str, number: u64) -> String {
    let line = &line[..line.len().min(20_000)];
    let at = number as usize % line.len();
    let time = "2026-06-25T13:37:04.123456789Z";
    format!("{time} stderr P {}\n{time} stderr F {}\n", &line[..at], &line[at..])
}

#[test]
fn split_lines_in_a_long_backlog_are_joined() {
    check(&Site::new(), &backlog(LONG_ENOUGH, 100, cut));
}

/// Nearly every line counts, so lines at the boundaries count too.
#[test]
fn split_lines_are_joined_across_search_boundaries() {
    check_replay(&Site::new(), &backlog(LONG_ENOUGH, 3900, cut));
}
