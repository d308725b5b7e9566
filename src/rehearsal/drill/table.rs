//! The scenarios: what each one rehearses, in which lock namespaces, and what is expected of it.
//! The drill prints the expectations before anything runs.

use std::time::Duration;

use crate::cli::DrillScenario;

/// Who must prove an expectation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EvidenceSource {
    /// The workers and Redis: what really happened.
    Workers,
    /// The exporter: what it shows.
    Exporter,
    /// Prometheus: which alerts fire.
    Alerts,
}

impl EvidenceSource {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Workers => "workers",
            Self::Exporter => "exporter",
            Self::Alerts => "alerts",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Expectation {
    pub(super) id: &'static str,
    pub(super) side: EvidenceSource,
    pub(super) statement: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct NamespaceSpec {
    pub(super) name: &'static str,
    /// What the drill's workers do when they cannot renew.
    pub(super) policy: &'static str,
    pub(super) is_loop: bool,
}

/// The page that must come if the failure lasts for `after`, and must not come if it is shorter
/// than `not_before`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    pub(super) alert: &'static str,
    pub(super) lock_namespace: &'static str,
    /// Other alerts that may page for the scenario's lock namespaces, because other rules also
    /// detect the same failure.
    pub(super) along: &'static [&'static str],
    /// With the bundled rules. A failure that lasts at least this long must page. Between
    /// `not_before` and this time it may page.
    pub(super) after: Duration,
    /// A shorter failure must not page.
    pub(super) not_before: Duration,
}

#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) rehearses: &'static str,
    pub(super) namespaces: &'static [NamespaceSpec],
    pub(super) expectations: &'static [Expectation],
    pub(super) page: Option<Page>,
    pub(super) kind: DrillScenario,
}

const fn workers(id: &'static str, statement: &'static str) -> Expectation {
    Expectation { id, side: EvidenceSource::Workers, statement }
}

const fn exporter(id: &'static str, statement: &'static str) -> Expectation {
    Expectation { id, side: EvidenceSource::Exporter, statement }
}

const fn item(name: &'static str, policy: &'static str) -> NamespaceSpec {
    NamespaceSpec { name, policy, is_loop: false }
}

/// More than a few percent of all operations fail for 7 of 10 minutes, plus a margin for scrapes
/// and evaluations.
const RATIO_PAGE: Duration = Duration::from_secs(9 * 60);
/// A shorter burst cannot page, at any traffic.
const LONGEST_BURST: Duration = Duration::from_secs(150);

