//! The samples of one scrape of an exporter. The demo, the drill and the tests compare them with
//! what really happened.
//!
//! Lines that cannot be parsed are skipped.

use std::collections::{BTreeMap, btree_map};
use std::ops::Deref;

/// Values, keyed by series as `/metrics` writes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples(BTreeMap<String, f64>);

/// Selects series of one metric by their labels.
#[derive(Clone, Debug)]
pub(crate) struct SeriesSelector {
    pub(crate) metric: &'static str,
    pub(crate) labels: Vec<(&'static str, String)>,
    /// Series with one of these labels are excluded.
    pub(crate) but: Vec<(&'static str, &'static str)>,
}

impl Samples {
    /// Parses the classic text format.
    pub fn parse(text: &str) -> Self {
        Self::parse_some(text, |_| true)
    }

    /// Keeps only the series that `is_kept` accepts.
    pub(crate) fn parse_some(text: &str, is_kept: impl Fn(&str) -> bool) -> Self {
        let series_and_values = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            if is_kept(series) { Some((series.to_owned(), value.parse().ok()?)) } else { None }
        });
        Self(series_and_values.collect())
    }

    /// Returns the series that are new or whose value differs from `before`.
    pub(crate) fn changed_from(&self, before: &Self) -> Self {
        let is_changed = |(series, value): &(&String, &f64)| before.0.get(*series) != Some(*value);
        Self(self.0.iter().filter(is_changed).map(|(series, value)| (series.clone(), *value)).collect())
    }

    pub(crate) fn update(&mut self, changed: Self) {
        self.0.extend(changed.0);
    }

    /// Returns the sum over all series of a metric that have these labels, or 0 if there is none.
    pub fn total(&self, metric: &str, labels: &[(&str, &str)]) -> f64 {
        let fits = |series: &str| {
            let mut labels = labels.iter();
            metric_of(series) == metric && labels.all(|(name, value)| label_of(series, name) == Some(value))
        };
        self.0.iter().filter(|(series, _)| fits(series)).map(|(_, value)| value).sum()
    }

    /// Returns the sum over all selected series, or 0 if there is none.
    pub(crate) fn sum(&self, selector: &SeriesSelector) -> f64 {
        self.fitting(selector).map(|(_, value)| value).sum()
    }

    pub(crate) fn has(&self, selector: &SeriesSelector) -> bool {
        self.fitting(selector).next().is_some()
    }

    /// Returns one sum per value of the label `name`.
    pub(crate) fn by_label(&self, selector: &SeriesSelector, name: &str) -> BTreeMap<String, f64> {
        let mut sums = BTreeMap::new();
        for (series, value) in self.fitting(selector) {
            if let Some(label) = label_of(series, name) {
                *sums.entry(label.to_owned()).or_default() += value;
            }
        }
        sums
    }

    fn fitting<'a>(&'a self, selector: &'a SeriesSelector) -> impl Iterator<Item = (&'a str, f64)> {
        let fits = move |series: &str| {
            let mut labels = selector.labels.iter();
            metric_of(series) == selector.metric
                && labels.all(|(name, value)| label_of(series, name) == Some(value))
                && !selector.but.iter().any(|(name, value)| label_of(series, name) == Some(value))
        };
        self.0.iter().filter(move |(series, _)| fits(series)).map(|(series, value)| (series.as_str(), *value))
    }
}

impl SeriesSelector {
    pub(crate) fn new(metric: &'static str, labels: &[(&'static str, &str)]) -> Self {
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Self { metric, labels, but: Vec::new() }
    }

    pub(crate) fn but(self, but: &[(&'static str, &'static str)]) -> Self {
        Self { but: but.to_vec(), ..self }
    }
}

impl Deref for Samples {
    type Target = BTreeMap<String, f64>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl IntoIterator for Samples {
    type Item = (String, f64);
    type IntoIter = btree_map::IntoIter<String, f64>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

fn metric_of(series: &str) -> &str {
    series.split('{').next().unwrap_or_default()
}

/// Returns the value of one label. Works only for values without quotes and commas, such as names
/// of lock namespaces and words from closed lists. The values of other labels may contain anything.
fn label_of<'a>(series: &'a str, name: &str) -> Option<&'a str> {
    let (_, labels) = series.split_once('{')?;
    let begins = |at: &usize| *at == 0 || labels.as_bytes()[at - 1] == b',';
    let mut places = labels.match_indices(name).map(|(at, _)| at).filter(begins);
    places.find_map(|at| labels[at + name.len()..].strip_prefix("=\"")?.split('"').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_by_labels() {
        let text = "# HELP x y\nredis_lock_a_total{lock_namespace=\"n\",cause=\"c\"} 2\n\
                    redis_lock_a_total{lock_namespace=\"n\",cause=\"d\"} 3\nredis_lock_a_total{lock_namespace=\"nn\"} 7\n\
                    redis_lock_a_total{path=\"a,b {x}\",lock_namespace=\"m\"} 9\n\
                    redis_lock_hold_seconds_bucket{le=\"1\"} 4\nother_total 5\nredis_lock_held 1\n";
        let samples = Samples::parse_some(text, |series| !series.starts_with("redis_lock_hold_seconds_bucket"));
        assert_eq!(samples.0.len(), 6);
        let selector = |labels: &[(&'static str, &str)]| SeriesSelector::new("redis_lock_a_total", labels);
        let sum = |labels: &[(&'static str, &str)]| samples.sum(&selector(labels));
        assert_eq!(sum(&[("lock_namespace", "n")]), 5.0);
        assert_eq!(sum(&[("lock_namespace", "n"), ("cause", "d")]), 3.0);
        assert_eq!(sum(&[("lock_namespace", "m")]), 9.0);
        assert_eq!(samples.sum(&selector(&[("lock_namespace", "n")]).but(&[("cause", "c")])), 3.0);
        assert_eq!((sum(&[]), sum(&[("namespace", "n")])), (21.0, 0.0));
        let total = |labels: &[(&str, &str)]| samples.total("redis_lock_a_total", labels);
        assert_eq!(
            (total(&[]), total(&[("lock_namespace", "n")]), total(&[("lock_namespace", "x")])),
            (21.0, 5.0, 0.0)
        );
        assert!(!samples.has(&SeriesSelector::new("redis_lock_b_total", &[])));
        let causes = samples.by_label(&selector(&[("lock_namespace", "n")]), "cause");
        assert_eq!(causes, BTreeMap::from([("c".to_owned(), 2.0), ("d".to_owned(), 3.0)]));
    }
}
