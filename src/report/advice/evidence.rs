//! What was seen of the locks of one namespace, whoever saw it: the exporter itself, or Prometheus over a longer time.

use std::time::Duration;

use super::percentile::BucketedSample;
use crate::model::counters::{LogCounters, Tally};
use crate::model::failure::Cause;
use crate::model::sighting::OperationsSource;
use crate::snapshot::{KeyspaceView, NamespaceView};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// Seconds from taking a lock to its release or expiry.
    pub holds: BucketedSample,
    /// Shares of the TTL that were left at renewals.
    pub margins: BucketedSample,
    /// Seconds that Redis took to answer.
    pub replies: BucketedSample,
    pub renewals: u64,
    pub expirations: u64,
    /// Of `loop` locks.
    pub early_releases: u64,
    pub takeovers: u64,
    pub takeovers_beyond_slo: u64,
    /// Locks that their holders found gone, because the TTL had run out as far as is known.
    pub lost: u64,
    /// The logs told something about renewals or releases, so they would have told of lost locks too.
    pub logs_speak: bool,
    /// Every change was seen, not only what differs between two passes.
    pub is_complete: bool,
    /// A pause that a living owner must survive, whether or not one was seen.
    pub pause: Duration,
}

impl Evidence {
    /// What the exporter knows. Nothing where it does not look at the namespace in Redis.
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
            logs_speak: speak(&view.logs),
            is_complete: now.source == Some(OperationsSource::Watch),
            pause: Duration::ZERO,
        })
    }

    /// Locks whose TTL ran out while the work went on. A lock whose owner died runs out too, but nobody missed it: where
    /// the logs speak they tell the two apart, elsewhere all count.
    pub(super) fn cut_off(&self) -> u64 {
        if self.logs_speak { self.lost_by_expiry() } else { self.expirations }
    }

    pub(super) fn lost_by_expiry(&self) -> u64 {
        self.lost.min(self.expirations)
    }

    /// What the shortest of the holds that expired took, at least.
    pub(super) fn shortest_expired(&self) -> Option<f64> {
        self.holds.at_least(self.finished_holds().count() + 1)
    }

    /// Holds that ended because the work was done. Without renewals none of them is longer than one that expired.
    pub(super) fn finished_holds(&self) -> BucketedSample {
        self.holds.without_largest(self.expirations)
    }
}

/// Causes that mean that a TTL ran out under somebody's hands. An unknown one may: where the logs are read by another process
/// than the one that looks at Redis, all are unknown. There are never more than expiries.
pub(crate) const EXPIRED: [Cause; 3] = [Cause::ExpiredNeverRenewed, Cause::RenewalsStopped, Cause::Unknown];

fn lost(causes: &Tally<Cause>) -> u64 {
    EXPIRED.iter().map(|cause| causes.get(*cause)).sum()
}

/// Lines about renewals or releases: where these are read, a lock that was lost would have one.
fn speak(logs: &LogCounters) -> bool {
    let LogCounters { not_owned, renewal_failures, release_failures, abandonments, .. } = logs;
    not_owned.total() + renewal_failures.total() + release_failures.total() + abandonments > 0
}
