//! Checks what events add to the counters. Times and locks are made up.

use super::*;
use crate::model::failure::{ConflictKind, FailureKind, Operation, Reason};
use crate::model::label::Label;
use crate::model::log_event::{RuleId, Statement};

const JOBS: NamespaceId = NamespaceId(0);
const OTHER: NamespaceId = NamespaceId(1);
const LOST: Failure = Failure::ReleaseFailed(Reason::NotOwned);
const LOST_AT_RENEWAL: Failure = Failure::RenewalFailed(Reason::NotOwned);

/// Lock namespaces `jobs` (renewed every 20 s) and `other`, with the default join window of 2 s.
fn ledger() -> Ledger {
    let namespace = |name: &str, renew_every: Option<u64>| {
        Arc::new(Namespace {
            name: name.to_owned(),
            severity: Default::default(),
            renew_every: renew_every.map(Duration::from_secs),
            ..Namespace::other()
        })
    };
    let namespaces = vec![namespace("jobs", Some(20)), namespace("other", None)];
    Ledger::new(namespaces, Duration::from_secs(2), Saved::default())
}

fn event(failure: Failure, lock: &str) -> LogEvent {
    stated(Statement::Failure(failure), lock)
}

fn stated(statement: Statement, lock: &str) -> LogEvent {
    let lock = Some(lock.to_owned()).filter(|lock| !lock.is_empty());
    LogEvent {
        offset: 0,
        end: 0,
        time: None,
        waited: Duration::ZERO,
        namespace: JOBS,
        lock,
        statement,
        joins: None,
        rule: RuleId(0),
    }
}

/// Applies each event to the lock `a` at its time in ms. Compares the result with
/// `event/operation`, or with the empty string if nothing is counted.
fn check(lines: &[(TimeMs, Failure, &str)], totals: &str) {
    let mut ledger = ledger();
    for (at, failure, counted) in lines {
        assert_eq!(&apply(&mut ledger, *at, &event(*failure, "a")), counted, "{failure:?} at {at}");
    }
    assert_eq!(shown(&ledger, JOBS), totals);
}

fn apply(ledger: &mut Ledger, at: TimeMs, event: &LogEvent) -> String {
    let counted = ledger.apply(at, at, event);
    counted.map_or(String::new(), |found| format!("{}/{}", found.event_name(), found.operation_name().unwrap_or("-")))
}

/// Lists every counter above 0.
fn shown(ledger: &Ledger, namespace: NamespaceId) -> String {
    let counters = ledger.counters(&ledger.namespaces()[usize::from(namespace.0)]);
    let series = FailureKind::ALL.iter().flat_map(|kind| counters.series(*kind));
    let counted = series.filter(|(_, count)| *count > 0).map(|(failure, count)| match failure.label_value() {
        Some(value) => format!("{}/{value}={count}", failure.kind()),
        None => format!("{}={count}", failure.kind()),
    });
    counted.collect::<Vec<_>>().join(" ")
}

#[test]
fn lines_within_the_window_are_one_release() {
    let lines = [(0, LOST, "not_owned/release"), (1, LOST, ""), (2000, LOST, ""), (2001, LOST, "not_owned/release")];
    check(&lines, "not_owned/release=2 release_failed/not_owned=2");
}

/// Without this, a lock that nobody can ever acquire would count as one failure.
#[test]
fn what_fails_again_and_again_counts_again_and_again() {
    let busy = || Failure::AcquireFailed(Reason::Busy);
    let lines: Vec<(TimeMs, Failure, &str)> = (0..10)
        .map(|second| (second * 1000, busy(), if second % 3 == 0 { "acquire_failed/acquire" } else { "" }))
        .collect();
    check(&lines, "acquire_failed/busy=4");
}

#[test]
fn a_release_that_fails_and_is_then_found_lost_is_one_failure_and_one_loss() {
    let failed = Failure::ReleaseFailed(Reason::RedisUnavailable);
    let lines = [(0, failed, "release_failed/release"), (1900, LOST, "not_owned/release"), (1901, LOST, "")];
    check(&lines, "not_owned/release=1 release_failed/redis_unavailable=1");
}

#[test]
fn a_loss_lasts_as_long_as_renewals_keep_finding_it() {
    let lines = [
        (0, LOST_AT_RENEWAL, "not_owned/renew"),
        (20_000, LOST_AT_RENEWAL, "renewal_failed/renew"),
        (50_000, LOST_AT_RENEWAL, "renewal_failed/renew"),
        (80_001, LOST_AT_RENEWAL, "not_owned/renew"),
    ];
    check(&lines, "not_owned/renew=2 renewal_failed/not_owned=4");
}

