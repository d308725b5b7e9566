//! Compares the TTL and renewal interval that the locks need with those that are configured.
//!
//! `/metrics` and the `advise` command call [`advise`]. Nothing here can fail. With too few
//! samples, the advice contains no need and a note states the reason.

use std::time::Duration;

use super::evidence::Evidence;
use super::finding::{AdviceFinding, Fit, Note};
use super::formulas::{self, Jitter, Model, Need, Reserve};
use super::percentile::{BOUNDED_SAMPLES, Bracket, BucketedSample, MIN_SAMPLES};
use super::{Advice, Confidence, Takeover};
use crate::model::namespace::{Namespace, OnRenewalFailure, Style};

/// From this many samples on, the bounds of a percentile are usually neighboring bucket bounds.
const MANY_SAMPLES: u64 = 1000;
/// A hold that takes more than this share of the TTL is close to the TTL.
const NEAR: f64 = 2.0 / 3.0;

/// Returns the settings that the namespace should have, based on the evidence.
pub fn advise(namespace: &Namespace, evidence: &Evidence) -> Advice {
    let measured = Measured::new(namespace, evidence);
    let mut advice = Advice {
        model: measured.model,
        n_samples: measured.n_samples,
        n_cut_off: measured.n_cut_off,
        confidence: measured.confidence(evidence),
        jitter: measured.jitter,
        p99: measured.p99,
        need: measured.need,
        ttl: namespace.ttl,
        is_step: false,
        renew_every: namespace.renew_every,
        may_fail: None,
        takeover: takeover(namespace),
        findings: Vec::new(),
        notes: Vec::new(),
    };
    measured.judge_length(namespace, &mut advice);
    measured.judge_takeover(namespace, &mut advice);
    measured.judge_renewal(namespace, evidence, &mut advice);
    advice.notes.extend(notes(namespace, evidence, &advice));
    advice
}

/// Quantities that the model derives from the evidence.
struct Measured {
    model: Model,
    n_samples: u64,
    n_cut_off: u64,
    jitter: Jitter,
    p99: Option<Bracket>,
    /// The needed TTL. If the lock is renewed, it assumes the interval `renew_every`, or a third of
    /// the TTL.
    need: Option<Need>,
    /// Only for a lock that is renewed.
    reserve: Option<Reserve>,
    /// The configured interval. If that interval is wrong regardless of pauses, the interval that
    /// should replace it.
    renew_every: Option<Duration>,
    /// Lower bound of the hold or pause at the 99th percentile.
    seen: Duration,
    /// Number of expirations that a holder reported as a loss in the logs.
    lost: u64,
    logs_speak: bool,
}

impl Measured {
    fn new(namespace: &Namespace, evidence: &Evidence) -> Self {
        let model = match namespace.style {
            Style::Loop => Model::Loop,
            Style::Item => formulas::of_item(namespace, evidence),
        };
        // A loop lets its TTL run out on purpose, so expirations do not count.
        let n_cut_off = if model == Model::Loop { 0 } else { evidence.cut_off() };
        let jitter = Jitter::of(&evidence.replies);
        let ttl = namespace.ttl.map(|ttl| ttl.as_secs_f64());
        let (sample, base) = match (model, ttl) {
            (Model::Held, _) => (evidence.finished_holds(), 0.0),
            // Margins are shares of the TTL, so they are meaningless without it.
            (Model::Renewed | Model::Loop, None) => (BucketedSample::default(), 0.0),
            (Model::Renewed | Model::Loop, Some(ttl)) => {
                let silences = BucketedSample::silences(&evidence.margins, ttl);
                let every = namespace.renew_every.map(|every| every.as_secs_f64());
                let every = every.or_else(|| silences.median_at_least()).unwrap_or(0.0);
                (silences, every)
            }
        };
        // What the TTL must cover: the complete hold, or the delay of a renewal.
        let seen = |value: f64| match model {
            Model::Held => value,
            Model::Renewed | Model::Loop => (value - base).max(evidence.pause.as_secs_f64()),
        };
        let p99 = sample.p99(n_cut_off, ttl.or_else(|| evidence.shortest_expired()).unwrap_or(0.0));
        let renew_every = namespace.renew_every.map(|every| match namespace.ttl {
            Some(ttl) if !is_sound(namespace, ttl, every, jitter) => formulas::renewal_of(ttl, namespace).min(every),
            _ => every,
        });
        let of_pause = |value: f64| formulas::reserve(seen(value), jitter);
        let reserve = p99
            .filter(|_| model != Model::Held)
            .map(|p99| Reserve { low: of_pause(p99.low), high: p99.high.map(of_pause) });
        let need = match (reserve, renew_every) {
            (Some(reserve), Some(every)) => Some(reserve.need_at(every)),
            (Some(reserve), None) => Some(reserve.need_at_a_third()),
            (None, _) => {
                let of_hold = |value: f64| formulas::for_hold(seen(value), jitter);
                p99.map(|p99| Need { low: of_hold(p99.low), high: p99.high.map(of_hold) })
            }
        };
        Self {
            model,
            n_samples: sample.count() + n_cut_off,
            n_cut_off,
            jitter,
            p99,
            need,
            reserve,
            renew_every,
            seen: formulas::duration(p99.map_or(0.0, |p99| seen(p99.low))),
            lost: evidence.lost_by_expiry(),
            logs_speak: evidence.logs_speak,
        }
    }

