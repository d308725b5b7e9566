//! The kinds of failures that log lines report, and the causes of lost locks that Redis shows.
//!
//! This file is the only list of the kinds. Rules name a kind, the ledger counts it, the state file
//! saves it, and `exposition`, the API, the pages and `replay` show it; all of them iterate over
//! [`FailureKind::ALL`]. See `docs/decisions/failure-kinds.md` before adding a kind.

use std::fmt;

use crate::model::label::{Label, label_enum};

label_enum! {
    /// What a program reports. The text is the word for `event` in rules, and the event that
    /// `replay`, `check` and the API show. Counters are shown in this order.
    FailureKind {
        /// The lock was lost: a release or renewal was refused because another owner, or nobody,
        /// held the lock.
        NotOwned = "not_owned",
        RenewalFailed = "renewal_failed",
        /// The holder gave up its lock.
        Abandoned = "abandoned",
        ReleaseFailed = "release_failed",
        AcquireFailed = "acquire_failed",
        /// The program worked without a distributed lock because it could not acquire one.
        UnlockedWork = "unlocked_work",
        /// The program reports that a write collided.
        ConflictingWrite = "conflicting_write",
    }
}

/// The properties of a kind of failure.
#[derive(Debug)]
pub struct KindInfo {
    /// The counter. The part between `redis_lock_` and `_total` is its name in the API and in the
    /// state file: never change it.
    pub metric: &'static str,
    pub help: &'static str,
    /// The labels of the counter. The second one, if there is one, distinguishes the failures of a
    /// lock namespace.
    pub labels: &'static [&'static str],
    /// The fields that only some kinds use in a rule.
    pub rule_fields: &'static [RuleField],
}

label_enum! {
    /// A field of a rule that has an effect only with some kinds of failure.
    RuleField { Operation = "operation", Reason = "reason", Conflict = "kind" }
}

label_enum! {
    /// The operation that the program tried on its lock.
    Operation { Release = "release", Renew = "renew", Unknown = "unknown" }
}

label_enum! {
    /// Why an operation on a lock failed. `Canceled` on a renewal is the normal end of the work and
    /// is not a failure.
    Reason {
        NotOwned = "not_owned",
        Busy = "busy",
        RedisUnavailable = "redis_unavailable",
        Failover = "failover",
        Denied = "denied",
        Canceled = "canceled",
        Other = "other",
    }
}

label_enum! {
    /// How a write collided with the work of another holder.
    ConflictKind {
        DuplicateTerminalState = "duplicate_terminal_state",
        StaleWriteRejected = "stale_write_rejected",
        StateConflict = "state_conflict",
    }
}

label_enum! {
    /// Why the holder no longer owned its lock, according to what was observed in Redis.
    Cause {
        /// The TTL ran out and no renewal was observed.
        ExpiredNeverRenewed = "expired_never_renewed",
        /// The TTL ran out after at least one renewal.
        RenewalsStopped = "renewals_stopped",
        /// The key was deleted before its TTL ran out.
        DeletedEarly = "deleted_early",
        /// Another owner overwrote the key before its TTL ran out.
        TakenOver = "taken_over",
        /// The key was gone after a restart or failover of Redis.
        LostInFailover = "lost_in_failover",
        /// Nothing was observed that explains the loss.
        Unknown = "unknown",
    }
}

/// One reported failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    NotOwned(Operation),
    RenewalFailed(Reason),
    /// Contains the reason of the last failed renewal, if the record has one.
    Abandoned(Option<Reason>),
    ReleaseFailed(Reason),
    AcquireFailed(Reason),
    UnlockedWork(Reason),
    ConflictingWrite(ConflictKind),
}

/// What a rule and the record that it matches say about a failure, apart from its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureDetails {
    /// The operation that discovered a loss.
    pub operation: Operation,
    pub conflict: Option<ConflictKind>,
    /// Whether the reason comes from the rule or from an error text. Otherwise it is a guess from
    /// the message.
    pub has_error: bool,
}

