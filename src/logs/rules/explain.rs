//! Explains, for `check --logs`, why no rule matched a record: which rule came closest, and what
//! differs.
//!
//! This code is separate from evaluation, which must be fast: it compares the record with every
//! rule and writes sentences. Nothing here can fail.

use super::{RuleSet, failing_condition, search, value_of};
use crate::config::rules::rule::{FieldTest, RuleAction, RuleDraft, RuleMatcher};
use crate::logs::line::{LogRecord, NonStatement};
use crate::model::log_event::RuleId;

/// A rule that almost matched the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearMiss {
    pub rule: RuleId,
    /// What differs, without a period at the end.
    pub why: String,
}

/// A shorter common prefix is considered a coincidence.
const MIN_COMMON: usize = 12;

impl RuleSet {
    /// Returns `None` if a rule matches the record and nothing prevents its use, or if no rule
    /// comes close.
    pub fn explain(&self, record: &LogRecord) -> Option<NearMiss> {
        if let Some((rule, _)) = self.find(record) {
            let why = match record.aside? {
                NonStatement::SourceEcho => "the line is the source code that a traceback shows, not a message",
                NonStatement::Commit => "the line is the subject of a commit",
                NonStatement::Continuation => {
                    "the line continues with a stack trace, and the trace's first line counts"
                }
            };
            return Some(NearMiss { rule, why: why.to_owned() });
        }
        self.unmet_condition(record).or_else(|| self.similar_message(record))
    }

    /// Why a record that this rule matched counts nothing.
    pub fn why_ignored(&self, rule: RuleId) -> &'static str {
        match self.rule(rule).action {
            RuleAction::Report { .. } => "a renewal that is canceled is the normal end of the work",
            RuleAction::FinalState(_) => "the state is not a final one",
            RuleAction::Ignore => "the rule ignores such lines",
        }
    }

    /// The first rule that matches except for a condition.
    fn unmet_condition(&self, record: &LogRecord) -> Option<NearMiss> {
        for (rule, draft) in self.drafts() {
            let fits = match &draft.matcher {
                RuleMatcher::Message(messages) => messages.iter().any(|message| message.trim() == record.message),
                RuleMatcher::Regex(_) => search(draft, record).is_some(),
            };
            if !fits {
                continue;
            }
            let condition = failing_condition(draft, record)?;
            let field = &condition.field;
            let found = match value_of(record, field) {
                Some(value) => format!("`{field}` is {}", quote(&value)),
                None => format!("there is no field `{field}`"),
            };
            let wanted = match &condition.test {
                FieldTest::AnyOf(accepted) => {
                    accepted.iter().map(|value| quote(value)).collect::<Vec<_>>().join(" or ")
                }
                FieldTest::Regex(regex) => format!("a match of /{}/", regex.as_str()),
                FieldTest::Without(regex) => format!("no match of /{}/", regex.as_str()),
                FieldTest::Absent => "no such field".to_owned(),
            };
            return Some(NearMiss { rule, why: format!("{found}, the rule requires {wanted}") });
        }
        None
    }

    /// The rule whose message is most similar to the record's message.
    fn similar_message(&self, record: &LogRecord) -> Option<NearMiss> {
        let mut best: Option<(usize, NearMiss)> = None;
        for (rule, draft) in self.drafts() {
            let RuleMatcher::Message(messages) = &draft.matcher else { continue };
            for message in messages {
                let Some((likeness, why)) = compare(message.trim(), &record.message) else { continue };
                if best.as_ref().is_none_or(|(most, _)| likeness > *most) {
                    best = Some((likeness, NearMiss { rule, why }));
                }
            }
        }
        best.map(|(_, near)| near)
    }

    fn drafts(&self) -> impl Iterator<Item = (RuleId, &RuleDraft)> {
        (0..=u16::MAX).map(RuleId).zip(&self.config.rules)
    }
}

/// Returns how similar the record's message is to the rule's message, and the difference.
fn compare(wanted: &str, message: &str) -> Option<(usize, String)> {
    if message.contains(wanted) {
        return Some((wanted.len() * 2, format!("the message contains {} but is longer", quote(wanted))));
    }
    if wanted.eq_ignore_ascii_case(message) {
        return Some((
            wanted.len() * 2,
            format!("the message differs from {} in upper and lower case only", quote(wanted)),
        ));
    }
    let common: usize =
        wanted.chars().zip(message.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum();
    let is_near = common >= MIN_COMMON && common * 2 >= wanted.len();
    is_near.then(|| {
        let why = format!("the message is like {} up to {}", quote(wanted), quote(wanted[..common].trim_end()));
        (common, why)
    })
}

/// Quotes a text, cut to 80 characters so that it fits on a line of a terminal.
fn quote(text: &str) -> String {
    const LIMIT: usize = 80;
    let cut: String = text.chars().take(LIMIT).collect();
    if cut.len() < text.len() { format!("{cut:?}...") } else { format!("{cut:?}") }
}
