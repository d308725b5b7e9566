//! Decides which lines belong to one failure: lines about the same lock and the same topic that are
//! close in time. A failed release and a failed renewal are two topics, and so are a failed renewal
//! and the loss that it reports.
//!
//! `ledger::failures` calls [`FailureJoiner`] for every log event. The table is bounded. An entry is
//! removed when no later line can belong to it. If the table is full, entries are removed early and
//! counted.

use std::collections::BTreeMap;
use std::hash::Hasher;

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;

use crate::util::clock::TimeMs;

const CAPACITY: usize = 65_536;
/// Minimum time to keep an entry after its last line arrived. Longer than the log files of one
/// program may be apart in progress, and longer than any window that a rule may ask for.
const KEPT_FOR_MS: TimeMs = 120_000;

/// Represents a lock and a topic in memory and in the state file, so that neither contains lock
/// ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(in crate::ledger) struct LockHash(u64);

impl LockHash {
    /// `topic` is a [`Failure::join_topic`](crate::model::failure::Failure::join_topic).
    pub(in crate::ledger) fn new(namespace: &str, lock: &str, topic: &str) -> Self {
        let mut hasher = SipHasher13::new();
        for part in [namespace, topic, lock] {
            hasher.write_u64(part.len() as u64);
            hasher.write(part.as_bytes());
        }
        Self(hasher.finish())
    }
}

/// How far a line may be from a failure and still belong to it.
#[derive(Clone, Copy, Debug)]
pub(in crate::ledger) enum Window {
    /// Measured from the first line of the failure: an operation that keeps failing counts again
    /// after each window.
    FromFirst(TimeMs),
    /// Measured from the last line: a loss stays one loss as long as lines keep reporting it.
    FromLast(TimeMs),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::ledger) struct FailureJoiner {
    entries: BTreeMap<LockHash, JoinEntry>,
    evictions: u64,
}

/// The time that lines are compared with, and the arrival time of the last line. Saved as a pair to
/// keep the file small.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct JoinEntry(TimeMs, TimeMs);

impl FailureJoiner {
    /// Records a line. Returns whether it starts a new failure.
    pub(in crate::ledger) fn begins(&mut self, lock: LockHash, at: TimeMs, now: TimeMs, window: Window) -> bool {
        let (window, lasts) = match window {
            Window::FromFirst(window) => (window, false),
            Window::FromLast(window) => (window, true),
        };
        let begins = !self.is_open(Some(lock), at, window);
        if begins && self.entries.len() >= CAPACITY && !self.entries.contains_key(&lock) {
            self.make_room();
        }
        let entry = self.entries.entry(lock).or_insert(JoinEntry(at, now));
        let since = match (begins, lasts) {
            (true, _) => at,
            // Lines of several files may arrive out of order. The latest time counts.
            (false, true) => entry.0.max(at),
            (false, false) => entry.0,
        };
        *entry = JoinEntry(since, now);
        begins
    }

    /// Whether a line at time `at` belongs to a failure that was already counted.
    pub(in crate::ledger) fn is_open(&self, lock: Option<LockHash>, at: TimeMs, window: TimeMs) -> bool {
        let entry = lock.and_then(|lock| self.entries.get(&lock));
        // A window of 0 joins nothing, not even lines with the same time.
        window > 0 && entry.is_some_and(|entry| at.abs_diff(entry.0) <= window.unsigned_abs())
    }

    /// Removes entries that arrived too long ago for any line to belong to them. `longest_window`
    /// is the longest window of the configuration.
    pub(in crate::ledger) fn tidy(&mut self, now: TimeMs, longest_window: TimeMs) {
        let kept_for = KEPT_FOR_MS.max(longest_window.saturating_mul(2));
        self.entries.retain(|_, entry| now - entry.1 <= kept_for);
    }