impl FailureKind {
    pub const fn info(self) -> &'static KindInfo {
        match self {
            Self::NotOwned => &KindInfo {
                metric: "redis_lock_not_owned_total",
                help: "Releases and renewals refused because the lock no longer held the caller's token.",
                labels: &["lock_namespace", "operation"],
                rule_fields: &[RuleField::Operation],
            },
            Self::RenewalFailed => &KindInfo {
                metric: "redis_lock_renewal_failures_total",
                help: "Failed renewals, by reason.",
                labels: &["lock_namespace", "reason"],
                rule_fields: &[RuleField::Reason],
            },
            Self::Abandoned => &KindInfo {
                metric: "redis_lock_abandonments_total",
                help: "Holders that gave up their lock after failed renewals.",
                labels: &["lock_namespace"],
                rule_fields: &[RuleField::Reason],
            },
            Self::ReleaseFailed => &KindInfo {
                metric: "redis_lock_release_failures_total",
                help: "Failed releases, by reason.",
                labels: &["lock_namespace", "reason"],
                rule_fields: &[RuleField::Reason],
            },
            Self::AcquireFailed => &KindInfo {
                metric: "redis_lock_acquire_failures_total",
                help: "Failed attempts to acquire a lock, by reason.",
                labels: &["lock_namespace", "reason"],
                rule_fields: &[RuleField::Reason],
            },
            Self::UnlockedWork => &KindInfo {
                metric: "redis_lock_unlocked_work_total",
                help: "Work done without a lock because it could not be acquired.",
                labels: &["lock_namespace"],
                rule_fields: &[RuleField::Reason],
            },
            Self::ConflictingWrite => &KindInfo {
                metric: "redis_lock_conflicting_writes_total",
                help: "Writes that collided with another holder's, by kind.",
                labels: &["lock_namespace", "kind"],
                rule_fields: &[RuleField::Conflict],
            },
        }
    }

    /// The name of the counter in the API and in the state file.
    pub fn counter(self) -> &'static str {
        self.info().metric.trim_start_matches("redis_lock_").trim_end_matches("_total")
    }

    /// Whether the counter distinguishes failures of this kind by a label.
    pub fn has_label(self) -> bool {
        self.info().labels.len() > 1
    }

    /// One failure for each series of the counter, in the order of the label values.
    pub fn all_failures(self) -> Vec<Failure> {
        let by_reason = |failure: fn(Reason) -> Failure| Reason::ALL.iter().copied().map(failure).collect();
        match self {
            Self::NotOwned => Operation::ALL.iter().copied().map(Failure::NotOwned).collect(),
            Self::RenewalFailed => by_reason(Failure::RenewalFailed),
            Self::Abandoned => vec![Failure::Abandoned(None)],
            Self::ReleaseFailed => by_reason(Failure::ReleaseFailed),
            Self::AcquireFailed => by_reason(Failure::AcquireFailed),
            Self::UnlockedWork => vec![Failure::UnlockedWork(Reason::Other)],
            Self::ConflictingWrite => ConflictKind::ALL.iter().copied().map(Failure::ConflictingWrite).collect(),
        }
    }
}

impl Failure {
    /// Returns what a rule of this kind reports. `None` if there is nothing to count. A loss that a
    /// known operation discovered is a failure of that operation, with [`Reason::NotOwned`].
    pub fn from_rule(kind: FailureKind, details: FailureDetails, reason: impl FnOnce() -> Reason) -> Option<Self> {
        let failure = match kind {
            FailureKind::NotOwned => match details.operation {
                Operation::Release => Self::ReleaseFailed(Reason::NotOwned),
                Operation::Renew => Self::RenewalFailed(Reason::NotOwned),
                Operation::Unknown => Self::NotOwned(Operation::Unknown),
            },
            FailureKind::RenewalFailed => Self::RenewalFailed(reason()),
            FailureKind::Abandoned => Self::Abandoned(details.has_error.then(reason)),
            FailureKind::ReleaseFailed => Self::ReleaseFailed(reason()),
            FailureKind::AcquireFailed => Self::AcquireFailed(reason()),
            FailureKind::UnlockedWork => Self::UnlockedWork(reason()),
            FailureKind::ConflictingWrite => Self::ConflictingWrite(details.conflict?),
        };
        (!failure.is_normal_end()).then_some(failure)
    }

    pub fn kind(self) -> FailureKind {
        match self {
            Self::NotOwned(_) => FailureKind::NotOwned,
            Self::RenewalFailed(_) => FailureKind::RenewalFailed,
            Self::Abandoned(_) => FailureKind::Abandoned,
            Self::ReleaseFailed(_) => FailureKind::ReleaseFailed,
            Self::AcquireFailed(_) => FailureKind::AcquireFailed,
            Self::UnlockedWork(_) => FailureKind::UnlockedWork,
            Self::ConflictingWrite(_) => FailureKind::ConflictingWrite,
        }
    }

