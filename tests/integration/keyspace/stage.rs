//! One server, one exporter that watches it, one program that uses locks, and the counts expected
//! so far.
//!
//! Between two steps, tests wait for the API, because it answers from the ledger at once. They
//! compare `/metrics`.

use std::time::Duration;

use redis_lock_exporter::rehearsal::fleet::{LockToken, Locker};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::daemon::{Daemon, Samples, sum};
use crate::redis::RedisServer;
use crate::site::Site;

/// Long enough that no lock expires during a test.
pub(super) const LONG: Duration = Duration::from_secs(600);

/// Passes follow each other quickly, so that a test notices a wrong count from any pass.
pub(super) const SETTINGS: &str = "
scan: {interval: 1s, watched_interval: 1s, max_redis_share: 0.5}
namespaces:
  - {name: jobs, keys: ['jobs:lock:{id}'], ttl: 10m}
";

/// The counts of a namespace, as the exporter reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) acquisitions: u64,
    pub(super) renewals: u64,
    pub(super) releases: u64,
    pub(super) expirations: u64,
    pub(super) unknown_ends: u64,
    pub(super) changes_after_release: u64,
    pub(super) changes_after_expiry: u64,
    pub(super) changes_after_unknown: u64,
    pub(super) held: u64,
}

impl Counted {
    pub(super) fn of(samples: &Samples) -> Self {
        let get = |metric: &str| sum(samples, metric) as u64;
        let changes = |after: &str| samples.total("redis_lock_owner_changes_total", &[("after", after)]) as u64;
        Self {
            acquisitions: get("redis_lock_acquisitions_total"),
            renewals: get("redis_lock_renewals_total"),
            releases: get("redis_lock_releases_total"),
            expirations: get("redis_lock_expirations_total"),
            unknown_ends: get("redis_lock_unknown_ends_total"),
            changes_after_release: changes("release"),
            changes_after_expiry: changes("expiry"),
            changes_after_unknown: changes("unknown"),
            held: get("redis_lock_held"),
        }
    }
}

/// Returns a metric of the exporter itself.
pub(super) fn own(samples: &Samples, name: &str) -> f64 {
    sum(samples, &format!("redis_lock_exporter_{name}"))
}

/// Returns `None` while the exporter may miss changes.
pub(super) fn observed_since(samples: &Samples) -> Option<f64> {
    let mut series = samples.iter().filter(|(series, _)| series.starts_with("redis_lock_observed_since_"));
    series.next().map(|(_, value)| *value)
}

/// Returns `watch`, `partial`, `scan` or `none`.
pub(super) fn source(samples: &Samples) -> &'static str {
    let is_shown = |source: &&&str| {
        let label = format!("source=\"{source}\"");
        let is_of_source = |series: &str| series.starts_with("redis_lock_operations_source") && series.contains(&label);
        samples.iter().any(|(series, value)| is_of_source(series) && *value == 1.0)
    };
    ["watch", "partial", "scan", "none"].iter().find(is_shown).unwrap()
}

pub(super) fn is_watching(samples: &Samples) -> bool {
    own(samples, "redis_up") == 1.0 && own(samples, "tracking_up") == 1.0 && observed_since(samples).is_some()
}

/// Returns the JSON response of the API.
pub(super) fn json(daemon: &Daemon, path: &str) -> Value {
    let answer = daemon.get(path);
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    serde_json::from_slice(&answer.body).unwrap()
}

/// Returns the problems that `/-/ready` reports.
pub(super) fn complaints(daemon: &Daemon) -> String {
    let answer = daemon.get("/-/ready");
    assert_eq!(answer.status, 200, "the exporter must stay ready when Redis fails");
    answer.text().strip_prefix("ready\n").unwrap().to_owned()
}

/// A program that uses locks, one operation at a time.
pub(super) struct Program {
    runtime: Runtime,
    locker: Locker,
}

impl Program {
    pub(super) fn connect(server: &RedisServer) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let client = redis::Client::open(format!("redis://127.0.0.1:{}/", server.port())).unwrap();
        let locker = runtime.block_on(Locker::connect(&client)).unwrap();
        Self { runtime, locker }
    }

    /// Acquires a lock, which must be free.
    pub(super) fn acquire(&mut self, key: &str, ttl: Duration) -> LockToken {
        self.runtime.block_on(self.locker.acquire(key, ttl)).unwrap().unwrap_or_else(|| panic!("{key} is taken"))
    }

    pub(super) fn renew(&mut self, key: &str, token: &LockToken, ttl: Duration) -> bool {
        self.runtime.block_on(self.locker.renew(key, token, ttl)).unwrap()
    }

    pub(super) fn release(&mut self, key: &str, token: &LockToken) -> bool {
        self.runtime.block_on(self.locker.release(key, token)).unwrap()
    }

    pub(super) fn steal(&mut self, key: &str, ttl: Duration) -> LockToken {
        self.runtime.block_on(self.locker.steal(key, ttl)).unwrap()
    }

    pub(super) fn delete(&mut self, key: &str) -> bool {
        self.runtime.block_on(self.locker.delete(key)).unwrap()
    }
}

