//! One link: watches and scans the keys of one primary over one connection, forever.
//!
//! `keyspace::supervisor` starts one for each primary. One connection does everything (pushes,
//! passes, reads), because only the order of its stream shows which change a read includes. Passes
//! may use a second connection, to a replica. When a connection ends, the link connects again: at
//! least once a second if the server was connected before, otherwise after a growing delay. A link never writes to Redis and never waits for the pipeline. In reading
//! order:
//!
//! * this file: connects, runs a session, connects again
//! * `handshake`: sets up a new connection; `identity`: which server answers; `permissions`: what
//!   the user may do
//! * `session`: the task on one connection: waits, sends requests, handles replies and pushes
//! * `connection`: pending requests on one connection; `replica`: the second connection, if any
//! * `reply_order`: which replies and pushes share one event-loop turn
//! * `read_queue`: keys to read; `key_read`: how a key is read; `owner`: from a value to the
//!   owner's hash
//! * `scanner`: passes over the keys; `pace`: how fast passes and reads may go
//! * `key_catalog`: what is known about keys by prefix
//! * `watch_progress`: up to when all changes are reported, and which were skipped
//! * `server_monitor`: the state of the server; `evictions`: keys that Redis deletes to free memory
//! * `outbox`: events for the pipeline, in order

mod connection;
mod evictions;
mod handshake;
mod identity;
mod key_catalog;
mod key_read;
mod outbox;
mod owner;
mod pace;
mod permissions;
mod read_queue;
mod replica;
mod reply_order;
mod scanner;
mod server_monitor;
mod session;
#[cfg(test)]
mod tests;
mod watch_progress;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::identity::ServerIdentity;
use self::outbox::Outbox;
use self::session::Session;
use super::connect::ConnectError;
use super::status::{LinkStatus, LinkTotals};
use super::wire::WireError;
use super::{LinkSetup, RETRY_KNOWN_WITHIN, Shared};
use crate::config::redis::Address;
use crate::model::sighting::{LinkEvent, ServerContinuity};
use crate::util::backoff::Backoff;
use crate::util::clock;

/// A connection that lasted this long resets the backoff.
const GOOD_CONNECTION: Duration = Duration::from_secs(5);

/// State that outlives a connection.
struct Link {
    address: Address,
    replicas: watch::Receiver<Vec<Address>>,
    shared: Arc<Shared>,
    reads: mpsc::Receiver<Vec<Box<str>>>,
    status: Arc<Mutex<LinkStatus>>,
    totals: LinkTotals,
    outbox: Outbox,
    /// The server of the last connection. `None` before the first connection.
    last: Option<ServerIdentity>,
    /// What the first `Up` event says.
    first_continuity: ServerContinuity,
}

/// Why a connection ended or could not be set up.
#[derive(Debug, thiserror::Error)]
enum LinkError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("{0} is not a primary")]
    NotAPrimary(Address),
    #[error("{0} has changed its role or replication id")]
    Changed(Address),
}

impl LinkError {
    /// Whether the server answers and refuses the login. Waiting does not help, so there is no
    /// hurry.
    fn is_refusal(&self) -> bool {
        matches!(self, Self::Connect(ConnectError::Refused { .. }))
    }
}

pub(super) async fn run(setup: LinkSetup, stop: CancellationToken) {
    let LinkSetup { id, node, replicas, continuity, shared, reads, status } = setup;
    let outbox = Outbox::new(id, shared.out.clone());
    let mut link = Link {
        address: node.address,
        replicas,
        shared,
        reads,
        status,
        totals: LinkTotals::default(),
        outbox,
        last: None,
        first_continuity: continuity,
    };
    let mut backoff = Backoff::new();
    let mut is_first_failure = true;
    loop {
        let connected = tokio::select! {
            connected = handshake::shake_hands(&mut link) => connected,
            () = stop.cancelled() => return,
        };
        let error = match connected {
            Ok(handshake) => {
                is_first_failure = true;
                let began = Instant::now();
                let Some(error) = link.live(handshake, &stop).await else { return };
                if began.elapsed() >= GOOD_CONNECTION {
                    backoff.reset();
                }
                error
            }
            Err(error) => {
                link.totals.connect_errors += 1;
                error
            }
        };
        let pause = if link.last.is_some() && !error.is_refusal() {
            backoff.next_up_to(RETRY_KNOWN_WITHIN)
        } else {
            backoff.next()
        };
        let error = format!("{:#}", anyhow::Error::from(error));
        link.show(|status| {
            status.progress = None;
            status.complaints = vec![format!("no connection to {}: {error}", link.address)];
        });
        link.shared.rediscover.notify_one();
        if is_first_failure {
            warn!(address = %link.address, error, "no connection to redis, trying again");
            is_first_failure = false;
        }
        tokio::select! {
            () = sleep(pause) => {}
            () = stop.cancelled() => return,
        }
    }
}

impl Link {
    /// Runs a session until the connection ends. Returns `None` if the link was stopped.
    async fn live(&mut self, handshake: handshake::Handshake, stop: &CancellationToken) -> Option<LinkError> {
        let past = self.continuity(&handshake.identity);
        let watching = handshake.tracked_since.is_some();
        info!(address = %self.address, watching, "connected to redis");
        self.totals.connects += 1;
        self.totals.failovers += u64::from(past == ServerContinuity::OtherServer);
        self.last = Some(handshake.identity.clone());
        self.outbox.add(LinkEvent::Up { at: clock::steady(), watching, past });
        let permissions = &handshake.permissions;
        let (denied, complaints) = (permissions.denied().to_vec(), permissions.complaints().to_vec());
        self.show(|status| {
            (status.up, status.tracking, status.denied, status.complaints) = (true, watching, denied, complaints)
        });
        // Requests from before the connection are outdated. The ledger repeats those that still
        // matter.
        while self.reads.try_recv().is_ok() {}
        let ended = Session::new(self, handshake).run(stop).await;
        self.outbox.release_held();
        self.outbox.add(LinkEvent::Down { at: clock::steady() });
        self.outbox.flush();
        self.show(|status| (status.up, status.tracking) = (false, false));
        ended.err()
    }

    fn continuity(&self, now: &ServerIdentity) -> ServerContinuity {
        match &self.last {
            None => self.first_continuity,
            Some(last) if now.replaces(last) => ServerContinuity::OtherServer,
            Some(_) => ServerContinuity::SameServer,
        }
    }

    /// Updates the published status: copies the totals and applies `change`.
    fn show(&self, change: impl FnOnce(&mut LinkStatus)) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.totals = self.totals.clone();
        change(&mut status);
    }
}
