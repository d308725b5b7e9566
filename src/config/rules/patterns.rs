//! Compiles the regular expressions of the configuration with a memory limit, and reports errors in
//! one line.
//!
//! Rules, reasons and `owner` settings call it. On error it reports a problem and returns `None`.

use regex::{Regex, RegexBuilder};

use crate::config::rules::literals::required_literals;
use crate::config::yaml::document::quote;
use crate::config::yaml::fields::Located;
use crate::config::yaml::problem::ProblemCollector;
use crate::config::yaml::suggest;

/// Memory limit for one compiled expression.
const MAX_COMPILED_BYTES: usize = 1 << 20;

/// Compiles an expression that is tested against a text.
pub(in crate::config) fn compile(source: &Located<String>, findings: &mut ProblemCollector) -> Option<Regex> {
    let compiled = RegexBuilder::new(&source.value).size_limit(MAX_COMPILED_BYTES).build();
    if compiled.is_err() {
        match syntax_problem(&source.value) {
            Some((problem, help)) => {
                findings.add(source.place, format!("not a valid regular expression: {problem}"), help);
            }
            None => {
                let message = "the regular expression needs too much memory";
                findings.add(source.place, message, "make its repetitions such as {1000} smaller");
            }
        }
    }
    compiled.ok()
}

/// Compiles an expression that finds lines. Every match must contain some literal text, because
/// complete blocks of a log are first searched for that text.
pub(in crate::config) fn compile_matcher(source: &Located<String>, findings: &mut ProblemCollector) -> Option<Regex> {
    const GROUPS: [&str; 3] = ["key", "id", "error"];
    let regex = compile(source, findings)?;
    if required_literals(&source.value).is_none() {
        let message = "the regular expression has no text that every match contains";
        findings.add(source.place, message, "add some fixed text of the message, at least three letters in a row");
        return None;
    }
    for group in regex.capture_names().flatten() {
        if !GROUPS.contains(&group) {
            let message = format!("unknown group {} in the regular expression", quote(group));
            let help =
                format!("{}; write (?:...) for a group that does not capture", suggest::help_with(group, &GROUPS));
            findings.add(source.place, message, help);
        }
    }
    Some(regex)
}

/// Compiles an expression that finds the key of a lock in an error text.
pub(in crate::config) fn compile_key_finder(
    source: &Located<String>,
    findings: &mut ProblemCollector,
) -> Option<Regex> {
    let regex = compile(source, findings)?;
    if !regex.capture_names().flatten().any(|group| group == "key") {
        let message = "the regular expression has no group `key`";
        findings.add(
            source.place,
            message,
            r"put the part that is the lock's key in (?P<key>...), such as (?P<key>\S+)",
        );
        return None;
    }
    Some(regex)
}

/// Returns what is wrong with an expression, in one line, and a help text.
fn syntax_problem(source: &str) -> Option<(String, String)> {
    let (kind, column) = match regex_syntax::Parser::new().parse(source) {
        Ok(_) => return None,
        Err(regex_syntax::Error::Parse(error)) => (error.kind().to_string(), error.span().start.column),
        Err(regex_syntax::Error::Translate(error)) => (error.kind().to_string(), error.span().start.column),
        Err(error) => (error.to_string().lines().last().unwrap_or_default().to_owned(), 1),
    };
    let is_look_around = kind.starts_with("look-around");
    let help = if is_look_around {
        "match the text itself and narrow it down with `where`"
    } else {
        "write a backslash before ( ) [ ] { } . * + ? ^ $ | that stand for themselves"
    };
    Some((format!("{kind}, at character {column}"), help.to_owned()))
}
