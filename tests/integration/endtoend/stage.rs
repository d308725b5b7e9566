//! Everything between a lock and a pager, each part the real one: Redis, programs that lock and log, the exporter, Prometheus,
//! Alertmanager, and where its messages go.

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::compression::Compression;
use super::prometheus::Prometheus;
use super::receiver::Receiver;
use super::workload::{Place, Workload};
use crate::alertmanager::{Alertmanager, CONFIG};
use crate::daemon::{Daemon, sum};
use crate::site::Site;

const PRESET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/presets/cordum.yaml");
/// All slices of the kinds that pages count. Functions over time drop the name, so it is kept as a label.
const SLICES: &str =
    "label_replace({__name__=~'lock_namespace:.+:slice_(bad|any|mass)'}, 'slice', '$1', '__name__', '(.+)')";
/// For a machine that has other things to do.
const SPARE: Duration = Duration::from_secs(60);

pub(super) struct Stage {
    pub(super) compression: Compression,
    pub(super) workload: Workload,
    pub(super) daemon: Daemon,
    pub(super) receiver: Receiver,
    prometheus: Prometheus,
    _alertmanager: Alertmanager,
    _site: Site,
}

impl Stage {
    /// `redis` is the exporter's section about it. Ends when all has been well for two minutes.
    pub(super) fn start(compression: Compression, place: Place, redis: &str) -> Self {
        let site = Site::new();
        let preset = compression.apply(&fs::read_to_string(PRESET).unwrap());
        let logs = "logs: [{path: 'SITE/logs/*.log', start_at: beginning}]";
        site.configure(&format!("{logs}\nredis: {redis}\nscan: {{interval: 1s, watched_interval: 15s}}\n{preset}"));
        let workload = Workload::start(place, compression, &site.path("logs/cordum.log"));
        let daemon = site.start_configured(&[]);
        let receiver = Receiver::start();
        let example = compression.apply(&fs::read_to_string(CONFIG).unwrap());
        let alertmanager = Alertmanager::start(&example, receiver.address);
        let prometheus = Prometheus::start(compression, daemon.address, alertmanager.address);
        let stage =
            Self { compression, workload, daemon, receiver, prometheus, _alertmanager: alertmanager, _site: site };
        stage.wait(300.0, "two quiet minutes of both kinds of locks", |stage| {
            let ratios = "lock_namespace:redis_lock_not_owned_per_operation:ratio2m";
            let both = format!("count({ratios}{{lock_namespace=~'workflow|admission'}})");
            stage.number("count_over_time(up[3m])") >= Some(8.0) && stage.number(&both) == Some(2.0)
        });
        assert!(stage.pages().is_empty(), "{:#?}", stage.receiver.pages());
        stage
    }

    /// The largest value of a query, if it has any.
    pub(super) fn number(&self, query: &str) -> Option<f64> {
        let values = self.prometheus.query(self.compression, query);
        values.into_iter().map(|(_, value)| value).reduce(f64::max)
    }

    /// Names and namespaces of the pages that Prometheus has seen fire at any time so far.
    pub(super) fn pages(&self) -> Vec<String> {
        let query =
            "max by (alertname, lock_namespace) (max_over_time(ALERTS{severity='critical',alertstate='firing'}[1h]))";
        let pages = self.prometheus.query(self.compression, query);
        pages.into_iter().map(|(labels, _)| labels.to_string()).collect()
    }

    /// Waits for a condition that should hold after so many seconds of the uncompressed world.
    pub(super) fn wait(&self, seconds: f64, what: &str, condition: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + self.compression.seconds(seconds) + SPARE;
        while !condition(self) {
            assert!(Instant::now() < deadline, "waited in vain for {what}\n{}", self.story());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Until trouble with Redis was seen by the rules, has left every slice, and the exporter is back: counts of bad slices can only
    /// fall from now on.
    pub(super) fn wait_trouble_over(&self) {
        self.wait(600.0, "a trace of the trouble", |stage| {
            let failover = "max(max_over_time(ALERTS{alertname='RedisLockFailoverObserved'}[1h]))";
            let bad = format!("max(max_over_time({SLICES}[30m:30s]))");
            stage.number(failover) == Some(1.0) && stage.number(&bad) == Some(1.0)
        });
        self.wait(600.0, "all to be well again", |stage| {
            let is_up = sum(&stage.daemon.scrape(), "redis_lock_exporter_tracking_up") == 1.0;
            let bad = format!("max(max_over_time({SLICES}[90s:30s]))");
            let ratios = "min(count_over_time(lock_namespace:redis_lock_not_owned_per_operation:ratio2m{lock_namespace=~'workflow|admission'}[90s]))";
            is_up && stage.number(&bad) == Some(0.0) && stage.number(ratios) >= Some(2.0)
        });
    }

    /// What to look at when something is wrong.
    pub(super) fn story(&self) -> String {
        let show = |query: &str| {
            let rows = self.prometheus.query(self.compression, query).into_iter();
            rows.map(|(labels, value)| format!("  {value} {labels}\n")).collect::<String>()
        };
        let alerts = show("max_over_time(ALERTS[1h])");
        let slices = show(&format!("sum_over_time({SLICES}[30m:30s]) > 0"));
        let received: Vec<_> = self.receiver.pages().into_iter().chain(self.receiver.tickets()).collect();
        format!(
            "truth: {:?}\nalerts:\n{alerts}bad slices:\n{slices}received: {received:#?}\n{}\n{}",
            self.workload.truth(),
            self.daemon.log(),
            self.prometheus.log()
        )
    }
}

/// The exporter's section about one server. It gives up on a silent one after 5 s.
pub(super) fn one_server(compression: Compression, port: u16) -> String {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    compression.apply("{connect_timeout: 5s, response_timeout: 5s, ").to_owned()
        + &format!("url: 'redis://{address}/0'}}")
}
