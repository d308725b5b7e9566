//! Waiting times that grow after each failure and contain a random part, so that several clients do
//! not retry at the same moment.

use std::hash::BuildHasher;
use std::time::Duration;

const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);

/// Doubles the time after each failure, up to a limit, and subtracts a random part of up to half.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { next: SHORTEST }
    }

    /// Returns how long to wait after one more failure: at most ten seconds.
    pub(crate) fn next(&mut self) -> Duration {
        self.next_up_to(LONGEST)
    }

    /// The same with another limit.
    pub(crate) fn next_up_to(&mut self, longest: Duration) -> Duration {
        let full = self.next.min(longest);
        self.next = (full * 2).min(longest);
        // `RandomState` is the only source of randomness in std. Each one has its own keys.
        let random = std::collections::hash_map::RandomState::new().hash_one(0);
        full / 2 + (full / 2).mul_f64(random as f64 / u64::MAX as f64)
    }

    pub(crate) fn reset(&mut self) {
        self.next = SHORTEST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_up_to_a_limit_and_starts_again() {
        let mut backoff = Backoff::new();
        let first = backoff.next();
        assert!(first >= SHORTEST / 2 && first <= SHORTEST);
        let later = (0..20).map(|_| backoff.next()).last().unwrap();
        assert!(later >= LONGEST / 2 && later <= LONGEST);
        let limit = Duration::from_secs(1);
        assert!((0..20).map(|_| backoff.next_up_to(limit)).all(|wait| wait >= limit / 2 && wait <= limit));
        backoff.reset();
        assert!(backoff.next_up_to(limit) <= SHORTEST);
    }
}