#[test]
fn without_a_renewal_interval_the_usual_window_holds() {
    let mut ledger = ledger();
    for at in [0, 1000, 20_000] {
        ledger.apply(at, at, &LogEvent { namespace: OTHER, ..event(LOST_AT_RENEWAL, "a") });
    }
    assert_eq!(shown(&ledger, OTHER), "not_owned/renew=2 renewal_failed/not_owned=2");
}

#[test]
fn giving_up_is_one_abandonment_and_one_more_failed_renewal() {
    let gave_up = Failure::Abandoned(Some(Reason::NotOwned));
    let lines = [
        (0, LOST_AT_RENEWAL, "not_owned/renew"),
        (20_000, LOST_AT_RENEWAL, "renewal_failed/renew"),
        (40_000, gave_up, "abandoned/renew"),
        (40_005, gave_up, ""),
        (40_010, Failure::Abandoned(None), ""),
    ];
    check(&lines, "not_owned/renew=1 renewal_failed/not_owned=3 abandoned=1");
}

#[test]
fn an_unknown_operation_is_joined_with_a_known_one_in_both_orders() {
    let known = [(LOST, "release"), (LOST_AT_RENEWAL, "renew")];
    for (failure, operation) in known {
        let lost = format!("not_owned/{operation}");
        let totals = match operation {
            "release" => "not_owned/release=1 release_failed/not_owned=1",
            _ => "not_owned/renew=1 renewal_failed/not_owned=1",
        };
        check(&[(0, failure, &lost), (2000, Failure::NotOwned(Operation::Unknown), "")], totals);
        let (failed, totals) = match operation {
            "release" => ("release_failed/release", "not_owned/unknown=1 release_failed/not_owned=1"),
            _ => ("renewal_failed/renew", "not_owned/unknown=1 renewal_failed/not_owned=1"),
        };
        let lines = [
            (0, Failure::NotOwned(Operation::Unknown), "not_owned/unknown"),
            (2000, failure, failed),
            (2001, failure, ""),
            (2002, Failure::NotOwned(Operation::Unknown), ""),
        ];
        check(&lines, totals);
    }
    let apart = [(0, LOST, "not_owned/release"), (2001, Failure::NotOwned(Operation::Unknown), "not_owned/unknown")];
    check(&apart, "not_owned/release=1 not_owned/unknown=1 release_failed/not_owned=1");
}

/// A library that warns about a busy lock and then raises an error that may be about a lost lock.
#[test]
fn an_unknown_operation_is_joined_with_an_acquisition_where_the_rule_says_so() {
    let total = |joins: Option<u64>, at: TimeMs| {
        let mut ledger = ledger();
        ledger.apply(0, 0, &event(Failure::AcquireFailed(Reason::Busy), "a"));
        let joins = joins.map(Duration::from_millis);
        ledger.apply(at, at, &LogEvent { joins, ..event(Failure::NotOwned(Operation::Unknown), "a") });
        ledger.apply(at, at, &LogEvent { joins, ..event(Failure::NotOwned(Operation::Unknown), "b") });
        shown(&ledger, JOBS)
    };
    assert_eq!(total(Some(1000), 1000), "not_owned/unknown=1 acquire_failed/busy=1");
    assert_eq!(total(Some(1000), 1001), "not_owned/unknown=2 acquire_failed/busy=1");
    assert_eq!(total(None, 0), "not_owned/unknown=2 acquire_failed/busy=1");
}

#[test]
fn a_rule_may_ask_for_a_longer_window_but_not_for_a_shorter_one() {
    let retry = |joins: u64, at: TimeMs| {
        let mut ledger = ledger();
        let failed = Failure::ReleaseFailed(Reason::RedisUnavailable);
        ledger.apply(0, 0, &event(failed, "a"));
        let joins = Some(Duration::from_millis(joins));
        ledger.apply(at, at, &LogEvent { joins, ..event(failed, "a") });
        shown(&ledger, JOBS)
    };
    assert_eq!(retry(5000, 5000), "release_failed/redis_unavailable=1");
    assert_eq!(retry(5000, 5001), "release_failed/redis_unavailable=2");
    assert_eq!(retry(1, 2000), "release_failed/redis_unavailable=1");
}

#[test]
fn a_longer_window_is_for_the_loss_too_and_for_its_own_line_only() {
    let mut ledger = ledger();
    let late = LogEvent { joins: Some(Duration::from_secs(5)), ..event(LOST, "a") };
    ledger.apply(0, 0, &event(LOST, "a"));
    assert_eq!(ledger.apply(4000, 4000, &late), None);
    ledger.apply(7000, 7000, &event(LOST, "a"));
    assert_eq!(shown(&ledger, JOBS), "not_owned/release=2 release_failed/not_owned=2");
}

