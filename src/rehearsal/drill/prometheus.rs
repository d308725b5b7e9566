//! Checks the alerts of a drill: asks Prometheus during the drill which alerts fire, and judges
//! them at the end.
//!
//! The bundled rules alert on failures that last for minutes. A drill in which each failure happens
//! once must therefore cause no page. A drill that repeats each failure for long enough must cause
//! one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep};

use super::report::{ExpectationResult, ScenarioReport};
use super::scenario_run::seconds;
use super::settings::Timing;
use super::table::{EvidenceSource, Page, Scenario};
use crate::cli::DrillScenario;
use crate::client::http::ClientLimits;
use crate::client::prometheus::{Prometheus, Series};

const ASK_EVERY: Duration = Duration::from_secs(5);
/// How long to wait until Prometheus has scraped the exporter for the first time.
const FIRST_SCRAPE: Duration = Duration::from_secs(90);
/// The pages about the drill that fire now.
const FIRING: &str = "ALERTS{alertstate=\"firing\",severity=\"critical\",lock_namespace=~\"drill-.*\"}";

/// The queries stop when this is dropped.
pub(super) struct Watch {
    prometheus: Arc<Prometheus>,
    started: Instant,
    seen: Arc<Mutex<AlertTimes>>,
    _watcher: JoinSet<()>,
}

#[derive(Default)]
struct AlertTimes {
    /// Lock namespace and alert name, and when the alert was first seen firing.
    pages: BTreeMap<(String, String), Instant>,
    failure: Option<String>,
}

impl Watch {
    /// Fails if Prometheus does not scrape the exporter or has not loaded the rules: in that case,
    /// the absence of alerts would prove nothing.
    pub(super) async fn start(base: &str) -> anyhow::Result<Self> {
        let prometheus = Arc::new(Prometheus::new(base, ClientLimits::default()));
        let rules: serde_json::Value = prometheus.data("rules?type=alert").await?;
        anyhow::ensure!(
            rules.to_string().contains("\"RedisLockNotOwnedRatioHigh\""),
            "the Prometheus at {} has not loaded the rules of alerts/redis_lock.rules.yml",
            prometheus.shown()
        );
        let deadline = Instant::now() + FIRST_SCRAPE;
        while prometheus.query("redis_lock_namespace_info{lock_namespace=~\"drill-.*\"}").await?.is_empty() {
            anyhow::ensure!(
                Instant::now() < deadline,
                "the Prometheus at {} does not scrape an exporter that knows the drill's namespaces: give one with \
                 --exporter, or let it scrape the drill's own at a fixed --web.listen-address",
                prometheus.shown()
            );
            sleep(ASK_EVERY).await;
        }
        if let Some(series) = prometheus.query(FIRING).await?.first() {
            let alert = series.label("alertname");
            anyhow::bail!(
                "{alert} still pages because of an earlier drill: wait until it is over, or every silence would fail"
            );
        }
        let seen = Arc::default();
        let mut watcher = JoinSet::new();
        watcher.spawn(keep_asking(Arc::clone(&prometheus), Arc::clone(&seen)));
        Ok(Self { prometheus, started: Instant::now(), seen, _watcher: watcher })
    }

    /// Waits for late alerts after all scenarios have ended, and then queries once more.
    pub(super) async fn wait_for_late_alerts(&self, wait_for_late_alerts: Duration) {
        sleep(wait_for_late_alerts).await;
        let outcome = self.prometheus.query(FIRING).await;
        note(&self.seen, outcome);
    }

    /// Adds to the report which alerts were expected of this scenario, and which ones fired.
    pub(super) fn check_alerts(&self, scenario: &Scenario, timing: &Timing, report: &mut ScenarioReport) {
        let seen = self.seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let own = |namespace: &str| scenario.namespaces.iter().any(|own| own.name == namespace);
        let paged: Vec<(&(String, String), &Instant)> =
            seen.pages.iter().filter(|((namespace, _), _)| own(namespace)).collect();
        let lasts = match scenario.kind {
            DrillScenario::LeaderLoss => Lasts::of_absence(report, self.started),
            // Prometheus does not scrape the exporter of this scenario.
            DrillScenario::RedisFailover => return,
            _ => Lasts { surely: timing.duration.unwrap_or_default(), perhaps: Duration::ZERO },
        };
        let expected = expected(scenario, lasts);
        let statement = expected.describe();
        let came: Vec<String> = paged
            .iter()
            .map(|((namespace, alert), at)| format!("{alert} of {namespace} after {}", seconds(**at - self.started)))
            .collect();
        let mut measured = if came.is_empty() { "no page".to_owned() } else { came.join(", ") };
        if let Some(failure) = &seen.failure {
            measured = format!("{measured}; Prometheus could not be asked: {failure}");
        }
        let pages: Vec<(&str, &str)> =
            paged.iter().map(|((namespace, alert), _)| (namespace.as_str(), alert.as_str())).collect();
        let held = seen.failure.is_none() && expected.is_met_by(&pages);
        report.expectations.push(ExpectationResult {
            id: "alerts",
            side: EvidenceSource::Alerts.as_str(),
            statement,
            held,
            measured,
        });
    }
}

/// For how long there was a reason to page.
#[derive(Clone, Copy, Debug)]
struct Lasts {
    surely: Duration,
    /// There was possibly a reason for this long, at another time.
    perhaps: Duration,
}

impl Lasts {
    /// There is also no leader before and after the scenario. What the exporter and the rules know
    /// about that time depends on what happened earlier, so it counts as `perhaps`.
    fn of_absence(report: &ScenarioReport, watched_since: Instant) -> Self {
        let surely = Duration::from_secs_f64(report.measured.get("absent").copied().unwrap_or_default());
        let Some(ended) = report.ended else { return Self { surely, perhaps: watched_since.elapsed() } };
        let took = Duration::from_secs_f64(report.took_seconds);
        let before = ended.saturating_duration_since(watched_since).saturating_sub(took);
        Self { surely, perhaps: before.max(ended.elapsed()) }
    }
}

