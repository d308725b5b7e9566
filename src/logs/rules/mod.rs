//! Evaluates the rules: decides which event a record reports about which lock.
//!
//! [`RuleSet::compile`] prepares the rules of a configuration. `logs::extract` searches blocks for
//! [`RuleSet::needed_texts`] and evaluates the lines that contain one. Everything here is pure and
//! cannot fail. If no rule matches a record, there is no event, and [`RuleSet::explain`] explains
//! why. In reading order:
//!
//! * this file: finds the rule that matches a record and creates the log event
//! * `locate`: finds the lock and the lock namespace of a record
//! * `explain`: explains why no rule matched

mod explain;
mod locate;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::config::Config;
use crate::config::rules::literals::{self, AnyOf};
use crate::config::rules::rule::{
    Condition, FieldTest, FinalStateRule, RuleAction, RuleConfig, RuleDraft, RuleMatcher, STACK,
};
use crate::logs::line::LogRecord;
use crate::model::failure::{Failure, FailureDetails, Reason};
use crate::model::log_event::{LogEvent, RuleId, Statement};
use crate::model::namespace::{Namespace, NamespaceId};
use locate::{Locator, Query};

pub use explain::NearMiss;

/// Result of evaluating a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleMatch {
    /// The offsets are 0. The caller sets them.
    Event(LogEvent),
    /// A rule matched the record, but there is nothing to count.
    Ignored {
        rule: RuleId,
    },
    NoMatch,
}

/// The rules of a configuration, indexed for fast evaluation.
#[derive(Debug)]
pub struct RuleSet {
    config: Arc<RuleConfig>,
    /// Rules for complete messages, in list order. They are tried before all regexes, because a
    /// complete message is the most certain match.
    exact: HashMap<String, Vec<RuleId>>,
    /// Rules with a regex, in list order.
    searching: Vec<RuleId>,
    locator: Locator,
}

/// Named groups that a regex captured.
#[derive(Default)]
struct Groups<'r> {
    key: Option<&'r str>,
    id: Option<&'r str>,
    error: Option<&'r str>,
}

impl RuleSet {
    pub fn compile(config: &Config) -> Arc<RuleSet> {
        Arc::new(Self::new(Arc::clone(&config.rules), &config.namespaces))
    }

    /// `config` is already checked. The last lock namespace must be `other`.
    fn new(config: Arc<RuleConfig>, namespaces: &[Arc<Namespace>]) -> RuleSet {
        let mut exact: HashMap<String, Vec<RuleId>> = HashMap::new();
        let mut searching = Vec::new();
        for (index, rule) in (0..=u16::MAX).zip(&config.rules) {
            match &rule.matcher {
                RuleMatcher::Message(messages) => {
                    for message in messages {
                        exact.entry(message.trim().to_owned()).or_default().push(RuleId(index));
                    }
                }
                RuleMatcher::Regex(_) => searching.push(RuleId(index)),
            }
        }
        let locator = Locator::new(namespaces, config.keys_in_text.clone());
        RuleSet { config, exact, searching, locator }
    }

    pub fn evaluate(&self, record: &LogRecord) -> RuleMatch {
        if record.aside.is_some() {
            return RuleMatch::NoMatch;
        }
        let Some((id, groups)) = self.find(record) else { return RuleMatch::NoMatch };
        let rule = self.rule(id);
        let Some(statement) = self.statement(rule, record, &groups) else {
            return RuleMatch::Ignored { rule: id };
        };
        let (namespace, lock) = self.locate(rule, record, &groups);
        let joins = rule.joins;
        RuleMatch::Event(LogEvent {
            offset: 0,
            end: 0,
            time: record.time,
            waited: Duration::ZERO,
            namespace,
            lock,
            statement,
            joins,
            rule: id,
        })
    }

    /// For each rule, the texts that a line must contain, byte for byte, for the rule to create an
    /// event. This holds for every log encoder and every wrapping. (Colors inside a message can
    /// hide a text.)
    pub fn needed_texts(&self) -> Vec<Vec<AnyOf>> {
        let counting = self.config.rules.iter().filter(|rule| rule.action != RuleAction::Ignore);
        counting.map(literals::of_rule).collect()
    }

