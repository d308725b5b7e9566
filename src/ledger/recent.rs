//! Counts of the last hour in buckets of ten seconds: sums and ratios over the last minutes and the
//! last hour, and the time series of that hour.
//!
//! The ledger keeps one [`Recent`] for each lock namespace. It is not saved.

use crate::model::namespace::Style;
use crate::snapshot::{ChartPoint, Ratios, RecentActivity, RecentCounts};
use crate::util::clock::TimeMs;

const BUCKET_MS: TimeMs = 10_000;
/// One more than the longest window needs, because the current bucket is incomplete.
const BUCKETS: usize = 361;

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    NotOwned,
    RenewalFailure,
    Release,
    Renewal,
    Expiration,
    Acquisition,
    /// Failed acquisitions, except those that found the lock taken and those that the program
    /// canceled.
    AcquireFailure,
    Abandonment,
    UnlockedWork,
    ConflictingWrite,
    FenceRegression,
}

const EVENTS: usize = Event::FenceRegression as usize + 1;

/// Counts of one bucket. `number` shows which ten seconds they belong to, because slots of the ring
/// are reused.
#[derive(Clone, Copy)]
struct RecentBucket {
    number: TimeMs,
    counts: [u32; EVENTS],
}

/// Events of the last hour in one lock namespace.
pub(super) struct Recent {
    buckets: Vec<RecentBucket>,
    /// Since when events are counted.
    since: TimeMs,
}

impl Recent {
    pub(super) fn new(since: TimeMs) -> Self {
        Self { buckets: vec![RecentBucket { number: TimeMs::MIN, counts: [0; EVENTS] }; BUCKETS], since }
    }

    /// `at` may be in the past. Events older than the longest window are ignored.
    pub(super) fn add(&mut self, event: Event, count: u64, at: TimeMs) {
        let number = at.div_euclid(BUCKET_MS);
        let bucket = &mut self.buckets[number.rem_euclid(BUCKETS as TimeMs) as usize];
        if bucket.number < number {
            *bucket = RecentBucket { number, counts: [0; EVENTS] };
        }
        if bucket.number == number {
            let place = &mut bucket.counts[event as usize];
            *place = place.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        }
    }

    pub(super) fn ratios(&self, now: TimeMs, style: Style) -> [Ratios; 2] {
        self.windows(now).map(|sums| {
            let RecentCounts { releases, renewals, .. } = sums;
            let expiry = share(sums.expirations, releases);
            Ratios {
                not_owned: share(sums.not_owned, releases + renewals),
                renewal_failure: share(sums.renewal_failures, renewals),
                // A loop lock expires on purpose.
                expiry: expiry.filter(|_| style == Style::Item),
            }
        })
    }

    pub(super) fn lately(&self, now: TimeMs) -> RecentActivity {
        let observed = Ratios::WINDOWS.map(|(_, window)| self.observed(now - window, now));
        RecentActivity { windows: self.windows(now), observed, line: self.line(now) }
    }

    /// How much of the time between two moments was observed.
    fn observed(&self, from: TimeMs, to: TimeMs) -> TimeMs {
        (to - self.since.max(from)).max(0)
    }

    fn windows(&self, now: TimeMs) -> [RecentCounts; 2] {
        Ratios::WINDOWS.map(|(_, window)| {
            let last = now.div_euclid(BUCKET_MS);
            let first = (now - window).div_euclid(BUCKET_MS) + 1;
            let mut sums = [0_u64; EVENTS];
            for bucket in self.buckets.iter().filter(|bucket| (first..=last).contains(&bucket.number)) {
                for (sum, count) in sums.iter_mut().zip(bucket.counts) {
                    *sum += u64::from(count);
                }
            }
            let sum = |event: Event| sums[event as usize];
            RecentCounts {
                not_owned: sum(Event::NotOwned),
                renewal_failures: sum(Event::RenewalFailure),
                releases: sum(Event::Release),
                renewals: sum(Event::Renewal),
                expirations: sum(Event::Expiration),
                acquisitions: sum(Event::Acquisition),
                acquire_failures: sum(Event::AcquireFailure),
                abandonments: sum(Event::Abandonment),
                unlocked_work: sum(Event::UnlockedWork),
                conflicting_writes: sum(Event::ConflictingWrite),
                fence_regressions: sum(Event::FenceRegression),
            }
        })
    }

