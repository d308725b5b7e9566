//! A Redis Cluster with three primaries and one replica for each.

use std::time::{Duration, Instant};

use super::{FREE_PORT, RedisServer, eventually};

const N_PRIMARIES: usize = 3;
const N_SLOTS: usize = 16_384;
/// The cluster fails over a node that does not answer for this long. The value is large because a
/// busy machine can easily pause a node for a second.
const NODE_TIMEOUT_MS: &str = "5000";
/// A node gives up a requested failover after 5 s for any reason.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(6);

pub struct Cluster {
    /// The first three nodes are primaries at the start. Node `i + 3` is the replica of node `i`.
    pub nodes: Vec<RedisServer>,
}

impl Cluster {
    pub fn start(extra: &[&str]) -> Self {
        let nodes: Vec<RedisServer> = (0..2 * N_PRIMARIES).map(|_| start_node(extra)).collect();
        for (index, node) in nodes.iter().enumerate() {
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
        }
        for node in &nodes[1..] {
            let bus = node.text(&["CONFIG", "GET", "cluster-port"]);
            let bus = bus.rsplit(' ').next().unwrap();
            nodes[0].command(&["CLUSTER", "MEET", "127.0.0.1", &node.port().to_string(), bus]);
        }
        for (index, node) in nodes[..N_PRIMARIES].iter().enumerate() {
            let slots: Vec<String> = (slot(index)..slot(index + 1)).map(|slot| slot.to_string()).collect();
            let command: Vec<&str> =
                ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str)).collect();
            node.command(&command);
        }
        for node in &nodes {
            eventually("all nodes to know each other", || {
                (cluster_info(node, "cluster_known_nodes")? == nodes.len().to_string()).then_some(())
            });
        }
        for (index, node) in nodes[N_PRIMARIES..].iter().enumerate() {
            let primary = nodes[index].text(&["CLUSTER", "MYID"]);
            // The node may not know yet that the other node is a primary.
            eventually("the node to become a replica", || {
                let answer = node.client().try_command(&["CLUSTER", "REPLICATE", &primary]).ok()?;
                matches!(answer, redis::Value::Okay).then_some(())
            });
        }
        let cluster = Self { nodes };
        cluster.wait_until_ok(&(0..cluster.nodes.len()).collect::<Vec<_>>());
        for node in &cluster.nodes {
            eventually("all replicas to be known and in sync", || {
                let redis::Value::Array(ranges) = node.command(&["CLUSTER", "SLOTS"]) else { return None };
                let has_replica = |range: &redis::Value| matches!(range, redis::Value::Array(items) if items.len() > 3);
                ranges.iter().all(has_replica).then_some(())
            });
        }
        cluster
    }

    /// Waits until the given nodes report that all slots are served.
    pub fn wait_until_ok(&self, nodes: &[usize]) {
        for index in nodes {
            let node = &self.nodes[*index];
            eventually("the cluster state to be ok", || (cluster_info(node, "cluster_state")? == "ok").then_some(()));
        }
    }

    /// Makes a replica the primary without a failure, and waits until it is the primary.
    pub fn fail_over(&self, replica: usize) {
        let replica = &self.nodes[replica];
        let mut asked: Option<Instant> = None;
        eventually("the replica to become a primary", || {
            if asked.is_none_or(|asked| asked.elapsed() > ASKED_AGAIN_AFTER) {
                // The node refuses the command if it already is a primary.
                replica.client().try_command(&["CLUSTER", "FAILOVER"]).unwrap();
                asked = Some(Instant::now());
            }
            (replica.info("role")? == "master").then_some(())
        });
    }

    /// Returns `HOST:PORT` of all nodes.
    pub fn addresses(&self) -> Vec<String> {
        self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect()
    }

    /// Returns the primary of a key, according to the node `asked`.
    pub fn primary_of(&self, key: &str, asked: usize) -> usize {
        let slot: u16 = self.nodes[asked].text(&["CLUSTER", "KEYSLOT", key]).parse().unwrap();
        let redis::Value::Array(ranges) = self.nodes[asked].command(&["CLUSTER", "SLOTS"]) else {
            panic!("CLUSTER SLOTS did not return an array")
        };
        for range in ranges {
            let text = super::client::text(&range);
            let words: Vec<&str> = text.split_whitespace().collect();
            if (words[0].parse::<u16>().unwrap()..=words[1].parse().unwrap()).contains(&slot) {
                let port: u16 = words[3].parse().unwrap();
                return self.nodes.iter().position(|node| node.port() == port).unwrap();
            }
        }
        panic!("no node serves slot {slot}");
    }
}

fn slot(index: usize) -> usize {
    index * N_SLOTS / N_PRIMARIES
}

pub fn start_node(extra: &[&str]) -> RedisServer {
    let mut arguments =
        vec!["--cluster-enabled", "yes", "--cluster-node-timeout", NODE_TIMEOUT_MS, "--cluster-port", FREE_PORT];
    // The primary lists a replica only after it has replicated something to it. A ping is enough.
    arguments.extend(["--repl-ping-replica-period", "1"]);
    arguments.extend(extra);
    RedisServer::start(&arguments)
}

fn cluster_info(node: &RedisServer, field: &str) -> Option<String> {
    let info = node.text(&["CLUSTER", "INFO"]);
    info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':').map(str::to_owned))
}
