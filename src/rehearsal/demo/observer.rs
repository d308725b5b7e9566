//! Queries the exporter and Prometheus. A missing response is not an error here: `stage` checks
//! whether the programs still run.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::alerts::PrometheusAlert;
use super::seen::ObservedPages;
use crate::client::http::{self, ClientLimits, below};
use crate::client::prometheus::{Prometheus, Series};
use crate::rehearsal::fleet::cordum::TimeScale;
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
    pub(super) fn new(exporter: String, pace: &TimeScale) -> Self {
        let window = to_text(pace.of(SLICES_WINDOW));
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

    pub(super) async fn look(&self) -> DemoObservation {
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
