//! What was observed of the locks of one namespace. The source is the exporter itself, or
//! Prometheus for a longer time range.

use std::time::Duration;

use super::percentile::BucketedSample;
use crate::model::counters::Tally;
use crate::model::failure::{Cause, FailureKind};
use crate::model::sighting::OperationsSource;
use crate::snapshot::{KeyspaceView, NamespaceView};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// Seconds from the acquisition of a lock to its release or expiration.
    pub holds: BucketedSample,
    /// Shares of the TTL that were left at renewals.
    pub margins: BucketedSample,
    /// Seconds that Redis took to answer.
    pub replies: BucketedSample,
    pub renewals: u64,
    pub expirations: u64,
    /// Only for `loop` locks.
    pub early_releases: u64,
    pub takeovers: u64,
    pub takeovers_beyond_slo: u64,
    /// Locks that their holders reported as lost, for a cause that means, or may mean, that the TTL
    /// ran out.
    pub lost: u64,
    /// Whether the logs reported any failed renewals, failed releases or losses. If so, they would
    /// also report lost locks.
    pub logs_speak: bool,
    /// Whether every change was observed, and not only differences between two passes.
    pub is_complete: bool,
    /// A pause that a live owner must survive, even if no such pause was observed.
    pub pause: Duration,
}

impl Evidence {
    /// Returns the evidence in a snapshot. `None` if the namespace is not observed in Redis.
    pub fn of(view: &NamespaceView, replies: &BucketedSample) -> Option<Self> {
        let KeyspaceView { counters, now, .. } = view.keyspace.as_ref()?;
        Some(Self {
            holds: BucketedSample::of(&counters.hold_seconds),
            margins: BucketedSample::of(&counters.renewal_margin_ratio),
            replies: replies.clone(),
            renewals: counters.renewals,
            expirations: counters.expirations,
            early_releases: counters.early_releases,
            takeovers: counters.takeover_seconds.count(),
            takeovers_beyond_slo: counters.takeovers_beyond_slo,
            lost: lost(&view.causes),
            logs_speak: ABOUT_HELD_LOCKS.iter().any(|kind| view.logs.total(*kind) > 0),
            is_complete: now.source.is_some_and(OperationsSource::is_pushed),
            pause: Duration::ZERO,
        })
    }

    /// Returns the number of locks whose TTL ran out while the work continued. The lock of a dead
    /// owner expires too, but nobody needed it any more. If the logs report losses, they
    /// distinguish the two cases. Otherwise all expirations count.
    pub(super) fn cut_off(&self) -> u64 {
        if self.logs_speak { self.lost_by_expiry() } else { self.expirations }
    }

    pub(super) fn lost_by_expiry(&self) -> u64 {
        self.lost.min(self.expirations)
    }

    /// Returns a lower bound of the shortest hold that expired.
    pub(super) fn shortest_expired(&self) -> Option<f64> {
        self.holds.at_least(self.finished_holds().count() + 1)
    }

    /// Returns the holds that ended because the work was done. Without renewals, none of them is
    /// longer than a hold that expired.
    pub(super) fn finished_holds(&self) -> BucketedSample {
        self.holds.without_largest(self.expirations)
    }
}

/// Causes that mean that the TTL ran out while the holder still worked. An unknown cause may mean
/// this: if one process reads the logs and another observes Redis, all causes are unknown. The
/// number of losses is limited to the number of expirations.
pub(crate) const EXPIRED: [Cause; 3] = [Cause::ExpiredNeverRenewed, Cause::RenewalsStopped, Cause::Unknown];

fn lost(causes: &Tally<Cause>) -> u64 {
    EXPIRED.iter().map(|cause| causes.get(*cause)).sum()
}

/// Failures that are reported only if the logs contain lines about renewals or releases. Such logs
/// would also report a lost lock.
pub(crate) const ABOUT_HELD_LOCKS: [FailureKind; 4] =
    [FailureKind::NotOwned, FailureKind::RenewalFailed, FailureKind::ReleaseFailed, FailureKind::Abandoned];
