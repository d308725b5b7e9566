//! A scenario as the manifest describes it. Minutes count from the begin of the run.

use serde::Deserialize;

use crate::programs::Kind;

/// One line of the input: a scenario, and the seed to draw it with.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Order {
    pub(crate) name: String,
    pub(crate) seed: u64,
    pub(crate) minutes: f64,
    /// Names of the metrics that are wanted.
    pub(crate) metrics: Vec<String>,
    pub(crate) scenario: Scenario,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Scenario {
    #[serde(default = "one_service")]
    pub(crate) services: Vec<Service>,
    #[serde(default)]
    pub(crate) faults: Vec<Fault>,
    /// Share of operations that find their lock lost on an ordinary day.
    #[serde(default = "ordinary_noise")]
    pub(crate) noise: f64,
    #[serde(default)]
    pub(crate) exporter: ExporterPart,
    /// Prometheus does not scrape: from, and for how many minutes.
    pub(crate) gap: Option<(f64, f64)>,
}

/// A program and how much it does.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Service {
    pub(crate) kind: Kind,
    /// Renewals and releases a second.
    pub(crate) ops: f64,
    /// Shortest and longest work in seconds.
    #[serde(default = "ordinary_work")]
    pub(crate) work: (f64, f64),
    /// Share of strays where it is not that of the scenario.
    pub(crate) noise: Option<f64>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Fault {
    pub(crate) fault: FaultKind,
    pub(crate) from: f64,
    #[serde(default)]
    pub(crate) minutes: f64,
    /// Of operations; of locks for what a failover loses; of holders that end well for a deployment.
    #[serde(default = "all")]
    pub(crate) share: f64,
    /// Grows from nothing to `share` over these minutes.
    #[serde(default)]
    pub(crate) grows: f64,
    /// How often an operation is tried that gets no answer.
    #[serde(default = "once")]
    pub(crate) tries: u32,
    /// Only this program.
    pub(crate) only: Option<Kind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FaultKind {
    /// Somebody deletes locks without looking whose they are.
    Delete,
    /// Somebody sets locks that others have.
    Steal,
    /// Holders stand still for longer than their TTL.
    Stall,
    /// Redis does not answer in time.
    Timeout,
    /// Redis answers renewals too late, and everything else in time.
    LateRenewals,
    /// Redis is away; afterwards `share` of the locks are lost.
    Down,
    /// Holders die.
    Crash,
    /// Six replicas are restarted one after the other; `share` of their holders end well.
    Deploy,
    /// Only the exporter cannot reach Redis.
    Cut,
    /// `share` locks are lost, at once: their number.
    Lose,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct ExporterPart {
    /// Minute, seconds of absence, and whether it finds its state again.
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
    /// Looks at the same Redis.
    Keyspace,
    /// Looks at the same Redis, and reads half of the logs.
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
