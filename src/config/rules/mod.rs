//! Rules of the configuration: compiles regexes, resolves names, and checks that a rule sets only
//! fields that its event uses.
//!
//! `config::assemble` calls `RuleBuilder`; `logs::rules` evaluates the result. In reading order:
//!
//! * `raw`: rules and reasons as written
//! * this file: builds checked rules from raw rules
//! * `rule`: the checked rules
//! * `reasons`: which label value an error text gets
//! * `patterns`: compiles regexes with a memory limit
//! * `literals`: text that a line must contain before a rule can match it
//! * `countable`: which series the rules can ever count

pub mod countable;
pub mod literals;
pub(super) mod patterns;
pub(super) mod raw;
pub(super) mod reasons;
pub mod rule;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use regex::Regex;

use super::namespaces::KEY_HELP;
use super::yaml::document::{YamlPosition, quote};
use super::yaml::fields::Located;
use super::yaml::problem::ProblemCollector;
use super::yaml::suggest;
use crate::model::failure::{FailureKind, Operation, RuleField};
use crate::model::key_template::KeyTemplate;
use crate::model::label::Label;
use crate::model::log_event::FINAL_STATE_EVENT;
use crate::model::namespace::{Namespace, NamespaceId};
use crate::util::units;
use literals::required_literals;
use raw::{RawAction, RawRule, RawTest};
use rule::{Condition, FieldTest, FinalStateRule, IdSource, RuleAction, RuleDraft, RuleMatcher};

/// The name of the user's own layer.
pub(super) const USER: &str = "config";
const MAX_RULES: usize = 5000;
const MAX_NAME_CHARS: usize = 100;
/// The ledger always remembers failures for longer than this.
const MAX_JOINS: Duration = Duration::from_secs(60);

/// Builds the rules of all layers, in the order in which they are evaluated.
pub(super) struct RuleBuilder<'a> {
    namespaces: &'a [Arc<Namespace>],
    /// All rule names so far, each with the layer and the position of its rule.
    names: BTreeMap<String, (String, YamlPosition)>,
    drafts: Vec<RuleDraft>,
}

impl<'a> RuleBuilder<'a> {
    pub(super) fn new(namespaces: &'a [Arc<Namespace>]) -> Self {
        Self { namespaces, names: BTreeMap::new(), drafts: Vec::new() }
    }

    /// Adds the rules of one layer: `config`, or the name of a preset. A rule of the user replaces
    /// a preset's rule of the same name.
    pub(super) fn add_layer(&mut self, layer: &str, rules: Vec<RawRule>, findings: &mut ProblemCollector) {
        for (index, raw) in rules.into_iter().enumerate() {
            let is_replaced =
                |name: &Located<String>| self.names.get(&name.value).is_some_and(|(other, _)| other == USER);
            if layer != USER && raw.name.as_ref().is_some_and(is_replaced) {
                continue;
            }
            if self.drafts.len() == MAX_RULES {
                findings.add(raw.place, format!("more than {MAX_RULES} rules"), "join rules with lists and regexes");
                return;
            }
            let name = self.name(layer, index, &raw, findings);
            if let Some(draft) = self.draft(name, raw, findings) {
                self.drafts.push(draft);
            }
        }
    }

    pub(super) fn finish(self) -> Vec<RuleDraft> {
        self.drafts
    }

    fn name(&mut self, layer: &str, index: usize, raw: &RawRule, findings: &mut ProblemCollector) -> String {
        let name = match &raw.name {
            Some(name) => name.value.clone(),
            None => format!("{layer}/rule-{}", index + 1),
        };
        let place = raw.name.as_ref().map_or(raw.place, |name| name.place);
        if name.chars().count() > MAX_NAME_CHARS || name.chars().any(char::is_control) {
            let message = format!("{} cannot be the name of a rule", quote(&name));
            findings.add(place, message, format!("use up to {MAX_NAME_CHARS} characters on one line"));
        }
        match self.names.get(&name) {
            None => drop(self.names.insert(name.clone(), (layer.to_owned(), place))),
            Some((other, _)) if other == layer => {
                findings.add(
                    place,
                    format!("the rule {} is listed twice", quote(&name)),
                    "give each rule its own name",
                );
            }
            Some((other, _)) => {
                let message = format!("the preset `{other}` has a rule {} too", quote(&name));
                findings.add(place, message, "choose another name");
            }
        }
        name
    }

