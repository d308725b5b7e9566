//! From a lost lock to the pager, with real parts only: a page arrives once, says where and why, and ends after recovery; a
//! restart of Redis and a failover page nobody; a Redis that stays away does.
//!
//! Time is compressed: rules, TTLs, Prometheus, Alertmanager and the fleet are all faster by one factor, so what counts stays
//! the same: slices for each window, windows for each burst, renewals for each TTL. What is left as it is: the exporter's own
//! second between two saves, its retries, and numbers of seconds inside expressions (the limits of ScanStale). Seconds here are
//! those of the uncompressed world. `ALERT_TIME_FACTOR=1` runs the tests uncompressed, which takes up to half an hour.

mod receiver;
mod stage;
mod workload;

use std::thread::sleep;

use redis_lock_exporter::rehearsal::fleet::cordum::{TimeScale, Totals};
use stage::{Stage, one_server};

use crate::redis::RedisServer;
use crate::redis::client::Client;
use crate::redis::sentinel::{PRIMARY_NAME, Sentinels};

/// What the rules promise: a burst that is shorter cannot page.
const SHORTEST_PAGE: f64 = 150.0;

/// So many times faster than in real life.
fn pace(speed: u32) -> TimeScale {
    let wanted = std::env::var("ALERT_TIME_FACTOR").ok();
    TimeScale::new(wanted.map_or(speed, |text| text.parse().expect("ALERT_TIME_FACTOR is no number"))).unwrap()
}

#[test]
fn a_lasting_loss_pages_once_says_where_and_why_and_resolves() {
    let pace = pace(20);
    let server = RedisServer::start(&[]);
    let address = address(&server);
    let mut stage = Stage::start(pace.clone(), &address, &one_server(&pace, &address));

    // A deployment makes a handler take longer than its lock's TTL.
    stage.workload.slow_down();
    stage.wait(900.0, "a page", |stage| !stage.receiver.pages().is_empty());
    stage.workload.calm();
    stage.wait(2400.0, "the end of the page", |stage| stage.receiver.pages().iter().any(|page| !page.is_firing()));

    let pages = stage.receiver.pages();
    assert_eq!(pages.len(), 2, "one that fires and its end\n{}", stage.story());
    assert!(pages[0].is_firing() && !pages[1].is_firing(), "{pages:#?}");
    for page in &pages {
        let [alert] = page.alerts() else { panic!("not one alert: {page:#?}") };
        assert_eq!(alert["labels"]["alertname"], "RedisLockNotOwnedRatioHigh");
        assert_eq!(alert["labels"]["lock_namespace"], "admission");
        assert_eq!(alert["labels"]["severity"], "critical");
    }
    let annotation = |name: &str| pages[0].alerts()[0]["annotations"][name].as_str().unwrap_or_default().to_owned();
    let description = annotation("description");
    assert!(description.contains("In namespace admission, "), "{description}");
    assert!(description.contains("Likely cause: expired_never_renewed."), "{description}");
    assert!(annotation("runbook_url").ends_with("/RedisLockNotOwnedRatioHigh.md"));
    // The page links to this exporter, which shows the losses themselves.
    assert!(annotation("exporter_url").starts_with(&format!("http://{}/", stage.daemon.address)));
    let incidents = stage.daemon.get("/api/v1/incidents?lock_namespace=admission").text();
    let incidents: serde_json::Value = serde_json::from_str(&incidents).unwrap();
    // Not of each: a lock of half a second may have come and gone before a busy machine looks at it.
    let is_named = |incident: &serde_json::Value| incident["cause"] == "expired_never_renewed";
    assert!(incidents["incidents"].as_array().unwrap().iter().any(is_named), "{incidents:#}");
    // Nobody was told anything else about what was well.
    assert_eq!(stage.pages().len(), 1, "{}", stage.story());

    let counted = "max(redis_lock_not_owned_total{lock_namespace='admission',operation='release'})";
    let truth = || stage.workload.totals().failures.total("not_owned", Some("admission")) as f64;
    stage.wait(60.0, "all losses to be counted once", |stage| stage.number(counted) == Some(truth()));
}

#[test]
fn a_redis_restart_of_45_seconds_pages_nobody() {
    let pace = pace(10);
    unpaged(|| {
        let mut server = RedisServer::start(&[]);
        let address = address(&server);
        let stage = Stage::start(pace.clone(), &address, &one_server(&pace, &address));
        server.kill();
        sleep(pace.seconds(45.0));
        server.restart();
        let totals = survived(&stage)?;
        // Without persistence every lock was lost, and some holders noticed.
        assert!(totals.failures.total("not_owned", Some("workflow")) > 0, "{}", stage.story());
        Some(())
    });
}

#[test]
fn a_sentinel_failover_pages_nobody() {
    let pace = pace(10);
    unpaged(|| {
        let mut sentinels = Sentinels::start(&[]);
        let addresses = sentinels.addresses();
        // Sentinel's default.
        let patience = pace.seconds(30.0).as_millis().to_string();
        for address in &addresses {
            let port = address.rsplit_once(':').unwrap().1.parse().unwrap();
            let mut client = Client::connect(port).unwrap();
            client.command(&["SENTINEL", "SET", PRIMARY_NAME, "down-after-milliseconds", &patience]);
        }
        let quoted = addresses.join("', '");
        let redis = format!("{{mode: sentinel, addresses: ['{quoted}'], sentinel: {{primary: {PRIMARY_NAME}}}}}");
        let mut stage = Stage::start(pace.clone(), &address(&sentinels.servers[0]), &redis);
        sentinels.servers[0].kill();
        stage.wait(180.0, "another primary", |_| sentinels.primary().is_some_and(|primary| primary != 0));
        stage.workload.fail_over(&address(&sentinels.servers[sentinels.primary().unwrap()]));
        survived(&stage).map(|_| ())
    });
}

/// The same chain with the trouble that must page: what is quiet above is not deaf.
#[test]
fn a_redis_that_stays_away_pages() {
    let pace = pace(20);
    let mut server = RedisServer::start(&[]);
    let address = address(&server);
    let stage = Stage::start(pace.clone(), &address, &one_server(&pace, &address));
    server.kill();
    stage.wait(1200.0, "a page", |stage| !stage.receiver.pages().is_empty());
    let pages = stage.receiver.pages();
    let [alert] = pages[0].alerts() else { panic!("not one alert: {pages:#?}") };
    assert_eq!(alert["labels"]["alertname"], "RedisLockRedisDown", "{}", stage.story());
}

/// Plays it until the machine was quick enough for it to be the burst that is meant. A new stage each time, for several
/// bursts within half an hour are another story.
fn unpaged(play: impl Fn() -> Option<()>) {
    assert!((0..3).any(|_| play().is_some()), "the machine is too slow: {SHORTEST_PAGE} s could not be kept");
}

/// After the trouble: it was seen, it is over, and nobody was paged. Nothing if it took longer than it may.
fn survived(stage: &Stage) -> Option<Totals> {
    stage.wait_trouble_over();
    let totals = stage.workload.totals();
    if (totals.burst * stage.pace.speed()).as_secs_f64() >= SHORTEST_PAGE {
        return None;
    }
    assert!(totals.unanswered > 0, "{}", stage.story());
    assert_eq!(stage.pages(), Vec::<String>::new(), "{}", stage.story());
    assert!(stage.receiver.pages().is_empty(), "{}", stage.story());
    Some(totals)
}

fn address(server: &RedisServer) -> String {
    format!("127.0.0.1:{}", server.port())
}
