//! Final states of pieces of work: a second one, other than a legal successor, means that two holders finished it.
//!
//! Bounded: only the most recent pieces of work are remembered; older ones leave first and are counted.

use std::collections::{BTreeMap, VecDeque};
use std::hash::Hasher;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use siphasher::sip::SipHasher13;

use super::joined::LockHash;

const CAPACITY: usize = 16_384;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Finals {
    /// The last final state of each piece of work, as a hash.
    states: BTreeMap<LockHash, u32>,
    /// The same pieces of work, the oldest first.
    order: VecDeque<LockHash>,
    evictions: u64,
}

impl Finals {
    /// Notes a final state and tells whether it conflicts with an earlier one.
    pub(super) fn reached(&mut self, work: LockHash, state: &str, may_follow: Option<&str>) -> bool {
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

    pub(super) fn evictions(&self) -> u64 {
        self.evictions
    }
}

fn hash(state: &str) -> u32 {
    let mut hasher = SipHasher13::new();
    hasher.write(state.as_bytes());
    hasher.finish() as u32
}

/// Saved as the list in order, each with its state.
impl Serialize for Finals {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let entries: Vec<(LockHash, u32)> =
            self.order.iter().filter_map(|work| Some((*work, *self.states.get(work)?))).collect();
        (entries, self.evictions).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Finals {
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
