//! Tests a Redis Cluster: the exporter watches all primaries, and holds continue through failovers,
//! moving slots, and nodes that join and leave.

use std::time::{Duration, Instant};

use super::scene::{Counts, configuration, expect, number, wait_watching};
use crate::daemon::{Daemon, sum};
use crate::redis::client::{Client, text};
use crate::redis::cluster::Cluster;
use crate::redis::{RedisServer, eventually};
use crate::site::Site;

const LOCKS: &str = "  - {name: locks, keys: ['lock:{id}'], ttl: 60s, renew_every: 20s}";
const NODES: &str = "redis_lock_exporter_redis_nodes";
const NODES_UP: &str = "redis_lock_exporter_redis_nodes_up";
const FAILOVERS: &str = "redis_lock_exporter_redis_failovers_total";
const N_LOCKS: u64 = 60;

pub(super) struct Watched {
    pub(super) cluster: Cluster,
    daemon: Daemon,
    _site: Site,
}

impl Watched {
    pub(super) fn start() -> Self {
        let cluster = Cluster::start(&[]);
        let site = Site::new();
        // One node that a test may kill, and one that is only a replica.
        let addresses = [0, 5].map(|index: usize| cluster.addresses()[index].clone()).join("', '");
        let redis = format!("{{mode: cluster, addresses: ['{addresses}']}}");
        site.configure(&configuration(&redis, LOCKS, ""));
        let daemon = site.start_configured(&[]);
        let watched = Self { cluster, daemon, _site: site };
        watched.wait_for_nodes(3.0);
        watched
    }

    /// Waits until this number of primaries are all watched and scanned.
    fn wait_for_nodes(&self, nodes: f64) {
        self.daemon.wait("all primaries are watched", |daemon| {
            let samples = daemon.scrape();
            sum(&samples, NODES) == nodes && sum(&samples, NODES_UP) == nodes
        });
        wait_watching(&self.daemon);
        self.daemon.wait("all primaries are scanned", |daemon| {
            let samples = daemon.scrape();
            sum(&samples, "redis_lock_observed_since_timestamp_seconds") > 0.0
        });
    }

    pub(super) fn expect(&self, what: &str, expected: Counts) {
        expect(&self.daemon, "locks", what, expected);
    }

    /// Waits until the exporter has found moved locks at their new node. Until then it reads them
    /// every second, and the end of such a lock is unknown.
    pub(super) fn wait_until_found(&self) {
        let reads =
            || number(&self.daemon.scrape(), "redis_lock_exporter_redis_commands_total", &[("command", "pttl")]);
        let mut last = (reads(), Instant::now());
        eventually("the exporter to find the moved locks", || {
            let now = reads();
            if now != last.0 {
                last = (now, Instant::now());
            }
            (last.1.elapsed() > Duration::from_secs(3)).then_some(())
        });
    }

    fn take_locks(&self) -> Counts {
        for number in 0..N_LOCKS {
            let key = format!("lock:{number}");
            self.run(1, &["SET", &key, "a", "NX", "PX", "600000"]);
        }
        for node in &self.cluster.nodes[..3] {
            assert_ne!(text(&node.command(&["DBSIZE"])), "0", "every primary must have locks");
            node.command(&["WAIT", "1", "10000"]);
        }
        let taken = Counts { held: N_LOCKS, acquisitions: N_LOCKS, ..Counts::default() };
        self.expect("locks on all primaries", taken);
        taken
    }

    /// Changes locks on every node and checks that the exporter counts each change.
    fn change_locks(&self, asked: usize, before: Counts) -> Counts {
        for number in 0..10 {
            let key = |offset: u64| format!("lock:{}", number + offset);
            self.run(asked, &["PEXPIRE", &key(0), "900000"]);
            self.run(asked, &["DEL", &key(10)]);
            self.run(asked, &["SET", &format!("lock:new-{number}"), "b", "NX", "PX", "600000"]);
        }
        let after = Counts {
            acquisitions: before.acquisitions + 10,
            renewals: before.renewals + 10,
            releases: before.releases + 10,
            ..before
        };
        self.expect("changes on all primaries", after);
        after
    }

