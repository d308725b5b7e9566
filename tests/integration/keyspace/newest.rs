//! Tests commands that only newer servers have: TTLs of hash fields, comparisons in `SET` and
//! `DEL`, and reads that leave no trace.
//!
//! A test is skipped where the server does not know its command. The step `servers` of `make
//! test-all` runs them on the newest Redis and Valkey.

use super::cluster::Watched;
use super::scene::{Counts, Scene, configuration, wait_passes, wait_watching};
use crate::redis::cluster::Cluster;
use crate::redis::{RedisServer, eventually};
use crate::site::Site;
use crate::skipped::skip;

const LOCKS: &str = "  - {name: locks, keys: ['lock:{id}'], ttl: 60s, renew_every: 20s}";

/// Returns a server that knows one of the commands, or `None` and skips the test.
fn server_with(commands: &[&str]) -> Option<RedisServer> {
    let server = RedisServer::start(&[]);
    if !commands.iter().any(|command| server.knows(command)) {
        skip(&format!("this server has no {}", commands.join(" or ")));
        return None;
    }
    Some(server)
}

/// `SET IFEQ` came to Redis with `DELEX`, and is in every Valkey that has `DELIFEQ`.
fn server_with_comparing_set() -> Option<RedisServer> {
    server_with(&["DELEX", "DELIFEQ"])
}

fn watching(server: RedisServer, namespaces: &str) -> Scene {
    let scene = Scene::start(server, namespaces, "");
    wait_watching(&scene.daemon);
    scene
}

/// Acquires a lock in a hash. `more` is done in the same change.
fn acquire_hash(scene: &Scene, key: &str, owner: &str, ttl_ms: u64, more: &str) {
    scene.script(&format!(
        "redis.call('HSET', '{key}', '{owner}', 1) \
         redis.call('HPEXPIRE', '{key}', {ttl_ms}, 'FIELDS', 1, '{owner}') {more}"
    ));
}

#[test]
fn a_hash_field_with_its_own_ttl_expires() {
    let Some(server) = server_with(&["HPEXPIRE"]) else { return };
    let scene = watching(server, LOCKS);
    acquire_hash(&scene, "lock:1", "a", 600_000, "");
    let held = Counts { held: 1, acquisitions: 1, ..Counts::default() };
    scene.expect("locks", held);
    assert_eq!(scene.number("redis_lock_without_ttl", "locks"), 0.0);
    let remaining = scene.number("redis_lock_ttl_remaining_min_seconds", "locks");
    assert!((400.0..=600.0).contains(&remaining), "{remaining}");

    scene.step(&["HPEXPIRE", "lock:1", "900000", "FIELDS", "1", "a"]);
    scene.expect("locks", Counts { renewals: 1, ..held });
    scene.step(&["HDEL", "lock:1", "a"]);
    let released = Counts { held: 0, renewals: 1, releases: 1, ..held };
    scene.expect("locks", released);

    // The field expires. The key is deleted with it, or stays because of another field, or has a
    // longer TTL of its own.
    acquire_hash(&scene, "lock:2", "a", 1000, "");
    acquire_hash(&scene, "lock:3", "a", 1000, "redis.call('HSET', 'lock:3', 'mode', 'write')");
    acquire_hash(&scene, "lock:4", "a", 1000, "redis.call('PEXPIRE', 'lock:4', 600000)");
    let expired = Counts { acquisitions: 4, expirations: 3, ..released };
    scene.daemon.wait("the fields expire", |_| scene.counts("locks").held == 0);
    scene.expect("locks", expired);

    // The next owner takes the lock over.
    acquire_hash(&scene, "lock:2", "b", 600_000, "");
    scene.expect("locks", Counts { held: 1, acquisitions: 5, after_expiry: 1, ..expired });
}

