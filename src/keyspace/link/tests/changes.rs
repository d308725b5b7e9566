//! Each change of a key is seen, with its times and pushes.

use super::*;
use crate::util::clock;

#[tokio::test]
async fn a_life_of_a_lock() {
    let server = Server::start(&[]);
    let mut client = server.client().await;
    client.run("SET lock:old a PX 60000").await;
    let mut watch = Plan::new(&server).run();
    assert!(matches!(watch.next().await, LinkEvent::Up { watching: true, past: ServerContinuity::None, .. }));
    let seen = watch.seen().await;
    watch.held("a", Some(60_000), &seen.sight);
    assert_eq!((seen.pushes, seen.missed), (0, false));
    assert!(seen.since.is_some());
    watch.pass_done().await;

    let steps = [
        ("SET lock:1 a PX 30000", Some(("a", Some(30_000)))),
        ("PEXPIRE lock:1 50000", Some(("a", Some(50_000)))),
        ("SET lock:1 b PX 40000", Some(("b", Some(40_000)))),
        ("PERSIST lock:1", Some(("b", None))),
        ("DEL lock:1", None),
        ("EVAL return(redis.call('set',KEYS[1],'c','px',20000)) 1 lock:1", Some(("c", Some(20_000)))),
        ("UNLINK lock:1", None),
    ];
    for (command, expected) in steps {
        let before = clock::steady();
        client.run(command).await;
        let after = clock::steady() + 1;
        let seen = watch.seen().await;
        assert_eq!((&*seen.key, seen.pushes, seen.missed), ("lock:1", 1, false), "{command}");
        let since = seen.since.unwrap();
        assert!(since <= after && seen.until >= before, "{command}: {seen:?}, {before} to {after}");
        assert!(seen.until <= seen.received && seen.sent <= seen.received);
        match expected {
            Some((owner, ttl)) => watch.held(owner, ttl, &seen.sight),
            None => assert_eq!(seen.sight, KeyState::Absent),
        }
    }
    let status = watch.status();
    assert!(status.up && status.tracking && status.complaints.is_empty(), "{status:?}");
    assert_eq!(status.totals.pushes, 7);
    assert_eq!(status.scan_interval.map(|interval| interval.as_secs()), Some(300));
    watch.end().await;
}

#[tokio::test]
async fn an_expiry_is_seen_when_it_happens() {
    let server = Server::start(&[]);
    let mut watch = Watch::begin(&server).await;
    let mut client = server.client().await;
    client.run("SET lock:1 a PX 700").await;
    let first = watch.seen().await;
    let KeyState::Held(Held { ttl_ms: Some(ttl), .. }) = first.sight else { panic!("{first:?}") };
    let end = watch.seen().await;
    assert_eq!((end.sight, end.pushes), (KeyState::Absent, 1));
    // Redis may expire a key late, and heartbeats continue. So the key is known to exist until
    // shortly before.
    assert!(end.until >= first.sent + ttl);
    assert!(end.since.unwrap() >= first.received, "{:?} is before {}", end.since, first.received);
    watch.end().await;
}

#[tokio::test]
async fn a_failed_acquisition_and_other_keys_are_not_seen() {
    let server = Server::start(&[]);
    let mut watch = Watch::begin(&server).await;
    let mut client = server.client().await;
    client.run("SET lock:1 a PX 60000").await;
    watch.seen_key("lock:1").await;
    client.run("SET lock:1 b NX PX 60000").await;
    client.run("SET job:1:state b").await;
    client.run("SET other b").await;
    client.run_parts(&[b"SET", b"lock:\xff\xfe", b"a"]).await;
    client.run("SET job:1:lock b PX 60000").await;
    assert_eq!(&*watch.seen().await.key, "job:1:lock");
    assert_eq!(watch.status().totals.pushes, 2);
    watch.end().await;
}

#[tokio::test]
async fn owners_of_every_type() {
    let server = Server::start(&[]);
    let mut client = server.client().await;
    client.run("HSET lock:hash uuid:1 1").await;
    client.run("PEXPIRE lock:hash 30000").await;
    client.run("ZADD lock:zset 1 member").await;
    client.run("RPUSH lock:list a").await;
    client.run(r#"SET lock:json {"mode":"exclusive","owners":{"worker":1}} PX 30000"#).await;
    let huge = "x".repeat(2 << 20);
    client.run(&format!("SET lock:huge {huge} PX 30000")).await;
    client.run("SET lock:none a").await;
    let mut watch = Plan::new(&server).run();
    for attempt in ["scan", "push"] {
        let mut seen = std::collections::HashMap::new();
        while seen.len() < 6 {
            let sighting = watch.seen().await;
            seen.insert(sighting.key, sighting.sight);
        }
        watch.held("uuid:1", Some(30_000), &seen["lock:hash"]);
        watch.held("member", None, &seen["lock:zset"]);
        assert_eq!(seen["lock:list"], KeyState::NotALock, "{attempt}");
        watch.held("worker", Some(30_000), &seen["lock:json"]);
        watch.held(&huge[..16_384], Some(30_000), &seen["lock:huge"]);
        watch.held("a", None, &seen["lock:none"]);
        if attempt == "scan" {
            watch.pass_done().await;
            client.run("HSET lock:hash mode write").await;
            client.run("ZADD lock:zset 2 member").await;
            client.run("RPUSH lock:list b").await;
            client.run("PEXPIRE lock:json 30000").await;
            client.run("PEXPIRE lock:huge 30000").await;
            client.run("SET lock:none a").await;
        }
    }
    watch.end().await;
}

#[tokio::test]
async fn fences_are_read_along() {
    let server = Server::start(&[]);
    let mut client = server.client().await;
    client.run("SET fence:lock:1 41").await;
    let mut watch = Plan { fence: Some("fence:{key}"), ..Plan::new(&server) }.run();
    watch.pass_done().await;
    client.run("SET lock:1 a PX 30000").await;
    client.run("SET lock:2 a PX 30000").await;
    for (key, expected) in [("lock:1", Some(41)), ("lock:2", None)] {
        let seen = watch.seen_key(key).await;
        assert!(matches!(seen.sight, KeyState::Held(Held { fence, .. }) if fence == expected), "{seen:?}");
    }
    watch.end().await;
}

#[tokio::test]
async fn wishes_are_granted() {
    let server = Server::start(&[]);
    let mut watch = Watch::begin(&server).await;
    watch.reads.send(vec!["lock:gone".into()]).await.unwrap();
    let seen = watch.seen().await;
    assert_eq!((&*seen.key, seen.sight, seen.pushes), ("lock:gone", KeyState::Absent, 0));
    assert_eq!(seen.until, seen.received);
    watch.end().await;
}

#[tokio::test]
async fn an_idle_link_stays_caught_up() {
    let server = Server::start(&[]);
    let mut watch = Watch::begin(&server).await;
    let caught_up = |news: &LinkEvent| match news {
        LinkEvent::CaughtUp { at } => Some(*at),
        _ => None,
    };
    let (first, began) = (watch.find(caught_up).await, clock::steady());
    let mut last = first;
    while last < began {
        let next = watch.find(caught_up).await;
        assert!(next > last && next <= clock::steady());
        last = next;
    }
    watch.end().await;
}
