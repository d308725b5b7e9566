//! Metrics about the exporter itself: its log sources, its state and its configuration.
//!
//! The totals of log sources and the counts of saves are part of the saved state.

use super::{Metric, Numbers, counter, flag, gauge, info, timestamp, whole};

pub(super) const METRICS: &[Metric] = &[
    info("redis_lock_exporter_build_info", "Version of the exporter and the commit it was built from.", Numbers::Build),
    gauge(
        "redis_lock_exporter_start_time_seconds",
        "When the exporter started.",
        Numbers::Exporter(|exporter| timestamp(exporter.started)),
    ),
    counter(
        "redis_lock_exporter_log_bytes_total",
        "Bytes read from the files of a log source.",
        Numbers::Source(|source| whole(source.totals.bytes)),
    ),
    counter(
        "redis_lock_exporter_log_lines_total",
        "Lines read from the files of a log source.",
        Numbers::Source(|source| whole(source.totals.lines)),
    ),
    counter(
        "redis_lock_exporter_log_events_total",
        "Lines about a lock, before lines of one failure are joined.",
        Numbers::Source(|source| whole(source.totals.events)),
    ),
    counter(
        "redis_lock_exporter_log_oversized_lines_total",
        "Lines longer than the limit, searched only in part.",
        Numbers::Source(|source| whole(source.totals.oversized_lines)),
    ),
    counter(
        "redis_lock_exporter_log_rotations_total",
        "Followed files that were renamed or deleted.",
        Numbers::Source(|source| whole(source.totals.rotations)),
    ),
    counter(
        "redis_lock_exporter_log_truncations_total",
        "Truncated files, read again from their start.",
        Numbers::Source(|source| whole(source.totals.truncations)),
    ),
    counter(
        "redis_lock_exporter_log_read_errors_total",
        "Errors listing, opening or reading the files of a log source.",
        Numbers::Source(|source| whole(source.totals.read_errors)),
    ),
    counter(
        "redis_lock_exporter_log_duplicates_total",
        "Pushed lines about a lock that were already counted.",
        Numbers::Source(|source| source.now.push.and_then(|_| whole(source.totals.duplicates))),
    ),
    counter(
        "redis_lock_exporter_log_rejected_requests_total",
        "Push requests that were rejected.",
        Numbers::Source(|source| source.now.push.and_then(|push| whole(push.rejected))),
    ),
    gauge(
        "redis_lock_exporter_log_lag_bytes",
        "Bytes written to log files but not yet read.",
        Numbers::Source(|source| whole(source.now.lag_bytes)),
    ),
    gauge(
        "redis_lock_exporter_log_open_files",
        "Files of a log source that are followed.",
        Numbers::Source(|source| whole(source.now.open_files)),
    ),
    gauge(
        "redis_lock_exporter_log_last_read_timestamp_seconds",
        "When bytes were last read from a log source.",
        Numbers::Source(|source| source.totals.last_read.and_then(timestamp)),
    ),
    gauge(
        "redis_lock_exporter_state_enabled",
        "1 if a state directory is configured.",
        Numbers::Exporter(|exporter| flag(exporter.state_enabled)),
    ),
    gauge(
        "redis_lock_exporter_state_durable",
        "1 if all published numbers are on disk.",
        Numbers::Exporter(|exporter| flag(exporter.state_durable)),
    ),
    counter(
        "redis_lock_exporter_state_saves_total",
        "Number of times the state was saved.",
        Numbers::Exporter(|exporter| whole(exporter.state_saves)),
    ),
    counter(
        "redis_lock_exporter_state_save_errors_total",
        "Number of failed attempts to save the state.",
        Numbers::Exporter(|exporter| whole(exporter.state_save_errors)),
    ),
    gauge(
        "redis_lock_exporter_state_last_save_timestamp_seconds",
        "When the state was last saved.",
        Numbers::Exporter(|exporter| exporter.state_last_save.and_then(timestamp)),
    ),
    counter(
        "redis_lock_exporter_state_set_aside_total",
        "Unusable state files that were kept under another name.",
        Numbers::Exporter(|exporter| whole(exporter.state_set_aside)),
    ),
    counter(
        "redis_lock_exporter_table_evictions_total",
        "Entries removed from a full table.",
        Numbers::Table(|exporter| &exporter.evictions),
    ),
    gauge(
        "redis_lock_exporter_config_last_reload_successful",
        "1 if the last configuration load succeeded.",
        Numbers::Exporter(|exporter| flag(exporter.config_reload_ok)),
    ),
    gauge(
        "redis_lock_exporter_config_last_reload_success_timestamp_seconds",
        "When the current configuration was loaded.",
        Numbers::Exporter(|exporter| timestamp(exporter.config_reloaded)),
    ),
];