/// `SET` and deletion with a comparison, as one program with one token uses them.
#[test]
fn comparing_commands_of_the_same_owner_are_renewals_and_releases() {
    let Some(server) = server_with_comparing_set() else { return };
    let delete: fn(&str) -> Vec<&str> = match server.knows("DELEX") {
        true => |key| vec!["DELEX", key, "IFEQ", "a"],
        false => |key| vec!["DELIFEQ", key, "a"],
    };
    let scene = watching(server, LOCKS);
    scene.step(&["SET", "lock:1", "a", "NX", "PX", "600000"]);
    scene.step(&["SET", "lock:1", "a", "IFEQ", "a", "PX", "900000"]);
    let held = Counts { held: 1, acquisitions: 1, renewals: 1, ..Counts::default() };
    scene.expect("locks", held);
    // A comparison that fails changes nothing.
    scene.step(&["SET", "lock:1", "b", "IFEQ", "c", "PX", "950000"]);
    scene.step(&["SET", "lock:2", "a", "NX", "PX", "600000"]);
    scene.step(&delete("lock:1"));
    scene.step(&delete("lock:1"));
    scene.expect("locks", Counts { acquisitions: 2, releases: 1, ..held });
}

const ROTATING: &str =
    "  - {name: locks, keys: ['lock:{id}'], ttl: 60s, renew_every: 20s, renewal_changes_owner: true}";

#[test]
fn a_renewal_may_write_a_new_token() {
    let Some(server) = server_with_comparing_set() else { return };
    let scene = watching(server, ROTATING);
    scene.step(&["SET", "lock:1", "a", "NX", "PX", "600000"]);
    scene.step(&["SET", "lock:1", "b", "IFEQ", "a", "PX", "900000"]);
    scene.step(&["SET", "lock:1", "c", "IFEQ", "b", "PX", "950000"]);
    let held = Counts { held: 1, acquisitions: 1, renewals: 2, ..Counts::default() };
    scene.expect("locks", held);
    scene.step(&["DEL", "lock:1"]);
    scene.step(&["SET", "lock:1", "d", "NX", "PX", "600000"]);
    scene.expect("locks", Counts { acquisitions: 2, releases: 1, after_release: 1, ..held });
}

#[test]
fn a_renewal_without_a_ttl_is_a_finding() {
    let Some(server) = server_with_comparing_set() else { return };
    let scene = watching(server, LOCKS);
    scene.step(&["SET", "lock:never", "a", "NX"]);
    scene.step(&["SET", "lock:1", "a", "NX", "PX", "600000"]);
    scene.step(&["SET", "lock:1", "a", "IFEQ", "a"]);
    scene.expect("locks", Counts { held: 2, acquisitions: 2, ..Counts::default() });
    assert_eq!(scene.number("redis_lock_without_ttl", "locks"), 2.0);
    let findings = || scene.daemon.get("/api/v1/overview").text();
    let lost = "1 lock lost the TTL while held and will stay until deleted: SET without PX or EX removes it.";
    scene.daemon.wait("the finding", |_| findings().contains(lost));
    assert!(findings().contains("1 lock has no TTL and will stay until deleted."), "{}", findings());
    // The next renewal sets a TTL again.
    scene.step(&["SET", "lock:1", "a", "IFEQ", "a", "PX", "600000"]);
    scene.daemon.wait("the end of the finding", |_| !findings().contains(lost));
}

#[test]
fn without_hpttl_permission_the_exporter_counts_and_reports_it() {
    let Some(server) = server_with(&["HPTTL"]) else { return };
    server.command(&["ACL", "SETUSER", "default", "-hpttl"]);
    let scene = watching(server, LOCKS);
    acquire_hash(&scene, "lock:1", "a", 600_000, "");
    let held = Counts { held: 1, acquisitions: 1, ..Counts::default() };
    scene.expect("locks", held);
    assert_eq!(scene.number("redis_lock_without_ttl", "locks"), 1.0);
    let complaint = "user default may not HPTTL keys under lock:*";
    let ready = scene.daemon.get("/-/ready").text();
    assert!(ready.contains(complaint) && ready.contains("add +hpttl %R~lock:*"), "{ready}");
    scene.step(&["HDEL", "lock:1", "a"]);
    scene.expect("locks", Counts { held: 0, releases: 1, ..held });
}

