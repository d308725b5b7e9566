//! Links, locks and log lines together: what the ledger shows after updates from a simulated Redis.

mod late;
mod meeting;
mod model;
mod size;

use std::sync::Arc;
use std::time::Duration;

use super::KeyspaceSettings;
use crate::ledger::{Ledger, Saved};
use crate::model::counters::{KeyspaceCounters, Tally};
use crate::model::key_template::KeyTemplate;
use crate::model::label::Label;
use crate::model::namespace::{AcquiredWith, Namespace, NamespaceId, Style};
use crate::model::sighting::{
    Held, KeyState, LinkBatch, LinkEvent, LinkId, OperationsSource, OwnerHasher, ServerContinuity, Sighting,
};
use crate::snapshot::KeyspaceView;
use crate::util::clock::TimeMs;

const APPROVAL: usize = 0;
const SCHEDULER: usize = 1;
const LEADER: usize = 2;
const A: LinkId = LinkId(1);
const B: LinkId = LinkId(2);
const C: LinkId = LinkId(3);

/// `approval` (10 s) and `scheduler` (60 s, renewed every 20 s) share `job:{id}`. `leader` is one
/// `loop` lock.
fn namespaces() -> Vec<Arc<Namespace>> {
    namespaces_acquired_with(AcquiredWith::Any)
}

fn namespaces_acquired_with(acquired_with: AcquiredWith) -> Vec<Arc<Namespace>> {
    let namespace = |name: &str, key: &str, ttl: u64| Namespace {
        name: name.to_owned(),
        keys: vec![KeyTemplate::parse(key).unwrap()],
        ttl: Some(Duration::from_secs(ttl)),
        acquired_with,
        ..Namespace::other()
    };
    let renew_every = Some(Duration::from_secs(20));
    let leader = namespace("leader", "leader", 30);
    vec![
        Arc::new(namespace("approval", "job:{id}", 10)),
        Arc::new(Namespace { renew_every, ..namespace("scheduler", "job:{id}", 60) }),
        Arc::new(Namespace { style: Style::Loop, takeover_slo: Some(Duration::from_secs(40)), ..leader }),
        Arc::new(Namespace::other()),
    ]
}

/// A ledger with short methods that apply updates to it.
pub(super) struct World {
    pub(super) ledger: Ledger,
    hasher: OwnerHasher,
}

impl World {
    pub(super) fn new(max_tracked_locks: usize) -> Self {
        Self::with(max_tracked_locks, Saved::default())
    }

    pub(super) fn with(max_tracked_locks: usize, saved: Saved) -> Self {
        Self::of(namespaces(), max_tracked_locks, saved)
    }

    fn of(namespaces: Vec<Arc<Namespace>>, max_tracked_locks: usize, saved: Saved) -> Self {
        let settings = KeyspaceSettings { max_tracked_locks, cause_wait: 5000 };
        let ledger = Ledger::new(namespaces, Duration::from_secs(2), saved).observing(settings);
        Self { ledger, hasher: OwnerHasher::new() }
    }

    /// Watched over link A since 0, with a first pass that found nothing.
    fn watched() -> Self {
        let mut world = Self::new(1000);
        world.up(A, 0, ServerContinuity::None).tell(A, LinkEvent::PassDone { started: 1, at: 2 });
        world
    }

    /// Like `watched`, but link A only scans.
    fn scanned() -> Self {
        let mut world = Self::new(1000);
        world.tell(A, LinkEvent::Up { at: 0, watching: false, past: ServerContinuity::None }).pass(A, 1);
        world
    }

    /// A read during a pass.
    fn scan(&mut self, at: TimeMs, key: &str, sight: KeyState) -> &mut Self {
        let sighting = Sighting {
            key: key.into(),
            sent: at,
            received: at + 1,
            since: None,
            until: at + 1,
            pushes: 0,
            first_push_may_be_old: false,
            missed: false,
            sight,
        };
        self.tell(A, LinkEvent::Seen(sighting))
    }

    fn tell(&mut self, link: LinkId, news: LinkEvent) -> &mut Self {
        self.ledger.apply_link(LinkBatch { link, news: vec![news] });
        self
    }

    fn up(&mut self, link: LinkId, at: TimeMs, past: ServerContinuity) -> &mut Self {
        self.tell(link, LinkEvent::Up { at, watching: true, past })
    }

