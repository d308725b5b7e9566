//! Limits the speed of passes and reads: measures how much time of Redis a pass takes, adapts the
//! size of its steps, and limits the rate of reads.
//!
//! Redis runs one command at a time, so the time for our commands is missing for all other clients.
//! It is measured from outside: the response time minus the fastest response time so far. The
//! result is rather too high, which makes pauses rather too long.

use std::time::Duration;

use tokio::time::Instant;

const SMALLEST_COUNT: u32 = 16;
const LARGEST_COUNT: u32 = 16_384;
/// Target duration of one `SCAN`. Other clients wait at most about this long for it.
const STEP: Duration = Duration::from_millis(1);

/// Upper bound for the measured time of a step. A longer time was caused by a command of another
/// client or by this process, and must not lead to a pause of minutes.
const LONGEST_STEP: Duration = Duration::from_millis(50);

/// Controls the pauses and the step size of a pass.
#[derive(Debug)]
pub(super) struct ScanPacer {
    /// Maximum fraction of Redis's time. With 1 or more there are no pauses.
    share: f64,
    count: u32,
    /// The fastest response so far, taken as the network round trip.
    round_trip: Option<Duration>,
    /// The next step must not start before this time.
    ready: Instant,
}

impl ScanPacer {
    pub(super) fn new(share: f64, now: Instant) -> Self {
        Self { share, count: 256, round_trip: None, ready: now }
    }

    /// `COUNT` of the next `SCAN`.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn ready(&self) -> Instant {
        self.ready
    }

    /// Records the response time of a request with no other request before it.
    pub(super) fn answered(&mut self, took: Duration) {
        self.round_trip = Some(self.round_trip.map_or(took, |fastest| fastest.min(took)));
    }

    /// The part of a response time that Redis itself took.
    pub(super) fn beyond_round_trip(&self, took: Duration) -> Duration {
        took.saturating_sub(self.round_trip.unwrap_or_default())
    }

    /// Adapts the step size after a `SCAN` that took this much of Redis's time.
    pub(super) fn stepped(&mut self, busy: Duration) {
        if busy < STEP / 2 {
            self.count = (self.count * 2).min(LARGEST_COUNT);
        } else if busy > STEP * 2 {
            self.count = (self.count / 2).max(SMALLEST_COUNT);
        }
    }

    /// Adds a pause after the pass used this much of Redis's time, so that the pass stays within
    /// its share.
    pub(super) fn spent(&mut self, busy: Duration, now: Instant) {
        if self.share < 1.0 {
            let busy = busy.min(LONGEST_STEP);
            self.ready = self.ready.max(now) + busy.mul_f64(1.0 / self.share.max(0.001) - 1.0);
        }
    }
}

/// Rate limit for reads: a number per second, of which a tenth may be sent at once.
#[derive(Debug)]
pub(super) struct Allowance {
    rate: f64,
    left: f64,
    counted: Instant,
}

impl Allowance {
    pub(super) fn new(per_second: u32, now: Instant) -> Self {
        let rate = f64::from(per_second.max(1));
        Self { rate, left: Self::most(rate), counted: now }
    }

    pub(super) fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.counted).as_secs_f64();
        self.left = (self.left + passed * self.rate).min(Self::most(self.rate));
        self.counted = now;
        // Sums of floating-point fractions may be slightly less than 1.
        let is_allowed = self.left > 1.0 - 1e-6;
        if is_allowed {
            self.left -= 1.0;
        }
        is_allowed
    }

    /// When the next read is allowed.
    pub(super) fn ready(&self) -> Instant {
        self.counted + Duration::from_secs_f64((1.0 - self.left).max(0.0) / self.rate)
    }

    fn most(rate: f64) -> f64 {
        (rate / 10.0).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn steps_grow_and_shrink_until_they_take_a_millisecond() {
        let mut pace = ScanPacer::new(1.0, Instant::now());
        pace.stepped(ms(0));
        assert_eq!(pace.count(), 512);
        pace.stepped(ms(1));
        assert_eq!(pace.count(), 512);
        pace.stepped(ms(3));
        assert_eq!(pace.count(), 256);
        (0..100).for_each(|_| pace.stepped(ms(0)));
        assert_eq!(pace.count(), 16_384);
        (0..100).for_each(|_| pace.stepped(ms(9)));
        assert_eq!(pace.count(), 16);
    }

    #[test]
    fn a_pass_rests_for_its_share() {
        let start = Instant::now();
        let mut pace = ScanPacer::new(0.05, start);
        pace.spent(ms(1), start);
        assert_eq!((pace.ready() - start).as_millis(), 19);
        pace.spent(ms(1), start);
        assert_eq!((pace.ready() - start).as_millis(), 38, "rests add up");
        let mut stalled = ScanPacer::new(0.05, start);
        stalled.spent(ms(60_000), start);
        assert_eq!((stalled.ready() - start).as_millis(), 950);
        let mut unpaced = ScanPacer::new(1.0, start);
        unpaced.spent(ms(1000), start);
        assert_eq!(unpaced.ready(), start);
    }

    #[test]
    fn the_way_to_redis_is_not_its_work() {
        let mut pace = ScanPacer::new(0.5, Instant::now());
        pace.answered(ms(20));
        pace.answered(ms(30));
        assert_eq!(pace.beyond_round_trip(ms(23)), ms(3));
        assert_eq!(pace.beyond_round_trip(ms(2)), ms(0));
    }

    #[test]
    fn an_allowance_fills_with_time() {
        let start = Instant::now();
        let mut allowance = Allowance::new(100, start);
        let taken = (0..20).filter(|_| allowance.take(start)).count();
        assert_eq!(taken, 10);
        assert_eq!((allowance.ready() - start).as_millis(), 10);
        assert!(!allowance.take(start + ms(9)));
        assert!(allowance.take(start + ms(10)));
        let later = start + ms(60_000);
        assert_eq!((0..20).filter(|_| allowance.take(later)).count(), 10, "not more than at once");
    }
}
