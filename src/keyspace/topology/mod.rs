//! Finds the primaries: Sentinels or cluster nodes report them, or the configuration names one.
//!
//! The supervisor calls [`discover`] repeatedly. It trusts no single answer: a server that a
//! Sentinel names as the primary is asked for its role, and for a cluster the view that two nodes
//! share wins. In reading order:
//!
//! * this file: one discovery
//! * `sentinel`: asks Sentinels
//! * `cluster`: asks the nodes of a cluster
//! * `slots`: the hash slot of a key

mod cluster;
mod sentinel;
pub(super) mod slots;

use std::sync::Arc;

use redis::Value;

use super::connect::ConnectError;
use super::status::LinkTotals;
use super::wire::WireError;
use crate::config::redis::{Address, RedisConfig, RedisMode};

/// A primary with its replicas and, in a cluster, its slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Primary {
    pub(super) address: Address,
    pub(super) replicas: Vec<Address>,
    /// First and last slot of each range, in a cluster. Otherwise empty: the node has all keys.
    pub(super) slots: Vec<(u16, u16)>,
}

impl Primary {
    pub(super) fn has_slot(&self, slot: u16) -> bool {
        self.slots.is_empty() || self.slots.iter().any(|(first, last)| (*first..=*last).contains(&slot))
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum DiscoverError {
    #[error("the Sentinel {sentinel} does not know a primary {primary:?}: check `sentinel.primary`")]
    UnknownPrimary { sentinel: Address, primary: String },
    #[error("{0} is named as the primary by a Sentinel but says that it is none")]
    NotAPrimary(Address),
    #[error("{address} refused {command}: {answer}")]
    Refused { address: Address, command: &'static str, answer: String },
    #[error("{address} answered {command} with something unexpected")]
    Unexpected { address: Address, command: &'static str },
    #[error("{0} is a node of a cluster without any slots")]
    NoSlots(Address),
    #[error("no address to ask")]
    NoAddress,
    #[error("asking a node of the cluster failed")]
    Failed(#[source] tokio::task::JoinError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Wire(#[from] WireError),
}

/// Finds the primaries. `known` are the nodes of the last discovery. Counts its commands and
/// connection errors in `totals`.
pub(super) async fn discover(
    config: &Arc<RedisConfig>,
    known: &[Primary],
    totals: &mut LinkTotals,
) -> Result<Vec<Primary>, DiscoverError> {
    match &config.mode {
        RedisMode::Single => {
            let address = config.addresses.first().cloned().ok_or(DiscoverError::NoAddress)?;
            Ok(vec![Primary { address, replicas: Vec::new(), slots: Vec::new() }])
        }
        RedisMode::Sentinel { primary, credentials } => {
            let node = sentinel::discover(config, primary, credentials, totals).await?;
            Ok(vec![node])
        }
        RedisMode::Cluster => cluster::discover(config, known, totals).await,
    }
}

/// Turns an error reply into an error.
fn accept(address: &Address, command: &'static str, answer: Value) -> Result<Value, DiscoverError> {
    let Value::ServerError(error) = answer else { return Ok(answer) };
    let answer = format!("{} {}", error.code(), error.details().unwrap_or_default()).trim_end().to_owned();
    Err(DiscoverError::Refused { address: address.clone(), command, answer })
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

/// A port is an integer in one reply and a string in another.
fn port(value: &Value) -> Option<u16> {
    match value {
        Value::Int(number) => u16::try_from(*number).ok(),
        value => text(value)?.parse().ok(),
    }
}

fn items(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(items) => Some(items),
        _ => None,
    }
}
