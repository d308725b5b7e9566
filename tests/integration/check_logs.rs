//! Tests `check --logs`, which reports an outcome for each line of a sample.

use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::thread;

use serde_json::{Value, json};

use crate::daemon::{BINARY, command, text};
use crate::lines::{Wrapping, time};

const SAMPLE: &str = "\
[SCHEDULER] INFO started
[SCHEDULER] WARN lock release skipped: token mismatch key=cordum:scheduler:job:j-1
[SCHEDULER] WARN job lock release failed, retrying job_id=j-1 error=lock not owned
[GATEWAY] DEBUG approval lock acquired job_id=j-2 wait_ms=3
[SCHEDULER] WARN job lock renewal failed again job_id=j-3 error=boom
[SCHEDULER] INFO job state changed job_id=j-4 new_state=TIMEOUT
[SCHEDULER] INFO job state changed job_id=j-4 new_state=SUCCEEDED
[SCHEDULER] INFO job state changed job_id=j-4 new_state=RUNNING
[BILLING] ERROR could not take the mutex of invoice 7
[BILLING] ERROR clock skew, request blocked
    raise LockError(\"lock not owned\")
[SCHEDULER] WARN job lock renewal failed job_id=j-5 error=context canceled
[BILLING] ERROR acquire lock failed error=boom
{\"level\":\"WARN\",\"component\":\"scheduler\",\"msg\":\"job lock \\u0072enewal failed\",\"job_id\":\"j-6\",\"error\":\"boom\"}
";

fn check_with(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(BINARY)
        .arg("check")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // The program writes while it reads.
    thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input.as_bytes()).unwrap());
        child.wait_with_output().unwrap()
    })
}

/// Returns the JSON report about a sample, with the Cordum preset.
fn document(input: &str) -> Value {
    let output = check_with(&["--preset", "cordum", "--logs", "-", "--output", "json"], input);
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns `line outcome rule` for each line.
fn outcomes(document: &Value) -> Vec<String> {
    let lines = document["lines"].as_array().unwrap();
    let show = |line: &Value| {
        let rule = line["rule"].as_str().unwrap_or("-");
        format!("{} {} {rule}", line["line"], line["outcome"].as_str().unwrap())
    };
    lines.iter().map(show).collect()
}

#[test]
fn every_line_gets_an_outcome() {
    let document = document(SAMPLE);
    assert_eq!(
        outcomes(&document),
        [
            "1 silent -",
            "2 counted cordum/token-mismatch",
            "3 joined cordum/job-release-failed",
            "4 silent -",
            "5 near cordum/job-renewal-failed",
            "6 noted cordum/job-final-state",
            "7 counted cordum/job-final-state",
            "8 ignored cordum/job-final-state",
            "9 unknown -",
            "10 silent -",
            "11 near generic/not-owned",
            "12 ignored cordum/job-renewal-failed",
            "13 near cordum/resource-acquire-failed",
            "14 overlooked cordum/job-renewal-failed",
        ]
    );
    assert_eq!(document["problems"], json!([]));
    let summary = json!({
        "lines": 14, "counted": 2, "joined": 1, "noted": 1, "ignored": 2, "near": 3, "unknown": 1, "overlooked": 1, "silent": 3,
        "oversized": 0, "generic_rules_only": false,
    });
    assert_eq!(document["summary"], summary);
    let first = json!({
        "line": 2, "offset": 25, "outcome": "counted", "time": null, "event": "not_owned",
        "lock_namespace": "scheduler", "operation": "release", "reason": "not_owned", "lock_id": "j-1",
        "lock_key": "cordum:scheduler:job:j-1", "rule": "cordum/token-mismatch", "joins_line": null, "why": null,
        "message": null,
    });
    assert_eq!(document["lines"][1], first);
    assert_eq!(
        (&document["lines"][2]["joins_line"], &document["lines"][2]["event"]),
        (&json!(2), &json!("release_failed"))
    );
    let near = &document["lines"][4];
    assert_eq!(near["why"], "the message contains \"job lock renewal failed\" but is longer");
    assert_eq!(near["message"], "job lock renewal failed again");
}

#[test]
fn wrapped_and_split_lines_are_reported_at_their_first_line() {
    let bare = document(SAMPLE);
    for wrapping in Wrapping::ALL {
        let log: String = SAMPLE.lines().map(|line| wrapping.wrap(line, &time(0))).collect();
        let document = document(&log);
        let lines = document["lines"].as_array().unwrap();
        let n_pieces = if wrapping == Wrapping::CriPieces { 2 } else { 1 };
        assert_eq!(document["summary"]["lines"], 14 * n_pieces, "{wrapping:?}");
        for outcome in ["counted", "joined", "noted", "near", "unknown", "silent"] {
            let numbers = |all: &[Value]| -> Vec<u64> {
                let of_outcome = all.iter().filter(|line| line["outcome"] == outcome);
                of_outcome.map(|line| line["line"].as_u64().unwrap()).collect()
            };
            let alone = numbers(bare["lines"].as_array().unwrap());
            let expected: Vec<u64> = alone.iter().map(|number| (number - 1) * n_pieces + 1).collect();
            assert_eq!(numbers(lines), expected, "{wrapping:?} {outcome}");
        }
        let offset = lines[1]["offset"].as_u64().unwrap() as usize;
        assert!(offset == 0 || log.as_bytes()[offset - 1] == b'\n');
        if wrapping != Wrapping::Bare {
            assert_eq!(lines[1]["time"], "2026-06-25T13:00:00Z");
        }
    }
}

/// `check --logs` must report exactly the events that `replay`, and therefore the daemon, counts.
#[test]
fn check_logs_counts_the_same_as_replay() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sample.log.gz");
    let mut log = String::new();
    for number in 0..300 {
        log += &SAMPLE.replace("j-", &format!("{number}-")).replace("invoice 7", &"long ".repeat(number % 300));
    }
    let mut encoder = flate2::write::GzEncoder::new(fs::File::create(&path).unwrap(), flate2::Compression::fast());
    encoder.write_all(log.as_bytes()).unwrap();
    encoder.finish().unwrap();
    let replayed = command(&["replay", "--preset", "cordum", "--output", "events", text(&path)]);
    let events = String::from_utf8(replayed.stdout).unwrap();
    let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let checked = command(&["check", "--preset", "cordum", "--logs", text(&path), "--output", "json"]);
    let document: Value = serde_json::from_slice(&checked.stdout).unwrap();
    let counted: Vec<&Value> =
        document["lines"].as_array().unwrap().iter().filter(|line| line["outcome"] == "counted").collect();
    assert_eq!((counted.len(), events.len()), (600, 600));
    for (line, event) in counted.iter().zip(&events) {
        for name in ["offset", "event", "lock_namespace", "operation", "reason", "lock_id", "rule"] {
            assert_eq!(line[name], event[name], "{line}");
        }
    }
}

