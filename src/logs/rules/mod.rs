//! The rules: what a record says about which lock.
//!
//! The configuration makes a [`RuleSet`] of its own rules, those of the presets and the built-in ones, in this order; the
//! tailer searches blocks of a log for [`RuleSet::needed_texts`] and evaluates the lines that contain one. Everything is pure.
//! A record that no rule takes says nothing; [`RuleSet::explain`] tells a person why.

mod draft;
mod explain;
mod literals;
mod locate;
mod told;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use regex::Regex;

use crate::logs::line::Record;
use crate::model::failure::{Operation, Reason};
use crate::model::log_event::{Happening, LogEvent, RuleId};
use crate::model::namespace::{Namespace, NamespaceId};
use locate::{IdSource, Locator, Query};

pub use draft::{Condition, FieldTest, Matcher, ReasonDraft, RuleDraft, RuleEvent, TextTest};
pub use explain::Near;
pub use literals::{AnyOf, required_literals};
pub use told::Told;

/// In conditions: what a record says beside its message.
const STACK: &str = "stack";

/// What the rules make of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The offset is 0: only the caller knows it.
    Event(LogEvent),
    /// A rule took the record, and there is nothing to count.
    Ignored {
        rule: RuleId,
    },
    NoMatch,
}

#[derive(Debug)]
pub struct RuleSet {
    rules: Vec<Rule>,
    /// Rules by whole message, in list order. They come before all regexes: a whole message is the surest sign.
    exact: HashMap<String, Vec<RuleId>>,
    /// Rules with a regex, in list order.
    searching: Vec<RuleId>,
    reasons: Vec<ReasonDraft>,
    locator: Locator,
    told: Arc<[Told]>,
}

#[derive(Debug)]
struct Rule {
    draft: RuleDraft,
    ids: Vec<IdSource>,
}

/// What a regex took from the text.
#[derive(Default)]
struct Groups<'r> {
    key: Option<&'r str>,
    id: Option<&'r str>,
    error: Option<&'r str>,
}

impl RuleSet {
    /// The configuration has checked everything. The last namespace is `other`.
    pub fn new(
        rules: Vec<RuleDraft>,
        reasons: Vec<ReasonDraft>,
        keys_in_text: Vec<Regex>,
        namespaces: &[Arc<Namespace>],
    ) -> RuleSet {
        let mut exact: HashMap<String, Vec<RuleId>> = HashMap::new();
        let mut searching = Vec::new();
        for (index, rule) in (0..=u16::MAX).zip(&rules) {
            match &rule.matcher {
                Matcher::Message(messages) => {
                    for message in messages {
                        exact.entry(message.trim().to_owned()).or_default().push(RuleId(index));
                    }
                }
                Matcher::Regex(_) => searching.push(RuleId(index)),
            }
        }
        let told = told::of_rules(&rules, &reasons, namespaces.len()).into();
        let with_ids = |draft: RuleDraft| Rule { ids: draft.id.iter().map(|id| IdSource::new(id)).collect(), draft };
        let rules = rules.into_iter().map(with_ids).collect();
        RuleSet { rules, exact, searching, reasons, locator: Locator::new(namespaces, keys_in_text), told }
    }

    pub fn evaluate(&self, record: &Record) -> Verdict {
        if record.aside.is_some() {
            return Verdict::NoMatch;
        }
        let Some((id, groups)) = self.find(record) else { return Verdict::NoMatch };
        let rule = self.rule(id);
        let Some(happening) = self.happening(&rule.draft, record, &groups) else {
            return Verdict::Ignored { rule: id };
        };
        let (namespace, lock) = self.locate(rule, record, &groups);
        let joins = rule.draft.joins;
        Verdict::Event(LogEvent {
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

    /// What can be counted, by namespace.
    pub fn told(&self) -> Arc<[Told]> {
        Arc::clone(&self.told)
    }

    pub fn name(&self, rule: RuleId) -> &str {
        &self.rule(rule).draft.name
    }

    /// For each rule what a line must contain for it to make an event, byte for byte, whatever encoder wrote the line and
    /// whatever wraps it. (Colors in the middle of a message can hide it.)
    pub fn needed_texts(&self) -> Vec<Vec<AnyOf>> {
        let counting = self.rules.iter().filter(|rule| rule.draft.event != RuleEvent::Ignore);
        counting.map(|rule| literals::of_rule(&rule.draft)).collect()
    }

    /// As [`RuleSet::needed_texts`], for lines whose fields may be outside of them.
    pub fn needed_texts_of_messages(&self) -> Vec<Vec<AnyOf>> {
        let counting = self.rules.iter().filter(|rule| rule.draft.event != RuleEvent::Ignore);
        counting.map(|rule| literals::of_matcher(&rule.draft.matcher)).collect()
    }

    fn rule(&self, id: RuleId) -> &Rule {
        &self.rules[usize::from(id.0)]
    }

    /// The first rule that takes the record.
    fn find<'r>(&self, record: &'r Record) -> Option<(RuleId, Groups<'r>)> {
        let by_message = self.exact.get(&record.message).into_iter().flatten();
        for id in by_message {
            if failing_condition(&self.rule(*id).draft, record).is_none() {
                return Some((*id, Groups::default()));
            }
        }
        for id in &self.searching {
            let draft = &self.rule(*id).draft;
            if let Some(groups) = search(draft, record)
                && failing_condition(draft, record).is_none()
            {
                return Some((*id, groups));
            }
        }
        None
    }

    /// Nothing if there is nothing to count.
    fn happening(&self, draft: &RuleDraft, record: &Record, groups: &Groups<'_>) -> Option<Happening> {
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
    fn classify(&self, record: &Record, groups: &Groups<'_>) -> Option<Reason> {
        let texts = groups.error.into_iter().chain(record.texts_by_detail());
        let known = |text: &str| self.reasons.iter().find(|draft| draft.test.holds(text)).map(|draft| draft.reason);
        texts.into_iter().find_map(known)
    }

    fn locate(&self, rule: &Rule, record: &Record, groups: &Groups<'_>) -> (NamespaceId, Option<String>) {
        let namespace = rule.draft.namespace;
        self.locator.locate(&Query { record, namespace, ids: &rule.ids, key: groups.key, id: groups.id })
    }
}

/// Looks for a rule's regex in the message, then in the error fields.
fn search<'r>(draft: &RuleDraft, record: &'r Record) -> Option<Groups<'r>> {
    let Matcher::Regex(regex) = &draft.matcher else { return None };
    let captures = record.texts().find_map(|text| regex.captures(text))?;
    let group = |name| captures.name(name).map(|group| group.as_str()).filter(|text| !text.is_empty());
    Some(Groups { key: group("key"), id: group("id"), error: group("error") })
}

/// A field of a record, or what stands for one in conditions.
fn value_of<'r>(record: &'r Record, field: &str) -> Option<Cow<'r, str>> {
    match field {
        STACK => record.stack().map(Cow::Owned),
        field => record.field(field).map(Cow::Borrowed),
    }
}

/// The first condition of the rule that the record does not meet.
fn failing_condition<'a>(draft: &'a RuleDraft, record: &Record) -> Option<&'a Condition> {
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
