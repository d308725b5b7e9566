//! Tests TLS and client certificates.

use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use redis_lock_exporter::http::{ConnectionLimits, WebFile};

use super::{Reply, Secured, TLS, curl};
use crate::daemon::text;
use crate::http::{connect, drain};
use crate::redis::certificates::Certificates;
use crate::server::Server;

#[test]
fn every_route_requires_tls() {
    let secured = Secured::new(TLS);
    let daemon = secured.start(&["--web.enable-lifecycle"]);
    secured.wait_for_status(&daemon, "/-/ready", &[], 200);
    let metrics = secured.get(&daemon, "/metrics", &[]);
    assert!(metrics.body.contains("redis_lock_exporter_build_info"), "{} {}", metrics.status, metrics.error);
    assert_eq!(secured.get(&daemon, "/-/healthy", &[]).status, 200);
    assert_eq!(secured.get(&daemon, "/-/reload", &["--request", "POST"]).status, 200);
    for path in ["/", "/metrics", "/-/healthy", "/-/ready", "/api/v1/namespaces", "/no-such-page"] {
        let plain = curl(&[&format!("http://{}{path}", daemon.address)]);
        assert_eq!((plain.status, plain.body.as_str()), (400, "this is an https server: use https://\n"), "{path}");
    }
    let stranger = curl(&[&format!("https://{}/metrics", daemon.address)]);
    assert!(stranger.status == 0 && stranger.error.contains("certificate"), "{}", stranger.error);
    assert!(daemon.log().contains("serving http address=127.0.0.1:") && daemon.log().contains("tls=true"));
}

#[test]
fn clients_fall_back_to_http_1() {
    let secured = Secured::new(&format!("{TLS}http_server_config: {{http2: true}}\n"));
    let daemon = secured.start(&[]);
    let reply = secured.get(&daemon, "/-/healthy", &["--http2"]);
    assert!(reply.status == 200 && reply.headers.starts_with("HTTP/1.1"), "{}{}", reply.headers, reply.error);
}

#[test]
fn tls_versions_and_cipher_suites_are_as_configured() {
    let served = |section: &str, arguments: &[&str]| {
        let secured = Secured::new(&format!("{}, {section}}}\n", TLS.trim_end().trim_end_matches('}')));
        let daemon = secured.start(&[]);
        secured.get(&daemon, "/-/healthy", arguments).status == 200
    };
    let (old, new): (&[&str], &[&str]) = (&["--tls-max", "1.2"], &["--tlsv1.3"]);
    assert!(served("min_version: TLS12", old) && !served("min_version: TLS13", old));
    assert!(served("max_version: TLS13", new) && !served("max_version: TLS12", new));
    let suites = "cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256], prefer_server_cipher_suites: false";
    assert!(served(suites, &["--tls-max", "1.2", "--ciphers", "ECDHE-ECDSA-AES128-GCM-SHA256"]));
    assert!(!served(suites, &["--tls-max", "1.2", "--ciphers", "ECDHE-ECDSA-AES256-GCM-SHA384"]));
    assert!(served(suites, new), "the suites of TLS 1.3 are not configurable");
    assert!(served("curve_preferences: [CurveP384]", &["--curves", "P-384"]));
    assert!(!served("curve_preferences: [CurveP384]", &["--curves", "X25519"]));
}

/// Tests no certificate, one of our CA, and one of another CA.
fn admitted(secured: &Secured, strangers: &Certificates, with: &str) -> [bool; 3] {
    let tls = TLS.trim_end().trim_end_matches('}');
    secured.configure(&format!("{tls}, {with}}}\n"));
    let daemon = secured.start(&[]);
    let (own, own_key) = (secured.path("client.pem"), secured.path("client.key"));
    let (other, other_key) = (strangers.path("client.pem"), strangers.path("client.key"));
    let is_in = |reply: Reply| {
        assert!(reply.status == 200 || reply.status == 0 && !reply.error.is_empty(), "{}", reply.status);
        reply.status == 200
    };
    [
        is_in(secured.get(&daemon, "/metrics", &[])),
        is_in(secured.get(&daemon, "/metrics", &["--cert", &own, "--key", &own_key])),
        is_in(secured.get(&daemon, "/metrics", &["--cert", text(&other), "--key", text(&other_key)])),
    ]
}

