//! Checks whether a Prometheus rule file fits this exporter. Metric and label names that the
//! exporter does not have are problems.
//!
//! `check --rules` calls [`RuleFile::check`]. It checks expressions and the queries in annotations
//! and labels. Rules may use series that the bundled rules record. Both plain rule files and
//! PrometheusRule manifests are accepted. `promtool` checks the grammar of the expressions.

use std::path::Path;

use super::promql::{LabelMatcher, PromqlSelector, listed_labels, queries_of_template, selectors};
use crate::bundle;
use crate::config::yaml::document::{YamlNode, YamlPosition, YamlValue};
use crate::config::yaml::problem::{ConfigProblem, ProblemCollector, Problems};
use crate::config::yaml::suggest;
use crate::exposition::{self, Metric, metrics};
use crate::model::counters::After;
use crate::model::failure::{Cause, ConflictKind, Operation, Reason};
use crate::model::label::Label;
use crate::model::sighting::OperationsSource;
use crate::snapshot::Ratios;

const PREFIX: &str = "redis_lock_";

/// The number of rules in a valid file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RuleFile {
    pub alerts: usize,
    pub recording_rules: usize,
}

impl RuleFile {
    pub fn check(path: &Path) -> Result<Self, Problems> {
        let Some(document) = crate::config::read_file(Some(path), "--rules")? else { return Ok(Self::default()) };
        let root = document.parse(0).map_err(|problem| Problems(vec![problem]))?;
        let mut findings = ProblemCollector::default();
        let rules = rules_of(&root);
        if rules.is_empty() {
            let help = "a rule file has `groups: [{name: ..., rules: [...]}]`";
            findings.add_problem(ConfigProblem::without_line(&document.name, "there are no rules in the file", help));
        }
        let own: Vec<&str> = rules.iter().filter_map(|rule| text(rule, "record")).map(|(name, _)| name).collect();
        let mut recorded: Vec<&str> = bundle::recorded_series();
        recorded.extend(&own);
        for rule in &rules {
            match text(rule, "expr") {
                Some((expression, place)) => check_expression(expression, place, &recorded, &mut findings),
                None => findings.add(rule.place, "a rule without `expr`", "say what it looks for"),
            }
            for (template, place) in ["annotations", "labels"].into_iter().flat_map(|name| texts(rule, name)) {
                for query in queries_of_template(template) {
                    check_expression(&query, place, &recorded, &mut findings);
                }
            }
        }
        match findings.is_empty() {
            true => Ok(Self { alerts: rules.len() - own.len(), recording_rules: own.len() }),
            false => Err(findings.into_problems(&[document])),
        }
    }
}

/// Returns all rules of all groups, at the top level or in the `spec` of a manifest.
fn rules_of(root: &YamlNode) -> Vec<&YamlNode> {
    let groups = field(root, "groups").or_else(|| field(field(root, "spec")?, "groups"));
    let groups = groups.map(items).unwrap_or_default();
    groups.iter().filter_map(|group| field(group, "rules")).flat_map(items).collect()
}

fn field<'a>(node: &'a YamlNode, name: &str) -> Option<&'a YamlNode> {
    let YamlValue::Mapping(fields) = &node.kind else { return None };
    fields.iter().find(|(key, _)| matches!(&key.kind, YamlValue::Text(text) if text == name)).map(|(_, value)| value)
}

fn items(node: &YamlNode) -> &[YamlNode] {
    match &node.kind {
        YamlValue::List(items) => items,
        _ => &[],
    }
}

fn text<'a>(node: &'a YamlNode, name: &str) -> Option<(&'a str, YamlPosition)> {
    let value = field(node, name)?;
    match &value.kind {
        YamlValue::Text(text) => Some((text, value.place)),
        _ => None,
    }
}

/// Returns the text values of a mapping.
fn texts<'a>(node: &'a YamlNode, name: &str) -> Vec<(&'a str, YamlPosition)> {
    let Some(YamlValue::Mapping(fields)) = field(node, name).map(|node| &node.kind) else { return Vec::new() };
    let texts = fields.iter().filter_map(|(_, value)| match &value.kind {
        YamlValue::Text(text) => Some((text.as_str(), value.place)),
        _ => None,
    });
    texts.collect()
}

fn check_expression(expression: &str, place: YamlPosition, recorded: &[&str], findings: &mut ProblemCollector) {
    for selector in selectors(expression) {
        let name = selector.name.as_str();
        if name.contains(':') {
            if name.contains(PREFIX) && !recorded.contains(&name) {
                let help = did_you_mean(name, recorded, "add the recording rule, or use a metric of docs/metrics.md");
                findings.add(place, format!("neither this file nor the bundled rules record `{name}`"), help);
            }
        } else if name.starts_with(PREFIX) {
            match metrics().find(|metric| is_series_of(metric, name)) {
                Some(metric) => check_labels(&selector, metric, place, findings),
                None => {
                    let names: Vec<&str> = metrics().map(|metric| metric.name).collect();
                    let message = format!("this exporter has no metric `{name}`");
                    findings.add(place, message, did_you_mean(name, &names, "docs/metrics.md lists all of them"));
                }
            }
        }
    }
    check_listed_labels(expression, place, findings);
}

