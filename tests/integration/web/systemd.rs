//! Tests notifications to systemd. The test's own socket replaces systemd's.

use std::fs::{self, OpenOptions};
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use crate::daemon::Daemon;
use crate::redis::eventually;
use crate::site::Site;

const CONFIG: &str = "presets: [cordum]\nlogs: [{path: 'SITE/logs/*.log'}]\n";

/// Returns all messages so far, each with its lines.
struct Messages(Arc<Mutex<Vec<String>>>);

impl Messages {
    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn count(&self, line: &str) -> usize {
        self.all().iter().filter(|message| message.lines().any(|other| other == line)).count()
    }

    fn wait_for(&self, line: &str, times: usize) {
        eventually(&format!("{times} times {line} in {:?}", self.all()), || (self.count(line) >= times).then_some(()));
    }
}

fn start(site: &Site, watchdog: Option<&str>) -> (Daemon, Messages) {
    let path = site.path("notify.sock");
    let socket = UnixDatagram::bind(&path).unwrap();
    let messages = Arc::new(Mutex::new(Vec::new()));
    let received = Arc::clone(&messages);
    // The thread runs until the test process exits.
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length) = socket.recv(&mut buffer) {
            received.lock().unwrap().push(String::from_utf8_lossy(&buffer[..length]).into_owned());
        }
    });
    site.configure(CONFIG);
    let (config, state) = (site.full_path("config.yaml"), site.full_path("state"));
    let daemon = Daemon::start_with(&["--config.file", &config, "--state.dir", &state], |command| {
        command.env("NOTIFY_SOCKET", path);
        match watchdog {
            Some(limit) => command.env("WATCHDOG_USEC", limit),
            None => command,
        }
    });
    (daemon, Messages(messages))
}

#[test]
fn systemd_is_notified_of_start_reload_and_stop() {
    let site = Site::new();
    // A directory at the path of the temporary file makes saving fail, so the daemon does not
    // become ready.
    fs::create_dir_all(site.path("state/state.json.tmp")).unwrap();
    let (daemon, messages) = start(&site, None);
    daemon.wait("a failed save is counted", |daemon| {
        daemon.scrape()["redis_lock_exporter_state_save_errors_total"] > 0.0
    });
    assert_eq!(messages.all(), Vec::<String>::new(), "the daemon is not ready yet");
    fs::remove_dir(site.path("state/state.json.tmp")).unwrap();
    messages.wait_for("READY=1", 1);
    assert!(messages.all()[0].contains("STATUS=watching 1 log sources, "), "{:?}", messages.all());

    daemon.signal("HUP");
    messages.wait_for("READY=1", 2);
    site.configure("nonsense");
    daemon.signal("HUP");
    messages.wait_for("READY=1", 3);
    let all = messages.all();
    let reloads: Vec<&String> = all.iter().filter(|message| message.starts_with("RELOADING=1\n")).collect();
    assert_eq!(reloads.len(), 2, "{all:?}");
    let uptime = fs::read_to_string("/proc/uptime").unwrap();
    let uptime: f64 = uptime.split_whitespace().next().unwrap().parse().unwrap();
    for reload in reloads {
        let moment = reload.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC=")).unwrap();
        let moment = moment.parse::<f64>().unwrap() / 1e6;
        assert!(moment > 0.0 && moment <= uptime + 1.0, "{moment} of {uptime}");
    }
    assert!(all.last().unwrap().contains("STATUS=a new configuration was refused"), "{all:?}");
    assert_eq!(messages.count("WATCHDOG=1"), 0, "the watchdog is not enabled");
    assert_eq!(daemon.stop().code(), Some(0));
    messages.wait_for("STOPPING=1", 1);
}

#[test]
fn watchdog_notifications_stop_when_the_pipeline_is_blocked() {
    let site = Site::new();
    let (daemon, messages) = start(&site, Some("400000"));
    daemon.wait_ready();
    let so_far = messages.count("WATCHDOG=1");
    messages.wait_for("WATCHDOG=1", so_far + 3);
    // A save now blocks until a process reads this pipe, and blocks the pipeline too.
    let pipe = site.full_path("state/state.json.tmp");
    eventually("a pipe in the place of the temporary file", || {
        Command::new("mkfifo").arg(&pipe).status().unwrap().success().then_some(())
    });
    site.append("logs/app.log", crate::site::lost(1));
    daemon.wait_for_log("the pipeline does not answer");
    // On a busy machine the daemon may have sent this before the pipeline was blocked.
    daemon.wait("the pipeline is blocked", |daemon| daemon.get("/api/v1/incidents").status == 503);
    let hungry = messages.count("WATCHDOG=1");
    let still_hungry = || messages.count("WATCHDOG=1") == hungry;
    // Five times the normal interval between two notifications.
    thread::sleep(std::time::Duration::from_secs(1));
    assert!(still_hungry(), "the daemon notified the watchdog although the pipeline is blocked");
    assert_eq!(daemon.get("/-/healthy").status, 200, "the process itself must answer");
    let reader = OpenOptions::new().read(true).open(&pipe).unwrap();
    messages.wait_for("WATCHDOG=1", hungry + 3);
    drop(reader);
}
