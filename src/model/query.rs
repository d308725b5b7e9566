//! What people ask about single locks, and the answers: the JSON of `/api/v1`.
//!
//! The server hands an [`Inquiry`] to the pipeline, which answers from the ledger. Ids and keys belong here, never into
//! labels; owners appear as short hashes. Every answer is bounded.

use serde::Serialize;
use tokio::sync::oneshot;

/// Unix seconds with milliseconds, as Prometheus writes times.
pub type Seconds = f64;

#[derive(Debug)]
pub enum Inquiry {
    Locks(LocksQuery, oneshot::Sender<LocksPage>),
    Lock(String, oneshot::Sender<Option<LockHistory>>),
    Incidents(IncidentsQuery, oneshot::Sender<IncidentsPage>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocksQuery {
    pub lock_namespace: Option<String>,
    /// Part of the key.
    pub search: Option<String>,
    pub sort: LockOrder,
    pub limit: usize,
    pub offset: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockOrder {
    /// The least time left first; locks without TTL come last.
    #[default]
    TtlRemaining,
    /// Held longest first.
    HeldLongest,
    /// Those that changed their owner most often first.
    OwnerChanges,
    Key,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LocksPage {
    /// Locks that fit the query.
    pub total: usize,
    pub offset: usize,
    pub locks: Vec<LockView>,
}

/// A lock that is held.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LockView {
    pub key: String,
    pub lock_namespace: String,
    /// Absent where the value may not be read.
    pub owner: Option<String>,
    /// Absent where the acquisition was not seen: the lock is older than that.
    pub acquired_at: Option<Seconds>,
    pub first_seen_at: Seconds,
    pub last_renewed_at: Option<Seconds>,
    pub renewals: u32,
    /// Absent: no TTL.
    pub ttl_remaining_seconds: Option<f64>,
    pub full_ttl_seconds: Option<f64>,
    /// As far as remembered.
    pub owner_changes: u16,
    pub renewal_overdue: bool,
    /// The connection was interrupted since the lock was last seen.
    pub doubtful: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LockHistory {
    pub key: String,
    /// The one that the key fits, or that it was last seen in.
    pub lock_namespace: Option<String>,
    /// Absent: not held now.
    pub now: Option<LockView>,
    /// Who has it, in a sentence.
    pub state: String,
    /// How it was last lost, in a sentence. Absent: it was not, as far as remembered.
    pub verdict: Option<String>,
    /// The latest first; the one that goes on has no end.
    pub holds: Vec<HoldView>,
    /// The latest first.
    pub history: Vec<HistoryView>,
}

/// From an acquisition to its end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HoldView {
    pub owner: Option<String>,
    pub began_at: Seconds,
    /// Otherwise it began earlier.
    pub acquisition_seen: bool,
    /// Absent: it goes on.
    pub ended_at: Option<Seconds>,
    pub ending: Option<&'static str>,
    pub ttl_seconds: Option<f64>,
    /// When it expires, or would have. Absent: not known, or no TTL.
    pub deadline_at: Option<Seconds>,
    pub renewals: u32,
    pub last_renewed_at: Option<Seconds>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HistoryView {
    pub at: Seconds,
    pub what: &'static str,
    pub owner: Option<String>,
    /// Of a renewal: the share of the TTL that was left, where it was seen.
    pub margin: Option<f64>,
    /// Of a log line: what it was counted as, why, and by which rule.
    pub event: Option<&'static str>,
    pub reason: Option<&'static str>,
    pub rule: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IncidentsQuery {
    pub lock_namespace: Option<String>,
    pub limit: usize,
    pub offset: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IncidentsPage {
    pub total: usize,
    pub offset: usize,
    /// The latest first.
    pub incidents: Vec<IncidentView>,
}

/// A lock that was lost, as its holder found out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IncidentView {
    /// When the holder found out, by the time of its log line.
    pub at: Seconds,
    pub lock_namespace: String,
    /// The key, or the id where the key is not known; absent where the line names neither.
    pub lock: Option<String>,
    /// `release`, `renew` or `unknown`.
    pub operation: &'static str,
    pub cause: &'static str,
    /// When the lock was lost, as seen in Redis.
    pub lost_at: Option<Seconds>,
    /// Who lost it and who has or had it next, as short hashes.
    pub owner: Option<String>,
    pub next_owner: Option<String>,
    /// The rule that took the log line.
    pub rule: String,
    /// What happened, in a sentence. Absent where it was not seen.
    pub verdict: Option<String>,
    /// Where to read on, below `/runbooks/`.
    pub runbook: &'static str,
}
