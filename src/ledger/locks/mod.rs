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
//! * `history`: bounded memory of ended holds, renewals and log lines
//! * `known_keys`: fences, keys that are no locks, locks without room in the table, fixed keys
//! * `ring`, `bounded`: the data structures of these memories
//! * `survey`: gauges by lock namespace
//! * `evidence`: what `causes` may know about a lock
//! * `remembered_holds`: since when locks have been held, over a restart
//! * `reconfigure`: takes everything over into a new configuration

mod apply_sighting;
mod bounded;
pub(super) mod count_transitions;
pub(super) mod evidence;
pub(super) mod history;
pub(super) mod hold;
mod known_keys;
mod links;
mod namespace_chooser;
mod reconfigure;
pub(super) mod remembered_holds;
pub(super) mod ring;
mod survey;
pub(super) mod table;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::recent::Recent;
use crate::model::counters::KeyspaceCounters;
use crate::model::namespace::{Namespace, NamespaceId};
use crate::model::sighting::{LinkBatch, LinkEvent, LinkId};
use crate::util::clock::TimeMs;
use history::LockMemory;
use hold::{Hold, Transition};
use known_keys::KnownKeys;
use links::LinkTable;
use namespace_chooser::NamespaceChooser;
use remembered_holds::RememberedHolds;
use survey::Surveyed;
use table::{LockSlot, LockTable, TrackedLock};

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

/// The locks in Redis. The rest of the ledger uses its methods only.
pub(super) struct LockTracker {
    settings: KeyspaceSettings,
    namespaces: Vec<Arc<Namespace>>,
    chooser: NamespaceChooser,
    links: LinkTable,
    table: LockTable,
    memory: LockMemory,
    keys: KnownKeys,
    /// One entry per lock namespace.
    states: Vec<NamespaceState>,
    remembered: RememberedHolds,
    /// Empty between two sightings. Kept to reuse its memory.
    transitions: Vec<Transition>,
}

/// State of one lock namespace besides its counters.
struct NamespaceState {
    /// All key templates of the namespace start with literal text. Redis tracks changes by prefix,
    /// so without such text changes cannot be watched.
    watchable: bool,
    /// Changes of locks of this namespace were skipped up to this time.
    missed_until: Option<TimeMs>,
    surveyed: Surveyed,
}

impl LockTracker {
    pub(super) fn new(settings: KeyspaceSettings, namespaces: &[Arc<Namespace>]) -> Self {
        let state = |namespace: &Arc<Namespace>| NamespaceState {
            watchable: namespace.keys.iter().all(|template| !template.prefix().is_empty()),
            missed_until: None,
            surveyed: Surveyed::default(),
        };
        Self {
            settings,
            chooser: NamespaceChooser::new(namespaces),
            states: namespaces.iter().map(state).collect(),
            namespaces: namespaces.to_vec(),
            links: LinkTable::default(),
            table: LockTable::new(namespaces.len()),
            memory: LockMemory::default(),
            keys: KnownKeys::new(namespaces),
            remembered: RememberedHolds::default(),
            transitions: Vec::new(),
        }
    }

    /// How long a loss waits for Redis to show its cause.
    pub(super) fn cause_wait(&self) -> TimeMs {
        self.settings.cause_wait
    }

    pub(super) fn table(&self) -> &LockTable {
        &self.table
    }

    pub(super) fn memory(&self) -> &LockMemory {
        &self.memory
    }

    /// The current hold of a lock.
    pub(super) fn hold(&self, key: &str) -> Option<&Hold> {
        self.table.lock(key).map(TrackedLock::hold)
    }

    pub(super) fn namespace(&self, id: NamespaceId) -> &Namespace {
        &self.namespaces[usize::from(id.0)]
    }

    /// The lock namespace of a key that is not held.
    pub(super) fn namespace_of_key(&self, key: &str) -> Option<NamespaceId> {
        self.chooser.choose(key, None).map(|choice| choice.namespace)
    }

    /// Whether the lock was not seen since an interruption.
    pub(super) fn is_doubtful(&self, lock: &TrackedLock) -> bool {
        self.links.is_doubtful(lock)
    }

    /// Number of entries that left each table because it was full.
    pub(super) fn evictions(&self) -> impl Iterator<Item = (&'static str, u64)> {
        std::iter::once(("lock_history", self.memory.evictions())).chain(self.keys.evictions())
    }

    pub(super) fn apply(&mut self, counters: &mut AllCounters, batch: LinkBatch) {
        let LinkBatch { link, news } = batch;
        for news in news {
            match news {
                LinkEvent::Seen(sighting) => self.apply_sighting(counters, link, sighting),
                LinkEvent::Skipped { at, namespaces } => {
                    namespaces.into_iter().for_each(|namespace| self.missed(namespace, at));
                }
                LinkEvent::PassDone { started, at } => {
                    self.links.apply(link, &news);
                    self.pass_done(link, started, at);
                }
                LinkEvent::Flushed { at } | LinkEvent::Up { at, .. } => {
                    self.links.apply(link, &news);
                    self.verify(at, |lock| lock.link() == link);
                }
                news => self.links.apply(link, &news),
            }
        }
    }

    pub(super) fn due_reads(&mut self, now: TimeMs, limit: usize) -> Vec<Box<str>> {
        let mut due = Vec::new();
        self.table.due_reads(now, limit, |lock| due.push(lock.key().into()));
        due
    }

    /// Changes of locks of this namespace were skipped before `at`.
    fn missed(&mut self, namespace: NamespaceId, at: TimeMs) {
        if let Some(state) = self.states.get_mut(usize::from(namespace.0)) {
            state.missed_until = state.missed_until.max(Some(at));
        }
    }

    /// Marks the locks that a complete pass did not list. They are gone, or `SCAN` failed to list
    /// them; a read of each key decides.
    fn pass_done(&mut self, id: LinkId, started: TimeMs, now: TimeMs) {
        let is_complete = self.links.get(id).is_some_and(|link| link.pass_started() == Some(started));
        if !is_complete {
            return;
        }
        let orphans_since = self.links.orphans_missing_since();
        let is_missing = |lock: &TrackedLock| match self.links.get(lock.link()) {
            Some(_) => lock.link() == id && (lock.hold().read_sent < started || self.links.is_doubtful(lock)),
            None => orphans_since.is_some_and(|since| lock.hold().read_sent < since),
        };
        let missing: Vec<LockSlot> =
            self.table.iter().filter(|(_, lock)| is_missing(lock)).map(|(slot, _)| slot).collect();
        for slot in missing {
            self.table.verify(slot, now);
        }
        self.keys.pass_done(id, started);
        if self.links.know_all_locks() {
            self.remembered.forget();
        }
    }

    /// Reads these locks again: a flush may have deleted them, or changes were missed without a
    /// connection. A pass
    /// would find that too, but takes long on a large keyspace.
    fn verify(&mut self, now: TimeMs, is_chosen: impl Fn(&TrackedLock) -> bool) {
        let chosen: Vec<LockSlot> =
            self.table.iter().filter(|(_, lock)| is_chosen(lock)).map(|(slot, _)| slot).collect();
        for slot in chosen {
            self.table.verify(slot, now);
        }
    }

    fn is_watchable(&self, namespace: NamespaceId) -> bool {
        self.states.get(usize::from(namespace.0)).is_some_and(|state| state.watchable)
    }
}

#[cfg(test)]
mod tests;
