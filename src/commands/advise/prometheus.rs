//! The numbers of exporters over a longer time, from the series in Prometheus.
//!
//! `advise` calls [`subjects`]. As in the bundled rules: if several exporters observe one Redis,
//! the largest count is used; counts of several Redis servers are added; counts from logs are
//! added. The histogram buckets of the metrics are coarser than those of the API.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::bail;

use super::AdvisedNamespace;
use crate::cli::AdviseArgs;
use crate::client::http::ClientLimits;
use crate::client::prometheus::{Prometheus, Series};
use crate::model::label::Label as _;
use crate::model::namespace::{Namespace, OnRenewalFailure, Style};
use crate::report::advice::{ABOUT_HELD_LOCKS, BucketedSample, EXPIRED, Evidence, Note};
use crate::util::units::format_duration;

/// Time limit of a query, which may cover weeks.
const PATIENCE: Duration = Duration::from_secs(60);
/// Counts are complete if changes were watched for this share of the time. Otherwise they are a
/// lower bound.
const WATCHED_SHARE: f64 = 0.95;
/// Cluster and lock namespace.
type Key = (String, String);

fn key(series: &Series) -> Key {
    (series.label("cluster").to_owned(), series.label("lock_namespace").to_owned())
}

struct MetricHistory {
    prometheus: Prometheus,
    range: String,
}

pub(super) async fn subjects(url: &str, args: &AdviseArgs) -> anyhow::Result<Vec<AdvisedNamespace>> {
    let limits = ClientLimits { time: PATIENCE, ca_file: args.ca_file.clone(), ..ClientLimits::default() };
    let history = MetricHistory { prometheus: Prometheus::new(url, limits), range: format_duration(args.range) };
    let policies = history.policies().await?;
    if policies.is_empty() {
        bail!(
            "Prometheus at {} has no series of redis_lock_exporter in the last {}: does it scrape one?",
            history.prometheus.shown(),
            history.range
        );
    }
    let mut evidence = history.evidence().await?;
    let changed = history.numbers(&history.latest_changes()).await?;
    let replies = history.replies().await?;
    let mut subjects = Vec::new();
    for (key, namespace) in policies {
        let Some(mut evidence) = evidence.remove(&key) else { continue };
        evidence.replies = replies.get(&key.0).cloned().unwrap_or_default();
        let is_changed = changed.get(&key).is_some_and(|changes| *changes > 0.0);
        let notes = Vec::from_iter(is_changed.then_some(Note::TtlChanged));
        subjects.push(AdvisedNamespace { cluster: key.0, namespace, evidence, notes });
    }
    if let Some(cluster) = &args.cluster {
        subjects.retain(|subject| subject.cluster == *cluster);
    }
    if subjects.is_empty() {
        bail!(
            "Prometheus at {} has series of redis_lock_exporter, but none about locks in Redis",
            history.prometheus.shown()
        );
    }
    Ok(subjects)
}

impl MetricHistory {
    /// Returns the current policies. For exporters that are gone, returns their last ones.
    async fn policies(&self) -> anyhow::Result<BTreeMap<Key, Namespace>> {
        let labels = "cluster, lock_namespace, style, on_renewal_failure";
        let mut policies = BTreeMap::new();
        for series in self.prometheus.query(&self.latest("redis_lock_namespace_info", labels)).await? {
            let namespace = Namespace {
                name: series.label("lock_namespace").to_owned(),
                style: if series.label("style") == Style::Loop.as_str() { Style::Loop } else { Style::Item },
                on_renewal_failure: match series.label("on_renewal_failure") {
                    policy if policy == OnRenewalFailure::Continue.as_str() => OnRenewalFailure::Continue,
                    _ => OnRenewalFailure::Fence,
                },
                ..Namespace::other()
            };
            policies.insert(key(&series), namespace);
        }
        let ttl = self.setting("config_ttl_seconds").await?;
        let bound = self.setting("takeover_bound_seconds").await?;
        let renew_every = self.setting("config_renew_interval_seconds").await?;
        let takeover_slo = self.setting("config_takeover_slo_seconds").await?;
        let budget = self.setting("config_renewal_failure_budget").await?;
        for (key, namespace) in &mut policies {
            let duration = |settings: &BTreeMap<Key, f64>| {
                settings.get(key).and_then(|seconds| Duration::try_from_secs_f64(*seconds).ok())
            };
            namespace.ttl = duration(&ttl);
            namespace.renew_every = duration(&renew_every);
            namespace.takeover_slo = duration(&takeover_slo);
            namespace.renewal_failure_budget = budget.get(key).map(|budget| *budget as u64);
            // The takeover bound is the TTL plus one retry interval.
            let retry = duration(&bound).zip(namespace.ttl).and_then(|(bound, ttl)| bound.checked_sub(ttl));
            namespace.retry_every = retry.filter(|retry| !retry.is_zero());
        }
        Ok(policies)
    }

