//! The locks as Redis shows them: applies batches from links and keeps the table of held locks.
//!
//! `ledger::keyspace_updates` calls [`LockTracker`]; `queries` and `causes` read it. Only the
//! counters and the begins of holds are saved: after a start, every sighting of a lock is its first
//! one. In reading order:
//!
//! * this file: the tracker, and how it applies a batch from a link
//! * `apply_sighting`: applies one read of one key to the table
//! * `hold`: infers transitions from the previous state of a lock and the current sighting
//! * `count_transitions`: adds transitions to counters and history
//! * `namespace_chooser`: chooses the lock namespace from key and TTL
//! * `table`: held locks in little memory
//! * `links`: which links report every change, and since when
//! * `history`, `ring`, `bounded`: bounded memory of ended holds, renewals, lines and fences
//! * `survey`: gauges by lock namespace
//! * `remembered_holds`: since when locks have been held, over a restart
//! * `reconfigure`: takes everything over into a new configuration

mod apply_sighting;
mod bounded;
pub(super) mod count_transitions;
pub(super) mod history;
pub(super) mod hold;
mod links;
mod namespace_chooser;
mod reconfigure;
pub(super) mod remembered_holds;
pub(super) mod ring;
mod survey;
pub(super) mod table;

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;

use super::causes::Causes;
use super::recent::Recent;
use crate::model::counters::KeyspaceCounters;
use crate::model::namespace::{Namespace, NamespaceId};
use crate::model::sighting::{LinkBatch, LinkEvent, LinkId};
use crate::util::clock::TimeMs;
use bounded::Bounded;
use history::{CountedLines, HoldHistory, Renewals};
use hold::Transition;
use links::Links;
use namespace_chooser::NamespaceChooser;
use remembered_holds::RememberedHolds;
use ring::KeyHash;
use survey::Surveyed;
use table::{LockSlot, Table, TrackedLock};

/// Capacity of each of `fences`, `not_locks` and `untracked`.
const REMEMBERED: usize = 65_536;

/// Limits and times of the tracking of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyspaceSettings {
    /// Maximum number of locks tracked at the same time.
    pub max_tracked_locks: usize,
    /// How long a loss waits for Redis to show its cause, in milliseconds.
    pub cause_wait: TimeMs,
}

/// Where transitions are counted.
pub(super) struct AllCounters<'a> {
    /// Keyed by lock namespace.
    pub(super) saved: &'a mut BTreeMap<String, KeyspaceCounters>,
    /// One entry per lock namespace.
    pub(super) recents: &'a mut [Recent],
}

pub(super) struct LockTracker {
    pub(super) settings: KeyspaceSettings,
    pub(super) namespaces: Vec<Arc<Namespace>>,
    pub(super) belonging: NamespaceChooser,
    pub(super) links: Links,
    pub(super) table: Table,
    pub(super) history: HoldHistory,
    pub(super) renewals: Renewals,
    pub(super) sayings: CountedLines,
    pub(super) causes: Causes,
    /// One entry per lock namespace.
    pub(super) states: Vec<NamespaceState>,
    pub(super) fixed: Vec<FixedKey>,
    /// The last value of each fence, keyed by the lock.
    pub(super) fences: Bounded<u64>,
    pub(super) not_locks: Bounded<NotALock>,
    pub(super) untracked: Bounded<()>,
    pub(super) remembered: RememberedHolds,
    /// Keyed anew in each process, so that nobody can choose keys whose hashes collide.
    pub(super) hasher: RandomState,
    /// Empty between two sightings. Kept to reuse its memory.
    pub(super) transitions: Vec<Transition>,
}

/// State of one lock namespace besides its counters.
pub(super) struct NamespaceState {
    pub(super) held: u64,
    pub(super) without_ttl: u64,
    /// Those among them that had a TTL and lost it.
    pub(super) lost_ttl: u64,
    /// All key templates of the namespace start with literal text. Redis tracks changes by prefix,
    /// so without such text changes cannot be watched.
    pub(super) watchable: bool,
    /// Changes of locks of this namespace were skipped up to this time.
    pub(super) missed_until: Option<TimeMs>,
    pub(super) surveyed: Surveyed,
}

/// A key template without fields. It describes one lock, and the time since it was last held is
/// exported.
pub(super) struct FixedKey {
    pub(super) key: Box<str>,
    pub(super) namespace: NamespaceId,
    /// End of the last known hold. Does not include the current hold.
    pub(super) last_held: Option<TimeMs>,
}

pub(super) struct NotALock {
    pub(super) namespace: NamespaceId,
    pub(super) link: LinkId,
    pub(super) seen: TimeMs,
    /// The key belongs to a lock, but nobody holds it.
    pub(super) is_vacant: bool,
}

