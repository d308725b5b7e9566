//! Tests `/api/v1` over HTTP. A task replaces the pipeline.

use std::thread;
use std::time::{Duration, Instant};

use redis_lock_exporter::http::ConnectionLimits;
use redis_lock_exporter::model::query::{
    HistoryView, HoldView, IncidentView, IncidentsPage, Inquiry, LockHistory, LockOrder, LockView, LocksPage,
};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use crate::http::Answer;
use crate::server::Server;

/// Paths whose answers come from the pipeline.
const ASKING: [&str; 3] = ["/api/v1/locks", "/api/v1/locks/a", "/api/v1/incidents"];

#[test]
fn namespaces_come_from_the_snapshot() {
    let (_pipeline, inquiries) = watch::channel(None);
    let server = Server::start_api(ConnectionLimits::default(), inquiries);
    let answer = server.get("/api/v1/namespaces");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let body = body(&answer);
    assert_eq!(body["redis"]["name"], "main");
    assert_eq!((&body["redis"]["up"], &body["redis"]["tracking"]), (&json!(true), &json!(false)));
    let workflow = &body["namespaces"][0];
    assert_eq!(workflow["lock_namespace"], "workflow");
    assert_eq!(workflow["policy"]["keys"], json!(["cordum:wf:run:lock:{run_id}"]));
    assert_eq!(workflow["policy"]["ttl_seconds"], 30.0);
    assert_eq!(workflow["policy"]["leader_absent_seconds"], Value::Null);
    assert_eq!(workflow["logs"]["not_owned"], json!({"release": 1, "renew": 2, "unknown": 3}));
    assert_eq!(workflow["causes"]["expired_never_renewed"], 60);
    let keyspace = &workflow["keyspace"];
    assert_eq!(keyspace["counters"]["acquisitions"], 70_001);
    let hold = &keyspace["counters"]["hold_seconds"];
    assert_eq!((&hold["count"], &hold["buckets"][0]["le"]), (&json!(500), &json!(0.01)));
    assert_eq!(hold["buckets"].as_array().unwrap().last(), Some(&json!({"le": null, "count": 100})));
    assert_eq!(keyspace["now"]["oldest_acquired"], 1_784_999_400.125);
    assert_eq!(keyspace["ratios"]["1h"]["not_owned"], 0.0078125);
    assert_eq!(body["namespaces"][1]["keyspace"]["ratios"]["5m"]["not_owned"], Value::Null);
    assert_eq!(body["namespaces"][2]["keyspace"], Value::Null);
}

#[test]
fn query_parameters_reach_the_pipeline_unchanged() {
    let server = answering();
    let page = body(&server.get("/api/v1/locks"));
    assert_eq!(page["locks"][0]["key"], "namespace=None search=None sort=TtlRemaining limit=100 offset=0");
    assert_eq!(page["locks"][0]["acquired_at"], Value::Null);
    let path = "/api/v1/locks?lock_namespace=workflow&search=a%3Ab+c&sort=held&limit=1000&offset=7";
    let page = body(&server.get(path));
    let expected = "namespace=Some(\"workflow\") search=Some(\"a:b c\") sort=HeldLongest limit=1000 offset=7";
    assert_eq!(page["locks"][0]["key"], expected);
    let page = body(&server.get("/api/v1/locks?sort=changes"));
    assert_eq!(page["locks"][0]["key"], "namespace=None search=None sort=OwnerChanges limit=100 offset=0");
    // A form sends empty fields like this.
    let page = body(&server.get("/api/v1/locks?lock_namespace=&search=&sort=key&limit=&offset="));
    assert_eq!(page["locks"][0]["key"], "namespace=None search=None sort=Key limit=100 offset=0");

    let page = body(&server.get("/api/v1/incidents?lock_namespace=workflow&limit=3&offset=4"));
    assert_eq!(page["incidents"][0]["lock"], "namespace=Some(\"workflow\") limit=3 offset=4");
    assert_eq!((&page["total"], &page["incidents"][0]["cause"]), (&json!(1), &json!("renewals_stopped")));
}

