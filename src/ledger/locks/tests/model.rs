//! A simulated Redis with random workers that record the truth, and a reader that gets replies and
//! pushes in the order of the real stream: the replies of a cycle come before its pushes, with one
//! push for all changes of a key in that cycle.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::model::counters::After;

const KEYS: [&str; 3] = ["job:1", "job:2", "job:3"];
const TTL: TimeMs = 10_000;
/// Upper bound of the clock drift within a TTL, plus the duration of a read.
const CLOCKS_DIFFER: TimeMs = 20;

#[derive(Clone, Copy, Debug)]
enum Action {
    /// `SET NX`. Does nothing if the lock is held.
    Acquire(usize, u8),
    Renew(usize),
    Release(usize),
    Steal(usize, u8),
    /// Lets time pass, in milliseconds.
    Sleep(TimeMs),
    /// A pass reads the key in the middle of a cycle.
    Scan(usize),
}

fn action() -> impl Strategy<Value = Action> {
    let key = || 0..KEYS.len();
    prop_oneof![
        4 => (key(), 1..4_u8).prop_map(|(key, owner)| Action::Acquire(key, owner)),
        3 => key().prop_map(Action::Renew),
        3 => key().prop_map(Action::Release),
        1 => (key(), 1..4_u8).prop_map(|(key, owner)| Action::Steal(key, owner)),
        1 => (1..8_i64).prop_map(|seconds| Action::Sleep(seconds * 1000)),
        2 => key().prop_map(Action::Scan),
    ]
}

#[derive(Default, Debug, PartialEq, Eq)]
struct Truth {
    acquisitions: u64,
    renewals: u64,
    releases: u64,
    expirations: u64,
    stolen: u64,
    changes: BTreeMap<&'static str, u64>,
}

struct Server {
    now: TimeMs,
    /// Owner and deadline of each held lock.
    locks: BTreeMap<usize, (u8, TimeMs)>,
    /// The last owner of each lock, and how its hold ended.
    ends: BTreeMap<usize, (u8, &'static str)>,
    truth: Truth,
    /// Keys that changed in this cycle.
    changed: Vec<usize>,
}

impl Server {
    fn acquire(&mut self, key: usize, owner: u8) {
        if self.locks.contains_key(&key) {
            return;
        }
        if let Some((before, how)) = self.ends.get(&key)
            && *before != owner
        {
            *self.truth.changes.entry(how).or_default() += 1;
        }
        self.locks.insert(key, (owner, self.now + TTL));
        self.truth.acquisitions += 1;
        self.changed.push(key);
    }

    fn end(&mut self, key: usize, how: &'static str) {
        let Some((owner, _)) = self.locks.remove(&key) else { return };
        self.ends.insert(key, (owner, how));
        match how {
            "release" => self.truth.releases += 1,
            "expiry" => self.truth.expirations += 1,
            _ => self.truth.stolen += 1,
        }
        self.changed.push(key);
    }

    /// Redis never shows a key after its deadline.
    fn expire(&mut self) {
        let now = self.now;
        let expired: Vec<usize> = self.locks.iter().filter(|(_, lock)| lock.1 <= now).map(|(key, _)| *key).collect();
        for key in expired {
            self.end(key, "expiry");
        }
    }

    fn act(&mut self, action: Action) {
        self.expire();
        match action {
            Action::Acquire(key, owner) => self.acquire(key, owner),
            Action::Renew(key) => {
                if let Some((_, deadline)) = self.locks.get_mut(&key) {
                    *deadline = self.now + TTL;
                    self.truth.renewals += 1;
                    self.changed.push(key);
                }
            }
            Action::Release(key) => self.end(key, "release"),
            // A worker that steals its own lock renews it.
            Action::Steal(key, owner) if self.locks.get(&key).is_some_and(|lock| lock.0 != owner) => {
                self.end(key, "unknown");
                self.acquire(key, owner);
            }
            Action::Steal(..) | Action::Sleep(_) | Action::Scan(_) => {}
        }
    }

