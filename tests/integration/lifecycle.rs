//! Tests starting, reloading and stopping the daemon, and the data that it must never show.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::daemon::{Daemon, Samples, command, not_owned, sum};
use crate::redis::eventually;
use crate::site::{Site, lost};

const RELOAD_OK: &str = "redis_lock_exporter_config_last_reload_successful";
const LINES_OF_STDIN: &str = "redis_lock_exporter_log_lines_total{source=\"-\"}";
const OPEN_STDIN: &str = "redis_lock_exporter_log_open_files{source=\"-\"}";
const CONFIG: &str = "presets: [cordum]\nlogs: [{path: 'SITE/logs/*.log'}]\n";
const BILLING: &str = "namespaces: [{name: billing, keys: ['billing:{id}']}]\nrules: [{message: invoice lock lost, event: not_owned, operation: release, namespace: billing, id: id}]\n";

#[test]
fn sigterm_saves_the_state_and_exits_with_0() {
    let site = Site::new();
    let state = site.full_path("state");
    let arguments = ["--preset", "cordum", "--logs.path", "-", "--state.dir", &state];
    let mut daemon = Daemon::start_with(&arguments, |command| command.stdin(Stdio::piped()));
    daemon.wait_ready();
    // Standard input cannot be read again, so after the next start only the last saved state
    // remains. The second line is a piece of a split line.
    let piece = format!("2026-06-25T13:37:04Z stdout P {}", lost(1));
    let mut input = daemon.take_stdin();
    input.write_all((lost(1) + &piece).as_bytes()).unwrap();
    daemon.wait_for(LINES_OF_STDIN, 2.0);
    assert_eq!(daemon.stop().code(), Some(0));
    let daemon = Daemon::start(&arguments);
    daemon.wait_counted(2);
    assert_eq!(daemon.scrape()[LINES_OF_STDIN], 2.0);
}

/// The request of a connection that the server has just accepted may arrive after the signal.
#[test]
fn a_request_that_arrives_with_sigterm_gets_its_answer() {
    let site = Site::new();
    let daemon = Daemon::start(&["--preset", "cordum", "--logs.path", &site.full_path("logs/*.log")]);
    let mut stream = TcpStream::connect(daemon.address).unwrap();
    // The server has accepted it when it answers a later connection.
    assert_eq!(daemon.get("/-/healthy").status, 200);
    daemon.signal("TERM");
    eventually("the end of the listener", || TcpStream::connect(daemon.address).is_err().then_some(()));
    stream.write_all(b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn ready_means_that_the_start_positions_are_saved() {
    let site = Site::new();
    // A directory at the path of the temporary file makes saving fail.
    fs::create_dir_all(site.path("state/state.json.tmp")).unwrap();
    let (logs, state) = (site.full_path("logs/*.log"), site.full_path("state"));
    let daemon = Daemon::start(&["--preset", "cordum", "--logs.path", &logs, "--state.dir", &state]);
    daemon.wait("a failed save is counted", |daemon| {
        daemon.scrape()["redis_lock_exporter_state_save_errors_total"] > 0.0
    });
    let answer = daemon.get("/-/ready");
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert_eq!(daemon.get("/-/healthy").status, 200);
    fs::remove_dir(site.path("state/state.json.tmp")).unwrap();
    daemon.wait_ready();
}

#[test]
fn sighup_loads_a_new_configuration_without_losing_a_line() {
    let site = Site::new();
    site.configure(CONFIG);
    let daemon = site.start_configured(&[]);
    /// Ends the writer even if the test fails.
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let done = AtomicBool::new(false);
    let written = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut written = 0;
            while !done.load(Ordering::Relaxed) {
                site.append("logs/app.log", lost(3));
                written += 3;
                thread::sleep(Duration::from_millis(2));
            }
            written
        });
        let end = End(&done);
        for round in 1..=4 {
            site.configure(&if round % 2 == 1 { format!("{CONFIG}{BILLING}") } else { CONFIG.to_owned() });
            daemon.signal("HUP");
            let expected = (round % 2 == 1).then_some(0.0);
            daemon.wait("the new configuration is active", |daemon| {
                daemon.scrape().get(&not_owned("billing", "release")).copied() == expected
            });
        }
        drop(end);
        writer.join().unwrap()
    });
    daemon.wait_counted(written);
    assert_eq!(daemon.scrape()[RELOAD_OK], 1.0);
    assert_eq!(daemon.get("/-/ready").status, 200);
}

