//! A configuration file or preset as written: typed values with positions, not yet compared with
//! each other.
//!
//! This is the first of two stages. [`RawConfig::read`] reports unknown fields, wrong types and
//! words, and bad durations and sizes. `logs`, `redis`, `namespaces` and `rules` build the checked
//! configuration from it. The rules are read in `rules/raw.rs`, log sources in `logs/raw.rs`, and
//! the Redis sections in `redis/raw.rs`.

use std::time::Duration;

use super::about::About;
use super::logs::raw::RawLog;
use super::namespaces::raw_owner::RawOwner;
use super::redis::raw::{RawRedis, RawScan, RawWatch};
use super::rules::raw::{RawReason, RawRule};
use super::yaml::document::{YamlNode, YamlValue};
use super::yaml::fields::{Located, YamlMapping, text};
use super::yaml::problem::ProblemCollector;
use crate::model::namespace::{AcquiredWith, OnRenewalFailure, Severity, Style};

/// A program that tolerates more failed renewals in a row than this does not give up at all.
const MAX_FAILURE_BUDGET: u64 = 1000;

#[derive(Debug, Default)]
pub(super) struct RawConfig {
    pub(super) state_dir: Option<Located<String>>,
    pub(super) join_window: Option<Located<Duration>>,
    pub(super) logs: Vec<RawLog>,
    pub(super) redis: Option<RawRedis>,
    pub(super) scan: Option<RawScan>,
    pub(super) watch: Option<RawWatch>,
    pub(super) presets: Vec<Located<String>>,
    pub(super) namespaces: Vec<RawNamespace>,
    pub(super) reasons: Vec<RawReason>,
    pub(super) keys_in_text: Vec<Located<String>>,
    pub(super) rules: Vec<RawRule>,
}

/// A field is `None` if it is not given. Then the value of a lower layer applies.
#[derive(Clone, Debug)]
pub(super) struct RawNamespace {
    pub(super) name: Option<Located<String>>,
    /// Name of another lock namespace. This one takes missing fields from it, but not its keys,
    /// components and fence.
    pub(super) like: Option<Located<String>>,
    pub(super) keys: Option<Vec<Located<String>>>,
    pub(super) exclude: Option<Vec<Located<String>>>,
    pub(super) owner: Option<RawOwner>,
    pub(super) no_ttl_is_normal: Option<Located<bool>>,
    pub(super) components: Option<Vec<Located<String>>>,
    pub(super) acquired_with: Option<Located<AcquiredWith>>,
    pub(super) style: Option<Located<Style>>,
    pub(super) on_renewal_failure: Option<Located<OnRenewalFailure>>,
    pub(super) severity: Option<Located<Severity>>,
    pub(super) ttl: Option<Located<Duration>>,
    pub(super) renew_every: Option<Located<Duration>>,
    pub(super) renewal_changes_owner: Option<Located<bool>>,
    pub(super) takeover_slo: Option<Located<Duration>>,
    pub(super) retry_every: Option<Located<Duration>>,
    pub(super) renewal_failure_budget: Option<Located<u64>>,
    pub(super) max_hold: Option<Located<Duration>>,
    pub(super) leader_absent: Option<Located<Duration>>,
    pub(super) strict: Option<Located<bool>>,
    pub(super) fence: Option<Located<String>>,
    pub(super) thresholds: RawThresholds,
}

#[derive(Clone, Debug, Default)]
pub(super) struct RawThresholds {
    pub(super) not_owned_ratio: Option<Located<f64>>,
    pub(super) renewal_failure_ratio: Option<Located<f64>>,
    pub(super) busy_ratio: Option<Located<f64>>,
    pub(super) min_failures: Option<Located<u64>>,
}

impl RawConfig {
    #[rustfmt::skip]
    const FIELDS: [&str; 11] = [
        "state_dir", "join_window", "logs", "redis", "scan", "watch", "presets", "namespaces", "reasons", "keys_in_text",
        "rules",
    ];
    /// A preset configures how to read lines and which keys are locks, but never where the logs are
    /// or where to save state.
    const PRESET_FIELDS: [&str; 5] = ["about", "namespaces", "reasons", "keys_in_text", "rules"];

    /// Reads a complete document. An empty document yields the default.
    pub(super) fn read(root: &YamlNode, findings: &mut ProblemCollector) -> Self {
        if matches!(root.kind, YamlValue::Null) {
            return Self::default();
        }
        let fields = YamlMapping::of(root, "the configuration", &Self::FIELDS, findings);
        fields.map_or_else(Self::default, |fields| Self::of(&fields, findings))
    }

    /// Reads a preset. Only the generic preset has no `about` section.
    pub(super) fn read_preset(root: &YamlNode, findings: &mut ProblemCollector) -> (Self, Option<About>) {
        let Some(fields) = YamlMapping::of(root, "a preset", &Self::PRESET_FIELDS, findings) else {
            return Default::default();
        };
        let about = fields.get("about").and_then(|node| About::read(node, findings));
        (Self::of(&fields, findings), about)
    }

