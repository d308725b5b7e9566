//! Lock namespaces of the configuration: merges those of the user and of the presets field by
//! field, then compares them with each other.
//!
//! `config::assemble` calls [`build`]. In reading order:
//!
//! * this file: the merged and checked namespaces
//! * `raw_owner`: where the owner is in the value of a lock
//! * `overlap`: checks whether one key can match two key templates

mod overlap;
pub(super) mod raw_owner;

use std::sync::Arc;
use std::time::Duration;

use super::raw::{RawNamespace, RawThresholds};
use super::yaml::document::{YamlPosition, quote};
use super::yaml::fields::Located;
use super::yaml::problem::ProblemCollector;
use super::yaml::suggest;
use crate::model::key_template::KeyTemplate;
use crate::model::namespace::{Namespace, OTHER, Thresholds};
use crate::model::owner::OwnerRule;
use crate::util::units::format_duration;

/// Each namespace has about forty series, even if nothing happens in it.
const MAX_NAMESPACES: usize = 200;
pub(super) const KEY_HELP: &str = "write the key with its changing parts in braces: app:lock:{id}";
const MAX_DURATION: Duration = Duration::from_secs(366 * 86_400);

/// Whether a Redis is configured, so that every key must belong to one namespace. Without Redis,
/// the rule that matches a line decides its namespace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OverlapCheck {
    Watched,
    NotWatched,
}

/// Returns the namespaces in order: the user's, the presets', `other`. Earlier layers take
/// precedence field by field.
pub(super) fn build(
    layers: Vec<Vec<RawNamespace>>,
    keyspace: OverlapCheck,
    findings: &mut ProblemCollector,
) -> Vec<Arc<Namespace>> {
    let mut merged = merge(layers, findings);
    take_likenesses(&mut merged, findings);
    let mut namespaces = Vec::new();
    let mut templates = Vec::new();
    for (name, raw) in merged {
        check_times(&name, &raw, findings);
        let own_templates = parse_keys(namespaces.len(), &raw, findings);
        let keys: Vec<KeyTemplate> = own_templates.iter().map(|placed| placed.template.clone()).collect();
        let fence = raw.fence.as_ref().and_then(|fence| parse_fence(fence, &keys, findings));
        templates.extend(own_templates);
        let exclude = parse_templates(raw.exclude.iter().flatten(), findings);
        let owner = raw.owner.as_ref().map(|owner| owner.build(findings)).unwrap_or_default();
        check_renewal_changes_owner(&raw, &owner, findings);
        namespaces.push(Arc::new(Namespace { fence, exclude, owner, ..checked(name, keys, &raw) }));
    }
    check_overlaps(&namespaces, &templates, keyspace, findings);
    namespaces.push(Arc::new(Namespace::other()));
    namespaces
}

fn merge(layers: Vec<Vec<RawNamespace>>, findings: &mut ProblemCollector) -> Vec<(String, RawNamespace)> {
    let mut merged: Vec<(String, RawNamespace)> = Vec::new();
    for layer in layers {
        let mut in_this_layer: Vec<String> = Vec::new();
        for raw in layer {
            let Some(name) = raw.name.clone() else { continue };
            check_name(&name, findings);
            if in_this_layer.contains(&name.value) {
                let message = format!("the namespace `{}` is listed twice", name.value);
                findings.add(name.place, message, "give each namespace its own name, or merge the two");
                continue;
            }
            in_this_layer.push(name.value.clone());
            let is_full = merged.len() == MAX_NAMESPACES;
            match merged.iter_mut().find(|(known, _)| *known == name.value) {
                Some((_, upper)) => fill(upper, raw),
                None if is_full => {
                    findings.add(
                        name.place,
                        format!("more than {MAX_NAMESPACES} namespaces"),
                        "define fewer and broader ones",
                    );
                    return merged;
                }
                None => merged.push((name.value, raw)),
            }
        }
    }
    merged
}

/// Fills in the missing fields of a namespace from the one that `like` names. Keys, components and
/// fence are not copied.
fn take_likenesses(merged: &mut [(String, RawNamespace)], findings: &mut ProblemCollector) {
    for index in 0..merged.len() {
        let Some(like) = merged[index].1.like.clone() else { continue };
        let others = merged.iter().filter(|(name, other)| *name != merged[index].0 && other.like.is_none());
        let others: Vec<&(String, RawNamespace)> = others.collect();
        match others.iter().find(|(name, _)| *name == like.value) {
            Some((_, model)) => {
                let own = RawNamespace { keys: None, components: None, fence: None, ..model.clone() };
                fill(&mut merged[index].1, own);
            }
            None => {
                let names: Vec<&str> = others.iter().map(|(name, _)| name.as_str()).collect();
                let message = format!("`like` names {}, but no such namespace exists", quote(&like.value));
                findings.add(like.place, message, suggest::help_with(&like.value, &names));
            }
        }
    }
}

