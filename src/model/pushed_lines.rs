//! Pushed lines that were counted, so that a client's retry does not count them again.
//!
//! Only lines about a lock are remembered, so the memory reaches back far; it is saved with the counters. A request is
//! remembered as a whole or not at all, for a client repeats it as a whole, however many lines it has.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// The oldest request is forgotten when so many lines came after it, in at least so many requests. A retry comes within
/// minutes.
const MIN_LINES: usize = 8_192;
const MIN_REQUESTS: usize = 16;
/// And in any case when so many lines came after it.
const MAX_LINES: usize = 131_072;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "VecDeque<u64>", into = "VecDeque<u64>")]
pub struct Known {
    /// The latest last.
    lines: VecDeque<u64>,
    /// How many lines each request has, none without any. Not saved: all that was read from a file is one.
    requests: VecDeque<usize>,
}

impl From<VecDeque<u64>> for Known {
    fn from(lines: VecDeque<u64>) -> Self {
        let requests = if lines.is_empty() { VecDeque::new() } else { [lines.len()].into() };
        Self { lines, requests }
    }
}

impl From<Known> for VecDeque<u64> {
    fn from(known: Known) -> Self {
        known.lines
    }
}

impl Known {
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = u64> {
        self.lines.iter().copied()
    }

    /// Of one request.
    pub fn remember(&mut self, lines: impl IntoIterator<Item = u64>) {
        let n_before = self.lines.len();
        self.lines.extend(lines);
        if self.lines.len() == n_before {
            return;
        }
        self.requests.push_back(self.lines.len() - n_before);
        while let Some(oldest) = self.requests.front() {
            let (n_lines, n_requests) = (self.lines.len() - oldest, self.requests.len() - 1);
            if n_lines < MIN_LINES || (n_requests < MIN_REQUESTS && n_lines < MAX_LINES) {
                break;
            }
            self.lines.drain(..oldest);
            self.requests.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(known: &Known) -> (Option<u64>, Option<u64>, usize) {
        (known.iter().next(), known.iter().last(), known.iter().count())
    }

    #[test]
    fn the_oldest_are_forgotten_first() {
        let mut known = Known::default();
        for line in 0..MIN_LINES as u64 + 1 {
            known.remember([line]);
            known.remember([]);
        }
        assert_eq!(ends(&known), (Some(1), Some(MIN_LINES as u64), MIN_LINES));
        known.remember([0]);
        assert_eq!(ends(&known), (Some(2), Some(0), MIN_LINES));
    }

    #[test]
    fn a_request_is_remembered_as_a_whole_and_so_are_some_large_ones() {
        let mut known = Known::default();
        known.remember(0..300_000);
        known.remember([300_000]);
        assert_eq!(ends(&known), (Some(0), Some(300_000), 300_001));
        known.remember(0..MAX_LINES as u64);
        assert_eq!(known.iter().count(), MAX_LINES);
        let mut known = Known::default();
        for _ in 0..=MIN_REQUESTS {
            known.remember(0..1_000);
        }
        assert_eq!(known.iter().count(), 1_000 * MIN_REQUESTS);
    }

    #[test]
    fn what_was_saved_is_one_request() {
        let known: Known = serde_json::from_str("[7,8]").unwrap();
        assert_eq!(serde_json::to_string(&known).unwrap(), "[7,8]");
        let mut after = known;
        after.remember(0..MAX_LINES as u64 - 1);
        assert_eq!(after.iter().count(), MAX_LINES + 1);
        after.remember([9]);
        assert_eq!(ends(&after), (Some(0), Some(9), MAX_LINES));
    }
}
