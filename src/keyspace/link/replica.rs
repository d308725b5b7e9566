//! The optional connection to a replica, which passes use instead of the primary. `session` owns it.
//!
//! The connection is set up in its own task when a pass is due. If no replica can be connected, that
//! pass uses the primary, and the next pass tries again.

use std::sync::Arc;

use redis::Value;
use tokio_util::task::AbortOnDropHandle;

use super::connection::Connection;
use super::handshake;
use crate::config::redis::Address;
use crate::keyspace::Shared;
use crate::keyspace::connect::{ConnectError, RedisTarget, connect};
use crate::keyspace::wire::{Wire, WireError};
use crate::util::clock;

pub(super) struct ReplicaConnection {
    state: ReplicaState,
    has_failed: bool,
}

enum ReplicaState {
    Absent,
    Connecting(AbortOnDropHandle<Result<Wire, ConnectError>>),
    Connected(Box<Connection>),
    /// No replica could be connected for the pass that is due.
    Failed,
}

/// What happened on the connection.
pub(super) enum ReplicaEvent {
    Connected,
    NotConnected(ConnectError),
    Received(Value),
    Lost(WireError),
}

impl ReplicaConnection {
    pub(super) fn new() -> Self {
        Self { state: ReplicaState::Absent, has_failed: false }
    }

    pub(super) fn connection(&self) -> Option<&Connection> {
        match &self.state {
            ReplicaState::Connected(connection) => Some(connection),
            _ => None,
        }
    }

    pub(super) fn connection_mut(&mut self) -> Option<&mut Connection> {
        match &mut self.state {
            ReplicaState::Connected(connection) => Some(connection),
            _ => None,
        }
    }

    pub(super) fn is_connecting(&self) -> bool {
        matches!(self.state, ReplicaState::Connecting(_))
    }

    /// Prepares a pass. Returns whether it may start now, on the replica or on the primary. If not,
    /// one of the replicas is being connected first.
    pub(super) fn prepare_pass(&mut self, shared: &Arc<Shared>, replicas: Vec<Address>) -> bool {
        match self.state {
            ReplicaState::Connected(_) => true,
            ReplicaState::Connecting(_) => false,
            ReplicaState::Absent if !replicas.is_empty() => {
                let task = tokio::spawn(connect_any(Arc::clone(shared), replicas));
                self.state = ReplicaState::Connecting(AbortOnDropHandle::new(task));
                false
            }
            ReplicaState::Absent | ReplicaState::Failed => {
                self.state = ReplicaState::Absent;
                true
            }
        }
    }

    /// Waits for the next event. Cancel-safe.
    pub(super) async fn next(&mut self) -> ReplicaEvent {
        match &mut self.state {
            ReplicaState::Connected(connection) => match connection.next().await {
                Ok(value) => return ReplicaEvent::Received(value),
                Err(error) => return ReplicaEvent::Lost(error),
            },
            ReplicaState::Connecting(task) => match task.await {
                Ok(Ok(wire)) => {
                    let connection = Connection::new(wire, clock::steady());
                    self.state = ReplicaState::Connected(Box::new(connection));
                    return ReplicaEvent::Connected;
                }
                Ok(Err(error)) => {
                    self.state = ReplicaState::Failed;
                    return ReplicaEvent::NotConnected(error);
                }
                // After a panic of the task, the session connects again at its next wakeup.
                Err(_) => self.state = ReplicaState::Absent,
            },
            ReplicaState::Absent | ReplicaState::Failed => {}
        }
        std::future::pending().await
    }

    /// Removes a connection that is unusable.
    pub(super) fn remove(&mut self) -> Option<Connection> {
        match std::mem::replace(&mut self.state, ReplicaState::Absent) {
            ReplicaState::Connected(connection) => Some(*connection),
            _ => None,
        }
    }

    /// Whether this is the first failure on this connection to the primary. Later ones are not
    /// logged.
    pub(super) fn is_first_failure(&mut self) -> bool {
        !std::mem::replace(&mut self.has_failed, true)
    }
}

/// Connects to the first replica that answers.
async fn connect_any(shared: Arc<Shared>, replicas: Vec<Address>) -> Result<Wire, ConnectError> {
    let mut failed = None;
    for address in &replicas {
        match connect_replica(&RedisTarget::node(&shared.config, address)).await {
            Ok(wire) => return Ok(wire),
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) => Err(error),
        // Unreachable: there is at least one replica.
        None => std::future::pending().await,
    }
}

async fn connect_replica(target: &RedisTarget<'_>) -> Result<Wire, ConnectError> {
    let mut wire = connect(target).await?;
    // Refused outside a cluster, where it is not needed.
    wire.ask(&[b"READONLY"]).await?;
    handshake::leave_no_trace(&mut wire).await?;
    Ok(wire)
}
