//! `drill`: every scenario holds with a good exporter, fails with a blind one, and leaves a Redis as it found it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use redis_lock_exporter::rehearsal::drill::NAMES;
use redis_lock_exporter::rehearsal::fleet::{LockToken, Locker, Territory};
use serde_json::Value;

use crate::daemon::{BINARY, Daemon, command};
use crate::prometheus::Prometheus;
use crate::redis::{RedisServer, eventually, free_port};
use crate::site::Site;

fn drill(arguments: &[&str]) -> Output {
    command(&[&["drill", "--output", "json"], arguments].concat())
}

/// The report, and the exit code that came with it.
fn report(output: &Output) -> (Option<i32>, Value) {
    let said = String::from_utf8_lossy(&output.stderr);
    let report = serde_json::from_slice(&output.stdout);
    (output.status.code(), report.unwrap_or_else(|error| panic!("{error}\n{said}")))
}

fn scenario<'a>(report: &'a Value, name: &str) -> &'a Value {
    let scenarios = report["scenarios"].as_array().unwrap();
    scenarios.iter().find(|scenario| scenario["name"] == name).unwrap_or_else(|| panic!("no {name}: {report}"))
}

/// Whether each expectation held, by its id.
fn verdicts(scenario: &Value, side: &str) -> BTreeMap<String, bool> {
    let expectations = scenario["expectations"].as_array().unwrap().iter();
    let of_side = expectations.filter(|expectation| expectation["side"] == side);
    of_side
        .map(|expectation| (expectation["id"].as_str().unwrap().to_owned(), expectation["held"].as_bool().unwrap()))
        .collect()
}

fn measured(scenario: &Value, id: &str) -> String {
    let expectations = scenario["expectations"].as_array().unwrap();
    let of_id = expectations.iter().find(|expectation| expectation["id"] == id);
    of_id.unwrap_or_else(|| panic!("no {id}: {scenario}"))["measured"].as_str().unwrap().to_owned()
}

/// What did not go as it should, for the message of a failed test: a whole report is too long for a log.
fn shortcomings(report: &Value) -> String {
    let mut lines = Vec::new();
    let mut timelines = Vec::new();
    if !report["exporter_problem"].is_null() {
        lines.push(format!("exporter: {}", report["exporter_problem"]));
    }
    for scenario in report["scenarios"].as_array().into_iter().flatten() {
        let name = scenario["name"].as_str().unwrap_or_default();
        if !scenario["error"].is_null() {
            lines.push(format!("{name}: {}", scenario["error"]));
        }
        let failed = scenario["expectations"].as_array().into_iter().flatten().filter(|one| one["held"] != true);
        lines.extend(failed.map(|one| {
            format!("{name}: {} {}: {} (measured: {})", one["side"], one["id"], one["statement"], one["measured"])
        }));
        if scenario["held"] != true {
            timelines.push(format!("{name}: {}", scenario["measured"]));
            let entries = scenario["timeline"].as_array().into_iter().flatten();
            timelines.extend(entries.map(|entry| format!("{name}: {entry}")));
        }
    }
    lines.push(format!("clean-up: {}", report["cleanup"]));
    lines.extend(timelines);
    lines.join("\n")
}

fn seconds(scenario: &Value, name: &str) -> f64 {
    scenario["measured"][name].as_f64().unwrap_or_else(|| panic!("{name} was not measured: {scenario}"))
}

/// The keys of all drills.
fn drill_keys(server: &RedisServer) -> Vec<String> {
    let redis::Value::Array(keys) = server.command(&["KEYS", "redis_lock_drill:*"]) else { panic!("KEYS") };
    keys.iter().map(crate::redis::client::text).collect()
}

/// One that is gone from the program would be missed here.
#[test]
fn the_documentation_has_every_scenario() {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/drills.md")).unwrap();
    // The first table is theirs.
    let rows = page.lines().skip_while(|line| !line.starts_with("| `")).take_while(|line| line.starts_with("| `"));
    assert_eq!(rows.map(|row| row.split('`').nth(1).unwrap()).collect::<Vec<_>>(), NAMES);
}

