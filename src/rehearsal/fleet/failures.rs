//! The failures that simulated programs had and logged, named like the exporter's metrics. Tests
//! and the demo compare them with the exporter's counts. This file shares no code with the
//! exporter, so that an error there cannot hide here.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::client::scrape::Samples;

/// The metrics that count failures from logs.
const METRICS: [&str; 7] = [
    "redis_lock_not_owned_total",
    "redis_lock_renewal_failures_total",
    "redis_lock_abandonments_total",
    "redis_lock_release_failures_total",
    "redis_lock_acquire_failures_total",
    "redis_lock_unlocked_work_total",
    "redis_lock_conflicting_writes_total",
];

/// Failures by series, each counted once:
/// `redis_lock_not_owned_total{lock_namespace="scheduler",operation="release"}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Failures(BTreeMap<String, u64>);

/// One series: the true count and the exporter's count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Comparison {
    pub series: String,
    pub truth: u64,
    pub counted: u64,
}

impl Failures {
    /// Counts a failure. `label` is a pair such as `reason="busy"`, or empty.
    pub fn add(&mut self, metric: &str, namespace: &str, label: &str) {
        let comma = if label.is_empty() { "" } else { "," };
        let series = format!("redis_lock_{metric}_total{{lock_namespace=\"{namespace}\"{comma}{label}}}");
        *self.0.entry(series).or_default() += 1;
    }

    /// Reads the counts above 0 from the text of `/metrics`. Labels are sorted, so that their order
    /// does not matter.
    pub fn counted(text: &str) -> Self {
        let mut counted = Self::default();
        for (series, value) in Samples::parse(text) {
            let (metric, labels) = series.split_once('{').unwrap_or((&series, "}"));
            let count = value as u64;
            if !METRICS.contains(&metric) || count == 0 {
                continue;
            }
            let mut labels: Vec<&str> = labels.trim_end_matches('}').split(',').collect();
            labels.sort_by_key(|label| (!label.starts_with("lock_namespace="), *label));
            *counted.0.entry(format!("{metric}{{{}}}", labels.join(","))).or_default() += count;
        }
        counted
    }

    /// Returns every series that either side has. A failure counted in the wrong lock namespace
    /// then shows as one too few in one series and one too many in another.
    pub fn compare(&self, counted: &Self) -> Vec<Comparison> {
        let series: BTreeSet<&String> = self.0.keys().chain(counted.0.keys()).collect();
        let count = |of: &Self, name: &String| of.0.get(name).copied().unwrap_or(0);
        let compare = |name: &String| Comparison {
            series: name.clone(),
            truth: count(self, name),
            counted: count(counted, name),
        };
        series.into_iter().map(compare).collect()
    }

    /// The sum of one metric, in one lock namespace or in all.
    pub fn total(&self, metric: &str, namespace: Option<&str>) -> u64 {
        let beginning = match namespace {
            Some(namespace) => format!("redis_lock_{metric}_total{{lock_namespace=\"{namespace}\""),
            None => format!("redis_lock_{metric}_total{{"),
        };
        self.0.iter().filter(|(series, _)| series.starts_with(&beginning)).map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_that_only_one_side_has_differ() {
        let mut truth = Failures::default();
        truth.add("not_owned", "workflow", r#"operation="release""#);
        truth.add("not_owned", "workflow", r#"operation="release""#);
        truth.add("abandonments", "scheduler", "");
        let counted = Failures::counted(
            "# TYPE redis_lock_not_owned_total counter\n\
             redis_lock_not_owned_total{operation=\"release\",lock_namespace=\"workflow\"} 2\n\
             redis_lock_not_owned_total{operation=\"renew\",lock_namespace=\"workflow\"} 0\n\
             redis_lock_abandonments_total{lock_namespace=\"other\"} 1\n\
             redis_lock_held{lock_namespace=\"workflow\"} 7\n",
        );
        let differing: Vec<(u64, u64)> =
            truth.compare(&counted).iter().map(|line| (line.truth, line.counted)).collect();
        // The series of `other`, of `scheduler`, and the releases.
        assert_eq!(differing, [(0, 1), (1, 0), (2, 2)]);
        assert_eq!(truth.total("not_owned", Some("workflow")), 2);
        assert_eq!(counted.total("abandonments", None), 1);
    }
}