    fn sight(&self, world: &World, key: usize) -> KeyState {
        match self.locks.get(&key) {
            None => KeyState::Absent,
            Some((owner, deadline)) => match world.held(*owner, 0) {
                KeyState::Held(held) => KeyState::Held(Held { ttl_ms: Some(deadline - self.now), ..held }),
                other => other,
            },
        }
    }
}

/// What the reader knows about one key.
#[derive(Clone, Copy, Default)]
struct Pending {
    pushes: u16,
    first_may_be_old: bool,
    since: TimeMs,
    /// A reply about the key arrived in the current cycle.
    replied: bool,
}

struct Run {
    server: Server,
    world: World,
    pending: [Pending; KEYS.len()],
    caught_up: TimeMs,
}

impl Run {
    fn new() -> Self {
        let mut world = World::new(100);
        world.up(A, 0, ServerContinuity::None).pass(A, 1);
        let server = Server {
            now: 10,
            locks: BTreeMap::new(),
            ends: BTreeMap::new(),
            truth: Truth::default(),
            changed: Vec::new(),
        };
        Self { server, world, pending: Default::default(), caught_up: 5 }
    }

    /// Reads a key within the cycle: the reply comes before the pushes of the cycle. A key is read
    /// again only after its reply has arrived, so there is no second read in the same cycle.
    fn read(&mut self, key: usize) {
        if self.pending[key].replied {
            return;
        }
        self.server.expire();
        let now = self.server.now;
        let pending = std::mem::take(&mut self.pending[key]);
        let sight = self.server.sight(&self.world, key);
        let sighting = Sighting {
            key: KEYS[key].into(),
            sent: now,
            received: now + 1,
            since: Some(if pending.pushes > 0 { pending.since } else { self.caught_up }),
            until: if pending.pushes > 0 { now } else { now + 1 },
            pushes: pending.pushes,
            first_push_may_be_old: pending.first_may_be_old,
            missed: false,
            sight,
        };
        self.world.tell(A, LinkEvent::Seen(sighting));
        self.caught_up = now;
        self.pending[key].replied = true;
    }

    /// Ends the cycle: its pushes arrive. Then 5 ms pass.
    fn end_cycle(&mut self) {
        let mut changed = std::mem::take(&mut self.server.changed);
        changed.sort_unstable();
        changed.dedup();
        for key in changed {
            let pending = &mut self.pending[key];
            if pending.pushes == 0 {
                (pending.first_may_be_old, pending.since) = (pending.replied, self.caught_up);
            }
            pending.pushes += 1;
        }
        for pending in &mut self.pending {
            pending.replied = false;
        }
        self.server.now += 5;
        self.caught_up = self.caught_up.max(self.server.now - 250);
    }

    /// Lets time pass in steps that are small enough for the ledger to have each expired lock read
    /// separately.
    fn sleep(&mut self, time: TimeMs) {
        let end = self.server.now + time;
        while self.server.now < end {
            self.server.now = (self.server.now + 100).min(end);
            self.caught_up = self.server.now - 50;
            self.server.expire();
            self.end_cycle();
            self.read_pushed();
            for key in self.world.ledger.due_reads(self.server.now, 10) {
                let index = KEYS.iter().position(|known| **known == *key).unwrap();
                self.read(index);
            }
            self.end_cycle();
        }
    }

    /// Waits between two changes: long enough that two deadlines differ by more than the duration
    /// of a read, and until no deadline is so close that clock drift makes a release and an
    /// expiration ambiguous.
    fn rest(&mut self) {
        self.sleep(100);
        while self.server.locks.values().any(|(_, deadline)| deadline - self.server.now < CLOCKS_DIFFER) {
            self.sleep(10);
        }
    }