/// Copies the fields that `upper` does not set from `lower`.
fn fill(upper: &mut RawNamespace, lower: RawNamespace) {
    fn fill_field<T>(upper: &mut Option<T>, lower: Option<T>) {
        if upper.is_none() {
            *upper = lower;
        }
    }
    fill_field(&mut upper.keys, lower.keys);
    fill_field(&mut upper.exclude, lower.exclude);
    fill_field(&mut upper.owner, lower.owner);
    fill_field(&mut upper.no_ttl_is_normal, lower.no_ttl_is_normal);
    fill_field(&mut upper.components, lower.components);
    fill_field(&mut upper.acquired_with, lower.acquired_with);
    fill_field(&mut upper.style, lower.style);
    fill_field(&mut upper.on_renewal_failure, lower.on_renewal_failure);
    fill_field(&mut upper.severity, lower.severity);
    fill_field(&mut upper.ttl, lower.ttl);
    fill_field(&mut upper.renew_every, lower.renew_every);
    fill_field(&mut upper.renewal_changes_owner, lower.renewal_changes_owner);
    fill_field(&mut upper.takeover_slo, lower.takeover_slo);
    fill_field(&mut upper.retry_every, lower.retry_every);
    fill_field(&mut upper.renewal_failure_budget, lower.renewal_failure_budget);
    fill_field(&mut upper.max_hold, lower.max_hold);
    fill_field(&mut upper.leader_absent, lower.leader_absent);
    fill_field(&mut upper.strict, lower.strict);
    fill_field(&mut upper.fence, lower.fence);
    let RawThresholds { not_owned_ratio, renewal_failure_ratio, busy_ratio, min_failures } = lower.thresholds;
    fill_field(&mut upper.thresholds.not_owned_ratio, not_owned_ratio);
    fill_field(&mut upper.thresholds.renewal_failure_ratio, renewal_failure_ratio);
    fill_field(&mut upper.thresholds.busy_ratio, busy_ratio);
    fill_field(&mut upper.thresholds.min_failures, min_failures);
}

fn check_name(name: &Located<String>, findings: &mut ProblemCollector) {
    let is_plain = name.value.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'));
    if !is_plain || name.value.len() > 64 {
        let message = format!("{} cannot be the name of a namespace", quote(&name.value));
        findings.add(name.place, message, "use up to 64 of a-z, 0-9, _ and -");
    } else if name.value == OTHER {
        let message = format!("the name `{OTHER}` is reserved for locks that match no namespace");
        findings.add(name.place, message, "choose another name");
    }
}

fn check_times(name: &str, raw: &RawNamespace, findings: &mut ProblemCollector) {
    let times = [
        ("ttl", &raw.ttl),
        ("renew_every", &raw.renew_every),
        ("takeover_slo", &raw.takeover_slo),
        ("retry_every", &raw.retry_every),
        ("max_hold", &raw.max_hold),
        ("leader_absent", &raw.leader_absent),
    ];
    for (field, time) in times {
        let Some(time) = time else { continue };
        if time.value.is_zero() || time.value > MAX_DURATION {
            let message = format!("`{field}` is out of range: {}", format_duration(time.value));
            findings.add(time.place, message, "give a duration above 0s and up to 366d");
        }
    }
    if let (Some(ttl), Some(renew_every)) = (&raw.ttl, &raw.renew_every)
        && renew_every.value >= ttl.value
    {
        let (every, ttl_text) = (format_duration(renew_every.value), format_duration(ttl.value));
        let message = format!("`{name}` is renewed every {every}, but its TTL is only {ttl_text}");
        let place = nearer_to_user(ttl.place, renew_every.place);
        findings.add(place, message, "make `renew_every` shorter than `ttl`, a third of it is usual");
    }
}

/// Reports `renewal_changes_owner` for locks whose renewals cannot change the owner.
fn check_renewal_changes_owner(raw: &RawNamespace, owner: &OwnerRule, findings: &mut ProblemCollector) {
    let Some(setting) = raw.renewal_changes_owner.as_ref().filter(|setting| setting.value) else { return };
    if owner.shared {
        let message = "`renewal_changes_owner` has no effect with `owner: {shared: true}`: all owners count as one";
        findings.add(setting.place, message, "remove one of them");
    }
}

struct PlacedTemplate {
    namespace: usize,
    place: YamlPosition,
    template: KeyTemplate,
}

fn parse_keys(namespace: usize, raw: &RawNamespace, findings: &mut ProblemCollector) -> Vec<PlacedTemplate> {
    let mut templates = Vec::new();
    for key in raw.keys.iter().flatten() {
        let parsed = parse_templates([key], findings);
        templates.extend(parsed.into_iter().map(|template| PlacedTemplate { namespace, place: key.place, template }));
    }
    templates
}

fn parse_templates<'a>(
    texts: impl IntoIterator<Item = &'a Located<String>>,
    findings: &mut ProblemCollector,
) -> Vec<KeyTemplate> {
    let mut templates = Vec::new();
    for text in texts {
        match KeyTemplate::parse(&text.value) {
            Ok(template) => templates.push(template),
            Err(sentence) => findings.add(text.place, sentence, KEY_HELP),
        }
    }
    templates
}

