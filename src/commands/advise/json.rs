//! Prints advice as JSON. Durations are in seconds; unknown values are null.
//!
//! `advise --output json` calls `write`.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::{Advised, text};
use crate::util::units::seconds;

pub(super) fn write(out: &mut impl Write, advised: &[Advised]) -> io::Result<()> {
    let n_findings: usize = advised.iter().map(|advised| advised.advice.findings.len()).sum();
    let document = json!({
        "findings": n_findings,
        "namespaces": advised.iter().map(namespace).collect::<Vec<Value>>(),
        "configuration": text::configuration(advised),
    });
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

fn namespace(advised: &Advised) -> Value {
    let Advised { cluster, namespace, advice } = advised;
    let findings = advice.findings.iter();
    let findings: Vec<Value> =
        findings.map(|finding| json!({"kind": finding.kind(), "text": finding.to_string()})).collect();
    let notes: Vec<String> = advice.notes.iter().map(ToString::to_string).collect();
    json!({
        "cluster": cluster,
        "lock_namespace": namespace.name,
        "style": namespace.style.as_str(),
        "model": advice.model.as_str(),
        "confidence": advice.confidence.as_str(),
        "samples": advice.n_samples,
        "cut_off": advice.n_cut_off,
        "jitter_seconds": advice.jitter.seconds,
        "jitter_assumed": advice.jitter.is_assumed,
        "p99_seconds": advice.p99.map(|p99| json!({"low": p99.low, "high": p99.high})),
        "needed_ttl_seconds": advice.need.map(|need| {
            json!({"low": need.low.as_secs_f64(), "high": seconds(need.high)})
        }),
        "present": {
            "ttl_seconds": seconds(namespace.ttl),
            "renew_every_seconds": seconds(namespace.renew_every),
            "takeover_slo_seconds": seconds(namespace.takeover_slo),
            "retry_every_seconds": seconds(namespace.retry_every),
            "renewal_failure_budget": namespace.renewal_failure_budget,
            "takeover_bound_seconds": seconds(advice.takeover.map(|takeover| takeover.bound)),
        },
        "advised": {
            "ttl_seconds": seconds(advice.ttl),
            "ttl_is_a_step": advice.is_step,
            "renew_every_seconds": seconds(advice.renew_every),
            "renewals_that_may_fail": advice.may_fail,
            "ttl_at_most_for_slo_seconds": seconds(advice.takeover.and_then(|takeover| takeover.at_most)),
        },
        "findings": findings,
        "why": text::reasons(namespace, advice),
        "notes": notes,
    })
}
