//! What TTL and renewal interval the locks of a namespace should have, from how long they were held and renewed.
//!
//! Two models. A lock that is not renewed must outlive the work: its TTL follows from the hold times. A lock that is renewed
//! must outlive the longest silence of a living owner, however long the work takes: its TTL follows from the margins that
//! renewals left. With too few samples there is no advice.

use std::time::Duration;

use crate::ledger::counters::{Bounds, Histogram, KeyspaceCounters};
use crate::namespace::{Namespace, Style};

/// Fewer samples say nothing about a 99th percentile.
pub const MIN_SAMPLES: u64 = 100;
/// Between Redis and its clients; also what a loaded machine adds.
const JITTER: Duration = Duration::from_secs(1);
/// On top of what was seen, for what was not.
const GUARD: f64 = 0.25;
/// A renewal may fail twice before the lock is lost.
const RENEWALS_PER_TTL: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The lock must outlive the work.
    Hold,
    /// The lock must outlive the silence between two renewals.
    Silence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    pub ttl: Duration,
    /// For locks that are renewed.
    pub renew_every: Option<Duration>,
    pub basis: Basis,
}

pub fn advise(namespace: &Namespace, counters: &KeyspaceCounters) -> Option<Advice> {
    match (namespace.ttl, namespace.renew_every) {
        // Held until its TTL runs out on purpose: how long says nothing.
        _ if namespace.style == Style::Loop => None,
        (Some(ttl), Some(_)) => {
            // The margin that all but one renewal in a hundred left.
            let margin = quantile(&counters.renewal_margin_ratio, 0.01)?;
            let needed = with_guard(ttl.mul_f64(1.0 - margin.min(1.0))).max(JITTER * RENEWALS_PER_TTL);
            let advised = round_up(needed);
            Some(Advice { ttl: advised, renew_every: Some(advised / RENEWALS_PER_TTL), basis: Basis::Silence })
        }
        _ => {
            let held = quantile(&counters.hold_seconds, 0.99)?;
            Some(Advice {
                ttl: round_up(with_guard(Duration::from_secs_f64(held))),
                renew_every: None,
                basis: Basis::Hold,
            })
        }
    }
}

fn with_guard(seen: Duration) -> Duration {
    seen.mul_f64(1.0 + GUARD) + JITTER
}

/// To whole seconds: more would pretend to know more.
fn round_up(duration: Duration) -> Duration {
    Duration::from_secs(duration.as_secs() + u64::from(duration.subsec_nanos() > 0))
}

/// As `histogram_quantile` estimates it; nothing without samples enough, and nothing beyond the last bound, for what lies there
/// is not known.
fn quantile<B: Bounds>(histogram: &Histogram<B>, quantile: f64) -> Option<f64> {
    let count = histogram.count();
    if count < MIN_SAMPLES {
        return None;
    }
    let rank = quantile * count as f64;
    let (mut below, mut lower) = (0.0, 0.0);
    for (bound, in_bucket) in histogram.buckets() {
        let up_to_here = below + in_bucket as f64;
        if up_to_here >= rank && in_bucket > 0 {
            let share = (rank - below) / in_bucket as f64;
            return bound.is_finite().then_some(lower + (bound - lower) * share);
        }
        (below, lower) = (up_to_here, bound);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace(ttl: u64, renew_every: Option<u64>) -> Namespace {
        let renew_every = renew_every.map(Duration::from_secs);
        Namespace { ttl: Some(Duration::from_secs(ttl)), renew_every, ..Namespace::other() }
    }

    fn holds(holds: &[(f64, usize)]) -> KeyspaceCounters {
        let mut counters = KeyspaceCounters::default();
        for (seconds, times) in holds {
            (0..*times).for_each(|_| counters.hold_seconds.observe(*seconds));
        }
        counters
    }

    #[test]
    fn a_lock_that_is_not_renewed_outlives_the_work() {
        // All holds between 5 and 10 s: the 99th percentile is 9.95 s, a quarter more and a second is 13.4 s.
        let advice = advise(&namespace(10, None), &holds(&[(7.0, 1000)])).unwrap();
        assert_eq!(advice, Advice { ttl: Duration::from_secs(14), renew_every: None, basis: Basis::Hold });
        let short = advise(&namespace(10, None), &holds(&[(0.005, 1000)])).unwrap();
        assert_eq!(short.ttl, Duration::from_secs(2));
    }

    #[test]
    fn a_lock_that_is_renewed_outlives_the_silence_however_long_the_work() {
        let mut counters = holds(&[(900.0, 1000)]);
        (0..1000).for_each(|_| counters.renewal_margin_ratio.observe(0.65));
        // One renewal in a hundred leaves 0.601 of 30 s: a silence of 12 s.
        let advice = advise(&namespace(30, Some(10)), &counters).unwrap();
        assert_eq!((advice.ttl, advice.basis), (Duration::from_secs(16), Basis::Silence));
        (0..100).for_each(|_| counters.renewal_margin_ratio.observe(0.05));
        let late = advise(&namespace(30, Some(10)), &counters).unwrap();
        assert!(late.ttl > Duration::from_secs(30), "{late:?}");
        assert_eq!(late.renew_every, Some(late.ttl / 3));
    }

    #[test]
    fn too_few_samples_and_unbounded_ones_give_no_advice() {
        assert_eq!(advise(&namespace(10, None), &holds(&[(7.0, 99)])), None);
        assert_eq!(advise(&namespace(10, None), &holds(&[(7200.0, 1000)])), None, "beyond the last bound");
        assert_eq!(advise(&namespace(30, Some(10)), &holds(&[(7.0, 1000)])), None, "no renewal was seen");
    }
}
