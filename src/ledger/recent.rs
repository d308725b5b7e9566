//! Counts of the last hour in buckets of ten seconds: sums and ratios over the last minutes and the
//! last hour, and the time series of that hour.
//!
//! The ledger keeps one [`Recent`] for each lock namespace. It is not saved.

use crate::model::failure::FailureKind;
use crate::model::label::Label;
use crate::model::namespace::Style;
use crate::snapshot::{ChartPoint, ObservedOperation, Ratios, RecentActivity, RecentCounts};
use crate::util::clock::TimeMs;

const BUCKET_MS: TimeMs = 10_000;
/// One more than the longest window needs, because the current bucket is incomplete.
const BUCKETS: usize = 361;

const FAILURES: usize = FailureKind::ALL.len();
const OPERATIONS: usize = ObservedOperation::ALL.len();

/// Counts of one bucket. `number` shows which ten seconds they belong to, because slots of the ring
/// are reused.
#[derive(Clone, Copy)]
struct RecentBucket {
    number: TimeMs,
    failures: [u32; FAILURES],
    operations: [u32; OPERATIONS],
}

impl RecentBucket {
    fn new(number: TimeMs) -> Self {
        Self { number, failures: [0; FAILURES], operations: [0; OPERATIONS] }
    }

    fn of(&self, operation: ObservedOperation) -> u32 {
        self.operations[operation.index()]
    }
}

/// Events of the last hour in one lock namespace.
pub(super) struct Recent {
    buckets: Vec<RecentBucket>,
}

impl Recent {
    pub(super) fn new() -> Self {
        Self { buckets: vec![RecentBucket::new(TimeMs::MIN); BUCKETS] }
    }

    pub(super) fn add_failure(&mut self, kind: FailureKind, at: TimeMs) {
        if let Some(bucket) = self.bucket(at) {
            add(&mut bucket.failures[kind.index()], 1);
        }
    }

    pub(super) fn add(&mut self, operation: ObservedOperation, count: u64, at: TimeMs) {
        if let Some(bucket) = self.bucket(at) {
            add(&mut bucket.operations[operation.index()], u32::try_from(count).unwrap_or(u32::MAX));
        }
    }

    /// `at` may be in the past. Returns `None` if it is older than the longest window.
    fn bucket(&mut self, at: TimeMs) -> Option<&mut RecentBucket> {
        let number = at.div_euclid(BUCKET_MS);
        let bucket = &mut self.buckets[number.rem_euclid(BUCKETS as TimeMs) as usize];
        if bucket.number < number {
            *bucket = RecentBucket::new(number);
        }
        (bucket.number == number).then_some(bucket)
    }

    pub(super) fn ratios(&self, now: TimeMs, style: Style) -> [Ratios; 2] {
        self.windows(now).map(|RecentCounts { failures, operations }| {
            let releases = operations.get(ObservedOperation::Release);
            let renewals = operations.get(ObservedOperation::Renewal);
            let expiry = share(operations.get(ObservedOperation::Expiration), releases);
            Ratios {
                not_owned: share(failures.get(FailureKind::NotOwned), releases + renewals),
                renewal_failure: share(failures.get(FailureKind::RenewalFailed), renewals),
                // A loop lock expires on purpose.
                expiry: expiry.filter(|_| style == Style::Item),
            }
        })
    }

    pub(super) fn activity(&self, now: TimeMs) -> RecentActivity {
        RecentActivity { windows: self.windows(now), line: self.line(now) }
    }

