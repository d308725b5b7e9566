//! A fixed snapshot in which every metric has a sample and all values differ.

use std::sync::Arc;
use std::time::Duration;

use redis_lock_exporter::model::counters::{After, Bounds, FailureCounters, Histogram, KeyspaceCounters, Tally};
use redis_lock_exporter::model::failure::{Cause, Failure, FailureKind};
use redis_lock_exporter::model::key_template::KeyTemplate;
use redis_lock_exporter::model::label::Label;
use redis_lock_exporter::model::namespace::{Namespace, OnRenewalFailure, Severity, Style, Thresholds};
use redis_lock_exporter::model::position::SourceTotals;
use redis_lock_exporter::model::sighting::OperationsSource;
use redis_lock_exporter::snapshot::{
    ExporterView, KeyspaceNow, KeyspaceView, NamespaceView, PushNow, Ratios, RedisNow, RedisView, Snapshot, SourceNow,
    SourceView,
};

/// A label value that needs every kind of escape.
pub(crate) const AWKWARD_SOURCE: &str = "/var/log/a \"b\"\\c\n# EOF # {d=\"1\"} <script>*.log";

pub(crate) fn namespace(name: &str) -> Namespace {
    Namespace { name: name.to_owned(), severity: Severity::Page, ..Namespace::other() }
}

pub(crate) fn view(namespace: Namespace, logs: FailureCounters) -> NamespaceView {
    NamespaceView {
        namespace: Arc::new(namespace),
        logs,
        causes: Default::default(),
        keyspace: None,
        lately: Default::default(),
    }
}

pub(crate) fn full_snapshot() -> Snapshot {
    let template = |text| KeyTemplate::parse(text).unwrap();
    let workflow = Namespace {
        keys: vec![template("cordum:wf:run:lock:{run_id}")],
        on_renewal_failure: OnRenewalFailure::Continue,
        ttl: Some(Duration::from_secs(30)),
        renew_every: Some(Duration::from_secs(10)),
        takeover_slo: Some(Duration::from_secs(45)),
        retry_every: Some(Duration::from_millis(500)),
        renewal_failure_budget: Some(3),
        fence: Some(template("fence:{key}")),
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
        keys: vec![template("cordum:reconciler:default")],
        style: Style::Loop,
        severity: Severity::Ticket,
        ttl: Some(Duration::from_millis(2_500)),
        thresholds: Thresholds { leader_absent: Some(Duration::from_secs(180)), ..Thresholds::default() },
        ..namespace("reconciler")
    };
    let workflow = NamespaceView {
        causes: tally::<Cause>(60),
        keyspace: Some(full_keyspace(&workflow)),
        ..view(workflow, full_counters())
    };
    // This namespace was not observed yet.
    let now = KeyspaceNow { last_held: fixed_keys(&reconciler), ..KeyspaceNow::default() };
    let reconciler = NamespaceView {
        keyspace: Some(KeyspaceView { now, ..KeyspaceView::default() }),
        ..view(reconciler, FailureCounters::default())
    };
    Snapshot {
        countable: Default::default(),
        redis: Some(RedisView { name: "main".to_owned(), now: full_redis() }),
        namespaces: vec![workflow, reconciler, view(namespace("other"), huge_counter())],
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
                    ..SourceTotals::default()
                },
                now: SourceNow { open_files: 8, lag_bytes: 9_000, ..SourceNow::default() },
            },
            SourceView { name: AWKWARD_SOURCE.to_owned(), totals: SourceTotals::default(), now: SourceNow::default() },
            SourceView {
                name: "push".to_owned(),
                totals: SourceTotals { duplicates: 16, ..SourceTotals::default() },
                now: SourceNow { open_files: 1, push: Some(PushNow { rejected: 17 }), ..SourceNow::default() },
            },
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
        taken: 1_785_000_001_000,
        config: None,
    }
}