/// Reports labels to group or join by that only other metrics of this exporter have, and labels
/// that resemble one of its own labels. Other labels are accepted, because they can come from the
/// target or from outside. If the expression uses series from elsewhere or creates labels, a label
/// of other metrics is accepted too.
fn check_listed_labels(expression: &str, place: YamlPosition, findings: &mut ProblemCollector) {
    let selectors = selectors(expression);
    let named: Vec<&Metric> =
        selectors.iter().filter_map(|one| metrics().find(|metric| is_series_of(metric, &one.name))).collect();
    let listed = listed_labels(expression);
    let is_foreign = |name: &String| name.contains('_') && !name.starts_with(PREFIX) && !listed.contains(name);
    let is_open =
        expression.contains("label_") || selectors.iter().any(|one| one.name.contains(':') || is_foreign(&one.name));
    let ours: Vec<&str> = metrics().flat_map(Metric::labels).copied().collect();
    for label in listed.iter().filter(|label| *label != "le") {
        let has_it = named.iter().any(|metric| metric.labels().contains(&label.as_str()));
        if named.is_empty() || has_it {
            continue;
        }
        if ours.contains(&label.as_str()) {
            if !is_open {
                let names = named.iter().map(|metric| metric.name).collect::<Vec<_>>().join("`, `");
                let help = format!("these are asked for: `{names}`");
                findings.add(place, format!("none of the metrics has the label `{label}`"), help);
            }
        } else if let Some(near) = suggest::nearest(label, ours.iter().copied()) {
            let help = format!("did you mean `{near}`?");
            findings.add(place, format!("this exporter has no label `{label}`"), help);
        }
    }
}

fn did_you_mean(name: &str, known: &[&str], otherwise: &str) -> String {
    match suggest::nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => otherwise.to_owned(),
    }
}

fn is_series_of(metric: &Metric, name: &str) -> bool {
    let is_histogram = metric.kind == exposition::MetricKind::Histogram;
    let suffix = name.strip_prefix(metric.name);
    suffix == Some("") || is_histogram && matches!(suffix, Some("_bucket" | "_sum" | "_count"))
}

/// Reports labels that other metrics of this exporter have but this metric does not have, and
/// values that never occur. Other labels are accepted, because they can come from the target or
/// from outside.
fn check_labels(selector: &PromqlSelector, metric: &Metric, place: YamlPosition, findings: &mut ProblemCollector) {
    for matcher in &selector.matchers {
        let label = matcher.label.as_str();
        let is_ours = metrics().any(|metric| metric.labels().contains(&label));
        if is_ours && !metric.labels().contains(&label) {
            let labels = metric.labels().join("`, `");
            let message = format!("`{}` has no label `{label}`", metric.name);
            findings.add(place, message, format!("it has `{labels}`"));
        }
        if metric.labels().contains(&label)
            && let Some(values) = values_of(metric, label)
            && !can_match(matcher, &values)
        {
            let message = format!("`{label}` of `{}` is never {:?}", metric.name, matcher.value);
            findings.add(place, message, format!("it is one of {}", values.join(", ")));
        }
    }
}

/// Returns the values of a label, if they are known.
fn values_of(metric: &Metric, label: &str) -> Option<Vec<&'static str>> {
    fn all<L: Label>() -> Vec<&'static str> {
        L::ALL.iter().map(|value| value.as_str()).collect()
    }
    Some(match label {
        "operation" => all::<Operation>(),
        "reason" => all::<Reason>(),
        "kind" => all::<ConflictKind>(),
        "cause" => all::<Cause>(),
        "after" => all::<After>(),
        // The values of `source` are known only here. For a log source, the value is the configured
        // path.
        "source" if metric.labels().contains(&"lock_namespace") => all::<OperationsSource>(),
        "window" => Ratios::WINDOWS.iter().map(|(window, _)| *window).collect(),
        "within_slo" => vec!["true", "false"],
        "style" => vec!["item", "loop"],
        "on_renewal_failure" => vec!["fence", "continue"],
        "severity" => vec!["page", "ticket"],
        _ => return None,
    })
}

/// A negative matcher only excludes, so it is always accepted.
fn can_match(matcher: &LabelMatcher, values: &[&str]) -> bool {
    match matcher.operator.as_str() {
        "=" => matcher.value.is_empty() || values.contains(&matcher.value.as_str()),
        "=~" => regex::Regex::new(&format!("^(?:{})$", matcher.value))
            .map_or(true, |regex| regex.is_match("") || values.iter().any(|value| regex.is_match(value))),
        _ => true,
    }
}
