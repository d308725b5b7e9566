//! The words everything else speaks: what a log line said about a lock, and how far a file has been read.
//!
//! Sources produce [`LogEvent`]s in [`Batch`]es; the pipeline hands them to the ledger. Enums whose values become label
//! values know their own spelling (`as_str`) and list themselves (`ALL`), so that no label value is written twice.

use std::fmt;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::observation::LinkBatch;
use crate::snapshot::SourceTotals;
use crate::sources::cursor::{Cursor, FileId};
use crate::sources::journal::Position;
use crate::util::clock::TimeMs;

/// Index of a lock namespace in the configuration in effect. `other` is always the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceId(pub u16);

/// Index of a rule in the configuration in effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(pub u16);

/// A closed set of label values: every one is known at start, so every series can exist at 0 from the start.
pub trait Label: Copy + Eq + 'static {
    const ALL: &'static [Self];

    /// The label value.
    fn as_str(self) -> &'static str;

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|value| value.as_str() == text)
    }

    /// Position in [`Label::ALL`].
    fn index(self) -> usize;
}

/// Declares a fieldless enum together with its label spelling, in label order.
macro_rules! label_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$variant_meta])* $variant),+ }

        impl Label for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            fn index(self) -> usize {
                self as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(self.as_str())
            }
        }
    };
}

pub(crate) use label_enum;

label_enum! {
    /// What the program tried to do with its lock.
    Operation { Release = "release", Renew = "renew", Unknown = "unknown" }
}

label_enum! {
    /// Why an operation on a lock failed. `Canceled` on a renewal is the normal end of the work and not a failure.
    Reason {
        NotOwned = "not_owned",
        Busy = "busy",
        RedisUnavailable = "redis_unavailable",
        Failover = "failover",
        Denied = "denied",
        Canceled = "canceled",
        Other = "other",
    }
}

label_enum! {
    /// How a write collided with the work of another holder.
    ConflictKind {
        DuplicateTerminalState = "duplicate_terminal_state",
        StaleWriteRejected = "stale_write_rejected",
        StateConflict = "state_conflict",
    }
}

label_enum! {
    /// Why a lock was not owned, as far as Redis was seen to tell.
    Cause {
        /// Its TTL ran out and no renewal was seen.
        ExpiredNeverRenewed = "expired_never_renewed",
        /// Its TTL ran out after renewals.
        RenewalsStopped = "renewals_stopped",
        /// Somebody deleted it before its time.
        DeletedEarly = "deleted_early",
        /// Another owner replaced it before its time.
        TakenOver = "taken_over",
        /// It was gone after a restart or failover of Redis.
        LostInFailover = "lost_in_failover",
        /// Nothing was seen that explains it.
        Unknown = "unknown",
    }
}

label_enum! {
    /// How the owner before ended.
    After { Release = "release", Expiry = "expiry", Unknown = "unknown" }
}

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

/// What the pipeline is told.
#[derive(Debug)]
pub enum Input {
    Logs(Batch),
    /// The log files, or a journal, have their place to start from: once that is saved, nothing written later can be
    /// missed. Told once by the tailer and once for each journal, also where looking failed.
    LogsReady,
    Link(LinkBatch),
}

/// What one source has to report: events, how far it got, and what it saw on the way. Applied as a whole or not at all.
#[derive(Debug)]
pub struct Batch {
    /// Index of the configured log source.
    pub source: usize,
    /// Each event with the time to judge it by: that of the line, or the best guess where the line has none.
    pub events: Vec<(TimeMs, LogEvent)>,
    pub reached: Reached,
    /// To be added to the source's totals.
    pub seen: SourceTotals,
}

/// How far a source got, to be saved together with what its events add to the counters.
#[derive(Debug)]
pub enum Reached {
    /// Positions that have changed; `None` forgets one.
    Files(Vec<(FileId, Option<Cursor>)>),
    Journal(Position),
    Pushed(Pushed),
    /// It cannot be read again, so there is nothing to remember.
    Nothing,
}

/// What a push request leaves behind.
#[derive(Debug)]
pub struct Pushed {
    /// What the events' lines are known again by, should the client send them once more.
    pub lines: Vec<u64>,
    /// Told once all of this is saved.
    pub saved: Option<oneshot::Sender<()>>,
    /// Given back when the events were taken: so few requests at a time have events that wait.
    pub place: OwnedSemaphorePermit,
}