/// Returns a view with all keyspace values of a namespace.
pub(crate) fn full_keyspace(namespace: &Namespace) -> KeyspaceView {
    let counters = KeyspaceCounters {
        acquisitions: 70_001,
        renewals: 70_002,
        releases: 70_003,
        expirations: 704,
        unknown_ends: 75,
        early_releases: 706,
        owner_changes: tally::<After>(80),
        takeovers_within_slo: 90,
        takeovers_beyond_slo: 91,
        fence_regressions: 92,
        untracked: 93,
        hold_seconds: histogram(&[0.004, 0.2, 7.5, 42.25, 9_000.0]),
        renewal_margin_ratio: histogram(&[0.05, 0.66, 0.665, 0.9]),
        takeover_seconds: histogram(&[31.5, 44.0, 301.0]),
    };
    let now = KeyspaceNow {
        source: Some(OperationsSource::Watch),
        observed_since: Some(1_784_999_500_750),
        held: 1_001,
        without_ttl: 2,
        lost_ttl: 0,
        renewal_overdue: 3,
        not_locks: 4,
        ttl_remaining_min_seconds: Some(7.125),
        oldest_acquired: Some(1_784_999_400_125),
        last_held: fixed_keys(namespace),
    };
    let expiry = |share| (namespace.style == Style::Item).then_some(share);
    let ratios = [
        Ratios { not_owned: Some(0.015625), renewal_failure: Some(0.03125), expiry: expiry(0.0625) },
        Ratios { not_owned: Some(0.0078125), renewal_failure: Some(0.00390625), expiry: expiry(0.125) },
    ];
    KeyspaceView { counters, now, ratios }
}

fn fixed_keys(namespace: &Namespace) -> Vec<(String, i64)> {
    let fixed = namespace.keys.iter().filter(|template| template.is_fixed());
    fixed.map(|template| (template.as_str().to_owned(), 1_784_999_999_875)).collect()
}

pub(crate) fn full_redis() -> RedisNow {
    let commands = [
        "hello", "auth", "client", "select", "ping", "info", "scan", "getrange", "pttl", "type", "hscan", "zrange",
        "cluster", "asking", "readonly", "role", "sentinel",
    ];
    let wanted = ["scan", "getrange", "pttl", "type", "hscan", "zrange", "info", "client", "cluster", "asking"];
    RedisNow {
        nodes: 3,
        nodes_up: 3,
        nodes_tracking: 2,
        connects: 101,
        connect_errors: 102,
        failovers: 103,
        commands: commands.into_iter().zip(1_000_001..).collect(),
        denied: wanted.map(|command| (command, command == "hscan")).to_vec(),
        pushes: 104,
        flushes: 105,
        evicted_keys: 112,
        skipped_reads: 106,
        overflows: 107,
        read_errors: 108,
        scan_passes: 109,
        scan_failures: 110,
        scan_interval_seconds: Some(300.0),
        scan_duration_seconds: Some(1.375),
        scan_keys: 1_000_000,
        scan_lock_keys: 1_007,
        scan_progress: Some(0.5),
        scan_last_success: Some(1_784_999_990_625),
        busy_seconds: 12.75,
        reply_seconds: histogram(&[0.0004, 0.002, 0.03, 0.2]),
        complaints: vec!["user exporter may not HSCAN keys under lock:*".to_owned()],
    }
}

/// Enough observations for advice.
fn histogram<B: Bounds>(values: &[f64]) -> Histogram<B> {
    let mut histogram = Histogram::default();
    values.iter().cycle().take(100 * values.len()).for_each(|value| histogram.observe(*value));
    histogram
}

pub(crate) fn full_counters() -> FailureCounters {
    let mut counters = FailureCounters::default();
    for (kind, first) in [
        (FailureKind::NotOwned, 1),
        (FailureKind::RenewalFailed, 10),
        (FailureKind::ReleaseFailed, 20),
        (FailureKind::AcquireFailed, 30),
        (FailureKind::Abandoned, 40),
        (FailureKind::UnlockedWork, 41),
        (FailureKind::ConflictingWrite, 50),
    ] {
        kind.all_failures().into_iter().zip(first..).for_each(|(failure, count)| counters.add(failure, count));
    }
    counters
}

fn huge_counter() -> FailureCounters {
    let mut counters = FailureCounters::default();
    counters.add(Failure::Abandoned(None), u64::MAX);
    counters
}

/// Returns counts that increase by one per label value.
pub(crate) fn tally<L: Label>(first: u64) -> Tally<L> {
    let mut tally = Tally::default();
    for (label, count) in L::ALL.iter().zip(first..) {
        for _ in 0..count {
            tally.increment(*label);
        }
    }
    tally
}