    fn confidence(&self, evidence: &Evidence) -> Confidence {
        let by_number = match self.n_samples {
            ..MIN_SAMPLES => Confidence::None,
            MIN_SAMPLES..BOUNDED_SAMPLES => Confidence::Low,
            BOUNDED_SAMPLES..MANY_SAMPLES => Confidence::Medium,
            _ => Confidence::High,
        };
        let is_doubtful = !evidence.is_complete || (self.n_cut_off > 0 && !self.logs_speak);
        if is_doubtful { by_number.min(Confidence::Low) } else { by_number }
    }

    /// Checks whether the TTL is long enough for the work, or for the pauses.
    fn judge_length(&self, namespace: &Namespace, advice: &mut Advice) {
        let Some(need) = self.need else { return };
        let Some(present) = namespace.ttl else {
            (advice.ttl, advice.is_step) = match need.high {
                Some(high) => (Some(formulas::round_up(high)), false),
                None => (Some(formulas::round_up(need.low)), true),
            };
            return;
        };
        if need.low > present {
            if let Some(every) = self.interval_that_fits(namespace, present) {
                let renew_every = self.renew_every.unwrap_or(every);
                let (seen, need) = (self.seen, need.low);
                advice.need = self.reserve.map(|reserve| reserve.need_at(every));
                advice.findings.push(AdviceFinding::NoRoomForPause { ttl: present, renew_every, seen, need, every });
                return;
            }
            // Another interval can also be better with a longer TTL.
            let need = self.reserve.map_or(need, |reserve| need.or(reserve.need_at_a_third()));
            advice.need = Some(need);
            // The duration of holds that were cut off is unknown. Twice the TTL shows more of it.
            let step = need.low.max(present * 2);
            (advice.ttl, advice.is_step) = match need.high {
                Some(high) => (Some(formulas::round_up(high)), false),
                None => (Some(formulas::round_up(step)), true),
            };
            advice.findings.push(AdviceFinding::TooShort {
                model: self.model,
                ttl: present,
                seen: self.seen,
                need,
                n_cut_off: self.n_cut_off,
                n_samples: self.n_samples,
                logs_speak: self.logs_speak,
            });
        } else if self.lost > 0 && self.model != Model::Loop {
            advice.findings.push(AdviceFinding::LostAllTheSame { model: self.model, n_lost: self.lost, ttl: present });
        }
        let is_near = self.p99.is_some_and(|p99| p99.low > present.as_secs_f64() * NEAR);
        if self.model == Model::Held && namespace.renew_every.is_none() && is_near {
            let every = formulas::renewal_of(advice.ttl.unwrap_or(present), namespace);
            advice.findings.push(AdviceFinding::NotRenewed { ttl: present, every });
        }
    }

    /// Returns an interval shorter than the current one, if the current TTL is long enough with an
    /// interval of a third of the TTL.
    fn interval_that_fits(&self, namespace: &Namespace, ttl: Duration) -> Option<Duration> {
        let third = formulas::renewal_of(ttl, namespace);
        let fits = self.reserve?.need_at(third).low <= ttl;
        (fits && third < self.renew_every?).then(|| self.interval_of(ttl, namespace))
    }

