//! Takes the locks and their history over into a new configuration.
//!
//! `ledger::reconfigure` calls [`LockTracker::reconfigured`] during a reload.

use std::sync::Arc;

use super::table::{LockSlot, TrackedLock};
use super::{KeyspaceSettings, LockTracker};
use crate::ledger::reconfigure::LinkContinuity;
use crate::ledger::renumbering::Renumbering;
use crate::model::key_template::KeyTemplate;
use crate::model::namespace::{Namespace, NamespaceId};
use crate::util::clock::TimeMs;

impl LockTracker {
    /// `renumbering` finds the old lock namespaces among `namespaces`.
    pub(in crate::ledger) fn reconfigured(
        self,
        settings: KeyspaceSettings,
        namespaces: &[Arc<Namespace>],
        renumbering: &Renumbering,
        continuity: LinkContinuity,
        now: TimeMs,
    ) -> Self {
        let mut new = Self::new(settings, namespaces);
        if fences(&self.namespaces) == fences(namespaces) {
            new.fences = self.fences;
        }
        for fixed in &mut new.fixed {
            let is_same = |old: &&super::FixedKey| {
                old.key == fixed.key && renumbering.namespace(old.namespace) == Some(fixed.namespace)
            };
            // A key that was not observed until now counts as held now. Otherwise its lock would
            // seem to be absent since the start of the exporter.
            fixed.last_held = self.fixed.iter().find(is_same).map_or(Some(now), |old| old.last_held);
        }
        new.history = self.history.filter_map(|mut record| {
            record.namespace = renumbering.namespace(record.namespace)?;
            Some(record)
        });
        new.sayings = self.sayings.filter_map(|mut line| {
            line.rule = renumbering.rule(line.rule);
            Some(line)
        });
        new.not_locks = self.not_locks;
        new.not_locks.retain(|not_lock| match renumbering.namespace(not_lock.namespace) {
            Some(namespace) => {
                not_lock.namespace = namespace;
                true
            }
            None => false,
        });
        new.causes = self.causes;
        new.causes.renumber(renumbering);
        (new.renewals, new.untracked, new.hasher) = (self.renewals, self.untracked, self.hasher);
        new.remembered = self.remembered;
        (new.links, new.table) = (self.links, self.table);
        if continuity != LinkContinuity::Kept {
            new.links.replaced(now);
        }
        new.renumber_locks(renumbering, continuity);
        new
    }

    fn renumber_locks(&mut self, renumbering: &Renumbering, continuity: LinkContinuity) {
        let slots: Vec<LockSlot> = self.table.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            let Some(lock) = self.table.get(slot) else { continue };
            match self.new_namespace(lock, renumbering, continuity) {
                Some((namespace, shared)) => {
                    let Some(lock) = self.table.get_mut(slot) else { continue };
                    (lock.namespace, lock.shared) = (namespace, shared);
                    self.states[usize::from(namespace.0)].gains(lock);
                }
                None => {
                    let hash = self.hash(&lock.key);
                    self.table.remove(hash, slot);
                }
            }
        }
    }

    /// The new lock namespace of a lock, and whether several namespaces share its key template.
    /// `None` if the lock must be forgotten because its namespace starts over.
    fn new_namespace(
        &self,
        lock: &TrackedLock,
        renumbering: &Renumbering,
        continuity: LinkContinuity,
    ) -> Option<(NamespaceId, bool)> {
        let ttl = lock.life.deadline.map(|deadline| deadline.high() - lock.life.set_at);
        let choice = self.belonging.choose(&lock.key, ttl)?;
        let same = renumbering.namespace(lock.namespace);
        let same = same.filter(|namespace| self.belonging.is_candidate(*namespace, &lock.key));
        // A link that keeps running does not show the lock as a new one. To forget the lock would
        // make its next change look like an acquisition.
        let chosen = Some(choice.namespace).filter(|_| continuity == LinkContinuity::Kept);
        Some((same.or(chosen)?, choice.shared))
    }
}

fn fences(namespaces: &[Arc<Namespace>]) -> Vec<(&[KeyTemplate], &KeyTemplate)> {
    namespaces.iter().filter_map(|namespace| Some((&*namespace.keys, namespace.fence.as_ref()?))).collect()
}