#[derive(Clone, Copy, Debug)]
enum Expected {
    Page(Page),
    Silence,
    /// The page may come or not: the failure lasted for a time in between.
    Either(Page),
}

impl Expected {
    fn describe(self) -> String {
        let rest = |page: Page| match page.along {
            [] => "nothing else does".to_owned(),
            along => format!("nothing else does, except possible consequences: {}", along.join(", ")),
        };
        match self {
            Self::Page(page) => {
                format!("{} pages, for this lasts longer than {}; {}", page.alert, seconds(page.after), rest(page))
            }
            Self::Either(page) => format!("{} may page or not, after such a time; {}", page.alert, rest(page)),
            Self::Silence => "nothing pages: the failure is too short or not urgent".to_owned(),
        }
    }

    /// Whether these pages, each a lock namespace and an alert name, fulfill the expectation.
    fn is_met_by(self, pages: &[(&str, &str)]) -> bool {
        let (page, is_needed) = match self {
            Self::Page(page) => (page, true),
            Self::Either(page) => (page, false),
            Self::Silence => return pages.is_empty(),
        };
        let is_it = |(namespace, alert): &(&str, &str)| *namespace == page.lock_namespace && *alert == page.alert;
        let is_along = |(_, alert): &(&str, &str)| page.along.contains(alert);
        pages.iter().all(|paged| is_it(paged) || is_along(paged)) && (!is_needed || pages.iter().any(is_it))
    }
}

fn expected(scenario: &Scenario, lasts: Lasts) -> Expected {
    match scenario.page {
        Some(page) if lasts.surely >= page.after => Expected::Page(page),
        Some(page) if lasts.surely.max(lasts.perhaps) >= page.not_before => Expected::Either(page),
        _ => Expected::Silence,
    }
}

async fn keep_asking(prometheus: Arc<Prometheus>, seen: Arc<Mutex<AlertTimes>>) {
    let mut clock = interval(ASK_EVERY);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        clock.tick().await;
        let outcome = prometheus.query(FIRING).await;
        note(&seen, outcome);
    }
}

/// Records the result of a query. A failed query does not matter if a later one succeeds. If the
/// last query fails, the expectation fails.
fn note(seen: &Mutex<AlertTimes>, outcome: anyhow::Result<Vec<Series>>) {
    let mut seen = seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    match outcome {
        Ok(series) => {
            seen.failure = None;
            for series in series {
                let label = |name| series.label(name).to_owned();
                seen.pages.entry((label("lock_namespace"), label("alertname"))).or_insert_with(Instant::now);
            }
        }
        Err(error) => seen.failure = Some(format!("{error:#}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::SCENARIOS;
    use super::*;

    #[test]
    fn a_page_is_expected_of_what_lasts() {
        let check = |name: &str, minutes: u64, expected_count: &str| {
            let scenario = SCENARIOS.iter().find(|scenario| scenario.name == name).unwrap();
            let lasts = Lasts { surely: Duration::from_secs(60 * minutes), perhaps: Duration::ZERO };
            let expected = expected(scenario, lasts);
            assert!(format!("{expected:?}").starts_with(expected_count), "{name} for {minutes} min: {expected:?}");
        };
        check("stale-release", 0, "Silence");
        check("stale-release", 2, "Silence");
        check("stale-release", 5, "Either");
        check("stale-release", 10, "Page(Page { alert: \"RedisLockNotOwnedRatioHigh\"");
        check("renewal-failure", 10, "Page(Page { alert: \"RedisLockRenewalFailureRatioHigh\"");
        check("leader-loss", 10, "Page(Page { alert: \"RedisLockLeaderAbsent\"");
        check("crash-takeover", 60, "Silence");
    }

    /// The scenario does not control whether there was a leader before and after it, so that time
    /// never requires a page.
    #[test]
    fn a_leader_is_missed_for_as_long_as_it_was_measured() {
        let leader_loss = SCENARIOS.iter().find(|scenario| scenario.kind == DrillScenario::LeaderLoss).unwrap();
        let check = |surely: u64, perhaps: u64, expected_count: &str| {
            let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
            let expected = expected(leader_loss, Lasts { surely: minutes(surely), perhaps: minutes(perhaps) });
            assert!(format!("{expected:?}").starts_with(expected_count), "{surely} and {perhaps} min: {expected:?}");
        };
        check(0, 5, "Silence");
        check(0, 20, "Either");
        check(7, 0, "Either");
        check(8, 0, "Page");
    }

    #[test]
    fn a_page_that_was_not_expected_fails() {
        let scenario = SCENARIOS.iter().find(|scenario| scenario.kind == DrillScenario::RenewalFailure).unwrap();
        let page = scenario.page.unwrap();
        let own = (page.lock_namespace, page.alert);
        let along = ("drill-renewal-fence", page.along[0]);
        let other = (page.lock_namespace, "RedisLockFenceRegression");
        let check = |expected: Expected, pages: &[(&str, &str)], met: bool| {
            assert_eq!(expected.is_met_by(pages), met, "{expected:?}: {pages:?}");
        };
        check(Expected::Page(page), &[own, along], true);
        check(Expected::Page(page), &[along], false);
        check(Expected::Page(page), &[own, other], false);
        check(Expected::Either(page), &[], true);
        check(Expected::Either(page), &[own], true);
        check(Expected::Either(page), &[other], false);
        check(Expected::Silence, &[], true);
        check(Expected::Silence, &[own], false);
    }
}
