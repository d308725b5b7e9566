//! Tests `drill`: every scenario passes with a working exporter, fails with one that observes too
//! little, and leaves Redis unchanged.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use redis_lock_exporter::rehearsal::drill::NAMES;
use redis_lock_exporter::rehearsal::fleet::{KeyScope, LockToken, Locker};
use redis_lock_exporter::util::ports::UnusedPort;
use serde_json::Value;

use crate::daemon::{BINARY, Daemon, command};
use crate::prometheus::Prometheus;
use crate::redis::{RedisServer, eventually, on_free_port};
use crate::site::Site;

fn drill(arguments: &[&str]) -> Output {
    command(&[&["drill", "--output", "json"], arguments].concat())
}

/// Returns the exit code and the report.
fn report(output: &Output) -> (Option<i32>, Value) {
    let printed = String::from_utf8_lossy(&output.stderr);
    let report = serde_json::from_slice(&output.stdout);
    (output.status.code(), report.unwrap_or_else(|error| panic!("{error}\n{printed}")))
}

fn scenario<'a>(report: &'a Value, name: &str) -> &'a Value {
    let scenarios = report["scenarios"].as_array().unwrap();
    scenarios.iter().find(|scenario| scenario["name"] == name).unwrap_or_else(|| panic!("no {name}: {report}"))
}

/// Returns whether each expectation held, by its id.
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

/// Lists the failed expectations for an assertion message. A complete report is too long for a log.
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

/// Returns the keys of all drills.
fn drill_keys(server: &RedisServer) -> Vec<String> {
    let redis::Value::Array(keys) = server.command(&["KEYS", "redis_lock_drill:*"]) else { panic!("KEYS") };
    keys.iter().map(crate::redis::client::text).collect()
}

/// Fails if the program no longer has one of the scenarios.
#[test]
fn the_documentation_lists_every_scenario() {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/drills.md")).unwrap();
    // The first table lists the scenarios.
    let rows = page.lines().skip_while(|line| !line.starts_with("| `")).take_while(|line| line.starts_with("| `"));
    assert_eq!(rows.map(|row| row.split('`').nth(1).unwrap()).collect::<Vec<_>>(), NAMES);
}

