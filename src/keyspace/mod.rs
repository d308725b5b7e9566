//! The Redis source: finds the primaries, keeps one link to each, and reports what they show as sightings.
//!
//! `daemon::run` calls [`run`]. Invariant: this module sends only commands that read; `status::Command` lists them. In
//! reading order:
//!
//! * `supervisor`: keeps one link for each primary, distributes reads, adds up status
//! * `topology`: which primaries there are, and which one has a key
//! * `link`: everything about one primary, over one connection
//! * `connect`, `tls`, `wire`: that connection
//! * `status`: what `/metrics` shows about it

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

use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use self::status::LinkStatus;
use self::supervisor::Supervisor;
use self::topology::Primary;
use crate::config::redis::{Address, RedisConfig};
use crate::model::input::PipelineInput;
use crate::model::key_index::KeyMap;
use crate::model::namespace::Namespace;
use crate::model::sighting::{LinkId, OwnerHasher};
use crate::snapshot::RedisNow;

/// What the keyspace source is built from.
pub struct KeyspaceSource {
    pub config: RedisConfig,
    pub keys: Arc<KeyMap>,
    /// For their fence templates.
    pub namespaces: Vec<Arc<Namespace>>,
    pub hasher: OwnerHasher,
    pub out: mpsc::Sender<PipelineInput>,
    pub now: Arc<Mutex<RedisNow>>,
    /// Keys that the ledger wants to be read now, wherever they are.
    pub reads: mpsc::Receiver<Vec<Box<str>>>,
}

/// Looks at Redis until it is stopped; whatever fails is tried again.
pub async fn run(setup: KeyspaceSource, stop: CancellationToken) {
    Supervisor::new(setup).run(stop).await;
}

/// What all links share.
struct Shared {
    config: RedisConfig,
    keys: Arc<KeyMap>,
    namespaces: Vec<Arc<Namespace>>,
    hasher: OwnerHasher,
    out: mpsc::Sender<PipelineInput>,
    /// A link found that the topology is not what it was: a slot moved, a node is gone or no longer a primary.
    rediscover: Notify,
}

/// What one link is built from.
struct LinkSetup {
    id: LinkId,
    /// As it was found; its replicas come and go.
    node: Primary,
    replicas: watch::Receiver<Vec<Address>>,
    /// A failover put this node in the place of another one: its first `Up` says `Past::OtherServer`.
    takes_over: bool,
    shared: Arc<Shared>,
    /// Keys of this node that the ledger wants to be read now.
    reads: mpsc::Receiver<Vec<Box<str>>>,
    status: Arc<Mutex<LinkStatus>>,
}
