//! What all workers of the fleet do with locks: take, renew and release them like Cordum's lock
//! store, and record the results.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redis::Client;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::bus::Bus;
use super::failure_record::{FailureRecord, ReportedFailure};
use super::faults::SimulatedError;
use super::faults::{Fault, Faults};
use super::process::SimulatedProcess;
use super::{Load, LogMessage, TimeScale};
use crate::rehearsal::fleet::{self, Kept, LockProgram, LockReply, OperationLog, Random, RenewalAction, WorkerHold};

/// The lock namespaces of the preset whose locks the fleet takes.
pub(super) const NAMESPACES: [&str; 9] = [
    "scheduler",
    "approval",
    "reconciler",
    "replayer",
    "snapshot",
    "workflow",
    "admission",
    "workflow_reconciler",
    "delay_poller",
];

/// After this many failed renewals in a row the holder of a job lock gives up. Holders of other
/// locks never give up.
pub const RENEWAL_BUDGET: u32 = 3;

/// Cordum's timeout for one operation on a lock.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(2);
/// The interval between attempts to acquire a lock.
const BETWEEN_TRIES: Duration = Duration::from_millis(25);
/// In renewal intervals. A TTL is three of them.
const LATEST_RENEWAL: f64 = 2.2;

/// What all services share.
pub(super) struct World {
    pub(super) time_scale: TimeScale,
    pub(super) load: Load,
    pub(super) faults: Faults,
    pub(super) failure_record: FailureRecord,
    pub(super) records: BTreeMap<&'static str, Arc<OperationLog>>,
    pub(super) jobs: Bus,
    pub(super) runs: Bus,
    pub(super) stop: CancellationToken,
}

/// A lock of the preset.
pub(super) struct CordumLock {
    pub(super) namespace: &'static str,
    /// The id of the job, run or organization. Empty if there is only one such lock.
    pub(super) id: String,
    pub(super) inner: fleet::LockSpec,
}

pub(super) struct CordumWorker {
    pub(super) process: Arc<SimulatedProcess>,
    pub(super) world: Arc<World>,
    pub(super) random: Random,
    inner: fleet::Worker,
}

/// How a service reacts to the renewals of one lock.
struct ServiceRenewal<'a> {
    lock: &'a CordumLock,
    process: &'a SimulatedProcess,
    world: &'a World,
    random: &'a mut Random,
}

impl World {
    pub(super) fn new(time_scale: TimeScale, load: Load) -> Self {
        Self {
            failure_record: FailureRecord::new(time_scale.join_window()),
            records: NAMESPACES.into_iter().map(|namespace| (namespace, Arc::default())).collect(),
            // A little longer than the TTL of the locks, so that the lock is free when the job is
            // delivered again.
            jobs: Bus::new(time_scale.ttl("scheduler").mul_f64(1.2)),
            // Also longer than any run without a failure takes.
            runs: Bus::new(time_scale.ttl("workflow").max(time_scale.seconds(load.longest_run())).mul_f64(1.2)),
            stop: CancellationToken::new(),
            faults: Faults::default(),
            time_scale,
            load,
        }
    }

    /// How long to wait for a reply from Redis.
    pub(super) fn patience(&self) -> Duration {
        self.time_scale.of(OPERATION_TIMEOUT).max(self.load.shortest_patience)
    }

    pub(super) fn lock(&self, namespace: &'static str, id: &str) -> CordumLock {
        let inner = fleet::LockSpec {
            key: lock_key(namespace, id),
            ttl: self.time_scale.ttl(namespace),
            record: Arc::clone(&self.records[namespace]),
        };
        CordumLock { namespace, id: id.to_owned(), inner }
    }
}

impl CordumLock {
    pub(super) fn key(&self) -> &str {
        &self.inner.key
    }
}

/// Returns the key of a lock of the preset.
pub fn lock_key(namespace: &str, id: &str) -> String {
    match namespace {
        "scheduler" | "approval" => format!("cordum:scheduler:job:{id}"),
        "workflow" => format!("cordum:wf:run:lock:{id}"),
        "admission" => format!("cordum:wf:run:admission:{id}"),
        "reconciler" => "cordum:reconciler:default".to_owned(),
        "replayer" => "cordum:replayer:pending".to_owned(),
        "snapshot" => "cordum:scheduler:snapshot:writer".to_owned(),
        "workflow_reconciler" => "cordum:workflow-engine:reconciler:default".to_owned(),
        _ => "cordum:wf:delay:poller".to_owned(),
    }
}

impl CordumWorker {
    pub(super) fn new(process: &Arc<SimulatedProcess>, world: &Arc<World>, client: &Client, random: Random) -> Self {
        let inner = fleet::Worker::new(client, world.patience()).behind(&process.gate);
        Self { process: Arc::clone(process), world: Arc::clone(world), random, inner }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.world.stop.is_cancelled()
    }

