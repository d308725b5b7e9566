//! Tests Cordum's lines (tests/fixtures/cordum-lines.yaml) against the preset, in every format in
//! which they can arrive.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use redis_lock_exporter::config::{Config, Overrides};
use redis_lock_exporter::logs::extract::search::Searcher;
use redis_lock_exporter::logs::line::{LogRecord, unwrap_line};
use redis_lock_exporter::logs::rules::{RuleMatch, RuleSet};
use redis_lock_exporter::model::failure::{FailureKind, Reason};
use redis_lock_exporter::model::label::Label;
use redis_lock_exporter::model::log_event::{LogEvent, RuleId, Statement};

use crate::lines::{Line, Wrapping};

const LINES: &str = include_str!("../fixtures/cordum-lines.yaml");
const TIME: &str = "2026-06-25T13:37:04.123456789Z";

/// Formats text like encoders that escape as many characters as possible.
fn escaped(json: &str) -> String {
    let escape = |character: char| match character {
        '<' | '>' | '&' | '\'' | '+' | '`' => format!("\\u{:04x}", u32::from(character)),
        '/' => "\\/".to_owned(),
        other if other.is_ascii() => other.to_string(),
        other => format!("\\u{:04X}", u32::from(other)),
    };
    json.chars().map(escape).collect()
}

/// The preset, and the search for lines that may match its rules.
fn cordum() -> (Config, Arc<RuleSet>, Searcher) {
    let config = Config::from_yaml("test", "presets: [cordum]\nlogs: [{path: '-'}]", &Overrides::default()).unwrap();
    let rules = RuleSet::compile(&config);
    let searcher = Searcher::new(&rules.needed_texts());
    (config, rules, searcher)
}

fn shown(config: &Config, event: &LogEvent) -> BTreeMap<String, String> {
    let mut parts = vec![
        ("event", Some(event.statement.event_name())),
        ("lock_namespace", Some(config.namespaces[usize::from(event.namespace.0)].name.as_str())),
        ("lock", event.lock.as_deref()),
    ];
    match &event.statement {
        Statement::Failure(failure) => parts.extend([
            ("operation", failure.operation_name()),
            ("reason", failure.reason().map(Reason::as_str)),
            ("kind", failure.label_value().filter(|_| failure.kind() == FailureKind::ConflictingWrite)),
        ]),
        Statement::FinalState { state, may_follow } => {
            parts.extend([("state", Some(state.as_str())), ("may_follow", may_follow.as_deref())]);
        }
    }
    parts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))).collect()
}

fn check(
    (config, rules, searcher): &(Config, Arc<RuleSet>, Searcher),
    wrapped: &str,
    expected: &BTreeMap<String, String>,
) {
    let unwrapped = unwrap_line(wrapped.as_bytes());
    let record = LogRecord::parse(&unwrapped.text, unwrapped.time);
    let found = match rules.evaluate(&record) {
        RuleMatch::Event(event) => shown(config, &event),
        RuleMatch::Ignored { .. } | RuleMatch::NoMatch => BTreeMap::new(),
    };
    assert_eq!(&found, expected, "{wrapped}\n{record:?}");
    if !expected.is_empty() {
        assert!(searcher.find_at(wrapped.as_bytes(), 0).is_some(), "the search does not find {wrapped}");
    }
}

#[test]
fn every_line_in_every_form() {
    let cordum = cordum();
    let lines: Vec<Line> = serde_yaml::from_str(LINES).unwrap();
    for line in &lines {
        let text = line.text();
        // A value with newlines produces several lines of text, and only the first one matches a
        // rule.
        let mut text_lines = text.lines();
        let forms = [line.json(TIME), escaped(&line.json(TIME)), text_lines.next().unwrap().to_owned()];
        let forms = forms.iter().map(|form| (form.as_str(), &line.expect));
        let silence = BTreeMap::new();
        for (form, expected) in forms.chain(text_lines.map(|rest| (rest, &silence))) {
            check(&cordum, form, expected);
            check(&cordum, &format!("{form}\r"), expected);
            check(&cordum, &format!("cordum-1  | {form}"), expected);
            for wrapping in [Wrapping::Docker, Wrapping::Cri] {
                check(&cordum, wrapping.wrap(form, TIME).trim_end_matches('\n'), expected);
            }
        }
    }
}

/// A new rule of the preset needs a line in this file.
#[test]
fn every_rule_of_the_preset_has_a_test_line() {
    let (config, rule_set, _) = cordum();
    let lines: Vec<Line> = serde_yaml::from_str(LINES).unwrap();
    let mut used = BTreeSet::new();
    for line in &lines {
        match rule_set.evaluate(&LogRecord::parse(line.json(TIME).as_bytes(), None)) {
            RuleMatch::Event(LogEvent { rule, .. }) | RuleMatch::Ignored { rule } => used.insert(rule),
            RuleMatch::NoMatch => continue,
        };
    }
    let rules = (0..config.n_rules as u16).map(RuleId);
    let unused: Vec<&str> = rules.filter(|rule| !used.contains(rule)).map(|rule| config.rules.name(rule)).collect();
    assert_eq!(unused, Vec::<&str>::new());
}

#[test]
fn lines_of_other_programs_match_no_rule() {
    let cordum = cordum();
    for line in [
        "redis: 2026/06/25 13:37:04 pool.go:367: redis: connection pool: failed to dial after 5 attempts",
        r#"10.0.0.1 - - [25/Jun/2026:13:37:04 +0000] "GET /search?q=lock+not+owned HTTP/1.1" 200 12"#,
        "java.lang.IllegalMonitorStateException: current thread is not owner",
        "attempt to unlock read lock, not locked by current thread",
        r#"    raise LockError("lock not owned")"#,
        "\tat com.example.Lock.release(lock not owned)",
        r#"{"msg":"said","user":{"comment":"lock not owned"},"tags":["token mismatch of a lock"]}"#,
    ] {
        check(&cordum, line, &BTreeMap::new());
    }
}
