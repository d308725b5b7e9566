//! The web configuration file (`--web.config.file`): TLS, users and headers, in the format that
//! Prometheus and its exporters share (exporter-toolkit). Returns a checked [`WebConfig`] or all of
//! its [`Problems`].
//!
//! `http::web_file` and `check` call [`WebConfig::load`]. Certificates and keys are read with it,
//! so a valid web configuration can be served. A [`Fingerprint`] records what was read;
//! `http/web_file.rs` uses it to detect changes. Problems never contain secrets (keys, password
//! hashes). In reading order:
//!
//! * this file: reads the file and combines its sections
//! * `users`: `basic_auth_users`
//! * `http`: `http_server_config` and `rate_limit`
//! * `tls`: `tls_server_config`
//! * `vocabulary`: Go's names for versions, cipher suites and curves
//! * `client_certificates`, `alternative_names`: which client certificates are accepted

mod alternative_names;
mod client_certificates;
mod http;
mod tls;
mod users;
mod vocabulary;

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue};
use rustls::ServerConfig;

use self::tls::Demands;
use super::yaml::document::{Document, YamlNode, YamlValue};
use super::yaml::fields::YamlMapping;
use super::yaml::problem::{ConfigProblem, ProblemCollector, Problems};
use super::{MAX_FILE_BYTES, read_bounded, read_file};

pub use self::users::Users;

const FIELDS: [&str; 4] = ["tls_server_config", "http_server_config", "basic_auth_users", "rate_limit"];

/// The checked web configuration. The default is plain HTTP without passwords.
#[derive(Clone, Default)]
pub struct WebConfig {
    /// `None` for plain HTTP.
    pub tls: Option<Arc<ServerConfig>>,
    demands: Demands,
    /// Added to responses that do not already have them.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Empty if no password is required.
    pub users: Users,
    pub rate_limit: Option<RateLimit>,
}

/// A token bucket of `burst` requests that gains one request every `interval`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    pub interval: Duration,
    pub burst: u64,
}

/// The files that were read, each with a hash of its content. `None` if a file could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint(Vec<(PathBuf, Option<u64>)>);

impl Fingerprint {
    /// Computes the fingerprint of the same files as they are now.
    pub fn again(&self) -> Self {
        let mut now = Self::default();
        for (path, _) in &self.0 {
            now.add(path, read_bounded(path).ok().as_deref());
        }
        now
    }

    fn add(&mut self, path: &Path, bytes: Option<&[u8]>) {
        self.0.push((path.to_owned(), bytes.map(digest)));
    }
}

fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

impl WebConfig {
    /// Reads the file and all files that it names.
    pub fn load(path: &Path) -> (Result<Self, Problems>, Fingerprint) {
        let mut fingerprint = Fingerprint::default();
        // The fingerprint is taken before the file is read, so the next comparison finds a change
        // in between.
        fingerprint.add(path, read_bounded(path).ok().as_deref());
        let loaded = match read_file(Some(path), "--web.config.file") {
            Ok(Some(document)) => Self::read(document, path, &mut fingerprint),
            Ok(None) => Ok(Self::default()),
            Err(problems) => Err(problems),
        };
        (loaded, fingerprint)
    }

    fn read(document: Document, path: &Path, fingerprint: &mut Fingerprint) -> Result<Self, Problems> {
        let root = document.parse(0).map_err(|problem| Problems(vec![problem]))?;
        let mut findings = ProblemCollector::default();
        let directory = path.parent().unwrap_or(Path::new("")).to_owned();
        let mut files = Files { directory, fingerprint };
        let config = build(&root, &mut files, &mut findings);
        match findings.is_empty() {
            true => Ok(config),
            false => Err(findings.into_problems(&[document])),
        }
    }

    /// Returns a problem if `next` would remove or weaken a protection of this configuration. A
    /// file that is read while it is half written must not remove access control, so such a change
    /// needs a restart.
    pub fn refuse_weaker(&self, file: &Path, next: &Self) -> Result<(), Problems> {
        let lost = if self.tls.is_some() && next.tls.is_none() {
            Some("TLS")
        } else if !self.users.is_empty() && next.users.is_empty() {
            Some("the list of users")
        } else {
            self.demands.lost_with(&next.demands)
        };
        let Some(lost) = lost else { return Ok(()) };
        let message = format!("{lost} would be removed or weakened");
        let help = "a running server does not remove protection: restart it if this is intended";
        Err(Problems(vec![ConfigProblem::without_line(&file.display().to_string(), message, help)]))
    }

    /// Returns one line of text for people, without any secret.
    pub fn describe(&self) -> String {
        let count = |number: usize, noun: &str| format!("{number} {noun}{}", if number == 1 { "" } else { "s" });
        let protocol = if self.tls.is_some() { "https" } else { "plain http" };
        let mut facts = vec![protocol.to_owned(), self.demands.client_auth.describe().to_owned()];
        facts.push(match self.users.len() {
            0 => "no password".to_owned(),
            users => format!("a password of {}", count(users, "user")),
        });
        facts.push(count(self.headers.len(), "added header"));
        if let Some(RateLimit { interval, burst }) = self.rate_limit {
            facts.push(format!("{burst} requests at once and then one every {interval:?}"));
        }
        facts.join(", ")
    }
}

impl fmt::Debug for WebConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "WebConfig({})", self.describe())
    }
}

fn build(root: &YamlNode, files: &mut Files<'_>, findings: &mut ProblemCollector) -> WebConfig {
    if matches!(root.kind, YamlValue::Null) {
        return WebConfig::default();
    }
    let Some(fields) = YamlMapping::of(root, "the web configuration", &FIELDS, findings) else {
        return WebConfig::default();
    };
    let tls = section(&fields, "tls_server_config").and_then(|node| tls::build(node, files, findings));
    let (tls, demands) = tls.map_or((None, Demands::default()), |(tls, demands)| (Some(tls), demands));
    WebConfig {
        tls,
        demands,
        headers: section(&fields, "http_server_config").map(|node| http::headers(node, findings)).unwrap_or_default(),
        users: section(&fields, "basic_auth_users").map(|node| users::build(node, findings)).unwrap_or_default(),
        rate_limit: section(&fields, "rate_limit").and_then(|node| http::rate_limit(node, findings)),
    }
}

/// Returns a section. An empty section counts as missing.
fn section<'a>(fields: &YamlMapping<'a>, name: &str) -> Option<&'a YamlNode> {
    fields.get(name).filter(|node| !matches!(node.kind, YamlValue::Null))
}

/// Reads the files that a web configuration names, and adds them to the fingerprint.
struct Files<'a> {
    /// Directory of the web configuration. Relative paths start there.
    directory: PathBuf,
    fingerprint: &'a mut Fingerprint,
}

impl Files<'_> {
    /// Reads one file. The error names the file.
    fn read(&mut self, name: &str) -> Result<Vec<u8>, String> {
        let path = self.directory.join(name);
        let read = read_bounded(&path);
        self.fingerprint.add(&path, read.as_deref().ok());
        match read {
            Ok(bytes) if bytes.len() as u64 > MAX_FILE_BYTES => Err(format!("{} is larger than 1MiB", path.display())),
            Ok(bytes) => Ok(bytes),
            Err(error) => Err(format!("cannot read {}: {error}", path.display())),
        }
    }
}
