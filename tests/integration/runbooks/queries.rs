//! Tests the queries in runbooks: they parse as PromQL, and they use metrics and labels of this
//! exporter.

use std::collections::{BTreeMap, BTreeSet};

use promql_parser::label::Matchers;
use promql_parser::parser::{Expr, VectorSelector};
use regex::Regex;

use redis_lock_exporter::exposition::{MetricKind, metrics};
use redis_lock_exporter::model::failure::{Cause, ConflictKind, Operation, Reason};
use redis_lock_exporter::model::label::Label;

use super::pack;
use super::page::all_pages;

/// Labels and metrics that Prometheus adds to our samples.
const TARGET_LABELS: [&str; 5] = ["job", "instance", "cluster", "le", "__name__"];

#[test]
fn queries_parse_and_name_metrics_and_labels_that_exist() {
    let known = Known::new();
    let mut n_queries = 0;
    for page in all_pages() {
        for query in page.blocks_of("promql") {
            let expression = promql_parser::parser::parse(&query)
                .unwrap_or_else(|error| panic!("{}: {error}\n{query}", page.place()));
            let mut selectors = Vec::new();
            collect(&expression, &mut selectors);
            assert!(!selectors.is_empty(), "{}: the query selects no metric\n{query}", page.place());
            for Selected { selector, .. } in selectors {
                known.check(selector).unwrap_or_else(|complaint| panic!("{}: {complaint}\n{query}", page.place()));
            }
            n_queries += 1;
        }
    }
    assert!(n_queries > 30, "only {n_queries} queries were found");
}

/// Metric names in sentences exist too.
#[test]
fn metric_names_in_the_text_exist() {
    let known = Known::new();
    let word = Regex::new(r"\b(redis_lock_[a-z0-9_]+|process_[a-z_]+)\b").unwrap();
    for page in all_pages() {
        for found in word.find_iter(&page.prose()) {
            let name = found.as_str();
            let is_known = known.labels.contains_key(name) || name == "redis_lock_exporter";
            assert!(is_known, "{}: {name} does not exist", page.place());
        }
    }
}

/// Causes, reasons and kinds in sentences, written as `` label="value" ``, exist.
#[test]
fn label_values_in_the_text_exist() {
    let pair = Regex::new(r#"(cause|reason|kind|operation)="([a-z_]+)""#).unwrap();
    for page in all_pages() {
        for captures in pair.captures_iter(&page.text) {
            let is_known = values(&captures[1]).is_none_or(|values| values.contains(&&captures[2]));
            assert!(is_known, "{}: {} does not exist", page.place(), &captures[0]);
        }
    }
}

pub(crate) struct Known {
    /// Labels by the name of a series. `None` if rules determine the labels.
    labels: BTreeMap<String, Option<BTreeSet<&'static str>>>,
}

impl Known {
    pub(crate) fn new() -> Self {
        let mut labels = BTreeMap::new();
        for metric in metrics() {
            let own: BTreeSet<&str> = metric.labels().iter().copied().chain(TARGET_LABELS).collect();
            labels.insert(metric.name.to_owned(), Some(own.clone()));
            if metric.kind == MetricKind::Histogram {
                for part in ["bucket", "sum", "count"] {
                    labels.insert(format!("{}_{part}", metric.name), Some(own.clone()));
                }
            }
        }
        // Another test checks the rules against the same table. The rules also provide the metrics
        // of other programs.
        let foreign = Regex::new(r"\bcordum_[a-z_]+\b").unwrap();
        for rule in pack::rules() {
            labels.extend(foreign.find_iter(&rule.expr).map(|found| (found.as_str().to_owned(), None)));
        }
        labels.extend(pack::recorded().into_iter().map(|name| (name, None)));
        labels.extend(["up", "ALERTS", "ALERTS_FOR_STATE"].map(|name| (name.to_owned(), None)));
        Self { labels }
    }

    pub(crate) fn check(&self, selector: &VectorSelector) -> Result<(), String> {
        let name = selector.name.as_deref().ok_or("a selector without a name")?;
        let labels = self.labels.get(name).ok_or(format!("{name} does not exist"))?;
        let Matchers { matchers, or_matchers } = &selector.matchers;
        for matcher in matchers.iter().chain(or_matchers.iter().flatten()) {
            let is_known = labels.as_ref().is_none_or(|labels| labels.contains(matcher.name.as_str()));
            if !is_known {
                return Err(format!("{name} has no label {}", matcher.name));
            }
        }
        Ok(())
    }

    /// Returns whether one of the exporter's own metrics has the label.
    pub(crate) fn has_label(&self, name: &str, label: &str) -> bool {
        self.labels.get(name).and_then(Option::as_ref).is_some_and(|labels| labels.contains(label))
    }
}

/// A selector of a query.
pub(crate) struct Selected<'a> {
    pub(crate) selector: &'a VectorSelector,
    /// Whether a range such as `[5m]` follows, as for `rate`.
    pub(crate) has_window: bool,
}

fn values(label: &str) -> Option<Vec<&'static str>> {
    fn all<L: Label>() -> Option<Vec<&'static str>> {
        Some(L::ALL.iter().map(|value| value.as_str()).collect())
    }
    match label {
        "cause" => all::<Cause>(),
        "reason" => all::<Reason>(),
        "kind" => all::<ConflictKind>(),
        "operation" => all::<Operation>(),
        _ => None,
    }
}

pub(crate) fn collect<'a>(expression: &'a Expr, selectors: &mut Vec<Selected<'a>>) {
    match expression {
        Expr::VectorSelector(selector) => selectors.push(Selected { selector, has_window: false }),
        Expr::MatrixSelector(matrix) => selectors.push(Selected { selector: &matrix.vs, has_window: true }),
        Expr::Aggregate(aggregate) => {
            collect(&aggregate.expr, selectors);
            if let Some(parameter) = &aggregate.param {
                collect(parameter, selectors);
            }
        }
        Expr::Unary(unary) => collect(&unary.expr, selectors),
        Expr::Binary(binary) => {
            collect(&binary.lhs, selectors);
            collect(&binary.rhs, selectors);
        }
        Expr::Paren(inner) => collect(&inner.expr, selectors),
        Expr::Subquery(inner) => collect(&inner.expr, selectors),
        Expr::Call(call) => call.args.args.iter().for_each(|argument| collect(argument, selectors)),
        Expr::NumberLiteral(_) | Expr::StringLiteral(_) | Expr::Extension(_) => {}
    }
}