#[test]
fn a_release_a_renewal_and_an_acquisition_are_three_failures() {
    let down = Reason::RedisUnavailable;
    let lines = [
        (0, Failure::ReleaseFailed(down), "release_failed/release"),
        (0, Failure::RenewalFailed(down), "renewal_failed/renew"),
        (0, Failure::AcquireFailed(down), "acquire_failed/acquire"),
        (1, Failure::AcquireFailed(Reason::Busy), ""),
        (5, Failure::RenewalFailed(Reason::Canceled), ""),
    ];
    check(
        &lines,
        "renewal_failed/redis_unavailable=1 release_failed/redis_unavailable=1 acquire_failed/redis_unavailable=1",
    );
}

#[test]
fn unlocked_work_is_a_failed_acquisition_as_well() {
    let unlocked = Failure::UnlockedWork(Reason::RedisUnavailable);
    let lines = [
        (0, Failure::AcquireFailed(Reason::RedisUnavailable), "acquire_failed/acquire"),
        (1, unlocked, "unlocked_work/acquire"),
        (2, unlocked, ""),
    ];
    check(&lines, "acquire_failed/redis_unavailable=1 unlocked_work=1");
}

#[test]
fn conflicts_are_joined_and_final_states_are_not() {
    let mut ledger = ledger();
    let done = stated(Statement::FinalState { state: "DONE".to_owned(), may_follow: None }, "a");
    let stale = event(Failure::ConflictingWrite(ConflictKind::StaleWriteRejected), "a");
    for (at, event, counted) in [
        (0, &done, ""),
        (1, &done, "duplicate_terminal_state/-"),
        (90_000_000, &done, "duplicate_terminal_state/-"),
        (90_000_000, &stale, "stale_write_rejected/-"),
        (90_000_001, &stale, ""),
    ] {
        assert_eq!(apply(&mut ledger, at, event), counted, "{event:?} at {at}");
    }
    let totals = "conflicting_write/duplicate_terminal_state=2 conflicting_write/stale_write_rejected=1";
    assert_eq!(shown(&ledger, JOBS), totals);
}

#[test]
fn lines_without_a_known_lock_are_never_joined() {
    let mut ledger = ledger();
    for _ in 0..3 {
        assert!(ledger.apply(0, 0, &event(LOST, "")).is_some());
    }
    let state = stated(Statement::FinalState { state: "DONE".to_owned(), may_follow: None }, "");
    assert_eq!(ledger.apply(0, 0, &state), None);
    assert_eq!(ledger.apply(0, 0, &state), None, "whose state it is nobody knows");
    assert_eq!(shown(&ledger, JOBS), "not_owned/release=3 release_failed/not_owned=3");
}

#[test]
fn an_unknown_namespace_is_other() {
    let mut ledger = ledger();
    ledger.apply(0, 0, &LogEvent { namespace: NamespaceId(7), ..event(Failure::NotOwned(Operation::Unknown), "a") });
    assert_eq!(shown(&ledger, OTHER), "not_owned/unknown=1");
}

#[test]
fn what_is_saved_goes_on_where_it_was() {
    let mut before = ledger();
    before.apply(0, 0, &event(LOST, "a"));
    let saved = serde_json::to_string(before.saved()).unwrap();
    assert!(!saved.contains("\"a\""), "no ids in the file: {saved}");
    let loaded: Saved = serde_json::from_str(&saved).unwrap();
    assert_eq!(&loaded, before.saved());
    let mut after = Ledger::new(before.namespaces().to_vec(), Duration::from_secs(2), loaded);
    assert_eq!(after.apply(2000, 2000, &event(LOST, "a")), None);
    assert_eq!(shown(&after, JOBS), "not_owned/release=1 release_failed/not_owned=1");
}

#[test]
fn tidying_keeps_what_the_next_renewal_needs() {
    let mut namespaces = ledger().namespaces().to_vec();
    let jobs = Namespace { renew_every: Some(Duration::from_secs(300)), ..Namespace::clone(&namespaces[0]) };
    namespaces[0] = Arc::new(jobs);
    let mut ledger = Ledger::new(namespaces, Duration::from_secs(2), Saved::default());
    ledger.apply(0, 0, &event(LOST_AT_RENEWAL, "a"));
    ledger.tidy(300_000);
    ledger.apply(300_000, 300_000, &event(LOST_AT_RENEWAL, "a"));
    assert_eq!(shown(&ledger, JOBS), "not_owned/renew=1 renewal_failed/not_owned=2");
}
