//! Checks the sections `redis`, `scan` and `watch` and builds a [`RedisConfig`].
//!
//! `config::assemble` calls [`build`]. It reports settings that contradict each other, are out of
//! range or have no effect.

use std::path::PathBuf;
use std::time::Duration;

use super::raw::{RawCredentials, RawMode, RawRedis, RawScan, RawTls, RawWatch};
use super::url::{self, RedisUrl};
use super::{Address, Credentials, PasswordSource, RedisConfig, RedisMode, ScanConfig, ScanFrom, Tls, WatchConfig};
use crate::config::Overrides;
use crate::config::raw::RawConfig;
use crate::config::yaml::document::quote;
use crate::config::yaml::fields::Located;
use crate::config::yaml::problem::{ConfigProblem, ProblemCollector};
use crate::util::units::format_duration;

pub(in crate::config) const URL_FLAG: &str = "--redis.url";
const DEFAULT_NAME: &str = "redis";
const DEFAULT_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26_379;
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
const DEFAULT_MAX_TRACKED_LOCKS: u64 = 2_000_000;
const TIMEOUTS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));
const INTERVALS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(86_400));

/// Returns `None` if no Redis is configured.
pub(in crate::config) fn build(
    user: &RawConfig,
    overrides: &Overrides,
    findings: &mut ProblemCollector,
) -> Option<RedisConfig> {
    let scan = scan_config(user.scan.as_ref(), findings);
    let watch = watch_config(user.watch.as_ref());
    let absent = RawRedis::default();
    let raw = match (&user.redis, &overrides.redis_url) {
        (Some(raw), _) => raw,
        (None, Some(_)) => &absent,
        (None, None) => {
            report_without_effect(user, overrides, findings);
            return None;
        }
    };
    let mode = raw.mode.as_ref().map_or(RawMode::Single, |mode| mode.value);
    let default_port = if mode == RawMode::Sentinel { SENTINEL_PORT } else { DEFAULT_PORT };
    let url = parse_url(raw, overrides, default_port, findings);
    let addresses = addresses(raw, url.as_ref(), mode, default_port, findings);
    if addresses.is_empty() && raw.url.is_none() && overrides.redis_url.is_none() && raw.addresses.is_none() {
        let help = "add `url: redis://HOST:PORT`, or `addresses: [HOST:PORT]`";
        findings.add(raw.place, "`redis` has no address", help);
    }
    let database = url.as_ref().map_or(0, |url| url.database);
    check_mode(raw, mode, url.as_ref(), overrides, findings);
    if let Some(from) = user.scan.as_ref().and_then(|scan| scan.from.as_ref())
        && (from.value, mode) == (ScanFrom::Replica, RawMode::Single)
    {
        let help = "replicas are only known with `mode: sentinel` or `mode: cluster`; or give the replica's URL";
        findings.add(from.place, "`from: replica` with a single server", help);
    }
    Some(RedisConfig {
        name: name(raw, findings),
        mode: match (mode, &raw.sentinel) {
            (RawMode::Single, _) => RedisMode::Single,
            (RawMode::Cluster, _) => RedisMode::Cluster,
            (RawMode::Sentinel, sentinel) => {
                let primary = sentinel.as_ref().and_then(|sentinel| sentinel.value.primary.as_ref());
                let credentials = sentinel.as_ref().map(|sentinel| credentials(&sentinel.value.credentials, findings));
                RedisMode::Sentinel {
                    primary: primary.map_or_else(String::new, |primary| primary.value.clone()),
                    credentials: credentials.unwrap_or_default(),
                }
            }
        },
        addresses,
        database,
        credentials: node_credentials(raw, url.as_ref(), overrides, findings),
        tls: tls(raw.tls.as_ref(), url.as_ref(), findings),
        connect_timeout: within("connect_timeout", raw.connect_timeout.as_ref(), TIMEOUTS, findings)
            .unwrap_or(DEFAULT_TIMEOUT),
        response_timeout: within("response_timeout", raw.response_timeout.as_ref(), TIMEOUTS, findings)
            .unwrap_or(DEFAULT_TIMEOUT),
        scan,
        watch,
        max_tracked_locks: raw.max_tracked_locks.as_ref().map_or(DEFAULT_MAX_TRACKED_LOCKS, |max| max.value) as usize,
    })
}

/// Reports a Redis without any keys to observe. Otherwise the exporter would seem healthy and never
/// observe a lock.
pub(in crate::config) fn report_without_keys(user: &RawConfig, findings: &mut ProblemCollector) {
    let message = "no namespace has `keys`, so there is nothing to watch in Redis";
    let help = "add `keys: [\"app:lock:{id}\"]` to a namespace, or choose a preset such as `cordum`";
    match &user.redis {
        Some(raw) => findings.add(raw.place, message, help),
        None => findings.add_problem(ConfigProblem::without_line(URL_FLAG, message, help)),
    }
}

