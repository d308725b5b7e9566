//! A session on one connection: a single task that sends requests when they are due, handles
//! replies and pushes, and sends events to the pipeline.
//!
//! `link::run` starts it. [`super::questions`] decides what to send, and [`super::answers`] handles
//! replies and pushes. All data that has been received is handled in one turn, with one receive
//! time. An error of the main connection ends the session. An error of the replica connection only
//! fails the current pass.

use std::time::Duration;

use redis::Value;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

use super::connection::{Connection, ResponseTime};
use super::evictions::Evictions;
use super::handshake::Handshake;
use super::identity::Replication;
use super::key_catalog::KeyCatalog;
use super::pace::Allowance;
use super::permissions::Permissions;
use super::read_queue::{ReadQueue, ReadReason};
use super::scanner::Scanner;
use super::watch_progress::WatchProgress;
use super::{Link, LinkError};
use crate::keyspace::connect::ConnectError;
use crate::keyspace::status::Command;
use crate::keyspace::wire::{Wire, WireError};
use crate::util::clock;

/// Maximum number of keys requested by the ledger that wait to be read. The ledger asks again for
/// dropped keys.
const MAX_REQUESTED: usize = 65_536;

pub(super) struct Session<'a> {
    pub(super) link: &'a mut Link,
    pub(super) main: Connection,
    /// Used for `SCAN` if configured, and also for reads if changes are not watched.
    pub(super) replica: Option<Connection>,
    pub(super) connecting: Option<AbortOnDropHandle<Result<Wire, ConnectError>>>,
    /// No replica could be connected for the pass that is due.
    pub(super) without_replica: bool,
    pub(super) watch: WatchProgress,
    pub(super) prefixes: KeyCatalog,
    pub(super) permissions: Permissions,
    pub(super) replication: Replication,
    pub(super) evictions: Evictions,
    pub(super) inbox: ReadQueue,
    pub(super) allowance: Allowance,
    pub(super) scanner: Scanner,
    replica_failed: bool,
    pub(super) next_info: Instant,
    /// The server changed its role or its replication history.
    pub(super) has_changed: bool,
}

/// Identifies one of the two connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionRole {
    Main,
    Replica,
}

impl<'a> Session<'a> {
    pub(super) fn new(link: &'a mut Link, arrival: Handshake) -> Self {
        let Handshake { wire, prefixes, permissions, identity, armed } = arrival;
        let now = Instant::now();
        let config = &link.shared.config;
        let all_watched = armed.is_some() && !prefixes.has_others();
        let interval = if all_watched { config.scan.watched_interval } else { config.scan.interval };
        link.show(|status| status.scan_interval = Some(interval));
        let reads_per_second = config.watch.max_reads_per_second;
        Self {
            main: Connection::new(wire, armed.unwrap_or_else(clock::steady)),
            replica: None,
            connecting: None,
            without_replica: false,
            watch: WatchProgress::new(armed.is_some()),
            prefixes,
            permissions,
            replication: identity.replication,
            evictions: Evictions::new(armed.is_some()),
            // Pushed keys for one second of reads may wait.
            inbox: ReadQueue::new(reads_per_second as usize),
            allowance: Allowance::new(reads_per_second, now),
            scanner: Scanner::new(
                link.shared.keys.scan_pattern(),
                interval,
                config.scan.interval,
                config.scan.max_redis_share,
                now,
            ),
            replica_failed: false,
            next_info: now,
            has_changed: false,
            link,
        }
    }

