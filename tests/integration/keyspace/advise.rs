//! Tests `advise` on real locks whose correct TTL is known, with data from the exporter and from
//! Prometheus.

use std::net::SocketAddr;
use std::process::Output;
use std::thread;
use std::time::{Duration, Instant};

use redis_lock_exporter::rehearsal::fleet::LockToken;
use redis_lock_exporter::util::ports::UnusedPort;
use serde_json::Value;

use super::stage::{Program, is_watching};
use crate::daemon::{Daemon, command, sum};
use crate::prometheus::Prometheus;
use crate::redis::{RedisServer, eventually};
use crate::site::Site;

/// The code that uses the locks of a namespace explains its purpose.
const NAMESPACES: &str = "
scan: {interval: 1s, watched_interval: 1s, max_redis_share: 0.5}
namespaces:
  - {name: quick, keys: ['quick:{id}'], ttl: 30s, retry_every: 1s, takeover_slo: 10s}
  - {name: work, keys: ['work:{id}'], ttl: 20s, retry_every: 1s, takeover_slo: 30s}
  - {name: slow, keys: ['slow:{id}'], ttl: 4s, retry_every: 1s, takeover_slo: 1m}
  - {name: renewed, keys: ['renewed:{id}'], ttl: 60s, renew_every: 20s, renewal_failure_budget: 3, retry_every: 1s, takeover_slo: 75s}
  - {name: leader, keys: [leader], style: loop, ttl: 60s, retry_every: 30s, takeover_slo: 75s}
  - {name: idle, keys: ['idle:{id}'], ttl: 30s, retry_every: 1s, takeover_slo: 45s}
";
/// How long the work in the namespace `work` takes.
const WORK: Duration = Duration::from_millis(1600);
/// Enough samples for an upper bound of the 99th percentile.
const N_LOCKS: usize = 400;

/// A Redis server, exporters that watch it, and locks.
struct World {
    server: RedisServer,
    sites: Vec<Site>,
    daemons: Vec<Daemon>,
    program: Program,
}

impl World {
    fn start(n_exporters: usize) -> Self {
        let server = RedisServer::start(&[]);
        let sites: Vec<Site> = (0..n_exporters).map(|_| Site::new()).collect();
        let start = |site: &Site| {
            site.configure(&format!("redis: {{url: 'redis://127.0.0.1:{}/0'}}{NAMESPACES}", server.port()));
            let daemon = site.start_configured(&[]);
            daemon.wait("the exporter is watching", |daemon| is_watching(&daemon.scrape()));
            daemon
        };
        let daemons = sites.iter().map(start).collect();
        let program = Program::connect(&server);
        Self { server, sites, daemons, program }
    }

    fn acquire(&mut self, namespace: &str, n_locks: usize, ttl: Duration) -> Vec<(String, LockToken)> {
        let keys = (0..n_locks).map(|number| format!("{namespace}:{number}"));
        keys.map(|key| (key.clone(), self.program.acquire(&key, ttl))).collect()
    }

    /// Uses all the locks. Returns the longest hold in `work`, as measured by the test.
    fn use_locks(&mut self) -> f64 {
        // This lock expires because no program releases it.
        self.acquire("slow", N_LOCKS, Duration::from_secs(4));
        for number in 0..N_LOCKS {
            let key = format!("quick:{number}");
            let token = self.program.acquire(&key, Duration::from_secs(30));
            assert!(self.program.release(&key, &token));
        }
        // The exporter sees the remaining TTL at a renewal only if no other change happens at the
        // same time.
        let held = self.acquire("renewed", N_LOCKS, Duration::from_secs(60));
        self.wait_counted(&[("redis_lock_acquisitions_total", 3 * N_LOCKS)]);
        for (key, token) in &held {
            assert!(self.program.renew(key, token, Duration::from_secs(60)));
        }
        self.wait_counted(&[("redis_lock_renewal_margin_ratio_count", N_LOCKS)]);
        for (key, token) in held {
            assert!(self.program.release(&key, &token));
        }
        let begun = Instant::now();
        let held = self.acquire("work", N_LOCKS, Duration::from_secs(20));
        thread::sleep(WORK);
        for (key, token) in held {
            assert!(self.program.release(&key, &token));
        }
        let longest = begun.elapsed().as_secs_f64();
        self.wait_counted(&[("redis_lock_releases_total", 3 * N_LOCKS), ("redis_lock_held", 0)]);
        longest
    }