    pub(in crate::ledger) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Removes the eighth of the entries that arrived first, so that this happens rarely. Among
    /// entries that arrived together (`replay`, a backlog), those with the oldest lines go first.
    fn make_room(&mut self) {
        let mut oldest: Vec<(TimeMs, TimeMs, LockHash)> =
            self.entries.iter().map(|(lock, entry)| (entry.1, entry.0, *lock)).collect();
        let (leaving, ..) = oldest.select_nth_unstable(CAPACITY / 8);
        for (_, _, lock) in leaving {
            self.entries.remove(lock);
            self.evictions += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::FINAL_STATE_TOPIC;
    use super::*;
    use crate::model::failure::FailureKind;
    use crate::model::label::Label;

    fn lock(number: usize) -> LockHash {
        LockHash::new("jobs", &number.to_string(), "release")
    }

    const WINDOW: Window = Window::FromFirst(2000);

    /// The state file contains these hashes. A line read after an update of the exporter must find
    /// the entry of a line read before it.
    #[test]
    fn hashes_are_those_of_format_1() {
        let file = include_str!("../../../tests/fixtures/state/v1.json");
        let topics_of_format_1 = [
            "release",
            "release_loss",
            "renewal",
            "renewal_loss",
            "unknown_loss",
            "acquire",
            "abandonment",
            "unlocked_work",
            "final_state",
            "duplicate_terminal_state",
            "stale_write_rejected",
            "state_conflict",
        ];
        let failures = FailureKind::ALL.iter().flat_map(|kind| kind.all_failures());
        let topics: Vec<&str> = failures.map(|failure| failure.join_topic()).chain([FINAL_STATE_TOPIC]).collect();
        for topic in topics_of_format_1 {
            assert!(topics.contains(&topic), "{topic}");
            let LockHash(hash) = LockHash::new("workflow", "cordum:workflow:run:lock:1", topic);
            assert!(file.contains(&format!("\"{hash}\":[")), "{topic}");
        }
    }

    #[test]
    fn a_failure_ends_a_window_after_its_first_line() {
        let mut joined = FailureJoiner::default();
        let mut begins = |at| joined.begins(lock(1), at, 0, WINDOW);
        assert!(begins(10_000));
        assert!(!begins(11_000));
        assert!(!begins(12_000), "the window's edge belongs to it");
        assert!(!begins(8_000), "an earlier line comes later");
        assert!(begins(12_001), "the next failure");
        assert!(!begins(14_000));
        assert!(begins(9_000), "long before it");
    }

    #[test]
    fn the_last_line_about_a_lost_lock_keeps_it_lost() {
        let mut joined = FailureJoiner::default();
        let mut begins = |at| joined.begins(lock(1), at, 0, Window::FromLast(2000));
        assert!(begins(10_000));
        assert!(!begins(12_000), "the window's edge belongs to it");
        assert!(!begins(14_000), "the window is counted from the last line");
        assert!(!begins(13_000), "an earlier line comes later");
        assert!(!begins(16_000), "and does not move the end back");
        assert!(begins(18_001));
        assert!(begins(10_000), "long before it");
    }

    #[test]
    fn a_window_of_nothing_joins_nothing() {
        let mut joined = FailureJoiner::default();
        assert!(joined.begins(lock(1), 5, 5, Window::FromFirst(0)));
        assert!(joined.begins(lock(1), 5, 5, Window::FromFirst(0)));
    }

    #[test]
    fn other_locks_namespaces_and_topics_are_apart() {
        let hashes = [
            LockHash::new("jobs", "1", "release"),
            LockHash::new("jobs", "2", "release"),
            LockHash::new("runs", "1", "release"),
            LockHash::new("jobs", "1", "release_loss"),
            LockHash::new("jobs1", "", "release"),
        ];
        let distinct: std::collections::BTreeSet<LockHash> = hashes.into_iter().collect();
        assert_eq!(distinct.len(), hashes.len());
    }

    #[test]
    fn a_full_table_drops_what_arrived_first_and_counts_it() {
        let mut joined = FailureJoiner::default();
        for number in 0..CAPACITY {
            assert!(joined.begins(lock(number), 0, number as TimeMs, WINDOW));
        }
        assert_eq!((joined.entries.len(), joined.evictions()), (CAPACITY, 0));
        assert!(!joined.begins(lock(0), 0, 0, WINDOW), "a known lock needs no room");
        assert!(joined.begins(lock(CAPACITY), 0, CAPACITY as TimeMs, WINDOW));
        assert_eq!(joined.evictions(), CAPACITY as u64 / 8);
        assert_eq!(joined.entries.len(), CAPACITY - CAPACITY / 8 + 1);
        for number in [CAPACITY / 8, CAPACITY - 1, CAPACITY] {
            assert!(!joined.begins(lock(number), 0, 0, WINDOW), "{number} is still known");
        }
        assert!(joined.begins(lock(CAPACITY / 8 - 1), 0, 0, WINDOW));
    }

    #[test]
    fn of_what_arrived_together_the_oldest_lines_leave() {
        let mut joined = FailureJoiner::default();
        for number in 0..=CAPACITY {
            joined.begins(lock(number), number as TimeMs * 10, 7, WINDOW);
        }
        let is_known = |number: usize| joined.is_open(Some(lock(number)), number as TimeMs * 10, 2000);
        assert!(!is_known(0) && !is_known(CAPACITY / 8 - 1));
        assert!(is_known(CAPACITY / 8) && is_known(CAPACITY));
    }

    #[test]
    fn tidying_goes_by_arrival_and_keeps_what_a_window_may_need() {
        let mut joined = FailureJoiner::default();
        joined.begins(lock(1), 1_000_000_000, 0, WINDOW);
        joined.tidy(KEPT_FOR_MS, 2000);
        assert!(joined.is_open(Some(lock(1)), 1_000_000_000, 2000), "lines may be of any time");
        joined.tidy(KEPT_FOR_MS + 1, KEPT_FOR_MS);
        assert!(joined.is_open(Some(lock(1)), 1_000_000_000, 2000));
        joined.tidy(KEPT_FOR_MS + 1, 2000);
        assert!(!joined.is_open(Some(lock(1)), 1_000_000_000, 2000));
        assert_eq!(joined.evictions(), 0, "nothing was lost");
    }
}
