//! The published numbers: a copy of all counters and gauges at one moment. The pipeline creates it,
//! and it never changes afterwards.
//!
//! `exposition`, `report` and `http` read it. A snapshot is published only after the same numbers
//! were saved, so a crash cannot make a counter go backwards. The one exception is a state file
//! that cannot be saved.

use std::fmt;
use std::sync::Arc;

use crate::config::Config;
use crate::config::rules::countable::CountableSeries;
use crate::model::counters::{FailureCounters, Histogram, KeyspaceCounters, ReplyBounds, Tally};
use crate::model::failure::{Cause, FailureKind};
use crate::model::label::{Label, label_enum};
use crate::model::namespace::Namespace;
use crate::model::position::SourceTotals;
use crate::model::sighting::OperationsSource;
use crate::util::clock::TimeMs;

#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// In configuration order, `other` last.
    pub namespaces: Vec<NamespaceView>,
    /// Which series each namespace can have, in the same order. For a namespace without an entry,
    /// all series exist.
    pub countable: Arc<[CountableSeries]>,
    /// In configuration order.
    pub sources: Vec<SourceView>,
    /// `None` if no Redis is configured.
    pub redis: Option<RedisView>,
    pub exporter: ExporterView,
    /// When the snapshot was taken.
    pub taken: TimeMs,
    /// The configuration in effect. `None` before the first configuration is loaded.
    pub config: Option<Arc<Config>>,
}

#[derive(Clone, Debug)]
pub struct NamespaceView {
    pub namespace: Arc<Namespace>,
    pub logs: FailureCounters,
    /// The causes of the counted `not_owned` failures. A cause is added some seconds after its
    /// failure.
    pub causes: Tally<Cause>,
    /// `None` if no Redis is configured or the namespace has no keys.
    pub keyspace: Option<KeyspaceView>,
    pub lately: RecentActivity,
}

/// What happened in the last minutes and in the last hour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecentActivity {
    /// One entry for each of [`Ratios::WINDOWS`].
    pub windows: [RecentCounts; 2],
    /// How much of each window was observed, in milliseconds. Less than the window after a start,
    /// and after a reload that changed the namespace.
    pub observed: [TimeMs; 2],
    /// The last hour in steps of [`RecentActivity::STEP`], oldest first.
    pub line: Vec<ChartPoint>,
}

impl RecentActivity {
    pub const POINTS: usize = 120;
    /// In milliseconds.
    pub const STEP: TimeMs = 30_000;
}

/// Counts of one time window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecentCounts {
    /// Without the [expected](crate::model::failure::Failure::is_expected) ones.
    pub failures: Tally<FailureKind>,
    pub operations: Tally<ObservedOperation>,
}

label_enum! {
    /// What Redis shows. The text is the name of the count in the API.
    ObservedOperation {
        Acquisition = "acquisitions",
        Renewal = "renewals",
        Release = "releases",
        Expiration = "expirations",
        FenceRegression = "fence_regressions",
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChartPoint {
    /// Releases and renewals.
    pub operations: u32,
    pub not_owned: u32,
    pub renewal_failures: u32,
    pub expirations: u32,
    /// How much of the step was observed.
    pub observed_ms: u32,
}

/// What Redis shows about the locks of one namespace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeyspaceView {
    pub counters: KeyspaceCounters,
    pub now: KeyspaceNow,
    /// One entry for each of [`Ratios::WINDOWS`].
    pub ratios: [Ratios; 2],
}

/// The current state of the locks. Not saved.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeyspaceNow {
    pub source: Option<OperationsSource>,
    /// Since when all changes have been observed. `None` if changes are not observed now.
    pub observed_since: Option<TimeMs>,
    pub held: u64,
    pub without_ttl: u64,
    /// Those among them that had a TTL and lost it while they were held.
    pub lost_ttl: u64,
    pub renewal_overdue: u64,
    /// Keys that match a key template but have a type that no lock has.
    pub not_locks: u64,
    pub ttl_remaining_min_seconds: Option<f64>,
    pub oldest_acquired: Option<TimeMs>,
    /// For each fixed key of the namespace: when the lock was last known to be held. If it was
    /// never held, when observation began.
    pub last_held: Vec<(String, TimeMs)>,
}

