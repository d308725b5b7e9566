//! Samples of which only the bucket is known, and what they prove about the 99th percentile.
//!
//! No shape of the distribution is assumed: the bounds are order statistics, so they are valid for
//! every distribution. The cost is that nothing is known between two bucket bounds, and nothing at
//! all with few samples.

use crate::model::counters::{Bounds, Histogram};

/// Fewer samples show nothing about a 99th percentile: the estimate would be the largest sample.
pub const MIN_SAMPLES: u64 = 100;
/// From this many samples on, the largest is above the 99th percentile with a confidence of 95 %:
/// 0.99^299 is below 0.05.
pub const BOUNDED_SAMPLES: u64 = 299;

/// The share of samples above the 99th percentile.
const SHARE_ABOVE: f64 = 0.01;
/// Probability that a bound is wrong, on each side.
const RISK: f64 = 0.05;
/// Quantile of the standard normal distribution for `RISK`.
const NORMAL_QUANTILE: f64 = 1.644_853_6;
/// From this many samples on, the normal distribution is a good approximation of the binomial
/// distribution. With about 70,000 samples, the first binomial term would be too small for an
/// `f64`.
const MANY_SAMPLES: u64 = 20_000;

/// Counts by bucket, with ascending upper bounds. The last bound can be infinite.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BucketedSample {
    buckets: Vec<(f64, u64)>,
}

/// The range of the 99th percentile, with a confidence of 95 % on each side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bracket {
    pub n_samples: u64,
    /// The percentile is not below this value.
    pub low: f64,
    /// The percentile is not above this value. `None` if no upper bound is known, because the
    /// largest values were cut off or are above the last bound.
    pub high: Option<f64>,
}

impl BucketedSample {
    /// Takes non-cumulative counts, in ascending order of the upper bounds.
    pub fn new(buckets: Vec<(f64, u64)>) -> Self {
        debug_assert!(buckets.is_sorted_by(|left, right| left.0 < right.0));
        Self { buckets }
    }

    pub fn of<B: Bounds>(histogram: &Histogram<B>) -> Self {
        Self::new(histogram.buckets().collect())
    }

    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// Returns the sample without its largest values.
    pub(super) fn without_largest(&self, mut n_left_out: u64) -> Self {
        let mut buckets = self.buckets.clone();
        for (_, count) in buckets.iter_mut().rev() {
            let left_out = n_left_out.min(*count);
            *count -= left_out;
            n_left_out -= left_out;
        }
        Self { buckets }
    }

    /// Returns the sample with `n_more` additional values.
    #[cfg(test)]
    pub(super) fn with(mut self, value: f64, n_more: u64) -> Self {
        let bucket = self.buckets.iter_mut().find(|(upper, _)| value <= *upper);
        bucket.expect("the last bound is infinite").1 += n_more;
        self
    }

    /// Converts margins of renewals to the silences before them: if a share `m` of the TTL is left,
    /// the silence lasted `1 - m` TTLs.
    pub(super) fn silences(margins: &Self, ttl: f64) -> Self {
        let mut buckets = Vec::with_capacity(margins.buckets.len());
        let mut lower = 0.0;
        for (upper, count) in &margins.buckets {
            buckets.push(((1.0 - lower) * ttl, *count));
            lower = *upper;
        }
        buckets.reverse();
        Self { buckets }
    }

    /// Returns the range of the 99th percentile. `n_cut_off` additional values are known to be
    /// larger than all of these, and at least `cut_at`. `None` with too few samples.
    pub fn p99(&self, n_cut_off: u64, cut_at: f64) -> Option<Bracket> {
        let n_known = self.count();
        let n_samples = n_known + n_cut_off;
        if n_samples < MIN_SAMPLES {
            return None;
        }
        let (above_low, above_high) = above(n_samples);
        let low = match self.bucket_of(n_samples - above_low) {
            Some((lower, _)) => lower,
            None => cut_at,
        };
        let rank = n_samples - above_high.unwrap_or(0);
        let high = self.bucket_of(rank).map(|(_, upper)| upper).filter(|upper| upper.is_finite());
        Some(Bracket { n_samples, low, high })
    }

