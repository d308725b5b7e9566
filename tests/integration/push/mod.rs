//! Tests push requests in Loki's protocol: accepted requests, refused requests, and repeated
//! requests that count once.

mod clients;
mod memory;

use std::fs;
use std::io::Write;
use std::net::Shutdown;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::daemon::{Daemon, not_owned};
use crate::http::{Answer, ask_with_body, connect, drain};
use crate::redis::eventually;
use crate::site::{Site, lost_line};

const CONFIG: &str = "presets: [cordum]\nlogs: [{push: {max_request_bytes: 256KiB}}]\n";
const PATH: &str = "/loki/api/v1/push";
const EVENTS: &str = "redis_lock_exporter_log_events_total{source=\"push\"}";
const LINES: &str = "redis_lock_exporter_log_lines_total{source=\"push\"}";
const DUPLICATES: &str = "redis_lock_exporter_log_duplicates_total{source=\"push\"}";
const REJECTED: &str = "redis_lock_exporter_log_rejected_requests_total{source=\"push\"}";

fn start(site: &Site) -> Daemon {
    site.configure(CONFIG);
    site.start_configured(&[])
}

fn post(daemon: &Daemon, headers: &str, body: &[u8]) -> Answer {
    let length = body.len();
    let head = format!("POST {PATH} HTTP/1.1\r\nHost: test\r\nContent-Length: {length}\r\n{headers}\r\n");
    ask_with_body(daemon.address, &head, body)
}

fn push(daemon: &Daemon, body: &Value) -> Answer {
    post(daemon, "Content-Type: application/json\r\n", body.to_string().as_bytes())
}

/// Returns one stream in which each line has its own time.
fn stream(labels: Value, lines: &[String]) -> Value {
    static NEXT: AtomicU64 = AtomicU64::new(1_782_394_624_123_456_789);
    let value = |line: &String| json!([NEXT.fetch_add(1, Ordering::Relaxed).to_string(), line]);
    json!({ "stream": labels, "values": lines.iter().map(value).collect::<Vec<_>>() })
}

fn losses(count: usize) -> Value {
    let lines: Vec<String> = (0..count).map(|_| lost_line()).collect();
    json!({ "streams": [stream(json!({"job": "cordum", "namespace": "prod"}), &lines)] })
}

