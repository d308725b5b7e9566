//! Remembers pushed lines that were counted, so that a retry by the client does not count them
//! again.
//!
//! Only lines about a lock are remembered, so the limits cover a long time. The lines are saved
//! with the counters. A request is remembered completely or not at all, because a client repeats
//! all of its lines.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// The oldest request is forgotten after `MIN_LINES` newer lines in at least `MIN_REQUESTS` newer
/// requests. A retry arrives within minutes.
const MIN_LINES: usize = 8_192;
const MIN_REQUESTS: usize = 16;
/// The oldest request is forgotten after this many newer lines, in any number of requests.
const MAX_LINES: usize = 131_072;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "VecDeque<u64>", into = "VecDeque<u64>")]
pub struct CountedPushes {
    /// Hashes of the lines, oldest first.
    lines: VecDeque<u64>,
    /// Number of lines of each request, oldest first. Requests without lines are not listed. Not
    /// saved: all lines from the state file count as one request.
    requests: VecDeque<usize>,
}

impl From<VecDeque<u64>> for CountedPushes {
    fn from(lines: VecDeque<u64>) -> Self {
        let requests = if lines.is_empty() { VecDeque::new() } else { [lines.len()].into() };
        Self { lines, requests }
    }
}

impl From<CountedPushes> for VecDeque<u64> {
    fn from(known: CountedPushes) -> Self {
        known.lines
    }
}

impl CountedPushes {
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = u64> {
        self.lines.iter().copied()
    }

    /// Adds the lines of one request.
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

    fn ends(known: &CountedPushes) -> (Option<u64>, Option<u64>, usize) {
        (known.iter().next(), known.iter().last(), known.iter().count())
    }

    #[test]
    fn the_oldest_are_forgotten_first() {
        let mut known = CountedPushes::default();
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
        let mut known = CountedPushes::default();
        known.remember(0..300_000);
        known.remember([300_000]);
        assert_eq!(ends(&known), (Some(0), Some(300_000), 300_001));
        known.remember(0..MAX_LINES as u64);
        assert_eq!(known.iter().count(), MAX_LINES);
        let mut known = CountedPushes::default();
        for _ in 0..=MIN_REQUESTS {
            known.remember(0..1_000);
        }
        assert_eq!(known.iter().count(), 1_000 * MIN_REQUESTS);
    }

    #[test]
    fn what_was_saved_is_one_request() {
        let known: CountedPushes = serde_json::from_str("[7,8]").unwrap();
        assert_eq!(serde_json::to_string(&known).unwrap(), "[7,8]");
        let mut after = known;
        after.remember(0..MAX_LINES as u64 - 1);
        assert_eq!(after.iter().count(), MAX_LINES + 1);
        after.remember([9]);
        assert_eq!(ends(&after), (Some(0), Some(9), MAX_LINES));
    }
}
