//! The table of every metric: its name as a query writes it, its type, its HELP, and the numbers behind it.
//!
//! The collector walks it, `docs/metrics.md` is compared with it, and so can rules and dashboards be. A new metric is a new
//! row.

use std::time::Duration;

use super::metric::{Kind, Metric, Number, Numbers};
use crate::event::TimeMs;

const fn counter(name: &'static str, help: &'static str, numbers: Numbers) -> Metric {
    Metric { name, kind: Kind::Counter, help, numbers }
}

const fn gauge(name: &'static str, help: &'static str, numbers: Numbers) -> Metric {
    Metric { name, kind: Kind::Gauge, help, numbers }
}

const fn info(name: &'static str, help: &'static str, numbers: Numbers) -> Metric {
    Metric { name, kind: Kind::Info, help, numbers }
}

fn whole(number: u64) -> Option<Number> {
    Some(Number::Whole(number))
}

fn flag(yes: bool) -> Option<Number> {
    whole(yes.into())
}

fn real(number: Option<f64>) -> Option<Number> {
    number.map(Number::Real)
}

fn seconds(duration: Option<Duration>) -> Option<Number> {
    real(duration.map(|duration| duration.as_secs_f64()))
}

/// A moment that never came (0) is absent: 1970 would be a wrong answer.
fn timestamp(time: TimeMs) -> Option<Number> {
    (time > 0).then(|| Number::Real(time as f64 / 1000.0))
}