    /// Returns evidence for each lock namespace that an exporter observes in Redis.
    async fn evidence(&self) -> anyhow::Result<BTreeMap<Key, Evidence>> {
        let acquisitions = self.counts(&self.seen_in_redis("acquisitions_total", "")).await?;
        let holds = self.samples("hold_seconds").await?;
        let margins = self.samples("renewal_margin_ratio").await?;
        let renewals = self.counts(&self.seen_in_redis("renewals_total", "")).await?;
        let expirations = self.counts(&self.seen_in_redis("expirations_total", "")).await?;
        let early_releases = self.counts(&self.seen_in_redis("early_releases_total", "")).await?;
        let takeovers = self.counts(&self.seen_in_redis("takeover_seconds_count", "")).await?;
        let beyond_slo = self.counts(&self.seen_in_redis("takeovers_total", "{within_slo=\"false\"}")).await?;
        let causes: Vec<&str> = EXPIRED.iter().map(|cause| cause.as_str()).collect();
        let expired = format!("{{cause=~\"{}\"}}", causes.join("|"));
        let lost = self.counts(&self.told_by_logs("not_owned_causes_total", &expired)).await?;
        let watched = self.numbers(&self.watched()).await?;
        let mut told = BTreeMap::<Key, u64>::new();
        for kind in ABOUT_HELD_LOCKS {
            for (key, count) in self.counts(&self.told_by_logs(&format!("{}_total", kind.counter()), "")).await? {
                *told.entry(key).or_default() += count;
            }
        }
        let of = |counts: &BTreeMap<Key, u64>, key: &Key| counts.get(key).copied().unwrap_or_default();
        let evidence = acquisitions.into_keys().map(|key| {
            let evidence = Evidence {
                holds: holds.get(&key).cloned().unwrap_or_default(),
                margins: margins.get(&key).cloned().unwrap_or_default(),
                replies: BucketedSample::default(),
                renewals: of(&renewals, &key),
                expirations: of(&expirations, &key),
                early_releases: of(&early_releases, &key),
                takeovers: of(&takeovers, &key),
                takeovers_beyond_slo: of(&beyond_slo, &key),
                lost: of(&lost, &key),
                logs_speak: of(&told, &key) > 0,
                is_complete: watched.get(&key).is_some_and(|share| *share >= WATCHED_SHARE),
                pause: Duration::ZERO,
            };
            (key, evidence)
        });
        Ok(evidence.collect())
    }

    async fn setting(&self, metric: &str) -> anyhow::Result<BTreeMap<Key, f64>> {
        self.numbers(&self.latest(&format!("redis_lock_{metric}"), "cluster, lock_namespace")).await
    }

    async fn samples(&self, metric: &str) -> anyhow::Result<BTreeMap<Key, BucketedSample>> {
        let range = &self.range;
        let query = format!(
            "sum by (cluster, lock_namespace, le) (max by (cluster, redis, lock_namespace, le) \
             (increase(redis_lock_{metric}_bucket[{range}])))"
        );
        Ok(by_bound(self.prometheus.query(&query).await?, key))
    }

