//! A log source as written: files, a journal or pushed lines, not yet compared with other sources.
//!
//! `RawConfig` calls [`RawLog::read`]. It reports missing and contradicting fields.

use crate::config::StartAt;
use crate::config::yaml::document::{YamlNode, YamlValue};
use crate::config::yaml::fields::{Located, YamlMapping};
use crate::config::yaml::problem::ProblemCollector;

#[derive(Debug)]
pub(in crate::config) struct RawLog {
    /// `None` if no usable origin is given.
    pub(in crate::config) from: Option<RawOrigin>,
    pub(in crate::config) name: Option<Located<String>>,
    pub(in crate::config) start_at: Option<Located<StartAt>>,
    pub(in crate::config) max_line_bytes: Option<Located<u64>>,
}

#[derive(Debug)]
pub(in crate::config) enum RawOrigin {
    Path(Located<String>),
    Journal(Located<RawJournal>),
    Push(Located<RawPush>),
}

#[derive(Debug, Default)]
pub(in crate::config) struct RawJournal {
    pub(in crate::config) units: Vec<Located<String>>,
    pub(in crate::config) identifiers: Vec<Located<String>>,
    pub(in crate::config) matches: Vec<Located<String>>,
    pub(in crate::config) directory: Option<Located<String>>,
}

#[derive(Debug, Default)]
pub(in crate::config) struct RawPush {
    pub(in crate::config) max_request_bytes: Option<Located<u64>>,
}

impl RawLog {
    const FIELDS: [&str; 6] = ["path", "journal", "push", "name", "start_at", "max_line_bytes"];
    const ORIGINS: [&str; 3] = ["path", "journal", "push"];

    pub(in crate::config) fn read(node: &YamlNode, findings: &mut ProblemCollector) -> Option<Self> {
        let fields = YamlMapping::of(node, "a log source", &Self::FIELDS, findings)?;
        let written: Vec<&str> = Self::ORIGINS.into_iter().filter(|name| fields.has(name)).collect();
        match written[..] {
            [] => fields.require(
                "path",
                "add `path: /var/log/app/*.log`, or `path: '-'` for standard input; `journal` and `push` are the other \
                 ways in",
                findings,
            ),
            [_] => {}
            [first, second, ..] => {
                let message = format!("a log source with both `{first}` and `{second}`");
                findings.add(fields.place(), message, "make two log sources of it, each beginning with `- `");
            }
        }
        if fields.has("path")
            && let Some(name) = fields.get("name")
        {
            findings.add(name.place, "a log source with `path` and `name`", "remove `name`: the path is its name");
        }
        if fields.has("push")
            && let Some(start_at) = fields.get("start_at")
        {
            findings.add(
                start_at.place,
                "`start_at` on pushed lines",
                "remove it: pushed lines begin when a client sends them",
            );
        }
        let start_at = [("end", StartAt::End), ("beginning", StartAt::Beginning)];
        let journal = fields.get("journal").and_then(|node| read_or_empty(node, RawJournal::read, findings));
        let push = fields.get("push").and_then(|node| read_or_empty(node, RawPush::read, findings));
        let path = fields.text("path", findings).map(RawOrigin::Path);
        Some(Self {
            from: path.or(journal.map(RawOrigin::Journal)).or(push.map(RawOrigin::Push)),
            name: fields.text("name", findings),
            start_at: fields.choice("start_at", &start_at, findings),
            max_line_bytes: fields.size("max_line_bytes", findings),
        })
    }
}

/// An empty `push:` means the same as `push: {}`.
fn read_or_empty<T: Default>(
    node: &YamlNode,
    read: fn(&YamlNode, &mut ProblemCollector) -> Option<T>,
    findings: &mut ProblemCollector,
) -> Option<Located<T>> {
    let value = if matches!(node.kind, YamlValue::Null) { T::default() } else { read(node, findings)? };
    Some(Located { place: node.place, value })
}

impl RawJournal {
    fn read(node: &YamlNode, findings: &mut ProblemCollector) -> Option<Self> {
        let fields = YamlMapping::of(node, "`journal`", &["units", "identifiers", "matches", "directory"], findings)?;
        Some(Self {
            units: fields.texts("units", findings).unwrap_or_default(),
            identifiers: fields.texts("identifiers", findings).unwrap_or_default(),
            matches: fields.texts("matches", findings).unwrap_or_default(),
            directory: fields.text("directory", findings),
        })
    }
}

impl RawPush {
    fn read(node: &YamlNode, findings: &mut ProblemCollector) -> Option<Self> {
        let fields = YamlMapping::of(node, "`push`", &["max_request_bytes"], findings)?;
        Some(Self { max_request_bytes: fields.size("max_request_bytes", findings) })
    }
}
