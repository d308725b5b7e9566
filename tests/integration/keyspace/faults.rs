//! Tests failures of Redis and the network while locks are held. The exporter counts nothing that
//! did not happen, counts unobserved ends as unknown, and recovers by itself.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::stage::{Counted, LONG, Program, SETTINGS, Stage, complaints, is_watching, observed_since, own};
use crate::daemon::Samples;
use crate::redis::proxy::Proxy;
use crate::redis::{RedisServer, eventually};
use crate::site::Site;

const N_HELD: usize = 20;
/// Short, but long enough for a busy machine.
const GIVEN_UP_AFTER: &str = "3s";

/// Holds some locks and performs some work before the failure.
fn begin(mut stage: Stage) -> (Stage, Samples) {
    stage.hold(N_HELD);
    stage.work();
    stage.daemon.wait("all operations are counted", |daemon| Counted::of(&daemon.scrape()) == stage.expected);
    let samples = stage.daemon.scrape();
    assert_eq!(own(&samples, "redis_connects_total"), 1.0);
    (stage, samples)
}

/// Waits until a connection attempt has failed.
fn wait_connect_error(stage: &Stage, before: &Samples) {
    let name = "redis_connect_errors_total";
    let enough = own(before, name) + 1.0;
    stage.daemon.wait("a connection attempt fails", |daemon| own(&daemon.scrape(), name) >= enough);
}

/// Returns by how much a metric of the exporter grew.
fn grown(stage: &Stage, before: &Samples, name: &str) -> f64 {
    own(&stage.daemon.scrape(), name) - own(before, name)
}

/// Checks that the exporter works again: it counts later changes, and held locks are still held.
fn end(mut stage: Stage) {
    stage.work();
    stage.check();
    assert_eq!(complaints(&stage.daemon), "");
    let log = stage.daemon.log();
    assert!(!log.contains("panicked") && !log.contains("ERROR"), "{log}");
    let key = &stage.held[0].0;
    let answer = stage.daemon.get(&format!("/api/v1/locks/{key}"));
    let found: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_ne!(found["history"][0]["what"], "released");
    assert!(stage.daemon.stop().success());
}

#[test]
fn a_restart_that_keeps_the_locks_ends_no_hold() {
    let server = RedisServer::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let (mut stage, before) = begin(Stage::new(server));
    stage.server.kill();
    stage.wait_down();
    wait_connect_error(&stage, &before);
    stage.server.restart();
    stage.program = Program::connect(&stage.server);
    stage.wait_watching();
    assert_eq!(grown(&stage, &before, "redis_failovers_total"), 1.0);
    assert_eq!(grown(&stage, &before, "redis_connects_total"), 1.0);
    assert!(observed_since(&stage.daemon.scrape()) > observed_since(&before));
    end(stage);
}

/// A server that loads its data answers, but shows no keys.
#[test]
fn a_server_that_is_loading_its_data_ends_no_hold() {
    let delay = ["--key-load-delay", "100", "--appendonly", "yes", "--appendfsync", "no"];
    let server = RedisServer::start(&delay);
    let port = server.port();
    let (mut stage, before) = begin(Stage::through(server, port, "10s"));
    // Redis answers about once per thousand keys while it loads. The exporter therefore starts a
    // pass.
    let fill = "for number = 1, 40000 do redis.call('SET', 'other:' .. number, 'value') end";
    stage.server.command(&["EVAL", fill, "0"]);
    stage.server.kill();
    stage.wait_down();
    stage.server.restart();
    stage.program = Program::connect(&stage.server);
    stage.wait_watching();
    assert_eq!(grown(&stage, &before, "redis_failovers_total"), 1.0);
    assert!(stage.daemon.log().contains("LOADING"), "{}", stage.daemon.log());
    end(stage);
}