#[test]
fn all_scenarios_hold() {
    let site = Site::new();
    let (markdown, json) = (site.place("report.md"), site.place("report.json"));
    let output = drill(&["--speed", "15", "--report", &markdown, "--report", &json]);
    let (exit_code, report) = report(&output);
    assert_eq!((exit_code, &report["held"]), (Some(0), &Value::Bool(true)), "{}", shortcomings(&report));
    let names: Vec<&str> =
        report["scenarios"].as_array().unwrap().iter().map(|scenario| scenario["name"].as_str().unwrap()).collect();
    assert_eq!(names, NAMES);
    assert_eq!(report["cleanup"]["keys_left"], Value::Array(Vec::new()));
    assert!(report["cleanup"]["keys_written"].as_u64().unwrap() > 10, "{}", report["cleanup"]);
    assert!(report["timing"].as_str().unwrap().contains("15 times shorter"), "{}", report["timing"]);
    assert_eq!(serde_json::from_slice::<Value>(&fs::read(json).unwrap()).unwrap(), report);

    let ttl = report["ttl_seconds"].as_f64().unwrap();
    for name in NAMES {
        let scenario = scenario(&report, name);
        assert!(verdicts(scenario, "workers").len() >= 2 || name == "leader-loss", "{scenario}");
        assert!(verdicts(scenario, "exporter").len() >= 4, "{scenario}");
        for expectation in scenario["expectations"].as_array().unwrap() {
            assert_ne!(expectation["measured"], "not reached", "{expectation}");
        }
        assert!(seconds(scenario, "detection") <= 15.0);
        assert!(!scenario["timeline"].as_array().unwrap().is_empty());
    }
    // What is measured follows from what was done.
    for name in ["stale-release", "combined", "pause", "delay", "pause-and-delay", "crash-takeover"] {
        // From the answer to the last renewal, which a busy machine sees late.
        let takeover = seconds(scenario(&report, name), "takeover");
        assert!((ttl * 0.75..=ttl * 1.5).contains(&takeover), "{name}: {takeover}");
    }
    for name in ["stale-release", "renewal-failure", "combined", "delay", "blind-delete", "redis-failover"] {
        assert!(seconds(scenario(&report, name), "overlap") > 0.0, "{name}");
    }
    assert!(seconds(scenario(&report, "renewal-failure"), "fenced_after") < ttl);
    assert!(seconds(scenario(&report, "pause"), "pause") > ttl);
    assert!(seconds(scenario(&report, "delay"), "answered") > ttl);
    for name in ["pause", "pause-and-delay"] {
        let paused = scenario(&report, name);
        assert!(measured(paused, "fenced-write").ends_with(r#"the storage holds "2 other worker""#), "{paused}");
        assert!(measured(paused, "unfenced-write").contains(r#"the storage holds "1 worker process""#), "{paused}");
        assert_eq!(measured(paused, "cause"), "renewals_stopped: 2 of 2, causes of any kind: 2 of 2");
    }

    let markdown = fs::read_to_string(markdown).unwrap();
    for name in NAMES {
        assert!(markdown.contains(&format!("\n## {name}: ok\n")), "{markdown}");
    }
    assert!(markdown.contains("15 times shorter") && markdown.contains("none left behind"), "{markdown}");
}

/// An exporter that was there before, as `--print-config` says, on a Redis that others use too.
struct Staging {
    server: RedisServer,
    site: Site,
    daemon: Daemon,
}

const RUN_ID: &str = "staging-1";

impl Staging {
    /// `rest` is added to the configuration that `--print-config` shows.
    fn configured(rest: &str) -> Self {
        Self::start(|site, url| {
            let log = site.place("logs/drill.log");
            let printed =
                command(&["drill", "--print-config", "--run-id", RUN_ID, "--speed", "30", "--log-file", &log]);
            assert!(printed.status.success());
            format!("{}{}", String::from_utf8(printed.stdout).unwrap(), rest.replace("REDIS", url))
        })
    }

    fn start(configuration: impl FnOnce(&Site, &str) -> String) -> Self {
        let server = RedisServer::start(&[]);
        for key in ["cordum:wf:run:lock:1", "redis_lock_drill:other-1:r1:drill-stale-release", "redis_lock_drill"] {
            server.command(&["SET", key, "somebody else's", "PX", "600000"]);
        }
        let site = Site::new();
        site.configure(&configuration(&site, &server.url()));
        let daemon = site.start_configured(&[]);
        Self { server, site, daemon }
    }

    fn drill(&self, scenarios: &[&str], more: &[&str]) -> Output {
        let exporter = format!("http://{}", self.daemon.address);
        let (url, log) = (self.server.url(), self.site.place("logs/drill.log"));
        let staging = ["--exporter", &exporter, "--redis.url", &url, "--log-file", &log, "--run-id", RUN_ID];
        drill(&[scenarios, &staging, &["--speed", "30"], more].concat())
    }

    /// Nothing is there that was not there before, and what was there is as it was.
    fn is_as_before(&self) {
        assert_eq!(self.server.text(&["DBSIZE"]), "3", "{:?}", drill_keys(&self.server));
        for key in ["cordum:wf:run:lock:1", "redis_lock_drill:other-1:r1:drill-stale-release", "redis_lock_drill"] {
            assert_eq!(self.server.text(&["GET", key]), "somebody else's");
        }
    }
}

#[test]
fn a_given_exporter_on_a_given_redis() {
    let staging = Staging::configured("redis: {url: 'REDIS'}\n");
    let (exit_code, report) = report(&staging.drill(&["stale-release", "pause"], &[]));
    assert_eq!((exit_code, &report["held"]), (Some(0), &Value::Bool(true)), "{}", shortcomings(&report));
    assert_eq!(report["exporter_problem"], Value::Null);
    assert_eq!(report["scenarios"].as_array().unwrap().len(), 2);
    staging.is_as_before();
    // What the exporter shows is what the drill saw.
    let samples = staging.daemon.scrape();
    let causes = "redis_lock_not_owned_causes_total{lock_namespace=\"drill-pause\",cause=\"renewals_stopped\"}";
    assert_eq!(samples[causes], 2.0);
}

/// What the workers do is as it should be; only the exporter does not see it.
fn is_blind(staging: &Staging, problem: &str) {
    let (exit_code, report) = report(&staging.drill(&["blind-delete"], &[]));
    assert_eq!((exit_code, &report["held"]), (Some(1), &Value::Bool(false)), "{report:#}");
    let said = report["exporter_problem"].as_str().unwrap();
    assert!(said.contains(problem), "{said}");
    let blind_delete = scenario(&report, "blind-delete");
    assert!(verdicts(blind_delete, "workers").values().all(|held| *held), "{blind_delete:#}");
    let seen = verdicts(blind_delete, "exporter");
    for id in ["keyspace", "cause", "incident", "detection"] {
        assert!(!seen[id], "{id}: {blind_delete:#}");
    }
    staging.is_as_before();
}

#[test]
fn an_exporter_without_the_namespaces_fails() {
    let staging = Staging::start(|_, url| {
        format!("redis: {{url: '{url}'}}\nnamespaces: [{{name: jobs, keys: ['jobs:{{id}}']}}]\n")
    });
    is_blind(&staging, "--print-config");
}

#[test]
fn an_exporter_without_redis_fails() {
    is_blind(&Staging::configured(""), "not connected to a Redis");
}

#[test]
fn an_exporter_that_reads_another_log_fails() {
    let staging = Staging::start(|site, url| {
        let elsewhere = site.place("logs/elsewhere.log");
        let printed =
            command(&["drill", "--print-config", "--run-id", RUN_ID, "--speed", "30", "--log-file", &elsewhere]);
        format!("{}redis: {{url: '{url}'}}\n", String::from_utf8(printed.stdout).unwrap())
    });
    let (exit_code, report) = report(&staging.drill(&["stale-release"], &[]));
    assert_eq!(exit_code, Some(1), "{report:#}");
    assert!(report["exporter_problem"].as_str().unwrap().contains("does not understand the lines in"), "{report:#}");
    let seen = verdicts(scenario(&report, "stale-release"), "exporter");
    // One eye is enough for what Redis shows.
    assert!(seen["keyspace"] && !seen["refusals"] && !seen["cause"], "{report:#}");
    staging.is_as_before();
}

/// A drill under way, with what it says.
struct Running {
    child: Child,
    said: BufReader<std::process::ChildStderr>,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(BINARY);
        command.args(["drill", "--output", "json"]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = BufReader::new(child.stderr.take().unwrap());
        Self { child, said }
    }

    fn wait_for(&mut self, words: &str) {
        let mut line = String::new();
        while !line.contains(words) {
            line.clear();
            assert!(self.said.read_line(&mut line).unwrap() > 0, "ended before it said {words:?}");
        }
    }

    /// The processes that it has started.
    fn children(&self) -> Vec<String> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let children = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default());
        children.flat_map(|pids| pids.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }
}

/// At the worst moment: a worker process stands still, another worker holds its lock, and storage was written to.
fn interrupted_by(signal: &str) {
    let server = RedisServer::start(&[]);
    server.command(&["SET", "cordum:wf:run:lock:1", "somebody else's"]);
    let mut running = Running::start(&["pause", "--speed", "10", "--redis.url", &server.url()]);
    running.wait_for("finished the work with fence 2");
    let keys = drill_keys(&server);
    assert!(keys.len() >= 5, "a lock, a fence, two storages and the mark of the run: {keys:?}");
    let processes = running.children();
    assert_eq!(processes.len(), 1, "one worker process");
    running.signal(signal);
    let output = running.child.wait_with_output().unwrap();
    let (exit_code, report) = report(&output);
    assert_eq!((exit_code, &report["interrupted"], &report["held"]), (Some(2), &true.into(), &false.into()));
    assert_eq!(report["cleanup"]["keys_left"], Value::Array(Vec::new()));
    // What had happened until then is told.
    let pause = scenario(&report, "pause");
    let timeline = pause["timeline"].as_array().unwrap();
    assert!(timeline.iter().any(|entry| entry["what"] == "finished the work with fence 2"), "{pause:#}");
    assert_eq!((&pause["rounds"], verdicts(pause, "workers")["takeover"]), (&1.into(), true));
    assert_eq!(drill_keys(&server), Vec::<String>::new());
    assert_eq!(server.text(&["DBSIZE"]), "1");
    eventually("the end of the worker process", || {
        (!Path::new(&format!("/proc/{}", processes[0])).exists()).then_some(())
    });
}

#[test]
fn an_interrupted_drill_leaves_nothing_behind() {
    interrupted_by("-INT");
}

#[test]
fn a_terminated_drill_leaves_nothing_behind() {
    interrupted_by("-TERM");
}

#[test]
fn a_drill_whose_terminal_was_closed_leaves_nothing_behind() {
    interrupted_by("-HUP");
}

#[test]
fn a_drill_that_was_quit_leaves_nothing_behind() {
    interrupted_by("-QUIT");
}

/// Every failure again and again, each time on another lock: counted exactly, but for rounds in which the machine stood still.
#[test]
fn a_sustained_drill() {
    let server = RedisServer::start(&[]);
    let flags = ["stale-release", "crash-takeover", "--speed", "20", "--duration", "5s", "--run-id", "abcd"];
    let mut running = Running::start(&[&flags[..], &["--redis.url", &server.url()]].concat());
    running.wait_for("everything else is exact");
    running.wait_for("crash-takeover: checking");
    // More than 10 s after the start.
    let left: u64 = server.text(&["PTTL", "redis_lock_drill:abcd:running"]).parse().unwrap();
    assert!(left > 592_000, "the mark of the run is not renewed: {left} ms");
    let (exit_code, report) = report(&running.child.wait_with_output().unwrap());
    assert_eq!((exit_code, &report["held"]), (Some(0), &Value::Bool(true)), "{}", shortcomings(&report));
    assert_eq!(report["duration_seconds"], 5.0);
    for name in ["stale-release", "crash-takeover"] {
        let scenario = scenario(&report, name);
        let rounds = scenario["rounds"].as_u64().unwrap();
        assert!(rounds >= 2, "{scenario:#}");
        let counted = measured(scenario, "keyspace");
        assert!(counted.starts_with("acquisitions: ") && counted.contains(&format!(" of {}", 2 * rounds)), "{counted}");
    }
    let cause = measured(scenario(&report, "stale-release"), "cause");
    assert!(cause.ends_with("wrong causes: 0 of 0"), "{cause}");
    assert_eq!(drill_keys(&server), Vec::<String>::new());
}

/// A lock that nobody gets is what a drill is there to find, not a drill that could not be run.
#[test]
fn a_lock_that_nobody_gets_is_a_finding() {
    let server = RedisServer::start(&[]);
    let flags = ["stale-release", "--speed", "30", "--run-id", "abcd", "--redis.url", &server.url()];
    let mut running = Running::start(&flags);
    running.wait_for("first worker took the lock");
    server.command(&["SET", "redis_lock_drill:abcd:stale-release-r1:drill-stale-release", "somebody else's"]);
    let (exit_code, report) = report(&running.child.wait_with_output().unwrap());
    assert_eq!(exit_code, Some(1), "{report:#}");
    let error = scenario(&report, "stale-release")["error"].as_str().unwrap();
    assert!(error.contains("the second worker waited in vain"), "{error}");
}

/// What the workers did is told, although the exporter is gone.
#[test]
fn an_exporter_that_ends_does_not_take_the_report_with_it() {
    let staging = Staging::configured("redis: {url: 'REDIS'}\n");
    let exporter = format!("http://{}", staging.daemon.address);
    let (url, log) = (staging.server.url(), staging.site.place("logs/drill.log"));
    let mut running = Running::start(&[
        "crash-takeover",
        "blind-delete",
        "--speed",
        "30",
        "--exporter",
        &exporter,
        "--redis.url",
        &url,
        "--log-file",
        &log,
        "--run-id",
        RUN_ID,
    ]);
    running.wait_for("next worker took the lock");
    drop(staging.daemon);
    let (exit_code, report) = report(&running.child.wait_with_output().unwrap());
    assert_eq!(exit_code, Some(2), "{report:#}");
    let begun = scenario(&report, "crash-takeover");
    assert!(begun["error"].as_str().unwrap().contains("does not answer any more"), "{begun:#}");
    assert!(verdicts(begun, "workers")["takeover"], "{begun:#}");
    let other = scenario(&report, "blind-delete");
    assert_eq!((other["rounds"].as_u64(), other["error"].is_string()), (Some(0), true), "{other:#}");
}

/// Found out before anything happens.
#[test]
fn a_report_that_cannot_be_written() {
    let server = RedisServer::start(&[]);
    let site = Site::new();
    let report = site.place("nowhere/report.md");
    let output = drill(&["stale-release", "--redis.url", &server.url(), "--report", &report]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(&format!("cannot write the report {report}")) && !said.contains("Expected"), "{said}");
    assert_eq!(server.text(&["DBSIZE"]), "0");
}

#[test]
fn a_failed_start_leaves_nothing_behind() {
    let server = RedisServer::start(&[]);
    let site = Site::new();
    let (exporter, url, log) = (format!("http://127.0.0.1:{}", free_port()), server.url(), site.place("drill.log"));
    let output = drill(&["--exporter", &exporter, "--redis.url", &url, "--log-file", &log, "--run-id", "abcd"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("cannot ask the exporter") && said.contains("cannot connect"), "{said}");
    assert_eq!(server.text(&["DBSIZE"]), "0");
}

#[test]
fn two_drills_do_not_share_their_keys() {
    let server = RedisServer::start(&[]);
    server.command(&["SET", "redis_lock_drill:abcd:running", "another drill's", "PX", "600000"]);
    let output = drill(&["stale-release", "--redis.url", &server.url(), "--run-id", "abcd"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("another drill with the run id abcd is under way"), "{said}");
    assert_eq!(server.text(&["GET", "redis_lock_drill:abcd:running"]), "another drill's");
}

/// With a password, over the flags of the daemon.
#[test]
fn a_redis_with_a_password() {
    let server = RedisServer::start(&["--requirepass", "secret"]);
    let site = Site::new();
    fs::write(site.path("password"), "secret\n").unwrap();
    let password = site.place("password");
    let flags = ["crash-takeover", "--speed", "30", "--redis.url", &server.url(), "--redis.password-file", &password];
    let (exit_code, report) = report(&drill(&flags));
    assert_eq!(exit_code, Some(0), "{}", shortcomings(&report));
    assert!(!report.to_string().contains("secret"));
    let output = drill(&["crash-takeover", "--redis.url", &server.url()]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("cannot connect to Redis") || said.contains("cannot write to Redis"), "{said}");
}

#[test]
fn usage() {
    let check = |arguments: &[&str], exit_code: i32, words: &str| {
        let output = command(&[&["drill"], arguments].concat());
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(exit_code), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    };
    check(&["no-such-scenario"], 64, "stale-release");
    check(&["--speed", "0"], 64, "1..=30");
    check(&["--speed", "31"], 64, "1..=30");
    check(&["--duration", "long"], 64, "250ms");
    check(&["--exporter", "http://127.0.0.1:1"], 64, "--log-file");
    check(&["--run-id", "Ü"], 64, "4 to 32");
    check(&["--redis.url", "rediss://127.0.0.1:1"], 2, "redis://HOST:PORT");
    check(&["--redis.url", "redis://me:secret@127.0.0.1:1"], 2, "cannot connect to Redis at 127.0.0.1:1");
    for name in NAMES {
        check(&["--list"], 0, name);
    }
    let output = Command::new(BINARY).args(["drill", "stale-release"]).env("PATH", "").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--redis.url"), "it says what else would do");
}

/// Every operation that writes, on a key that is not the drill's: refused before anything is sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_locker_cannot_leave_its_territory() {
    let server = RedisServer::start(&[]);
    let territory = Arc::new(Territory::new("redis_lock_drill:abcd:").unwrap());
    let client = redis::Client::open(server.url()).unwrap();
    let mut locker = Locker::connect_within(&client, &territory, Duration::from_secs(5)).await.unwrap();
    let ttl = Duration::from_secs(60);
    let writes = || server.info("rdb_changes_since_last_save").unwrap();
    for key in ["cordum:wf:run:lock:1", "redis_lock_drill:abce:x", "redis_lock_drill:abcd:", "x", ""] {
        server.command(&["SET", "cordum:wf:run:lock:1", "their token"]);
        let (token, before) = (LockToken::new("their token"), writes());
        assert!(locker.acquire(key, ttl).await.is_err());
        assert!(locker.renew(key, &token, ttl).await.is_err());
        assert!(locker.release(key, &token).await.is_err());
        assert!(locker.steal(key, ttl).await.is_err());
        assert!(locker.delete(key).await.is_err());
        assert!(locker.next_fence(key, ttl).await.is_err());
        assert!(locker.write_fenced(key, 1, "me", ttl).await.is_err());
        assert!(locker.write(key, 1, "me", ttl).await.is_err());
        assert_eq!(writes(), before, "{key:?}");
        assert_eq!(server.text(&["GET", "cordum:wf:run:lock:1"]), "their token");
    }
    // What was made is taken away, unless somebody else has put something in its place.
    let (ours, theirs) = (territory.key("ours"), territory.key("theirs"));
    locker.acquire(&ours, ttl).await.unwrap().unwrap();
    locker.acquire(&theirs, ttl).await.unwrap().unwrap();
    assert_eq!(locker.next_fence(&territory.key("fence"), ttl).await.unwrap(), 1);
    server.command(&["SET", &theirs, "somebody else's"]);
    let cleared = territory.clear(&mut locker).await.unwrap();
    assert_eq!((cleared.made, cleared.deleted, cleared.left), (3, 2, vec![theirs.clone()]));
    assert_eq!(server.text(&["GET", &theirs]), "somebody else's");
    assert_eq!(server.text(&["EXISTS", &ours]), "0");
}

/// With a rule that pages at once, for one of two namespaces.
fn hasty_prometheus(exporter: &str) -> Prometheus {
    let expression = r#"redis_lock_acquisitions_total{lock_namespace="drill-crash-takeover"} > 0"#;
    let rule = format!("{{alert: RedisLockNotOwnedRatioHigh, labels: {{severity: critical}}, expr: '{expression}'}}");
    let rules = format!("groups:\n  - name: all\n    interval: 1s\n    rules:\n      - {rule}\n");
    let config = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [rules.yml]\n\
         scrape_configs: [{{job_name: drill, static_configs: [{{targets: ['{exporter}']}}]}}]\n"
    );
    Prometheus::start(&config, &[("rules.yml", &rules)], &[])
}

#[test]
fn a_page_where_silence_is_right_fails() {
    let listen = format!("127.0.0.1:{}", free_port());
    let prometheus = hasty_prometheus(&listen);
    let url = prometheus.url();
    let flags = ["stale-release", "crash-takeover", "--speed", "30", "--prometheus.settle", "7s"];
    let output = drill(&[&flags[..], &["--prometheus", &url, "--web.listen-address", &listen]].concat());
    let (exit_code, report) = report(&output);
    assert_eq!(exit_code, Some(1), "{report:#}");
    let silent = scenario(&report, "stale-release");
    assert_eq!((measured(silent, "alerts").as_str(), verdicts(silent, "alerts")["alerts"]), ("no page", true));
    let paged = scenario(&report, "crash-takeover");
    assert!(
        measured(paged, "alerts").starts_with("RedisLockNotOwnedRatioHigh of drill-crash-takeover after"),
        "{paged}"
    );
    assert_eq!((&paged["held"], verdicts(paged, "alerts")["alerts"]), (&false.into(), false));
}
