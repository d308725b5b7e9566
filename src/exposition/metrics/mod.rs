//! The tables of all metrics: name, type, HELP, and the source of the number.
//!
//! The collector walks them; tests compare `docs/metrics.md` with them; `check --rules` searches
//! them. To add a metric, add a row. HELP is short because it is part of every scrape. In reading
//! order:
//!
//! * `logs`: failures that logs report
//! * `keyspace`: what Redis shows about locks
//! * `policy`: the configuration of each namespace
//! * `links`: the connections to Redis
//! * `exporter`: the exporter itself
//! * `process`: numbers of the operating system about the process

mod exporter;
mod keyspace;
mod links;
mod logs;
mod policy;
mod process;

use std::time::Duration;

use super::metric::{Distribution, Metric, MetricKind, Number, Numbers};
use crate::util::clock::TimeMs;

const TABLES: [&[Metric]; 6] =
    [&logs::METRICS, keyspace::METRICS, policy::METRICS, exporter::METRICS, links::METRICS, process::METRICS];

/// Returns every metric, in the order of `/metrics`.
pub fn metrics() -> impl Iterator<Item = &'static Metric> {
    TABLES.into_iter().flatten()
}

const fn counter(name: &'static str, help: &'static str, numbers: Numbers) -> Metric {
    Metric { name, kind: MetricKind::Counter, help, numbers }
}

const fn gauge(name: &'static str, help: &'static str, numbers: Numbers) -> Metric {
    Metric { name, kind: MetricKind::Gauge, help, numbers }
}

const fn histogram(name: &'static str, help: &'static str, numbers: Numbers) -> Metric {
    Metric { name, kind: MetricKind::Histogram, help, numbers }
}

const fn info(name: &'static str, help: &'static str, numbers: Numbers) -> Metric {
    Metric { name, kind: MetricKind::Info, help, numbers }
}

fn whole(number: u64) -> Option<Number> {
    Some(Number::Whole(number))
}

fn flag(yes: bool) -> Option<Number> {
    whole(yes.into())
}

fn real(number: Option<f64>) -> Option<Number> {
    number.map(Number::Real)
}

pub(super) fn seconds(duration: Option<Duration>) -> Option<Number> {
    real(duration.map(|duration| duration.as_secs_f64()))
}

/// A time of 0 means "never" and is omitted: a timestamp in 1970 would be wrong.
pub(super) fn timestamp(time: TimeMs) -> Option<Number> {
    (time > 0).then(|| Number::Real(time as f64 / 1000.0))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_row_keeps_the_naming_rules() {
        let mut families = BTreeSet::new();
        for metric in metrics() {
            let name = metric.name;
            assert!(families.insert(metric.family()), "{name} is in the table twice");
            assert!(name.starts_with("redis_lock_") || name.starts_with("process_"), "{name} has no known prefix");
            assert_eq!(name.ends_with("_total"), metric.kind == MetricKind::Counter, "{name}");
            assert_eq!(name.ends_with("_info"), metric.kind == MetricKind::Info, "{name}");
            assert!(metric.help.ends_with('.'), "HELP of {name} is not a sentence");
            assert!(!metric.help.contains(['"', '\\', '\n']), "HELP of {name} needs an escape");
        }
    }
}
