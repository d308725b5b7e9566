//! Keys to read, and what was pushed about each of them since its last reply.
//!
//! `session` owns the queue. There are three reasons to read a key, in order of priority: a push, a
//! request of the ledger, a pass. A key is queued once, read once at a time, and leaves the queue
//! when its read is finished. Pushed keys that exceed the limit on reads become skipped keys. They
//! are read when no other pushed key waits, and their sighting is marked as `missed`. Times are
//! arguments.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use tokio::time::Instant;

use super::pace::Allowance;
use super::reply_order::{ReplyOrder, Sequence};
use crate::model::sighting::{KeyState, Sighting};
use crate::util::clock::TimeMs;

/// Maximum number of pushed keys that wait at the same time. Further pushes are lost, and a pass
/// must make up for them.
pub(super) const MAX_PUSHED: usize = 65_536;
/// Maximum number of keys requested by the ledger that wait to be read. The ledger asks again for
/// dropped keys.
const MAX_REQUESTED: usize = 65_536;
/// If the reply arrives later than this after the last push, it may show a change that was made
/// long after that push.
const SLOW_READ: TimeMs = 250;

/// Identifies a key in the queue. Valid until its read is finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    slot: u32,
    generation: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadReason {
    Pushed = 0,
    Requested = 1,
    Scanned = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueOutcome {
    Queued,
    /// Exceeds the limit on reads. The push is recorded, but the key is not queued.
    Skipped,
    /// The queue is full. Nothing is recorded.
    Lost,
}

/// What is known about a read besides its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReadContext {
    key: Box<str>,
    since: Option<TimeMs>,
    until: TimeMs,
    pushes: u16,
    first_push_may_be_old: bool,
    missed: bool,
}

impl ReadContext {
    /// Number of pushes that the read covers.
    pub(super) fn pushes(&self) -> u16 {
        self.pushes
    }

    /// Completes the sighting of a key that was read at this time with this result.
    pub(super) fn into_sighting(self, sent: TimeMs, received: TimeMs, sight: KeyState) -> Sighting {
        let Self { key, since, until, pushes, first_push_may_be_old, missed } = self;
        Sighting { key, sent, received, since, until, pushes, first_push_may_be_old, missed, sight }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadState {
    /// The slot is unused.
    Free,
    Queued(ReadReason),
    /// Sent, without a reply so far. The replies will include changes that are pushed now.
    Asked,
    /// Some of the replies have arrived. A push in this state makes the read inconsistent (`torn`).
    Answering {
        torn: bool,
    },
    Skipped,
}

#[derive(Debug)]
struct QueuedKey {
    key: Box<str>,
    generation: u32,
    state: ReadState,
    pushes: u16,
    first_push_may_be_old: bool,
    missed: bool,
    /// The current pass waits for this key.
    scanned: bool,
    /// When the link was caught up at the time of the first push: the change happened later.
    since: TimeMs,
    /// When the last push arrived.
    until: TimeMs,
}

#[derive(Debug)]
pub(super) struct ReadQueue {
    slots: Vec<QueuedKey>,
    free: Vec<u32>,
    /// Slots by key.
    index: HashTable<u32>,
    hashing: RandomState,
    /// One queue for each [`ReadReason`]. May contain tickets of keys that no longer wait there.
    queues: [VecDeque<Ticket>; 3],
    waiting_pushed: usize,
    pushed: usize,
    skipped: usize,
    /// Skipped keys in order. May contain tickets of keys that are no longer skipped.
    skipped_queue: VecDeque<Ticket>,
    scanned: usize,
    /// Hashes of recently answered keys, each with the number of its last request. A hash collision
    /// would only mark a push as possibly old that is not.
    answered: HashMap<u64, Sequence>,
    /// Maximum number of pushed keys that wait for their read. Further ones are skipped.
    max_waiting: usize,
    /// Limits the reads of pushed keys.
    allowance: Allowance,
}

impl ReadQueue {
    /// Pushed keys for one second of reads may wait.
    pub(super) fn new(reads_per_second: u32, now: Instant) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            index: HashTable::new(),
            hashing: RandomState::new(),
            queues: Default::default(),
            waiting_pushed: 0,
            pushed: 0,
            skipped: 0,
            skipped_queue: VecDeque::new(),
            scanned: 0,
            answered: HashMap::new(),
            max_waiting: reads_per_second as usize,
            allowance: Allowance::new(reads_per_second, now),
        }
    }