    fn pass(&mut self, link: LinkId, started: TimeMs) -> &mut Self {
        self.tell(link, LinkEvent::PassDone { started, at: started + 1 })
    }

    fn see(&mut self, link: LinkId, at: TimeMs, key: &str, pushes: u16, sight: KeyState) -> &mut Self {
        let until = if pushes > 0 { at } else { at + 1 };
        let sighting = Sighting {
            key: key.into(),
            sent: at,
            received: at + 1,
            since: Some(at - 10),
            until,
            pushes,
            first_push_may_be_old: false,
            missed: false,
            sight,
        };
        self.tell(link, LinkEvent::Seen(sighting))
    }

    pub(super) fn held(&self, owner: u8, seconds: TimeMs) -> KeyState {
        let owner = Some(self.hasher.hash(&[owner]));
        KeyState::Held(Held { owner, ttl_ms: Some(seconds * 1000), fence: None })
    }

    /// A push and a read over link A that shows the key held.
    fn hold(&mut self, at: TimeMs, key: &str, owner: u8, seconds: TimeMs) -> &mut Self {
        let sight = self.held(owner, seconds);
        self.see(A, at, key, 1, sight)
    }

    fn gone(&mut self, at: TimeMs, key: &str) -> &mut Self {
        self.see(A, at, key, 1, KeyState::Absent)
    }

    pub(super) fn view(&self, namespace: usize, now: TimeMs) -> KeyspaceView {
        self.ledger.keyspace_view(NamespaceId(namespace as u16), now).unwrap()
    }

    #[track_caller]
    fn shows(&self, namespace: usize, expected: &str) -> &Self {
        let view = self.view(namespace, 0);
        let held = Some(format!("held={}", view.now.held)).filter(|_| view.now.held > 0);
        let parts: Vec<String> = held.into_iter().chain(counted(&view.counters)).collect();
        assert_eq!(parts.join(" "), expected);
        self
    }
}

/// Lists every counter above 0.
fn counted(counters: &KeyspaceCounters) -> Vec<String> {
    fn changes<L: Label>(tally: &Tally<L>) -> impl Iterator<Item = (String, u64)> {
        tally.iter().map(|(label, count)| (format!("after_{}", label.as_str()), count))
    }
    let plain = [
        ("acquired", counters.acquisitions),
        ("renewed", counters.renewals),
        ("released", counters.releases),
        ("expired", counters.expirations),
        ("unknown", counters.unknown_ends),
        ("early", counters.early_releases),
        ("within", counters.takeovers_within_slo),
        ("beyond", counters.takeovers_beyond_slo),
        ("regressions", counters.fence_regressions),
        ("untracked", counters.untracked),
    ];
    let plain = plain.into_iter().map(|(name, count)| (name.to_owned(), count));
    let all = plain.chain(changes(&counters.owner_changes)).filter(|(_, count)| *count > 0);
    all.map(|(name, count)| format!("{name}={count}")).collect()
}

#[test]
fn the_ttl_tells_namespaces_apart_that_share_a_template() {
    let mut world = World::watched();
    world.hold(1000, "job:1", 1, 10).gone(2000, "job:1").hold(3000, "job:1", 2, 60).hold(23_000, "job:1", 2, 60);
    world.shows(APPROVAL, "acquired=1 released=1 after_release=1");
    world.shows(SCHEDULER, "held=1 acquired=1 renewed=1");
    assert_eq!(world.view(APPROVAL, 0).counters.hold_seconds.sum(), 1.0);
}

#[test]
fn a_lock_moves_when_its_ttl_is_longer_than_its_namespace_can_have() {
    let mut world = World::new(10);
    let sight = world.held(1, 8);
    world.up(A, 0, ServerContinuity::None).see(A, 1, "job:1", 0, sight).pass(A, 1).shows(APPROVAL, "held=1");
    world.hold(2000, "job:1", 1, 60).shows(APPROVAL, "").shows(SCHEDULER, "held=1 renewed=1");
}

