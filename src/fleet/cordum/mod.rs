//! A small Cordum: scheduler, workflow engine and gateway on two nodes, with real locks in a real Redis and logs in their real
//! forms, about what really happened to those locks.
//!
//! Keys, TTLs and renewal intervals are those of the preset `cordum`, divided by the speed of the [`Pace`]. Faults are
//! switched at run time: node b freezes again and again for longer than its locks live, or the network to Redis gets
//! slower than the services wait. Whoever runs the fleet may restart its Redis, too. What a service says follows from
//! what Redis answered, never from the fault; what was met is kept in [`Totals`], the truth to compare with.
//!
//! ```text
//!  services --> Proxy (delay) --> Redis        one Link for each worker
//!     |---> Record, one for each namespace     what Redis should have seen
//!     |---> Account                            what logs should tell, each failure once
//!     '---> logs                               Said --> LineWriter --> files
//! ```

mod account;
mod bus;
pub mod chatter;
mod gateway;
mod line;
mod link;
mod loops;
mod pace;
mod process;
mod said;
mod scheduler;
mod worker;
mod workflow_engine;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use redis::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use line::{Form, LineWriter, MILLISECOND, Nanos, SECOND};
pub use pace::Pace;
pub use said::{NOT_OWNED, Said, Service};

use super::{Failures, Proxy, Random, Truth};
use process::Process;
use worker::{Worker, World};

/// The other one stays healthy whatever is done to this one.
const FROZEN_NODE: &str = "b";
const NODES: [&str; 2] = ["a", FROZEN_NODE];
/// Longer than a run lock lives, and short enough that some job locks survive.
const FREEZE: Duration = Duration::from_secs(45);
const BETWEEN_FREEZES: Duration = Duration::from_secs(20);
/// How much longer than the services wait for an answer a slow network takes, there and back.
const TOO_SLOW: f64 = 1.6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Node b freezes beyond its TTLs, wakes up, and freezes again, as with long collections of garbage or a starved machine.
    Pauses,
    /// Every answer of Redis takes longer than services wait for it.
    SlowNetwork,
}

/// What the fleet did and met so far.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// What the logs tell, each failure once.
    pub failures: Failures,
    /// What happened to locks, by namespace.
    pub locks: BTreeMap<&'static str, Truth>,
    /// Requests whose answer never came: Redis may have done them or not.
    pub unanswered: u64,
    /// Times that two replicas could not have one lock, close together: one failure or two, depending on whose log is read first.
    pub ambiguous: u64,
    /// Locks that were held when Redis was replaced.
    pub lost_in_failover: u64,
}

pub struct Fleet {
    world: Arc<World>,
    processes: Vec<Arc<Process>>,
    workers: JoinSet<anyhow::Result<()>>,
    proxy: Proxy,
    /// Ends the pauses.
    pauses: Option<CancellationToken>,
    lost_in_failover: u64,
}

impl Fleet {
    /// Starts all services. `redis` is HOST:PORT, `logs` a directory that exists.
    pub async fn start(redis: &str, logs: &Path, pace: Pace, seed: u64) -> anyhow::Result<Self> {
        let proxy = Proxy::start(redis).await?;
        let client = Client::open(format!("redis://127.0.0.1:{}/", proxy.port()))?;
        let world = Arc::new(World::new(pace, client));
        let mut fleet =
            Self { world, processes: Vec::new(), workers: JoinSet::new(), proxy, pauses: None, lost_in_failover: 0 };
        let mut random = Random::new(seed);
        for node in NODES {
            for service in [Service::Scheduler, Service::WorkflowEngine, Service::Gateway] {
                fleet.start_process(service, node, logs, &mut random)?;
            }
        }
        Ok(fleet)
    }

    fn start_process(
        &mut self,
        service: Service,
        node: &'static str,
        logs: &Path,
        random: &mut Random,
    ) -> anyhow::Result<()> {
        let process = Arc::new(Process::start(service, node, logs)?);
        let mut worker = || Worker::new(&process, &self.world, Random::new(random.number()));
        match service {
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
                for _ in 0..4 {
                    self.workers.spawn(workflow_engine::run(worker()));
                }
                for duty in [loops::WORKFLOW_RECONCILER, loops::DELAY_POLLER] {
                    self.workers.spawn(loops::run(worker(), duty));
                }
            }
            Service::Gateway => {
                for _ in 0..2 {
                    self.workers.spawn(gateway::approve(worker()));
                }
                self.workers.spawn(gateway::admit(worker()));
            }
        }
        self.processes.push(process);
        Ok(())
    }

    pub fn begin(&mut self, fault: Fault) {
        match fault {
            Fault::SlowNetwork => self.proxy.delay(self.world.pace.patience().mul_f64(TOO_SLOW / 2.0)),
            Fault::Pauses if self.pauses.is_none() => {
                let end = CancellationToken::new();
                let on_node = self.processes.iter().filter(|process| process.node == FROZEN_NODE);
                let frozen: Vec<Arc<Process>> = on_node.cloned().collect();
                let (freeze, between) = (self.world.pace.of(FREEZE), self.world.pace.of(BETWEEN_FREEZES));
                tokio::spawn(process::freeze_repeatedly(frozen, freeze, between, end.clone()));
                self.pauses = Some(end);
            }
            Fault::Pauses => {}
        }
    }

    /// Ends all faults.
    pub fn calm(&mut self) {
        self.proxy.delay(Duration::ZERO);
        if let Some(end) = self.pauses.take() {
            end.cancel();
        }
    }

    /// From now on Redis is another one, HOST:PORT, that has none of the locks.
    pub fn fail_over(&mut self, redis: &str) {
        self.proxy.redirect(redis);
        self.lost_in_failover += self.world.records.values().map(|record| record.truth().held).sum::<u64>();
    }

    pub fn totals(&self) -> Totals {
        let (failures, unanswered, ambiguous) = self.world.account.totals();
        let locks = self.world.records.iter().map(|(namespace, record)| (*namespace, record.truth())).collect();
        Totals { failures, locks, unanswered, ambiguous, lost_in_failover: self.lost_in_failover }
    }

    /// Waits until a worker fails, which none should.
    pub async fn failed(&mut self) -> anyhow::Error {
        match self.workers.join_next().await {
            Some(Ok(Err(error))) => error,
            Some(Err(error)) => anyhow::Error::new(error).context("a worker of the fleet panicked"),
            Some(Ok(Ok(()))) | None => anyhow::anyhow!("a worker of the fleet ended by itself"),
        }
    }

    /// Ends all faults and then all work: held locks are released, and those that nobody releases expire.
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
