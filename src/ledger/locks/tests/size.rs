//! Memory and time with many locks. Times are checked only in optimized builds: see the ignored
//! test.

use std::time::Instant;

use super::*;
use crate::model::query::{Inquiry, LockOrder, LocksQuery};

fn key(number: usize) -> String {
    // 45 bytes, as long as a key with a UUID as its id.
    format!("job:{number:041}")
}

fn fill(locks: usize) -> World {
    let mut world = World::new(locks);
    world.up(A, 0, ServerContinuity::None).pass(A, 1);
    for number in 0..locks {
        world.hold(1000 + number as TimeMs / 100, &key(number), 1, 60);
    }
    world
}

fn bytes_per_lock(world: &World) -> usize {
    let table = world.ledger.keyspace.as_ref().unwrap().table();
    table.bytes() / table.len()
}

#[test]
fn a_lock_takes_at_most_200_bytes() {
    for locks in [20_000, 50_000] {
        let mut world = fill(locks);
        // Renewals and new locks that replace old ones must not make the table grow.
        for number in 0..locks / 2 {
            world.hold(21_000, &key(number), 1, 60);
            world.gone(22_000, &key(number)).hold(23_000, &key(number), 2, 60);
        }
        assert_eq!(world.view(SCHEDULER, 0).now.held, locks as u64);
        let bytes = bytes_per_lock(&world);
        assert!(bytes <= 200, "{bytes} bytes for each of {locks} locks");
    }
}

/// Applies sightings of all locks in batches. Returns the time that the ledger took per lock.
fn tell_all(world: &mut World, locks: usize, at: TimeMs, sight: &KeyState) -> Duration {
    let mut elapsed = Duration::ZERO;
    for first in (0..locks).step_by(1000) {
        let seen = |number: usize| {
            LinkEvent::Seen(Sighting {
                key: key(number).into(),
                sent: at,
                received: at + 1,
                since: Some(at - 10),
                until: at,
                pushes: 1,
                first_push_may_be_old: false,
                missed: false,
                sight: sight.clone(),
            })
        };
        let batch = LinkBatch { link: A, news: (first..first + 1000).map(seen).collect() };
        let start = Instant::now();
        world.ledger.apply_link(batch);
        elapsed += start.elapsed();
    }
    elapsed / locks as u32
}

/// Run with `cargo test --release --lib -- --ignored --nocapture a_million`.
#[test]
#[ignore = "takes a while and wants an optimized build"]
fn a_million_locks() {
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() / 1024
    };
    let locks = 1_000_000;
    let before = resident();
    let mut world = World::new(locks);
    world.up(A, 0, ServerContinuity::None).pass(A, 1);
    let held = world.held(1, 60);
    let acquire = tell_all(&mut world, locks, 1000, &held);
    let renew = tell_all(&mut world, locks, 21_000, &held);
    let resident = resident() - before;
    let start = Instant::now();
    world.ledger.survey(22_000);
    let survey = start.elapsed();
    let start = Instant::now();
    world.pass(A, 30_000);
    let pass = start.elapsed();
    let start = Instant::now();
    assert_eq!(world.ledger.due_reads(30_001, 10_000).len(), 10_000);
    let due_reads = start.elapsed();
    let mut asked = String::new();
    for sort in [LockOrder::TtlRemaining, LockOrder::HeldLongest, LockOrder::OwnerChanges, LockOrder::Key] {
        let query =
            LocksQuery { sort, limit: 50, offset: locks / 2, search: Some("9".to_owned()), lock_namespace: None };
        let (reply, mut answer) = tokio::sync::oneshot::channel();
        let start = Instant::now();
        world.ledger.answer(Inquiry::Locks(query, reply), 35_000);
        asked += &format!("{sort:?} {:?}, ", start.elapsed());
        assert!(answer.try_recv().unwrap().total > 0);
    }
    let release = tell_all(&mut world, locks, 40_000, &KeyState::Absent);
    let text = format!(
        "{acquire:?} to acquire, {renew:?} to renew, {release:?} to release, {resident} MB resident, survey {survey:?}, \
         a pass that saw none {pass:?}, 10 000 due reads {due_reads:?}, pages of locks: {asked}"
    );
    // The test runner shows it with `--nocapture`.
    std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes()).unwrap();
}
