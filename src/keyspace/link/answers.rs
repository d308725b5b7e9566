//! Handles replies and pushes: turns them into sightings and other events for the pipeline.
//!
//! `session` calls [`Session::take`] for each reply or push in stream order. Error replies are
//! values here and never end the session.

use redis::{PushKind, Value};
use tokio::time::Instant;
use tracing::warn;

use super::connection::{PendingRequest, ReplyProgress, RequestKind};
use super::identity::{self, Replication};
use super::key_read::{ReadResult, Round};
use super::owner::OwnerParser;
use super::read_queue::{QueueOutcome, ReadReason, Ticket};
use super::scanner::PassNumber;
use super::session::{ConnectionRole, Session, Work};
use crate::model::sighting::{KeyState, LinkEvent, Sighting};
use crate::util::clock;
use crate::util::clock::TimeMs;

impl Session<'_> {
    /// Handles one reply or push. Returns the work that Redis did for it.
    pub(super) fn take(&mut self, side: ConnectionRole, value: Value, received: TimeMs) -> Work {
        if let Value::Push { kind, data } = value {
            if kind == PushKind::Invalidate && side == ConnectionRole::Main {
                self.invalidated(data, received);
            }
            return Work::default();
        }
        let Some(lane) = self.lane(side) else { return Work::default() };
        match lane.gather(value) {
            ReplyProgress::Nothing => Work::default(),
            ReplyProgress::Begun(RequestKind::Read { ticket, .. }) => {
                self.inbox.answering(ticket);
                Work::default()
            }
            ReplyProgress::Begun(_) => Work::default(),
            ReplyProgress::Complete(awaited, replies) => self.answered(side, &awaited, replies, received),
        }
    }

    fn answered(
        &mut self,
        side: ConnectionRole,
        awaited: &PendingRequest,
        mut replies: Vec<Value>,
        received: TimeMs,
    ) -> Work {
        match awaited.what {
            RequestKind::Ping => Work::default(),
            RequestKind::Role => {
                let now = replies.first().and_then(Replication::read);
                self.has_changed |= now.is_some_and(|now| !now.continues(&self.replication));
                Work::default()
            }
            RequestKind::Memory => {
                replies.iter().for_each(|reply| self.evictions.learn_policy(reply));
                Work::default()
            }
            RequestKind::Evicted => {
                let evicted = replies.first().map_or(0, |reply| self.evictions.learn_evicted(reply));
                let flushes = replies.get(1).map_or(0, |reply| self.evictions.learn_flushes(reply));
                self.evicted(evicted, flushes, received);
                Work::default()
            }
            RequestKind::Size => {
                let size = replies.first().and_then(|reply| identity::size(reply, self.link.shared.config.database));
                if let Some(size) = size {
                    self.scanner.set_size(size);
                }
                Work::default()
            }
            RequestKind::Scan(number) => {
                if let Some(reply) = replies.pop() {
                    self.scanned(number, reply);
                }
                Work { steps: 1, ..Work::default() }
            }
            RequestKind::Read { ticket, round, scanned } => {
                self.has_read(side, awaited, ticket, round, &replies, received);
                if let Some(lane) = self.lane(side) {
                    lane.recycle(replies);
                }
                Work { reads: 1, scanned_reads: u32::from(scanned), steps: 0 }
            }
        }
    }

    fn has_read(
        &mut self,
        side: ConnectionRole,
        awaited: &PendingRequest,
        ticket: Ticket,
        round: Round,
        replies: &[Value],
        received: TimeMs,
    ) {
        if !self.inbox.is_whole(ticket) {
            return self.ask_again(ticket, round, Instant::now());
        }
        let may_ask = self.inbox.is_here(ticket);
        let rule = self.prefixes.owner_rule(self.inbox.key(ticket));
        let reader = OwnerParser { rule, hasher: &self.link.shared.hasher };
        let sight = match round.conclude(replies, may_ask, reader) {
            ReadResult::Again(next) => return self.ask_again(ticket, next, Instant::now()),
            ReadResult::Moved => {
                self.link.shared.rediscover.notify_one();
                KeyState::Elsewhere
            }
            ReadResult::Seen(sight) => sight,
        };
        let key = self.inbox.key(ticket);
        if let (KeyState::Held(_), Some(kind)) = (&sight, round.kind) {
            self.prefixes.learn(key, kind);
        }
        self.link.totals.read_errors += u64::from(sight == KeyState::Unreadable);
        let is_watched = self.watch.is_watching() && side == ConnectionRole::Main && self.prefixes.covers(key);
        let order = is_watched.then_some(&self.main.order);
        let seen = self.inbox.finish(ticket, awaited.sequence, order, received);
        // A lock with another owner may have ended in between, so its end is in doubt as well.
        if matches!(sight, KeyState::Absent | KeyState::Vacant) || seen.pushes > 1 {
            self.doubt(side);
        }
        self.link.teller.add(LinkEvent::Seen(Sighting {
            key: seen.key,
            sent: awaited.sent,
            received,
            since: seen.since,
            until: seen.until,
            pushes: seen.pushes,
            first_push_may_be_old: seen.first_push_may_be_old,
            missed: seen.missed,
            sight,
        }));
    }

    /// Handles the number of newly evicted keys and of flushes that were not pushed. Events that
    /// were held back for this answer are released after an `Evicted` event, if there is one.
    fn evicted(&mut self, evicted: u64, flushes: u64, received: TimeMs) {
        self.link.totals.evicted_keys += evicted;
        self.link.totals.flushes += flushes;
        let news = (evicted + flushes > 0).then_some(LinkEvent::Evicted { at: received });
        if evicted > 0 && !std::mem::replace(&mut self.evictions.told, true) {
            let address = &self.link.address;
            let complaint = format!(
                "{address} has evicted keys, locks may be among them: what ended meanwhile is not told from a release; \
                 set maxmemory-policy noeviction"
            );
            warn!(%address, "redis has evicted keys, locks may be among them");
            self.link.show(|status| status.complaints.push(complaint));
        }
        self.link.teller.go_on(news);
        self.evictions.asked = false;
        if std::mem::take(&mut self.evictions.again) {
            self.doubt(ConnectionRole::Main);
        }
    }

    /// Handles an invalidation push: keys changed, or the database was flushed.
    fn invalidated(&mut self, data: Vec<Value>, received: TimeMs) {
        let Some(Value::Array(keys)) = data.into_iter().next() else {
            self.link.totals.flushes += 1;
            // Not `received`, which is rounded up: a pass that starts in this turn starts after the
            // flush.
            self.link.teller.add(LinkEvent::Flushed { at: clock::steady() });
            return self.scanner.restart(Instant::now());
        };
        let mut is_lost = false;
        for key in &keys {
            // Keys of locks are UTF-8, because templates are.
            let Value::BulkString(key) = key else { continue };
            let Ok(key) = str::from_utf8(key) else { continue };
            if !self.prefixes.is_lock(key) {
                continue;
            }
            self.link.totals.pushes += 1;
            match self.inbox.pushed(key, &self.main.order, received) {
                QueueOutcome::Queued => {}
                QueueOutcome::Skipped => {
                    self.link.totals.skipped_reads += 1;
                    self.watch.skip(self.link.shared.keys.namespaces_of(key), received);
                    self.scanner.hurry(Instant::now());
                }
                QueueOutcome::Lost => is_lost = true,
            }
        }
        self.main.order.pushed();
        if is_lost {
            self.link.totals.overflows += 1;
            // Not `received`, for the same reason as for a flush.
            self.link.teller.extend(self.watch.lose_pushes(clock::steady()));
            self.scanner.restart(Instant::now());
        }
    }

    /// Handles the reply to one step of a pass.
    fn scanned(&mut self, number: PassNumber, reply: Value) {
        match self.scanner.take_reply(number, reply, |key| self.prefixes.is_lock(key)) {
            Ok(keys) => keys.into_iter().for_each(|key| self.inbox.want(key, ReadReason::Scanned)),
            Err(error) => {
                if self.scanner.is_first_failure() {
                    warn!(address = %self.link.address, %error, "a pass over the keys failed, trying again");
                }
                return self.fail_pass(Instant::now());
            }
        }
        if self.scanner.is_listed() {
            self.inbox.want_skipped();
        }
    }

    pub(super) fn fail_pass(&mut self, now: Instant) {
        self.link.totals.scan_failures += u64::from(self.scanner.fail(now));
    }

    /// Reports the end of the pass when all keys that it listed have been read.
    pub(super) fn finish_pass(&mut self, now: Instant) {
        if self.inbox.scanned_left() > 0 {
            return;
        }
        let Some(pass) = self.scanner.finish() else { return };
        self.link.teller.add(pass.done(clock::steady()));
        self.watch.complete_pass();
        self.link.totals.scan_passes += 1;
        if self.inbox.skipped() > 0 {
            self.scanner.hurry(now);
        }
        self.link.show(|status| status.last_pass = Some(pass.summary(now)));
    }
}
