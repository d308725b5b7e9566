//! The Redis source: finds the primaries, keeps one link to each, and reports what they show as
//! sightings.
//!
//! `daemon::run` calls [`run`]. Invariant: this module sends only commands that read;
//! `status::Command` lists them. Failures are reported in the status and tried again. In reading
//! order:
//!
//! * `supervisor`: keeps one link for each primary, distributes reads, adds up status
//! * `topology`: which primaries exist, and which one serves a key
//! * `link`: everything about one primary, over one connection
//! * `connect`, `tls`, `wire`: that connection
//! * `status`: the state of the links for `/metrics`

mod connect;
mod link;
#[cfg(test)]
mod live_tests;
#[cfg(test)]
#[path = "../../tests/integration/redis/mod.rs"]
mod servers;
mod status;
mod supervisor;
pub(crate) mod tls;
mod topology;
mod wire;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use self::status::LinkStatus;
use self::supervisor::Supervisor;
use self::topology::Primary;
use crate::config::redis::{Address, RedisConfig};
use crate::model::input::PipelineInput;
use crate::model::key_index::KeyMap;
use crate::model::namespace::Namespace;
use crate::model::sighting::{LinkId, OwnerHasher, ServerContinuity};
use crate::snapshot::RedisNow;

/// Longest time between two attempts to reach a Redis that was reached before. Most likely it is
/// restarting, and what happens to its locks before the exporter is connected again is missed.
const RETRY_KNOWN_WITHIN: Duration = Duration::from_secs(1);

/// The parts that the keyspace source is built from.
pub struct KeyspaceSource {
    pub config: RedisConfig,
    pub keys: Arc<KeyMap>,
    /// Source of the fence templates and owner rules.
    pub namespaces: Vec<Arc<Namespace>>,
    pub hasher: OwnerHasher,
    pub out: mpsc::Sender<PipelineInput>,
    pub now: Arc<Mutex<RedisNow>>,
    /// Keys that the ledger wants to be read now, on any node.
    pub reads: mpsc::Receiver<Vec<Box<str>>>,
}

/// Observes Redis until it is stopped. Every failure is tried again.
pub async fn run(setup: KeyspaceSource, stop: CancellationToken) {
    Supervisor::new(setup).run(stop).await;
}

/// State that all links share.
struct Shared {
    config: RedisConfig,
    keys: Arc<KeyMap>,
    namespaces: Vec<Arc<Namespace>>,
    hasher: OwnerHasher,
    out: mpsc::Sender<PipelineInput>,
    /// A link notifies it when the topology may have changed: a slot moved, or a node is gone or no
    /// longer a primary.
    rediscover: Notify,
}

/// The parts that one link is built from.
struct LinkSetup {
    id: LinkId,
    /// The node as it was discovered. Later changes of its replicas arrive in `replicas`.
    node: Primary,
    replicas: watch::Receiver<Vec<Address>>,
    /// What the first `Up` event of the link says. `OtherServer` if the node replaced another one in
    /// a failover.
    continuity: ServerContinuity,
    shared: Arc<Shared>,
    /// Keys on this node that the ledger wants to be read now.
    reads: mpsc::Receiver<Vec<Box<str>>>,
    status: Arc<Mutex<LinkStatus>>,
}