#[test]
fn the_exporter_waits_for_a_server_that_is_down_at_the_start() {
    let mut server = RedisServer::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    Program::connect(&server).acquire("jobs:lock:held-00", LONG);
    server.kill();
    let site = Site::new();
    site.configure(&format!("redis: {{url: '{}'}}{SETTINGS}", server.url()));
    let daemon = site.start_configured(&[]);
    daemon.wait("a connection attempt fails", |daemon| own(&daemon.scrape(), "redis_connect_errors_total") >= 1.0);
    daemon
        .wait("the missing connection is reported", |daemon| complaints(daemon).contains("no connection to 127.0.0.1"));
    server.restart();
    daemon.wait("the exporter is watching", |daemon| is_watching(&daemon.scrape()));
    daemon.wait("one lock is held", |daemon| Counted::of(&daemon.scrape()).held == 1);
    assert_eq!(Counted::of(&daemon.scrape()), Counted { held: 1, ..Default::default() });
    assert_eq!(complaints(&daemon), "");
}

#[test]
fn a_restart_that_loses_the_locks_does_not_count_as_a_release() {
    let (mut stage, before) = begin(Stage::new(RedisServer::start(&[])));
    stage.server.kill();
    stage.wait_down();
    // Some locks get a new owner before the exporter reconnects.
    stage.daemon.pause();
    stage.server.restart();
    stage.program = Program::connect(&stage.server);
    for (key, token) in &mut stage.held[..5] {
        *token = stage.program.acquire(key, LONG);
    }
    stage.daemon.resume();
    stage.wait_watching();
    let n_lost = N_HELD as u64 - 5;
    stage.wait_locks("held-", |locks| locks.len() == 5);
    assert_eq!(grown(&stage, &before, "redis_failovers_total"), 1.0);
    // The exporter did not see when the new owners acquired the locks.
    let expected = &mut stage.expected;
    (expected.unknown_ends, expected.changes_after_unknown, expected.held) = (N_HELD as u64, 5, 5);
    stage.check();
    // The exporter sees owners that acquire a lock now.
    for (key, token) in &mut stage.held[5..] {
        *token = stage.program.acquire(key, LONG);
    }
    stage.wait_locks("held-", |locks| locks.len() == N_HELD);
    stage.expected.acquisitions += n_lost;
    stage.expected.changes_after_unknown += n_lost;
    stage.expected.held += n_lost;
    end(stage);
}

/// The stall is shorter than the response timeout, so the connection and the known state stay.
#[test]
fn a_stalled_server_keeps_its_connection() {
    let server = RedisServer::start(&["--enable-debug-command", "yes"]);
    let port = server.port();
    let (mut stage, before) = begin(Stage::through(server, port, "10s"));
    // This lock expires while the server does not answer.
    stage.program.acquire("jobs:lock:brief", Duration::from_secs(5));
    stage.wait_locks("brief", |locks| locks.len() == 1);
    eventually("the last second of the lock", || {
        let left: i64 = stage.server.text(&["PTTL", "jobs:lock:brief"]).parse().unwrap();
        (left < 1000).then_some(())
    });
    stage.server.command(&["DEBUG", "SLEEP", "3"]);
    stage.wait_locks("brief", |locks| locks.is_empty());
    stage.work();
    stage.expected.acquisitions += 1;
    let counted = {
        let acquisitions = stage.expected.acquisitions;
        stage
            .daemon
            .wait("the brief lock is counted", |daemon| Counted::of(&daemon.scrape()).acquisitions >= acquisitions);
        Counted::of(&stage.daemon.scrape())
    };
    // The end of the hold is known only to within three seconds. It may count as an expiration or
    // as unknown, but never as a release.
    assert_eq!(counted.expirations + counted.unknown_ends, 1);
    (stage.expected.expirations, stage.expected.unknown_ends) = (counted.expirations, counted.unknown_ends);
    for name in ["redis_connects_total", "redis_failovers_total", "redis_connect_errors_total"] {
        assert_eq!(grown(&stage, &before, name), 0.0, "{name}");
    }
    end(stage);
}

