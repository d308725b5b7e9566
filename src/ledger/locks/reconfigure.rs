//! Takes the locks and their history over into a new configuration.
//!
//! `ledger::reconfigure` calls [`LockTracker::reconfigured`] during a reload.

use std::sync::Arc;

use super::namespace_chooser::{ChosenNamespace, NamespaceChooser};
use super::table::TrackedLock;
use super::{KeyspaceSettings, LockTracker};
use crate::ledger::reconfigure::LinkContinuity;
use crate::ledger::renumbering::Renumbering;
use crate::model::key_template::KeyTemplate;
use crate::model::namespace::Namespace;
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
        let mut keys = self.keys.reconfigured(namespaces, renumbering, now);
        if fences(&self.namespaces) != fences(namespaces) {
            keys.forget_fences();
        }
        let mut new = Self {
            keys,
            memory: self.memory.renumbered(renumbering),
            links: self.links,
            table: self.table,
            remembered: self.remembered,
            ..Self::new(settings, namespaces)
        };
        if continuity != LinkContinuity::Kept {
            new.links.replaced(now);
        }
        let Self { table, chooser, .. } = &mut new;
        table.reconfigure(namespaces.len(), |lock| new_namespace(chooser, lock, renumbering, continuity));
        new
    }
}

/// The new lock namespace of a lock. `None` if the lock must be forgotten because its namespace
/// starts over.
fn new_namespace(
    chooser: &NamespaceChooser,
    lock: &TrackedLock,
    renumbering: &Renumbering,
    continuity: LinkContinuity,
) -> Option<ChosenNamespace> {
    let hold = lock.hold();
    let ttl = hold.deadline.map(|deadline| deadline.high() - hold.set_at);
    let choice = chooser.choose(lock.key(), ttl)?;
    let same = renumbering.namespace(lock.namespace());
    let same = same.filter(|namespace| chooser.is_candidate(*namespace, lock.key()));
    // A link that keeps running does not show the lock as a new one. To forget the lock would make
    // its next change look like an acquisition.
    let chosen = Some(choice.namespace).filter(|_| continuity == LinkContinuity::Kept);
    Some(ChosenNamespace { namespace: same.or(chosen)?, ..choice })
}

fn fences(namespaces: &[Arc<Namespace>]) -> Vec<(&[KeyTemplate], &KeyTemplate)> {
    namespaces.iter().filter_map(|namespace| Some((&*namespace.keys, namespace.fence.as_ref()?))).collect()
}
