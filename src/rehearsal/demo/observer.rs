//! Queries the exporter and Prometheus. `terminal` and `summary` compare the result with what the
//! fleet did. A missing response is not an error here: `demo_run` checks whether the programs still
//! run.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::alerts::PrometheusAlert;
use crate::client::http::{self, ClientLimits, below};
use crate::client::prometheus::{Prometheus, Series};
use crate::client::scrape::{Samples, SeriesSelector};
use crate::rehearsal::fleet::cordum::TimeScale;
use crate::rehearsal::fleet::{Failures, Truth};
use crate::rehearsal::rule_scaling::to_text;

/// The window over which the rules count bad slices for a page.
const SLICES_WINDOW: Duration = Duration::from_secs(600);

pub(super) struct Observer {
    exporter: String,
    prometheus: Option<Prometheus>,
    slices: String,
}

/// What the exporter and Prometheus report at one moment.
pub(super) struct DemoObservation {
    pub(super) seen: Option<ObservedPages>,
    /// `None` if Prometheus does not run or did not respond.
    pub(super) alerts: Option<Vec<PrometheusAlert>>,
    /// Bad slices by lock namespace, from the rule about lost locks.
    pub(super) bad_slices: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct TheAlerts {
    alerts: Vec<PrometheusAlert>,
}

impl Observer {
    pub(super) fn new(exporter: String, time_scale: &TimeScale) -> Self {
        let window = to_text(time_scale.of(SLICES_WINDOW));
        let slices = format!("sum_over_time(lock_namespace:redis_lock_not_owned:slice_bad[{window}])>0");
        Self { exporter, prometheus: None, slices }
    }

    /// Also queries Prometheus from now on.
    pub(super) fn add_prometheus(&mut self, url: &str) {
        self.prometheus = Some(Prometheus::new(url, limits()));
    }

    /// Whether the exporter sees every change of a lock.
    pub(super) async fn is_watching(&self) -> bool {
        self.seen().await.is_some_and(|seen| seen.is_watching())
    }

    /// Whether Prometheus has scraped the exporter and no alert is pending or firing. Before the
    /// first scrape, the rules consider the exporter absent. True if there is no Prometheus.
    pub(super) async fn is_calm(&self) -> bool {
        let Some(prometheus) = &self.prometheus else { return true };
        let (up, alerts) = (prometheus.query("up==1").await, prometheus.data::<TheAlerts>("alerts").await);
        up.is_ok_and(|up| !up.is_empty()) && alerts.is_ok_and(|answer| answer.alerts.is_empty())
    }

    pub(super) async fn observe(&self) -> DemoObservation {
        let seen = self.seen().await;
        let Some(prometheus) = &self.prometheus else {
            return DemoObservation { seen, alerts: None, bad_slices: BTreeMap::new() };
        };
        let alerts = prometheus.data::<TheAlerts>("alerts").await;
        let slices = prometheus.query(&self.slices).await.unwrap_or_default().into_iter();
        let count =
            |series: Series| (series.label("lock_namespace").to_owned(), series.number().unwrap_or_default() as u64);
        DemoObservation {
            seen,
            alerts: alerts.ok().map(|answer| answer.alerts),
            bad_slices: slices.map(count).collect(),
        }
    }

    async fn seen(&self) -> Option<ObservedPages> {
        let answer = http::get(&below(&self.exporter, "/metrics"), &limits()).await.ok()?;
        Some(ObservedPages::new(&answer.text().ok()?))
    }
}

fn limits() -> ClientLimits {
    ClientLimits { time: Duration::from_secs(5), ..ClientLimits::default() }
}

pub(super) struct ObservedPages {
    samples: Samples,
    /// The failures that the exporter counted from logs.
    pub(super) failures: Failures,
}

impl ObservedPages {
    /// Parses the classic text format.
    pub(super) fn new(text: &str) -> Self {
        Self { samples: Samples::parse(text), failures: Failures::counted(text) }
    }

    /// Whether the exporter knows all locks and Redis pushes every change to it.
    pub(super) fn is_watching(&self) -> bool {
        let is_above_0 = |metric| self.samples.sum(&SeriesSelector::new(metric, &[])) > 0.0;
        is_above_0("redis_lock_exporter_scan_passes_total") && is_above_0("redis_lock_exporter_tracking_up")
    }

    /// The counts from Redis, limited to the fields whose true value the fleet knows.
    pub(super) fn locks(&self, namespace: &str) -> Truth {
        let get = |metric| self.sum(metric, namespace) as u64;
        Truth {
            acquisitions: get("redis_lock_acquisitions_total"),
            renewals: get("redis_lock_renewals_total"),
            releases: get("redis_lock_releases_total"),
            expirations: get("redis_lock_expirations_total"),
            held: get("redis_lock_held"),
            ..Truth::default()
        }
    }

    /// Counts by cause, without those that are 0.
    pub(super) fn causes(&self, namespace: &str) -> BTreeMap<String, u64> {
        let causes = self.samples.by_label(&selector("redis_lock_not_owned_causes_total", namespace), "cause");
        causes.into_iter().filter(|(_, count)| *count > 0.0).map(|(cause, count)| (cause, count as u64)).collect()
    }

    pub(super) fn sum(&self, metric: &'static str, namespace: &str) -> f64 {
        self.samples.sum(&selector(metric, namespace))
    }
}

fn selector(metric: &'static str, namespace: &str) -> SeriesSelector {
    SeriesSelector::new(metric, &[("lock_namespace", namespace)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_namespace() {
        let seen = ObservedPages::new(
            "# TYPE redis_lock_held gauge\n\
             redis_lock_held{redis=\"demo\",lock_namespace=\"workflow\"} 3\n\
             redis_lock_held{redis=\"demo\",lock_namespace=\"workflow_reconciler\"} 1\n\
             redis_lock_not_owned_causes_total{redis=\"demo\",lock_namespace=\"workflow\",cause=\"taken_over\"} 2\n\
             redis_lock_not_owned_causes_total{redis=\"demo\",lock_namespace=\"workflow\",cause=\"unknown\"} 0\n",
        );
        assert_eq!(seen.locks("workflow").held, 3);
        assert_eq!(seen.causes("workflow"), BTreeMap::from([("taken_over".to_owned(), 2)]));
    }
}
