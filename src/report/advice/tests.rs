//! Tests of the advice, with namespaces and samples whose correct answer is known.
//!
//! The comments show how the expected TTL is computed: percentile or pause + jitter + guard.

use std::time::Duration;

use super::*;
use crate::model::counters::{Bounds, Histogram, HoldBounds, MarginBounds, ReplyBounds};
use crate::model::namespace::{Namespace, OnRenewalFailure, Style};

fn sample<B: Bounds>(values: impl IntoIterator<Item = f64>) -> BucketedSample {
    let mut histogram = Histogram::<B>::default();
    values.into_iter().for_each(|value| histogram.observe(value));
    BucketedSample::of(&histogram)
}

/// Returns values with equal steps of probability.
fn drawn<B: Bounds>(n: u32, quantile: impl Fn(f64) -> f64) -> BucketedSample {
    sample::<B>((0..n).map(|index| quantile((f64::from(index) + 0.5) / f64::from(n))))
}

/// Redis answers within a millisecond, every change is observed, and the logs reported something.
fn seen() -> Evidence {
    Evidence {
        replies: drawn::<ReplyBounds>(1000, |_| 0.0007),
        is_complete: true,
        logs_speak: true,
        ..Evidence::default()
    }
}

fn holds(n: u32, quantile: impl Fn(f64) -> f64) -> Evidence {
    Evidence { holds: drawn::<HoldBounds>(n, quantile), ..seen() }
}

/// Adds `n_lost` locks whose TTL ran out while their owner still worked.
fn with_lost(evidence: Evidence, n_lost: u64, ttl: f64) -> Evidence {
    Evidence { holds: evidence.holds.with(ttl, n_lost), expirations: n_lost, lost: n_lost, ..evidence }
}

fn margins(n: u32, margin: f64) -> Evidence {
    Evidence { margins: drawn::<MarginBounds>(n, |_| margin), renewals: n.into(), ..seen() }
}

fn secs(seconds: f64) -> Option<Duration> {
    Some(Duration::from_secs_f64(seconds))
}

/// A namespace of style `item` without renewals.
fn item(ttl: f64) -> Namespace {
    Namespace { ttl: secs(ttl), retry_every: secs(1.0), takeover_slo: secs(3600.0), ..Namespace::other() }
}

/// A namespace whose programs continue when renewals fail.
fn renewed(ttl: f64, every: f64) -> Namespace {
    Namespace { renew_every: secs(every), on_renewal_failure: OnRenewalFailure::Continue, ..item(ttl) }
}

/// The expected advice.
struct Expected<'a> {
    model: Model,
    ttl: Option<f64>,
    renew_every: Option<f64>,
    confidence: Confidence,
    findings: &'a [&'a str],
}

#[track_caller]
fn check(namespace: &Namespace, evidence: &Evidence, expected: Expected<'_>) -> Advice {
    let advice = advise(namespace, evidence);
    let findings: Vec<&str> = advice.findings.iter().map(AdviceFinding::kind).collect();
    assert_eq!(
        (advice.model, advice.ttl, advice.renew_every, advice.confidence, findings.as_slice()),
        (
            expected.model,
            expected.ttl.and_then(secs),
            expected.renew_every.and_then(secs),
            expected.confidence,
            expected.findings
        ),
        "{advice:#?}"
    );
    advice
}

#[track_caller]
fn check_held(namespace: &Namespace, evidence: &Evidence, ttl: f64, findings: &[&str]) -> Advice {
    let (model, confidence) = (Model::Held, Confidence::High);
    check(namespace, evidence, Expected { model, ttl: Some(ttl), renew_every: None, confidence, findings })
}

/// `advised` contains the TTL and the renewal interval.
#[track_caller]
fn check_renewed(namespace: &Namespace, evidence: &Evidence, advised: (f64, f64), findings: &[&str]) -> Advice {
    let (ttl, renew_every, confidence) = (Some(advised.0), Some(advised.1), Confidence::High);
    check(namespace, evidence, Expected { model: Model::Renewed, ttl, renew_every, confidence, findings })
}

