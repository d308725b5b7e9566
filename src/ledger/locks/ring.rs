//! A ring buffer of values about locks. All locks share one ring, so its size is bounded, and its
//! entries outlive the locks.
//!
//! Each entry links to the previous entry of the same lock. Readers get a limited number of entries
//! per lock, the latest first. The ring stores only hashes of keys. Entries that a full ring
//! overwrites are counted.

use hashbrown::HashTable;

const NO_ENTRY: u32 = u32::MAX;

/// A key, hashed with a secret of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::ledger) struct KeyHash(pub(in crate::ledger) u64);

struct RingEntry<T> {
    key: KeyHash,
    value: T,
    /// Index of the previous entry of the same lock. That slot may have been reused since.
    previous: u32,
}

/// Holds `CAPACITY` entries of all locks together. [`Ring::of`] returns at most `PER_LOCK` entries
/// of one lock.
pub(in crate::ledger) struct Ring<T, const CAPACITY: usize, const PER_LOCK: usize> {
    entries: Vec<RingEntry<T>>,
    next: usize,
    /// Index of the latest entry of each lock.
    heads: HashTable<u32>,
    evictions: u64,
}

impl<T, const CAPACITY: usize, const PER_LOCK: usize> Default for Ring<T, CAPACITY, PER_LOCK> {
    fn default() -> Self {
        Self { entries: Vec::new(), next: 0, heads: HashTable::new(), evictions: 0 }
    }
}

impl<T: Copy, const CAPACITY: usize, const PER_LOCK: usize> Ring<T, CAPACITY, PER_LOCK> {
    pub(in crate::ledger) fn push(&mut self, key: KeyHash, value: T) {
        let index = self.next;
        self.next = (self.next + 1) % CAPACITY;
        if let Some(oldest) = self.entries.get(index) {
            self.evictions += 1;
            // The overwritten entry is the oldest of all. It is the head of its lock only if the
            // lock has no other entry.
            if let Ok(head) = self.heads.find_entry(oldest.key.0, |found| *found as usize == index) {
                head.remove();
            }
        }
        let Self { entries, heads, .. } = self;
        let previous = match heads.find_mut(key.0, |found| entries[*found as usize].key == key) {
            Some(head) => std::mem::replace(head, index as u32),
            None => {
                heads.insert_unique(key.0, index as u32, |found| {
                    // The new entry is not in the ring yet.
                    if *found as usize == index { key.0 } else { entries[*found as usize].key.0 }
                });
                NO_ENTRY
            }
        };
        let entry = RingEntry { key, value, previous };
        match entries.get_mut(index) {
            Some(place) => *place = entry,
            None => entries.push(entry),
        }
    }

    /// Changes every entry, or drops it if `change` returns `None`.
    pub(in crate::ledger) fn filter_map(self, mut change: impl FnMut(T) -> Option<T>) -> Self {
        let mut changed = Self::default();
        // The oldest first. A ring that is not full yet begins at its first slot.
        let oldest = if self.entries.len() < CAPACITY { 0 } else { self.next };
        let (newer, older) = self.entries.split_at(oldest);
        for entry in older.iter().chain(newer) {
            if let Some(value) = change(entry.value) {
                changed.push(entry.key, value);
            }
        }
        changed.evictions = self.evictions;
        changed
    }

