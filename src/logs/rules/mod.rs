//! The rules: what a record says about which lock.
//!
//! [`RuleSet::compile`] prepares the rules of a configuration. `logs::extract` searches blocks for
//! [`RuleSet::needed_texts`] and evaluates the lines that contain one. Everything here is pure. If no rule matches a
//! record, it says nothing, and [`RuleSet::explain`] tells people why. In reading order:
//!
//! * this file: finds the rule for a record and makes the log event
//! * `locate`: which lock and namespace a record is about
//! * `explain`: why no rule matched

mod explain;
mod locate;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::config::Config;
use crate::config::rules::literals::{self, AnyOf};
use crate::config::rules::rule::{Condition, FieldTest, RuleConfig, RuleDraft, RuleEvent, RuleMatcher, STACK};
use crate::logs::line::LogRecord;
use crate::model::failure::{Operation, Reason};
use crate::model::log_event::{Happening, LogEvent, RuleId};
use crate::model::namespace::{Namespace, NamespaceId};
use locate::{Locator, Query};

pub use explain::Near;

/// What the rules make of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleMatch {
    /// The offset is 0: only the caller knows it.
    Event(LogEvent),
    /// A rule took the record, and there is nothing to count.
    Ignored {
        rule: RuleId,
    },
    NoMatch,
}

/// The rules in a form that finds the right one quickly.
#[derive(Debug)]
pub struct RuleSet {
    config: Arc<RuleConfig>,
    /// Rules by whole message, in list order. They come before all regexes: a whole message is the surest sign.
    exact: HashMap<String, Vec<RuleId>>,
    /// Rules with a regex, in list order.
    searching: Vec<RuleId>,
    locator: Locator,
}

/// What a regex took from the text.
#[derive(Default)]
struct Groups<'r> {
    key: Option<&'r str>,
    id: Option<&'r str>,
    error: Option<&'r str>,
}

impl RuleSet {
    /// The rules of a configuration.
    pub fn compile(config: &Config) -> Arc<RuleSet> {
        Arc::new(Self::new(Arc::clone(&config.rules), &config.namespaces))
    }

    /// The configuration has checked everything. The last namespace is `other`.
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
        let Some(happening) = self.happening(rule, record, &groups) else {
            return RuleMatch::Ignored { rule: id };
        };
        let (namespace, lock) = self.locate(rule, record, &groups);
        let joins = rule.joins;
        RuleMatch::Event(LogEvent {
            offset: 0,
            time: record.time,
            waited: Duration::ZERO,
            namespace,
            lock,
            happening,
            joins,
            rule: id,
        })
    }

    /// For each rule what a line must contain for it to make an event, byte for byte, whatever encoder wrote the line and
    /// whatever wraps it. (Colors in the middle of a message can hide it.)
    pub fn needed_texts(&self) -> Vec<Vec<AnyOf>> {
        let counting = self.config.rules.iter().filter(|rule| rule.event != RuleEvent::Ignore);
        counting.map(literals::of_rule).collect()
    }

    /// As [`RuleSet::needed_texts`], for lines whose fields may be outside of them.
    pub fn needed_texts_of_messages(&self) -> Vec<Vec<AnyOf>> {
        let counting = self.config.rules.iter().filter(|rule| rule.event != RuleEvent::Ignore);
        counting.map(|rule| literals::of_matcher(&rule.matcher)).collect()
    }

    fn rule(&self, id: RuleId) -> &RuleDraft {
        self.config.rule(id)
    }

    /// The first rule that takes the record.
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

    /// Nothing if there is nothing to count.
    fn happening(&self, draft: &RuleDraft, record: &LogRecord, groups: &Groups<'_>) -> Option<Happening> {
        let reason = || draft.reason.or_else(|| self.classify(record, groups)).unwrap_or(Reason::Other);
        Some(match &draft.event {
            RuleEvent::ReleaseFailed => Happening::ReleaseFailed(reason()),
            // The work is done and its context is canceled while a renewal is under way: the normal end.
            RuleEvent::RenewalFailed => match reason() {
                Reason::Canceled => return None,
                reason => Happening::RenewalFailed(reason),
            },
            RuleEvent::AcquireFailed => Happening::AcquireFailed(reason()),
            RuleEvent::NotOwned(Operation::Release) => Happening::ReleaseFailed(Reason::NotOwned),
            RuleEvent::NotOwned(Operation::Renew) => Happening::RenewalFailed(Reason::NotOwned),
            RuleEvent::NotOwned(Operation::Unknown) => Happening::NotOwned,
            RuleEvent::Abandoned => {
                let has_error = draft.reason.is_some() || groups.error.is_some() || record.errors().next().is_some();
                Happening::Abandoned(has_error.then(reason))
            }
            RuleEvent::UnlockedWork => Happening::UnlockedWork(reason()),
            RuleEvent::TerminalState { state, terminal, legal } => {
                let state = record.field(state).filter(|state| terminal.iter().any(|known| known == state))?;
                let predecessor = legal.iter().find(|(_, second)| second == state).map(|(first, _)| first.clone());
                Happening::TerminalState { state: state.to_owned(), may_follow: predecessor }
            }
            RuleEvent::ConflictingWrite(kind) => Happening::ConflictingWrite(*kind),
            RuleEvent::Ignore => return None,
        })
    }

    /// The first error text, or else the message, that the reasons know something about.
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

/// Looks for a rule's regex in the message, then in the error fields.
fn search<'r>(draft: &RuleDraft, record: &'r LogRecord) -> Option<Groups<'r>> {
    let RuleMatcher::Regex(regex) = &draft.matcher else { return None };
    let captures = record.texts().find_map(|text| regex.captures(text))?;
    let group = |name| captures.name(name).map(|group| group.as_str()).filter(|text| !text.is_empty());
    Some(Groups { key: group("key"), id: group("id"), error: group("error") })
}

/// A field of a record, or what stands for one in conditions.
fn value_of<'r>(record: &'r LogRecord, field: &str) -> Option<Cow<'r, str>> {
    match field {
        STACK => record.stack().map(Cow::Owned),
        field => record.field(field).map(Cow::Borrowed),
    }
}

/// The first condition of the rule that the record does not meet.
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
