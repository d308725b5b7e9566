//! Compares what the fleet did with what the exporter, Prometheus and Alertmanager reported. `demo`
//! prints it at the end.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::alerts::Alert;
use super::demo_run::DemoRun;
use super::receiver::Notification;
use crate::cli::DemoIncident;
use crate::rehearsal::fleet::cordum::Totals;
use crate::rehearsal::fleet::{Comparison, Failures, Truth};

/// Some locks live for a tenth of a second, and the exporter sees them only through pushes. On a
/// busy machine it reads several changes at once and counts only what is certain, so it may count
/// less than happened (docs/architecture.md, "How exact").
const UNSEEN_SHARE: f64 = 0.1;
const UNSEEN_AT_LEAST: u64 = 3;
/// A release at the last moment before its deadline can appear as an expiration.
const MISTAKEN_ENDS: u64 = 3;

#[derive(Debug, Serialize)]
pub(super) struct DemoSummary {
    speed: u32,
    seconds: f64,
    /// Whether the fleet had stopped, so that all counts could arrive.
    is_final: bool,
    incident: Option<DemoIncident>,
    fleet: FleetSummary,
    /// The counts from logs, series by series.
    logs: Vec<Comparison>,
    /// The counts from Redis, by lock namespace.
    locks: Vec<LockComparison>,
    /// Why locks were not owned, as found by the exporter.
    causes: BTreeMap<String, u64>,
    alerts: Vec<Alert>,
    notifications: Vec<Notification>,
    saw_the_incident: Saw,
    agreement: Agreement,
}

#[derive(Debug, Default, Serialize)]
struct FleetSummary {
    acquisitions: u64,
    renewals: u64,
    releases: u64,
    expirations: u64,
    refused: u64,
    /// Requests without a reply. It is unknown whether Redis executed them.
    unanswered: u64,
    lost_in_failover: u64,
}

#[derive(Debug, Serialize)]
struct LockComparison {
    lock_namespace: &'static str,
    what: &'static str,
    truth: u64,
    counted: u64,
}

/// Which programs reported the incident. `None` for a program that was not running.
#[derive(Debug, Serialize)]
struct Saw {
    fleet: bool,
    exporter: bool,
    prometheus: Option<bool>,
    alertmanager: Option<bool>,
}

#[derive(Debug, Serialize)]
struct Agreement {
    logs: bool,
    /// `None` if the fleet itself does not know: after a failover, or after many requests without a
    /// reply.
    locks: Option<bool>,
}

/// What an incident should lead to.
struct ExpectedAlerts {
    /// The metric that the logs should increase.
    metric: &'static str,
    alerts: &'static [&'static str],
    severity: &'static str,
    /// The causes of most lost locks. Empty if the incident need not cost any locks.
    causes: &'static [&'static str],
}

fn expectation(incident: DemoIncident) -> ExpectedAlerts {
    match incident {
        DemoIncident::Pauses => ExpectedAlerts {
            metric: "not_owned",
            alerts: &["RedisLockNotOwnedRatioHigh"],
            severity: "critical",
            // Locks that were renewed before the freeze, and locks that were not.
            causes: &["renewals_stopped", "expired_never_renewed"],
        },
        DemoIncident::SlowNetwork => ExpectedAlerts {
            metric: "unlocked_work",
            alerts: &["RedisLockRenewalFailureRatioHigh", "RedisLockUnlockedWork"],
            severity: "critical",
            // A slow network shows in errors. Programs that wait for Redis do not lose locks to
            // others.
            causes: &[],
        },
        // One failover does not justify a page.
        DemoIncident::Failover => ExpectedAlerts {
            metric: "not_owned",
            alerts: &["RedisLockFailoverObserved"],
            severity: "info",
            causes: &["lost_in_failover"],
        },
    }
}

