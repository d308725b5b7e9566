//! Metrics about the locks in Redis, and metrics that combine Redis and the logs.
//!
//! A number that only some namespaces can have is omitted for the others. Together with short HELP
//! texts, this keeps a scrape small.

use super::{Distribution, Metric, Numbers, counter, gauge, histogram, real, timestamp, whole};
use crate::model::namespace::Style;
use crate::report::advice::Advice;

/// The bounds of the ledger that are shown.
const HOLD_BOUNDS: &[f64] = &[1.0, 10.0, 30.0, 60.0, 300.0, 1800.0];
const TAKEOVER_BOUNDS: &[f64] = &[15.0, 30.0, 60.0, 120.0];

pub(super) const METRICS: &[Metric] = &[
    gauge("redis_lock_held", "Held locks, read in the background.", Numbers::Keyspace(|_, view| whole(view.now.held))),
    gauge(
        "redis_lock_without_ttl",
        "Held locks without a TTL, read in the background.",
        Numbers::Keyspace(|_, view| whole(view.now.without_ttl)),
    ),
    gauge(
        "redis_lock_renewal_overdue",
        "Held locks with an overdue renewal, read in the background.",
        Numbers::Keyspace(|namespace, view| namespace.renew_every.and_then(|_| whole(view.now.renewal_overdue))),
    ),
    counter(
        "redis_lock_acquisitions_total",
        "Locks acquired.",
        Numbers::Keyspace(|_, view| whole(view.counters.acquisitions)),
    ),
    counter("redis_lock_renewals_total", "Locks renewed.", Numbers::Keyspace(|_, view| whole(view.counters.renewals))),
    counter(
        "redis_lock_releases_total",
        "Locks released before their TTL ran out.",
        Numbers::Keyspace(|_, view| whole(view.counters.releases)),
    ),
    counter(
        "redis_lock_expirations_total",
        "Locks whose TTL ran out.",
        Numbers::Keyspace(|_, view| whole(view.counters.expirations)),
    ),
    counter(
        "redis_lock_unknown_ends_total",
        "Locks whose end was not observed.",
        Numbers::Keyspace(|_, view| whole(view.counters.unknown_ends)),
    ),
    counter(
        "redis_lock_early_releases_total",
        "Locks of style loop released before their TTL ran out.",
        Numbers::Keyspace(|namespace, view| match namespace.style {
            Style::Loop => whole(view.counters.early_releases),
            Style::Item => None,
        }),
    ),
    counter(
        "redis_lock_owner_changes_total",
        "Owner changes of locks, by how the previous hold ended.",
        Numbers::OwnerChange,
    ),
    histogram(
        "redis_lock_hold_seconds",
        "Time from the acquisition of a lock to its end.",
        Numbers::Distribution(|namespace, view| match namespace.style {
            Style::Item => Some(Distribution::at(&view.counters.hold_seconds, HOLD_BOUNDS)),
            // The hold time of a loop lock is meaningless: the lock is held until the TTL runs out
            // on purpose.
            Style::Loop => None,
        }),
    ),
    histogram(
        "redis_lock_renewal_margin_ratio",
        "Share of the TTL that was left at a renewal.",
        Numbers::Distribution(|namespace, view| {
            namespace.renew_every.map(|_| Distribution::whole(&view.counters.renewal_margin_ratio))
        }),
    ),
    histogram(
        "redis_lock_takeover_seconds",
        "Time from an owner's last sign of life to the takeover of its expired lock.",
        Numbers::Distribution(|namespace, view| {
            let takeovers = &view.counters.takeover_seconds;
            // Other programs always wait for a loop lock, so its takeovers are shown from the
            // start. An item lock is rarely taken over.
            let is_shown = namespace.style == Style::Loop || takeovers.count() > 0;
            is_shown.then(|| Distribution::at(takeovers, TAKEOVER_BOUNDS))
        }),
    ),
    counter(
        "redis_lock_takeovers_total",
        "Takeovers of expired locks, by whether they were within takeover_slo.",
        Numbers::Takeover,
    ),
    gauge(
        "redis_lock_ttl_remaining_min_seconds",
        "Shortest remaining TTL of a held lock, read in the background.",
        Numbers::Keyspace(|_, view| real(view.now.ttl_remaining_min_seconds)),
    ),
    gauge(
        "redis_lock_oldest_acquired_timestamp_seconds",
        "When the longest-held lock was acquired, read in the background.",
        Numbers::Keyspace(|_, view| view.now.oldest_acquired.and_then(timestamp)),
    ),
    gauge(
        "redis_lock_last_held_timestamp_seconds",
        "When a lock with a fixed key was last held, read in the background.",
        Numbers::LastHeld,
    ),
    counter(
        "redis_lock_fence_regressions_total",
        "Fence counters that went backwards.",
        Numbers::Keyspace(|namespace, view| {
            namespace.fence.as_ref().and_then(|_| whole(view.counters.fence_regressions))
        }),
    ),
    counter(
        "redis_lock_untracked_locks_total",
        "Locks that did not fit into the full table.",
        Numbers::Keyspace(|_, view| whole(view.counters.untracked)),
    ),
    gauge(
        "redis_lock_non_lock_keys",
        "Keys that match a template but have another type, read in the background.",
        // Almost no namespace has such keys, so zero is omitted.
        Numbers::Keyspace(|_, view| whole(view.now.not_locks).filter(|_| view.now.not_locks > 0)),
    ),
    gauge("redis_lock_operations_source", "1 for how operations are observed.", Numbers::OperationsSource),
    gauge(
        "redis_lock_observed_since_timestamp_seconds",
        "Since when every change in Redis is observed.",
        Numbers::Keyspace(|_, view| view.now.observed_since.and_then(timestamp)),
    ),
    counter("redis_lock_not_owned_causes_total", "Lost locks, by what happened to them in Redis.", Numbers::Cause),
    gauge(
        "redis_lock_not_owned_ratio",
        "Share of releases and renewals that found the lock lost.",
        Numbers::Ratio(|_, ratios| ratios.not_owned),
    ),
    gauge(
        "redis_lock_renewal_failure_ratio",
        "Share of renewals that failed.",
        Numbers::Ratio(|namespace, ratios| ratios.renewal_failure.filter(|_| namespace.renew_every.is_some())),
    ),
    gauge("redis_lock_expiry_ratio", "Share of ended holds that expired.", Numbers::Ratio(|_, ratios| ratios.expiry)),
    // Values that the TTL advice recommends, to compare with the configured values.
    gauge("redis_lock_recommended_ttl_seconds", "Recommended TTL.", Numbers::Advice(Advice::recommended_ttl)),
    gauge(
        "redis_lock_recommended_renew_interval_seconds",
        "Recommended renewal interval.",
        Numbers::Advice(Advice::recommended_renewal),
    ),
    gauge(
        "redis_lock_takeover_bound_seconds",
        "Longest time from an owner's last sign of life to a takeover.",
        Numbers::Advice(|advice| advice.takeover.map(|takeover| takeover.bound)),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::counters::{Bounds, HoldBounds, TakeoverBounds};

    #[test]
    fn bounds_that_are_shown_are_bounds_of_the_ledger() {
        assert!(HOLD_BOUNDS.iter().all(|bound| HoldBounds::BOUNDS.contains(bound)));
        assert!(TAKEOVER_BOUNDS.iter().all(|bound| TakeoverBounds::BOUNDS.contains(bound)));
    }
}