#[test]
fn a_loop_lock_expires_on_purpose_and_is_taken_over() {
    let mut world = World::watched();
    world.hold(1000, "leader", 1, 30).gone(31_003, "leader").hold(36_000, "leader", 2, 30);
    world.shows(LEADER, "held=1 acquired=2 expired=1 within=1 after_expiry=1");
    world.hold(50_000, "leader", 2, 30).gone(80_003, "leader").hold(91_000, "leader", 1, 30);
    world.shows(LEADER, "held=1 acquired=3 renewed=1 expired=2 within=1 beyond=1 after_expiry=2");
    // 35 s after the acquisition, and 41 s after the renewal.
    assert_eq!(world.view(LEADER, 0).counters.takeover_seconds.sum(), 35.0 + 41.0);
    world
        .gone(92_000, "leader")
        .shows(LEADER, "acquired=3 renewed=1 released=1 expired=2 early=1 within=1 beyond=1 after_expiry=2");
}

#[test]
fn the_same_owner_again_is_no_change() {
    let mut world = World::watched();
    world.hold(1000, "leader", 1, 30).gone(31_003, "leader").hold(36_000, "leader", 1, 30);
    world.shows(LEADER, "held=1 acquired=2 expired=1");
}

#[test]
fn the_whole_keyspace_is_not_new_after_a_start() {
    let mut world = World::new(10);
    let sight = world.held(1, 60);
    world.up(A, 0, ServerContinuity::None).see(A, 1, "job:1", 0, sight.clone());
    world.see(A, 2, "job:2", 1, sight.clone()).pass(A, 1).shows(SCHEDULER, "held=2");
    world.see(A, 300, "job:3", 1, sight.clone()).shows(SCHEDULER, "held=3 acquired=1");
    let saved = serde_json::to_string(world.ledger.saved()).unwrap();
    let mut world = World::with(10, serde_json::from_str(&saved).unwrap());
    world
        .up(A, 1000, ServerContinuity::None)
        .see(A, 1001, "job:3", 0, sight)
        .pass(A, 1001)
        .shows(SCHEDULER, "held=1 acquired=1");
    world.gone(2000, "job:3").shows(SCHEDULER, "acquired=1 released=1");
    assert_eq!(world.view(SCHEDULER, 0).counters.hold_seconds.count(), 0);
}

#[test]
fn a_reconnect_makes_ends_unknown_and_keeps_what_is_seen_again() {
    let mut world = World::watched();
    world.hold(1000, "job:1", 1, 60).hold(1000, "job:2", 1, 60).hold(1000, "job:3", 1, 60);
    world.tell(A, LinkEvent::Down { at: 2000 }).up(A, 5000, ServerContinuity::SameServer);
    let same = world.held(1, 56);
    let renewed = world.held(1, 60);
    world.see(A, 5001, "job:1", 0, same).see(A, 5001, "job:2", 0, renewed).pass(A, 5001);
    world.shows(SCHEDULER, "held=3 acquired=3");
    assert_eq!(world.ledger.due_reads(5002, 10), [Box::from("job:3")]);
    assert!(world.ledger.due_reads(6001, 10).is_empty(), "asked a moment ago");
    assert_eq!(world.ledger.due_reads(6002, 10).len(), 1, "no answer yet");
    world.see(A, 6003, "job:3", 0, KeyState::Absent).shows(SCHEDULER, "held=2 acquired=3 unknown=1");
    assert_eq!(world.ledger.due_reads(60_000, 10).len(), 0);
    world.gone(7000, "job:1").shows(SCHEDULER, "held=1 acquired=3 released=1 unknown=1");
}

#[test]
fn a_pass_alone_ends_nothing() {
    let mut world = World::watched();
    world.hold(1000, "job:1", 1, 60).pass(A, 5000).shows(SCHEDULER, "held=1 acquired=1");
    assert_eq!(world.ledger.due_reads(5001, 10).len(), 1);
    let sight = world.held(1, 56);
    world.see(A, 5002, "job:1", 0, sight).shows(SCHEDULER, "held=1 acquired=1");
    assert_eq!(world.ledger.due_reads(9000, 10).len(), 0);
    assert_eq!(world.ledger.due_reads(60_901, 10).len(), 0);
    assert_eq!(world.ledger.due_reads(60_902, 10).len(), 1, "its deadline is close");
}

#[test]
fn a_pass_during_which_pushes_were_lost_proves_nothing() {
    let mut world = World::watched();
    world.tell(A, LinkEvent::Gap { at: 5000 }).pass(A, 4000);
    world.hold(6000, "job:1", 1, 60).shows(SCHEDULER, "held=1");
    world.pass(A, 7000).hold(8000, "job:2", 1, 60).shows(SCHEDULER, "held=2 acquired=1");
}

