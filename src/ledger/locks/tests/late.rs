//! A simulated Redis behind a slow connection: requests and the stream of replies and pushes wait
//! for arbitrary times, so that one read shows the result of many changes. Workers record the
//! truth. Whatever the delays are, no counter exceeds the truth.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::model::counters::After;
use crate::model::namespace::AcquiredWith;

const KEYS: [&str; 3] = ["job:1", "job:2", "job:3"];
/// Programs do not end a hold this short before its deadline. A link that lags less counts such an
/// end as an expiration.
const CALM: TimeMs = 250;

#[derive(Clone, Copy, Debug)]
enum Operation {
    /// `SET NX` with a new token. Does nothing if the lock is held.
    Acquire(usize, TimeMs),
    Renew(usize, TimeMs),
    Release(usize),
    /// `SET` without `NX`, with a new token.
    Overwrite(usize, TimeMs),
    /// A pass or the ledger reads the key.
    Read(usize),
}

#[derive(Clone, Debug)]
enum Step {
    /// A turn of the event loop of Redis. The requests that wait run before the operation with this
    /// number, or not at all if there is none.
    Turn(Vec<Operation>, usize),
    /// Redis removes expired keys in a turn of its own.
    ExpireActively,
    /// The exporter receives everything that Redis has sent.
    Receive,
    Wait(TimeMs),
}

fn operation(overwrites: bool) -> impl Strategy<Value = Operation> {
    let key = || 0..KEYS.len();
    let ttl = || prop_oneof![Just(700), Just(2000), Just(9000)];
    prop_oneof![
        4 => (key(), ttl()).prop_map(|(key, ttl)| Operation::Acquire(key, ttl)),
        2 => (key(), ttl()).prop_map(|(key, ttl)| Operation::Renew(key, ttl)),
        3 => key().prop_map(Operation::Release),
        u32::from(overwrites) => (key(), ttl()).prop_map(|(key, ttl)| Operation::Overwrite(key, ttl)),
        1 => key().prop_map(Operation::Read),
    ]
}

fn step(overwrites: bool) -> impl Strategy<Value = Step> {
    let operations = move || proptest::collection::vec(operation(overwrites), 0..4);
    prop_oneof![
        8 => (operations(), 0..5_usize).prop_map(|(operations, at)| Step::Turn(operations, at)),
        2 => Just(Step::ExpireActively),
        5 => Just(Step::Receive),
        4 => (1..60_i64).prop_map(Step::Wait),
        3 => (60..900_i64).prop_map(Step::Wait),
        1 => (900..9000_i64).prop_map(Step::Wait),
    ]
}

#[derive(Default, Debug)]
struct Truth {
    acquisitions: u64,
    renewals: u64,
    releases: u64,
    expirations: u64,
    changes: BTreeMap<&'static str, u64>,
}

/// A request that Redis has not run yet. `None` is a `PING`.
#[derive(Clone, Copy)]
struct Request {
    key: Option<usize>,
    sequence: u64,
    sent: TimeMs,
}

enum Message {
    Reply(Request, KeyState),
    /// The keys that changed in one turn.
    Pushes(BTreeSet<usize>),
}

#[derive(Default)]
struct Server {
    now: TimeMs,
    /// Token and deadline of each held lock.
    locks: BTreeMap<usize, (u8, TimeMs)>,
    /// The deadlines after the previous turn. A renewal and a release in one turn look like a
    /// release before the old deadline.
    old_deadlines: BTreeMap<usize, TimeMs>,
    /// The last owner of each lock, and how its hold ended.
    ends: BTreeMap<usize, (u8, &'static str)>,
    last_token: u8,
    truth: Truth,
    changed: BTreeSet<usize>,
    stream: VecDeque<Message>,
}

impl Server {
    fn set(&mut self, key: usize, ttl: TimeMs) {
        self.last_token = self.last_token.wrapping_add(1);
        if let Some((_, how)) = self.ends.get(&key) {
            *self.truth.changes.entry(how).or_default() += 1;
        }
        self.locks.insert(key, (self.last_token, self.now + ttl));
        self.truth.acquisitions += 1;
        self.changed.insert(key);
    }

    fn end(&mut self, key: usize, how: &'static str) {
        let Some((token, _)) = self.locks.remove(&key) else { return };
        self.ends.insert(key, (token, how));
        self.truth.releases += u64::from(how == "release");
        self.truth.expirations += u64::from(how == "expiry");
        self.changed.insert(key);
    }

