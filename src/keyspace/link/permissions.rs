//! Finds out what the user may do, by trying each command on keys that do not exist. `handshake`
//! calls [`check`] for each connection.
//!
//! Nothing is written. Each denied command makes results incomplete. The status explains what is
//! missing and how to allow it.

use redis::{ServerError, Value};

use super::key_read::is_denied;
use crate::keyspace::status::{Command, LinkTotals};
use crate::keyspace::wire::{Wire, WireError};
use crate::model::label::Label;

/// Appended to each prefix, to get a key that nobody uses.
const PROBE: &str = "redis_lock_exporter_probe";

/// Commands on one key, and what is missing without them.
const ABOUT_KEYS: [(Command, &str); 6] = [
    (Command::Getrange, "owners are not told apart"),
    (Command::Pttl, "these locks are not seen"),
    (Command::Type, "locks in hashes and sorted sets are not seen"),
    (Command::Hscan, "owners of locks in hashes are not told apart"),
    (Command::Hpttl, "locks in hashes whose fields have TTLs of their own look as if they had none"),
    (Command::Zrange, "owners of locks in sorted sets are not told apart"),
];

#[derive(Debug, Default)]
pub(super) struct Permissions {
    denied: Vec<Command>,
    /// Newer commands that this server does not have. Nothing is missing without them.
    unknown: Vec<Command>,
    /// One line each, with the fix.
    complaints: Vec<String>,
}

impl Permissions {
    pub(super) fn allow(&self, command: Command) -> bool {
        !self.denied.contains(&command) && !self.unknown.contains(&command)
    }

    pub(super) fn denied(&self) -> &[Command] {
        &self.denied
    }

    pub(super) fn complaints(&self) -> &[String] {
        &self.complaints
    }

    pub(super) fn complain(&mut self, complaint: String) {
        self.complaints.push(complaint);
    }

    pub(super) fn deny(&mut self, command: Command, complaint: String) {
        self.denied.push(command);
        self.complaints.push(complaint);
    }
}

/// `prefixes` are the prefixes of the keys to read. An empty one stands for any key.
pub(super) async fn check(
    wire: &mut Wire,
    prefixes: &[&str],
    user: &str,
    totals: &mut LinkTotals,
) -> Result<Permissions, WireError> {
    totals.count_commands(Command::Scan, 1);
    totals.count_commands(Command::Info, 1);
    let mut permissions = Permissions::default();
    let refused = |reply: &Value| matches!(reply, Value::ServerError(error) if is_denied(error));
    if refused(&wire.ask(&[b"SCAN", b"0", b"MATCH", PROBE.as_bytes(), b"COUNT", b"1"]).await?) {
        let complaint = format!("user {user} may not SCAN: locks are only seen when they change; add +scan");
        permissions.deny(Command::Scan, complaint);
    }
    if refused(&wire.ask(&[b"INFO", b"server"]).await?) {
        let loss = "restarts look like lost connections, and evicted locks like released ones";
        let complaint = format!("user {user} may not use INFO: {loss}; add +info");
        permissions.deny(Command::Info, complaint);
    }
    for (command, loss) in ABOUT_KEYS {
        let mut denied: Vec<String> = Vec::new();
        totals.count_commands(command, prefixes.len() as u64);
        for prefix in prefixes {
            let key = format!("{prefix}{PROBE}");
            match wire.ask(&question(command, key.as_bytes())).await? {
                Value::ServerError(error) if is_denied(&error) => denied.push(format!("{prefix}*")),
                Value::ServerError(error) if is_unknown(&error) => permissions.unknown.push(command),
                _ => {}
            }
        }
        if !denied.is_empty() {
            let patterns: Vec<String> = denied.iter().map(|pattern| format!("%R~{pattern}")).collect();
            let (upper, lower) = (command.as_str().to_ascii_uppercase(), command.as_str());
            let (keys, patterns) = (denied.join(", "), patterns.join(" "));
            let complaint = format!("user {user} may not {upper} keys under {keys}: {loss}; add +{lower} {patterns}");
            permissions.deny(command, complaint);
        }
    }
    Ok(permissions)
}

fn is_unknown(error: &ServerError) -> bool {
    error.details().is_some_and(|details| details.starts_with("unknown command"))
}

fn question(command: Command, key: &[u8]) -> Vec<&[u8]> {
    match command {
        Command::Getrange => vec![b"GETRANGE", key, b"0", b"0"],
        Command::Hscan => vec![b"HSCAN", key, b"0", b"COUNT", b"1"],
        Command::Hpttl => vec![b"HPTTL", key, b"FIELDS", b"1", b"a"],
        Command::Zrange => vec![b"ZRANGE", key, b"0", b"0"],
        Command::Type => vec![b"TYPE", key],
        _ => vec![b"PTTL", key],
    }
}