#[test]
fn a_lock_is_found_by_its_full_key() {
    let server = answering();
    for (path, key) in [
        ("lock:a", "lock:a"),
        ("lock%3Aa%2Fb%20%C3%BC", "lock:a/b ü"),
        ("a/b//c", "a/b//c"),
        ("a+b", "a+b"),
        ("%25", "%"),
    ] {
        let answer = server.get(&format!("/api/v1/locks/{path}"));
        assert_eq!((answer.status, &body(&answer)["key"]), (200, &json!(key)), "{path}");
        assert_eq!(body(&answer)["history"][0]["what"], "expired");
    }
    check_refused(&server.get("/api/v1/locks/unknown"), 404, "nothing is known about this lock");
    check_refused(&server.get("/api/v1/locks/a%ff"), 400, "percent-encoded");
    check_refused(&server.get("/api/v1/locks/a?limit=1"), 400, "\"limit\"");
}

#[test]
fn errors_name_the_bad_parameter() {
    let server = answering();
    for (path, status, text) in [
        ("/api/v1/locks?limit=0", 400, "\"limit\""),
        ("/api/v1/locks?limit=1001", 400, "from 1 to 1000"),
        ("/api/v1/locks?limit=-1", 400, "\"limit\""),
        ("/api/v1/locks?offset=x", 400, "\"offset\""),
        ("/api/v1/locks?offset=99999999999999999999999", 400, "\"offset\""),
        ("/api/v1/locks?sort=owner", 400, "\"sort\""),
        ("/api/v1/locks?search=%zz", 400, "\"search\""),
        ("/api/v1/locks?search=a&search=b", 400, "\"search\" is given twice"),
        ("/api/v1/locks?namespace=workflow", 400, "\"namespace\" is unknown"),
        ("/api/v1/locks?lock_namespace=nothing", 404, "no lock namespace \"nothing\""),
        ("/api/v1/incidents?sort=key", 400, "\"sort\" is unknown"),
        ("/api/v1/incidents?lock_namespace=nothing", 404, "no lock namespace"),
        ("/api/v1/namespaces?limit=1", 400, "\"limit\" is unknown"),
    ] {
        check_refused(&server.get(path), status, text);
    }
    for path in ["/api", "/api/v1", "/api/v1/", "/api/v1/locks/", "/api/v1/nothing", "/api/v1/namespaces/a"] {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
    let answer = server.ask("POST /api/v1/locks HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD")));
    let head = server.ask("HEAD /api/v1/locks HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[test]
fn without_a_pipeline_the_api_reports_that_the_exporter_is_starting() {
    let (pipeline, inquiries) = watch::channel(None);
    let server = Server::start_api(ConnectionLimits::default(), inquiries);
    for path in ASKING {
        check_refused(&server.get(path), 503, "starting");
    }
    let (questions, gone) = mpsc::channel(1);
    drop(gone);
    pipeline.send(Some(questions)).unwrap();
    for path in ASKING {
        check_refused(&server.get(path), 503, "starting");
    }
}

#[test]
fn a_busy_pipeline_returns_503_within_the_time_limit() {
    let (questions, mut waiting) = mpsc::channel(1);
    let (_pipeline, inquiries) = watch::channel(Some(questions));
    let limits = ConnectionLimits { inquiry: Duration::from_secs(3), ..ConnectionLimits::default() };
    let server = Server::start_api(limits, inquiries);
    let started = Instant::now();
    check_refused(&server.get("/api/v1/locks"), 503, "busy");
    assert!(started.elapsed() >= Duration::from_secs(3), "the request ended before its timeout");
    // The first request still fills the channel, so the server refuses the second one at once.
    let started = Instant::now();
    check_refused(&server.get("/api/v1/incidents"), 503, "busy");
    assert!(started.elapsed() < Duration::from_secs(3), "the request waited although the queue was full");
    // The pipeline drops the request without an answer.
    drop(waiting.blocking_recv());
    let dropping = thread::spawn(move || drop(waiting.blocking_recv()));
    check_refused(&server.get("/api/v1/locks/a"), 503, "starting");
    dropping.join().unwrap();
    assert_eq!(server.get("/metrics").status, 200);
}

#[test]
fn a_disabled_api_reports_that_it_is_disabled() {
    let server = Server::start(ConnectionLimits::default());
    for path in ASKING.into_iter().chain(["/api/v1/namespaces", "/api/v1/overview", "/api/v1/config"]) {
        check_refused(&server.get(path), 404, "--web.disable-api");
    }
}

fn check_refused(answer: &Answer, status: u16, text: &str) {
    let error = body(answer)["error"].as_str().unwrap().to_owned();
    assert!(answer.status == status && error.contains(text), "{} {error}, not {status} {text}", answer.status);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
}

pub(crate) fn body(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap()
}

/// Starts a server whose pipeline answers each request with its parameters. The pipeline ends with
/// the server.
pub(crate) fn answering() -> Server {
    let (questions, mut asked) = mpsc::channel::<Inquiry>(8);
    thread::spawn(move || {
        while let Some(inquiry) = asked.blocking_recv() {
            answer(inquiry);
        }
    });
    let (_pipeline, inquiries) = watch::channel(Some(questions));
    Server::start_api(ConnectionLimits::default(), inquiries)
}

fn answer(inquiry: Inquiry) {
    match inquiry {
        Inquiry::Locks(query, answer) => {
            let sort: LockOrder = query.sort;
            let (namespace, search, limit, offset) = (query.lock_namespace, query.search, query.limit, query.offset);
            let key = format!("namespace={namespace:?} search={search:?} sort={sort:?} limit={limit} offset={offset}");
            answer.send(LocksPage { total: 1, offset, locks: vec![lock(key)] }).unwrap();
        }
        Inquiry::Lock(key, answer) => {
            let owner = Some("0a1b2c3d".to_owned());
            let event = HistoryView {
                at: 1_785_000_000.5,
                what: "expired",
                owner: owner.clone(),
                margin: None,
                event: None,
                reason: None,
                rule: None,
            };
            let hold = HoldView {
                owner,
                began_at: 1_784_999_970.5,
                acquisition_seen: true,
                ended_at: Some(1_785_000_000.5),
                ending: Some("expired"),
                ttl_seconds: Some(30.0),
                deadline_at: Some(1_785_000_000.5),
                renewals: 0,
                last_renewed_at: None,
            };
            let found = LockHistory {
                now: Some(lock(key.clone())),
                lock_namespace: Some("workflow".to_owned()),
                state: "held".to_owned(),
                verdict: Some("expired".to_owned()),
                holds: vec![hold],
                history: vec![event],
                key: key.clone(),
            };
            answer.send((key != "unknown").then_some(found)).unwrap();
        }
        Inquiry::Incidents(query, answer) => {
            let (namespace, limit, offset) = (query.lock_namespace, query.limit, query.offset);
            let incident = IncidentView {
                at: 1_785_000_000.5,
                lock_namespace: "workflow".to_owned(),
                lock: Some(format!("namespace={namespace:?} limit={limit} offset={offset}")),
                operation: "renew",
                cause: "renewals_stopped",
                lost_at: Some(1_784_999_999.25),
                owner: Some("0a1b2c3d".to_owned()),
                next_owner: None,
                rule: "cordum/run-renewal-failed".to_owned(),
                verdict: None,
                runbook: "RedisLockRenewalFailureRatioHigh",
            };
            answer.send(IncidentsPage { total: 1, offset, incidents: vec![incident] }).unwrap();
        }
    }
}

fn lock(key: String) -> LockView {
    LockView {
        key,
        lock_namespace: "workflow".to_owned(),
        owner: Some("0a1b2c3d".to_owned()),
        acquired_at: None,
        first_seen_at: 1_785_000_000.0,
        last_renewed_at: None,
        renewals: 0,
        ttl_remaining_seconds: Some(12.5),
        full_ttl_seconds: Some(30.0),
        owner_changes: 0,
        renewal_overdue: false,
        doubtful: false,
    }
}
