//! Tests lines that arrive in parts, are too long, or contain unusual bytes.

use crate::site::{Site, lost, lost_line};

const LOGS: &str = "logs/*.log";

#[test]
fn a_line_waits_for_its_newline_and_counts_once() {
    let site = Site::new();
    let daemon = site.start();
    let line = lost_line();
    let mut counted = 0;
    for piece in line.as_bytes().chunks(70) {
        site.append("logs/app.log", piece);
        // When the other file is counted, the daemon has read all earlier writes.
        site.append("logs/other.log", lost(1));
        counted += 1;
        daemon.wait_counted(counted);
    }
    site.append("logs/app.log", "\n");
    daemon.wait_counted(counted + 1);
}

#[test]
fn a_partial_line_counts_once_across_a_kill() {
    let site = Site::new();
    let daemon = site.start();
    let line = lost_line();
    site.append("logs/app.log", lost(1) + &line[..50]);
    daemon.wait_counted(1);
    daemon.kill();
    site.append("logs/app.log", &line[50..]);
    let daemon = site.start();
    site.append("logs/other.log", lost(1));
    daemon.wait_counted(2);
    site.append("logs/app.log", "\n");
    daemon.wait_counted(3);
}

#[test]
fn a_line_as_long_as_allowed_counts_and_a_longer_one_is_searched_in_its_first_part() {
    let site = Site::new();
    let limit = 4096;
    site.configure("presets: [cordum]\nlogs: [{path: 'SITE/logs/*.log', max_line_bytes: 4KiB}]\n");
    let daemon = site.start_configured(&[]);
    let oversized = site.series("log_oversized_lines_total", LOGS);

    // The matching text is at the end of the line.
    site.append("logs/app.log", format!("{}\n", padded(limit)));
    daemon.wait_counted(1);
    assert_eq!(daemon.scrape()[&oversized], 0.0);

    site.append("logs/app.log", format!("{} and more\n", padded(limit)));
    daemon.wait_counted(2);
    assert_eq!(daemon.scrape()[&oversized], 1.0);

    site.append("logs/app.log", format!("{}\n{}", padded(limit + 200), lost(1)));
    daemon.wait_counted(3);
    let samples = daemon.scrape();
    assert_eq!((samples[&oversized], samples[&site.series("log_lines_total", LOGS)]), (2.0, 4.0));
}

#[test]
fn an_endless_line_uses_no_memory_and_is_skipped_across_a_kill() {
    let site = Site::new();
    let bytes = site.series("log_bytes_total", LOGS);
    let mut written = 0.0;
    let mut daemon = site.start();
    // The line contains much text that would count on a separate line.
    let chunk = format!("{}{}", "x".repeat(1 << 20), lost_line());
    for index in 1..=64 {
        site.append("logs/app.log", &chunk);
        written += chunk.len() as f64;
        if index == 32 {
            daemon.wait_for(&bytes, written);
            daemon.kill();
            daemon = site.start();
        }
    }
    daemon.wait_for(&bytes, written);
    let samples = daemon.scrape();
    let memory = samples["process_resident_memory_bytes"];
    assert!(memory < 40e6, "{memory} bytes of memory");
    assert_eq!(samples[&site.series("log_oversized_lines_total", LOGS)], 1.0);
    site.append("logs/app.log", format!("\n{}", lost(1)));
    daemon.wait_counted(1);
    assert_eq!(daemon.scrape()[&site.series("log_lines_total", LOGS)], 2.0);
}

#[test]
fn invalid_bytes_do_not_affect_other_lines() {
    let site = Site::new();
    let daemon = site.start();
    let mut text: Vec<u8> = Vec::new();
    text.extend(b"\xef\xbb\xbf");
    text.extend(lost(1).bytes());
    text.extend(lost(1).replace('\n', "\r\n").bytes());
    text.extend([0; 5000]);
    text.extend(lost(1).bytes());
    text.extend(b"\n\r\n\0\n\xff\xfe\xfd\n\x1b[31m\n{\n[\n\"\n{\"msg\":\n");
    text.extend(lost(1).replace("WARN", "WA\u{0}RN").bytes());
    let mut invalid = lost(1).into_bytes();
    let at = invalid.windows(4).position(|window| window == b"run-").unwrap();
    invalid.splice(at..at, *b" \xc3\x28 \xf0\x9f");
    text.extend(invalid);
    text.extend(lost(1).bytes());
    site.append("logs/app.log", &text);
    daemon.wait_counted(6);
    let lines = text.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(daemon.scrape()[&site.series("log_lines_total", LOGS)], lines as f64);
}

/// Returns a line of this many bytes that ends with the matching text.
fn padded(length: usize) -> String {
    let line = lost_line().replacen('{', "{\"padding\":\"\",", 1);
    let padding = "x".repeat(length - line.len());
    line.replacen("\"padding\":\"", &format!("\"padding\":\"{padding}"), 1)
}
