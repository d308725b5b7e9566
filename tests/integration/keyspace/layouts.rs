//! Tests the key layouts that libraries use for locks, and keys that resemble locks.

use super::scene::{Counts, Scene, number, sleep_ms, wait_passes, wait_watching};
use super::stage::json;
use crate::daemon::sum;
use crate::redis::RedisServer;
use crate::redis::client::Client;
use crate::site::Site;

const LOCKS: &str = "  - {name: locks, keys: ['lock:{id}'], ttl: 10s, renew_every: 3s}";

#[test]
fn owners_are_read_from_hash_fields() {
    let scene = Scene::watching(LOCKS, "");
    let take = |owner: &str, ttl: u32| {
        format!("redis.call('HINCRBY', 'lock:h', '{owner}', 1) redis.call('PEXPIRE', 'lock:h', {ttl})")
    };
    scene.script(&take("uuid:1", 600_000));
    scene.expect("locks", Counts { held: 1, acquisitions: 1, ..Counts::default() });
    // The same owner enters again, which renews the lock, and leaves once. The count does not
    // identify an owner.
    scene.script(&take("uuid:1", 900_000));
    scene.script("redis.call('HINCRBY', 'lock:h', 'uuid:1', -1)");
    scene.expect("locks", Counts { held: 1, acquisitions: 1, renewals: 1, ..Counts::default() });
    scene.step(&["DEL", "lock:h"]);
    scene.script(&take("uuid:2", 600_000));
    let expected = Counts { held: 1, acquisitions: 2, renewals: 1, releases: 1, after_release: 1, ..Counts::default() };
    scene.expect("locks", expected);
    // A lock for readers has a field that is not an owner. Readers that enter and leave are not
    // owner changes.
    scene.script("redis.call('DEL', 'lock:h')");
    scene.script("redis.call('HSET', 'lock:rw', 'mode', 'read', 'a', 1) redis.call('PEXPIRE', 'lock:rw', 600000)");
    scene.script("redis.call('HSET', 'lock:rw', 'b', 1)");
    scene.script("redis.call('HDEL', 'lock:rw', 'a')");
    scene.expect("locks", Counts { acquisitions: 3, releases: 2, ..expected });
    assert_eq!(scene.number("redis_lock_non_lock_keys", "locks"), 0.0);
}

#[test]
fn owners_are_read_from_sorted_set_members() {
    let scene = Scene::watching(LOCKS, "");
    let take = |owner: &str, time: u32| {
        format!("redis.call('ZADD', 'lock:z', {time}, '{owner}') redis.call('PEXPIRE', 'lock:z', {time}00000)")
    };
    scene.script(&take("a", 1));
    scene.script(&take("a", 2));
    scene.step(&["ZREM", "lock:z", "a"]);
    scene.script(&take("b", 3));
    let expected = Counts { held: 1, acquisitions: 2, renewals: 1, releases: 1, after_release: 1, ..Counts::default() };
    scene.expect("locks", expected);
}