#[test]
fn a_bad_new_configuration_is_refused_and_the_old_one_stays_active() {
    let site = Site::new();
    site.configure(&format!("{CONFIG}{BILLING}"));
    let daemon = site.start_configured(&[]);
    site.append("logs/app.log", lost(1));
    daemon.wait_counted(1);
    site.configure(&format!("{CONFIG}namespace: []\n"));
    daemon.signal("HUP");
    daemon.wait_for(RELOAD_OK, 0.0);
    let place = format!("{}:3:1:", site.full_path("config.yaml"));
    assert!(daemon.log().contains(&place), "{place} is not in\n{}", daemon.log());
    site.append("logs/app.log", lost(1));
    daemon.wait_counted(2);
    assert_eq!(daemon.scrape()[&not_owned("billing", "release")], 0.0);
    site.configure(CONFIG);
    daemon.signal("HUP");
    daemon.wait_for(RELOAD_OK, 1.0);
    daemon.wait("the new configuration is active", |daemon| {
        !daemon.scrape().contains_key(&not_owned("billing", "release"))
    });
    daemon.wait_counted(2);
}

#[test]
fn http_reload_is_off_by_default() {
    let site = Site::new();
    site.configure(CONFIG);
    let daemon = site.start_configured(&[]);
    site.configure(&format!("{CONFIG}{BILLING}"));
    let answer = daemon.post("/-/reload");
    assert_eq!(answer.status, 403);
    assert!(answer.text().contains("--web.enable-lifecycle"), "{}", answer.text());
    site.append("logs/app.log", lost(1));
    daemon.wait_counted(1);
    assert!(!daemon.scrape().contains_key(&not_owned("billing", "release")));
}

#[test]
fn an_http_reload_returns_its_result() {
    let site = Site::new();
    site.configure(CONFIG);
    let daemon = site.start_configured(&["--web.enable-lifecycle"]);
    site.configure(&format!("{CONFIG}{BILLING}"));
    assert_eq!(daemon.post("/-/reload").status, 200);
    assert_eq!(daemon.scrape()[&not_owned("billing", "release")], 0.0);
    site.configure("logs: 7\n");
    let answer = daemon.post("/-/reload");
    assert_eq!(answer.status, 500);
    assert!(answer.text().contains("config.yaml:1:7"), "{}", answer.text());
    daemon.wait_for(RELOAD_OK, 0.0);
    assert_eq!(daemon.scrape()[&not_owned("billing", "release")], 0.0);
}

#[test]
fn the_state_directory_cannot_change_while_running() {
    let site = Site::new();
    site.configure(&format!("{CONFIG}state_dir: SITE/one\n"));
    let daemon = Daemon::start(&["--config.file", &site.full_path("config.yaml"), "--web.enable-lifecycle"]);
    daemon.wait_ready();
    site.configure(&format!("{CONFIG}state_dir: SITE/two\n"));
    let answer = daemon.post("/-/reload");
    assert!(answer.status == 500 && answer.text().contains("state directory cannot change"), "{}", answer.text());
    daemon.wait_for(RELOAD_OK, 0.0);
    site.append("logs/app.log", lost(1));
    daemon.wait_counted(1);
    assert!(site.path("one/state.json").exists() && !site.path("two").exists());
}

#[test]
fn the_daemon_keeps_running_after_standard_input_ends() {
    let site = Site::new();
    let mut daemon = Daemon::start_with(
        &["--preset", "cordum", "--logs.path", "-", "--state.dir", &site.full_path("state")],
        |command| command.stdin(Stdio::piped()),
    );
    daemon.wait_ready();
    let mut input = daemon.take_stdin();
    input.write_all(lost(2).as_bytes()).unwrap();
    daemon.wait_counted(2);
    daemon.wait_for(OPEN_STDIN, 1.0);
    daemon.signal("HUP");
    daemon.wait_for_log("starting with it");
    input.write_all(lost(1).as_bytes()).unwrap();
    daemon.wait_counted(3);
    daemon.wait_for(OPEN_STDIN, 1.0);
    // The last line never gets a newline.
    input.write_all(lost(1).trim_end().as_bytes()).unwrap();
    drop(input);
    daemon.wait_counted(4);
    daemon.wait_for_log("standard input has ended");
    daemon.wait_for(OPEN_STDIN, 0.0);
    let overview = daemon.get("/api/v1/overview").text();
    assert!(overview.contains("Standard input has ended"), "{overview}");
    assert_eq!(daemon.get("/-/ready").status, 200);
    assert_eq!(daemon.stop().code(), Some(0));
}

#[test]
fn an_address_in_use_is_named_in_the_error() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = command(&["--preset", "cordum", "--logs.path", "/nowhere/*.log", "--web.listen-address", &address]);
    let log = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{log}");
    assert!(log.contains(&format!("cannot listen on {address}")) && log.contains("in use"), "{log}");
}

#[test]
fn bad_usage_and_bad_configurations_exit_with_64() {
    let site = Site::new();
    site.configure("logs: 7\n");
    let config = site.full_path("config.yaml");
    for arguments in [&["--no.such.flag"][..], &["--web.listen-address", "nonsense"], &["--config.file", &config]] {
        let output = command(arguments);
        assert_eq!(output.status.code(), Some(64), "{arguments:?}: {output:?}");
        assert!(!output.stderr.is_empty());
    }
}

