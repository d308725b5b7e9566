//! Reads typed values from a YAML tree and reports values that do not fit, without stopping at the
//! first problem.
//!
//! The derived structs of serde stop at the first error, so the `raw.rs` files use these readers
//! instead. A reader returns `None` for a value that is missing, and for one that was reported as a
//! problem. In both cases the caller has no value to use.

use std::time::Duration;

use super::document::{YamlNode, YamlPosition, YamlValue, quote};
use super::problem::ProblemCollector;
use super::suggest;
use crate::util::units;

const LIST_HELP: &str = "begin each item with `- `, or put them in [ ]";
const TAG_HELP: &str = "remove the tag: tags are not supported";

/// A value with its position in the text.
#[derive(Clone, Debug)]
pub(crate) struct Located<T> {
    pub(crate) place: YamlPosition,
    pub(crate) value: T,
}

/// The fields of one mapping. All of them are known fields.
pub(crate) struct YamlMapping<'a> {
    /// What the mapping is, for messages: "a namespace".
    what: &'static str,
    place: YamlPosition,
    entries: Vec<(&'a str, &'a YamlNode)>,
}

impl<'a> YamlMapping<'a> {
    /// Reports a node that is not a mapping, and fields that are unknown or occur twice.
    pub(crate) fn of(
        node: &'a YamlNode,
        what: &'static str,
        known: &[&str],
        findings: &mut ProblemCollector,
    ) -> Option<Self> {
        let YamlValue::Mapping(written) = &node.kind else {
            let help = format!("{what} has the fields {}", suggest::list(known));
            findings.add(node.place, format!("{what} must be a mapping, found {}", node.describe()), help);
            return None;
        };
        let mut fields = Self { what, place: node.place, entries: Vec::new() };
        let mut merges = Vec::new();
        for (key, value) in written {
            match &key.kind {
                YamlValue::Text(name) if name == "<<" => merges.push(value),
                YamlValue::Text(name) if fields.has(name) => {
                    findings.add(key.place, format!("`{name}` appears twice in {what}"), "remove one of them");
                }
                YamlValue::Text(name) if known.contains(&name.as_str()) => fields.entries.push((name, value)),
                YamlValue::Text(name) => {
                    let message = format!("unknown field `{name}` in {what}");
                    findings.add(key.place, message, suggest::help_with(name, known));
                }
                _ => {
                    let message = format!("a field's name must be text, found {}", key.describe());
                    findings.add(key.place, message, format!("allowed: {}", suggest::list(known)));
                }
            }
        }
        for merge in merges {
            fields.merge(merge, known, findings);
        }
        Some(fields)
    }

    /// Handles `<<: *anchor`: copies the fields that are not given here.
    fn merge(&mut self, node: &'a YamlNode, known: &[&str], findings: &mut ProblemCollector) {
        match &node.kind {
            YamlValue::Mapping(_) => {
                let Some(merged) = YamlMapping::of(node, self.what, known, findings) else { return };
                for (name, value) in merged.entries {
                    if !self.has(name) {
                        self.entries.push((name, value));
                    }
                }
            }
            YamlValue::List(nodes) => {
                for node in nodes {
                    let is_list = matches!(node.kind, YamlValue::List(_));
                    if is_list {
                        findings.add(node.place, "`<<` cannot merge a list of lists", "list the mappings to merge");
                    } else {
                        self.merge(node, known, findings);
                    }
                }
            }
            _ => {
                let message = format!("`<<` must be a mapping or a list of mappings, found {}", node.describe());
                findings.add(node.place, message, "merge with `<<: *anchor`");
            }
        }
    }

    pub(crate) fn place(&self) -> YamlPosition {
        self.place
    }

