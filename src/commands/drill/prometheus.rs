//! What Prometheus makes of a drill: watched all the time, judged at its end.
//!
//! The bundled rules alert on what lasts for minutes. A drill in which each failure happens once must therefore stay
//! silent; one that is sustained for long enough must page.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use serde::Deserialize;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep};

use super::report::{ScenarioReport, Verdict};
use super::stage::seconds;
use super::table::{Kind, Page, Scenario, Side};
use super::timing::Timing;
use crate::http_client::{self, Limits};

const ASK_EVERY: Duration = Duration::from_secs(5);
/// Until Prometheus has scraped the exporter for the first time.
const FIRST_SCRAPE: Duration = Duration::from_secs(90);
const QUERY: &str = "api/v1/query?query=";

/// Stops asking when it is dropped.
pub(super) struct Watch {
    base: String,
    limits: Limits,
    started: Instant,
    seen: Arc<Mutex<Seen>>,
    _watcher: JoinSet<()>,
}

#[derive(Default)]
struct Seen {
    /// Namespace and alert, and when it was first seen to page.
    pages: BTreeMap<(String, String), Instant>,
    failure: Option<String>,
}

#[derive(Deserialize)]
struct Answer {
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    result: Vec<Series>,
}

#[derive(Deserialize)]
struct Series {
    metric: BTreeMap<String, String>,
}

impl Watch {
    /// Prometheus must scrape the exporter and have the rules: its silence would mean nothing otherwise.
    pub(super) async fn start(base: &str) -> anyhow::Result<Self> {
        let limits = Limits::default();
        let rules = http_client::get(&http_client::below(base, "api/v1/rules?type=alert"), &limits).await?.text()?;
        anyhow::ensure!(
            rules.contains("RedisLockNotOwnedRatioHigh"),
            "the Prometheus at {} has not loaded the rules of alerts/redis_lock.rules.yml",
            http_client::shown(base)
        );
        let deadline = Instant::now() + FIRST_SCRAPE;
        // Encoded by hand: no character of it is special but these.
        let scraped = "redis_lock_namespace_info%7Block_namespace%3D~%22drill-.*%22%7D";
        while query(base, scraped, &limits).await?.is_empty() {
            anyhow::ensure!(
                Instant::now() < deadline,
                "the Prometheus at {} does not scrape an exporter that knows the drill's namespaces: give one with \
                 --exporter, or let it scrape the drill's own at a fixed --web.listen-address",
                http_client::shown(base)
            );
            sleep(ASK_EVERY).await;
        }
        let firing = ask(base, &limits).await?;
        if let Some(Series { metric }) = firing.first() {
            let alert = metric.get("alertname").map_or("", String::as_str);
            anyhow::bail!(
                "{alert} still pages because of an earlier drill: wait until it is over, or every silence would fail"
            );
        }
        let seen = Arc::default();
        let mut watcher = JoinSet::new();
        watcher.spawn(keep_asking(base.to_owned(), limits.clone(), Arc::clone(&seen)));
        Ok(Self { base: base.to_owned(), limits, started: Instant::now(), seen, _watcher: watcher })
    }

    /// After everything has happened: an alert may come late.
    pub(super) async fn settle(&self, settle: Duration) {
        sleep(settle).await;
        let outcome = ask(&self.base, &self.limits).await;
        note(&self.seen, outcome);
    }

