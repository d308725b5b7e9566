//! The configuration: reads YAML and flags and returns a checked [`Config`] or all of its
//! [`Problems`]. No other module checks it again.
//!
//! `daemon`, the commands and tests call [`Config::load`]. There are two stages. The first reads
//! text into typed values with positions (`raw.rs` files). The second compares these values, fills
//! in defaults and compiles regexes. A configuration has layers: the user's file, the presets that
//! the file or flags name, and the generic preset. Earlier layers take precedence. Every stage
//! continues after a problem. In reading order:
//!
//! * this file: combines the layers into a `Config`
//! * `yaml`: values with positions, and problems
//! * `raw`: the file as written
//! * `logs`: log sources
//! * `redis`: the connection to Redis, scans and watches
//! * `namespaces`: lock namespaces
//! * `rules`: rules and reasons
//! * `presets`, `about`: the presets in the program, and their descriptions
//! * `web`: the web configuration file

mod about;
mod logs;
mod namespaces;
pub mod presets;
mod raw;
pub mod redis;
pub mod rules;
mod web;
pub mod yaml;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use self::namespaces::OverlapCheck;
use self::presets::SelectedPreset;
use self::raw::RawConfig;
use self::rules::RuleBuilder;
use self::rules::rule::RuleConfig;
use self::yaml::document::{Document, position_of, quote};
use self::yaml::problem::ProblemCollector;
use crate::model::namespace::Namespace;

pub use self::about::{About, Checked, Coverage, KeysFromUser, LibraryLogLevel};
pub use self::logs::{DEFAULT_MAX_LINE_BYTES, STDIN};
pub use self::web::{Fingerprint, RateLimit, Users, WebConfig};
pub use self::yaml::problem::{ConfigProblem, Problems};

const CONFIG_FLAG: &str = "--config.file";
const MAX_FILE_BYTES: u64 = 1 << 20;
const DEFAULT_JOIN_WINDOW: Duration = Duration::from_secs(2);
const MAX_JOIN_WINDOW: Duration = Duration::from_secs(600);

/// The checked configuration: every pattern compiles and every name resolves.
#[derive(Clone, Debug)]
pub struct Config {
    pub logs: Vec<LogSource>,
    /// In order of configuration. `other` always exists and is always the last one.
    pub namespaces: Vec<Arc<Namespace>>,
    pub rules: Arc<RuleConfig>,
    /// Number of rules, including the rules of presets and the generic rules.
    pub n_rules: usize,
    /// `None` if only logs are read.
    pub redis: Option<redis::RedisConfig>,
    pub state_dir: Option<PathBuf>,
    /// Lines about the same lock namespace, lock and operation within this time are one failure.
    pub join_window: Duration,
    /// Names in order, without the generic preset.
    pub presets: Vec<String>,
}

/// A configured origin of lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSource {
    /// Unique among all sources. The name is a label value, and the saved state refers to the
    /// source by this name. For files it is a pattern of the `glob` crate; for standard input it is
    /// [`STDIN`].
    pub name: String,
    pub kind: LogKind,
    pub start_at: StartAt,
    pub max_line_bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogKind {
    /// The files that match `name`.
    Files,
    Stdin,
    Journal(JournalConfig),
    Push(Push),
}

/// A systemd journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalConfig {
    /// Matches in the form `FIELD=value`, as `journalctl` takes them: for each field, one of its
    /// values must match. Empty: every entry.
    pub matches: Arc<[String]>,
    /// `None` for the journal of this machine.
    pub directory: Option<PathBuf>,
}

/// Lines that clients send with Loki's push protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// Limit for one request, both compressed and decompressed.
    pub max_request_bytes: usize,
}

/// Where to start in logs that already exist when the exporter runs for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAt {
    End,
    Beginning,
}

/// Settings from flags. Log sources and presets are added to those of the file. All other flags
/// take precedence over the file.
#[derive(Clone, Default)]
pub struct Overrides {
    pub logs: Vec<String>,
    pub presets: Vec<String>,
    pub state_dir: Option<PathBuf>,
    /// Replaces `url` in the section `redis`.
    pub redis_url: Option<String>,
    pub redis_password_file: Option<PathBuf>,
    /// Name of an environment variable that is set. Used if nothing else configures a password.
    pub redis_password_env: Option<String>,
}

