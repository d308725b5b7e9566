//! Tests a primary that Sentinels monitor: the daemon follows failovers and does not guess what
//! happens to locks meanwhile.

use super::scene::{Counts, configuration, expect, wait_passes, wait_watching};
use crate::daemon::{Daemon, sum};
use crate::redis::sentinel::{PRIMARY_NAME, Sentinels};
use crate::redis::{RedisServer, eventually};
use crate::site::Site;

const LOCKS: &str = "  - {name: locks, keys: ['lock:{id}'], ttl: 60s, renew_every: 20s}";
const FAILOVERS: &str = "redis_lock_exporter_redis_failovers_total";
const N_LOCKS: u64 = 20;

struct Guarded {
    sentinels: Sentinels,
    daemon: Daemon,
    _site: Site,
}

impl Guarded {
    fn start(more: &str) -> Self {
        let sentinels = Sentinels::start(&[]);
        let site = Site::new();
        let addresses = sentinels.addresses().join("', '");
        let redis = format!("{{mode: sentinel, addresses: ['{addresses}'], sentinel: {{primary: {PRIMARY_NAME}}}}}");
        site.configure(&configuration(&redis, LOCKS, more));
        let daemon = site.start_configured(&[]);
        wait_passes(&daemon, 1.0);
        Self { sentinels, daemon, _site: site }
    }

    /// Acquires the locks on the primary, and waits until its replicas have them.
    fn take_locks(&self, primary: &RedisServer) {
        let mut client = primary.client();
        for number in 0..N_LOCKS {
            client.command(&["SET", &format!("lock:{number}"), "a", "NX", "PX", "600000"]);
        }
        client.command(&["WAIT", "2", "10000"]);
    }

    /// Returns the second primary that the Sentinels choose.
    fn new_primary(&self) -> &RedisServer {
        let primary = eventually("the Sentinels to choose another primary", || {
            self.sentinels.primary().filter(|primary| *primary != 0)
        });
        &self.sentinels.servers[primary]
    }

    fn counts(&self) -> Counts {
        Counts::of(&self.daemon.scrape(), "locks")
    }

    fn expect(&self, what: &str, expected: Counts) {
        expect(&self.daemon, "locks", what, expected);
    }

    /// Checks the new primary: once the exporter watches it, all counts are exact again.
    fn goes_on(&self, primary: &RedisServer, before: Counts) {
        eventually("the daemon to connect to the new primary", || (primary.exporter_connections() > 0).then_some(()));
        wait_watching(&self.daemon);
        self.expect("after the failover", before);
        let mut client = primary.client();
        client.command(&["PEXPIRE", "lock:0", "700000"]);
        client.command(&["DEL", "lock:1"]);
        client.command(&["SET", "lock:new", "b", "NX", "PX", "600000"]);
        let expected = Counts { acquisitions: before.acquisitions + 1, renewals: 1, releases: 1, ..before };
        self.expect("changes at the new primary", expected);
        let samples = self.daemon.scrape();
        assert_eq!(sum(&samples, "redis_lock_exporter_redis_nodes"), 1.0);
        assert_eq!(sum(&samples, "redis_lock_exporter_redis_up"), 1.0);
        assert!(sum(&samples, FAILOVERS) >= 1.0);
    }
}

#[test]
fn a_failover_without_data_loss_ends_no_hold() {
    let guarded = Guarded::start("");
    wait_watching(&guarded.daemon);
    guarded.take_locks(&guarded.sentinels.servers[0]);
    let before = Counts { held: N_LOCKS, acquisitions: N_LOCKS, ..Counts::default() };
    guarded.expect("locks at the first primary", before);
    assert_eq!(sum(&guarded.daemon.scrape(), FAILOVERS), 0.0);
    let primary = guarded.sentinels.fail_over();
    guarded.goes_on(&guarded.sentinels.servers[primary], before);
}

