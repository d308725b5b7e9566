//! Tests a journal as a log source with real journal files. systemd-journal-remote writes them and
//! the real journalctl reads them.

use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::daemon::{Daemon, not_owned};
use crate::redis::eventually;
use crate::site::{Site, lost_line};

const WRITER: &str = "/lib/systemd/systemd-journal-remote";
const CONFIG: &str = "presets: [cordum]\nlogs: [{journal: {directory: SITE/journal, units: [engine]}}]\n";
const EVENTS: &str = "redis_lock_exporter_log_events_total{source=\"journal\"}";
const LINES: &str = "redis_lock_exporter_log_lines_total{source=\"journal\"}";
const READ_ERRORS: &str = "redis_lock_exporter_log_read_errors_total{source=\"journal\"}";
const OPEN: &str = "redis_lock_exporter_log_open_files{source=\"journal\"}";

/// One journal file that grows.
pub(crate) struct Journal {
    writer: Child,
    boots: u64,
}

impl Journal {
    /// Creates a file of this name in the directory `journal` of the site.
    pub(crate) fn new(site: &Site, name: &str) -> Self {
        fs::create_dir_all(site.path("journal")).unwrap();
        let output = format!("--output={}", site.full_path(&format!("journal/{name}.journal")));
        let mut command = Command::new(WRITER);
        command.args([&output, "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let writer = command.spawn().unwrap_or_else(|error| panic!("{WRITER}: {error}: see scripts/install.sh"));
        Self { writer, boots: 1 }
    }

    /// Writes one entry with a later time than all entries before it.
    fn write(&mut self, fields: &[(&str, &[u8])]) {
        static LATER: AtomicU64 = AtomicU64::new(0);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64;
        let time = LATER.fetch_max(now, Ordering::Relaxed).max(now) + 1;
        LATER.store(time, Ordering::Relaxed);
        let mut entry = format!(
            "__REALTIME_TIMESTAMP={time}\n__MONOTONIC_TIMESTAMP={}\n_BOOT_ID={:032x}\n",
            time - 1_700_000_000_000_000,
            self.boots
        )
        .into_bytes();
        for (name, value) in fields {
            // The export format for binary data.
            entry.extend_from_slice(format!("{name}\n").as_bytes());
            entry.extend_from_slice(&(value.len() as u64).to_le_bytes());
            entry.extend_from_slice(value);
            entry.push(b'\n');
        }
        entry.push(b'\n');
        self.writer.stdin.as_mut().unwrap().write_all(&entry).unwrap();
    }

    /// Makes later entries belong to another boot of the machine.
    fn reboot(&mut self) {
        self.boots += 1;
    }

    pub(crate) fn say(&mut self, unit: &str, message: impl AsRef<[u8]>) {
        self.write(&[("_SYSTEMD_UNIT", unit.as_bytes()), ("_PID", b"42"), ("MESSAGE", message.as_ref())]);
    }

    fn lose(&mut self, locks: usize) {
        for _ in 0..locks {
            self.say("engine.service", lost_line());
        }
    }

    /// Waits until all entries are in the file.
    fn close(mut self) {
        drop(self.writer.stdin.take());
        assert!(self.writer.wait().unwrap().success());
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        let _ = self.writer.kill();
        let _ = self.writer.wait();
    }
}

/// Returns every journalctl process that reads the journal of the site.
fn readers(site: &Site) -> Vec<String> {
    let directory = format!("--directory={}", site.full_path("journal"));
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let reads = |pid: &String| {
        let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.starts_with("journalctl\0") && command.split('\0').any(|argument| argument == directory)
    };
    processes.filter(reads).collect()
}

fn wait_without_readers(site: &Site) {
    eventually("all journalctl processes to exit", || readers(site).is_empty().then_some(()));
}

fn check_counted(daemon: &Daemon, losses: f64) {
    daemon.wait_for(EVENTS, losses);
    daemon.wait_for(&not_owned("workflow", "release"), losses);
}

#[test]
fn new_entries_that_match_the_filter_are_counted() {
    let site = Site::new();
    let mut journal = Journal::new(&site, "a");
    journal.lose(3);
    journal.say("other.service", lost_line());
    site.configure(CONFIG);
    let directory = format!("--directory={}", site.full_path("journal"));
    eventually("four entries in the journal", || {
        let shown = Command::new("journalctl").args([&directory, "--quiet", "--output=cat"]).output().unwrap();
        (shown.stdout.split(|byte| *byte == b'\n').count() == 4 + 1).then_some(())
    });
    let daemon = site.start_configured(&[]);
    assert_eq!(daemon.scrape()[EVENTS], 0.0, "entries from before the first start must not count");
    daemon.wait_for(OPEN, 1.0);
    let environment = eventually("journalctl's environment", || {
        let environment = fs::read_to_string(format!("/proc/{}/environ", readers(&site).first()?)).ok()?;
        Some(environment).filter(|environment| !environment.is_empty())
    });
    let mut names: Vec<&str> = environment.split_terminator('\0').map(|pair| pair.split('=').next().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["LC_ALL", "PATH"],
        "journalctl must not inherit our environment, which may hold the Redis password"
    );
    journal.lose(2);
    journal.say("other.service", lost_line());
    check_counted(&daemon, 2.0);

    // Entries with binary data, with several lines, without a message, and with a time before the
    // text.
    journal.say("engine.service", [b"\xff\xfe ".as_slice(), lost_line().as_bytes()].concat());
    journal.say("engine.service", format!("before\n{}\n{}\nafter", lost_line(), lost_line()));
    journal.write(&[("_SYSTEMD_UNIT", b"engine.service"), ("PRIORITY", b"3")]);
    journal.lose(1);
    check_counted(&daemon, 6.0);
    assert_eq!(daemon.scrape()[LINES], 8.0);
    assert!(daemon.get("/-/ready").text() == "ready\n", "{}", daemon.get("/-/ready").text());
    assert!(daemon.stop().success());
    wait_without_readers(&site);
}

#[test]
fn rules_can_match_fields_of_a_journal_entry() {
    let site = Site::new();
    let mut journal = Journal::new(&site, "a");
    journal.say("engine.service", "hello");
    site.configure(
        "state_dir: SITE/state\nnamespaces: [{name: jobs, keys: ['job:{id}']}, {name: runs, keys: ['run:{id}']}]\n\
         rules:\n\
         - {message: guard was lost, event: not_owned, namespace: jobs, id: id, where: {_SYSTEMD_UNIT: jobs.service}}\n\
         - {message: guard was lost, event: not_owned, namespace: runs, id: id, where: {CONTAINER_NAME: runs}}\n\
         logs: [{journal: {directory: SITE/journal}, name: host, start_at: beginning}]\n",
    );
    let daemon = site.start_configured(&[]);
    for (id, fields) in [("1", ("_SYSTEMD_UNIT", "jobs.service")), ("2", ("CONTAINER_NAME", "runs")), ("3", ("X", "y"))]
    {
        let message = format!(r#"{{"msg":"guard was lost","id":"{id}"}}"#);
        journal.write(&[(fields.0, fields.1.as_bytes()), ("MESSAGE", message.as_bytes())]);
    }
    daemon.wait_for("redis_lock_exporter_log_lines_total{source=\"host\"}", 4.0);
    daemon.wait_for(&not_owned("jobs", "unknown"), 1.0);
    daemon.wait_for(&not_owned("runs", "unknown"), 1.0);
    daemon.wait_for("redis_lock_exporter_log_events_total{source=\"host\"}", 2.0);
}

#[test]
fn split_lines_of_interleaved_streams_are_joined_per_stream() {
    let site = Site::new();
    let mut journal = Journal::new(&site, "a");
    site.configure("presets: [cordum]\nlogs: [{journal: {directory: SITE/journal}, start_at: beginning}]\n");
    let daemon = site.start_configured(&[]);
    let lines = [lost_line(), lost_line()];
    let mut piece = |container: &str, text: &str, goes_on: bool| {
        let mut fields = vec![
            ("CONTAINER_ID", container.as_bytes()),
            ("CONTAINER_PARTIAL_ID", b"7".as_slice()),
            ("MESSAGE", text.as_bytes()),
        ];
        if goes_on {
            fields.push(("CONTAINER_PARTIAL_MESSAGE", b"true"));
        }
        journal.write(&fields);
    };
    piece("one", &lines[0][..90], true);
    piece("two", &lines[1][..90], true);
    piece("one", &lines[0][90..], false);
    piece("two", &lines[1][90..], false);
    check_counted(&daemon, 2.0);
}

#[test]
fn kills_and_restarts_neither_lose_nor_repeat_journal_entries() {
    let site = Site::new();
    let mut journal = Journal::new(&site, "a");
    site.configure(CONFIG);
    // The daemon is killed before it reads any entry, and its position is still known.
    let mut daemon = site.start_configured(&[]);
    let mut losses = 0;
    for round in 0..6 {
        journal.lose(50);
        losses += 50;
        if round % 2 == 0 {
            daemon.wait("some entries are counted", |daemon| daemon.scrape()[EVENTS] > losses as f64 - 50.0);
        }
        match round {
            3 => assert!(daemon.stop().success()),
            _ => daemon.kill(),
        }
        wait_without_readers(&site);
        journal.reboot();
        journal.lose(7);
        journal.reboot();
        losses += 7;
        daemon = site.start_configured(&[]);
    }
    check_counted(&daemon, losses as f64);
    // A reload also continues from the saved position.
    journal.lose(5);
    daemon.signal("HUP");
    daemon.wait_for_log("configuration loaded");
    journal.lose(5);
    check_counted(&daemon, losses as f64 + 10.0);
    assert_eq!(daemon.scrape()[READ_ERRORS], 0.0, "{}", daemon.log());
}

#[test]
fn a_vacuumed_journal_position_is_reported_and_remaining_entries_count_once() {
    let site = Site::new();
    let mut journal = Journal::new(&site, "old");
    site.configure(CONFIG);
    let daemon = site.start_configured(&[]);
    journal.lose(4);
    check_counted(&daemon, 4.0);
    daemon.kill();
    journal.lose(3);
    journal.close();
    fs::remove_file(site.path("journal/old.journal")).unwrap();
    let mut journal = Journal::new(&site, "new");
    journal.lose(2);
    let daemon = site.start_configured(&[]);
    daemon.wait_for_log("is gone (vacuumed or rotated away)");
    check_counted(&daemon, 6.0);
    assert_eq!(daemon.scrape()[READ_ERRORS], 1.0);
    daemon.kill();
    // The daemon reports this once. From then on it has a position again.
    let daemon = site.start_configured(&[]);
    journal.lose(1);
    check_counted(&daemon, 7.0);
    assert_eq!(daemon.scrape()[READ_ERRORS], 1.0);
}

#[test]
fn a_journalctl_that_exits_is_restarted() {
    let site = Site::new();
    let mut journal = Journal::new(&site, "a");
    site.configure(CONFIG);
    let daemon = site.start_configured(&[]);
    journal.lose(2);
    check_counted(&daemon, 2.0);
    let child = eventually("one journalctl process", || readers(&site).pop());
    assert!(Command::new("kill").args(["-KILL", &child]).status().unwrap().success());
    journal.lose(3);
    check_counted(&daemon, 5.0);
    daemon.wait_for(READ_ERRORS, 1.0);
    daemon.wait_for_log("journalctl ended with signal: 9");
    assert_ne!(readers(&site), [child]);
}

#[test]
fn a_missing_journalctl_is_reported_and_other_sources_continue() {
    let site = Site::new();
    site.configure("presets: [cordum]\nlogs:\n- path: SITE/logs/*.log\n- journal: {directory: SITE/journal}\n");
    let (config, state) = (site.full_path("config.yaml"), site.full_path("state"));
    let daemon = Daemon::start_with(&["--config.file", &config, "--state.dir", &state], |command| {
        command.env("PATH", site.path("no-programs"))
    });
    daemon.wait_ready();
    site.append("logs/a.log", lost_line() + "\n");
    daemon.wait_counted(1);
    daemon.wait("the missing journalctl is reported", |daemon| {
        daemon.get("/-/ready").text().contains("degraded: log source journal: journalctl is not installed")
    });
    assert_eq!(daemon.scrape()[OPEN], 0.0);
    let overview = daemon.get("/api/v1/overview").text();
    assert!(overview.contains("journalctl is not installed"), "{overview}");
    daemon.wait("two read errors are counted", |daemon| daemon.scrape()[READ_ERRORS] >= 2.0);
}

#[test]
fn a_missing_journal_directory_is_reported_and_read_once_it_exists() {
    let site = Site::new();
    site.configure(CONFIG);
    let daemon = site.start_configured(&[]);
    daemon.wait("the missing directory is reported", |daemon| {
        daemon.get("/-/ready").text().contains("No such file or directory")
    });
    let mut journal = Journal::new(&site, "a");
    daemon.wait_for(OPEN, 1.0);
    journal.lose(2);
    check_counted(&daemon, 2.0);
    assert_eq!(daemon.get("/-/ready").text(), "ready\n");
}

/// Returns the number of bytes that a process has written so far.
fn written(pid: &str) -> u64 {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    io.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap().parse().unwrap()
}

/// Blocks only the pipeline, in the middle of a save: its temporary file is a pipe that no process
/// reads. Everything else continues. A reader without a limit would read all output of journalctl.
#[test]
fn a_blocked_pipeline_stops_journal_reading() {
    const FILLING: usize = 60_000;
    const ENTRIES: usize = 1_000;
    /// The queue of 64 batches of 256 KiB, one batch in progress, and a pipe.
    const AT_MOST: u64 = 70 * (256 * 1024 + 2 * FILLING as u64);
    let site = Site::new();
    let mut journal = Journal::new(&site, "a");
    site.configure(CONFIG);
    let daemon = site.start_configured(&[]);
    daemon.wait_for(OPEN, 1.0);
    let temporary = site.path("state/state.json.tmp");
    assert!(Command::new("mkfifo").arg(&temporary).status().unwrap().success());
    journal.lose(1);
    eventually("the pipeline to be blocked", || (daemon.get("/api/v1/incidents").status == 503).then_some(()));
    let filling = "x".repeat(FILLING);
    for _ in 0..ENTRIES {
        journal.say("engine.service", &filling);
    }
    journal.lose(1);
    let child = eventually("one journalctl process", || readers(&site).pop());
    let total = (FILLING * ENTRIES) as u64;
    assert!(total > 2 * AT_MOST);
    // Waits until no bytes arrive for two seconds.
    let mut last = (0, Instant::now());
    eventually("journalctl to stop writing", || {
        let now = written(&child);
        if now != last.0 {
            last = (now, Instant::now());
        }
        (now > 0 && last.1.elapsed() > Duration::from_secs(2)).then_some(())
    });
    assert!(last.0 < AT_MOST, "{} bytes of {total} were read", last.0);
    assert_eq!(daemon.get("/-/healthy").status, 200, "other parts of the daemon must keep working");
    assert_eq!(daemon.scrape()[EVENTS], 0.0);

    // The save continues and fails. The next save finds a regular file at that path.
    let mut reader = fs::File::open(&temporary).unwrap();
    fs::remove_file(&temporary).unwrap();
    std::io::copy(&mut reader, &mut std::io::sink()).unwrap();
    check_counted(&daemon, 2.0);
    assert_eq!(daemon.scrape()[LINES], ENTRIES as f64 + 2.0);
    assert!(written(&child) > total);
    assert_eq!(readers(&site), [child], "the same journalctl must still be running");
}