/// Whether a configuration without a log source and without Redis is a problem. Commands that bring
/// their own lines need neither.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Targets {
    Required,
    Optional,
}

impl Config {
    /// Loads the configuration of the daemon. A configuration with neither a log source nor Redis
    /// is a problem.
    pub fn load(path: Option<&Path>, overrides: &Overrides) -> Result<Config, Problems> {
        assemble(read_file(path, CONFIG_FLAG)?, overrides, Targets::Required)
    }

    /// Loads the configuration of a command that brings its own lines and so needs no log sources.
    pub fn load_without_logs(path: Option<&Path>, overrides: &Overrides) -> Result<Config, Problems> {
        assemble(read_file(path, CONFIG_FLAG)?, overrides, Targets::Optional)
    }

    /// Like [`Config::load`], but reads from a text. `name` appears as the file name in messages.
    pub fn from_yaml(name: &str, text: &str, overrides: &Overrides) -> Result<Config, Problems> {
        let document = Document { name: name.to_owned(), text: text.to_owned() };
        assemble(Some(document), overrides, Targets::Required)
    }
}

impl Config {
    /// Returns what the chosen presets cannot observe with these settings.
    pub fn blind_spots(&self) -> Vec<BlindSpot> {
        let mut found = Vec::new();
        for preset in self.presets.iter().filter_map(|name| presets::preset(name)) {
            let About { logs, keyspace, log_level, .. } = &preset.about;
            let mut add = |text: String| found.push(BlindSpot { preset: preset.name.clone(), text });
            let (has_logs, has_redis) = (!self.logs.is_empty(), self.redis.is_some());
            if !has_redis && !preset.reads_logs {
                add("its library logs nothing, so without `redis: {url: ...}` nothing is observed".to_owned());
            } else if !has_redis && !logs.blind_to.is_empty() {
                add(format!("without `redis` it cannot observe: {}", logs.blind_to.join("; ")));
            }
            if has_redis && !has_logs && preset.reads_logs && !keyspace.blind_to.is_empty() {
                add(format!("without `logs` it cannot observe: {}", keyspace.blind_to.join("; ")));
            }
            if let (true, Some(level @ (LibraryLogLevel::Debug | LibraryLogLevel::Info | LibraryLogLevel::Notice))) =
                (has_logs, log_level)
            {
                add(format!(
                    "some of its lines have the level {}; they are missing if the program logs only higher levels",
                    level.as_str()
                ));
            }
            for namespace in preset.about.keys_from_user.iter().filter(|_| has_redis) {
                let is_without = |own: &&Arc<Namespace>| own.name == namespace.namespace && own.keys.is_empty();
                if self.namespaces.iter().any(|own| is_without(&own)) {
                    let namespace = &namespace.namespace;
                    add(format!("the namespace {namespace} has no keys, so it is not watched in Redis"));
                }
            }
        }
        found
    }
}

/// Something that a preset cannot observe with the current settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlindSpot {
    pub preset: String,
    pub text: String,
}

impl fmt::Display for BlindSpot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.preset, self.text)
    }
}

/// Reads a file as UTF-8 text. `flag` is the flag that named the path, for messages.
pub(crate) fn read_file(path: Option<&Path>, flag: &str) -> Result<Option<Document>, Problems> {
    let Some(path) = path else { return Ok(None) };
    let name = path.display().to_string();
    let refuse = |problem| Err(Problems(vec![problem]));
    let bytes = match read_bounded(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            let help = format!("check the path given to {flag} and its permissions");
            return refuse(ConfigProblem::without_line(&name, format!("cannot read the file: {error}"), help));
        }
    };
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let help = "is it the right file? a configuration is a few KiB";
        return refuse(ConfigProblem::without_line(&name, "the file is larger than 1MiB", help));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(Document { name, text })),
        Err(error) => {
            let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let (line, column) = position_of(&String::from_utf8_lossy(valid), valid.len());
            let help = Some("save the file as UTF-8".to_owned());
            refuse(ConfigProblem { file: name, line, column, message: "not UTF-8 text".to_owned(), help })
        }
    }
}

