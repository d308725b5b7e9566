//! A bounded map by key hash, for example of the last value of each fence. When it is full, the
//! oldest entry leaves and is counted.

use std::collections::{HashMap, VecDeque};

use super::ring::KeyHash;

pub(in crate::ledger) struct Bounded<V> {
    capacity: usize,
    values: HashMap<KeyHash, V>,
    /// The keys in order of arrival. Also contains keys that were removed from `values` since.
    order: VecDeque<KeyHash>,
    evictions: u64,
}

impl<V> Bounded<V> {
    pub(in crate::ledger) fn new(capacity: usize) -> Self {
        Self { capacity, values: HashMap::new(), order: VecDeque::new(), evictions: 0 }
    }

    /// Returns the previous value.
    pub(in crate::ledger) fn insert(&mut self, key: KeyHash, value: V) -> Option<V> {
        let before = self.values.insert(key, value);
        if before.is_none() {
            self.order.push_back(key);
            while self.values.len() > self.capacity {
                let Some(oldest) = self.order.pop_front() else { break };
                self.evictions += u64::from(self.values.remove(&oldest).is_some());
            }
            if self.order.len() > 2 * self.capacity {
                let mut known: std::collections::HashSet<KeyHash> = self.values.keys().copied().collect();
                self.order.retain(|key| known.remove(key));
            }
        }
        before
    }

    pub(in crate::ledger) fn contains(&self, key: KeyHash) -> bool {
        !self.values.is_empty() && self.values.contains_key(&key)
    }

    pub(in crate::ledger) fn remove(&mut self, key: KeyHash) -> Option<V> {
        // Called for every sighting, and the map is usually empty.
        if self.values.is_empty() { None } else { self.values.remove(&key) }
    }

    /// `keep` may also change the values that stay.
    pub(in crate::ledger) fn retain(&mut self, mut keep: impl FnMut(&mut V) -> bool) {
        self.values.retain(|_, value| keep(value));
    }

    pub(in crate::ledger) fn values(&self) -> impl Iterator<Item = &V> {
        self.values.values()
    }

    pub(in crate::ledger) fn evictions(&self) -> u64 {
        self.evictions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_leaves_a_full_memory_and_is_counted() {
        let mut bounded = Bounded::new(3);
        for number in 0..5 {
            assert_eq!(bounded.insert(KeyHash(number), number), None);
        }
        assert_eq!(bounded.evictions(), 2);
        assert_eq!(bounded.insert(KeyHash(2), 7), Some(2), "known: nothing has to leave");
        assert_eq!(bounded.remove(KeyHash(1)), None);
        assert_eq!(bounded.remove(KeyHash(4)), Some(4));
        bounded.insert(KeyHash(9), 9);
        assert_eq!(bounded.evictions(), 2, "there was room");
    }

    #[test]
    fn coming_and_going_does_not_fill_it() {
        let mut bounded = Bounded::new(3);
        for number in 0..1000 {
            bounded.insert(KeyHash(number), ());
            bounded.remove(KeyHash(number));
        }
        assert!(bounded.order.len() <= 7, "{}", bounded.order.len());
        assert_eq!(bounded.evictions(), 0);
    }
}
