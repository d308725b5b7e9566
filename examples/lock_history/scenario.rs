//! A scenario of the manifest. Minutes count from the start of the run.

use serde::Deserialize;

use crate::programs::Kind;

/// One line of the input: a scenario and its random seed.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Order {
    pub(crate) name: String,
    pub(crate) seed: u64,
    pub(crate) minutes: f64,
    /// Names of the requested metrics.
    pub(crate) metrics: Vec<String>,
    pub(crate) scenario: Scenario,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Scenario {
    #[serde(default = "one_service")]
    pub(crate) services: Vec<Service>,
    #[serde(default)]
    pub(crate) faults: Vec<Fault>,
    /// Share of operations that find their lock lost during normal operation.
    #[serde(default = "ordinary_noise")]
    pub(crate) noise: f64,
    #[serde(default)]
    pub(crate) exporter: ExporterPart,
    /// Prometheus does not scrape: start, and duration in minutes.
    pub(crate) gap: Option<(f64, f64)>,
}

/// A program and its amount of work.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Service {
    pub(crate) kind: Kind,
    /// Renewals and releases per second.
    pub(crate) ops: f64,
    /// Shortest and longest work in seconds.
    #[serde(default = "ordinary_work")]
    pub(crate) work: (f64, f64),
    /// Share of stray failures, if it differs from the scenario's.
    pub(crate) noise: Option<f64>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Fault {
    pub(crate) fault: FaultKind,
    pub(crate) from: f64,
    #[serde(default)]
    pub(crate) minutes: f64,
    /// Share of operations; for a failover, share of lost locks; for a deployment, share of holders
    /// that end cleanly.
    #[serde(default = "all")]
    pub(crate) share: f64,
    /// The share grows from 0 to `share` over these minutes.
    #[serde(default)]
    pub(crate) grows: f64,
    /// Number of attempts of an operation that gets no answer.
    #[serde(default = "once")]
    pub(crate) tries: u32,
    /// Affects only this program.
    pub(crate) only: Option<Kind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FaultKind {
    /// A client deletes locks without checking the owner.
    Delete,
    /// A client overwrites locks of other owners.
    Steal,
    /// Holders are paused for longer than their TTL.
    Stall,
    /// Redis does not answer in time.
    Timeout,
    /// Redis answers renewals too late and everything else in time.
    LateRenewals,
    /// Redis is down; afterwards `share` of the locks are lost.
    Down,
    /// Holders crash.
    Crash,
    /// Six replicas restart one after the other; `share` of their holders end cleanly.
    Deploy,
    /// Only the exporter cannot reach Redis.
    Cut,
    /// `share` is the number of locks that are lost at once.
    Lose,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct ExporterPart {
    /// Minute, seconds of downtime, and whether the exporter finds its saved state.
    #[serde(default)]
    pub(crate) restarts: Vec<(f64, f64, bool)>,
    #[serde(default)]
    pub(crate) twin: Twin,
    /// No Redis is configured.
    #[serde(default)]
    pub(crate) logs_only: bool,
    /// Changes are not watched.
    #[serde(default)]
    pub(crate) scan: bool,
}

/// A second exporter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Twin {
    #[default]
    None,
    /// Observes the same Redis.
    Keyspace,
    /// Observes the same Redis, and reads half of the logs.
    Half,
}

fn one_service() -> Vec<Service> {
    vec![Service { kind: Kind::Workflow, ops: 5.0, work: ordinary_work(), noise: None }]
}

fn ordinary_noise() -> f64 {
    0.0005
}

fn ordinary_work() -> (f64, f64) {
    (5.0, 60.0)
}

fn all() -> f64 {
    1.0
}

fn once() -> u32 {
    1
}
