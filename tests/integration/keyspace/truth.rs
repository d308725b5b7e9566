//! Compares the exporter's counts with the records of workers that use locks on a real Redis.

use std::sync::Arc;
use std::time::Duration;

use redis::Client;
use redis_lock_exporter::rehearsal::fleet::{self, Behavior, OperationLog, Truth};
use tokio::time::Instant;

use crate::daemon::{Daemon, Samples, sum};
use crate::redis::RedisServer;
use crate::site::Site;
use crate::undisturbed::{staged, undisturbed};

const NAMESPACE: &str = "
namespaces:
  - name: jobs
    keys: ['jobs:lock:{id}']
    ttl: 1500ms
    renew_every: 100ms
    takeover_slo: 3s
";

/// 20 workers with 10 locks each: about 70 acquisitions and 220 changes a second. Changes of one
/// lock are at least 20 ms apart.
fn behavior(seed: u64) -> Behavior {
    Behavior {
        prefix: "jobs:lock:".to_owned(),
        workers: 20,
        locks_per_worker: 10,
        ttl: Duration::from_millis(1500),
        renew_every: Duration::from_millis(100),
        shortest_work: Duration::from_millis(20),
        longest_work: Duration::from_millis(320),
        pause: Duration::from_millis(40),
        crashes: 3,
        stalls: 2,
        steals: 3,
        deletes: 3,
        seed,
    }
}

fn start(server: &RedisServer, site: &Site, more: &str) -> Daemon {
    let url = format!("redis:\n  url: redis://127.0.0.1:{}/0\n", server.port());
    site.configure(&format!("{url}{NAMESPACE}{more}"));
    let daemon = site.start_configured(&[]);
    daemon.wait("the first pass is complete", |daemon| {
        sum(&daemon.scrape(), "redis_lock_exporter_scan_passes_total") >= 1.0
    });
    daemon
}

fn work(server: &RedisServer, behavior: &Behavior, time: Duration) -> Truth {
    let client = Client::open(format!("redis://127.0.0.1:{}/", server.port())).unwrap();
    let record = Arc::new(OperationLog::default());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(fleet::run(&client, behavior, &record, Instant::now() + time)).unwrap();
    record.truth()
}

/// Converts the exporter's counters to the workers' record type.
fn counted(samples: &Samples) -> Truth {
    let get = |metric: &str| sum(samples, metric) as u64;
    let changes = |after: &str| {
        let series = samples.iter().filter(|(series, _)| {
            series.starts_with("redis_lock_owner_changes_total") && series.contains(&format!("after=\"{after}\""))
        });
        series.map(|(_, value)| *value as u64).sum()
    };
    Truth {
        acquisitions: get("redis_lock_acquisitions_total"),
        renewals: get("redis_lock_renewals_total"),
        releases: get("redis_lock_releases_total"),
        expirations: get("redis_lock_expirations_total"),
        // Holds that were neither released nor expired.
        stolen: get("redis_lock_unknown_ends_total"),
        held: get("redis_lock_held"),
        refused: 0,
        changes_after_release: changes("release"),
        changes_after_expiry: changes("expiry"),
        changes_after_unknown: changes("unknown"),
        hold_seconds: sum(samples, "redis_lock_hold_seconds_sum"),
    }
}

#[test]
fn watching_counts_exactly_what_the_workers_recorded() {
    undisturbed(check_the_truth);
}

fn check_the_truth() {
    let (_server, _site, daemon, truth) = staged("enough work", || {
        let (server, site) = (RedisServer::start(&[]), Site::new());
        let daemon = start(&server, &site, "");
        daemon
            .wait("the exporter is watching", |daemon| sum(&daemon.scrape(), "redis_lock_exporter_tracking_up") == 1.0);
        let truth = work(&server, &behavior(1), Duration::from_secs(10));
        let is_enough = truth.acquisitions > 500 && truth.expirations > 10 && truth.stolen > 5;
        is_enough.then_some((server, site, daemon, truth))
    });
    daemon.wait("all ends are counted", |daemon| sum(&daemon.scrape(), "redis_lock_held") == truth.held as f64);
    let ended = Instant::now();
    daemon.wait("all counts are correct", |daemon| {
        let is_all = counted(&daemon.scrape()).acquisitions >= truth.acquisitions;
        is_all || ended.elapsed() > Duration::from_secs(20)
    });
    let samples = daemon.scrape();
    let shown = counted(&samples);
    let expected = Truth { refused: 0, hold_seconds: shown.hold_seconds, ..truth.clone() };
    assert_eq!(shown, expected, "\n{}", daemon.get("/metrics").text());
    // On a busy machine, each of the two clocks of a hold is read some milliseconds late.
    let n_holds = sum(&samples, "redis_lock_hold_seconds_count");
    let difference = (truth.hold_seconds - shown.hold_seconds).abs();
    assert!(difference < n_holds * 0.02, "{} instead of {} seconds", shown.hold_seconds, truth.hold_seconds);
    // Takeovers happen after an expiration. Each one has a duration.
    assert_eq!(sum(&samples, "redis_lock_takeovers_total"), truth.changes_after_expiry as f64);
}

/// Without a watcher, the exporter misses short holds. Every counted event must have happened.
#[test]
fn scanning_counts_at_most_what_the_workers_recorded() {
    undisturbed(check_no_more_than_the_truth);
}

fn check_no_more_than_the_truth() {
    let (_server, _site, daemon, truth) = staged("a pass in each second", || {
        let (server, site) = (RedisServer::start(&[]), Site::new());
        let daemon = start(&server, &site, "scan: {interval: 1s, max_redis_share: 0.5}\nwatch: off\n");
        let passes = || sum(&daemon.scrape(), "redis_lock_exporter_scan_passes_total");
        let before = passes();
        let behavior = Behavior { longest_work: Duration::from_millis(4000), ..behavior(2) };
        let truth = work(&server, &behavior, Duration::from_secs(12));
        (passes() - before >= 9.0).then_some((server, site, daemon, truth))
    });
    daemon.wait("all ends are counted", |daemon| sum(&daemon.scrape(), "redis_lock_held") == truth.held as f64);
    let shown = counted(&daemon.scrape());
    let at_most = |name: &str, shown: u64, truth: u64| assert!(shown <= truth, "{name}: {shown} of {truth}");
    at_most("acquisitions", shown.acquisitions, truth.acquisitions);
    at_most("renewals", shown.renewals, truth.renewals);
    at_most("releases", shown.releases, truth.releases + truth.stolen);
    at_most("expirations", shown.expirations, truth.expirations);
    // Most holds last longer than the time between two passes.
    assert!(shown.acquisitions * 2 > truth.acquisitions, "{shown:?} of {truth:?}");
    // The exporter reads a lock when it should expire, so it distinguishes an expiration from a
    // release.
    assert!(shown.expirations * 10 >= truth.expirations * 5, "{shown:?} of {truth:?}");
}