/// TTL = 99th percentile + jitter + a quarter of the percentile.
#[test]
fn distributions_of_hold_times_with_known_answers() {
    let without_ttl = Namespace { ttl: None, ..item(1.0) };
    // Uniform up to 10 s: 9.9 s, in the bucket up to 10 s. 10 + 0.001 + 2.5.
    check_held(&without_ttl, &holds(5000, |p| 10.0 * p), 13.0, &[]);
    // Exponential with a mean of 2 s: 9.21 s.
    check_held(&without_ttl, &holds(5000, |p| -2.0 * (1.0 - p).ln()), 13.0, &[]);
    // Constant: 8 + 0.001 + 2.
    check_held(&without_ttl, &holds(5000, |_| 7.0), 11.0, &[]);
    // Two kinds of work, 3 % of them slow: 40 + 0.001 + 10.
    check_held(&without_ttl, &holds(5000, |p| if p < 0.97 { 0.02 } else { 35.0 }), 51.0, &[]);
    // Short holds: the guard is at least a quarter of a second.
    check_held(&without_ttl, &holds(5000, |_| 0.02), 0.28, &[]);
}

#[test]
fn a_ttl_that_fits_stays() {
    check_held(&item(30.0), &holds(5000, |p| 10.0 * p), 30.0, &[]);
    // Between the certain minimum (8 + 2) and the certain maximum (10 + 2.5), so the TTL stays.
    let advice = check_held(&item(12.0), &holds(5000, |p| 10.0 * p), 12.0, &[]);
    assert!(matches!(advice.notes[..], [Note::Unclear { .. }]), "{:?}", advice.notes);
}

#[test]
fn holds_near_the_ttl_without_renewal() {
    // One hold in fifty takes more than 25 s of 30 s: 25 + 6.25 is more than the TTL.
    let advice = check_held(
        &item(30.0),
        &holds(5000, |p| if p < 0.98 { 1.0 } else { 29.0 }),
        38.0,
        &["too_short", "not_renewed"],
    );
    assert_eq!(
        advice.findings[0].to_string(),
        "the TTL of 30s is too short: one hold in a hundred takes 25s or more, which with jitter and guard needs 31.3s"
    );
    let near = "holds come near the TTL of 30s and nothing renews the lock: renew every 12s, so that the TTL does not \
         depend on the work";
    assert_eq!(advice.findings[1].to_string(), near);
    // Holds of more than 20 s fit into 28 s, but barely.
    check_held(&item(28.0), &holds(5000, |p| if p < 0.98 { 1.0 } else { 24.0 }), 28.0, &["not_renewed"]);
}

#[test]
fn holds_that_were_cut_off_would_have_taken_longer() {
    // 200 of 5200 holds were cut off. The time that they needed is unknown, so the next step is
    // twice the TTL.
    let evidence = with_lost(holds(5000, |p| 9.0 * p), 200, 10.0);
    let advice = check_held(&item(10.0), &evidence, 20.0, &["too_short", "not_renewed"]);
    assert!(advice.is_step && advice.need.unwrap().high.is_none());
    let text = advice.findings[0].to_string();
    assert!(text.contains("it cut off 200 of 5200 holds, whose owners found their lock lost"), "{text}");
    // The step can be too long for the takeover.
    let hasty = Namespace { takeover_slo: secs(15.0), ..item(10.0) };
    let advice = check_held(&hasty, &evidence, 20.0, &["too_short", "not_renewed"]);
    let (ttl, at_most) = (Duration::from_secs(20), Duration::from_secs(14));
    assert!(advice.notes.contains(&Note::BeyondSlo { model: Model::Held, ttl, at_most }), "{:?}", advice.notes);
    // Half a percent is above the 99th percentile.
    let evidence = with_lost(holds(5000, |p| 5.0 * p), 20, 10.0);
    check_held(&item(10.0), &evidence, 10.0, &["lost_all_the_same"]);
    // One percent can be above or below the percentile: nothing is certain, so nothing changes.
    let evidence = Evidence { lost: 0, logs_speak: false, ..with_lost(holds(5000, |p| 5.0 * p), 50, 10.0) };
    let expected =
        Expected { model: Model::Held, ttl: Some(10.0), renew_every: None, confidence: Confidence::Low, findings: &[] };
    let advice = check(&item(10.0), &evidence, expected);
    assert!(advice.notes.iter().any(|note| matches!(note, Note::Unclear { need: Need { high: None, .. }, .. })));
}

