//! Connecting and discovery, tested on real servers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::connect::{ConnectError, RedisTarget, connect};
use super::servers::RedisServer;
use super::servers::certificates::Certificates;
use super::servers::cluster::Cluster;
use super::servers::sentinel::{PRIMARY_NAME, Sentinels};
use super::status::LinkTotals;
use super::topology::slots::slot_of;
use super::topology::{Primary, discover};
use super::wire::WireError;
use super::{KeyspaceSource, run};
use crate::config::redis::{
    Address, Credentials, PasswordSource, RedisConfig, RedisMode, ScanConfig, Tls, WatchConfig,
};
use crate::model::input::PipelineInput;
use crate::model::key_index::KeyMap;
use crate::model::sighting::{LinkEvent, OwnerHasher};
use crate::snapshot::RedisNow;
use crate::util::ports::UnusedPort;

fn tcp(port: u16) -> Address {
    Address::Tcp { host: "127.0.0.1".to_owned(), port }
}

fn config(mode: RedisMode, addresses: Vec<Address>) -> RedisConfig {
    RedisConfig {
        name: "redis".to_owned(),
        mode,
        addresses,
        database: 0,
        credentials: Credentials::default(),
        tls: None,
        connect_timeout: Duration::from_secs(10),
        response_timeout: Duration::from_secs(10),
        scan: ScanConfig::default(),
        watch: WatchConfig::default(),
        max_tracked_locks: 1000,
    }
}

fn single(address: Address) -> RedisConfig {
    config(RedisMode::Single, vec![address])
}

fn login(username: &str, password: &str) -> Credentials {
    Credentials { username: Some(username.to_owned()), password: Some(PasswordSource::Inline(password.to_owned())) }
}

/// Connects to the first address and reads a key.
async fn read(config: &RedisConfig, key: &str) -> Result<Value, ConnectError> {
    let mut wire = connect(&RedisTarget::node(config, &config.addresses[0])).await?;
    assert!(wire.is_resp3());
    Ok(wire.ask(&[b"GET", key.as_bytes()]).await?)
}

async fn refusal(config: &RedisConfig) -> String {
    let error = connect(&RedisTarget::node(config, &config.addresses[0])).await.err().expect("refused");
    format!("{:#}", anyhow::Error::new(error))
}

#[tokio::test]
async fn users_databases_and_sockets() {
    let server = RedisServer::start(&["--requirepass", "first"]);
    server.command(&["ACL", "SETUSER", "me", "on", ">s:e/c@ret", "~*", "+@all"]);
    server.client().pipeline(&[&["SELECT", "3"], &["SET", "key", "value"]]);
    let value = Value::BulkString(b"value".to_vec());
    let mut config = RedisConfig { database: 3, ..single(tcp(server.port())) };
    config.credentials = login("me", "s:e/c@ret");
    assert_eq!(read(&config, "key").await.unwrap(), value);

    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "first\r\n").unwrap();
    config.credentials = Credentials { username: None, password: Some(PasswordSource::File(file.path().to_owned())) };
    assert_eq!(read(&config, "key").await.unwrap(), value);
    config.addresses = vec![Address::Unix(server.socket())];
    assert_eq!(read(&config, "key").await.unwrap(), value);

    config.database = 99;
    assert!(refusal(&config).await.ends_with("refused SELECT: ERR DB index is out of range"));
    config.credentials = login("me", "wrong");
    let text = refusal(&config).await;
    assert!(text.contains("refused HELLO: WRONGPASS") && !text.contains("wrong "), "{text}");
    config.credentials = Credentials::default();
    assert!(refusal(&config).await.contains("NOAUTH"));
    std::fs::write(file.path(), "\n").unwrap();
    config.credentials.password = Some(PasswordSource::File(file.path().to_owned()));
    assert!(refusal(&config).await.ends_with("is empty"));

    let unused = UnusedPort::reserve().unwrap();
    let nobody = single(tcp(unused.number));
    assert!(refusal(&nobody).await.starts_with(&format!("cannot connect to {}: ", nobody.addresses[0])));
}