#[test]
fn after_a_flush_known_locks_are_read_at_once_and_new_ones_count() {
    let mut world = World::watched();
    world.up(B, 0, ServerContinuity::None).pass(B, 1);
    world.hold(1000, "job:1", 1, 60).hold(1000, "job:2", 1, 60).hold(1000, "job:3", 1, 60);
    let sight = world.held(1, 60);
    world.see(B, 1000, "job:4", 1, sight.clone()).tell(A, LinkEvent::Flushed { at: 2000 });
    assert_eq!(world.view(SCHEDULER, 2001).now.observed_since, Some(2), "no change was missed");
    world.see(A, 2010, "job:5", 1, sight).shows(SCHEDULER, "held=5 acquired=5");
    let mut due = world.ledger.due_reads(2020, 10);
    due.sort();
    assert_eq!(due, ["job:1", "job:2", "job:3"].map(Box::from));
    // Deleted by the flush; taken by another owner since; not deleted, because it was a flush of
    // another database.
    let (other, same) = (world.held(2, 60), world.held(1, 59));
    world.see(A, 2030, "job:1", 0, KeyState::Absent).see(A, 2030, "job:2", 1, other).see(A, 2030, "job:3", 0, same);
    world.shows(SCHEDULER, "held=4 acquired=6 unknown=2 after_unknown=1");
    assert!(world.what("job:1").contains("flushed"), "{}", world.what("job:1"));
    world.gone(3000, "job:3").gone(3000, "job:5").hold(3000, "job:1", 3, 60);
    world.shows(SCHEDULER, "held=3 acquired=7 released=2 unknown=2 after_unknown=2");
    assert!(world.ledger.due_reads(4000, 10).is_empty());
}

#[test]
fn locks_that_another_server_does_not_have_were_lost_in_the_failover() {
    for is_other_link in [false, true] {
        let mut world = World::watched();
        world.hold(1000, "job:1", 1, 60).hold(1000, "job:2", 1, 60);
        let link = if is_other_link { B } else { A };
        if is_other_link {
            world.tell(A, LinkEvent::Removed { at: 2000 });
        }
        world.up(link, 3000, ServerContinuity::OtherServer);
        let stolen = world.held(2, 60);
        world.see(link, 3001, "job:1", 0, stolen).pass(link, 3001);
        world.shows(SCHEDULER, "held=2 acquired=2 unknown=1 after_unknown=1");
        assert_eq!(world.ledger.due_reads(3002, 10), [Box::from("job:2")]);
        world.see(link, 3003, "job:2", 0, KeyState::Absent);
        world.shows(SCHEDULER, "held=1 acquired=2 unknown=2 after_unknown=1");
        for key in ["job:1", "job:2"] {
            assert!(world.what(key).contains("lost_in_failover"), "{}", world.what(key));
        }
    }
}

#[test]
fn a_slot_that_moves_to_another_node_changes_nothing() {
    let mut world = World::watched();
    world.up(B, 0, ServerContinuity::OtherServer).pass(B, 1).hold(1000, "job:1", 1, 60).hold(1000, "job:2", 1, 60);
    let sight = world.held(1, 58);
    world.see(A, 3000, "job:1", 1, KeyState::Elsewhere).see(B, 3000, "job:1", 1, sight.clone());
    // The sightings in the other order, and a late answer of the old node.
    world.see(B, 3000, "job:2", 1, sight).see(A, 2500, "job:2", 1, KeyState::Absent);
    world.see(A, 3001, "job:2", 1, KeyState::Elsewhere).shows(SCHEDULER, "held=2 acquired=2");
    world.see(B, 4000, "job:1", 1, KeyState::Absent).see(B, 4000, "job:2", 1, KeyState::Absent);
    world.shows(SCHEDULER, "acquired=2 released=2");
}

#[test]
fn a_lock_that_has_left_its_node_is_looked_for_until_it_is_found() {
    let mut world = World::watched();
    world.up(B, 0, ServerContinuity::None).pass(B, 1).hold(1000, "job:1", 1, 60).see(
        A,
        3000,
        "job:1",
        1,
        KeyState::Elsewhere,
    );
    for now in [3010, 4020] {
        assert_eq!(world.ledger.due_reads(now, 10), [Box::from("job:1")]);
        world.see(A, now + 1, "job:1", 0, KeyState::Elsewhere);
    }
    world.see(B, 5000, "job:1", 0, KeyState::Absent).shows(SCHEDULER, "acquired=1 unknown=1");
    assert!(world.ledger.due_reads(9000, 10).is_empty());
}

