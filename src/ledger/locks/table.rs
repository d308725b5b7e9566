//! All held locks in little memory: a slab, a hash table from keys to slots, and a heap of due
//! reads.
//!
//! With a key of 45 bytes, a lock takes 88 bytes in the slab, 64 for its key, 16 in the heap and
//! about 10 in the hash table. The heap has one valid entry for each lock that has something to
//! wait for. An entry becomes invalid when its lock ends or is rescheduled. Invalid entries are
//! dropped when they reach the top, or all at once when there are too many.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hashbrown::HashTable;

use super::hold::Hold;
use super::namespace_chooser::ChosenNamespace;
use super::ring::KeyHash;
use crate::model::namespace::NamespaceId;
use crate::model::sighting::LinkId;
use crate::util::clock::TimeMs;

/// Index into the slab.
pub(in crate::ledger) type LockSlot = u32;

/// How long to wait for the result of a read before the key is returned again.
const ASK_AGAIN_MS: TimeMs = 1000;
/// How long before its deadline a lock is read once more. Only a read just before the deadline can
/// distinguish an expiration from a release.
const EARLY_LOOK_MS: TimeMs = 100;
/// Number of invalid entries allowed in the heap, in addition to one per eight locks.
const STALE_ENTRIES: usize = 1024;

/// One held lock.
pub(in crate::ledger) struct TrackedLock {
    pub(in crate::ledger) key: Box<str>,
    pub(in crate::ledger) life: Hold,
    /// The epoch of the link when the lock was last seen. 0 if the lock moved away from its node.
    pub(in crate::ledger) epoch: u32,
    /// The [`mark`] of its valid entry in the heap, or 0 if it has none. Other entries for its slot
    /// are invalid.
    queued_for: u32,
    pub(in crate::ledger) link: LinkId,
    pub(in crate::ledger) namespace: NamespaceId,
    /// The lock must be read now, whatever its deadline is: a complete pass did not list it, or it
    /// moved away from its node.
    pub(in crate::ledger) unverified: bool,
    /// Several lock namespaces share its key template.
    pub(in crate::ledger) shared: bool,
}

/// When to read the lock in the slot.
type DueRead = Reverse<(TimeMs, LockSlot)>;

/// The low 32 bits of a time, which are enough to distinguish the heap entries of one slot. If two
/// entries have the same mark, the lock is read once more than needed.
fn mark(time: TimeMs) -> u32 {
    (time as u32).max(1)
}

#[derive(Default)]
pub(in crate::ledger) struct Table {
    slab: Vec<Option<TrackedLock>>,
    free: Vec<LockSlot>,
    by_key: HashTable<LockSlot>,
    heap: BinaryHeap<DueRead>,
}

impl TrackedLock {
    pub(in crate::ledger) fn new(key: Box<str>, life: Hold, link: (LinkId, u32), choice: ChosenNamespace) -> Self {
        Self {
            key,
            life,
            epoch: link.1,
            queued_for: 0,
            link: link.0,
            namespace: choice.namespace,
            unverified: false,
            shared: choice.shared,
        }
    }

    /// When the lock should be read unless a sighting arrives before. `None` if it has no TTL.
    fn due(&self) -> Option<TimeMs> {
        if self.unverified {
            return Some(TimeMs::MIN);
        }
        let deadline = self.life.deadline?;
        let early = deadline.low - EARLY_LOOK_MS;
        Some(if self.life.read_sent < early { early } else { deadline.high() })
    }
}

impl Table {
    pub(in crate::ledger) fn len(&self) -> usize {
        self.slab.len() - self.free.len()
    }

    pub(in crate::ledger) fn find(&self, hash: KeyHash, key: &str) -> Option<LockSlot> {
        self.by_key.find(hash.0, |slot| self.get(*slot).is_some_and(|lock| *lock.key == *key)).copied()
    }

    pub(in crate::ledger) fn get(&self, slot: LockSlot) -> Option<&TrackedLock> {
        self.slab.get(slot as usize)?.as_ref()
    }

    pub(in crate::ledger) fn get_mut(&mut self, slot: LockSlot) -> Option<&mut TrackedLock> {
        self.slab.get_mut(slot as usize)?.as_mut()
    }

    pub(in crate::ledger) fn iter(&self) -> impl Iterator<Item = (LockSlot, &TrackedLock)> {
        self.slab.iter().enumerate().filter_map(|(slot, lock)| Some((slot as LockSlot, lock.as_ref()?)))
    }

