//! Compares what the exporter shows with what happened: every claim of the scenario, the incident,
//! and how soon each was shown. Called after the last round of a scenario.

use std::fmt::Write as _;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::heartbeat::Stalled;
use super::probe::Probe;
use super::report::ScenarioReport;
use super::scenario_run::{Claim, Happened, IncidentClaim, Notes, ScenarioRun, seconds};
use crate::client::scrape::Samples;

/// How soon an exporter must show everything. It shows a cause some seconds after the log line that
/// reports the loss, because it may read the line before it learns from Redis that the hold ended.
const SHOWN_WITHIN: Duration = Duration::from_secs(15);
/// A shorter wait if the exporter cannot see the drill.
const BLIND_PATIENCE: Duration = Duration::from_secs(5);
/// A number that is right may still grow too large, so wait for one more published snapshot.
const SETTLE: Duration = Duration::from_millis(1300);
const PAUSE: Duration = Duration::from_millis(100);

/// Waits until the exporter shows everything or the deadline passes, and then fills in the results.
pub(super) async fn verify(scenario_run: &ScenarioRun, notes: Notes, stalled: Stalled, report: &mut ScenarioReport) {
    let started = Instant::now();
    let probe = &scenario_run.context.probe;
    let patience = if scenario_run.context.blind.is_some() { BLIND_PATIENCE } else { SHOWN_WITHIN };
    let deadline = started + patience;
    let is_shown = |samples: &Samples| notes.claims.iter().all(|claim| claim.holds(&scenario_run.before, samples));
    while !is_shown(&probe.now()) && Instant::now() < deadline {
        sleep(PAUSE).await;
    }
    sleep(SETTLE).await;
    let samples = match probe.scrape().await {
        Ok(samples) => samples,
        Err(error) => {
            return report.stop(&error.context("the exporter no longer answers"));
        }
    };
    judge_claims(&notes.claims, &scenario_run.before, &samples, report);
    state_stalls(&notes, stalled, report);
    if let Some(claim) = &notes.incident {
        let (held, measured) = judge_incident(probe, claim).await;
        record_result(report, "incident", held, measured);
    }
    let (held, measured, slowest) = judge_detection(probe, &scenario_run.before, &notes.happened);
    record_result(report, "detection", held, measured);
    if let Some(slowest) = slowest {
        report.measured.insert("detection", slowest.as_secs_f64());
    }
}

impl Claim {
    fn shown(&self, before: &Samples, now: &Samples) -> f64 {
        now.sum(&self.selector) - before.sum(&self.selector)
    }

    /// A missing series does not count as 0.
    fn holds(&self, before: &Samples, now: &Samples) -> bool {
        let shown = self.shown(before, now);
        now.has(&self.selector) && shown >= self.at_least - self.excused - 1e-9 && shown <= self.at_most + 1e-9
    }

    fn describe(&self, before: &Samples, now: &Samples) -> String {
        let number = |value: f64| if value.fract() == 0.0 { format!("{value}") } else { format!("{value:.2}") };
        let expected = match self.at_least == self.at_most {
            true => number(self.at_least),
            false => format!("{} to {}", number(self.at_least), number(self.at_most)),
        };
        let excused = match self.excused {
            0.0 => String::new(),
            excused => format!(" ({} may be missing)", number(excused)),
        };
        match now.has(&self.selector) {
            true => format!("{}: {} of {expected}{excused}", self.what, number(self.shown(before, now))),
            false => format!("{}: the exporter has no such series", self.what),
        }
    }
}

/// An expectation holds if all of its claims hold.
fn judge_claims(claims: &[Claim], before: &Samples, now: &Samples, report: &mut ScenarioReport) {
    for result in &mut report.expectations {
        let own: Vec<&Claim> = claims.iter().filter(|claim| claim.expectation == result.id).collect();
        if own.is_empty() {
            continue;
        }
        result.held = own.iter().all(|claim| claim.holds(before, now));
        let described: Vec<String> = own.iter().map(|claim| claim.describe(before, now)).collect();
        result.measured = described.join(", ");
    }
}

/// Adds the excused rounds to the statements of the expectations that they affect.
fn state_stalls(notes: &Notes, stalled: Stalled, report: &mut ScenarioReport) {
    let Stalled { rounds, of, .. } = stalled;
    for result in &mut report.expectations {
        let is_excused = notes.claims.iter().any(|claim| claim.expectation == result.id && claim.excused > 0.0);
        let may_be_unknown = notes.incident.as_ref().is_some_and(|claim| claim.may_be_unknown);
        if is_excused || (result.id == "incident" && may_be_unknown) {
            let _ = write!(
                result.statement,
                " (but for what is missing or unknown in {rounds} of {of} rounds, in which the drill itself stood still)"
            );
        }
    }
}

