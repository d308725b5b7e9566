//! Tests that one failure counts once, no matter how many lines a program prints for it and what
//! surrounds those lines.

use std::fs;
use std::time::Duration;

use serde_json::Value;

use crate::daemon::{Daemon, command, sum, text};
use crate::lines::{Wrapping, time};
use crate::site::Site;

/// Rules that resemble those of a library: a message that names its key, and one with two meanings.
const CONFIG: &str = r#"
logs: [{path: '*.log'}]
namespaces:
  - {name: locks, keys: ["lock:{name}"]}
rules:
  - {name: t/not-owned, regex: "Cannot release a lock that's no longer owned", event: not_owned, operation: release, namespace: locks}
  - {name: t/key, regex: 'Lock\((?P<key>lock:[^)]+)\) is not acquired', event: not_owned, operation: release}
  - name: t/extend
    regex: 'unable to achieve a quorum'
    where: {stack: {regex: 'Redlock\.extend'}}
    event: not_owned
    operation: renew
    namespace: locks
  - name: t/release
    regex: 'unable to achieve a quorum'
    where: {stack: {regex: 'Redlock\._execute', without: 'Redlock\.(?:acquire|extend)'}}
    event: not_owned
    operation: release
    namespace: locks
  - {name: t/quorum, regex: 'unable to achieve a quorum', event: not_owned, namespace: locks}
  - {name: t/unlock, regex: 'attempt to unlock lock, not locked by current thread by node id', event: not_owned, operation: release, namespace: locks}
  - {name: t/expired, regex: 'redsync: failed to unlock, lock was already expired', event: not_owned, operation: release, namespace: locks}
  - {name: t/timeout, regex: 'Illuminate\\{1,4}Contracts\\{1,4}Cache\\{1,4}LockTimeoutException', event: acquire_failed, reason: busy, namespace: locks}
  - {name: t/ruby, regex: "failed to acquire lock on '", event: acquire_failed, reason: busy, namespace: locks}
  - {name: t/dotnet, regex: 'Failed to extend lock, Conflicted \(.*?\): (?P<key>\S+)', event: not_owned, operation: renew, namespace: locks}
"#;

const PYTHON: &str = r#"2026-06-25 13:37:04,120 ERROR billing: cannot finish invoice 7
Traceback (most recent call last):
  File "/app/billing.py", line 12, in finish
    lock.release()
    ~~~~~~~~~~~~^^
  File "/usr/lib/python3/site-packages/redis/asyncio/lock.py", line 294, in do_release
    raise LockNotOwnedError("Cannot release a lock that's no longer owned")
redis.exceptions.LockNotOwnedError: Cannot release a lock that's no longer owned
"#;

const PYTHON_CHAIN: &str = r#"Traceback (most recent call last):
  File "/app/a.py", line 3, in work
    raise LockNotOwnedError("Cannot release a lock that's no longer owned")
redis.exceptions.LockNotOwnedError: Cannot release a lock that's no longer owned

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/app/b.py", line 9, in main
    raise RuntimeError("Cannot release a lock that's no longer owned") from error
RuntimeError: Cannot release a lock that's no longer owned
"#;

const F_STRING: &str = r#"Traceback (most recent call last):
  File "/app/redis_lock/__init__.py", line 352, in release
    raise NotAcquired(f"Lock({self._name}) is not acquired or it already expired.")
redis_lock.NotAcquired: Lock(lock:invoices) is not acquired or it already expired.
"#;

const CELERY: &str = r#"[2026-06-25 13:37:04,120: ERROR/ForkPoolWorker-1] Task billing.finish[0b6c] raised unexpected: LockNotOwnedError("Cannot release a lock that's no longer owned")
Traceback (most recent call last):
  File "/usr/lib/python3/site-packages/celery/app/trace.py", line 453, in trace_task
    R = retval = fun(*args, **kwargs)
  File "/usr/lib/python3/site-packages/redis/lock.py", line 283, in do_release
    raise LockNotOwnedError("Cannot release a lock that's no longer owned")