/// Parses the key template of the fence counter. Reports a template that gives several locks the
/// same counter.
fn parse_fence(fence: &Located<String>, keys: &[KeyTemplate], findings: &mut ProblemCollector) -> Option<KeyTemplate> {
    let help =
        "write the key of the counter with the key of the lock in it: fence:{key}; or with fields that all `keys` have";
    let template = match KeyTemplate::parse(&fence.value) {
        Ok(template) => template,
        Err(sentence) => {
            findings.add(fence.place, sentence, help);
            return None;
        }
    };
    let unknown = template
        .fields()
        .find(|field| *field != "key" && !keys.iter().all(|key| key.fields().any(|known| known == *field)));
    if keys.is_empty() {
        findings.add(fence.place, "`fence` has no effect without `keys`", "add `keys`, or remove `fence`");
    } else if let Some(field) = unknown {
        findings.add(fence.place, format!("`{{{field}}}` in `fence` is not in all of the `keys`"), help);
    } else if template.is_fixed() && keys.iter().any(|key| !key.is_fixed()) {
        findings.add(fence.place, format!("`fence` is the same key `{}` for all locks", template.as_str()), help);
    }
    Some(template)
}

/// Reports key templates of two namespaces that can match the same key, unless the `components` of
/// the namespaces decide which one a line is about.
fn check_overlaps(
    namespaces: &[Arc<Namespace>],
    templates: &[PlacedTemplate],
    keyspace: OverlapCheck,
    findings: &mut ProblemCollector,
) {
    for (index, later) in templates.iter().enumerate() {
        for earlier in &templates[..index] {
            let (left, right) = (&earlier.template, &later.template);
            let (first, second) = (&namespaces[earlier.namespace], &namespaces[later.namespace]);
            let place = nearer_to_user(earlier.place, later.place);
            if earlier.namespace == later.namespace {
                if overlap::is_same(left, right) {
                    let message = format!("`{}` is the same key template as `{}`", right.as_str(), left.as_str());
                    findings.add(place, message, "remove one of them");
                }
            } else if !told_apart(first, second) && overlap::is_ambiguous(left, right) {
                let are_of_presets = place.document > 0;
                if are_of_presets && keyspace == OverlapCheck::NotWatched {
                    continue;
                }
                let (first, second) = (&first.name, &second.name);
                let message = format!(
                    "a key may match both `{}` of `{first}` and `{}` of `{second}`",
                    left.as_str(),
                    right.as_str()
                );
                let help = match are_of_presets {
                    true => format!(
                        "state in your own file which namespace has these keys: `namespaces: [{{name: {second}, \
                         keys: []}}]` assigns all of them to `{first}`; or give both namespaces narrower `keys`"
                    ),
                    false => "give both namespaces `components`, so that the component of a line distinguishes them"
                        .to_owned(),
                };
                findings.add(place, message, help);
            }
        }
    }
}

fn told_apart(first: &Namespace, second: &Namespace) -> bool {
    let both_take_any = first.components.is_empty() && second.components.is_empty();
    !both_take_any && !first.components.iter().any(|component| second.components.contains(component))
}

/// Of two conflicting positions, returns the one that the user can change. Documents are in order,
/// and the user's is the first.
fn nearer_to_user(left: YamlPosition, right: YamlPosition) -> YamlPosition {
    if left.document == right.document { left.max(right) } else { left.min(right) }
}

fn checked(name: String, keys: Vec<KeyTemplate>, raw: &RawNamespace) -> Namespace {
    fn value<T: Copy>(field: &Option<Located<T>>) -> Option<T> {
        field.as_ref().map(|at| at.value)
    }
    Namespace {
        name,
        keys,
        exclude: Vec::new(),
        owner: OwnerRule::default(),
        components: raw.components.iter().flatten().map(|component| component.value.clone()).collect(),
        acquired_with: value(&raw.acquired_with).unwrap_or_default(),
        style: value(&raw.style).unwrap_or_default(),
        on_renewal_failure: value(&raw.on_renewal_failure).unwrap_or_default(),
        severity: value(&raw.severity).unwrap_or_default(),
        ttl: value(&raw.ttl),
        no_ttl_is_normal: value(&raw.no_ttl_is_normal).unwrap_or(false),
        renew_every: value(&raw.renew_every),
        renewal_changes_owner: value(&raw.renewal_changes_owner).unwrap_or(false),
        takeover_slo: value(&raw.takeover_slo),
        retry_every: value(&raw.retry_every),
        renewal_failure_budget: value(&raw.renewal_failure_budget),
        fence: None,
        thresholds: Thresholds {
            not_owned_ratio: value(&raw.thresholds.not_owned_ratio),
            renewal_failure_ratio: value(&raw.thresholds.renewal_failure_ratio),
            busy_ratio: value(&raw.thresholds.busy_ratio),
            min_failures: value(&raw.thresholds.min_failures),
            max_hold: value(&raw.max_hold),
            leader_absent: value(&raw.leader_absent),
            strict: value(&raw.strict).unwrap_or(false),
        },
    }
}
