//! All held locks in little memory: a slab, a hash table from keys to slots, and a heap of due
//! reads. Also the number of held locks in each lock namespace.
//!
//! With a key of 45 bytes, a lock takes 88 bytes in the slab, 64 for its key, 16 in the heap and
//! about 10 in the hash table. The heap has one valid entry for each lock that has something to
//! wait for. An entry becomes invalid when its lock ends or is rescheduled. Invalid entries are
//! dropped when they reach the top, or all at once when there are too many.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

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
const EARLY_READ_MS: TimeMs = 100;
/// Number of invalid entries allowed in the heap, in addition to one per eight locks.
const STALE_ENTRIES: usize = 1024;

/// One held lock.
pub(in crate::ledger) struct TrackedLock {
    key: Box<str>,
    hold: Hold,
    /// The epoch of the link when the lock was last seen. 0 if the lock moved away from its node.
    epoch: u32,
    /// The [`mark`] of its valid entry in the heap, or 0 if it has none. Other entries for its slot
    /// are invalid.
    queued_for: u32,
    link: LinkId,
    namespace: NamespaceId,
    /// The lock must be read now, whatever its deadline is: a complete pass did not list it, or it
    /// moved away from its node.
    unverified: bool,
    /// Several lock namespaces share its key template.
    shared: bool,
}

/// When to read the lock in the slot.
type DueRead = Reverse<(TimeMs, LockSlot)>;

/// The low 32 bits of a time, which are enough to distinguish the heap entries of one slot. If two
/// entries have the same mark, the lock is read once more than needed.
fn mark(time: TimeMs) -> u32 {
    (time as u32).max(1)
}

/// Number of locks in one lock namespace.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LockTotals {
    held: u64,
    without_ttl: u64,
    /// Those among them that had a TTL and lost it.
    lost_ttl: u64,
}

pub(in crate::ledger) struct LockTable {
    /// Keyed anew in each process, so that nobody can choose keys whose hashes collide.
    hasher: RandomState,
    /// One entry per lock namespace.
    totals: Vec<LockTotals>,
    slab: Vec<Option<TrackedLock>>,
    free: Vec<LockSlot>,
    by_key: HashTable<LockSlot>,
    heap: BinaryHeap<DueRead>,
}

impl LockTotals {
    pub(super) fn held(self) -> u64 {
        self.held
    }

    pub(super) fn without_ttl(self) -> u64 {
        self.without_ttl
    }

    pub(super) fn lost_ttl(self) -> u64 {
        self.lost_ttl
    }
}

impl TrackedLock {
    /// `link` is the link that showed the lock, with its epoch.
    pub(super) fn new(key: Box<str>, hold: Hold, link: (LinkId, u32), choice: ChosenNamespace) -> Self {
        Self {
            key,
            hold,
            epoch: link.1,
            queued_for: 0,
            link: link.0,
            namespace: choice.namespace,
            unverified: false,
            shared: choice.shared,
        }
    }

    pub(in crate::ledger) fn key(&self) -> &str {
        &self.key
    }

    pub(in crate::ledger) fn hold(&self) -> &Hold {
        &self.hold
    }

    pub(in crate::ledger) fn namespace(&self) -> NamespaceId {
        self.namespace
    }

    pub(super) fn link(&self) -> LinkId {
        self.link
    }

    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    pub(super) fn is_shared(&self) -> bool {
        self.shared
    }

    /// Whether the lock must be read now, whatever its deadline is.
    pub(super) fn needs_read(&self) -> bool {
        self.unverified
    }

    /// When the lock should be read unless a sighting arrives before. `None` if it has no TTL.
    fn due(&self) -> Option<TimeMs> {
        if self.unverified {
            return Some(TimeMs::MIN);
        }
        let deadline = self.hold.deadline?;
        let early = deadline.low - EARLY_READ_MS;
        Some(if self.hold.read_sent < early { early } else { deadline.high() })
    }
}

impl LockTable {
    pub(super) fn new(n_namespaces: usize) -> Self {
        Self {
            hasher: RandomState::new(),
            totals: vec![LockTotals::default(); n_namespaces],
            slab: Vec::new(),
            free: Vec::new(),
            by_key: HashTable::new(),
            heap: BinaryHeap::new(),
        }
    }

    pub(in crate::ledger) fn hash(&self, key: &str) -> KeyHash {
        KeyHash(self.hasher.hash_one(key))
    }

    pub(super) fn totals(&self, namespace: NamespaceId) -> LockTotals {
        self.totals[usize::from(namespace.0)]
    }

    pub(in crate::ledger) fn len(&self) -> usize {
        self.slab.len() - self.free.len()
    }

    /// The held lock with this key.
    pub(in crate::ledger) fn lock(&self, key: &str) -> Option<&TrackedLock> {
        self.get(self.find(self.hash(key), key)?)
    }

