//! Runs the real binary as a child process: starts, scrapes, signals and kills it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use redis_lock_exporter::client::scrape::Samples;

use crate::http::{Answer, ask};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_redis_lock_exporter");
/// Long enough for a busy machine with two cores. Waiting ends as soon as the condition holds.
pub(crate) const DEADLINE: Duration = Duration::from_secs(180);
const EVENTS: &str = "redis_lock_exporter_log_events_total";

/// Sums a metric over all its label values.
pub(crate) fn sum(samples: &Samples, metric: &str) -> f64 {
    samples.total(metric, &[])
}

pub(crate) struct Daemon {
    child: Child,
    pub(crate) address: SocketAddr,
    log: Arc<Mutex<String>>,
}

impl Daemon {
    /// Starts the daemon on a free port and waits until it listens.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::try_start(arguments, |command| command).unwrap_or_else(|log| panic!("did not start:\n{log}"))
    }

    pub(crate) fn start_with(arguments: &[&str], prepare: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        Self::try_start(arguments, prepare).unwrap_or_else(|log| panic!("did not start:\n{log}"))
    }

    /// Returns the daemon's log if the daemon exits before it listens.
    pub(crate) fn try_start(
        arguments: &[&str],
        prepare: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Result<Self, String> {
        let mut command = Command::new(BINARY);
        command.args(arguments).args(["--web.listen-address", "127.0.0.1:0"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = prepare(&mut command).spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut address = None;
        for line in lines.by_ref().map_while(Result::ok) {
            log.lock().unwrap().push_str(&format!("{line}\n"));
            if let Some((_, rest)) = line.split_once("serving http address=") {
                address = rest.split_whitespace().next().and_then(|text| text.parse().ok());
            }
            // A Unix socket next to the TCP address does not have this form.
            if address.is_some() {
                break;
            }
        }
        let Some(address) = address else {
            let status = child.wait().unwrap();
            let log = log.lock().unwrap().clone();
            return Err(format!("{log}{status}"));
        };
        let shared = Arc::clone(&log);
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                shared.lock().unwrap().push_str(&format!("{line}\n"));
            }
        });
        Ok(Self { child, address, log })
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        ask(self.address, &format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n"))
    }

    pub(crate) fn post(&self, path: &str) -> Answer {
        ask(self.address, &format!("POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n"))
    }

    pub(crate) fn scrape(&self) -> Samples {
        let answer = self.get("/metrics");
        assert_eq!(answer.status, 200);
        Samples::parse(&answer.text())
    }

    /// Waits until every existing source has a start position.
    pub(crate) fn wait_ready(&self) {
        self.wait("the daemon is ready", |daemon| daemon.get("/-/ready").status == 200);
    }

    pub(crate) fn wait_for(&self, series: &str, value: f64) {
        self.wait(&format!("{series} = {value}"), |daemon| daemon.scrape().get(series) == Some(&value));
    }

    pub(crate) fn wait(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !condition(self) {
            if Instant::now() > deadline {
                panic!("timed out waiting for: {what}\n{}\n{}", self.get("/metrics").text(), self.log());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the daemon has read `expected` lines about locks. Each line must be a refused
    /// release of a different lock in `workflow`. The daemon joins lines that it reads twice into
    /// one failure, so this compares the number of lines and the number of failures.
    pub(crate) fn wait_counted(&self, expected: u64) {
        let expected = expected as f64;
        self.wait(&format!("{expected} counted lines"), |daemon| sum(&daemon.scrape(), EVENTS) >= expected);
        let samples = self.scrape();
        let shown = (sum(&samples, EVENTS), samples[&not_owned("workflow", "release")]);
        assert_eq!(shown, (expected, expected), "{}", self.log());
    }

    pub(crate) fn wait_for_log(&self, words: &str) {
        self.wait(&format!("{words} in the log"), |daemon| daemon.log().contains(words));
    }

    /// Sends SIGSTOP and waits until every thread has stopped.
    pub(crate) fn pause(&self) {
        self.signal("STOP");
        let deadline = Instant::now() + DEADLINE;
        while !self.threads().iter().all(|state| state == "T") {
            assert!(Instant::now() < deadline, "the process did not stop after SIGSTOP");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sends SIGCONT.
    pub(crate) fn resume(&self) {
        self.signal("CONT");
    }

    fn threads(&self) -> Vec<String> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        let stats = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("stat")).unwrap());
        // Format: pid (name) state ...
        stats.map(|stat| stat.rsplit_once(") ").unwrap().1[..1].to_owned()).collect()
    }

    /// Returns the targets of the process's file descriptors.
    pub(crate) fn open_files(&self) -> Vec<String> {
        let descriptors = fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap();
        let targets = descriptors.filter_map(|descriptor| fs::read_link(descriptor.unwrap().path()).ok());
        targets.map(|target| target.display().to_string()).collect()
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Sends SIGTERM and returns the exit status.
    pub(crate) fn stop(mut self) -> ExitStatus {
        self.signal("TERM");
        self.child.wait().unwrap()
    }

    /// Waits for the process to exit. Call it after a signal that ends the process.
    pub(crate) fn wait_for_exit(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Returns the standard input of a daemon that was started with a pipe.
    pub(crate) fn take_stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn not_owned(namespace: &str, operation: &str) -> String {
    format!("redis_lock_not_owned_total{{lock_namespace=\"{namespace}\",operation=\"{operation}\"}}")
}

/// Runs a subcommand of the binary until it exits.
pub(crate) fn command(arguments: &[&str]) -> std::process::Output {
    Command::new(BINARY).args(arguments).stdin(Stdio::null()).output().unwrap()
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
