//! Which TTL and renewal interval the locks of a namespace should have, and what is wrong with the configured ones.
//!
//! Pure: [`advise`] compares what was seen ([`Evidence`]) with what is configured
//! ([`Namespace`](crate::model::namespace::Namespace)). `/metrics` shows its numbers, `commands/advise` shows everything.
//! `docs/ttl-advice.md` has the formulas and their limits.
//!
//! There are two models. A lock that is not renewed must outlive the work: its TTL follows from the hold times. A lock that
//! is renewed must outlive the longest pause of a live owner: its TTL follows from the margins that renewals left. A lock of
//! style `loop` is held until its TTL runs out, so only the takeover time matters.
//!
//! Good values stay. Buckets give only two bounds for a percentile: a TTL is too short when even the lower bound needs more,
//! and advice recommends a value that fits even the upper bound. In reading order:
//!
//! * `assess`: compares needs with settings
//! * `evidence`: what was seen
//! * `formulas`: from a 99th percentile to a TTL
//! * `percentile`: what buckets say about a percentile
//! * `finding`: each result as a sentence

mod assess;
mod evidence;
mod finding;
mod formulas;
mod percentile;
#[cfg(test)]
mod tests;

pub use assess::advise;
pub(crate) use evidence::EXPIRED;
pub use evidence::Evidence;
pub(crate) use finding::brief;
pub use finding::{AdviceFinding, Fit, Note};
pub use formulas::{Jitter, Model, Need};
pub use percentile::{BOUNDED_SAMPLES, Bracket, BucketedSample, MIN_SAMPLES};

use std::time::Duration;

/// For one namespace.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    pub model: Model,
    /// Of the model's quantity, those included that were cut off.
    pub n_samples: u64,
    /// Of them, those that a TTL cut off: they would have taken longer.
    pub n_cut_off: u64,
    pub confidence: Confidence,
    pub jitter: Jitter,
    /// The 99th percentile of hold times, or of silences between renewals, in seconds.
    pub p99: Option<Bracket>,
    /// What TTL follows from it.
    pub need: Option<Need>,
    /// The TTL that the locks should have; the present one where nothing is wrong with it.
    pub ttl: Option<Duration>,
    /// `ttl` is a step towards an answer that cannot be seen from here.
    pub is_step: bool,
    /// For locks that are renewed.
    pub renew_every: Option<Duration>,
    /// With these values, renewals in a row that may fail without the lock being lost.
    pub may_fail: Option<u64>,
    /// With the present TTL.
    pub takeover: Option<Takeover>,
    /// What is wrong with the present values.
    pub findings: Vec<AdviceFinding>,
    /// What to know about this advice.
    pub notes: Vec<Note>,
}

impl Advice {
    /// What `/metrics` shows: only where there are samples enough, and not for loops, whose TTL is a matter of taste and SLO.
    pub fn recommended_ttl(&self) -> Option<Duration> {
        self.ttl.filter(|_| self.need.is_some() && self.model != Model::Loop)
    }

    /// With [`Advice::recommended_ttl`] only.
    pub fn recommended_renewal(&self) -> Option<Duration> {
        self.renew_every.filter(|_| self.recommended_ttl().is_some())
    }
}

/// How much the samples can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// Too few samples for any advice from them.
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

/// How soon after its owner's last sign of life a lock has its next one, if somebody waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Takeover {
    /// TTL and one retry.
    pub bound: Duration,
    pub slo: Option<Duration>,
    /// The longest TTL that meets the SLO. `None` with an SLO: no TTL does, the retry alone takes longer.
    pub at_most: Option<Duration>,
}

impl Takeover {
    pub fn is_too_late(&self) -> bool {
        self.slo.is_some_and(|slo| self.bound > slo)
    }
}
