//! Waiting times that grow after each failure and contain a random part, so that several clients do
//! not retry at the same moment.

use std::hash::BuildHasher;
use std::time::Duration;

const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);

/// Doubles the time after each failure, up to `LONGEST`, and subtracts a random part of up to half.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { next: SHORTEST }
    }

    /// Returns how long to wait after one more failure.
    pub(crate) fn next(&mut self) -> Duration {
        let full = self.next;
        self.next = (full * 2).min(LONGEST);
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
        backoff.reset();
        assert!(backoff.next() <= SHORTEST);
    }
}
