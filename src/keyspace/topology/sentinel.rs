//! Finds the primary and its replicas by asking Sentinels.
//!
//! `topology::discover` calls it. A Sentinel may be down or may name an outdated primary, so the
//! named server is asked for its role. A server that cannot be asked is used only if no other one
//! confirms its role.

use std::sync::Arc;

use redis::Value;

use super::{DiscoverError, Primary, accept, items, port, text};
use crate::config::redis::{Address, Credentials, RedisConfig};
use crate::keyspace::connect::{RedisTarget, connect};
use crate::keyspace::status::{Command, LinkTotals};

/// Asks the Sentinels in turn until one names a primary that confirms its role.
pub(super) async fn discover(
    config: &Arc<RedisConfig>,
    primary: &str,
    credentials: &Credentials,
    totals: &mut LinkTotals,
) -> Result<Primary, DiscoverError> {
    let mut failure = DiscoverError::NoAddress;
    let mut unverified = None;
    for sentinel in &config.addresses {
        let named = match ask_sentinel(config, sentinel, primary, credentials, totals).await {
            Ok(named) => named,
            Err(error) => {
                failure = error;
                continue;
            }
        };
        match is_primary(config, &named.address, totals).await {
            Ok(true) => return Ok(named),
            Ok(false) => failure = DiscoverError::NotAPrimary(named.address),
            // The named primary may be down. The Sentinels may not have noticed, or there is no
            // replica to promote. The link keeps trying to connect.
            Err(_) => unverified = Some(named),
        }
    }
    unverified.ok_or(failure)
}

async fn ask_sentinel(
    config: &RedisConfig,
    sentinel: &Address,
    primary: &str,
    credentials: &Credentials,
    totals: &mut LinkTotals,
) -> Result<Primary, DiscoverError> {
    let target = RedisTarget { credentials, database: 0, ..RedisTarget::node(config, sentinel) };
    let connected = connect(&target).await;
    totals.count_commands(Command::Hello, 1);
    let mut wire = connected.inspect_err(|_| totals.connect_errors += 1)?;

    let question: [&[u8]; 3] = [b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", primary.as_bytes()];
    totals.count_commands(Command::Sentinel, 2);
    let answer = accept(sentinel, "SENTINEL GET-MASTER-ADDR-BY-NAME", wire.ask(&question).await?)?;
    if matches!(answer, Value::Nil) {
        return Err(DiscoverError::UnknownPrimary { sentinel: sentinel.clone(), primary: primary.to_owned() });
    }
    let address = match items(&answer) {
        Some([host, number]) => text(host).zip(port(number)),
        _ => None,
    };
    let Some((host, port)) = address else {
        let command = "SENTINEL GET-MASTER-ADDR-BY-NAME";
        return Err(DiscoverError::Unexpected { address: sentinel.clone(), command });
    };
    let address = Address::Tcp { host: host.to_owned(), port };
    // Replicas only reduce the load of the primary. Everything works without them.
    let answer = wire.ask(&[b"SENTINEL", b"REPLICAS", primary.as_bytes()]).await?;
    let replicas = items(&answer).unwrap_or_default().iter().filter_map(replica).collect();
    Ok(Primary { address, replicas, slots: Vec::new() })
}

/// Parses a replica, from a map (RESP3) or from a list of alternating names and values (RESP2).
/// Returns `None` if the replica is down.
fn replica(value: &Value) -> Option<Address> {
    let field = |name: &str| match value {
        Value::Map(entries) => {
            entries.iter().find(|(key, _)| text(key) == Some(name)).and_then(|(_, value)| text(value))
        }
        Value::Array(items) => {
            items.as_chunks::<2>().0.iter().find(|[key, _]| text(key) == Some(name)).and_then(|[_, value]| text(value))
        }
        _ => None,
    };
    let is_down = field("flags")?.split(',').any(|flag| matches!(flag, "s_down" | "o_down" | "disconnected"));
    let port = field("port")?.parse().ok()?;
    (!is_down).then(|| Address::Tcp { host: field("ip").unwrap_or_default().to_owned(), port })
}

async fn is_primary(config: &RedisConfig, address: &Address, totals: &mut LinkTotals) -> Result<bool, DiscoverError> {
    let connected = connect(&RedisTarget::node(config, address)).await;
    totals.count_commands(Command::Hello, 1);
    let mut wire = connected.inspect_err(|_| totals.connect_errors += 1)?;
    totals.count_commands(Command::Role, 1);
    let answer = accept(address, "ROLE", wire.ask(&[b"ROLE"]).await?)?;
    Ok(items(&answer).and_then(|items| items.first()).and_then(text) == Some("master"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_in_both_protocols() {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let fields = |flags: &str| {
            vec![(bulk("ip"), bulk("10.0.0.2")), (bulk("port"), bulk("6379")), (bulk("flags"), bulk(flags))]
        };
        let flat =
            |flags: &str| Value::Array(fields(flags).into_iter().flat_map(|(key, value)| [key, value]).collect());
        let expected = Some(Address::Tcp { host: "10.0.0.2".to_owned(), port: 6379 });
        assert_eq!(replica(&Value::Map(fields("slave"))), expected);
        assert_eq!(replica(&flat("slave")), expected);
        assert_eq!(replica(&flat("s_down,slave,disconnected")), None);
        assert_eq!(replica(&Value::Nil), None);
    }
}