#[test]
fn owners_are_read_from_json_in_any_order() {
    let scene = Scene::watching(LOCKS, "");
    let mut client = scene.client();
    // The TTL grows each time, so the exporter sees each renewal.
    let mut ttl = 600_000;
    let mut write_to = |key: &str, value: &str| {
        ttl += 60_000;
        scene.step(&["SET", key, value, "PX", &ttl.to_string()]);
    };
    let mut write = |value: &str| write_to("lock:res", value);
    write(r#"{"updated_at":1794786062,"mode":"exclusive","expires_at":1794786122,"owners":{"worker-1":1}}"#);
    write(r#"{"owners":{"worker-1":2},"mode":"exclusive","updated_at":1794786064,"expires_at":1794786124}"#);
    write(r#"{"mode":"exclusive","owners":{"worker-1":1},"expires_at":1794786125,"updated_at":1794786065}"#);
    let expected = Counts { held: 1, acquisitions: 1, renewals: 2, ..Counts::default() };
    scene.expect("locks", expected);
    write(r#"{"mode":"exclusive","owners":{"worker-2":1},"expires_at":1794786125,"updated_at":1794786065}"#);
    let expected = Counts { acquisitions: 2, unknown_ends: 1, after_unknown: 1, ..expected };
    scene.expect("locks", expected);
    client.command(&["DEL", "lock:res"]);
    // A shared lock: members that enter and leave are not owner changes.
    let mut write = |value: &str| write_to("lock:shared", value);
    write(r#"{"mode":"shared","owners":{"a":1}}"#);
    write(r#"{"mode":"shared","owners":{"a":1,"b":1}}"#);
    write(r#"{"mode":"shared","owners":{"b":1}}"#);
    scene.expect("locks", Counts { acquisitions: 3, renewals: 4, releases: 1, ..expected });
}

/// The exporter reads only the beginning of a value. If it cannot read the owner, it does not count
/// an owner change.
#[test]
fn json_that_is_too_large_has_no_known_owner() {
    let scene = Scene::watching(LOCKS, "");
    for time in ["1", "2", "3"] {
        let write = format!(
            r#"redis.call('SET', 'lock:res', '{{"updated_at":{time},"pad":"' .. string.rep('x', 40000) .. '","owners":{{"a":1}}}}', 'PX', {time}00000)"#
        );
        scene.script(&write);
    }
    scene.expect("locks", Counts { held: 1, acquisitions: 1, renewals: 2, ..Counts::default() });
}

#[test]
fn passes_read_all_layouts() {
    let scene = Scene::scanning(LOCKS);
    let mut client = scene.client();
    for commands in [
        "redis.call('HSET', 'lock:hash', 'a', 1) redis.call('PEXPIRE', 'lock:hash', 600000)",
        "redis.call('ZADD', 'lock:sorted', 1, 'a') redis.call('PEXPIRE', 'lock:sorted', 600000)",
    ] {
        client.command(&["EVAL", commands, "0"]);
    }
    client.command(&["SET", "lock:json", r#"{"owners":{"a":1},"updated_at":1}"#, "PX", "600000"]);
    client.command(&["SET", "lock:string", "a", "PX", "600000"]);
    client.command(&["RPUSH", "lock:list", "a"]);
    let taken = Counts { held: 4, acquisitions: 4, ..Counts::default() };
    scene.expect("locks", taken);
    assert_eq!(scene.number("redis_lock_non_lock_keys", "locks"), 1.0);
    // The owners enter again and renew: the owners stay the same.
    client.command(&["HINCRBY", "lock:hash", "a", "1"]);
    client.command(&["ZADD", "lock:sorted", "2", "a"]);
    client.command(&["SET", "lock:json", r#"{"updated_at":2,"owners":{"a":2}}"#, "PX", "900000"]);
    client.command(&["DEL", "lock:list"]);
    scene.expect("locks", Counts { renewals: 1, ..taken });
    assert_eq!(scene.number("redis_lock_non_lock_keys", "locks"), 0.0);
    for key in ["lock:hash", "lock:sorted", "lock:string"] {
        client.command(&["DEL", key]);
    }
    scene.expect("locks", Counts { held: 1, renewals: 1, releases: 3, ..taken });
}

#[test]
fn keys_of_other_types_are_counted_as_non_locks() {
    let scene = Scene::watching(LOCKS, "");
    let mut client = scene.client();
    client.command(&["RPUSH", "lock:list", "a"]);
    client.command(&["SADD", "lock:set", "a"]);
    client.command(&["XADD", "lock:stream", "*", "a", "b"]);
    scene.expect("locks", Counts::default());
    assert_eq!(scene.number("redis_lock_non_lock_keys", "locks"), 3.0);
    // The key is deleted, or becomes a lock.
    client.command(&["DEL", "lock:list"]);
    client.command(&["DEL", "lock:set"]);
    client.command(&["SET", "lock:set", "a", "PX", "600000"]);
    scene.expect("locks", Counts { held: 1, acquisitions: 1, ..Counts::default() });
    assert_eq!(scene.number("redis_lock_non_lock_keys", "locks"), 1.0);
}

/// All other keys of Cordum exist at the start and change while the exporter watches.
#[test]
fn keys_that_resemble_locks_are_not_counted() {
    let server = RedisServer::start(&[]);
    let mut client = server.client();
    let touch = |client: &mut Client| {
        for (key, value) in [
            ("cordum:scheduler:input_fail_open_total", "7"),
            ("cordum:instance:scheduler:a", "{}"),
            ("mcp:dedupe:x", r#"{"state":"pending"}"#),
            ("eval:run:pending:x", "{}"),
            ("job:idempotency:x", "1"),
            ("wf:run:idempotency:x", "1"),
        ] {
            client.command(&["SET", key, value]);
        }
        client.command(&["ZADD", "cordum:wf:delay:timers", "1", "x"]);
        client.command(&["RPUSH", "saga:x:stack", "a"]);
    };
    touch(&mut client);
    let site = Site::new();
    site.configure(&format!("presets: [cordum]\nredis: {{url: '{}/0'}}\n", server.url()));
    let daemon = site.start_configured(&[]);
    wait_passes(&daemon, 1.0);
    wait_watching(&daemon);
    touch(&mut client);
    client.command(&["DEL", "cordum:scheduler:input_fail_open_total", "saga:x:stack"]);
    client.command(&["SET", "cordum:scheduler:job:1", "a", "PX", "60000"]);
    client.command(&["SET", "saga:x:lock", "1", "PX", "60000"]);
    daemon.wait("both locks are held", |daemon| sum(&daemon.scrape(), "redis_lock_held") == 2.0);
    let samples = daemon.scrape();
    assert_eq!(sum(&samples, "redis_lock_acquisitions_total"), 2.0);
    for metric in ["releases_total", "unknown_ends_total", "without_ttl", "non_lock_keys", "untracked_locks_total"] {
        assert_eq!(sum(&samples, &format!("redis_lock_{metric}")), 0.0, "{metric}");
    }
}

#[test]
fn locks_without_ttl_and_fixed_keys_are_supported() {
    let namespaces = format!("{LOCKS}\n  - {{name: leader, keys: [leader], style: loop, ttl: 10s}}");
    let scene = Scene::watching(&namespaces, "");
    let mut client = scene.client();
    let last_held = || scene.number("redis_lock_last_held_timestamp_seconds", "leader");
    // The lock was never held since observation began.
    let began = last_held();
    assert!(began > 1.7e9, "{began}");
    client.command(&["SET", "lock:1", "a"]);
    client.command(&["SET", "leader", "a"]);
    scene.sync();
    assert_eq!(scene.number("redis_lock_without_ttl", "locks"), 1.0);
    assert!(last_held() > began);
    // The lock gets its TTL late, so its margin is unknown.
    client.command(&["PEXPIRE", "lock:1", "600000"]);
    scene.expect("locks", Counts { held: 1, acquisitions: 1, ..Counts::default() });
    assert_eq!(scene.number("redis_lock_without_ttl", "locks"), 0.0);
    client.command(&["PERSIST", "lock:1"]);
    client.command(&["DEL", "leader"]);
    scene.expect("leader", Counts { acquisitions: 1, releases: 1, ..Counts::default() });
    assert_eq!(scene.number("redis_lock_without_ttl", "locks"), 1.0);
    let gone = last_held();
    sleep_ms(1200);
    assert_eq!(last_held(), gone);
}

#[test]
fn a_fence_that_decreases_is_counted() {
    let namespaces = "  - {name: locks, keys: ['lock:{id}'], ttl: 10s, fence: 'fence:{key}'}";
    let scene = Scene::watching(namespaces, "");
    let hold = |fence: &str| {
        let take = format!(
            "redis.call('SET', 'fence:lock:1', '{fence}') redis.call('SET', 'lock:1', '{fence}', 'PX', 600000)"
        );
        scene.script(&take);
        scene.step(&["DEL", "lock:1"]);
    };
    hold("1");
    hold("2");
    hold("9");
    hold("not a number");
    scene.sync();
    assert_eq!(scene.number("redis_lock_fence_regressions_total", "locks"), 0.0);
    // This happens after a failover to a replica that lagged behind.
    hold("4");
    hold("5");
    scene.sync();
    assert_eq!(scene.number("redis_lock_fence_regressions_total", "locks"), 1.0);
}

#[test]
fn binary_or_very_large_keys_and_values_are_supported() {
    let scene = Scene::watching(LOCKS, "");
    scene.script(r"redis.call('SET', 'lock:binary', '\0\255\254\r\n{', 'PX', 600000)");
    scene.script("redis.call('SET', 'lock:large', string.rep('x', 5000000), 'PX', 600000)");
    scene.script("redis.call('SET', 'lock:empty', '', 'PX', 600000)");
    scene.script(r"redis.call('SET', 'lock:\255\254', 'a', 'PX', 600000)");
    // The same owners renew their locks.
    for key in ["lock:binary", "lock:large", "lock:empty"] {
        scene.step(&["PEXPIRE", key, "900000"]);
    }
    scene.script(r"redis.call('PEXPIRE', 'lock:\255\254', 900000)");
    let expected = Counts { held: 3, acquisitions: 3, renewals: 3, ..Counts::default() };
    scene.expect("locks", expected);
    scene.script(r"redis.call('SET', 'lock:binary', '\0\255\254\r\n}', 'PX', 900000)");
    scene.step(&["DEL", "lock:large"]);
    let expected = Counts { held: 2, acquisitions: 4, releases: 1, unknown_ends: 1, after_unknown: 1, ..expected };
    scene.expect("locks", expected);
    assert_eq!(sum(&scene.daemon.scrape(), "redis_lock_exporter_redis_read_errors_total"), 0.0);
    assert_eq!(sum(&scene.daemon.scrape(), "redis_lock_exporter_redis_connects_total"), 1.0);
}

#[test]
fn a_full_table_counts_untracked_locks() {
    let server = RedisServer::start(&[]);
    let site = Site::new();
    let redis = format!("redis: {{url: '{}/0', max_tracked_locks: 5}}\nnamespaces:\n{LOCKS}\n", server.url());
    site.configure(&redis);
    let daemon = site.start_configured(&[]);
    wait_watching(&daemon);
    wait_passes(&daemon, 1.0);
    let mut client = server.client();
    for number in 0..8 {
        client.command(&["SET", &format!("lock:{number}"), "a", "PX", "60000"]);
    }
    daemon.wait("three untracked locks", |daemon| sum(&daemon.scrape(), "redis_lock_untracked_locks_total") == 3.0);
    // Untracked locks are renewed and end. The exporter does not guess about them and has room for
    // new locks again.
    for number in 5..7 {
        client.command(&["PEXPIRE", &format!("lock:{number}"), "90000"]);
        client.command(&["DEL", &format!("lock:{number}")]);
    }
    client.command(&["DEL", "lock:0"]);
    client.command(&["DEL", "lock:1"]);
    let known = |key: &str, total: u64| {
        let path = format!("/api/v1/locks?search={key}");
        daemon.wait("the ledger knows the locks", |daemon| json(daemon, &path)["total"] == total);
    };
    known("lock:", 3);
    // A lock that was held all the time does not count as a new acquisition.
    client.command(&["PEXPIRE", "lock:7", "90000"]);
    known("lock:7", 1);
    client.command(&["SET", "lock:9", "a", "PX", "60000"]);
    daemon.wait("the sixth lock is counted", |daemon| Counts::of(&daemon.scrape(), "locks").acquisitions >= 6);
    let expected = Counts { held: 5, acquisitions: 6, releases: 2, ..Counts::default() };
    let samples = daemon.scrape();
    assert_eq!(Counts::of(&samples, "locks"), expected);
    assert_eq!(sum(&samples, "redis_lock_untracked_locks_total"), 3.0);
}

#[test]
fn reads_above_the_rate_limit_are_skipped_and_passes_find_the_locks() {
    let more = "watch: {max_reads_per_second: 20}\nscan: {interval: 1s, max_redis_share: 0.5}\n";
    let scene = Scene::watching(LOCKS, more);
    let mut client = scene.client();
    let keys: Vec<String> = (0..300).map(|number| format!("lock:{number}")).collect();
    let set: Vec<[&str; 5]> = keys.iter().map(|key| ["SET", key, "a", "PX", "120000"]).collect();
    let set: Vec<&[&str]> = set.iter().map(|command| command.as_slice()).collect();
    client.pipeline(&set);
    let held = |daemon: &crate::daemon::Daemon| Counts::of(&daemon.scrape(), "locks").held;
    scene.daemon.wait("all locks are held", |daemon| held(daemon) == 300);
    let skipped = "redis_lock_exporter_tracking_skipped_reads_total";
    assert!(sum(&scene.daemon.scrape(), skipped) > 100.0, "{}", scene.keyspace_metrics());
    // A new lock was certainly acquired, even if it is read late.
    assert_eq!(Counts::of(&scene.daemon.scrape(), "locks").acquisitions, 300);
    let is_source = |namespace: &str, source: &str| {
        let labels = [("lock_namespace", namespace), ("source", source)];
        number(&scene.daemon.scrape(), "redis_lock_operations_source", &labels) == 1.0
    };
    assert!(is_source("locks", "partial") && is_source("marker", "watch"), "{}", scene.keyspace_metrics());
    let findings = scene.daemon.get("/api/v1/overview").text();
    assert!(findings.contains("Changes of these locks were missed in the last 5 minutes"), "{findings}");
    // The locks end in the same way. Passes find locks whose end was skipped.
    let del: Vec<[&str; 2]> = keys.iter().map(|key| ["DEL", key]).collect();
    let del: Vec<&[&str]> = del.iter().map(|command| command.as_slice()).collect();
    client.pipeline(&del);
    scene.daemon.wait("no lock is held", |daemon| held(daemon) == 0);
    let counts = Counts::of(&scene.daemon.scrape(), "locks");
    assert_eq!(counts.releases + counts.unknown_ends, 300, "{counts:?}");
    assert_eq!((counts.expirations, counts.renewals, counts.after_unknown), (0, 0, 0), "{counts:?}");
}
