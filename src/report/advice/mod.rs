//! Advice: which TTL and renewal interval the locks of a namespace should have, and what is wrong
//! with the configured ones.
//!
//! Pure: [`advise`] compares what was observed ([`Evidence`]) with what is configured
//! ([`Namespace`](crate::model::namespace::Namespace)). `/metrics` shows its numbers,
//! `commands/advise` shows everything. `docs/ttl-advice.md` has the formulas and their limits.
//!
//! There are three models. A lock that is not renewed must outlive the work: its TTL follows from
//! the hold times. A lock that is renewed must outlive the longest pause of a live owner: its TTL
//! follows from the margins that renewals left. A lock of style `loop` is held until its TTL runs
//! out, so only the takeover time matters.
//!
//! Values that are good stay unchanged. Buckets give only two bounds for a percentile. A TTL is too
//! short if even the lower bound needs more. The advice recommends a value that is enough even for
//! the upper bound. In reading order:
//!
//! * `assess`: compares needs with settings
//! * `evidence`: what was observed
//! * `formulas`: from a 99th percentile to a TTL
//! * `percentile`: what buckets show about a percentile
//! * `finding`: each result as a sentence

mod assess;
mod evidence;
mod finding;
mod formulas;
mod percentile;

pub use assess::advise;
pub use evidence::Evidence;
pub(crate) use evidence::{ABOUT_HELD_LOCKS, EXPIRED};
pub use finding::{AdviceFinding, Fit, Note};
pub use formulas::{Jitter, Model, Need};
pub use percentile::{BOUNDED_SAMPLES, Bracket, BucketedSample, MIN_SAMPLES};

use std::time::Duration;

/// The advice for one namespace.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    pub model: Model,
    /// Number of holds or of silences between renewals, depending on the model. Includes those that
    /// were cut off.
    pub n_samples: u64,
    /// Number of samples that were cut off because the TTL ran out. Without the TTL they would have
    /// taken longer.
    pub n_cut_off: u64,
    pub confidence: Confidence,
    pub jitter: Jitter,
    /// The 99th percentile of hold times, or of silences between renewals, in seconds.
    pub p99: Option<Bracket>,
    /// The TTL that follows from the percentile.
    pub need: Option<Need>,
    /// The TTL that the locks should have. The current TTL if nothing is wrong with it.
    pub ttl: Option<Duration>,
    /// `ttl` is only a step: the final value cannot be determined from this evidence.
    pub is_step: bool,
    /// Only for locks that are renewed.
    pub renew_every: Option<Duration>,
    /// With these values, the number of renewals in a row that can fail without losing the lock.
    pub may_fail: Option<u64>,
    /// With the current TTL.
    pub takeover: Option<Takeover>,
    /// What is wrong with the current values.
    pub findings: Vec<AdviceFinding>,
    /// Remarks about this advice.
    pub notes: Vec<Note>,
}

impl Advice {
    /// Returns the TTL that `/metrics` shows. `None` if there are too few samples, and for loops,
    /// because their TTL depends on preference and SLO.
    pub fn recommended_ttl(&self) -> Option<Duration> {
        self.ttl.filter(|_| self.need.is_some() && self.model != Model::Loop)
    }

    /// `None` if [`Advice::recommended_ttl`] is `None`.
    pub fn recommended_renewal(&self) -> Option<Duration> {
        self.renew_every.filter(|_| self.recommended_ttl().is_some())
    }
}

/// How reliable the advice is, given the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// Too few samples for any advice.
    None,
    Low,
    Medium,
    High,
}

impl Confidence {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// The longest time from the last acquisition or renewal of a dead owner to the next owner, if
/// another program waits for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Takeover {
    /// The TTL plus one retry.
    pub bound: Duration,
    pub slo: Option<Duration>,
    /// The longest TTL that satisfies the SLO. `None` without an SLO, and if no TTL satisfies it
    /// because the retry alone takes longer.
    pub at_most: Option<Duration>,
}

impl Takeover {
    pub fn is_too_late(&self) -> bool {
        self.slo.is_some_and(|slo| self.bound > slo)
    }
}

#[cfg(test)]
mod tests;
