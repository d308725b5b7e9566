//! A small Cordum: scheduler, workflow engine and gateway on two or three nodes. Their locks are
//! real locks in a real Redis, and their logs report in Cordum's own formats what happened to those
//! locks.
//!
//! The demo, the end-to-end tests, the dashboards and their pictures all run this fleet. Keys, TTLs
//! and renewal intervals are those of the preset `cordum`, divided by the speed of the
//! [`TimeScale`]. [`Load`] sets the amount of work. Each [`Fault`] can be switched on and off at
//! run time, and the caller can replace the Redis. A service logs what follows from the reply of
//! Redis, never from the fault. [`Totals`] contains what really happened, for comparison with the
//! exporter.
//!
//! ```text
//!  services --> Proxy (delay) --> Redis   one CordumWorker for each task, one Proxy for each node
//!     |---> OperationLog                  per namespace: what Redis should show
//!     |---> FailureRecord                 what logs should report, each failure once
//!     '---> logs                          Said --> LineWriter --> files
//! ```
//!
//! `demo`, tests and examples call [`Fleet`]. In reading order:
//!
//! * `settings`: speed, size, and the exporter's settings
//! * `worker`, `process`: locking like Cordum; one process and its log
//! * `scheduler`, `workflow_engine`, `gateway`, `loops`: the services
//! * `bus`: where work comes from
//! * `faults`: what can fail, and the resulting errors
//! * `messages`, `chatter`, `line`: log messages, and the formats of a log line
//! * `failure_record`: which failures the logs report

mod bus;
pub mod chatter;
mod failure_record;
mod faults;
mod gateway;
mod line;
mod loops;
mod messages;
mod process;
mod scheduler;
mod settings;
mod worker;
mod workflow_engine;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use redis::{Client, ConnectionAddr};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

pub use faults::Fault;
pub use line::{CordumLogFormat, LineWriter, MILLISECOND, Nanos, SECOND};
pub use messages::{LogMessage, NOT_OWNED, Service};
pub use settings::{Load, TimeScale, exporter_settings};
pub use worker::{RENEWAL_BUDGET, lock_key};

use super::{Failures, Proxy, Random, Truth, client_through};
use process::SimulatedProcess;
use worker::{CordumWorker, World};

/// The node that freezes. The other nodes stay healthy.
const FROZEN_NODE: &str = "b";
/// Longer than the TTL of a run lock, and short enough that some job locks survive.
const FREEZE: Duration = Duration::from_secs(45);
const BETWEEN_FREEZES: Duration = Duration::from_secs(20);
/// Longer than three renewal intervals of a job lock. After three failed renewals its holder gives
/// up.
const OUTAGE: Duration = Duration::from_secs(70);
const BETWEEN_OUTAGES: Duration = Duration::from_secs(30);
/// How many times longer than the timeout of the services a slow network takes for a round trip.
const TOO_SLOW: f64 = 1.6;
/// How many runs each workflow engine handles at the same time.
const ENGINES: usize = 4;

/// What the fleet did, and the failures that it had so far.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// The failures in the logs, each counted once.
    pub failures: Failures,
    /// What happened to locks, by lock namespace.
    pub locks: BTreeMap<&'static str, Truth>,
    /// Requests without a reply. Redis may have executed them or not.
    pub unanswered: u64,
    /// How many times two replicas failed to acquire the same lock shortly after each other. Such a
    /// pair is one failure or two, depending on which log the exporter reads first.
    pub ambiguous: u64,
    /// Locks that were held when Redis was replaced.
    pub lost_in_failover: u64,
    /// The time from the first failure to the last one.
    pub burst: Duration,
}

/// A machine: its processes, and their connection to Redis.
struct SimulatedHost {
    name: &'static str,
    processes: Vec<Arc<SimulatedProcess>>,
    proxy: Proxy,
}

pub struct Fleet {
    world: Arc<World>,
    nodes: Vec<Arc<SimulatedHost>>,
    workers: JoinSet<anyhow::Result<()>>,
    /// Faults that repeat until their token is canceled.
    recurring: BTreeMap<Fault, CancellationToken>,
    lost_in_failover: u64,
}

impl Fleet {
    /// Starts all services. `redis` is `redis://[:PASSWORD@]HOST:PORT/DATABASE`. `logs` must be an
    /// existing directory.
    pub async fn start(redis: &str, logs: &Path, time_scale: TimeScale, load: Load, seed: u64) -> anyhow::Result<Self> {
        let direct = Client::open(redis).context("not the URL of a Redis")?;
        let ConnectionAddr::Tcp(host, port) = direct.get_connection_info().addr() else {
            anyhow::bail!("the fleet needs a Redis at redis://HOST:PORT, without TLS");
        };
        let server = format!("{host}:{port}");
        let world = Arc::new(World::new(time_scale, load));
        let mut fleet =
            Self { world, nodes: Vec::new(), workers: JoinSet::new(), recurring: BTreeMap::new(), lost_in_failover: 0 };
        let mut random = Random::new(seed);
        for name in fleet.world.load.nodes()? {
            let proxy = Proxy::start(&server).await?;
            let client = client_through(proxy.port(), &direct)?;
            let mut node = SimulatedHost { name, processes: Vec::new(), proxy };
            for service in [Service::Scheduler, Service::WorkflowEngine, Service::Gateway] {
                let process = Arc::new(SimulatedProcess::start(service, name, logs)?);
                fleet.start_workers(&process, &client, &mut random);
                node.processes.push(process);
            }
            fleet.nodes.push(Arc::new(node));
        }
        Ok(fleet)
    }

