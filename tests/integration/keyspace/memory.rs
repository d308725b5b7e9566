//! Tests what the exporter remembers over a reload (locks, their history, incidents, windows and
//! charts) and over a restart. Only what a new configuration changes starts over.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use redis_lock_exporter::util::clock;
use serde_json::Value;

use super::stage::{LONG, Program, is_watching, json, observed_since, own, source};
use crate::daemon::{Daemon, Samples, sum};
use crate::redis::RedisServer;
use crate::site::Site;

const JOBS: &str = "  - {name: jobs, keys: ['jobs:lock:{id}'], ttl: 10m}\n";
const CARTS: &str = "  - {name: carts, keys: ['carts:lock:{id}'], ttl: 10m}\n";
const MAILS: &str = "  - {name: mails, keys: ['mails:lock:{id}'], ttl: 10m}\n";

/// A Redis, the log of a program, and an exporter that reads both.
struct Shop {
    server: RedisServer,
    site: Site,
    daemon: Daemon,
    program: Program,
}

impl Shop {
    fn open(namespaces: &str) -> Self {
        let server = RedisServer::start(&[]);
        let site = Site::new();
        site.append("logs/app.log", "");
        configure(&site, &server, namespaces);
        let daemon = site.start_configured(&["--web.enable-lifecycle"]);
        daemon.wait("the exporter is watching", |daemon| is_watching(&daemon.scrape()));
        let program = Program::connect(&server);
        Self { server, site, daemon, program }
    }

