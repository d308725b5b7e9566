//! Since when locks have been held, remembered over a restart.
//!
//! `ledger::memory` saves [`LockTracker::holds_to_remember`] and restores them. A lock that is seen
//! for the first time after a restart is the same hold if the same owner still holds it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use serde::{Deserialize, Serialize};

use super::LockTracker;
use super::hold::Hold;
use crate::model::sighting::{OwnerHash, OwnerHasher};
use crate::util::clock::TimeMs;

/// Maximum number of saved holds. If there are more, the longest holds are saved.
const CAPACITY: usize = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::ledger) struct RememberedHold {
    /// Keyed hash of the lock's key.
    pub(in crate::ledger) key: u64,
    pub(in crate::ledger) owner: OwnerHash,
    pub(in crate::ledger) began: TimeMs,
}

/// The holds of the previous process that were not seen yet.
#[derive(Default)]
pub(in crate::ledger) struct RememberedHolds {
    hasher: OwnerHasher,
    by_key: HashMap<u64, RememberedHold>,
}

impl RememberedHolds {
    pub(in crate::ledger) fn new(hasher: OwnerHasher, holds: Vec<RememberedHold>) -> Self {
        Self { hasher, by_key: holds.into_iter().map(|hold| (hold.key, hold)).collect() }
    }

    /// Corrects the begin of a hold that was seen for the first time.
    pub(super) fn recall(&mut self, key: &str, life: Hold) -> Hold {
        if self.by_key.is_empty() {
            return life;
        }
        let remembered = self.by_key.remove(&self.hasher.hash_key(key));
        let is_same = |hold: &RememberedHold| !life.acquisition_seen && life.owner == Some(hold.owner);
        match remembered.filter(is_same) {
            Some(hold) => Hold { began: hold.began.min(life.began), ..life },
            None => life,
        }
    }

    /// Called when all locks are known. The other holds have ended.
    pub(super) fn forget(&mut self) {
        self.by_key = HashMap::new();
    }
}

impl LockTracker {
    /// The longest holds, including those of the previous process that were not seen yet.
    pub(in crate::ledger) fn holds_to_remember(&self, hasher: &OwnerHasher) -> Vec<RememberedHold> {
        let mut longest = BinaryHeap::new();
        for (slot, lock) in self.table.iter().filter(|(_, lock)| lock.life.owner.is_some()) {
            longest.push((lock.life.began, slot));
            if longest.len() > CAPACITY {
                longest.pop();
            }
        }
        let held = longest.into_iter().filter_map(|(began, slot)| {
            let lock = self.table.get(slot)?;
            Some(RememberedHold { key: hasher.hash_key(&lock.key), owner: lock.life.owner?, began })
        });
        let mut holds: Vec<RememberedHold> = held.chain(self.remembered.by_key.values().copied()).collect();
        if holds.len() > CAPACITY {
            holds.sort_unstable_by_key(|hold| Reverse(hold.began));
            holds.drain(..holds.len() - CAPACITY);
        }
        holds
    }
}
