//! Builds the checked reasons, which map an error text to a label value.
//!
//! `config::assemble` calls [`build`] for each layer. A regex that does not compile is reported.

use super::patterns;
use super::raw::RawReason;
use crate::config::rules::rule::{ReasonDraft, TextTest};
use crate::config::yaml::problem::ProblemCollector;

/// Returns the reasons of one layer, in the order in which they are evaluated.
pub(in crate::config) fn build(reasons: Vec<RawReason>, findings: &mut ProblemCollector) -> Vec<ReasonDraft> {
    let mut drafts = Vec::new();
    for raw in reasons {
        let test = match (raw.contains, raw.regex) {
            (Some(text), _) => Some(TextTest::Contains(text.value)),
            (None, Some(source)) => patterns::compile(&source, findings).map(TextTest::Regex),
            (None, None) => None,
        };
        if let (Some(test), Some(reason)) = (test, raw.reason) {
            drafts.push(ReasonDraft { test, reason: reason.value });
        }
    }
    drafts
}