    /// Waits until every exporter has counted this many holds over all namespaces.
    fn wait_counted(&self, expected: &[(&str, usize)]) {
        for daemon in &self.daemons {
            daemon.wait(&format!("the counts {expected:?}"), |daemon| {
                let samples = daemon.scrape();
                expected.iter().all(|(metric, count)| sum(&samples, metric) == *count as f64)
            });
        }
    }

    fn exporter(&self) -> String {
        format!("http://{}", self.daemons[0].address)
    }
}

pub(super) fn advise(arguments: &[&str]) -> (i32, Value) {
    let output = command(&[&["advise", "--output", "json"], arguments].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let json = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}\n{errors}"));
    (output.status.code().unwrap(), json)
}

pub(super) fn of<'a>(answer: &'a Value, namespace: &str) -> &'a Value {
    let mut all = answer["namespaces"].as_array().unwrap().iter();
    all.find(|one| one["lock_namespace"] == namespace).unwrap_or_else(|| panic!("no {namespace}: {answer:#}"))
}

fn findings(namespace: &Value) -> Vec<&str> {
    namespace["findings"].as_array().unwrap().iter().map(|finding| finding["kind"].as_str().unwrap()).collect()
}

/// Checks the model, advised TTL, renewal interval, confidence and findings of one namespace.
#[track_caller]
pub(super) fn check(
    answer: &Value,
    namespace: &str,
    model: &str,
    values: (f64, Option<f64>),
    confidence: &str,
    kinds: &[&str],
) {
    let one = of(answer, namespace);
    let advised = &one["advised"];
    assert_eq!(
        (&one["model"], advised["ttl_seconds"].as_f64(), advised["renew_every_seconds"].as_f64(), &one["confidence"]),
        (&model.into(), Some(values.0), values.1, &confidence.into()),
        "{one:#}"
    );
    assert_eq!(findings(one), kinds, "{one:#}");
}

/// Checks the advice that does not depend on the bucket sizes.
#[track_caller]
fn check_all(answer: &Value) {
    // 10 s minus a retry of 1 s, which is enough for holds of some milliseconds.
    check(answer, "quick", "held", (9.0, None), "medium", &["too_long"]);
    assert_eq!(of(answer, "quick")["present"]["takeover_bound_seconds"], 31.0);
    check(answer, "work", "held", (20.0, None), "medium", &[]);
    // All holds expired for unknown reasons, so the next step is twice the TTL.
    check(answer, "slow", "held", (8.0, None), "low", &["too_short", "not_renewed"]);
    assert_eq!(of(answer, "slow")["advised"]["ttl_is_a_step"], true);
    // Like Cordum's scheduler: three failed renewals take as long as the TTL.
    check(answer, "renewed", "renewed", (60.0, Some(15.0)), "medium", &["fence_after_expiry"]);
    assert_eq!(of(answer, "renewed")["advised"]["renewals_that_may_fail"], 2);
    check(answer, "leader", "loop", (45.0, None), "none", &["too_long"]);
    check(answer, "idle", "held", (30.0, None), "none", &[]);
    let notes = of(answer, "idle")["notes"].to_string();
    assert!(notes.contains("too few samples: 0 finished holds were observed"), "{notes}");
}