    fn reload(&self, namespaces: &str) {
        configure(&self.site, &self.server, namespaces);
        let answer = self.daemon.post("/-/reload");
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    /// The holder of a lock loses it to another owner and logs that.
    fn lose(&mut self, namespace: &str, id: &str) {
        let key = format!("{namespace}:lock:{id}");
        self.program.acquire(&key, LONG);
        self.wait_owner(&key, &Value::Null);
        let owner = self.lock(&key)["now"]["owner"].clone();
        self.program.steal(&key, LONG);
        self.wait_owner(&key, &owner);
        self.log_loss(namespace, id);
    }

    fn log_loss(&self, namespace: &str, id: &str) {
        let time = clock::format(clock::now()).unwrap();
        let line = format!(r#"{{"time":"{time}","level":"WARN","msg":"{namespace} lock lost","id":"{id}"}}"#);
        self.site.append("logs/app.log", line + "\n");
    }

    fn lock(&self, key: &str) -> Value {
        let answer = self.daemon.get(&format!("/api/v1/locks/{key}"));
        if answer.status == 404 { Value::Null } else { serde_json::from_slice(&answer.body).unwrap() }
    }

    fn wait_owner(&self, key: &str, before: &Value) {
        self.daemon.wait(&format!("another owner of {key}"), |_| {
            let owner = self.lock(key)["now"]["owner"].clone();
            !owner.is_null() && owner != *before
        });
    }

    fn wait_incidents(&self, total: usize) {
        self.daemon.wait(&format!("{total} incidents"), |daemon| json(daemon, "/api/v1/incidents")["total"] == total);
    }

    fn namespace(&self, name: &str) -> Value {
        let overview = json(&self.daemon, "/api/v1/overview");
        let found = overview["namespaces"].as_array().unwrap().iter().find(|one| one["lock_namespace"] == name);
        found.cloned().unwrap_or(Value::Null)
    }

    /// Waits until the published numbers contain the losses of the namespace.
    fn wait_losses(&self, name: &str, losses: u64) {
        self.daemon.wait(&format!("{losses} losses of {name}"), |_| losses_of(&self.namespace(name)) == losses);
    }
}

fn configure(site: &Site, server: &RedisServer, namespaces: &str) {
    let rule = |name: &str| match namespaces.contains(&format!("name: {name},")) {
        true => format!(
            "  - {{message: {name} lock lost, event: not_owned, operation: release, namespace: {name}, id: id}}\n"
        ),
        false => String::new(),
    };
    let rules = ["carts", "mails", "jobs"].map(rule).concat();
    site.configure(&format!(
        "redis: {{url: 'redis://127.0.0.1:{}/0', response_timeout: 20s}}\nlogs: [{{path: SITE/logs/*.log}}]\nscan: \
         {{watched_interval: 1s, max_redis_share: 0.5}}\nnamespaces:\n{namespaces}rules:\n{rules}",
        server.port()
    ));
}

fn losses_of(namespace: &Value) -> u64 {
    namespace["lately"]["1h"]["not_owned"].as_u64().unwrap_or_default()
}

/// The losses in the chart of the last hour.
fn losses_in_chart(namespace: &Value) -> u64 {
    namespace["line"]["not_owned"].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).sum()
}

/// The ratio over 5 minutes.
fn ratio(samples: &Samples, name: &str) -> Option<f64> {
    let series = format!("redis_lock_not_owned_ratio{{redis=\"redis\",lock_namespace=\"{name}\",window=\"5m\"}}");
    samples.get(&series).copied()
}

/// Acquires and releases locks until told to stop. Returns the number of acquisitions.
fn work(server: &RedisServer, done: &AtomicBool) -> u64 {
    let mut program = Program::connect(server);
    let mut acquisitions = 0;
    while !done.load(Ordering::Relaxed) {
        let key = format!("jobs:lock:work-{acquisitions}");
        let token = program.acquire(&key, LONG);
        thread::sleep(Duration::from_millis(30));
        assert!(program.release(&key, &token));
        thread::sleep(Duration::from_millis(5));
        acquisitions += 1;
    }
    acquisitions
}

/// Ends the worker even if the test fails.
struct End<'a>(&'a AtomicBool);
impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_reload_without_changes_forgets_nothing_and_misses_nothing() {
    let mut shop = Shop::open(JOBS);
    for id in ["a", "b", "c"] {
        shop.lose("jobs", id);
    }
    shop.wait_incidents(3);
    shop.wait_losses("jobs", 3);
    let incidents = json(&shop.daemon, "/api/v1/incidents");
    let (lock, before) = (shop.lock("jobs:lock:a"), shop.daemon.scrape());
    let connects = own(&before, "redis_connects_total");

    let done = AtomicBool::new(false);
    let acquired = thread::scope(|scope| {
        let end = End(&done);
        let worker = scope.spawn(|| work(&shop.server, &done));
        for round in 0..5 {
            // Its cause is not found yet when the reload begins.
            shop.log_loss("jobs", &format!("waiting-{round}"));
            shop.daemon.signal("HUP");
            shop.reload(JOBS);
            let samples = shop.daemon.scrape();
            assert_eq!(source(&samples), "watch");
            thread::sleep(Duration::from_millis(100));
        }
        drop(end);
        worker.join().unwrap()
    });

    assert!(acquired > 0);
    let counted = |samples: &Samples| sum(samples, "redis_lock_acquisitions_total") as u64;
    // Each lost lock was acquired twice.
    shop.daemon.wait("all acquisitions are counted", |daemon| counted(&daemon.scrape()) >= 6 + acquired);
    shop.wait_incidents(8);
    shop.wait_losses("jobs", 8);
    let after = shop.daemon.scrape();
    assert_eq!(counted(&after), 6 + acquired);
    assert_eq!(sum(&after, "redis_lock_unknown_ends_total"), sum(&before, "redis_lock_unknown_ends_total"));
    assert_eq!(observed_since(&after), observed_since(&before), "no change was missed");
    assert_eq!(own(&after, "redis_connects_total"), connects, "the link stayed connected");
    assert!(ratio(&after, "jobs").is_some_and(|ratio| ratio > 0.0), "{:?}", ratio(&after, "jobs"));
    let kept = json(&shop.daemon, "/api/v1/incidents?offset=5");
    assert_eq!(kept["incidents"], incidents["incidents"]);
    let now = shop.lock("jobs:lock:a");
    assert_eq!((&now["history"], &now["holds"], &now["verdict"]), (&lock["history"], &lock["holds"], &lock["verdict"]));
    let jobs = shop.namespace("jobs");
    assert_eq!(losses_in_chart(&jobs), 8);
    let finding = jobs["findings"][0]["text"].as_str().unwrap();
    assert!(finding.starts_with("8 locks were lost "), "{finding}");
    let overview = json(&shop.daemon, "/api/v1/overview");
    assert_eq!(overview["summary"], "Wrong now: jobs.");
}

