//! How the holds of each lock ended, the latest first: one ring for all locks, so that it is bounded and outlives them.
//!
//! A hold is remembered when it ends; the one that goes on is in the table. Each record leads to the one before it of
//! the same lock, 16 at most. Keys are known by their hash only.

use hashbrown::HashTable;

use super::life::{Ending, Life};
use crate::event::{NamespaceId, TimeMs};
use crate::observation::OwnerHash;

/// Records in the ring.
const CAPACITY: usize = 131_072;
/// Records of one lock that are looked at.
pub(super) const PER_LOCK: usize = 16;
const NO_RECORD: u32 = u32::MAX;

/// A key, hashed with a secret of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct KeyHash(pub(super) u64);

/// A hold that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) owner: Option<OwnerHash>,
    /// When it was acquired, or first seen.
    pub(super) began: TimeMs,
    pub(super) ended: TimeMs,
    /// It may have ended earlier, but not before this.
    pub(super) not_before: TimeMs,
    /// The acquisition or the last renewal, if `sign_of_life_known`.
    pub(super) sign_of_life: TimeMs,
    pub(super) renewals: u32,
    pub(super) namespace: NamespaceId,
    pub(super) ending: Ending,
    pub(super) acquisition_seen: bool,
    pub(super) sign_of_life_known: bool,
    /// A holder has found out and is done with the lock: no other refusal is about this end.
    pub(super) explained: bool,
}

impl Record {
    /// `ended`: not before the first time, not after the second.
    pub(super) fn of(life: &Life, ending: Ending, ended: (TimeMs, TimeMs), namespace: NamespaceId) -> Self {
        Self {
            owner: life.owner,
            began: life.began,
            ended: ended.1,
            not_before: ended.0,
            sign_of_life: life.set_at,
            renewals: life.renewals,
            namespace,
            ending,
            acquisition_seen: life.acquisition_seen,
            sign_of_life_known: life.set_at_known,
            explained: false,
        }
    }

    /// A hold that was too short to be seen; whose it was is not known.
    pub(super) fn short(at: TimeMs, namespace: NamespaceId) -> Self {
        Self {
            owner: None,
            began: at,
            ended: at,
            not_before: at,
            sign_of_life: at,
            renewals: 0,
            namespace,
            ending: Ending::Released,
            acquisition_seen: true,
            sign_of_life_known: true,
            explained: false,
        }
    }
}

struct Entry {
    key: KeyHash,
    record: Record,
    /// Where the record before this one of the same lock is, if it is still about that lock.
    previous: u32,
}

#[derive(Default)]
pub(super) struct History {
    ring: Vec<Entry>,
    next: usize,
    /// The latest record of each lock.
    heads: HashTable<u32>,
    evictions: u64,
}

impl History {
    pub(super) fn push(&mut self, key: KeyHash, record: Record) {
        let index = self.next;
        self.next = (self.next + 1) % CAPACITY;
        if let Some(oldest) = self.ring.get(index) {
            self.evictions += 1;
            // The oldest record of all is the head of its lock only if it is its last one.
            if let Ok(head) = self.heads.find_entry(oldest.key.0, |found| *found as usize == index) {
                head.remove();
            }
        }
        let Self { ring, heads, .. } = self;
        let previous = match heads.find_mut(key.0, |found| ring[*found as usize].key == key) {
            Some(head) => std::mem::replace(head, index as u32),
            None => {
                heads.insert_unique(key.0, index as u32, |found| {
                    // The new one is not in the ring yet.
                    if *found as usize == index { key.0 } else { ring[*found as usize].key.0 }
                });
                NO_RECORD
            }
        };
        let entry = Entry { key, record, previous };
        match ring.get_mut(index) {
            Some(place) => *place = entry,
            None => ring.push(entry),
        }
    }

    /// Where the records of the lock are, the latest first.
    fn places(&self, key: KeyHash) -> impl Iterator<Item = usize> + '_ {
        let head = self.heads.find(key.0, |found| self.ring[*found as usize].key == key).map(|head| *head as usize);
        let mut age_before = None;
        std::iter::successors(head, |place| Some(self.ring.get(*place)?.previous as usize))
            // A place that was used again holds a newer record, or one of another lock.
            .take_while(move |place| {
                let Some(entry) = self.ring.get(*place) else { return false };
                let age = (self.next + CAPACITY - place - 1) % CAPACITY;
                let is_older = age_before.is_none_or(|before| age > before);
                age_before = Some(age);
                entry.key == key && is_older
            })
            .take(PER_LOCK)
    }

    /// The latest first.
    pub(super) fn records(&self, key: KeyHash) -> impl Iterator<Item = &Record> + '_ {
        self.places(key).map(|place| &self.ring[place].record)
    }

    pub(super) fn latest(&self, key: KeyHash) -> Option<&Record> {
        self.records(key).next()
    }

    /// The first record, from the latest on, that fits; with the one after it.
    pub(super) fn find_mut(
        &mut self,
        key: KeyHash,
        fits: impl Fn(&Record) -> bool,
    ) -> Option<(&mut Record, Option<Record>)> {
        let mut after = None;
        let mut found = None;
        for place in self.places(key) {
            let record = &self.ring[place].record;
            if fits(record) {
                found = Some(place);
                break;
            }
            after = Some(*record);
        }
        found.map(|place| (&mut self.ring[place].record, after))
    }

    pub(super) fn evictions(&self) -> u64 {
        self.evictions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(at: TimeMs) -> Record {
        Record::short(at, NamespaceId(0))
    }

    fn ends(history: &History, key: u64) -> Vec<TimeMs> {
        history.records(KeyHash(key)).map(|record| record.ended).collect()
    }

    #[test]
    fn the_latest_comes_first_and_only_some_are_looked_at() {
        let mut history = History::default();
        for at in 0..20 {
            history.push(KeyHash(1), record(at));
            history.push(KeyHash(2), record(at + 100));
        }
        assert_eq!(ends(&history, 1), (4..20).rev().collect::<Vec<_>>());
        assert_eq!(ends(&history, 2).len(), PER_LOCK);
        assert_eq!(ends(&history, 3), [0_i64; 0]);
        let found = history.find_mut(KeyHash(1), |record| record.ended <= 10).map(|(found, after)| (*found, after));
        assert_eq!(found, Some((record(10), Some(record(11)))));
    }

    #[test]
    fn it_is_bounded_and_what_was_overwritten_is_not_found() {
        let mut history = History::default();
        history.push(KeyHash(7), record(-2));
        history.push(KeyHash(7), record(-1));
        history.push(KeyHash(8), record(-1));
        for at in 0..CAPACITY - 2 {
            history.push(KeyHash(100 + at as u64 % 50_000), record(at as TimeMs));
        }
        assert_eq!(ends(&history, 7), [-1], "the one before was overwritten");
        assert_eq!((history.ring.len(), history.evictions()), (CAPACITY, 1));
        history.push(KeyHash(7), record(5));
        assert_eq!(ends(&history, 7), [5], "its place was taken by itself");
        history.push(KeyHash(9), record(5));
        assert_eq!(ends(&history, 8), [0_i64; 0]);
        for at in 0..3 * CAPACITY {
            history.push(KeyHash(at as u64 % 5), record(at as TimeMs));
        }
        assert_eq!(history.heads.len(), 5);
        for key in 0..5 {
            let ends = ends(&history, key);
            assert_eq!(ends.len(), PER_LOCK);
            assert!(ends.is_sorted_by(|later, earlier| later == &(earlier + 5)), "{ends:?}");
        }
    }
}