    fn windows(&self, now: TimeMs) -> [RecentCounts; 2] {
        Ratios::WINDOWS.map(|(_, window)| {
            let last = now.div_euclid(BUCKET_MS);
            let first = (now - window).div_euclid(BUCKET_MS) + 1;
            let mut counts = RecentCounts::default();
            for bucket in self.buckets.iter().filter(|bucket| (first..=last).contains(&bucket.number)) {
                counts.failures.add_all(&bucket.failures);
                counts.operations.add_all(&bucket.operations);
            }
            counts
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
            add(&mut point.operations, bucket.of(ObservedOperation::Release));
            add(&mut point.operations, bucket.of(ObservedOperation::Renewal));
            add(&mut point.not_owned, bucket.failures[FailureKind::NotOwned.index()]);
            add(&mut point.renewal_failures, bucket.failures[FailureKind::RenewalFailed.index()]);
            add(&mut point.expirations, bucket.of(ObservedOperation::Expiration));
        }
        line
    }
}

fn add(sum: &mut u32, count: u32) {
    *sum = sum.saturating_add(count);
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
        let mut recent = Recent::new();
        assert_eq!(recent.ratios(0, Style::Item), [Ratios::default(); 2]);
        recent.add(ObservedOperation::Release, 3, 0);
        let ratios = recent.ratios(0, Style::Item)[0];
        assert_eq!(ratios, Ratios { not_owned: Some(0.0), renewal_failure: None, expiry: Some(0.0) });
    }

    #[test]
    fn each_window_has_its_own_share() {
        let now = 1_000 * MINUTE;
        let mut recent = Recent::new();
        recent.add_failure(FailureKind::NotOwned, now);
        recent.add_failure(FailureKind::RenewalFailed, now - MINUTE);
        recent.add(ObservedOperation::Renewal, 3, now - 4 * MINUTE);
        recent.add(ObservedOperation::Release, 6, now - 10 * MINUTE);
        recent.add(ObservedOperation::Expiration, 2, now - 59 * MINUTE);
        recent.add(ObservedOperation::Release, 1_000, now - 60 * MINUTE);
        let [minutes, hour] = recent.ratios(now, Style::Item);
        assert_eq!(minutes, Ratios { not_owned: Some(0.25), renewal_failure: Some(0.25), expiry: None });
        assert_eq!(hour, Ratios { not_owned: Some(0.1), renewal_failure: Some(0.25), expiry: Some(0.25) });
        assert_eq!(recent.ratios(now, Style::Loop)[1].expiry, None);
        assert_eq!(recent.ratios(now + 61 * MINUTE, Style::Item), [Ratios::default(); 2]);
    }

    #[test]
    fn the_line_has_every_event_of_the_last_hour_in_its_place() {
        let now = 1_000 * MINUTE + 7_000;
        let mut recent = Recent::new();
        recent.add(ObservedOperation::Release, 2, now);
        recent.add(ObservedOperation::Renewal, 1, now - 10_000);
        (0..4).for_each(|_| recent.add_failure(FailureKind::NotOwned, now - 59 * MINUTE - 30_000));
        recent.add(ObservedOperation::Expiration, 5, now - 60 * MINUTE);
        let line = recent.activity(now).line;
        assert_eq!(line.len(), RecentActivity::POINTS);
        assert_eq!((line[119].operations, line[118].operations, line[0].not_owned), (2, 1, 4));
        let sum = |of: fn(&ChartPoint) -> u32| line.iter().map(of).sum::<u32>();
        assert_eq!((sum(|point| point.operations), sum(|point| point.not_owned)), (3, 4));
        assert_eq!(sum(|point| point.expirations), 0, "older than an hour");
        let [minutes, hour] = recent.activity(now).windows;
        assert_eq!(minutes.operations.get(ObservedOperation::Renewal), 1);
        let lost = |counts: &RecentCounts| counts.failures.get(FailureKind::NotOwned);
        assert_eq!((lost(&minutes), lost(&hour)), (0, 4));
    }

    #[test]
    fn places_are_used_again_and_late_events_do_no_harm() {
        let mut recent = Recent::new();
        let lap = BUCKET_MS * BUCKETS as TimeMs;
        recent.add(ObservedOperation::Release, 5, 0);
        recent.add(ObservedOperation::Release, 1, lap);
        recent.add(ObservedOperation::Expiration, 1, 0);
        assert_eq!(recent.ratios(lap, Style::Item)[1].expiry, Some(0.0));
        recent.add(ObservedOperation::Expiration, 1, -lap);
        assert_eq!(recent.ratios(lap, Style::Item)[1].expiry, Some(0.0));
    }
}
