//! The counters of one lock namespace, and their histograms.
//!
//! The ledger increments them, the state file saves them, and `exposition` shows them. They only
//! grow. A saved tally with an unknown label value is an error. A saved histogram with other bounds
//! starts again at zero.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::model::failure::{Failure, FailureKind};
use crate::model::label::{Label, label_enum};

label_enum! {
    /// How the previous hold ended, before another owner acquired the lock.
    After { Release = "release", Expiry = "expiry", Unknown = "unknown" }
}

/// One counter for each value of a label. Saved by label value, so that the order of the enum can
/// change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally<L> {
    counts: Vec<u64>,
    label: PhantomData<L>,
}

impl<L: Label> Tally<L> {
    pub fn increment(&mut self, label: L) {
        self.add(label, 1);
    }

    pub fn add(&mut self, label: L, count: u64) {
        self.counts[label.index()] += count;
    }

    /// Adds one count for each label value, in the order of [`Label::ALL`].
    pub fn add_all(&mut self, counts: &[u32]) {
        self.counts.iter_mut().zip(counts).for_each(|(sum, count)| *sum += u64::from(*count));
    }

    pub fn get(&self, label: L) -> u64 {
        self.counts[label.index()]
    }

    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns every label value with its count, including zeros.
    pub fn iter(&self) -> impl Iterator<Item = (L, u64)> + '_ {
        L::ALL.iter().copied().zip(self.counts.iter().copied())
    }
}

impl<L: Label, const N: usize> From<[(L, u64); N]> for Tally<L> {
    fn from(counts: [(L, u64); N]) -> Self {
        let mut tally = Self::default();
        counts.into_iter().for_each(|(label, count)| tally.add(label, count));
        tally
    }
}

impl<L: Label> Default for Tally<L> {
    fn default() -> Self {
        Self { counts: vec![0; L::ALL.len()], label: PhantomData }
    }
}

impl<L: Label> Serialize for Tally<L> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let nonzero = self.iter().filter(|(_, count)| *count > 0);
        serializer.collect_map(nonzero.map(|(label, count)| (label.as_str(), count)))
    }
}

impl<'de, L: Label> Deserialize<'de> for Tally<L> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let saved = BTreeMap::<String, u64>::deserialize(deserializer)?;
        let mut tally = Self::default();
        for (text, count) in saved {
            let label =
                L::parse(&text).ok_or_else(|| serde::de::Error::custom(format!("unknown label value {text:?}")))?;
            tally.counts[label.index()] = count;
        }
        Ok(tally)
    }
}

/// Counts of what the logs report about one lock namespace. Each failure is counted once. A saved
/// counter with an unknown name is an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureCounters {
    /// Indexed by [`FailureKind`], then by [`Failure::series`].
    counts: Vec<Vec<u64>>,
}

/// The counters that every state file contains, in the order of the file. Kinds that were added
/// later follow, and only if they were counted: an older version refuses a file with an unknown
/// counter.
const ALWAYS_SAVED: [FailureKind; 7] = [
    FailureKind::NotOwned,
    FailureKind::RenewalFailed,
    FailureKind::ReleaseFailed,
    FailureKind::AcquireFailed,
    FailureKind::Abandoned,
    FailureKind::UnlockedWork,
    FailureKind::ConflictingWrite,
];

impl FailureCounters {
    pub fn increment(&mut self, failure: Failure) {
        self.add(failure, 1);
    }

    pub fn add(&mut self, failure: Failure, count: u64) {
        self.counts[failure.kind().index()][failure.series()] += count;
    }

    pub fn get(&self, failure: Failure) -> u64 {
        self.counts[failure.kind().index()][failure.series()]
    }

    pub fn total(&self, kind: FailureKind) -> u64 {
        self.counts[kind.index()].iter().fold(0, |sum, count| count.saturating_add(sum))
    }

    /// Returns every series of the kind with its count, including zeros.
    pub fn series(&self, kind: FailureKind) -> impl Iterator<Item = (Failure, u64)> + '_ {
        kind.all_failures().into_iter().zip(self.counts[kind.index()].iter().copied())
    }
}

impl Default for FailureCounters {
    fn default() -> Self {
        Self { counts: FailureKind::ALL.iter().map(|kind| vec![0; kind.all_failures().len()]).collect() }
    }
}