    /// Like [`RuleSet::needed_texts`], for lines that are accompanied by fields. Conditions require
    /// no text in the line, because they may match such a field.
    pub fn needed_texts_of_messages(&self) -> Vec<Vec<AnyOf>> {
        let counting = self.config.rules.iter().filter(|rule| rule.action != RuleAction::Ignore);
        counting.map(|rule| literals::of_matcher(&rule.matcher)).collect()
    }

    fn rule(&self, id: RuleId) -> &RuleDraft {
        self.config.rule(id)
    }

    /// The first rule that matches the record.
    fn find<'r>(&self, record: &'r LogRecord) -> Option<(RuleId, Groups<'r>)> {
        let by_message = self.exact.get(&record.message).into_iter().flatten();
        for id in by_message {
            if failing_condition(self.rule(*id), record).is_none() {
                return Some((*id, Groups::default()));
            }
        }
        for id in &self.searching {
            let draft = self.rule(*id);
            if let Some(groups) = search(draft, record)
                && failing_condition(draft, record).is_none()
            {
                return Some((*id, groups));
            }
        }
        None
    }

    /// Returns `None` if there is nothing to count.
    fn statement(&self, draft: &RuleDraft, record: &LogRecord, groups: &Groups<'_>) -> Option<Statement> {
        match &draft.action {
            RuleAction::Report { kind, operation, conflict } => {
                let has_error = draft.reason.is_some() || groups.error.is_some() || record.errors().next().is_some();
                let details = FailureDetails { operation: *operation, conflict: *conflict, has_error };
                let reason = || draft.reason.or_else(|| self.classify(record, groups)).unwrap_or(Reason::Other);
                Failure::from_rule(*kind, details, reason).map(Statement::Failure)
            }
            RuleAction::FinalState(FinalStateRule { state, terminal, legal }) => {
                let state = record.field(state).filter(|state| terminal.iter().any(|known| known == state))?;
                let predecessor = legal.iter().find(|(_, second)| second == state).map(|(first, _)| first.clone());
                Some(Statement::FinalState { state: state.to_owned(), may_follow: predecessor })
            }
            RuleAction::Ignore => None,
        }
    }

    /// The reason of the first text that fits a configured reason. Error texts come before the
    /// message.
    fn classify(&self, record: &LogRecord, groups: &Groups<'_>) -> Option<Reason> {
        let texts = groups.error.into_iter().chain(record.texts_by_detail());
        let known =
            |text: &str| self.config.reasons.iter().find(|draft| draft.test.holds(text)).map(|draft| draft.reason);
        texts.into_iter().find_map(known)
    }

    fn locate(&self, rule: &RuleDraft, record: &LogRecord, groups: &Groups<'_>) -> (NamespaceId, Option<String>) {
        let namespace = rule.namespace;
        self.locator.locate(&Query { record, namespace, ids: &rule.id, key: groups.key, id: groups.id })
    }
}

/// Matches a rule's regex against the message, the error fields and the statements of a stack
/// trace, in this order.
fn search<'r>(draft: &RuleDraft, record: &'r LogRecord) -> Option<Groups<'r>> {
    let RuleMatcher::Regex(regex) = &draft.matcher else { return None };
    let captures = record.texts().find_map(|text| regex.captures(text))?;
    let group = |name| captures.name(name).map(|group| group.as_str()).filter(|text| !text.is_empty());
    Some(Groups { key: group("key"), id: group("id"), error: group("error") })
}

/// The value of a field for a condition. `STACK` names the stack trace instead of a field.
fn value_of<'r>(record: &'r LogRecord, field: &str) -> Option<Cow<'r, str>> {
    match field {
        STACK => record.stack().map(Cow::Owned),
        field => record.field(field).map(Cow::Borrowed),
    }
}

/// The first condition of the rule that the record does not fulfill.
fn failing_condition<'a>(draft: &'a RuleDraft, record: &LogRecord) -> Option<&'a Condition> {
    draft.conditions.iter().find(|condition| {
        let value = value_of(record, &condition.field);
        let holds = match (&condition.test, value.as_deref()) {
            (FieldTest::Absent, value) => value.is_none(),
            (FieldTest::AnyOf(accepted), Some(value)) => accepted.iter().any(|accepted| accepted == value),
            (FieldTest::Regex(regex), Some(value)) => regex.is_match(value),
            (FieldTest::Without(regex), Some(value)) => !regex.is_match(value),
            (_, None) => false,
        };
        !holds
    })
}

#[cfg(test)]
mod tests;