    /// Returns a random duration. The limits are in seconds of the real Cordum.
    pub(super) fn between(&mut self, (shortest, longest): (f64, f64)) -> Duration {
        let time_scale = &self.world.time_scale;
        self.random.between(time_scale.seconds(shortest), time_scale.seconds(longest))
    }

    /// Waits, but not longer than the fleet runs.
    pub(super) async fn rest(&self, time: Duration) {
        self.inner.rest_until(Instant::now() + time, &self.world.stop).await;
    }

    /// Returns `None` if the lock is taken.
    pub(super) async fn acquire(&mut self, lock: &CordumLock) -> Result<Option<WorkerHold>, SimulatedError> {
        let taken = self.inner.take(&lock.inner).await;
        taken.map_err(|error| self.world.unanswered("try acquire", lock, &error))
    }

    /// Tries repeatedly for as long as Cordum does, 2 s.
    pub(super) async fn acquire_patiently(&mut self, lock: &CordumLock) -> Result<Option<WorkerHold>, SimulatedError> {
        let deadline = Instant::now() + self.world.time_scale.seconds(2.0);
        let taken = self.inner.wait_for(&lock.inner, (BETWEEN_TRIES, deadline), &self.world.stop).await;
        taken.map_err(|error| self.world.unanswered("try acquire", lock, &error))
    }

    /// Releases like the lock store, which logs its own line if the lock was lost. Returns the
    /// error of a failed release.
    pub(super) async fn release_or_report(
        &mut self,
        lock: &CordumLock,
        hold: &WorkerHold,
    ) -> anyhow::Result<Option<SimulatedError>> {
        Ok(match self.inner.release(hold).await {
            LockReply::Done => None,
            LockReply::Refused => {
                let at = self.process.log(LogMessage::TokenMismatch { key: lock.key() })?;
                self.world.failure_record.release_failed(ReportedFailure { lock, at, reason: "not_owned" });
                Some(SimulatedError::not_owned())
            }
            LockReply::Unanswered(error) => Some(self.world.unanswered("release", lock, &error)),
        })
    }

    /// Works for a while, or until the fleet stops. Renews the lock if its lock namespace has
    /// renewals.
    pub(super) async fn work(
        &mut self,
        lock: &CordumLock,
        hold: &WorkerHold,
        length: Duration,
    ) -> anyhow::Result<Kept> {
        let done = Instant::now() + length;
        let Self { process, world, random, inner } = self;
        let mut renewing = ServiceRenewal { lock, process, world, random };
        inner.keep(hold, Some(done), &world.stop, &mut renewing).await
    }
}

impl World {
    /// Returns the error as the lock store reports it.
    fn unanswered(&self, operation: &str, lock: &CordumLock, error: &fleet::UnknownResult) -> SimulatedError {
        self.failure_record.unanswered();
        let SimulatedError { text, reason } = SimulatedError::of(error);
        SimulatedError { text: format!("job store {operation} lock {}: {text}", lock.key()), reason }
    }
}

impl LockProgram for ServiceRenewal<'_> {
    fn renew_after(&mut self) -> Option<Duration> {
        let every = self.world.time_scale.renew_every(self.lock.namespace)?;
        let is_late = self.world.faults.has(Fault::LateRenewals);
        Some(if is_late { self.random.between(every, every.mul_f64(LATEST_RENEWAL)) } else { every })
    }

    fn on_reply(&mut self, _: &WorkerHold, answer: &LockReply, failures: u32) -> anyhow::Result<RenewalAction> {
        let lock = self.lock;
        let error = match answer {
            LockReply::Done => return Ok(RenewalAction::GoOn),
            LockReply::Refused => SimulatedError::not_owned(),
            LockReply::Unanswered(error) => self.world.unanswered("renew", lock, error),
        };
        let (id, error, reason) = (lock.id.as_str(), error.text.as_str(), error.reason);
        let gives_up = lock.namespace == "scheduler" && failures >= RENEWAL_BUDGET;
        let at = self.process.log(match lock.namespace {
            "scheduler" if gives_up => LogMessage::JobAbandoned { job: id, failures, error },
            "scheduler" => LogMessage::JobRenewalFailed { job: id, attempt: failures, error },
            "workflow" => LogMessage::RunRenewalFailed { run: id, error },
            _ => LogMessage::ReconcilerRenewalFailed { error },
        })?;
        let renew_every = self.world.time_scale.renew_every(lock.namespace).unwrap_or_default();
        self.world.failure_record.renewal_failed(ReportedFailure { lock, at, reason }, renew_every);
        Ok(if gives_up { RenewalAction::GiveUp } else { RenewalAction::GoOn })
    }
}