pub(super) struct Stage {
    pub(super) server: RedisServer,
    pub(super) site: Site,
    pub(super) daemon: Daemon,
    pub(super) program: Program,
    /// Keys and tokens of the locks that stay held during the whole test.
    pub(super) held: Vec<(String, LockToken)>,
    pub(super) expected: Counted,
    rounds: usize,
}

impl Stage {
    /// Starts an exporter that connects to the server directly. Its timeout is longer than any
    /// reply takes, even on a busy machine.
    pub(super) fn new(server: RedisServer) -> Self {
        let port = server.port();
        Self::through(server, port, "10s")
    }

    /// Starts an exporter that connects to the server through another port.
    pub(super) fn through(server: RedisServer, port: u16, timeout: &str) -> Self {
        let url = format!("redis://127.0.0.1:{port}/0");
        let redis = format!("redis: {{url: '{url}', connect_timeout: {timeout}, response_timeout: {timeout}}}");
        let site = Site::new();
        site.configure(&format!("{redis}{SETTINGS}"));
        let daemon = site.start_configured(&[]);
        let program = Program::connect(&server);
        let stage = Self { server, site, daemon, program, held: Vec::new(), expected: Counted::default(), rounds: 0 };
        stage.wait_watching();
        assert_eq!(complaints(&stage.daemon), "");
        stage
    }

    pub(super) fn wait_watching(&self) {
        self.daemon.wait("the exporter is watching", |daemon| is_watching(&daemon.scrape()));
    }

    /// Waits for a new watch after an interruption that may be too short to appear in `/metrics`.
    pub(super) fn wait_watching_anew(&self, before: &Samples) {
        let since = observed_since(before);
        self.daemon.wait("the exporter is watching again", |daemon| {
            let samples = daemon.scrape();
            is_watching(&samples) && observed_since(&samples) > since
        });
    }

    /// Waits until the exporter reports that it is disconnected and observes nothing.
    pub(super) fn wait_down(&self) {
        self.daemon.wait("the exporter reports that Redis is down", |daemon| {
            let samples = daemon.scrape();
            own(&samples, "redis_up") == 0.0 && own(&samples, "tracking_up") == 0.0 && source(&samples) == "none"
        });
        assert_eq!(observed_since(&self.daemon.scrape()), None);
        let complaints = complaints(&self.daemon);
        assert!(complaints.starts_with("degraded: ") && complaints.contains("127.0.0.1"), "{complaints:?}");
    }

    /// Acquires locks that stay held.
    pub(super) fn hold(&mut self, n_locks: usize) {
        for number in 0..n_locks {
            let key = format!("jobs:lock:held-{number:02}");
            let token = self.program.acquire(&key, LONG);
            self.held.push((key, token));
        }
        self.wait_locks("held-", |locks| locks.len() == n_locks);
        self.expected.acquisitions += n_locks as u64;
        self.expected.held += n_locks as u64;
    }

    /// Acquires, renews and releases a few locks. The exporter must count all operations.
    pub(super) fn work(&mut self) {
        const N_LOCKS: usize = 5;
        self.rounds += 1;
        let name = format!("work-{}-", self.rounds);
        let keys: Vec<String> = (0..N_LOCKS).map(|number| format!("jobs:lock:{name}{number}")).collect();
        let tokens: Vec<LockToken> = keys.iter().map(|key| self.program.acquire(key, LONG)).collect();
        self.wait_locks(&name, |locks| locks.len() == N_LOCKS);
        for (key, token) in keys.iter().zip(&tokens) {
            assert!(self.program.renew(key, token, LONG * 2));
        }
        self.wait_locks(&name, |locks| locks.iter().all(|lock| lock["renewals"] == 1));
        for (key, token) in keys.iter().zip(&tokens) {
            assert!(self.program.release(key, token));
        }
        self.wait_locks(&name, <[Value]>::is_empty);
        self.expected.acquisitions += N_LOCKS as u64;
        self.expected.renewals += N_LOCKS as u64;
        self.expected.releases += N_LOCKS as u64;
    }

    /// Waits until the locks whose keys contain the text meet the condition.
    pub(super) fn wait_locks(&self, search: &str, condition: impl Fn(&[Value]) -> bool) {
        let path = format!("/api/v1/locks?limit=1000&search={search}");
        self.daemon.wait(&format!("the expected locks at {path}"), |daemon| {
            condition(json(daemon, &path)["locks"].as_array().unwrap())
        });
    }

    /// Checks that all counts are as expected, and that two more passes do not change them.
    pub(super) fn check(&self) {
        let expected = self.expected.clone();
        self.daemon.wait(&format!("the counts {expected:?}"), |daemon| {
            let Counted { acquisitions, held, .. } = Counted::of(&daemon.scrape());
            acquisitions >= expected.acquisitions && held == expected.held
        });
        let passes = |daemon: &Daemon| own(&daemon.scrape(), "scan_passes_total");
        let enough = passes(&self.daemon) + 2.0;
        self.daemon.wait("two more passes are complete", |daemon| passes(daemon) >= enough);
        assert_eq!(Counted::of(&self.daemon.scrape()), expected, "{}", self.daemon.log());
    }
}
