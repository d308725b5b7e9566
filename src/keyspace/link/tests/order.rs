//! Under load no change is lost, and each sighting is consistent with its pushes.

use std::collections::HashMap;

use super::*;

const KEYS: usize = 8;
const CYCLES: usize = 1500;

/// One writer acquires and releases locks in turn. It waits for each reply, so that each change is
/// pushed separately.
async fn write(server: &Server) -> JoinHandle<()> {
    let mut client = server.client().await;
    tokio::spawn(async move {
        for cycle in 0..CYCLES {
            let key = cycle % KEYS;
            client.run(&format!("SET lock:{key} owner{cycle} NX PX 60000")).await;
            // Some locks stay held while others are acquired and released.
            let released = (cycle * 5 + 3) % KEYS;
            client.run(&format!("DEL lock:{released}")).await;
            client.run(&format!("DEL lock:{key}")).await;
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readings_are_in_line_with_pushes() {
    let server = Server::start(&[]);
    let mut watch = Watch::begin(&server).await;
    let writer = write(&server).await;
    // Acquisitions and releases alternate, so after an odd number of pushes the lock is held. A
    // read may include one change more than that, but then the next push is marked as possibly old.
    let mut pushes: HashMap<Box<str>, usize> = HashMap::new();
    let mut ahead: HashMap<Box<str>, bool> = HashMap::new();
    let mut total = 0;
    while total < 2 * CYCLES {
        let seen = watch.seen().await;
        assert!(!seen.missed);
        if ahead.get(&seen.key).copied().unwrap_or(false) && seen.pushes > 0 {
            assert!(seen.first_push_may_be_old, "{seen:?}");
        }
        let count = pushes.entry(seen.key.clone()).or_default();
        *count += usize::from(seen.pushes);
        total += usize::from(seen.pushes);
        let is_held = matches!(seen.sight, KeyState::Held(_));
        ahead.insert(seen.key, is_held != (*count % 2 == 1));
    }
    writer.await.unwrap();
    assert_eq!(total, 2 * CYCLES);
    assert!(ahead.values().all(|ahead| !ahead), "nothing comes any more: {ahead:?}");
    assert_eq!(watch.status().totals.pushes, 2 * CYCLES as u64);
    watch.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipeline_that_is_stuck_does_not_stop_pushes() {
    let server = Server::start(&[]);
    let mut watch = Plan { room: 1, ..Plan::new(&server) }.run();
    watch.pass_done().await;
    let writer = write(&server).await;
    // Meanwhile nobody receives events.
    writer.await.unwrap();
    let status = watch.until(|status| status.totals.pushes == 2 * CYCLES as u64).await;
    assert!(status.up);
    let mut total = 0;
    while total < 2 * CYCLES {
        total += usize::from(watch.seen().await.pushes);
    }
    assert_eq!(total, 2 * CYCLES);
    watch.end().await;
}
