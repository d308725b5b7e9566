//! Tests the complete path from a lost lock to the pager with real programs. A page arrives once,
//! names the namespace and the cause, and resolves after recovery. A Redis restart and a failover
//! do not page. A lasting Redis outage does.
//!
//! Time is compressed. Rules, TTLs, Prometheus, Alertmanager and the fleet all run faster by one
//! factor, so the ratios stay the same: slices per window, windows per burst, renewals per TTL.
//! Some times are not compressed: the exporter's second between two saves, its retries, and numbers
//! of seconds inside expressions (the limits of ScanStale). Seconds in these tests are uncompressed
//! seconds. `ALERT_TIME_FACTOR=1` runs the tests uncompressed, which takes up to half an hour.

mod receiver;
mod stage;
mod workload;

use std::thread::sleep;

use redis_lock_exporter::rehearsal::fleet::cordum::{TimeScale, Totals};
use stage::{Stage, one_server};

use crate::redis::RedisServer;
use crate::redis::client::Client;
use crate::redis::sentinel::{PRIMARY_NAME, Sentinels};

/// The rules guarantee that a shorter burst cannot page.
const SHORTEST_PAGE: f64 = 150.0;

/// Returns the factor by which the test runs faster than real time.
fn pace(speed: u32) -> TimeScale {
    let wanted = std::env::var("ALERT_TIME_FACTOR").ok();
    TimeScale::new(wanted.map_or(speed, |text| text.parse().expect("ALERT_TIME_FACTOR is not a number"))).unwrap()
}

#[test]
fn a_sustained_loss_pages_once_with_namespace_and_cause_and_resolves() {
    let pace = pace(20);
    let server = RedisServer::start(&[]);
    let address = address(&server);
    let mut stage = Stage::start(pace.clone(), &address, &one_server(&pace, &address));

    // A deployment makes a handler run longer than its lock's TTL.
    stage.workload.slow_down();
    stage.wait(900.0, "a page", |stage| !stage.receiver.pages().is_empty());
    stage.workload.calm();
    stage.wait(2400.0, "the page to resolve", |stage| stage.receiver.pages().iter().any(|page| !page.is_firing()));

    let pages = stage.receiver.pages();
    assert_eq!(pages.len(), 2, "expected one firing page and its resolution\n{}", stage.story());
    assert!(pages[0].is_firing() && !pages[1].is_firing(), "{pages:#?}");
    for page in &pages {
        let [alert] = page.alerts() else { panic!("not one alert: {page:#?}") };
        assert_eq!(alert["labels"]["alertname"], "RedisLockNotOwnedRatioHigh");
        assert_eq!(alert["labels"]["lock_namespace"], "admission");
        assert_eq!(alert["labels"]["severity"], "critical");
    }
    let annotation = |name: &str| pages[0].alerts()[0]["annotations"][name].as_str().unwrap_or_default().to_owned();
    let description = annotation("description");
    assert!(description.contains("In lock namespace admission, "), "{description}");
    assert!(description.contains("Likely cause: expired_never_renewed."), "{description}");
    assert!(annotation("runbook_url").ends_with("/RedisLockNotOwnedRatioHigh.md"));
    // The page links to this exporter, which shows the losses.
    assert!(annotation("exporter_url").starts_with(&format!("http://{}/", stage.daemon.address)));
    let incidents = stage.daemon.get("/api/v1/incidents?lock_namespace=admission").text();
    let incidents: serde_json::Value = serde_json::from_str(&incidents).unwrap();
    // Not every loss has a cause: on a busy machine, a lock with a TTL of half a second may come
    // and go before the exporter reads it.
    let is_named = |incident: &serde_json::Value| incident["cause"] == "expired_never_renewed";
    assert!(incidents["incidents"].as_array().unwrap().iter().any(is_named), "{incidents:#}");
    // Healthy namespaces caused no messages.
    assert_eq!(stage.pages().len(), 1, "{}", stage.story());

    let counted = "max(redis_lock_not_owned_total{lock_namespace='admission',operation='release'})";
    let truth = || stage.workload.totals().failures.total("not_owned", Some("admission")) as f64;
    stage.wait(60.0, "all losses to be counted once", |stage| stage.number(counted) == Some(truth()));
}

#[test]
fn a_redis_restart_of_45_seconds_does_not_page() {
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
fn a_sentinel_failover_does_not_page() {
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
        stage.wait(180.0, "the Sentinels to choose another primary", |_| {
            sentinels.primary().is_some_and(|primary| primary != 0)
        });
        stage.workload.fail_over(&address(&sentinels.servers[sentinels.primary().unwrap()]));
        survived(&stage).map(|_| ())
    });
}

/// Runs the same chain with a failure that must page. This proves that the silent tests above can
/// detect a page.
#[test]
fn a_lasting_redis_outage_pages() {
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

/// Repeats the scenario until the machine is fast enough to produce the intended burst. Each
/// attempt uses a new stage, because several bursts within half an hour would be a different
/// scenario.
fn unpaged(play: impl Fn() -> Option<()>) {
    assert!((0..3).any(|_| play().is_some()), "the machine is too slow: {SHORTEST_PAGE} s could not be kept");
}

/// Checks after a Redis failure that the rules saw it, that it is over, and that no page fired.
/// Returns `None` if the failure lasted too long.
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
