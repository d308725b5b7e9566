//! Tests `replay` as people and scripts use it: all kinds of files, its three output formats, its
//! exit codes.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::daemon::{BINARY, Samples, command, not_owned, text};
use crate::lines::{Line, time};

fn lost(job: &str, at: u64) -> String {
    let attributes = [("job_id", job), ("attempt", "1"), ("error", "lock not owned")];
    Line::new("scheduler", "job lock renewal failed", &attributes).json(&time(at)) + "\n"
}

struct Logs {
    directory: tempfile::TempDir,
}

impl Logs {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::write(&path, content).unwrap();
        path
    }

    fn write_gzip(&self, name: &str, contents: &[&str]) -> PathBuf {
        let path = self.directory.path().join(name);
        let mut bytes = Vec::new();
        // Several gzip members, as `cat a.gz b.gz` produces.
        for content in contents {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(content.as_bytes()).unwrap();
            bytes.extend(encoder.finish().unwrap());
        }
        fs::write(&path, bytes).unwrap();
        path
    }
}

fn replay(arguments: &[&str]) -> Output {
    command(&[&["replay", "--preset", "cordum"], arguments].concat())
}

fn lines(output: &[u8]) -> Vec<Value> {
    String::from_utf8_lossy(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn events(arguments: &[&str]) -> Vec<Value> {
    let output = replay(&[&["--output", "events"], arguments].concat());
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "standard error must be empty without a terminal");
    lines(&output.stdout)
}

fn names(event: &Value) -> BTreeSet<&str> {
    event.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn an_event_has_the_documented_fields_and_the_offset_of_its_line() {
    let logs = Logs::new();
    let noise = "[SCHEDULER] INFO ready\r\n\u{feff}\n";
    let path = logs.write("a.log", &format!("{noise}{}{}", lost("j-1", 0), "[X] WARN lock invoice:7: token mismatch"));
    let found = events(&[text(&path)]);
    let with_key = json!({
        "file": text(&path), "offset": noise.len(), "time": "2026-06-25T13:00:00Z", "event": "not_owned",
        "lock_namespace": "scheduler", "operation": "renew", "reason": "not_owned", "lock_id": "j-1",
        "lock_key": "cordum:scheduler:job:j-1", "rule": "cordum/job-renewal-failed",
    });
    let without = json!({
        "file": text(&path), "offset": noise.len() + lost("j-1", 0).len(), "time": null, "event": "not_owned",
        "lock_namespace": "other", "operation": "unknown", "reason": "not_owned", "lock_id": null,
        "rule": "generic/token-mismatch",
    });
    assert_eq!(found, [with_key, without]);
}

#[test]
fn the_order_of_the_fields_is_always_the_same() {
    let logs = Logs::new();
    let path = logs.write("a.log", &lost("j-1", 0));
    let output = replay(&["--output", "events", text(&path)]);
    let printed = String::from_utf8(output.stdout).unwrap();
    let mut rest = printed.as_str();
    for name in
        ["file", "offset", "time", "event", "lock_namespace", "operation", "reason", "lock_id", "lock_key", "rule"]
    {
        let at = rest.find(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{name} in {printed}"));
        rest = &rest[at..];
    }
}

#[test]
fn redacted_output_has_no_ids() {
    let logs = Logs::new();
    let log = lost("secret-1", 0) + "[SCHEDULER] WARN lock release skipped: token mismatch key=secret:key:2\n";
    let path = logs.write("a.log", &log);
    let found = events(&["--redact", text(&path)]);
    let expected: BTreeSet<&str> =
        ["file", "offset", "time", "event", "lock_namespace", "operation", "reason", "rule"].into();
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|event| names(event) == expected), "{found:?}");
    for output in ["events", "metrics", "table"] {
        let printed = replay(&["--redact", "--output", output, text(&path)]);
        assert!(!String::from_utf8(printed.stdout).unwrap().contains("secret"), "{output}");
    }
}

#[test]
fn files_may_be_plain_compressed_or_standard_input() {
    let logs = Logs::new();
    let plain = logs.write("a.log", &lost("j-1", 0));
    // The format is detected by content, not by name.
    let compressed = logs.write_gzip("b.log", &[&lost("j-2", 0), &lost("j-3", 0)]);
    let mut child = Command::new(BINARY)
        .args(["replay", "--preset", "cordum", "--output", "events", text(&compressed), "-", text(&plain)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(lost("j-4", 0).trim_end().as_bytes()).unwrap();
    let found = lines(&child.wait_with_output().unwrap().stdout);
    let shown: Vec<(&str, u64, &str)> = found
        .iter()
        .map(|event| {
            let (file, id) = (event["file"].as_str().unwrap(), event["lock_id"].as_str().unwrap());
            (file, event["offset"].as_u64().unwrap(), id)
        })
        .collect();
    let second = lost("j-2", 0).len() as u64;
    let (plain, compressed) = (text(&plain), text(&compressed));
    assert_eq!(shown, [(compressed, 0, "j-2"), (compressed, second, "j-3"), ("-", 0, "j-4"), (plain, 0, "j-1")]);
}

#[test]
fn unreadable_files_are_reported_and_other_files_are_processed() {
    let logs = Logs::new();
    let good = logs.write("good.log", &lost("j-1", 0));
    let directory = text(logs.directory.path());
    let missing = logs.directory.path().join("missing.log");
    let broken = logs.write_gzip("broken.gz", &[&lost("j-2", 0).repeat(100)]);
    let bytes = fs::read(&broken).unwrap();
    fs::write(&broken, &bytes[..bytes.len() - 12]).unwrap();
    let output = replay(&["--output", "events", text(&missing), directory, text(&broken), text(&good)]);
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8(output.stderr).unwrap();
    let complaints = [
        format!("cannot open {missing:?}: No such file or directory"),
        format!("{directory:?} is a directory; name the files in it"),
        format!("cannot read {broken:?}: "),
    ];
    for complaint in &complaints {
        assert!(errors.contains(complaint.as_str()), "{complaint} in {errors}");
    }
    assert_eq!(errors.lines().count(), complaints.len(), "{errors}");
    assert_eq!(lines(&output.stdout).last().unwrap()["lock_id"], "j-1");
}

#[test]
fn failures_in_several_files_are_joined_by_time_or_else_by_position() {
    let logs = Logs::new();
    let first = logs.write("1.log", &lost("j-1", 0));
    let second = logs.write("2.log", &lost("j-1", 500));
    assert_eq!(events(&[text(&first), text(&second)]).len(), 1, "two replicas, one failure");
    let line = "[SCHEDULER] WARN lock release skipped: token mismatch key=cordum:scheduler:job:1\n";
    let filler = "[SCHEDULER] INFO nothing happens here\n".repeat(10_000);
    let rotated = logs.write("app.log.1", &format!("{line}{filler}"));
    let current = logs.write("app.log", line);
    assert_eq!(
        events(&[text(&rotated), text(&current)]).len(),
        2,
        "the failures are far apart, although both are at the start of a file"
    );
    let split = [logs.write("b.log.1", line), logs.write("b.log", line)];
    assert_eq!(events(&[text(&split[0]), text(&split[1])]).len(), 1, "a rotation splits the failure");
}

#[test]
fn replay_metrics_are_complete_and_pass_promtool() {
    let logs = Logs::new();
    let path = logs.write("a.log", &(lost("j-1", 0) + &lost("j-2", 0)));
    let output = replay(&["--output", "metrics", text(&path)]);
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
    let samples = Samples::parse(&String::from_utf8(output.stdout.clone()).unwrap());
    assert_eq!(samples[&not_owned("scheduler", "renew")], 2.0);
    assert_eq!(samples[&not_owned("workflow", "release")], 0.0, "counters of 0 must be present");

    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = promtool.spawn().expect("promtool is installed");
    promtool.stdin.take().unwrap().write_all(&output.stdout).unwrap();
    let verdict = promtool.wait_with_output().unwrap();
    let complaints = String::from_utf8_lossy(&verdict.stderr).into_owned() + &String::from_utf8_lossy(&verdict.stdout);
    assert!(verdict.status.success() && complaints.is_empty(), "{complaints}");
}

/// Issue 18: in a log without times, all lines about one lock were one failure.
#[test]
fn lines_without_a_time_are_joined_only_if_they_are_adjacent() {
    let line = |id: &str| format!("[SCHEDULER] WARN job lock renewal failed job_id={id} error=\"lock not owned\"\n");
    let (one, two) = (line("j-1"), line("j-2"));
    let logs = Logs::new();
    let check = |text_of_log: &str, losses: usize| {
        let path = logs.write("a.log", text_of_log);
        assert_eq!(events(&[text(&path)]).len(), losses, "replay: {text_of_log:.400}");
        let checked = command(&["check", "--preset", "cordum", "--output", "json", "--logs", text(&path)]);
        let checked = String::from_utf8(checked.stdout).unwrap();
        assert_eq!(checked.matches("\"outcome\":\"counted\"").count(), losses, "check: {checked:.400}");
    };
    check(&format!("{one}[SCHEDULER] INFO ready\n").repeat(75), 75);
    check(&format!("{one}{two}").repeat(75), 150);
    check(&one.repeat(3), 1);
}

#[test]
fn the_table_shows_counts_per_namespace_and_a_summary() {
    let logs = Logs::new();
    let path = logs.write("a.log", &(lost("j-1", 0) + "[SCHEDULER] INFO ready\n"));
    let output = replay(&[text(&path)]);
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
    let table = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<&str> = table.lines().collect();
    assert!(rows[0].starts_with("NAMESPACE  LOST AT RELEASE  LOST AT RENEWAL  "), "{table}");
    let numbers: Vec<&str> = rows[1].split_whitespace().collect();
    assert_eq!(numbers[..5], ["scheduler", "0", "1", "0", "1"], "{table}");
    assert!(numbers[5..].iter().all(|number| *number == "0"), "{table}");
    assert_eq!(rows[0].len(), rows[1].len(), "aligned");
    assert_eq!(rows[2], "");
    assert!(rows[3].starts_with("2 lines, 0.0 MB in "), "{table}");
    assert!(rows[3].ends_with("; 1 of the lines speak of locks, 0 were too long"), "{table}");
    assert!(!table.contains('\x1b') && !table.contains('\r'));

    let quiet = logs.write("quiet.log", "[SCHEDULER] INFO ready\n");
    let table = String::from_utf8(replay(&[text(&quiet)]).stdout).unwrap();
    assert!(table.starts_with("No lock failures found.\n"), "{table}");
    let empty = logs.write("empty.log", "");
    assert_eq!(replay(&[text(&empty)]).status.code(), Some(0));
}

#[test]
fn a_closed_output_pipe_is_not_an_error() {
    let logs = Logs::new();
    let log: String = (0..3000).map(|number| lost(&format!("j-{number}"), 0)).collect();
    let path = logs.write("a.log", &log);
    let mut child = Command::new(BINARY)
        .args(["replay", "--preset", "cordum", "--output", "events", text(&path)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.contains("j-0"));
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn a_line_that_is_too_long_is_searched_in_its_first_part_and_skipped() {
    let logs = Logs::new();
    let padding = "x".repeat(2 << 20);
    let in_front = format!("[SCHEDULER] WARN lock release skipped: token mismatch key=a:1 pad={padding}\n");
    let behind = format!("[SCHEDULER] WARN pad={padding} lock not owned\n");
    let path = logs.write("a.log", &format!("{in_front}{behind}{}", lost("j-1", 0)));
    let found = events(&[text(&path)]);
    let offsets: Vec<u64> = found.iter().map(|event| event["offset"].as_u64().unwrap()).collect();
    assert_eq!(offsets, [0, (in_front.len() + behind.len()) as u64]);
    let table = String::from_utf8(replay(&[text(&path)]).stdout).unwrap();
    assert!(table.contains("3 lines, ") && table.contains(" 2 were too long"), "{table}");
}

#[test]
fn bad_usage_and_bad_configurations_are_refused() {
    let logs = Logs::new();
    let path = logs.write("a.log", &lost("j-1", 0));
    let bad = logs.write("bad.yaml", "namespaces: [{name: A}]\n");
    let output = command(&["replay", "--config.file", text(&bad), text(&path)]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(64), 0));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("bad.yaml:1:21: \"A\" cannot be the name of a namespace"), "{errors}");
    assert_eq!(command(&["replay"]).status.code(), Some(64));
    assert_eq!(command(&["replay", "--preset", "cordon", text(&path)]).status.code(), Some(64));
    assert_eq!(command(&["replay", "--output", "xml", text(&path)]).status.code(), Some(64));
}

#[test]
fn a_configuration_for_replay_needs_no_log_sources() {
    let logs = Logs::new();
    let config =
        "rules: [{name: mine, message: 'lease gone', event: not_owned, operation: renew, namespace: jobs, id: job}]
namespaces: [{name: jobs, keys: 'jobs:{job}'}]
join_window: 0s
";
    let config = logs.write("c.yaml", config);
    let path = logs.write("a.log", "level=warn msg=\"lease gone\" job=7\nlevel=warn msg=\"lease gone\" job=7\n");
    let output = command(&["replay", "--config.file", text(&config), "--output", "events", text(&path)]);
    let found = lines(&output.stdout);
    assert_eq!(found.len(), 2, "0s joins nothing: {found:?}");
    assert_eq!((&found[0]["lock_key"], &found[0]["rule"]), (&json!("jobs:7"), &json!("mine")));
    let generic = command(&["replay", "--output", "events", text(Path::new(&path))]);
    assert_eq!(lines(&generic.stdout).len(), 0, "only the generic rules apply");
}