/// Reads up to one byte more than the limit, so that the caller can detect a file that is too
/// large. Never reads all of a huge or endless file.
fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The content of one file or preset, and the name that prefixes the names of its rules.
struct Layer {
    name: String,
    raw: RawConfig,
}

fn assemble(file: Option<Document>, overrides: &Overrides, targets: Targets) -> Result<Config, Problems> {
    let mut findings = ProblemCollector::default();
    let mut documents = Vec::new();
    let file_name = file.as_ref().map(|document| document.name.clone());
    let user = file.map_or_else(RawConfig::default, |document| read_layer(document, &mut documents, &mut findings));
    // If the file has problems, it may contain a log source that could not be read, so "nothing to
    // watch" is not reported.
    let file_is_sound = findings.is_empty();
    let presets = choose_presets(&user, overrides, &mut findings);
    let mut layers = vec![Layer { name: rules::USER.to_owned(), raw: user }];
    let mut abouts = Vec::new();
    for preset in &presets {
        if let Some(document) = presets::find(&preset.name) {
            let (raw, about) = read_preset(document, &mut documents, &mut findings);
            layers.push(Layer { name: preset.name.clone(), raw });
            abouts.extend(about.map(|about| (preset, about)));
        }
    }
    let (generic, _) = read_preset(presets::generic(), &mut documents, &mut findings);
    layers.push(Layer { name: "generic".to_owned(), raw: generic });

    let user = &layers[0].raw;
    let sources = logs::build(&user.logs, overrides, &mut findings);
    let redis = redis::check::build(user, overrides, &mut findings);
    let has_logs = !user.logs.is_empty() || !overrides.logs.is_empty();
    let nothing_to_watch = !has_logs && user.redis.is_none() && overrides.redis_url.is_none();
    if targets == Targets::Required && nothing_to_watch && file_is_sound {
        findings.add_problem(nothing_to_watch_problem(file_name.as_deref()));
    }
    let state_dir = logs::state_dir(user.state_dir.as_ref(), overrides);
    let join_window = join_window(user, &mut findings);
    let asks_for_keys = redis.is_some() && ask_for_keys(&abouts, &layers[0].raw.namespaces, &mut findings);
    let keyspace = if redis.is_some() { OverlapCheck::Watched } else { OverlapCheck::NotWatched };
    let namespace_layers = layers.iter_mut().map(|layer| std::mem::take(&mut layer.raw.namespaces)).collect();
    let namespaces = namespaces::build(namespace_layers, keyspace, &mut findings);
    if redis.is_some() && !asks_for_keys && namespaces.iter().all(|namespace| namespace.keys.is_empty()) {
        redis::check::report_without_keys(&layers[0].raw, &mut findings);
    }

    let mut rules = RuleBuilder::new(&namespaces);
    let mut reasons = Vec::new();
    let mut key_finders = Vec::new();
    for layer in layers {
        rules.add_layer(&layer.name, layer.raw.rules, &mut findings);
        reasons.extend(rules::reasons::build(layer.raw.reasons, &mut findings));
        key_finders.extend(rules::key_finders(&layer.raw.keys_in_text, &mut findings));
    }
    let rules = rules.finish();
    if !findings.is_empty() {
        return Err(findings.into_problems(&documents));
    }
    let presets = presets.into_iter().map(|preset| preset.name).collect();
    let n_rules = rules.len();
    let rules = Arc::new(RuleConfig::new(rules, reasons, key_finders, namespaces.len()));
    Ok(Config { logs: sources, namespaces, rules, n_rules, redis, state_dir, join_window, presets })
}

/// Reads a document and keeps it, because the positions of problems are computed later. A document
/// that cannot be parsed yields an empty configuration.
fn read_layer(document: Document, documents: &mut Vec<Document>, findings: &mut ProblemCollector) -> RawConfig {
    let raw = match document.parse(documents.len()) {
        Ok(root) => RawConfig::read(&root, findings),
        Err(problem) => {
            findings.add_problem(problem);
            RawConfig::default()
        }
    };
    documents.push(document);
    raw
}

