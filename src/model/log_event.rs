//! Log events: what one log record reports about one lock. Log sources create [`LogEvent`]s and the
//! ledger counts them.

use std::time::Duration;

use crate::model::failure::Failure;
use crate::model::label::Label;
use crate::model::namespace::NamespaceId;
use crate::util::clock::TimeMs;

/// Index of a rule in the configuration in effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct RuleId(pub u16);

/// What a log record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    Failure(Failure),
    /// A unit of work reached a final state. Two final states of the same unit of work are a
    /// conflict, unless the second state is allowed to follow the first.
    FinalState {
        state: String,
        may_follow: Option<String>,
    },
}

impl Statement {
    /// The word for `event` in rules.
    pub fn event_name(&self) -> &'static str {
        match self {
            Self::Failure(failure) => failure.kind().as_str(),
            Self::FinalState { .. } => FINAL_STATE_EVENT,
        }
    }
}

/// The word for `event` in rules about final states.
pub const FINAL_STATE_EVENT: &str = "terminal_state";

/// What one record reports about one lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEvent {
    /// Byte offset of the first byte of the line in its file (for `.gz`, in the uncompressed text).
    /// For a pushed line, the hash that identifies it if it is sent again.
    pub offset: u64,
    /// Byte offset after the last line of the record, with the same origin as the offset of a line
    /// in a file.
    pub end: u64,
    /// The time in the line, if it has one.
    pub time: Option<TimeMs>,
    /// How long ago the line was read, because its record may have waited for its last line. Used
    /// if the line has no time.
    pub waited: Duration,
    pub namespace: NamespaceId,
    /// The Redis key if it is known, otherwise the bare id if the record has one. Never a label
    /// value.
    pub lock: Option<String>,
    pub statement: Statement,
    /// How long after its failure the record can appear and still belong to it, if that is longer
    /// than the join window.
    pub joins: Option<Duration>,
    pub rule: RuleId,
}
