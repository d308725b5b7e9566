//! Log events: what one log record reports about one lock. Log sources create [`LogEvent`]s and the
//! ledger counts them.

use std::time::Duration;

use crate::model::failure::{ConflictKind, Reason};
use crate::model::namespace::NamespaceId;
use crate::util::clock::TimeMs;

/// Index of a rule in the configuration in effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct RuleId(pub u16);

/// What a log record reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// A release failed. With [`Reason::NotOwned`], the lock was lost before the release.
    ReleaseFailed(Reason),
    /// A renewal failed.
    RenewalFailed(Reason),
    /// An acquisition failed.
    AcquireFailed(Reason),
    /// The lock was not owned. The record does not show which operation discovered it.
    NotOwned,
    /// The holder gave up its lock. Contains the reason of the last failed renewal, if the record
    /// has one.
    Abandoned(Option<Reason>),
    /// The program worked without a distributed lock because it could not acquire one.
    UnlockedWork(Reason),
    /// A unit of work reached a final state. Two final states of the same unit of work are a
    /// conflict, unless the second state is allowed to follow the first.
    TerminalState { state: String, may_follow: Option<String> },
    /// The record itself reports that a write collided.
    ConflictingWrite(ConflictKind),
}

/// What one record reports about one lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEvent {
    /// Byte offset of the first byte of the line in its file (for `.gz`, in the uncompressed text).
    /// For a pushed line, the hash that identifies it if it is sent again.
    pub offset: u64,
    /// The time in the line, if it has one.
    pub time: Option<TimeMs>,
    /// How long ago the line was read, because its record may have waited for its last line. Used
    /// if the line has no time.
    pub waited: Duration,
    pub namespace: NamespaceId,
    /// The Redis key if it is known, otherwise the bare id if the record has one. Never a label
    /// value.
    pub lock: Option<String>,
    pub happening: Happening,
    /// How long after its failure the record can appear and still belong to it, if that is longer
    /// than the join window.
    pub joins: Option<Duration>,
    pub rule: RuleId,
}
