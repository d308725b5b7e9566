//! Which lines are about one failure: those about the same lock and the same aspect of its trouble, close in time.
//!
//! Bounded: entries are forgotten when no later line can belong to them, and early, counted, when the table is full.

use std::collections::BTreeMap;
use std::hash::Hasher;

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;

use crate::event::{ConflictKind, Label, TimeMs};

const CAPACITY: usize = 65_536;
/// How long after its arrival an entry is kept. Longer than any window, and than the difference in progress between the
/// files of one program.
const KEPT_FOR_MS: TimeMs = 120_000;

/// What about a lock is counted once. A release and a renewal that fail are two failures; a renewal that fails and the lock
/// it finds lost are two facts about one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aspect {
    Release,
    ReleaseLoss,
    Renewal,
    RenewalLoss,
    UnknownLoss,
    Acquire,
    Abandonment,
    UnlockedWork,
    FinalState,
    Conflict(ConflictKind),
}

impl Aspect {
    fn name(self) -> &'static str {
        match self {
            Aspect::Release => "release",
            Aspect::ReleaseLoss => "release_loss",
            Aspect::Renewal => "renewal",
            Aspect::RenewalLoss => "renewal_loss",
            Aspect::UnknownLoss => "unknown_loss",
            Aspect::Acquire => "acquire",
            Aspect::Abandonment => "abandonment",
            Aspect::UnlockedWork => "unlocked_work",
            Aspect::FinalState => "final_state",
            Aspect::Conflict(kind) => kind.as_str(),
        }
    }
}

/// Stands for a lock and an aspect in memory and in the state file, so that neither holds ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct LockHash(u64);

impl LockHash {
    pub(super) fn new(namespace: &str, lock: &str, aspect: Aspect) -> Self {
        let mut hasher = SipHasher13::new();
        for part in [namespace, aspect.name(), lock] {
            hasher.write_u64(part.len() as u64);
            hasher.write(part.as_bytes());
        }
        Self(hasher.finish())
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Joined {
    entries: BTreeMap<LockHash, Entry>,
    evictions: u64,
}

/// Times of the last line: the one it is judged by, and that of its arrival. Saved as a pair to keep the file small.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry(TimeMs, TimeMs);

impl Joined {
    /// Notes a line and tells whether it begins a new failure: the last line about it is further away than `window`.
    pub(super) fn begins(&mut self, lock: LockHash, at: TimeMs, now: TimeMs, window: TimeMs) -> bool {
        let begins = !self.is_open(Some(lock), at, window);
        if begins && self.entries.len() >= CAPACITY && !self.entries.contains_key(&lock) {
            self.make_room();
        }
        let entry = self.entries.entry(lock).or_insert(Entry(at, now));
        // Lines of several files may come out of order: within a failure the latest line counts.
        *entry = Entry(if begins { at } else { entry.0.max(at) }, now);
        begins
    }

    /// Whether a line at that time belongs to a failure that was counted.
    pub(super) fn is_open(&self, lock: Option<LockHash>, at: TimeMs, window: TimeMs) -> bool {
        let entry = lock.and_then(|lock| self.entries.get(&lock));
        entry.is_some_and(|entry| at.abs_diff(entry.0) <= window.unsigned_abs())
    }

    pub(super) fn tidy(&mut self, now: TimeMs) {
        self.entries.retain(|_, entry| now - entry.1 <= KEPT_FOR_MS);
    }

    pub(super) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Drops the eighth that arrived first, so that this is rare.
    fn make_room(&mut self) {
        let mut arrivals: Vec<TimeMs> = self.entries.values().map(|entry| entry.1).collect();
        let (_, limit, _) = arrivals.select_nth_unstable(CAPACITY / 8);
        let limit = *limit;
        let before = self.entries.len();
        self.entries.retain(|_, entry| entry.1 > limit);
        if self.entries.len() == before || self.entries.is_empty() {
            // All arrived at the same moment: any eighth will do.
            let dropped: Vec<LockHash> = self.entries.keys().take(CAPACITY / 8).copied().collect();
            for lock in dropped {
                self.entries.remove(&lock);
            }
        }
        self.evictions += (before - self.entries.len()) as u64;
    }
}
