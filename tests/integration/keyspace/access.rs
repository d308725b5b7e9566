//! Tests how the exporter connects to Redis, and that it cannot change data there: users with few
//! rights, passwords, TLS, sockets.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use redis::Value;

use super::stage::{Counted, LONG, Program, complaints, is_watching, json, observed_since, own, source};
use crate::daemon::{Daemon, Samples, text};
use crate::redis::certificates::Certificates;
use crate::redis::client::{self, Client};
use crate::redis::cluster::Cluster;
use crate::redis::sentinel::{PRIMARY_NAME, Sentinels};
use crate::redis::{RedisServer, eventually};
use crate::site::Site;

const DOCUMENT: &str = include_str!("../../../docs/operations.md");
const SECRET: &str = "a-secret-that-is-shown-nowhere";
const TWO_NAMESPACES: &str = "
scan: {interval: 1s, watched_interval: 1s, max_redis_share: 0.5}
namespaces:
  - {name: jobs, keys: ['jobs:lock:{id}'], ttl: 10m}
  - {name: mail, keys: ['mail:lock:{id}'], ttl: 10m}
";

/// Returns the commands in the code blocks of a section of the document, adapted to the keys of
/// these tests.
fn documented(section: &str) -> Vec<Vec<String>> {
    let (_, rest) = DOCUMENT.split_once(&format!("### {section}\n")).unwrap();
    let section = rest.split("\n### ").next().unwrap();
    let blocks: Vec<&str> =
        section.split("```text\n").skip(1).map(|block| block.split("```").next().unwrap()).collect();
    let digest = digest(SECRET);
    let word = |word: &str| match word {
        "#DIGEST" => vec![digest.clone()],
        "%R~app:lock:*" => vec!["%R~jobs:lock:*".to_owned(), "%R~mail:lock:*".to_owned()],
        word => vec![word.to_owned()],
    };
    blocks.iter().map(|block| block.split_whitespace().flat_map(word).collect()).collect()
}

/// Computes the value in the way that the document describes.
fn digest(password: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("password");
    fs::write(&path, password).unwrap();
    let output = Command::new("sha256sum").stdin(fs::File::open(path).unwrap()).output().unwrap();
    format!("#{}", String::from_utf8(output.stdout).unwrap().split_whitespace().next().unwrap())
}

/// Also allows the commands that are documented for newer servers, as far as the server knows them.
fn set_user(server: &RedisServer, words: &[String]) {
    let newer = documented("Newer servers").remove(0);
    let newer = newer.iter().filter(|rule| rule.strip_prefix('+').is_some_and(|command| server.knows(command)));
    server.command(&words.iter().chain(newer).map(String::as_str).collect::<Vec<_>>());
}

/// Starts a server with the documented user. Removes some of the user's ACL rules and adds others.
fn server_with_user(without: &[&str], with: &[&str]) -> RedisServer {
    let server = RedisServer::start(&[]);
    let mut words = documented("Single server").remove(0);
    words.retain(|word| !without.contains(&word.as_str()));
    words.extend(with.iter().map(|word| (*word).to_owned()));
    set_user(&server, &words);
    server
}

fn start(redis: &str) -> (Site, Daemon) {
    let site = Site::new();
    fs::write(site.path("password"), format!("{SECRET}\n")).unwrap();
    site.configure(&format!("redis: {{{redis}}}{TWO_NAMESPACES}"));
    let daemon = site.start_configured(&["--log.level", "trace"]);
    (site, daemon)
}

fn start_as_user(server: &RedisServer) -> (Site, Daemon) {
    start(&format!("url: '{}', username: exporter, password_file: SITE/password", server.url()))
}

fn wait_watching(daemon: &Daemon) {
    daemon.wait("the exporter is watching", |daemon| is_watching(&daemon.scrape()));
}

