//! Checks what events add to the counters. Times and locks are made up.

use super::*;
use crate::model::counters;
use crate::model::label::Label;
use crate::model::log_event::RuleId;

const JOBS: NamespaceId = NamespaceId(0);
const OTHER: NamespaceId = NamespaceId(1);
const LOST: Happening = Happening::ReleaseFailed(Reason::NotOwned);
const LOST_AT_RENEWAL: Happening = Happening::RenewalFailed(Reason::NotOwned);

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

fn event(happening: Happening, lock: &str) -> LogEvent {
    let lock = Some(lock.to_owned()).filter(|lock| !lock.is_empty());
    LogEvent {
        offset: 0,
        time: None,
        waited: Duration::ZERO,
        namespace: JOBS,
        lock,
        happening,
        joins: None,
        rule: RuleId(0),
    }
}

/// Applies each event to the lock `a` at its time in ms. Compares the result with
/// `event/operation`, or with the empty string if nothing is counted.
fn check(lines: &[(TimeMs, Happening, &str)], totals: &str) {
    let mut ledger = ledger();
    for (at, happening, counted) in lines {
        let found = ledger.apply(*at, *at, &event(happening.clone(), "a"));
        let found = found.map_or(String::new(), |found| format!("{}/{}", found.event, found.operation.unwrap_or("-")));
        assert_eq!(&found, counted, "{happening:?} at {at}");
    }
    assert_eq!(shown(&ledger, JOBS), totals);
}

/// Lists every counter above 0.
fn shown(ledger: &Ledger, namespace: NamespaceId) -> String {
    fn tally<L: Label>(name: &str, tally: &counters::Tally<L>) -> Vec<String> {
        let nonzero = tally.iter().filter(|(_, count)| *count > 0);
        nonzero.map(|(label, count)| format!("{name}/{}={count}", label.as_str())).collect()
    }
    let counters = ledger.counters(&ledger.namespaces()[usize::from(namespace.0)]);
    let mut parts = tally("not_owned", &counters.not_owned);
    parts.extend(tally("renewal", &counters.renewal_failures));
    parts.extend(tally("release", &counters.release_failures));
    parts.extend(tally("acquire", &counters.acquire_failures));
    parts.extend(tally("conflict", &counters.conflicting_writes));
    for (name, count) in [("abandoned", counters.abandonments), ("unlocked", counters.unlocked_work)] {
        parts.extend((count > 0).then(|| format!("{name}={count}")));
    }
    parts.join(" ")
}

#[test]
fn lines_within_the_window_are_one_release() {
    let lines = [(0, LOST, "not_owned/release"), (1, LOST, ""), (2000, LOST, ""), (2001, LOST, "not_owned/release")];
    check(&lines, "not_owned/release=2 release/not_owned=2");
}

/// Without this, a lock that nobody can ever acquire would count as one failure.
#[test]
fn what_fails_again_and_again_counts_again_and_again() {
    let busy = || Happening::AcquireFailed(Reason::Busy);
    let lines: Vec<(TimeMs, Happening, &str)> = (0..10)
        .map(|second| (second * 1000, busy(), if second % 3 == 0 { "acquire_failed/acquire" } else { "" }))
        .collect();
    check(&lines, "acquire/busy=4");
}

#[test]
fn a_release_that_fails_and_is_then_found_lost_is_one_failure_and_one_loss() {
    let failed = Happening::ReleaseFailed(Reason::RedisUnavailable);
    let lines = [(0, failed, "release_failed/release"), (1900, LOST, "not_owned/release"), (1901, LOST, "")];
    check(&lines, "not_owned/release=1 release/redis_unavailable=1");
}