/// A refused renewal also counts as a failed one. Work that is finished twice, repeatedly, pages by
/// itself. `along` lists these other alerts.
const fn lost_locks(lock_namespace: &'static str, along: &'static [&'static str]) -> Option<Page> {
    let (after, not_before) = (RATIO_PAGE, LONGEST_BURST);
    Some(Page { alert: "RedisLockNotOwnedRatioHigh", lock_namespace, along, after, not_before })
}

const RELEASES: &[&str] = &["RedisLockNotOwnedRateHigh"];
const RENEWALS: &[&str] = &["RedisLockNotOwnedRateHigh", "RedisLockRenewalFailureRatioHigh"];
const WRITES: &[&str] =
    &["RedisLockNotOwnedRateHigh", "RedisLockRenewalFailureRatioHigh", "RedisLockDuplicateTerminalState"];

const COUNTED: Expectation =
    exporter("keyspace", "counts exactly the acquisitions, renewals, releases and expiries that happened");
const PAUSED: Expectation =
    workers("paused", "the process is stopped for longer than its TTL, according to the kernel, and reports nothing");
const FENCED_WRITE: Expectation =
    workers("fenced-write", "storage that compares the fence rejects the stale write, and keeps the new owner's");
const UNFENCED_WRITE: Expectation = workers(
    "unfenced-write",
    "storage without a fence takes the stale write over the new owner's: shown, not prevented by the lock",
);
const CONFLICTS: Expectation =
    exporter("conflicts", "counts the rejected stale write and the work that was finished twice");
const REFUSALS: Expectation = exporter("refusals", "counts every refused operation, once, by operation");
const DETECTED: Expectation = exporter("detection", "shows it within 15 s of its happening");

pub(super) static SCENARIOS: [Scenario; 10] = [
    Scenario {
        name: "stale-release",
        rehearses: "a worker outlives its TTL, another one takes over, and the first one releases a lock that is no longer its own",
        namespaces: &[item("drill-stale-release", "fence")],
        expectations: &[
            workers(
                "takeover",
                "the second worker gets the lock within the takeover SLO after the first one's last sign of life",
            ),
            workers("refused", "the stale release is refused"),
            workers("kept", "the new owner still has its lock after the stale release, and can release it"),
            workers("overlap", "both believed to hold the lock for a time, which is measured"),
            COUNTED,
            REFUSALS,
            exporter("cause", "reports that the lock was lost because it expired and was never renewed"),
            exporter("incident", "names the very lock, and two different owners"),
            exporter("takeover-seen", "counts the takeover as within the SLO"),
            DETECTED,
        ],
        page: lost_locks("drill-stale-release", RELEASES),
        kind: DrillScenario::StaleRelease,
    },
    Scenario {
        name: "renewal-failure",
        rehearses: "renewals get no answer: one worker fences itself after three of them, the other one continues",
        namespaces: &[item("drill-renewal-fence", "fence"), item("drill-renewal-continue", "continue")],
        expectations: &[
            workers(
                "fenced",
                "with the policy `fence` the worker stops itself after 3 failed renewals, before its TTL runs out",
            ),
            workers(
                "no-overlap",
                "with the policy `fence` two workers never believe to hold the lock, although the next one tries all the time",
            ),
            workers(
                "overlap",
                "with the policy `continue` both believe to hold the lock for a time, which is measured",
            ),
            workers("takeover", "the next worker gets each lock within the takeover SLO"),
            COUNTED,
            exporter(
                "failures",
                "counts failed renewals of both with the reason redis_unavailable (those of one lock within the join window are one)",
            ),
            exporter("abandoned", "counts the abandonment of the fenced worker, and none of the other"),
            REFUSALS,
            exporter("cause", "reports that the lock of the worker that continued was lost because renewals stopped"),
            DETECTED,
        ],
        page: Some(Page {
            alert: "RedisLockRenewalFailureRatioHigh",
            lock_namespace: "drill-renewal-continue",
            along: &[
                // Alerts about the fenced worker, which stops itself in every round.
                "RedisLockRenewalFailureRatioHigh",
                "RedisLockAbandoned",
                // Alerts about the worker that carries on, whose release is refused in every round.
                "RedisLockNotOwnedRatioHigh",
                "RedisLockNotOwnedRateHigh",
            ],
            after: RATIO_PAGE,
            not_before: LONGEST_BURST,
        }),
        kind: DrillScenario::RenewalFailure,
    },
    Scenario {
        name: "combined",
        rehearses: "renewals fail, the TTL runs out, another worker takes over, then a stale renewal and a stale release, in one run",
        namespaces: &[item("drill-combined", "continue")],
        expectations: &[
            workers(
                "takeover",
                "the second worker gets the lock within the takeover SLO after the first one's last renewal",
            ),
            workers("renewal-refused", "the stale renewal is refused"),
            workers("release-refused", "the stale release is refused"),
            workers("kept", "the new owner still has its lock after both, and can release it"),
            workers("overlap", "both believed to hold the lock for a time, which is measured"),
            COUNTED,
            exporter("failures", "counts the failed renewals (those of one lock within the join window are one)"),
            REFUSALS,
            exporter("cause", "reports for both rejections that renewals had stopped"),
            DETECTED,
        ],
        page: lost_locks("drill-combined", RENEWALS),
        kind: DrillScenario::Combined,
    },
    Scenario {
        name: "pause",
        rehearses: "a worker process stands still beyond its TTL (SIGSTOP, as a long GC pause), wakes up and writes",
        namespaces: &[item("drill-pause", "continue")],
        expectations: &[
            PAUSED,
            workers("takeover", "another worker gets the lock within the takeover SLO"),
            FENCED_WRITE,
            UNFENCED_WRITE,
            workers("refused", "the renewal and the release after waking up are refused"),
            COUNTED,
            REFUSALS,
            CONFLICTS,
            exporter("cause", "reports for both rejections that renewals had stopped"),
            DETECTED,
        ],
        page: lost_locks("drill-pause", WRITES),
        kind: DrillScenario::Pause,
    },
    Scenario {
        name: "delay",
        rehearses: "the network between a worker and Redis delays everything by more than the TTL",
        namespaces: &[item("drill-delay", "continue")],
        expectations: &[
            workers("delayed", "a renewal takes longer than the TTL to be answered"),
            workers("takeover", "another worker gets the lock within the takeover SLO"),
            workers("refused", "the renewal and the release that arrive late are refused"),
            workers("kept", "the new owner still has its lock after both, and can release it"),
            workers("overlap", "both believed to hold the lock for a time, which is measured"),
            COUNTED,
            REFUSALS,
            exporter("cause", "reports for both rejections that the lock expired and was never renewed"),
            DETECTED,
        ],
        page: lost_locks("drill-delay", RENEWALS),
        kind: DrillScenario::Delay,
    },
    Scenario {
        name: "pause-and-delay",
        rehearses: "both at once: a worker process stands still beyond its TTL, and when it wakes up the network is slow",
        namespaces: &[item("drill-pause-and-delay", "continue")],
        expectations: &[
            PAUSED,
            workers("delayed", "what it does then takes longer than the TTL to be answered"),
            workers("takeover", "another worker gets the lock within the takeover SLO"),
            FENCED_WRITE,
            UNFENCED_WRITE,
            workers("refused", "the renewal and the release after waking up are refused"),
            COUNTED,
            REFUSALS,
            CONFLICTS,
            exporter("cause", "reports for both rejections that renewals had stopped"),
            DETECTED,
        ],
        page: lost_locks("drill-pause-and-delay", WRITES),
        kind: DrillScenario::PauseAndDelay,
    },
    Scenario {
        name: "crash-takeover",
        rehearses: "the process of a holder is killed (SIGKILL), and another worker has to take over",
        namespaces: &[item("drill-crash-takeover", "fence")],
        expectations: &[
            workers("takeover", "the next worker gets the lock within the takeover SLO after the last sign of life"),
            workers(
                "no-overlap",
                "two workers never believe to hold the lock, although the next one tries all the time",
            ),
            COUNTED,
            exporter("silence", "counts no refused operation: the dead write no lines"),
            exporter("takeover-seen", "counts the takeover as within the SLO, and measures it to within half a second"),
            DETECTED,
        ],
        page: None,
        kind: DrillScenario::CrashTakeover,
    },
    Scenario {
        name: "blind-delete",
        rehearses: "a worker that never had the lock deletes it with a plain DEL: the silent bug",
        namespaces: &[item("drill-blind-delete", "continue")],
        expectations: &[
            workers("deleted", "the plain DEL of another owner's lock succeeds, and its holder is not notified"),
            workers("overlap", "the next worker gets the lock while its holder still works: the overlap is measured"),
            workers("refused", "the holder finds out by its next renewal and its release, which are refused"),
            COUNTED,
            REFUSALS,
            exporter("cause", "reports for both rejections that the lock was deleted early"),
            exporter("incident", "names the very lock, and two different owners"),
            DETECTED,
        ],
        page: lost_locks("drill-blind-delete", RENEWALS),
        kind: DrillScenario::BlindDelete,
    },
    Scenario {
        name: "leader-loss",
        rehearses: "the leader of a loop dies and nobody acquires its lock",
        namespaces: &[NamespaceSpec { name: "drill-leader-loss", policy: "continue", is_loop: true }],
        expectations: &[
            workers(
                "absent",
                "nobody holds the lock for longer than twice its TTL, at any check, then a new leader acquires it",
            ),
            COUNTED,
            exporter("silence", "counts no rejected operation: nobody writes a line"),
            exporter("absent-seen", "knows to within a second since when nobody leads"),
            exporter("takeover-seen", "counts the takeover as beyond the SLO"),
            DETECTED,
        ],
        page: Some(Page {
            alert: "RedisLockLeaderAbsent",
            lock_namespace: "drill-leader-loss",
            along: &[],
            // `leader_absent` is 5 minutes, and the alert waits for 2 more minutes.
            after: Duration::from_secs(8 * 60),
            not_before: Duration::from_secs(7 * 60),
        }),
        kind: DrillScenario::LeaderLoss,
    },
    Scenario {
        name: "redis-failover",
        rehearses: "a primary fails before it has replicated a lock; its replica takes over without it (always on \
             two servers that the drill starts, watched by a separate exporter)",
        namespaces: &[item("drill-redis-failover", "continue")],
        expectations: &[
            workers("lost", "the lock that was not replicated is free on the new primary while its holder still works"),
            workers("overlap", "another worker gets that lock: both believed to hold it for a time, which is measured"),
            workers("survived", "the lock that was replicated is still its holder's, who can release it"),
            workers("refused", "the release of the lost lock is refused"),
            exporter("failover-seen", "counts a failover of Redis"),
            REFUSALS,
            exporter("cause", "reports that the lock was lost in a failover"),
            exporter("incident", "names the very lock"),
            DETECTED,
        ],
        // Prometheus does not scrape the exporter of this scenario.
        page: None,
        kind: DrillScenario::RedisFailover,
    },
];

/// The names of the scenarios, in the order in which they run.
pub const NAMES: [&str; SCENARIOS.len()] = {
    let mut names = [""; SCENARIOS.len()];
    let mut number = 0;
    while number < names.len() {
        names[number] = SCENARIOS[number].name;
        number += 1;
    }
    names
};

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn the_command_line_names_every_scenario() {
        let values = DrillScenario::value_variants();
        assert_eq!(values, SCENARIOS.each_ref().map(|scenario| scenario.kind));
        let names = values.iter().map(|value| value.to_possible_value().unwrap().get_name().to_owned());
        assert_eq!(names.collect::<Vec<_>>(), NAMES);
    }

    #[test]
    fn expectations_are_told_apart() {
        for scenario in &SCENARIOS {
            let mut ids: Vec<&str> = scenario.expectations.iter().map(|expectation| expectation.id).collect();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), scenario.expectations.len(), "{}", scenario.name);
            assert!(scenario.namespaces.iter().all(|namespace| namespace.name.starts_with("drill-")));
        }
    }
}