fn report_without_effect(user: &RawConfig, overrides: &Overrides, findings: &mut ProblemCollector) {
    let help = "add `redis: {url: redis://HOST:PORT}`, or remove it";
    if let Some(scan) = &user.scan {
        findings.add(scan.place, "`scan` has no effect without `redis`", help);
    }
    if let Some(watch) = &user.watch {
        findings.add(watch.place, "`watch` has no effect without `redis`", help);
    }
    if overrides.redis_password_file.is_some() {
        let message = "there is a password but no Redis to use it for";
        findings.add_problem(ConfigProblem::without_line("--redis.password-file", message, "give --redis.url too"));
    }
}

/// Parses the URL of the flag, otherwise of the file. Returns `None` if there is no URL or after
/// reporting a problem.
fn parse_url(
    raw: &RawRedis,
    overrides: &Overrides,
    default_port: u16,
    findings: &mut ProblemCollector,
) -> Option<RedisUrl> {
    let text = overrides.redis_url.as_ref().or(raw.url.as_ref().map(|url| &url.value))?;
    match url::parse(text, default_port) {
        Ok(url) => Some(url),
        Err((message, help)) => {
            add_to_url(raw, overrides, &message, &help, findings);
            None
        }
    }
}

/// Reports a problem with the URL at the position where it was given: the file or the flag.
fn add_to_url(raw: &RawRedis, overrides: &Overrides, message: &str, help: &str, findings: &mut ProblemCollector) {
    match (&overrides.redis_url, &raw.url) {
        (None, Some(url)) => findings.add(url.place, message, help),
        _ => findings.add_problem(ConfigProblem::without_line(URL_FLAG, message, help)),
    }
}

/// Returns all addresses. The address of the URL is the first.
fn addresses(
    raw: &RawRedis,
    url: Option<&RedisUrl>,
    mode: RawMode,
    default_port: u16,
    findings: &mut ProblemCollector,
) -> Vec<Address> {
    let mut addresses: Vec<Address> = url.map(|url| url.address.clone()).into_iter().collect();
    for written in raw.addresses.iter().flatten() {
        match url::parse_address(&written.value, default_port) {
            Ok(address) if addresses.contains(&address) => {
                findings.add(written.place, format!("the address {address} is listed twice"), "remove one of them");
            }
            Ok(_) if mode == RawMode::Single && !addresses.is_empty() => {
                let help = "set `mode: sentinel` or `mode: cluster`, or give one address only";
                findings.add(written.place, "several addresses of a single server", help);
                break;
            }
            Ok(address) => addresses.push(address),
            Err((message, help)) => findings.add(written.place, message, help),
        }
    }
    addresses
}

fn check_mode(
    raw: &RawRedis,
    mode: RawMode,
    url: Option<&RedisUrl>,
    overrides: &Overrides,
    findings: &mut ProblemCollector,
) {
    if mode == RawMode::Cluster && url.is_some_and(|url| url.database != 0) {
        let help = "remove the number at the end of the URL";
        add_to_url(raw, overrides, "a cluster has only database 0", help, findings);
    }
    let is_unix = url.is_some_and(|url| matches!(url.address, Address::Unix(_)));
    if mode != RawMode::Single && is_unix {
        let help = "set `mode: single`, or give an address";
        add_to_url(raw, overrides, "a Unix socket leads to a single server", help, findings);
    }
    match (&raw.sentinel, mode) {
        (None, RawMode::Sentinel) => {
            let place = raw.mode.as_ref().map_or(raw.place, |mode| mode.place);
            let help = "add `sentinel: {primary: NAME}`, as in `sentinel monitor NAME ...` of the Sentinels";
            findings.add(place, "`mode: sentinel` without the name of the primary", help);
        }
        (Some(sentinel), RawMode::Single | RawMode::Cluster) => {
            let help = "set `mode: sentinel`, or remove it";
            findings.add(sentinel.place, "`sentinel` has no effect in this mode", help);
        }
        _ => {}
    }
}

fn name(raw: &RawRedis, findings: &mut ProblemCollector) -> String {
    let Some(name) = &raw.name else { return DEFAULT_NAME.to_owned() };
    let is_plain = name.value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte));
    if !is_plain || name.value.len() > 64 {
        let message = format!("{} cannot be the name of a Redis", quote(&name.value));
        findings.add(name.place, message, "use up to 64 letters, digits and _ - . :");
    }
    name.value.clone()
}