fn read_preset(
    document: Document,
    documents: &mut Vec<Document>,
    findings: &mut ProblemCollector,
) -> (RawConfig, Option<About>) {
    let read = match document.parse(documents.len()) {
        Ok(root) => RawConfig::read_preset(&root, findings),
        Err(problem) => {
            findings.add_problem(problem);
            Default::default()
        }
    };
    documents.push(document);
    read
}

/// Reports presets whose library has no key prefix of its own, if the user did not configure which
/// keys are locks. Without this information the exporter would have to read every key. Returns true
/// if there are any.
fn ask_for_keys(
    abouts: &[(&SelectedPreset, About)],
    user: &[raw::RawNamespace],
    findings: &mut ProblemCollector,
) -> bool {
    let mut asks = false;
    for (preset, about) in abouts {
        for KeysFromUser { namespace, example } in &about.keys_from_user {
            let is_named =
                |text: &Option<yaml::fields::Located<String>>| text.as_ref().is_some_and(|at| at.value == *namespace);
            let is_answered = user.iter().any(|own| is_named(&own.name) && own.keys.is_some() || is_named(&own.like));
            if is_answered {
                continue;
            }
            asks = true;
            let title = &about.title;
            let message =
                format!("the preset `{}` does not know which keys are locks: {title} has no fixed prefix", preset.name);
            let help = format!(
                "add `namespaces: [{{name: {namespace}, keys: [\"{example}\"]}}]` with the keys of your program, or \
                 `keys: []` if its logs are enough"
            );
            match preset.place {
                Some(place) => findings.add(place, message, help),
                None => findings.add_problem(ConfigProblem::without_line(presets::FLAG, message, help)),
            }
        }
    }
    asks
}

/// Returns the presets of the file, then those presets of the flags that the file does not list.
fn choose_presets(user: &RawConfig, overrides: &Overrides, findings: &mut ProblemCollector) -> Vec<SelectedPreset> {
    let mut chosen: Vec<SelectedPreset> = Vec::new();
    let unknown = |name: &str| {
        let help = yaml::suggest::help_with(name, &presets::names());
        (format!("unknown preset {}", quote(name)), help)
    };
    for preset in &user.presets {
        if presets::find(&preset.value).is_none() {
            let (message, help) = unknown(&preset.value);
            findings.add(preset.place, message, help);
        } else if chosen.iter().any(|other| other.name == preset.value) {
            findings.add(preset.place, format!("the preset `{}` is listed twice", preset.value), "remove one of them");
        } else {
            chosen.push(SelectedPreset { name: preset.value.clone(), place: Some(preset.place) });
        }
    }
    for name in &overrides.presets {
        if presets::find(name).is_none() {
            let (message, help) = unknown(name);
            findings.add_problem(ConfigProblem::without_line(presets::FLAG, message, help));
        } else if !chosen.iter().any(|other| other.name == *name) {
            chosen.push(SelectedPreset { name: name.clone(), place: None });
        }
    }
    chosen
}

fn join_window(user: &RawConfig, findings: &mut ProblemCollector) -> Duration {
    let Some(window) = &user.join_window else { return DEFAULT_JOIN_WINDOW };
    if window.value > MAX_JOIN_WINDOW {
        let message = format!("`join_window` is out of range: {}", crate::util::units::format_duration(window.value));
        findings.add(window.place, message, "give a duration from 0s, which joins nothing, to 10m");
    }
    window.value
}

fn nothing_to_watch_problem(file: Option<&str>) -> ConfigProblem {
    let message = "nothing to watch: there is neither a log source nor a Redis";
    let help = "add `logs: [{path: /var/log/app/*.log}]` or `redis: {url: redis://HOST:PORT}` to the file given by \
                --config.file, or give --logs.path or --redis.url";
    match file {
        Some(file) => {
            let (file, message) = (file.to_owned(), message.to_owned());
            ConfigProblem { file, line: 1, column: 1, message, help: Some(help.to_owned()) }
        }
        None => ConfigProblem::without_line("command line", message, help),
    }
}
