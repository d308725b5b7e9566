//! What `/metrics` shows: a copy of all numbers at one moment, made by the pipeline and never changed afterwards.
//!
//! A snapshot is published only after the very same numbers were saved, so that a crash cannot make a counter step back.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::event::TimeMs;
use crate::ledger::counters::LogCounters;
use crate::namespace::Namespace;

#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// In configuration order, `other` last.
    pub namespaces: Vec<NamespaceView>,
    /// In configuration order.
    pub sources: Vec<SourceView>,
    pub exporter: ExporterView,
}

#[derive(Clone, Debug)]
pub struct NamespaceView {
    pub namespace: Arc<Namespace>,
    pub logs: LogCounters,
}

#[derive(Clone, Debug)]
pub struct SourceView {
    /// The path pattern as configured: the `source` label.
    pub name: String,
    pub totals: SourceTotals,
    pub now: SourceNow,
}

/// What one configured log source has given so far; saved together with the offsets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SourceTotals {
    pub bytes: u64,
    pub lines: u64,
    /// Lines that said something about a lock, before several lines about one failure are joined.
    pub events: u64,
    pub oversized_lines: u64,
    pub rotations: u64,
    pub truncations: u64,
    pub read_errors: u64,
    /// When new bytes were last read: kept over a restart, or a source that fell silent would look new.
    pub last_read: Option<TimeMs>,
}

impl SourceTotals {
    pub fn add(&mut self, more: &Self) {
        let Self { bytes, lines, events, oversized_lines, rotations, truncations, read_errors, last_read } = more;
        self.bytes += bytes;
        self.lines += lines;
        self.events += events;
        self.oversized_lines += oversized_lines;
        self.rotations += rotations;
        self.truncations += truncations;
        self.read_errors += read_errors;
        self.last_read = self.last_read.max(*last_read);
    }
}

/// How one configured log source is doing right now; not saved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceNow {
    pub open_files: u64,
    /// Bytes written to the files but not yet read.
    pub lag_bytes: u64,
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
