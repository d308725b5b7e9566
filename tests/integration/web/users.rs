//! Tests passwords, headers, and limits on requests.

use std::io::Write;
use std::net::{Shutdown, TcpStream};

use super::{PASSWORD, Secured, TLS, curl, hash};
use crate::daemon::Daemon;
use crate::http::{connect, drain};
use crate::redis::eventually;

/// The routes, and their responses to an authenticated user.
const ROUTES: [(&str, u16); 12] = [
    ("/", 200),
    ("/metrics", 200),
    ("/-/healthy", 200),
    ("/-/ready", 200),
    ("/-/reload", 405),
    ("/api/v1/namespaces", 200),
    ("/api/v1/locks", 200),
    ("/loki/api/v1/push", 405),
    ("/page/main.js", 200),
    ("/page/page.css", 200),
    ("/runbooks/RedisLockNotOwnedRatioHigh", 200),
    ("/no-such-page", 404),
];

fn users() -> String {
    format!("basic_auth_users:\n  me: {}\n  'the other': {}\n", hash(PASSWORD), hash("ä:ö"))
}

fn url(daemon: &Daemon, path: &str) -> String {
    format!("http://{}{path}", daemon.address)
}

#[test]
fn every_route_requires_the_password() {
    let secured = Secured::new(&users());
    let daemon = secured.start(&["--web.enable-lifecycle"]);
    for (path, _) in ROUTES {
        let url = url(&daemon, path);
        let refused = |arguments: &[&str]| {
            let reply = curl(&[arguments, &[&url]].concat());
            assert_eq!((reply.status, reply.body.as_str()), (401, "unauthorized\n"), "{path} with {arguments:?}");
            let challenge = reply.header("www-authenticate").unwrap();
            assert!(challenge.starts_with("Basic realm="), "{challenge}");
            assert_eq!(
                reply.header("connection"),
                Some("close"),
                "the server must close the connection after a wrong password"
            );
        };
        refused(&[]);
        refused(&["--user", "me:wrong"]);
        refused(&["--user", "me:"]);
        refused(&["--user", &format!("nobody:{PASSWORD}")]);
        refused(&["--user", &format!("ME:{PASSWORD}")]);
        refused(&["--user", &format!("me:{PASSWORD} ")]);
        refused(&["--header", "Authorization: Bearer bWU6Y29ycmVjdCBob3JzZQ=="]);
        refused(&["--header", "Authorization: Basic %%%"]);
        refused(&["--header", "Authorization: Basic bWU="]);
        refused(&["--user", "me:wrong", "--request", "POST"]);
    }
    let with = |user: &str, path: &str| curl(&["--user", user, &url(&daemon, path)]).status;
    let me = format!("me:{PASSWORD}");
    for (path, expected) in ROUTES {
        eventually(path, || (with(&me, path) == expected).then_some(()));
    }
    assert_eq!(with("the other:ä:ö", "/metrics"), 200, "a password may contain a colon");
    assert_eq!(curl(&["--user", &me, "--request", "POST", &url(&daemon, "/-/reload")]).status, 200);
}

#[test]
fn users_and_passwords_change_without_a_restart() {
    let secured = Secured::new(&users());
    let daemon = secured.start(&[]);
    let status = |user: &str| curl(&["--user", user, &url(&daemon, "/metrics")]).status;
    let old = format!("me:{PASSWORD}");
    assert_eq!(status(&old), 200);
    secured.configure(&format!("basic_auth_users:\n  me: {}\n", hash("another")));
    eventually("the new password to work", || (status("me:another") == 200).then_some(()));
    assert_eq!(status(&old), 401, "a cached result must not outlive its password");
    assert_eq!(status("the other:ä:ö"), 401);
}

