//! What one scrape of the exporter shows about the fleet. `observer` makes it; `view` and `summary`
//! compare it with what the fleet did.

use std::collections::BTreeMap;

use crate::client::scrape::{Samples, SeriesSelector};
use crate::rehearsal::fleet::{Failures, Truth};

pub(super) struct ObservedPages {
    samples: Samples,
    /// The failures that the exporter counted from logs.
    pub(super) failures: Failures,
}

impl ObservedPages {
    /// Parses the classic text format.
    pub(super) fn new(text: &str) -> Self {
        Self { samples: Samples::parse(text), failures: Failures::counted(text) }
    }

    /// Whether the exporter knows all locks and Redis pushes every change to it.
    pub(super) fn is_watching(&self) -> bool {
        let is_above_0 = |metric| self.samples.sum(&SeriesSelector::new(metric, &[])) > 0.0;
        is_above_0("redis_lock_exporter_scan_passes_total") && is_above_0("redis_lock_exporter_tracking_up")
    }

    /// The counts from Redis, limited to the fields whose true value the fleet knows.
    pub(super) fn locks(&self, namespace: &str) -> Truth {
        let get = |metric| self.sum(metric, namespace) as u64;
        Truth {
            acquisitions: get("redis_lock_acquisitions_total"),
            renewals: get("redis_lock_renewals_total"),
            releases: get("redis_lock_releases_total"),
            expirations: get("redis_lock_expirations_total"),
            held: get("redis_lock_held"),
            ..Truth::default()
        }
    }

    /// Counts by cause, without those that are 0.
    pub(super) fn causes(&self, namespace: &str) -> BTreeMap<String, u64> {
        let causes = self.samples.by_label(&selector("redis_lock_not_owned_causes_total", namespace), "cause");
        causes.into_iter().filter(|(_, count)| *count > 0.0).map(|(cause, count)| (cause, count as u64)).collect()
    }

    pub(super) fn sum(&self, metric: &'static str, namespace: &str) -> f64 {
        self.samples.sum(&selector(metric, namespace))
    }
}

fn selector(metric: &'static str, namespace: &str) -> SeriesSelector {
    SeriesSelector::new(metric, &[("lock_namespace", namespace)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_namespace() {
        let seen = ObservedPages::new(
            "# TYPE redis_lock_held gauge\n\
             redis_lock_held{redis=\"demo\",lock_namespace=\"workflow\"} 3\n\
             redis_lock_held{redis=\"demo\",lock_namespace=\"workflow_reconciler\"} 1\n\
             redis_lock_not_owned_causes_total{redis=\"demo\",lock_namespace=\"workflow\",cause=\"taken_over\"} 2\n\
             redis_lock_not_owned_causes_total{redis=\"demo\",lock_namespace=\"workflow\",cause=\"unknown\"} 0\n",
        );
        assert_eq!(seen.locks("workflow").held, 3);
        assert_eq!(seen.causes("workflow"), BTreeMap::from([("taken_over".to_owned(), 2)]));
    }
}