#[test]
fn all_scenarios_pass() {
    let site = Site::new();
    let (markdown, json) = (site.full_path("report.md"), site.full_path("report.json"));
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
    // The measured values follow from the scenario.
    for name in ["stale-release", "combined", "pause", "delay", "pause-and-delay", "crash-takeover"] {
        // Measured from the reply to the last renewal, which a busy machine sees late.
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

/// An existing exporter, configured as `--print-config` shows, on a Redis that other programs use
/// too.
struct Staging {
    server: RedisServer,
    site: Site,
    daemon: Daemon,
}

const RUN_ID: &str = "staging-1";

impl Staging {
    /// Adds `rest` to the configuration that `--print-config` prints.
    fn configured(rest: &str) -> Self {
        Self::start(|site, url| {
            let log = site.full_path("logs/drill.log");
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
        let (url, log) = (self.server.url(), self.site.full_path("logs/drill.log"));
        let staging = ["--exporter", &exporter, "--redis.url", &url, "--log-file", &log, "--run-id", RUN_ID];
        drill(&[scenarios, &staging, &["--speed", "30"], more].concat())
    }

    /// Checks that the drill left no keys behind and did not change other keys.
    fn is_as_before(&self) {
        assert_eq!(self.server.text(&["DBSIZE"]), "3", "{:?}", drill_keys(&self.server));
        for key in ["cordum:wf:run:lock:1", "redis_lock_drill:other-1:r1:drill-stale-release", "redis_lock_drill"] {
            assert_eq!(self.server.text(&["GET", key]), "somebody else's");
        }
    }
}

#[test]
fn a_drill_works_with_an_existing_exporter_and_redis() {
    let staging = Staging::configured("redis: {url: 'REDIS'}\n");
    let (exit_code, report) = report(&staging.drill(&["stale-release", "pause"], &[]));
    assert_eq!((exit_code, &report["held"]), (Some(0), &Value::Bool(true)), "{}", shortcomings(&report));
    assert_eq!(report["exporter_problem"], Value::Null);
    assert_eq!(report["scenarios"].as_array().unwrap().len(), 2);
    staging.is_as_before();
    // The exporter's counts equal the drill's records.
    let samples = staging.daemon.scrape();
    let causes = "redis_lock_not_owned_causes_total{lock_namespace=\"drill-pause\",cause=\"renewals_stopped\"}";
    assert_eq!(samples[causes], 2.0);
}

/// Checks that the workers behave as expected and only the exporter's expectations fail.
fn is_blind(staging: &Staging, problem: &str) {
    let (exit_code, report) = report(&staging.drill(&["blind-delete"], &[]));
    assert_eq!((exit_code, &report["held"]), (Some(1), &Value::Bool(false)), "{report:#}");
    let printed = report["exporter_problem"].as_str().unwrap();
    assert!(printed.contains(problem), "{printed}");
    let blind_delete = scenario(&report, "blind-delete");
    assert!(verdicts(blind_delete, "workers").values().all(|held| *held), "{blind_delete:#}");
    let seen = verdicts(blind_delete, "exporter");
    for id in ["keyspace", "cause", "incident", "detection"] {
        assert!(!seen[id], "{id}: {blind_delete:#}");
    }
    staging.is_as_before();
}

#[test]
fn an_exporter_without_the_drill_namespaces_fails_the_drill() {
    let staging = Staging::start(|_, url| {
        format!("redis: {{url: '{url}'}}\nnamespaces: [{{name: jobs, keys: ['jobs:{{id}}']}}]\n")
    });
    is_blind(&staging, "--print-config");
}

#[test]
fn an_exporter_without_redis_fails_the_drill() {
    is_blind(&Staging::configured(""), "not connected to a Redis");
}

#[test]
fn an_exporter_that_reads_another_log_fails_the_drill() {
    let staging = Staging::start(|site, url| {
        let elsewhere = site.full_path("logs/elsewhere.log");
        let printed =
            command(&["drill", "--print-config", "--run-id", RUN_ID, "--speed", "30", "--log-file", &elsewhere]);
        format!("{}redis: {{url: '{url}'}}\n", String::from_utf8(printed.stdout).unwrap())
    });
    let (exit_code, report) = report(&staging.drill(&["stale-release"], &[]));
    assert_eq!(exit_code, Some(1), "{report:#}");
    assert!(report["exporter_problem"].as_str().unwrap().contains("does not understand the lines in"), "{report:#}");
    let seen = verdicts(scenario(&report, "stale-release"), "exporter");
    // Redis alone is enough for the keyspace expectations.
    assert!(seen["keyspace"] && !seen["refusals"] && !seen["cause"], "{report:#}");
    staging.is_as_before();
}

/// A running drill and its output.
struct Running {
    child: Child,
    printed: BufReader<std::process::ChildStderr>,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(BINARY);
        command.args(["drill", "--output", "json"]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let printed = BufReader::new(child.stderr.take().unwrap());
        Self { child, printed }
    }

    fn wait_for(&mut self, words: &str) {
        let mut line = String::new();
        while !line.contains(words) {
            line.clear();
            assert!(self.printed.read_line(&mut line).unwrap() > 0, "ended before it printed {words:?}");
        }
    }

    /// Returns the processes that the drill started.
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

/// Interrupts the drill when cleaning up is hardest: a worker process is paused, another worker
/// holds its lock, and storage was written.
fn interrupted_by(signal: &str) {
    let server = RedisServer::start(&[]);
    server.command(&["SET", "cordum:wf:run:lock:1", "somebody else's"]);
    let mut running = Running::start(&["pause", "--speed", "10", "--redis.url", &server.url()]);
    running.wait_for("finished the work with fence 2");
    let keys = drill_keys(&server);
    assert!(keys.len() >= 5, "a lock, a fence, two storages and the mark of the run: {keys:?}");
    let processes = running.children();
    assert_eq!(processes.len(), 1, "the drill must have one worker process");
    running.signal(signal);
    let output = running.child.wait_with_output().unwrap();
    let (exit_code, report) = report(&output);
    assert_eq!((exit_code, &report["interrupted"], &report["held"]), (Some(2), &true.into(), &false.into()));
    assert_eq!(report["cleanup"]["keys_left"], Value::Array(Vec::new()));
    // The report contains everything that happened before the interruption.
    let pause = scenario(&report, "pause");
    let timeline = pause["timeline"].as_array().unwrap();
    assert!(timeline.iter().any(|entry| entry["what"] == "finished the work with fence 2"), "{pause:#}");
    assert_eq!((&pause["rounds"], verdicts(pause, "workers")["takeover"]), (&1.into(), true));
    assert_eq!(drill_keys(&server), Vec::<String>::new());
    assert_eq!(server.text(&["DBSIZE"]), "1");
    eventually("the worker process to exit", || {
        (!Path::new(&format!("/proc/{}", processes[0])).exists()).then_some(())
    });
}

#[test]
fn an_interrupted_drill_cleans_up() {
    interrupted_by("-INT");
}

#[test]
fn a_terminated_drill_cleans_up() {
    interrupted_by("-TERM");
}

#[test]
fn a_drill_whose_terminal_closes_cleans_up() {
    interrupted_by("-HUP");
}

#[test]
fn a_drill_ended_by_sigquit_cleans_up() {
    interrupted_by("-QUIT");
}

/// Repeats every failure, each time on another lock. The counts must be exact, except for rounds in
/// which the machine paused.
#[test]
fn a_sustained_drill_counts_every_round() {
    let server = RedisServer::start(&[]);
    let flags = ["stale-release", "crash-takeover", "--speed", "20", "--duration", "5s", "--run-id", "abcd"];
    let mut running = Running::start(&[&flags[..], &["--redis.url", &server.url()]].concat());
    running.wait_for("everything else is exact");
    running.wait_for("crash-takeover: checking");
    // More than 10 s after the start.
    let left: u64 = server.text(&["PTTL", "redis_lock_drill:abcd:running"]).parse().unwrap();
    assert!(left > 592_000, "the run's marker key is not renewed: {left} ms");
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

/// A lock that no worker can acquire is a failed expectation, not an error that prevents the drill
/// from running.
#[test]
fn a_lock_that_no_worker_can_acquire_fails_the_scenario() {
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

/// The report contains the workers' actions even if the exporter exits.
#[test]
fn a_drill_reports_results_when_the_exporter_exits() {
    let staging = Staging::configured("redis: {url: 'REDIS'}\n");
    let exporter = format!("http://{}", staging.daemon.address);
    let (url, log) = (staging.server.url(), staging.site.full_path("logs/drill.log"));
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
    assert!(begun["error"].as_str().unwrap().contains("no longer answers"), "{begun:#}");
    assert!(verdicts(begun, "workers")["takeover"], "{begun:#}");
    let other = scenario(&report, "blind-delete");
    assert_eq!((other["rounds"].as_u64(), other["error"].is_string()), (Some(0), true), "{other:#}");
}

/// The drill detects the problem before it starts.
#[test]
fn an_unwritable_report_is_detected_before_the_drill_starts() {
    let server = RedisServer::start(&[]);
    let site = Site::new();
    let report = site.full_path("nowhere/report.md");
    let output = drill(&["stale-release", "--redis.url", &server.url(), "--report", &report]);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    assert!(
        printed.contains(&format!("cannot write the report {report}")) && !printed.contains("Expected"),
        "{printed}"
    );
    assert_eq!(server.text(&["DBSIZE"]), "0");
}

#[test]
fn a_failed_start_cleans_up() {
    let server = RedisServer::start(&[]);
    let site = Site::new();
    let unused = UnusedPort::reserve().unwrap();
    let (exporter, url) = (format!("http://127.0.0.1:{}", unused.number), server.url());
    let log = site.full_path("drill.log");
    let output = drill(&["--exporter", &exporter, "--redis.url", &url, "--log-file", &log, "--run-id", "abcd"]);
    assert_eq!(output.status.code(), Some(2));
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(printed.contains("cannot ask the exporter") && printed.contains("cannot connect"), "{printed}");
    assert_eq!(server.text(&["DBSIZE"]), "0");
}

#[test]
fn a_run_id_in_use_by_another_drill_is_refused() {
    let server = RedisServer::start(&[]);
    server.command(&["SET", "redis_lock_drill:abcd:running", "another drill's", "PX", "600000"]);
    let output = drill(&["stale-release", "--redis.url", &server.url(), "--run-id", "abcd"]);
    assert_eq!(output.status.code(), Some(2));
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(printed.contains("another drill with the run id abcd is under way"), "{printed}");
    assert_eq!(server.text(&["GET", "redis_lock_drill:abcd:running"]), "another drill's");
}

/// The drill uses a password from the daemon's flags.
#[test]
fn a_drill_works_with_a_redis_password() {
    let server = RedisServer::start(&["--requirepass", "secret"]);
    let site = Site::new();
    fs::write(site.path("password"), "secret\n").unwrap();
    let password = site.full_path("password");
    let flags = ["crash-takeover", "--speed", "30", "--redis.url", &server.url(), "--redis.password-file", &password];
    let (exit_code, report) = report(&drill(&flags));
    assert_eq!(exit_code, Some(0), "{}", shortcomings(&report));
    assert!(!report.to_string().contains("secret"));
    let output = drill(&["crash-takeover", "--redis.url", &server.url()]);
    assert_eq!(output.status.code(), Some(2));
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(printed.contains("cannot connect to Redis") || printed.contains("cannot write to Redis"), "{printed}");
}

#[test]
fn usage() {
    let check = |arguments: &[&str], exit_code: i32, words: &str| {
        let output = command(&[&["drill"], arguments].concat());
        let printed = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(exit_code), "{arguments:?}: {printed}");
        assert!(printed.contains(words), "{arguments:?}: {printed}");
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
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("--redis.url"),
        "the error must name the alternative flag"
    );
}

/// Tries every write operation on a key that does not belong to the drill. The client refuses each
/// one before it sends anything.
#[tokio::test(flavor = "multi_thread")]
async fn a_drill_client_writes_only_keys_of_its_own_run() {
    let server = RedisServer::start(&[]);
    let territory = Arc::new(KeyScope::new("redis_lock_drill:abcd:").unwrap());
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
    // The client deletes keys that it created, unless another client has replaced them.
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

/// Uses a rule that pages at once, for one of two namespaces.
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
fn an_unexpected_page_fails_the_scenario() {
    let output = on_free_port("the drill's exporter", |port| {
        let listen = format!("127.0.0.1:{port}");
        let prometheus = hasty_prometheus(&listen);
        let url = prometheus.url();
        let flags = ["stale-release", "crash-takeover", "--speed", "30", "--prometheus.settle", "7s"];
        let output = drill(&[&flags[..], &["--prometheus", &url, "--web.listen-address", &listen]].concat());
        let is_taken = String::from_utf8_lossy(&output.stderr).contains("cannot listen on");
        (!is_taken).then_some(output)
    });
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
