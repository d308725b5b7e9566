//! The type of a row in the tables of metrics. The collector reads the rows.
//!
//! The labels of a metric follow from the source of its numbers, so they are not written twice.

use std::time::Duration;

use prometheus_client::metrics::MetricType;

use super::ProcessStats;
use crate::model::counters::{Bounds, Histogram};
use crate::model::failure::FailureKind;
use crate::model::namespace::Namespace;
use crate::report::advice::Advice;
use crate::snapshot::{ExporterView, KeyspaceView, NamespaceView, Ratios, RedisNow, SourceView};

/// One row of the tables.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The name in queries, with `_total` or `_info`.
    pub name: &'static str,
    pub kind: MetricKind,
    /// One sentence without quotes, backslashes or line ends: these would need different escapes in
    /// the two formats.
    pub help: &'static str,
    pub(super) numbers: Numbers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    Counter,
    Gauge,
    /// Written as `_bucket`, `_sum` and `_count`.
    Histogram,
    /// Always 1. The labels contain the information. In the classic format it is a gauge.
    Info,
}

/// The value of a sample. An integer is written without a decimal point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Whole(u64),
    Real(f64),
}

/// The content of a histogram.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Distribution {
    pub(super) sum: f64,
    /// Upper bounds with the non-cumulative counts of their buckets. The last bound is infinite.
    pub(super) buckets: Vec<(f64, u64)>,
}

impl Distribution {
    /// Uses all buckets of the ledger.
    pub(super) fn whole<B: Bounds>(histogram: &Histogram<B>) -> Self {
        Self { sum: histogram.sum(), buckets: histogram.buckets().collect() }
    }

    /// Uses only some bounds of the ledger, because each bound is a series for each namespace.
    /// Counts below an omitted bound are in the bucket of the next shown bound.
    pub(super) fn at<B: Bounds>(histogram: &Histogram<B>, shown: &[f64]) -> Self {
        let mut buckets = Vec::with_capacity(shown.len() + 1);
        let mut count = 0;
        for (bound, own_count) in histogram.buckets() {
            count += own_count;
            if bound.is_infinite() || shown.contains(&bound) {
                buckets.push((bound, std::mem::take(&mut count)));
            }
        }
        Self { sum: histogram.sum(), buckets }
    }
}

/// The source of a metric's numbers. It also determines the labels. `None` means that there is no
/// sample.
#[derive(Clone, Copy, Debug)]
pub(super) enum Numbers {
    Namespace(fn(&NamespaceView) -> Option<Number>),
    Failures(FailureKind),
    Cause,
    /// This variant and all others up to `Ratio` have samples only if Redis is configured and the
    /// namespace has keys.
    Keyspace(fn(&Namespace, &KeyspaceView) -> Option<Number>),
    Advice(fn(&Advice) -> Option<Duration>),
    Distribution(fn(&Namespace, &KeyspaceView) -> Option<Distribution>),
    OwnerChange,
    Takeover,
    LastHeld,
    OperationsSource,
    /// One sample for each window.
    Ratio(fn(&Namespace, &Ratios) -> Option<f64>),
    Policy,
    Source(fn(&SourceView) -> Option<Number>),
    Exporter(fn(&ExporterView) -> Option<Number>),
    Table(fn(&ExporterView) -> &[(&'static str, u64)]),
    Redis(fn(&RedisNow) -> Option<Number>),
    RedisDistribution(fn(&RedisNow) -> Distribution),
    Command(fn(&RedisNow) -> Vec<(&'static str, u64)>),
    Process(fn(&ProcessStats) -> Option<Number>),
    Build,
}

impl Metric {
    pub fn labels(&self) -> &'static [&'static str] {
        match self.numbers {
            Numbers::Namespace(_) => &["lock_namespace"],
            Numbers::Failures(kind) => kind.info().labels,
            Numbers::Cause => &["lock_namespace", "cause"],
            Numbers::Keyspace(_) | Numbers::Advice(_) | Numbers::Distribution(_) => &["redis", "lock_namespace"],
            Numbers::OwnerChange => &["redis", "lock_namespace", "after"],
            Numbers::Takeover => &["redis", "lock_namespace", "within_slo"],
            Numbers::LastHeld => &["redis", "lock_namespace", "lock"],
            Numbers::OperationsSource => &["redis", "lock_namespace", "source"],
            Numbers::Ratio(_) => &["redis", "lock_namespace", "window"],
            Numbers::Policy => &["lock_namespace", "style", "on_renewal_failure", "severity"],
            Numbers::Source(_) => &["source"],
            Numbers::Table(_) => &["table"],
            Numbers::Command(_) => &["command"],
            Numbers::Exporter(_) | Numbers::Redis(_) | Numbers::RedisDistribution(_) | Numbers::Process(_) => &[],
            Numbers::Build => &["version", "revision"],
        }
    }

    /// Returns the name without the suffix that OpenMetrics adds only to samples.
    pub fn family(&self) -> &'static str {
        match self.kind {
            MetricKind::Counter => self.name.trim_end_matches("_total"),
            MetricKind::Info => self.name.trim_end_matches("_info"),
            MetricKind::Gauge | MetricKind::Histogram => self.name,
        }
    }
}

impl MetricKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }

    pub(super) fn metric_type(self) -> MetricType {
        match self {
            Self::Counter => MetricType::Counter,
            Self::Gauge => MetricType::Gauge,
            Self::Histogram => MetricType::Histogram,
            Self::Info => MetricType::Info,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::counters::MarginBounds;

    #[test]
    fn buckets_that_are_not_shown_are_part_of_the_next() {
        let mut histogram = Histogram::<MarginBounds>::default();
        for value in [0.05, 0.15, 0.25, 0.35, 0.75, 2.0] {
            histogram.observe(value);
        }
        let shown = Distribution::at(&histogram, &[0.2, 0.4]);
        assert_eq!(shown.buckets, [(0.2, 2), (0.4, 2), (f64::INFINITY, 2)]);
        assert_eq!(shown.sum, histogram.sum());
        assert_eq!(Distribution::whole(&histogram).buckets.len(), 9);
    }
}
