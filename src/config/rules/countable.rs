//! Which series the rules can count for each lock namespace.
//!
//! These series exist from startup, at 0. Series that no rule can ever count are omitted, because
//! they would be most of a scrape. A rule counts for its own namespace, or for every namespace if
//! the key in the line decides. Any other event (a line of one namespace that contains a key of
//! another) is still counted, and its series exists from the first event on.

use super::rule::{KEY_FIELDS, ReasonDraft, RuleDraft, RuleEvent, RuleMatcher};
use crate::model::failure::{ConflictKind, Operation, Reason};
use crate::model::label::Label;
use crate::model::namespace::NamespaceId;

/// The series that can be counted for one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CountableSeries {
    pub renewal_failures: Vec<Reason>,
    pub release_failures: Vec<Reason>,
    pub acquire_failures: Vec<Reason>,
    pub conflicting_writes: Vec<ConflictKind>,
    pub abandonments: bool,
    pub unlocked_work: bool,
}

impl CountableSeries {
    /// Returns all series. Used if nothing is known about the rules.
    pub fn everything() -> Self {
        let reasons = || Reason::ALL.to_vec();
        Self {
            renewal_failures: reasons(),
            release_failures: reasons(),
            acquire_failures: reasons(),
            conflicting_writes: ConflictKind::ALL.to_vec(),
            abandonments: true,
            unlocked_work: true,
        }
    }

    fn add(&mut self, rule: &RuleDraft, from_texts: &[Reason]) {
        // A fixed reason applies as configured. A reason from an error text is never one that
        // contradicts the operation (`never`), and never `Canceled`, which the program caused
        // itself.
        let reasons = |never: Reason| match rule.reason {
            Some(reason) => vec![reason],
            None => from_texts.iter().copied().filter(|reason| ![never, Reason::Canceled].contains(reason)).collect(),
        };
        match &rule.event {
            RuleEvent::ReleaseFailed => self.release_failures.extend(reasons(Reason::Busy)),
            RuleEvent::RenewalFailed => self.renewal_failures.extend(reasons(Reason::Busy)),
            RuleEvent::AcquireFailed => self.acquire_failures.extend(reasons(Reason::NotOwned)),
            RuleEvent::NotOwned(Operation::Release) => self.release_failures.push(Reason::NotOwned),
            RuleEvent::NotOwned(Operation::Renew) => self.renewal_failures.push(Reason::NotOwned),
            RuleEvent::Abandoned => {
                self.abandonments = true;
                self.renewal_failures.extend(reasons(Reason::Busy));
            }
            RuleEvent::UnlockedWork => {
                self.unlocked_work = true;
                self.acquire_failures.extend(reasons(Reason::NotOwned));
            }
            RuleEvent::TerminalState { .. } => self.conflicting_writes.push(ConflictKind::DuplicateTerminalState),
            RuleEvent::ConflictingWrite(kind) => self.conflicting_writes.push(*kind),
            RuleEvent::NotOwned(Operation::Unknown) | RuleEvent::Ignore => {}
        }
    }
}

/// Returns the countable series by namespace, in the order of the configuration.
pub(crate) fn of_rules(rules: &[RuleDraft], reasons: &[ReasonDraft], n_namespaces: usize) -> Vec<CountableSeries> {
    let from_texts: Vec<Reason> = reasons.iter().map(|draft| draft.reason).chain([Reason::Other]).collect();
    let mut countable = vec![CountableSeries::default(); n_namespaces];
    for (index, series) in (0..=u16::MAX).zip(&mut countable) {
        let is_about = |rule: &&RuleDraft| rule.namespace == Some(NamespaceId(index)) || is_about_any(rule);
        rules.iter().filter(is_about).for_each(|rule| series.add(rule, &from_texts));
    }
    countable
}

fn is_about_any(rule: &RuleDraft) -> bool {
    let takes_key = match &rule.matcher {
        RuleMatcher::Regex(regex) => regex.capture_names().flatten().any(|name| name == "key"),
        RuleMatcher::Message(_) => false,
    };
    let tests_key = rule.conditions.iter().any(|condition| KEY_FIELDS.contains(&condition.field.as_str()));
    rule.namespace.is_none() || takes_key || tests_key
}
