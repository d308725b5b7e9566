//! Keeps one link task for each primary, distributes reads, and adds up the status of the links.
//!
//! `keyspace::run` calls it. A link reconnects to its address by itself, forever. The supervisor
//! starts and stops links only when the topology changes. Discovery runs in its own task, because a
//! host that does not answer takes seconds.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::status::{self, LinkStatus, LinkTotals};
use super::topology::slots::slot_of;
use super::topology::{self, DiscoverError, Primary};
use super::{KeyspaceSource, LinkSetup, RETRY_KNOWN_WITHIN, Shared, link};
use crate::config::redis::{Address, RedisConfig, RedisMode};
use crate::model::input::PipelineInput;
use crate::model::sighting::{LinkBatch, LinkEvent, LinkId, ServerContinuity};
use crate::snapshot::RedisNow;
use crate::util::backoff::Backoff;
use crate::util::clock;

/// Interval between two discoveries if no link asks for one.
const REDISCOVER_EVERY: Duration = Duration::from_secs(5);
/// Minimum time between two discoveries, however many links ask for one.
const REDISCOVER_AT_MOST_EVERY: Duration = Duration::from_millis(500);
const PUBLISH_EVERY: Duration = Duration::from_millis(500);
/// Number of key lists that may wait for a link. The ledger asks again for dropped keys.
const READS_QUEUE: usize = 4;
/// A link that does not end within this time is aborted.
const LINK_GRACE: Duration = Duration::from_secs(2);

type Discovered = (Result<Vec<Primary>, DiscoverError>, LinkTotals);

pub(super) struct Supervisor {
    shared: Arc<Shared>,
    config: Arc<RedisConfig>,
    now: Arc<Mutex<RedisNow>>,
    reads: mpsc::Receiver<Vec<Box<str>>>,
    links: Vec<Running>,
    next_id: u16,
    /// What ended links and discoveries counted.
    ended: LinkTotals,
    discovery: JoinSet<Discovered>,
    next_discovery: Option<Instant>,
    last_discovery: Option<Instant>,
    backoff: Backoff,
    /// Why the topology is unknown. Logged when it changes, and shown in the status until a
    /// discovery succeeds.
    failure: Option<String>,
}

struct Running {
    id: LinkId,
    node: Primary,
    replicas: watch::Sender<Vec<Address>>,
    stop: CancellationToken,
    task: JoinHandle<()>,
    reads: mpsc::Sender<Vec<Box<str>>>,
    status: Arc<Mutex<LinkStatus>>,
}

impl Supervisor {
    pub(super) fn new(setup: KeyspaceSource) -> Self {
        let KeyspaceSource { config, keys, namespaces, hasher, out, now, reads } = setup;
        let shared = Shared { config: config.clone(), keys, namespaces, hasher, out, rediscover: Notify::new() };
        Self {
            shared: Arc::new(shared),
            config: Arc::new(config),
            now,
            reads,
            links: Vec::new(),
            next_id: 0,
            ended: LinkTotals::default(),
            discovery: JoinSet::new(),
            next_discovery: Some(Instant::now()),
            last_discovery: None,
            backoff: Backoff::new(),
            failure: None,
        }
    }

    pub(super) async fn run(mut self, stop: CancellationToken) {
        let mut publish = interval(PUBLISH_EVERY);
        publish.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let shared = Arc::clone(&self.shared);
        let mut reads_are_open = true;
        loop {
            let due = self.next_discovery.filter(|_| self.discovery.is_empty());
            tokio::select! {
                () = stop.cancelled() => break,
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => self.start_discovery(),
                Some(discovered) = self.discovery.join_next() => match discovered {
                    Ok((result, took)) => self.take(result, &took).await,
                    Err(error) => {
                        error!(%error, "looking for the primaries of redis failed");
                        self.discover_again();
                    }
                },
                () = shared.rediscover.notified() => self.hasten_discovery(),
                keys = self.reads.recv(), if reads_are_open => match keys {
                    Some(keys) => self.route(keys),
                    None => reads_are_open = false,
                },
                _ = publish.tick() => {
                    self.restart_ended_links().await;
                    self.publish();
                }
            }
        }
        self.discovery.shutdown().await;
        self.links.iter().for_each(|link| link.stop.cancel());
        for link in std::mem::take(&mut self.links) {
            self.end(link).await;
        }
    }