    /// Returns reply times by cluster. All exporters count, because each one measures its own
    /// requests.
    async fn replies(&self) -> anyhow::Result<BTreeMap<String, BucketedSample>> {
        let range = &self.range;
        let query = format!("sum by (cluster, le) (increase(redis_lock_exporter_redis_reply_seconds_bucket[{range}]))");
        Ok(by_bound(self.prometheus.query(&query).await?, |series| series.label("cluster").to_owned()))
    }

    async fn counts(&self, query: &str) -> anyhow::Result<BTreeMap<Key, u64>> {
        let numbers = self.numbers(query).await?;
        Ok(numbers.into_iter().map(|(key, number)| (key, number.round() as u64)).collect())
    }

    async fn numbers(&self, query: &str) -> anyhow::Result<BTreeMap<Key, f64>> {
        let series = self.prometheus.query(query).await?;
        Ok(series.iter().filter_map(|series| Some((key(series), series.number()?))).collect())
    }

    fn seen_in_redis(&self, metric: &str, selector: &str) -> String {
        let range = &self.range;
        format!(
            "sum by (cluster, lock_namespace) (max by (cluster, redis, lock_namespace) \
             (increase(redis_lock_{metric}{selector}[{range}])))"
        )
    }

    fn told_by_logs(&self, metric: &str, selector: &str) -> String {
        format!("sum by (cluster, lock_namespace) (increase(redis_lock_{metric}{selector}[{}]))", self.range)
    }

    fn latest(&self, metric: &str, labels: &str) -> String {
        let range = &self.range;
        format!(
            "max by ({labels}) ({metric}) or on (cluster, lock_namespace) \
             max by ({labels}) (last_over_time({metric}[{range}]))"
        )
    }

    fn latest_changes(&self) -> String {
        format!("max by (cluster, lock_namespace) (changes(redis_lock_config_ttl_seconds[{}]))", self.range)
    }

    /// The share of the time in which changes were watched.
    fn watched(&self) -> String {
        let range = &self.range;
        let samples = |selector: &str| {
            format!(
                "sum by (cluster, lock_namespace) (count_over_time(redis_lock_operations_source{selector}[{range}]))"
            )
        };
        format!("{} / {}", samples("{source=\"watch\"}"), samples(""))
    }
}

/// Converts the cumulative buckets of Prometheus to buckets with their own counts.
fn by_bound<K: Ord>(series: Vec<Series>, key: impl Fn(&Series) -> K) -> BTreeMap<K, BucketedSample> {
    let mut found = BTreeMap::<K, Vec<(f64, f64)>>::new();
    for series in series {
        let bound = series.label("le").parse::<f64>();
        if let (Ok(bound), Some(count)) = (bound, series.number()) {
            found.entry(key(&series)).or_default().push((bound, count));
        }
    }
    let samples = found.into_iter().map(|(key, mut buckets)| {
        buckets.sort_by(|left, right| left.0.total_cmp(&right.0));
        buckets.dedup_by(|left, right| left.0 == right.0);
        let mut below = 0;
        let own = buckets.into_iter().map(|(bound, count)| {
            // Increases are estimates. Because of rounding and the maximum over exporters, a
            // cumulative count may be slightly lower than the previous one.
            let count = (count.round() as u64).max(below);
            (bound, count - std::mem::replace(&mut below, count))
        });
        (key, BucketedSample::new(own.collect()))
    });
    samples.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_of_prometheus_are_cumulative_and_come_in_any_order() {
        let series = |le: &str, value: &str| Series {
            metric: [("le", le), ("lock_namespace", "jobs")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            value: (0.0, value.to_owned()),
        };
        let buckets = vec![series("+Inf", "12.6"), series("10", "9.02"), series("1", "9.4"), series("30", "NaN")];
        let samples = by_bound(buckets, key);
        let expected = BucketedSample::new(vec![(1.0, 9), (10.0, 0), (f64::INFINITY, 4)]);
        assert_eq!(samples, BTreeMap::from([((String::new(), "jobs".to_owned()), expected)]));
    }
}
