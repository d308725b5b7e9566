//! Servers, an exporter and workers, and the faults that happen to them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use super::installation::{ENOUGH_MEMORY, Servers};
use super::plan::{Action, Fault, Installation};
use super::requests::Entrance;
use super::starvation::StarvationWatch;
use super::truth::Truth;
use super::worker::{BURST, CREW, Crew};
use crate::daemon::{self, Daemon, Samples};
use crate::redis::client::{Client, text};
use crate::site::Site;

/// Reads of changed keys in a second. The workers need about a tenth of it.
const READ_BUDGET: usize = 500;
/// Reading the skipped ones takes about three seconds.
const N_BURST: usize = 1_500;
/// In each direction.
const DELAY: Duration = Duration::from_millis(120);
const CLOCK_STEP_SECONDS: i64 = 3600;
pub(super) const MARKER: &str = "marker";

pub(super) struct World {
    servers: Servers,
    site: Site,
    /// In memory, because the exporter publishes nothing while it waits for a busy disk.
    state: TempDir,
    /// `None` while the exporter does not run.
    daemon: Option<Daemon>,
    is_exporter_stopped: bool,
    /// The exporter's clock, and how far it is off, if it can be changed.
    clock: Option<PathBuf>,
    clock_offset: i64,
    entrance: Entrance,
    pub(super) starvation: StarvationWatch,
    pub(super) truth: Arc<Truth>,
    pub(super) crew: Crew,
    bursts: usize,
    migrations: usize,
    /// How many exporter processes were started.
    lives: usize,
}

impl World {
    pub(super) fn start(installation: Installation, seed: u64, with_clock: bool) -> Self {
        let servers = Servers::start(installation);
        let site = Site::new();
        site.configure(&configuration(&servers));
        let clock = with_clock.then(|| site.path("clock"));
        if let Some(path) = &clock {
            fs::write(path, "+0\n").unwrap();
        }
        let starvation = StarvationWatch::start();
        let entrance = Entrance::new(servers.primary().port(), &starvation);
        let truth = Arc::new(Truth::default());
        let crew = Crew::start(&entrance, &truth, seed);
        let mut world = Self {
            servers,
            site,
            state: tempdir_in_memory(),
            daemon: None,
            is_exporter_stopped: false,
            clock,
            clock_offset: 0,
            entrance,
            starvation,
            truth,
            crew,
            bursts: 0,
            migrations: 0,
            lives: 0,
        };
        world.start_exporter();
        world
    }

    pub(super) fn begin(&mut self, fault: Fault) {
        match fault.action {
            Action::Flush => {
                self.truth.removal_begins();
                self.servers.primary().command(&["FLUSHALL"]);
                self.truth.removal_ends();
            }
            Action::FlushOther => self.servers.flush_other(),
            Action::KillConnection => self.servers.kill_exporter_connections(),
            Action::StopRedis => self.servers.single().server.pause(),
            Action::RestartWithData => self.servers.single().server.kill(),
            Action::RestartWithoutData => {
                self.truth.removal_begins();
                self.servers.single().server.kill();
                self.servers.single().forget_data();
            }
            Action::Evict => {
                self.truth.removal_begins();
                self.servers.primary().command(&["CONFIG", "SET", "maxmemory", "1"]);
            }
            Action::Burst => self.take_burst(),
            Action::Failover => self.servers.fail_over(&self.entrance),
            Action::MigrateSlot => self.migrate_slot(),
            Action::Stall => self.servers.single().proxy.block(),
            Action::Delay => self.servers.single().proxy.delay(DELAY),
            Action::Cut => self.servers.single().cut(),
            Action::Reload => self.daemon().signal("HUP"),
            Action::KillExporter => {
                self.daemon.take().unwrap().kill();
                self.start_exporter();
            }
            Action::RestartExporter => {
                assert!(self.daemon.take().unwrap().stop().success());
                self.start_exporter();
            }
            Action::StopExporter => {
                self.daemon().pause();
                self.is_exporter_stopped = true;
            }
            Action::ClockForward => self.step_clock(CLOCK_STEP_SECONDS),
            Action::ClockBackward => self.step_clock(-CLOCK_STEP_SECONDS),
        }
    }

    pub(super) fn end(&mut self, fault: Fault) {
        match fault.action {
            Action::StopRedis => self.servers.single().server.resume(),
            Action::RestartWithData => self.servers.single().server.restart(),
            Action::RestartWithoutData => {
                self.servers.single().server.restart();
                self.truth.removal_ends();
            }
            Action::Evict => {
                self.servers.primary().command(&["CONFIG", "SET", "maxmemory", ENOUGH_MEMORY]);
                self.truth.removal_ends();
            }
            Action::Burst => self.leave_burst(),
            Action::Stall => self.servers.single().proxy.unblock(),
            Action::Delay => self.servers.single().proxy.delay(Duration::ZERO),
            Action::Cut => self.servers.single().reconnect(),
            Action::StopExporter => {
                self.daemon().resume();
                self.is_exporter_stopped = false;
            }
            Action::Flush
            | Action::FlushOther
            | Action::KillConnection
            | Action::Failover
            | Action::MigrateSlot
            | Action::Reload
            | Action::KillExporter
            | Action::RestartExporter
            | Action::ClockForward
            | Action::ClockBackward => {}
        }
    }

    /// Returns `None` while the exporter cannot answer.
    pub(super) fn scrape(&self) -> Option<Samples> {
        (!self.is_exporter_stopped).then(|| self.daemon().scrape())
    }