    pub(super) fn run(&self, asked: usize, parts: &[&str]) {
        follow(self.cluster.nodes[asked].client(), parts);
    }
}

/// Sends a command as cluster clients do: follows a redirection to another node.
fn follow(mut client: Client, parts: &[&str]) {
    let answer = client.try_command(parts).unwrap();
    let redis::Value::ServerError(error) = answer else { return };
    let port = error.details().and_then(|details| details.rsplit(':').next()?.parse().ok());
    let mut client = Client::connect(port.unwrap_or_else(|| panic!("{parts:?}: {error:?}"))).unwrap();
    match error.code() {
        "MOVED" => follow(client, parts),
        "ASK" => {
            client.command(&["ASKING"]);
            client.command(parts);
        }
        _ => panic!("{parts:?}: {error:?}"),
    }
}

fn id(node: &RedisServer) -> String {
    node.text(&["CLUSTER", "MYID"])
}

fn knows(node: &RedisServer, id: &str) -> bool {
    let nodes = node.text(&["CLUSTER", "NODES"]);
    nodes.lines().any(|line| line.starts_with(id) && !line.contains("handshake"))
}

/// Performs the steps of a resharding one by one.
pub(super) struct Migration<'a> {
    pub(super) slot: String,
    pub(super) source: &'a RedisServer,
    pub(super) target: &'a RedisServer,
}

impl Migration<'_> {
    pub(super) fn begin(&self) {
        self.target.command(&["CLUSTER", "SETSLOT", &self.slot, "IMPORTING", &id(self.source)]);
        self.source.command(&["CLUSTER", "SETSLOT", &self.slot, "MIGRATING", &id(self.target)]);
    }

    fn move_keys(&self, keys: &[&str]) {
        self.migrate(&["KEYS"], keys);
    }

    /// The source keeps the keys, too.
    fn copy_keys(&self, keys: &[&str]) {
        self.migrate(&["COPY", "KEYS"], keys);
    }

    fn migrate(&self, options: &[&str], keys: &[&str]) {
        let port = self.target.port().to_string();
        let command = [&["MIGRATE", "127.0.0.1", &port, "", "0", "30000"], options, keys].concat();
        assert_eq!(text(&self.source.command(&command)), "OK");
    }

    pub(super) fn end(&self, others: &[&RedisServer]) {
        let target = id(self.target);
        self.target.command(&["CLUSTER", "SETSLOT", &self.slot, "NODE", &target]);
        // These nodes may already know the new slot owner. A node without slots becomes a replica.
        for node in others.iter().chain([&self.source]) {
            node.client().try_command(&["CLUSTER", "SETSLOT", &self.slot, "NODE", &target]).unwrap();
        }
    }
}

#[test]
fn a_planned_failover_ends_no_hold() {
    let watched = Watched::start();
    let taken = watched.take_locks();
    let changed = watched.change_locks(1, taken);
    assert_eq!(sum(&watched.daemon.scrape(), FAILOVERS), 0.0);
    watched.cluster.fail_over(3);
    watched.daemon.wait("a failover is counted", |daemon| sum(&daemon.scrape(), FAILOVERS) >= 1.0);
    watched.wait_for_nodes(3.0);
    watched.expect("after the failover", changed);
    for number in 0..10 {
        watched.run(1, &["DEL", &format!("lock:new-{number}")]);
    }
    let expected = Counts { held: changed.held - 10, releases: changed.releases + 10, ..changed };
    watched.expect("later changes", expected);
}