    fn draft(&self, name: String, raw: RawRule, findings: &mut ProblemCollector) -> Option<RuleDraft> {
        let matcher = matcher(&raw, findings);
        let action = action(&raw, findings);
        let namespace = raw.namespace.as_ref().map(|name| self.namespace(name, findings));
        let conditions = conditions(&raw, findings);
        let joins = joins(raw.joins.as_ref(), findings);
        Some(RuleDraft {
            name,
            matcher: matcher?,
            conditions,
            action: action?,
            namespace: namespace.flatten(),
            id: ids(raw.id, findings),
            reason: raw.reason.map(|reason| reason.value),
            joins,
        })
    }

    fn namespace(&self, name: &Located<String>, findings: &mut ProblemCollector) -> Option<NamespaceId> {
        let index = self.namespaces.iter().position(|namespace| namespace.name == name.value);
        if index.is_none() {
            let names: Vec<&str> = self.namespaces.iter().map(|namespace| namespace.name.as_str()).collect();
            let message = format!("unknown namespace {}", quote(&name.value));
            findings.add(name.place, message, suggest::help_with(&name.value, &names));
        }
        index.and_then(|index| u16::try_from(index).ok()).map(NamespaceId)
    }
}

fn matcher(raw: &RawRule, findings: &mut ProblemCollector) -> Option<RuleMatcher> {
    if let Some(source) = &raw.regex {
        return patterns::compile_matcher(source, findings).map(RuleMatcher::Regex);
    }
    let messages = raw.message.as_ref()?;
    for message in messages {
        if required_literals(&regex::escape(&message.value)).is_none() {
            let problem = format!("the message {} is too short to be searched for", quote(&message.value));
            findings.add(message.place, problem, "give the complete message, with at least three letters in a row");
        }
    }
    Some(RuleMatcher::Message(messages.iter().map(|message| message.value.clone()).collect()))
}

fn conditions(raw: &RawRule, findings: &mut ProblemCollector) -> Vec<Condition> {
    let mut conditions = Vec::new();
    for condition in &raw.conditions {
        let test = match &condition.test {
            RawTest::AnyOf(values) => Some(FieldTest::AnyOf(values.clone())),
            RawTest::Regex(source) => patterns::compile(source, findings).map(FieldTest::Regex),
            RawTest::Without(source) => patterns::compile(source, findings).map(FieldTest::Without),
            RawTest::Absent => Some(FieldTest::Absent),
        };
        conditions.extend(test.map(|test| Condition { field: condition.field.clone(), test }));
    }
    conditions
}

fn action(raw: &RawRule, findings: &mut ProblemCollector) -> Option<RuleAction> {
    let action = raw.event.as_ref()?.value;
    report_unused_fields(raw, action, findings);
    Some(match action {
        RawAction::Report(kind) => {
            let conflict = raw.kind.as_ref().map(|conflict| conflict.value);
            if action.uses(RuleField::Conflict) && conflict.is_none() {
                return None;
            }
            let operation = raw.operation.as_ref().map_or(Operation::Unknown, |operation| operation.value);
            RuleAction::Report { kind, operation, conflict }
        }
        RawAction::FinalState => RuleAction::FinalState(final_state(raw, findings)?),
        RawAction::Ignore => RuleAction::Ignore,
    })
}

