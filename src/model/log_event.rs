//! What a log line says about a lock. Log sources make [`LogEvent`]s; the ledger counts them.

use std::time::Duration;

use crate::model::failure::{ConflictKind, Reason};
use crate::model::namespace::NamespaceId;
use crate::util::clock::TimeMs;

/// Index of a rule in the configuration in effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(pub u16);

/// What a log line says happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// A release that did not succeed; with [`Reason::NotOwned`] the lock was lost before it.
    ReleaseFailed(Reason),
    /// A renewal that did not succeed.
    RenewalFailed(Reason),
    /// A lock could not be had.
    AcquireFailed(Reason),
    /// The lock was not owned, and the line does not tell which operation found out.
    NotOwned,
    /// The holder gave up on its lock; the reason of the last failed renewal where the line has one.
    Abandoned(Option<Reason>),
    /// Work went on without a distributed lock because it could not be had.
    UnlockedWork(Reason),
    /// A piece of work reached a final state. Two of them for one piece of work, other than a legal pair, are a conflict.
    TerminalState { state: String, may_follow: Option<String> },
    /// A write collided, as told by the line itself.
    ConflictingWrite(ConflictKind),
}

/// One line's statement about one lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEvent {
    /// Byte offset of the line's first byte in its file (for `.gz`: in the uncompressed text). For a pushed line, what it
    /// is known again by.
    pub offset: u64,
    /// Time the line carries, if any.
    pub time: Option<TimeMs>,
    /// How long ago the line was read: its record may have waited for its end. For lines that carry no time.
    pub waited: Duration,
    pub namespace: NamespaceId,
    /// The Redis key where it is known, otherwise the bare id, otherwise nothing. Never a label value.
    pub lock: Option<String>,
    pub happening: Happening,
    /// The line may follow the failure it belongs to by this long, where that is longer than the join window.
    pub joins: Option<Duration>,
    pub rule: RuleId,
}