/// The lock of a dead owner expires too. If the logs report losses, it is known that nobody needed
/// this lock.
#[test]
fn owners_that_died_are_no_slow_work() {
    let crashed = with_lost(holds(5000, |p| 5.0 * p), 400, 10.0);
    let told = Evidence { lost: 0, ..crashed.clone() };
    check_held(&item(10.0), &told, 10.0, &[]);
    let silent = Evidence { logs_speak: false, ..told };
    let findings = &["too_short", "not_renewed"];
    let expected =
        Expected { model: Model::Held, ttl: Some(20.0), renew_every: None, confidence: Confidence::Low, findings };
    let advice = check(&item(10.0), &silent, expected);
    assert!(advice.notes.contains(&Note::LogsSilent { n_cut_off: 400 }));
}

#[test]
fn too_few_samples_say_so() {
    let expected = |confidence, ttl| Expected { model: Model::Held, ttl, renew_every: None, confidence, findings: &[] };
    let advice = check(&item(10.0), &holds(99, |_| 20.0), expected(Confidence::None, Some(10.0)));
    assert_eq!(advice.notes, [Note::TooFew { model: Model::Held, n_samples: 99 }]);
    assert_eq!((advice.need, advice.recommended_ttl()), (None, None));
    let without_ttl = Namespace { ttl: None, ..item(1.0) };
    check(&without_ttl, &holds(99, |_| 20.0), expected(Confidence::None, None));
    check(&without_ttl, &holds(100, |_| 20.0), expected(Confidence::Low, Some(26.0)));
    check(&without_ttl, &holds(299, |_| 20.0), expected(Confidence::Medium, Some(26.0)));
    check(&without_ttl, &holds(1000, |_| 20.0), expected(Confidence::High, Some(26.0)));
    let passes = Evidence { is_complete: false, ..holds(1000, |_| 20.0) };
    let advice = check(&without_ttl, &passes, expected(Confidence::Low, Some(26.0)));
    assert!(advice.notes.contains(&Note::PassesOnly));
}

#[test]
fn a_lock_that_is_renewed_must_outlive_pauses_not_the_work() {
    // Work of 20 minutes, renewed in time.
    let evidence = Evidence { holds: drawn::<HoldBounds>(5000, |_| 1200.0), ..margins(5000, 0.66) };
    let advice = check_renewed(&renewed(30.0, 10.0), &evidence, (30.0, 10.0), &[]);
    assert_eq!(advice.may_fail, Some(1));
    // Renewals are 11 to 14 s late: 2 * 10 + 11 + 0.001 + 2.75 is at least 33.8 s, and 2 * 10 + 14
    // + 0.001 + 3.5 is 37.5 s.
    let advice = check_renewed(&renewed(30.0, 10.0), &margins(5000, 0.25), (38.0, 10.0), &["too_short"]);
    assert_eq!((advice.may_fail, advice.is_step), (Some(2), false));
    let text = "the TTL of 30s is too short: surviving a pause of 11s and a failed renewal needs 33.8s";
    assert_eq!(advice.findings[0].to_string(), text);
    // A pause that the owner must survive although none was observed: 2 * 10 + 20 + 0.001 + 5.
    check_renewed(&renewed(30.0, 10.0), &paused(20), (46.0, 10.0), &["too_short"]);
    // Owners that reported the loss of their lock were silent for at least the TTL. Twice the TTL
    // shows more of the silence.
    let evidence = Evidence { expirations: 300, lost: 300, ..margins(5000, 0.66) };
    let advice = check_renewed(&renewed(30.0, 10.0), &evidence, (60.0, 10.0), &["too_short"]);
    assert!(advice.is_step);
    let evidence = Evidence { expirations: 300, lost: 5, ..margins(5000, 0.66) };
    check_renewed(&renewed(30.0, 10.0), &evidence, (30.0, 10.0), &["lost_all_the_same"]);
}

