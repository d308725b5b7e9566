//! The `redis`, `scan` and `watch` sections: where Redis is and how to read it.
//!
//! `config::assemble` calls `check`; `keyspace` uses the result. In reading order:
//!
//! * this file: the checked `RedisConfig`
//! * `url`: addresses as people write them
//! * `raw`: the sections as written
//! * `check`: from the sections to the checked configuration

pub(super) mod check;
pub(super) mod raw;
mod url;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// A checked `redis:` section, with `scan:` and `watch:`.
#[derive(Clone, Debug)]
pub struct RedisConfig {
    /// The label `redis` of all keyspace metrics.
    pub name: String,
    pub mode: RedisMode,
    /// The server, the Sentinels, or some nodes of the cluster, by mode.
    pub addresses: Vec<Address>,
    /// Always 0 in a cluster.
    pub database: u32,
    pub credentials: Credentials,
    pub tls: Option<Tls>,
    pub connect_timeout: Duration,
    pub response_timeout: Duration,
    pub scan: ScanConfig,
    pub watch: WatchConfig,
    /// Locks kept track of at the same time; more are counted as untracked.
    pub max_tracked_locks: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisMode {
    Single,
    Sentinel {
        /// The name the Sentinels know the primary by.
        primary: String,
        /// For the Sentinels themselves.
        credentials: Credentials,
    },
    Cluster,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(formatter, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(formatter, "{host}:{port}"),
            Self::Unix(path) => write!(formatter, "{}", path.display()),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    pub username: Option<String>,
    pub password: Option<PasswordSource>,
}

/// Where a password comes from; files are read at each connection, so that a changed password is used.
#[derive(Clone, PartialEq, Eq)]
pub enum PasswordSource {
    /// Out of the URL.
    Inline(String),
    File(PathBuf),
    /// The name of an environment variable.
    Environment(String),
}

/// Never shows a password.
impl fmt::Debug for PasswordSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(_) => formatter.write_str("Inline(..)"),
            Self::File(path) => write!(formatter, "File({path:?})"),
            Self::Environment(name) => write!(formatter, "Environment({name})"),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// `None`: the system's certificates.
    pub ca_file: Option<PathBuf>,
    /// Certificate and key of the client.
    pub client: Option<(PathBuf, PathBuf)>,
    /// For SNI and the check of the server's certificate, where it differs from the host.
    pub server_name: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ScanConfig {
    /// From the begin of one pass to the begin of the next, where changes are not watched.
    pub interval: Duration,
    /// The same where they are: passes only make good what a watcher may have missed.
    pub watched_interval: Duration,
    /// Of Redis's time, at most, that passes may take. 1 means no pauses.
    pub max_redis_share: f64,
    pub from: ScanFrom,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScanFrom {
    #[default]
    Primary,
    /// A replica lists the keys (and is read from, where changes are not watched); the primary if there is none.
    Replica,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchConfig {
    pub enabled: bool,
    /// Reads caused by pushes; past that, keys are skipped, counted, and made good by the next pass.
    pub max_reads_per_second: u32,
}

impl Default for ScanConfig {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(15),
            watched_interval: Duration::from_secs(300),
            max_redis_share: 0.05,
            from: ScanFrom::Primary,
        }
    }
}

impl Default for WatchConfig {
    fn default() -> Self {
        Self { enabled: true, max_reads_per_second: 20_000 }
    }
}