    pub(super) fn find(&self, hash: KeyHash, key: &str) -> Option<LockSlot> {
        self.by_key.find(hash.0, |slot| self.get(*slot).is_some_and(|lock| *lock.key == *key)).copied()
    }

    pub(in crate::ledger) fn get(&self, slot: LockSlot) -> Option<&TrackedLock> {
        self.slab.get(slot as usize)?.as_ref()
    }

    fn get_mut(&mut self, slot: LockSlot) -> Option<&mut TrackedLock> {
        self.slab.get_mut(slot as usize)?.as_mut()
    }

    pub(in crate::ledger) fn iter(&self) -> impl Iterator<Item = (LockSlot, &TrackedLock)> {
        self.slab.iter().enumerate().filter_map(|(slot, lock)| Some((slot as LockSlot, lock.as_ref()?)))
    }

    /// The key must not be in the table.
    pub(super) fn insert(&mut self, lock: TrackedLock) {
        let key_hash = self.hash(&lock.key);
        self.count(&lock);
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
        let Self { by_key, slab, hasher, .. } = self;
        let hash_of = |slot: &LockSlot| slab[*slot as usize].as_ref().map_or(0, |lock| hasher.hash_one(&*lock.key));
        by_key.insert_unique(key_hash.0, slot, hash_of);
        self.schedule(slot);
    }

    /// A sighting showed the lock. `link` is the link that showed it, with its epoch.
    pub(super) fn update(&mut self, slot: LockSlot, hold: Hold, link: (LinkId, u32), namespace: NamespaceId) {
        let Some(lock) = self.slab[slot as usize].take() else { return };
        self.uncount(&lock);
        let (link, epoch) = link;
        let lock = TrackedLock { hold, link, epoch, namespace, unverified: false, ..lock };
        self.count(&lock);
        self.slab[slot as usize] = Some(lock);
        self.schedule(slot);
    }

    /// The lock moved away from its node. If it was released and not moved, no other node ever
    /// reports it on its own, so it is read as soon as possible.
    pub(super) fn moved_away(&mut self, slot: LockSlot, now: TimeMs) {
        if let Some(lock) = self.get_mut(slot) {
            lock.epoch = 0;
        }
        self.verify(slot, now);
    }

    pub(super) fn remove(&mut self, hash: KeyHash, slot: LockSlot) {
        if let Ok(entry) = self.by_key.find_entry(hash.0, |found| *found == slot) {
            entry.remove();
        }
        if let Some(lock) = self.slab[slot as usize].take() {
            self.uncount(&lock);
            self.free.push(slot);
        }
    }

    /// Gives each lock its new lock namespace. Removes the locks for which `choose` returns `None`.
    pub(super) fn reconfigure(
        &mut self,
        n_namespaces: usize,
        mut choose: impl FnMut(&TrackedLock) -> Option<ChosenNamespace>,
    ) {
        self.totals = vec![LockTotals::default(); n_namespaces];
        for slot in 0..self.slab.len() {
            let Some(lock) = self.slab[slot].take() else { continue };
            match choose(&lock) {
                Some(ChosenNamespace { namespace, shared }) => {
                    let lock = TrackedLock { namespace, shared, ..lock };
                    self.count(&lock);
                    self.slab[slot] = Some(lock);
                }
                None => {
                    let hash = self.hash(&lock.key);
                    if let Ok(entry) = self.by_key.find_entry(hash.0, |found| *found as usize == slot) {
                        entry.remove();
                    }
                    self.free.push(slot as LockSlot);
                }
            }
        }
    }

    fn count(&mut self, lock: &TrackedLock) {
        let totals = &mut self.totals[usize::from(lock.namespace.0)];
        totals.held += 1;
        totals.without_ttl += u64::from(lock.hold.deadline.is_none());
        totals.lost_ttl += u64::from(lock.hold.lost_ttl);
    }

    fn uncount(&mut self, lock: &TrackedLock) {
        let totals = &mut self.totals[usize::from(lock.namespace.0)];
        totals.held -= 1;
        totals.without_ttl -= u64::from(lock.hold.deadline.is_none());
        totals.lost_ttl -= u64::from(lock.hold.lost_ttl);
    }

    /// Replaces a heap entry that is too late. An entry that is too early is corrected when it
    /// reaches the top.
    fn schedule(&mut self, slot: LockSlot) {
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
    pub(super) fn verify(&mut self, slot: LockSlot, now: TimeMs) {
        if let Some(lock) = self.get_mut(slot).filter(|lock| !lock.unverified) {
            lock.unverified = true;
            self.push(slot, now);
        }
    }

    /// Calls `found` for the locks that are due, at most `limit`. Each is due again after a second.
    pub(super) fn due_reads(&mut self, now: TimeMs, limit: usize, mut found: impl FnMut(&TrackedLock)) {
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