#[test]
fn a_server_that_stops_answering_is_disconnected_and_reconnected() {
    let server = RedisServer::start(&[]);
    let port = server.port();
    let (mut stage, before) = begin(Stage::through(server, port, GIVEN_UP_AFTER));
    stage.program.acquire("jobs:lock:brief", Duration::from_secs(6));
    let acquired = Instant::now();
    stage.wait_locks("brief", |locks| locks.len() == 1);
    stage.server.pause();
    stage.wait_down();
    wait_connect_error(&stage, &before);
    // Waits until the lock has certainly expired.
    sleep(Duration::from_secs(7).saturating_sub(acquired.elapsed()));
    stage.server.resume();
    stage.wait_watching();
    stage.wait_locks("brief", |locks| locks.is_empty());
    assert_eq!(grown(&stage, &before, "redis_failovers_total"), 0.0);
    assert!(grown(&stage, &before, "redis_connects_total") >= 1.0);
    // The exporter did not observe how the hold ended.
    stage.expected.acquisitions += 1;
    stage.expected.unknown_ends += 1;
    end(stage);
}

/// Changes held locks: releases the first three, replaces the owners of two, and renews two.
fn change(stage: &mut Stage) {
    for (key, token) in &stage.held[..3] {
        assert!(stage.program.release(key, token));
    }
    for (key, token) in &mut stage.held[3..5] {
        *token = stage.program.steal(key, LONG);
    }
    for (key, token) in &stage.held[5..7] {
        assert!(stage.program.renew(key, token, LONG * 2));
    }
    stage.held.drain(..3);
    stage.expected.held -= 3;
    stage.expected.changes_after_unknown += 2;
}

#[test]
fn a_short_network_stall_hides_no_change() {
    let server = RedisServer::start(&[]);
    let proxy = Proxy::start(server.port());
    let (mut stage, before) = begin(Stage::through(server, proxy.port(), "10s"));
    proxy.stall();
    change(&mut stage);
    sleep(Duration::from_secs(1));
    proxy.resume();
    stage.wait_locks("held-", |locks| {
        locks.len() == N_HELD - 3 && locks.iter().filter(|lock| lock["renewals"] == 1).count() == 2
    });
    // The exporter received all changes, but late. For all it knows, another owner may have
    // overwritten a lock that is gone, and may have let it expire.
    stage.expected.renewals += 2;
    stage.expected.acquisitions += 2;
    stage.expected.unknown_ends += 5;
    assert_eq!(grown(&stage, &before, "redis_connects_total"), 0.0);
    end(stage);
}

/// The locks expire while the proxy holds back everything. What the exporter receives afterwards is
/// old: nothing of it shows a release or a renewal.
#[test]
fn locks_that_expire_during_a_network_stall_are_not_released() {
    const N_LOCKS: u64 = 30;
    const TTL: Duration = Duration::from_secs(2);
    let server = RedisServer::start(&[]);
    let proxy = Proxy::start(server.port());
    let (mut stage, before) = begin(Stage::through(server, proxy.port(), "30s"));
    let acquire = |stage: &mut Stage, name: &str| {
        for number in 0..N_LOCKS / 3 {
            stage.program.acquire(&format!("jobs:lock:brief-{name}-{number}"), TTL);
        }
    };
    acquire(&mut stage, "seen");
    stage.wait_locks("brief-seen", |locks| !locks.is_empty());
    acquire(&mut stage, "on-the-way");
    proxy.stall();
    acquire(&mut stage, "unseen");
    sleep(Duration::from_secs(5));
    proxy.resume();
    // The exporter has received everything that was held back when it has counted later operations.
    stage.work();
    stage.wait_locks("brief-", |locks| locks.is_empty());
    let passes = own(&stage.daemon.scrape(), "scan_passes_total") + 2.0;
    stage.daemon.wait("two more passes are complete", |daemon| own(&daemon.scrape(), "scan_passes_total") >= passes);
    let counted = Counted::of(&stage.daemon.scrape());
    assert_eq!(grown(&stage, &before, "redis_connects_total"), 0.0);
    let expected = &mut stage.expected;
    assert_eq!((counted.releases, counted.renewals), (expected.releases, expected.renewals), "{counted:?}");
    assert!(counted.acquisitions <= expected.acquisitions + N_LOCKS, "{counted:?}");
    assert!(counted.expirations + counted.unknown_ends <= N_LOCKS, "{counted:?}");
    // How many of the acquisitions and expirations are certain depends on the moment of the stall.
    expected.acquisitions = counted.acquisitions;
    (expected.expirations, expected.unknown_ends) = (counted.expirations, counted.unknown_ends);
    end(stage);
}

