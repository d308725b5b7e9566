//! The text that Prometheus scrapes: the name, type and HELP of each metric, and the source of its
//! numbers.
//!
//! The server renders a [`Scrape`] for each request; `replay` renders one at its end. Nothing here
//! does I/O, and nothing can fail. Numbers come only from a published snapshot, so the same
//! snapshot gives the same bytes. In reading order:
//!
//! * `metrics`: the tables of all metrics, in the order in which they are written
//! * `metric`: one row of these tables
//! * `collector`: passes every sample to the encoder
//! * `classic`: converts OpenMetrics text to the classic text format

mod classic;
mod collector;
mod metric;
mod metrics;

use std::sync::Arc;

use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

pub use metric::{Metric, MetricKind};
pub use metrics::metrics;

use crate::snapshot::Snapshot;
use collector::SnapshotCollector;

/// The two text formats that scrapers request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFormat {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// The Prometheus text format 0.0.4.
    Classic,
}

impl TextFormat {
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Classic => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Version and revision of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Build {
    pub version: &'static str,
    /// The commit that the program was built from, or `unknown` if the build did not provide it.
    pub revision: &'static str,
}

impl Build {
    pub const CURRENT: Self = Self {
        version: env!("CARGO_PKG_VERSION"),
        revision: match option_env!("REDIS_LOCK_EXPORTER_REVISION") {
            Some(revision) => revision,
            None => "unknown",
        },
    };
}

/// Numbers about this process from the operating system. A number that cannot be read is absent,
/// not 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessStats {
    pub resident_memory_bytes: Option<u64>,
    pub cpu_seconds: Option<f64>,
    pub open_fds: Option<u64>,
    pub max_fds: Option<u64>,
    /// Seconds since the Unix epoch.
    pub start_time_seconds: Option<f64>,
}

/// Everything that the response to a scrape contains.
#[derive(Clone, Debug)]
pub struct Scrape {
    pub snapshot: Arc<Snapshot>,
    pub process: ProcessStats,
    pub build: Build,
}

impl Scrape {
    pub fn render(self, format: TextFormat) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(SnapshotCollector::new(self)));
        let mut openmetrics = String::with_capacity(64 * 1024);
        text::encode(&mut openmetrics, &registry)
            .expect("a String takes every write, and no metric is a native histogram");
        match format {
            TextFormat::OpenMetrics => openmetrics,
            TextFormat::Classic => classic::from_openmetrics(&openmetrics),
        }
    }
}

/// Renders a snapshot without the metrics of a running process.
pub fn render(snapshot: &Snapshot, format: TextFormat) -> String {
    let snapshot = Arc::new(snapshot.clone());
    Scrape { snapshot, process: ProcessStats::default(), build: Build::CURRENT }.render(format)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_snapshot_renders_in_both_formats() {
        let openmetrics = render(&Snapshot::default(), TextFormat::OpenMetrics);
        assert!(openmetrics.ends_with("\n# EOF\n"), "{openmetrics}");
        assert!(openmetrics.contains(concat!("version=\"", env!("CARGO_PKG_VERSION"), "\"")), "{openmetrics}");
        let classic = render(&Snapshot::default(), TextFormat::Classic);
        assert!(!classic.contains("# EOF") && !classic.contains("# UNIT"), "{classic}");
    }

    #[test]
    fn what_is_not_known_is_absent_and_has_no_help_either() {
        let text = render(&Snapshot::default(), TextFormat::OpenMetrics);
        for name in ["process_open_fds", "redis_lock_exporter_start_time_seconds", "redis_lock_not_owned"] {
            assert!(!text.contains(name), "{name} in {text}");
        }
    }
}