#[test]
fn only_a_changed_namespace_starts_over() {
    let mut shop = Shop::open(&[CARTS, JOBS].concat());
    shop.lose("jobs", "a");
    shop.lose("carts", "b");
    shop.program.acquire("carts:lock:held", LONG);
    shop.program.acquire("mails:lock:held", LONG);
    shop.wait_incidents(2);
    shop.wait_losses("jobs", 1);
    shop.wait_losses("carts", 1);
    let lock = shop.lock("jobs:lock:a");
    let incidents = json(&shop.daemon, "/api/v1/incidents?lock_namespace=jobs");
    assert_eq!(incidents["total"], 1);
    let before = shop.daemon.scrape();
    let acquired = |samples: &Samples, namespace: &str| {
        samples[&format!("redis_lock_acquisitions_total{{redis=\"redis\",lock_namespace=\"{namespace}\"}}")]
    };
    let held = |samples: &Samples, namespace: &str| {
        samples[&format!("redis_lock_held{{redis=\"redis\",lock_namespace=\"{namespace}\"}}")]
    };

    // The order changes, carts gets other keys, and mails is new.
    let carts = "  - {name: carts, keys: ['carts:lock:{id}', 'baskets:lock:{id}'], ttl: 10m}\n";
    shop.reload(&[MAILS, JOBS, carts].concat());
    shop.daemon.wait("the links watch again", |daemon| {
        let samples = daemon.scrape();
        is_watching(&samples) && held(&samples, "carts") == 2.0 && held(&samples, "mails") == 1.0
    });
    assert_eq!(json(&shop.daemon, "/api/v1/incidents"), incidents);
    let now = shop.lock("jobs:lock:a");
    assert_eq!((&now["history"], &now["verdict"]), (&lock["history"], &lock["verdict"]));
    assert_eq!(now["now"]["acquired_at"], lock["now"]["acquired_at"]);
    assert_eq!((losses_of(&shop.namespace("jobs")), losses_in_chart(&shop.namespace("jobs"))), (1, 1));
    assert_eq!((losses_of(&shop.namespace("carts")), losses_in_chart(&shop.namespace("carts"))), (0, 0));
    assert!(shop.lock("carts:lock:b")["verdict"].is_null(), "{}", shop.lock("carts:lock:b"));
    let after = shop.daemon.scrape();
    for namespace in ["jobs", "carts"] {
        assert_eq!(acquired(&after, namespace), acquired(&before, namespace), "counters continue: {namespace}");
    }
    assert_eq!(acquired(&after, "mails"), 0.0, "the lock is older than the observation");
    for key in ["mails:lock:new", "baskets:lock:new", "jobs:lock:new"] {
        shop.program.acquire(key, LONG);
    }
    shop.daemon.wait("acquisitions are counted again", |daemon| {
        let samples = daemon.scrape();
        let counted = |namespace: &str| acquired(&samples, namespace) - acquired(&after, namespace);
        ["mails", "carts", "jobs"].iter().all(|namespace| counted(namespace) == 1.0)
    });

    // A removed namespace is gone, and the others stay.
    shop.lose("carts", "c");
    shop.wait_incidents(2);
    shop.reload(&[MAILS, JOBS].concat());
    shop.daemon.wait("carts is gone", |daemon| is_watching(&daemon.scrape()) && shop.namespace("carts").is_null());
    assert_eq!(json(&shop.daemon, "/api/v1/incidents")["total"], 1);
    assert_eq!(losses_of(&shop.namespace("jobs")), 1);
    assert!(shop.lock("carts:lock:c")["now"].is_null());
}

/// A new style changes what counts mean, but links read the same keys and keep running.
#[test]
fn a_changed_meaning_starts_over_without_losing_locks() {
    let mut shop = Shop::open(&[CARTS, JOBS].concat());
    shop.lose("jobs", "a");
    shop.lose("carts", "b");
    shop.wait_incidents(2);
    shop.wait_losses("carts", 1);
    let before = shop.daemon.scrape();
    let (carts, policy) = (CARTS.replace("ttl:", "style: loop, ttl:"), JOBS.replace("10m", "20m"));
    shop.reload(&[carts.as_str(), policy.as_str()].concat());
    shop.daemon.wait("the new style is active", |_| shop.namespace("carts")["style"] == "loop");
    let after = shop.daemon.scrape();
    assert_eq!(observed_since(&after), observed_since(&before));
    assert_eq!(sum(&after, "redis_lock_held"), 2.0);
    assert_eq!(json(&shop.daemon, "/api/v1/incidents")["total"], 1);
    assert_eq!((losses_of(&shop.namespace("jobs")), losses_of(&shop.namespace("carts"))), (1, 0));
    let acquired = |samples: &Samples| sum(samples, "redis_lock_acquisitions_total");
    shop.server.command(&["PEXPIRE", "carts:lock:b", "900000"]);
    shop.daemon.wait("the renewal is counted", |daemon| sum(&daemon.scrape(), "redis_lock_renewals_total") == 1.0);
    assert_eq!(acquired(&shop.daemon.scrape()), acquired(&before), "a known lock is not acquired again");
}

