//! Findings about a TTL or a renewal interval, and notes about the advice. Each is shown as one
//! sentence for people.

use std::fmt;
use std::time::Duration;

use super::formulas::{Model, Need};
use super::percentile::MIN_SAMPLES;
use crate::util::units::brief;

/// Something that should be changed.
#[derive(Clone, Debug, PartialEq)]
pub enum AdviceFinding {
    /// The locks need a longer TTL for a hold or a pause of at least `seen`.
    TooShort {
        model: Model,
        ttl: Duration,
        seen: Duration,
        need: Need,
        n_cut_off: u64,
        n_samples: u64,
        logs_speak: bool,
    },
    /// 99 of 100 holds fit into the TTL, but some locks were still lost.
    LostAllTheSame { model: Model, n_lost: u64, ttl: Duration },
    /// Holds take almost the complete TTL and nothing renews the lock.
    NotRenewed { ttl: Duration, every: Duration },
    /// The configuration states that the lock is renewed, but it never is.
    NeverRenewed { renew_every: Duration, n_samples: u64 },
    /// The next owner acquires the lock later than the SLO allows.
    TooLong { bound: Duration, slo: Duration, retry_every: Option<Duration>, at_most: Option<Duration>, fit: Fit },
    /// The SLO allows only a shorter TTL than the work needs.
    Conflict { model: Model, need: Duration, at_most: Duration, slo: Duration, retry_every: Option<Duration> },
    /// The lock is lost as soon as one renewal fails.
    RenewalTooRare { ttl: Duration, renew_every: Duration, n_attempts: u64 },
    /// After a failed renewal, the next one comes too late if the owner pauses as observed. With
    /// the interval `every` it comes in time.
    NoRoomForPause { ttl: Duration, renew_every: Duration, seen: Duration, need: Duration, every: Duration },
    /// The owner stops its work only after another owner may have started. Before the TTL runs out,
    /// it observes `n_in_time` failures.
    FenceAfterExpiry {
        ttl: Duration,
        renew_every: Duration,
        budget: u64,
        fence: Duration,
        every: Duration,
        n_in_time: u64,
    },
}

/// Whether a TTL that satisfies the SLO is long enough for the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    Yes,
    /// Only with a shorter renewal interval than the current one.
    RenewedMoreOften,
    No,
    Unknown,
    /// No TTL is short enough.
    Never,
}

impl AdviceFinding {
    pub fn kind(&self) -> &'static str {
        match self {
            Self::TooShort { .. } => "too_short",
            Self::LostAllTheSame { .. } => "lost_all_the_same",
            Self::NotRenewed { .. } => "not_renewed",
            Self::NeverRenewed { .. } => "never_renewed",
            Self::TooLong { .. } => "too_long",
            Self::Conflict { .. } => "conflict",
            Self::RenewalTooRare { .. } | Self::NoRoomForPause { .. } => "renewal_too_rare",
            Self::FenceAfterExpiry { .. } => "fence_after_expiry",
        }
    }
}

