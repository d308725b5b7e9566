//! Counts of the last hour in buckets of ten seconds: sums and ratios over the last minutes and the
//! last hour, and the time series of that hour.
//!
//! The ledger keeps one [`Recent`] for each lock namespace. `ledger::memory` saves it, so that it
//! survives a restart.

use serde::{Deserialize, Serialize};

use crate::model::namespace::Style;
use crate::snapshot::{ChartPoint, Ratios, RecentActivity, RecentCounts};
use crate::util::clock::TimeMs;

const BUCKET_MS: TimeMs = 10_000;
/// One more than the longest window needs, because the current bucket is incomplete.
const BUCKETS: usize = 361;

/// How many times without observation are remembered. With more, the two oldest become one.
const GAPS: usize = 32;

/// The order is part of the saved memory: if it changes, change `memory::VERSION` too.
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
    /// Times after `since` in which the exporter did not run, oldest first.
    gaps: Vec<(TimeMs, TimeMs)>,
}

/// The saved form of a [`Recent`].
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SavedRecent {
    since: TimeMs,
    gaps: Vec<(TimeMs, TimeMs)>,
    /// When each bucket began, and its counts without the zeros at the end. Without empty buckets.
    buckets: Vec<(TimeMs, Vec<u32>)>,
}

impl Recent {
    pub(super) fn new(since: TimeMs) -> Self {
        let buckets = vec![RecentBucket { number: TimeMs::MIN, counts: [0; EVENTS] }; BUCKETS];
        Self { buckets, since, gaps: Vec::new() }
    }

    pub(super) fn saved(&self, now: TimeMs) -> SavedRecent {
        let last = now.div_euclid(BUCKET_MS);
        let is_recent = |bucket: &&RecentBucket| (last - BUCKETS as TimeMs..=last).contains(&bucket.number);
        let mut buckets: Vec<(TimeMs, Vec<u32>)> = Vec::new();
        for bucket in self.buckets.iter().filter(is_recent) {
            let used = bucket.counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
            if used > 0 {
                buckets.push((bucket.number * BUCKET_MS, bucket.counts[..used].to_vec()));
            }
        }
        SavedRecent { since: self.since, gaps: self.gaps.clone(), buckets }
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
        for (began, counts) in saved.buckets {
            let number = began.saturating_add(shift).min(now).div_euclid(BUCKET_MS);
            for (place, count) in recent.bucket(number).into_iter().flat_map(|bucket| &mut bucket.counts).zip(counts) {
                *place = place.saturating_add(count);
            }
        }
        recent
    }

    /// The bucket with this number. `None` if it is older than the longest window.
    fn bucket(&mut self, number: TimeMs) -> Option<&mut RecentBucket> {
        let bucket = &mut self.buckets[number.rem_euclid(BUCKETS as TimeMs) as usize];
        if bucket.number < number {
            *bucket = RecentBucket { number, counts: [0; EVENTS] };
        }
        Some(bucket).filter(|bucket| bucket.number == number)
    }

    /// `at` may be in the past. Events older than the longest window are ignored.
    pub(super) fn add(&mut self, event: Event, count: u64, at: TimeMs) {
        if let Some(bucket) = self.bucket(at.div_euclid(BUCKET_MS)) {
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
        let overlap = |begin: TimeMs, end: TimeMs| (end.min(to) - begin.max(from)).max(0);
        let missed: TimeMs = self.gaps.iter().map(|(begin, end)| overlap(*begin, *end)).sum();
        (overlap(self.since, TimeMs::MAX) - missed).max(0)
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
        for (step, point) in (first..).zip(&mut line) {
            let begin = step * RecentActivity::STEP;
            point.observed_ms = self.observed(begin, now.min(begin + RecentActivity::STEP)) as u32;
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
    fn it_continues_after_a_restart_and_knows_what_it_did_not_observe() {
        let start = 1_000 * MINUTE;
        let mut recent = Recent::new(start);
        recent.add(Event::NotOwned, 3, start + MINUTE);
        recent.add(Event::FenceRegression, 1, start + 2 * MINUTE);
        let stopped = start + 3 * MINUTE;
        assert_eq!(recent.lately(stopped).observed, [3 * MINUTE, 3 * MINUTE]);
        let restarted = stopped + MINUTE;
        // The clock of the new process is an hour ahead.
        let shift = 60 * MINUTE;
        let saved = serde_json::to_string(&recent.saved(stopped)).unwrap();
        let restore = |saved: &str, until: TimeMs, now: TimeMs, shift| {
            Recent::restore(serde_json::from_str(saved).unwrap(), until, shift, now)
        };
        let recent = restore(&saved, stopped + shift, restarted + shift, shift);
        let [minutes, hour] = recent.lately(restarted + shift).windows;
        assert_eq!((minutes.not_owned, hour.fence_regressions), (3, 1));
        let later = recent.lately(restarted + shift + 3 * MINUTE);
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
        assert!(recent.lately(now).observed[1] <= 3 * MINUTE + 2 * GAPS as TimeMs * 1000);
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
