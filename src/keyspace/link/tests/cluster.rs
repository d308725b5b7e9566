//! A lock whose slot is being moved from one node to another.

use super::server::{Client, address};
use super::*;
use crate::keyspace::servers::cluster::Cluster;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_being_moved_is_seen_where_it_is() {
    let key = "lock:moving";
    let cluster = Cluster::start(&[]);
    let source = cluster.primary_of(key, 0);
    let target = (source + 1) % 3;
    let port = |node: usize| cluster.nodes[node].port();
    let id = |node: usize| cluster.nodes[node].text(&["CLUSTER", "MYID"]);
    let slot = cluster.nodes[0].text(&["CLUSTER", "KEYSLOT", key]);
    let mut at_source = Client::connect(&address(port(source))).await;
    let mut at_target = Client::connect(&address(port(target))).await;
    at_source.run(&format!("SET {key} a PX 60000")).await;
    let watch = |node: usize| {
        let mut plan = Plan::at(address(port(node)));
        plan.config.mode = RedisMode::Cluster;
        plan.run()
    };
    let (mut source_watch, mut target_watch) = (watch(source), watch(target));
    assert_eq!(source_watch.pass().await.len(), 1);
    assert_eq!(target_watch.pass().await.len(), 0);

    at_target.run(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", id(source))).await;
    at_source.run(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", id(target))).await;
    at_source.run(&format!("MIGRATE 127.0.0.1 {} {key} 0 5000", port(target))).await;
    // The target does not serve the slot yet. It answers only requests with ASKING.
    let seen = target_watch.seen_key(key).await;
    target_watch.held("a", Some(60_000), &seen.sight);
    assert_eq!(source_watch.seen_key(key).await.sight, KeyState::Elsewhere);
    // A key that was neither pushed nor listed is not known to be on this node.
    target_watch.reads.send(vec!["lock:other-slot".into(), "lock:another".into()]).await.unwrap();
    let sights = [target_watch.seen().await.sight, target_watch.seen().await.sight];
    assert!(sights.iter().all(|sight| matches!(sight, KeyState::Absent | KeyState::Elsewhere)), "{sights:?}");
    source_watch.end().await;
    target_watch.end().await;
}
