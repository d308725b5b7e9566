//! Checked rules: their regexes are compiled and their names resolved. `logs::rules` evaluates them.

use std::sync::Arc;
use std::time::Duration;

use regex::Regex;

use super::countable::{self, CountableSeries};
use crate::model::key_template::KeyTemplate;
use crate::model::log_event::RuleId;

use crate::model::failure::{ConflictKind, Operation, Reason};
use crate::model::namespace::NamespaceId;

/// In conditions: what a record says beside its message.
pub const STACK: &str = "stack";
/// Fields that hold a whole key.
pub const KEY_FIELDS: [&str; 2] = ["key", "lock_key"];

/// The rules of all layers in the order in which they are tried, and what else decides what a record says.
#[derive(Debug)]
pub struct RuleConfig {
    pub rules: Vec<RuleDraft>,
    pub reasons: Vec<ReasonDraft>,
    /// Each has a group `key`.
    pub keys_in_text: Vec<Regex>,
    countable: Arc<[CountableSeries]>,
}

impl RuleConfig {
    pub fn new(
        rules: Vec<RuleDraft>,
        reasons: Vec<ReasonDraft>,
        keys_in_text: Vec<Regex>,
        n_namespaces: usize,
    ) -> Self {
        let countable = countable::of_rules(&rules, &reasons, n_namespaces).into();
        Self { rules, reasons, keys_in_text, countable }
    }

    /// What the rules can count, by namespace.
    pub fn countable(&self) -> Arc<[CountableSeries]> {
        Arc::clone(&self.countable)
    }

    pub fn rule(&self, id: RuleId) -> &RuleDraft {
        &self.rules[usize::from(id.0)]
    }

    pub fn name(&self, id: RuleId) -> &str {
        &self.rule(id).name
    }

    /// The names of all rules, by [`RuleId`].
    pub fn names(&self) -> Arc<[String]> {
        self.rules.iter().map(|rule| rule.name.clone()).collect()
    }
}

/// One rule: which records it takes, and what such a record says.
#[derive(Clone, Debug)]
pub struct RuleDraft {
    pub name: String,
    pub matcher: RuleMatcher,
    /// All must hold.
    pub conditions: Vec<Condition>,
    pub event: RuleEvent,
    pub namespace: Option<NamespaceId>,
    /// Where the lock's id may be, in order.
    pub id: Vec<IdSource>,
    /// Fixed reason. Without it, the reason is read from the error text.
    pub reason: Option<Reason>,
    /// Such a line belongs to a failure of the same lock and operation counted up to this long before.
    pub joins: Option<Duration>,
}

/// Where a rule finds the id of the lock.
#[derive(Clone, Debug)]
pub enum IdSource {
    Field(String),
    /// The whole key, with fields of the record.
    Key(KeyTemplate),
}

impl IdSource {
    pub fn new(text: &str) -> Self {
        let is_key = text.contains(['{', ':']);
        match KeyTemplate::parse(text) {
            Ok(template) if is_key => Self::Key(template),
            _ => Self::Field(text.to_owned()),
        }
    }
}

#[derive(Clone, Debug)]
pub enum RuleMatcher {
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