#[test]
fn another_redis_has_other_locks() {
    let mut shop = Shop::open(JOBS);
    shop.lose("jobs", "a");
    shop.wait_incidents(1);
    shop.wait_losses("jobs", 1);
    let before = shop.daemon.scrape();
    let other = RedisServer::start(&[]);
    other.command(&["SET", "jobs:lock:other", "x", "PX", "600000"]);
    shop.server = other;
    shop.reload(JOBS);
    shop.daemon.wait("the other Redis is watched", |daemon| {
        is_watching(&daemon.scrape()) && !shop.lock("jobs:lock:other")["now"].is_null()
    });
    assert!(shop.lock("jobs:lock:a")["now"].is_null());
    let after = shop.daemon.scrape();
    for metric in ["acquisitions", "releases", "expirations", "unknown_ends"] {
        let metric = format!("redis_lock_{metric}_total");
        assert_eq!(sum(&after, &metric), sum(&before, &metric), "{metric}");
    }
    assert_eq!(sum(&after, "redis_lock_held"), 1.0);
    assert_eq!((losses_of(&shop.namespace("jobs")), losses_in_chart(&shop.namespace("jobs"))), (1, 1));
    assert_eq!(json(&shop.daemon, "/api/v1/incidents")["total"], 1);
}

/// Waits until the memory file contains everything that the API shows now.
fn wait_remembered(shop: &Shop) {
    let saves = |daemon: &Daemon| own(&daemon.scrape(), "state_saves_total");
    // Passes follow each other quickly, so there is something to save every second. The memory is
    // saved after the state, at most once a second.
    let enough = saves(&shop.daemon) + 4.0;
    shop.daemon.wait("the memory is saved", |daemon| saves(daemon) >= enough);
}

const STUCK: &str = "  - {name: jobs, keys: ['jobs:lock:{id}'], ttl: 10m, max_hold: 2s}\n";

#[test]
fn a_restart_restores_incidents_the_last_hour_and_since_when_locks_are_held() {
    let mut shop = Shop::open(STUCK);
    let summary = json(&shop.daemon, "/api/v1/overview")["summary"].as_str().unwrap().to_owned();
    let (time, rest) = summary.strip_prefix("Observing for ").unwrap().split_once("; ").unwrap();
    assert!(time.ends_with(" s"), "{summary}");
    assert_eq!(rest, "nothing wrong so far. Every log is read and Redis is watched.");

    for id in ["a", "b"] {
        shop.lose("jobs", id);
    }
    let token = shop.program.acquire("jobs:lock:changes", LONG);
    shop.wait_incidents(2);
    shop.wait_losses("jobs", 2);
    shop.wait_owner("jobs:lock:changes", &Value::Null);
    wait_remembered(&shop);
    let incidents = json(&shop.daemon, "/api/v1/incidents");
    let before = ["jobs:lock:a", "jobs:lock:changes"].map(|key| shop.lock(key)["now"].clone());
    shop.daemon.kill();

    // Its owner changes while the exporter is down.
    assert!(shop.program.release("jobs:lock:changes", &token));
    shop.program.acquire("jobs:lock:changes", LONG);
    let restarted = clock::now() as f64 / 1000.0;
    shop.daemon = shop.site.start_configured(&["--web.enable-lifecycle"]);
    assert_eq!(json(&shop.daemon, "/api/v1/incidents"), incidents);
    shop.daemon.wait("the exporter is watching", |daemon| is_watching(&daemon.scrape()));

    let now = shop.lock("jobs:lock:a")["now"].clone();
    assert_eq!(now["owner"], before[0]["owner"]);
    assert_eq!(now["first_seen_at"], before[0]["first_seen_at"]);
    assert!(now["acquired_at"].is_null(), "the lock may have been released and acquired in between: {now}");
    let changed = shop.lock("jobs:lock:changes")["now"].clone();
    assert_ne!(changed["owner"], before[1]["owner"]);
    assert!(changed["first_seen_at"].as_f64().unwrap() >= restarted, "{changed}");

    shop.wait_losses("jobs", 2);
    let jobs = shop.namespace("jobs");
    assert_eq!(losses_in_chart(&jobs), 2);
    shop.daemon.wait("the lock is held for too long", |_| {
        let findings = shop.namespace("jobs")["findings"].to_string();
        findings.contains("A lock is held for ") && findings.contains("2 locks were lost (observed for ")
    });
    let observed = |window: &str| jobs["observed_seconds"][window].as_f64().unwrap();
    assert!(observed("5m") > 0.0 && observed("5m") < 300.0, "{jobs}");
    assert_eq!(observed("5m"), observed("1h"));

    // Nobody else can read ids from the state directory, and it contains no tokens at all.
    let token = shop.server.text(&["GET", "jobs:lock:a"]);
    for file in fs::read_dir(shop.site.path("state")).unwrap().map(|file| file.unwrap()) {
        let bytes = fs::read(file.path()).unwrap();
        let contains = |text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
        assert!(!contains(&token) && !contains("jobs:lock:a") && !contains("lock:changes"), "{:?}", file.path());
        if ["key", "memory"].contains(&file.file_name().to_str().unwrap()) {
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", file.path());
        }
    }
    let directory = fs::metadata(shop.site.path("state")).unwrap();
    assert_eq!(directory.permissions().mode() & 0o777, 0o700);
}