impl Serialize for FailureCounters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let later = FailureKind::ALL.iter().filter(|kind| !ALWAYS_SAVED.contains(kind) && self.total(**kind) > 0);
        let saved = ALWAYS_SAVED.iter().chain(later);
        serializer.collect_map(saved.map(|kind| (kind.counter(), KindCounts { kind: *kind, counters: self })))
    }
}

/// The counts of one kind: a number, or numbers above 0 by label value.
struct KindCounts<'a> {
    kind: FailureKind,
    counters: &'a FailureCounters,
}

impl Serialize for KindCounts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !self.kind.has_label() {
            return serializer.serialize_u64(self.counters.total(self.kind));
        }
        let nonzero = self.counters.series(self.kind).filter(|(_, count)| *count > 0);
        serializer.collect_map(nonzero.map(|(failure, count)| (failure.label_value(), count)))
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum SavedCounts {
    Number(u64),
    ByLabel(BTreeMap<String, u64>),
}

impl<'de> Deserialize<'de> for FailureCounters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut counters = Self::default();
        for (name, saved) in BTreeMap::<String, SavedCounts>::deserialize(deserializer)? {
            let unknown = |what: &str| serde::de::Error::custom(format!("unknown {what} of a failure: {name:?}"));
            let kind = FailureKind::ALL.iter().find(|kind| kind.counter() == name).ok_or_else(|| unknown("counter"))?;
            let counts: Vec<(Option<String>, u64)> = match saved {
                SavedCounts::Number(count) => vec![(None, count)],
                SavedCounts::ByLabel(counts) => counts.into_iter().map(|(value, count)| (Some(value), count)).collect(),
            };
            for (value, count) in counts {
                let failure = kind.all_failures().into_iter().find(|failure| failure.label_value() == value.as_deref());
                counters.add(failure.ok_or_else(|| unknown("label value"))?, count);
            }
        }
        Ok(counters)
    }
}

/// Counts of the transitions that were inferred from Redis for one lock namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KeyspaceCounters {
    pub acquisitions: u64,
    pub renewals: u64,
    pub releases: u64,
    pub expirations: u64,
    /// Holds whose end was not observed, because the connection was interrupted, the keyspace was
    /// flushed or a failover lost the lock.
    pub unknown_ends: u64,
    /// Only for `loop` locks: releases before the TTL ran out.
    pub early_releases: u64,
    pub owner_changes: Tally<After>,
    pub takeovers_within_slo: u64,
    pub takeovers_beyond_slo: u64,
    pub fence_regressions: u64,
    /// Locks that were not tracked because the table was full.
    pub untracked: u64,
    pub hold_seconds: Histogram<HoldBounds>,
    pub renewal_margin_ratio: Histogram<MarginBounds>,
    pub takeover_seconds: Histogram<TakeoverBounds>,
}

/// The upper bounds of a histogram's buckets, without the last, infinite one.
pub trait Bounds: 'static {
    const BOUNDS: &'static [f64];
}

macro_rules! bounds {
    ($($(#[$meta:meta])* $name:ident = $bounds:expr;)+) => {
        $($(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name;

        impl Bounds for $name {
            const BOUNDS: &'static [f64] = &$bounds;
        })+
    };
}

bounds! {
    /// From a short critical section to a lock that is held for hours. TTL advice cannot be more
    /// precise than these bounds.
    HoldBounds = [
        0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 15.0, 20.0, 25.0, 30.0,
        40.0, 50.0, 60.0, 90.0, 120.0, 180.0, 300.0, 450.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0, 7200.0,
    ];
    /// Share of the TTL that is left at a renewal. A program that renews after one third of the TTL
    /// has two thirds left.
    MarginBounds = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8];
    /// Time that Redis needs to answer a request of the exporter.
    ReplyBounds = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
    TakeoverBounds = [1.0, 5.0, 10.0, 15.0, 30.0, 45.0, 60.0, 75.0, 90.0, 120.0, 300.0];
}

/// Bucket counts, not cumulative. The last bucket has no upper bound. The bounds are saved with the
/// counts: if they differ from the bounds in use, the histogram starts again at zero.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram<B> {
    counts: Vec<u64>,
    sum: f64,
    bounds: PhantomData<B>,
}

impl<B: Bounds> Histogram<B> {
    pub fn observe(&mut self, value: f64) {
        let index = B::BOUNDS.iter().position(|bound| value <= *bound).unwrap_or(B::BOUNDS.len());
        self.counts[index] += 1;
        self.sum += value;
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub fn add(&mut self, more: &Self) {
        self.counts.iter_mut().zip(&more.counts).for_each(|(sum, count)| *sum += count);
        self.sum += more.sum;
    }

    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// Returns each upper bound with the count of its bucket. The last bound is infinite.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        B::BOUNDS.iter().copied().chain([f64::INFINITY]).zip(self.counts.iter().copied())
    }
}

impl<B: Bounds> Default for Histogram<B> {
    fn default() -> Self {
        Self { counts: vec![0; B::BOUNDS.len() + 1], sum: 0.0, bounds: PhantomData }
    }
}

impl<B: Bounds> Serialize for Histogram<B> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (B::BOUNDS, &self.counts, self.sum).serialize(serializer)
    }
}

