//! Handles replies and pushes: turns them into sightings and other events for the pipeline.
//!
//! `session` calls [`Session::take`] for each reply or push in stream order. Error replies are
//! values here and never end the session.

use std::time::Duration;

use redis::{PushKind, Value};
use tokio::time::Instant;
use tracing::warn;

use super::connection::{PendingRequest, ReplyProgress, RequestKind};
use super::identity::{self, Replication};
use super::key_read::{ReadResult, Round};
use super::owner::OwnerParser;
use super::read_queue::{QueueOutcome, ReadReason, Ticket};
use super::session::{ConnectionRole, Session, Work};
use crate::keyspace::status::LastPass;
use crate::model::sighting::{KeyState, LinkEvent, Sighting};
use crate::util::clock;
use crate::util::clock::TimeMs;

/// Minimum progress of the caught-up time before it is reported again.
const CAUGHT_UP_STEP: TimeMs = 200;
/// Delay before the next pass after a pass has failed.
const FAILED_PASS_PAUSE: Duration = Duration::from_secs(1);

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
            ReplyProgress::Begun(ticket) => {
                self.inbox.answering(ticket);
                Work::default()
            }
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
        match &awaited.what {
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
                if let (Some(pass), Some(size)) = (&mut self.pass, size) {
                    pass.set_size(size);
                }
                Work::default()
            }
            RequestKind::Scan(number) => {
                if let Some(reply) = replies.pop() {
                    self.scanned(*number, reply);
                }
                Work { steps: 1, ..Work::default() }
            }
            RequestKind::Read { ticket, round, scanned } => {
                self.has_read(side, awaited, *ticket, round, &replies, received);
                if let Some(lane) = self.lane(side) {
                    lane.recycle(replies);
                }
                Work { reads: 1, scanned_reads: u32::from(*scanned), steps: 0 }
            }
        }
    }

    fn has_read(
        &mut self,
        side: ConnectionRole,
        awaited: &PendingRequest,
        ticket: Ticket,
        round: &Round,
        replies: &[Value],
        received: TimeMs,
    ) {
        if !self.inbox.is_whole(ticket) {
            return self.ask_again(ticket, round.clone(), Instant::now());
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
        if let (KeyState::Held(_), Some(kind)) = (&sight, round.shown_type(replies)) {
            self.prefixes.learn(key, kind);
        }
        self.link.totals.read_errors += u64::from(sight == KeyState::Unreadable);
        let is_watched = self.watching && side == ConnectionRole::Main && self.prefixes.covers(key);
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
            return self.pass_again(Instant::now());
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
                    self.timetable.hurry(Instant::now());
                }
                QueueOutcome::Lost => is_lost = true,
            }
        }
        self.main.order.pushed();
        if is_lost {
            self.link.totals.overflows += 1;
            if !std::mem::replace(&mut self.gap_told, true) {
                // Not `received`, for the same reason as for a flush.
                self.link.teller.add(LinkEvent::Gap { at: clock::steady() });
            }
            self.pass_again(Instant::now());
        }
    }

    /// Handles the reply to one step of a pass.
    fn scanned(&mut self, number: u64, reply: Value) {
        let Some(pass) = self.pass.as_mut().filter(|pass| pass.number == number) else { return };
        let keys = match pass.step(reply) {
            Ok(keys) => keys,
            Err(error) => {
                if !std::mem::replace(&mut self.pass_failed, true) {
                    warn!(address = %self.link.address, error = error.0, "a pass over the keys failed, trying again");
                }
                return self.fail_pass(Instant::now());
            }
        };
        for key in keys {
            let Value::BulkString(key) = key else { continue };
            let Ok(key) = String::from_utf8(key) else { continue };
            if self.prefixes.is_lock(&key) {
                pass.lock_keys += 1;
                self.inbox.want(key.into_boxed_str(), ReadReason::Scanned);
            }
        }
        if pass.is_listed() {
            self.inbox.want_skipped();
        }
    }

    /// Discards the current pass, because its results are no longer complete, and schedules a new
    /// one at once.
    fn pass_again(&mut self, now: Instant) {
        self.pass = None;
        self.timetable.at_once(now);
    }

    pub(super) fn fail_pass(&mut self, now: Instant) {
        if self.pass.take().is_some() {
            self.link.totals.scan_failures += 1;
            self.timetable.after(FAILED_PASS_PAUSE, now);
        }
    }

    /// Reports the end of the pass when all keys that it listed have been read.
    pub(super) fn finish_pass(&mut self, now: Instant) {
        if self.inbox.scanned_left() > 0 {
            return;
        }
        let Some(pass) = self.pass.take_if(|pass| pass.is_listed()) else { return };
        self.link.teller.add(LinkEvent::PassDone { started: pass.started, at: clock::steady() });
        self.gap_told = false;
        self.pass_failed = false;
        self.link.totals.scan_passes += 1;
        if self.inbox.skipped() > 0 {
            self.timetable.hurry(now);
        }
        let last_pass = LastPass {
            seconds: (now - pass.started_at).as_secs_f64(),
            keys: pass.keys_seen(),
            lock_keys: pass.lock_keys,
            ended: clock::now(),
        };
        self.link.show(|status| status.last_pass = Some(last_pass));
    }

    pub(super) fn tell_caught_up(&mut self) {
        let caught_up = self.main.order.caught_up();
        if !self.watching || caught_up < self.told_up_to + CAUGHT_UP_STEP {
            return;
        }
        let at = self.inbox.told_up_to(caught_up);
        if at >= self.told_up_to + CAUGHT_UP_STEP {
            self.told_up_to = at;
            self.link.teller.add(LinkEvent::CaughtUp { at });
        }
    }
}