    /// Redis checks the TTL of a key before each command about it.
    fn expire(&mut self, key: usize) {
        if self.locks.get(&key).is_some_and(|(_, deadline)| *deadline <= self.now) {
            self.end(key, "expiry");
        }
    }

    fn is_close_to_its_deadline(&self, key: usize) -> bool {
        let deadlines = [self.locks.get(&key).map(|(_, deadline)| deadline), self.old_deadlines.get(&key)];
        deadlines.into_iter().flatten().any(|deadline| deadline - self.now <= CALM)
    }

    fn run(&mut self, operation: Operation) {
        match operation {
            Operation::Acquire(key, ttl) => {
                self.expire(key);
                if !self.locks.contains_key(&key) {
                    self.set(key, ttl);
                }
            }
            Operation::Renew(key, ttl) => {
                self.expire(key);
                let now = self.now;
                // A program does not shorten the TTL of its lock.
                if let Some((_, deadline)) = self.locks.get_mut(&key).filter(|lock| lock.1 < now + ttl) {
                    *deadline = now + ttl;
                    self.truth.renewals += 1;
                    self.changed.insert(key);
                }
            }
            Operation::Release(key) => {
                self.expire(key);
                if !self.is_close_to_its_deadline(key) {
                    self.end(key, "release");
                }
            }
            Operation::Overwrite(key, ttl) => {
                self.expire(key);
                if !self.is_close_to_its_deadline(key) {
                    self.end(key, "overwritten");
                    self.set(key, ttl);
                }
            }
            Operation::Read(_) => {}
        }
    }

    fn end_turn(&mut self) {
        self.old_deadlines = self.locks.iter().map(|(key, (_, deadline))| (*key, *deadline)).collect();
        if !self.changed.is_empty() {
            self.stream.push_back(Message::Pushes(std::mem::take(&mut self.changed)));
        }
    }
}

/// Which replies may belong to the same turn as the next message. See `keyspace/link/reply_order`.
#[derive(Default)]
struct Order {
    next: u64,
    recent: VecDeque<(Request, u64)>,
    pushed: bool,
}

impl Order {
    fn replied(&mut self, request: Request) {
        if std::mem::take(&mut self.pushed) {
            self.recent.clear();
        }
        while self.recent.front().is_some_and(|(_, later_from)| *later_from <= request.sequence) {
            self.recent.pop_front();
        }
        self.recent.push_back((request, self.next));
    }

    fn may_share_turn(&self, sequence: u64) -> bool {
        self.recent.front().is_some_and(|(oldest, _)| oldest.sequence <= sequence)
    }

    fn caught_up(&self) -> TimeMs {
        self.recent.front().map_or(0, |(oldest, _)| oldest.sent)
    }
}

#[derive(Clone, Copy, Default)]
struct Pending {
    pushes: u16,
    first_push_may_be_old: bool,
    since: TimeMs,
    until: TimeMs,
    is_asked: bool,
    answered: Option<u64>,
}

struct Run {
    server: Server,
    world: World,
    order: Order,
    pending: [Pending; KEYS.len()],
    requests: Vec<Request>,
}

impl Run {
    fn new(acquired_with: AcquiredWith) -> Self {
        let mut world = World::of(namespaces_acquired_with(acquired_with), 100, Saved::default());
        world.up(A, 0, ServerContinuity::None).pass(A, 1);
        let server = Server { now: 10, ..Server::default() };
        Self { server, world, order: Order::default(), pending: Default::default(), requests: Vec::new() }
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Turn(operations, requests_at) => {
                for (number, operation) in operations.iter().enumerate() {
                    if number == *requests_at {
                        self.run_requests();
                    }
                    if let Operation::Read(key) = operation {
                        self.ask(*key);
                    }
                    self.server.run(*operation);
                }
                if operations.len() == *requests_at {
                    self.run_requests();
                }
                self.server.end_turn();
            }
            Step::ExpireActively => {
                (0..KEYS.len()).for_each(|key| self.server.expire(key));
                self.server.end_turn();
            }
            Step::Receive => self.receive(),
            Step::Wait(time) => self.server.now += time,
        }
    }

    fn run_requests(&mut self) {
        for request in std::mem::take(&mut self.requests) {
            let sight = request.key.map_or(KeyState::Absent, |key| {
                self.server.expire(key);
                self.sight(key)
            });
            self.server.stream.push_back(Message::Reply(request, sight));
        }
    }

    fn sight(&self, key: usize) -> KeyState {
        match self.server.locks.get(&key) {
            None => KeyState::Absent,
            Some((token, deadline)) => match self.world.held(*token, 0) {
                KeyState::Held(held) => KeyState::Held(Held { ttl_ms: Some(deadline - self.server.now), ..held }),
                other => other,
            },
        }
    }