    /// The last point covers the current time and is incomplete. All other points are complete.
    fn line(&self, now: TimeMs) -> Vec<ChartPoint> {
        let last = now.div_euclid(RecentActivity::STEP);
        let first = last - (RecentActivity::POINTS as TimeMs - 1);
        let mut line = vec![ChartPoint::default(); RecentActivity::POINTS];
        for bucket in &self.buckets {
            let step = bucket.number.saturating_mul(BUCKET_MS).div_euclid(RecentActivity::STEP);
            if !(first..=last).contains(&step) {
                continue;
            }
            let point = &mut line[(step - first) as usize];
            let count = |event: Event| bucket.counts[event as usize];
            let add = |place: &mut u32, count: u32| *place = place.saturating_add(count);
            add(&mut point.operations, count(Event::Release).saturating_add(count(Event::Renewal)));
            add(&mut point.not_owned, count(Event::NotOwned));
            add(&mut point.renewal_failures, count(Event::RenewalFailure));
            add(&mut point.expirations, count(Event::Expiration));
        }
        line
    }
}

fn share(bad: u64, good: u64) -> Option<f64> {
    let all = bad + good;
    (all > 0).then(|| bad as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: TimeMs = 60_000;

    #[test]
    fn without_a_denominator_there_is_no_ratio() {
        let mut recent = Recent::new(0);
        assert_eq!(recent.ratios(0, Style::Item), [Ratios::default(); 2]);
        recent.add(Event::Release, 3, 0);
        let ratios = recent.ratios(0, Style::Item)[0];
        assert_eq!(ratios, Ratios { not_owned: Some(0.0), renewal_failure: None, expiry: Some(0.0) });
    }

    #[test]
    fn each_window_has_its_own_share() {
        let now = 1_000 * MINUTE;
        let mut recent = Recent::new(0);
        recent.add(Event::NotOwned, 1, now);
        recent.add(Event::RenewalFailure, 1, now - MINUTE);
        recent.add(Event::Renewal, 3, now - 4 * MINUTE);
        recent.add(Event::Release, 6, now - 10 * MINUTE);
        recent.add(Event::Expiration, 2, now - 59 * MINUTE);
        recent.add(Event::Release, 1_000, now - 60 * MINUTE);
        let [minutes, hour] = recent.ratios(now, Style::Item);
        assert_eq!(minutes, Ratios { not_owned: Some(0.25), renewal_failure: Some(0.25), expiry: None });
        assert_eq!(hour, Ratios { not_owned: Some(0.1), renewal_failure: Some(0.25), expiry: Some(0.25) });
        assert_eq!(recent.ratios(now, Style::Loop)[1].expiry, None);
        assert_eq!(recent.ratios(now + 61 * MINUTE, Style::Item), [Ratios::default(); 2]);
    }

    #[test]
    fn the_line_has_every_event_of_the_last_hour_in_its_place() {
        let now = 1_000 * MINUTE + 7_000;
        let mut recent = Recent::new(0);
        recent.add(Event::Release, 2, now);
        recent.add(Event::Renewal, 1, now - 10_000);
        recent.add(Event::NotOwned, 4, now - 59 * MINUTE - 30_000);
        recent.add(Event::Expiration, 5, now - 60 * MINUTE);
        let line = recent.lately(now).line;
        assert_eq!(line.len(), RecentActivity::POINTS);
        assert_eq!((line[119].operations, line[118].operations, line[0].not_owned), (2, 1, 4));
        let sum = |of: fn(&ChartPoint) -> u32| line.iter().map(of).sum::<u32>();
        assert_eq!((sum(|point| point.operations), sum(|point| point.not_owned)), (3, 4));
        assert_eq!(sum(|point| point.expirations), 0, "older than an hour");
        let [minutes, hour] = recent.lately(now).windows;
        assert_eq!((minutes.renewals, minutes.not_owned, hour.not_owned), (1, 0, 4));
    }

    #[test]
    fn places_are_used_again_and_late_events_do_no_harm() {
        let mut recent = Recent::new(0);
        let lap = BUCKET_MS * BUCKETS as TimeMs;
        recent.add(Event::Release, 5, 0);
        recent.add(Event::Release, 1, lap);
        recent.add(Event::Expiration, 1, 0);
        assert_eq!(recent.ratios(lap, Style::Item)[1].expiry, Some(0.0));
        recent.add(Event::Expiration, 1, -lap);
        assert_eq!(recent.ratios(lap, Style::Item)[1].expiry, Some(0.0));
    }
}