/// Every metric, in the order in which `/metrics` shows them.
pub const METRICS: &[Metric] = &[
    // What the logs said.
    counter(
        "redis_lock_not_owned_total",
        "Releases and renewals refused because the lock no longer held the caller's token, from the logs.",
        Numbers::Operation(|logs| &logs.not_owned),
    ),
    counter(
        "redis_lock_renewal_failures_total",
        "Renewals that did not succeed, by reason, from the logs.",
        Numbers::Reason(|logs| &logs.renewal_failures),
    ),
    counter(
        "redis_lock_abandonments_total",
        "Holders that gave up their lock after failed renewals, from the logs.",
        Numbers::Namespace(|view| whole(view.logs.abandonments)),
    ),
    counter(
        "redis_lock_release_failures_total",
        "Releases that did not succeed, by reason, from the logs.",
        Numbers::Reason(|logs| &logs.release_failures),
    ),
    counter(
        "redis_lock_acquire_failures_total",
        "Attempts to take a lock that did not succeed, by reason, from the logs.",
        Numbers::Reason(|logs| &logs.acquire_failures),
    ),
    counter(
        "redis_lock_unlocked_work_total",
        "Pieces of work that ran with no distributed lock because it could not be had, from the logs.",
        Numbers::Namespace(|view| whole(view.logs.unlocked_work)),
    ),
    counter(
        "redis_lock_conflicting_writes_total",
        "Writes that collided with the work of another holder, by kind, from the logs.",
        Numbers::Conflict(|logs| &logs.conflicting_writes),
    ),
    // What the configuration says, so that one static rule file serves every configuration.
    info("redis_lock_namespace_info", "A configured lock namespace and its policy.", Numbers::Policy),
    gauge(
        "redis_lock_config_ttl_seconds",
        "Configured time to live of the namespace's locks.",
        Numbers::Namespace(|view| seconds(view.namespace.ttl)),
    ),
    gauge(
        "redis_lock_config_renew_interval_seconds",
        "Configured time between two renewals of a lock.",
        Numbers::Namespace(|view| seconds(view.namespace.renew_every)),
    ),
    gauge(
        "redis_lock_config_takeover_slo_seconds",
        "Configured time within which an expired lock should have its next owner.",
        Numbers::Namespace(|view| seconds(view.namespace.takeover_slo)),
    ),
    gauge(
        "redis_lock_config_max_hold_seconds",
        "Configured longest time a lock should be held.",
        Numbers::Namespace(|view| seconds(view.namespace.thresholds.max_hold)),
    ),
    gauge(
        "redis_lock_config_leader_absent_seconds",
        "Configured time after which nobody holding the lock is a problem.",
        Numbers::Namespace(|view| seconds(view.namespace.thresholds.leader_absent)),
    ),
    gauge(
        "redis_lock_config_not_owned_ratio",
        "Configured limit for the share of operations that found the lock not owned.",
        Numbers::Namespace(|view| real(view.namespace.thresholds.not_owned_ratio)),
    ),
    gauge(
        "redis_lock_config_renewal_failure_ratio",
        "Configured limit for the share of renewals that fail.",
        Numbers::Namespace(|view| real(view.namespace.thresholds.renewal_failure_ratio)),
    ),
    gauge(
        "redis_lock_config_min_failures",
        "Configured number of failures below which no ratio alerts.",
        Numbers::Namespace(|view| view.namespace.thresholds.min_failures.and_then(whole)),
    ),
    gauge(
        "redis_lock_config_busy_ratio",
        "Configured limit for the share of attempts that find the lock busy.",
        Numbers::Namespace(|view| real(view.namespace.thresholds.busy_ratio)),
    ),
    gauge(
        "redis_lock_config_strict",
        "1 if the first abandonment in the namespace should alert, otherwise 0.",
        Numbers::Namespace(|view| flag(view.namespace.thresholds.strict)),
    ),
    // How the exporter itself is doing.
    info("redis_lock_exporter_build_info", "Version of the exporter and the commit it was built from.", Numbers::Build),
    gauge(
        "redis_lock_exporter_start_time_seconds",
        "When the exporter started, in seconds since the Unix epoch.",
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
        "Lines that said something about a lock, before several lines about one failure are joined.",
        Numbers::Source(|source| whole(source.totals.events)),
    ),
    counter(
        "redis_lock_exporter_log_oversized_lines_total",
        "Lines longer than the limit, of which only the first part was searched.",
        Numbers::Source(|source| whole(source.totals.oversized_lines)),
    ),
    counter(
        "redis_lock_exporter_log_rotations_total",
        "Files that were renamed or deleted while they were followed.",
        Numbers::Source(|source| whole(source.totals.rotations)),
    ),
    counter(
        "redis_lock_exporter_log_truncations_total",
        "Files that were cut and are read again from their beginning.",
        Numbers::Source(|source| whole(source.totals.truncations)),
    ),
    counter(
        "redis_lock_exporter_log_read_errors_total",
        "Failed attempts to list, open or read the files of a log source.",
        Numbers::Source(|source| whole(source.totals.read_errors)),
    ),
    gauge(
        "redis_lock_exporter_log_lag_bytes",
        "Bytes written to the files of a log source but not yet read.",
        Numbers::Source(|source| whole(source.now.lag_bytes)),
    ),
    gauge(
        "redis_lock_exporter_log_open_files",
        "Files of a log source that are being followed.",
        Numbers::Source(|source| whole(source.now.open_files)),
    ),
    gauge(
        "redis_lock_exporter_log_last_read_timestamp_seconds",
        "When bytes were last read from a log source, in seconds since the Unix epoch.",
        Numbers::Source(|source| source.totals.last_read.and_then(timestamp)),
    ),
    gauge(
        "redis_lock_exporter_state_enabled",
        "1 if a state directory is configured, otherwise 0.",
        Numbers::Exporter(|exporter| flag(exporter.state_enabled)),
    ),
    gauge(
        "redis_lock_exporter_state_durable",
        "1 if every number shown here is on disk, otherwise 0.",
        Numbers::Exporter(|exporter| flag(exporter.state_durable)),
    ),
    counter(
        "redis_lock_exporter_state_saves_total",
        "Times the state was saved.",
        Numbers::Exporter(|exporter| whole(exporter.state_saves)),
    ),
    counter(
        "redis_lock_exporter_state_save_errors_total",
        "Times the state could not be saved.",
        Numbers::Exporter(|exporter| whole(exporter.state_save_errors)),
    ),
    gauge(
        "redis_lock_exporter_state_last_save_timestamp_seconds",
        "When the state was last saved, in seconds since the Unix epoch.",
        Numbers::Exporter(|exporter| exporter.state_last_save.and_then(timestamp)),
    ),
    counter(
        "redis_lock_exporter_state_set_aside_total",
        "State files that could not be used and were set aside.",
        Numbers::Exporter(|exporter| whole(exporter.state_set_aside)),
    ),
    counter(
        "redis_lock_exporter_table_evictions_total",
        "Entries that left a full table: lines to be joined to one failure, or final states to be compared.",
        Numbers::Table(|exporter| &exporter.evictions),
    ),
    gauge(
        "redis_lock_exporter_config_last_reload_successful",
        "1 if the last attempt to load the configuration succeeded, otherwise 0.",
        Numbers::Exporter(|exporter| flag(exporter.config_reload_ok)),
    ),
    gauge(
        "redis_lock_exporter_config_last_reload_success_timestamp_seconds",
        "When the configuration in effect was loaded, in seconds since the Unix epoch.",
        Numbers::Exporter(|exporter| timestamp(exporter.config_reloaded)),
    ),
    // What the operating system says about the process.
    gauge(
        "process_resident_memory_bytes",
        "Resident memory size in bytes.",
        Numbers::Process(|process| process.resident_memory_bytes.and_then(whole)),
    ),
    counter(
        "process_cpu_seconds_total",
        "Total user and system CPU time spent in seconds.",
        Numbers::Process(|process| real(process.cpu_seconds)),
    ),
    gauge(
        "process_open_fds",
        "Number of open file descriptors.",
        Numbers::Process(|process| process.open_fds.and_then(whole)),
    ),
    gauge(
        "process_max_fds",
        "Maximum number of open file descriptors.",
        Numbers::Process(|process| process.max_fds.and_then(whole)),
    ),
    gauge(
        "process_start_time_seconds",
        "Start time of the process in seconds since the Unix epoch.",
        Numbers::Process(|process| real(process.start_time_seconds)),
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_row_keeps_the_naming_rules() {
        let mut families = BTreeSet::new();
        for metric in METRICS {
            let name = metric.name;
            assert!(families.insert(metric.family()), "{name} is in the table twice");
            assert!(name.starts_with("redis_lock_") || name.starts_with("process_"), "{name} has no known prefix");
            assert_eq!(name.ends_with("_total"), metric.kind == Kind::Counter, "{name}");
            assert_eq!(name.ends_with("_info"), metric.kind == Kind::Info, "{name}");
            assert!(metric.help.ends_with('.'), "HELP of {name} is not a sentence");
            assert!(!metric.help.contains(['"', '\\', '\n']), "HELP of {name} needs an escape");
        }
    }
}