    /// What the exporter knows about the locks of a namespace, for people who read a failure.
    pub(super) fn histories(&self, namespace: &'static str) -> String {
        let events = self.truth.last_events(namespace);
        let keys: BTreeSet<&str> = events.lines().filter_map(|line| line.split_whitespace().nth(3)).collect();
        let history = |key: &str| {
            let path = key.replace('{', "%7B").replace('}', "%7D");
            format!("{key}: {}\n", self.daemon().get(&format!("/api/v1/locks/{path}")).text())
        };
        keys.into_iter().map(history).collect()
    }

    /// The processes that must run in time for exact counts.
    pub(super) fn processes(&self) -> Vec<u32> {
        let servers = self.servers.primaries().into_iter().map(|server| server.pid());
        servers.chain([self.daemon().pid()]).collect()
    }

    /// How many exporter processes were started.
    pub(super) fn lives(&self) -> usize {
        self.lives
    }

    pub(super) fn log(&self) -> String {
        self.daemon().log()
    }

    /// Acquires a marker lock on each primary, or releases it if it is held. Returns how many are
    /// held. A link reports changes in order: an exporter that has seen this has seen everything
    /// before.
    pub(super) fn toggle_markers(&self) -> usize {
        let mut n_held = 0;
        for (mut client, key) in self.markers() {
            if text(&client.command(&["DEL", &key])) == "0" {
                client.command(&["SET", &key, "x", "NX", "PX", "600000"]);
                n_held += 1;
            }
        }
        n_held
    }

    pub(super) fn held_markers(&self) -> usize {
        let is_held = |(client, key): &mut (Client, String)| text(&client.command(&["EXISTS", key])) == "1";
        self.markers().iter_mut().filter_map(|marker| is_held(marker).then_some(())).count()
    }

    fn markers(&self) -> Vec<(Client, String)> {
        self.servers.with_keys(&format!("{MARKER}:lock:"))
    }

    fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().expect("the exporter runs, except during its restart")
    }

    fn start_exporter(&mut self) {
        let config = self.site.full_path("config.yaml");
        let state = daemon::text(self.state.path());
        let arguments = ["--config.file", &config, "--state.dir", state, "--log.level", "debug"];
        let daemon = Daemon::start_with(&arguments, |command| match &self.clock {
            Some(path) => command
                .env("LD_PRELOAD", faketime().unwrap())
                .env("FAKETIME_TIMESTAMP_FILE", path)
                .env("FAKETIME_CACHE_DURATION", "1")
                // Only the wall clock can step.
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            None => command,
        });
        daemon.wait_ready();
        self.lives += 1;
        self.daemon = Some(daemon);
    }

    fn step_clock(&mut self, seconds: i64) {
        self.clock_offset += seconds;
        let path = self.clock.as_ref().expect("the exporter was started with a clock that can step");
        fs::write(path, format!("{:+}\n", self.clock_offset)).unwrap();
    }

    /// Changes more keys at once than the exporter may read.
    fn take_burst(&mut self) {
        self.bursts += 1;
        let n_locks = N_BURST as i64;
        self.truth.may(BURST, |counts| {
            counts.acquisitions += n_locks;
            counts.ends += n_locks;
        });
        let keys = self.burst_keys();
        let commands: Vec<[&str; 6]> = keys.iter().map(|key| ["SET", key, "x", "NX", "PX", "600000"]).collect();
        self.pipeline(&commands);
        self.truth.surely(BURST, |counts| counts.acquisitions += n_locks);
    }

    fn leave_burst(&mut self) {
        let n_locks = N_BURST as i64;
        self.truth.may(BURST, |counts| counts.releases += n_locks);
        let keys = self.burst_keys();
        let commands: Vec<[&str; 2]> = keys.iter().map(|key| ["DEL", key]).collect();
        self.pipeline(&commands);
        self.truth.surely(BURST, |counts| {
            counts.releases += n_locks;
            counts.ends += n_locks;
        });
    }

    fn pipeline<const N: usize>(&self, commands: &[[&str; N]]) {
        let commands: Vec<&[&str]> = commands.iter().map(<[&str; N]>::as_slice).collect();
        self.servers.primary().client().pipeline(&commands);
    }

    fn burst_keys(&self) -> Vec<String> {
        (0..N_BURST).map(|number| format!("{BURST}:lock:{}-{number}", self.bursts)).collect()
    }

    /// Moves the locks of one worker after the other.
    fn migrate_slot(&mut self) {
        let (namespace, _, n_workers) = CREW[self.migrations % CREW.len()];
        let worker = self.migrations / CREW.len() % n_workers;
        self.migrations += 1;
        self.servers.migrate_slot_of(&format!("{{{namespace}{worker}}}"));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.starvation.end();
    }
}

fn configuration(servers: &Servers) -> String {
    let namespaces = CREW.iter().map(|(namespace, ..)| *namespace).chain([BURST, MARKER]);
    let namespaces: Vec<String> =
        namespaces.map(|name| format!("  - {{name: {name}, keys: ['{name}:lock:{{id}}']}}\n")).collect();
    format!(
        "redis: {}\nscan: {{max_redis_share: 0.5}}\nwatch: {{mode: auto, max_reads_per_second: {READ_BUDGET}}}\n\
         namespaces:\n{}",
        servers.configuration(),
        namespaces.concat()
    )
}

fn tempdir_in_memory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// The library that makes the clock of a process step. Debian: libfaketime.
pub(super) fn faketime() -> Option<PathBuf> {
    let directories = fs::read_dir("/usr/lib").ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let libraries = directories.map(|directory| directory.join("faketime/libfaketimeMT.so.1"));
    libraries.into_iter().find(|path| Path::exists(path))
}