#[test]
fn locks_of_a_node_that_is_gone_are_looked_for_when_its_successor_has_been_looked_through() {
    let mut world = World::watched();
    world.up(B, 0, ServerContinuity::None).pass(B, 1);
    world.hold(1000, "job:1", 1, 60).tell(A, LinkEvent::Removed { at: 2000 });
    world.up(C, 3000, ServerContinuity::OtherServer);
    assert!(world.ledger.due_reads(3001, 10).is_empty());
    // Only C must complete a pass. B is watched, and its earlier pass is still valid.
    world.pass(C, 3002);
    assert_eq!(world.ledger.due_reads(3003, 10), [Box::from("job:1")]);
}

#[test]
fn more_locks_than_the_table_takes_are_counted_once() {
    let mut world = World::new(2);
    world.up(A, 0, ServerContinuity::None).pass(A, 1);
    for at in 0..3 {
        for key in ["job:1", "job:2", "job:3", "job:4"] {
            world.hold(1000 + at, key, 1, 60);
        }
    }
    world.shows(SCHEDULER, "held=2 acquired=2 untracked=2");
    world.gone(2000, "job:3").shows(SCHEDULER, "held=2 acquired=2 untracked=2");
    world.gone(2000, "job:1").hold(3000, "job:3", 1, 60).shows(SCHEDULER, "held=2 acquired=3 released=1 untracked=2");
    // `job:4` was held all the time. It does not count as acquired when the table has room for it.
    world.gone(4000, "job:3").hold(5000, "job:4", 1, 60).shows(SCHEDULER, "held=2 acquired=3 released=2 untracked=2");
}

#[test]
fn a_fence_that_goes_back_is_counted_even_after_the_lock_has_gone() {
    let mut world = World::watched();
    let fenced = |fence| KeyState::Held(Held { owner: None, ttl_ms: None, fence: Some(fence) });
    world.see(A, 1000, "job:1", 1, fenced(5)).see(A, 2000, "job:1", 0, fenced(5)).gone(3000, "job:1");
    world.see(A, 4000, "job:1", 1, fenced(4)).see(A, 5000, "job:2", 1, fenced(1));
    world.shows(SCHEDULER, "held=2 acquired=3 released=1 regressions=1");
}

#[test]
fn what_is_no_lock_is_shown_and_not_counted() {
    let mut world = World::watched();
    world.see(A, 1000, "job:1", 1, KeyState::NotALock).see(A, 1000, "job:1", 1, KeyState::NotALock);
    assert_eq!(world.view(SCHEDULER, 0).now.not_locks, 1);
    world.gone(2000, "job:1").shows(SCHEDULER, "").shows(APPROVAL, "");
    assert_eq!(world.view(SCHEDULER, 0).now.not_locks, 0);
    world.see(A, 3000, "job:2", 0, KeyState::NotALock).pass(A, 4000);
    assert_eq!(world.view(SCHEDULER, 0).now.not_locks, 0, "the pass did not find it");
    world.see(A, 5000, "nothing", 1, KeyState::NotALock).see(A, 5000, "job:3", 1, KeyState::Unreadable);
    world.hold(6000, "nothing", 1, 60).shows(SCHEDULER, "");
}

/// A waiting client also writes the key. Some libraries empty the key instead of deleting it.
#[test]
fn a_key_that_nobody_holds_is_no_hold() {
    let mut world = World::watched();
    world.see(A, 1000, "job:1", 1, KeyState::Vacant).shows(SCHEDULER, "");
    world.gone(2000, "job:1").shows(SCHEDULER, "");
    world.see(A, 3000, "job:1", 1, KeyState::Vacant).hold(4000, "job:1", 1, 60);
    world.shows(SCHEDULER, "held=1 acquired=1");
    world.see(A, 5000, "job:1", 1, KeyState::Vacant).gone(6000, "job:1");
    world.shows(SCHEDULER, "acquired=1 released=1");
    assert_eq!(world.view(SCHEDULER, 0).now.not_locks, 0);
}

