//! The locks as Redis shows them: applies batches of links and keeps the table of held locks.
//!
//! `ledger::keyspace_updates` calls [`LockTracker`]; `queries` and `causes` read it. Only the counters are saved: after a
//! start, every lock is seen for the first time. In reading order:
//!
//! * this file: the tracker, and what a batch of a link does to it
//! * `apply_sighting`: one read of one key -> table update
//! * `hold`: from the previous and the current sighting to what happened in between
//! * `count_transitions`: from what happened to counters and history
//! * `namespace_chooser`: key and TTL -> namespace
//! * `table`: held locks in little memory
//! * `links`: which links see everything, and since when
//! * `history`, `ring`, `bounded`: bounded memory of ended holds, renewals, lines and fences
//! * `survey`: gauges by namespace

mod apply_sighting;
mod bounded;
pub(super) mod count_transitions;
pub(super) mod history;
pub(super) mod hold;
mod links;
mod namespace_chooser;
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
use crate::model::sighting::{LinkBatch, LinkId, LinkNews};
use crate::util::clock::TimeMs;
use bounded::Bounded;
use history::{HoldHistory, Renewals, Sayings};
use hold::{Ending, Fact};
use links::Links;
use namespace_chooser::Belonging;
use ring::KeyHash;
use survey::Surveyed;
use table::{LockSlot, Table, TrackedLock};

/// Fences, keys that are no locks, and locks that the full table could not take, each.
const REMEMBERED: usize = 65_536;

/// How the keyspace is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyspaceSettings {
    /// Locks kept track of at the same time.
    pub max_tracked_locks: usize,
    /// How long a lost lock waits for Redis to tell the cause.
    pub cause_wait: TimeMs,
}

/// Where facts are counted.
pub(super) struct AllCounters<'a> {
    /// By name of the namespace.
    pub(super) saved: &'a mut BTreeMap<String, KeyspaceCounters>,
    /// One for each namespace.
    pub(super) recents: &'a mut [Recent],
}

pub(super) struct LockTracker {
    pub(super) settings: KeyspaceSettings,
    pub(super) namespaces: Vec<Arc<Namespace>>,
    pub(super) belonging: Belonging,
    pub(super) links: Links,
    pub(super) table: Table,
    pub(super) history: HoldHistory,
    pub(super) renewals: Renewals,
    pub(super) sayings: Sayings,
    pub(super) causes: Causes,
    /// One for each namespace.
    pub(super) states: Vec<NamespaceState>,
    pub(super) fixed: Vec<FixedKey>,
    /// The last value of each fence, by the key of its lock.
    pub(super) fences: Bounded<u64>,
    pub(super) not_locks: Bounded<NotALock>,
    pub(super) untracked: Bounded<()>,
    /// Keyed anew in each process, so that nobody can choose keys that collide.
    pub(super) hasher: RandomState,
    /// Used again for each sighting.
    pub(super) facts: Vec<Fact>,
}

/// What is known of one namespace beside its counters.
pub(super) struct NamespaceState {
    pub(super) held: u64,
    pub(super) without_ttl: u64,
    /// All its keys begin with literal text, which is what Redis needs for telling of changes.
    pub(super) watchable: bool,
    pub(super) surveyed: Surveyed,
}

/// A template without fields is one lock, worth knowing when nobody has it.
pub(super) struct FixedKey {
    pub(super) key: Box<str>,
    pub(super) namespace: NamespaceId,
    /// When somebody last had it, if nobody has now.
    pub(super) last_held: Option<TimeMs>,
}

pub(super) struct NotALock {
    pub(super) namespace: NamespaceId,
    pub(super) link: LinkId,
    pub(super) seen: TimeMs,
    /// It is a lock that nobody holds.
    pub(super) is_vacant: bool,
}

impl LockTracker {
    pub(super) fn new(settings: KeyspaceSettings, namespaces: &[Arc<Namespace>]) -> Self {
        let state = |namespace: &Arc<Namespace>| NamespaceState {
            held: 0,
            without_ttl: 0,
            watchable: namespace.keys.iter().all(|template| !template.prefix().is_empty()),
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
            belonging: Belonging::new(namespaces),
            states: namespaces.iter().map(state).collect(),
            namespaces: namespaces.to_vec(),
            links: Links::default(),
            table: Table::default(),
            history: HoldHistory::default(),
            renewals: Renewals::default(),
            sayings: Sayings::default(),
            causes: Causes::default(),
            fixed,
            fences: Bounded::new(REMEMBERED),
            not_locks: Bounded::new(REMEMBERED),
            untracked: Bounded::new(REMEMBERED),
            hasher: RandomState::new(),
            facts: Vec::new(),
        }
    }

    pub(super) fn hash(&self, key: &str) -> KeyHash {
        KeyHash(self.hasher.hash_one(key))
    }

    pub(super) fn apply(&mut self, counters: &mut AllCounters, batch: LinkBatch) {
        let LinkBatch { link, news } = batch;
        for news in news {
            match news {
                LinkNews::Seen(sighting) => self.see(counters, link, sighting),
                LinkNews::PassDone { started, at } => {
                    self.links.apply(link, &news);
                    self.pass_done(link, started, at);
                }
                LinkNews::Flushed { at } => {
                    self.flushed(counters, link, at);
                    self.links.apply(link, &news);
                }
                news => self.links.apply(link, &news),
            }
        }
    }

    pub(super) fn due_reads(&mut self, now: TimeMs, limit: usize) -> Vec<Box<str>> {
        let mut due = Vec::new();
        let Self { table, links, states, .. } = self;
        let watched = |lock: &TrackedLock| links.is_watched(lock) && is_watchable(states, lock.namespace);
        table.due_reads(now, limit, watched, |lock| due.push(lock.key.clone()));
        due
    }

    /// Locks that a complete pass did not show have gone, or SCAN has failed to list them: a read of each will tell.
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
    }

    fn flushed(&mut self, counters: &mut AllCounters, id: LinkId, at: TimeMs) {
        let of_link: Vec<LockSlot> =
            self.table.iter().filter(|(_, lock)| lock.link == id).map(|(slot, _)| slot).collect();
        for slot in of_link {
            let Some(lock) = self.table.get(slot) else { continue };
            let (hash, seen_until) = (self.hash(&lock.key), self.links.last_known(lock));
            let Some(lock) = self.remove(hash, slot) else { continue };
            let ending = Fact::Ended { life: lock.life, ending: Ending::Flushed, at, seen_until, hold: None };
            self.count(counters, &lock.key, hash, lock.namespace, &ending);
        }
        self.not_locks.retain(|not_lock| not_lock.link != id);
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
    }

    pub(super) fn loses(&mut self, lock: &TrackedLock) {
        self.held -= 1;
        self.without_ttl -= u64::from(lock.life.deadline.is_none());
    }
}

pub(super) fn is_watchable(states: &[NamespaceState], namespace: NamespaceId) -> bool {
    states.get(usize::from(namespace.0)).is_some_and(|state| state.watchable)
}

#[cfg(test)]
mod tests;
