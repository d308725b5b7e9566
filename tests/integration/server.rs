//! Tests the HTTP server over plain TCP: routes, methods, formats, and the effect of misbehaving
//! clients on others.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use redis_lock_exporter::http::{ConnectionLimits, Endpoint, ReloadRequest, ServerInputs, Web, serve_with_limits};
use redis_lock_exporter::model::failure::Failure;
use redis_lock_exporter::model::query::Inquiry;
use redis_lock_exporter::snapshot::{RedisNow, RedisView, Snapshot};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::http::{Answer, ask, connect, drain};
use crate::redis::eventually;
use crate::sample::{full_snapshot, namespace, view};

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";

#[test]
fn metrics_are_served_in_the_requested_format() {
    let server = Server::start(ConnectionLimits::default());
    let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
    for (accept, content_type) in [
        (prometheus, OPENMETRICS),
        ("text/plain;version=0.0.4", CLASSIC),
        ("*/*", CLASSIC),
        ("application/json", CLASSIC),
        ("application/openmetrics-text;q=0.1, text/plain", CLASSIC),
    ] {
        let answer = server.ask(&format!("GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\n\r\n"));
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("content-type"), Some(content_type), "{accept}");
        assert_eq!(answer.header("vary"), Some("Accept, Accept-Encoding"));
        assert_eq!(answer.header("content-encoding"), None);
        assert_eq!(answer.text().ends_with("# EOF\n"), content_type == OPENMETRICS);
        assert!(answer.text().contains("redis_lock_abandonments_total{lock_namespace=\"workflow\"} 40\n"));
        assert!(answer.text().contains("\nprocess_open_fds "), "no process metrics in {}", answer.text());
    }
}

#[test]
fn metrics_show_the_latest_snapshot() {
    let server = Server::start(ConnectionLimits::default());
    assert!(server.get("/metrics").text().contains("{lock_namespace=\"workflow\"} 40\n"));
    let mut snapshot = full_snapshot();
    snapshot.namespaces[0].logs.increment(Failure::Abandoned(None));
    server.publish.send(Arc::new(snapshot)).unwrap();
    assert!(server.get("/metrics").text().contains("{lock_namespace=\"workflow\"} 41\n"));
}

