//! Decides what to send, and when: heartbeats, `INFO` requests, steps of a pass, and reads of keys.
//!
//! `session` calls [`Session::ask_what_is_due`] before each wait and sleeps until [`Session::wake`]
//! at the latest.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::connection::RequestKind;
use super::handshake;
use super::key_read::Round;
use super::read_queue::{ReadReason, Ticket};
use super::scanner::Pass;
use super::session::{ConnectionRole, Session};
use crate::config::redis::ScanFrom;
use crate::keyspace::connect::{ConnectError, RedisTarget, connect};
use crate::keyspace::status::Command;
use crate::keyspace::wire::Wire;
use crate::util::clock;

/// Maximum time between two requests on a watched link. Bounds the error in the time of a change.
const HEARTBEAT: Duration = Duration::from_millis(250);
/// How soon a failover is noticed that keeps the connection open. Also the heartbeat interval of a
/// link that is not watched.
const INFO_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum number of reads that are pending at the same time.
const MAX_READS: usize = 512;

impl Session<'_> {
    pub(super) fn ask_what_is_due(&mut self, now: Instant) {
        if now >= self.next_info && self.permissions.allow(Command::Info) {
            self.next_info = now + INFO_INTERVAL;
            self.send(ConnectionRole::Main, RequestKind::Role, Command::Info, &[b"INFO", b"replication"], now);
            self.send(ConnectionRole::Main, RequestKind::Memory, Command::Info, &[b"INFO", b"memory"], now);
            self.ask_for_evictions(now);
        }
        self.begin_pass(now);
        // While the pipeline has no room for sightings, no keys are read.
        if !self.link.teller.is_waiting() {
            self.scan(now);
            self.read(now);
        }
        if now >= self.heartbeat() {
            self.send(ConnectionRole::Main, RequestKind::Ping, Command::Ping, &[b"PING"], now);
        }
    }

    /// When the next action is due, if nothing is received before.
    pub(super) fn wake(&self) -> Instant {
        let response_timeout = self.link.shared.config.response_timeout;
        let mut wake = self.heartbeat();
        let mut consider = |instant: Option<Instant>| wake = instant.map_or(wake, |instant| wake.min(instant));
        consider(self.main.deadline(response_timeout));
        consider(self.replica.as_ref().and_then(|lane| lane.deadline(response_timeout)));
        if self.permissions.allow(Command::Info) {
            consider(Some(self.next_info));
        }
        if !self.link.teller.is_waiting() {
            let may_read = self.read_lane_reads() < MAX_READS;
            consider(Some(self.allowance.ready()).filter(|_| may_read && self.inbox.is_waiting(ReadReason::Pushed)));
            let wants_to_scan = match &self.pass {
                Some(pass) => {
                    self.inbox.is_waiting(ReadReason::Scanned) || pass.is_ready() && self.inbox.scanned_left() == 0
                }
                None => self.inbox.is_waiting(ReadReason::Scanned),
            };
            consider(Some(self.pace.ready()).filter(|_| may_read && wants_to_scan));
        }
        if self.pass.is_none() && self.connecting.is_none() && self.may_scan() {
            consider(Some(self.timetable.next));
        }
        wake
    }

    fn heartbeat(&self) -> Instant {
        self.main.last_sent() + if self.watching { HEARTBEAT } else { INFO_INTERVAL }
    }

    fn begin_pass(&mut self, now: Instant) {
        if self.pass.is_some() || self.connecting.is_some() || now < self.timetable.next || !self.may_scan() {
            return;
        }
        let replicas = match self.link.shared.config.scan.from {
            ScanFrom::Replica => self.link.replicas.borrow().clone(),
            ScanFrom::Primary => Vec::new(),
        };
        if !replicas.is_empty() && self.replica.is_none() && !self.without_replica {
            let shared = self.link.shared.clone();
            self.connecting = Some(AbortOnDropHandle::new(tokio::spawn(async move {
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
            })));
            return;
        }
        self.without_replica = false;
        self.timetable.began(now);
        self.passes_begun += 1;
        self.pass = Some(Pass::new(self.passes_begun, clock::steady(), now));
        if self.permissions.allow(Command::Info) {
            self.send(self.scan_side(), RequestKind::Size, Command::Info, &[b"INFO", b"keyspace"], now);
        }
    }

    /// Sends the next step of the pass. The keys of the previous step are read first, so that the
    /// time of a step can be measured separately from reads.
    fn scan(&mut self, now: Instant) {
        if self.inbox.scanned_left() > 0 || now < self.pace.ready() {
            return;
        }
        let side = self.scan_side();
        let count = self.pace.count();
        let Some(pass) = self.pass.as_mut().filter(|pass| pass.is_ready()) else { return };
        let what = RequestKind::Scan(pass.number);
        let cursor = pass.ask(count).to_vec();
        let pattern = std::mem::take(&mut self.scan_pattern);
        let count = count.to_string();
        let parts = [b"SCAN", cursor.as_slice(), b"MATCH", pattern.as_bytes(), b"COUNT", count.as_bytes()];
        self.send(side, what, Command::Scan, &parts, now);
        self.scan_pattern = pattern;
    }

    fn read(&mut self, now: Instant) {
        while self.read_lane_reads() < MAX_READS {
            let pushed = self.inbox.is_waiting(ReadReason::Pushed) && self.allowance.take(now);
            let mut next = if pushed { self.inbox.next(ReadReason::Pushed) } else { None };
            next = next.or_else(|| self.inbox.next(ReadReason::Requested));
            if next.is_none() && now >= self.pace.ready() {
                next = self.inbox.next(ReadReason::Scanned);
            }
            let Some(ticket) = next else { return };
            let key = self.inbox.key(ticket);
            let fence = self.prefixes.fence(key);
            let has_field_ttls = self.permissions.allow(Command::Hpttl);
            let round = Round::first(self.prefixes.kind(key), fence.is_some(), has_field_ttls);
            self.send_round(ticket, round, fence, now);
        }
    }

    pub(super) fn ask_again(&mut self, ticket: Ticket, round: Round, now: Instant) {
        self.inbox.ask_again(ticket);
        let fence = if round.fence { self.prefixes.fence(self.inbox.key(ticket)) } else { None };
        self.send_round(ticket, round, fence, now);
    }

    fn send_round(&mut self, ticket: Ticket, round: Round, fence: Option<String>, now: Instant) {
        let what = RequestKind::Read { ticket, round: round.clone(), scanned: self.inbox.is_scanned(ticket) };
        let lane = match (&mut self.replica, self.watching) {
            (Some(replica), false) => replica,
            _ => &mut self.main,
        };
        let key = self.inbox.key(ticket).as_bytes();
        let totals = &mut self.link.totals;
        lane.ask(what, round.replies(), now, |wire| {
            round.send(key, fence.as_deref().map(str::as_bytes), |command, parts| {
                totals.count_commands(command, 1);
                wire.push_command(parts);
            });
        });
    }

    /// Holds back an event that may be the end of a lock until it is known whether Redis has
    /// evicted keys.
    pub(super) fn doubt(&mut self, side: ConnectionRole) {
        if self.evictions.asked {
            // A read on the main connection was answered before the pending request, so the reply
            // to that request covers it. A read on the replica connection needs another request.
            self.evictions.again |= side == ConnectionRole::Replica;
        } else if self.evictions.are_possible() && self.permissions.allow(Command::Info) {
            self.evictions.asked = true;
            self.link.teller.hold_back();
            self.ask_for_evictions(Instant::now());
        }
    }

    fn ask_for_evictions(&mut self, now: Instant) {
        let sections = self.evictions.sections();
        self.link.totals.count_commands(Command::Info, sections.len() as u64);
        self.main.ask(RequestKind::Evicted, sections.len(), now, |wire| {
            sections.iter().for_each(|section| wire.push_command(&[b"INFO", section]));
        });
    }

    fn send(&mut self, side: ConnectionRole, what: RequestKind, command: Command, parts: &[&[u8]], now: Instant) {
        self.link.totals.count_commands(command, 1);
        if let Some(lane) = self.lane(side) {
            lane.ask(what, 1, now, |wire| wire.push_command(parts));
        }
    }

    /// The connection that is used for `SCAN`.
    pub(super) fn scan_side(&self) -> ConnectionRole {
        if self.replica.is_some() { ConnectionRole::Replica } else { ConnectionRole::Main }
    }

    fn read_lane_reads(&self) -> usize {
        match (&self.replica, self.watching) {
            (Some(replica), false) => replica.reads,
            _ => self.main.reads,
        }
    }
}

async fn connect_replica(target: &RedisTarget<'_>) -> Result<Wire, ConnectError> {
    let mut wire = connect(target).await?;
    // Refused outside a cluster, where it is not needed.
    wire.ask(&[b"READONLY"]).await?;
    handshake::leave_no_trace(&mut wire).await?;
    Ok(wire)
}