/// Renewals come in time, but the owner must survive a pause of this length.
fn paused(seconds: u64) -> Evidence {
    Evidence { pause: Duration::from_secs(seconds), ..margins(5000, 0.9) }
}

/// The interval determines how much of the TTL is left for a pause: 2 * interval + pause + jitter +
/// guard.
#[test]
fn the_renewal_interval_counts() {
    // 6 + 9 + 0.001 + 2.25 is 17.3 s.
    let advice = check_renewed(&renewed(30.0, 3.0), &paused(9), (30.0, 3.0), &[]);
    assert_eq!(advice.need.unwrap().high, secs(17.251));
    // 58 + 7 + 0.001 + 1.75 is 66.8 s, but 40 + 8.8 s fits.
    let advice = check_renewed(&renewed(60.0, 29.0), &paused(7), (60.0, 20.0), &["renewal_too_rare"]);
    let text = "renewing every 29s is too rare for the TTL of 1m: surviving a pause of 7s and a failed renewal \
                needs 1m7s; renew every 20s";
    assert_eq!((advice.findings[0].to_string().as_str(), advice.recommended_renewal()), (text, secs(20.0)));
    // With an interval of a third, nothing changes: 40 + 15 + 0.001 + 3.75 fits.
    check_renewed(&renewed(60.0, 20.0), &paused(15), (60.0, 20.0), &[]);
    // 58 + 30 + 0.001 + 7.5; 3 * 37.5 s would be more.
    check_renewed(&renewed(60.0, 29.0), &paused(30), (96.0, 29.0), &["too_short"]);
    // 3 * (18 + 0.001 + 4.5) is less than 58 + 22.5 s.
    check_renewed(&renewed(60.0, 29.0), &paused(18), (68.0, 22.0), &["too_short"]);
}

/// A shorter TTL is possible if the lock is renewed more often. There is a conflict only if that
/// does not help either.
#[test]
fn a_shorter_interval_before_a_conflict() {
    let namespace =
        |ttl, every, slo| Namespace { takeover_slo: secs(slo), retry_every: secs(5.0), ..renewed(ttl, every) };
    // 40 + 5 + 0.001 + 1.25 does not fit into 40 s, but with an interval of 13 s it fits.
    let advice = check_renewed(&namespace(60.0, 20.0, 45.0), &paused(5), (40.0, 13.0), &["too_long"]);
    let text = advice.findings[0].to_string();
    assert!(
        text.ends_with("a TTL of at most 40s satisfies it and is long enough if the lock is renewed more often"),
        "{text}"
    );
    // The GC pause of `docs/ttl-advice.md`.
    check_renewed(&namespace(30.0, 10.0, 45.0), &margins(5000, 0.25), (38.0, 10.0), &["too_short"]);
    check_renewed(&namespace(30.0, 10.0, 40.0), &margins(5000, 0.25), (35.0, 8.5), &["too_short"]);
    // 22 + 0.001 + 5.5 needs 34.4 s, even with the shortest sensible interval.
    let findings = &["too_short", "conflict"];
    let advice = check_renewed(&namespace(30.0, 10.0, 38.0), &paused(22), (48.0, 10.0), findings);
    let text = "conflict: the SLO allows a TTL of at most 33s, the locks need at least 34.4s, even if they are renewed \
                more often; shorten the pauses of the owners, release locks on shutdown so that only crashes wait, \
                or allow 39.4s instead of 38s";
    assert_eq!(advice.findings[1].to_string(), text);
}

