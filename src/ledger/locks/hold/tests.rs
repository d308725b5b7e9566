//! The state of one lock, sighting by sighting. Owners are numbers, and times are made up, in ms.

use super::*;
use crate::model::sighting::{KeyState, OwnerHasher};

/// One hasher for all tests of a thread, because each hasher has a random secret.
fn owner(number: u8) -> OwnerHash {
    thread_local!(static HASHER: OwnerHasher = OwnerHasher::new());
    HASHER.with(|hasher| hasher.hash(&[number]))
}

const WATCHED: SightingContext = SightingContext {
    watching: true,
    baseline: true,
    doubtful: false,
    failover: false,
    flushed: false,
    evicted: None,
    pass_started: 0,
    ttl: None,
    renewal_changes_owner: false,
    acquired_with_nx: false,
    may_be_vacant: false,
};
const NX: SightingContext = SightingContext { acquired_with_nx: true, ..WATCHED };
const ROTATING: SightingContext = SightingContext { renewal_changes_owner: true, ..WATCHED };
const SCANNED: SightingContext = SightingContext { watching: false, ..WATCHED };
const DOUBTFUL: SightingContext = SightingContext { doubtful: true, ..WATCHED };
const FLUSHED: SightingContext = SightingContext { flushed: true, ..DOUBTFUL };
const FAILED_OVER: SightingContext = SightingContext { doubtful: true, failover: true, ..WATCHED };

/// A read at time `at`, caused by `pushes` pushes just before it, on a link that was caught up 10
/// ms ago.
fn seen(at: TimeMs, pushes: u16) -> Sighting {
    let until = if pushes > 0 { at } else { at + 1 };
    Sighting {
        key: "k".into(),
        sent: at,
        received: at + 1,
        since: Some(at - 10),
        until,
        pushes,
        first_push_may_be_old: false,
        missed: false,
        sight: KeyState::Absent,
    }
}

fn old(sighting: Sighting) -> Sighting {
    Sighting { first_push_may_be_old: true, ..sighting }
}

fn missed(sighting: Sighting) -> Sighting {
    Sighting { missed: true, ..sighting }
}

/// A read without tracking: a change may have happened at any time since the last read.
fn scan(at: TimeMs) -> Sighting {
    Sighting { since: None, ..seen(at, 0) }
}

fn held(number: u8, ttl_ms: TimeMs) -> Option<Held> {
    Some(Held { owner: Some(owner(number)), ttl_ms: Some(ttl_ms), fence: None })
}

const ABSENT: Option<Held> = None;

fn shown(transition: &Transition) -> String {
    match transition {
        Transition::ShortHold { lasted, .. } => {
            lasted.map_or("short".to_owned(), |lasted| format!("short released after {lasted}"))
        }
        Transition::Acquired { at, .. } => at.map_or("acquired".to_owned(), |at| format!("acquired at {at}")),
        Transition::Ended { ending, at, lasted, .. } => {
            let lasted = lasted.map_or(String::new(), |lasted| format!(" after {lasted}"));
            format!("{ending:?} at {at}{lasted}").to_lowercase()
        }
        Transition::Renewed { margin, .. } => {
            let margin = margin.map_or(String::new(), |margin| format!(" margin {margin:.2}"));
            format!("renewed{margin}")
        }
        Transition::ReplacedUnseen => "replaced unseen".to_owned(),
    }
}

