//! The `redis`, `scan` and `watch` sections: where Redis is and how to read it.
//!
//! `config::assemble` calls `check`; `keyspace` uses the result. In reading order:
//!
//! * this file: the checked `RedisConfig`
//! * `url`: addresses as people write them
//! * `raw`: the sections as written
//! * `check`: builds the checked configuration from the sections

pub(super) mod check;
pub(super) mod raw;
mod url;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The checked sections `redis`, `scan` and `watch`.
#[derive(Clone, Debug, PartialEq)]
pub struct RedisConfig {
    /// The label `redis` of all keyspace metrics.
    pub name: String,
    pub mode: RedisMode,
    /// Depends on the mode: the server, the Sentinels, or some nodes of the cluster.
    pub addresses: Vec<Address>,
    /// Always 0 in a cluster.
    pub database: u32,
    pub credentials: Credentials,
    pub tls: Option<Tls>,
    pub connect_timeout: Duration,
    pub response_timeout: Duration,
    pub scan: ScanConfig,
    pub watch: WatchConfig,
    /// Maximum number of locks that are tracked at the same time. Further locks are counted as
    /// untracked.
    pub max_tracked_locks: usize,
}

impl RedisConfig {
    /// Whether both configurations name the same database of the same Redis. Sentinels and nodes of
    /// a cluster may be added or removed.
    pub fn is_same_redis(&self, other: &Self) -> bool {
        let same_primary = match (&self.mode, &other.mode) {
            (RedisMode::Sentinel { primary, .. }, RedisMode::Sentinel { primary: other, .. }) => primary == other,
            (mode, other) => mode == other,
        };
        same_primary
            && self.database == other.database
            && self.addresses.iter().any(|address| other.addresses.contains(address))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisMode {
    Single,
    Sentinel {
        /// The name of the primary in the configuration of the Sentinels.
        primary: String,
        /// Credentials for the Sentinels themselves.
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

/// Where a password comes from. Files are read for each connection, so that a changed password
/// takes effect.
#[derive(Clone, PartialEq, Eq)]
pub enum PasswordSource {
    /// From the URL.
    Inline(String),
    File(PathBuf),
    /// The name of an environment variable.
    Environment(String),
}

/// Never prints a password.
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
    /// `None` for the certificates of the system.
    pub ca_file: Option<PathBuf>,
    /// Certificate and key of the client.
    pub client: Option<(PathBuf, PathBuf)>,
    /// Name for SNI and for verifying the server's certificate, if it differs from the host.
    pub server_name: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ScanConfig {
    /// Time between the starts of two passes, without tracking.
    pub interval: Duration,
    /// Time between the starts of two passes, with tracking. Then passes only find changes that
    /// tracking did not announce.
    pub watched_interval: Duration,
    /// Maximum share of the time of Redis that passes may use. 1 means no pauses.
    pub max_redis_share: f64,
    pub from: ScanFrom,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScanFrom {
    #[default]
    Primary,
    /// A replica lists the keys. Without tracking, the replica also serves the reads. If there is
    /// no replica, the primary is used.
    Replica,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchConfig {
    pub enabled: bool,
    /// Limit on reads caused by pushes. Above the limit, keys are skipped and counted, and the next
    /// pass reads them.
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
