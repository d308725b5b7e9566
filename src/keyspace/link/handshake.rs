//! Sets up a connection: checks permissions, identifies the server and turns on tracking.
//!
//! `link::run` calls [`shake_hands`] for each connection. Missing permissions and missing RESP3 are not
//! errors: they become complaints, and the link works without the denied feature.

use redis::Value;

use super::identity::ServerIdentity;
use super::key_catalog::KeyCatalog;
use super::permissions::{self, Permissions};
use super::{Link, LinkError};
use crate::config::redis::RedisMode;
use crate::keyspace::connect::{RedisTarget, connect};
use crate::keyspace::status::Command;
use crate::keyspace::wire::{Wire, WireError};
use crate::util::clock;
use crate::util::clock::TimeMs;

/// A connection that is ready for a session.
pub(super) struct Handshake {
    pub(super) wire: Wire,
    pub(super) keys: KeyCatalog,
    pub(super) permissions: Permissions,
    pub(super) identity: ServerIdentity,
    /// When tracking was requested. `None` if changes are not pushed.
    pub(super) tracked_since: Option<TimeMs>,
}

pub(super) async fn shake_hands(link: &mut Link) -> Result<Handshake, LinkError> {
    let shared = link.shared.clone();
    let mut wire = connect(&RedisTarget::node(&shared.config, &link.address)).await?;
    link.totals.count_commands(Command::Hello, 1);
    let keys = KeyCatalog::new(shared.keys.clone(), shared.namespaces.clone());
    let user = shared.config.credentials.username.as_deref().unwrap_or("default");
    let mut probed: Vec<&str> = keys.prefixes().collect();
    if keys.has_others() {
        probed.push("");
    }
    let mut permissions = permissions::check(&mut wire, &probed, user, &mut link.totals).await?;

    let mut identity = ServerIdentity::default();
    if permissions.allow(Command::Info) {
        link.totals.count_commands(Command::Info, 2);
        let server = wire.ask(&[b"INFO", b"server"]).await?;
        let replication = wire.ask(&[b"INFO", b"replication"]).await?;
        identity = ServerIdentity::read(&server, &replication);
        if !identity.is_primary() {
            match shared.config.mode {
                RedisMode::Single => permissions.complain(format!(
                    "{} is a replica: what it shows is late, and lost at a failover; give the primary's address",
                    link.address
                )),
                RedisMode::Sentinel { .. } | RedisMode::Cluster => {
                    return Err(LinkError::NotAPrimary(link.address.clone()));
                }
            }
        }
    }
    link.totals.count_commands(Command::ClientNoTouch, 1);
    leave_no_trace(&mut wire).await?;
    // This is the last request of the setup. The session handles every push after its reply.
    let mut tracked_since = None;
    if shared.config.watch.enabled && !probed.is_empty() {
        tracked_since = enable_tracking(&mut wire, &keys, user, &mut permissions).await?;
        link.totals.count_commands(Command::ClientTracking, u64::from(wire.is_resp3()));
    }
    Ok(Handshake { wire, keys, permissions, identity, tracked_since })
}

/// Makes reads of this connection count as no use of the keys, so that Redis evicts the same keys as
/// without the exporter. Servers before Redis 7.2 do not know the command, and a user who may not
/// use it loses nothing else: errors are ignored.
pub(super) async fn leave_no_trace(wire: &mut Wire) -> Result<(), WireError> {
    wire.ask(&[b"CLIENT", b"NO-TOUCH", b"ON"]).await?;
    Ok(())
}

async fn enable_tracking(
    wire: &mut Wire,
    keys: &KeyCatalog,
    user: &str,
    permissions: &mut Permissions,
) -> Result<Option<TimeMs>, WireError> {
    let loss = "changes between two passes are not seen";
    if !wire.is_resp3() {
        let address = wire.address();
        permissions.complain(format!("{address} does not speak RESP3 with user {user}: {loss}; allow HELLO"));
        return Ok(None);
    }
    let mut parts: Vec<&[u8]> = vec![b"CLIENT", b"TRACKING", b"ON", b"BCAST", b"NOLOOP"];
    for prefix in keys.prefixes() {
        parts.extend([b"PREFIX".as_slice(), prefix.as_bytes()]);
    }
    if parts.len() == 5 {
        let complaint = format!("all key templates begin with a field, so that no prefix can be watched: {loss}");
        permissions.complain(complaint);
        return Ok(None);
    }
    let sent = clock::steady();
    match wire.ask(&parts).await? {
        Value::ServerError(error) => {
            let (code, details) = (error.code(), error.details().unwrap_or_default());
            let fix = if code == "NOPERM" { "; add +client|tracking" } else { "" };
            let complaint = format!("user {user} cannot use CLIENT TRACKING ({code} {details}): {loss}{fix}");
            permissions.deny(Command::ClientTracking, complaint);
            Ok(None)
        }
        _ => Ok(Some(sent)),
    }
}
