//! The setting `owner` of a lock namespace: reads it and builds the checked [`OwnerRule`].
//!
//! The rule finds the owner in the value of a lock. Invalid expressions are reported with their
//! position.

use regex::bytes::{Regex, RegexBuilder};

use crate::config::rules::patterns;
use crate::config::yaml::document::YamlNode;
use crate::config::yaml::fields::{Located, YamlMapping};
use crate::config::yaml::problem::ProblemCollector;
use crate::model::owner::OwnerRule;

/// Memory limit for one compiled expression.
const MAX_COMPILED_BYTES: usize = 1 << 20;

#[derive(Clone, Debug, Default)]
pub(in crate::config) struct RawOwner {
    skip: Vec<Located<String>>,
    regex: Option<Located<String>>,
    json: Option<Located<String>>,
    not_held: Option<Located<String>>,
    shared: Option<Located<bool>>,
}

impl RawOwner {
    pub(in crate::config) fn read(node: &YamlNode, findings: &mut ProblemCollector) -> Option<Self> {
        let fields = YamlMapping::of(node, "`owner`", &["skip", "regex", "json", "not_held", "shared"], findings)?;
        Some(Self {
            skip: fields.texts("skip", findings).unwrap_or_default(),
            regex: fields.text("regex", findings),
            json: fields.text("json", findings),
            not_held: fields.text("not_held", findings),
            shared: fields.boolean("shared", findings),
        })
    }

    pub(in crate::config) fn build(&self, findings: &mut ProblemCollector) -> OwnerRule {
        let part = self.regex.as_ref().and_then(|source| compile(source, findings).map(|regex| (source, regex)));
        if let Some((source, regex)) = &part
            && !regex.capture_names().flatten().any(|group| group == "owner")
        {
            let help = "put the part that identifies the owner in (?P<owner>...), such as ^(?P<owner>.{22})";
            findings.add(source.place, "the regular expression has no group `owner`", help);
        }
        OwnerRule {
            skip: self.skip.iter().filter_map(|source| compile(source, findings)).collect(),
            part: part.map(|(_, regex)| regex),
            json: self.json.iter().flat_map(|path| path.value.split('.').map(str::to_owned)).collect(),
            not_held: self.not_held.as_ref().and_then(|source| compile(source, findings)),
            shared: self.shared.as_ref().is_some_and(|shared| shared.value),
        }
    }
}

/// Compiles an expression for bytes, because the values of locks are not always text.
fn compile(source: &Located<String>, findings: &mut ProblemCollector) -> Option<Regex> {
    patterns::compile(source, findings)?;
    let mut builder = RegexBuilder::new(&source.value);
    builder.unicode(false).dot_matches_new_line(true).size_limit(MAX_COMPILED_BYTES).build().ok().or_else(|| {
        let message = "the regular expression matches only text, but lock values are bytes";
        findings.add(source.place, message, "write it without characters and classes beyond ASCII");
        None
    })
}
