//! Finds text that a line must contain for a rule to match it, so that complete blocks of a log can
//! be searched before any line is parsed.
//!
//! The search sees a line as it is in the file. Encoders write some characters in several forms
//! (`<` as `\u003c`, `/` as `\/`, `—` as `\u2014`), so only bytes that every encoder leaves
//! unchanged are used. A rule without such text is a configuration problem.

use regex_syntax::hir::{Hir, HirKind};

use super::rule::{FieldTest, RuleDraft, RuleMatcher};

/// Shorter text occurs in too many lines to make the search faster.
const MIN_LENGTH: usize = 3;
/// An alternation of more texts than this does not make the search faster.
const MAX_ALTERNATIVES: usize = 64;

/// A line must contain at least one of these texts.
pub type AnyOf = Vec<Vec<u8>>;

/// Returns `None` if no literal text of at least three bytes is in every match. Bytes that JSON
/// encoders may escape do not count. The configuration rejects such a regex.
pub fn required_literals(regex_source: &str) -> Option<AnyOf> {
    of_regex(regex_source).into_iter().max_by_key(shortest_length)
}

/// Returns everything that a line must contain for a rule to match it. Each set is required, so a
/// search can use any of them. Empty if there is none.
pub(crate) fn of_rule(rule: &RuleDraft) -> Vec<AnyOf> {
    let mut needed = of_matcher(&rule.matcher);
    for condition in &rule.conditions {
        // Text formats write component and level in different forms, and a stack can be on other
        // lines than the message.
        if !["component", "level", super::rule::STACK].contains(&condition.field.as_str()) {
            needed.extend(of_test(&condition.test));
        }
    }
    needed
}

pub(crate) fn of_matcher(matcher: &RuleMatcher) -> Vec<AnyOf> {
    match matcher {
        RuleMatcher::Regex(regex) => of_regex(regex.as_str()),
        RuleMatcher::Message(messages) => Vec::from_iter(one_of_each(messages)),
    }
}

fn of_test(test: &FieldTest) -> Vec<AnyOf> {
    match test {
        FieldTest::AnyOf(values) => Vec::from_iter(one_of_each(values)),
        FieldTest::Regex(regex) => of_regex(regex.as_str()),
        FieldTest::Without(_) | FieldTest::Absent => Vec::new(),
    }
}

fn one_of_each(texts: &[String]) -> Option<AnyOf> {
    texts.iter().map(|text| safe_run(text.trim().as_bytes())).collect()
}

fn of_regex(source: &str) -> Vec<AnyOf> {
    regex_syntax::parse(source).map(|hir| of_hir(&hir)).unwrap_or_default()
}

fn of_hir(hir: &Hir) -> Vec<AnyOf> {
    match hir.kind() {
        HirKind::Literal(literal) => Vec::from_iter(safe_run(&literal.0).map(|run| vec![run])),
        HirKind::Capture(capture) => of_hir(&capture.sub),
        HirKind::Repetition(repetition) if repetition.min >= 1 => of_hir(&repetition.sub),
        HirKind::Concat(parts) => parts.iter().flat_map(of_hir).collect(),
        HirKind::Alternation(parts) => {
            let best = parts.iter().map(|part| of_hir(part).into_iter().max_by_key(shortest_length));
            let union: Option<AnyOf> = best.collect::<Option<Vec<AnyOf>>>().map(|branches| branches.concat());
            Vec::from_iter(union.filter(|union| union.len() <= MAX_ALTERNATIVES))
        }
        HirKind::Repetition(_) | HirKind::Empty | HirKind::Class(_) | HirKind::Look(_) => Vec::new(),
    }
}

/// A set is more selective the longer its shortest text is.
fn shortest_length(any_of: &AnyOf) -> Option<usize> {
    any_of.iter().map(Vec::len).min()
}

/// Returns the longest run of bytes that every encoder writes unchanged.
fn safe_run(text: &[u8]) -> Option<Vec<u8>> {
    let mut longest: &[u8] = &[];
    for run in text.split(|byte| !is_safe(*byte)) {
        if run.len() > longest.len() {
            longest = run;
        }
    }
    (longest.len() >= MIN_LENGTH).then(|| longest.to_vec())
}

fn is_safe(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b" _-:,.()[]{}=@#*!?;|~^%$".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `expected` contains the literals joined by `|`. Empty for none.
    fn check(regex: &str, expected: &str) {
        let found = required_literals(regex).unwrap_or_default();
        let found: Vec<String> = found.iter().map(|literal| String::from_utf8_lossy(literal).into_owned()).collect();
        assert_eq!(found.join("|"), expected.replace('/', "|"), "{regex}");
    }

    #[test]
    fn finds_the_text_of_every_match() {
        check("lock not owned", "lock not owned");
        check(r"run lock busy: (?P<id>\S+)", "run lock busy: ");
        check(r"^job store (?:try acquire|release) lock (?P<key>\S+): ", "job store ");
        check("lock (?:lost|stolen)", "lock ");
        check("(?:was lost|got stolen)", "was lost/got stolen");
        check(r"[Ll]ock (?:is )?not owned", "not owned");
        check(r"\b[Ll]ock\b.{0,80}token mismatch|token mismatch.{0,80}\b[Ll]ock\b", "token mismatch/token mismatch");
        check("(?:renew)+ x", "renew");
        check("Can't update lock", "t update lock");
        check(r#"release the \\?".+?\\?" lock"#, "release the ");
    }

    #[test]
    fn finds_none_where_there_is_none() {
        for regex in [r"\w+", "(?i)lock", "lock|x", "(?:lock)?", "(?:lock)*", "", "lo", "锁丢失", "(", r"</lo\d"] {
            check(regex, "");
        }
    }

    #[test]
    fn reads_messages_and_conditions() {
        let literals = of_matcher(&RuleMatcher::Message(vec!["no lock \u{2014} using a local one".to_owned()]));
        assert_eq!(literals, [[b" using a local one".to_vec()]]);
        assert!(of_matcher(&RuleMatcher::Message(vec!["锁".to_owned()])).is_empty());
        let test = FieldTest::AnyOf(vec!["job_id_mismatch".to_owned(), "run_not_found".to_owned()]);
        assert_eq!(of_test(&test), [[b"job_id_mismatch".to_vec(), b"run_not_found".to_vec()]]);
        assert!(of_test(&FieldTest::Absent).is_empty());
    }

    #[test]
    fn all_parts_of_a_regex_are_needed() {
        let needed = of_regex("saga lock: .* not owned");
        assert_eq!(needed, [[b"saga lock: ".to_vec()], [b" not owned".to_vec()]]);
    }
}