#[test]
fn advise_reads_a_running_exporter() {
    let mut world = World::start(1);
    let longest = world.use_locks();
    let (code, answer) = advise(&["--exporter", &world.exporter()]);
    assert_eq!(code, 1);
    check_all(&answer);
    assert!(answer["namespaces"].as_array().unwrap().iter().all(|one| one["lock_namespace"] != "other"), "{answer}");

    // The range contains the real hold time, and the formula uses that range.
    let work = of(&answer, "work");
    let number = |path: &str| work.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path}: {work:#}"));
    let (low, high) = (number("/p99_seconds/low"), number("/p99_seconds/high"));
    assert!(low <= longest && high >= WORK.as_secs_f64() && low < high, "{low} to {high}, {longest} at most");
    assert_eq!((&work["samples"], &work["jitter_assumed"]), (&N_LOCKS.into(), &false.into()), "{work:#}");
    let needed = high + number("/jitter_seconds") + (high / 4.0).max(0.25);
    assert!((number("/needed_ttl_seconds/high") - needed).abs() < 1e-6, "{work:#}");

    // The metrics show the same values, and no value where nothing is known.
    let samples = world.daemons[0].scrape();
    let live = |metric: &str, namespace: &str| {
        samples.get(&format!("redis_lock_{metric}{{redis=\"redis\",lock_namespace=\"{namespace}\"}}")).copied()
    };
    for name in ["quick", "work", "slow", "renewed"] {
        let advised = &of(&answer, name)["advised"];
        assert_eq!(live("recommended_ttl_seconds", name), advised["ttl_seconds"].as_f64(), "{name}");
        assert_eq!(live("recommended_renew_interval_seconds", name), advised["renew_every_seconds"].as_f64(), "{name}");
    }
    for name in ["leader", "idle"] {
        assert_eq!(live("recommended_ttl_seconds", name), None, "{name}");
        assert_eq!(
            live("takeover_bound_seconds", name),
            of(&answer, name)["present"]["takeover_bound_seconds"].as_f64()
        );
    }

    // The advice is a valid configuration. With it, these namespaces have no more findings.
    let site = &world.sites[0];
    let yaml = answer["configuration"].as_str().unwrap();
    let expected = "namespaces:\n  - name: quick\n    ttl: 9s\n  - name: slow\n    ttl: 8s  # a step: measure again\n  \
                    - name: renewed\n    renew_every: 15s\n  - name: leader\n    ttl: 45s\n";
    assert!(yaml.ends_with(expected), "{yaml}");
    site.configure(&format!(
        "presets: [cordum]\nredis: {{url: 'redis://127.0.0.1:{}/0'}}\n{yaml}",
        world.server.port()
    ));
    let checked = command(&["check", "--config.file", &site.full_path("config.yaml")]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));

    let (code, one) = advise(&["--exporter", &format!("{}/metrics", world.exporter()), "--namespace", "work"]);
    assert_eq!((code, one["namespaces"].as_array().unwrap().len(), &one["configuration"]), (0, 1, &Value::Null));
    // Every 15 s, because of the fence: 2 * 15 s + 30 s + a quarter + jitter is more than 60 s and
    // less than the SLO.
    let (code, one) = advise(&["--exporter", &world.exporter(), "--namespace", "renewed", "--pause", "30s"]);
    assert_eq!(code, 1);
    check(&one, "renewed", "renewed", (68.0, Some(15.0)), "medium", &["too_short", "fence_after_expiry"]);
    // 60 s plus a quarter exceed 74 s with any renewal interval.
    let (_, one) = advise(&["--exporter", &world.exporter(), "--namespace", "renewed", "--pause", "1m"]);
    assert_eq!(findings(of(&one, "renewed")), ["too_short", "conflict", "fence_after_expiry"]);
}