    /// Adds what was expected of the alerts of this scenario, and what came.
    pub(super) fn judge(&self, scenario: &Scenario, timing: &Timing, report: &mut ScenarioReport) {
        let seen = self.seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let own = |namespace: &str| scenario.namespaces.iter().any(|own| own.name == namespace);
        let paged: Vec<(&(String, String), &Instant)> =
            seen.pages.iter().filter(|((namespace, _), _)| own(namespace)).collect();
        let lasts = match scenario.kind {
            // Nobody leads before and after the scenario either.
            Kind::LeaderLoss => self.started.elapsed(),
            // The exporter that sees it is not scraped.
            Kind::RedisFailover => return,
            _ => timing.duration.unwrap_or_default(),
        };
        let (expected, statement) = match expected(scenario, lasts) {
            Expected::Page(page) => {
                (Some(page), format!("{} pages, for this lasts longer than {}", page.alert, seconds(page.after)))
            }
            Expected::Silence => (None, "nothing pages: this is too short, or no reason to wake somebody".to_owned()),
            Expected::Either => return,
        };
        let came: Vec<String> = paged
            .iter()
            .map(|((namespace, alert), at)| format!("{alert} of {namespace} after {}", seconds(**at - self.started)))
            .collect();
        let mut measured = if came.is_empty() { "no page".to_owned() } else { came.join(", ") };
        if let Some(failure) = &seen.failure {
            measured = format!("{measured}; Prometheus could not be asked: {failure}");
        }
        let held = seen.failure.is_none()
            && match expected {
                Some(page) => {
                    paged.iter().any(|((namespace, alert), _)| namespace == page.lock_namespace && alert == page.alert)
                }
                None => paged.is_empty(),
            };
        report.expectations.push(Verdict { id: "alerts", side: Side::Alerts.as_str(), statement, held, measured });
    }
}

#[derive(Clone, Copy, Debug)]
enum Expected {
    Page(Page),
    Silence,
    /// It may have come, or may have been about to come.
    Either,
}

fn expected(scenario: &Scenario, lasts: Duration) -> Expected {
    match scenario.page {
        Some(page) if lasts >= page.after => Expected::Page(page),
        Some(page) if lasts >= page.not_before => Expected::Either,
        _ => Expected::Silence,
    }
}

async fn keep_asking(base: String, limits: Limits, seen: Arc<Mutex<Seen>>) {
    let mut clock = interval(ASK_EVERY);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        clock.tick().await;
        let outcome = ask(&base, &limits).await;
        note(&seen, outcome);
    }
}

/// One answer that did not come is made good by the next; one that is missing at the end is not.
fn note(seen: &Mutex<Seen>, outcome: anyhow::Result<Vec<Series>>) {
    let mut seen = seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    match outcome {
        Ok(series) => {
            seen.failure = None;
            for Series { metric } in series {
                let label = |name: &str| metric.get(name).cloned().unwrap_or_default();
                seen.pages.entry((label("lock_namespace"), label("alertname"))).or_insert_with(Instant::now);
            }
        }
        Err(error) => seen.failure = Some(format!("{error:#}")),
    }
}

/// The pages of the drill that fire now.
async fn ask(base: &str, limits: &Limits) -> anyhow::Result<Vec<Series>> {
    let firing = "ALERTS%7Balertstate%3D%22firing%22%2Cseverity%3D%22critical%22%2Clock_namespace%3D~%22drill-.*%22%7D";
    query(base, firing, limits).await
}

async fn query(base: &str, encoded: &str, limits: &Limits) -> anyhow::Result<Vec<Series>> {
    let url = http_client::below(base, &format!("{QUERY}{encoded}"));
    let text = http_client::get(&url, limits).await?.text()?;
    let answer: Answer = serde_json::from_str(&text).context("an answer of Prometheus cannot be read")?;
    Ok(answer.data.result)
}

#[cfg(test)]
mod tests {
    use super::super::table::SCENARIOS;
    use super::*;

    #[test]
    fn a_page_is_expected_of_what_lasts() {
        let check = |name: &str, minutes: u64, wanted: &str| {
            let scenario = SCENARIOS.iter().find(|scenario| scenario.name == name).unwrap();
            let expected = expected(scenario, Duration::from_secs(60 * minutes));
            assert!(format!("{expected:?}").starts_with(wanted), "{name} for {minutes} min: {expected:?}");
        };
        check("stale-release", 0, "Silence");
        check("stale-release", 2, "Silence");
        check("stale-release", 5, "Either");
        check("stale-release", 10, "Page(Page { alert: \"RedisLockNotOwnedRatioHigh\"");
        check("renewal-failure", 10, "Page(Page { alert: \"RedisLockRenewalFailureRatioHigh\"");
        check("leader-loss", 10, "Page(Page { alert: \"RedisLockLeaderAbsent\"");
        check("crash-takeover", 60, "Silence");
    }
}
