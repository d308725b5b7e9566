//! What is known about keys besides the held locks: the last value of each fence, keys that are not
//! locks, locks that the full table has no room for, and locks with a fixed key.
//!
//! `LockTracker` owns it. The tables are bounded, except for the fixed keys of the configuration.

use std::sync::Arc;

use super::bounded::Bounded;
use super::ring::KeyHash;
use crate::ledger::renumbering::Renumbering;
use crate::model::namespace::{Namespace, NamespaceId};
use crate::model::sighting::LinkId;
use crate::util::clock::TimeMs;

/// Capacity of each bounded table.
const CAPACITY: usize = 65_536;

pub(super) struct KnownKeys {
    /// The last value of each fence, keyed by the lock.
    fences: Bounded<u64>,
    not_locks: Bounded<NotALock>,
    untracked: Bounded<()>,
    fixed: Vec<FixedKey>,
}

/// A key that matches a key template, but shows no hold.
struct NotALock {
    namespace: NamespaceId,
    link: LinkId,
    seen: TimeMs,
    reason: NoHold,
}

/// Why an existing key shows no hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoHold {
    /// It has a type that no lock has.
    WrongType,
    /// It belongs to a lock, but nobody holds the lock.
    Vacant,
}

/// A key template without fields. It describes one lock, and the time since it was last held is
/// exported.
struct FixedKey {
    key: Box<str>,
    namespace: NamespaceId,
    /// End of the last known hold. Does not include the current hold.
    last_held: Option<TimeMs>,
}

impl KnownKeys {
    pub(super) fn new(namespaces: &[Arc<Namespace>]) -> Self {
        let mut fixed = Vec::new();
        for (index, namespace) in namespaces.iter().enumerate() {
            for template in namespace.keys.iter().filter(|template| template.is_fixed()) {
                let (key, namespace) = (template.prefix().into(), NamespaceId(index as u16));
                fixed.push(FixedKey { key, namespace, last_held: None });
            }
        }
        Self {
            fences: Bounded::new(CAPACITY),
            not_locks: Bounded::new(CAPACITY),
            untracked: Bounded::new(CAPACITY),
            fixed,
        }
    }

    /// What is still known with a new configuration.
    pub(super) fn reconfigured(self, namespaces: &[Arc<Namespace>], renumbering: &Renumbering, now: TimeMs) -> Self {
        let Self { fences, mut not_locks, untracked, .. } = self;
        not_locks.retain(|not_lock| match renumbering.namespace(not_lock.namespace) {
            Some(namespace) => {
                not_lock.namespace = namespace;
                true
            }
            None => false,
        });
        let mut new = Self { fences, not_locks, untracked, ..Self::new(namespaces) };
        for fixed in &mut new.fixed {
            let is_same =
                |old: &&FixedKey| old.key == fixed.key && renumbering.namespace(old.namespace) == Some(fixed.namespace);
            // A key that was not observed until now counts as held now. Otherwise its lock would
            // seem to be absent since the start of the exporter.
            fixed.last_held = self.fixed.iter().find(is_same).map_or(Some(now), |old| old.last_held);
        }
        new
    }

    pub(super) fn forget_fences(&mut self) {
        self.fences = Bounded::new(CAPACITY);
    }

    /// Records the fence of a lock. Returns whether it went backwards.
    pub(super) fn fence_regressed(&mut self, key: KeyHash, fence: u64) -> bool {
        self.fences.insert(key, fence).is_some_and(|before| fence < before)
    }

    pub(super) fn add_without_hold(
        &mut self,
        key: KeyHash,
        namespace: NamespaceId,
        reason: NoHold,
        (link, seen): (LinkId, TimeMs),
    ) {
        self.not_locks.insert(key, NotALock { namespace, link, seen, reason });
    }

    /// The key is gone or has become a lock. Returns whether it was known to show no hold.
    pub(super) fn remove_without_hold(&mut self, key: KeyHash) -> bool {
        self.not_locks.remove(key).is_some()
    }

    /// Forgets the keys of the link that a pass, which started at this time, did not list.
    pub(super) fn pass_done(&mut self, link: LinkId, started: TimeMs) {
        self.not_locks.retain(|not_lock| not_lock.link != link || not_lock.seen >= started);
    }

    /// Number of keys of the lock namespace whose type no lock has.
    pub(super) fn of_wrong_type(&self, namespace: NamespaceId) -> u64 {
        let is_wrong = |key: &&NotALock| key.namespace == namespace && key.reason == NoHold::WrongType;
        self.not_locks.values().filter(is_wrong).count() as u64
    }

    /// Records a lock that the table has no room for. Returns whether it is new.
    pub(super) fn add_untracked(&mut self, key: KeyHash) -> bool {
        self.untracked.insert(key, ()).is_none()
    }

    pub(super) fn is_untracked(&self, key: KeyHash) -> bool {
        self.untracked.contains(key)
    }

    /// The lock has ended or is tracked now. Returns whether it was known.
    pub(super) fn remove_untracked(&mut self, key: KeyHash) -> bool {
        self.untracked.remove(key).is_some()
    }

    /// The lock was held until this time.
    pub(super) fn held_until(&mut self, key: &str, at: TimeMs) {
        for fixed in self.fixed.iter_mut().filter(|fixed| *fixed.key == *key) {
            fixed.last_held = fixed.last_held.max(Some(at));
        }
    }

    /// The fixed keys of the lock namespace, each with the end of its last known hold.
    pub(super) fn fixed(&self, namespace: NamespaceId) -> impl Iterator<Item = (&str, Option<TimeMs>)> {
        let of_namespace = self.fixed.iter().filter(move |fixed| fixed.namespace == namespace);
        of_namespace.map(|fixed| (&*fixed.key, fixed.last_held))
    }

    /// Number of entries that left each table because it was full.
    pub(super) fn evictions(&self) -> [(&'static str, u64); 3] {
        [
            ("fences", self.fences.evictions()),
            ("not_locks", self.not_locks.evictions()),
            ("untracked_locks", self.untracked.evictions()),
        ]
    }
}