    /// Indexes of the entries of the lock, the latest first, at most `most`.
    fn places(&self, key: KeyHash, most: usize) -> impl Iterator<Item = usize> + '_ {
        let head = self.heads.find(key.0, |found| self.entries[*found as usize].key == key).map(|head| *head as usize);
        let mut age_before = None;
        std::iter::successors(head, |place| Some(self.entries.get(*place)?.previous as usize))
            // A reused slot holds a newer entry or an entry of another lock. The list ends there.
            .take_while(move |place| {
                let Some(entry) = self.entries.get(*place) else { return false };
                let age = (self.next + CAPACITY - place - 1) % CAPACITY;
                let is_older = age_before.is_none_or(|before| age > before);
                age_before = Some(age);
                entry.key == key && is_older
            })
            .take(most)
    }

    /// At most `PER_LOCK` entries, the latest first.
    pub(in crate::ledger) fn of(&self, key: KeyHash) -> impl Iterator<Item = &T> + '_ {
        self.many_of(key, PER_LOCK)
    }

    /// At most `most` entries, the latest first.
    pub(in crate::ledger) fn many_of(&self, key: KeyHash, most: usize) -> impl Iterator<Item = &T> + '_ {
        self.places(key, most).map(|place| &self.entries[place].value)
    }

    /// The oldest entry of any lock. `None` until the ring has overwritten an entry.
    pub(in crate::ledger) fn oldest_of_many(&self) -> Option<&T> {
        let oldest = self.entries.get(self.next).filter(|_| self.evictions > 0);
        oldest.map(|entry| &entry.value)
    }

    pub(in crate::ledger) fn latest(&self, key: KeyHash) -> Option<&T> {
        self.of(key).next()
    }

    /// The latest entry that fits, among the latest `most`, with the entry after it.
    pub(in crate::ledger) fn find_mut(
        &mut self,
        key: KeyHash,
        most: usize,
        fits: impl Fn(&T) -> bool,
    ) -> Option<(&mut T, Option<T>)> {
        let mut after = None;
        let mut found = None;
        for place in self.places(key, most) {
            let value = &self.entries[place].value;
            if fits(value) {
                found = Some(place);
                break;
            }
            after = Some(*value);
        }
        found.map(|place| (&mut self.entries[place].value, after))
    }

    pub(in crate::ledger) fn evictions(&self) -> u64 {
        self.evictions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: usize = 1024;
    const PER_LOCK: usize = 16;
    type Times = Ring<i64, CAPACITY, PER_LOCK>;

    fn of(ring: &Times, key: u64) -> Vec<i64> {
        ring.of(KeyHash(key)).copied().collect()
    }

    #[test]
    fn the_latest_comes_first_and_only_some_are_looked_at() {
        let mut ring = Times::default();
        for at in 0..20 {
            ring.push(KeyHash(1), at);
            ring.push(KeyHash(2), at + 100);
        }
        assert_eq!(of(&ring, 1), (4..20).rev().collect::<Vec<_>>());
        assert_eq!(of(&ring, 2).len(), PER_LOCK);
        assert_eq!(of(&ring, 3), [0_i64; 0]);
        let found = ring.find_mut(KeyHash(1), PER_LOCK, |at| *at <= 10).map(|(found, after)| (*found, after));
        assert_eq!(found, Some((10, Some(11))));
        assert_eq!(ring.many_of(KeyHash(1), 19).last(), Some(&1));
        assert_eq!(ring.find_mut(KeyHash(1), 19, |at| *at <= 1).map(|(found, _)| *found), Some(1));
        assert!(ring.find_mut(KeyHash(1), 19, |at| *at == 0).is_none());
    }

    #[test]
    fn it_is_bounded_and_what_was_overwritten_is_not_found() {
        let mut ring = Times::default();
        ring.push(KeyHash(7), -2);
        ring.push(KeyHash(7), -1);
        ring.push(KeyHash(8), -1);
        assert_eq!(ring.oldest_of_many(), None, "nothing has left it");
        for at in 0..CAPACITY - 2 {
            ring.push(KeyHash(100 + at as u64 % 500), at as i64);
        }
        assert_eq!(of(&ring, 7), [-1], "the one before was overwritten");
        assert_eq!((ring.entries.len(), ring.evictions()), (CAPACITY, 1));
        assert_eq!(ring.oldest_of_many(), Some(&-1));
        ring.push(KeyHash(7), 5);
        assert_eq!(of(&ring, 7), [5], "its place was taken by itself");
        ring.push(KeyHash(9), 5);
        assert_eq!(of(&ring, 8), [0_i64; 0]);
        for at in 0..3 * CAPACITY {
            ring.push(KeyHash(at as u64 % 5), at as i64);
        }
        assert_eq!(ring.heads.len(), 5);
        for key in 0..5 {
            let times = of(&ring, key);
            assert_eq!(times.len(), PER_LOCK);
            assert!(times.is_sorted_by(|later, earlier| later == &(earlier + 5)), "{times:?}");
        }
    }

    #[test]
    fn changed_entries_keep_their_order() {
        for entries in [20, CAPACITY + 20] {
            let mut ring = Times::default();
            for at in 0..entries {
                ring.push(KeyHash(at as u64 % 2), at as i64);
            }
            let evictions = ring.evictions();
            let changed = ring.filter_map(|at| (at % 4 < 2).then_some(at * 10));
            let newest: Vec<i64> = (0..5).map(|age| (entries as i64 - 4 - 4 * age) * 10).collect();
            assert_eq!(of(&changed, 0)[..5], newest);
            assert_eq!(changed.evictions(), evictions);
        }
    }
}