/// Sends a request and does not wait for the response.
fn send(daemon: &Daemon, user: &str) -> TcpStream {
    use base64::Engine as _;
    let login = base64::engine::general_purpose::STANDARD.encode(user);
    let mut stream = connect(daemon.address);
    let request =
        format!("GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Basic {login}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

fn is_answered(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let answered = stream.peek(&mut [0]).is_ok();
    stream.set_nonblocking(false).unwrap();
    answered
}

#[test]
fn many_wrong_passwords_do_not_delay_authenticated_clients() {
    // Slow enough that the wrong passwords are still being checked when the other requests are
    // done.
    let slow = format!("$2y$18${}", ".".repeat(53));
    let secured = Secured::new(&format!("basic_auth_users:\n  me: {}\n  slow: {slow}\n", hash(PASSWORD)));
    let daemon = secured.start(&[]);
    let me = format!("me:{PASSWORD}");
    let metrics = url(&daemon, "/metrics");
    assert_eq!(curl(&["--user", &me, &metrics]).status, 200);
    // Half of them use an unknown user name, which takes as long.
    let storm: Vec<TcpStream> = (0..48)
        .map(|number| send(&daemon, &format!("{}:{number}", if number % 2 == 0 { "slow" } else { "nobody" })))
        .collect();
    for _ in 0..10 {
        assert_eq!(curl(&["--user", &me, &metrics]).status, 200);
    }
    assert!(!storm.iter().any(is_answered), "each wrong password takes seconds, so no response may have arrived yet");
    // The number of waiting requests is limited.
    let mut more: Vec<TcpStream> = (0..32).map(|number| send(&daemon, &format!("slow:more {number}"))).collect();
    eventually("the server to refuse a request", || {
        let sent_away = more.iter_mut().find(|stream| is_answered(stream))?;
        let answer = String::from_utf8(drain(sent_away)).unwrap();
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("retry-after: 1\r\n"), "{answer}");
        Some(())
    });
    assert_eq!(curl(&["--user", &me, &metrics]).status, 200);
    // Clients that disconnect free their place in the queue.
    for stream in storm.iter().chain(&more) {
        let _ = stream.shutdown(Shutdown::Both);
    }
    drop((storm, more));
    eventually("a free slot in the queue", || {
        let stream = send(&daemon, "slow:the last one");
        std::thread::sleep(std::time::Duration::from_millis(100));
        (!is_answered(&stream)).then_some(())
    });
}

#[test]
fn configured_headers_are_added_to_every_response() {
    let web = "http_server_config:
  headers:
    Strict-Transport-Security: max-age=60
    X-Frame-Options: deny
    X-Content-Type-Options: nosniff
    X-XSS-Protection: 0
    Content-Security-Policy: default-src 'none'
";
    let secured = Secured::new(&format!("{TLS}{web}{}", users()));
    let daemon = secured.start(&[]);
    let me = format!("me:{PASSWORD}");
    for (path, arguments, status) in [
        ("/metrics", &["--user", &me][..], 200),
        ("/metrics", &[], 401),
        ("/no-such-page", &["--user", &me], 404),
        ("/", &["--user", &me], 200),
    ] {
        let reply = secured.get(&daemon, path, arguments);
        assert_eq!(reply.status, status);
        assert_eq!(reply.header("strict-transport-security"), Some("max-age=60"), "{path}");
        assert_eq!(reply.header("x-frame-options"), Some("deny"), "{path}");
        assert_eq!(reply.header("x-xss-protection"), Some("0"), "{path}");
        assert_eq!(reply.headers.matches("x-content-type-options: nosniff").count(), 1, "{path}");
        let policy = reply.header("content-security-policy").unwrap();
        // The page needs its own policy and keeps it.
        assert_eq!(policy == "default-src 'none'", path != "/", "{path}: {policy}");
    }
}

#[test]
fn the_request_rate_can_be_limited() {
    let secured = Secured::new("rate_limit: {interval: 1h, burst: 3}\n");
    let daemon = secured.start(&[]);
    let healthy = url(&daemon, "/-/healthy");
    let statuses = || (0..5).map(|_| curl(&[&healthy]).status).collect::<Vec<_>>();
    assert_eq!(statuses(), [200, 200, 200, 429, 429]);
    assert_eq!(curl(&[&healthy]).header("retry-after"), Some("1"));
    secured.configure("rate_limit: {interval: 1ms, burst: 1000}\n");
    eventually("the new limit to apply", || (curl(&[&healthy]).status == 200).then_some(()));
    assert_eq!(statuses(), [200; 5]);
}

/// A browser attaches its credentials for a site to every request, even if another site triggers
/// the request.
#[test]
fn cross_site_requests_cannot_change_anything() {
    let secured = Secured::new("");
    let daemon = secured.start(&["--web.enable-lifecycle"]);
    let own = format!("Origin: http://{}", daemon.address);
    let status =
        |path: &str, header: &str| curl(&["--request", "POST", "--header", header, &url(&daemon, path)]).status;
    for path in ["/-/reload", "/loki/api/v1/push"] {
        for header in [
            "Sec-Fetch-Site: cross-site",
            "Sec-Fetch-Site: same-site",
            "Origin: https://elsewhere.example",
            "Origin: http://127.0.0.1:1",
            "Origin: null",
        ] {
            assert_eq!(status(path, header), 403, "{path} with {header}");
        }
    }
    for header in ["X-Nothing: said", "Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: none", &own] {
        assert_eq!(status("/-/reload", header), 200, "{header}");
        assert_eq!(status("/loki/api/v1/push", header), 404, "{header}");
    }
    // Read requests change nothing.
    assert_eq!(curl(&["--header", "Sec-Fetch-Site: cross-site", &url(&daemon, "/metrics")]).status, 200);
}

#[test]
fn a_large_unexpected_body_is_not_read() {
    let secured = Secured::new("");
    let daemon = secured.start(&[]);
    let mut client = connect(daemon.address);
    client.write_all(b"POST /-/reload HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n").unwrap();
    let chunk = vec![0; 1 << 20];
    let taken = (0..1_000).take_while(|_| client.write_all(&chunk).is_ok()).count();
    assert!(taken < 100, "the server read {taken} MiB of an unwanted body");
    assert_eq!(curl(&[&url(&daemon, "/-/healthy")]).status, 200);
}