    /// Records a push about the key.
    pub(super) fn pushed(&mut self, key: &str, order: &ReplyOrder, now: TimeMs) -> QueueOutcome {
        let hash = self.hashing.hash_one(key);
        let slot = match self.find(hash, key) {
            Some(slot) => slot,
            None if self.pushed >= MAX_PUSHED => return QueueOutcome::Lost,
            None => self.insert(hash, key.into(), ReadState::Free),
        };
        let may_be_old = self.answered.get(&hash).is_some_and(|sequence| order.may_share_turn(*sequence));
        let has_capacity = self.waiting_pushed < self.max_waiting;
        let entry = &mut self.slots[slot as usize];
        if entry.pushes == 0 {
            if self.pushed >= MAX_PUSHED {
                return QueueOutcome::Lost;
            }
            self.pushed += 1;
            entry.since = order.caught_up();
            entry.first_push_may_be_old = may_be_old;
        }
        entry.pushes = entry.pushes.saturating_add(1);
        entry.until = now;
        match entry.state {
            ReadState::Queued(ReadReason::Pushed) | ReadState::Asked => return QueueOutcome::Queued,
            ReadState::Answering { .. } => {
                entry.state = ReadState::Answering { torn: true };
                return QueueOutcome::Queued;
            }
            // Reads for other reasons are not limited, and the read also covers this push.
            ReadState::Queued(_) if !has_capacity => return QueueOutcome::Queued,
            ReadState::Skipped if !has_capacity => return QueueOutcome::Skipped,
            ReadState::Free if !has_capacity => {
                entry.state = ReadState::Skipped;
                entry.missed = true;
                self.skipped += 1;
                let ticket = Ticket { slot, generation: entry.generation };
                self.queue_skipped(ticket);
                return QueueOutcome::Skipped;
            }
            ReadState::Skipped => self.skipped -= 1,
            ReadState::Free | ReadState::Queued(_) => {}
        }
        self.enqueue(slot, ReadReason::Pushed);
        QueueOutcome::Queued
    }

    /// Queues keys that the ledger asks for.
    pub(super) fn request_all(&mut self, keys: Vec<Box<str>>) {
        for key in keys {
            if self.queues[ReadReason::Requested as usize].len() < MAX_REQUESTED {
                self.request(key, ReadReason::Requested);
            }
        }
    }

    /// Queues the key for the ledger or for a pass.
    pub(super) fn request(&mut self, key: Box<str>, reason: ReadReason) {
        let hash = self.hashing.hash_one(&*key);
        let slot = match self.find(hash, &key) {
            Some(slot) => slot,
            None => self.insert(hash, key, ReadState::Free),
        };
        let entry = &mut self.slots[slot as usize];
        if reason == ReadReason::Scanned && !entry.scanned {
            entry.scanned = true;
            self.scanned += 1;
        }
        match entry.state {
            ReadState::Skipped => self.skipped -= 1,
            ReadState::Free => {}
            ReadState::Queued(ReadReason::Scanned) if reason == ReadReason::Requested => {}
            ReadState::Queued(_) | ReadState::Asked | ReadState::Answering { .. } => return,
        }
        self.enqueue(slot, reason);
    }

    /// Queues all skipped keys for the current pass, which does not list those that no longer
    /// exist.
    pub(super) fn request_skipped(&mut self) {
        for slot in 0..self.slots.len() as u32 {
            let entry = &mut self.slots[slot as usize];
            if entry.state != ReadState::Skipped {
                continue;
            }
            self.skipped -= 1;
            if !entry.scanned {
                entry.scanned = true;
                self.scanned += 1;
            }
            self.enqueue(slot, ReadReason::Scanned);
        }
    }

