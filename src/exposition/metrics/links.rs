//! Metrics about the connections to Redis. Their counts start with the process.
//!
//! All of them are absent if no Redis is configured.

use super::{Distribution, Metric, Numbers, counter, flag, gauge, histogram, real, timestamp, whole};
use crate::exposition::metric::Number;

/// The bounds that are shown.
const REPLY_BOUNDS: &[f64] = &[0.001, 0.01, 0.1, 1.0];

pub(super) const METRICS: &[Metric] = &[
    gauge(
        "redis_lock_exporter_redis_up",
        "1 if every known primary is connected.",
        Numbers::Redis(|redis| flag(redis.is_up())),
    ),
    gauge("redis_lock_exporter_redis_nodes", "Known primaries.", Numbers::Redis(|redis| whole(redis.nodes))),
    gauge("redis_lock_exporter_redis_nodes_up", "Connected primaries.", Numbers::Redis(|redis| whole(redis.nodes_up))),
    gauge(
        "redis_lock_exporter_tracking_up",
        "1 if every known primary announces changes.",
        Numbers::Redis(|redis| flag(redis.is_tracking())),
    ),
    counter(
        "redis_lock_exporter_redis_connects_total",
        "Connections made to primaries.",
        Numbers::Redis(|redis| whole(redis.connects)),
    ),
    counter(
        "redis_lock_exporter_redis_connect_errors_total",
        "Failed connections to primaries.",
        Numbers::Redis(|redis| whole(redis.connect_errors)),
    ),
    counter(
        "redis_lock_exporter_redis_failovers_total",
        "Changes of a primary's role, run id or replication id.",
        Numbers::Redis(|redis| whole(redis.failovers)),
    ),
    counter(
        "redis_lock_exporter_redis_commands_total",
        "Commands sent to Redis.",
        Numbers::Command(|redis| redis.commands.clone()),
    ),
    gauge(
        "redis_lock_exporter_redis_permission_denied",
        "1 if the user may not run a command that is needed.",
        Numbers::Command(|redis| redis.denied.iter().map(|(command, denied)| (*command, (*denied).into())).collect()),
    ),
    counter(
        "redis_lock_exporter_redis_read_errors_total",
        "Failed reads of keys.",
        Numbers::Redis(|redis| whole(redis.read_errors)),
    ),
    histogram(
        "redis_lock_exporter_redis_reply_seconds",
        "Time from a request to the reply of Redis.",
        Numbers::RedisDistribution(|redis| Distribution::at(&redis.reply_seconds, REPLY_BOUNDS)),
    ),
    counter(
        "redis_lock_exporter_redis_busy_seconds_total",
        "Time that Redis spent on requests.",
        Numbers::Redis(|redis| Some(Number::Real(redis.busy_seconds))),
    ),
    counter(
        "redis_lock_exporter_tracking_pushes_total",
        "Changed keys that Redis announced.",
        Numbers::Redis(|redis| whole(redis.pushes)),
    ),
    counter(
        "redis_lock_exporter_tracking_flushes_total",
        "Flushes of all keys.",
        Numbers::Redis(|redis| whole(redis.flushes)),
    ),
    counter(
        "redis_lock_exporter_redis_evicted_keys_total",
        "Keys of any kind that Redis evicted.",
        Numbers::Redis(|redis| whole(redis.evicted_keys)),
    ),
    counter(
        "redis_lock_exporter_tracking_skipped_reads_total",
        "Changed keys not read at once because of max_reads_per_second.",
        Numbers::Redis(|redis| whole(redis.skipped_reads)),
    ),
    counter(
        "redis_lock_exporter_tracking_overflows_total",
        "Times that changes were lost because the queue was full.",
        Numbers::Redis(|redis| whole(redis.overflows)),
    ),
    counter(
        "redis_lock_exporter_scan_passes_total",
        "Completed passes over the keyspace.",
        Numbers::Redis(|redis| whole(redis.scan_passes)),
    ),
    counter(
        "redis_lock_exporter_scan_failures_total",
        "Failed passes over the keyspace.",
        Numbers::Redis(|redis| whole(redis.scan_failures)),
    ),
    gauge(
        "redis_lock_exporter_scan_interval_seconds",
        "Time between the starts of two passes.",
        Numbers::Redis(|redis| real(redis.scan_interval_seconds)),
    ),
    gauge(
        "redis_lock_exporter_scan_duration_seconds",
        "Duration of the last complete pass.",
        Numbers::Redis(|redis| real(redis.scan_duration_seconds)),
    ),
    gauge(
        "redis_lock_exporter_scan_keys",
        "Keys in the last complete pass.",
        Numbers::Redis(|redis| whole(redis.scan_keys)),
    ),
    gauge(
        "redis_lock_exporter_scan_lock_keys",
        "Lock keys in the last complete pass.",
        Numbers::Redis(|redis| whole(redis.scan_lock_keys)),
    ),
    gauge(
        "redis_lock_exporter_scan_progress_ratio",
        "Progress of the current pass.",
        Numbers::Redis(|redis| real(redis.scan_progress)),
    ),
    gauge(
        "redis_lock_exporter_scan_last_success_timestamp_seconds",
        "When the last complete pass ended.",
        Numbers::Redis(|redis| redis.scan_last_success.and_then(timestamp)),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::counters::{Bounds, ReplyBounds};

    #[test]
    fn bounds_that_are_shown_are_bounds_that_are_counted() {
        assert!(REPLY_BOUNDS.iter().all(|bound| ReplyBounds::BOUNDS.contains(bound)));
    }
}