    /// Checks whether the TTL is short enough for the next owner to acquire the lock in time.
    fn judge_takeover(&self, namespace: &Namespace, advice: &mut Advice) {
        let Some(takeover @ Takeover { bound, slo: Some(slo), at_most }) = advice.takeover else { return };
        // The need at the highest sensible renewal frequency.
        let least = advice.need.map(|need| self.reserve.map_or(need, |reserve| need.or(reserve.least_need())));
        let is_enough = |need: Option<Need>, ttl| need.and_then(|need| need.high).is_some_and(|high| high <= ttl);
        let fit = match at_most {
            None => Fit::Never,
            Some(at_most) if least.is_some_and(|need| need.low > at_most) => Fit::No,
            Some(at_most) if is_enough(advice.need, at_most) => Fit::Yes,
            Some(at_most) if is_enough(least, at_most) => Fit::RenewedMoreOften,
            // For a loop without measured pauses, only the takeover limits the TTL.
            Some(_) if advice.model == Model::Loop && advice.need.is_none() => Fit::Yes,
            Some(_) => Fit::Unknown,
        };
        if takeover.is_too_late() {
            advice.findings.push(AdviceFinding::TooLong {
                bound,
                slo,
                retry_every: namespace.retry_every,
                at_most,
                fit,
            });
        }
        // A longer TTL that was advised because of pauses is not necessary with a shorter interval.
        let is_too_long = takeover.is_too_late() || (advice.ttl != namespace.ttl && advice.ttl > at_most);
        if matches!(fit, Fit::Yes | Fit::RenewedMoreOften) && is_too_long && !advice.is_step {
            advice.ttl = at_most;
        }
        if let (Fit::No, Some(need), Some(at_most)) = (fit, least, at_most) {
            let (model, need, retry_every) = (advice.model, need.low, namespace.retry_every);
            advice.findings.push(AdviceFinding::Conflict { model, need, at_most, slo, retry_every });
        }
    }

    /// Checks whether renewals are frequent enough, and whether the owner stops in time when they
    /// fail.
    fn judge_renewal(&self, namespace: &Namespace, evidence: &Evidence, advice: &mut Advice) {
        let jitter = without_assumption(advice.jitter);
        let Some(present) = namespace.renew_every else {
            if advice.model == Model::Renewed
                && let Some(ttl) = advice.ttl
            {
                let every = self.interval_of(ttl, namespace);
                advice.renew_every = Some(every);
                advice.may_fail = Some(may_fail(ttl, every, jitter));
            }
            return;
        };
        let is_missing = evidence.renewals == 0 && advice.model == Model::Held && {
            let hold = advice.p99.map(|p99| p99.low);
            hold.is_some_and(|hold| hold >= present.as_secs_f64())
        };
        if is_missing {
            advice.findings.push(AdviceFinding::NeverRenewed { renew_every: present, n_samples: advice.n_samples });
        }
        let (Some(ttl), Some(advised)) = (namespace.ttl, advice.ttl) else { return };
        let n_attempts = formulas::attempts(ttl, present, jitter);
        if n_attempts < 2 {
            advice.findings.push(AdviceFinding::RenewalTooRare { ttl, renew_every: present, n_attempts });
        }
        let leaves_enough = |every: Duration| {
            let need = self.reserve.map(|reserve| reserve.need_at(every));
            // A current value stays unless it is certainly wrong. A new value must be certainly
            // right.
            let need = need.map(|need| if advised == ttl { need.low } else { need.high.unwrap_or(need.low) });
            need.is_none_or(|need| need <= advised)
        };
        let is_fine = |every: &Duration| is_sound(namespace, advised, *every, jitter) && leaves_enough(*every);
        let known = [Some(present), self.renew_every].into_iter().flatten();
        let every = known.into_iter().find(is_fine).unwrap_or_else(|| self.interval_of(advised, namespace));
        if let (Some(fence), Some(budget)) =
            (late_fence(namespace, ttl, present, jitter), namespace.renewal_failure_budget)
        {
            let every = every.min(formulas::renewal_of(ttl, namespace));
            let renew_every = present;
            advice.findings.push(AdviceFinding::FenceAfterExpiry {
                ttl,
                renew_every,
                budget,
                fence,
                every,
                n_in_time: n_attempts,
            });
        }
        advice.renew_every = Some(every);
        advice.may_fail = Some(may_fail(advised, every, jitter));
    }

    /// Returns a third of the TTL, or less if the pauses leave less.
    fn interval_of(&self, ttl: Duration, namespace: &Namespace) -> Duration {
        let every = formulas::renewal_of(ttl, namespace);
        let reserve = self.reserve.map(|reserve| reserve.high.unwrap_or(reserve.low));
        let left = reserve.and_then(|reserve| formulas::interval_for(ttl, reserve));
        left.map_or(every, |left| left.min(every))
    }
}

