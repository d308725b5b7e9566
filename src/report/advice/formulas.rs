//! The formulas: compute the TTL from a 99th percentile, and what a renewal interval means for a
//! TTL. `docs/ttl-advice.md` explains them.

use std::time::Duration;

use super::evidence::Evidence;
use super::percentile::{BucketedSample, MIN_SAMPLES};
use crate::model::namespace::{Namespace, OnRenewalFailure};

/// Reserve for what was not observed: a share of the observed value, and a minimum in seconds.
const GUARD_SHARE: f64 = 0.25;
const LEAST_GUARD: f64 = 0.25;
/// Used if too few replies were timed. In seconds.
const ASSUMED_JITTER: f64 = 1.0;
/// One renewal may be late by a complete interval, and the previous one may have failed.
const RENEWALS_PER_TTL: u32 = 3;
/// More frequent renewals add load but no safety.
const MOST_RENEWALS_PER_TTL: f64 = 10.0;

/// What the TTL of a lock depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// Not renewed: the TTL must be longer than the work.
    Held,
    /// Renewed: the TTL must be longer than the pauses of the owner.
    Renewed,
    /// Held until the TTL runs out on purpose: only the takeover is assessed.
    Loop,
}

impl Model {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Renewed => "renewed",
            Self::Loop => "loop",
        }
    }
}

/// The time that Redis needs to answer, at the 99th percentile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jitter {
    pub seconds: f64,
    /// Not measured, because there were too few replies.
    pub is_assumed: bool,
}

impl Jitter {
    pub(super) fn of(replies: &BucketedSample) -> Self {
        let bracket = replies.p99(0, 0.0);
        // A value above the last bound counts as the last bound.
        match bracket.map(|bracket| bracket.high.unwrap_or(bracket.low)) {
            Some(seconds) => Self { seconds, is_assumed: false },
            None => Self { seconds: ASSUMED_JITTER, is_assumed: true },
        }
    }
}

/// The shortest TTL that is long enough, between two bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    pub low: Duration,
    /// `None` if no upper bound is known.
    pub high: Option<Duration>,
}

impl Need {
    fn of(low: f64, high: Option<f64>, formula: impl Fn(f64) -> f64) -> Self {
        Self { low: duration(formula(low)), high: high.map(|high| duration(formula(high))) }
    }

    /// Returns the smaller of two alternatives.
    pub(super) fn or(self, other: Self) -> Self {
        let high = self.high.zip(other.high).map(|(one, other)| one.min(other));
        Self { low: self.low.min(other.low), high }
    }
}

/// What must be left of the TTL when the second renewal in a row is due after the first one failed:
/// pause + jitter + guard, in seconds, between two bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reserve {
    pub(super) low: f64,
    pub(super) high: Option<f64>,
}

impl Reserve {
    /// TTL = 2 intervals + reserve.
    pub(super) fn need_at(self, every: Duration) -> Need {
        Need::of(self.low, self.high, |reserve| 2.0 * every.as_secs_f64() + reserve)
    }

    /// With an interval of a third of the TTL: 2/3 TTL + reserve = TTL.
    pub(super) fn need_at_a_third(self) -> Need {
        Need::of(self.low, self.high, |reserve| f64::from(RENEWALS_PER_TTL) * reserve)
    }

    /// With the shortest sensible interval.
    pub(super) fn least_need(self) -> Need {
        Need::of(self.low, self.high, |reserve| reserve / (1.0 - 2.0 / MOST_RENEWALS_PER_TTL))
    }
}

/// Returns the longest interval that leaves this much of the TTL. `None` if the interval would be
/// too short.
pub(super) fn interval_for(ttl: Duration, reserve: f64) -> Option<Duration> {
    let ttl = ttl.as_secs_f64();
    let longest = Some((ttl - reserve) / 2.0).filter(|every| *every >= ttl / MOST_RENEWALS_PER_TTL);
    longest.map(|every| round(duration(every), f64::floor))
}