    fn start_discovery(&mut self) {
        self.next_discovery = None;
        self.last_discovery = Some(Instant::now());
        let config = Arc::clone(&self.config);
        let known: Vec<Primary> = self.links.iter().map(|link| link.node.clone()).collect();
        self.discovery.spawn(async move {
            let mut totals = LinkTotals::default();
            let result = topology::discover(&config, &known, &mut totals).await;
            (result, totals)
        });
    }

    fn hasten_discovery(&mut self) {
        if self.config.mode == RedisMode::Single {
            return;
        }
        let now = Instant::now();
        let earliest = self.last_discovery.map_or(now, |last| last + REDISCOVER_AT_MOST_EVERY);
        let planned = self.next_discovery.unwrap_or(earliest);
        self.next_discovery = Some(planned.min(earliest.max(now)));
    }

    async fn take(&mut self, result: Result<Vec<Primary>, DiscoverError>, took: &LinkTotals) {
        self.ended.add(took);
        match result {
            Ok(nodes) => {
                if self.failure.take().is_some() {
                    info!("the primaries of redis are known again");
                }
                self.backoff.reset();
                if self.next_discovery.is_none() && self.config.mode != RedisMode::Single {
                    self.next_discovery = Some(Instant::now() + REDISCOVER_EVERY);
                }
                self.apply(nodes).await;
            }
            Err(error) => {
                let failure = format!("{:#}", anyhow::Error::new(error));
                if self.failure.as_ref() != Some(&failure) {
                    warn!(error = %failure, "cannot find the primaries of redis, trying again");
                }
                self.failure = Some(failure);
                self.discover_again();
            }
        }
    }

    /// Schedules the next attempt after a failed discovery.
    fn discover_again(&mut self) {
        let pause =
            if self.links.is_empty() { self.backoff.next() } else { self.backoff.next_up_to(RETRY_KNOWN_WITHIN) };
        self.next_discovery = Some(Instant::now() + pause);
    }

    /// Stops the links of nodes that are no longer primaries, and starts links to new primaries.
    async fn apply(&mut self, nodes: Vec<Primary>) {
        let (kept, gone): (Vec<Running>, Vec<Running>) = std::mem::take(&mut self.links)
            .into_iter()
            .partition(|link| nodes.iter().any(|node| node.address == link.node.address));
        self.links = kept;
        let mut replaced = Vec::new();
        for link in gone {
            info!(address = %link.node.address, "no longer a primary of redis");
            replaced.push(link.node.clone());
            self.remove(link).await;
        }
        for node in nodes {
            match self.links.iter_mut().find(|link| link.node.address == node.address) {
                Some(link) => {
                    if link.node.replicas != node.replicas {
                        link.replicas.send_replace(node.replicas.clone());
                    }
                    link.node = node;
                }
                None => {
                    let continuity = continuity(&self.config.mode, &node, &replaced);
                    let takes_over = continuity == ServerContinuity::OtherServer;
                    info!(address = %node.address, replicas = node.replicas.len(), takes_over, "a primary of redis");
                    self.start(node, continuity);
                }
            }
        }
    }

    fn start(&mut self, node: Primary, continuity: ServerContinuity) {
        let id = LinkId(self.next_id);
        self.next_id = self.next_id.wrapping_add(1);
        let status = Arc::new(Mutex::new(LinkStatus::default()));
        let (reads, reads_of_link) = mpsc::channel(READS_QUEUE);
        let (replicas, replicas_of_link) = watch::channel(node.replicas.clone());
        let stop = CancellationToken::new();
        let setup = LinkSetup {
            id,
            node: node.clone(),
            replicas: replicas_of_link,
            continuity,
            shared: Arc::clone(&self.shared),
            reads: reads_of_link,
            status: Arc::clone(&status),
        };
        let task = tokio::spawn(link::run(setup, stop.clone()));
        self.links.push(Running { id, node, replicas, stop, task, reads, status });
    }

    /// Stops a link and reports to the pipeline that the link is removed.
    async fn remove(&mut self, link: Running) {
        let id = link.id;
        self.end(link).await;
        let events = vec![LinkEvent::Removed { at: clock::steady() }];
        // An error means that the receiver is gone, because the pipeline is stopping.
        let _ = self.shared.out.send(PipelineInput::Link(LinkBatch { link: id, news: events })).await;
    }