#[test]
fn after_a_killed_primary_unreplicated_locks_have_an_unknown_end() {
    let mut guarded = Guarded::start("");
    wait_watching(&guarded.daemon);
    guarded.take_locks(&guarded.sentinels.servers[0]);
    let taken = Counts { held: N_LOCKS, acquisitions: N_LOCKS, ..Counts::default() };
    guarded.expect("locks at the first primary", taken);
    // Two more locks that the replicas never receive: they are paused until the primary is gone,
    // and are disconnected.
    let primary = &guarded.sentinels.servers[0];
    for replica in &guarded.sentinels.servers[1..] {
        replica.pause();
    }
    primary.command(&["CLIENT", "KILL", "TYPE", "replica"]);
    for name in ["lost-1", "lost-2"] {
        primary.command(&["SET", &format!("lock:{name}"), "a", "NX", "PX", "600000"]);
    }
    let both = Counts { held: N_LOCKS + 2, acquisitions: N_LOCKS + 2, ..Counts::default() };
    guarded.expect("locks that only the primary has", both);
    guarded.sentinels.servers[0].kill();
    for replica in &guarded.sentinels.servers[1..] {
        replica.resume();
    }
    let primary = guarded.new_primary();
    guarded.goes_on(primary, Counts { held: N_LOCKS, unknown_ends: 2, ..both });
    let history = guarded.daemon.get("/api/v1/locks/lock:lost-1").text();
    assert!(history.contains("lost_in_failover"), "{history}");
}

#[test]
fn after_a_killed_primary_the_exporter_follows_the_new_primary() {
    let mut guarded = Guarded::start("");
    wait_watching(&guarded.daemon);
    guarded.take_locks(&guarded.sentinels.servers[0]);
    let before = Counts { held: N_LOCKS, acquisitions: N_LOCKS, ..Counts::default() };
    guarded.expect("locks at the first primary", before);
    guarded.sentinels.servers[0].kill();
    guarded.goes_on(guarded.new_primary(), before);
}

/// Passes run on a replica. The exporter reads changed keys from the primary.
#[test]
fn passes_run_on_a_replica() {
    let guarded = Guarded::start("scan: {from: replica, interval: 1s, watched_interval: 1s, max_redis_share: 0.5}");
    wait_watching(&guarded.daemon);
    guarded.take_locks(&guarded.sentinels.servers[0]);
    let before = Counts { held: N_LOCKS, acquisitions: N_LOCKS, ..Counts::default() };
    guarded.expect("locks at the primary", before);
    let passes = sum(&guarded.daemon.scrape(), "redis_lock_exporter_scan_passes_total");
    wait_passes(&guarded.daemon, passes + 2.0);
    let scans = |server: &RedisServer| server.text(&["INFO", "commandstats"]).contains("cmdstat_scan:");
    let servers = &guarded.sentinels.servers;
    assert!(servers[1..].iter().any(scans), "no replica received a SCAN");
    assert_eq!(guarded.counts(), before);
}

/// Without watching, the exporter also reads from a replica. A failover does not end a hold.
#[test]
fn scanning_a_replica_continues_through_a_failover() {
    let guarded = Guarded::start("scan: {from: replica, interval: 1s, max_redis_share: 0.5}\nwatch: off\n");
    guarded.take_locks(&guarded.sentinels.servers[0]);
    let before = Counts { held: N_LOCKS, acquisitions: N_LOCKS, ..Counts::default() };
    guarded.expect("locks at the primary", before);
    let primary = &guarded.sentinels.servers[guarded.sentinels.fail_over()];
    eventually("the daemon to connect to the new primary", || (primary.exporter_connections() > 0).then_some(()));
    let passes = sum(&guarded.daemon.scrape(), "redis_lock_exporter_scan_passes_total");
    wait_passes(&guarded.daemon, passes + 3.0);
    guarded.expect("after the failover", before);
    let mut client = primary.client();
    client.command(&["DEL", "lock:1"]);
    client.command(&["SET", "lock:new", "b", "NX", "PX", "600000"]);
    guarded.expect("later changes", Counts { acquisitions: N_LOCKS + 1, releases: 1, ..before });
}
