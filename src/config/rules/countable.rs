//! Which series the rules can count for each lock namespace.
//!
//! These series exist from startup, at 0. Series that no rule can ever count are omitted, because
//! they would be most of a scrape. A rule counts for its own namespace, or for every namespace if
//! the key in the line decides. Any other event (a line of one namespace that contains a key of
//! another) is still counted, and its series exists from the first event on.

use std::collections::BTreeSet;

use super::rule::{KEY_FIELDS, ReasonDraft, RuleAction, RuleDraft, RuleMatcher};
use crate::model::failure::{ConflictKind, Failure, FailureDetails, FailureKind, Reason};
use crate::model::label::Label;
use crate::model::namespace::NamespaceId;

/// The series that can be counted for one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountableSeries(BTreeSet<(FailureKind, usize)>);

impl CountableSeries {
    /// Returns all series. Used if nothing is known about the rules.
    pub fn everything() -> Self {
        Self::of(FailureKind::ALL)
    }

    pub fn contains(&self, failure: Failure) -> bool {
        self.0.contains(&(failure.kind(), failure.series()))
    }

    /// Losses exist in every namespace: they are the main number of the exporter.
    fn losses() -> Self {
        Self::of(&[FailureKind::NotOwned])
    }

    fn of(kinds: &[FailureKind]) -> Self {
        let failures = kinds.iter().flat_map(|kind| kind.all_failures());
        Self(failures.map(|failure| (failure.kind(), failure.series())).collect())
    }

    fn add_rule(&mut self, rule: &RuleDraft, from_texts: &[Reason]) {
        match &rule.action {
            RuleAction::Report { kind, operation, conflict } => {
                let details = FailureDetails { operation: *operation, conflict: *conflict, has_error: true };
                let reasons = rule.reason.as_ref().map_or(from_texts, std::slice::from_ref);
                let reported = reasons.iter().filter_map(|reason| Failure::from_rule(*kind, details, || *reason));
                for failure in reported.flat_map(with_implied) {
                    // A fixed reason applies as configured.
                    if rule.reason.is_some() || !failure.is_contradictory() {
                        self.add(failure);
                    }
                }
            }
            RuleAction::FinalState(_) => self.add(Failure::ConflictingWrite(ConflictKind::DuplicateTerminalState)),
            RuleAction::Ignore => {}
        }
    }

    fn add(&mut self, failure: Failure) {
        self.0.insert((failure.kind(), failure.series()));
    }
}

fn with_implied(failure: Failure) -> impl Iterator<Item = Failure> {
    std::iter::successors(Some(failure), |failure| failure.implied())
}

/// Returns the countable series by namespace, in the order of the configuration.
pub(crate) fn of_rules(rules: &[RuleDraft], reasons: &[ReasonDraft], n_namespaces: usize) -> Vec<CountableSeries> {
    // The program itself caused a cancellation, so `Canceled` counts only where a rule sets it.
    let from_texts = reasons.iter().map(|draft| draft.reason).chain([Reason::Other]);
    let from_texts: Vec<Reason> = from_texts.filter(|reason| *reason != Reason::Canceled).collect();
    let mut countable = vec![CountableSeries::losses(); n_namespaces];
    for (index, series) in (0..=u16::MAX).zip(&mut countable) {
        let is_about = |rule: &&RuleDraft| rule.namespace == Some(NamespaceId(index)) || is_about_any(rule);
        rules.iter().filter(is_about).for_each(|rule| series.add_rule(rule, &from_texts));
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
