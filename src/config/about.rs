//! The description of a preset: its section `about`, which only presets have.
//!
//! `presets show`, `docs/presets.md` and the warnings of `check` use it. Presets are part of the
//! program, so the tests that load every preset find any problem in this section.

use serde::Serialize;

use super::yaml::document::YamlNode;
use super::yaml::fields::{Located, YamlMapping};
use super::yaml::problem::ProblemCollector;

/// The lowest level that the library must log for the rules to see its lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LibraryLogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct About {
    /// The usual name of the library.
    pub title: String,
    pub language: String,
    /// The packages and their versions.
    pub library: String,
    pub checked: Vec<Checked>,
    pub logs: Coverage,
    /// Level of the lines that the library writes itself. `None` if it writes none and the program
    /// logs its exceptions.
    pub log_level: Option<LibraryLogLevel>,
    pub keyspace: Coverage,
    /// Lock namespaces whose keys only the user knows.
    pub keys_from_user: Vec<KeysFromUser>,
    /// Anything else that a user must know.
    pub notes: Vec<String>,
}

/// How it was verified that the rules match the library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Checked {
    /// The library was run with a live Redis. A test compares what it printed and stored.
    Run(String),
    /// The source code of the library was read. Contains file and version.
    Source(String),
}

/// A lock namespace of a library without a key prefix of its own. The user must configure which
/// keys are its locks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeysFromUser {
    pub namespace: String,
    /// An example of a key template.
    pub example: String,
}

/// What logs alone, or Redis alone, can show about the library, and what they cannot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Coverage {
    pub sees: Vec<String>,
    pub blind_to: Vec<String>,
}

#[rustfmt::skip]
const FIELDS: [&str; 9] = [
    "title", "language", "library", "checked", "logs", "log_level", "keyspace", "keys_from_user", "notes",
];
const LEVELS: [(&str, LibraryLogLevel); 5] = [
    ("debug", LibraryLogLevel::Debug),
    ("info", LibraryLogLevel::Info),
    ("notice", LibraryLogLevel::Notice),
    ("warning", LibraryLogLevel::Warning),
    ("error", LibraryLogLevel::Error),
];

impl LibraryLogLevel {
    pub fn as_str(self) -> &'static str {
        LEVELS.iter().find(|(_, level)| *level == self).map_or("", |(name, _)| name)
    }
}

impl About {
    pub(super) fn read(node: &YamlNode, findings: &mut ProblemCollector) -> Option<Self> {
        let fields = YamlMapping::of(node, "`about`", &FIELDS, findings)?;
        for required in ["title", "language", "library", "checked", "logs", "keyspace"] {
            fields.require(
                required,
                "a preset states what it is, how that was checked and what it can observe",
                findings,
            );
        }
        let nodes = fields.items("checked", findings);
        let checked: Vec<Checked> = nodes.iter().filter_map(|node| Checked::read(node, findings)).collect();
        let nodes = fields.items("keys_from_user", findings);
        let keys_from_user = nodes.iter().filter_map(|node| KeysFromUser::read(node, findings)).collect();
        let value = |text: Option<Located<String>>| text.map(|text| text.value);
        Some(Self {
            title: value(fields.text("title", findings))?,
            language: value(fields.text("language", findings))?,
            library: value(fields.text("library", findings))?,
            checked,
            logs: Coverage::read(&fields, "logs", findings),
            log_level: fields.choice("log_level", &LEVELS, findings).map(|level| level.value),
            keyspace: Coverage::read(&fields, "keyspace", findings),
            keys_from_user,
            notes: texts(&fields, "notes", findings),
        })
    }
}

impl Checked {
    fn read(node: &YamlNode, findings: &mut ProblemCollector) -> Option<Self> {
        let fields = YamlMapping::of(node, "an item of `checked`", &["run", "source"], findings)?;
        let run = fields.text("run", findings).map(|text| Self::Run(text.value));
        run.or_else(|| fields.text("source", findings).map(|text| Self::Source(text.value)))
    }
}

impl KeysFromUser {
    fn read(node: &YamlNode, findings: &mut ProblemCollector) -> Option<Self> {
        let fields = YamlMapping::of(node, "an item of `keys_from_user`", &["namespace", "example"], findings)?;
        let (namespace, example) = (fields.text("namespace", findings)?, fields.text("example", findings)?);
        Some(Self { namespace: namespace.value, example: example.value })
    }
}

impl Coverage {
    fn read(about: &YamlMapping<'_>, name: &str, findings: &mut ProblemCollector) -> Self {
        let Some(node) = about.get(name) else { return Self::default() };
        let Some(fields) = YamlMapping::of(node, "one side of `about`", &["sees", "blind_to"], findings) else {
            return Self::default();
        };
        Self { sees: texts(&fields, "sees", findings), blind_to: texts(&fields, "blind_to", findings) }
    }
}

fn texts(fields: &YamlMapping<'_>, name: &str, findings: &mut ProblemCollector) -> Vec<String> {
    fields.texts(name, findings).unwrap_or_default().into_iter().map(|text| text.value).collect()
}
