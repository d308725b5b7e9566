//! Applies one sighting: finds its lock and lock namespace, calls [`hold::infer`], and updates the
//! table and the counters.
//!
//! `LockTracker::apply` calls [`LockTracker::see`] for each sighting in a batch.

use std::hash::BuildHasher;

use super::hold::{self, SightingContext, Transition};
use super::links::LinkState;
use super::namespace_chooser::ChosenNamespace;
use super::ring::KeyHash;
use super::table::{LockSlot, TrackedLock};
use super::{AllCounters, LockTracker, NotALock, is_watchable};
use crate::model::namespace::AcquiredWith;
use crate::model::sighting::{Held, KeyState, LinkId, Sighting};
use crate::snapshot::ObservedOperation;
use crate::util::clock::TimeMs;

/// The subject of a sighting.
struct SightedKey {
    hash: KeyHash,
    /// The slot of the lock in the table, if it was held.
    slot: Option<LockSlot>,
    choice: ChosenNamespace,
    id: LinkId,
    link: LinkState,
}

impl LockTracker {
    pub(in crate::ledger) fn see(&mut self, counters: &mut AllCounters, id: LinkId, sighting: Sighting) {
        let Some(link) = self.links.get(id).copied() else { return };
        if link.watching {
            self.links.caught_up(id, sighting.sent);
        }
        let hash = self.hash(&sighting.key);
        let slot = self.table.find(hash, &sighting.key);
        let known = slot.and_then(|slot| self.table.get(slot));
        // Batches of two links may arrive out of order.
        if known.is_some_and(|lock| lock.link != id && sighting.received < lock.life.read_sent) {
            return;
        }
        if slot.is_none() && matches!(sighting.sight, KeyState::Held(_)) {
            self.not_locks.remove(hash);
        }
        let held = match &sighting.sight {
            KeyState::Unreadable => return,
            KeyState::Elsewhere => {
                if let Some(slot) = slot
                    && let Some(lock) = self.table.get_mut(slot).filter(|lock| lock.link == id)
                {
                    lock.epoch = 0;
                    // If the lock was released and not moved, no other node ever reports it on its
                    // own.
                    self.table.verify(slot, sighting.received);
                }
                return;
            }
            KeyState::NotALock | KeyState::Vacant => {
                let is_vacant = sighting.sight == KeyState::Vacant;
                if let Some(choice) = self.belonging.choose(&sighting.key, None) {
                    let (namespace, seen) = (choice.namespace, sighting.received);
                    self.not_locks.insert(hash, NotALock { namespace, link: id, seen, is_vacant });
                }
                if slot.is_none() {
                    return;
                }
                None
            }
            KeyState::Absent => {
                let was_no_lock = self.not_locks.remove(hash).is_some();
                // The end of a hold that was not tracked must not count as a short hold.
                if (was_no_lock || self.untracked.remove(hash).is_some()) && slot.is_none() {
                    return;
                }
                None
            }
            KeyState::Held(held) => Some(held),
        };
        if let Some(choice) = self.choose(slot, &sighting, held) {
            if sighting.missed {
                self.missed(choice.namespace, sighting.received);
            }
            self.infer(counters, SightedKey { hash, slot, choice, id, link }, &sighting, held);
        }
    }

    /// The lock namespace of the lock after the sighting.
    fn choose(&self, slot: Option<LockSlot>, sighting: &Sighting, held: Option<&Held>) -> Option<ChosenNamespace> {
        let ttl = match held {
            // The TTL was longer at the time of the push than at the time of the read.
            Some(held) => held.ttl_ms.map(|ttl| ttl + (sighting.sent - sighting.until).max(0)),
            None => Some(0),
        };
        let Some(lock) = slot.and_then(|slot| self.table.get(slot)) else {
            return self.belonging.choose(&sighting.key, ttl);
        };
        let stays = held.is_none_or(|held| {
            let same_owner = lock.life.may_be_owned_by(held.owner);
            !lock.shared || same_owner && self.belonging.can_have(lock.namespace, held.ttl_ms)
        });
        match stays {
            true => Some(ChosenNamespace { namespace: lock.namespace, shared: lock.shared }),
            false => self.belonging.choose(&sighting.key, ttl),
        }
    }