#[test]
fn changes_during_a_long_network_stall_are_not_guessed() {
    let server = RedisServer::start(&[]);
    let proxy = Proxy::start(server.port());
    let (mut stage, before) = begin(Stage::through(server, proxy.port(), GIVEN_UP_AFTER));
    proxy.stall();
    stage.wait_down();
    wait_connect_error(&stage, &before);
    change(&mut stage);
    proxy.resume();
    stage.wait_watching();
    stage.wait_locks("held-", |locks| locks.len() == N_HELD - 3);
    stage.expected.unknown_ends += 5;
    assert_eq!(grown(&stage, &before, "redis_failovers_total"), 0.0);
    end(stage);
}

#[test]
fn changes_while_the_network_is_cut_are_not_guessed() {
    let server = RedisServer::start(&[]);
    let proxy = Proxy::start(server.port());
    let (mut stage, before) = begin(Stage::through(server, proxy.port(), "10s"));
    proxy.cut();
    stage.wait_down();
    wait_connect_error(&stage, &before);
    change(&mut stage);
    proxy.resume();
    stage.wait_watching();
    stage.wait_locks("held-", |locks| locks.len() == N_HELD - 3);
    stage.expected.unknown_ends += 5;
    assert_eq!(grown(&stage, &before, "redis_connects_total"), 1.0);
    assert_eq!(grown(&stage, &before, "redis_failovers_total"), 0.0);
    end(stage);
}

#[test]
fn a_killed_connection_is_reopened() {
    let (mut stage, before) = begin(Stage::new(RedisServer::start(&[])));
    stage.server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    stage.program = Program::connect(&stage.server);
    stage.wait_watching_anew(&before);
    assert_eq!(grown(&stage, &before, "redis_connects_total"), 1.0);
    stage.work();
    stage.check();
    let between = stage.daemon.scrape();
    let list = stage.server.text(&["CLIENT", "LIST"]);
    let line = list.lines().find(|line| line.contains("name=redis_lock_exporter")).unwrap();
    let id = line.split_whitespace().find_map(|field| field.strip_prefix("id=")).unwrap();
    stage.server.command(&["CLIENT", "KILL", "ID", id]);
    stage.wait_watching_anew(&between);
    assert_eq!(grown(&stage, &before, "redis_connects_total"), 2.0);
    assert_eq!(grown(&stage, &before, "redis_failovers_total"), 0.0);
    assert_eq!(grown(&stage, &before, "redis_connect_errors_total"), 0.0);
    end(stage);
}

#[test]
fn a_flush_does_not_count_as_a_release() {
    let (mut stage, before) = begin(Stage::new(RedisServer::start(&[])));
    stage.server.command(&["FLUSHALL"]);
    stage.wait_locks("held-", |locks| locks.is_empty());
    stage.daemon.wait("the flush is counted", |_| grown(&stage, &before, "tracking_flushes_total") == 1.0);
    // No change was missed.
    assert_eq!(observed_since(&stage.daemon.scrape()), observed_since(&before));
    assert_eq!(grown(&stage, &before, "redis_connects_total"), 0.0);
    (stage.expected.unknown_ends, stage.expected.held) = (N_HELD as u64, 0);
    end(stage);
}

