//! What the configuration hands over: rules with their regexes compiled and their names resolved.

use std::time::Duration;

use regex::Regex;

use crate::model::failure::{ConflictKind, Operation, Reason};
use crate::model::namespace::NamespaceId;

/// One rule: which records it takes, and what such a record says.
#[derive(Clone, Debug)]
pub struct RuleDraft {
    pub name: String,
    pub matcher: Matcher,
    /// All must hold.
    pub conditions: Vec<Condition>,
    pub event: RuleEvent,
    pub namespace: Option<NamespaceId>,
    /// Fields that may hold the lock's id, in order. An entry that is not a plain field name is a template of the whole
    /// key, filled from the record's fields: `lock:{resource}`, or a fixed key.
    pub id: Vec<String>,
    /// Fixed reason. Without it, the reason is read from the error text.
    pub reason: Option<Reason>,
    /// Such a line belongs to a failure of the same lock and operation counted up to this long before.
    pub joins: Option<Duration>,
}

#[derive(Clone, Debug)]
pub enum Matcher {
    /// The whole message is one of these.
    Message(Vec<String>),
    /// Found somewhere in the message, or in an error field. The groups `key`, `id` and `error` are taken from it.
    Regex(Regex),
}

#[derive(Clone, Debug)]
pub struct Condition {
    /// `message` stands for the record's message, whatever it was called, and `stack` for everything that it says beside:
    /// the lines of a stack trace, and the error fields.
    pub field: String,
    pub test: FieldTest,
}

#[derive(Clone, Debug)]
pub enum FieldTest {
    AnyOf(Vec<String>),
    Regex(Regex),
    /// The field is there and the expression is nowhere in it.
    Without(Regex),
    Absent,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleEvent {
    ReleaseFailed,
    RenewalFailed,
    AcquireFailed,
    NotOwned(Operation),
    Abandoned,
    UnlockedWork,
    TerminalState {
        /// Field with the state.
        state: String,
        /// States that are final. Any other state is no event.
        terminal: Vec<String>,
        /// Pairs of final states where the second may follow the first.
        legal: Vec<(String, String)>,
    },
    ConflictingWrite(ConflictKind),
    /// Looks like a lock event and is none.
    Ignore,
}

/// One step of the classification of an error text; the first one that holds decides.
#[derive(Clone, Debug)]
pub struct ReasonDraft {
    pub test: TextTest,
    pub reason: Reason,
}

#[derive(Clone, Debug)]
pub enum TextTest {
    Contains(String),
    Regex(Regex),
}

impl TextTest {
    pub fn holds(&self, text: &str) -> bool {
        match self {
            Self::Contains(part) => text.contains(part.as_str()),
            Self::Regex(regex) => regex.is_match(text),
        }
    }
}
