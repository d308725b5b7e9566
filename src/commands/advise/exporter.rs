//! What a running exporter has seen since its counters began, from `/api/v1/namespaces`.

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::Subject;
use crate::cli::AdviseArgs;
use crate::client::http::{Limits, below, get, shown};
use crate::model::label::Label as _;
use crate::model::namespace::{Namespace, OnRenewalFailure, Style};
use crate::model::sighting::OperationsSource;
use crate::report::advice::{EXPIRED, Evidence, Sample};

/// Counts from logs that show that lines about renewals and releases are read.
pub(super) const ABOUT_LOCKS_HELD: [&str; 4] = ["not_owned", "renewal_failures", "release_failures", "abandonments"];

#[derive(Deserialize)]
struct Answer {
    redis: Option<Redis>,
    namespaces: Vec<Seen>,
}

#[derive(Deserialize)]
struct Redis {
    reply_seconds: Histogram,
}

#[derive(Deserialize)]
struct Seen {
    lock_namespace: String,
    policy: Policy,
    logs: Map<String, Value>,
    causes: Map<String, Value>,
    keyspace: Option<Keyspace>,
}

#[derive(Deserialize)]
struct Policy {
    style: Style,
    on_renewal_failure: OnRenewalFailure,
    ttl_seconds: Option<f64>,
    renew_every_seconds: Option<f64>,
    takeover_slo_seconds: Option<f64>,
    retry_every_seconds: Option<f64>,
    renewal_failure_budget: Option<u64>,
}

#[derive(Deserialize)]
struct Keyspace {
    counters: Counters,
    now: Now,
}

#[derive(Deserialize)]
struct Counters {
    renewals: u64,
    expirations: u64,
    early_releases: u64,
    takeovers_beyond_slo: u64,
    hold_seconds: Histogram,
    renewal_margin_ratio: Histogram,
    takeover_seconds: Histogram,
}

#[derive(Deserialize)]
struct Now {
    source: Option<String>,
}

#[derive(Deserialize)]
struct Histogram {
    buckets: Vec<Bucket>,
}

#[derive(Deserialize)]
struct Bucket {
    /// `None`: infinite.
    le: Option<f64>,
    count: u64,
}

/// An error of the exporter.
#[derive(Deserialize)]
struct Refusal {
    error: String,
}

pub(super) async fn subjects(url: &str, args: &AdviseArgs) -> anyhow::Result<Vec<Subject>> {
    // The address of the metrics is what people have at hand.
    let base = url.trim_end_matches('/').trim_end_matches("/metrics");
    let limits = Limits { ca_file: args.ca_file.clone(), ..Limits::default() };
    let response = get(&below(base, "/api/v1/namespaces"), &limits).await?;
    let name = shown(base);
    if response.status != 200 {
        let refusal: Result<Refusal, _> = serde_json::from_slice(&response.body);
        let reason = match refusal {
            Ok(Refusal { error }) => format!("{error} (start it without, or ask with --prometheus)"),
            Err(_) => format!("it answers with the status {}: it is no redis_lock_exporter", response.status),
        };
        bail!("there is no advice from {name}: {reason}");
    }
    let answer: Answer = serde_json::from_slice(&response.body)
        .with_context(|| format!("{name} answers, but not as a redis_lock_exporter of this version does"))?;
    let no_redis = || anyhow!("the exporter at {name} looks at no Redis: give it one with --redis.url or `redis`");
    let replies = answer.redis.ok_or_else(no_redis)?.reply_seconds.into_sample();
    let subjects: Vec<Subject> = answer.namespaces.into_iter().filter_map(|seen| seen.into_subject(&replies)).collect();
    if subjects.is_empty() {
        bail!("the exporter at {name} looks at no locks in Redis: none of its namespaces has `keys`");
    }
    Ok(subjects)
}

impl Seen {
    /// Nothing of a namespace whose locks are not looked at.
    fn into_subject(self, replies: &Sample) -> Option<Subject> {
        let Keyspace { counters, now } = self.keyspace?;
        let lost = EXPIRED.iter().filter_map(|cause| self.causes.get(cause.as_str())?.as_u64()).sum();
        let evidence = Evidence {
            takeovers: counters.takeover_seconds.buckets.iter().map(|bucket| bucket.count).sum(),
            holds: counters.hold_seconds.into_sample(),
            margins: counters.renewal_margin_ratio.into_sample(),
            replies: replies.clone(),
            renewals: counters.renewals,
            expirations: counters.expirations,
            early_releases: counters.early_releases,
            takeovers_beyond_slo: counters.takeovers_beyond_slo,
            lost,
            logs_speak: ABOUT_LOCKS_HELD.iter().filter_map(|counter| self.logs.get(*counter)).any(is_counted),
            is_complete: now.source.as_deref() == Some(OperationsSource::Watch.as_str()),
            pause: Duration::ZERO,
        };
        let namespace = self.policy.into_namespace(self.lock_namespace);
        Some(Subject { cluster: String::new(), namespace, evidence, notes: Vec::new() })
    }
}

/// A count, or a count by label value.
fn is_counted(value: &Value) -> bool {
    match value {
        Value::Object(counts) => counts.values().any(is_counted),
        count => count.as_u64().is_some_and(|count| count > 0),
    }
}

impl Policy {
    fn into_namespace(self, name: String) -> Namespace {
        let duration = |seconds: Option<f64>| seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Namespace {
            name,
            style: self.style,
            on_renewal_failure: self.on_renewal_failure,
            ttl: duration(self.ttl_seconds),
            renew_every: duration(self.renew_every_seconds),
            takeover_slo: duration(self.takeover_slo_seconds),
            retry_every: duration(self.retry_every_seconds),
            renewal_failure_budget: self.renewal_failure_budget,
            ..Namespace::other()
        }
    }
}

impl Histogram {
    fn into_sample(self) -> Sample {
        let buckets = self.buckets.into_iter();
        Sample::new(buckets.map(|bucket| (bucket.le.unwrap_or(f64::INFINITY), bucket.count)).collect())
    }
}