#[test]
fn renewals_that_are_rare_missing_or_unconfigured() {
    // The work ends before the first renewal is due.
    let evidence = holds(5000, |p| p);
    let expected = |model, ttl, renew_every, findings| Expected {
        model,
        ttl: Some(ttl),
        renew_every,
        confidence: Confidence::High,
        findings,
    };
    let advice = check(&renewed(60.0, 20.0), &evidence, expected(Model::Held, 60.0, Some(20.0), &[]));
    assert!(advice.notes.contains(&Note::RarelyRenewed));
    // The work is longer and nobody renews: the TTL must be that of a lock that is not renewed.
    let findings = &["too_short", "never_renewed"];
    check(&renewed(60.0, 20.0), &holds(5000, |_| 58.0), expected(Model::Held, 76.0, Some(20.0), findings));
    // Renewals are not configured, but they are observed.
    let evidence = Evidence { holds: drawn::<HoldBounds>(5000, |_| 300.0), ..margins(5000, 0.66) };
    let advice = check(&item(30.0), &evidence, expected(Model::Renewed, 30.0, Some(10.0), &[]));
    assert!(advice.notes.contains(&Note::RenewedUnconfigured { n_renewals: 5000 }));
    assert_eq!(advice.may_fail, Some(1));
    let few = Expected {
        model: Model::Renewed,
        ttl: Some(60.0),
        renew_every: Some(20.0),
        confidence: Confidence::None,
        findings: &[],
    };
    check(&renewed(60.0, 20.0), &margins(99, 0.66), few);
}

#[test]
fn renewing_too_close_to_the_ttl() {
    check_renewed(&renewed(60.0, 29.0), &margins(5000, 0.5), (60.0, 29.0), &[]);
    let advice = check_renewed(&renewed(60.0, 30.0), &margins(5000, 0.5), (60.0, 20.0), &["renewal_too_rare"]);
    assert_eq!(advice.may_fail, Some(1));
    let text = "renewing every 30s is too close to the TTL of 60s: if one renewal fails the lock is lost";
    assert_eq!(advice.findings[0].to_string(), text.replace("60s", "1m"));
}

/// Cordum's scheduler: TTL of 60 s, renewed every 20 s, gives up after 3 failures.
#[test]
fn a_fence_that_falls_after_expiry() {
    let fencing = |every, budget| Namespace {
        on_renewal_failure: OnRenewalFailure::Fence,
        renewal_failure_budget: budget,
        ..renewed(60.0, every)
    };
    let evidence = margins(5000, 0.66);
    let advice = check_renewed(&fencing(20.0, Some(3)), &evidence, (60.0, 15.0), &["fence_after_expiry"]);
    let text = "the owner fences itself after the lock expired: 3 failed renewals, 20s apart, take 1m, but the TTL \
         is 1m; renew \
         every 15s or give up after 2 failures";
    assert_eq!(advice.findings[0].to_string(), text);
    let text = |every, budget| advise(&fencing(every, Some(budget)), &evidence).findings[0].to_string();
    assert!(text(20.0, 6).ends_with("; renew every 8.5s or give up after 2 failures"), "{}", text(20.0, 6));
    assert!(text(15.0, 4).ends_with("; renew every 12s or give up after 3 failures"), "{}", text(15.0, 4));
    check_renewed(&fencing(20.0, Some(2)), &evidence, (60.0, 20.0), &[]);
    check_renewed(&fencing(15.0, Some(3)), &evidence, (60.0, 15.0), &[]);
    let advice = check_renewed(&fencing(20.0, None), &evidence, (60.0, 20.0), &[]);
    assert!(advice.notes.contains(&Note::BudgetUnknown));
    // This finding needs no samples.
    let advice = advise(&fencing(20.0, Some(3)), &Evidence::default());
    assert!(matches!(advice.findings[..], [AdviceFinding::FenceAfterExpiry { .. }]), "{advice:?}");
}

#[test]
fn a_ttl_that_is_too_long_for_the_takeover() {
    let namespace = |slo| Namespace { takeover_slo: secs(slo), retry_every: secs(5.0), ..item(60.0) };
    check_held(&namespace(65.0), &holds(5000, |p| p), 60.0, &[]);
    let advice = check_held(&namespace(45.0), &holds(5000, |p| p), 40.0, &["too_long"]);
    let text = "too long for the takeover SLO of 45s: a dead owner's lock is taken over after up to 1m5s (TTL \
         and a retry after 5s), 20s too late; a TTL of at most 40s satisfies it and is long enough";
    assert_eq!(advice.findings[0].to_string(), text);
    // Whether 40 s is enough is unknown, so the TTL stays: correctness is more important than a
    // fast takeover.
    let advice = advise(&namespace(45.0), &holds(50, |p| p));
    assert_eq!((advice.ttl, advice.findings.len()), (secs(60.0), 1));
    assert!(advice.findings[0].to_string().ends_with("whether that is long enough is not known yet"));
    let advice = check_held(&namespace(4.0), &holds(5000, |p| p), 60.0, &["too_long"]);
    assert!(
        advice.findings[0]
            .to_string()
            .ends_with("no TTL can satisfy it, because the retry alone takes longer: retry more often")
    );
}