impl DemoSummary {
    pub(super) fn of(demo: &DemoRun) -> Self {
        let totals = demo.fleet.totals();
        let scrape = demo.latest.as_ref().and_then(|observation| observation.seen.as_ref());
        let counted = scrape.map(|seen| seen.failures.clone()).unwrap_or_default();
        let mut causes = BTreeMap::new();
        let mut locks = Vec::new();
        for (namespace, truth) in &totals.locks {
            let seen = scrape.map(|seen| seen.locks(namespace)).unwrap_or_default();
            locks.extend(compare(namespace, truth, &seen));
            for (cause, count) in scrape.map(|seen| seen.causes(namespace)).unwrap_or_default() {
                *causes.entry(cause).or_default() += count;
            }
        }
        let logs = totals.failures.compare(&counted);
        let agreement = Agreement {
            logs: logs.iter().all(|line| agrees(line, totals.ambiguous)),
            locks: is_known(&totals).then(|| locks.iter().all(|line| line.agrees(totals.unanswered))),
        };
        Self {
            speed: demo.time_scale.speed(),
            seconds: demo.elapsed().as_secs_f64().round(),
            is_final: demo.is_over,
            incident: demo.incidents.first().map(|(_, incident)| *incident),
            saw_the_incident: saw(demo, &totals, &counted, &causes),
            fleet: FleetSummary::of(&totals),
            logs,
            locks,
            causes,
            alerts: demo.alerts.0.clone(),
            notifications: demo.notifications.iter().map(|(_, notification)| notification.clone()).collect(),
            agreement,
        }
    }

    /// Whether the exporter has counted everything.
    pub(super) fn is_settled(&self) -> bool {
        self.agreement.logs && self.agreement.locks != Some(false)
    }

    /// Whether every running program reported the incident, and the exporter counted what happened.
    pub(super) fn is_complete(&self) -> bool {
        let Saw { fleet, exporter, prometheus, alertmanager } = self.saw_the_incident;
        fleet && exporter && prometheus != Some(false) && alertmanager != Some(false) && self.is_settled()
    }

    pub(super) fn to_text(&self) -> String {
        let FleetSummary { acquisitions, renewals, releases, expirations, refused, unanswered, .. } = self.fleet;
        let mut text = format!(
            "The fleet took {acquisitions} locks, renewed them {renewals} times, released {releases} and let {expirations} expire; \
             {refused} releases and renewals were refused, {unanswered} requests got no answer.\n"
        );
        let Some(incident) = self.incident else {
            text.push_str("There was no incident yet.\n");
            return text;
        };
        let n_failures: u64 = self.logs.iter().map(|line| line.truth).sum();
        let n_counted: u64 = self.logs.iter().map(|line| line.counted).sum();
        let _ = match (self.is_final, self.agreement.logs) {
            (_, true) => {
                writeln!(text, "Logs reported {n_failures} failures, and the exporter counted each of them once.")
            }
            (false, false) => {
                writeln!(
                    text,
                    "Logs reported {n_failures} failures, of which the exporter had counted {n_counted} when it ended."
                )
            }
            (true, false) => {
                writeln!(text, "Logs reported {n_failures} failures, and they were not counted correctly:")
            }
        };
        if self.is_final {
            self.write_differences(&mut text);
        }
        let causes: Vec<String> = self.causes.iter().map(|(cause, count)| format!("{cause} {count}")).collect();
        if !causes.is_empty() {
            let _ = writeln!(text, "Why locks were not owned: {}.", causes.join(", "));
        }
        for alert in self.alerts.iter().filter(|alert| alert.firing.is_some() && alert.name.severity != "info") {
            let _ = writeln!(text, "{} fired. {}", alert.name, alert.description);
        }
        let answer = |seen: Option<bool>| match seen {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "was not there",
        };
        let Saw { fleet, exporter, prometheus, alertmanager } = self.saw_the_incident;
        let _ = writeln!(
            text,
            "Saw the incident ({incident:?}): fleet {}, exporter {}, Prometheus {}, Alertmanager {}.",
            answer(Some(fleet)),
            answer(Some(exporter)),
            answer(prometheus),
            answer(alertmanager),
        );
        text
    }

    fn write_differences(&self, text: &mut String) {
        for line in self.logs.iter().filter(|line| line.truth != line.counted) {
            let _ = writeln!(text, "  {} instead of {}: {}", line.counted, line.truth, line.series);
        }
        for line in self.locks.iter().filter(|line| line.truth != line.counted) {
            let LockComparison { lock_namespace, what, truth, counted } = line;
            let _ = writeln!(text, "  {lock_namespace}: the exporter saw {counted} {what}, the fleet knows of {truth}");
        }
    }
}

impl LockComparison {
    fn agrees(&self, unanswered: u64) -> bool {
        let unseen = (self.truth as f64 * UNSEEN_SHARE) as u64;
        let least = self.truth.saturating_sub(unanswered + unseen.max(UNSEEN_AT_LEAST));
        (least..=self.truth + unanswered + MISTAKEN_ENDS).contains(&self.counted)
    }
}