/// Returns the commands that the API lists as denied.
fn denied(samples: &Samples) -> Vec<String> {
    let series = samples
        .iter()
        .filter(|(series, value)| series.starts_with("redis_lock_exporter_redis_permission_denied") && **value == 1.0);
    let command = |series: &str| series.split("command=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    series.map(|(series, _)| command(series)).collect()
}

/// Acquires, renews and releases a lock, and checks that the exporter counts all operations.
fn check_counting(server: &RedisServer, daemon: &Daemon) {
    let before = Counted::of(&daemon.scrape());
    let key = format!("jobs:lock:counting-{}", before.acquisitions);
    let mut program = Program::connect(server);
    let found = |daemon: &Daemon| json(daemon, "/api/v1/locks?search=counting")["locks"].clone();
    let token = program.acquire(&key, LONG);
    daemon.wait("the acquisition is seen", |daemon| found(daemon)[0]["owner"].is_string());
    assert!(program.renew(&key, &token, LONG * 2));
    daemon.wait("the renewal is seen", |daemon| found(daemon)[0]["renewals"] == 1);
    assert!(program.release(&key, &token));
    daemon.wait("the release is seen", |daemon| found(daemon)[0].is_null());
    let expected = Counted {
        acquisitions: before.acquisitions + 1,
        renewals: before.renewals + 1,
        releases: before.releases + 1,
        ..before
    };
    daemon.wait("all operations are counted", |daemon| Counted::of(&daemon.scrape()) == expected);
}

/// Checks that no output of the process contains a secret.
fn check_silence(daemon: &Daemon, secrets: &[&str]) {
    let mut output = daemon.log();
    assert!(output.contains("TRACE") || output.contains("DEBUG") || output.contains("connected to redis"), "{output}");
    for path in ["/", "/metrics", "/-/ready", "/api/v1/namespaces", "/api/v1/locks", "/api/v1/incidents"] {
        output += &daemon.get(path).text();
    }
    for secret in secrets {
        assert!(!output.contains(secret), "{secret} in {output}");
    }
}

#[test]
fn the_documented_user_has_enough_rights_and_cannot_write() {
    let server = server_with_user(&[], &[]);
    server.command(&["HSET", "jobs:lock:hash", "owner", "1"]);
    server.command(&["ZADD", "mail:lock:sorted", "1", "owner"]);
    let (_site, daemon) = start_as_user(&server);
    wait_watching(&daemon);
    daemon.wait_for("redis_lock_held{redis=\"redis\",lock_namespace=\"mail\"}", 1.0);
    assert_eq!(complaints(&daemon), "");
    assert_eq!(denied(&daemon.scrape()), Vec::<String>::new());
    check_counting(&server, &daemon);
    let locks = json(&daemon, "/api/v1/locks?sort=key");
    assert_eq!(locks["total"], 2);
    assert!(locks["locks"].as_array().unwrap().iter().all(|lock| lock["owner"].is_string()), "{locks}");

    let mut client = Client::connect(server.port()).unwrap();
    client.command(&["AUTH", "exporter", SECRET]);
    let writes: [&[&str]; 12] = [
        &["SET", "jobs:lock:x", "1"],
        &["DEL", "jobs:lock:hash"],
        &["UNLINK", "jobs:lock:hash"],
        &["EXPIRE", "jobs:lock:hash", "1"],
        &["PERSIST", "jobs:lock:hash"],
        &["RENAME", "jobs:lock:hash", "jobs:lock:x"],
        &["EVAL", "return redis.call('DEL', KEYS[1])", "1", "jobs:lock:hash"],
        &["FLUSHALL"],
        &["CONFIG", "SET", "maxmemory", "1"],
        &["CLIENT", "KILL", "TYPE", "normal"],
        &["GETRANGE", "other:key", "0", "1"],
        &["KEYS", "*"],
    ];
    for write in writes {
        let answer = client.try_command(write).unwrap();
        assert!(matches!(&answer, Value::ServerError(error) if error.code() == "NOPERM"), "{write:?}: {answer:?}");
    }
    assert_eq!(server.text(&["DBSIZE"]), "2");
    check_silence(&daemon, &[SECRET]);
}

/// Collects the commands that a server receives, as `MONITOR` prints them, while it runs.
fn monitor(server: &RedisServer) -> Arc<Mutex<Vec<String>>> {
    let mut client = server.client();
    client.command(&["MONITOR"]);
    let lines = Arc::new(Mutex::new(Vec::new()));
    let shared = Arc::clone(&lines);
    thread::spawn(move || {
        while let Ok(line) = client.receive() {
            shared.lock().unwrap().push(client::text(&line));
        }
    });
    lines
}

/// Returns the client address and the words of a line of `MONITOR`.
fn monitored(line: &str) -> Option<(String, Vec<String>)> {
    let (_, rest) = line.split_once(" [")?;
    let (address, words) = rest.split_once("] ")?;
    Some((address.to_owned(), words.split_whitespace().map(|word| word.trim_matches('"').to_owned()).collect()))
}

#[test]
fn only_documented_commands_are_sent_and_none_of_them_writes() {
    let server = server_with_user(&[], &[]);
    server.command(&["HSET", "jobs:lock:hash", "owner", "1"]);
    let lines = monitor(&server);
    let (_site, daemon) = start_as_user(&server);
    wait_watching(&daemon);
    check_counting(&server, &daemon);
    let before = daemon.scrape();
    server.command(&["CLIENT", "KILL", "USER", "exporter"]);
    daemon.wait("the exporter is connected again", |daemon| {
        let samples = daemon.scrape();
        is_watching(&samples) && observed_since(&samples) > observed_since(&before)
    });
    check_counting(&server, &daemon);
    let passes = |daemon: &Daemon| own(&daemon.scrape(), "scan_passes_total");
    let enough = passes(&daemon) + 2.0;
    daemon.wait("two more passes are complete", |daemon| passes(daemon) >= enough);

    let lines: Vec<(String, Vec<String>)> = lines.lock().unwrap().iter().filter_map(|line| monitored(line)).collect();
    let is_hello = |words: &[String]| words.iter().any(|word| word == "redis_lock_exporter");
    let of_exporter: BTreeSet<&str> =
        lines.iter().filter(|(_, words)| is_hello(words)).map(|(address, _)| address.as_str()).collect();
    assert_eq!(of_exporter.len(), 2, "expected two consecutive connections: {lines:?}");
    let sent: Vec<&Vec<String>> =
        lines.iter().filter(|(address, _)| of_exporter.contains(address.as_str())).map(|(_, words)| words).collect();
    let table: Vec<&str> = DOCUMENT.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let writing = server.text(&["COMMAND", "LIST", "FILTERBY", "ACLCAT", "write"]);
    let writing: BTreeSet<&str> = writing.split_whitespace().collect();
    assert!(writing.contains("set") && writing.contains("pexpire"));
    let mut kinds = BTreeSet::new();
    for words in sent {
        let command = words[0].to_ascii_uppercase();
        let name = if command == "CLIENT" { format!("CLIENT {}", words[1].to_ascii_uppercase()) } else { command };
        assert!(table.contains(&name.as_str()), "{words:?} is not a documented command");
        assert!(!writing.contains(words[0].to_ascii_lowercase().as_str()), "{words:?} writes");
        kinds.insert(name);
    }
    for command in ["HELLO", "INFO", "SCAN", "PTTL", "GETRANGE", "TYPE", "HSCAN", "CLIENT TRACKING"] {
        assert!(kinds.contains(command), "{command} is missing from {kinds:?}");
    }
}

#[test]
fn without_tracking_permission_the_exporter_scans_and_reports_it() {
    let server = server_with_user(&["+client|tracking"], &[]);
    let (_site, daemon) = start_as_user(&server);
    daemon.wait("the first pass is complete", |daemon| own(&daemon.scrape(), "scan_passes_total") >= 1.0);
    let samples = daemon.scrape();
    assert_eq!((own(&samples, "redis_up"), own(&samples, "tracking_up"), source(&samples)), (1.0, 0.0, "scan"));
    assert_eq!(denied(&samples), ["client_tracking"]);
    let complaints = complaints(&daemon);
    assert!(complaints.contains("user exporter cannot use CLIENT TRACKING"), "{complaints}");
    assert!(complaints.contains("add +client|tracking"), "{complaints}");
    check_counting(&server, &daemon);
}

#[test]
fn without_read_permission_on_a_prefix_its_locks_have_no_owners() {
    let without = ["%R~mail:lock:*"];
    let server = server_with_user(&without, &["(+pttl +type %R~mail:lock:*)"]);
    let (_site, daemon) = start_as_user(&server);
    wait_watching(&daemon);
    assert_eq!(source(&daemon.scrape()), "watch");
    let mut expected = vec!["getrange", "hscan", "zrange"];
    if server.knows("HPTTL") {
        expected.insert(1, "hpttl");
    }
    assert_eq!(denied(&daemon.scrape()), expected);
    let expected = "user exporter may not GETRANGE keys under mail:lock:*: owners are not told apart; \
                    add +getrange %R~mail:lock:*";
    assert!(complaints(&daemon).contains(expected), "{}", complaints(&daemon));
    check_counting(&server, &daemon);
    let mut program = Program::connect(&server);
    let token = program.acquire("mail:lock:1", LONG);
    let lock = |daemon: &Daemon| json(daemon, "/api/v1/locks?lock_namespace=mail")["locks"][0].clone();
    daemon.wait("the lock is seen", |daemon| lock(daemon).is_object());
    let seen = lock(&daemon);
    assert!(seen["owner"].is_null() && seen["ttl_remaining_seconds"].as_f64().unwrap() > 500.0, "{seen}");
    assert!(program.release("mail:lock:1", &token));
    let releases = "redis_lock_releases_total{redis=\"redis\",lock_namespace=\"mail\"}";
    daemon.wait_for(releases, 1.0);
}

#[test]
fn without_scan_permission_a_lock_is_seen_when_it_changes() {
    let server = server_with_user(&["+scan"], &[]);
    let mut program = Program::connect(&server);
    program.acquire("jobs:lock:silent", LONG);
    let token = program.acquire("jobs:lock:renewed", LONG);
    let (_site, daemon) = start_as_user(&server);
    daemon.wait("tracking is on", |daemon| own(&daemon.scrape(), "tracking_up") == 1.0);
    assert!(program.renew("jobs:lock:renewed", &token, LONG * 2));
    daemon.wait_for("redis_lock_held{redis=\"redis\",lock_namespace=\"jobs\"}", 1.0);
    assert!(program.release("jobs:lock:renewed", &token));
    daemon.wait_for("redis_lock_releases_total{redis=\"redis\",lock_namespace=\"jobs\"}", 1.0);
    let samples = daemon.scrape();
    assert_eq!(Counted::of(&samples), Counted { releases: 1, ..Default::default() });
    assert_eq!((denied(&samples), own(&samples, "scan_passes_total")), (vec!["scan".to_owned()], 0.0));
    assert_eq!(observed_since(&samples), None, "the exporter may not know all locks");
    assert!(complaints(&daemon).contains("may not SCAN"), "{}", complaints(&daemon));
}

#[test]
fn without_info_permission_the_exporter_keeps_watching() {
    let server = server_with_user(&["+info"], &[]);
    let (_site, daemon) = start_as_user(&server);
    wait_watching(&daemon);
    assert_eq!(denied(&daemon.scrape()), ["info"]);
    let expected = "user exporter may not use INFO: restarts look like lost connections, \
                    and evicted locks like released ones; add +info";
    assert!(complaints(&daemon).contains(expected), "{}", complaints(&daemon));
    check_counting(&server, &daemon);
}

#[test]
fn a_wrong_password_is_reported_and_a_corrected_password_file_is_used() {
    let server = server_with_user(&[], &[]);
    let site = Site::new();
    fs::write(site.path("password"), "not-the-secret").unwrap();
    let redis = format!("url: '{}', username: exporter, password_file: SITE/password", server.url());
    site.configure(&format!("redis: {{{redis}}}{TWO_NAMESPACES}"));
    let daemon = site.start_configured(&[]);
    daemon.wait("a connection error is counted", |daemon| own(&daemon.scrape(), "redis_connect_errors_total") >= 1.0);
    daemon.wait("the wrong password is reported", |daemon| complaints(daemon).contains("WRONGPASS"));
    let samples = daemon.scrape();
    assert_eq!((own(&samples, "redis_up"), source(&samples)), (0.0, "none"));
    fs::write(site.path("password"), SECRET).unwrap();
    wait_watching(&daemon);
    assert_eq!(complaints(&daemon), "");
    check_counting(&server, &daemon);
    check_silence(&daemon, &[SECRET, "not-the-secret"]);
}

#[test]
fn a_password_from_the_environment_or_the_url_is_never_printed() {
    let server = server_with_user(&[], &[]);
    let urls = [
        format!("url: '{}', username: exporter, password_env: LOCK_PASSWORD", server.url()),
        format!("url: 'redis://exporter:{SECRET}@127.0.0.1:{}/1'", server.port()),
    ];
    for redis in urls {
        let site = Site::new();
        site.configure(&format!("redis: {{{redis}}}{TWO_NAMESPACES}"));
        let (config, state) = (site.full_path("config.yaml"), site.full_path("state"));
        let arguments = ["--config.file", &config, "--state.dir", &state, "--log.level", "trace"];
        let daemon = Daemon::start_with(&arguments, |command| command.env("LOCK_PASSWORD", SECRET));
        wait_watching(&daemon);
        assert_eq!(complaints(&daemon), "");
        check_silence(&daemon, &[SECRET]);
    }
}

/// Returns the problems that the exporter reports, then stops it.
fn refusal(redis: &str) -> String {
    let (_site, daemon) = start(redis);
    daemon.wait("a connection error is counted", |daemon| own(&daemon.scrape(), "redis_connect_errors_total") >= 1.0);
    daemon.wait("the connection problem is reported", |daemon| complaints(daemon).contains("127.0.0.1"));
    assert_eq!(own(&daemon.scrape(), "redis_up"), 0.0);
    complaints(&daemon)
}

#[test]
fn tls_works_with_a_private_ca_and_a_client_certificate() {
    let (certificates, others) = (Certificates::new(), Certificates::new());
    let server = RedisServer::start_tls(&certificates, &[]);
    let url = format!("url: 'rediss://127.0.0.1:{}'", server.tls_port());
    let path = |name: &str| text(&certificates.path(name)).to_owned();
    let (ca, certificate, key) = (path("ca.pem"), path("client.pem"), path("client.key"));
    let client = format!("cert_file: '{certificate}', key_file: '{key}'");
    let good = format!("{url}, tls: {{ca_file: '{ca}', {client}, server_name: localhost}}");
    let (_site, daemon) = start(&good);
    wait_watching(&daemon);
    assert_eq!(complaints(&daemon), "");
    check_counting(&server, &daemon);

    let wrong_ca = text(&others.path("ca.pem")).to_owned();
    let problem = refusal(&format!("{url}, tls: {{ca_file: '{wrong_ca}', {client}}}"));
    assert!(problem.contains("TLS with 127.0.0.1") && problem.contains("invalid peer certificate"), "{problem}");
    let problem = refusal(&format!("{url}, tls: {{ca_file: '{ca}', {client}, server_name: redis.example.com}}"));
    assert!(problem.contains("not valid for name") && problem.contains("redis.example.com"), "{problem}");
    let problem = refusal(&format!("{url}, tls: {{ca_file: '{ca}'}}"));
    assert!(problem.contains("CertificateRequired"), "{problem}");
    let problem = refusal(&format!("url: 'redis://127.0.0.1:{}'", server.tls_port()));
    assert!(problem.contains("rediss://"), "{problem}");
}

#[test]
fn the_exporter_connects_over_a_unix_socket() {
    let server = RedisServer::start(&[]);
    let (_site, daemon) = start(&format!("url: 'unix://{}?db=0'", server.socket().display()));
    wait_watching(&daemon);
    assert_eq!(complaints(&daemon), "");
    check_counting(&server, &daemon);
}

#[test]
fn a_server_without_resp3_is_scanned() {
    let server = RedisServer::start(&["--rename-command", "HELLO", ""]);
    let (_site, daemon) = start(&format!("url: '{}'", server.url()));
    daemon.wait("the first pass is complete", |daemon| own(&daemon.scrape(), "scan_passes_total") >= 1.0);
    let samples = daemon.scrape();
    assert_eq!((own(&samples, "redis_up"), own(&samples, "tracking_up"), source(&samples)), (1.0, 0.0, "scan"));
    assert!(complaints(&daemon).contains("does not speak RESP3"), "{}", complaints(&daemon));
    check_counting(&server, &daemon);
}

#[test]
fn the_documented_users_have_enough_rights_in_a_cluster() {
    let cluster = Cluster::start(&[]);
    let user = documented("Cluster").remove(0);
    cluster.nodes.iter().for_each(|node| set_user(node, &user));
    let login = "username: exporter, password_file: SITE/password";
    let (_site, daemon) =
        start(&format!("mode: cluster, addresses: ['127.0.0.1:{}'], {login}", cluster.nodes[0].port()));
    daemon.wait("all primaries are connected", |daemon| own(&daemon.scrape(), "redis_nodes_up") == 3.0);
    wait_watching(&daemon);
    assert_eq!((complaints(&daemon), denied(&daemon.scrape())), (String::new(), Vec::new()));
}

#[test]
fn the_documented_users_have_enough_rights_with_sentinel() {
    let sentinels = Sentinels::start(&[]);
    let [of_servers, of_sentinels] = documented("Sentinel").try_into().unwrap();
    sentinels.servers.iter().for_each(|server| set_user(server, &of_servers));
    let addresses = sentinels.addresses();
    for address in &addresses {
        let mut client = Client::connect(address.rsplit(':').next().unwrap().parse().unwrap()).unwrap();
        client.command(&of_sentinels.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let login = "username: exporter, password_file: SITE/password";
    let list = addresses.iter().map(|address| format!("'{address}'")).collect::<Vec<_>>().join(", ");
    let (_site, daemon) =
        start(&format!("mode: sentinel, addresses: [{list}], sentinel: {{primary: {PRIMARY_NAME}, {login}}}, {login}"));
    wait_watching(&daemon);
    assert_eq!((complaints(&daemon), denied(&daemon.scrape())), (String::new(), Vec::new()));
    let server = eventually("the Sentinels to name a primary", || sentinels.primary());
    check_counting(&sentinels.servers[server], &daemon);
}