redis.exceptions.LockNotOwnedError: Cannot release a lock that's no longer owned
"#;

const NODE: &str = r#"/app/node_modules/redlock/dist/cjs/index.js:281
        throw new ExecutionError("The operation was unable to achieve a quorum during its retry window.", attempts);
              ^

ExecutionError: The operation was unable to achieve a quorum during its retry window.
    at Redlock._execute (/app/node_modules/redlock/dist/cjs/index.js:281:23)
    at process.processTicksAndRejections (node:internal/process/task_queues:95:5)
    at async Redlock.extend (/app/node_modules/redlock/dist/cjs/index.js:218:29) {
  attempts: [
    Promise { [Object] }
  ]
}

Node.js v20.20.2
"#;

const JAVA: &str = "2026-06-25 13:37:04.120 ERROR 1 --- [pool-1] o.s.s.s.TaskUtils$LoggingErrorHandler : Unexpected error occurred in scheduled task

java.util.concurrent.CompletionException: java.lang.IllegalMonitorStateException: attempt to unlock lock, not locked by current thread by node id: 6f0c thread-id: 41
\tat org.redisson.RedissonBaseLock.unlock(RedissonBaseLock.java:173) ~[redisson.jar:3.44.0]
\tat app.Billing.finish(Billing.java:7)
Caused by: java.lang.IllegalMonitorStateException: attempt to unlock lock, not locked by current thread by node id: 6f0c thread-id: 41
\tat org.redisson.RedissonBaseLock.unlock(RedissonBaseLock.java:171)
\t... 12 more
\tSuppressed: java.lang.IllegalMonitorStateException: attempt to unlock lock, not locked by current thread by node id: 6f0c thread-id: 41
\t\tat app.Billing.close(Billing.java:9)
";

/// Two records without a message: the second begins where the first ends.
const JAVA_BARE_TWICE: &str = "java.lang.IllegalMonitorStateException: attempt to unlock lock, not locked by current thread by node id: 6f0c thread-id: 41
\tat app.Billing.finish(Billing.java:7)
java.lang.IllegalMonitorStateException: attempt to unlock lock, not locked by current thread by node id: 6f0c thread-id: 42
\tat app.Billing.finish(Billing.java:7)
";

const GO: &str = "2026/06/25 13:37:04 unlock: 1 error occurred:
\t* redsync: failed to unlock, lock was already expired

2026/06/25 13:37:04 done
";

const LARAVEL: &str = r#"[2026-06-25 13:37:04] production.ERROR:  {"exception":"[object] (Illuminate\\Contracts\\Cache\\LockTimeoutException(code: 0):  at /app/vendor/Illuminate/Cache/Lock.php:124)
[stacktrace]
#0 /app/Billing.php(7): Illuminate\\Cache\\Lock->block(10, Object(Closure))
#1 {main}

[previous exception] [object] (Illuminate\\Contracts\\Cache\\LockTimeoutException(code: 0):  at /app/vendor/Illuminate/Cache/Lock.php:124)
[stacktrace]
#0 {main}
"} 
"#;

/// The first record of a retry contains the error of the previous attempt.
const SIDEKIQ: &str = r#"2026-06-25T13:37:04.120Z pid=1 tid=abc class=HardJob jid=b4a5 WARN: {"context":"Job raised exception","job":{"retry":true,"class":"HardJob","error_message":"failed to acquire lock on 'invoices'","error_class":"Redlock::LockError"}}
2026-06-25T13:37:04.121Z pid=1 tid=abc class=HardJob jid=b4a5 WARN: Redlock::LockError: failed to acquire lock on 'invoices'
2026-06-25T13:37:04.122Z pid=1 tid=abc class=HardJob jid=b4a5 WARN: /gems/redlock/lib/redlock/client.rb:9:in `lock!'
/app/jobs/hard_job.rb:4:in `perform'
"#;

const DOTNET: &str = "warn: RedLockNet.SERedis.RedLock[0]
      Failed to extend lock, Conflicted (Acquired: 0, Conflicted: 1, Error: 0): lock:invoices (0c9d)