#[test]
fn advise_prints_a_table() {
    let mut world = World::start(1);
    world.use_locks();
    let output = command(&["advise", "--exporter", &world.exporter()]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let row = |name: &str| words(text.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap());
    assert_eq!(
        row("NAMESPACE").join(" "),
        "NAMESPACE MODEL TTL RENEW EVERY MAY FAIL TAKEOVER / SLO SAMPLES CONFIDENCE"
    );
    assert_eq!(row("quick").join(" "), "quick held 30s -> 9s - - 31s / 10s 400 medium");
    assert!(row("slow").join(" ").starts_with("slow held 4s -> 8s+ - - 5s / 1m "), "{text}");
    assert_eq!(row("renewed").join(" "), "renewed renewed 1m 20s -> 15s 2 1m1s / 1m15s 400 medium");
    assert_eq!(row("leader").join(" "), "leader loop 1m -> 45s - - 1m30s / 1m15s 0 -");
    for sentence in [
        "work: fine\n  99 of 100 holds take no more than ",
        "renewed: change\n  the owner fences itself after the lock expired: 3 failed renewals, 20s apart, take 1m, \
         but the TTL is \
         1m; renew every 15s or give up after 2 failures\n",
        "slow: change\n  the TTL of 4s is too short: it cut off ",
        "holds; how long they would have taken is unknown, so use the recommended value as a step and measure again\n",
        "note: no log line about this namespace was observed: owners that died may be among the ",
        "idle: too few samples: 0 finished holds were observed, and fewer than 100 do not show the slowest hundredth\n",
        "\nnamespaces:\n  - name: quick\n    ttl: 9s\n",
    ] {
        assert!(text.contains(sentence), "{sentence:?} is not in:\n{text}");
    }
}

/// Scrapes once a second.
fn scraping(exporters: &[SocketAddr]) -> Prometheus {
    let targets: Vec<String> = exporters.iter().map(|address| format!("'{address}'")).collect();
    let jobs = format!("[{{job_name: locks, static_configs: [{{targets: [{}]}}]}}]", targets.join(", "));
    Prometheus::start(&format!("global: {{scrape_interval: 1s}}\nscrape_configs: {jobs}\n"), &[], &[])
}

/// Two exporters see the same locks, but `advise` counts them once.
#[test]
fn advise_reads_prometheus() {
    let mut world = World::start(2);
    let addresses: Vec<_> = world.daemons.iter().map(|daemon| daemon.address).collect();
    let prometheus = scraping(&addresses);
    // The first sample must be zero, because Prometheus computes an increase from it.
    let is_seen = |query: &str, wanted: f64| prometheus.number(query).is_some_and(|number| number >= wanted);
    eventually("Prometheus to scrape two exporters", || {
        is_seen("count(redis_lock_hold_seconds_count{lock_namespace=\"work\"})", 2.0).then_some(())
    });
    world.use_locks();
    let n_locks = N_LOCKS as f64;
    eventually("Prometheus to have counted all locks", || {
        let releases = is_seen("min(sum by (instance) (redis_lock_releases_total))", 3.0 * n_locks);
        // Prometheus extrapolates an increase. More samples make the error smaller.
        let is_long = is_seen("min(count_over_time(redis_lock_releases_total[10m]))", 15.0);
        (releases && is_long && prometheus.number("sum(redis_lock_held)") == Some(0.0)).then_some(())
    });
    let url = prometheus.url();
    let (code, answer) = advise(&["--prometheus", &url, "--range", "10m"]);
    assert_eq!(code, 1);
    check_all(&answer);
    let work = of(&answer, "work");
    let n_samples = work["samples"].as_f64().unwrap();
    assert!((n_locks * 0.95..n_locks * 1.2).contains(&n_samples), "the locks must count once: {n_samples}");
    // The bucket bounds of the metric: from 1 s to 10 s.
    let bracket = (work["p99_seconds"]["low"].as_f64(), work["p99_seconds"]["high"].as_f64());
    assert_eq!(bracket, (Some(1.0), Some(10.0)));
    assert_eq!((&work["jitter_assumed"], &work["cluster"]), (&false.into(), &"".into()));

    let (code, one) = advise(&["--prometheus", &url, "--range", "10m", "--namespace", "work", "--namespace", "idle"]);
    assert_eq!((code, one["namespaces"].as_array().unwrap().len()), (0, 2));
    fails(
        &["--prometheus", &url, "--namespace", "nowhere"],
        "nothing was observed in Redis of a lock namespace \"nowhere\"; there are: idle, ",
    );
    fails(&["--prometheus", &url, "--cluster", "nowhere"], "none about locks in Redis");
    // An exporter is not a Prometheus server, and the reverse.
    fails(&["--prometheus", &world.exporter()], "not as Prometheus does");
    fails(&["--exporter", &url], "it is no redis_lock_exporter");
}

/// Uses the preset alone, before any lock was seen. Three failed renewals take as long as the TTL.
/// Cordum's other values have no findings.
#[test]
fn advise_reports_that_the_cordum_scheduler_gives_up_its_lock_too_late() {
    let server = RedisServer::start(&[]);
    let url = format!("redis://127.0.0.1:{}", server.port());
    let daemon = Daemon::start(&["--redis.url", &url, "--preset", "cordum"]);
    let (code, answer) = advise(&["--exporter", &format!("http://{}", daemon.address)]);
    assert_eq!((code, &answer["findings"]), (1, &1.into()), "{answer:#}");
    check(&answer, "scheduler", "renewed", (60.0, Some(15.0)), "none", &["fence_after_expiry"]);
    let yaml = answer["configuration"].as_str().unwrap();
    assert!(yaml.ends_with("namespaces:\n  - name: scheduler\n    renew_every: 15s\n"), "{yaml}");
}

/// Checks for exit code 2, empty standard output, and the reason.
#[track_caller]
fn fails(arguments: &[&str], reason: &str) {
    let Output { status, stdout, stderr } = command(&[&["advise"], arguments].concat());
    let stderr = String::from_utf8(stderr).unwrap();
    assert_eq!((status.code(), stdout.len()), (Some(2), 0), "{stderr}");
    assert!(stderr.contains(reason) && stderr.lines().count() == 1, "{stderr}");
}

#[test]
fn advise_exits_with_2_if_it_has_no_data() {
    let unused = UnusedPort::reserve().unwrap();
    let nobody = format!("127.0.0.1:{}", unused.number);
    fails(
        &["--exporter", &format!("http://me:secret@{nobody}")],
        &format!("cannot get http://{nobody}/api/v1/namespaces: cannot connect to {nobody}"),
    );
    fails(
        &["--prometheus", &format!("http://{nobody}")],
        &format!("cannot get http://{nobody}: cannot connect to {nobody}"),
    );
    fails(&["--exporter", "localhost:9877"], "bad URL");

    let empty = scraping(&[]);
    let url = format!("http://{}", empty.address);
    fails(&["--prometheus", &url, "--range", "1h"], "has no series of redis_lock_exporter in the last 1h");

    let without_redis = Site::new().start();
    fails(&["--exporter", &format!("http://{}", without_redis.address)], "does not watch Redis");

    let server = RedisServer::start(&[]);
    let site = Site::new();
    site.configure(&format!("redis: {{url: 'redis://127.0.0.1:{}/0'}}{NAMESPACES}", server.port()));
    let daemon = site.start_configured(&["--web.disable-api"]);
    fails(
        &["--exporter", &format!("http://{}", daemon.address)],
        "the API is off: the exporter was started with --web.disable-api (start it without, or ask with --prometheus)",
    );
    drop(daemon);
    let daemon = site.start_configured(&[]);
    let url = format!("http://{}", daemon.address);
    fails(
        &["--exporter", &url, "--namespace", "nowhere"],
        "nothing was observed in Redis of a lock namespace \"nowhere\"; there are: quick, work, slow, renewed, \
         leader, idle",
    );
}
