//! The rules and reasons of a configuration file or preset as written: typed values with positions.
//!
//! Part of the first stage, see `config/raw.rs`. `rules/mod.rs` and `rules/reasons.rs` check the
//! values.

use std::time::Duration;

use crate::config::yaml::document::{YamlNode, YamlPosition, YamlValue};
use crate::config::yaml::fields::{Located, YamlMapping, text};
use crate::config::yaml::problem::ProblemCollector;
use crate::model::failure::{ConflictKind, FailureKind, Operation, Reason, RuleField};
use crate::model::label::Label;
use crate::model::log_event::FINAL_STATE_EVENT;

#[derive(Debug)]
pub(in crate::config) struct RawReason {
    pub(in crate::config) contains: Option<Located<String>>,
    pub(in crate::config) regex: Option<Located<String>>,
    pub(in crate::config) reason: Option<Located<Reason>>,
}

#[derive(Debug)]
pub(in crate::config) struct RawRule {
    pub(in crate::config) place: YamlPosition,
    pub(in crate::config) name: Option<Located<String>>,
    pub(in crate::config) message: Option<Vec<Located<String>>>,
    pub(in crate::config) regex: Option<Located<String>>,
    pub(in crate::config) conditions: Vec<RawCondition>,
    pub(in crate::config) event: Option<Located<RawAction>>,
    pub(in crate::config) operation: Option<Located<Operation>>,
    pub(in crate::config) namespace: Option<Located<String>>,
    pub(in crate::config) id: Option<Vec<Located<String>>>,
    pub(in crate::config) reason: Option<Located<Reason>>,
    pub(in crate::config) kind: Option<Located<ConflictKind>>,
    pub(in crate::config) state: Option<Located<String>>,
    pub(in crate::config) terminal: Option<Vec<Located<String>>>,
    pub(in crate::config) legal: Option<Vec<Located<String>>>,
    pub(in crate::config) joins: Option<Located<Duration>>,
}

#[derive(Debug)]
pub(in crate::config) struct RawCondition {
    pub(in crate::config) field: String,
    pub(in crate::config) test: RawTest,
}

#[derive(Debug)]
pub(in crate::config) enum RawTest {
    AnyOf(Vec<String>),
    Regex(Located<String>),
    Without(Located<String>),
    Absent,
}

/// A word that `event` accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum RawAction {
    Report(FailureKind),
    FinalState,
    Ignore,
}

impl RawAction {
    fn words() -> Vec<(&'static str, Self)> {
        let kinds = FailureKind::ALL.iter().map(|kind| (kind.as_str(), Self::Report(*kind)));
        kinds.chain([(FINAL_STATE_EVENT, Self::FinalState), ("ignore", Self::Ignore)]).collect()
    }

    pub(in crate::config) fn uses(self, field: RuleField) -> bool {
        matches!(self, Self::Report(kind) if kind.info().rule_fields.contains(&field))
    }
}

impl RawReason {
    pub(in crate::config) fn read(node: &YamlNode, findings: &mut ProblemCollector) -> Option<Self> {
        let fields = YamlMapping::of(node, "a reason", &["contains", "regex", "reason"], findings)?;
        fields.require("reason", "add `reason: NAME`, the label value for such errors", findings);
        fields.exactly_one("contains", "regex", findings);
        Some(Self {
            contains: fields.text("contains", findings),
            regex: fields.text("regex", findings),
            reason: fields.label("reason", findings),
        })
    }
}

impl RawRule {
    #[rustfmt::skip]
    const FIELDS: [&str; 14] = [
        "name", "message", "regex", "where", "event", "operation", "namespace", "id", "reason", "kind", "state",
        "terminal", "legal", "joins",
    ];

    pub(in crate::config) fn read(node: &YamlNode, findings: &mut ProblemCollector) -> Option<Self> {
        let fields = YamlMapping::of(node, "a rule", &Self::FIELDS, findings)?;
        fields.require("event", "add `event: NAME`, such as renewal_failed, or ignore", findings);
        fields.exactly_one("message", "regex", findings);
        let event = fields.choice("event", &RawAction::words(), findings);
        match event.as_ref().map(|event| event.value) {
            Some(action) if action.uses(RuleField::Conflict) => {
                let help = "add `kind: NAME`: duplicate_terminal_state, stale_write_rejected or state_conflict";
                fields.require("kind", help, findings);
            }
            Some(RawAction::FinalState) => {
                fields.require("state", "add `state: FIELD`, the field that holds the state", findings);
                fields.require("terminal", "add `terminal: [STATE, ...]`, the states that are final", findings);
            }
            _ => {}
        }
        Some(Self {
            place: fields.place(),
            name: fields.text("name", findings),
            message: fields.texts("message", findings),
            regex: fields.text("regex", findings),
            conditions: fields.get("where").map(|node| read_conditions(node, findings)).unwrap_or_default(),
            event,
            operation: fields.label("operation", findings),
            namespace: fields.text("namespace", findings),
            id: fields.texts("id", findings),
            reason: fields.label("reason", findings),
            kind: fields.label("kind", findings),
            state: fields.text("state", findings),
            terminal: fields.texts("terminal", findings),
            legal: fields.texts("legal", findings),
            joins: fields.duration("joins", findings),
        })
    }
}

