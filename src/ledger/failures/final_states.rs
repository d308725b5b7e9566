//! Final states of pieces of work. A second final state that is not a legal successor of the first
//! means that two holders finished the same work.
//!
//! `ledger::failures` calls [`FinalStates::reached`] for each final state. The table is bounded: the
//! oldest entries leave first and are counted.

use std::collections::{BTreeMap, VecDeque};
use std::hash::Hasher;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use siphasher::sip::SipHasher13;

use super::joining::LockHash;

const CAPACITY: usize = 16_384;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::ledger) struct FinalStates {
    /// The last final state of each piece of work, as a hash.
    states: BTreeMap<LockHash, u32>,
    /// The keys of `states`, the oldest first.
    order: VecDeque<LockHash>,
    evictions: u64,
}

impl FinalStates {
    /// Records a final state. Returns whether it conflicts with an earlier one.
    pub(in crate::ledger) fn reached(&mut self, work: LockHash, state: &str, may_follow: Option<&str>) -> bool {
        let Some(earlier) = self.states.insert(work, hash(state)) else {
            self.order.push_back(work);
            if self.order.len() > CAPACITY
                && let Some(oldest) = self.order.pop_front()
            {
                self.states.remove(&oldest);
                self.evictions += 1;
            }
            return false;
        };
        may_follow.is_none_or(|legal| hash(legal) != earlier)
    }

    pub(in crate::ledger) fn evictions(&self) -> u64 {
        self.evictions
    }
}

fn hash(state: &str) -> u32 {
    let mut hasher = SipHasher13::new();
    hasher.write(state.as_bytes());
    hasher.finish() as u32
}

/// Saved as a list of pairs in `order`, followed by the number of evictions.
impl Serialize for FinalStates {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let entries: Vec<(LockHash, u32)> =
            self.order.iter().filter_map(|work| Some((*work, *self.states.get(work)?))).collect();
        (entries, self.evictions).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for FinalStates {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (entries, evictions) = <(Vec<(LockHash, u32)>, u64)>::deserialize(deserializer)?;
        let mut finals = Self { evictions, ..Self::default() };
        for (work, state) in entries {
            if finals.states.insert(work, state).is_none() {
                finals.order.push_back(work);
            }
        }
        Ok(finals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(number: usize) -> LockHash {
        LockHash::new("jobs", &number.to_string(), "final_state")
    }

    #[test]
    fn a_second_final_state_is_a_conflict_unless_it_may_follow() {
        let mut finals = FinalStates::default();
        assert!(!finals.reached(work(1), "SUCCEEDED", None));
        assert!(!finals.reached(work(1), "QUARANTINED", Some("SUCCEEDED")));
        assert!(finals.reached(work(1), "QUARANTINED", Some("SUCCEEDED")), "it does not follow itself");
        assert!(!finals.reached(work(2), "TIMEOUT", None), "another piece of work");
        assert!(finals.reached(work(2), "SUCCEEDED", None));
        assert!(!finals.reached(work(2), "QUARANTINED", Some("SUCCEEDED")), "the last one counts");
    }

    #[test]
    fn the_oldest_work_leaves_a_full_table_and_is_counted() {
        let mut finals = FinalStates::default();
        for number in 0..CAPACITY + 3 {
            assert!(!finals.reached(work(number), "DONE", None));
        }
        assert_eq!((finals.evictions(), finals.states.len(), finals.order.len()), (3, CAPACITY, CAPACITY));
        assert!(finals.reached(work(3), "DONE", None), "the oldest that is left");
        assert!(!finals.reached(work(0), "DONE", None), "forgotten");
    }

    #[test]
    fn what_is_saved_comes_back_in_order() {
        let mut finals = FinalStates::default();
        for number in 0..CAPACITY + 1 {
            finals.reached(work(number), if number % 2 == 0 { "DONE" } else { "FAILED" }, None);
        }
        let saved = serde_json::to_string(&finals).unwrap();
        let loaded: FinalStates = serde_json::from_str(&saved).unwrap();
        assert_eq!(loaded, finals);
        for bad in ["{}", "[[]]", "[[[1,2]],-1]", "[[[1]],0]"] {
            assert!(serde_json::from_str::<FinalStates>(bad).is_err(), "{bad}");
        }
        let twice: FinalStates = serde_json::from_str("[[[1,2],[1,3]],0]").unwrap();
        assert_eq!((twice.states.len(), twice.order.len()), (1, 1));
    }
}
