//! Checked rules, with compiled regexes and resolved names.
//!
//! `RuleBuilder` creates them and `logs::rules` evaluates them. Nothing here checks them again.

use std::sync::Arc;
use std::time::Duration;

use regex::Regex;

use super::countable::{self, CountableSeries};
use crate::model::failure::{ConflictKind, FailureKind, Operation, Reason};
use crate::model::key_template::KeyTemplate;
use crate::model::log_event::RuleId;
use crate::model::namespace::NamespaceId;

/// Field name in conditions: everything in a record except its message.
pub const STACK: &str = "stack";
/// Log fields that contain a complete key.
pub const KEY_FIELDS: [&str; 2] = ["key", "lock_key"];

/// The rules of all layers in the order in which they are evaluated, and the other settings that
/// decide what a record reports.
#[derive(Debug)]
pub struct RuleConfig {
    pub rules: Vec<RuleDraft>,
    pub reasons: Vec<ReasonDraft>,
    /// Each expression has a group `key`.
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

    /// Returns the series that the rules can count, by namespace.
    pub fn countable(&self) -> Arc<[CountableSeries]> {
        Arc::clone(&self.countable)
    }

    pub fn rule(&self, id: RuleId) -> &RuleDraft {
        &self.rules[usize::from(id.0)]
    }

    pub fn name(&self, id: RuleId) -> &str {
        &self.rule(id).name
    }

    /// Returns the names of all rules, indexed by [`RuleId`].
    pub fn names(&self) -> Arc<[String]> {
        self.rules.iter().map(|rule| rule.name.clone()).collect()
    }
}

/// One rule: which records it matches, and what such a record reports.
#[derive(Clone, Debug)]
pub struct RuleDraft {
    pub name: String,
    pub matcher: RuleMatcher,
    /// All conditions must be true.
    pub conditions: Vec<Condition>,
    pub action: RuleAction,
    pub namespace: Option<NamespaceId>,
    /// Possible sources of the id of the lock, in the order in which they are tried.
    pub id: Vec<IdSource>,
    /// Fixed reason. Without it, the reason comes from the error text.
    pub reason: Option<Reason>,
    /// A matching line belongs to a failure of the same lock and operation that was counted up to
    /// this long before.
    pub joins: Option<Duration>,
}

/// Where a rule finds the id of the lock.
#[derive(Clone, Debug)]
pub enum IdSource {
    Field(String),
    /// The complete key, built from fields of the record.
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
    /// The complete message is equal to one of these.
    Message(Vec<String>),
    /// Matches somewhere in the message or in an error field. Its groups `key`, `id` and `error`
    /// supply these values.
    Regex(Regex),
}

#[derive(Clone, Debug)]
pub struct Condition {
    /// `message` stands for the message of the record, regardless of its field name in the log.
    /// `stack` stands for everything else in the record: the lines of a stack trace, and the error
    /// fields.
    pub field: String,
    pub test: FieldTest,
}

#[derive(Clone, Debug)]
pub enum FieldTest {
    AnyOf(Vec<String>),
    Regex(Regex),
    /// The field is present and the expression does not match in it.
    Without(Regex),
    Absent,
}

/// What happens if a rule matches a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleAction {
    Report {
        kind: FailureKind,
        operation: Operation,
        conflict: Option<ConflictKind>,
    },
    FinalState(FinalStateRule),
    /// The record resembles a lock event but is none.
    Ignore,
}

impl RuleAction {
    /// Reports a failure. The record supplies the details.
    pub fn report(kind: FailureKind) -> Self {
        Self::Report { kind, operation: Operation::Unknown, conflict: None }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinalStateRule {
    /// The field that contains the state.
    pub state: String,
    /// The states that are final. Any other state is not an event.
    pub terminal: Vec<String>,
    /// Pairs of final states where the second may follow the first.
    pub legal: Vec<(String, String)>,
}

/// One test of an error text. The first test that matches decides the reason.
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