/// Ratios over a time window. `None` if the denominator is zero, or if changes within the window
/// were missed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ratios {
    pub not_owned: Option<f64>,
    pub renewal_failure: Option<f64>,
    /// Only for `item` locks.
    pub expiry: Option<f64>,
}

impl Ratios {
    /// Label value and length in milliseconds.
    pub const WINDOWS: [(&'static str, TimeMs); 2] = [("5m", 300_000), ("1h", 3_600_000)];
}

/// The state of the connection to Redis. Counts start with the process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RedisView {
    /// The label `redis`.
    pub name: String,
    pub now: RedisNow,
}

/// Sums over all primaries.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RedisNow {
    /// Number of primaries that are known, connected, and tracked.
    pub nodes: u64,
    pub nodes_up: u64,
    pub nodes_tracking: u64,
    pub connects: u64,
    pub connect_errors: u64,
    /// Changes of role, run id or replication id.
    pub failovers: u64,
    /// Number of commands sent, by kind. Every kind is always listed.
    pub commands: Vec<(&'static str, u64)>,
    /// For each command that the exporter wants to use: whether the Redis user is denied it. Every
    /// such command is always listed.
    pub denied: Vec<(&'static str, bool)>,
    pub pushes: u64,
    pub flushes: u64,
    /// Keys of any kind that Redis evicted to free memory.
    pub evicted_keys: u64,
    /// Pushes that caused no read because of the limit on reads.
    pub skipped_reads: u64,
    /// How often pushes were lost because too many keys were waiting.
    pub overflows: u64,
    pub read_errors: u64,
    pub scan_passes: u64,
    pub scan_failures: u64,
    /// Time between the starts of two passes, for the node with the longest time.
    pub scan_interval_seconds: Option<f64>,
    /// For the last complete pass over all nodes.
    pub scan_duration_seconds: Option<f64>,
    pub scan_keys: u64,
    pub scan_lock_keys: u64,
    /// For the pass in progress: keys scanned divided by keys expected, from 0 to 1.
    pub scan_progress: Option<f64>,
    pub scan_last_success: Option<TimeMs>,
    /// Total time that Redis took to answer. Used to pace the scan.
    pub busy_seconds: f64,
    /// Time from a request to its reply, measured for requests that had no other request before
    /// them in the queue.
    pub reply_seconds: Histogram<ReplyBounds>,
    /// Problems as text for people, one line each.
    pub complaints: Vec<String>,
}

impl RedisNow {
    /// Returns true if every known primary is connected. False if no primary is known.
    pub fn is_up(&self) -> bool {
        self.nodes > 0 && self.nodes_up >= self.nodes
    }

    /// Returns true if tracking is enabled on every known primary. False if no primary is known.
    pub fn is_tracking(&self) -> bool {
        self.nodes > 0 && self.nodes_tracking >= self.nodes
    }
}

#[derive(Clone, Debug)]
pub struct SourceView {
    /// The label `source`: for files, the path pattern as configured.
    pub name: String,
    pub totals: SourceTotals,
    pub now: SourceNow,
}

/// The current state of one configured log source. Not saved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceNow {
    pub open_files: u64,
    /// Bytes written to the files but not yet read.
    pub lag_bytes: u64,
    /// A problem as text for people.
    pub complaint: Option<String>,
    /// Only for pushed lines.
    pub push: Option<PushNow>,
}

/// The state of the push endpoint. Counts start with the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushNow {
    /// Requests that were rejected, for any reason.
    pub rejected: u64,
}

/// The state of the exporter itself.
#[derive(Clone, Debug, Default)]
pub struct ExporterView {
    pub started: TimeMs,
    /// Whether a state directory is configured.
    pub state_enabled: bool,
    /// Whether all numbers of this snapshot are on disk. False while saving fails, and without a
    /// state directory.
    pub state_durable: bool,
    pub state_saves: u64,
    pub state_save_errors: u64,
    pub state_last_save: Option<TimeMs>,
    /// State files that could not be used and were renamed.
    pub state_set_aside: u64,
    /// Entries that were removed from a full table, by table.
    pub evictions: Vec<(&'static str, u64)>,
    pub config_reload_ok: bool,
    pub config_reloaded: TimeMs,
}
