//! Reads the rule files for the tests of runbooks and routes: the alerts and the recorded series.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde::Deserialize;

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/alerts");

#[derive(Debug, Deserialize)]
struct RuleFile {
    groups: Vec<Group>,
}

#[derive(Debug, Deserialize)]
struct Group {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Rule {
    pub(crate) record: Option<String>,
    pub(crate) alert: Option<String>,
    pub(crate) expr: String,
    #[serde(rename = "for")]
    pub(crate) pending: Option<String>,
    pub(crate) keep_firing_for: Option<String>,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) annotations: BTreeMap<String, String>,
}

/// Returns every rule of every `alerts/*.rules.yml`.
pub(crate) fn rules() -> Vec<Rule> {
    let mut rules = Vec::new();
    for entry in fs::read_dir(DIRECTORY).unwrap() {
        let path = entry.unwrap().path();
        if !path.to_str().unwrap().ends_with(".rules.yml") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let file: RuleFile = serde_yaml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        rules.extend(file.groups.into_iter().flat_map(|group| group.rules));
    }
    assert!(!rules.is_empty(), "no rules in {DIRECTORY}");
    rules
}

/// Returns rules by alert name. Several rules can share a name and differ in severity.
pub(crate) fn alerts() -> BTreeMap<String, Vec<Rule>> {
    let mut alerts: BTreeMap<String, Vec<Rule>> = BTreeMap::new();
    for rule in rules() {
        if let Some(name) = &rule.alert {
            alerts.entry(name.clone()).or_default().push(rule);
        }
    }
    alerts
}

pub(crate) fn recorded() -> BTreeSet<String> {
    rules().into_iter().filter_map(|rule| rule.record).collect()
}