fn credentials(raw: &RawCredentials, findings: &mut ProblemCollector) -> Credentials {
    let file = raw.password_file.as_ref().map(|path| PasswordSource::File(PathBuf::from(&path.value)));
    let environment = raw.password_env.as_ref().map(|name| PasswordSource::Environment(name.value.clone()));
    if let (Some(_), Some(second)) = (&raw.password_file, &raw.password_env) {
        let message = "both `password_file` and `password_env` are set";
        findings.add(second.place, message, "remove one of them");
    }
    let username = raw.username.as_ref().map(|username| username.value.clone());
    Credentials { username, password: file.or(environment) }
}

/// The password file of the flag takes precedence. The environment variable is used only if nothing
/// else configures a password.
fn node_credentials(
    raw: &RawRedis,
    url: Option<&RedisUrl>,
    overrides: &Overrides,
    findings: &mut ProblemCollector,
) -> Credentials {
    let Credentials { username, password } = credentials(&raw.credentials, findings);
    let url_username = url.and_then(|url| url.username.clone());
    let url_password = url.and_then(|url| url.password.clone());
    let place = raw.credentials.password_file.as_ref().or(raw.credentials.password_env.as_ref()).map(|at| at.place);
    if let (Some(_), Some(place)) = (&url_password, place) {
        findings.add(place, "there is a password in the URL too", "remove the one in the URL");
    }
    if let (Some(_), Some(second)) = (&url_username, &raw.credentials.username) {
        findings.add(second.place, "there is a user in the URL too", "remove one of them");
    }
    let flag = overrides.redis_password_file.clone().map(PasswordSource::File);
    let fallback = overrides.redis_password_env.clone().map(PasswordSource::Environment);
    Credentials {
        username: username.or(url_username),
        password: flag.or(password).or(url_password.map(PasswordSource::Inline)).or(fallback),
    }
}

fn tls(raw: Option<&Located<RawTls>>, url: Option<&RedisUrl>, findings: &mut ProblemCollector) -> Option<Tls> {
    let Some(Located { place, value: raw }) = raw else {
        return url.is_some_and(|url| url.is_tls).then(Tls::default);
    };
    if url.is_some_and(|url| !url.is_tls) {
        findings.add(*place, "`tls` has no effect with this URL", "write rediss:// for TLS, or remove `tls`");
    }
    let client = match (&raw.cert_file, &raw.key_file) {
        (Some(certificate), Some(key)) => Some((PathBuf::from(&certificate.value), PathBuf::from(&key.value))),
        (None, None) => None,
        (Some(alone), None) | (None, Some(alone)) => {
            findings.add(alone.place, "one of `cert_file` and `key_file` without the other", "give both or neither");
            None
        }
    };
    Some(Tls {
        ca_file: raw.ca_file.as_ref().map(|path| PathBuf::from(&path.value)),
        client,
        server_name: raw.server_name.as_ref().map(|name| name.value.clone()),
    })
}

fn scan_config(raw: Option<&RawScan>, findings: &mut ProblemCollector) -> ScanConfig {
    let mut scan = ScanConfig::default();
    let Some(raw) = raw else { return scan };
    if let Some(interval) = within("interval", raw.interval.as_ref(), INTERVALS, findings) {
        scan.interval = interval;
    }
    if let Some(interval) = within("watched_interval", raw.watched_interval.as_ref(), INTERVALS, findings) {
        scan.watched_interval = interval;
    }
    if let Some(share) = &raw.max_redis_share {
        scan.max_redis_share = share.value;
    }
    if let Some(from) = &raw.from {
        scan.from = from.value;
    }
    scan
}

fn watch_config(raw: Option<&RawWatch>) -> WatchConfig {
    let mut watch = WatchConfig::default();
    let Some(raw) = raw else { return watch };
    if let Some(enabled) = &raw.enabled {
        watch.enabled = enabled.value;
    }
    if let Some(max) = &raw.max_reads_per_second {
        watch.max_reads_per_second = u32::try_from(max.value).unwrap_or(u32::MAX);
    }
    watch
}

fn within(
    field: &str,
    written: Option<&Located<Duration>>,
    (shortest, longest): (Duration, Duration),
    findings: &mut ProblemCollector,
) -> Option<Duration> {
    let written = written?;
    if !(shortest..=longest).contains(&written.value) {
        let message = format!("`{field}` is out of range: {}", format_duration(written.value));
        let (shortest, longest) = (format_duration(shortest), format_duration(longest));
        findings.add(written.place, message, format!("give a duration from {shortest} to {longest}"));
    }
    Some(written.value)
}