#[test]
fn an_slo_that_wants_less_than_the_work_needs() {
    let namespace = Namespace { takeover_slo: secs(20.0), retry_every: secs(5.0), ..item(60.0) };
    let advice = check_held(&namespace, &holds(5000, |_| 35.0), 60.0, &["too_long", "conflict"]);
    let text = "conflict: the SLO allows a TTL of at most 15s, the locks need at least 37.5s; renew the lock \
         (its TTL then follows from pauses, not from the work), split the work, or allow 42.5s instead of 20s";
    assert_eq!(advice.findings[1].to_string(), text);
    // Too short for the work and still too long for the SLO.
    let namespace = Namespace { ttl: secs(30.0), ..namespace };
    check_held(&namespace, &holds(5000, |_| 29.0), 38.0, &["too_short", "not_renewed", "too_long", "conflict"]);
    // The TTL satisfies the SLO, so it is too short for the work.
    let namespace = Namespace { ttl: secs(15.0), ..namespace };
    check_held(&namespace, &holds(5000, |_| 14.5), 19.0, &["too_short", "not_renewed", "conflict"]);
}

#[test]
fn a_loop_is_judged_by_its_takeover() {
    let reconciler =
        |slo| Namespace { style: Style::Loop, retry_every: secs(30.0), takeover_slo: secs(slo), ..item(60.0) };
    // Every lock of the loop expires.
    let evidence = Evidence { expirations: 1000, holds: drawn::<HoldBounds>(1000, |_| 60.0), ..seen() };
    let expected = |ttl, findings| Expected {
        model: Model::Loop,
        ttl: Some(ttl),
        renew_every: None,
        confidence: Confidence::None,
        findings,
    };
    let advice = check(&reconciler(120.0), &evidence, expected(60.0, &[]));
    assert_eq!(advice.takeover.map(|takeover| takeover.bound), secs(90.0));
    assert_eq!((advice.notes.as_slice(), advice.recommended_ttl()), (&[][..], None));
    check(&reconciler(75.0), &evidence, expected(45.0, &["too_long"]));
    let early = Evidence { early_releases: 2, takeovers: 9, takeovers_beyond_slo: 3, ..evidence };
    let advice = advise(&reconciler(120.0), &early);
    assert_eq!(advice.notes, [Note::ReleasedEarly { count: 2 }, Note::TookLonger { count: 3, of: 9 }]);
}

#[test]
fn jitter_is_what_redis_takes_to_answer() {
    let slow =
        Evidence { replies: drawn::<ReplyBounds>(1000, |p| if p < 0.9 { 0.001 } else { 2.0 }), ..holds(5000, |_| 7.0) };
    let without_ttl = Namespace { ttl: None, ..item(1.0) };
    // 8 + 2.5 + 2.
    check_held(&without_ttl, &slow, 13.0, &[]);
    let unknown = Evidence { replies: BucketedSample::default(), ..slow };
    let advice = check_held(&without_ttl, &unknown, 11.0, &[]);
    assert!(advice.notes.contains(&Note::JitterAssumed));
}

/// Without a TTL in the configuration, the shortest hold that expired stands for the TTL.
#[test]
fn locks_of_an_unknown_ttl_that_ran_out() {
    let without_ttl = Namespace { ttl: None, ..item(1.0) };
    let evidence = with_lost(holds(5000, |p| 5.0 * p), 200, 29.0);
    // 25 + 0.001 + 6.25.
    let advice = check_held(&without_ttl, &evidence, 32.0, &[]);
    assert!(advice.is_step);
}

/// An assumed jitter of one second does not make an interval of half a second wrong.
#[test]
fn assumptions_find_no_fault() {
    let advice = advise(&renewed(2.0, 0.5), &Evidence::default());
    assert_eq!((advice.findings.as_slice(), advice.may_fail), (&[][..], Some(2)));
}
