//! The complete path from a lock to a pager, with real programs: Redis, programs that lock and log,
//! the exporter, Prometheus, Alertmanager, and a receiver for its messages.

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use redis_lock_exporter::rehearsal::fleet::cordum::{TimeScale, exporter_settings};
use redis_lock_exporter::rehearsal::rule_scaling::{scale, to_text};

use super::receiver::Receiver;
use super::workload::Workload;
use crate::alertmanager::{Alertmanager, CONFIG};
use crate::daemon::{Daemon, sum};
use crate::prometheus::Prometheus;
use crate::site::Site;

const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/alerts/redis_lock.rules.yml");
/// All bad slices that pages count. Functions over time drop the metric name, so a label keeps it.
/// Without owner changes in any slice, which are normal in a loop.
const SLICES: &str = "label_replace({__name__=~'lock_namespace:.+:slice_(bad|any|mass)',\
     __name__!='lock_namespace:redis_lock_owner_changes:slice_any'}, 'slice', '$1', '__name__', '(.+)')";
/// Extra time for a busy machine.
const SPARE: Duration = Duration::from_secs(60);

pub(super) struct Stage {
    pub(super) pace: TimeScale,
    pub(super) workload: Workload,
    pub(super) daemon: Daemon,
    pub(super) receiver: Receiver,
    prometheus: Prometheus,
    _alertmanager: Alertmanager,
    _site: Site,
}

impl Stage {
    /// Starts everything and returns after two minutes without a failure. `place` is the HOST:PORT
    /// at which the services reach Redis. `redis` is the Redis section of the exporter's
    /// configuration.
    pub(super) fn start(pace: TimeScale, place: &str, redis: &str) -> Self {
        let site = Site::new();
        let logs = "logs: [{path: 'SITE/logs/*.log', start_at: beginning}]";
        let settings = exporter_settings(&pace);
        site.configure(&format!("{logs}\nredis: {redis}\nscan: {{interval: 1s, watched_interval: 15s}}\n{settings}"));
        let workload = Workload::start(place, pace.clone(), &site.path("logs"));
        let daemon = site.start_configured(&[]);
        let receiver = Receiver::start();
        let example = scale(&fs::read_to_string(CONFIG).unwrap(), pace.speed());
        let alertmanager = Alertmanager::start(&example, receiver.address);
        let prometheus = start_prometheus(&pace, daemon.address, alertmanager.address);
        let stage = Self { pace, workload, daemon, receiver, prometheus, _alertmanager: alertmanager, _site: site };
        stage.wait(300.0, "two minutes without failures for both kinds of locks", |stage| {
            let ratios = "lock_namespace:redis_lock_not_owned_per_operation:ratio2m";
            let both = format!("count({ratios}{{lock_namespace=~'workflow|admission'}})");
            stage.number("count_over_time(up[3m])") >= Some(8.0) && stage.number(&both) == Some(2.0)
        });
        assert!(stage.pages().is_empty(), "{:#?}", stage.receiver.pages());
        stage
    }

    /// Returns the largest value of a query, or `None` if the query has no result.
    pub(super) fn number(&self, query: &str) -> Option<f64> {
        self.prometheus.number(&scale(query, self.pace.speed()))
    }

    /// Returns names and namespaces of all pages that have fired in Prometheus so far.
    pub(super) fn pages(&self) -> Vec<String> {
        let query =
            "max by (alertname, lock_namespace) (max_over_time(ALERTS{severity='critical',alertstate='firing'}[1h]))";
        let pages = self.prometheus.query(&scale(query, self.pace.speed()));
        pages.into_iter().map(|(labels, _)| labels.to_string()).collect()
    }

    /// Waits for a condition that should hold after so many uncompressed seconds.
    pub(super) fn wait(&self, seconds: f64, what: &str, condition: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + self.pace.seconds(seconds) + SPARE;
        while !condition(self) {
            assert!(Instant::now() < deadline, "timed out waiting for {what}\n{}", self.story());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until the rules have seen the Redis failure, no slice contains it, and the exporter is
    /// connected again. From then on, counts of bad slices can only fall.
    pub(super) fn wait_trouble_over(&self) {
        self.wait(600.0, "the rules to see the failure", |stage| {
            let failover = "max(max_over_time(ALERTS{alertname='RedisLockFailoverObserved'}[1h]))";
            let bad = format!("max(max_over_time({SLICES}[30m:30s]))");
            stage.number(failover) == Some(1.0) && stage.number(&bad) == Some(1.0)
        });
        self.wait(600.0, "the failure to be over", |stage| {
            let is_up = sum(&stage.daemon.scrape(), "redis_lock_exporter_tracking_up") == 1.0;
            let bad = format!("max(max_over_time({SLICES}[90s:30s]))");
            let ratios = "min(count_over_time(lock_namespace:redis_lock_not_owned_per_operation:ratio2m{lock_namespace=~'workflow|admission'}[90s]))";
            is_up && stage.number(&bad) == Some(0.0) && stage.number(ratios) >= Some(2.0)
        });
    }

    /// Returns details for the message of a failed assertion.
    pub(super) fn story(&self) -> String {
        let show = |query: &str| {
            let rows = self.prometheus.query(&scale(query, self.pace.speed())).into_iter();
            rows.map(|(labels, value)| format!("  {value} {labels}\n")).collect::<String>()
        };
        let alerts = show("max_over_time(ALERTS[1h])");
        let slices = show(&format!("sum_over_time({SLICES}[30m:30s]) > 0"));
        let received: Vec<_> = self.receiver.pages().into_iter().chain(self.receiver.tickets()).collect();
        format!(
            "truth: {:?}\nalerts:\n{alerts}bad slices:\n{slices}received: {received:#?}\n{}\n{}",
            self.workload.totals(),
            self.daemon.log(),
            self.prometheus.log()
        )
    }
}

/// Returns the Redis section for one server. The exporter disconnects from a silent server after 5
/// s. The compressed timeout is at least 2 s, because a busy machine can delay a reply.
pub(super) fn one_server(pace: &TimeScale, address: &str) -> String {
    let patience = to_text(pace.seconds(5.0).max(Duration::from_secs(2)));
    format!("{{connect_timeout: {patience}, response_timeout: {patience}, url: 'redis://{address}/0'}}")
}

/// Prometheus scrapes every 15 s, evaluates every 30 s, and otherwise uses its defaults. All
/// intervals are compressed like the fleet.
fn start_prometheus(pace: &TimeScale, exporter: SocketAddr, alertmanager: SocketAddr) -> Prometheus {
    let rules = scale(&fs::read_to_string(RULES).unwrap(), pace.speed());
    let time = |seconds| to_text(pace.seconds(seconds));
    let config = format!(
        "global: {{scrape_interval: {}, evaluation_interval: {}}}\n\
         rule_files: [rules.yml]\n\
         alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{alertmanager}']}}]}}]}}\n\
         scrape_configs:\n\
         \x20 - {{job_name: locks, static_configs: [{{targets: ['{exporter}'], labels: {{cluster: main}}}}]}}\n",
        time(15.0),
        time(30.0)
    );
    let flags =
        [format!("--rules.alert.resend-delay={}", time(60.0)), format!("--query.lookback-delta={}", time(300.0))];
    Prometheus::start(&config, &[("rules.yml", &rules)], &flags)
}
