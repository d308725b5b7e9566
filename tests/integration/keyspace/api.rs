//! Tests API requests about single locks on a real Redis, and what survives a restart of the
//! exporter.

use std::collections::BTreeSet;
use std::time::Duration;

use redis_lock_exporter::util::clock;
use serde_json::Value;

use super::stage::{Counted, LONG, Stage, is_watching, json, observed_since};
use crate::daemon::Daemon;
use crate::redis::RedisServer;
use crate::site::Site;
use crate::undisturbed::undisturbed;

fn keys(page: &Value) -> Vec<&str> {
    page["locks"].as_array().unwrap().iter().map(|lock| lock["key"].as_str().unwrap()).collect()
}

#[test]
fn hundreds_of_locks_can_be_paged_searched_and_sorted() {
    const N_LOCKS: usize = 300;
    let stage = Stage::new(RedisServer::start(&[]));
    // Locks with higher numbers have less time left. One lock has no TTL.
    let key = |number: usize| format!("jobs:lock:bulk-{number:03}");
    let mut client = stage.server.client();
    for number in 0..N_LOCKS {
        let ttl = (600 + N_LOCKS - number).to_string();
        client.command(&["SET", &key(number), "token", "NX", "EX", &ttl]);
    }
    client.command(&["SET", "jobs:lock:for-ever", "token"]);
    stage.wait_locks("bulk-", |locks| locks.len() == N_LOCKS);
    stage.wait_locks("for-ever", |locks| locks.len() == 1);

    let mut found = Vec::new();
    for offset in [0, 100, 200, 300] {
        let page =
            json(&stage.daemon, &format!("/api/v1/locks?sort=key&limit=100&offset={offset}&lock_namespace=jobs"));
        assert_eq!((&page["total"], &page["offset"]), (&Value::from(N_LOCKS + 1), &Value::from(offset)));
        found.extend(keys(&page).into_iter().map(str::to_owned));
    }
    let mut all: Vec<String> = (0..N_LOCKS).map(key).collect();
    all.push("jobs:lock:for-ever".to_owned());
    assert_eq!(found, all, "each lock must appear once, in order");

    let page = json(&stage.daemon, "/api/v1/locks?limit=1000");
    let by_ttl: Vec<String> = (0..N_LOCKS).rev().map(key).chain(["jobs:lock:for-ever".to_owned()]).collect();
    assert_eq!(keys(&page), by_ttl);
    assert!(page["locks"][N_LOCKS]["ttl_remaining_seconds"].is_null());
    let page = json(&stage.daemon, "/api/v1/locks?sort=held&limit=1000");
    let times: Vec<f64> =
        page["locks"].as_array().unwrap().iter().map(|lock| lock["acquired_at"].as_f64().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");

    let page = json(&stage.daemon, "/api/v1/locks?search=bulk-12&sort=key&limit=3&offset=1");
    assert_eq!((keys(&page), &page["total"]), (vec![&*key(121), &*key(122), &*key(123)], &Value::from(10)));
    assert_eq!(json(&stage.daemon, "/api/v1/locks?search=nowhere")["total"], 0);
    assert_eq!(json(&stage.daemon, "/api/v1/locks?offset=1000")["locks"], Value::Array(Vec::new()));
    let owners: BTreeSet<String> =
        page["locks"].as_array().unwrap().iter().map(|lock| lock["owner"].as_str().unwrap().to_owned()).collect();
    assert_eq!(owners.len(), 1, "all locks have the same token");

    for (path, status) in [("limit=1001", 400), ("sort=size", 400), ("page=2", 400), ("lock_namespace=nope", 404)] {
        assert_eq!(stage.daemon.get(&format!("/api/v1/locks?{path}")).status, status, "{path}");
    }
    assert_eq!(stage.daemon.get("/api/v1/locks/jobs:lock:nobody").status, 404);

    let namespaces = json(&stage.daemon, "/api/v1/namespaces");
    let redis = &namespaces["redis"];
    assert_eq!(
        (&redis["up"], &redis["tracking"], &redis["complaints"]),
        (&true.into(), &true.into(), &Value::Array(vec![]))
    );
    stage.daemon.wait("shown for the namespace", |daemon| {
        let namespaces = json(daemon, "/api/v1/namespaces");
        let jobs = namespaces["namespaces"].as_array().unwrap().iter().find(|one| one["lock_namespace"] == "jobs");
        let keyspace = &jobs.unwrap()["keyspace"];
        let (counters, now) = (&keyspace["counters"], &keyspace["now"]);
        counters["acquisitions"] == N_LOCKS + 1
            && now["held"] == N_LOCKS + 1
            && now["without_ttl"] == 1
            && now["source"] == "watch"
    });
}

#[test]
fn the_api_shows_the_history_of_a_lock() {
    undisturbed(|| {
        const KEY: &str = "jobs:lock:one";
        let mut stage = Stage::new(RedisServer::start(&[]));
        let began = clock::now() as f64 / 1000.0;
        let owner = |stage: &Stage| json(&stage.daemon, "/api/v1/locks?search=one")["locks"][0]["owner"].clone();
        let first = stage.program.acquire(KEY, Duration::from_secs(4));
        stage.wait_locks("one", |locks| locks.len() == 1);
        let first_owner = owner(&stage);
        assert!(stage.program.renew(KEY, &first, Duration::from_secs(6)));
        stage.wait_locks("one", |locks| locks.is_empty() || locks[0]["renewals"] == 1);
        stage.wait_locks("one", |locks| locks.is_empty());
        stage.program.acquire(KEY, LONG);
        stage.wait_locks("one", |locks| locks.len() == 1);
        let second_owner = owner(&stage);
        let third = stage.program.steal(KEY, LONG);
        stage.wait_locks("one", |locks| locks[0]["owner"] != second_owner);
        let third_owner = owner(&stage);
        let held = json(&stage.daemon, &format!("/api/v1/locks/{KEY}"));
        assert_eq!((&held["key"], &held["now"]["owner"]), (&Value::from(KEY), &third_owner));
        assert!(held["now"]["full_ttl_seconds"].as_f64().is_some_and(|ttl| (ttl - 600.0).abs() < 1.0), "{held}");
        assert!(stage.program.release(KEY, &third));
        stage.wait_locks("one", |locks| locks.is_empty());

        let ended = clock::now() as f64 / 1000.0;

        let lock = json(&stage.daemon, "/api/v1/locks/jobs%3Alock%3Aone");
        assert!(lock["now"].is_null());
        let history = lock["history"].as_array().unwrap();
        let told: Vec<(&str, &Value)> =
            history.iter().map(|one| (one["what"].as_str().unwrap(), &one["owner"])).collect();
        let expected = [
            ("released", &third_owner),
            ("acquired", &third_owner),
            ("taken_over", &second_owner),
            ("acquired", &second_owner),
            ("expired", &first_owner),
            ("renewed", &first_owner),
            ("acquired", &first_owner),
        ];
        assert_eq!(told, expected);
        assert!(history[5]["margin"].as_f64().is_some_and(|margin| margin > 0.0 && margin < 0.7), "{history:?}");
        let (first, second, third) = (&lock["holds"][2], &lock["holds"][1], &lock["holds"][0]);
        assert_eq!(
            (&first["ending"], &second["ending"], &third["ending"]),
            (&"expired".into(), &"taken_over".into(), &"released".into())
        );
        let verdict = lock["verdict"].as_str().unwrap();
        let [_, lost, next] = [&first_owner, &second_owner, &third_owner].map(|owner| owner.as_str().unwrap());
        assert!(verdict.starts_with(&format!("owner {lost} held ")), "{verdict}");
        assert!(verdict.contains(&format!("never renewed; owner {next} replaced it with ")), "{verdict}");
        assert!(verdict.ends_with(" left: taken over before its time"), "{verdict}");
        assert!(lock["state"].as_str().unwrap().starts_with("nobody has held it for "), "{}", lock["state"]);
        let times: Vec<f64> = history.iter().rev().map(|one| one["at"].as_f64().unwrap()).collect();
        assert!(times.is_sorted() && times[0] > began - 1.0 && times[6] < ended + 1.0, "{times:?}");
        let [acquired, renewed, expired, ..] = times[..] else { panic!("{times:?}") };
        assert!(expired - renewed > 5.95 && expired - renewed < 6.1, "acquired at {acquired}: {times:?}");
    });
}

#[test]
fn the_api_can_be_turned_off() {
    let stage = Stage::new(RedisServer::start(&[]));
    let Stage { site, daemon, .. } = stage;
    assert!(daemon.stop().success());
    let daemon = site.start_configured(&["--web.disable-api"]);
    for path in [
        "/api/v1/overview",
        "/api/v1/config",
        "/api/v1/namespaces",
        "/api/v1/locks",
        "/api/v1/locks/jobs:lock:1",
        "/api/v1/incidents",
    ] {
        let answer = daemon.get(path);
        assert_eq!(answer.status, 404, "{path}");
        assert!(answer.text().contains("--web.disable-api"), "{}", answer.text());
    }
    assert_eq!(daemon.get("/metrics").status, 200);
}

/// Counters continue, existing locks count as nothing new, and the exporter does not guess what
/// happened in between.
#[test]
fn an_exporter_restart_counts_no_events() {
    let mut stage = Stage::new(RedisServer::start(&[]));
    stage.hold(20);
    stage.work();
    stage.check();
    let before = stage.daemon.scrape();
    stage.daemon.kill();
    let (key, token) = stage.held.remove(0);
    assert!(stage.program.release(&key, &token));
    let restarted = clock::now() as f64 / 1000.0;
    stage.daemon = stage.site.start_configured(&[]);
    // This holds from the first scrape on, whether or not the first pass is complete.
    let first = Counted::of(&stage.daemon.scrape());
    assert_eq!(first, Counted { held: first.held, ..stage.expected.clone() });
    stage.wait_watching();
    stage.expected.held = 19;
    stage.check();
    let since = observed_since(&stage.daemon.scrape()).unwrap();
    assert!(since >= restarted && Some(since) > observed_since(&before), "{since} after {restarted}");
    let lock = json(&stage.daemon, &format!("/api/v1/locks/{}", stage.held[0].0));
    assert_eq!((&lock["history"][0]["what"], &lock["now"]["acquired_at"]), (&Value::from("first_seen"), &Value::Null));
    // The histogram excludes holds whose start was not observed.
    let (key, token) = stage.held.remove(0);
    assert!(stage.program.release(&key, &token));
    stage.wait_locks("held-", |locks| locks.len() == 18);
    stage.expected.held = 18;
    stage.expected.releases += 1;
    let holds = "redis_lock_hold_seconds_count{redis=\"redis\",lock_namespace=\"jobs\"}";
    let n_holds = before[holds];
    stage.work();
    stage.check();
    assert_eq!(stage.daemon.scrape()[holds], n_holds + 5.0);
}

/// At least half of the attempts fail, so work stops. Attempts that found the lock held are not
/// failures.
#[test]
fn failed_attempts_produce_a_finding_with_a_runbook() {
    let server = RedisServer::start(&[]);
    let site = Site::new();
    site.append("logs/scheduler.log", "");
    site.configure(&format!(
        "redis: {{url: '{}'}}\nlogs: [{{path: 'SITE/logs/*.log'}}]\npresets: [cordum]\n",
        server.url()
    ));
    let daemon = site.start_configured(&[]);
    daemon.wait("the exporter is watching", |daemon| is_watching(&daemon.scrape()));
    for number in 0..3 {
        server.command(&["SET", &format!("cordum:scheduler:job:taken-{number}"), "a", "PX", "60000"]);
    }
    for (message, error, n_lines) in [
        ("job lock acquisition failed", "dial tcp 10.0.0.7:6379: connect: connection refused", 6),
        ("replay job failed", "job lock busy", 20),
    ] {
        for number in 0..n_lines {
            let line = format!(
                r#"{{"level":"WARN","msg":"{message}","component":"scheduler","job_id":"{number}-{n_lines}","error":"{error}"}}"#
            );
            site.append("logs/scheduler.log", line + "\n");
        }
    }
    let finding = |daemon: &Daemon| {
        let overview = json(daemon, "/api/v1/overview");
        let findings = overview["findings"].as_array().unwrap().clone();
        findings.into_iter().find(|finding| finding["runbook"] == "RedisLockAcquireFailing")
    };
    daemon.wait("the attempts are counted", |daemon| {
        finding(daemon).is_some_and(|finding| finding["text"].as_str().unwrap().starts_with("6 attempts "))
    });
    let found = finding(&daemon).unwrap();
    assert_eq!((&found["lock_namespace"], &found["level"]), (&"scheduler".into(), &"critical".into()), "{found}");
    let text = found["text"].as_str().unwrap();
    assert!(text.ends_with("of all, above 5 %."), "{text}");
    let runbook = daemon.get("/runbooks/RedisLockAcquireFailing");
    assert!(runbook.status == 200 && runbook.text().contains("get an error instead of an answer"));
}