fn check_counted(daemon: &Daemon, losses: f64, duplicates: f64) {
    daemon.wait_for(EVENTS, losses);
    daemon.wait_for(&not_owned("workflow", "release"), losses);
    daemon.wait_for(DUPLICATES, duplicates);
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn lines_are_counted_and_saved_before_the_response() {
    let site = Site::new();
    let daemon = start(&site);
    let answer = push(&daemon, &losses(3));
    assert_eq!((answer.status, answer.text().as_str()), (204, ""));
    // This is not a scrape: counts that were acknowledged survive a kill right after the response.
    daemon.kill();
    let daemon = site.start_configured(&[]);
    check_counted(&daemon, 3.0, 0.0);

    let packed = gzip(losses(2).to_string().as_bytes());
    let headers =
        "Content-Type: application/json; charset=utf-8\r\nContent-Encoding: gzip\r\nX-Scope-OrgID: tenant\r\n";
    assert_eq!(post(&daemon, headers, &packed).status, 204);
    check_counted(&daemon, 5.0, 0.0);
    let nothing = json!({"streams": [stream(json!({"job": "x"}), &["all is well".to_owned()])]});
    assert_eq!(push(&daemon, &nothing).status, 204);
    daemon.wait_for(LINES, 6.0);
    assert_eq!(push(&daemon, &json!({"streams": []})).status, 204);
    assert_eq!(daemon.scrape()[REJECTED], 0.0);
}

#[test]
fn a_repeated_request_counts_once_even_after_a_crash() {
    let site = Site::new();
    let daemon = start(&site);
    let body = losses(4);
    assert_eq!(push(&daemon, &body).status, 204);
    assert_eq!(push(&daemon, &body).status, 204);
    check_counted(&daemon, 4.0, 4.0);
    daemon.kill();
    let daemon = site.start_configured(&[]);
    // Labels in another order and additional lines, as from clients that add a failed batch to the
    // next one.
    let mut values = body["streams"][0]["values"].as_array().unwrap().clone();
    let text = format!(
        r#"{{"streams":[{{"stream":{{"namespace":"prod","job":"cordum"}},"values":{}}}]}}"#,
        json!([losses(1)["streams"][0]["values"][0], values.pop(), values.pop()])
    );
    assert_eq!(post(&daemon, "Content-Type: application/json\r\n", text.as_bytes()).status, 204);
    check_counted(&daemon, 5.0, 6.0);
    // The same line from another stream or with another time is another line, but belongs to the
    // same failure.
    let mut other = body.clone();
    other["streams"][0]["stream"]["job"] = "another".into();
    assert_eq!(push(&daemon, &other).status, 204);
    daemon.wait_for(EVENTS, 9.0);
    daemon.wait_for(DUPLICATES, 6.0);
}

#[test]
fn identical_lines_with_one_time_in_one_request_are_all_counted() {
    let site = Site::new();
    let daemon = start(&site);
    // Lines without an id cannot be joined: three lines are three losses.
    let line = json!(["1782394624000000000", "release failed: lock not owned"]);
    let body = json!({"streams": [{"stream": {"job": "a"}, "values": [line, line, line]}]});
    for _ in 0..2 {
        assert_eq!(push(&daemon, &body).status, 204);
    }
    daemon.wait_for(EVENTS, 3.0);
    daemon.wait_for(DUPLICATES, 3.0);
}

/// A following plain line shows that the record is complete. The record does not use that line's
/// time and metadata.
#[test]
fn a_record_keeps_its_time_and_metadata_when_the_next_line_ends_it() {
    let site = Site::new();
    site.configure(&format!(
        "{CONFIG}namespaces: [{{name: billing}}]\n\
         rules: [{{regex: 'invoice lock lost', event: not_owned, operation: release, namespace: billing, where: {{pod: a}}}}]\n"
    ));
    let daemon = site.start_configured(&[]);
    let lost = "[GATEWAY] ERROR release workflow admission lock failed org_id=acme error=lock not owned";
    // The lines are further apart than lines of one loss: two losses of one lock.
    let values = json!([
        ["1782394600000000000", lost],
        ["1782394602500000000", lost],
        ["1782394602600000000", "invoice lock lost", {"pod": "a"}],
        ["1782394602700000000", "[GATEWAY] INFO all is well", {"pod": "b"}],
    ]);
    let body = json!({"streams": [{"stream": {"job": "gateway"}, "values": values}]});
    assert_eq!(push(&daemon, &body).status, 204);
    daemon.wait_for(&not_owned("admission", "release"), 2.0);
    daemon.wait_for(&not_owned("billing", "release"), 1.0);
}

#[test]
fn a_request_that_cannot_be_saved_gets_503_and_its_retry_counts_once() {
    let site = Site::new();
    let daemon = start(&site);
    // A directory at the path of the temporary file makes saving fail.
    let obstacle = site.path("state/state.json.tmp");
    fs::create_dir(&obstacle).unwrap();
    let body = losses(2);
    let answer = push(&daemon, &body);
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")), "{}", answer.text());
    assert!(answer.text().contains("nothing is counted twice"), "{}", answer.text());
    fs::remove_dir(&obstacle).unwrap();
    assert_eq!(push(&daemon, &body).status, 204);
    daemon.kill();
    let daemon = site.start_configured(&[]);
    check_counted(&daemon, 2.0, 2.0);
}

#[test]
fn rules_can_match_labels_and_metadata() {
    let site = Site::new();
    site.configure(
        "namespaces: [{name: jobs, keys: ['job:{id}']}, {name: runs, keys: ['run:{id}']}, {name: tasks, keys: ['task:{id}']}]\n\
         rules:\n\
         - {message: guard was lost, event: not_owned, namespace: jobs, id: id, where: {job: alpha, namespace: prod}}\n\
         - {message: guard was lost, event: not_owned, namespace: runs, id: id, where: {job: beta}}\n\
         - {message: guard was lost, event: not_owned, namespace: tasks, id: id, where: {trace_kind: gamma}}\n\
         logs: [{push: , name: agents}]\n",
    );
    let daemon = site.start_configured(&[]);
    let line = |id: &str| format!(r#"{{"msg":"guard was lost","id":"{id}"}}"#);
    let time = "1782394624000000000";
    let body = json!({"streams": [
        {"stream": {"job": "alpha", "namespace": "prod"}, "values": [[time, line("1")]]},
        {"stream": {"job": "alpha", "namespace": "test"}, "values": [[time, line("2")]]},
        {"stream": {"job": "beta"}, "values": [[time, line("3")], [time, line("4")]]},
        {"stream": {"job": "delta"}, "values": [[time, line("5"), {"trace_kind": "gamma"}], [time, line("6"), {}]]},
    ]});
    assert_eq!(push(&daemon, &body).status, 204);
    for (namespace, expected) in [("jobs", 1.0), ("runs", 2.0), ("tasks", 1.0), ("other", 0.0)] {
        daemon.wait_for(&not_owned(namespace, "unknown"), expected);
    }
    daemon.wait_for("redis_lock_exporter_log_lines_total{source=\"agents\"}", 6.0);
}

#[test]
fn wrapped_lines_are_unwrapped_and_interleaved_streams_stay_separate() {
    let site = Site::new();
    let daemon = start(&site);
    let (one, two, three) = (lost_line(), lost_line(), lost_line());
    let cri = |tag: &str, text: &str| format!("2026-06-25T13:37:04.123456789Z stderr {tag} {text}");
    let docker = json!({"log": format!("{three}\n"), "stream": "stderr", "time": "2026-06-25T13:37:05Z"}).to_string();
    let labels = |pod: &str| json!({"pod": pod});
    // The pieces of two lines alternate.
    let body = json!({"streams": [
        stream(labels("a"), &[cri("P", &one[..80])]),
        stream(labels("b"), &[cri("P", &two[..70])]),
        stream(labels("b"), &[cri("F", &two[70..])]),
        stream(labels("a"), &[cri("F", &one[80..]), docker]),
    ]});
    assert_eq!(push(&daemon, &body).status, 204);
    check_counted(&daemon, 3.0, 0.0);
    // An acknowledged request leaves no incomplete lines, so a kill right after it loses nothing.
    let started = json!({"streams": [stream(labels("c"), &[cri("P", &lost_line())])]});
    assert_eq!(push(&daemon, &started).status, 204);
    daemon.kill();
    check_counted(&site.start_configured(&[]), 4.0, 0.0);
}

#[test]
fn a_line_without_a_time_uses_the_time_of_its_entry() {
    let site = Site::new();
    let daemon = start(&site);
    // The entries' times are far apart, so these are two failures of one lock. With equal times
    // they would be one.
    let line = r#"{"msg":"distributed run lock release failed","component":"workflow-engine","run_id":"r","error":"lock not owned"}"#;
    let values = [["1782394624000000000", line], ["1782394824000000000", line]];
    assert_eq!(push(&daemon, &json!({"streams": [{"stream": {}, "values": values}]})).status, 204);
    check_counted(&daemon, 2.0, 0.0);
}

#[test]
fn malformed_requests_are_refused_with_a_message_and_count_nothing() {
    let site = Site::new();
    let daemon = start(&site);
    let good = losses(1).to_string();
    let json = "Content-Type: application/json\r\n";
    let gzipped = "Content-Type: application/json\r\nContent-Encoding: gzip\r\n";
    let protobuf = "Content-Type: application/x-protobuf\r\n";
    // Small on the wire, large when decompressed.
    let bomb = gzip(&vec![b' '; 4 << 20]);
    let snappy_bomb = snap::raw::Encoder::new().compress_vec(&vec![0; 4 << 20]).unwrap();
    let liar = [0xff, 0xff, 0xff, 0xff, 0x0f, 0x00];
    let many_labels: serde_json::Map<String, Value> = (0..200).map(|at| (format!("l{at}"), "x".into())).collect();
    let many_labels = json!({"streams": [{"stream": many_labels, "values": [["1", lost_line()]]}]}).to_string();
    let cases: [(&str, &[u8], u16, &str); 15] = [
        (json, b"", 400, "EOF"),
        (json, b"not json", 400, "the JSON is not a push request"),
        (json, &good.as_bytes()[..good.len() - 2], 400, "EOF"),
        (json, br#"{"streams":[{"stream":{},"values":[["soon","x"]]}]}"#, 400, "nanoseconds since 1970"),
        (json, br#"{"streams":[{"stream":{"job":["a"]},"values":[]}]}"#, 400, "a label as text"),
        (json, many_labels.as_bytes(), 400, "more than 128 labels"),
        (gzipped, good.as_bytes(), 400, "the gzip is damaged"),
        (gzipped, &bomb, 413, "larger than 262144 bytes"),
        (protobuf, good.as_bytes(), 400, "snappy"),
        (protobuf, b"", 400, "snappy"),
        (protobuf, &snappy_bomb, 413, "larger than 262144 bytes"),
        (protobuf, &liar, 413, "larger than 262144 bytes"),
        ("Content-Type: text/plain\r\n", good.as_bytes(), 415, "application/json or application/x-protobuf"),
        (
            "Content-Type: application/json\r\nContent-Encoding: br\r\n",
            good.as_bytes(),
            415,
            "unknown Content-Encoding",
        ),
        (json, &vec![b' '; 300_000], 413, "send smaller batches or raise max_request_bytes"),
    ];
    let n_cases = cases.len();
    for (headers, body, status, words) in cases {
        let answer = post(&daemon, headers, body);
        assert_eq!(answer.status, status, "{headers}{}", answer.text());
        assert!(answer.text().contains(words), "{headers}{}", answer.text());
        assert_eq!(answer.header("retry-after"), None);
    }
    let cut = snap::raw::Encoder::new().compress_vec(b"\x0a\x7f\x01").unwrap();
    let answer = post(&daemon, protobuf, &cut);
    assert_eq!((answer.status, answer.text().as_str()), (400, "the protobuf is damaged\n"));
    daemon.wait_for(REJECTED, n_cases as f64 + 1.0);
    assert_eq!(daemon.scrape()[LINES], 0.0);
    assert_eq!(daemon.get(PATH).status, 405);
}

#[test]
fn a_chunked_body_has_a_size_limit() {
    let site = Site::new();
    let daemon = start(&site);
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\
         Connection: close\r\n\r\n"
    );
    let body = losses(1).to_string();
    let ask = |chunks: &[&[u8]]| {
        let mut client = connect(daemon.address);
        client.write_all(head.as_bytes()).unwrap();
        for chunk in chunks.iter().chain([&&b""[..]]) {
            let framed = [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat();
            if client.write_all(&framed).is_err() {
                break;
            }
        }
        String::from_utf8_lossy(&drain(&mut client)).into_owned()
    };
    let (first, second) = body.as_bytes().split_at(50);
    assert!(ask(&[first, second]).starts_with("HTTP/1.1 204"));
    check_counted(&daemon, 1.0, 0.0);
    let blank = vec![b' '; 100_000];
    assert!(ask(&[&blank, &blank, &blank]).starts_with("HTTP/1.1 413"));
}

#[test]
fn incomplete_bodies_do_not_block_other_clients() {
    let site = Site::new();
    let daemon = start(&site);
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: 200000\r\n\r\n{{"
    );
    let waiting: Vec<_> = (0..200)
        .map(|_| {
            let mut client = connect(daemon.address);
            client.write_all(head.as_bytes()).unwrap();
            client
        })
        .collect();
    assert_eq!(push(&daemon, &losses(1)).status, 204);
    check_counted(&daemon, 1.0, 0.0);
    for client in waiting {
        client.shutdown(Shutdown::Both).unwrap();
    }
    daemon.wait_for(REJECTED, 200.0);
}

#[test]
fn clients_get_429_with_retry_after_when_too_many_bodies_are_pending() {
    let site = Site::new();
    site.configure("presets: [cordum]\nlogs: [{push: {max_request_bytes: 32MiB}}]\n");
    let daemon = site.start_configured(&[]);
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: 33554432\r\n\r\n{{"
    );
    let mut greedy: Vec<_> = (0..2).map(|_| connect(daemon.address)).collect();
    for client in &mut greedy {
        client.write_all(head.as_bytes()).unwrap();
    }
    eventually("the exporter to refuse another body", || {
        let answer = push(&daemon, &losses(1));
        (answer.status == 429 && answer.header("retry-after") == Some("1")).then_some(())
    });
    drop(greedy);
    eventually("the exporter to accept a body again", || (push(&daemon, &losses(1)).status == 204).then_some(()));
}

#[test]
fn push_requests_are_off_by_default_and_follow_a_reload() {
    let site = Site::new();
    site.configure("presets: [cordum]\nlogs: [{path: SITE/logs/*.log}]\n");
    let daemon = site.start_configured(&[]);
    let answer = push(&daemon, &losses(1));
    assert_eq!(answer.status, 404);
    assert!(answer.text().contains("add `- push: {}` to `logs`"), "{}", answer.text());
    assert!(!daemon.get("/metrics").text().contains("log_rejected_requests"));

    site.configure(CONFIG);
    daemon.signal("HUP");
    let body = losses(2);
    eventually("the exporter to accept the request", || (push(&daemon, &body).status == 204).then_some(()));
    // Push requests continue during reloads: each gets a response, and none is lost or counted
    // twice.
    for round in 1..=5 {
        daemon.signal("HUP");
        let body = losses(2);
        eventually("the exporter to accept the request", || match push(&daemon, &body).status {
            204 => Some(()),
            503 => None,
            status => panic!("{status} in round {round}"),
        });
    }
    daemon.wait_for(&not_owned("workflow", "release"), 12.0);
    daemon.wait_for(EVENTS, 12.0);
    assert!(daemon.stop().success());
}