    /// Takes the next key that may be read now and marks it as sent. Keys of a pass may be read from
    /// `pass_ready` on.
    pub(super) fn next(&mut self, now: Instant, pass_ready: Instant) -> Option<Ticket> {
        let mut next = match self.waiting_pushed + self.skipped > 0 && self.allowance.take(now) {
            true => self.next_for(ReadReason::Pushed).or_else(|| self.next_skipped()),
            false => None,
        };
        next = next.or_else(|| self.next_for(ReadReason::Requested));
        if next.is_none() && now >= pass_ready {
            next = self.next_for(ReadReason::Scanned);
        }
        next
    }

    /// When the next pushed key may be read. `None` if none waits.
    pub(super) fn pushed_ready(&self) -> Option<Instant> {
        (self.waiting_pushed + self.skipped > 0).then(|| self.allowance.ready())
    }

    /// Whether keys of a pass may wait. Stale tickets only cause one unnecessary check by the
    /// caller.
    pub(super) fn has_scanned(&self) -> bool {
        !self.queues[ReadReason::Scanned as usize].is_empty()
    }

    /// Takes the next key queued for this reason and marks it as sent.
    fn next_for(&mut self, reason: ReadReason) -> Option<Ticket> {
        while let Some(ticket) = self.queues[reason as usize].pop_front() {
            let Some(entry) = self.slots.get_mut(ticket.slot as usize) else { continue };
            if entry.generation == ticket.generation && entry.state == ReadState::Queued(reason) {
                entry.state = ReadState::Asked;
                self.waiting_pushed -= usize::from(reason == ReadReason::Pushed);
                return Some(ticket);
            }
        }
        None
    }

    fn queue_skipped(&mut self, ticket: Ticket) {
        if self.skipped_queue.len() >= 2 * MAX_PUSHED {
            let slots = &self.slots;
            self.skipped_queue.retain(|ticket| is_skipped(slots, *ticket));
        }
        self.skipped_queue.push_back(ticket);
    }

    /// Takes the first skipped key and marks it as sent. There is time for it when no other pushed
    /// key waits.
    fn next_skipped(&mut self) -> Option<Ticket> {
        while let Some(ticket) = self.skipped_queue.pop_front() {
            if is_skipped(&self.slots, ticket) {
                self.slots[ticket.slot as usize].state = ReadState::Asked;
                self.skipped -= 1;
                return Some(ticket);
            }
        }
        None
    }

    pub(super) fn key(&self, ticket: Ticket) -> &str {
        &self.slots[ticket.slot as usize].key
    }

    /// Another round of commands for the key is sent. Earlier replies do not count.
    pub(super) fn mark_resent(&mut self, ticket: Ticket) {
        self.slots[ticket.slot as usize].state = ReadState::Asked;
    }

    /// The first of several replies has arrived.
    pub(super) fn begin_reply(&mut self, ticket: Ticket) {
        self.slots[ticket.slot as usize].state = ReadState::Answering { torn: false };
    }

    /// Whether all replies show the same moment. If not, the key must be read again.
    pub(super) fn is_consistent(&self, ticket: Ticket) -> bool {
        self.slots[ticket.slot as usize].state != ReadState::Answering { torn: true }
    }