#[test]
fn gzip_responses_decompress_to_the_plain_response() {
    let server = Server::start(ConnectionLimits::default());
    let packed = server.ask("GET /metrics HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    assert_eq!(packed.header("vary"), Some("Accept, Accept-Encoding"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(&packed.body[..]).read_to_string(&mut text).unwrap();
    let plain = server.get("/metrics");
    assert!(packed.body.len() < plain.body.len() / 4);
    let stable =
        |text: &str| text.lines().filter(|line| !line.starts_with("process_")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(stable(&text), stable(&plain.text()));
}

#[test]
fn head_has_the_length_of_get_and_no_body() {
    let server = Server::start(ConnectionLimits::default());
    for path in ["/", "/-/healthy", "/-/ready"] {
        let get = server.get(path);
        let head = server.ask(&format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!((head.status, head.body.len()), (200, 0), "{path}");
        assert_eq!(head.header("content-length"), Some(get.body.len().to_string().as_str()), "{path}");
        assert_eq!(head.header("content-type"), get.header("content-type"), "{path}");
    }
    for encoding in ["identity", "gzip"] {
        let head = server.ask(&format!("HEAD /metrics HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {encoding}\r\n\r\n"));
        assert_eq!((head.status, head.body.len()), (200, 0));
        assert!(head.header("content-length").unwrap().parse::<usize>().unwrap() > 500);
    }
}

#[test]
fn wrong_methods_get_405_with_the_allowed_methods() {
    let server = Server::start(ConnectionLimits::default());
    for (method, path, allow) in [
        ("POST", "/metrics", "GET, HEAD"),
        ("DELETE", "/", "GET, HEAD"),
        ("PUT", "/-/healthy", "GET, HEAD"),
        ("OPTIONS", "/-/ready", "GET, HEAD"),
        ("GET", "/-/reload", "POST, PUT"),
        ("HEAD", "/-/reload", "POST, PUT"),
    ] {
        let answer = server.ask(&format!("{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"));
        assert_eq!((answer.status, answer.header("allow")), (405, Some(allow)), "{method} {path}");
    }
}

#[test]
fn unknown_paths_are_not_found() {
    let server = Server::start(ConnectionLimits::default());
    for path in ["/nothing", "/metrics/", "//metrics", "/-/", "/-/healthy/..", "/%6detrics", "*"] {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
    assert_eq!(server.get("/metrics?name[]=x").status, 200);
    assert_eq!(server.get("http://exporter:9121/metrics").status, 200);
}

#[test]
fn not_ready_responses_list_the_reasons() {
    let server = Server::start(ConnectionLimits::default());
    assert_eq!((server.get("/-/ready").status, server.get("/-/healthy").status), (200, 200));
    server.ready.store(false, Ordering::Relaxed);
    let answer = server.get("/-/ready");
    assert_eq!((answer.status, answer.text().as_str()), (503, "not ready\nno log source was read yet\n"));
    assert_eq!(server.get("/-/healthy").status, 200);
}

#[test]
fn a_degraded_exporter_stays_ready_and_lists_the_problems() {
    let server = Server::start(ConnectionLimits::default());
    let answer = server.get("/-/ready");
    let expected = "ready\ndegraded: user exporter may not HSCAN keys under lock:*\n";
    assert_eq!((answer.status, answer.text().as_str()), (200, expected));

    let down = RedisView { name: "main".to_owned(), now: RedisNow { nodes: 1, ..RedisNow::default() } };
    server.publish.send(Arc::new(Snapshot { redis: Some(down), ..full_snapshot() })).unwrap();
    let answer = server.get("/-/ready");
    let expected = "ready\ndegraded: redis main: 0 of 1 known primaries connected\n";
    assert_eq!((answer.status, answer.text().as_str()), (200, expected));

    server.publish.send(Arc::new(Snapshot { redis: None, ..full_snapshot() })).unwrap();
    assert_eq!(server.get("/-/ready").text(), "ready\n");
}

#[test]
fn the_landing_page_shows_locks_only_if_redis_is_configured() {
    let server = Server::start(ConnectionLimits::default());
    let page = server.get("/").text();
    assert!(page.contains("Locks seen in Redis main (connected)") && page.contains("<td>70001</td>"), "{page}");
    assert!(!page.contains("/api/v1/"), "the API is off in this test: {page}");
    server.publish.send(Arc::new(Snapshot { redis: None, ..full_snapshot() })).unwrap();
    assert!(!server.get("/").text().contains("Locks seen"));
}

#[test]
fn reload_is_off_unless_enabled() {
    let server = Server::start(ConnectionLimits::default());
    let answer = server.ask("POST /-/reload HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(answer.status, 403);
    assert!(answer.text().contains("--web.enable-lifecycle"), "{}", answer.text());
}

#[test]
fn reload_returns_its_result() {
    let (sender, mut requests) = mpsc::channel::<ReloadRequest>(1);
    let server = Server::start_with(
        ConnectionLimits { reload: Duration::from_secs(3), ..ConnectionLimits::default() },
        Some(sender),
    );
    let (give_up, given_up) = std::sync::mpsc::channel();
    let outcomes = thread::spawn(move || {
        requests.blocking_recv().unwrap().answer.send(Ok(())).unwrap();
        requests.blocking_recv().unwrap().answer.send(Err("a.yaml:3:1: unknown field `x`\n".to_owned())).unwrap();
        let never_answered = requests.blocking_recv().unwrap();
        drop(requests);
        given_up.recv().unwrap();
        drop(never_answered);
    });
    let ask = |method| server.ask(&format!("{method} /-/reload HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"));
    assert_eq!(ask("POST").status, 200);
    let refused = ask("PUT");
    assert_eq!(refused.status, 500);
    assert_eq!(refused.text(), "configuration not reloaded: a.yaml:3:1: unknown field `x`\n");
    let slow = ask("POST");
    assert!(slow.status == 500 && slow.text().contains("takes too long"), "{}", slow.text());
    give_up.send(()).unwrap();
    let gone = ask("POST");
    assert!(gone.status == 500 && gone.text().contains("shutting down"), "{}", gone.text());
    outcomes.join().unwrap();
}

#[test]
fn the_landing_page_escapes_text_and_sets_a_strict_content_security_policy() {
    let server = Server::start(ConnectionLimits::default());
    let evil = view(namespace("<script>alert('1')</script>&\""), Default::default());
    server.publish.send(Arc::new(Snapshot { namespaces: vec![evil], ..full_snapshot() })).unwrap();
    let answer = server.get("/");
    assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    let page = answer.text();
    assert!(!page.contains("<script"), "{page}");
    assert!(page.contains("&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;&quot;"), "{page}");
    for link in ["href=\"/metrics\"", "href=\"/-/healthy\"", "href=\"/-/ready\"", env!("CARGO_PKG_VERSION")] {
        assert!(page.contains(link), "{link} is not in {page}");
    }
    let style = page.split_once("<style>").unwrap().1.split_once("</style>").unwrap().0;
    let policy = answer.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"), "{policy}");
    let hash = format!("'sha256-{}'", sha256_base64(style));
    assert!(policy.contains(&hash), "the style sheet changed, its hash is now {hash}");
}

#[test]
fn a_stalled_request_blocks_no_other_client_and_times_out() {
    let server =
        Server::start(ConnectionLimits { header_read: Duration::from_millis(400), ..ConnectionLimits::default() });
    let mut silent = server.connect();
    let mut half = server.connect();
    half.write_all(b"GET /metrics HTTP/1.1\r\nHos").unwrap();
    for _ in 0..20 {
        assert_eq!(server.get("/-/healthy").status, 200);
    }
    for stalled in [&mut silent, &mut half] {
        let started = Instant::now();
        drain(stalled);
        assert!(started.elapsed() < Duration::from_secs(5));
    }
}

#[test]
fn a_client_that_never_reads_is_dropped() {
    let limits = ConnectionLimits { write_stall: Duration::from_millis(300), ..ConnectionLimits::default() };
    let server = Server::start(limits);
    // More responses than the kernel's buffers hold. The server must block while writing, then give
    // up.
    let mut client = server.connect();
    client.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    let requests = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1_000);
    let started = Instant::now();
    let error = loop {
        match client.write_all(&requests) {
            Ok(()) => assert!(started.elapsed() < Duration::from_secs(20), "the server never blocked while writing"),
            Err(error) => break error,
        }
    };
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    assert!(matches!(error.kind(), BrokenPipe | ConnectionReset), "the server did not drop the connection: {error}");
    assert_eq!(server.get("/-/healthy").status, 200);
}

#[test]
fn connections_beyond_the_limit_wait_for_a_free_slot() {
    let limits =
        ConnectionLimits { connections: 4, header_read: Duration::from_secs(1), ..ConnectionLimits::default() };
    let server = Server::start(limits);
    let started = Instant::now();
    let _hogs: Vec<TcpStream> = (0..4).map(|_| server.connect()).collect();
    assert_eq!(server.get("/-/healthy").status, 200);
    assert!(started.elapsed() >= Duration::from_millis(900), "the connection was served in addition to four others");
}

#[test]
fn hundreds_of_clients_are_served_at_once() {
    let server = Server::start(ConnectionLimits::default());
    let idle: Vec<TcpStream> = (0..200).map(|_| server.connect()).collect();
    let address = server.address;
    let clients: Vec<_> = (0..16)
        .map(|_| {
            thread::spawn(move || {
                (0..25).all(|_| ask(address, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").status == 200)
            })
        })
        .collect();
    assert!(clients.into_iter().all(|client| client.join().unwrap()));
    drop(idle);
}

#[test]
fn a_connection_serves_several_requests() {
    let server = Server::start(ConnectionLimits::default());
    let mut client = server.connect();
    client.write_all("GET /-/healthy HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3).as_bytes()).unwrap();
    let request = b"GET /-/ready HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    client.write_all(request).unwrap();
    let text = String::from_utf8(drain(&mut client)).unwrap();
    assert_eq!((text.matches("healthy\n").count(), text.matches("\r\n\r\nready\n").count()), (3, 1), "{text}");
}

#[test]
fn oversized_or_malformed_request_heads_are_refused() {
    let server = Server::start(ConnectionLimits::default());
    let long = "x".repeat(20_000);
    let many = "A: b\r\n".repeat(100);
    for (request, expected) in [
        (format!("GET / HTTP/1.1\r\nHost: a\r\nLong: {long}\r\n\r\n"), 431),
        (format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n"), 431),
        ("no http at all\r\n\r\n".to_owned(), 400),
    ] {
        assert_eq!(server.ask(&request).status, expected);
    }
    assert_eq!(server.get("/-/healthy").status, 200);
}

#[test]
fn shutdown_finishes_running_requests_and_refuses_new_ones() {
    let (sender, mut requests) = mpsc::channel::<ReloadRequest>(1);
    let limits = ConnectionLimits { drain: Duration::from_secs(5), ..ConnectionLimits::default() };
    let server = Server::start_with(limits, Some(sender));
    let _idle = server.connect();
    let mut half = server.connect();
    half.write_all(b"GET /metrics HT").unwrap();
    let mut running = server.connect();
    running.write_all(b"POST /-/reload HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").unwrap();
    let request = requests.blocking_recv().unwrap();

    let started = Instant::now();
    server.stop.cancel();
    eventually("the server to refuse connections", || TcpStream::connect(server.address).err());
    request.answer.send(Ok(())).unwrap();
    assert!(String::from_utf8(drain(&mut running)).unwrap().starts_with("HTTP/1.1 200 "));
    let serving = server.serving.lock().unwrap().take().unwrap();
    server.runtime.block_on(serving).unwrap().unwrap();
    assert!(started.elapsed() < Duration::from_secs(30), "took {:?}", started.elapsed());
}

type Inquiries = watch::Receiver<Option<mpsc::Sender<Inquiry>>>;

/// A server on a free port. It stops when it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) publish: watch::Sender<Arc<Snapshot>>,
    ready: Arc<AtomicBool>,
    stop: CancellationToken,
    serving: Mutex<Option<JoinHandle<anyhow::Result<()>>>>,
    runtime: Runtime,
}

impl Server {
    pub(crate) fn start(limits: ConnectionLimits) -> Self {
        Self::start_with(limits, None)
    }

    fn start_with(limits: ConnectionLimits, reload: Option<mpsc::Sender<ReloadRequest>>) -> Self {
        Self::start_whole(limits, reload, None, true, None)
    }

    /// Starts a server with a web configuration.
    pub(crate) fn start_behind(limits: ConnectionLimits, web: Arc<Web>) -> Self {
        Self::start_whole(limits, None, None, true, Some(web))
    }

    /// Starts a server with the API, which sends requests to the pipeline in the channel.
    pub(crate) fn start_api(limits: ConnectionLimits, inquiries: Inquiries) -> Self {
        Self::start_whole(limits, None, Some(inquiries), true, None)
    }

    pub(crate) fn start_without_page(inquiries: Inquiries) -> Self {
        Self::start_whole(ConnectionLimits::default(), None, Some(inquiries), false, None)
    }

    fn start_whole(
        limits: ConnectionLimits,
        reload: Option<mpsc::Sender<ReloadRequest>>,
        inquiries: Option<Inquiries>,
        page: bool,
        web: Option<Arc<Web>>,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (publish, snapshot) = watch::channel(Arc::new(full_snapshot()));
        let (ready, stop) = (Arc::new(AtomicBool::new(true)), CancellationToken::new());
        let is_ready = Arc::clone(&ready);
        let readiness = move || match is_ready.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err("no log source was read yet".to_owned()),
        };
        let pushes = watch::Sender::new(None).subscribe();
        let app = ServerInputs { snapshot, readiness: Box::new(readiness), reload, inquiries, pushes, page };
        let entrance = Endpoint { listener: listener.into(), web };
        let serving = runtime.spawn(serve_with_limits(entrance, app, limits, stop.clone()));
        Self { address, publish, ready, stop, serving: Mutex::new(Some(serving)), runtime }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        connect(self.address)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"))
    }

    pub(crate) fn ask(&self, request: &str) -> Answer {
        ask(self.address, request)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn sha256_base64(text: &str) -> String {
    let mut child = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    let hash = (0..32).map(|index| u32::from_str_radix(&output[2 * index..2 * index + 2], 16).unwrap());
    let hash: Vec<u32> = hash.chain([0]).collect();
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let triples = hash.chunks(3).map(|triple| triple[0] << 16 | triple[1] << 8 | triple[2]);
    let sextets = triples.flat_map(|bits| [18, 12, 6, 0].map(|shift| (bits >> shift & 63) as usize));
    let mut text: String = sextets.map(|sextet| alphabet[sextet] as char).collect();
    text.pop();
    text + "="
}