#[test]
fn a_loss_lasts_as_long_as_renewals_keep_finding_it() {
    let lines = [
        (0, LOST_AT_RENEWAL, "not_owned/renew"),
        (20_000, LOST_AT_RENEWAL, "renewal_failed/renew"),
        (50_000, LOST_AT_RENEWAL, "renewal_failed/renew"),
        (80_001, LOST_AT_RENEWAL, "not_owned/renew"),
    ];
    check(&lines, "not_owned/renew=2 renewal/not_owned=4");
}

#[test]
fn without_a_renewal_interval_the_usual_window_holds() {
    let mut ledger = ledger();
    for at in [0, 1000, 20_000] {
        ledger.apply(at, at, &LogEvent { namespace: OTHER, ..event(LOST_AT_RENEWAL, "a") });
    }
    assert_eq!(shown(&ledger, OTHER), "not_owned/renew=2 renewal/not_owned=2");
}

#[test]
fn giving_up_is_one_abandonment_and_one_more_failed_renewal() {
    let gave_up = Happening::Abandoned(Some(Reason::NotOwned));
    let lines = [
        (0, LOST_AT_RENEWAL, "not_owned/renew"),
        (20_000, LOST_AT_RENEWAL, "renewal_failed/renew"),
        (40_000, gave_up.clone(), "abandoned/renew"),
        (40_005, gave_up, ""),
        (40_010, Happening::Abandoned(None), ""),
    ];
    check(&lines, "not_owned/renew=1 renewal/not_owned=3 abandoned=1");
}

#[test]
fn an_unknown_operation_is_joined_with_a_known_one_in_both_orders() {
    let known = [(LOST, "release"), (LOST_AT_RENEWAL, "renew")];
    for (happening, operation) in known {
        let lost = format!("not_owned/{operation}");
        let totals = match operation {
            "release" => "not_owned/release=1 release/not_owned=1",
            _ => "not_owned/renew=1 renewal/not_owned=1",
        };
        check(&[(0, happening.clone(), &lost), (2000, Happening::NotOwned, "")], totals);
        let (failed, totals) = match operation {
            "release" => ("release_failed/release", "not_owned/unknown=1 release/not_owned=1"),
            _ => ("renewal_failed/renew", "not_owned/unknown=1 renewal/not_owned=1"),
        };
        let lines = [
            (0, Happening::NotOwned, "not_owned/unknown"),
            (2000, happening.clone(), failed),
            (2001, happening.clone(), ""),
            (2002, Happening::NotOwned, ""),
        ];
        check(&lines, totals);
    }
    let apart = [(0, LOST, "not_owned/release"), (2001, Happening::NotOwned, "not_owned/unknown")];
    check(&apart, "not_owned/release=1 not_owned/unknown=1 release/not_owned=1");
}

/// A library that warns about a busy lock and then raises an error that may be about a lost lock.
#[test]
fn an_unknown_operation_is_joined_with_an_acquisition_where_the_rule_says_so() {
    let total = |joins: Option<u64>, at: TimeMs| {
        let mut ledger = ledger();
        ledger.apply(0, 0, &event(Happening::AcquireFailed(Reason::Busy), "a"));
        let joins = joins.map(Duration::from_millis);
        ledger.apply(at, at, &LogEvent { joins, ..event(Happening::NotOwned, "a") });
        ledger.apply(at, at, &LogEvent { joins, ..event(Happening::NotOwned, "b") });
        shown(&ledger, JOBS)
    };
    assert_eq!(total(Some(1000), 1000), "not_owned/unknown=1 acquire/busy=1");
    assert_eq!(total(Some(1000), 1001), "not_owned/unknown=2 acquire/busy=1");
    assert_eq!(total(None, 0), "not_owned/unknown=2 acquire/busy=1");
}