    async fn end(&mut self, mut link: Running) {
        link.stop.cancel();
        match timeout(LINK_GRACE, &mut link.task).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => error!(address = %link.node.address, %error, "a link to redis failed"),
            Err(_) => {
                warn!(address = %link.node.address, "a link to redis did not end in time");
                link.task.abort();
            }
        }
        self.ended.add(&lock(&link.status).totals);
    }

    /// Restarts links that ended by themselves. That happens only after a panic.
    async fn restart_ended_links(&mut self) {
        while let Some(at) = self.links.iter().position(|link| link.task.is_finished()) {
            let link = self.links.swap_remove(at);
            let node = link.node.clone();
            self.remove(link).await;
            self.start(node, ServerContinuity::None);
        }
    }

    fn route(&self, keys: Vec<Box<str>>) {
        let nodes: Vec<&Primary> = self.links.iter().map(|link| &link.node).collect();
        for (link, keys) in self.links.iter().zip(by_node(keys, &nodes)).filter(|(_, keys)| !keys.is_empty()) {
            // If the queue is full, the keys are dropped. The ledger asks again.
            let _ = link.reads.try_send(keys);
        }
    }

    fn publish(&self) {
        let links: Vec<LinkStatus> = self.links.iter().map(|link| lock(&link.status).clone()).collect();
        let complaints = self.failure.iter().cloned().collect();
        let sum = status::sum(&links, &self.ended, complaints);
        *lock(&self.now) = sum;
    }
}

/// `OtherServer` if the new node replaced a removed node in a failover.
fn continuity(mode: &RedisMode, node: &Primary, removed: &[Primary]) -> ServerContinuity {
    let takes_over = match mode {
        RedisMode::Single => false,
        RedisMode::Sentinel { .. } => !removed.is_empty(),
        // A new primary that was not a replica got its slots by migration, which moves the keys
        // too.
        RedisMode::Cluster => removed.iter().any(|removed| removed.replicas.contains(&node.address)),
    };
    if takes_over { ServerContinuity::OtherServer } else { ServerContinuity::None }
}

/// Distributes keys to nodes. Keys in slots that no node serves are dropped.
fn by_node(keys: Vec<Box<str>>, nodes: &[&Primary]) -> Vec<Vec<Box<str>>> {
    if nodes.len() == 1 {
        return vec![keys];
    }
    let mut sorted: Vec<Vec<Box<str>>> = vec![Vec::new(); nodes.len()];
    for key in keys {
        let slot = slot_of(key.as_bytes());
        if let Some(at) = nodes.iter().position(|node| node.has_slot(slot)) {
            sorted[at].push(key);
        }
    }
    sorted
}

/// Ignores poisoning: a thread that panicked while it held the mutex left at most one number out of
/// date.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(port: u16, replicas: &[u16], slots: &[(u16, u16)]) -> Primary {
        let address = |port: &u16| Address::Tcp { host: "redis".to_owned(), port: *port };
        let replicas = replicas.iter().map(address).collect();
        Primary { address: address(&port), replicas, slots: slots.to_vec() }
    }

    #[test]
    fn only_a_replica_takes_over_in_a_cluster() {
        let removed = [node(1, &[4], &[(0, 99)])];
        let check = |mode: &RedisMode, node: &Primary, removed: &[Primary], expected: ServerContinuity| {
            assert_eq!(continuity(mode, node, removed), expected, "{mode:?}, {node:?}, {removed:?}");
        };
        check(&RedisMode::Cluster, &node(4, &[], &[(0, 99)]), &removed, ServerContinuity::OtherServer);
        // The slots of this node were moved to it.
        check(&RedisMode::Cluster, &node(5, &[], &[(0, 99)]), &removed, ServerContinuity::None);
        let sentinel = RedisMode::Sentinel { primary: "mymaster".to_owned(), credentials: Default::default() };
        check(&sentinel, &node(5, &[], &[]), &removed, ServerContinuity::OtherServer);
        check(&sentinel, &node(5, &[], &[]), &[], ServerContinuity::None);
    }

    #[test]
    fn keys_go_to_the_node_that_has_their_slot() {
        // Slots 12182, 12739 and 3443.
        let keys: Vec<Box<str>> = ["foo", "123456789", "{user1000}.lock"].map(Box::from).to_vec();
        let (low, high) = (node(1, &[], &[(0, 100), (3_443, 3_443)]), node(2, &[], &[(12_182, 12_182)]));
        let sorted = by_node(keys.clone(), &[&low, &high]);
        assert_eq!(sorted, [vec![keys[2].clone()], vec![keys[0].clone()]]);
        assert_eq!(by_node(keys.clone(), &[&node(1, &[], &[])]), vec![keys.clone()]);
        assert_eq!(by_node(keys, &[]), Vec::<Vec<Box<str>>>::new());
    }
}
