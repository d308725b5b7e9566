//! The numbers of a running exporter since its counters began, from `/api/v1/namespaces`.
//!
//! `advise` calls [`subjects`]. It fails if the URL is not an exporter, if the API is off, or if
//! the exporter does not observe locks in Redis.

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::AdvisedNamespace;
use crate::cli::AdviseArgs;
use crate::client::http::{ClientLimits, below, get, shown};
use crate::model::label::Label as _;
use crate::model::namespace::{Namespace, OnRenewalFailure, Style};
use crate::model::sighting::OperationsSource;
use crate::report::advice::{ABOUT_HELD_LOCKS, BucketedSample, EXPIRED, Evidence};

#[derive(Deserialize)]
struct AnswerJson {
    redis: Option<Redis>,
    namespaces: Vec<SeenJson>,
}

#[derive(Deserialize)]
struct Redis {
    reply_seconds: HistogramJson,
}

#[derive(Deserialize)]
struct SeenJson {
    lock_namespace: String,
    policy: PolicyJson,
    logs: Map<String, Value>,
    causes: Map<String, Value>,
    keyspace: Option<KeyspaceJson>,
}

#[derive(Deserialize)]
struct PolicyJson {
    style: Style,
    on_renewal_failure: OnRenewalFailure,
    ttl_seconds: Option<f64>,
    renew_every_seconds: Option<f64>,
    takeover_slo_seconds: Option<f64>,
    retry_every_seconds: Option<f64>,
    renewal_failure_budget: Option<u64>,
}

#[derive(Deserialize)]
struct KeyspaceJson {
    counters: Counters,
    now: Now,
}

#[derive(Deserialize)]
struct Counters {
    renewals: u64,
    expirations: u64,
    early_releases: u64,
    takeovers_beyond_slo: u64,
    hold_seconds: HistogramJson,
    renewal_margin_ratio: HistogramJson,
    takeover_seconds: HistogramJson,
}

#[derive(Deserialize)]
struct Now {
    source: Option<String>,
}

#[derive(Deserialize)]
struct HistogramJson {
    buckets: Vec<BucketJson>,
}

#[derive(Deserialize)]
struct BucketJson {
    /// `None` means infinity.
    le: Option<f64>,
    count: u64,
}

/// An error response of the exporter.
#[derive(Deserialize)]
struct RefusalJson {
    error: String,
}

pub(super) async fn subjects(url: &str, args: &AdviseArgs) -> anyhow::Result<Vec<AdvisedNamespace>> {
    // People often paste the URL of the metrics.
    let base = url.trim_end_matches('/').trim_end_matches("/metrics");
    let limits = ClientLimits { ca_file: args.ca_file.clone(), ..ClientLimits::default() };
    let response = get(&below(base, "/api/v1/namespaces"), &limits).await?;
    let name = shown(base);
    if response.status != 200 {
        let refusal: Result<RefusalJson, _> = serde_json::from_slice(&response.body);
        let reason = match refusal {
            Ok(RefusalJson { error }) => format!("{error} (start it without, or ask with --prometheus)"),
            Err(_) => format!("it answers with the status {}: it is no redis_lock_exporter", response.status),
        };
        bail!("there is no advice from {name}: {reason}");
    }
    let answer: AnswerJson = serde_json::from_slice(&response.body)
        .with_context(|| format!("{name} answers, but not as a redis_lock_exporter of this version does"))?;
    let no_redis = || anyhow!("the exporter at {name} does not watch Redis: set --redis.url or `redis`");
    let replies = answer.redis.ok_or_else(no_redis)?.reply_seconds.into_sample();
    let subjects: Vec<AdvisedNamespace> =
        answer.namespaces.into_iter().filter_map(|seen| seen.into_subject(&replies)).collect();
    if subjects.is_empty() {
        bail!("the exporter at {name} watches no locks in Redis: none of its namespaces has `keys`");
    }
    Ok(subjects)
}

impl SeenJson {
    /// Returns `None` if the locks of the lock namespace are not observed in Redis.
    fn into_subject(self, replies: &BucketedSample) -> Option<AdvisedNamespace> {
        let KeyspaceJson { counters, now } = self.keyspace?;
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
            logs_speak: ABOUT_HELD_LOCKS.iter().filter_map(|kind| self.logs.get(kind.counter())).any(is_counted),
            is_complete: now
                .source
                .as_deref()
                .and_then(OperationsSource::parse)
                .is_some_and(OperationsSource::is_pushed),
            pause: Duration::ZERO,
        };
        let namespace = self.policy.into_namespace(self.lock_namespace);
        Some(AdvisedNamespace { cluster: String::new(), namespace, evidence, notes: Vec::new() })
    }
}

/// Returns whether a count, or one of the counts by label value, is above 0.
fn is_counted(value: &Value) -> bool {
    match value {
        Value::Object(counts) => counts.values().any(is_counted),
        count => count.as_u64().is_some_and(|count| count > 0),
    }
}

impl PolicyJson {
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

impl HistogramJson {
    fn into_sample(self) -> BucketedSample {
        let buckets = self.buckets.into_iter();
        BucketedSample::new(buckets.map(|bucket| (bucket.le.unwrap_or(f64::INFINITY), bucket.count)).collect())
    }
}
