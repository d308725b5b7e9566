//! The sections `redis`, `scan` and `watch` as written: typed values with positions.
//!
//! Part of the first stage, see `config/raw.rs`. `redis/check.rs` compares the values.

use std::time::Duration;

use super::ScanFrom;
use crate::config::yaml::document::{YamlNode, YamlPosition, YamlValue};
use crate::config::yaml::fields::{Located, YamlMapping};
use crate::config::yaml::problem::ProblemCollector;

const MAX_TRACKED_LOCKS: u64 = 100_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum RawMode {
    Single,
    Sentinel,
    Cluster,
}

/// The default is an empty section. It is used if only flags configure Redis.
#[derive(Debug, Default)]
pub(in crate::config) struct RawRedis {
    pub(in crate::config) place: YamlPosition,
    pub(in crate::config) name: Option<Located<String>>,
    pub(in crate::config) url: Option<Located<String>>,
    pub(in crate::config) mode: Option<Located<RawMode>>,
    pub(in crate::config) addresses: Option<Vec<Located<String>>>,
    pub(in crate::config) sentinel: Option<Located<RawSentinel>>,
    pub(in crate::config) credentials: RawCredentials,
    pub(in crate::config) tls: Option<Located<RawTls>>,
    pub(in crate::config) connect_timeout: Option<Located<Duration>>,
    pub(in crate::config) response_timeout: Option<Located<Duration>>,
    pub(in crate::config) max_tracked_locks: Option<Located<u64>>,
}

#[derive(Debug, Default)]
pub(in crate::config) struct RawCredentials {
    pub(in crate::config) username: Option<Located<String>>,
    pub(in crate::config) password_file: Option<Located<String>>,
    pub(in crate::config) password_env: Option<Located<String>>,
}

#[derive(Debug)]
pub(in crate::config) struct RawSentinel {
    pub(in crate::config) primary: Option<Located<String>>,
    pub(in crate::config) credentials: RawCredentials,
}

#[derive(Debug)]
pub(in crate::config) struct RawTls {
    pub(in crate::config) ca_file: Option<Located<String>>,
    pub(in crate::config) cert_file: Option<Located<String>>,
    pub(in crate::config) key_file: Option<Located<String>>,
    pub(in crate::config) server_name: Option<Located<String>>,
}

#[derive(Debug)]
pub(in crate::config) struct RawScan {
    pub(in crate::config) place: YamlPosition,
    pub(in crate::config) interval: Option<Located<Duration>>,
    pub(in crate::config) watched_interval: Option<Located<Duration>>,
    pub(in crate::config) max_redis_share: Option<Located<f64>>,
    pub(in crate::config) from: Option<Located<ScanFrom>>,
}

#[derive(Debug)]
pub(in crate::config) struct RawWatch {
    pub(in crate::config) place: YamlPosition,
    /// True for `auto`, false for `off`.
    pub(in crate::config) enabled: Option<Located<bool>>,
    pub(in crate::config) max_reads_per_second: Option<Located<u64>>,
}

impl RawRedis {
    #[rustfmt::skip]
    const FIELDS: [&str; 12] = [
        "name", "url", "mode", "addresses", "sentinel", "username", "password_file", "password_env", "tls",
        "connect_timeout", "response_timeout", "max_tracked_locks",
    ];

    pub(in crate::config) fn read(node: &YamlNode, findings: &mut ProblemCollector) -> Option<Self> {
        let fields = YamlMapping::of(node, "`redis`", &Self::FIELDS, findings)?;
        let mode = [("single", RawMode::Single), ("sentinel", RawMode::Sentinel), ("cluster", RawMode::Cluster)];
        Some(Self {
            place: node.place,
            name: fields.text("name", findings),
            url: fields.text("url", findings),
            mode: fields.choice("mode", &mode, findings),
            addresses: fields.texts("addresses", findings),
            sentinel: fields.get("sentinel").and_then(|node| RawSentinel::read(node, findings)),
            credentials: RawCredentials::read(&fields, findings),
            tls: fields.get("tls").and_then(|node| RawTls::read(node, findings)),
            connect_timeout: fields.duration("connect_timeout", findings),
            response_timeout: fields.duration("response_timeout", findings),
            max_tracked_locks: fields.count_up_to("max_tracked_locks", MAX_TRACKED_LOCKS, findings),
        })
    }
}

impl RawCredentials {
    fn read(fields: &YamlMapping<'_>, findings: &mut ProblemCollector) -> Self {
        Self {
            username: fields.text("username", findings),
            password_file: fields.text("password_file", findings),
            password_env: fields.text("password_env", findings),
        }
    }
}

impl RawSentinel {
    fn read(node: &YamlNode, findings: &mut ProblemCollector) -> Option<Located<Self>> {
        let known = ["primary", "username", "password_file", "password_env"];
        let fields = YamlMapping::of(node, "`sentinel`", &known, findings)?;
        fields.require("primary", "add `primary: NAME`, as in `sentinel monitor NAME ...` of the Sentinels", findings);
        let credentials = RawCredentials::read(&fields, findings);
        let value = Self { primary: fields.text("primary", findings), credentials };
        Some(Located { place: node.place, value })
    }
}

impl RawTls {
    fn read(node: &YamlNode, findings: &mut ProblemCollector) -> Option<Located<Self>> {
        let known = ["ca_file", "cert_file", "key_file", "server_name"];
        let fields = YamlMapping::of(node, "`tls`", &known, findings)?;
        let value = Self {
            ca_file: fields.text("ca_file", findings),
            cert_file: fields.text("cert_file", findings),
            key_file: fields.text("key_file", findings),
            server_name: fields.text("server_name", findings),
        };
        Some(Located { place: node.place, value })
    }
}

impl RawScan {
    pub(in crate::config) fn read(node: &YamlNode, findings: &mut ProblemCollector) -> Option<Self> {
        let known = ["interval", "watched_interval", "max_redis_share", "from"];
        let fields = YamlMapping::of(node, "`scan`", &known, findings)?;
        let from = [("primary", ScanFrom::Primary), ("replica", ScanFrom::Replica)];
        Some(Self {
            place: node.place,
            interval: fields.duration("interval", findings),
            watched_interval: fields.duration("watched_interval", findings),
            max_redis_share: fields.ratio("max_redis_share", findings),
            from: fields.choice("from", &from, findings),
        })
    }
}

impl RawWatch {
    const MODES: [(&str, bool); 2] = [("auto", true), ("off", false)];

    /// Reads `watch: WORD`, or a mapping with that word as `mode`.
    pub(in crate::config) fn read(root: &YamlMapping<'_>, findings: &mut ProblemCollector) -> Option<Self> {
        let node = root.get("watch")?;
        if !matches!(node.kind, YamlValue::Mapping(_)) {
            let enabled = root.choice("watch", &Self::MODES, findings);
            return Some(Self { place: node.place, enabled, max_reads_per_second: None });
        }
        let fields = YamlMapping::of(node, "`watch`", &["mode", "max_reads_per_second"], findings)?;
        Some(Self {
            place: node.place,
            enabled: fields.choice("mode", &Self::MODES, findings),
            max_reads_per_second: fields.count("max_reads_per_second", findings),
        })
    }
}