type Step = (SightingContext, Sighting, Option<Held>, &'static str);

/// Applies the steps to one lock and compares the transitions of each step.
fn live(steps: &[Step]) -> Option<Hold> {
    let mut life = None;
    for (context, sighting, held, expected) in steps {
        let mut transitions = Vec::new();
        life = infer(life.as_ref(), held.as_ref(), sighting, context, &mut transitions);
        let found: Vec<String> = transitions.iter().map(shown).collect();
        assert_eq!(found.join(", "), *expected, "at {} in {steps:#?}", sighting.sent);
    }
    life
}

/// A lock of owner 1 with a TTL of 10 s, acquired at 1000, and one more step.
fn then(context: SightingContext, sighting: Sighting, held_now: Option<Held>, expected: &'static str) {
    let acquired = (WATCHED, seen(1000, 1), held(1, 10_000), "acquired at 1000");
    live(&[acquired, (context, sighting, held_now, expected)]);
}

#[test]
fn gone_before_its_deadline_is_released_and_at_it_expired() {
    then(WATCHED, seen(3000, 1), ABSENT, "released at 3000 after 2000");
    then(WATCHED, seen(10_990, 1), ABSENT, "released at 10990 after 9990");
    then(WATCHED, seen(11_010, 1), ABSENT, "expired at 11002 after 10002");
    then(WATCHED, seen(11_300, 1), ABSENT, "expired at 11002 after 10002");
    // The read itself made Redis remove the key.
    then(WATCHED, seen(11_002, 0), ABSENT, "expired at 11002 after 10002");
    then(WATCHED, Sighting { since: Some(5000), ..seen(11_002, 0) }, ABSENT, "expired at 11002 after 10002");
}

/// A client that finds the lock expired acquires it in the same step, and Redis announces both
/// changes together.
#[test]
fn what_follows_an_expiry_is_another_hold() {
    let expired = "expired at 11002 after 10002, short released after 10";
    then(WATCHED, seen(11_300, 2), ABSENT, expired);
    then(WATCHED, seen(11_300, 4), ABSENT, expired);
    then(WATCHED, old(seen(11_300, 2)), ABSENT, "expired at 11002 after 10002");
    // A renewal and a release, or an expiration and another hold.
    then(WATCHED, Sighting { since: Some(10_900), ..seen(11_100, 2) }, ABSENT, "unknown at 11100");
}

#[test]
fn what_redis_may_have_evicted_is_not_released() {
    let evicted = |at: TimeMs| SightingContext { evicted: Some(at), ..WATCHED };
    then(evicted(3000), seen(3000, 1), ABSENT, "unknown at 3000");
    then(evicted(2990), seen(3000, 1), ABSENT, "unknown at 3000");
    then(evicted(2989), seen(3000, 1), ABSENT, "released at 3000 after 2000");
    then(evicted(11_300), seen(11_300, 1), ABSENT, "expired at 11002 after 10002");
    then(SightingContext { evicted: Some(1500), ..SCANNED }, scan(3000), ABSENT, "unknown at 3001");
}

#[test]
fn what_a_stalled_link_tells_late_is_unknown() {
    let since = |since, sighting| Sighting { since: Some(since), ..sighting };
    then(WATCHED, since(9000, seen(12_000, 1)), ABSENT, "unknown at 12000");
    then(WATCHED, since(10_990, seen(12_000, 1)), ABSENT, "unknown at 12000");
    then(WATCHED, since(10_990, seen(11_230, 1)), ABSENT, "expired at 11002 after 10002");
    then(WATCHED, since(11_020, seen(16_000, 1)), ABSENT, "expired at 11002 after 10002");
    // The read waited until after the deadline, and the push was not about the end.
    then(WATCHED, Sighting { received: 11_020, ..seen(10_900, 1) }, ABSENT, "unknown at 10900");
    // The next owner may have overwritten the lock, and its own lock may have expired.
    then(WATCHED, since(1500, seen(9000, 1)), ABSENT, "unknown at 9000");
    // The lock may have expired.
    live(&[(WATCHED, since(1000, seen(6000, 2)), ABSENT, "short")]);
    let short_ttl = SightingContext { ttl: Some(100), ..WATCHED };
    live(&[(short_ttl, since(1000, seen(1100, 2)), ABSENT, "short")]);
}

#[test]
fn nothing_is_guessed_after_an_interruption() {
    then(DOUBTFUL, seen(3000, 1), ABSENT, "unknown at 3000");
    then(FAILED_OVER, seen(3000, 1), ABSENT, "lostinfailover at 3000");
    then(DOUBTFUL, seen(3000, 0), held(2, 10_000), "unknown at 3001, replaced unseen");
    then(FAILED_OVER, seen(3000, 0), held(2, 10_000), "lostinfailover at 3001, replaced unseen");
    then(DOUBTFUL, seen(3000, 3), held(1, 10_000), "");
    then(DOUBTFUL, seen(3000, 0), held(1, 8_000), "");
}

/// The flush may have been one of another database.
#[test]
fn after_a_flush_only_the_locks_from_before_are_in_doubt() {
    then(FLUSHED, seen(3000, 0), ABSENT, "flushed at 3001");
    then(FLUSHED, seen(3000, 1), ABSENT, "unknown at 3000");
    then(FLUSHED, seen(12_000, 0), ABSENT, "unknown at 12001");
    then(FLUSHED, seen(3000, 1), held(1, 10_000), "");
    then(FLUSHED, seen(3000, 1), held(2, 10_000), "unknown at 3000, acquired at 3000");
    then(FLUSHED, seen(3000, 0), held(2, 10_000), "flushed at 3001, acquired at 3001");
}

#[test]
fn without_a_ttl_only_a_release_ends_it() {
    let forever = Some(Held { owner: Some(owner(1)), ttl_ms: None, fence: None });
    let acquired = (WATCHED, seen(1000, 1), forever.clone(), "acquired at 1000");
    live(&[acquired.clone(), (WATCHED, seen(9000, 1), ABSENT, "released at 9000 after 8000")]);
    live(&[acquired.clone(), (DOUBTFUL, seen(9000, 1), ABSENT, "unknown at 9000")]);
    live(&[acquired.clone(), (SCANNED, scan(9000), ABSENT, "unknown at 9001")]);
    live(&[acquired, (WATCHED, seen(9000, 2), held(2, 10), "unknown at 9000, acquired at 9000")]);
    then(WATCHED, seen(3000, 1), forever, "");
}

#[test]
fn a_later_deadline_is_a_renewal() {
    then(WATCHED, seen(4000, 1), held(1, 10_000), "renewed margin 0.70");
    then(WATCHED, seen(10_000, 1), held(1, 10_000), "renewed margin 0.10");
    // Or released, and acquired again with the same token.
    then(WATCHED, seen(4000, 3), held(1, 10_000), "");
    then(WATCHED, old(seen(4000, 1)), held(1, 10_000), "renewed margin 0.70");
    then(WATCHED, seen(4000, 0), held(1, 10_000), "renewed margin 0.70");
    // A shorter TTL than before, and a deadline that moved only by clock drift.
    then(WATCHED, seen(4000, 1), held(1, 2000), "");
    then(WATCHED, seen(4000, 1), held(1, 7008), "");
    then(WATCHED, seen(4000, 1), held(1, 7010), "renewed margin 1.00");
    // An owner that cannot be read counts as the same owner, as long as the lock cannot have ended
    // in between.
    let unreadable = Some(Held { owner: None, ttl_ms: Some(10_000), fence: None });
    then(WATCHED, seen(4000, 1), unreadable.clone(), "renewed margin 0.70");
    let acquired = (WATCHED, seen(1000, 1), unreadable.clone(), "acquired at 1000");
    live(&[acquired, (WATCHED, seen(4000, 2), unreadable, "")]);
}

#[test]
fn a_deadline_is_narrowed_by_each_read() {
    let slow = |sent, received, ttl| (WATCHED, Sighting { received, ..seen(sent, 0) }, held(1, ttl), "");
    let life = live(&[
        (
            SightingContext { baseline: false, ..WATCHED },
            Sighting { received: 1100, ..seen(1000, 0) },
            held(1, 5000),
            "",
        ),
        slow(2000, 2010, 4050),
        slow(3000, 3200, 3040),
    ]);
    assert_eq!(life.unwrap().deadline, Some(Deadline::new(6050, 6061)));
}

#[test]
fn clocks_that_drift_renew_nothing() {
    for parts_per_million in [-500, 500] {
        let mut steps = vec![(WATCHED, seen(0, 1), held(1, 3_600_000), "acquired at 0")];
        for at in (15_000..3_500_000).step_by(15_000) {
            let drifted = 3_600_000 - at + at * parts_per_million / 1_000_000;
            steps.push((WATCHED, seen(at, 0), held(1, drifted), ""));
        }
        live(&steps);
        // Read once at the begin and once at the deadline: the drift of an hour.
        let drifted = 3_600_000 * parts_per_million / 1_000_000;
        let acquired = (WATCHED, seen(0, 1), held(1, 3_600_000), "acquired at 0");
        match parts_per_million > 0 {
            true => live(&[acquired, (WATCHED, seen(3_600_010, 0), held(1, drifted), "")]),
            false => {
                live(&[acquired, (WATCHED, seen(3_600_000 + drifted, 1), ABSENT, "expired at 3598200 after 3598200")])
            }
        };
    }
}

#[test]
fn an_owner_that_comes_back_after_its_time_has_acquired_again() {
    let late = Sighting { since: Some(11_100), ..seen(11_200, 2) };
    then(WATCHED, late, held(1, 10_000), "expired at 11002 after 10002, acquired at 11200");
    // Renewed just in time, or acquired again.
    let early = Sighting { since: Some(10_900), ..seen(11_200, 2) };
    then(WATCHED, early, held(1, 10_000), "");
}

#[test]
fn another_owner() {
    then(WATCHED, seen(3000, 1), held(2, 10_000), "takenover at 3000 after 2000, acquired at 3000");
    then(WATCHED, seen(3000, 0), held(2, 10_000), "takenover at 3001 after 2001, acquired at 3001");
    // Released, or renewed and overwritten.
    then(WATCHED, seen(3000, 2), held(2, 10_000), "unknown at 3000, acquired at 3000");
    then(WATCHED, old(seen(3000, 2)), held(2, 10_000), "unknown at 3000, acquired at 3000");
    then(WATCHED, seen(11_100, 2), held(2, 10_000), "expired at 11002 after 10002, acquired at 11100");
    then(WATCHED, seen(11_100, 1), held(2, 10_000), "expired at 11002 after 10002, acquired at 11100");
    let stalled = Sighting { since: Some(9000), ..seen(12_000, 2) };
    then(WATCHED, stalled, held(2, 10_000), "unknown at 12000, acquired at 12000");
}

/// If a release and the next acquisition fall into one turn, one push announces both.
#[test]
fn a_lock_acquired_with_nx_is_released_before_the_next_owner_has_it() {
    let released = "released at 3000 after 2000, acquired at 3000";
    then(NX, seen(3000, 1), held(2, 10_000), "handedover at 3000 after 2000, acquired at 3000");
    then(NX, seen(3000, 2), held(2, 10_000), released);
    then(NX, seen(3000, 3), held(2, 10_000), released);
    then(NX, seen(3000, 0), held(2, 10_000), "handedover at 3001 after 2001, acquired at 3001");
    then(NX, seen(11_100, 1), held(2, 10_000), "expired at 11002 after 10002, acquired at 11100");
    then(NX, Sighting { since: Some(9000), ..seen(12_000, 2) }, held(2, 10_000), "unknown at 12000, acquired at 12000");
    // Certainly released, but at an unknown time.
    then(NX, Sighting { since: Some(1500), ..seen(9000, 2) }, ABSENT, "released at 9000");
    let evicted = SightingContext { evicted: Some(2995), ..NX };
    then(evicted, seen(3000, 1), held(2, 10_000), "takenover at 3000 after 2000, acquired at 3000");
    let forever = Some(Held { owner: Some(owner(1)), ttl_ms: None, fence: None });
    let acquired = (NX, seen(1000, 1), forever, "acquired at 1000");
    live(&[acquired.clone(), (NX, seen(3000, 2), held(2, 10_000), released)]);
    let late = Sighting { since: Some(1500), ..seen(3000, 2) };
    live(&[acquired, (NX, late, held(2, 10_000), "unknown at 3000, acquired at 3000")]);
}

#[test]
fn a_new_token_may_be_a_renewal() {
    let rotating_nx = SightingContext { acquired_with_nx: true, ..ROTATING };
    for context in [ROTATING, rotating_nx] {
        let acquired = || (context, seen(1000, 1), held(1, 5000), "acquired at 1000");
        let renewed = || (context, seen(3000, 1), held(2, 5000), "renewed margin 0.60");
        let hold = live(&[acquired(), renewed(), (context, seen(4000, 1), held(3, 5000), "renewed margin 0.80")]);
        assert_eq!(hold.map(|hold| (hold.owner, hold.renewals, hold.began)), Some((Some(owner(3)), 2, 1000)));
        live(&[acquired(), renewed(), (context, seen(7000, 1), ABSENT, "released at 7000 after 6000")]);
        live(&[acquired(), (context, seen(7000, 1), held(2, 5000), "expired at 6002 after 5002, acquired at 7000")]);
        // Two renewals, or a release and an acquisition.
        let hold = live(&[acquired(), (context, seen(3000, 2), held(2, 5000), "unknown at 3000, replaced unseen")]);
        assert_eq!(hold.map(|hold| (hold.owner, hold.acquisition_seen)), Some((Some(owner(2)), false)));
        let doubtful = SightingContext { doubtful: true, ..context };
        live(&[acquired(), (doubtful, seen(3000, 1), held(2, 5000), "unknown at 3000, replaced unseen")]);
        let stalled = Sighting { since: Some(1500), ..seen(7000, 1) };
        live(&[acquired(), (context, stalled, held(2, 5000), "unknown at 7000, replaced unseen")]);
        let scanned = SightingContext { watching: false, ..context };
        live(&[
            (scanned, scan(1000), held(1, 5000), "acquired"),
            (scanned, scan(3000), held(2, 5000), "unknown at 3001, replaced unseen"),
        ]);
    }
}

#[test]
fn a_lock_that_loses_its_ttl_says_so_until_it_has_one_again() {
    let without = || Some(Held { ttl_ms: None, ..held(1, 0).unwrap() });
    let acquired = || (WATCHED, seen(1000, 1), held(1, 5000), "acquired at 1000");
    let lost_ttl = |steps: &[Step]| live(steps).map(|hold| hold.lost_ttl);
    let lost = || (WATCHED, seen(2000, 1), without(), "");
    assert_eq!(lost_ttl(&[acquired()]), Some(false));
    assert_eq!(lost_ttl(&[acquired(), lost(), (WATCHED, seen(3000, 0), without(), "")]), Some(true));
    assert_eq!(lost_ttl(&[acquired(), lost(), (WATCHED, seen(3000, 1), held(1, 5000), "")]), Some(false));
    assert_eq!(lost_ttl(&[(WATCHED, seen(1000, 1), without(), "acquired at 1000"), lost()]), Some(false));
}

/// One read may show the result of many changes. Only what certainly happened is counted.
#[test]
fn pushes_between_two_reads_bound_what_happened() {
    let absent = |sighting, expected| live(&[(WATCHED, sighting, ABSENT, expected)]);
    absent(seen(1000, 0), "");
    absent(old(seen(1000, 1)), "");
    for pushes in 1..5 {
        absent(seen(1000, pushes), "short released after 10");
        absent(missed(seen(1000, pushes)), "short released after 10");
    }
    absent(old(seen(1000, 2)), "short released after 10");
    absent(Sighting { since: Some(998), ..seen(1000, 1) }, "short released after 2");
    live(&[(SightingContext { baseline: false, ..WATCHED }, seen(1000, 3), ABSENT, "")]);
    live(&[(SightingContext { may_be_vacant: true, ..WATCHED }, seen(1000, 3), ABSENT, "")]);
    live(&[(SightingContext { evicted: Some(995), ..WATCHED }, seen(1000, 2), ABSENT, "short")]);

    let found = |sighting, expected| live(&[(WATCHED, sighting, held(1, 500), expected)]);
    for pushes in 1..5 {
        found(seen(1000, pushes), "acquired at 1000");
        found(missed(seen(1000, pushes)), "acquired at 1000");
        then(WATCHED, seen(3000, pushes), ABSENT, "released at 3000 after 2000");
    }
    found(old(seen(1000, 1)), "acquired at 1000");
}

#[test]
fn first_sight_is_no_acquisition_and_its_hold_is_not_measured() {
    let starting = SightingContext { baseline: false, ..WATCHED };
    live(&[(starting, seen(1000, 1), held(1, 500), ""), (WATCHED, seen(1200, 1), ABSENT, "released at 1200")]);
    // Found by a pass.
    live(&[(WATCHED, seen(1000, 0), held(1, 500), ""), (WATCHED, seen(1200, 1), ABSENT, "released at 1200")]);
}

/// Redis sends the replies of an event-loop turn before the pushes of that turn.
#[test]
fn a_lock_that_a_pass_found_before_its_push_came_was_acquired() {
    let found = (WATCHED, seen(1000, 0), held(1, 500), "");
    live(&[found.clone(), (WATCHED, old(seen(1002, 1)), held(1, 498), "acquired at 1001")]);
    let gone = "acquired at 1001, released at 1100 after 99";
    live(&[found, (WATCHED, old(seen(1100, 2)), ABSENT, gone)]);
}

#[test]
fn scanning_tells_less() {
    let scanned = SightingContext { ttl: Some(10_000), pass_started: 15_000, ..SCANNED };
    let first = SightingContext { baseline: false, ..scanned };
    live(&[(first, scan(20_000), held(1, 9_000), "")]);
    // The deadline and the configured TTL show the time of the acquisition, if they do not
    // contradict each other.
    live(&[(scanned, scan(20_000), held(1, 9_000), "acquired at 19002")]);
    live(&[(scanned, scan(20_000), held(1, 4_000), "acquired")]);
    live(&[(SightingContext { ttl: None, ..scanned }, scan(20_000), held(1, 4_000), "acquired")]);
    let acquired = (scanned, scan(20_000), held(1, 9_000), "acquired at 19002");
    // A renewal 3.9 s before the read.
    live(&[acquired.clone(), (scanned, scan(27_900), held(1, 6_100), "renewed margin 0.50")]);
    live(&[acquired.clone(), (scanned, scan(25_000), ABSENT, "released at 25001")]);
    live(&[acquired.clone(), (scanned, scan(35_000), ABSENT, "unknown at 35001")]);
    let just_before = (scanned, scan(28_900), held(1, 100), "");
    live(&[acquired.clone(), just_before.clone(), (scanned, scan(29_003), ABSENT, "expired at 29002 after 10000")]);
    live(&[acquired.clone(), (scanned, scan(25_000), held(2, 10_000), "unknown at 25001, acquired at 25001")]);
    let takeover = "expired at 29002 after 10000, acquired at 29003";
    live(&[acquired.clone(), just_before, (scanned, scan(29_003), held(2, 9_998), takeover)]);
    live(&[acquired, (scanned, scan(35_000), held(2, 9_000), "unknown at 35001, acquired at 34002")]);
}