    /// The value of the second of [`KindInfo::labels`].
    pub fn label_value(self) -> Option<&'static str> {
        match self {
            Self::NotOwned(operation) => Some(operation.as_str()),
            Self::RenewalFailed(reason) | Self::ReleaseFailed(reason) | Self::AcquireFailed(reason) => {
                Some(reason.as_str())
            }
            Self::ConflictingWrite(kind) => Some(kind.as_str()),
            Self::Abandoned(_) | Self::UnlockedWork(_) => None,
        }
    }

    /// The index of the series in [`FailureKind::all_failures`].
    pub fn series(self) -> usize {
        let all = self.kind().all_failures();
        all.iter().position(|failure| failure.label_value() == self.label_value()).unwrap_or_default()
    }

    /// The word for a counted failure in `replay`, `check` and the API. Each kind of conflict has
    /// its own.
    pub fn event_name(self) -> &'static str {
        match self {
            Self::ConflictingWrite(kind) => kind.as_str(),
            other => other.kind().as_str(),
        }
    }

    /// The operation that failed or discovered the failure.
    pub fn operation_name(self) -> Option<&'static str> {
        match self {
            Self::NotOwned(operation) => Some(operation.as_str()),
            Self::RenewalFailed(_) | Self::Abandoned(_) => Some(Operation::Renew.as_str()),
            Self::ReleaseFailed(_) => Some(Operation::Release.as_str()),
            Self::AcquireFailed(_) | Self::UnlockedWork(_) => Some("acquire"),
            Self::ConflictingWrite(_) => None,
        }
    }

    pub fn reason(self) -> Option<Reason> {
        match self {
            Self::NotOwned(_) => Some(Reason::NotOwned),
            Self::RenewalFailed(reason)
            | Self::ReleaseFailed(reason)
            | Self::AcquireFailed(reason)
            | Self::UnlockedWork(reason) => Some(reason),
            Self::Abandoned(reason) => reason,
            Self::ConflictingWrite(_) => None,
        }
    }

    /// Lines with the same topic about the same lock may belong to one failure. The topic is hashed
    /// into the state file: never change it.
    pub fn join_topic(self) -> &'static str {
        match self {
            Self::NotOwned(Operation::Release) => "release_loss",
            Self::NotOwned(Operation::Renew) => "renewal_loss",
            Self::NotOwned(Operation::Unknown) => "unknown_loss",
            Self::RenewalFailed(_) => "renewal",
            Self::Abandoned(_) => "abandonment",
            Self::ReleaseFailed(_) => "release",
            Self::AcquireFailed(_) => "acquire",
            Self::UnlockedWork(_) => "unlocked_work",
            Self::ConflictingWrite(kind) => kind.as_str(),
        }
    }

    /// The operation that discovered that the lock was lost, if this failure reports a loss.
    pub fn loss(self) -> Option<Operation> {
        match self {
            Self::NotOwned(operation) => Some(operation),
            Self::ReleaseFailed(Reason::NotOwned) => Some(Operation::Release),
            Self::RenewalFailed(Reason::NotOwned) => Some(Operation::Renew),
            _ => None,
        }
    }

    /// Another failure that the same line reports.
    pub fn implied(self) -> Option<Self> {
        match self {
            Self::Abandoned(reason) => reason.map(Self::RenewalFailed),
            Self::UnlockedWork(reason) => Some(Self::AcquireFailed(reason)),
            _ => None,
        }
    }

    /// The work is done and its context was canceled during a renewal. That is not a failure.
    pub fn is_normal_end(self) -> bool {
        self == Self::RenewalFailed(Reason::Canceled)
    }

    /// The lock was taken, or the program stopped waiting for it. Such failures are counted but are
    /// no sign of a problem.
    pub fn is_expected(self) -> bool {
        matches!(self, Self::AcquireFailed(Reason::Busy | Reason::Canceled))
    }

    /// Whether the reason does not fit the operation: only an acquisition finds the lock busy, and
    /// an acquisition cannot lose a lock.
    pub fn is_contradictory(self) -> bool {
        matches!(
            self,
            Self::RenewalFailed(Reason::Busy)
                | Self::ReleaseFailed(Reason::Busy)
                | Self::AcquireFailed(Reason::NotOwned)
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_kind_has_its_own_counter_and_join_topics() {
        let (mut counters, mut topics) = (BTreeSet::new(), BTreeSet::new());
        for kind in FailureKind::ALL {
            assert_eq!(kind.info().metric, format!("redis_lock_{}_total", kind.counter()));
            assert!(counters.insert(kind.counter()), "{kind}");
            let own: BTreeSet<&str> = kind.all_failures().iter().map(|failure| failure.join_topic()).collect();
            for topic in own {
                assert!(topics.insert(topic), "{kind} {topic}");
            }
        }
    }

    #[test]
    fn the_failures_of_a_kind_are_its_series() {
        for kind in FailureKind::ALL {
            for (series, failure) in kind.all_failures().into_iter().enumerate() {
                assert_eq!((failure.kind(), failure.series()), (*kind, series));
                assert_eq!(failure.label_value().is_some(), kind.has_label(), "{kind}");
            }
        }
    }
}