";

const LOGSTASH: &str = r#"{"@timestamp":"2026-06-25T13:37:04Z","message":"attempt to unlock lock, not locked by current thread by node id: 6f0c","stack_trace":"java.lang.IllegalMonitorStateException: attempt to unlock lock, not locked by current thread by node id: 6f0c\n\tat a.B.c(B.java:7)\nCaused by: java.lang.IllegalMonitorStateException: attempt to unlock lock, not locked by current thread by node id: 6f0c\n"}
"#;

const JSON_TRACEBACK: &str = r#"{"level":"error","message":"cannot finish\nTraceback (most recent call last):\n  File \"a.py\", line 352, in release\n    raise NotAcquired(f\"Lock({self._name}) is not acquired or it already expired.\")\nredis_lock.NotAcquired: Lock(lock:invoices) is not acquired or it already expired."}
"#;

const ESCAPED_QUOTE: &str = r#"{"level":"error","msg":"finish","error":"Cannot release a lock that\u0027s no longer owned"}
"#;

const ONE_LINE: &str = r"2026-06-25 13:37:04 ERROR ExecutionError: The operation was unable to achieve a quorum during its retry window.\n    at Redlock._execute (index.js:281:23)\n    at async Redlock.extend (index.js:218:29)
";

const NESTED: &str = r#"{"log":"{\"msg\":\"finish\",\"error\":\"Cannot release a lock that's no longer owned\"}","stream":"app","error":"Cannot release a lock that's no longer owned"}
"#;

const COLORED: &str =
    "\x1b[31mERROR\x1b[0m finish: Cannot \x1b[1mrelease a \x1b[33mlock\x1b[0m that's no longer owned\n";

const PINO: &str = r#"{"level":50,"time":1782394624000,"msg":"finish","err":{"type":"ExecutionError","message":"The operation was unable to achieve a quorum during its retry window.","stack":"ExecutionError: The operation was unable to achieve a quorum during its retry window.\n    at Redlock._execute (index.js:281:23)\n    at async finish (app.js:3:1)"}}
"#;

const BARE_QUORUM: &str =
    "2026-06-25 13:37:04 WARN job failed: The operation was unable to achieve a quorum during its retry window.\n";

/// Printed text, and the counted events: operation or reason, and the lock if the text names it.
const CASES: [(&str, &str, &[&str]); 20] = [
    ("python", PYTHON, &["release"]),
    ("python chain", PYTHON_CHAIN, &["release"]),
    ("f-string", F_STRING, &["release invoices"]),
    ("celery", CELERY, &["release"]),
    ("node", NODE, &["renew"]),
    ("java", JAVA, &["release"]),
    ("java, twice", JAVA_BARE_TWICE, &["release", "release"]),
    ("go", GO, &["release"]),
    ("laravel", LARAVEL, &["acquire"]),
    ("sidekiq", SIDEKIQ, &["acquire"]),
    ("dotnet", DOTNET, &["renew invoices"]),
    ("logstash", LOGSTASH, &["release"]),
    ("traceback in json", JSON_TRACEBACK, &["release invoices"]),
    ("escaped quote", ESCAPED_QUOTE, &["release"]),
    ("one line", ONE_LINE, &["renew"]),
    ("nested", NESTED, &["release"]),
    ("colored", COLORED, &["release"]),
    ("pino", PINO, &["release"]),
    ("no stack", BARE_QUORUM, &["unknown"]),
    ("quiet", "commit 0b6c\nAuthor: somebody\n\n    Fix: Cannot release a lock that's no longer owned\n", &[]),
];

/// Returns the events that `replay` counts in a log, one text per event.
fn counted(log: &[u8]) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let (path, config) = (directory.path().join("app.log"), directory.path().join("config.yaml"));
    fs::write(&path, log).unwrap();
    fs::write(&config, CONFIG).unwrap();
    let output = command(&["replay", "--config.file", text(&config), "--output", "events", text(&path)]);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let events = String::from_utf8(output.stdout).unwrap();
    let show = |line: &str| {
        let event: Value = serde_json::from_str(line).unwrap();
        let lock = event["lock_id"].as_str().map_or(String::new(), |lock| format!(" {lock}"));
        format!("{}{lock}", event["operation"].as_str().unwrap())
    };
    events.lines().map(show).collect()
}