    fn infer(&mut self, counters: &mut AllCounters, subject: SightedKey, sighting: &Sighting, held: Option<&Held>) {
        let SightedKey { hash, slot, choice, id, link } = subject;
        let before = slot.and_then(|slot| self.table.get(slot));
        if before.is_none() && held.is_some() && self.table.len() >= self.settings.max_tracked_locks {
            if self.untracked.insert(hash, ()).is_none() {
                self.counters_of(counters, choice.namespace).untracked += 1;
            }
            return;
        }
        let namespace = &self.namespaces[usize::from(choice.namespace.0)];
        let context = SightingContext {
            watching: link.watching && is_watchable(&self.states, choice.namespace),
            // A lock that the table had no room for may have been held for long.
            baseline: link.baseline && !self.untracked.contains(hash),
            doubtful: before.is_some_and(|lock| lock.link != id || lock.epoch != link.epoch),
            failover: before.is_some_and(|lock| link.failed_over_since(lock)),
            flushed: before.is_some_and(|lock| lock.link == id && link.only_flushed_since(lock)),
            evicted: link.evicted,
            pass_started: link.pass_started.unwrap_or(TimeMs::MAX),
            ttl: self.belonging.ttl(choice.namespace),
            renewal_changes_owner: namespace.renewal_changes_owner,
            acquired_with_nx: namespace.acquired_with == AcquiredWith::Nx,
            may_be_vacant: namespace.owner.may_show_nobody(),
        };
        let mut namespace = before.map_or(choice.namespace, |lock| lock.namespace);
        let mut transitions = std::mem::take(&mut self.transitions);
        let after = hold::infer(before.map(|lock| &lock.life), held, sighting, &context, &mut transitions);
        for transition in transitions.drain(..) {
            // If the renewed TTL fits only another namespace, the lock belongs to that one.
            if matches!(transition, Transition::Renewed { .. }) && after.is_some() {
                namespace = choice.namespace;
            }
            self.count(counters, &sighting.key, hash, namespace, &transition);
            if matches!(transition, Transition::Ended { .. }) {
                namespace = choice.namespace;
            }
        }
        self.transitions = transitions;
        if let Some(fence) = held.and_then(|held| held.fence)
            && self.fences.insert(hash, fence).is_some_and(|before| fence < before)
        {
            self.counters_of(counters, choice.namespace).fence_regressions += 1;
            counters.recents[usize::from(choice.namespace.0)].add(
                ObservedOperation::FenceRegression,
                1,
                sighting.received,
            );
        }
        match (slot, after) {
            (None, None) => {}
            (Some(slot), None) => {
                self.remove(hash, slot);
            }
            (None, Some(life)) => {
                self.untracked.remove(hash);
                let life = self.remembered.recall(&sighting.key, life);
                let lock = TrackedLock::new(sighting.key.clone(), life, (id, link.epoch), choice);
                self.states[usize::from(choice.namespace.0)].gains(&lock);
                let Self { table, hasher, .. } = self;
                let slot = table.insert(lock, |key| KeyHash(hasher.hash_one(key)));
                self.table.schedule(slot);
            }
            (Some(slot), Some(life)) => {
                let Some(lock) = self.table.get_mut(slot) else { return };
                self.states[usize::from(lock.namespace.0)].loses(lock);
                (lock.life, lock.link, lock.epoch) = (life, id, link.epoch);
                (lock.namespace, lock.unverified) = (choice.namespace, false);
                self.states[usize::from(choice.namespace.0)].gains(lock);
                self.table.schedule(slot);
            }
        }
    }
}
