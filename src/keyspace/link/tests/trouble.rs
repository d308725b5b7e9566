//! Flushes, lost connections, and servers that hang or are replaced.

use super::*;
use crate::keyspace::servers::proxy::Proxy;
use crate::util::clock;

fn up(news: &LinkEvent) -> Option<ServerContinuity> {
    match news {
        LinkEvent::Up { past, watching: true, .. } => Some(*past),
        _ => None,
    }
}

fn is_down(news: &LinkEvent) -> Option<()> {
    matches!(news, LinkEvent::Down { .. }).then_some(())
}

#[tokio::test]
async fn a_flush_is_told_and_followed_by_a_pass() {
    let server = Server::start(&[]);
    let mut watch = Watch::begin(&server).await;
    let mut client = server.client().await;
    client.run("SET lock:1 a PX 60000").await;
    watch.seen().await;
    client.run("FLUSHALL").await;
    let flushed = watch.find(|news| if let LinkEvent::Flushed { at } = news { Some(*at) } else { None }).await;
    let started =
        watch.find(|news| if let LinkEvent::PassDone { started, .. } = news { Some(*started) } else { None }).await;
    assert!(started >= flushed, "the pass after a flush makes all locks known again: {started}, {flushed}");
    client.run("SET lock:1 b PX 60000").await;
    let seen = watch.seen().await;
    watch.held("b", Some(60_000), &seen.sight);
    assert_eq!(watch.status().totals.flushes, 1);
    watch.end().await;
}

#[tokio::test]
async fn a_killed_connection_comes_back_to_the_same_server() {
    let server = Server::start(&[]);
    let mut watch = Watch::begin(&server).await;
    let mut client = server.client().await;
    client.run("SET lock:1 a PX 60000").await;
    watch.seen().await;
    client.run("CLIENT KILL TYPE normal SKIPME yes").await;
    watch.find(is_down).await;
    assert_eq!(watch.find(up).await, ServerContinuity::SameServer);
    let seen = watch.seen().await;
    assert_eq!((&*seen.key, seen.pushes), ("lock:1", 0));
    watch.pass_done().await;
    let status = watch.status();
    assert_eq!((status.totals.connects, status.totals.failovers, status.up), (2, 0, true));
    watch.end().await;
}

#[tokio::test]
async fn a_restarted_server_is_another_one() {
    let mut server = Server::start(&[]);
    let mut watch = Watch::begin(&server).await;
    server.kill();
    server.restart();
    watch.find(is_down).await;
    assert_eq!(watch.find(up).await, ServerContinuity::OtherServer);
    watch.pass_done().await;
    assert_eq!(watch.status().totals.failovers, 1);
    watch.end().await;
}

#[tokio::test]
async fn a_server_that_was_a_replica_for_a_moment_is_another_one() {
    let server = Server::start(&[]);
    let mut watch = Watch::begin(&server).await;
    let mut client = server.client().await;
    // A primary does this by itself if it had no replica for an hour.
    client.run("DEBUG CHANGE-REPL-ID").await;
    client.run("REPLICAOF 127.0.0.1 1").await;
    client.run("REPLICAOF NO ONE").await;
    watch.find(is_down).await;
    assert_eq!(watch.find(up).await, ServerContinuity::OtherServer);
    watch.end().await;
}

#[tokio::test]
async fn a_change_during_a_hang_is_known_to_be_uncertain() {
    let server = Server::start(&[]);
    let mut watch = Watch::begin(&server).await;
    let mut client = server.client().await;
    client.run("SET lock:1 a PX 60000").await;
    watch.seen().await;
    // One script: the change comes first, but Redis pushes it only at the end of the script.
    let before = clock::steady();
    let hang = "local e=0 for i=1,40000000 do e=e+i end";
    client.run_parts(&[b"EVAL", format!("redis.call('del',KEYS[1]) {hang}").as_bytes(), b"1", b"lock:1"]).await;
    let took = clock::steady() - before;
    let seen = watch.seen().await;
    assert_eq!(seen.sight, KeyState::Absent);
    let uncertain = seen.until - seen.since.unwrap();
    assert!(uncertain >= took / 2, "{uncertain} ms of the {took} ms that it may have been");
    client.run("DEBUG SLEEP 0.6").await;
    client.run("SET lock:1 b PX 60000").await;
    let seen = watch.seen().await;
    watch.held("b", Some(60_000), &seen.sight);
    assert_eq!(watch.status().totals.connects, 1);
    watch.end().await;
}