impl FleetSummary {
    fn of(totals: &Totals) -> Self {
        let mut summary =
            Self { unanswered: totals.unanswered, lost_in_failover: totals.lost_in_failover, ..Self::default() };
        for truth in totals.locks.values() {
            summary.acquisitions += truth.acquisitions;
            summary.renewals += truth.renewals;
            summary.releases += truth.releases;
            summary.expirations += truth.expirations;
            summary.refused += truth.refused;
        }
        summary
    }
}

/// The numbers must be equal. Only acquire failures may differ, by the number of failures that are
/// ambiguous because two replicas failed to get the same lock at the same time.
fn agrees(line: &Comparison, ambiguous: u64) -> bool {
    let is_ambiguous = line.series.starts_with("redis_lock_acquire_failures_total");
    line.truth.abs_diff(line.counted) <= if is_ambiguous { ambiguous } else { 0 }
}

/// Whether the fleet knows exactly what happened in Redis. After a failover it does not, and the
/// exporter also saw nothing for a moment.
fn is_known(totals: &Totals) -> bool {
    let acquisitions: u64 = totals.locks.values().map(|truth| truth.acquisitions).sum();
    totals.lost_in_failover == 0 && totals.unanswered * 100 <= acquisitions
}

fn compare(namespace: &'static str, truth: &Truth, seen: &Truth) -> [LockComparison; 4] {
    [
        ("acquisitions", truth.acquisitions, seen.acquisitions),
        ("renewals", truth.renewals, seen.renewals),
        ("releases", truth.releases, seen.releases),
        ("expirations", truth.expirations, seen.expirations),
    ]
    .map(|(what, truth, counted)| LockComparison { lock_namespace: namespace, what, truth, counted })
}

fn saw(demo: &DemoRun, totals: &Totals, counted: &Failures, causes: &BTreeMap<String, u64>) -> Saw {
    let Some((_, incident)) = demo.incidents.first() else {
        let is_there = |is_there: bool| is_there.then_some(false);
        let (prometheus, alertmanager) = (is_there(demo.prometheus.is_some()), is_there(demo.alertmanager.is_some()));
        return Saw { fleet: false, exporter: false, prometheus, alertmanager };
    };
    let ExpectedAlerts { metric, alerts, severity, causes: expected } = expectation(*incident);
    let fired = demo.alerts.0.iter().any(|alert| {
        alert.firing.is_some() && alert.name.severity == severity && alerts.contains(&alert.name.alert.as_str())
    });
    let was_told = demo.notifications.iter().any(|(_, notification)| {
        notification.status == "firing"
            && notification.alert.severity == severity
            && alerts.contains(&notification.alert.alert.as_str())
    });
    Saw {
        fleet: totals.failures.total(metric, None) > 0,
        exporter: counted.total(metric, None) > 0 && is_explained(causes, expected),
        prometheus: demo.prometheus.as_ref().map(|_| fired),
        // Alertmanager sends no notifications for alerts of severity `info`.
        alertmanager: demo.alertmanager.as_ref().filter(|_| severity != "info").map(|_| was_told),
    }
}

/// Whether most of the lost locks have one of the expected causes.
fn is_explained(causes: &BTreeMap<String, u64>, expected: &[&str]) -> bool {
    let all: u64 = causes.values().sum();
    let right: u64 = expected.iter().filter_map(|cause| causes.get(*cause)).sum();
    expected.is_empty() || right * 2 > all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_causes_must_be_the_expected_ones() {
        let check = |causes: &[(&str, u64)], incident, explained| {
            let causes = causes.iter().map(|(cause, count)| ((*cause).to_owned(), *count)).collect();
            assert_eq!(is_explained(&causes, expectation(incident).causes), explained, "{causes:?}");
        };
        check(&[("renewals_stopped", 3), ("expired_never_renewed", 2), ("unknown", 4)], DemoIncident::Pauses, true);
        check(&[("renewals_stopped", 1), ("deleted_early", 5)], DemoIncident::Pauses, false);
        check(&[("unknown", 5)], DemoIncident::Pauses, false);
        check(&[], DemoIncident::Pauses, false);
        check(&[("lost_in_failover", 3), ("unknown", 2)], DemoIncident::Failover, true);
        check(&[("renewals_stopped", 3)], DemoIncident::Failover, false);
        check(&[], DemoIncident::SlowNetwork, true);
    }
}