#[test]
fn each_type_of_client_authentication_admits_the_right_clients() {
    let (secured, strangers) = (Secured::new(""), Certificates::new());
    let check = |with: &str, expected: [bool; 3]| assert_eq!(admitted(&secured, &strangers, with), expected, "{with}");
    check("client_auth_type: NoClientCert", [true, true, true]);
    check("client_auth_type: RequestClientCert", [true, true, true]);
    check("client_auth_type: RequireAnyClientCert", [false, true, true]);
    check("client_auth_type: RequireClientCert", [false, true, true]);
    check("client_auth_type: VerifyClientCertIfGiven, client_ca_file: ca.pem", [true, true, false]);
    check("client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.pem", [false, true, false]);
}

#[test]
fn only_allowed_names_in_client_certificates_are_accepted() {
    let (secured, strangers) = (Secured::new(""), Certificates::new());
    let names =
        "subjectAltName=DNS:prometheus.example,email:me@example.com,URI:spiffe://example/prometheus,IP:10.1.2.3\n";
    secured.certificates.sign("client", names);
    let verified = "client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.pem, client_allowed_sans";
    for good in ["prometheus.example", "me@example.com", "spiffe://example/prometheus", "10.1.2.3"] {
        let with = format!("{verified}: [other.example, '{good}']");
        assert_eq!(admitted(&secured, &strangers, &with), [false, true, false], "{good}");
    }
    let with = format!("{verified}: [example, example.com, '*.example', client]");
    assert_eq!(admitted(&secured, &strangers, &with), [false, false, false]);
    strangers.sign("client", names);
    let any = "client_auth_type: RequireAnyClientCert, client_allowed_sans: [prometheus.example]";
    assert_eq!(admitted(&secured, &strangers, any), [false, true, true]);
}

#[test]
fn certificates_can_be_inline_in_the_configuration() {
    let secured = Secured::new("");
    let block = |name: &str| {
        let pem = std::fs::read_to_string(secured.path(name)).unwrap();
        pem.lines().map(|line| format!("    {line}\n")).collect::<String>()
    };
    let (certificate, key, ca) = (block("server.pem"), block("server.key"), block("ca.pem"));
    secured.configure(&format!(
        "tls_server_config:\n  cert: |\n{certificate}  key: |\n{key}  client_ca: |\n{ca}  client_auth_type: RequireAndVerifyClientCert\n"
    ));
    let daemon = secured.start(&[]);
    let (client, client_key) = (secured.path("client.pem"), secured.path("client.key"));
    assert_eq!(secured.get(&daemon, "/metrics", &["--cert", &client, "--key", &client_key]).status, 200);
    assert_eq!(secured.get(&daemon, "/metrics", &[]).status, 0);
}

#[test]
fn many_tls_clients_are_served_at_once() {
    let secured = Secured::new(TLS);
    let daemon = secured.start(&[]);
    // The clients send nothing, or start a handshake and do not continue.
    let mut idle: Vec<TcpStream> = (0..200).map(|_| connect(daemon.address)).collect();
    for client in &mut idle[100..] {
        client.write_all(&[0x16, 0x03, 0x01]).unwrap();
    }
    thread::scope(|scope| {
        let ask = || (0..4).map(|_| secured.get(&daemon, "/metrics", &[]).status).collect::<Vec<_>>();
        let clients: Vec<_> = (0..6).map(|_| scope.spawn(ask)).collect();
        for client in clients {
            assert_eq!(client.join().unwrap(), [200; 4]);
        }
    });
}

#[test]
fn unfinished_tls_handshakes_block_no_other_client_and_time_out() {
    let secured = Secured::new(TLS);
    let (file, _follower) = WebFile::open(secured.path("web.yml").as_ref()).unwrap();
    let limits =
        ConnectionLimits { connections: 8, header_read: Duration::from_millis(500), ..ConnectionLimits::default() };
    let server = Server::start_behind(limits, file.web);
    let mut silent: Vec<TcpStream> = (0..8).map(|_| server.connect()).collect();
    for client in &mut silent[4..] {
        // The beginning of a handshake.
        client.write_all(&[0x16, 0x03, 0x01]).unwrap();
    }
    // All slots are in use, so this client waits until the server drops one of those connections.
    let ca = secured.path("ca.pem");
    let reply = curl(&["--cacert", &ca, &format!("https://{}/metrics", server.address)]);
    assert_eq!(reply.status, 200, "{}", reply.error);
    for mut client in silent {
        assert!(drain(&mut client).is_empty(), "a silent client must not get a response");
    }
}
