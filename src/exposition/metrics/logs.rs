//! Metrics about the failures that logs report. Each failure is counted once.
//!
//! A series that no rule can count is omitted until it is counted once.

use super::{Metric, Numbers, counter};

pub(super) const METRICS: &[Metric] = &[
    counter(
        "redis_lock_not_owned_total",
        "Releases and renewals refused because the lock no longer held the caller's token.",
        Numbers::Operation(|logs| &logs.not_owned),
    ),
    counter(
        "redis_lock_renewal_failures_total",
        "Failed renewals, by reason.",
        Numbers::Reason(|logs| &logs.renewal_failures, |told| &told.renewal_failures),
    ),
    counter(
        "redis_lock_abandonments_total",
        "Holders that gave up their lock after failed renewals.",
        Numbers::Logs(|logs| logs.abandonments, |told| told.abandonments),
    ),
    counter(
        "redis_lock_release_failures_total",
        "Failed releases, by reason.",
        Numbers::Reason(|logs| &logs.release_failures, |told| &told.release_failures),
    ),
    counter(
        "redis_lock_acquire_failures_total",
        "Failed attempts to acquire a lock, by reason.",
        Numbers::Reason(|logs| &logs.acquire_failures, |told| &told.acquire_failures),
    ),
    counter(
        "redis_lock_unlocked_work_total",
        "Work done without a lock because it could not be acquired.",
        Numbers::Logs(|logs| logs.unlocked_work, |told| told.unlocked_work),
    ),
    counter(
        "redis_lock_conflicting_writes_total",
        "Writes that collided with another holder's, by kind.",
        Numbers::Conflict(|logs| &logs.conflicting_writes, |told| &told.conflicting_writes),
    ),
];