impl fmt::Display for AdviceFinding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort { model, ttl, seen, need, n_cut_off, n_samples, logs_speak } => {
                let (ttl, low) = (brief(*ttl), brief(need.low));
                write!(out, "the TTL of {ttl} is too short: ")?;
                match (n_cut_off, model) {
                    (0, Model::Held) => write!(
                        out,
                        "one hold in a hundred takes {} or more, which with jitter and guard needs {low}",
                        brief(*seen)
                    ),
                    (0, _) => write!(out, "surviving a pause of {} and a failed renewal needs {low}", brief(*seen)),
                    (_, Model::Held) => {
                        write!(out, "it cut off {n_cut_off} of {n_samples} holds")?;
                        if *logs_speak { write!(out, ", whose owners found their lock lost") } else { Ok(()) }
                    }
                    _ => write!(
                        out,
                        "{n_cut_off} of {n_samples} silences of an owner lasted longer, and its lock expired"
                    ),
                }?;
                if need.high.is_none() {
                    write!(
                        out,
                        "; how long they would have taken is unknown, so use the recommended value as a step and \
                         measure again"
                    )?;
                }
                Ok(())
            }
            Self::LostAllTheSame { model, n_lost, ttl } => {
                let ttl = brief(*ttl);
                let what = if *model == Model::Held { "holds" } else { "silences" };
                write!(out, "99 of 100 {what} fit into {ttl}, but {n_lost} locks expired while their owner worked: ")?;
                match model {
                    Model::Held => write!(out, "renew the lock, or find out what the slowest work is"),
                    _ => write!(out, "find the pauses (GC, swapping, a slow Redis), and fence what comes after them"),
                }
            }
            Self::NotRenewed { ttl, every } => write!(
                out,
                "holds come near the TTL of {} and nothing renews the lock: renew every {}, so that the TTL does not \
                 depend on the work",
                brief(*ttl),
                brief(*every)
            ),
            Self::NeverRenewed { renew_every, n_samples } => write!(
                out,
                "configured to be renewed every {}, but none of {n_samples} locks ever was, although they are \
                 held longer",
                brief(*renew_every)
            ),
            Self::TooLong { bound, slo, retry_every, at_most, fit } => {
                let by = brief(bound.saturating_sub(*slo));
                write!(
                    out,
                    "too long for the takeover SLO of {}: a dead owner's lock is taken over after up to {}",
                    brief(*slo),
                    brief(*bound)
                )?;
                if let Some(retry) = retry_every {
                    write!(out, " (TTL and a retry after {})", brief(*retry))?;
                }
                write!(out, ", {by} too late; ")?;
                match (at_most, fit) {
                    (Some(at_most), Fit::Yes) => {
                        write!(out, "a TTL of at most {} satisfies it and is long enough", brief(*at_most))
                    }
                    (Some(at_most), Fit::RenewedMoreOften) => {
                        write!(
                            out,
                            "a TTL of at most {} satisfies it and is long enough if the lock is renewed more often",
                            brief(*at_most)
                        )
                    }
                    (Some(at_most), Fit::No) => write!(out, "a TTL of at most {} would satisfy it", brief(*at_most)),
                    (Some(at_most), _) => {
                        write!(
                            out,
                            "a TTL of at most {} would satisfy it; whether that is long enough is not known yet",
                            brief(*at_most)
                        )
                    }
                    (None, _) => {
                        write!(out, "no TTL can satisfy it, because the retry alone takes longer: retry more often")
                    }
                }
            }
            Self::Conflict { model, need, at_most, slo, retry_every } => {
                let (need_text, at_most) = (brief(*need), brief(*at_most));
                let however = if *model == Model::Held { "" } else { ", even if they are renewed more often" };
                write!(
                    out,
                    "conflict: the SLO allows a TTL of at most {at_most}, the locks need at least {need_text}{however}; "
                )?;
                let slo_needed = brief(*need + retry_every.unwrap_or_default());
                match model {
                    Model::Held => write!(
                        out,
                        "renew the lock (its TTL then follows from pauses, not from the work), split the work, \
                         or allow {slo_needed} instead of {}",
                        brief(*slo)
                    ),
                    _ => write!(
                        out,
                        "shorten the pauses of the owners, release locks on shutdown so that only crashes wait, \
                         or allow {slo_needed} instead of {}",
                        brief(*slo)
                    ),
                }
            }
            Self::RenewalTooRare { ttl, renew_every, n_attempts } => {
                let (ttl, every) = (brief(*ttl), brief(*renew_every));
                match n_attempts {
                    0 => write!(
                        out,
                        "renewing every {every} is too late for a TTL of {ttl}: the reply arrives after the lock has \
                         expired"
                    ),
                    _ => write!(
                        out,
                        "renewing every {every} is too close to the TTL of {ttl}: if one renewal fails the lock is lost"
                    ),
                }
            }
            Self::NoRoomForPause { ttl, renew_every, seen, need, every } => write!(
                out,
                "renewing every {} is too rare for the TTL of {}: surviving a pause of {} and a failed renewal needs {}; \
                 renew every {}",
                brief(*renew_every),
                brief(*ttl),
                brief(*seen),
                brief(*need),
                brief(*every)
            ),
            Self::FenceAfterExpiry { ttl, renew_every, budget, fence, every, n_in_time } => {
                let (ttl, renew_every, fence) = (brief(*ttl), brief(*renew_every), brief(*fence));
                write!(
                    out,
                    "the owner fences itself after the lock expired: {budget} failed renewals, {renew_every} apart, \
                     take {fence}, but the TTL is {ttl}; "
                )?;
                write!(out, "renew every {}", brief(*every))?;
                match n_in_time {
                    0 => Ok(()),
                    1 => write!(out, " or give up after 1 failure"),
                    _ => write!(out, " or give up after {n_in_time} failures"),
                }
            }
        }
    }
}

