//! Reads an exporter: scrapes it four times a second, so that the drill knows when the exporter
//! first showed something.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::Deserialize;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval};

use super::table::NamespaceSpec;
use crate::client::http::{self, ClientLimits};
use crate::client::scrape::{Samples, SeriesSelector};

const SCRAPE_EVERY: Duration = Duration::from_millis(250);
/// How long an exporter may need to connect to Redis and to start tracking.
const PATIENCE: Duration = Duration::from_secs(15);
/// How many changes of the drill's numbers are kept before the oldest ones are merged. This is
/// enough for hours of a sustained drill.
const HISTORY: usize = 20_000;

/// Metrics of the exporter itself, with few series each.
const METRICS: [&str; 5] = [
    "redis_lock_namespace_info",
    "redis_lock_exporter_redis_up",
    "redis_lock_exporter_tracking_up",
    "redis_lock_exporter_redis_failovers_total",
    "redis_lock_exporter_log_events_total",
];

/// Metrics of the drill's lock namespaces. A claim can use only the metrics in these two lists.
const OWN_METRICS: [&str; 12] = [
    "redis_lock_last_held_timestamp_seconds",
    "redis_lock_acquisitions_total",
    "redis_lock_renewals_total",
    "redis_lock_releases_total",
    "redis_lock_expirations_total",
    "redis_lock_not_owned_total",
    "redis_lock_not_owned_causes_total",
    "redis_lock_renewal_failures_total",
    "redis_lock_abandonments_total",
    "redis_lock_conflicting_writes_total",
    "redis_lock_takeovers_total",
    "redis_lock_takeover_seconds_sum",
];

/// The scraping stops when this is dropped.
pub(super) struct Probe {
    base: String,
    limits: ClientLimits,
    seen: Arc<ScrapeState>,
    _scraper: JoinSet<()>,
}

#[derive(Default)]
struct ScrapeState {
    history: Mutex<ScrapeHistory>,
    /// Why the last scrape failed. `None` if it succeeded.
    failure: Mutex<Option<String>>,
}

#[derive(Default)]
struct ScrapeHistory {
    now: Arc<Samples>,
    /// The changed samples and when they were first shown. The first entry contains all samples of
    /// the first scrape.
    changes: VecDeque<(Instant, Samples)>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct IncidentJson {
    pub(super) lock: Option<String>,
    pub(super) operation: String,
    pub(super) cause: String,
    pub(super) owner: Option<String>,
    pub(super) next_owner: Option<String>,
}

#[derive(Deserialize)]
struct IncidentsJson {
    incidents: Vec<IncidentJson>,
}

impl Probe {
    pub(super) async fn start(base: &str) -> anyhow::Result<Self> {
        let limits = ClientLimits { time: Duration::from_secs(5), ..ClientLimits::default() };
        let seen = Arc::new(ScrapeState::default());
        let url = http::below(base, "metrics");
        let samples = scrape(&url, &limits).await.context("cannot ask the exporter")?;
        lock(&seen.history).note(samples);
        let mut scraper = JoinSet::new();
        scraper.spawn(keep_scraping(url, limits.clone(), Arc::clone(&seen)));
        Ok(Self { base: base.to_owned(), limits, seen, _scraper: scraper })
    }

    /// The samples of the last scrape.
    pub(super) fn now(&self) -> Arc<Samples> {
        Arc::clone(&lock(&self.seen.history).now)
    }

    /// Scrapes now.
    pub(super) async fn scrape(&self) -> anyhow::Result<Samples> {
        scrape(&http::below(&self.base, "metrics"), &self.limits).await
    }

    /// Returns when the sum of the selected series was first at least this large.
    pub(super) fn first_shown(&self, selector: &SeriesSelector, at_least: f64) -> Option<Instant> {
        lock(&self.seen.history).first_shown(selector, at_least)
    }

    pub(super) async fn incidents(&self, lock_namespace: &str) -> anyhow::Result<Vec<IncidentJson>> {
        let path = format!("api/v1/incidents?limit=1000&lock_namespace={lock_namespace}");
        let text = http::get(&http::below(&self.base, &path), &self.limits).await?.text()?;
        Ok(serde_json::from_str::<IncidentsJson>(&text).context("the incidents cannot be read")?.incidents)
    }

    /// Waits until the exporter knows the lock namespaces and tracks Redis. Otherwise the error
    /// explains what is missing and what to do about it.
    pub(super) async fn ready(&self, namespaces: &[&NamespaceSpec]) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let mut clock = interval(SCRAPE_EVERY);
        loop {
            clock.tick().await;
            match self.missing(&self.scrape().await?, namespaces) {
                None => return Ok(()),
                // A configuration does not change while we wait.
                Some((false, missing)) => bail!(missing),
                Some((true, missing)) if Instant::now() > deadline => bail!(missing),
                Some(_) => {}
            }
        }
    }