#[test]
fn says_who_is_seen_how_and_since_when() {
    let mut world = World::new(10);
    assert_eq!(world.view(LEADER, 0).now.source, Some(OperationsSource::None));
    world.up(A, 100, ServerContinuity::None).tell(A, LinkEvent::CaughtUp { at: 500 });
    let now = world.view(LEADER, 600).now;
    assert_eq!((now.source, now.observed_since), (Some(OperationsSource::Watch), None));
    assert_eq!(now.last_held, [("leader".to_owned(), 100)], "never seen");
    world.pass(A, 600);
    assert_eq!(world.view(LEADER, 700).now.observed_since, Some(601));
    assert_eq!(world.view(LEADER, 20_000).now.observed_since, None, "the link is stuck");
    world.hold(1000, "leader", 1, 30).tell(A, LinkEvent::CaughtUp { at: 9000 });
    assert_eq!(world.view(LEADER, 9100).now.last_held, [("leader".to_owned(), 9000)]);
    world.tell(A, LinkEvent::CaughtUp { at: 90_000 });
    assert_eq!(world.view(LEADER, 9100).now.last_held, [("leader".to_owned(), 31_002)], "not past its deadline");
    world.gone(91_000, "leader");
    assert_eq!(world.view(LEADER, 91_000).now.last_held, [("leader".to_owned(), 31_002)]);
    world.tell(B, LinkEvent::Up { at: 5, watching: false, past: ServerContinuity::None });
    assert_eq!(world.view(LEADER, 0).now.source, Some(OperationsSource::Scan));
    assert_eq!(world.ledger.keyspace_view(NamespaceId(3), 0), None, "a namespace without keys");
}

/// Ratios need all successes. A window that contains missed changes has none.
#[test]
fn missed_changes_make_a_window_incomplete() {
    let states = |world: &World, now: TimeMs| {
        [SCHEDULER, LEADER].map(|namespace| {
            let view = world.view(namespace, now);
            (view.now.source.unwrap().as_str(), view.ratios.map(|ratios| ratios.not_owned.is_some()))
        })
    };
    let busy = || {
        let mut world = World::watched();
        world.hold(1000, "job:1", 1, 60).gone(2000, "job:1").hold(1000, "leader", 1, 30).gone(2000, "leader");
        world
    };
    let (complete, none) = (("watch", [true, true]), ("partial", [false, false]));
    let mut world = busy();
    assert_eq!(states(&world, 3000), [complete, complete], "a start is not an interruption");

    let namespaces = vec![NamespaceId(SCHEDULER as u16)];
    world.tell(A, LinkEvent::Skipped { at: 3000, namespaces });
    world.tell(A, LinkEvent::CaughtUp { at: 3000 });
    assert_eq!(states(&world, 4000), [none, complete]);
    let since = |namespace| world.view(namespace, 4000).now.observed_since;
    assert_eq!((since(SCHEDULER), since(LEADER)), (Some(3000), Some(2)));
    assert_eq!(states(&world, 303_000)[0].0, "watch");
    world.hold(3_500_000, "job:1", 1, 60).gone(3_501_000, "job:1");
    assert_eq!(states(&world, 3_600_000)[0], ("watch", [true, false]), "the hour contains the skipped change");
    assert_eq!(states(&world, 3_603_000)[0], complete);

    let mut world = busy();
    world.tell(A, LinkEvent::Down { at: 3000 }).up(A, 4000, ServerContinuity::SameServer);
    assert_eq!(states(&world, 900_000), [("partial", [false, false]); 2], "the pass is not done");
    world.pass(A, 900_000);
    assert_eq!(states(&world, 1_200_000)[0].0, "partial");
    assert_eq!(states(&world, 1_200_001)[0].0, "watch");

    let mut world = busy();
    world.tell(A, LinkEvent::Removed { at: 3000 }).up(B, 4000, ServerContinuity::OtherServer).pass(B, 5000);
    assert_eq!(states(&world, 6000), [none, none]);
}

#[test]
fn a_survey_finds_the_next_deadline_the_oldest_lock_and_late_renewals() {
    let mut world = World::watched();
    world.hold(1000, "job:1", 1, 60).hold(3000, "job:2", 2, 60).hold(21_000, "job:1", 1, 60);
    let forever = KeyState::Held(Held { owner: None, ttl_ms: None, fence: None });
    world.see(A, 500, "leader", 1, forever);
    world.ledger.survey(33_001);
    let now = world.view(SCHEDULER, 33_000).now;
    assert_eq!((now.held, now.renewal_overdue, now.oldest_acquired), (2, 1, Some(1000)));
    assert_eq!(now.ttl_remaining_min_seconds, Some(30.0));
    let now = world.view(LEADER, 33_000).now;
    assert_eq!((now.held, now.without_ttl, now.ttl_remaining_min_seconds), (1, 1, None));
}

