//! Tests `demo` as a user runs it: all observers see the incident, keyboard commands work, and
//! every kind of exit cleans up.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;
use tempfile::TempDir;

use crate::daemon::{BINARY, text};
use crate::http;
use crate::redis::eventually;
use crate::undisturbed::undisturbed;

struct Demo {
    child: Child,
    /// The demo creates all its files in this directory.
    home: TempDir,
    output: Arc<Mutex<String>>,
}

impl Demo {
    fn start(arguments: &[&str], prepare: impl FnOnce(&mut Command, &Path)) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut command = Command::new(BINARY);
        command.arg("demo").args(arguments).env("TMPDIR", home.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        prepare(&mut command, home.path());
        let mut child = command.spawn().unwrap();
        let output = Arc::new(Mutex::new(String::new()));
        let (shared, lines) = (Arc::clone(&output), BufReader::new(child.stdout.take().unwrap()).lines());
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                shared.lock().unwrap().push_str(&format!("{line}\n"));
            }
        });
        Self { child, home, output }
    }

    fn output(&self) -> String {
        self.output.lock().unwrap().clone()
    }

    /// Waits until the output contains the words.
    fn wait_for(&self, words: &str) {
        eventually(words, || self.output().contains(words).then_some(()));
    }

    fn press(&mut self, key: &str) {
        self.child.stdin.as_mut().unwrap().write_all(key.as_bytes()).unwrap();
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Returns the names of the programs that run in the demo's directory, without the demo itself.
    fn programs(&self) -> Vec<String> {
        let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
        let works_here = |process: &PathBuf| {
            let place = fs::read_link(process.join("cwd")).unwrap_or_default();
            place.starts_with(self.home.path())
        };
        let name = |process: PathBuf| fs::read_to_string(process.join("comm")).unwrap_or_default().trim().to_owned();
        processes.filter(works_here).map(name).collect()
    }

    /// Returns the files in the demo's directory.
    fn left(&self) -> Vec<PathBuf> {
        fs::read_dir(self.home.path()).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            // SIGTERM lets the demo stop the programs that it started.
            self.signal("TERM");
            let _ = self.child.wait();
        }
    }
}

/// An exporter without a processor reads several changes at once and may count one hold too many.
#[test]
fn workers_exporter_and_prometheus_all_see_the_incident() {
    undisturbed(check_the_incident);
}

fn check_the_incident() {
    let flags = ["--speed", "20", "--incident-after", "5s", "--duration", "50s", "--output", "json"];
    let mut demo = Demo::start(&flags, |_, _| {});
    // These programs run while the demo runs.
    for name in ["redis-server", "redis_lock_expo", "prometheus", "prometheus-aler"] {
        eventually(name, || demo.programs().iter().any(|program| program == name).then_some(()));
    }
    let status = demo.wait();
    let summary: Value = eventually("the summary", || serde_json::from_str(&demo.output()).ok());
    assert!(status.success(), "{summary:#}");
    assert_eq!(demo.programs(), [""; 0]);
    assert!(demo.left().is_empty(), "{:?}", demo.left());

    // Checks the demo's own result and the observations behind it.
    for piece in ["fleet", "exporter", "prometheus", "alertmanager"] {
        assert_eq!(summary["saw_the_incident"][piece], true, "{piece}: {summary:#}");
    }
    let series = |name: &str| {
        let lines = summary["logs"].as_array().unwrap();
        let line = lines.iter().find(|line| line["series"] == name).unwrap_or_else(|| panic!("no {name}: {summary:#}"));
        (line["truth"].as_u64().unwrap(), line["counted"].as_u64().unwrap())
    };
    let (truth, counted) = series("redis_lock_not_owned_total{lock_namespace=\"workflow\",operation=\"release\"}");
    assert!(truth >= 5, "node b froze for 45 s: {summary:#}");
    assert_eq!(counted, truth);
    let causes = summary["causes"].as_object().unwrap();
    let explained: u64 = causes.iter().filter(|(cause, _)| *cause != "unknown").map(|(_, n)| n.as_u64().unwrap()).sum();
    assert!(explained > truth / 2, "{summary:#}");
    let page = |alerts: &Value| {
        let is_it = |alert: &Value| {
            alert["alert"] == "RedisLockNotOwnedRatioHigh"
                && alert["severity"] == "critical"
                && alert["lock_namespace"] == "workflow"
        };
        alerts.as_array().unwrap().iter().find(|alert| is_it(alert)).cloned().unwrap_or_else(|| panic!("{summary:#}"))
    };
    let fired_after = page(&summary["alerts"])["firing_after_seconds"].as_f64().unwrap();
    assert!(fired_after > 5.0 + 10.0, "the alert fired before ten bad slices: {summary:#}");
    let notification = page(&summary["notifications"]);
    assert_eq!((&notification["kind"], &notification["status"]), (&Value::from("page"), &Value::from("firing")));
    let description = notification["description"].as_str().unwrap();
    assert!(description.contains("Likely cause: "), "the description must name the cause: {description}");
}