    /// Returns what is missing, and whether it can still appear without a change of the
    /// configuration.
    fn missing(&self, samples: &Samples, namespaces: &[&NamespaceSpec]) -> Option<(bool, String)> {
        let shown = http::shown(&self.base);
        let unknown: Vec<&str> = namespaces
            .iter()
            .map(|namespace| namespace.name)
            .filter(|name| !samples.has(&SeriesSelector::new("redis_lock_namespace_info", &[("lock_namespace", name)])))
            .collect();
        if !unknown.is_empty() {
            let unknown = unknown.join(", ");
            return Some((
                // The first snapshot contains no lock namespace at all.
                !samples.has(&SeriesSelector::new("redis_lock_namespace_info", &[])),
                format!(
                    "the exporter at {shown} does not know the lock namespaces {unknown}: add to its configuration what \
                     `redis_lock_exporter drill --print-config` shows, and reload it"
                ),
            ));
        }
        let is_up = |metric| samples.sum(&SeriesSelector::new(metric, &[])) >= 1.0;
        if !is_up("redis_lock_exporter_redis_up") {
            let why = "does not see everything: it is not connected to a Redis (see its /-/ready)";
            return Some((true, format!("the exporter at {shown} {why}")));
        }
        if !is_up("redis_lock_exporter_tracking_up") {
            let why = "does not receive changes from Redis: passes alone do not observe short holds (see its /-/ready)";
            return Some((true, format!("the exporter at {shown} {why}")));
        }
        None
    }

    /// Why the last scrape failed, if it did.
    pub(super) fn failure(&self) -> Option<String> {
        lock(&self.seen.failure).clone()
    }
}

impl ScrapeHistory {
    fn note(&mut self, samples: Samples) {
        let changed = samples.changed_from(&self.now);
        if changed.is_empty() {
            return;
        }
        self.changes.push_back((Instant::now(), changed));
        self.now = Arc::new(samples);
        if self.changes.len() > HISTORY
            && let Some((_, mut oldest)) = self.changes.pop_front()
            && let Some((_, next)) = self.changes.front_mut()
        {
            oldest.update(std::mem::take(next));
            *next = oldest;
        }
    }

    fn first_shown(&self, selector: &SeriesSelector, at_least: f64) -> Option<Instant> {
        let mut shown = Samples::default();
        let mut changes = self.changes.iter();
        let reached = changes.find(|(_, changed)| {
            shown.update(changed.clone());
            shown.sum(selector) >= at_least
        });
        reached.map(|(at, _)| *at)
    }
}

async fn keep_scraping(url: String, limits: ClientLimits, seen: Arc<ScrapeState>) {
    let mut clock = interval(SCRAPE_EVERY);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        clock.tick().await;
        let failure = match scrape(&url, &limits).await {
            Ok(samples) => {
                lock(&seen.history).note(samples);
                None
            }
            Err(error) => Some(format!("{error:#}")),
        };
        *lock(&seen.failure) = failure;
    }
}

async fn scrape(url: &str, limits: &ClientLimits) -> anyhow::Result<Samples> {
    Ok(Samples::parse_some(&http::get(url, limits).await?.text()?, is_of_interest))
}

/// Keeps only the metrics that the drill needs, of its own lock namespaces. All others would only
/// fill the history.
fn is_of_interest(series: &str) -> bool {
    let (metric, labels) = series.split_once('{').unwrap_or((series, ""));
    let is_own = labels.contains("lock_namespace=\"drill-");
    METRICS.contains(&metric) || (is_own && OWN_METRICS.contains(&metric))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The history keeps only changes, and still knows when a sum was first reached.
    #[tokio::test(start_paused = true)]
    async fn when_something_was_first_shown() {
        let start = Instant::now();
        let mut history = ScrapeHistory::default();
        for (first, second) in [(1, 1), (1, 1), (2, 1), (2, 3), (2, 3)] {
            let text = format!("a_total{{x=\"1\"}} {first}\na_total{{x=\"2\"}} {second}\nb_total 7\n");
            history.note(Samples::parse(&text));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(history.changes.len(), 3);
        let sum = SeriesSelector::new("a_total", &[]);
        let shown = |at_least| history.first_shown(&sum, at_least).map(|at| (at - start).as_secs());
        assert_eq!([2.0, 3.0, 4.0, 5.0, 6.0].map(shown), [Some(0), Some(2), Some(3), Some(3), None]);
        assert_eq!(history.now.sum(&sum), 5.0);
        assert_eq!(history.first_shown(&SeriesSelector::new("b_total", &[]), 7.0), Some(start));
    }

    #[tokio::test(start_paused = true)]
    async fn the_history_is_bounded() {
        let mut history = ScrapeHistory::default();
        for number in 0..HISTORY + 3 {
            history.note(Samples::parse(&format!("a_total {number}\nb_total 1\n")));
        }
        assert_eq!(history.changes.len(), HISTORY);
        // Merging keeps the samples of the oldest entry.
        assert!(history.first_shown(&SeriesSelector::new("b_total", &[]), 1.0).is_some());
    }

    #[test]
    fn only_what_the_drill_asks_for_is_kept() {
        let check = |series: &str, kept: bool| assert_eq!(is_of_interest(series), kept, "{series}");
        check("redis_lock_releases_total{redis=\"redis\",lock_namespace=\"drill-pause\"}", true);
        check("redis_lock_releases_total{redis=\"redis\",lock_namespace=\"scheduler\"}", false);
        check("redis_lock_hold_seconds_bucket{lock_namespace=\"drill-pause\",le=\"1\"}", false);
        check("redis_lock_exporter_redis_up{redis=\"redis\"}", true);
        check("redis_lock_exporter_log_events_total{path=\"x\"}", true);
        check("process_open_fds", false);
    }
}