/// Checks at each time whether the renewal of the only lock is overdue. The lock belongs to
/// `scheduler` (60 s, renewed every 20 s).
fn check_lateness(world: &mut World, times: &[(TimeMs, bool)]) {
    for (now, expected) in times {
        world.ledger.survey(*now);
        let found = world.view(SCHEDULER, *now).now.renewal_overdue;
        assert_eq!(found, u64::from(*expected), "at {now}");
    }
}

#[test]
fn the_renewal_interval_follows_the_ttl_that_a_lock_was_seen_to_have() {
    for (ttl, late_after) in [(30, 15_000), (60, 30_000), (120, 60_000), (600, 300_000)] {
        let mut world = World::watched();
        world.hold(1000, "job:1", 1, ttl).hold(10_000, "job:1", 1, ttl);
        check_lateness(&mut world, &[(9900 + late_after, false), (10_100 + late_after, true)]);
    }
}

/// Many libraries renew only locks with their default TTL, and acquire others for a fixed time.
#[test]
fn a_lock_that_was_never_renewed_is_late_only_with_the_configured_ttl() {
    for (ttl, expected) in [(30, false), (47, false), (49, true), (60, true), (71, true), (73, false), (3600, false)] {
        let mut world = World::watched();
        world.hold(1000, "job:1", 1, ttl);
        check_lateness(&mut world, &[(40_000, expected)]);
    }
    let mut world = World::watched();
    world.hold(1000, "job:1", 1, 600).hold(2000, "job:1", 1, 600).hold(3000, "job:1", 2, 600);
    check_lateness(&mut world, &[(400_000, false)]);
}

#[test]
fn a_lock_that_was_found_is_late_once_it_was_seen_to_be_renewed() {
    let mut world = World::new(1000);
    let found = world.held(1, 20);
    world.up(A, 0, ServerContinuity::None).see(A, 10, "job:1", 0, found).pass(A, 20);
    check_lateness(&mut world, &[(15_000, false)]);
    world.hold(16_000, "job:1", 1, 60);
    check_lateness(&mut world, &[(45_900, false), (46_100, true)]);
}

/// Between two passes a renewal is not visible. A lock that was renewed in time when it was last
/// read is not overdue.
#[test]
fn a_scanned_lock_is_late_by_what_its_last_read_showed() {
    let mut world = World::scanned();
    let left = |seconds: TimeMs| KeyState::Held(Held { owner: None, ttl_ms: Some(seconds * 1000), fence: None });
    let late = |world: &mut World, now: TimeMs| {
        world.ledger.survey(now);
        world.view(SCHEDULER, now).now.renewal_overdue
    };
    world.scan(100_000, "job:1", left(42)).pass(A, 100_002);
    assert_eq!(late(&mut world, 114_000), 0, "18 s after its renewal, and perhaps renewed since");
    world.scan(115_000, "job:1", left(27)).pass(A, 115_002);
    assert_eq!(late(&mut world, 115_003), 1, "33 s without a renewal");
    world.scan(130_000, "job:1", left(59)).pass(A, 130_002);
    assert_eq!(late(&mut world, 144_000), 0);
}

/// Without pushes, a read just before the deadline and a read at the deadline show how a lock
/// ended.
#[test]
fn scanning_asks_twice_about_a_deadline() {
    let mut world = World::scanned();
    let sight = world.held(1, 10);
    world.scan(1000, "leader", sight);
    assert_eq!(world.ledger.due_reads(10_899, 10).len(), 0);
    assert_eq!(world.ledger.due_reads(10_900, 10).len(), 1);
    let sight = KeyState::Held(Held { owner: None, ttl_ms: Some(98), fence: None });
    world.scan(10_902, "leader", sight);
    assert_eq!(world.ledger.due_reads(10_999, 10).len(), 0);
    assert_eq!(world.ledger.due_reads(11_002, 10).len(), 1, "a second read, as soon as the time has come");
    world.scan(11_003, "leader", KeyState::Absent);
    world.shows(LEADER, "acquired=1 expired=1");
}