    fn read_pushed(&mut self) {
        for key in 0..KEYS.len() {
            if self.pending[key].pushes > 0 {
                self.read(key);
            }
        }
    }

    fn counters(&self) -> KeyspaceCounters {
        self.world.view(APPROVAL, self.server.now).counters
    }

    fn held(&self) -> u64 {
        self.world.view(APPROVAL, self.server.now).now.held
    }
}

fn ends(counters: &KeyspaceCounters) -> u64 {
    counters.releases + counters.expirations + counters.unknown_ends
}

proptest! {
    /// Each change is read before the next one. All counts are exact, with or without passes in
    /// between.
    #[test]
    fn slow_changes_are_counted_exactly(actions in proptest::collection::vec(action(), 1..80)) {
        let mut run = Run::new();
        for action in &actions {
            run.rest();
            match action {
                Action::Sleep(time) => run.sleep(*time),
                // Reads in the same cycle as the next action or as the previous one.
                Action::Scan(key) => {
                    run.read(*key);
                    continue;
                }
                action => run.server.act(*action),
            }
            run.end_cycle();
            run.read_pushed();
            run.end_cycle();
        }
        let counters = run.counters();
        let mut changes = BTreeMap::new();
        for (after, count) in counters.owner_changes.iter().filter(|(_, count)| *count > 0) {
            let _: After = after;
            changes.insert(after.as_str(), count);
        }
        let found = Truth {
            acquisitions: counters.acquisitions,
            renewals: counters.renewals,
            releases: counters.releases,
            expirations: counters.expirations,
            stolen: counters.unknown_ends,
            changes,
        };
        prop_assert_eq!(&found, &run.server.truth);
        prop_assert_eq!(run.held(), run.server.locks.len() as u64);
    }

    /// Reads in the cycle of the change itself: the reply shows the change before its push arrives.
    #[test]
    fn a_reply_that_is_ahead_of_its_push_counts_nothing_twice(actions in proptest::collection::vec(action(), 1..60)) {
        let mut run = Run::new();
        for action in &actions {
            run.rest();
            run.server.act(*action);
            if let Action::Acquire(key, _) | Action::Renew(key) | Action::Release(key) = action {
                run.read(*key);
            }
            run.end_cycle();
            run.read_pushed();
            run.end_cycle();
        }
        let (counters, truth) = (run.counters(), &run.server.truth);
        prop_assert_eq!(counters.acquisitions, truth.acquisitions);
        prop_assert_eq!((counters.renewals, counters.releases), (truth.renewals, truth.releases));
        prop_assert_eq!(run.held(), run.server.locks.len() as u64);
    }

    /// Many changes between two reads. Counts are not exact, but holds add up and no counter
    /// decreases.
    #[test]
    fn fast_changes_add_up(
        cycles in proptest::collection::vec((proptest::collection::vec(action(), 0..5), 0..3_u8), 1..80),
    ) {
        let mut run = Run::new();
        let mut before = run.counters();
        for (actions, reads) in &cycles {
            for action in actions {
                run.server.act(*action);
                if let Action::Scan(key) = action {
                    run.read(*key);
                }
            }
            run.end_cycle();
            if *reads > 0 {
                run.read_pushed();
            }
            if *reads > 1 {
                run.sleep(700);
            }
            let after = run.counters();
            prop_assert!(after.acquisitions >= before.acquisitions && after.renewals >= before.renewals);
            prop_assert!(ends(&after) >= ends(&before));
            // A pass may have found a lock in the cycle of its acquisition. Its push has not
            // arrived yet.
            let announced = after.acquisitions.max(before.acquisitions);
            prop_assert!(announced + KEYS.len() as u64 >= ends(&after) + run.held());
            before = after;
        }
        run.sleep(100);
        let counters = run.counters();
        prop_assert_eq!(counters.acquisitions, ends(&counters) + run.held());
        prop_assert_eq!(run.held(), run.server.locks.len() as u64);
    }
}