/// A remark about the advice.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    TooFew {
        model: Model,
        n_samples: u64,
    },
    TtlUnknown,
    /// The current TTL is between the certain minimum and the certain maximum of what is needed.
    Unclear {
        model: Model,
        need: Need,
    },
    /// Renewals are configured, but the work ends before the first one is due.
    RarelyRenewed,
    /// The expired locks may include locks of owners that died.
    LogsSilent {
        n_cut_off: u64,
    },
    /// The TTL that is advised for the work is too long for the takeover.
    BeyondSlo {
        model: Model,
        ttl: Duration,
        at_most: Duration,
    },
    RenewedUnconfigured {
        n_renewals: u64,
    },
    BudgetUnknown,
    NoSlo,
    RetryUnknown,
    ReleasedEarly {
        count: u64,
    },
    TookLonger {
        count: u64,
        of: u64,
    },
    JitterAssumed,
    PassesOnly,
    /// Prometheus has recorded more than one TTL in the time range.
    TtlChanged,
}

impl fmt::Display for Note {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFew { model, n_samples } => {
                let what = if *model == Model::Held { "finished holds" } else { "renewals" };
                write!(
                    out,
                    "too few samples: {n_samples} {what} were observed, and fewer than {MIN_SAMPLES} do not show the \
                     slowest hundredth"
                )
            }
            Self::TtlUnknown => write!(out, "`ttl` is not configured, so there is nothing to compare with"),
            Self::Unclear { model, need } => {
                let what = if *model == Model::Held { "work" } else { "pauses" };
                match need.high {
                    Some(high) => write!(
                        out,
                        "the {what} need a TTL between {} and {}; the buckets or samples are too coarse for more, \
                         and the current TTL fits",
                        brief(need.low),
                        brief(high)
                    ),
                    None => write!(out, "the {what} need {} or more; how much more is unknown", brief(need.low)),
                }
            }
            Self::RarelyRenewed => {
                write!(out, "99 of 100 holds end before the first renewal is due, so the advice is based on the holds")
            }
            Self::LogsSilent { n_cut_off } => {
                write!(
                    out,
                    "no log line about this namespace was observed: owners that died may be among the {n_cut_off} \
                     whose lock expired"
                )
            }
            Self::BeyondSlo { model, ttl, at_most } => {
                let (ttl, at_most) = (brief(*ttl), brief(*at_most));
                let way_out = if *model == Model::Held {
                    "renewing achieves both"
                } else {
                    "only renewing more often or shorter pauses achieve both"
                };
                write!(out, "with a TTL of {ttl} a takeover is later than the SLO allows, ")?;
                write!(out, "which requires at most {at_most}: {way_out}")
            }
            Self::RenewedUnconfigured { n_renewals } => {
                write!(
                    out,
                    "{n_renewals} renewals were observed although `renew_every` is not configured: configure it"
                )
            }
            Self::BudgetUnknown => write!(
                out,
                "`renewal_failure_budget` is not configured: whether the owner fences itself before the lock expires \
                 is not known"
            ),
            Self::NoSlo => write!(out, "`takeover_slo` is not configured: whether the TTL is too long is not known"),
            Self::RetryUnknown => {
                write!(out, "`retry_every` is not configured: a takeover takes the TTL and the time to the next try")
            }
            Self::ReleasedEarly { count } => write!(out, "{count} locks were released early, which no loop should do"),
            Self::TookLonger { count, of } => {
                write!(
                    out,
                    "{count} of {of} observed takeovers took longer than the SLO: if the bound is within it, the \
                     programs retry less often than configured"
                )
            }
            Self::JitterAssumed => {
                write!(out, "fewer than {MIN_SAMPLES} answers of Redis were timed: a jitter of 1s is assumed")
            }
            Self::PassesOnly => {
                write!(out, "only passes observe changes: short holds and quick renewals are missing among the samples")
            }
            Self::TtlChanged => {
                write!(out, "`ttl` was changed within the range: choose a shorter one that begins after it")
            }
        }
    }
}
