//! Pushed lines that were counted, so that a client's retry does not count them again.
//!
//! Only lines about a lock are remembered, so the memory reaches back far; it is saved with the counters.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Beyond this the oldest are forgotten. A retry comes within minutes.
const MAX_LINES: usize = 8_192;

/// The latest last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Known(VecDeque<u64>);

impl Known {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = u64> {
        self.0.iter().copied()
    }

    pub fn remember(&mut self, lines: impl IntoIterator<Item = u64>) {
        self.0.extend(lines);
        let excess = self.0.len().saturating_sub(MAX_LINES);
        self.0.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten_first() {
        let mut known = Known::default();
        known.remember([1, 2]);
        known.remember(3..3 + MAX_LINES as u64 - 1);
        let ends = |known: &Known| (known.iter().next(), known.iter().last(), known.iter().count());
        assert_eq!(ends(&known), (Some(2), Some(MAX_LINES as u64 + 1), MAX_LINES));
        known.remember([0]);
        assert_eq!(ends(&known), (Some(3), Some(0), MAX_LINES));
    }
}
