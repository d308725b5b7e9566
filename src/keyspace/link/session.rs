//! A session on one connection: a single task that sends requests when they are due, handles
//! replies and pushes, and sends events to the pipeline.
//!
//! `link::run` starts it. Its parts decide what is due and what a reply means; only the session
//! writes to the connections and to the outbox. All data that has been received is handled in one
//! turn, with one receive time. Error replies are values and never end the session. An error of the
//! connection to the primary ends it. An error of the connection to a replica only fails the current
//! pass.

use std::time::Duration;

use redis::{PushKind, Value};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::connection::{Connection, ConnectionRole, PendingRequest, ReplyProgress, RequestKind, ResponseTime};
use super::evictions::Evictions;
use super::handshake::Handshake;
use super::identity;
use super::key_catalog::KeyCatalog;
use super::key_read::{ReadResult, Round};
use super::owner::OwnerParser;
use super::read_queue::{QueueOutcome, ReadQueue, ReadReason, Ticket};
use super::replica::{ReplicaConnection, ReplicaEvent};
use super::scanner::{PassNumber, Scanner, Work};
use super::server_monitor::{INFO_INTERVAL, ServerMonitor};
use super::watch_progress::WatchProgress;
use super::{Link, LinkError};
use crate::config::redis::ScanFrom;
use crate::keyspace::status::Command;
use crate::keyspace::wire::WireError;
use crate::model::sighting::{KeyState, LinkEvent};
use crate::util::clock;
use crate::util::clock::TimeMs;

/// Maximum time between two requests on a watched link. Bounds the error in the time of a change.
/// Other links send a heartbeat only as often as they ask for the state of the server.
const HEARTBEAT: Duration = Duration::from_millis(250);
/// Maximum number of reads that are pending at the same time.
const MAX_PENDING_READS: usize = 512;

pub(super) struct Session<'a> {
    link: &'a mut Link,
    primary: Connection,
    /// Used for `SCAN` if configured, and also for reads if changes are not watched.
    replica: ReplicaConnection,
    keys: KeyCatalog,
    reads: ReadQueue,
    scanner: Scanner,
    watch: WatchProgress,
    server: ServerMonitor,
}

impl<'a> Session<'a> {
    pub(super) fn new(link: &'a mut Link, handshake: Handshake) -> Self {
        let Handshake { wire, keys, permissions, identity, tracked_since } = handshake;
        let now = Instant::now();
        let scan = &link.shared.config.scan;
        let is_watching = tracked_since.is_some();
        let all_watched = is_watching && !keys.has_others();
        let interval = if all_watched { scan.watched_interval } else { scan.interval };
        link.show(|status| status.scan_interval = Some(interval));
        let pattern = link.shared.keys.scan_pattern();
        Self {
            primary: Connection::new(wire, tracked_since.unwrap_or_else(clock::steady)),
            replica: ReplicaConnection::new(),
            keys,
            reads: ReadQueue::new(link.shared.config.watch.max_reads_per_second, now),
            scanner: Scanner::new(pattern, interval, scan.interval, scan.max_redis_share, now),
            watch: WatchProgress::new(is_watching),
            server: ServerMonitor::new(permissions, identity.into_replication(), Evictions::new(is_watching), now),
            link,
        }
    }

