//! Applies one sighting: finds its lock and lock namespace, calls [`hold::infer`], and updates the
//! table and the counters.
//!
//! `LockTracker::apply` calls [`LockTracker::apply_sighting`] for each sighting in a batch.

use super::hold::{self, SightingContext, Transition};
use super::known_keys::NoHold;
use super::links::LinkState;
use super::namespace_chooser::ChosenNamespace;
use super::ring::KeyHash;
use super::table::{LockSlot, TrackedLock};
use super::{AllCounters, LockTracker};
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
    pub(super) fn apply_sighting(&mut self, counters: &mut AllCounters, id: LinkId, sighting: Sighting) {
        let Some(link) = self.links.get(id).copied() else { return };
        if link.is_watching() {
            self.links.caught_up(id, sighting.sent);
        }
        let hash = self.table.hash(&sighting.key);
        let slot = self.table.find(hash, &sighting.key);
        let known = slot.and_then(|slot| self.table.get(slot));
        // Batches of two links may arrive out of order.
        if known.is_some_and(|lock| lock.link() != id && sighting.received < lock.hold().read_sent) {
            return;
        }
        if slot.is_none() && matches!(sighting.sight, KeyState::Held(_)) {
            self.keys.remove_without_hold(hash);
        }
        let held = match &sighting.sight {
            KeyState::Unreadable => return,
            KeyState::Elsewhere => {
                if let Some(slot) = slot.filter(|_| known.is_some_and(|lock| lock.link() == id)) {
                    self.table.moved_away(slot, sighting.received);
                }
                return;
            }
            KeyState::NotALock | KeyState::Vacant => {
                let reason = if sighting.sight == KeyState::Vacant { NoHold::Vacant } else { NoHold::WrongType };
                if let Some(choice) = self.chooser.choose(&sighting.key, None) {
                    self.keys.add_without_hold(hash, choice.namespace, reason, (id, sighting.received));
                }
                if slot.is_none() {
                    return;
                }
                None
            }
            KeyState::Absent => {
                let had_no_hold = self.keys.remove_without_hold(hash);
                // The end of a hold that was not tracked must not count as a short hold.
                if (had_no_hold || self.keys.remove_untracked(hash)) && slot.is_none() {
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
            return self.chooser.choose(&sighting.key, ttl);
        };
        let stays = held.is_none_or(|held| {
            let same_owner = lock.hold().may_be_owned_by(held.owner);
            !lock.is_shared() || same_owner && self.chooser.can_have(lock.namespace(), held.ttl_ms)
        });
        match stays {
            true => Some(ChosenNamespace { namespace: lock.namespace(), shared: lock.is_shared() }),
            false => self.chooser.choose(&sighting.key, ttl),
        }
    }

    fn infer(&mut self, counters: &mut AllCounters, subject: SightedKey, sighting: &Sighting, held: Option<&Held>) {
        let SightedKey { hash, slot, choice, id, link } = subject;
        let before = slot.and_then(|slot| self.table.get(slot));
        if before.is_none() && held.is_some() && self.table.len() >= self.settings.max_tracked_locks {
            if self.keys.add_untracked(hash) {
                self.counters_of(counters, choice.namespace).untracked += 1;
            }
            return;
        }
        let namespace = &self.namespaces[usize::from(choice.namespace.0)];
        let context = SightingContext {
            watching: link.is_watching() && self.is_watchable(choice.namespace),
            // A lock that the table had no room for may have been held for long.
            baseline: link.has_baseline() && !self.keys.is_untracked(hash),
            doubtful: before.is_some_and(|lock| lock.link() != id || lock.epoch() != link.epoch()),
            failover: before.is_some_and(|lock| link.failed_over_since(lock)),
            flushed: before.is_some_and(|lock| lock.link() == id && link.only_flushed_since(lock)),
            evicted: link.evicted(),
            pass_started: link.pass_started().unwrap_or(TimeMs::MAX),
            ttl: self.chooser.ttl(choice.namespace),
            renewal_changes_owner: namespace.renewal_changes_owner,
            acquired_with_nx: namespace.acquired_with == AcquiredWith::Nx,
            may_be_vacant: namespace.owner.may_show_nobody(),
        };
        let mut namespace = before.map_or(choice.namespace, TrackedLock::namespace);
        let mut transitions = std::mem::take(&mut self.transitions);
        let after = hold::infer(before.map(TrackedLock::hold), held, sighting, &context, &mut transitions);
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
            && self.keys.fence_regressed(hash, fence)
        {
            self.counters_of(counters, choice.namespace).fence_regressions += 1;
            counters.recents[usize::from(choice.namespace.0)].add(
                ObservedOperation::FenceRegression,
                1,
                sighting.received,
            );
        }
        let seen_by = (id, link.epoch());
        match (slot, after) {
            (None, None) => {}
            (Some(slot), None) => self.table.remove(hash, slot),
            (None, Some(hold)) => {
                self.keys.remove_untracked(hash);
                let hold = self.remembered.recall(&sighting.key, hold);
                self.table.insert(TrackedLock::new(sighting.key.clone(), hold, seen_by, choice));
            }
            (Some(slot), Some(hold)) => self.table.update(slot, hold, seen_by, choice.namespace),
        }
    }
}
