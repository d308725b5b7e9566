//! What `/metrics` shows: a copy of all numbers at one moment, made by the pipeline and never changed afterwards.
//!
//! A snapshot is published only after the very same numbers were saved, so that a crash cannot make a counter step back.

use crate::model::position::SourceTotals;
use std::sync::Arc;

use crate::config::Config;
use crate::config::rules::countable::CountableSeries;
use crate::model::counters::{Histogram, KeyspaceCounters, LogCounters, ReplyBounds, Tally};
use crate::model::failure::Cause;
use crate::model::namespace::Namespace;
use crate::model::sighting::OperationsSource;
use crate::util::clock::TimeMs;

#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// In configuration order, `other` last.
    pub namespaces: Vec<NamespaceView>,
    /// What can be counted for each namespace, in the same order. Where it is missing, everything.
    pub told: Arc<[CountableSeries]>,
    /// In configuration order.
    pub sources: Vec<SourceView>,
    /// `None`: no Redis is configured.
    pub redis: Option<RedisView>,
    pub exporter: ExporterView,
    /// When this was made.
    pub taken: TimeMs,
    /// The configuration in effect. `None` before the first one is.
    pub config: Option<Arc<Config>>,
}

#[derive(Clone, Debug)]
pub struct NamespaceView {
    pub namespace: Arc<Namespace>,
    pub logs: LogCounters,
    /// Of each `not_owned`, some seconds after it.
    pub causes: Tally<Cause>,
    /// `None`: no Redis is configured, or the namespace has no keys.
    pub keyspace: Option<KeyspaceView>,
    pub lately: Lately,
}

/// What happened in the last minutes and the last hour; since the start of the process, not saved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lately {
    /// For each of [`Ratios::WINDOWS`].
    pub windows: [Sums; 2],
    /// The last hour in steps, the oldest first.
    pub line: Vec<Point>,
}

impl Lately {
    pub const POINTS: usize = 120;
    /// Milliseconds.
    pub const STEP: TimeMs = 30_000;
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub not_owned: u64,
    pub renewal_failures: u64,
    pub releases: u64,
    pub renewals: u64,
    pub expirations: u64,
    pub acquisitions: u64,
    /// But for those that found the lock taken, or that the program itself broke off.
    pub acquire_failures: u64,
    pub abandonments: u64,
    pub unlocked_work: u64,
    pub conflicting_writes: u64,
    pub fence_regressions: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// Releases and renewals.
    pub operations: u32,
    pub not_owned: u32,
    pub renewal_failures: u32,
    pub expirations: u32,
}

/// What Redis shows about the locks of one namespace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeyspaceView {
    pub counters: KeyspaceCounters,
    pub now: KeyspaceNow,
    /// For each of [`Ratios::WINDOWS`].
    pub ratios: [Ratios; 2],
}

/// The locks as they are now; not saved.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeyspaceNow {
    pub source: Option<OperationsSource>,
    /// Since when nothing has been missed. `None`: it is not so now.
    pub observed_since: Option<TimeMs>,
    pub held: u64,
    pub without_ttl: u64,
    pub renewal_overdue: u64,
    /// Keys that fit a template but are of a type that no lock has.
    pub not_locks: u64,
    pub ttl_remaining_min_seconds: Option<f64>,
    pub oldest_acquired: Option<TimeMs>,
    /// For each fixed key of the namespace: when somebody was last known to hold it; if never, when looking began.
    pub last_held: Vec<(String, TimeMs)>,
}

/// Shares over a window; absent where there is no denominator.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ratios {
    pub not_owned: Option<f64>,
    pub renewal_failure: Option<f64>,
    /// `item` style only.
    pub expiry: Option<f64>,
}

impl Ratios {
    /// Label value and seconds.
    pub const WINDOWS: [(&'static str, TimeMs); 2] = [("5m", 300_000), ("1h", 3_600_000)];
}

/// How looking at Redis goes; counts are since the start of the process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RedisView {
    /// The label `redis`.
    pub name: String,
    pub now: RedisNow,
}

/// Summed over all nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RedisNow {
    /// Primaries known, connected, and watched with tracking.
    pub nodes: u64,
    pub nodes_up: u64,
    pub nodes_tracking: u64,
    pub connects: u64,
    pub connect_errors: u64,
    /// Changes of role, run id or replication id.
    pub failovers: u64,
    /// Commands sent, by kind, all kinds always there.
    pub commands: Vec<(&'static str, u64)>,
    /// Commands that the user may not use, of those that are wanted; all always there.
    pub denied: Vec<(&'static str, bool)>,
    pub pushes: u64,
    pub flushes: u64,
    /// Keys of any kind that Redis deleted to make room.
    pub evicted_keys: u64,
    /// Pushes that caused no read because of the ceiling on reads.
    pub skipped_reads: u64,
    /// Times that pushes were lost because too many keys were waiting.
    pub overflows: u64,
    pub read_errors: u64,
    pub scan_passes: u64,
    pub scan_failures: u64,
    /// From the begin of one pass to the begin of the next, of the node that is looked through least often.
    pub scan_interval_seconds: Option<f64>,
    /// Of the last complete pass over all nodes.
    pub scan_duration_seconds: Option<f64>,
    pub scan_keys: u64,
    pub scan_lock_keys: u64,
    /// Of the pass that is under way, from 0 to 1 by keys seen of those expected.
    pub scan_progress: Option<f64>,
    pub scan_last_success: Option<TimeMs>,
    /// Time that Redis took to answer, summed, for pacing.
    pub busy_seconds: f64,
    /// From a question that nothing was ahead of to its answer.
    pub reply_seconds: Histogram<ReplyBounds>,
    /// What is not as it should be, for people: one line each.
    pub complaints: Vec<String>,
}

impl RedisNow {
    /// Every known primary is connected. Knowing none is not up.
    pub fn is_up(&self) -> bool {
        self.nodes > 0 && self.nodes_up >= self.nodes
    }

    /// Every known primary tells of each change.
    pub fn is_tracking(&self) -> bool {
        self.nodes > 0 && self.nodes_tracking >= self.nodes
    }
}

#[derive(Clone, Debug)]
pub struct SourceView {
    /// The path pattern as configured: the `source` label.
    pub name: String,
    pub totals: SourceTotals,
    pub now: SourceNow,
}

/// How one configured log source is doing right now; not saved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceNow {
    pub open_files: u64,
    /// Bytes written to the files but not yet read.
    pub lag_bytes: u64,
    /// What is not as it should be, for people.
    pub complaint: Option<String>,
    /// What only lines that are pushed have.
    pub push: Option<PushNow>,
}

/// How pushing goes; counts are since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushNow {
    /// Requests that were not taken, for whatever reason.
    pub rejected: u64,
}

/// How the exporter itself is doing.
#[derive(Clone, Debug, Default)]
pub struct ExporterView {
    pub started: TimeMs,
    /// A state directory is configured.
    pub state_enabled: bool,
    /// Everything shown here is on disk. False while saving fails, and without a state directory.
    pub state_durable: bool,
    pub state_saves: u64,
    pub state_save_errors: u64,
    pub state_last_save: Option<TimeMs>,
    /// State files that could not be used and were set aside.
    pub state_set_aside: u64,
    /// Entries that left a full table, by table.
    pub evictions: Vec<(&'static str, u64)>,
    pub config_reload_ok: bool,
    pub config_reloaded: TimeMs,
}