#[test]
fn after_a_killed_primary_only_unreplicated_locks_end() {
    let mut watched = Watched::start();
    let taken = watched.take_locks();
    // Creates locks that only the primary has: its replica is paused and disconnected.
    watched.cluster.nodes[3].pause();
    let primary = &watched.cluster.nodes[0];
    primary.command(&["CLIENT", "KILL", "TYPE", "replica"]);
    let mut client = primary.client();
    // Names whose slots belong to this node.
    let names = (0..100).map(|number| format!("lock:lost-{number}"));
    let is_taken = |key: &String| {
        let answer = client.try_command(&["SET", key, "a", "NX", "PX", "600000"]).unwrap();
        matches!(answer, redis::Value::Okay)
    };
    let lost: Vec<String> = names.filter(is_taken).take(3).collect();
    let both = Counts { held: N_LOCKS + 3, acquisitions: N_LOCKS + 3, ..taken };
    watched.expect("locks that only the primary has", both);
    watched.cluster.nodes[0].kill();
    watched.cluster.nodes[3].resume();
    let replica = &watched.cluster.nodes[3];
    eventually("the replica to become a primary", || (replica.info("role")? == "master").then_some(()));
    watched.daemon.wait("a failover is counted", |daemon| sum(&daemon.scrape(), FAILOVERS) >= 1.0);
    watched.wait_for_nodes(3.0);
    watched.expect("lost with an unknown end", Counts { held: N_LOCKS, unknown_ends: 3, ..both });
    let history = watched.daemon.get(&format!("/api/v1/locks/{}", lost[0])).text();
    assert!(history.contains("lost_in_failover"), "{history}");
    watched.cluster.wait_until_ok(&[1, 2, 3]);
    watched.change_locks(1, Counts { held: N_LOCKS, unknown_ends: 3, ..both });
}

#[test]
fn holds_continue_while_their_slot_moves() {
    let watched = Watched::start();
    let key = |number: usize| format!("lock:{{m}}{number}");
    let keys: Vec<String> = (0..12).map(key).collect();
    for key in &keys {
        watched.run(0, &["SET", key, "a", "NX", "PX", "600000"]);
    }
    let taken = Counts { held: 12, acquisitions: 12, ..Counts::default() };
    watched.expect("locks in one slot", taken);

    let nodes = &watched.cluster.nodes;
    let source = watched.cluster.primary_of(&keys[0], 0);
    let target = (source + 1) % 3;
    let slot = nodes[0].text(&["CLUSTER", "KEYSLOT", &keys[0]]);
    let migration = Migration { slot, source: &nodes[source], target: &nodes[target] };
    migration.begin();
    let first: Vec<&str> = keys[..6].iter().map(String::as_str).collect();
    migration.move_keys(&first);
    watched.expect("half of the keys moved", taken);
    // On both nodes: renews a lock, releases a lock, and acquires one that clients find at the
    // target.
    for number in [0, 6] {
        watched.run(source, &["PEXPIRE", &keys[number], "900000"]);
    }
    for number in [1, 7] {
        watched.run(source, &["DEL", &keys[number]]);
    }
    watched.run(source, &["SET", &key(12), "b", "NX", "PX", "600000"]);
    // The exporter cannot tell yet whether the lock that was released at the source was moved
    // instead.
    let changed = Counts { held: 12, acquisitions: 13, renewals: 2, releases: 1, ..taken };
    watched.expect("changes on both sides", changed);
    let second: Vec<&str> = [6, 8, 9, 10, 11].iter().map(|number: &usize| keys[*number].as_str()).collect();
    migration.move_keys(&second);
    migration.end(&[&nodes[(source + 2) % 3]]);
    let changed = Counts { held: 11, unknown_ends: 1, ..changed };
    watched.expect("all keys moved", changed);
    // The lock changes at its new node.
    watched.run(0, &["PEXPIRE", &keys[8], "900000"]);
    watched.run(0, &["DEL", &keys[9]]);
    watched.run(0, &["SET", &keys[10], "thief", "PX", "600000"]);
    let expected = Counts {
        held: 10,
        acquisitions: 14,
        renewals: 3,
        releases: 2,
        unknown_ends: 2,
        after_unknown: 1,
        ..Counts::default()
    };
    watched.expect("changes at the new node", expected);
    assert_eq!(sum(&watched.daemon.scrape(), FAILOVERS), 0.0);
    watched.wait_for_nodes(3.0);
}

