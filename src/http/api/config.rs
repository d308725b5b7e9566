//! The JSON of `/api/v1/config`: the configuration in effect, with presets and flags, without
//! secrets.
//!
//! `http::api` calls [`body`]. The fields are listed one by one, so that a new field of the
//! configuration is hidden until a developer adds it here. Passwords are not shown, only where they
//! come from. URLs are not shown, because the program does not keep them.

use serde_json::{Value, json};

use super::namespaces::policy;
use crate::config::redis::{Credentials, PasswordSource, RedisConfig, RedisMode, ScanFrom, Tls};
use crate::config::{Config, JournalConfig, LogKind, LogSource, Push, StartAt};

pub(in crate::http) fn body(config: &Config) -> String {
    let namespaces = config.namespaces.iter().map(|namespace| {
        let mut policy = policy(namespace);
        policy["lock_namespace"] = namespace.name.as_str().into();
        policy["components"] = namespace.components.clone().into();
        policy
    });
    json!({
        "presets": config.presets,
        "logs": config.logs.iter().map(log).collect::<Vec<_>>(),
        "redis": config.redis.as_ref().map(redis),
        "state_dir": config.state_dir,
        "join_window_seconds": config.join_window.as_secs_f64(),
        "rules": config.n_rules,
        "namespaces": namespaces.collect::<Vec<_>>(),
    })
    .to_string()
}

fn log(source: &LogSource) -> Value {
    let start_at = match source.start_at {
        StartAt::End => "end",
        StartAt::Beginning => "beginning",
    };
    let mut shown = json!({ "name": source.name, "start_at": start_at, "max_line_bytes": source.max_line_bytes });
    match &source.kind {
        LogKind::Files | LogKind::Stdin => shown["path"] = source.name.as_str().into(),
        LogKind::Journal(JournalConfig { matches, directory }) => {
            shown["journal"] = json!({ "matches": **matches, "directory": directory });
        }
        LogKind::Push(Push { max_request_bytes }) => {
            shown["push"] = json!({ "max_request_bytes": max_request_bytes });
        }
    }
    shown
}

fn redis(redis: &RedisConfig) -> Value {
    let (mode, sentinel) = match &redis.mode {
        RedisMode::Single => ("single", Value::Null),
        RedisMode::Cluster => ("cluster", Value::Null),
        RedisMode::Sentinel { primary, credentials } => {
            let Credentials { username, password } = credentials;
            let sentinel = json!({ "primary": primary, "username": username, "password": secret(password.as_ref()) });
            ("sentinel", sentinel)
        }
    };
    let from = match redis.scan.from {
        ScanFrom::Primary => "primary",
        ScanFrom::Replica => "replica",
    };
    json!({
        "name": redis.name,
        "mode": mode,
        "sentinel": sentinel,
        "addresses": redis.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "database": redis.database,
        "username": redis.credentials.username,
        "password": secret(redis.credentials.password.as_ref()),
        "tls": redis.tls.as_ref().map(tls),
        "connect_timeout_seconds": redis.connect_timeout.as_secs_f64(),
        "response_timeout_seconds": redis.response_timeout.as_secs_f64(),
        "max_tracked_locks": redis.max_tracked_locks,
        "scan": {
            "interval_seconds": redis.scan.interval.as_secs_f64(),
            "watched_interval_seconds": redis.scan.watched_interval.as_secs_f64(),
            "max_redis_share": redis.scan.max_redis_share,
            "from": from,
        },
        "watch": {
            "enabled": redis.watch.enabled,
            "max_reads_per_second": redis.watch.max_reads_per_second,
        },
    })
}

/// Describes where the password comes from.
fn secret(password: Option<&PasswordSource>) -> Option<String> {
    Some(match password? {
        PasswordSource::Inline(_) => "hidden".to_owned(),
        PasswordSource::File(path) => format!("in the file {}", path.display()),
        PasswordSource::Environment(name) => format!("in the environment variable {name}"),
    })
}

fn tls(tls: &Tls) -> Value {
    let Tls { ca_file, client, server_name } = tls;
    json!({
        "ca_file": ca_file,
        "client_certificate_file": client.as_ref().map(|(certificate, _)| certificate),
        "client_key_file": client.as_ref().map(|(_, key)| key),
        "server_name": server_name,
    })
}