/// Applies a change to each line of the log.
fn each_line(log: &str, change: impl Fn(&str) -> String) -> String {
    log.lines().map(|line| change(line) + "\n").collect()
}

#[test]
fn one_failure_counts_once_in_every_output_format() {
    for (name, log, expected) in CASES {
        assert_eq!(counted(log.as_bytes()), expected, "{name}");
        assert_eq!(counted(format!("started\n{log}done\n").as_bytes()), expected, "{name}, among other lines");
    }
}

#[test]
fn records_are_found_behind_line_prefixes() {
    let prefixes = [
        "celery_1  | ",
        "Jun 25 13:37:04 host app[7]: ",
        "2026-06-25T13:37:04.120000+00:00 app[web.1]: ",
        "[0] ",
        "0|app  | ",
        "<165>1 2026-06-25T13:37:04.123Z host app 17 ID47 - ",
        "<165>1 2026-06-25T13:37:04.123Z host app 17 - [a@1 k=\"v\"][b@1] \u{feff}",
    ];
    for (name, log, expected) in CASES {
        for prefix in prefixes {
            let prefixed = each_line(log, |line| format!("{prefix}{line}"));
            assert_eq!(counted(prefixed.as_bytes()), expected, "{name} behind {prefix}");
        }
        for wrapping in [Wrapping::Docker, Wrapping::Cri] {
            let wrapped: String = log.lines().map(|line| wrapping.wrap(line, &time(0))).collect();
            assert_eq!(counted(wrapped.as_bytes()), expected, "{name} in {wrapping:?}");
        }
    }
}

#[test]
fn records_are_found_in_interleaved_lines_of_several_programs() {
    let programs = [("a", PYTHON), ("b", NODE), ("c", JAVA)];
    let mut lines: Vec<std::str::Lines<'_>> = programs.iter().map(|(_, log)| log.lines()).collect();
    let mut log = String::new();
    loop {
        let row: Vec<Option<&str>> = lines.iter_mut().map(Iterator::next).collect();
        if row.iter().all(Option::is_none) {
            break;
        }
        for (line, (name, _)) in row.iter().zip(programs) {
            log += &line.map_or(String::new(), |line| format!("{name}_1  | {line}\n"));
        }
    }
    let mut found = counted(log.as_bytes());
    found.sort();
    assert_eq!(found, ["release", "release", "renew"]);
}

/// Formats each line like a container runtime that splits it after every `size` characters,
/// interleaved with the other stream.
fn in_pieces(log: &str, size: usize) -> String {
    let mut wrapped = String::new();
    for line in log.lines() {
        let characters: Vec<char> = line.chars().collect();
        let pieces: Vec<String> = characters.chunks(size).map(|piece| piece.iter().collect()).collect();
        for piece in pieces.iter().take(pieces.len().saturating_sub(1)) {
            wrapped += &format!("{} stderr P {piece}\n{} stdout P idle \n", time(0), time(0));
        }
        wrapped += &format!("{} stderr F {}\n", time(0), pieces.last().map_or("", String::as_str));
        wrapped += &format!("{} stdout F \n", time(0));
    }
    wrapped
}

#[test]
fn records_are_found_in_lines_split_into_short_pieces() {
    for (name, log, expected) in CASES {
        for size in [5, 16, 61] {
            assert_eq!(counted(in_pieces(log, size).as_bytes()), expected, "{name} in pieces of {size}");
        }
    }
}