    /// Runs until the connection ends (an error) or the link is stopped.
    pub(super) async fn run(mut self, stop: &CancellationToken) -> Result<(), LinkError> {
        loop {
            self.ask_what_is_due(Instant::now());
            self.link.teller.tell();
            let wake = self.wake();
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                received = self.main.wire.next() => self.turn(ConnectionRole::Main, received?)?,
                received = next_of(&mut self.replica) => match received {
                    Ok(value) => self.replica_turn(value),
                    Err(error) => self.lose_replica(error),
                },
                connected = connected(&mut self.connecting) => self.take_replica(connected),
                () = self.link.teller.room(), if self.link.teller.is_waiting() => {}
                Some(keys) = self.link.reads.recv() => self.want(keys),
                () = sleep_until(wake) => self.look_for_silence().await?,
            }
            if self.has_changed {
                return Err(LinkError::Changed(self.link.address.clone()));
            }
        }
    }

    /// Handles a reply or push and everything else that has already been received.
    fn turn(&mut self, side: ConnectionRole, first: Value) -> Result<(), WireError> {
        let (now, received) = (Instant::now(), clock::steady() + 1);
        let Some(lane) = self.lane(side) else { return Ok(()) };
        let is_reply = |value: &Value| !matches!(value, Value::Push { .. });
        let mut time = if is_reply(&first) { lane.response_time(now) } else { None };
        let mut work = self.take(side, first, received);
        while let Some(lane) = self.lane(side)
            && let Some(value) = lane.wire.next_received()?
        {
            if time.is_none() && is_reply(&value) {
                time = lane.response_time(now);
            }
            work.add(self.take(side, value, received));
        }
        if let Some(time) = time {
            if let ResponseTime::Alone(took) = time {
                self.link.totals.reply_seconds.observe(took.as_secs_f64());
            }
            self.link.totals.busy_seconds += self.scanner.record(time, work, now).as_secs_f64();
        }
        self.tell_progress(now);
        Ok(())
    }

    /// Reports after a turn how far the pass is and up to which time all changes are reported.
    fn tell_progress(&mut self, now: Instant) {
        self.finish_pass(now);
        // While events wait for the pipeline, skipped changes add up here.
        if !self.link.teller.is_waiting() {
            self.link.teller.extend(self.watch.take_skipped());
        }
        let caught_up = self.main.order.caught_up();
        let progress = self.watch.advance(caught_up, || self.inbox.told_up_to(caught_up));
        self.link.teller.extend(progress);
        let progress = self.scanner.progress();
        self.link.show(|status| status.progress = progress);
    }

    fn replica_turn(&mut self, value: Value) {
        if let Err(error) = self.turn(ConnectionRole::Replica, value) {
            self.lose_replica(error);
        }
    }

    fn lose_replica(&mut self, error: WireError) {
        self.warn_of_replica(anyhow::Error::from(error), "lost the replica that is scanned");
        if let Some(lane) = self.replica.take() {
            lane.abandoned().for_each(|ticket| self.inbox.put_back(ticket));
        }
        self.fail_pass(Instant::now());
    }

    fn take_replica(&mut self, connected: Result<Wire, ConnectError>) {
        self.connecting = None;
        match connected {
            Ok(wire) => {
                self.link.totals.count_commands(Command::Hello, 1);
                self.link.totals.count_commands(Command::Readonly, 1);
                self.replica = Some(Connection::new(wire, clock::steady()));
            }
            Err(error) => {
                self.warn_of_replica(anyhow::Error::from(error), "cannot scan a replica, scanning the primary");
                self.without_replica = true;
            }
        }
    }

    /// Logs once for each connection to the primary. The replica is tried again with each pass.
    fn warn_of_replica(&mut self, error: anyhow::Error, what: &str) {
        if !std::mem::replace(&mut self.replica_failed, true) {
            warn!(address = %self.link.address, error = format!("{error:#}"), "{what}");
        }
    }

    fn want(&mut self, keys: Vec<Box<str>>) {
        for key in keys {
            if self.inbox.waiting(ReadReason::Requested) < MAX_REQUESTED {
                self.inbox.want(key, ReadReason::Requested);
            }
        }
    }

    /// A server that does not answer within the response timeout counts as gone.
    async fn look_for_silence(&mut self) -> Result<(), WireError> {
        let after = self.link.shared.config.response_timeout;
        let is_silent = |lane: &Connection| lane.deadline(after).is_some_and(|deadline| deadline <= Instant::now());
        if is_silent(&self.main) {
            // The reply may have arrived while this task was not running.
            match timeout(Duration::ZERO, self.main.wire.next()).await {
                Ok(received) => self.turn(ConnectionRole::Main, received?)?,
                Err(_) => {
                    self.link.totals.reply_seconds.observe(after.as_secs_f64());
                    return Err(self.main.timed_out(after));
                }
            }
        }
        if let Some(lane) = &self.replica
            && is_silent(lane)
        {
            let error = lane.timed_out(after);
            self.lose_replica(error);
        }
        Ok(())
    }

    pub(super) fn lane(&mut self, side: ConnectionRole) -> Option<&mut Connection> {
        match side {
            ConnectionRole::Main => Some(&mut self.main),
            ConnectionRole::Replica => self.replica.as_mut(),
        }
    }

    pub(super) fn may_scan(&self) -> bool {
        self.permissions.allow(Command::Scan)
    }
}

/// The requests whose replies were handled in one turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    pub(super) steps: u32,
    pub(super) reads: u32,
    pub(super) scanned_reads: u32,
}

impl Work {
    fn add(&mut self, more: Self) {
        self.steps += more.steps;
        self.reads += more.reads;
        self.scanned_reads += more.scanned_reads;
    }
}

async fn next_of(lane: &mut Option<Connection>) -> Result<Value, WireError> {
    match lane {
        Some(lane) => lane.wire.next().await,
        None => std::future::pending().await,
    }
}

async fn connected(
    connecting: &mut Option<AbortOnDropHandle<Result<Wire, ConnectError>>>,
) -> Result<Wire, ConnectError> {
    loop {
        match connecting {
            // After a panic of the task, `begin_pass` connects again at the next wakeup.
            Some(task) => match task.await {
                Ok(connected) => return connected,
                Err(_) => *connecting = None,
            },
            None => std::future::pending().await,
        }
    }
}
