//! Rules, dashboards, runbooks and examples in the program, as they are in the repository, and the
//! changes that `pack` makes to them. To add a file of the repository, add it to `FILES`.
//!
//! `commands::pack`, `check --rules` and the page's runbooks call this module. Label matchers are
//! added to the text of the expressions; tests compare the result with the output of a real PromQL
//! parser. In reading order:
//!
//! * this file: the bundled files and `pack`
//! * `promql`: the metrics and label matchers in a PromQL expression
//! * `rule_check`: `check --rules`: checks that a rule file uses only existing metrics and labels

pub(crate) mod promql;
pub mod rule_check;

use promql::{is_list_of_matchers, with_matchers};

/// Returns the names of the series that the bundled rules record.
pub(crate) fn recorded_series() -> Vec<&'static str> {
    let rules = FILES.iter().filter(|(path, _)| path.ends_with(".rules.yml"));
    rules.flat_map(|(_, text)| text.lines().filter_map(|line| line.trim().strip_prefix("- record: "))).collect()
}

/// The base of `runbook_url` in the repository.
const RUNBOOKS: &str = "https://github.com/redis-lock-exporter/redis_lock_exporter/blob/main/docs/runbooks/";

/// A file that `pack` writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundledFile {
    /// Relative path, as in the repository.
    pub path: &'static str,
    pub text: String,
}

/// The changes to the files of the repository.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// The name of the alert is appended, or replaces `{alert}`.
    pub runbook_base_url: Option<String>,
    /// Label matchers without braces.
    pub selector: Option<String>,
}

macro_rules! embedded {
    ($($path:literal,)*) => {
        [$(($path, include_str!(concat!("../../", $path))),)*]
    };
}

const FILES: &[(&str, &str)] = &embedded![
    "alerts/alertmanager.yml",
    "alerts/cordum.rules.yml",
    "alerts/kustomization.yaml",
    "alerts/links.rules.yml",
    "alerts/prometheus-operator.yml",
    "alerts/redis_lock.rules.yml",
    "dashboards/exporter.json",
    "dashboards/kustomization.yaml",
    "dashboards/namespace.json",
    "dashboards/overview.json",
    "deploy/prometheus/kubernetes.yml",
    "deploy/prometheus/scrape.yml",
    "docs/runbooks/README.md",
    "docs/runbooks/RedisLockAbandoned.md",
    "docs/runbooks/RedisLockAbandonedEvent.md",
    "docs/runbooks/RedisLockAccessDenied.md",
    "docs/runbooks/RedisLockAcquireFailing.md",
    "docs/runbooks/RedisLockConfigReloadFailed.md",
    "docs/runbooks/RedisLockContentionHigh.md",
    "docs/runbooks/RedisLockCordumReplaysGrowing.md",
    "docs/runbooks/RedisLockCordumStaleJobsGrowing.md",
    "docs/runbooks/RedisLockCordumWaitGrowing.md",
    "docs/runbooks/RedisLockDuplicateTerminalState.md",
    "docs/runbooks/RedisLockExpiryRatioHigh.md",
    "docs/runbooks/RedisLockExporterAbsent.md",
    "docs/runbooks/RedisLockFailoverFlapping.md",
    "docs/runbooks/RedisLockFailoverObserved.md",
    "docs/runbooks/RedisLockFailureBudgetBurn.md",
    "docs/runbooks/RedisLockFenceRegression.md",
    "docs/runbooks/RedisLockHeldTooLong.md",
    "docs/runbooks/RedisLockLeaderAbsent.md",
    "docs/runbooks/RedisLockLogSilent.md",
    "docs/runbooks/RedisLockLogTailStalled.md",
    "docs/runbooks/RedisLockMassRenewalOverdue.md",
    "docs/runbooks/RedisLockNotOwnedRateHigh.md",
    "docs/runbooks/RedisLockNotOwnedRatioHigh.md",
    "docs/runbooks/RedisLockOwnerChurnHigh.md",
    "docs/runbooks/RedisLockRedisDown.md",
    "docs/runbooks/RedisLockReleasedEarly.md",
    "docs/runbooks/RedisLockRenewalFailureRatioHigh.md",
    "docs/runbooks/RedisLockRenewalMarginShrinking.md",
    "docs/runbooks/RedisLockRenewalOverdue.md",
    "docs/runbooks/RedisLockScanStale.md",
    "docs/runbooks/RedisLockSeriesLimitHit.md",
    "docs/runbooks/RedisLockStateNotSaved.md",
    "docs/runbooks/RedisLockTakeoverSlow.md",
    "docs/runbooks/RedisLockTrackingLost.md",
    "docs/runbooks/RedisLockTtlTooShort.md",
    "docs/runbooks/RedisLockUnlockedWork.md",
    "docs/runbooks/RedisLockWithoutTtl.md",
    "docs/runbooks/common/causes.md",
    "docs/runbooks/common/cordum.md",
    "docs/runbooks/common/drill.md",
    "docs/runbooks/common/failover.md",
    "docs/runbooks/common/looking.md",
    "docs/runbooks/common/safe-release.md",
    "docs/runbooks/common/sustained.md",
];