impl RawRule {
    /// Returns true if the rule turns a record into an event.
    pub(in crate::config) fn counts(&self) -> bool {
        self.event.as_ref().is_some_and(|event| event.value != RawAction::Ignore)
    }
}

impl YamlMapping<'_> {
    fn label<L: Label>(&self, name: &str, findings: &mut ProblemCollector) -> Option<Located<L>> {
        let allowed: Vec<(&str, L)> = L::ALL.iter().map(|label| (label.as_str(), *label)).collect();
        self.choice(name, &allowed, findings)
    }

    /// Reports a problem unless exactly one of the two fields is present.
    fn exactly_one(&self, first: &str, second: &str, findings: &mut ProblemCollector) {
        let message = match (self.has(first), self.has(second)) {
            (true, true) => format!("both `{first}` and `{second}`"),
            (false, false) => format!("neither `{first}` nor `{second}`"),
            _ => return,
        };
        findings.add(self.place(), message, format!("give exactly one of `{first}` and `{second}`"));
    }
}

/// Reads `where`: any field names of the log, each with a value, a list of values, `{regex}`,
/// `{without}`, both of these, or `{absent: true}`.
fn read_conditions(node: &YamlNode, findings: &mut ProblemCollector) -> Vec<RawCondition> {
    let YamlValue::Mapping(entries) = &node.kind else {
        let message = format!("`where` must be a mapping, found {}", node.describe());
        findings.add(node.place, message, "write `where: {component: gateway}`");
        return Vec::new();
    };
    let mut conditions: Vec<RawCondition> = Vec::new();
    for (key, value) in entries {
        let Some(field) = text(key, "a field's name in `where`", findings) else { continue };
        if conditions.iter().any(|condition| condition.field == field.value) {
            findings.add(key.place, format!("`{}` appears twice in `where`", field.value), "remove one of them");
            continue;
        }
        for test in read_tests(value, &field.value, findings) {
            conditions.push(RawCondition { field: field.value.clone(), test });
        }
    }
    conditions
}

fn read_tests(node: &YamlNode, field: &str, findings: &mut ProblemCollector) -> Vec<RawTest> {
    match &node.kind {
        YamlValue::List(items) if items.is_empty() => {
            findings.add(node.place, format!("`{field}` in `where` is an empty list"), "list the values to accept");
            Vec::new()
        }
        YamlValue::List(items) => {
            vec![RawTest::AnyOf(items.iter().filter_map(|item| value_text(item, field, findings)).collect())]
        }
        YamlValue::Mapping(_) => {
            match YamlMapping::of(node, "a condition", &["regex", "without", "absent"], findings) {
                Some(fields) => read_condition(&fields, findings),
                None => Vec::new(),
            }
        }
        _ => value_text(node, field, findings).into_iter().map(|value| RawTest::AnyOf(vec![value])).collect(),
    }
}

fn read_condition(fields: &YamlMapping<'_>, findings: &mut ProblemCollector) -> Vec<RawTest> {
    if !fields.has("without") || fields.has("absent") {
        fields.exactly_one("regex", "absent", findings);
    }
    match fields.boolean("absent", findings) {
        Some(Located { value: true, .. }) => vec![RawTest::Absent],
        Some(Located { place, .. }) => {
            let help = "write `absent: true`, or `regex: '.'` for a field that exists";
            findings.add(place, "`absent` must be true", help);
            Vec::new()
        }
        None => {
            let regex = fields.text("regex", findings).map(RawTest::Regex);
            regex.into_iter().chain(fields.text("without", findings).map(RawTest::Without)).collect()
        }
    }
}

/// Fields of a log line are compared as text, so `true` and `3` need no quotes.
fn value_text(node: &YamlNode, field: &str, findings: &mut ProblemCollector) -> Option<String> {
    match &node.kind {
        YamlValue::Bool(value) => Some(value.to_string()),
        YamlValue::Integer(value) => Some(value.to_string()),
        _ => text(node, &format!("`{field}` in `where`"), findings).map(|text| text.value),
    }
}