#[test]
fn split_lines_are_joined_across_block_boundaries() {
    let filler = format!("{} stderr F nothing of interest happened to invoice 12345\n", time(0)).repeat(3_300);
    // The operation is named before the matching line, and the matching line is long enough to be
    // split at a boundary.
    let traceback = "2026-06-25 13:37:04,120 ERROR billing: lost\nTraceback (most recent call last):\n  File \"a.py\", line 1, in Redlock.extend\n";
    let record =
        in_pieces(&format!("{traceback}ExecutionError: unable to achieve a quorum{}\n", " and so on".repeat(150)), 16);
    let mut log = String::new();
    for _ in 0..24 {
        // Makes boundaries of 256 KiB fall on different parts of each record.
        let rest = (256 << 10) - log.len() % (256 << 10);
        let end = (rest.saturating_sub(record.len() * (log.len() >> 18) / 24)).min(filler.len());
        log += &filler[..filler[..end].rfind('\n').map_or(0, |at| at + 1)];
        log += &record;
    }
    assert_eq!(counted(log.as_bytes()), ["renew"; 24]);
}

/// The program searches blocks one after the other, and long files in two places at once. Records
/// cross these boundaries.
#[test]
fn records_are_found_across_block_boundaries() {
    let filler = "2026-06-25 13:37:04,120 INFO billing: nothing of interest happened to invoice 12345\n".repeat(2_900);
    let mut log = String::new();
    for number in 0..60 {
        log += &filler[..filler.len() - (number * 7) % 80 * 83];
        log += [PYTHON, JAVA, NODE, CELERY][number % 4];
    }
    assert!(log.len() > 12 << 20, "the log must be long enough for a search in two places at once");
    assert_eq!(counted(log.as_bytes()).len(), 60);
}

fn lines_read(daemon: &Daemon) -> f64 {
    sum(&daemon.scrape(), "redis_lock_exporter_log_lines_total")
}

/// Waits until this number of lost locks are counted, and checks that the number does not grow.
fn wait_lost(daemon: &Daemon, expected: f64) {
    let lost = |daemon: &Daemon| sum(&daemon.scrape(), "redis_lock_not_owned_total");
    daemon.wait("the lost locks are counted", |daemon| lost(daemon) >= expected);
    assert_eq!(lost(daemon), expected);
}

/// The end of a record arrives late, and the daemon is killed while it waits.
#[test]
fn an_unfinished_record_is_not_counted_twice() {
    let site = Site::new();
    site.configure(&CONFIG.replace("'*.log'", &format!("'{}'", site.path("*.log").display())));
    let daemon = site.start_configured(&[]);
    daemon.wait_ready();
    let (head, rest) = PYTHON.split_at(PYTHON.find("redis.exceptions").unwrap());
    site.append("app.log", head);
    daemon.wait("the lines are read", |daemon| lines_read(daemon) >= 7.0);
    daemon.kill();
    let daemon = site.start_configured(&[]);
    site.append("app.log", rest);
    site.append("app.log", CELERY);
    wait_lost(&daemon, 2.0);
    // The end of this record arrives after the daemon has stopped waiting for it.
    site.append("app.log", head);
    daemon.wait("the lines are read", |daemon| lines_read(daemon) >= 20.0);
    site.append("app.log", rest);
    wait_lost(&daemon, 3.0);
    site.append("app.log", CELERY);
    wait_lost(&daemon, 4.0);
}

/// The time of a line without a timestamp is when it was read, not when its record ended. Two
/// losses of one lock that are further apart than lines of one loss stay separate.
#[test]
fn waiting_for_a_record_to_end_does_not_change_the_time_of_a_loss() {
    let site = Site::new();
    let daemon = site.start();
    daemon.wait_ready();
    let line = "[GATEWAY] ERROR release workflow admission lock failed org_id=acme error=lock not owned\n";
    site.append("logs/app.log", line);
    wait_lost(&daemon, 1.0);
    // The line was read at least a second ago, because its record waited for its end. With this
    // delay, more than 2 s have passed, the limit within which lines about one lock form one loss.
    // On an idle machine less than 2 s plus that second have passed.
    std::thread::sleep(Duration::from_millis(1200));
    site.append("logs/app.log", format!("{line}[GATEWAY] INFO next\n"));
    wait_lost(&daemon, 2.0);
}
