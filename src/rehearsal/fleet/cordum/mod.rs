//! A small Cordum: scheduler, workflow engine and gateway on two nodes or more, with real locks in a real Redis and logs in their real
//! forms, about what really happened to those locks.
//!
//! The demonstration, the end-to-end tests, the dashboards and their pictures all run this fleet. Keys, TTLs and renewal
//! intervals are those of the preset `cordum`, divided by the speed of the [`TimeScale`]; how much there is to do is said by the
//! [`Load`]. Each [`Fault`] is switched at run time, and whoever runs the fleet may restart its Redis, too. What a service
//! says follows from what Redis answered, never from the fault; what was met is kept in [`Totals`], the truth to compare
//! with.
//!
//! ```text
//!  services --> Proxy (delay) --> Redis        one Worker for each of their tasks, one Proxy for each node
//!     |---> Record, one for each namespace     what Redis should have seen
//!     |---> Account                            what logs should tell, each failure once
//!     '---> logs                               Said --> LineWriter --> files
//! ```
//!
//! `demo`, tests and examples call [`Fleet`]. In reading order:
//!
//! * `pace`, `load`, `configuration`: speed, size, and the exporter's settings
//! * `worker`, `process`: locking like Cordum; one process and its log
//! * `scheduler`, `workflow_engine`, `gateway`, `loops`: the services
//! * `bus`: where work comes from
//! * `fault`, `trouble`: what can fail, and the resulting errors
//! * `messages`, `chatter`, `line`: log messages, and the forms of a log line
//! * `account`: which failures the logs report

mod account;
mod bus;
pub mod chatter;
mod configuration;
mod fault;
mod gateway;
mod line;
mod load;
mod loops;
mod messages;
mod pace;
mod process;
mod scheduler;
mod trouble;
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

pub use configuration::exporter_settings;
pub use fault::Fault;
pub use line::{CordumLogFormat, LineWriter, MILLISECOND, Nanos, SECOND};
pub use load::Load;
pub use messages::{NOT_OWNED, Said, Service};
pub use pace::TimeScale;
pub use worker::{RENEWAL_BUDGET, lock_key};

use super::{Failures, Proxy, Random, Truth, client_through};
use process::SimulatedProcess;
use worker::{CordumWorker, World};

/// The others stay healthy whatever is done to this one.
const FROZEN_NODE: &str = "b";
/// Longer than a run lock lives, and short enough that some job locks survive.
const FREEZE: Duration = Duration::from_secs(45);
const BETWEEN_FREEZES: Duration = Duration::from_secs(20);
/// Longer than three renewals of a job lock take, which is when its holder gives up.
const OUTAGE: Duration = Duration::from_secs(70);
const BETWEEN_OUTAGES: Duration = Duration::from_secs(30);
/// How much longer than the services wait for an answer a slow network takes, there and back.
const TOO_SLOW: f64 = 1.6;
/// Runs that each workflow engine works on at the same time.
const ENGINES: usize = 4;

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
    /// From the first failure to the last one, of those that the services met.
    pub burst: Duration,
}

/// A machine: its processes, and their way to Redis.
struct SimulatedHost {
    name: &'static str,
    processes: Vec<Arc<SimulatedProcess>>,
    proxy: Proxy,
}

pub struct Fleet {
    world: Arc<World>,
    nodes: Vec<Arc<SimulatedHost>>,
    workers: JoinSet<anyhow::Result<()>>,
    /// Faults that come and go until this ends them.
    recurring: BTreeMap<Fault, CancellationToken>,
    lost_in_failover: u64,
}

impl Fleet {
    /// Starts all services. `redis` is `redis://[:PASSWORD@]HOST:PORT/DATABASE`, `logs` a directory that exists.
    pub async fn start(redis: &str, logs: &Path, pace: TimeScale, load: Load, seed: u64) -> anyhow::Result<Self> {
        let direct = Client::open(redis).context("not the URL of a Redis")?;
        let ConnectionAddr::Tcp(host, port) = direct.get_connection_info().addr() else {
            anyhow::bail!("the fleet needs a Redis at redis://HOST:PORT, without TLS");
        };
        let server = format!("{host}:{port}");
        let world = Arc::new(World::new(pace, load));
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
                    // One after the other on all nodes, so that at any time some have most of their work before them.
                    let place = self.nodes.len() * ENGINES + number;
                    let wait = load.longest_run() * place as f64 / (load.n_nodes * ENGINES) as f64;
                    self.workers.spawn(workflow_engine::run(worker(), self.world.pace.seconds(wait)));
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
        let pace = &self.world.pace;
        let too_slow = self.world.patience().mul_f64(TOO_SLOW / 2.0);
        match fault {
            Fault::SlowNetwork => self.nodes.iter().for_each(|node| node.proxy.delay(too_slow)),
            Fault::Pauses => {
                let Some(node) = self.nodes.iter().find(|node| node.name == FROZEN_NODE).cloned() else { return };
                let rhythm = (pace.of(FREEZE), pace.of(BETWEEN_FREEZES));
                self.recur(fault, rhythm, move |frozen| {
                    node.processes.iter().for_each(|process| process.gate.close(frozen))
                });
            }
            Fault::Outages => {
                let Some(node) = self.nodes.last().cloned() else { return };
                let rhythm = (pace.of(OUTAGE), pace.of(BETWEEN_OUTAGES));
                self.recur(fault, rhythm, move |is_out| {
                    node.proxy.delay(if is_out { too_slow } else { Duration::ZERO });
                });
            }
            Fault::SlowAdmissions | Fault::LateRenewals | Fault::Leaderless => self.world.faults.set(fault, true),
        }
    }

    /// Sets it and takes it back, again and again; at the end it is taken back.
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

    /// From now on Redis is another one, HOST:PORT, that may have none of the locks.
    pub fn fail_over(&mut self, redis: &str) {
        self.nodes.iter().for_each(|node| node.proxy.redirect(redis));
        self.lost_in_failover += self.world.records.values().map(|record| record.truth().held).sum::<u64>();
    }

    pub fn totals(&self) -> Totals {
        let locks = self.world.records.iter().map(|(namespace, record)| (*namespace, record.truth())).collect();
        Totals { locks, lost_in_failover: self.lost_in_failover, ..self.world.account.totals() }
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
