//! A hand-made snapshot in which every metric has a sample, with values that differ from each other.

use std::sync::Arc;
use std::time::Duration;

use redis_lock_exporter::event::{ConflictKind, Label, Operation, Reason};
use redis_lock_exporter::ledger::counters::{LogCounters, Tally};
use redis_lock_exporter::namespace::{Namespace, OnRenewalFailure, Severity, Style, Thresholds};
use redis_lock_exporter::snapshot::{ExporterView, NamespaceView, Snapshot, SourceNow, SourceTotals, SourceView};

/// A label value that needs every escape there is.
pub(crate) const AWKWARD_SOURCE: &str = "/var/log/a \"b\"\\c\n# EOF # {d=\"1\"} <script>*.log";

pub(crate) fn namespace(name: &str) -> Namespace {
    Namespace {
        name: name.to_owned(),
        keys: Vec::new(),
        components: Vec::new(),
        style: Style::Item,
        on_renewal_failure: OnRenewalFailure::Fence,
        severity: Severity::Page,
        ttl: None,
        renew_every: None,
        takeover_slo: None,
        thresholds: Thresholds::default(),
    }
}

pub(crate) fn view(namespace: Namespace, logs: LogCounters) -> NamespaceView {
    NamespaceView { namespace: Arc::new(namespace), logs }
}

pub(crate) fn full_snapshot() -> Snapshot {
    let workflow = Namespace {
        on_renewal_failure: OnRenewalFailure::Continue,
        ttl: Some(Duration::from_secs(30)),
        renew_every: Some(Duration::from_secs(10)),
        takeover_slo: Some(Duration::from_secs(45)),
        thresholds: Thresholds {
            not_owned_ratio: Some(0.02),
            renewal_failure_ratio: Some(0.05),
            busy_ratio: Some(0.5),
            min_failures: Some(3),
            max_hold: Some(Duration::from_secs(600)),
            leader_absent: None,
            strict: true,
        },
        ..namespace("workflow")
    };
    let reconciler = Namespace {
        style: Style::Loop,
        severity: Severity::Ticket,
        ttl: Some(Duration::from_millis(2_500)),
        thresholds: Thresholds { leader_absent: Some(Duration::from_secs(180)), ..Thresholds::default() },
        ..namespace("reconciler")
    };
    Snapshot {
        namespaces: vec![
            view(workflow, full_counters()),
            view(reconciler, LogCounters::default()),
            view(namespace("other"), LogCounters { abandonments: u64::MAX, ..LogCounters::default() }),
        ],
        sources: vec![
            SourceView {
                name: "/var/log/cordum/*.log".to_owned(),
                totals: SourceTotals {
                    bytes: 123_456_789_012,
                    lines: 987_654,
                    events: 321,
                    oversized_lines: 4,
                    rotations: 5,
                    truncations: 6,
                    read_errors: 7,
                    last_read: Some(1_785_000_000_123),
                },
                now: SourceNow { open_files: 8, lag_bytes: 9_000 },
            },
            SourceView { name: AWKWARD_SOURCE.to_owned(), totals: SourceTotals::default(), now: SourceNow::default() },
        ],
        exporter: ExporterView {
            started: 1_784_999_000_000,
            state_enabled: true,
            state_durable: true,
            state_saves: 11,
            state_save_errors: 12,
            state_last_save: Some(1_785_000_000_500),
            state_set_aside: 13,
            evictions: vec![("joined_lines", 14), ("final_states", 15)],
            config_reload_ok: true,
            config_reloaded: 1_784_999_000_250,
        },
    }
}

fn full_counters() -> LogCounters {
    LogCounters {
        not_owned: tally::<Operation>(1),
        renewal_failures: tally::<Reason>(10),
        release_failures: tally::<Reason>(20),
        acquire_failures: tally::<Reason>(30),
        abandonments: 40,
        unlocked_work: 41,
        conflicting_writes: tally::<ConflictKind>(50),
    }
}

/// Counts that go up by one from label value to label value.
fn tally<L: Label>(first: u64) -> Tally<L> {
    let mut tally = Tally::default();
    for (label, count) in L::ALL.iter().zip(first..) {
        for _ in 0..count {
            tally.increment(*label);
        }
    }
    tally
}