impl<'de, B: Bounds> Deserialize<'de> for Histogram<B> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (bounds, counts, sum) = <(Vec<f64>, Vec<u64>, f64)>::deserialize(deserializer)?;
        let is_ours = bounds == B::BOUNDS && counts.len() == bounds.len() + 1 && sum.is_finite();
        Ok(if is_ours { Self { counts, sum, bounds: PhantomData } } else { Self::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::failure::{Operation, Reason};

    #[test]
    fn a_tally_is_saved_by_label_value_without_zeros() {
        let mut tally = Tally::<Reason>::default();
        tally.increment(Reason::NotOwned);
        tally.increment(Reason::Other);
        tally.increment(Reason::Other);
        let saved = serde_json::to_string(&tally).unwrap();
        assert_eq!(saved, r#"{"not_owned":1,"other":2}"#);
        assert_eq!(serde_json::from_str::<Tally<Reason>>(&saved).unwrap(), tally);
        assert_eq!(tally.iter().count(), Reason::ALL.len(), "zeros are shown");
        assert_eq!(serde_json::from_str::<Tally<Reason>>("{}").unwrap(), Tally::default());
    }

    #[test]
    fn a_histogram_is_saved_with_its_bounds() {
        let mut histogram = Histogram::<MarginBounds>::default();
        for value in [0.05, 0.1, 0.66, 2.0] {
            histogram.observe(value);
        }
        let counts: Vec<u64> = histogram.buckets().map(|(_, count)| count).collect();
        assert_eq!(counts, [2, 0, 0, 0, 0, 0, 1, 0, 1]);
        assert_eq!(histogram.buckets().last(), Some((f64::INFINITY, 1)));
        assert_eq!(histogram.count(), 4);
        let saved = serde_json::to_string(&histogram).unwrap();
        assert_eq!(serde_json::from_str::<Histogram<MarginBounds>>(&saved).unwrap(), histogram);
        let other: Histogram<HoldBounds> = serde_json::from_str(&saved).unwrap();
        assert_eq!(other, Histogram::default(), "counts of other buckets would be wrong ones");
    }

    #[test]
    fn a_tally_refuses_what_it_would_lose() {
        for bad in [r#"{"nothing":1}"#, r#"{"other":-1}"#, r#"{"other":1.5}"#, "[]", "null"] {
            assert!(serde_json::from_str::<Tally<Reason>>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn failures_are_saved_by_counter_and_label_value() {
        let mut counters = FailureCounters::default();
        counters.increment(Failure::Abandoned(Some(Reason::Other)));
        counters.increment(Failure::NotOwned(Operation::Renew));
        counters.add(Failure::AcquireFailed(Reason::Busy), 2);
        let saved = serde_json::to_string(&counters).unwrap();
        let expected = r#"{"not_owned":{"renew":1},"renewal_failures":{},"release_failures":{},"acquire_failures":{"busy":2},"abandonments":1,"unlocked_work":0,"conflicting_writes":{}}"#;
        assert_eq!(saved, expected);
        assert_eq!(serde_json::from_str::<FailureCounters>(&saved).unwrap(), counters);
        assert_eq!(serde_json::from_str::<FailureCounters>("{}").unwrap(), FailureCounters::default());
        let wrong = [
            r#"{"lost":1}"#,
            r#"{"lost":{}}"#,
            r#"{"not_owned":1}"#,
            r#"{"not_owned":{"busy":1}}"#,
            r#"{"abandonments":{"busy":1}}"#,
            r#"{"abandonments":-1}"#,
        ];
        for text in wrong {
            assert!(serde_json::from_str::<FailureCounters>(text).is_err(), "{text}");
        }
    }
}