#[test]
fn a_rule_may_ask_for_a_longer_window_but_not_for_a_shorter_one() {
    let retry = |joins: u64, at: TimeMs| {
        let mut ledger = ledger();
        let failed = Happening::ReleaseFailed(Reason::RedisUnavailable);
        ledger.apply(0, 0, &event(failed.clone(), "a"));
        let joins = Some(Duration::from_millis(joins));
        ledger.apply(at, at, &LogEvent { joins, ..event(failed, "a") });
        shown(&ledger, JOBS)
    };
    assert_eq!(retry(5000, 5000), "release/redis_unavailable=1");
    assert_eq!(retry(5000, 5001), "release/redis_unavailable=2");
    assert_eq!(retry(1, 2000), "release/redis_unavailable=1");
}

#[test]
fn a_longer_window_is_for_the_loss_too_and_for_its_own_line_only() {
    let mut ledger = ledger();
    let late = LogEvent { joins: Some(Duration::from_secs(5)), ..event(LOST, "a") };
    ledger.apply(0, 0, &event(LOST, "a"));
    assert_eq!(ledger.apply(4000, 4000, &late), None);
    ledger.apply(7000, 7000, &event(LOST, "a"));
    assert_eq!(shown(&ledger, JOBS), "not_owned/release=2 release/not_owned=2");
}

#[test]
fn a_release_a_renewal_and_an_acquisition_are_three_failures() {
    let down = Reason::RedisUnavailable;
    let lines = [
        (0, Happening::ReleaseFailed(down), "release_failed/release"),
        (0, Happening::RenewalFailed(down), "renewal_failed/renew"),
        (0, Happening::AcquireFailed(down), "acquire_failed/acquire"),
        (1, Happening::AcquireFailed(Reason::Busy), ""),
        (5, Happening::RenewalFailed(Reason::Canceled), ""),
    ];
    check(&lines, "renewal/redis_unavailable=1 release/redis_unavailable=1 acquire/redis_unavailable=1");
}

#[test]
fn unlocked_work_is_a_failed_acquisition_as_well() {
    let unlocked = Happening::UnlockedWork(Reason::RedisUnavailable);
    let lines = [
        (0, Happening::AcquireFailed(Reason::RedisUnavailable), "acquire_failed/acquire"),
        (1, unlocked.clone(), "unlocked_work/acquire"),
        (2, unlocked, ""),
    ];
    check(&lines, "acquire/redis_unavailable=1 unlocked=1");
}

#[test]
fn conflicts_are_joined_and_final_states_are_not() {
    let done = Happening::TerminalState { state: "DONE".to_owned(), may_follow: None };
    let stale = Happening::ConflictingWrite(ConflictKind::StaleWriteRejected);
    let lines = [
        (0, done.clone(), ""),
        (1, done.clone(), "duplicate_terminal_state/-"),
        (90_000_000, done, "duplicate_terminal_state/-"),
        (90_000_000, stale.clone(), "stale_write_rejected/-"),
        (90_000_001, stale, ""),
    ];
    check(&lines, "conflict/duplicate_terminal_state=2 conflict/stale_write_rejected=1");
}

#[test]
fn lines_without_a_known_lock_are_never_joined() {
    let mut ledger = ledger();
    for _ in 0..3 {
        assert!(ledger.apply(0, 0, &event(LOST, "")).is_some());
    }
    let state = Happening::TerminalState { state: "DONE".to_owned(), may_follow: None };
    assert_eq!(ledger.apply(0, 0, &event(state.clone(), "")), None);
    assert_eq!(ledger.apply(0, 0, &event(state, "")), None, "whose state it is nobody knows");
    assert_eq!(shown(&ledger, JOBS), "not_owned/release=3 release/not_owned=3");
}

#[test]
fn an_unknown_namespace_is_other() {
    let mut ledger = ledger();
    ledger.apply(0, 0, &LogEvent { namespace: NamespaceId(7), ..event(Happening::NotOwned, "a") });
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
    assert_eq!(shown(&after, JOBS), "not_owned/release=1 release/not_owned=1");
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
    assert_eq!(shown(&ledger, JOBS), "not_owned/renew=1 renewal/not_owned=2");
}
