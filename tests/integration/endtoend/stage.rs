//! Everything between a lock and a pager, each part the real one: Redis, programs that lock and log, the exporter, Prometheus,
//! Alertmanager, and where its messages go.

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
/// All slices of the kinds that pages count. Functions over time drop the name, so it is kept as a label.
const SLICES: &str =
    "label_replace({__name__=~'lock_namespace:.+:slice_(bad|any|mass)'}, 'slice', '$1', '__name__', '(.+)')";
/// For a machine that has other things to do.
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
    /// `place` is where the services find Redis, HOST:PORT, and `redis` the exporter's section about it. Ends when all has been
    /// well for two minutes.
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
        self.prometheus.number(&scale(query, self.pace.speed()))
    }

    /// Names and namespaces of the pages that Prometheus has seen fire at any time so far.
    pub(super) fn pages(&self) -> Vec<String> {
        let query =
            "max by (alertname, lock_namespace) (max_over_time(ALERTS{severity='critical',alertstate='firing'}[1h]))";
        let pages = self.prometheus.query(&scale(query, self.pace.speed()));
        pages.into_iter().map(|(labels, _)| labels.to_string()).collect()
    }

    /// Waits for a condition that should hold after so many seconds of the uncompressed world.
    pub(super) fn wait(&self, seconds: f64, what: &str, condition: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + self.pace.seconds(seconds) + SPARE;
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

/// The exporter's section about one server. It gives up on a silent one after 5 s; in this world that may be no less than 2 s, for
/// a machine that is busy with other things is not silent.
pub(super) fn one_server(pace: &TimeScale, address: &str) -> String {
    let patience = to_text(pace.seconds(5.0).max(Duration::from_secs(2)));
    format!("{{connect_timeout: {patience}, response_timeout: {patience}, url: 'redis://{address}/0'}}")
}

/// Scrapes every 15 s, evaluates every 30 s, and has Prometheus's defaults otherwise: all of it as much faster as the fleet is.
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
