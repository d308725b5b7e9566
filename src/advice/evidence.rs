//! What was seen of the locks of one namespace, whoever saw it: the exporter itself, or Prometheus over a longer time.

use std::time::Duration;

use super::sample::Sample;
use crate::event::{Cause, Label};
use crate::ledger::counters::{LogCounters, Tally};
use crate::observation::OperationsSource;
use crate::snapshot::{KeyspaceView, NamespaceView};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// Seconds from taking a lock to its release or expiry.
    pub holds: Sample,
    /// Shares of the TTL that were left at renewals.
    pub margins: Sample,
    /// Seconds that Redis took to answer.
    pub replies: Sample,
    pub renewals: u64,
    pub expirations: u64,
    /// Of `loop` locks.
    pub early_releases: u64,
    pub takeovers: u64,
    pub takeovers_beyond_slo: u64,
    /// Locks that their holders found gone because the TTL had run out, as their logs say.
    pub lost: u64,
    /// The logs told something about this namespace, so they would have told of lost locks too.
    pub logs_speak: bool,
    /// Every change was seen, not only what differs between two passes.
    pub is_complete: bool,
    /// A pause that a living owner must survive, whether or not one was seen.
    pub pause: Duration,
}

impl Evidence {
    /// What the exporter knows. Nothing where it does not look at the namespace in Redis.
    pub fn of(view: &NamespaceView, replies: &Sample) -> Option<Self> {
        let KeyspaceView { counters, now, .. } = view.keyspace.as_ref()?;
        Some(Self {
            holds: Sample::of(&counters.hold_seconds),
            margins: Sample::of(&counters.renewal_margin_ratio),
            replies: replies.clone(),
            renewals: counters.renewals,
            expirations: counters.expirations,
            early_releases: counters.early_releases,
            takeovers: counters.takeover_seconds.count(),
            takeovers_beyond_slo: counters.takeovers_beyond_slo,
            lost: lost(&view.causes),
            logs_speak: speak(&view.logs),
            is_complete: now.source == Some(OperationsSource::Watch),
            pause: Duration::ZERO,
        })
    }

    /// Locks whose TTL ran out while the work went on. A lock whose owner died runs out too, but nobody missed it: where
    /// the logs speak they tell the two apart, elsewhere all count.
    pub(super) fn cut_off(&self) -> u64 {
        if self.logs_speak { self.lost.min(self.expirations) } else { self.expirations }
    }

    /// Holds that ended because the work was done. Without renewals none of them is longer than one that expired.
    pub(super) fn finished_holds(&self) -> Sample {
        self.holds.without_largest(self.expirations)
    }
}

/// Causes that mean a TTL ran out under somebody's hands.
pub(crate) const EXPIRED: [Cause; 2] = [Cause::ExpiredNeverRenewed, Cause::RenewalsStopped];

fn lost(causes: &Tally<Cause>) -> u64 {
    EXPIRED.iter().map(|cause| causes.get(*cause)).sum()
}

fn speak(logs: &LogCounters) -> bool {
    fn any<L: Label>(tally: &Tally<L>) -> bool {
        tally.total() > 0
    }
    let LogCounters { not_owned, renewal_failures, release_failures, acquire_failures, .. } = logs;
    let LogCounters { abandonments, unlocked_work, conflicting_writes, .. } = logs;
    any(not_owned)
        || any(renewal_failures)
        || any(release_failures)
        || any(acquire_failures)
        || any(conflicting_writes)
        || abandonments + unlocked_work > 0
}