/// Redis announces an evicted key like any other change.
#[test]
fn an_eviction_does_not_count_as_a_release() {
    let memory = ["--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru"];
    let (mut stage, before) = begin(Stage::new(RedisServer::start(&memory)));
    stage.server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    stage.wait_locks("held-", |locks| locks.is_empty());
    stage.server.command(&["CONFIG", "SET", "maxmemory", "1gb"]);
    (stage.expected.unknown_ends, stage.expected.held) = (N_HELD as u64, 0);
    // Locks that are released from now on were not evicted.
    stage.work();
    stage.check();
    assert_eq!(grown(&stage, &before, "redis_evicted_keys_total"), N_HELD as f64);
    assert_eq!(grown(&stage, &before, "redis_connects_total"), 0.0);
    assert!(complaints(&stage.daemon).contains("has evicted keys"), "{}", complaints(&stage.daemon));
}

/// Without a watcher, nothing shows how locks ended that are missing in the next pass.
fn lose_all_between_two_passes(arguments: &[&str], lose: impl FnOnce(&mut RedisServer)) -> Samples {
    let mut server = RedisServer::start(arguments);
    let site = Site::new();
    site.configure(&format!("redis: {{url: '{}'}}\nwatch: off{SETTINGS}", server.url()));
    let daemon = site.start_configured(&[]);
    let passes = |samples: &Samples| own(samples, "scan_passes_total");
    daemon.wait("the first pass is complete", |daemon| passes(&daemon.scrape()) >= 1.0);
    let mut program = Program::connect(&server);
    for number in 0..N_HELD {
        program.acquire(&format!("jobs:lock:{number}"), LONG);
    }
    let held = Counted { acquisitions: N_HELD as u64, held: N_HELD as u64, ..Default::default() };
    daemon.wait("the locks are held", |daemon| Counted::of(&daemon.scrape()) == held);
    lose(&mut server);
    daemon.wait("no lock is held", |daemon| Counted::of(&daemon.scrape()).held == 0);
    let expected = Counted { unknown_ends: N_HELD as u64, held: 0, ..held };
    assert_eq!(Counted::of(&daemon.scrape()), expected);
    // A release still counts as a release.
    let mut program = Program::connect(&server);
    let token = program.acquire("jobs:lock:later", LONG);
    daemon.wait("one lock is held", |daemon| Counted::of(&daemon.scrape()).held == 1);
    assert!(program.release("jobs:lock:later", &token));
    daemon.wait("the lock is released", |daemon| Counted::of(&daemon.scrape()).held == 0);
    let samples = daemon.scrape();
    let acquisitions = expected.acquisitions + 1;
    assert_eq!(Counted::of(&samples), Counted { acquisitions, releases: 1, ..expected });
    samples
}

#[test]
fn a_flush_between_two_passes_does_not_count_as_a_release() {
    let samples = lose_all_between_two_passes(&[], |server| drop(server.command(&["FLUSHALL"])));
    assert_eq!(own(&samples, "tracking_flushes_total"), 1.0);
}

#[test]
fn an_eviction_between_two_passes_does_not_count_as_a_release() {
    let memory = ["--maxmemory", "1gb", "--maxmemory-policy", "volatile-ttl"];
    let samples = lose_all_between_two_passes(&memory, |server| {
        server.command(&["CONFIG", "SET", "maxmemory", "1"]);
        eventually("Redis to evict all keys", || (server.text(&["DBSIZE"]) == "0").then_some(()));
        server.command(&["CONFIG", "SET", "maxmemory", "1gb"]);
    });
    assert_eq!(own(&samples, "redis_evicted_keys_total"), N_HELD as f64);
}

#[test]
fn a_restart_between_two_passes_does_not_count_as_a_release() {
    let samples = lose_all_between_two_passes(&[], |server| {
        server.kill();
        server.restart();
    });
    assert_eq!(own(&samples, "redis_failovers_total"), 1.0);
}
