//! Waiting longer after each failure, and not all at the same moment.

use std::hash::BuildHasher;
use std::time::Duration;

const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);

/// Twice as long each time, for ever, minus up to half of it by chance.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { next: SHORTEST }
    }

    /// How long to wait after one more failure.
    pub(crate) fn next(&mut self) -> Duration {
        let full = self.next;
        self.next = (full * 2).min(LONGEST);
        // The one source of randomness in std: each `RandomState` has keys of its own.
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