impl LockTracker {
    pub(super) fn new(settings: KeyspaceSettings, namespaces: &[Arc<Namespace>]) -> Self {
        let state = |namespace: &Arc<Namespace>| NamespaceState {
            held: 0,
            without_ttl: 0,
            lost_ttl: 0,
            watchable: namespace.keys.iter().all(|template| !template.prefix().is_empty()),
            missed_until: None,
            surveyed: Surveyed::default(),
        };
        let mut fixed = Vec::new();
        for (index, namespace) in namespaces.iter().enumerate() {
            for template in namespace.keys.iter().filter(|template| template.is_fixed()) {
                let (key, namespace) = (template.prefix().into(), NamespaceId(index as u16));
                fixed.push(FixedKey { key, namespace, last_held: None });
            }
        }
        Self {
            settings,
            belonging: NamespaceChooser::new(namespaces),
            states: namespaces.iter().map(state).collect(),
            namespaces: namespaces.to_vec(),
            links: Links::default(),
            table: Table::default(),
            history: HoldHistory::default(),
            renewals: Renewals::default(),
            sayings: CountedLines::default(),
            causes: Causes::default(),
            fixed,
            fences: Bounded::new(REMEMBERED),
            not_locks: Bounded::new(REMEMBERED),
            untracked: Bounded::new(REMEMBERED),
            remembered: RememberedHolds::default(),
            hasher: RandomState::new(),
            transitions: Vec::new(),
        }
    }

    pub(super) fn hash(&self, key: &str) -> KeyHash {
        KeyHash(self.hasher.hash_one(key))
    }

    pub(super) fn apply(&mut self, counters: &mut AllCounters, batch: LinkBatch) {
        let LinkBatch { link, news } = batch;
        for news in news {
            match news {
                LinkEvent::Seen(sighting) => self.see(counters, link, sighting),
                LinkEvent::Skipped { at, namespaces } => {
                    namespaces.into_iter().for_each(|namespace| self.missed(namespace, at));
                }
                LinkEvent::PassDone { started, at } => {
                    self.links.apply(link, &news);
                    self.pass_done(link, started, at);
                }
                LinkEvent::Flushed { at } => {
                    self.links.apply(link, &news);
                    self.flushed(link, at);
                }
                news => self.links.apply(link, &news),
            }
        }
    }

    pub(super) fn due_reads(&mut self, now: TimeMs, limit: usize) -> Vec<Box<str>> {
        let mut due = Vec::new();
        self.table.due_reads(now, limit, |lock| due.push(lock.key.clone()));
        due
    }

    /// Changes of locks of this namespace were skipped before `at`.
    pub(super) fn missed(&mut self, namespace: NamespaceId, at: TimeMs) {
        if let Some(state) = self.states.get_mut(usize::from(namespace.0)) {
            state.missed_until = state.missed_until.max(Some(at));
        }
    }

    /// Marks the locks that a complete pass did not list. They are gone, or `SCAN` failed to list
    /// them; a read of each key decides.
    fn pass_done(&mut self, id: LinkId, started: TimeMs, now: TimeMs) {
        let is_complete = self.links.get(id).is_some_and(|link| link.pass_started == Some(started));
        if !is_complete {
            return;
        }
        let orphans_since = self.links.orphans_missing_since();
        let is_missing = |lock: &TrackedLock| match self.links.get(lock.link) {
            Some(_) => lock.link == id && (lock.life.read_sent < started || self.links.is_doubtful(lock)),
            None => orphans_since.is_some_and(|since| lock.life.read_sent < since),
        };
        let missing: Vec<LockSlot> =
            self.table.iter().filter(|(_, lock)| is_missing(lock)).map(|(slot, _)| slot).collect();
        for slot in missing {
            self.table.verify(slot, now);
        }
        self.not_locks.retain(|not_lock| not_lock.link != id || not_lock.seen >= started);
        if self.links.know_all_locks() {
            self.remembered.forget();
        }
    }

    /// The flush may have deleted the locks of the link, or it was a flush of another database. A
    /// read of each key decides.
    fn flushed(&mut self, id: LinkId, at: TimeMs) {
        let of_link: Vec<LockSlot> =
            self.table.iter().filter(|(_, lock)| lock.link == id).map(|(slot, _)| slot).collect();
        for slot in of_link {
            self.table.verify(slot, at);
        }
    }

    pub(super) fn remove(&mut self, hash: KeyHash, slot: LockSlot) -> Option<TrackedLock> {
        let lock = self.table.remove(hash, slot)?;
        self.states[usize::from(lock.namespace.0)].loses(&lock);
        Some(lock)
    }
}

impl NamespaceState {
    pub(super) fn gains(&mut self, lock: &TrackedLock) {
        self.held += 1;
        self.without_ttl += u64::from(lock.life.deadline.is_none());
        self.lost_ttl += u64::from(lock.life.lost_ttl);
    }

    pub(super) fn loses(&mut self, lock: &TrackedLock) {
        self.held -= 1;
        self.without_ttl -= u64::from(lock.life.deadline.is_none());
        self.lost_ttl -= u64::from(lock.life.lost_ttl);
    }
}

pub(super) fn is_watchable(states: &[NamespaceState], namespace: NamespaceId) -> bool {
    states.get(usize::from(namespace.0)).is_some_and(|state| state.watchable)
}

#[cfg(test)]
mod tests;
