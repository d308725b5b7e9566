//! Runs Cordum's log lines through `replay`: each line alone in every format, and groups of lines
//! that form one or more failures.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::{Value, json};

use crate::daemon::{Samples, command, not_owned, text};
use crate::lines::{Line, Wrapping, time};

const LINES: &str = include_str!("../fixtures/cordum-lines.yaml");
const JOB: &str = "7c1f0a52-3f0e-4b6a-9a55-2f6f7f1f2f10";
const KEY: &str = "cordum:scheduler:job:7c1f0a52-3f0e-4b6a-9a55-2f6f7f1f2f10";
const LOST: &str = "lock not owned";

fn replay(log: &str, output: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cordum.log");
    fs::write(&path, log).unwrap();
    let output = command(&["replay", "--preset", "cordum", "--output", output, text(&path)]);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
    String::from_utf8(output.stdout).unwrap()
}

fn events(log: &str) -> Vec<Value> {
    replay(log, "events").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Groups the entries of the table so that no lock appears twice in a group. This prevents `replay`
/// from joining lines.
fn rounds() -> Vec<Vec<Line>> {
    let lines: Vec<Line> = serde_yaml::from_str(LINES).unwrap();
    let mut rounds: Vec<(BTreeSet<String>, Vec<Line>)> = Vec::new();
    for (number, line) in lines.into_iter().enumerate() {
        let line = with_own_ids(line, number);
        let lock = line.expect.get("lock").cloned();
        let is_free = |locks: &BTreeSet<String>| lock.as_ref().is_none_or(|lock| !locks.contains(lock));
        let index = rounds.iter().position(|(locks, _)| is_free(locks)).unwrap_or_else(|| {
            rounds.push(Default::default());
            rounds.len() - 1
        });
        rounds[index].0.extend(lock);
        rounds[index].1.push(line);
    }
    rounds.into_iter().map(|(_, lines)| lines).collect()
}

fn with_own_ids(line: Line, number: usize) -> Line {
    use crate::lines::Value;
    let rename = |text: &str| {
        let text = text.replace(JOB, &format!("job-{number}"));
        text.replace("run-91b2", &format!("run-{number}")).replace("org-7", &format!("org-{number}"))
    };
    let attributes = line.attributes.into_iter().map(|(name, value)| match value {
        Value::Text(text) => (name, Value::Text(rename(&text))),
        other => (name, other),
    });
    let expect = line.expect.into_iter().map(|(name, value)| (name, rename(&value)));
    Line { attributes: attributes.collect(), expect: expect.collect(), ..line }
}

/// Returns the event that `replay` should print for an entry of the table. A loss appears as one
/// event.
fn expected(line: &Line) -> Option<BTreeMap<String, Value>> {
    let get = |name: &str| line.expect.get(name).map(String::as_str);
    let (event, operation) = match (get("event")?, get("reason")) {
        ("terminal_state", _) => return None,
        ("release_failed" | "renewal_failed", Some("not_owned")) => ("not_owned", get("operation")),
        ("conflicting_write", _) => (get("kind").unwrap(), None),
        (event, _) => (event, get("operation")),
    };
    let fields = [
        ("event", json!(event)),
        ("lock_namespace", json!(get("lock_namespace"))),
        ("operation", json!(operation)),
        ("reason", json!(get("reason"))),
        ("lock", json!(get("lock"))),
    ];
    Some(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn found(event: &Value) -> BTreeMap<String, Value> {
    let mut found: BTreeMap<String, Value> =
        ["event", "lock_namespace", "operation", "reason"].map(|name| (name.to_owned(), event[name].clone())).into();
    let lock = event.get("lock_key").unwrap_or(&event["lock_id"]);
    found.insert("lock".to_owned(), lock.clone());
    found
}

#[test]
fn every_line_in_every_form() {
    let rounds = rounds();
    assert!(rounds.iter().map(Vec::len).sum::<usize>() > 150);
    for lines in &rounds {
        for wrapping in Wrapping::ALL {
            for is_json in [true, false] {
                check_form(lines, wrapping, is_json);
            }
        }
    }
}

fn check_form(lines: &[Line], wrapping: Wrapping, is_json: bool) {
    let mut log = String::new();
    let mut wanted = BTreeMap::new();
    for line in lines {
        wanted.insert(log.len() as u64, line);
        let program_lines = if is_json { line.json(&time(0)) } else { line.text() };
        for program_line in program_lines.split('\n') {
            log += &wrapping.wrap(program_line, &time(0));
        }
    }
    let mut by_offset: BTreeMap<u64, Value> = BTreeMap::new();
    for event in events(&log) {
        let offset = event["offset"].as_u64().unwrap();
        assert!(by_offset.insert(offset, event).is_none(), "two events at {offset}");
    }
    for (offset, line) in wanted {
        let event = by_offset.remove(&offset);
        let shown = || format!("{wrapping:?} {}\n{event:?}", if is_json { line.json("") } else { line.text() });
        assert_eq!(event.as_ref().map(found), expected(line), "{}", shown());
        let has_time = is_json || wrapping != Wrapping::Bare;
        let times = event.as_ref().map(|event| event["time"].is_string());
        assert!(times.is_none_or(|times| times == has_time), "{}", shown());
    }
    assert_eq!(by_offset, BTreeMap::new(), "unexpected events of other lines");
}

/// Checks that lines with the given times in ms produce exactly these nonzero counters. Counters
/// have no `redis_lock_` prefix and show only label values. Runs the lines as JSON, and as text in
/// Docker's format.
fn check(lines: &[(u64, Line)], totals: &[(&str, u64)]) {
    let expected: BTreeMap<String, u64> = totals.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    for is_json in [true, false] {
        let log: String = lines
            .iter()
            .map(|(at, line)| match is_json {
                true => Wrapping::Bare.wrap(&line.json(&time(*at)), ""),
                false => Wrapping::Docker.wrap(&line.text(), &time(*at)),
            })
            .collect();
        assert_eq!(counters(&log), expected, "{log}");
    }
}

fn counters(log: &str) -> BTreeMap<String, u64> {
    let samples = Samples::parse(&replay(log, "metrics"));
    // The cause is unknown without Redis.
    let is_told = |series: &str| series.contains("_total{") && !series.contains("_causes_");
    let counters = samples.into_iter().filter(|(series, value)| *value > 0.0 && is_told(series));
    let short = |series: &str| {
        let (name, labels) = series.trim_start_matches("redis_lock_").split_once("_total{").unwrap();
        let values: Vec<&str> = labels.split('"').skip(1).step_by(2).collect();
        format!("{name} {}", values.join(" "))
    };
    counters.map(|(series, value)| (short(&series), value as u64)).collect()
}

fn mismatch(component: &str, key: &str) -> Line {
    Line::new(component, "lock release skipped: token mismatch", &[("key", key)])
}

fn release_failed(job: &str, error: &str) -> Line {
    Line::new("scheduler", "job lock release failed, retrying", &[("job_id", job), ("error", error)])
}

fn release_retry_failed(job: &str, error: &str) -> Line {
    let attributes = [("job_id", job), ("ttl", "1m0s"), ("error", error)];
    Line::new("scheduler", "job lock release retry failed, lock will expire via TTL", &attributes)
}

/// Four lines within milliseconds.
fn release_loss(at: u64, job: &str) -> Vec<(u64, Line)> {
    let key = format!("cordum:scheduler:job:{job}");
    vec![
        (at, mismatch("scheduler", &key)),
        (at + 1, release_failed(job, LOST)),
        (at + 3, mismatch("scheduler", &key)),
        (at + 4, release_retry_failed(job, LOST)),
    ]
}

/// Four lines over 40 s.
fn renewal_loss(at: u64, job: &str, errors: [&str; 3]) -> Vec<(u64, Line)> {
    let renewal = |attempt, error| {
        let attributes = [("job_id", job), ("attempt", attempt), ("error", error)];
        Line::new("scheduler", "job lock renewal failed", &attributes)
    };
    let abandoned = Line::new(
        "scheduler",
        "lock renewal abandoned, fencing critical section",
        &[("job_id", job), ("failures", "3"), ("error", errors[2])],
    );
    vec![
        (at, renewal("1", errors[0])),
        (at + 20_000, renewal("2", errors[1])),
        (at + 40_001, abandoned),
        (at + 41_500, Line::new("scheduler", "skipping lock release after abandonment", &[("job_id", job)])),
    ]
}

#[test]
fn a_lock_lost_at_release_counts_as_one_failure() {
    let one = [("not_owned scheduler release", 1), ("release_failures scheduler not_owned", 1)];
    check(&release_loss(0, JOB), &one);
    let two = [("not_owned scheduler release", 2), ("release_failures scheduler not_owned", 2)];
    check(&[release_loss(0, JOB), release_loss(0, "run-1:build@2")].concat(), &two);
    check(&[release_loss(0, JOB), release_loss(3_600_000, JOB)].concat(), &two);
    let found = events(&release_loss(0, JOB).iter().map(|(at, line)| line.json(&time(*at)) + "\n").collect::<String>());
    assert_eq!(found.len(), 1);
    assert_eq!((&found[0]["event"], &found[0]["rule"]), (&json!("not_owned"), &json!("cordum/token-mismatch")));
}

#[test]
fn a_release_retry_that_uses_its_full_timeout_is_joined_to_the_release() {
    let timeout = format!("job store release lock {KEY}: context deadline exceeded");
    let lines = [(0, release_failed(JOB, &timeout)), (2100, release_retry_failed(JOB, &timeout))];
    check(&lines, &[("release_failures scheduler redis_unavailable", 1)]);
    let lines = [
        (0, release_failed(JOB, &timeout)),
        (1990, mismatch("scheduler", KEY)),
        (2050, release_retry_failed(JOB, LOST)),
    ];
    check(&lines, &[("release_failures scheduler redis_unavailable", 1), ("not_owned scheduler release", 1)]);
    let lines = [(0, release_failed(JOB, &timeout)), (9000, release_retry_failed(JOB, &timeout))];
    check(&lines, &[("release_failures scheduler redis_unavailable", 2)]);
}

#[test]
fn the_two_users_of_the_job_key_are_counted_separately() {
    let approval = Line::new("gateway", "approval lock release failed", &[("job_id", JOB), ("error", LOST)]);
    let lines = vec![(0, mismatch("gateway", KEY)), (1, approval)];
    let of_gateway = [("not_owned approval release", 1), ("release_failures approval not_owned", 1)];
    check(&lines, &of_gateway);
    check(&lines.iter().rev().cloned().map(|(at, line)| (1 - at, line)).collect::<Vec<_>>(), &of_gateway);
    let of_scheduler = [("not_owned scheduler release", 1), ("release_failures scheduler not_owned", 1)];
    check(&[lines, release_loss(2, JOB)].concat(), &[of_gateway, of_scheduler].concat());
}

#[test]
fn other_losses_at_release_consist_of_two_lines() {
    let run_key = "cordum:wf:run:lock:run-1";
    for (component, message, attributes) in [
        ("workflow-engine", "distributed run lock release failed", vec![("run_id", "run-1"), ("error", LOST)]),
        ("workflow-engine", "lock release failed", vec![("lock_key", run_key), ("error", LOST)]),
        ("workflow-engine", "lock release failed, TTL will expire", vec![("lock_key", run_key), ("error", LOST)]),
        ("gateway", "approval lock release failed, will expire via TTL", vec![("lock_key", run_key), ("error", LOST)]),
        ("gateway", "release rerun lock failed", vec![("run_id", "run-1"), ("error", LOST)]),
    ] {
        let lines = [(0, mismatch(component, run_key)), (1, Line::new(component, message, &attributes))];
        check(&lines, &[("not_owned workflow release", 1), ("release_failures workflow not_owned", 1)]);
    }
    let admission =
        Line::new("gateway", "release workflow admission lock failed", &[("org_id", "org-1"), ("error", LOST)]);
    let lines = [(0, mismatch("gateway", "cordum:wf:run:admission:org-1")), (0, admission)];
    check(&lines, &[("not_owned admission release", 1), ("release_failures admission not_owned", 1)]);
}

#[test]
fn a_lock_lost_at_renewal_counts_as_one_failure_until_it_is_abandoned() {
    let one =
        [("not_owned scheduler renew", 1), ("renewal_failures scheduler not_owned", 3), ("abandonments scheduler", 1)];
    check(&renewal_loss(0, JOB, [LOST; 3]), &one);
    let two =
        [("not_owned scheduler renew", 2), ("renewal_failures scheduler not_owned", 6), ("abandonments scheduler", 2)];
    let mut both = [renewal_loss(0, JOB, [LOST; 3]), renewal_loss(500, "job-2", [LOST; 3])].concat();
    both.sort_by_key(|(at, _)| *at);
    check(&both, &two);
    check(&[renewal_loss(0, JOB, [LOST; 3]), renewal_loss(3_600_000, JOB, [LOST; 3])].concat(), &two);
    let timeout = format!("job store renew lock {KEY}: context deadline exceeded");
    let mixed = [
        ("not_owned scheduler renew", 1),
        ("renewal_failures scheduler redis_unavailable", 2),
        ("renewal_failures scheduler not_owned", 1),
        ("abandonments scheduler", 1),
    ];
    check(&renewal_loss(0, JOB, [&timeout, &timeout, LOST]), &mixed);
}

#[test]
fn a_run_that_lost_its_lock_counts_one_loss_and_every_renewal_failure() {
    let renewal =
        |error: &str| Line::new("workflow-engine", "run lock renewal failed", &[("run_id", "run-1"), ("error", error)]);
    let lines: Vec<(u64, Line)> = (0..12).map(|number| (number * 10_000, renewal(LOST))).collect();
    check(&lines, &[("not_owned workflow renew", 1), ("renewal_failures workflow not_owned", 12)]);
    let canceled = "job store renew lock cordum:wf:run:lock:run-1: context canceled";
    check(&[(0, renewal(canceled)), (10_000, renewal(canceled))], &[]);
}

#[test]
fn text_lines_without_a_time_are_joined_by_position() {
    let text = |lines: Vec<(u64, Line)>| lines.iter().map(|(_, line)| line.text() + "\n").collect::<String>();
    let one = counters(&text(release_loss(0, JOB)));
    assert_eq!(one["not_owned scheduler release"], 1);
    assert_eq!(one["release_failures scheduler not_owned"], 1);
    let far = "[SCHEDULER] INFO nothing happens here\n".repeat(10_000);
    let two = counters(&(text(release_loss(0, JOB)) + &far + &text(release_loss(0, JOB))));
    assert_eq!(two["not_owned scheduler release"], 2);
}

#[test]
fn busy_locks_and_unlocked_work_are_counted() {
    let contended = Line::new(
        "gateway",
        "workflow result: run lock contended, deferring to NATS retry",
        &[("run_id", "run-1"), ("step_id", "s"), ("job_id", "j"), ("lock_key", "cordum:wf:run:lock:run-1")],
    );
    let busy = Line::new(
        "gateway",
        "bus: handler error",
        &[("subject", "sys.job.>"), ("err", "retry after 500ms: run lock busy: run-1")],
    );
    check(&[(0, contended), (1, busy)], &[("acquire_failures workflow busy", 1)]);
    let unlocked = Line::new(
        "workflow-engine",
        "distributed lock failed — using local-only lock, cross-replica race possible",
        &[
            ("component", "workflow"),
            ("run_id", "run-1"),
            ("error", "job store try acquire lock cordum:wf:run:lock:run-1: connect: connection refused"),
        ],
    );
    let totals = [("unlocked_work workflow", 1), ("acquire_failures workflow redis_unavailable", 1)];
    check(&[(0, unlocked.clone()), (1, unlocked)], &totals);
}

#[test]
fn each_job_reaches_one_final_state() {
    let state =
        |job: &str, state: &str| Line::new("scheduler", "job state changed", &[("job_id", job), ("new_state", state)]);
    let pair = [(0, state("1", "RUNNING")), (1, state("1", "SUCCEEDED")), (2, state("1", "OUTPUT_QUARANTINED"))];
    check(&pair, &[]);
    let conflict = [("conflicting_writes scheduler duplicate_terminal_state", 1)];
    check(&[(0, state("1", "TIMEOUT")), (3_600_000, state("1", "SUCCEEDED"))], &conflict);
    check(&[(0, state("1", "FAILED")), (1, state("1", "FAILED"))], &conflict);
    check(&[(0, state("1", "FAILED")), (1, state("2", "FAILED"))], &[]);
    check(&[(0, state("1", "OUTPUT_QUARANTINED")), (1, state("1", "SUCCEEDED"))], &conflict);
}

#[test]
fn messages_that_contain_each_other_are_distinguished() {
    let error = [("error", "boom"), ("job_id", "1"), ("run_id", "1")];
    for (component, message, series) in [
        ("scheduler", "lock renewal failed", "renewal_failures reconciler other"),
        ("scheduler", "job lock renewal failed", "renewal_failures scheduler other"),
        ("workflow-engine", "run lock renewal failed", "renewal_failures workflow other"),
        ("scheduler", "lock acquisition failed", "acquire_failures other other"),
        ("scheduler", "job lock acquisition failed", "acquire_failures scheduler other"),
        ("workflow-engine", "reconciler lock acquisition failed", "acquire_failures workflow_reconciler other"),
        ("gateway", "approval lock release failed", "release_failures approval other"),
        ("gateway", "approval lock release failed, will expire via TTL", "release_failures workflow other"),
    ] {
        check(&[(0, Line::new(component, message, &error))], &[(series, 1)]);
    }
    check(&[(0, Line::new("scheduler", "instance registry: heartbeat renewal failed", &error))], &[]);
}

#[test]
fn failures_of_unknown_programs_count_once_as_other_including_stack_traces() {
    let log = "\
2026-06-25T13:00:00Z ERROR worker: invoice failed: lock not owned
Traceback (most recent call last):
  File \"worker.py\", line 7, in release
    raise LockError(\"lock not owned\")
redis.exceptions.LockError: this lock was never ours
2026-06-25T13:00:09Z ERROR billing: cannot proceed
\tat com.example.Lock.release(Lock.java:7) lock not owned
Caused by: com.example.LockException: lock not owned
throw new LockException(\"lock not owned\");
";
    assert_eq!(
        counters(log),
        BTreeMap::from([("not_owned other unknown".to_owned(), 2)]),
        "the second loss counts because of its cause"
    );
    assert!(Samples::parse(&replay(log, "metrics")).contains_key(&not_owned("other", "unknown")));
}