/// Returns a file as it is in the repository.
pub(crate) fn original(path: &str) -> Option<&'static str> {
    FILES.iter().find(|(known, _)| *known == path).map(|(_, text)| *text)
}

/// Returns all files with the changes applied.
pub fn files(changes: &Changes) -> Vec<BundledFile> {
    FILES.iter().map(|(path, text)| BundledFile { path, text: changes.apply(path, text) }).collect()
}

impl Changes {
    /// Returns an error message for people if a value is not valid.
    pub fn check(&self) -> Result<(), String> {
        if let Some(selector) = &self.selector {
            if !is_list_of_matchers(selector) {
                return Err("--selector needs matchers such as 'env=\"prod\",team=~\"a|b\"', without braces".to_owned());
            }
            // These characters would end the value in a line of YAML.
            if selector.contains(['\n', '\r']) || selector.contains(": ") || selector.contains(" #") {
                return Err("--selector cannot have line breaks, `: ` or ` #`".to_owned());
            }
        }
        match &self.runbook_base_url {
            Some(url) if url.contains(char::is_whitespace) || !url.contains("://") => {
                Err("--runbook-base-url needs a URL such as https://wiki.example.com/runbooks".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn apply(&self, path: &str, text: &str) -> String {
        let mut text = text.to_owned();
        if let Some(url) = &self.runbook_base_url
            && path.ends_with(".yml")
        {
            text = lines(&text, |line| with_runbook(line, url));
        }
        if let Some(selector) = &self.selector {
            if path.ends_with(".json") {
                text = lines(&text, |line| with_selector_in_json(line, selector));
            } else if path.ends_with(".yml") {
                text = with_selector_in_yaml(&text, selector);
            }
        }
        text
    }
}

fn lines(text: &str, change: impl FnMut(&str) -> String) -> String {
    text.split_inclusive('\n').map(change).collect()
}

/// Replaces the base in `runbook_url: BASE/Alert.md`.
fn with_runbook(line: &str, url: &str) -> String {
    let Some((before, rest)) = line.split_once(RUNBOOKS) else { return line.to_owned() };
    let Some((alert, after)) = rest.split_once(".md") else { return line.to_owned() };
    match url.contains("{alert}") {
        true => format!("{before}{}{after}", url.replace("{alert}", alert)),
        false => format!("{before}{}/{alert}{after}", url.trim_end_matches('/')),
    }
}

/// Returns true for metrics that get the matchers. Series that rules record and alerts have only
/// the labels that the rules keep, and the metrics that they are computed from already have the
/// matchers.
fn is_wanted(name: &str) -> bool {
    let is_recorded = name.contains(':');
    let prefixes = ["redis_lock_", "process_", "cordum_"];
    !is_recorded && (name == "up" || prefixes.iter().any(|prefix| name.starts_with(prefix)))
}

/// Changes `expr: ...` on one line, or `expr: |` and the lines below that are indented further.
fn with_selector_in_yaml(text: &str, selector: &str) -> String {
    let mut block: Option<usize> = None;
    lines(text, |line| {
        let indentation = line.len() - line.trim_start().len();
        if let Some(outer) = block {
            if line.trim().is_empty() || indentation > outer {
                return with_matchers(line, selector, is_wanted);
            }
            block = None;
        }
        let field = line.trim_start().trim_start_matches("- ");
        match field.strip_prefix("expr:") {
            Some(rest) if rest.trim().starts_with(['|', '>']) => {
                block = Some(line.len() - field.len());
                line.to_owned()
            }
            Some(_) => with_matchers(line, selector, is_wanted),
            None => line.to_owned(),
        }
    })
}

/// Changes `"expr": "..."` of a panel, and the queries of variables.
fn with_selector_in_json(line: &str, selector: &str) -> String {
    let trimmed = line.trim();
    for field in ["\"expr\": ", "\"query\": ", "\"definition\": "] {
        let Some(value) = trimmed.strip_prefix(field) else { continue };
        let value = value.trim_end_matches(',');
        let Ok(expression) = serde_json::from_str::<String>(value) else { continue };
        let changed = with_matchers(&expression, selector, is_wanted);
        if changed != expression {
            return line.replacen(value, &serde_json::Value::from(changed).to_string(), 1);
        }
    }
    line.to_owned()
}
