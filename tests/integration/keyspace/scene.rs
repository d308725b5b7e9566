//! A daemon that observes a Redis server, and its counts for one namespace.
//!
//! Compare counts only after [`Scene::sync`]. It acquires a lock of the namespace `marker` after
//! all other operations and waits until the exporter sees it. A link reports changes in order, so
//! all earlier changes are then counted too.

use std::time::Duration;

use crate::daemon::{Daemon, Samples, sum};
use crate::redis::client::{Client, text};
use crate::redis::{RedisServer, eventually};
use crate::site::Site;

const MARKER: &str = "\n  - {name: marker, keys: ['marker:{id}']}\n";

/// The exporter's counts for one namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) held: u64,
    pub(super) acquisitions: u64,
    pub(super) renewals: u64,
    pub(super) releases: u64,
    pub(super) expirations: u64,
    pub(super) unknown_ends: u64,
    pub(super) after_release: u64,
    pub(super) after_expiry: u64,
    pub(super) after_unknown: u64,
}

pub(super) struct Scene {
    pub(super) server: RedisServer,
    pub(super) site: Site,
    pub(super) daemon: Daemon,
    markers: std::cell::Cell<u64>,
}

impl Scene {
    /// `namespaces` holds the items of that list; `more` holds other sections.
    pub(super) fn watching(namespaces: &str, more: &str) -> Self {
        let scene = Self::start(RedisServer::start(&[]), namespaces, more);
        wait_watching(&scene.daemon);
        scene
    }

    pub(super) fn scanning(namespaces: &str) -> Self {
        Self::start(RedisServer::start(&[]), namespaces, "scan: {interval: 1s, max_redis_share: 0.5}\nwatch: off\n")
    }

    /// Starts the daemon and waits until the first pass is complete.
    pub(super) fn start(server: RedisServer, namespaces: &str, more: &str) -> Self {
        let site = Site::new();
        site.configure(&configuration(&format!("{{url: '{}/0'}}", server.url()), namespaces, more));
        let daemon = site.start_configured(&[]);
        wait_passes(&daemon, 1.0);
        Self { server, site, daemon, markers: std::cell::Cell::new(0) }
    }

    pub(super) fn client(&self) -> Client {
        self.server.client()
    }

    /// Runs a command and waits until the exporter has read its effect. This way, the exporter does
    /// not combine it with the next command.
    pub(super) fn step(&self, command: &[&str]) {
        self.client().command(command);
        self.wait_read();
    }

    /// Runs a script. Redis applies a script as one change.
    pub(super) fn script(&self, text: &str) {
        self.step(&["EVAL", text, "0"]);
    }

    /// Waits until a lock has expired and the exporter has read that.
    pub(super) fn wait_expired(&self, key: &str) {
        let mut client = self.client();
        eventually("the lock to expire", || (text(&client.command(&["EXISTS", key])) == "0").then_some(()));
        self.wait_read();
    }

    /// Waits until the watcher has read all changes so far. Asks the ledger, which answers at once.
    /// It takes two markers, because the first read of a key that is not a string takes two round
    /// trips.
    fn wait_read(&self) {
        for _ in 0..2 {
            let path = format!("/api/v1/locks/{}", self.mark());
            self.daemon.wait("the exporter reads the marker", |daemon| daemon.get(&path).status == 200);
        }
    }

    /// Creates a new marker lock and returns its key.
    fn mark(&self) -> String {
        self.markers.set(self.markers.get() + 1);
        let key = format!("marker:{}", self.markers.get());
        self.client().command(&["SET", &key, "x"]);
        key
    }

    /// Waits until all changes so far are counted.
    pub(super) fn sync(&self) {
        // Without a watcher this takes two passes that start after the change. The second pass
        // shows what the first one missed.
        let passes = sum(&self.daemon.scrape(), "redis_lock_exporter_scan_passes_total");
        self.mark();
        self.daemon.wait("the exporter counts the marker", |daemon| {
            Counts::of(&daemon.scrape(), "marker").held == self.markers.get()
        });
        if sum(&self.daemon.scrape(), "redis_lock_exporter_tracking_up") == 0.0 {
            wait_passes(&self.daemon, passes + 3.0);
        }
    }

    /// Returns the counts of a namespace after all changes so far are counted.
    pub(super) fn counts(&self, namespace: &str) -> Counts {
        self.sync();
        Counts::of(&self.daemon.scrape(), namespace)
    }

    pub(super) fn expect(&self, namespace: &str, expected: Counts) {
        self.sync();
        self.shows(namespace, expected);
    }

    /// Compares counts. Call [`Scene::sync`] first.
    pub(super) fn shows(&self, namespace: &str, expected: Counts) {
        let counts = Counts::of(&self.daemon.scrape(), namespace);
        assert_eq!(counts, expected, "{namespace}\n{}\n{}", self.keyspace_metrics(), self.daemon.log());
    }

    /// Sums a metric of one namespace over all other labels.
    pub(super) fn number(&self, metric: &str, namespace: &str) -> f64 {
        number(&self.daemon.scrape(), metric, &[("lock_namespace", namespace)])
    }

    pub(super) fn keyspace_metrics(&self) -> String {
        let text = self.daemon.get("/metrics").text();
        let lines = text.lines().filter(|line| line.contains("{redis=") && !line.contains("_bucket"));
        lines.collect::<Vec<_>>().join("\n")
    }
}

impl Counts {
    pub(super) fn of(samples: &Samples, namespace: &str) -> Self {
        let get = |metric: &str| number(samples, metric, &[("lock_namespace", namespace)]) as u64;
        let changes = |after: &str| {
            number(samples, "redis_lock_owner_changes_total", &[("lock_namespace", namespace), ("after", after)]) as u64
        };
        Self {
            held: get("redis_lock_held"),
            acquisitions: get("redis_lock_acquisitions_total"),
            renewals: get("redis_lock_renewals_total"),
            releases: get("redis_lock_releases_total"),
            expirations: get("redis_lock_expirations_total"),
            unknown_ends: get("redis_lock_unknown_ends_total"),
            after_release: changes("release"),
            after_expiry: changes("expiry"),
            after_unknown: changes("unknown"),
        }
    }
}

/// Sums all series with these labels.
pub(super) fn number(samples: &Samples, metric: &str, labels: &[(&str, &str)]) -> f64 {
    samples.total(metric, labels)
}

pub(super) fn configuration(redis: &str, namespaces: &str, more: &str) -> String {
    format!("redis: {redis}\n{more}\nnamespaces:\n{namespaces}{MARKER}")
}

/// Waits for the expected counts, and checks that they do not change later.
pub(super) fn expect(daemon: &Daemon, namespace: &str, what: &str, expected: Counts) {
    let counts = || Counts::of(&daemon.scrape(), namespace);
    daemon.wait(&format!("{what}: {expected:?}"), |_| counts() == expected);
    sleep_ms(300);
    assert_eq!(counts(), expected, "{what}\n{}", daemon.log());
}

pub(super) fn wait_watching(daemon: &Daemon) {
    daemon.wait("the exporter is watching", |daemon| sum(&daemon.scrape(), "redis_lock_exporter_tracking_up") == 1.0);
}

pub(super) fn wait_passes(daemon: &Daemon, passes: f64) {
    let metric = "redis_lock_exporter_scan_passes_total";
    daemon.wait("a pass is complete", |daemon| sum(&daemon.scrape(), metric) >= passes);
}

pub(super) fn sleep_ms(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}