#[tokio::test]
async fn servers_without_hello() {
    let server = RedisServer::start(&["--requirepass", "secret", "--rename-command", "HELLO", ""]);
    let mut config = single(tcp(server.port()));
    config.credentials.password = Some(PasswordSource::Inline("secret".to_owned()));
    let mut wire = connect(&RedisTarget::node(&config, &config.addresses[0])).await.unwrap();
    assert!(!wire.is_resp3());
    assert_eq!(wire.ask(&[b"PING"]).await.unwrap(), Value::SimpleString("PONG".to_owned()));
    assert_eq!(server.exporter_connections(), 1);
    config.credentials.password = Some(PasswordSource::Inline("wrong".to_owned()));
    assert!(refusal(&config).await.contains("refused AUTH: WRONGPASS"));
}

#[tokio::test]
async fn servers_that_stand_still_or_come_back() {
    let mut server = RedisServer::start(&[]);
    let config = RedisConfig { response_timeout: Duration::from_secs(3), ..single(tcp(server.port())) };
    let mut wire = connect(&RedisTarget::node(&config, &config.addresses[0])).await.unwrap();
    server.pause();
    assert!(matches!(wire.ask(&[b"PING"]).await, Err(WireError::Timeout { .. })));
    assert!(refusal(&config).await.ends_with("did not answer within 3s"), "the system accepts, nobody answers");
    server.resume();
    assert_eq!(wire.next().await.unwrap(), Value::SimpleString("PONG".to_owned()), "late, but not lost");
    server.kill();
    assert!(matches!(wire.next().await, Err(WireError::Closed(_))));
    server.restart();
    assert_eq!(read(&config, "key").await.unwrap(), Value::Nil);
}

#[tokio::test]
async fn tls_with_a_ca_of_its_own() {
    let certificates = Certificates::new();
    let server = RedisServer::start_tls(&certificates, &["--tls-auth-clients", "yes"]);
    let client = (certificates.path("client.pem"), certificates.path("client.key"));
    let ca_file = Some(certificates.path("ca.pem"));
    let with = |tls: Tls| RedisConfig { tls: Some(tls), ..single(tcp(server.tls_port())) };

    let good = Tls { ca_file: ca_file.clone(), client: Some(client.clone()), server_name: None };
    assert_eq!(read(&with(good.clone()), "key").await.unwrap(), Value::Nil);
    let by_name = Tls { server_name: Some("localhost".to_owned()), ..good.clone() };
    assert_eq!(read(&with(by_name), "key").await.unwrap(), Value::Nil);

    let without = single(tcp(server.tls_port()));
    assert!(refusal(&without).await.ends_with("does it want TLS (rediss://)?"));
    let other_name = Tls { server_name: Some("redis.example.com".to_owned()), ..good.clone() };
    assert!(refusal(&with(other_name)).await.contains("not valid for name"));
    let other_ca = Tls { ca_file: Some(Certificates::new().path("ca.pem")), ..good.clone() };
    assert!(refusal(&with(other_ca)).await.contains("cannot read a PEM certificate"), "its directory is gone");
    assert!(
        read(&with(Tls { client: None, ..good.clone() }), "key").await.is_err(),
        "a client certificate is asked for"
    );
    let not_pem = Tls { ca_file: Some(certificates.path("server.ext")), ..good };
    assert!(refusal(&with(not_pem)).await.contains("there is no certificate in"));
}

async fn find(config: &Arc<RedisConfig>, known: &[Primary]) -> Vec<Primary> {
    discover(config, known, &mut LinkTotals::default()).await.unwrap()
}