/// Reports fields that have no effect with the event of the rule. Such a field shows that the user
/// misunderstood it.
fn report_unused_fields(raw: &RawRule, action: RawAction, findings: &mut ProblemCollector) {
    let first_place =
        |texts: &Option<Vec<Located<String>>>| texts.as_ref().and_then(|texts| Some(texts.first()?.place));
    let mut unused = Vec::new();
    for field in RuleField::ALL.iter().filter(|field| !action.uses(**field)) {
        let place = match field {
            RuleField::Operation => raw.operation.as_ref().map(|at| at.place),
            RuleField::Reason => raw.reason.as_ref().map(|at| at.place),
            RuleField::Conflict => raw.kind.as_ref().map(|at| at.place),
        };
        let kinds = FailureKind::ALL.iter().filter(|kind| kind.info().rule_fields.contains(field));
        unused.push((field.as_str(), place, format!("the event {}", any_of(kinds))));
    }
    if action != RawAction::FinalState {
        let event = format!("the event {FINAL_STATE_EVENT}");
        unused.push(("state", raw.state.as_ref().map(|at| at.place), event.clone()));
        unused.push(("terminal", first_place(&raw.terminal), event.clone()));
        unused.push(("legal", first_place(&raw.legal), event));
    }
    if !matches!(action, RawAction::Report(_)) {
        let place = raw.joins.as_ref().map(|at| at.place);
        unused.push(("joins", place, "an event that reports a failure".to_owned()));
    }
    for (field, place, events) in unused {
        if let Some(place) = place {
            let message = format!("`{field}` has no effect with this event");
            findings.add(place, message, format!("remove it, or use it with {events}"));
        }
    }
}

/// Returns a list such as "not_owned, abandoned or release_failed".
fn any_of<'a>(kinds: impl Iterator<Item = &'a FailureKind>) -> String {
    let words: Vec<&str> = kinds.map(|kind| kind.as_str()).collect();
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => words.concat(),
    }
}

fn joins(joins: Option<&Located<Duration>>, findings: &mut ProblemCollector) -> Option<Duration> {
    let joins = joins?;
    if joins.value.is_zero() || joins.value > MAX_JOINS {
        let message = format!("`joins` is out of range: {}", units::format_duration(joins.value));
        findings.add(joins.place, message, "give a duration above 0s and up to 1m");
    }
    Some(joins.value)
}

fn final_state(raw: &RawRule, findings: &mut ProblemCollector) -> Option<FinalStateRule> {
    let (state, terminal) = (raw.state.as_ref()?, raw.terminal.as_ref()?);
    let terminal: Vec<String> = terminal.iter().map(|state| state.value.clone()).collect();
    let mut legal = Vec::new();
    for pair in raw.legal.iter().flatten() {
        let Some((first, second)) = pair.value.split_once("->") else {
            let message = format!("{} is not a pair of states", quote(&pair.value));
            findings.add(pair.place, message, "write \"FIRST -> SECOND\"");
            continue;
        };
        let (first, second) = (first.trim().to_owned(), second.trim().to_owned());
        for name in [&first, &second] {
            if !terminal.contains(name) {
                let words: Vec<&str> = terminal.iter().map(String::as_str).collect();
                let message = format!("{} in `legal` is not one of `terminal`", quote(name));
                findings.add(pair.place, message, suggest::help_with(name, &words));
            }
        }
        legal.push((first, second));
    }
    Some(FinalStateRule { state: state.value.clone(), terminal, legal })
}

/// Each item is the name of a field, or a template of a complete key.
fn ids(texts: Option<Vec<Located<String>>>, findings: &mut ProblemCollector) -> Vec<IdSource> {
    let mut ids = Vec::new();
    for text in texts.into_iter().flatten() {
        let is_template = text.value.contains(['{', '}', ':']);
        if is_template && let Err(sentence) = KeyTemplate::parse(&text.value) {
            findings.add(text.place, sentence, KEY_HELP);
        }
        ids.push(IdSource::new(&text.value));
    }
    ids
}

/// Compiles the expressions that find the key of a lock in an error text.
pub(super) fn key_finders(sources: &[Located<String>], findings: &mut ProblemCollector) -> Vec<Regex> {
    sources.iter().filter_map(|source| patterns::compile_key_finder(source, findings)).collect()
}
