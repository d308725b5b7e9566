//! The numbers of one scrape that speak of the drill.

use std::collections::BTreeMap;

/// Series as written, and value. Buckets and gauges that change all the time are left out: they would only fill memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Samples(BTreeMap<String, f64>);

/// Which series of a metric are summed up.
#[derive(Clone, Debug)]
pub(super) struct Selector {
    pub(super) metric: &'static str,
    pub(super) labels: Vec<(&'static str, String)>,
}

const KEPT: [&str; 5] = [
    "redis_lock_namespace_info",
    "redis_lock_last_held_timestamp_seconds",
    "redis_lock_held",
    "redis_lock_exporter_redis_up",
    "redis_lock_exporter_tracking_up",
];

impl Samples {
    /// Classic text, of which only the metrics of the exporter are kept.
    pub(super) fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| line.starts_with("redis_lock_"));
        let samples = lines.filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let name = metric_of(series);
            let is_kept = KEPT.contains(&name)
                || name.ends_with("_total")
                || name == "redis_lock_takeover_seconds_sum"
                || name.starts_with("redis_lock_exporter_log_");
            if is_kept { Some((series.to_owned(), value.parse().ok()?)) } else { None }
        });
        Self(samples.collect())
    }

    /// The sum over all series that fit; 0 where there is none.
    pub(super) fn sum(&self, selector: &Selector) -> f64 {
        self.fitting(selector).map(|(_, value)| value).sum()
    }

    pub(super) fn has(&self, selector: &Selector) -> bool {
        self.fitting(selector).next().is_some()
    }

    fn fitting<'a>(&'a self, selector: &'a Selector) -> impl Iterator<Item = (&'a String, f64)> {
        let fits = move |series: &str| {
            metric_of(series) == selector.metric
                && selector.labels.iter().all(|(name, value)| {
                    let label = format!("{name}=\"{value}\"");
                    series.contains(&format!("{{{label}")) || series.contains(&format!(",{label}"))
                })
        };
        self.0.iter().filter(move |(series, _)| fits(series)).map(|(series, value)| (series, *value))
    }
}

impl Selector {
    pub(super) fn new(metric: &'static str, labels: &[(&'static str, &str)]) -> Self {
        Self { metric, labels: labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect() }
    }
}

fn metric_of(series: &str) -> &str {
    series.split('{').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_by_labels() {
        let text = "# HELP x y\nredis_lock_a_total{lock_namespace=\"n\",cause=\"c\"} 2\n\
                    redis_lock_a_total{lock_namespace=\"n\",cause=\"d\"} 3\nredis_lock_a_total{lock_namespace=\"nn\"} 7\n\
                    redis_lock_hold_seconds_bucket{le=\"1\"} 4\nother_total 5\nredis_lock_held 1\n";
        let samples = Samples::parse(text);
        assert_eq!(samples.0.len(), 4);
        let sum = |labels: &[(&'static str, &str)]| samples.sum(&Selector::new("redis_lock_a_total", labels));
        assert_eq!(sum(&[("lock_namespace", "n")]), 5.0);
        assert_eq!(sum(&[("lock_namespace", "n"), ("cause", "d")]), 3.0);
        assert_eq!((sum(&[]), sum(&[("namespace", "n")])), (12.0, 0.0));
        assert!(!samples.has(&Selector::new("redis_lock_b_total", &[])));
    }
}
