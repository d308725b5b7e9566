//! The numbers of one scrape of the exporter.

use std::collections::BTreeMap;

use crate::fleet::{Failures, Truth};

pub(super) struct Samples {
    text: String,
}

impl Samples {
    /// Classic text.
    pub(super) fn new(text: String) -> Self {
        Self { text }
    }

    /// All locks are known, and every change of one is pushed.
    pub(super) fn is_watching(&self) -> bool {
        let is_above_0 = |metric: &str| {
            let values = self.lines().filter(|(series, _)| series.split('{').next() == Some(metric));
            values.map(|(_, value)| value).sum::<f64>() > 0.0
        };
        is_above_0("redis_lock_exporter_scan_passes_total") && is_above_0("redis_lock_exporter_tracking_up")
    }

    /// What was counted from logs.
    pub(super) fn failures(&self) -> Failures {
        Failures::counted(&self.text)
    }

    /// What was seen in Redis, as far as the fleet knows the truth about it.
    pub(super) fn locks(&self, namespace: &str) -> Truth {
        let get = |metric: &str| self.sum(&format!("redis_lock_{metric}"), namespace) as u64;
        Truth {
            acquisitions: get("acquisitions_total"),
            renewals: get("renewals_total"),
            releases: get("releases_total"),
            expirations: get("expirations_total"),
            held: get("held"),
            ..Truth::default()
        }
    }

    /// By cause, those above 0.
    pub(super) fn causes(&self, namespace: &str) -> BTreeMap<String, u64> {
        let causes = self.series("redis_lock_not_owned_causes_total", namespace).filter(|(_, value)| *value > 0.0);
        causes.filter_map(|(series, value)| Some((label(series, "cause")?.to_owned(), value as u64))).collect()
    }

    pub(super) fn sum(&self, metric: &str, namespace: &str) -> f64 {
        self.series(metric, namespace).map(|(_, value)| value).sum()
    }

    fn series<'a>(&'a self, metric: &'a str, namespace: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        self.lines().filter(move |(series, _)| {
            series.split('{').next() == Some(metric) && label(series, "lock_namespace") == Some(namespace)
        })
    }

    fn lines(&self) -> impl Iterator<Item = (&str, f64)> {
        let lines = self.text.lines().filter_map(|line| line.rsplit_once(' '));
        lines.filter_map(|(series, value)| Some((series, value.parse().ok()?)))
    }
}

/// Values here come from the configuration and hold no quotes.
fn label<'a>(series: &'a str, name: &str) -> Option<&'a str> {
    let (_, labels) = series.split_once('{')?;
    let mut pairs = labels.trim_end_matches('}').split(',').filter_map(|pair| pair.split_once("=\""));
    pairs.find(|(label, _)| *label == name).map(|(_, value)| value.trim_end_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_namespace() {
        let samples = Samples::new(
            "# TYPE redis_lock_held gauge\n\
             redis_lock_held{redis=\"demo\",lock_namespace=\"workflow\"} 3\n\
             redis_lock_held{redis=\"demo\",lock_namespace=\"workflow_reconciler\"} 1\n\
             redis_lock_not_owned_causes_total{redis=\"demo\",lock_namespace=\"workflow\",cause=\"taken_over\"} 2\n\
             redis_lock_not_owned_causes_total{redis=\"demo\",lock_namespace=\"workflow\",cause=\"unknown\"} 0\n"
                .to_owned(),
        );
        assert_eq!(samples.locks("workflow").held, 3);
        assert_eq!(samples.causes("workflow"), BTreeMap::from([("taken_over".to_owned(), 2)]));
    }
}
