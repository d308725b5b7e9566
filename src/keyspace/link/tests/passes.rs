//! Passes: complete, during changes, from a replica, and after keys were skipped.

use super::*;
use crate::config::redis::ScanFrom;
use crate::model::namespace::NamespaceId;
use crate::util::clock;

fn set_many(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|index| format!("SET lock:{index} owner{index} PX 600000"))
}

#[tokio::test]
async fn a_pass_shows_every_lock() {
    let server = Server::start(&[]);
    let mut client = server.client().await;
    client.run("DEBUG POPULATE 20000 other").await;
    client.run_all(set_many(3000)).await;
    let mut watch = Plan::new(&server).run();
    let mut keys: Vec<Box<str>> = watch.pass().await.into_iter().map(|seen| seen.key).collect();
    keys.dedup();
    assert_eq!(keys.len(), 3000);
    let status = watch.until(|status| status.last_pass.is_some()).await;
    let pass = status.last_pass.unwrap();
    assert_eq!(pass.keys, 23_000);
    assert!(pass.lock_keys >= 3000);
    assert_eq!((status.totals.scan_passes, status.totals.scan_failures), (1, 0));
    watch.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_beside_a_pass_are_seen() {
    let server = Server::start(&[]);
    let mut client = server.client().await;
    client.run_all(set_many(2000)).await;
    let mut plan = Plan::new(&server);
    // Slow enough for changes to happen during the pass.
    plan.config.scan.max_redis_share = 0.2;
    let mut watch = plan.run();
    watch.seen().await;
    let mut pushes = 0;
    for index in 0..200 {
        client.run(&format!("SET lock:{} changed PX 600000", index * 10)).await;
    }
    let mut latest = std::collections::HashMap::new();
    let mut is_done = false;
    while pushes < 200 || !is_done {
        match watch.next().await {
            LinkEvent::Seen(seen) => {
                pushes += seen.pushes;
                latest.insert(seen.key, seen.sight);
            }
            LinkEvent::PassDone { .. } => is_done = true,
            _ => {}
        }
    }
    for index in 0..2000 {
        let owner = if index % 10 == 0 { "changed".to_owned() } else { format!("owner{index}") };
        match latest.get(format!("lock:{index}").as_str()) {
            Some(sight) => watch.held(&owner, Some(600_000), sight),
            // `watch.seen()` above consumed the sighting of this key.
            None => assert!(latest.len() == 1999),
        }
    }
    assert_eq!(pushes, 200);
    watch.end().await;
}

#[tokio::test]
async fn passes_follow_one_another_where_changes_are_not_watched() {
    let server = Server::start(&[]);
    let mut client = server.client().await;
    let mut plan = Plan::new(&server);
    plan.config.watch.enabled = false;
    plan.config.scan.interval = Duration::from_millis(100);
    let mut watch = plan.run();
    assert!(watch.pass().await.is_empty());
    client.run("SET lock:1 a PX 60000").await;
    let seen = watch.seen().await;
    assert_eq!((&*seen.key, seen.since), ("lock:1", None));
    assert!(!watch.status().tracking && watch.status().complaints.is_empty());
    watch.end().await;
}

#[tokio::test]
async fn keys_without_a_prefix_are_found_by_passes_beside_watching() {
    let server = Server::start(&[]);
    let mut client = server.client().await;
    let mut plan = Plan { keys: vec!["lock:{id}", "{id}:mutex"], ..Plan::new(&server) };
    plan.config.scan.interval = Duration::from_millis(200);
    let mut watch = plan.run();
    watch.pass_done().await;
    client.run("SET a:mutex a PX 60000").await;
    client.run("SET lock:1 a PX 60000").await;
    assert_eq!(watch.seen_key("lock:1").await.pushes, 1);
    let seen = watch.seen_key("a:mutex").await;
    assert_eq!((seen.since, seen.pushes), (None, 0));
    watch.end().await;
}

#[tokio::test]
async fn a_replica_can_be_scanned() {
    let (server, replica) = (Server::start(&[]), Server::start(&[]));
    server.client().await.run_all(set_many(100)).await;
    let mut client = replica.client().await;
    client.run(&format!("REPLICAOF 127.0.0.1 {}", server.port())).await;
    let deadline = Instant::now() + PATIENCE;
    while client.run("DBSIZE").await != redis::Value::Int(100) {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for enabled in [true, false] {
        let mut plan = Plan { replicas: vec![replica.address()], ..Plan::new(&server) };
        plan.config.scan.from = ScanFrom::Replica;
        plan.config.scan.interval = Duration::from_millis(100);
        plan.config.watch.enabled = enabled;
        client.run("CONFIG RESETSTAT").await;
        let mut watch = plan.run();
        assert_eq!(watch.pass().await.len(), 100);
        let stats = client.run("INFO commandstats").await;
        let stats = format!("{stats:?}");
        assert!(stats.contains("cmdstat_scan"));
        assert_eq!(stats.contains("cmdstat_pttl"), !enabled, "the primary is read from where it is watched");
        if !enabled {
            client.run("CLIENT KILL TYPE normal SKIPME yes").await;
            watch.pass_done().await;
            watch.until(|status| status.totals.scan_passes > 1).await;
        }
        watch.end().await;
    }
}

#[tokio::test]
async fn without_the_replica_the_primary_is_scanned() {
    let server = Server::start(&[]);
    server.client().await.run("SET lock:1 a").await;
    let nobody = Address::Unix("/nonexistent/redis.sock".into());
    let mut plan = Plan { replicas: vec![nobody], ..Plan::new(&server) };
    plan.config.scan.from = ScanFrom::Replica;
    let mut watch = plan.run();
    assert_eq!(watch.pass().await.len(), 1);
    watch.end().await;
}

#[tokio::test]
async fn skipped_keys_are_made_good_by_a_pass() {
    let server = Server::start(&[]);
    let mut plan = Plan::new(&server);
    plan.config.watch.max_reads_per_second = 20;
    plan.config.scan.interval = Duration::from_millis(300);
    let mut watch = plan.run();
    watch.pass_done().await;
    let mut client = server.client().await;
    let before = clock::steady();
    client.run_all(set_many(200)).await;
    let status = watch.until(|status| status.totals.pushes == 200).await;
    assert!(status.totals.skipped_reads >= 100, "{status:?}");
    let skipped = watch.find(|news| match news {
        LinkEvent::Skipped { at, namespaces } => Some((*at, namespaces.clone())),
        _ => None,
    });
    let (at, namespaces) = skipped.await;
    assert!(at >= before && at <= clock::steady() + 1, "{before}, {at}");
    assert_eq!(namespaces, [NamespaceId(0)]);
    // Some keys are deleted again. A pass does not list them, but they were skipped nevertheless.
    client.run_all((150..200).map(|index| format!("DEL lock:{index}"))).await;
    let mut latest = std::collections::HashMap::new();
    let mut missed = 0;
    while !(0..150).all(|index| matches!(latest.get(&format!("lock:{index}")), Some(KeyState::Held(_))))
        || !(150..200).all(|index| latest.get(&format!("lock:{index}")) == Some(&KeyState::Absent))
    {
        let seen = watch.seen().await;
        missed += u32::from(seen.missed);
        latest.insert(String::from(seen.key), seen.sight);
    }
    assert!(missed >= 100, "{missed}");
    // Later changes are not missed.
    client.run("PEXPIRE lock:1 500000").await;
    assert!(!watch.seen_key("lock:1").await.missed);
    watch.end().await;
}

#[tokio::test]
async fn too_many_changes_at_once_are_a_gap() {
    let server = Server::start(&[]);
    let mut plan = Plan { room: 1, ..Plan::new(&server) };
    plan.config.watch.max_reads_per_second = 1_000_000;
    let mut watch = plan.run();
    watch.pass_done().await;
    let mut client = server.client().await;
    // Nobody receives events, so the keys wait.
    let fill = "for i=1,70000 do redis.call('set','lock:'..i,'a') end";
    client.run_parts(&[b"EVAL", fill.as_bytes(), b"0"]).await;
    watch.until(|status| status.totals.overflows > 0).await;
    watch.find(|news| matches!(news, LinkEvent::Gap { .. }).then_some(())).await;
    let mut keys: Vec<Box<str>> = watch.pass().await.into_iter().map(|seen| seen.key).collect();
    keys.dedup();
    assert!(keys.len() > 60_000, "{}", keys.len());
    watch.end().await;
}
