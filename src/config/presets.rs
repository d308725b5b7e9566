//! The presets in the program: lock namespaces and rules for programs and lock libraries, as YAML
//! files.
//!
//! `config::assemble` reads the chosen presets. The `presets` command and the documentation list
//! all of them. Tests load every preset, so an invalid one does not reach a release.

use serde::Serialize;

use super::about::About;
use super::raw::{RawConfig, RawNamespace};
use super::rules::raw::RawRule;
use super::yaml::document::{Document, YamlPosition};
use super::yaml::problem::ProblemCollector;

pub(super) const FLAG: &str = "--preset";

/// Rules that match many programs. Always in effect, after all others.
const GENERIC: &str = include_str!("../../presets/generic.yaml");

/// Declares the list of presets. Each name stands for one file. A test compares the list with the
/// directory.
macro_rules! presets {
    ($($name:literal),+ $(,)?) => {
        [$(($name, include_str!(concat!("../../presets/", $name, ".yaml")))),+]
    };
}

/// Cordum first, then libraries by popularity.
const PRESETS: &[(&str, &str)] = &presets![
    "cordum",
    "redis-py",
    "redisson",
    "laravel",
    "bullmq",
    "node-redlock",
    "symfony-lock",
    "sidekiq-unique-jobs",
    "redsync",
    "shedlock",
    "spring-integration",
    "redlock-rb",
    "redislock",
    "redlock-net",
    "distributedlock",
    "python-redis-lock",
    "redis-semaphore",
    "celery-singleton",
    "pottery",
    "aioredlock",
    "hangfire",
    "php-lock",
    "rslock",
];

/// Returns the names that `presets` and `--preset` accept.
pub fn names() -> Vec<&'static str> {
    PRESETS.iter().map(|(name, _)| *name).collect()
}

/// A preset that the user chose.
pub(super) struct SelectedPreset {
    pub(super) name: String,
    /// Position in the user's file. `None` if the preset was given by the flag.
    pub(super) place: Option<YamlPosition>,
}

/// A preset and its description.
#[derive(Clone, Debug, Serialize)]
pub struct Preset {
    pub name: String,
    pub about: About,
    /// Each lock namespace with its keys, as text.
    pub namespaces: Vec<String>,
    /// Whether any rule turns a record into an event.
    #[serde(skip)]
    pub reads_logs: bool,
    /// The YAML text as it is compiled into the program.
    pub yaml: String,
}

/// Returns all presets, in order.
pub fn all() -> Vec<Preset> {
    names().iter().filter_map(|name| preset(name)).collect()
}

/// Returns `None` if there is no preset with this name. All presets are valid, because a test loads
/// them all.
pub fn preset(name: &str) -> Option<Preset> {
    let document = find(name)?;
    let mut findings = ProblemCollector::default();
    let (raw, about) = RawConfig::read_preset(&document.parse(0).ok()?, &mut findings);
    let namespaces = raw.namespaces.iter().map(RawNamespace::describe).collect();
    let reads_logs = raw.rules.iter().any(RawRule::counts);
    Some(Preset { name: name.to_owned(), about: about?, namespaces, reads_logs, yaml: document.text })
}

pub(super) fn find(name: &str) -> Option<Document> {
    PRESETS.iter().find(|(known, _)| *known == name).map(|(name, text)| document(name, text))
}

pub(super) fn generic() -> Document {
    document("generic", GENERIC)
}

fn document(name: &str, text: &str) -> Document {
    Document { name: format!("preset {name}"), text: text.to_owned() }
}