#[tokio::test]
async fn the_primaries_of_a_cluster() {
    let cluster = Cluster::start(&[]);
    let unused = UnusedPort::reserve().unwrap();
    let seeds = vec![tcp(unused.number), tcp(cluster.nodes[4].port())];
    let config = Arc::new(config(RedisMode::Cluster, seeds));
    let nodes = find(&config, &[]).await;
    let mut expected: Vec<Address> = cluster.nodes[..3].iter().map(|node| tcp(node.port())).collect();
    expected.sort();
    assert_eq!(nodes.iter().map(|node| node.address.clone()).collect::<Vec<_>>(), expected);
    for key in ["a", "foo", "{user1000}.following", "bull:{mail}:lock"] {
        let primary = tcp(cluster.nodes[cluster.primary_of(key, 0)].port());
        let found = nodes.iter().find(|node| node.has_slot(slot_of(key.as_bytes()))).unwrap();
        assert_eq!(found.address, primary, "{key}");
        assert_eq!(found.replicas.len(), 1);
    }
}

#[tokio::test]
async fn a_replica_takes_over_in_a_cluster() {
    let mut cluster = Cluster::start(&[]);
    let config = Arc::new(config(RedisMode::Cluster, vec![tcp(cluster.nodes[0].port())]));
    let before = find(&config, &[]).await;
    cluster.nodes[0].kill();
    let replica = tcp(cluster.nodes[3].port());
    let nodes = loop {
        let nodes = find(&config, &before).await;
        if nodes.iter().any(|node| node.address == replica) {
            break nodes;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(nodes.len(), 3);
    assert!(nodes.iter().all(|node| node.address != config.addresses[0]), "the seed is gone, and not needed");
}

/// Runs the supervisor during a failover: the link to the old primary is removed, and a link to the
/// new primary starts.
#[tokio::test]
async fn a_failover_under_sentinels() {
    let sentinels = Sentinels::start(&[]);
    // The first Sentinel in the list is down.
    let unused = UnusedPort::reserve().unwrap();
    let mut addresses = vec![tcp(unused.number)];
    addresses.extend(sentinels.addresses().iter().map(|text| tcp(text.rsplit(':').next().unwrap().parse().unwrap())));
    let mode = |primary: &str| RedisMode::Sentinel { primary: primary.to_owned(), credentials: Credentials::default() };
    let unknown = Arc::new(config(mode("other"), addresses.clone()));
    let error = discover(&unknown, &[], &mut LinkTotals::default()).await.unwrap_err();
    assert!(error.to_string().contains("does not know a primary \"other\""), "{error}");

    let config = config(mode(PRIMARY_NAME), addresses);
    let nodes = find(&Arc::new(config.clone()), &[]).await;
    assert_eq!(nodes[0].address, tcp(sentinels.servers[0].port()));
    assert_eq!(nodes[0].replicas.len(), 2);

    let (out, mut input) = mpsc::channel(10);
    let (_reads, reads) = mpsc::channel(1);
    let now = Arc::new(Mutex::new(RedisNow::default()));
    let stop = CancellationToken::new();
    let setup = KeyspaceSource {
        config,
        keys: Arc::new(KeyMap::default()),
        namespaces: Vec::new(),
        hasher: OwnerHasher::new(),
        out,
        now: Arc::clone(&now),
        reads,
    };
    let supervisor = tokio::spawn(run(setup, stop.clone()));
    wait_for(|| now.lock().unwrap().nodes == 1).await;
    let new_primary = tokio::task::spawn_blocking(move || {
        sentinels.fail_over();
        sentinels
    });
    let _sentinels = new_primary.await.unwrap();
    let removed = tokio::time::timeout(Duration::from_secs(120), async {
        while let Some(input) = input.recv().await {
            if let PipelineInput::Link(batch) = input
                && batch.news.iter().any(|news| matches!(news, LinkEvent::Removed { .. }))
            {
                return batch.link.0;
            }
        }
        panic!("the supervisor ended by itself");
    });
    assert_eq!(removed.await.unwrap(), 0);
    wait_for(|| now.lock().unwrap().nodes == 1).await;
    stop.cancel();
    supervisor.await.unwrap();
}

async fn wait_for(condition: impl Fn() -> bool) {
    for _ in 0..12_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("waited in vain");
}