    /// Removes the key after its read. `order` is `None` if the key is not watched.
    pub(super) fn complete(
        &mut self,
        ticket: Ticket,
        sequence: Sequence,
        order: Option<&ReplyOrder>,
        received: TimeMs,
    ) -> ReadContext {
        let hash = self.hashing.hash_one(&*self.slots[ticket.slot as usize].key);
        if let Some(order) = order {
            if self.answered.len() >= 4096 {
                self.answered.retain(|_, sequence| order.may_share_turn(*sequence));
            }
            self.answered.insert(hash, sequence);
        }
        if let Ok(found) = self.index.find_entry(hash, |slot| *slot == ticket.slot) {
            found.remove();
        }
        let entry = &mut self.slots[ticket.slot as usize];
        entry.state = ReadState::Free;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(ticket.slot);
        self.pushed -= usize::from(entry.pushes > 0);
        self.scanned -= usize::from(entry.scanned);
        let (since, until) = match order {
            Some(_) if entry.pushes > 0 && received - entry.until <= SLOW_READ => (Some(entry.since), entry.until),
            Some(_) if entry.pushes > 0 => (Some(entry.since), received),
            Some(order) => (Some(order.caught_up()), received),
            None => (None, received),
        };
        ReadContext {
            key: std::mem::take(&mut entry.key),
            since,
            until,
            pushes: entry.pushes,
            first_push_may_be_old: entry.first_push_may_be_old,
            missed: entry.missed,
        }
    }

    /// Whether the key is known to be on this node, whichever node serves its slot.
    pub(super) fn is_here(&self, ticket: Ticket) -> bool {
        let entry = &self.slots[ticket.slot as usize];
        entry.pushes > 0 || entry.scanned
    }

    /// Whether a pass waits for the key.
    pub(super) fn is_scanned(&self, ticket: Ticket) -> bool {
        self.slots[ticket.slot as usize].scanned
    }

    /// The replies will not arrive, so the key is queued again.
    pub(super) fn requeue(&mut self, ticket: Ticket) {
        let reason = if self.is_scanned(ticket) { ReadReason::Scanned } else { ReadReason::Requested };
        self.enqueue(ticket.slot, reason);
    }

    /// Number of keys that the current pass still waits for.
    pub(super) fn scanned_left(&self) -> usize {
        self.scanned
    }

    pub(super) fn skipped(&self) -> usize {
        self.skipped
    }

    /// The time up to which all changes have been reported. Changes of queued keys happened later.
    /// Skipped changes are never reported and do not count.
    pub(super) fn reported_up_to(&self, caught_up: TimeMs) -> TimeMs {
        if self.pushed == self.skipped {
            return caught_up;
        }
        let waiting = self
            .slots
            .iter()
            .filter(|slot| slot.pushes > 0 && !matches!(slot.state, ReadState::Free | ReadState::Skipped));
        waiting.map(|slot| slot.since).fold(caught_up, TimeMs::min)
    }

    fn find(&self, hash: u64, key: &str) -> Option<u32> {
        self.index.find(hash, |slot| &*self.slots[*slot as usize].key == key).copied()
    }

    fn insert(&mut self, hash: u64, key: Box<str>, state: ReadState) -> u32 {
        let fresh = |generation| QueuedKey {
            key,
            generation,
            state,
            pushes: 0,
            first_push_may_be_old: false,
            missed: false,
            scanned: false,
            since: 0,
            until: 0,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                let entry = &mut self.slots[slot as usize];
                *entry = fresh(entry.generation);
                slot
            }
            None => {
                self.slots.push(fresh(0));
                self.slots.len() as u32 - 1
            }
        };
        let (slots, hashing) = (&self.slots, &self.hashing);
        self.index.insert_unique(hash, slot, |slot| hashing.hash_one(&*slots[*slot as usize].key));
        slot
    }

    fn enqueue(&mut self, slot: u32, reason: ReadReason) {
        let entry = &mut self.slots[slot as usize];
        self.waiting_pushed -= usize::from(entry.state == ReadState::Queued(ReadReason::Pushed));
        self.waiting_pushed += usize::from(reason == ReadReason::Pushed);
        entry.state = ReadState::Queued(reason);
        self.queues[reason as usize].push_back(Ticket { slot, generation: entry.generation });
    }
}

/// Whether the ticket still stands for a skipped key.
fn is_skipped(slots: &[QueuedKey], ticket: Ticket) -> bool {
    let entry = &slots[ticket.slot as usize];
    entry.generation == ticket.generation && entry.state == ReadState::Skipped
}

#[cfg(test)]
mod tests;
