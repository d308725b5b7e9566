//! Questions about single locks, and the answers: the JSON of `/api/v1`.
//!
//! The HTTP server sends an [`Inquiry`] to the pipeline, which answers it from the ledger. Ids and
//! keys appear here and never in labels. Owners appear as short hashes. Every answer has a size
//! limit.

use serde::Serialize;
use tokio::sync::oneshot;

/// Unix time in seconds, with milliseconds, in the format of Prometheus.
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
    /// Least remaining TTL first. Locks without a TTL are last.
    #[default]
    TtlRemaining,
    /// Longest hold first.
    HeldLongest,
    /// Most owner changes first.
    OwnerChanges,
    Key,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LocksPage {
    /// Number of locks that match the query.
    pub total: usize,
    pub offset: usize,
    pub locks: Vec<LockView>,
}

/// A lock that is held now.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LockView {
    pub key: String,
    pub lock_namespace: String,
    /// `None` if the value cannot be read.
    pub owner: Option<String>,
    /// `None` if the acquisition was not observed: the lock is older than `first_seen_at`.
    pub acquired_at: Option<Seconds>,
    pub first_seen_at: Seconds,
    pub last_renewed_at: Option<Seconds>,
    pub renewals: u32,
    /// `None` if the lock has no TTL.
    pub ttl_remaining_seconds: Option<f64>,
    pub full_ttl_seconds: Option<f64>,
    /// Counted as far back as the history of the lock is kept.
    pub owner_changes: u16,
    pub renewal_overdue: bool,
    /// Not confirmed since the connection was interrupted.
    pub doubtful: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LockHistory {
    pub key: String,
    /// The lock namespace that the key matches, or the last one that the lock was observed in.
    pub lock_namespace: Option<String>,
    /// `None` if the lock is not held now.
    pub now: Option<LockView>,
    /// A sentence that states who holds the lock.
    pub state: String,
    /// A sentence about the last loss. `None` if the history contains no loss.
    pub verdict: Option<String>,
    /// Latest first. A hold that has not ended has no `ended_at`.
    pub holds: Vec<HoldView>,
    /// Latest first.
    pub history: Vec<HistoryView>,
}

/// The time from an acquisition to its end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HoldView {
    pub owner: Option<String>,
    pub began_at: Seconds,
    /// False if the hold began before `began_at`.
    pub acquisition_seen: bool,
    /// `None` if the hold has not ended.
    pub ended_at: Option<Seconds>,
    pub ending: Option<&'static str>,
    pub ttl_seconds: Option<f64>,
    /// When the TTL runs out, or would have run out. `None` if this is unknown or the lock has no
    /// TTL.
    pub deadline_at: Option<Seconds>,
    pub renewals: u32,
    pub last_renewed_at: Option<Seconds>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HistoryView {
    pub at: Seconds,
    pub what: &'static str,
    pub owner: Option<String>,
    /// Only for a renewal: the share of the TTL that was left, if it was observed.
    pub margin: Option<f64>,
    /// Only for a log line: what it was counted as, the reason, and the rule that matched.
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
    /// Latest first.
    pub incidents: Vec<IncidentView>,
}

/// A reported loss with its cause.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IncidentView {
    /// When the holder discovered the loss: the time of its log line.
    pub at: Seconds,
    pub lock_namespace: String,
    /// The key, or the id if the key is not known. `None` if the line contains neither.
    pub lock: Option<String>,
    /// `release`, `renew` or `unknown`.
    pub operation: &'static str,
    pub cause: &'static str,
    /// When the lock was lost, as observed in Redis.
    pub lost_at: Option<Seconds>,
    /// The owner that lost the lock, and the next owner, as short hashes.
    pub owner: Option<String>,
    pub next_owner: Option<String>,
    /// The rule that matched the log line.
    pub rule: String,
    /// A sentence that describes what happened. `None` if it was not observed.
    pub verdict: Option<String>,
    /// Name of the runbook, below `/runbooks/`.
    pub runbook: &'static str,
}
