//! The JSON of `/api/v1/overview`: what is wrong now, a summary of each lock namespace with a chart
//! of its last hour, and the state of the exporter's own sources.
//!
//! `http::api` calls [`body`] with one snapshot. [`crate::report::health`] provides the findings
//! and their levels.

use serde_json::{Map, Value, json};

use super::namespaces::moment;
use crate::exposition::Build;
use crate::model::failure::FailureKind;
use crate::model::label::Label;
use crate::report::health::{self, HealthFinding, Level};
use crate::snapshot::{
    ChartPoint, KeyspaceNow, NamespaceView, Ratios, RecentActivity, RecentCounts, RedisView, Snapshot, SourceView,
};
use crate::util::clock::TimeMs;
use crate::util::units::seconds;

pub(in crate::http) fn body(snapshot: &Snapshot, now: TimeMs) -> String {
    let of_exporter = health::of_exporter(snapshot, now);
    let of_namespaces: Vec<Vec<HealthFinding>> =
        snapshot.namespaces.iter().map(|view| health::of_namespace(view, now)).collect();
    let mut findings: Vec<(Option<&str>, &HealthFinding)> = of_exporter.iter().map(|finding| (None, finding)).collect();
    for (view, of_namespace) in snapshot.namespaces.iter().zip(&of_namespaces) {
        // A finding of the exporter already reports that Redis is not observed.
        let told = of_namespace.iter().filter(|finding| finding.level != Level::Blind);
        findings.extend(told.map(|finding| (Some(view.namespace.name.as_str()), finding)));
    }
    findings.sort_by_key(|(_, finding)| finding.level);
    let level = health::level(findings.iter().map(|(_, finding)| *finding));
    let mut subjects: Vec<&str> = Vec::new();
    for (name, finding) in &findings {
        let name = name.unwrap_or("the exporter");
        if finding.level == level && !subjects.contains(&name) {
            subjects.push(name);
        }
    }
    let namespaces = snapshot.namespaces.iter().zip(&of_namespaces);
    let exporter = &snapshot.exporter;
    json!({
        "now": moment(now),
        "taken_at": (snapshot.taken > 0).then(|| moment(snapshot.taken)),
        "level": level.as_str(),
        "summary": health::summary(snapshot, level, &subjects),
        "findings": findings.iter().map(|(name, finding)| found(*name, finding)).collect::<Vec<_>>(),
        "line_step_seconds": RecentActivity::STEP / 1000,
        "namespaces": namespaces.map(|(view, findings)| namespace(view, findings, &of_exporter)).collect::<Vec<_>>(),
        "redis": snapshot.redis.as_ref().map(redis),
        "logs": snapshot.sources.iter().map(log).collect::<Vec<_>>(),
        "exporter": {
            "version": Build::CURRENT.version,
            "revision": Build::CURRENT.revision,
            "started_at": moment(exporter.started),
            "state_enabled": exporter.state_enabled,
            "state_durable": exporter.state_durable,
            "state_saves": exporter.state_saves,
            "state_save_errors": exporter.state_save_errors,
            "state_saved_at": exporter.state_last_save.map(moment),
            "state_set_aside": exporter.state_set_aside,
            "config_reload_ok": exporter.config_reload_ok,
            "config_loaded_at": moment(exporter.config_reloaded),
        },
    })
    .to_string()
}

fn found(lock_namespace: Option<&str>, finding: &HealthFinding) -> Value {
    let HealthFinding { level, text, runbook } = finding;
    json!({ "level": level.as_str(), "lock_namespace": lock_namespace, "text": text, "runbook": runbook })
}