/// Newer servers move all keys of a slot in one step, and the source then deletes its copies. Here
/// the target claims the slot while the source still has the keys.
#[test]
fn copies_that_a_node_deletes_after_its_slot_moved_end_no_hold() {
    let watched = Watched::start();
    let keys: Vec<String> = (0..12).map(|number| format!("lock:{{m}}{number}")).collect();
    for key in &keys {
        watched.run(0, &["SET", key, "a", "NX", "PX", "600000"]);
    }
    let taken = Counts { held: 12, acquisitions: 12, ..Counts::default() };
    watched.expect("locks in one slot", taken);

    let nodes = &watched.cluster.nodes;
    let source = watched.cluster.primary_of(&keys[0], 0);
    let target = (source + 1) % 3;
    let slot = nodes[0].text(&["CLUSTER", "KEYSLOT", &keys[0]]);
    let migration = Migration { slot: slot.clone(), source: &nodes[source], target: &nodes[target] };
    migration.begin();
    migration.copy_keys(&keys.iter().map(String::as_str).collect::<Vec<_>>());
    let copies = || nodes[source].text(&["CLUSTER", "COUNTKEYSINSLOT", &slot]);
    assert_eq!(copies(), "12");
    nodes[target].command(&["CLUSTER", "SETSLOT", &slot, "NODE", &id(&nodes[target])]);
    eventually("the source to delete its copies", || (copies() == "0").then_some(()));
    watched.expect("all keys moved", taken);
    watched.run(target, &["PEXPIRE", &keys[0], "900000"]);
    watched.run(target, &["DEL", &keys[1]]);
    let changed = Counts { held: 11, renewals: 1, releases: 1, ..taken };
    watched.expect("changes at the new node", changed);
    watched.wait_for_nodes(3.0);
}

#[test]
fn a_node_that_joins_and_leaves_the_cluster_is_followed() {
    let watched = Watched::start();
    let taken = watched.take_locks();
    let nodes = &watched.cluster.nodes;
    let fourth = crate::redis::cluster::start_node(&[]);
    let bus = fourth.text(&["CONFIG", "GET", "cluster-port"]);
    let bus = bus.rsplit(' ').next().unwrap();
    nodes[0].command(&["CLUSTER", "MEET", "127.0.0.1", &fourth.port().to_string(), bus]);
    let name = id(&fourth);
    for node in nodes {
        eventually("the other nodes to know the new node", || knows(node, &name).then_some(()));
        let other = id(node);
        eventually("the new node to know the others", || knows(&fourth, &other).then_some(()));
    }
    let is_in_order = || fourth.text(&["CLUSTER", "INFO"]).contains("cluster_state:ok").then_some(());
    eventually("the new node to know the slot owners", is_in_order);
    let source = watched.cluster.primary_of("lock:7", 0);
    let slot = nodes[0].text(&["CLUSTER", "KEYSLOT", "lock:7"]);
    let others: Vec<&RedisServer> = (0..3).filter(|index| *index != source).map(|index| &nodes[index]).collect();

    let there = Migration { slot: slot.clone(), source: &nodes[source], target: &fourth };
    there.begin();
    there.move_keys(&["lock:7"]);
    there.end(&others);
    watched.wait_for_nodes(4.0);
    watched.expect("one lock at the new node", taken);
    watched.run(0, &["PEXPIRE", "lock:7", "900000"]);
    let renewed = Counts { renewals: 1, ..taken };
    watched.expect("renewed at the new node", renewed);

    let back = Migration { slot, source: &fourth, target: &nodes[source] };
    back.begin();
    back.move_keys(&["lock:7"]);
    back.end(&others);
    drop(fourth);
    for node in nodes {
        let _ = node.client().try_command(&["CLUSTER", "FORGET", &name]);
    }
    watched.wait_for_nodes(3.0);
    watched.expect("back at the first node", renewed);
    watched.run(0, &["DEL", "lock:7"]);
    watched.expect("released there", Counts { held: N_LOCKS - 1, releases: 1, ..renewed });
}
