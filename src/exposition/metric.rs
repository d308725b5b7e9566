//! What a row of the table of metrics consists of.
//!
//! Labels follow from where the numbers come from, and units from the name, so neither is written twice.

use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::Process;
use crate::event::{ConflictKind, Operation, Reason};
use crate::ledger::counters::{LogCounters, Tally};
use crate::snapshot::{ExporterView, NamespaceView, SourceView};

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// As it is written in a query, with `_total` or `_info`.
    pub name: &'static str,
    pub kind: Kind,
    /// One sentence without quotes, backslashes or line ends: they would need different escapes in the two formats.
    pub help: &'static str,
    pub(super) numbers: Numbers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    /// Always 1; what it says is in its labels. A gauge in the classic format.
    Info,
}

/// A sample's value, written without a decimal point where it is whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Whole(u64),
    Real(f64),
}

/// Where a metric's numbers come from: this decides its labels. `None` is an absent sample.
#[derive(Clone, Copy, Debug)]
pub(super) enum Numbers {
    Namespace(fn(&NamespaceView) -> Option<Number>),
    Operation(fn(&LogCounters) -> &Tally<Operation>),
    Reason(fn(&LogCounters) -> &Tally<Reason>),
    Conflict(fn(&LogCounters) -> &Tally<ConflictKind>),
    Policy,
    Source(fn(&SourceView) -> Option<Number>),
    Exporter(fn(&ExporterView) -> Option<Number>),
    Table(fn(&ExporterView) -> &[(&'static str, u64)]),
    Process(fn(&Process) -> Option<Number>),
    Build,
}

impl Metric {
    pub fn labels(&self) -> &'static [&'static str] {
        match self.numbers {
            Numbers::Namespace(_) => &["lock_namespace"],
            Numbers::Operation(_) => &["lock_namespace", "operation"],
            Numbers::Reason(_) => &["lock_namespace", "reason"],
            Numbers::Conflict(_) => &["lock_namespace", "kind"],
            Numbers::Policy => &["lock_namespace", "style", "on_renewal_failure", "severity"],
            Numbers::Source(_) => &["source"],
            Numbers::Table(_) => &["table"],
            Numbers::Exporter(_) | Numbers::Process(_) => &[],
            Numbers::Build => &["version", "revision"],
        }
    }

    /// What the name counts in, where it says so.
    pub fn unit(&self) -> Option<Unit> {
        let units = [("_seconds", Unit::Seconds), ("_bytes", Unit::Bytes), ("_ratio", Unit::Other("ratio".to_owned()))];
        units.into_iter().find(|(suffix, _)| self.family().ends_with(suffix)).map(|(_, unit)| unit)
    }

    /// The name without the suffix that OpenMetrics gives to samples only.
    pub fn family(&self) -> &'static str {
        match self.kind {
            Kind::Counter => self.name.trim_end_matches("_total"),
            Kind::Info => self.name.trim_end_matches("_info"),
            Kind::Gauge => self.name,
        }
    }
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Info => "info",
        }
    }

    pub(super) fn metric_type(self) -> MetricType {
        match self {
            Self::Counter => MetricType::Counter,
            Self::Gauge => MetricType::Gauge,
            Self::Info => MetricType::Info,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::exposition::METRICS;

    #[test]
    fn units_come_from_names() {
        let unit = |name: &str| {
            let metric = METRICS.iter().find(|metric| metric.name == name).unwrap();
            metric.unit().map(|unit| unit.as_str().to_owned())
        };
        assert_eq!(unit("redis_lock_config_ttl_seconds").as_deref(), Some("seconds"));
        assert_eq!(unit("process_cpu_seconds_total").as_deref(), Some("seconds"));
        assert_eq!(unit("redis_lock_config_busy_ratio").as_deref(), Some("ratio"));
        assert_eq!(unit("redis_lock_not_owned_total"), None);
    }
}