    /// Runs until the connection ends (an error) or the link is stopped.
    pub(super) async fn run(mut self, stop: &CancellationToken) -> Result<(), LinkError> {
        loop {
            self.send_due(Instant::now());
            self.link.outbox.flush();
            let wake = self.wake();
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                received = self.primary.next() => self.turn(ConnectionRole::Primary, received?)?,
                event = self.replica.next() => self.handle_replica(event),
                () = self.link.outbox.wait_for_capacity(), if self.link.outbox.is_waiting() => {}
                Some(keys) = self.link.reads.recv() => self.reads.request_all(keys),
                () = sleep_until(wake) => self.check_timeouts().await?,
            }
            if self.server.has_changed() {
                return Err(LinkError::Changed(self.link.address.clone()));
            }
        }
    }

    fn send_due(&mut self, now: Instant) {
        if self.server.take_due_info(now) {
            let primary = ConnectionRole::Primary;
            self.send(primary, RequestKind::Replication, Command::Info, &[b"INFO", b"replication"], now);
            self.send(primary, RequestKind::Memory, Command::Info, &[b"INFO", b"memory"], now);
            self.ask_for_evictions(now);
        }
        self.begin_pass(now);
        // While the queue of the pipeline is full, no keys are read.
        if !self.link.outbox.is_waiting() {
            self.scan(now);
            self.read(now);
        }
        if now >= self.heartbeat() {
            self.send(ConnectionRole::Primary, RequestKind::Ping, Command::Ping, &[b"PING"], now);
        }
    }

    /// When the next action is due, if nothing is received before.
    fn wake(&self) -> Instant {
        let response_timeout = self.link.shared.config.response_timeout;
        let mut wake = self.heartbeat();
        let mut consider = |due: Option<Instant>| wake = due.map_or(wake, |due| wake.min(due));
        consider(self.primary.deadline(response_timeout));
        consider(self.replica.connection().and_then(|replica| replica.deadline(response_timeout)));
        consider(self.server.next_info());
        if !self.link.outbox.is_waiting() && self.read_connection().pending_reads() < MAX_PENDING_READS {
            consider(self.reads.pushed_ready());
            let wants_step = self.scanner.is_ready_for_step() && self.reads.scanned_left() == 0;
            consider((wants_step || self.reads.has_scanned()).then(|| self.scanner.ready()));
        }
        if self.may_begin_pass() {
            consider(self.scanner.next_pass());
        }
        wake
    }

    fn heartbeat(&self) -> Instant {
        self.primary.last_sent() + if self.watch.is_watching() { HEARTBEAT } else { INFO_INTERVAL }
    }

    fn may_begin_pass(&self) -> bool {
        !self.replica.is_connecting() && self.server.allows(Command::Scan)
    }

    fn begin_pass(&mut self, now: Instant) {
        let is_due = self.scanner.next_pass().is_some_and(|next| now >= next);
        if !is_due || !self.may_begin_pass() {
            return;
        }
        let shared = &self.link.shared;
        let replicas = match shared.config.scan.from {
            ScanFrom::Replica => self.link.replicas.borrow().clone(),
            ScanFrom::Primary => Vec::new(),
        };
        if !self.replica.prepare_pass(shared, replicas) {
            return;
        }
        self.scanner.begin_pass(now);
        if self.server.allows(Command::Info) {
            self.send(self.scan_role(), RequestKind::Size, Command::Info, &[b"INFO", b"keyspace"], now);
        }
    }

    /// Sends the next step of the pass. The keys of the previous step are read first, so that the
    /// time of a step can be measured separately from reads.
    fn scan(&mut self, now: Instant) {
        if self.reads.scanned_left() > 0 {
            return;
        }
        if let Some(step) = self.scanner.next_step(now) {
            self.send(self.scan_role(), RequestKind::Scan(step.pass()), Command::Scan, &step.command(), now);
        }
    }

    fn read(&mut self, now: Instant) {
        while self.read_connection().pending_reads() < MAX_PENDING_READS
            && let Some(ticket) = self.reads.next(now, self.scanner.ready())
        {
            let key = self.reads.key(ticket);
            let fence = self.keys.fence(key);
            let has_field_ttls = self.server.allows(Command::Hpttl);
            let round = Round::first(self.keys.kind(key), fence.is_some(), has_field_ttls);
            self.send_round(ticket, round, fence, now);
        }
    }

    fn read_again(&mut self, ticket: Ticket, round: Round, now: Instant) {
        self.reads.mark_resent(ticket);
        let fence = if round.reads_fence() { self.keys.fence(self.reads.key(ticket)) } else { None };
        self.send_round(ticket, round, fence, now);
    }

    fn send_round(&mut self, ticket: Ticket, round: Round, fence: Option<String>, now: Instant) {
        let kind = RequestKind::Read { ticket, round: round.clone(), scanned: self.reads.is_scanned(ticket) };
        let connection = match self.replica.connection_mut() {
            Some(replica) if !self.watch.is_watching() => replica,
            _ => &mut self.primary,
        };
        let key = self.reads.key(ticket).as_bytes();
        let totals = &mut self.link.totals;
        connection.send(kind, round.replies(), now, |wire| {
            round.send(key, fence.as_deref().map(str::as_bytes), |command, parts| {
                totals.count_commands(command, 1);
                wire.push_command(parts);
            });
        });
    }

    fn ask_for_evictions(&mut self, now: Instant) {
        let sections = self.server.eviction_sections();
        self.link.totals.count_commands(Command::Info, sections.len() as u64);
        self.primary.send(RequestKind::Evictions, sections.len(), now, |wire| {
            sections.iter().for_each(|section| wire.push_command(&[b"INFO", section]));
        });
    }

    fn send(&mut self, role: ConnectionRole, kind: RequestKind, command: Command, parts: &[&[u8]], now: Instant) {
        self.link.totals.count_commands(command, 1);
        if let Some(connection) = self.connection(role) {
            connection.send(kind, 1, now, |wire| wire.push_command(parts));
        }
    }

    /// Handles a reply or push and everything else that has already been received.
    fn turn(&mut self, role: ConnectionRole, first: Value) -> Result<(), WireError> {
        let (now, received) = (Instant::now(), clock::steady() + 1);
        let is_reply = |value: &Value| !matches!(value, Value::Push { .. });
        let mut time = None;
        let mut work = Work::default();
        let mut next = Some(first);
        while let Some(value) = next {
            let Some(connection) = self.connection(role) else { break };
            if time.is_none() && is_reply(&value) {
                time = connection.response_time(now);
            }
            work.add(self.handle(role, value, received));
            next = match self.connection(role) {
                Some(connection) => connection.next_received()?,
                None => None,
            };
        }
        if let Some(time) = time {
            if let ResponseTime::Alone(took) = time {
                self.link.totals.reply_seconds.observe(took.as_secs_f64());
            }
            self.link.totals.busy_seconds += self.scanner.record(time, work, now).as_secs_f64();
        }
        self.report_progress(now);
        Ok(())
    }

    /// Reports after a turn how far the pass is and up to which time all changes are reported.
    fn report_progress(&mut self, now: Instant) {
        self.finish_pass(now);
        // While events wait for the pipeline, skipped changes add up here.
        if !self.link.outbox.is_waiting() {
            self.link.outbox.extend(self.watch.take_skipped());
        }
        let caught_up = self.primary.order().caught_up();
        let progress = self.watch.advance(caught_up, || self.reads.reported_up_to(caught_up));
        self.link.outbox.extend(progress);
        let progress = self.scanner.progress();
        self.link.show(|status| status.progress = progress);
    }

    /// Handles one reply or push. Returns the work that Redis did for it.
    fn handle(&mut self, role: ConnectionRole, value: Value, received: TimeMs) -> Work {
        if let Value::Push { kind, data } = value {
            if kind == PushKind::Invalidate && role == ConnectionRole::Primary {
                self.handle_push(data, received);
            }
            return Work::default();
        }
        let Some(connection) = self.connection(role) else { return Work::default() };
        match connection.take_reply(value) {
            ReplyProgress::Nothing => {}
            ReplyProgress::Begun(ticket) => self.reads.begin_reply(ticket),
            ReplyProgress::Complete(request, replies) => return self.handle_reply(role, &request, replies, received),
        }
        Work::default()
    }

    fn handle_reply(
        &mut self,
        role: ConnectionRole,
        request: &PendingRequest,
        mut replies: Vec<Value>,
        received: TimeMs,
    ) -> Work {
        match request.kind() {
            RequestKind::Ping => {}
            RequestKind::Replication => replies.iter().for_each(|reply| self.server.take_replication(reply)),
            RequestKind::Memory => replies.iter().for_each(|reply| self.server.take_memory(reply)),
            RequestKind::Evictions => self.handle_evictions(&replies, received),
            RequestKind::Size => {
                let database = self.link.shared.config.database;
                let size = replies.first().and_then(|reply| identity::size(reply, database));
                size.into_iter().for_each(|size| self.scanner.set_size(size));
            }
            RequestKind::Scan(pass) => {
                if let Some(reply) = replies.pop() {
                    self.handle_scan(*pass, reply);
                }
                return Work::scan_step();
            }
            RequestKind::Read { ticket, round, scanned } => {
                self.handle_read(role, request, (*ticket, round), &replies, received);
                if let Some(connection) = self.connection(role) {
                    connection.recycle(replies);
                }
                return if *scanned { Work::scanned_read() } else { Work::read() };
            }
        }
        Work::default()
    }

    fn handle_read(
        &mut self,
        role: ConnectionRole,
        request: &PendingRequest,
        (ticket, round): (Ticket, &Round),
        replies: &[Value],
        received: TimeMs,
    ) {
        if !self.reads.is_consistent(ticket) {
            return self.read_again(ticket, round.clone(), Instant::now());
        }
        let key = self.reads.key(ticket);
        let parser = OwnerParser::new(self.keys.owner_rule(key), &self.link.shared.hasher);
        let sight = match round.conclude(replies, self.reads.is_here(ticket), parser) {
            ReadResult::Again(next) => return self.read_again(ticket, next, Instant::now()),
            ReadResult::Moved => {
                self.link.shared.rediscover.notify_one();
                KeyState::Elsewhere
            }
            ReadResult::Seen(sight) => sight,
        };
        if let (KeyState::Held(_), Some(kind)) = (&sight, round.shown_type(replies)) {
            self.keys.learn(key, kind);
        }
        self.link.totals.read_errors += u64::from(sight == KeyState::Unreadable);
        let is_watched = self.watch.is_watching() && role == ConnectionRole::Primary && self.keys.covers(key);
        let order = is_watched.then_some(self.primary.order());
        let context = self.reads.complete(ticket, request.sequence(), order, received);
        // A lock with another owner may have ended in between, so its end is in doubt as well.
        if matches!(sight, KeyState::Absent | KeyState::Vacant) || context.pushes() > 1 {
            self.check_evictions(role);
        }
        self.link.outbox.add(LinkEvent::Seen(context.into_sighting(request.sent(), received, sight)));
    }

    /// Holds back events from now on, the next of which may be the end of a lock, until it is known
    /// whether Redis has evicted keys.
    fn check_evictions(&mut self, shown_by: ConnectionRole) {
        if self.server.begin_eviction_check(shown_by) {
            self.link.outbox.hold_back();
            self.ask_for_evictions(Instant::now());
        }
    }

    /// Releases the events that were held back, after an `Evicted` event if keys were evicted or
    /// flushed.
    fn handle_evictions(&mut self, replies: &[Value], received: TimeMs) {
        let (evicted, flushes) = self.server.take_evictions(replies);
        self.link.totals.evicted_keys += evicted;
        self.link.totals.flushes += flushes;
        if evicted > 0 && self.server.is_first_eviction() {
            let address = &self.link.address;
            let complaint = format!(
                "{address} has evicted keys, locks may be among them: what ended meanwhile is not told from a release; \
                 set maxmemory-policy noeviction"
            );
            warn!(%address, "redis has evicted keys, locks may be among them");
            self.link.show(|status| status.complaints.push(complaint));
        }
        self.link.outbox.resume((evicted + flushes > 0).then_some(LinkEvent::Evicted { at: received }));
        if self.server.end_eviction_check() {
            self.check_evictions(ConnectionRole::Primary);
        }
    }

    /// Handles an invalidation push: keys changed, or the database was flushed.
    fn handle_push(&mut self, data: Vec<Value>, received: TimeMs) {
        let Some(Value::Array(keys)) = data.into_iter().next() else {
            self.link.totals.flushes += 1;
            // Not `received`, which is rounded up: a pass that starts in this turn starts after the
            // flush.
            self.link.outbox.add(LinkEvent::Flushed { at: clock::steady() });
            return self.scanner.restart(Instant::now());
        };
        let mut is_lost = false;
        for key in &keys {
            // Keys of locks are UTF-8, because templates are.
            let Value::BulkString(key) = key else { continue };
            let Ok(key) = str::from_utf8(key) else { continue };
            if !self.keys.is_lock(key) {
                continue;
            }
            self.link.totals.pushes += 1;
            match self.reads.pushed(key, self.primary.order(), received) {
                QueueOutcome::Queued => {}
                QueueOutcome::Skipped => {
                    self.link.totals.skipped_reads += 1;
                    self.watch.skip(self.link.shared.keys.namespaces_of(key), received);
                    self.scanner.hurry(Instant::now());
                }
                QueueOutcome::Lost => is_lost = true,
            }
        }
        self.primary.record_push();
        if is_lost {
            self.link.totals.overflows += 1;
            // Not `received`, for the same reason as for a flush.
            self.link.outbox.extend(self.watch.lose_pushes(clock::steady()));
            self.scanner.restart(Instant::now());
        }
    }

    /// Handles the reply to one step of a pass.
    fn handle_scan(&mut self, pass: PassNumber, reply: Value) {
        match self.scanner.take_reply(pass, reply, |key| self.keys.is_lock(key)) {
            Ok(keys) => keys.into_iter().for_each(|key| self.reads.request(key, ReadReason::Scanned)),
            Err(error) => {
                if self.scanner.is_first_failure() {
                    warn!(address = %self.link.address, %error, "a pass over the keys failed, trying again");
                }
                return self.fail_pass();
            }
        }
        if self.scanner.is_listed() {
            self.reads.request_skipped();
        }
    }

    fn fail_pass(&mut self) {
        self.link.totals.scan_failures += u64::from(self.scanner.fail(Instant::now()));
    }

    /// Reports the end of the pass when all keys that it listed have been read.
    fn finish_pass(&mut self, now: Instant) {
        if self.reads.scanned_left() > 0 {
            return;
        }
        let Some(pass) = self.scanner.finish() else { return };
        self.link.outbox.add(pass.done(clock::steady()));
        self.watch.complete_pass();
        self.link.totals.scan_passes += 1;
        if self.reads.skipped() > 0 {
            self.scanner.hurry(now);
        }
        self.link.show(|status| status.last_pass = Some(pass.summary(now)));
    }

    fn handle_replica(&mut self, event: ReplicaEvent) {
        match event {
            ReplicaEvent::Connected => {
                self.link.totals.count_commands(Command::Hello, 1);
                self.link.totals.count_commands(Command::Readonly, 1);
                self.link.totals.count_commands(Command::ClientNoTouch, 1);
            }
            ReplicaEvent::NotConnected(error) => {
                self.warn_about_replica(anyhow::Error::from(error), "cannot scan a replica, scanning the primary")
            }
            ReplicaEvent::Received(value) => {
                if let Err(error) = self.turn(ConnectionRole::Replica, value) {
                    self.lose_replica(error);
                }
            }
            ReplicaEvent::Lost(error) => self.lose_replica(error),
        }
    }

    fn lose_replica(&mut self, error: WireError) {
        self.warn_about_replica(anyhow::Error::from(error), "lost the replica that is scanned");
        if let Some(connection) = self.replica.remove() {
            connection.abandoned_reads().for_each(|ticket| self.reads.requeue(ticket));
        }
        self.fail_pass();
    }

    /// Logs once for each connection to the primary. The replica is tried again with each pass.
    fn warn_about_replica(&mut self, error: anyhow::Error, what: &str) {
        if self.replica.is_first_failure() {
            warn!(address = %self.link.address, error = format!("{error:#}"), "{what}");
        }
    }

    /// A server that does not answer within the response timeout counts as gone.
    async fn check_timeouts(&mut self) -> Result<(), WireError> {
        let after = self.link.shared.config.response_timeout;
        let is_silent = |connection: &Connection| connection.deadline(after).is_some_and(|end| end <= Instant::now());
        if is_silent(&self.primary) {
            // The reply may have arrived while this task was not running.
            match timeout(Duration::ZERO, self.primary.next()).await {
                Ok(received) => self.turn(ConnectionRole::Primary, received?)?,
                Err(_) => {
                    self.link.totals.reply_seconds.observe(after.as_secs_f64());
                    return Err(self.primary.timeout_error(after));
                }
            }
        }
        if let Some(replica) = self.replica.connection().filter(|replica| is_silent(replica)) {
            let error = replica.timeout_error(after);
            self.lose_replica(error);
        }
        Ok(())
    }

    fn connection(&mut self, role: ConnectionRole) -> Option<&mut Connection> {
        match role {
            ConnectionRole::Primary => Some(&mut self.primary),
            ConnectionRole::Replica => self.replica.connection_mut(),
        }
    }

    /// The connection that is used for `SCAN`.
    fn scan_role(&self) -> ConnectionRole {
        if self.replica.connection().is_some() { ConnectionRole::Replica } else { ConnectionRole::Primary }
    }

    /// The connection that is used for reads.
    fn read_connection(&self) -> &Connection {
        match self.replica.connection() {
            Some(replica) if !self.watch.is_watching() => replica,
            _ => &self.primary,
        }
    }
}
