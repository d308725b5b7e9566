//! The presets that are part of the program: namespaces and rules for programs and lock libraries, as YAML files.

use serde::Serialize;

use super::about::About;
use super::raw::{RawConfig, RawNamespace};
use super::rules::raw::RawRule;
use super::yaml::document::{Document, Place};
use super::yaml::problem::ProblemCollector;

pub(super) const FLAG: &str = "--preset";

/// Rules that fit many programs. Always in effect, after all others.
const GENERIC: &str = include_str!("../../presets/generic.yaml");

/// Declares the list: a preset is its file, and a test compares the list with the directory.
macro_rules! presets {
    ($($name:literal),+ $(,)?) => {
        [$(($name, include_str!(concat!("../../presets/", $name, ".yaml")))),+]
    };
}

/// Cordum, then libraries by how many use them.
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

/// Names that `presets` and `--preset` take.
pub fn names() -> Vec<&'static str> {
    PRESETS.iter().map(|(name, _)| *name).collect()
}

/// A preset that the user wants.
pub(super) struct Chosen {
    pub(super) name: String,
    /// In the user's file. `None`: it was given by the flag.
    pub(super) place: Option<Place>,
}

/// A preset and what it tells about itself.
#[derive(Clone, Debug, Serialize)]
pub struct Preset {
    pub name: String,
    pub about: About,
    /// Each with its keys.
    pub namespaces: Vec<String>,
    /// Whether any rule makes an event of a line.
    #[serde(skip)]
    pub reads_logs: bool,
    /// As it is part of the program.
    pub yaml: String,
}

/// All presets, in order.
pub fn all() -> Vec<Preset> {
    names().iter().filter_map(|name| preset(name)).collect()
}

/// None: there is no such preset. Every one of them is good, a test loads them all.
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