#[tokio::test]
async fn an_answer_in_the_middle_of_a_script_proves_nothing() {
    // Redis answers BUSY if a script runs for longer than this.
    let server = Server::start(&["--busy-reply-threshold", "100"]);
    let mut watch = Watch::begin(&server).await;
    let mut client = server.client().await;
    client.run("SET lock:1 a PX 60000").await;
    watch.seen().await;
    let before = clock::steady();
    let hang = "local e=0 for i=1,80000000 do e=e+i end";
    client.run_parts(&[b"EVAL", format!("redis.call('del',KEYS[1]) {hang}").as_bytes(), b"1", b"lock:1"]).await;
    let took = clock::steady() - before;
    let seen = watch.seen().await;
    let uncertain = seen.until - seen.since.unwrap();
    assert!(uncertain >= took / 2, "{uncertain} ms of the {took} ms that it may have been");
    watch.end().await;
}

#[tokio::test]
async fn a_stopped_server_is_given_up_and_found_again() {
    let server = Server::start(&[]);
    let mut plan = Plan::new(&server);
    plan.config.response_timeout = Duration::from_secs(3);
    plan.config.connect_timeout = Duration::from_secs(3);
    let mut watch = plan.run();
    watch.pass_done().await;
    server.pause();
    watch.find(is_down).await;
    watch.until(|status| !status.up && status.totals.connect_errors > 0).await;
    server.resume();
    assert_eq!(watch.find(up).await, ServerContinuity::SameServer);
    watch.pass_done().await;
    watch.end().await;
}

/// What arrives after a stall is old. The last confirmed round trip before the stall bounds how old.
#[tokio::test]
async fn the_age_of_what_arrives_after_a_stall_is_bounded() {
    let server = Server::start(&[]);
    let proxy = Proxy::start(server.port());
    let mut watch = Plan::at(server::address(proxy.port())).run();
    watch.pass_done().await;
    let mut client = server.client().await;
    client.run("SET lock:1 a PX 60000").await;
    watch.seen().await;
    proxy.stall();
    let stalled = clock::steady();
    watch.reads.send(vec!["lock:2".into()]).await.unwrap();
    client.run("DEL lock:1").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let resumed = clock::steady();
    proxy.resume();
    let mut sightings = [watch.seen().await, watch.seen().await];
    sightings.sort_by(|left, right| left.key.cmp(&right.key));
    let [seen, requested] = sightings;
    assert_eq!((&*seen.key, &seen.sight, seen.pushes), ("lock:1", &KeyState::Absent, 1));
    assert!(seen.since.unwrap() <= stalled && seen.until >= resumed, "{stalled}, {resumed}: {seen:?}");
    assert!(seen.received >= resumed && seen.sent <= seen.received, "{resumed}: {seen:?}");
    assert!(requested.sent < resumed && requested.received >= resumed, "{resumed}: {requested:?}");
    watch.end().await;
}

/// While a server that was connected before is down, the link tries at least once a second.
#[tokio::test]
async fn a_known_server_is_tried_every_second() {
    let mut server = Server::start(&[]);
    let mut watch = Watch::begin(&server).await;
    server.kill();
    watch.find(is_down).await;
    watch.until(|status| status.totals.connect_errors >= 5).await;
    let began = Instant::now();
    watch.until(|status| status.totals.connect_errors >= 15).await;
    assert!(began.elapsed() < Duration::from_secs(25), "10 attempts took {:?}", began.elapsed());
    server.restart();
    assert_eq!(watch.find(up).await, ServerContinuity::OtherServer);
    watch.end().await;
}

#[tokio::test]
async fn a_demoted_primary_is_left() {
    let (server, other) = (Server::start(&[]), Server::start(&[]));
    let mut plan = Plan::new(&server);
    plan.config.mode = RedisMode::Cluster;
    let mut watch = plan.run();
    watch.pass_done().await;
    let mut client = server.client().await;
    client.run(&format!("REPLICAOF 127.0.0.1 {}", other.port())).await;
    watch.find(is_down).await;
    watch.until(|status| status.totals.connect_errors > 0).await;
    client.run("REPLICAOF NO ONE").await;
    assert_eq!(watch.find(up).await, ServerContinuity::OtherServer);
    watch.end().await;
}