fn namespace(view: &NamespaceView, findings: &[HealthFinding], of_exporter: &[HealthFinding]) -> Value {
    let NamespaceView { namespace, lately, keyspace, .. } = view;
    let name = Some(namespace.name.as_str());
    let thresholds = &namespace.thresholds;
    json!({
        "lock_namespace": namespace.name,
        "level": health::level_of_namespace(findings, of_exporter).as_str(),
        "findings": findings.iter().map(|finding| found(name, finding)).collect::<Vec<_>>(),
        "style": namespace.style.as_str(),
        "severity": namespace.severity.as_str(),
        "ttl_seconds": seconds(namespace.ttl),
        "renew_every_seconds": seconds(namespace.renew_every),
        "not_owned_ratio_threshold": thresholds.not_owned_ratio,
        "renewal_failure_ratio_threshold": thresholds.renewal_failure_ratio,
        "keyspace": keyspace.as_ref().map(|keyspace| in_short(&keyspace.now, &keyspace.ratios)),
        "lately": windows(&lately.windows),
        "observed_seconds": observed(&lately.observed),
        "line": line(&lately.line),
    })
}

fn in_short(now: &KeyspaceNow, ratios: &[Ratios; 2]) -> Value {
    let [minutes, _] = ratios;
    json!({
        "source": now.source.map(|source| source.as_str()),
        "held": now.held,
        "without_ttl": now.without_ttl,
        "renewal_overdue": now.renewal_overdue,
        "ttl_remaining_min_seconds": now.ttl_remaining_min_seconds,
        "oldest_acquired": now.oldest_acquired.map(moment),
        "not_owned_ratio": minutes.not_owned,
        "renewal_failure_ratio": minutes.renewal_failure,
        "expiry_ratio": minutes.expiry,
    })
}

fn windows(windows: &[RecentCounts; 2]) -> Map<String, Value> {
    let named = Ratios::WINDOWS.iter().zip(windows);
    named.map(|((window, _), counts)| ((*window).to_owned(), in_numbers(counts).into())).collect()
}

/// How much of each window was observed.
fn observed(observed: &[TimeMs; 2]) -> Map<String, Value> {
    let named = Ratios::WINDOWS.iter().zip(observed);
    named.map(|((window, _), observed)| ((*window).to_owned(), moment(*observed).into())).collect()
}

fn in_numbers(counts: &RecentCounts) -> Map<String, Value> {
    // A release fails because the lock was lost, which is a count of its own, or because Redis did
    // not answer, which renewals show as well.
    let failures = counts.failures.iter().filter(|(kind, _)| *kind != FailureKind::ReleaseFailed);
    let failures = failures.map(|(kind, count)| (kind.counter(), count));
    let operations = counts.operations.iter().map(|(operation, count)| (operation.as_str(), count));
    failures.chain(operations).map(|(name, count)| (name.to_owned(), count.into())).collect()
}

fn line(points: &[ChartPoint]) -> Value {
    let all = |of: fn(&ChartPoint) -> u32| points.iter().map(of).collect::<Vec<_>>();
    json!({
        "operations": all(|point| point.operations),
        "not_owned": all(|point| point.not_owned),
        "renewal_failures": all(|point| point.renewal_failures),
        "expirations": all(|point| point.expirations),
        "observed_seconds": points.iter().map(|point| moment(point.observed_ms.into())).collect::<Vec<_>>(),
    })
}

fn redis(redis: &RedisView) -> Value {
    let RedisView { name, now } = redis;
    json!({
        "name": name,
        "up": now.is_up(),
        "tracking": now.is_tracking(),
        "nodes": now.nodes,
        "nodes_up": now.nodes_up,
        "nodes_tracking": now.nodes_tracking,
        "failovers": now.failovers,
        "connect_errors": now.connect_errors,
        "scan_last_success_at": now.scan_last_success.map(moment),
        "scan_duration_seconds": now.scan_duration_seconds,
        "scan_progress": now.scan_progress,
        "scan_keys": now.scan_keys,
        "scan_lock_keys": now.scan_lock_keys,
        "busy_seconds": now.busy_seconds,
        "complaints": now.complaints,
    })
}

fn log(source: &SourceView) -> Value {
    let SourceView { name, totals, now } = source;
    json!({
        "source": name,
        "open_files": now.open_files,
        "lag_bytes": now.lag_bytes,
        "last_read_at": totals.last_read.map(moment),
        "bytes": totals.bytes,
        "lines": totals.lines,
        "events": totals.events,
        "oversized_lines": totals.oversized_lines,
        "rotations": totals.rotations,
        "truncations": totals.truncations,
        "read_errors": totals.read_errors,
    })
}