#[test]
fn an_orderly_stop_remembers_everything_and_a_changed_namespace_starts_over() {
    let mut shop = Shop::open(&[CARTS, JOBS].concat());
    shop.lose("jobs", "a");
    shop.lose("carts", "b");
    shop.wait_incidents(2);
    // Its cause is not known when the exporter stops.
    shop.log_loss("jobs", "waiting");
    shop.wait_losses("jobs", 2);
    let observed = observed_since(&shop.daemon.scrape()).unwrap();
    assert!(shop.daemon.stop().success());
    let carts = CARTS.replace("carts:lock", "shop:carts:lock");
    configure(&shop.site, &shop.server, &[JOBS, &carts].concat());
    shop.daemon = shop.site.start_configured(&["--web.enable-lifecycle"]);
    let incidents = json(&shop.daemon, "/api/v1/incidents");
    let told = incidents["incidents"].as_array().unwrap().iter().map(|one| (&one["lock"], &one["cause"]));
    let told: Vec<_> = told.map(|(lock, cause)| (lock.as_str().unwrap(), cause.as_str().unwrap())).collect();
    assert_eq!(told, [("jobs:lock:waiting", "unknown"), ("jobs:lock:a", "taken_over")]);
    assert_eq!((losses_of(&shop.namespace("jobs")), losses_of(&shop.namespace("carts"))), (2, 0));
    let seconds = |name: &str| shop.namespace(name)["observed_seconds"]["1h"].as_f64().unwrap();
    assert!(seconds("carts") < seconds("jobs"), "only jobs was observed before the restart");
    shop.daemon.wait("the exporter is watching", |daemon| is_watching(&daemon.scrape()));
    assert!(observed_since(&shop.daemon.scrape()).unwrap() > observed, "changes in between were not observed");
}

/// Counters come from the state file. A memory that cannot be used changes nothing about them.
#[test]
fn a_memory_that_cannot_be_used_is_ignored() {
    let mut shop = Shop::open(JOBS);
    shop.lose("jobs", "a");
    shop.wait_incidents(1);
    shop.wait_losses("jobs", 1);
    let (stop, memory) = (|daemon: Daemon| assert!(daemon.stop().success()), shop.site.path("state/memory"));
    stop(shop.daemon);
    let good = fs::read(&memory).unwrap();
    fs::write(&memory, &good[..good.len() - 1]).unwrap();
    shop.daemon = shop.site.start_configured(&[]);
    shop.daemon.wait_for_log("the memory of the last hour cannot be used");
    assert_eq!(json(&shop.daemon, "/api/v1/incidents")["total"], 0);
    let lost = "redis_lock_not_owned_total{lock_namespace=\"jobs\",operation=\"release\"}";
    assert_eq!(shop.daemon.scrape()[lost], 1.0);
}