    /// Returns true if the field is present, even if its value is invalid.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.entries.iter().any(|(written, _)| *written == name)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&'a YamlNode> {
        self.entries.iter().find(|(written, _)| *written == name).map(|(_, node)| *node)
    }

    /// Reports the field if it is missing.
    pub(crate) fn require(&self, name: &str, help: &str, findings: &mut ProblemCollector) {
        if !self.has(name) {
            findings.add(self.place, format!("{} without `{name}`", self.what), help);
        }
    }

    pub(crate) fn text(&self, name: &str, findings: &mut ProblemCollector) -> Option<Located<String>> {
        text(self.get(name)?, &format!("`{name}`"), findings)
    }

    /// Reads one text or a list of texts. Returns `Some` if the field is present, even if none of
    /// its values is usable.
    pub(crate) fn texts(&self, name: &str, findings: &mut ProblemCollector) -> Option<Vec<Located<String>>> {
        let node = self.get(name)?;
        match &node.kind {
            YamlValue::List(items) => {
                if items.is_empty() {
                    findings.add(node.place, format!("`{name}` is an empty list"), "add a value or remove the field");
                }
                let what = format!("an item of `{name}`");
                Some(items.iter().filter_map(|item| text(item, &what, findings)).collect())
            }
            YamlValue::Mapping(_) => {
                findings.add(node.place, wrong(name, "text or a list of texts", node), LIST_HELP);
                Some(Vec::new())
            }
            _ => Some(text(node, &format!("`{name}`"), findings).into_iter().collect()),
        }
    }

    /// Like [`YamlMapping::texts`], but accepts an empty list, which means "none".
    pub(crate) fn texts_or_none(&self, name: &str, findings: &mut ProblemCollector) -> Option<Vec<Located<String>>> {
        match self.get(name)?.kind {
            YamlValue::List(ref items) if items.is_empty() => Some(Vec::new()),
            _ => self.texts(name, findings),
        }
    }

    /// Returns the items of a list. A field without a value is an empty list.
    pub(crate) fn items(&self, name: &str, findings: &mut ProblemCollector) -> &'a [YamlNode] {
        match self.get(name) {
            None | Some(YamlNode { kind: YamlValue::Null, .. }) => &[],
            Some(YamlNode { kind: YamlValue::List(items), .. }) => items,
            Some(node) => {
                let help = if matches!(node.kind, YamlValue::Tagged(_)) { TAG_HELP } else { LIST_HELP };
                findings.add(node.place, wrong(name, "a list", node), help);
                &[]
            }
        }
    }

    pub(crate) fn boolean(&self, name: &str, findings: &mut ProblemCollector) -> Option<Located<bool>> {
        let node = self.get(name)?;
        if let YamlValue::Bool(value) = node.kind {
            return Some(Located { place: node.place, value });
        }
        findings.add(node.place, wrong(name, "true or false", node), "write true or false, without quotes");
        None
    }

    pub(crate) fn duration(&self, name: &str, findings: &mut ProblemCollector) -> Option<Located<Duration>> {
        let node = self.get(name)?;
        let parsed = match &node.kind {
            YamlValue::Text(text) => units::parse_duration(text),
            _ => None,
        };
        if let Some(value) = parsed {
            return Some(Located { place: node.place, value });
        }
        let help = match node.kind {
            YamlValue::Integer(number) if number >= 0 => format!("add a unit, such as {number}s"),
            _ => units::DURATION_HELP.to_owned(),
        };
        findings.add(node.place, wrong(name, "a duration", node), help);
        None
    }

    pub(crate) fn size(&self, name: &str, findings: &mut ProblemCollector) -> Option<Located<u64>> {
        let node = self.get(name)?;
        let parsed = match &node.kind {
            YamlValue::Text(text) => units::parse_size(text),
            YamlValue::Integer(number) => u64::try_from(*number).ok(),
            _ => None,
        };
        if let Some(value) = parsed {
            return Some(Located { place: node.place, value });
        }
        findings.add(node.place, wrong(name, "a size", node), units::SIZE_HELP);
        None
    }

    /// Reads a number above 0 and up to 1.
    pub(crate) fn ratio(&self, name: &str, findings: &mut ProblemCollector) -> Option<Located<f64>> {
        let node = self.get(name)?;
        let number = match node.kind {
            YamlValue::Float(number) => Some(number),
            YamlValue::Integer(number) => Some(number as f64),
            _ => None,
        };
        match number {
            Some(value) if value > 0.0 && value <= 1.0 => return Some(Located { place: node.place, value }),
            _ => findings.add(
                node.place,
                wrong(name, "a ratio", node),
                "write a number above 0 and up to 1: 0.02 is 2 %",
            ),
        }
        None
    }

    /// Reads an integer from 1 to 1,000,000.
    pub(crate) fn count(&self, name: &str, findings: &mut ProblemCollector) -> Option<Located<u64>> {
        self.count_up_to(name, 1_000_000, findings)
    }

    /// Reads an integer from 1 to `max`.
    pub(crate) fn count_up_to(&self, name: &str, max: u64, findings: &mut ProblemCollector) -> Option<Located<u64>> {
        let node = self.get(name)?;
        let number = match node.kind {
            YamlValue::Integer(number) => u64::try_from(number).ok(),
            _ => None,
        };
        match number {
            Some(value) if (1..=max).contains(&value) => return Some(Located { place: node.place, value }),
            _ => findings.add(node.place, wrong(name, "a count", node), format!("write an integer from 1 to {max}")),
        }
        None
    }

    /// Reads one of a few words.
    pub(crate) fn choice<T: Copy>(
        &self,
        name: &str,
        allowed: &[(&str, T)],
        findings: &mut ProblemCollector,
    ) -> Option<Located<T>> {
        let written = self.text(name, findings)?;
        let found = allowed.iter().find(|(word, _)| *word == written.value);
        if let Some((_, value)) = found {
            return Some(Located { place: written.place, value: *value });
        }
        let words: Vec<&str> = allowed.iter().map(|(word, _)| *word).collect();
        let message = format!("unknown {name} {}", quote(&written.value));
        findings.add(written.place, message, suggest::help_with(&written.value, &words));
        None
    }
}

/// Reads a text that is not empty. `what` is the name of the value in messages.
pub(crate) fn text(node: &YamlNode, what: &str, findings: &mut ProblemCollector) -> Option<Located<String>> {
    match &node.kind {
        YamlValue::Text(text) if text.is_empty() => {
            findings.add(node.place, format!("{what} is empty"), "give it a value or remove it");
            None
        }
        YamlValue::Text(text) => Some(Located { place: node.place, value: text.clone() }),
        YamlValue::Null => {
            findings.add(node.place, format!("{what} has no value"), "give it a value or remove it");
            None
        }
        kind => {
            let help = match kind {
                YamlValue::Bool(_) | YamlValue::Integer(_) | YamlValue::Float(_) => {
                    "put it in quotes if it is meant as text"
                }
                YamlValue::Tagged(_) => TAG_HELP,
                _ => "write one value, without - or braces",
            };
            findings.add(node.place, format!("{what} must be text, found {}", node.describe()), help);
            None
        }
    }
}

fn wrong(name: &str, expected: &str, node: &YamlNode) -> String {
    format!("`{name}` must be {expected}, found {}", node.describe())
}