#[test]
fn every_counter_that_has_a_rule_starts_at_0() {
    let site = Site::new();
    site.configure(&format!("{CONFIG}{BILLING}"));
    let daemon = site.start_configured(&[]);
    let samples = daemon.scrape();
    // The number of series of each counter: renewal, release and acquire failures, abandonments,
    // unlocked work, conflicting writes. A counter without a rule is absent. Any line that names a
    // key can be a failed release.
    for (namespace, series) in [
        ("approval", [1, 5, 5, 0, 0, 0]),
        ("workflow", [5, 5, 5, 0, 1, 1]),
        ("reconciler", [5, 5, 5, 0, 0, 0]),
        ("scheduler", [5, 5, 5, 1, 0, 3]),
        ("billing", [1, 5, 5, 0, 0, 0]),
        ("other", [1, 5, 5, 0, 0, 0]),
    ] {
        let label = format!("lock_namespace=\"{namespace}\"");
        let metrics = [
            "renewal_failures",
            "release_failures",
            "acquire_failures",
            "abandonments",
            "unlocked_work",
            "conflicting_writes",
        ];
        for (metric, series) in metrics.into_iter().zip(series).chain([("not_owned", 3)]) {
            let start = format!("redis_lock_{metric}_total{{");
            let values: Vec<f64> = samples
                .iter()
                .filter(|(name, _)| name.starts_with(&start) && name.contains(&label))
                .map(|(_, value)| *value)
                .collect();
            assert_eq!(values, vec![0.0; series], "{namespace} {metric}");
        }
    }
}

#[test]
fn log_lines_never_become_label_values() {
    let site = Site::new();
    let daemon = site.start();
    site.append("logs/app.log", lost(1));
    daemon.wait_counted(1);
    let before = series(&daemon.scrape());
    let strange = [
        r#"{"msg":"distributed run lock release failed","component":"EVIL-component","run_id":"EVIL-run","error":"lock not owned"}"#,
        r#"{"msg":"lock release failed","component":"EVIL\"}","key":"EVIL:key:{x}","lock_key":"EVIL","error":"lock not owned EVIL"}"#,
        r#"{"msg":"job lock renewal failed","component":"scheduler","operation":"EVIL","reason":"EVIL","job_id":"EVIL","error":"EVIL reason"}"#,
        r#"{"msg":"job state changed","component":"scheduler","job_id":"EVIL","new_state":"SUCCEEDED"}"#,
        r#"{"msg":"job state changed","component":"scheduler","job_id":"EVIL","new_state":"FAILED"}"#,
        "[EVIL] WARN distributed run lock release failed run_id=EVIL error=lock not owned lock_namespace=EVIL",
        "redis.exceptions.LockNotOwnedError: Cannot release a lock that's no longer owned EVIL",
    ];
    site.append("logs/app.log", strange.join("\n") + "\n");
    daemon.wait_for(&site.series("log_lines_total", "logs/*.log"), 1.0 + strange.len() as f64);
    let samples = daemon.scrape();
    assert!(sum(&samples, "redis_lock_exporter_log_events_total") >= 5.0, "the lines must match rules");
    assert_eq!(series(&samples), before);
}

#[test]
fn owner_tokens_in_log_lines_are_never_shown() {
    let site = Site::new();
    let token = "7f3b1c9e-5d2a-4e8f-9b6c-0a1d2e3f4b5c";
    let daemon = Daemon::start(&[
        "--preset",
        "cordum",
        "--logs.path",
        &site.full_path("logs/*.log"),
        "--state.dir",
        &site.full_path("state"),
        "--log.level",
        "trace",
    ]);
    daemon.wait_ready();
    let lines = [
        format!(
            r#"{{"msg":"distributed run lock release failed","component":"workflow-engine","run_id":"run-1","token":"{token}","error":"lock not owned: {token}"}}"#
        ),
        format!(
            r#"{{"msg":"lock release failed","key":"cordum:scheduler:job:{token}","value":"{token}","error":"token mismatch {token}"}}"#
        ),
        format!("lock lost, owner {token}, expected {token}"),
        format!("{{\"msg\":\"distributed run lock release failed\", broken {token}"),
        format!("2026-06-25T13:37:04Z stderr P distributed run lock {token}"),
    ];
    site.append("logs/app.log", lines.join("\n") + "\n");
    daemon.wait_for(&site.series("log_lines_total", "logs/*.log"), lines.len() as f64);
    let samples = daemon.scrape();
    assert!(sum(&samples, "redis_lock_exporter_log_events_total") >= 2.0, "the lines must match rules");
    for (place, text) in
        [("/metrics", daemon.get("/metrics").text()), ("/", daemon.get("/").text()), ("the log", daemon.log())]
    {
        assert!(!text.contains(token), "{place} shows the token:\n{text}");
    }
}

fn series(samples: &Samples) -> BTreeSet<String> {
    samples.keys().cloned().collect()
}