/// The server itself moves a slot with its keys. It deletes the copies at the old node, and announces
/// each of them as changed.
#[test]
fn holds_continue_when_the_server_migrates_their_slot() {
    let watched = Watched::start();
    let nodes = &watched.cluster.nodes;
    if !nodes[0].knows("CLUSTER|MIGRATION") && !nodes[0].knows("CLUSTER|MIGRATESLOTS") {
        return skip("this server does not migrate slots by itself");
    }
    let keys: Vec<String> = (0..50).map(|number| format!("lock:{{m}}{number}")).collect();
    for key in &keys {
        watched.run(0, &["SET", key, "a", "NX", "PX", "600000"]);
    }
    // A lock without a TTL has no deadline that would bring it back.
    watched.run(0, &["PERSIST", &keys[0]]);
    let mut expected = Counts { held: 50, acquisitions: 50, ..Counts::default() };
    watched.expect("locks in one slot", expected);
    let first = watched.cluster.primary_of(&keys[0], 0);
    let second = (first + 1) % 3;
    for (source, target) in [(first, second), (second, first)] {
        migrate_slot(&watched.cluster, &keys[0], source, target);
        watched.wait_until_found();
        watched.expect("the slot has moved", expected);
        // Changes at the new node.
        let key = |number: u64| &keys[(expected.releases * 3 + number) as usize];
        watched.run(target, &["PEXPIRE", key(1), "900000"]);
        watched.run(target, &["DEL", key(2)]);
        watched.run(target, &["SET", &format!("lock:{{m}}new-{target}"), "b", "NX", "PX", "600000"]);
        expected.acquisitions += 1;
        expected.renewals += 1;
        expected.releases += 1;
        watched.expect("changes at the new node", expected);
    }
}

/// Moves the slot of a key, and waits until all nodes know it.
fn migrate_slot(cluster: &Cluster, key: &str, source: usize, target: usize) {
    let slot = cluster.nodes[0].text(&["CLUSTER", "KEYSLOT", key]);
    if cluster.nodes[0].knows("CLUSTER|MIGRATION") {
        cluster.nodes[target].command(&["CLUSTER", "MIGRATION", "IMPORT", &slot, &slot]);
    } else {
        let id = cluster.nodes[target].text(&["CLUSTER", "MYID"]);
        cluster.nodes[source].command(&["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &slot, &slot, "NODE", &id]);
    }
    for asked in 0..cluster.nodes.len() {
        eventually("all nodes to know the new place of the slot", || {
            (cluster.primary_of(key, asked) == target).then_some(())
        });
    }
    eventually("the old node to delete its copies", || (slot_size(&cluster.nodes[source], &slot) == "0").then_some(()));
}

fn slot_size(node: &RedisServer, slot: &str) -> String {
    node.text(&["CLUSTER", "COUNTKEYSINSLOT", slot])
}

/// What evicts keys must not take the exporter's reads for use of the lock.
#[test]
fn reads_of_the_exporter_are_no_use_of_the_lock() {
    let Some(server) = server_with(&["CLIENT|NO-TOUCH"]) else { return };
    for (policy, question) in [("allkeys-lru", "IDLETIME"), ("allkeys-lfu", "FREQ")] {
        server.command(&["CONFIG", "SET", "maxmemory-policy", policy]);
        server.command(&["FLUSHALL"]);
        for key in ["lock:string", "control"] {
            server.command(&["SET", key, "a", "PX", "600000"]);
        }
        server.command(&["HSET", "lock:hash", "a", "1"]);
        let site = Site::new();
        let more = "scan: {interval: 1s, max_redis_share: 0.5}\nwatch: off\n";
        site.configure(&configuration(&format!("{{url: '{}/0'}}", server.url()), LOCKS, more));
        let daemon = site.start_configured(&[]);
        wait_passes(&daemon, 6.0);
        let answer = |key: &str| server.text(&["OBJECT", question, key]).parse::<i64>().unwrap();
        for key in ["lock:string", "lock:hash"] {
            let (of_lock, of_control) = (answer(key), answer("control"));
            // The idle time is rounded to seconds.
            let difference = (of_lock - of_control).abs();
            assert!(difference <= i64::from(question == "IDLETIME"), "{policy}: {key} {of_lock}, control {of_control}");
        }
    }
}