    fn send(&mut self, key: Option<usize>) {
        self.requests.push(Request { key, sequence: self.order.next, sent: self.server.now });
        self.order.next += 1;
    }

    fn ask(&mut self, key: usize) {
        if !std::mem::replace(&mut self.pending[key].is_asked, true) {
            self.send(Some(key));
        }
    }

    fn receive(&mut self) {
        let received = self.server.now + 1;
        while let Some(message) = self.server.stream.pop_front() {
            match message {
                Message::Reply(request, sight) => {
                    self.order.replied(request);
                    if let Some(key) = request.key {
                        self.seen(key, request, received, sight);
                    }
                }
                Message::Pushes(keys) => {
                    keys.into_iter().for_each(|key| self.pushed(key, received));
                    self.order.pushed = true;
                }
            }
        }
        for key in 0..KEYS.len() {
            if self.pending[key].pushes > 0 {
                self.ask(key);
            }
        }
        for key in self.world.ledger.due_reads(self.server.now, 10) {
            self.ask(KEYS.iter().position(|known| **known == *key).unwrap());
        }
        self.send(None);
    }

    fn pushed(&mut self, key: usize, received: TimeMs) {
        let pending = &mut self.pending[key];
        if pending.pushes == 0 {
            pending.since = self.order.caught_up();
            pending.first_push_may_be_old =
                pending.answered.is_some_and(|sequence| self.order.may_share_turn(sequence));
        }
        pending.pushes += 1;
        pending.until = received;
    }

    fn seen(&mut self, key: usize, request: Request, received: TimeMs, sight: KeyState) {
        let answered = Some(request.sequence);
        let pending = std::mem::replace(&mut self.pending[key], Pending { answered, ..Pending::default() });
        let (since, until) = match pending.pushes {
            0 => (self.order.caught_up(), received),
            _ if received - pending.until <= 250 => (pending.since, pending.until),
            _ => (pending.since, received),
        };
        let sighting = Sighting {
            key: KEYS[key].into(),
            sent: request.sent,
            received,
            since: Some(since),
            until,
            pushes: pending.pushes,
            first_push_may_be_old: pending.first_push_may_be_old,
            missed: false,
            sight,
        };
        self.world.tell(A, LinkEvent::Seen(sighting));
    }

    /// Lets everything arrive. All locks expire in the end.
    fn finish(&mut self) {
        for _ in 0..120 {
            self.apply(&Step::Receive);
            self.apply(&Step::Turn(Vec::new(), 0));
            self.apply(&Step::Wait(50));
            self.apply(&Step::ExpireActively);
            self.apply(&Step::Wait(50));
        }
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let view = self.world.view(APPROVAL, self.server.now);
        let (counted, truth) = (&view.counters, &self.server.truth);
        let after = |after: After| {
            let counts = counted.owner_changes.iter();
            counts.filter(|(label, _)| *label == after).map(|(_, count)| count).sum::<u64>()
        };
        let true_changes = |how: &str| truth.changes.get(how).copied().unwrap_or_default();
        for (name, counted, truth) in [
            ("acquisitions", counted.acquisitions, truth.acquisitions),
            ("renewals", counted.renewals, truth.renewals),
            ("releases", counted.releases, truth.releases),
            ("expirations", counted.expirations, truth.expirations),
            ("changes after a release", after(After::Release), true_changes("release")),
            ("changes after an expiry", after(After::Expiry), true_changes("expiry")),
            ("takeovers", counted.takeover_seconds.count(), true_changes("expiry")),
        ] {
            prop_assert!(counted <= truth, "{}: {} of {}", name, counted, truth);
        }
        let ends = counted.releases + counted.expirations + counted.unknown_ends;
        prop_assert_eq!(view.now.held, self.server.locks.len() as u64);
        prop_assert_eq!(counted.acquisitions, ends + view.now.held);
        Ok(())
    }
}

fn check(steps: &[Step], acquired_with: AcquiredWith) -> Result<(), TestCaseError> {
    let mut run = Run::new(acquired_with);
    steps.iter().for_each(|step| run.apply(step));
    run.finish();
    run.check()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn no_counter_exceeds_the_truth(steps in proptest::collection::vec(step(true), 1..60)) {
        check(&steps, AcquiredWith::Any)?;
    }

    #[test]
    fn no_counter_exceeds_the_truth_if_nothing_is_overwritten(
        steps in proptest::collection::vec(step(false), 1..60),
    ) {
        check(&steps, AcquiredWith::Nx)?;
    }
}