async fn judge_incident(probe: &Probe, claim: &IncidentClaim) -> (bool, String) {
    let incidents = match probe.incidents(claim.lock_namespace).await {
        Ok(incidents) => incidents,
        Err(error) => return (false, format!("{error:#}")),
    };
    let of_lock = incidents
        .iter()
        .find(|incident| incident.lock.as_deref() == Some(&claim.key) && incident.operation == claim.operation);
    let Some(incident) = of_lock else {
        return (false, format!("no incident of {} among {}", claim.key, incidents.len()));
    };
    if claim.may_be_unknown && incident.cause == "unknown" {
        return (true, "cause unknown, in a round with a stall".to_owned());
    }
    let are_two = incident.owner.is_some() && incident.next_owner.is_some() && incident.owner != incident.next_owner;
    let owner = |owner: &Option<String>| owner.clone().unwrap_or_else(|| "nobody".to_owned());
    let measured =
        format!("cause {}, owner {}, then {}", incident.cause, owner(&incident.owner), owner(&incident.next_owner));
    (incident.cause == claim.cause && (are_two || !claim.wants_next_owner), measured)
}

/// Measures the time from each event to the first scrape that shows it. Returns the result, a
/// description and the longest time.
fn judge_detection(probe: &Probe, before: &Samples, happened: &[Happened]) -> (bool, String, Option<Duration>) {
    let mut measured = String::new();
    let mut slowest = None;
    let mut held = !happened.is_empty();
    for Happened { what, at, selector } in happened {
        let shown = probe.first_shown(selector, before.sum(selector) + 1.0);
        let separator = if measured.is_empty() { "" } else { ", " };
        let Some(shown) = shown else {
            let _ = write!(measured, "{separator}{what}: not shown");
            held = false;
            continue;
        };
        let after = shown.saturating_duration_since(*at);
        held &= after <= SHOWN_WITHIN;
        slowest = slowest.max(Some(after));
        let _ = write!(measured, "{separator}{what}: {}", seconds(after));
    }
    if let Some(failure) = probe.failure() {
        let _ = write!(measured, " (the last scrape failed: {failure})");
    }
    (held, measured, slowest)
}

fn record_result(report: &mut ScenarioReport, id: &str, held: bool, measured: String) {
    if let Some(result) = report.expectations.iter_mut().find(|result| result.id == id) {
        (result.held, result.measured) = (held, measured);
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::SCENARIOS;
    use super::*;
    use crate::client::scrape::SeriesSelector;

    fn claim(what: &str, labels: &[(&'static str, &str)], count: f64) -> Claim {
        let selector = SeriesSelector::new("redis_lock_releases_total", labels);
        Claim {
            expectation: "keyspace",
            what: what.to_owned(),
            selector,
            at_least: count,
            at_most: count,
            needs_clear_view: false,
            excused: 0.0,
        }
    }

    #[test]
    fn too_few_too_many_and_no_such_series_all_fail() {
        let before = Samples::parse("redis_lock_releases_total{lock_namespace=\"a\"} 5\n");
        let now = Samples::parse("redis_lock_releases_total{lock_namespace=\"a\"} 7\n");
        let check = |labels: &[(&'static str, &str)], count: f64, held: bool, measured: &str| {
            let mut report = ScenarioReport::new(&SCENARIOS[0]);
            judge_claims(&[claim("releases", labels, count)], &before, &now, &mut report);
            let result = report.expectations.iter().find(|result| result.id == "keyspace").unwrap();
            assert_eq!((result.held, result.measured.as_str()), (held, measured));
        };
        let known = [("lock_namespace", "a")];
        check(&known, 2.0, true, "releases: 2 of 2");
        check(&known, 3.0, false, "releases: 2 of 3");
        check(&known, 1.0, false, "releases: 2 of 1");
        check(&[("lock_namespace", "b")], 0.0, false, "releases: the exporter has no such series");
    }

    /// With an excuse, the exporter may show less, but never more. The statement mentions the
    /// excuse.
    #[test]
    fn what_is_missing_in_rounds_with_a_stall() {
        let before = Samples::default();
        let check = |shown: u32, excused: f64, held: bool| {
            let now = Samples::parse(&format!("redis_lock_releases_total{{lock_namespace=\"a\"}} {shown}\n"));
            let claims = vec![Claim { excused, ..claim("releases", &[], 20.0) }];
            let mut report = ScenarioReport::new(&SCENARIOS[0]);
            judge_claims(&claims, &before, &now, &mut report);
            let notes = Notes { claims, ..Notes::default() };
            state_stalls(&notes, Stalled { rounds: 2, of: 20, in_last: false }, &mut report);
            let result = report.expectations.iter().find(|result| result.id == "keyspace").unwrap();
            assert_eq!(result.held, held, "{shown} of 20, {excused} excused");
            assert_eq!(result.statement.contains("in 2 of 20 rounds"), excused > 0.0, "{}", result.statement);
        };
        check(20, 0.0, true);
        check(19, 0.0, false);
        check(21, 0.0, false);
        check(18, 2.0, true);
        check(17, 2.0, false);
        check(21, 2.0, false);
    }

    #[test]
    fn what_was_not_reached_has_not_held() {
        let mut report = ScenarioReport::new(&SCENARIOS[0]);
        report.conclude();
        assert!(!report.held && report.expectations.iter().all(|result| !result.held));
    }
}