/// TTL = 99th percentile of the hold times + jitter + guard.
pub(super) fn for_hold(hold: f64, jitter: Jitter) -> Duration {
    duration(hold + jitter.seconds + guard(hold))
}

pub(super) fn reserve(pause: f64, jitter: Jitter) -> f64 {
    pause + jitter.seconds + guard(pause)
}

fn guard(seen: f64) -> f64 {
    (seen * GUARD_SHARE).max(LEAST_GUARD)
}

/// Returns the model for a lock of style `item`.
pub(super) fn of_item(namespace: &Namespace, evidence: &Evidence) -> Model {
    let n_silences = evidence.margins.count() + evidence.cut_off();
    let hold = evidence.finished_holds().p99(evidence.cut_off(), f64::INFINITY);
    match (namespace.renew_every, hold) {
        // Renewals are observed although none are configured.
        (None, _) if evidence.margins.count() >= MIN_SAMPLES => Model::Renewed,
        (None, _) => Model::Held,
        // Renewals are configured, but none are observed.
        (Some(every), Some(hold)) if evidence.renewals == 0 && hold.low >= every.as_secs_f64() => Model::Held,
        (Some(_), _) if n_silences >= MIN_SAMPLES && evidence.margins.count() > 0 => Model::Renewed,
        // Renewals are rare because the work ends before the first one is due.
        (Some(every), Some(hold)) if hold.high.is_some_and(|high| high <= every.as_secs_f64()) => Model::Held,
        (Some(_), _) => Model::Renewed,
    }
}

/// Returns the number of renewals that are attempted after the last successful one and answered
/// before the TTL runs out.
pub(super) fn attempts(ttl: Duration, renew_every: Duration, jitter: Jitter) -> u64 {
    let time = ttl.as_secs_f64() - jitter.seconds;
    // An attempt exactly at the end of the TTL is too late.
    ((time / renew_every.as_secs_f64()).ceil() - 1.0).max(0.0) as u64
}

/// Returns when an owner whose renewals fail stops its own work, as the time since its last
/// successful renewal. `None` if it never stops or if this is unknown.
pub(super) fn fence(namespace: &Namespace, renew_every: Duration) -> Option<Duration> {
    let budget =
        namespace.renewal_failure_budget.filter(|_| namespace.on_renewal_failure == OnRenewalFailure::Fence)?;
    Some(renew_every.saturating_mul(u32::try_from(budget).unwrap_or(u32::MAX)))
}

/// Returns a third of the TTL. If more renewals in a row must fail before the fence applies, the
/// interval is shorter, so that the fence still applies in time.
pub(super) fn renewal_of(ttl: Duration, namespace: &Namespace) -> Duration {
    let budget = namespace.renewal_failure_budget.filter(|_| namespace.on_renewal_failure == OnRenewalFailure::Fence);
    let parts = budget.map_or(RENEWALS_PER_TTL, |budget| {
        u32::try_from(budget).unwrap_or(u32::MAX).saturating_add(1).max(RENEWALS_PER_TTL)
    });
    round(ttl / parts, f64::floor)
}

/// Rounds to hundredths below 1 s, to half seconds below 10 s, and to seconds above. More digits
/// would suggest a precision that the data does not have.
pub(super) fn round_up(duration: Duration) -> Duration {
    round(duration, f64::ceil)
}

pub(super) fn round_down(duration: Duration) -> Duration {
    round(duration, f64::floor)
}

fn round(duration: Duration, to_whole: fn(f64) -> f64) -> Duration {
    let seconds = duration.as_secs_f64();
    let step = match seconds {
        ..1.0 => 0.01,
        1.0..10.0 => 0.5,
        _ => 1.0,
    };
    // The steps are not exact binary fractions: 0.3 / 0.01 is slightly less than 30.
    Duration::from_millis((to_whole((seconds / step * 1e6).round() / 1e6) * step * 1e3).round() as u64)
}