#[test]
fn text_output_is_short_and_aligned() {
    let output = check_with(&["--preset", "cordum", "--logs", "-"], SAMPLE);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
    assert!(shown.starts_with("The configuration is good.\n\n"), "{shown}");
    for row in [
        "      1  silent      contains none of the texts that the rules search for\n",
        "      2  counted     not_owned       scheduler            operation=release  reason=not_owned  lock=j-1  \
         rule=cordum/token-mismatch\n",
        "      3  joined      release_failed  scheduler            line=2  operation=release  reason=not_owned  lock=j-1  \
         rule=cordum/job-release-failed\n",
        "      5  near        cordum/job-renewal-failed: the message contains \"job lock renewal failed\" but is longer\n\
         \x20                    job lock renewal failed again\n",
        "\n     14  lines\n      2  counted     a separate failure\n",
    ] {
        assert!(shown.contains(row), "{row}\nin\n{shown}");
    }
    assert!(!shown.contains('\x1b'), "output to a pipe must have no colors");
}

#[test]
fn control_characters_in_lines_are_escaped() {
    let log = "[SCHEDULER] WARN lock release skipped: token mismatch key=\x1b]0;title\x07\x08x\n\
               [X] WARN lock \x07lost and failed\x1b[2J\n";
    let output = check_with(&["--preset", "cordum", "--logs", "-"], log);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.chars().all(|character| character == '\n' || !character.is_control()), "{shown:?}");
}

#[test]
fn check_logs_reports_that_only_generic_rules_apply() {
    let output = check_with(&["--logs", "-"], SAMPLE);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains("\nNeither --config.file nor --preset was given: only the generic rules are used.\n"));
    assert!(shown.contains("generic/release-token-mismatch"), "{shown}");
    let output = check_with(&["--logs", "-", "--output", "json"], "");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&document["lines"], &document["summary"]["generic_rules_only"]), (&json!([]), &json!(true)));
}

#[test]
fn unreadable_files_and_bad_configurations_are_errors() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing.log");
    for output in ["text", "json"] {
        let result = command(&["check", "--logs", text(&missing), "--output", output]);
        let complaint = format!("cannot open {missing:?}: No such file or directory (os error 2)\n");
        assert_eq!((result.status.code(), String::from_utf8_lossy(&result.stderr).into_owned()), (Some(2), complaint));
        assert_eq!(result.stdout.len(), 0);
    }
    assert_eq!(command(&["check", "--logs", text(directory.path())]).status.code(), Some(2));
    let config = directory.path().join("c.yaml");
    fs::write(&config, "namespaces: [{name: A}]\n").unwrap();
    let result = command(&["check", "--config.file", text(&config), "--logs", text(&missing), "--output", "json"]);
    let document: Value = serde_json::from_slice(&result.stdout).unwrap();
    assert_eq!(result.status.code(), Some(1));
    assert_eq!((&document["lines"], &document["summary"]), (&json!([]), &Value::Null));
    assert_eq!(document["problems"][0]["line"], 1);
}

#[test]
fn long_lines_and_a_closed_output_pipe_are_handled() {
    let long = format!("[X] ERROR lock failed {}\n", "x".repeat(2 << 20));
    let document = document(&format!("{long}{SAMPLE}"));
    assert_eq!((&document["summary"]["oversized"], &document["summary"]["lines"]), (&json!(1), &json!(15)));
    assert_eq!(outcomes(&document)[..3], ["1 unknown -", "2 silent -", "3 counted cordum/token-mismatch"]);

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.log");
    fs::write(&path, SAMPLE.repeat(300)).unwrap();
    let mut child = Command::new(BINARY)
        .args(["check", "--preset", "cordum", "--logs", text(&path)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}
