//! Counts of the last hour in buckets of ten seconds: sums and ratios over the last minutes and the
//! last hour, and the time series of that hour.
//!
//! The ledger keeps one [`Recent`] for each lock namespace. `ledger::memory` saves it, so that it
//! survives a restart.

use serde::{Deserialize, Serialize};

use crate::model::failure::FailureKind;
use crate::model::label::Label;
use crate::model::namespace::Style;
use crate::snapshot::{ChartPoint, ObservedOperation, Ratios, RecentActivity, RecentCounts};
use crate::util::clock::TimeMs;

const BUCKET_MS: TimeMs = 10_000;
/// One more than the longest window needs, because the current bucket is incomplete.
const BUCKETS: usize = 361;

/// How many times without observation are remembered. With more, the two oldest become one.
const GAPS: usize = 32;

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
    /// Since when events are counted.
    since: TimeMs,
    /// Times after `since` in which the exporter did not run, oldest first.
    gaps: Vec<(TimeMs, TimeMs)>,
}

/// The saved form of a [`Recent`].
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SavedRecent {
    since: TimeMs,
    gaps: Vec<(TimeMs, TimeMs)>,
    /// Without empty buckets.
    buckets: Vec<SavedBucket>,
}

/// When the bucket began, and its failures and operations in the order of `FailureKind` and
/// `ObservedOperation`: add new variants of these at the end, or change `memory::VERSION`. A tuple
/// takes half the space of a struct with names.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct SavedBucket(TimeMs, Vec<u32>, Vec<u32>);

impl Recent {
    pub(super) fn new(since: TimeMs) -> Self {
        Self { buckets: vec![RecentBucket::new(TimeMs::MIN); BUCKETS], since, gaps: Vec::new() }
    }

    pub(super) fn saved(&self, now: TimeMs) -> SavedRecent {
        let last = now.div_euclid(BUCKET_MS);
        let is_saved = |bucket: &&RecentBucket| {
            let is_recent = (last - BUCKETS as TimeMs..=last).contains(&bucket.number);
            is_recent && bucket.failures.iter().chain(&bucket.operations).any(|count| *count > 0)
        };
        let buckets = self.buckets.iter().filter(is_saved).map(|bucket| {
            let (failures, operations) = (&bucket.failures, &bucket.operations);
            SavedBucket(bucket.number * BUCKET_MS, without_last_zeros(failures), without_last_zeros(operations))
        });
        SavedRecent { since: self.since, gaps: self.gaps.clone(), buckets: buckets.collect() }
    }

    /// Continues at `now` from what was saved at `until`. The time in between was not observed.
    /// `shift` converts saved times to the clock of this process.
    pub(super) fn restore(saved: SavedRecent, until: TimeMs, shift: TimeMs, now: TimeMs) -> Self {
        let mut recent = Self::new(saved.since.saturating_add(shift).min(now));
        let saved_gaps =
            saved.gaps.into_iter().map(|(from, to)| (from.saturating_add(shift), to.saturating_add(shift)));
        recent.gaps = saved_gaps.chain([(until.min(now), now)]).collect();
        while recent.gaps.len() > GAPS {
            recent.gaps[1].0 = recent.gaps[0].0;
            recent.gaps.remove(0);
        }
        for SavedBucket(began, failures, operations) in saved.buckets {
            let Some(bucket) = recent.bucket(began.saturating_add(shift).min(now)) else { continue };
            bucket.failures.iter_mut().zip(failures).for_each(|(sum, count)| add(sum, count));
            bucket.operations.iter_mut().zip(operations).for_each(|(sum, count)| add(sum, count));
        }
        recent
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
        let observed = Ratios::WINDOWS.map(|(_, window)| self.observed(now - window, now));
        RecentActivity { windows: self.windows(now), observed, line: self.line(now) }
    }

