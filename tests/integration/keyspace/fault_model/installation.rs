//! The servers that the exporter observes, and what can happen to them.

use std::fs;

use redis_lock_exporter::rehearsal::fleet::Proxy;
use tokio::runtime::Runtime;

use super::plan::Installation;
use super::requests::Entrance;
use crate::keyspace::cluster::Migration;
use crate::redis::RedisServer;
use crate::redis::client::{Client, text};
use crate::redis::cluster::Cluster;
use crate::redis::sentinel::{PRIMARY_NAME, Sentinels};

/// A killed server loses nothing, because it writes before it replies. It does not wait for the
/// disk, which would delay changes. A test can make it evict keys.
const SINGLE: [&str; 8] = [
    "--appendonly",
    "yes",
    "--appendfsync",
    "no",
    "--maxmemory",
    ENOUGH_MEMORY,
    "--maxmemory-policy",
    "allkeys-random",
];
pub(super) const ENOUGH_MEMORY: &str = "1gb";
const N_OTHER_KEYS: usize = 30_000;
const N_PRIMARIES: usize = 3;
/// A port on which nothing listens.
const NOWHERE: &str = "127.0.0.1:1";

pub(super) enum Servers {
    Single(Box<SingleServer>),
    Sentinel(Sentinels),
    Cluster(Cluster),
}

pub(super) struct SingleServer {
    pub(super) server: RedisServer,
    pub(super) proxy: Proxy,
    _runtime: Runtime,
}

impl Servers {
    pub(super) fn start(installation: Installation) -> Self {
        match installation {
            Installation::Single => Self::Single(Box::new(SingleServer::start())),
            Installation::Large => {
                let single = SingleServer::start();
                let fill = format!("for n = 1, {N_OTHER_KEYS} do redis.call('SET', 'other:' .. n, 'value') end");
                single.server.command(&["EVAL", &fill, "0"]);
                Self::Single(Box::new(single))
            }
            Installation::Sentinel => Self::Sentinel(Sentinels::start(&[])),
            Installation::Cluster => Self::Cluster(Cluster::start(&[])),
        }
    }

    /// The `redis` section of the exporter's configuration.
    pub(super) fn configuration(&self) -> String {
        match self {
            Self::Single(single) => format!("{{url: 'redis://127.0.0.1:{}/0'}}", single.proxy.port()),
            Self::Sentinel(sentinels) => {
                let addresses = sentinels.addresses().join("', '");
                format!("{{mode: sentinel, addresses: ['{addresses}'], sentinel: {{primary: {PRIMARY_NAME}}}}}")
            }
            Self::Cluster(cluster) => format!("{{mode: cluster, addresses: ['{}']}}", cluster.addresses().join("', '")),
        }
    }

    /// The server that answers for all keys, or one of the primaries.
    pub(super) fn primary(&self) -> &RedisServer {
        match self {
            Self::Single(single) => &single.server,
            Self::Sentinel(sentinels) => &sentinels.servers[sentinels.primary().unwrap()],
            Self::Cluster(cluster) => &cluster.nodes[0],
        }
    }

    pub(super) fn primaries(&self) -> Vec<&RedisServer> {
        match self {
            Self::Cluster(cluster) => cluster.nodes[..N_PRIMARIES].iter().collect(),
            _ => vec![self.primary()],
        }
    }

    pub(super) fn single(&mut self) -> &mut SingleServer {
        match self {
            Self::Single(single) => single,
            _ => panic!("this fault needs a single server"),
        }
    }

    pub(super) fn flush_other(&self) {
        let mut client = self.primary().client();
        client.command(&["SELECT", "5"]);
        client.command(&["SET", "other", "value"]);
        client.command(&["FLUSHDB"]);
    }

    pub(super) fn kill_exporter_connections(&self) {
        for server in self.primaries() {
            let mut client = server.client();
            let list = text(&client.command(&["CLIENT", "LIST"]));
            for line in list.lines().filter(|line| line.contains("name=redis_lock_exporter")) {
                let id = line.split_whitespace().find_map(|field| field.strip_prefix("id=")).unwrap();
                // The connection may have ended by itself.
                client.try_command(&["CLIENT", "KILL", "ID", id]).unwrap();
            }
        }
    }

    /// Makes the Sentinels choose another primary. No request is in progress meanwhile, and the
    /// replicas have all data, so that no lock is lost: nobody could tell what happened to it.
    pub(super) fn fail_over(&self, entrance: &Entrance) {
        let Self::Sentinel(sentinels) = self else { panic!("a failover needs Sentinels") };
        let _paused = entrance.pause();
        self.primary().command(&["WAIT", "2", "10000"]);
        let primary = sentinels.fail_over();
        entrance.lead_to(sentinels.servers[primary].port());
    }

    /// Moves a slot with all its keys to another primary while the workers use them.
    pub(super) fn migrate_slot_of(&self, key: &str) {
        let Self::Cluster(cluster) = self else { panic!("slots need a cluster") };
        let from = cluster.primary_of(key, 0);
        let to = (from + 1) % N_PRIMARIES;
        let nodes = &cluster.nodes;
        let slot = nodes[0].text(&["CLUSTER", "KEYSLOT", key]);
        let migration = Migration { slot: slot.clone(), source: &nodes[from], target: &nodes[to] };
        migration.begin();
        loop {
            let keys = nodes[from].text(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
            if keys.is_empty() {
                break;
            }
            let port = nodes[to].port().to_string();
            let mut command = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            command.extend(keys.split_whitespace());
            nodes[from].command(&command);
        }
        migration.end(&[&nodes[(from + 2) % N_PRIMARIES]]);
    }

    /// One connection to each primary, with a key for which it is responsible.
    pub(super) fn with_keys(&self, name: &str) -> Vec<(Client, String)> {
        let Self::Cluster(cluster) = self else { return vec![(self.primary().client(), format!("{name}0"))] };
        let key_of = |primary: usize| {
            let mut keys = (0..).map(|number| format!("{name}{number}"));
            keys.find(|key| cluster.primary_of(key, 0) == primary).unwrap()
        };
        (0..N_PRIMARIES).map(|primary| (cluster.nodes[primary].client(), key_of(primary))).collect()
    }
}

impl SingleServer {
    fn start() -> Self {
        let server = RedisServer::start(&SINGLE);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let proxy = runtime.block_on(Proxy::start(&format!("127.0.0.1:{}", server.port()))).unwrap();
        Self { server, proxy, _runtime: runtime }
    }

    pub(super) fn forget_data(&self) {
        let _ = fs::remove_dir_all(self.server.directory().join("appendonlydir"));
    }

    /// Ends all connections through the proxy, and all new ones immediately.
    pub(super) fn cut(&self) {
        self.proxy.redirect(NOWHERE);
    }

    pub(super) fn reconnect(&self) {
        self.proxy.redirect(&format!("127.0.0.1:{}", self.server.port()));
    }
}
