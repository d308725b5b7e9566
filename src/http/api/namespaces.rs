//! The JSON of `/api/v1/namespaces`: policy, counts and current locks of each lock namespace, from
//! one snapshot.
//!
//! `http::api` calls [`body`]. Times are Unix seconds, as in the metrics. All counts are included,
//! even if they are 0. Values that are not configured or not known are null.

use serde_json::{Map, Value, json};

use crate::model::counters::{Bounds, FailureCounters, Histogram, Tally};
use crate::model::failure::FailureKind;
use crate::model::label::Label;
use crate::model::namespace::Namespace;
use crate::snapshot::{KeyspaceView, NamespaceView, Ratios, Snapshot};
use crate::util::clock::TimeMs;
use crate::util::units::seconds;

pub(in crate::http) fn body(snapshot: &Snapshot) -> String {
    let redis = snapshot.redis.as_ref();
    let redis = redis.map(|redis| {
        json!({
            "name": redis.name,
            "up": redis.now.is_up(),
            "tracking": redis.now.is_tracking(),
            "complaints": redis.now.complaints,
            "reply_seconds": histogram(&redis.now.reply_seconds),
        })
    });
    let namespaces: Vec<Value> = snapshot.namespaces.iter().map(namespace).collect();
    json!({ "redis": redis, "namespaces": namespaces }).to_string()
}

fn namespace(view: &NamespaceView) -> Value {
    json!({
        "lock_namespace": view.namespace.name,
        "policy": policy(&view.namespace),
        "logs": failures(&view.logs),
        "causes": tally(&view.causes),
        "keyspace": view.keyspace.as_ref().map(keyspace),
    })
}

pub(in crate::http) fn policy(namespace: &Namespace) -> Value {
    let thresholds = &namespace.thresholds;
    let keys: Vec<&str> = namespace.keys.iter().map(|template| template.as_str()).collect();
    json!({
        "keys": keys,
        "acquired_with": namespace.acquired_with.as_str(),
        "style": namespace.style.as_str(),
        "on_renewal_failure": namespace.on_renewal_failure.as_str(),
        "severity": namespace.severity.as_str(),
        "ttl_seconds": seconds(namespace.ttl),
        "renew_every_seconds": seconds(namespace.renew_every),
        "takeover_slo_seconds": seconds(namespace.takeover_slo),
        "retry_every_seconds": seconds(namespace.retry_every),
        "renewal_failure_budget": namespace.renewal_failure_budget,
        "max_hold_seconds": seconds(thresholds.max_hold),
        "leader_absent_seconds": seconds(thresholds.leader_absent),
        "not_owned_ratio": thresholds.not_owned_ratio,
        "renewal_failure_ratio": thresholds.renewal_failure_ratio,
        "busy_ratio": thresholds.busy_ratio,
        "min_failures": thresholds.min_failures,
        "strict": thresholds.strict,
        "fence": namespace.fence.as_ref().map(|template| template.as_str()),
    })
}

fn failures(counters: &FailureCounters) -> Map<String, Value> {
    let kinds = FailureKind::ALL.iter();
    kinds.map(|kind| (kind.counter().to_owned(), failures_of(*kind, counters))).collect()
}

fn failures_of(kind: FailureKind, counters: &FailureCounters) -> Value {
    if !kind.has_label() {
        return counters.total(kind).into();
    }
    let series = counters.series(kind);
    let by_label = series.filter_map(|(failure, count)| Some((failure.label_value()?.to_owned(), count.into())));
    by_label.collect::<Map<String, Value>>().into()
}

fn keyspace(view: &KeyspaceView) -> Value {
    let KeyspaceView { counters, now, ratios } = view;
    let last_held: Map<String, Value> =
        now.last_held.iter().map(|(lock, time)| (lock.clone(), moment(*time).into())).collect();
    json!({
        "counters": {
            "acquisitions": counters.acquisitions,
            "renewals": counters.renewals,
            "releases": counters.releases,
            "expirations": counters.expirations,
            "unknown_ends": counters.unknown_ends,
            "early_releases": counters.early_releases,
            "owner_changes": tally(&counters.owner_changes),
            "takeovers_within_slo": counters.takeovers_within_slo,
            "takeovers_beyond_slo": counters.takeovers_beyond_slo,
            "fence_regressions": counters.fence_regressions,
            "untracked": counters.untracked,
            "hold_seconds": histogram(&counters.hold_seconds),
            "renewal_margin_ratio": histogram(&counters.renewal_margin_ratio),
            "takeover_seconds": histogram(&counters.takeover_seconds),
        },
        "now": {
            "source": now.source.map(|source| source.as_str()),
            "observed_since": now.observed_since.map(moment),
            "held": now.held,
            "without_ttl": now.without_ttl,
            "renewal_overdue": now.renewal_overdue,
            "non_lock_keys": now.not_locks,
            "ttl_remaining_min_seconds": now.ttl_remaining_min_seconds,
            "oldest_acquired": now.oldest_acquired.map(moment),
            "last_held": last_held,
        },
        "ratios": ratios_by_window(ratios),
    })
}

fn ratios_by_window(ratios: &[Ratios]) -> Map<String, Value> {
    let windows = Ratios::WINDOWS.iter().zip(ratios);
    let windows = windows.map(|((window, _), ratios)| {
        let Ratios { not_owned, renewal_failure, expiry } = ratios;
        ((*window).to_owned(), json!({ "not_owned": not_owned, "renewal_failure": renewal_failure, "expiry": expiry }))
    });
    windows.collect()
}

fn tally<L: Label>(tally: &Tally<L>) -> Map<String, Value> {
    tally.iter().map(|(label, count)| (label.as_str().to_owned(), count.into())).collect()
}

/// Counts are per bucket, not cumulative. The bound of the last bucket is null, because JSON has no
/// infinity.
fn histogram<B: Bounds>(histogram: &Histogram<B>) -> Value {
    let buckets: Vec<Value> =
        histogram.buckets().map(|(bound, count)| json!({ "le": bound, "count": count })).collect();
    json!({ "count": histogram.count(), "sum": histogram.sum(), "buckets": buckets })
}

pub(in crate::http) fn moment(time: TimeMs) -> f64 {
    time as f64 / 1000.0
}