#[test]
fn an_interrupt_stops_all_processes_of_the_demo() {
    let mut demo = Demo::start(&["--speed", "20"], |_, _| {});
    demo.wait_for("times shorter than in production");
    assert!(demo.programs().len() >= 4, "{:?}", demo.programs());
    let url =
        demo.output().lines().find_map(|line| line.strip_prefix("exporter      http://").map(str::to_owned)).unwrap();
    let answer = http::ask(url.trim_end_matches('/').parse().unwrap(), "GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(answer.status, 200);
    demo.signal("INT");
    assert!(demo.wait().success());
    assert_eq!(demo.programs(), [""; 0]);
    assert!(demo.left().is_empty(), "{:?}", demo.left());
    demo.wait_for("The fleet took ");
}

/// Closes the terminal during the demo and during its start. Each time, other programs are already
/// running.
#[test]
fn closing_the_terminal_stops_all_processes_of_the_demo() {
    for is_started in [false, true] {
        let mut demo = Demo::start(&["--speed", "20"], |_, _| {});
        match is_started {
            true => demo.wait_for("times shorter than in production"),
            false => {
                let exporter = "redis_lock_expo";
                eventually(exporter, || demo.programs().iter().any(|program| program == exporter).then_some(()));
            }
        }
        demo.signal("HUP");
        assert!(demo.wait().success());
        assert_eq!(demo.programs(), [""; 0]);
        assert!(demo.left().is_empty(), "{:?}", demo.left());
    }
}

/// Runs the demo with a PATH that contains only redis-server.
#[test]
fn without_prometheus_keyboard_input_works_and_files_can_be_kept() {
    let mut demo = Demo::start(&["--speed", "20", "--keep"], |command, home| {
        let programs = home.join("bin");
        fs::create_dir(&programs).unwrap();
        let path = std::env::var("PATH").unwrap();
        let place = std::env::split_paths(&path).map(|directory| directory.join("redis-server"));
        symlink(place.into_iter().find(|place| place.exists()).unwrap(), programs.join("redis-server")).unwrap();
        command.env("PATH", programs);
    });
    demo.wait_for("Prometheus    is not on PATH");
    demo.press("s");
    demo.wait_for("incident: the network to Redis gets slower than the services wait");
    demo.press("f");
    demo.wait_for("incident: Redis fails over to a server that has none of the locks");
    demo.press("p\n");
    demo.wait_for("incident: node b freezes");
    demo.press("c");
    demo.wait_for("all faults are over");
    demo.press("q");
    assert!(demo.wait().success());
    assert_eq!(demo.programs(), [""; 0]);
    let kept: Vec<PathBuf> = demo.left().into_iter().filter(|place| !place.ends_with("bin")).collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
    for name in
        ["exporter.yml", "exporter.log", "logs/scheduler-a.log", "logs/workflow-engine-b.log", "state/state.json"]
    {
        assert!(kept[0].join(name).exists(), "{name} is not in {}", text(&kept[0]));
    }
}

#[test]
fn without_redis_the_demo_names_the_package_to_install() {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(BINARY).arg("demo").env("PATH", home.path()).env("TMPDIR", home.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(complaint.contains("redis-server") && complaint.contains("install"), "{complaint}");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn bad_durations_are_usage_errors() {
    for flags in [["--duration", "40"], ["--speed", "31"], ["--incident", "flood"]] {
        let output = Command::new(BINARY).arg("demo").args(flags).output().unwrap();
        assert_eq!(output.status.code(), Some(64), "{flags:?}");
    }
}