    /// Returns a lower bound of the value with this rank. The smallest value has rank 1.
    pub(super) fn at_least(&self, rank: u64) -> Option<f64> {
        self.bucket_of(rank).map(|(lower, _)| lower)
    }

    pub(super) fn median_at_least(&self) -> Option<f64> {
        self.at_least(self.count().div_ceil(2))
    }

    /// Returns the lower and upper bound of the value with this rank. The smallest value has rank
    /// 1. `None` if there are fewer values.
    fn bucket_of(&self, rank: u64) -> Option<(f64, f64)> {
        let (mut so_far, mut lower) = (0, 0.0);
        for (upper, count) in &self.buckets {
            so_far += count;
            if so_far >= rank && rank > 0 {
                return Some((lower, *upper));
            }
            lower = *upper;
        }
        None
    }
}

/// Returns how many samples are above the 99th percentile: at most the first number and at least
/// the second, each with a confidence of 95 %. The second is `None` if possibly no sample is above
/// it.
fn above(n_samples: u64) -> (u64, Option<u64>) {
    let n = n_samples as f64;
    if n_samples >= MANY_SAMPLES {
        let (mean, deviation) = (n * SHARE_ABOVE, (n * SHARE_ABOVE * (1.0 - SHARE_ABOVE)).sqrt());
        let most = (mean + NORMAL_QUANTILE * deviation - 0.5).ceil();
        let least = (mean - NORMAL_QUANTILE * deviation - 0.5).floor();
        return (most as u64, Some(least as u64));
    }
    // Binomial distribution: sums the probability that exactly `k` samples are above, starting at
    // 0.
    let mut chance = (1.0 - SHARE_ABOVE).powf(n);
    let mut sum = chance;
    let mut least = None;
    let mut k = 0;
    while sum < 1.0 - RISK && k < n_samples {
        if sum <= RISK {
            least = Some(k);
        }
        k += 1;
        chance *= (n_samples - k + 1) as f64 / k as f64 * SHARE_ABOVE / (1.0 - SHARE_ABOVE);
        sum += chance;
    }
    (k, least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::counters::{HoldBounds, MarginBounds};

    fn sample(values: impl IntoIterator<Item = f64>) -> BucketedSample {
        let mut histogram = Histogram::<HoldBounds>::default();
        values.into_iter().for_each(|value| histogram.observe(value));
        BucketedSample::of(&histogram)
    }

    /// Returns values with equal steps of probability: a sample of a distribution without random
    /// deviation.
    fn drawn(n: u32, quantile: impl Fn(f64) -> f64) -> BucketedSample {
        sample((0..n).map(|index| quantile((f64::from(index) + 0.5) / f64::from(n))))
    }

    #[track_caller]
    fn check(sample: &BucketedSample, n_cut_off: u64, expected: Option<(f64, Option<f64>)>) {
        let bracket = sample.p99(n_cut_off, 10.0).map(|bracket| (bracket.low, bracket.high));
        assert_eq!(bracket, expected);
    }

    #[test]
    fn distributions_whose_99th_percentile_is_known() {
        // Uniform up to 10 s: the percentile is 9.9 s.
        check(&drawn(5000, |p| 10.0 * p), 0, Some((8.0, Some(10.0))));
        // Exponential with a mean of 2 s: the percentile is 9.21 s.
        check(&drawn(5000, |p| -2.0 * (1.0 - p).ln()), 0, Some((8.0, Some(10.0))));
        // Constant.
        check(&drawn(5000, |_| 7.0), 0, Some((6.0, Some(8.0))));
        // Two kinds of work, 97 % of 50 ms and 3 % of 35 s: the slow kind decides.
        check(&drawn(5000, |p| if p < 0.97 { 0.05 } else { 35.0 }), 0, Some((30.0, Some(40.0))));
        // With 0.3 % of slow work, the percentile is certainly in the fast part.
        check(&drawn(5000, |p| if p < 0.997 { 0.05 } else { 35.0 }), 0, Some((0.025, Some(0.05))));
        // With 1 % of slow work, the percentile can be in either part.
        check(&drawn(5000, |p| if p < 0.99 { 0.05 } else { 35.0 }), 0, Some((0.025, Some(40.0))));
    }

    #[test]
    fn few_samples_bound_little() {
        check(&drawn(99, |p| p), 0, None);
        check(&BucketedSample::default(), 0, None);
        // Only the largest value is certainly above the percentile.
        check(&drawn(100, |p| if p < 0.99 { 0.4 } else { 3.5 }), 0, Some((0.25, Some(4.0))));
        check(&drawn(299, |p| if p < 0.996 { 0.4 } else { 3.5 }), 0, Some((0.25, Some(4.0))));
        // From 473 samples on, one larger value can be ignored.
        check(&drawn(473, |p| if p < 0.997 { 0.4 } else { 3.5 }), 0, Some((0.25, Some(0.5))));
        check(&drawn(472, |p| if p < 0.997 { 0.4 } else { 3.5 }), 0, Some((0.25, Some(4.0))));
    }

    #[test]
    fn what_was_cut_off_is_larger_than_all_that_is_known() {
        let holds = drawn(1000, |p| 5.0 * p);
        check(&holds, 1, Some((4.0, Some(5.0))));
        // 1 % was cut off: the percentile may or may not be among these values.
        check(&holds, 10, Some((4.0, None)));
        // 3 % were cut off: the percentile is among these values, and its upper bound is unknown.
        check(&holds, 30, Some((10.0, None)));
        check(&BucketedSample::default(), 100, Some((10.0, None)));
        check(&sample([9000.0; 500]), 0, Some((7200.0, None)));
    }

    #[test]
    fn the_largest_are_left_out_first() {
        let holds = sample([0.3, 0.3, 1.2, 9.0, 9.0]);
        assert_eq!(holds.without_largest(3), sample([0.3, 0.3]));
        assert_eq!(holds.without_largest(9).count(), 0);
        assert_eq!(holds.median_at_least(), Some(1.0));
        assert_eq!(BucketedSample::default().median_at_least(), None);
    }

    #[test]
    fn margins_are_silences() {
        let mut margins = Histogram::<MarginBounds>::default();
        [0.65, 0.65, 0.95, 0.05].into_iter().for_each(|margin| margins.observe(margin));
        let silences = BucketedSample::silences(&BucketedSample::of(&margins), 30.0);
        let bounds: Vec<(i64, u64)> =
            silences.buckets.iter().map(|(bound, count)| (bound.round() as i64, *count)).collect();
        assert_eq!(bounds, [(6, 1), (9, 0), (12, 2), (15, 0), (18, 0), (21, 0), (24, 0), (27, 0), (30, 1)]);
    }

    /// Values from tables of the binomial distribution. The result must not jump at the switch to
    /// the normal distribution.
    #[test]
    fn numbers_above_a_percentile() {
        assert_eq!(above(100), (3, None));
        assert_eq!(above(298), (6, None));
        assert_eq!(above(BOUNDED_SAMPLES), (6, Some(0)));
        assert_eq!(above(473), (9, Some(1)));
        assert_eq!(above(1000), (15, Some(4)));
        let (before, after) = (above(MANY_SAMPLES - 1), above(MANY_SAMPLES));
        assert!(before.0.abs_diff(after.0) <= 1, "{before:?} {after:?}");
        assert!(before.1.unwrap().abs_diff(after.1.unwrap()) <= 1, "{before:?} {after:?}");
    }
}