    fn of(fields: &YamlMapping<'_>, findings: &mut ProblemCollector) -> Self {
        let preset_names = fields.items("presets", findings);
        let patterns = fields.items("keys_in_text", findings);
        Self {
            state_dir: fields.text("state_dir", findings),
            join_window: fields.duration("join_window", findings),
            logs: read_items(fields, "logs", RawLog::read, findings),
            redis: fields.get("redis").and_then(|node| RawRedis::read(node, findings)),
            scan: fields.get("scan").and_then(|node| RawScan::read(node, findings)),
            watch: RawWatch::read(fields, findings),
            presets: preset_names.iter().filter_map(|node| text(node, "a preset", findings)).collect(),
            namespaces: read_items(fields, "namespaces", RawNamespace::read, findings),
            reasons: read_items(fields, "reasons", RawReason::read, findings),
            keys_in_text: patterns
                .iter()
                .filter_map(|node| text(node, "an item of `keys_in_text`", findings))
                .collect(),
            rules: read_items(fields, "rules", RawRule::read, findings),
        }
    }
}

fn read_items<T>(
    fields: &YamlMapping<'_>,
    name: &str,
    read: fn(&YamlNode, &mut ProblemCollector) -> Option<T>,
    findings: &mut ProblemCollector,
) -> Vec<T> {
    let items = fields.items(name, findings);
    items.iter().filter_map(|item| read(item, findings)).collect()
}

impl RawNamespace {
    #[rustfmt::skip]
    const FIELDS: [&str; 22] = [
        "name", "like", "keys", "exclude", "owner", "acquired_with", "components", "style", "on_renewal_failure",
        "severity", "ttl", "no_ttl_is_normal", "renew_every", "renewal_changes_owner", "takeover_slo", "retry_every",
        "renewal_failure_budget", "max_hold", "leader_absent", "strict", "fence", "thresholds",
    ];

    fn read(node: &YamlNode, findings: &mut ProblemCollector) -> Option<Self> {
        let fields = YamlMapping::of(node, "a namespace", &Self::FIELDS, findings)?;
        fields.require("name", "add `name: NAME`, which becomes the label lock_namespace", findings);
        let acquired_with = [("any", AcquiredWith::Any), ("nx", AcquiredWith::Nx)];
        let style = [("item", Style::Item), ("loop", Style::Loop)];
        let policy = [("fence", OnRenewalFailure::Fence), ("continue", OnRenewalFailure::Continue)];
        let severity = [("page", Severity::Page), ("ticket", Severity::Ticket)];
        Some(Self {
            name: fields.text("name", findings),
            like: fields.text("like", findings),
            keys: fields.texts_or_none("keys", findings),
            exclude: fields.texts_or_none("exclude", findings),
            owner: fields.get("owner").and_then(|node| RawOwner::read(node, findings)),
            no_ttl_is_normal: fields.boolean("no_ttl_is_normal", findings),
            components: fields.texts("components", findings),
            acquired_with: fields.choice("acquired_with", &acquired_with, findings),
            style: fields.choice("style", &style, findings),
            on_renewal_failure: fields.choice("on_renewal_failure", &policy, findings),
            severity: fields.choice("severity", &severity, findings),
            ttl: fields.duration("ttl", findings),
            renew_every: fields.duration("renew_every", findings),
            renewal_changes_owner: fields.boolean("renewal_changes_owner", findings),
            takeover_slo: fields.duration("takeover_slo", findings),
            retry_every: fields.duration("retry_every", findings),
            renewal_failure_budget: fields.count_up_to("renewal_failure_budget", MAX_FAILURE_BUDGET, findings),
            max_hold: fields.duration("max_hold", findings),
            leader_absent: fields.duration("leader_absent", findings),
            strict: fields.boolean("strict", findings),
            fence: fields.text("fence", findings),
            thresholds: fields
                .get("thresholds")
                .and_then(|node| RawThresholds::read(node, findings))
                .unwrap_or_default(),
        })
    }
}

impl RawNamespace {
    /// Returns the name and the keys as text for people.
    pub(super) fn describe(&self) -> String {
        let name = self.name.as_ref().map_or("", |name| &name.value);
        let keys: Vec<String> = self.keys.iter().flatten().map(|key| format!("`{}`", key.value)).collect();
        let keys = if keys.is_empty() { "keys of your own".to_owned() } else { keys.join(", ") };
        format!("`{name}`: {keys}")
    }
}

impl RawThresholds {
    fn read(node: &YamlNode, findings: &mut ProblemCollector) -> Option<Self> {
        let known = ["not_owned_ratio", "renewal_failure_ratio", "busy_ratio", "min_failures"];
        let fields = YamlMapping::of(node, "`thresholds`", &known, findings)?;
        Some(Self {
            not_owned_ratio: fields.ratio("not_owned_ratio", findings),
            renewal_failure_ratio: fields.ratio("renewal_failure_ratio", findings),
            busy_ratio: fields.ratio("busy_ratio", findings),
            min_failures: fields.count("min_failures", findings),
        })
    }
}