pub(super) fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn the_formula_for_holds() {
        let jitter = Jitter { seconds: 4.0, is_assumed: false };
        assert_eq!(for_hold(18.0, jitter), ms(26_500));
        assert_eq!(for_hold(0.1, Jitter { seconds: 0.01, ..jitter }), ms(360));
    }

    /// With the computed values, one renewal fails, the next is late by the pause, and the lock is
    /// still held.
    #[test]
    fn the_formulas_for_pauses_survive_what_they_are_for() {
        let jitter = Jitter { seconds: 0.1, is_assumed: false };
        for pause in [0.0, 0.5, 4.0, 30.0] {
            let low = reserve(pause, jitter);
            let survives = |ttl: Duration, every: f64| {
                let (ttl, renewed_at) = (ttl.as_secs_f64(), 2.0 * every + pause + jitter.seconds);
                assert!(renewed_at < ttl && renewed_at > ttl - 0.26 - pause * GUARD_SHARE, "{renewed_at} of {ttl}");
            };
            let reserve = Reserve { low, high: None };
            let third = reserve.need_at_a_third().low;
            survives(third, third.as_secs_f64() / 3.0);
            let least = reserve.least_need().low;
            survives(least, least.as_secs_f64() / 10.0);
            for every in [1.0, 29.0] {
                survives(reserve.need_at(duration(every)).low, every);
            }
        }
    }

    /// A short interval leaves more of the TTL for a pause, a long one less.
    #[test]
    fn the_interval_that_is_kept_counts() {
        let jitter = Jitter { seconds: 0.01, is_assumed: false };
        let need = |every, pause| Reserve { low: reserve(pause, jitter), high: None }.need_at(duration(every)).low;
        assert_eq!(need(29.0, 7.0), ms(66_760));
        assert_eq!(need(3.0, 9.0), ms(17_260));
        assert_eq!(interval_for(ms(60_000), 8.76), Some(ms(25_000)));
        assert_eq!(interval_for(ms(10_000), 8.76), None);
    }

    #[test]
    fn attempts_that_come_in_time() {
        let jitter = Jitter { seconds: 0.01, is_assumed: false };
        for (ttl, every, expected) in
            [(60, 20, 2), (60, 21, 2), (60, 30, 1), (60, 59, 1), (60, 15, 3), (60, 60, 0), (60, 90, 0)]
        {
            assert_eq!(
                attempts(Duration::from_secs(ttl), Duration::from_secs(every), jitter),
                expected,
                "{every} of {ttl}"
            );
        }
    }

    #[test]
    fn the_fence_falls_before_the_lock_expires() {
        let fences = |budget, policy| Namespace {
            renewal_failure_budget: budget,
            on_renewal_failure: policy,
            ..Namespace::other()
        };
        let ttl = ms(60_000);
        for (budget, policy, expected) in [
            (None, OnRenewalFailure::Fence, 20),
            (Some(1), OnRenewalFailure::Fence, 20),
            (Some(3), OnRenewalFailure::Fence, 15),
            (Some(3), OnRenewalFailure::Continue, 20),
        ] {
            let namespace = fences(budget, policy);
            let every = renewal_of(ttl, &namespace);
            assert_eq!(every, Duration::from_secs(expected), "{budget:?}");
            assert!(fence(&namespace, every).is_none_or(|fence| fence < ttl));
        }
        assert_eq!(fence(&fences(Some(3), OnRenewalFailure::Fence), ms(20_000)), Some(ttl));
    }

    #[test]
    fn rounding() {
        for (exact, up, down) in
            [(296, 300, 290), (300, 300, 300), (1_001, 1_500, 1_000), (9_500, 9_500, 9_500), (12_001, 13_000, 12_000)]
        {
            assert_eq!((round_up(ms(exact)), round_down(ms(exact))), (ms(up), ms(down)), "{exact}");
        }
    }
}