    fn start_workers(&mut self, process: &Arc<SimulatedProcess>, client: &Client, random: &mut Random) {
        let load = &self.world.load;
        let mut worker = || CordumWorker::new(process, &self.world, client, Random::new(random.number()));
        match process.service {
            Service::Scheduler => {
                for _ in 0..3 {
                    self.workers.spawn(scheduler::run(worker()));
                }
                for duty in [loops::RECONCILER, loops::REPLAYER] {
                    self.workers.spawn(loops::run(worker(), duty));
                }
                self.workers.spawn(loops::write_snapshots(worker()));
            }
            Service::WorkflowEngine => {
                for number in 0..ENGINES {
                    // Stagger the starts over all nodes, so that at any time some engines have most
                    // of their work ahead of them.
                    let place = self.nodes.len() * ENGINES + number;
                    let wait = load.longest_run() * place as f64 / (load.n_nodes * ENGINES) as f64;
                    self.workers.spawn(workflow_engine::run(worker(), self.world.time_scale.seconds(wait)));
                }
                for duty in [loops::WORKFLOW_RECONCILER, loops::DELAY_POLLER] {
                    self.workers.spawn(loops::run(worker(), duty));
                }
            }
            Service::Gateway => {
                for _ in 0..2 {
                    self.workers.spawn(gateway::approve(worker()));
                }
                for _ in 0..load.admitters {
                    self.workers.spawn(gateway::admit(worker()));
                }
            }
        }
    }

    pub fn begin(&mut self, fault: Fault) {
        let time_scale = &self.world.time_scale;
        let too_slow = self.world.patience().mul_f64(TOO_SLOW / 2.0);
        match fault {
            Fault::SlowNetwork => self.nodes.iter().for_each(|node| node.proxy.delay(too_slow)),
            Fault::Pauses => {
                let Some(node) = self.nodes.iter().find(|node| node.name == FROZEN_NODE).cloned() else { return };
                let rhythm = (time_scale.of(FREEZE), time_scale.of(BETWEEN_FREEZES));
                self.recur(fault, rhythm, move |frozen| {
                    node.processes.iter().for_each(|process| process.gate.close(frozen))
                });
            }
            Fault::Outages => {
                let Some(node) = self.nodes.last().cloned() else { return };
                let rhythm = (time_scale.of(OUTAGE), time_scale.of(BETWEEN_OUTAGES));
                self.recur(fault, rhythm, move |is_out| {
                    node.proxy.delay(if is_out { too_slow } else { Duration::ZERO });
                });
            }
            Fault::SlowAdmissions | Fault::LateRenewals | Fault::Leaderless => self.world.faults.set(fault, true),
        }
    }

    /// Switches the fault on and off repeatedly. It ends switched off.
    fn recur(&mut self, fault: Fault, (on, off): (Duration, Duration), set: impl Fn(bool) + Send + 'static) {
        let Entry::Vacant(place) = self.recurring.entry(fault) else { return };
        let end = place.insert(CancellationToken::new()).clone();
        tokio::spawn(async move {
            while !end.is_cancelled() {
                set(true);
                end.run_until_cancelled(sleep(on)).await;
                set(false);
                end.run_until_cancelled(sleep(off)).await;
            }
        });
    }

    /// Ends all faults.
    pub fn calm(&mut self) {
        for end in std::mem::take(&mut self.recurring).into_values() {
            end.cancel();
        }
        for fault in [Fault::SlowAdmissions, Fault::LateRenewals, Fault::Leaderless] {
            self.world.faults.set(fault, false);
        }
        self.nodes.iter().for_each(|node| node.proxy.delay(Duration::ZERO));
    }

    /// Redirects the fleet to another Redis at HOST:PORT, which may have none of the locks.
    pub fn fail_over(&mut self, redis: &str) {
        self.nodes.iter().for_each(|node| node.proxy.redirect(redis));
        self.lost_in_failover += self.world.records.values().map(|record| record.truth().held).sum::<u64>();
    }

    pub fn totals(&self) -> Totals {
        let locks = self.world.records.iter().map(|(namespace, record)| (*namespace, record.truth())).collect();
        Totals { locks, lost_in_failover: self.lost_in_failover, ..self.world.failure_record.totals() }
    }

    /// Waits until a worker fails. No worker should fail.
    pub async fn failed(&mut self) -> anyhow::Error {
        match self.workers.join_next().await {
            Some(Ok(Err(error))) => error,
            Some(Err(error)) => anyhow::Error::new(error).context("a worker of the fleet panicked"),
            Some(Ok(Ok(()))) | None => anyhow::anyhow!("a worker of the fleet ended by itself"),
        }
    }

    /// Ends all faults and then all work. Held locks are released, or expire if they are never
    /// released.
    pub async fn stop(&mut self) -> anyhow::Result<()> {
        self.calm();
        self.world.stop.cancel();
        while let Some(ended) = self.workers.join_next().await {
            ended.context("a worker of the fleet panicked")??;
        }
        Ok(())
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.calm();
    }
}