    /// The key must not be in the table. `hash` is called for any key, because the table may have
    /// to grow.
    pub(in crate::ledger) fn insert(&mut self, lock: TrackedLock, hash: impl Fn(&str) -> KeyHash) -> LockSlot {
        let key_hash = hash(&lock.key);
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slab[slot as usize] = Some(lock);
                slot
            }
            None => {
                if self.slab.len() == self.slab.capacity() {
                    // Doubling would leave up to half of the memory unused.
                    self.slab.reserve_exact(self.slab.len() / 16 + 256);
                }
                self.slab.push(Some(lock));
                (self.slab.len() - 1) as LockSlot
            }
        };
        let Self { by_key, slab, .. } = self;
        let hash_of = |slot: &LockSlot| slab[*slot as usize].as_ref().map_or(0, |lock| hash(&lock.key).0);
        by_key.insert_unique(key_hash.0, slot, hash_of);
        slot
    }

    pub(in crate::ledger) fn remove(&mut self, hash: KeyHash, slot: LockSlot) -> Option<TrackedLock> {
        if let Ok(entry) = self.by_key.find_entry(hash.0, |found| *found == slot) {
            entry.remove();
        }
        let lock = self.slab.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(lock)
    }

    /// Must be called when a lock is inserted or seen. Replaces a heap entry that is too late. An
    /// entry that is too early is corrected when it reaches the top.
    pub(in crate::ledger) fn schedule(&mut self, slot: LockSlot) {
        let Some(lock) = self.get(slot).filter(|lock| !lock.unverified) else { return };
        let Some(due) = lock.due() else { return };
        // The comparison may be wrong for times more than 24 days (2^31 ms) apart. Then the entry
        // is only too late.
        let is_late = lock.queued_for == 0 || (lock.queued_for.wrapping_sub(mark(due)) as i32) > 0;
        if is_late {
            self.push(slot, due);
        }
    }

    /// Requests a read of the lock as soon as possible.
    pub(in crate::ledger) fn verify(&mut self, slot: LockSlot, now: TimeMs) {
        if let Some(lock) = self.get_mut(slot).filter(|lock| !lock.unverified) {
            lock.unverified = true;
            self.push(slot, now);
        }
    }

    /// Calls `found` for the locks that are due, at most `limit`. Each is due again after a second.
    pub(in crate::ledger) fn due_reads(&mut self, now: TimeMs, limit: usize, mut found: impl FnMut(&TrackedLock)) {
        let mut offered = 0;
        while offered < limit
            && let Some(Reverse((time, slot))) = self.heap.peek().copied()
            && time <= now
        {
            self.heap.pop();
            let Some(lock) = self.get(slot).filter(|lock| lock.queued_for == mark(time)) else { continue };
            let Some(due) = lock.due() else {
                // The lock no longer has a TTL.
                if let Some(lock) = self.get_mut(slot) {
                    lock.queued_for = 0;
                }
                continue;
            };
            let next = if due <= now { now + ASK_AGAIN_MS } else { due };
            if due <= now {
                found(lock);
                offered += 1;
            }
            if let Some(lock) = self.get_mut(slot) {
                lock.queued_for = mark(next);
            }
            self.heap.push(Reverse((next, slot)));
        }
    }

    fn push(&mut self, slot: LockSlot, time: TimeMs) {
        if let Some(lock) = self.get_mut(slot) {
            lock.queued_for = mark(time);
        }
        let locks = self.len();
        if self.heap.len() >= locks + locks / 8 + STALE_ENTRIES {
            let Self { heap, slab, .. } = self;
            let is_valid =
                |time, slot: LockSlot| slab[slot as usize].as_ref().is_some_and(|lock| lock.queued_for == mark(time));
            heap.retain(|Reverse((time, slot))| is_valid(*time, *slot));
        }
        if self.heap.len() == self.heap.capacity() {
            self.heap.reserve_exact(self.heap.len() / 16 + 256);
        }
        self.heap.push(Reverse((time, slot)));
    }

    /// Allocated memory, by capacity. Key sizes are rounded up as an allocator does.
    #[cfg(test)]
    pub(in crate::ledger) fn bytes(&self) -> usize {
        let keys: usize = self.iter().map(|(_, lock)| (lock.key.len() + 8).next_multiple_of(16)).sum();
        self.slab.capacity() * size_of::<Option<TrackedLock>>()
            + self.free.capacity() * size_of::<LockSlot>()
            + self.heap.capacity() * size_of::<DueRead>()
            + self.by_key.allocation_size()
            + keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_as_small_as_it_is_said_to_be() {
        assert_eq!((size_of::<Option<TrackedLock>>(), size_of::<DueRead>()), (88, 16));
    }
}