fn takeover(namespace: &Namespace) -> Option<Takeover> {
    let retry = namespace.retry_every.unwrap_or_default();
    let slo = namespace.takeover_slo;
    let at_most = slo.and_then(|slo| slo.checked_sub(retry)).map(formulas::round_down).filter(|left| !left.is_zero());
    Some(Takeover { bound: namespace.ttl? + retry, slo, at_most })
}

/// An assumed jitter must not cause a finding, so it counts as 0.
fn without_assumption(jitter: Jitter) -> Jitter {
    if jitter.is_assumed { Jitter { seconds: 0.0, ..jitter } } else { jitter }
}

/// Returns true if one renewal can fail and the fence applies in time, regardless of pauses.
fn is_sound(namespace: &Namespace, ttl: Duration, every: Duration, jitter: Jitter) -> bool {
    let jitter = without_assumption(jitter);
    formulas::attempts(ttl, every, jitter) >= 2 && late_fence(namespace, ttl, every, jitter).is_none()
}

fn late_fence(namespace: &Namespace, ttl: Duration, every: Duration, jitter: Jitter) -> Option<Duration> {
    formulas::fence(namespace, every).filter(|fence| *fence + formulas::duration(jitter.seconds) >= ttl)
}

fn may_fail(ttl: Duration, every: Duration, jitter: Jitter) -> u64 {
    formulas::attempts(ttl, every, jitter).saturating_sub(1)
}

fn notes(namespace: &Namespace, evidence: &Evidence, advice: &Advice) -> Vec<Note> {
    let is_renewed = namespace.renew_every.is_some();
    let needs_samples = advice.model != Model::Loop;
    let has_few = advice.n_samples < MIN_SAMPLES;
    let fences = is_renewed && namespace.on_renewal_failure == OnRenewalFailure::Fence;
    let unclear = advice
        .need
        .filter(|need| namespace.ttl.is_some_and(|ttl| need.low <= ttl && need.high.is_none_or(|high| high > ttl)));
    let is_missing = advice.findings.iter().any(|finding| matches!(finding, AdviceFinding::NeverRenewed { .. }));
    let no_hold_is_seen = namespace.ttl.is_none() && advice.model == Model::Renewed;
    [
        (needs_samples && has_few && !no_hold_is_seen)
            .then_some(Note::TooFew { model: advice.model, n_samples: advice.n_samples }),
        namespace.ttl.is_none().then_some(Note::TtlUnknown),
        unclear.map(|need| Note::Unclear { model: advice.model, need }),
        (is_renewed && advice.model == Model::Held && !is_missing).then_some(Note::RarelyRenewed),
        (advice.n_cut_off > 0 && !evidence.logs_speak).then_some(Note::LogsSilent { n_cut_off: advice.n_cut_off }),
        beyond_slo(namespace, advice),
        (namespace.renew_every.is_none() && evidence.renewals > 0)
            .then_some(Note::RenewedUnconfigured { n_renewals: evidence.renewals }),
        (fences && namespace.renewal_failure_budget.is_none()).then_some(Note::BudgetUnknown),
        (namespace.takeover_slo.is_none() && namespace.ttl.is_some()).then_some(Note::NoSlo),
        (namespace.retry_every.is_none() && namespace.ttl.is_some()).then_some(Note::RetryUnknown),
        (evidence.early_releases > 0).then_some(Note::ReleasedEarly { count: evidence.early_releases }),
        (namespace.style == Style::Loop && evidence.takeovers_beyond_slo > 0)
            .then_some(Note::TookLonger { count: evidence.takeovers_beyond_slo, of: evidence.takeovers }),
        (advice.jitter.is_assumed && needs_samples).then_some(Note::JitterAssumed),
        (!evidence.is_complete).then_some(Note::PassesOnly),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn beyond_slo(namespace: &Namespace, advice: &Advice) -> Option<Note> {
    let (ttl, at_most) = (advice.ttl?, advice.takeover?.at_most?);
    let is_said = advice.findings.iter().any(|finding| matches!(finding, AdviceFinding::Conflict { .. }));
    (ttl > at_most && advice.ttl != namespace.ttl && !is_said).then_some(Note::BeyondSlo {
        model: advice.model,
        ttl,
        at_most,
    })
}