    /// How much of the time between two moments was observed.
    fn observed(&self, from: TimeMs, to: TimeMs) -> TimeMs {
        let overlap = |begin: TimeMs, end: TimeMs| (end.min(to) - begin.max(from)).max(0);
        let missed: TimeMs = self.gaps.iter().map(|(begin, end)| overlap(*begin, *end)).sum();
        (overlap(self.since, TimeMs::MAX) - missed).max(0)
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
        for (step, point) in (first..).zip(&mut line) {
            let begin = step * RecentActivity::STEP;
            point.observed_ms = self.observed(begin, now.min(begin + RecentActivity::STEP)) as u32;
        }
        line
    }
}

fn add(sum: &mut u32, count: u32) {
    *sum = sum.saturating_add(count);
}

fn without_last_zeros(counts: &[u32]) -> Vec<u32> {
    let length = counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
    counts[..length].to_vec()
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
        recent.add(ObservedOperation::Release, 3, 0);
        let ratios = recent.ratios(0, Style::Item)[0];
        assert_eq!(ratios, Ratios { not_owned: Some(0.0), renewal_failure: None, expiry: Some(0.0) });
    }

    #[test]
    fn each_window_has_its_own_share() {
        let now = 1_000 * MINUTE;
        let mut recent = Recent::new(0);
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
        let mut recent = Recent::new(0);
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
    fn it_continues_after_a_restart_and_knows_what_it_did_not_observe() {
        let start = 1_000 * MINUTE;
        let mut recent = Recent::new(start);
        (0..3).for_each(|_| recent.add_failure(FailureKind::NotOwned, start + MINUTE));
        recent.add(ObservedOperation::FenceRegression, 1, start + 2 * MINUTE);
        let stopped = start + 3 * MINUTE;
        assert_eq!(recent.activity(stopped).observed, [3 * MINUTE, 3 * MINUTE]);
        let restarted = stopped + MINUTE;
        // The clock of the new process is an hour ahead.
        let shift = 60 * MINUTE;
        let saved = serde_json::to_string(&recent.saved(stopped)).unwrap();
        let restore = |saved: &str, until: TimeMs, now: TimeMs, shift| {
            Recent::restore(serde_json::from_str(saved).unwrap(), until, shift, now)
        };
        let recent = restore(&saved, stopped + shift, restarted + shift, shift);
        let [minutes, hour] = recent.activity(restarted + shift).windows;
        assert_eq!(minutes.failures.get(FailureKind::NotOwned), 3);
        assert_eq!(hour.operations.get(ObservedOperation::FenceRegression), 1);
        let later = recent.activity(restarted + shift + 3 * MINUTE);
        assert_eq!(later.observed, [4 * MINUTE, 6 * MINUTE]);
        let unobserved = later.line.iter().rev().skip(1).take(14).filter(|point| point.observed_ms == 0).count();
        assert_eq!(unobserved, 2, "one minute of half minutes");
        // Many short restarts.
        let (mut recent, mut now) = (recent, restarted + shift);
        for _ in 0..2 * GAPS {
            let saved = serde_json::to_string(&recent.saved(now)).unwrap();
            recent = restore(&saved, now, now + 1000, 0);
            now += 2000;
        }
        assert_eq!(recent.gaps.len(), GAPS);
        assert!(recent.activity(now).observed[1] <= 3 * MINUTE + 2 * GAPS as TimeMs * 1000);
    }

    #[test]
    fn places_are_used_again_and_late_events_do_no_harm() {
        let mut recent = Recent::new(0);
        let lap = BUCKET_MS * BUCKETS as TimeMs;
        recent.add(ObservedOperation::Release, 5, 0);
        recent.add(ObservedOperation::Release, 1, lap);
        recent.add(ObservedOperation::Expiration, 1, 0);
        assert_eq!(recent.ratios(lap, Style::Item)[1].expiry, Some(0.0));
        recent.add(ObservedOperation::Expiration, 1, -lap);
        assert_eq!(recent.ratios(lap, Style::Item)[1].expiry, Some(0.0));
    }
}
