//! The work that one replica does for all: loops that take their lock at every tick and never
//! release it, and the writer of snapshots, which releases its lock.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::LogMessage;
use super::failure_record::ReportedFailure;
use super::faults::Fault;
use super::faults::SimulatedError;
use super::worker::{CordumLock, CordumWorker};
use crate::rehearsal::fleet::{End, WorkerHold};

/// The name of a duty is the lock namespace of its lock.
pub(super) const RECONCILER: &str = "reconciler";
pub(super) const REPLAYER: &str = "replayer";
pub(super) const WORKFLOW_RECONCILER: &str = "workflow_reconciler";
pub(super) const DELAY_POLLER: &str = "delay_poller";

/// Added to the TTL, so that nothing is recorded at exactly the moment of the expiration.
const MARGIN: Duration = Duration::from_millis(50);

pub(super) async fn run(mut worker: CordumWorker, duty: &'static str) -> anyhow::Result<()> {
    let lock = worker.world.lock(duty, "");
    let ttl = worker.world.time_scale.ttl(duty);
    // A lock lives for two polls. A random start keeps replicas from starting at the same moment.
    let poll = ttl / 2;
    let start = worker.random.between(Duration::ZERO, poll);
    worker.rest(start).await;
    // A hold that is left to expire.
    let mut left: Option<WorkerHold> = None;
    while !worker.is_stopping() {
        if duty == DELAY_POLLER && worker.world.faults.has(Fault::Leaderless) {
            worker.rest(poll).await;
            continue;
        }
        match worker.acquire(&lock).await {
            Ok(Some(hold)) => {
                // The lock was free, so the previous hold has expired.
                if let Some(before) = left.take() {
                    before.ended(End::Expired);
                }
                let length = worker.random.between(poll / 6, poll);
                worker.work(&lock, &hold, length).await?;
                left = Some(hold);
            }
            Ok(None) => {}
            Err(error) => log_acquisition_failure(&worker, &lock, &error)?,
        }
        worker.rest(poll).await;
        if let Some(before) = left.take_if(|hold| Instant::now() >= hold.last_sign() + ttl + MARGIN) {
            before.ended(End::Expired);
        }
    }
    if let Some(before) = left {
        sleep_until(before.last_sign() + ttl + MARGIN).await;
        before.ended(End::Expired);
    }
    Ok(())
}

/// Logs a failed acquisition. The delay poller of Cordum logs nothing in this case.
fn log_acquisition_failure(worker: &CordumWorker, lock: &CordumLock, error: &SimulatedError) -> anyhow::Result<()> {
    let (error, reason) = (error.text.as_str(), error.reason);
    let message = match lock.namespace {
        DELAY_POLLER => return Ok(()),
        WORKFLOW_RECONCILER => LogMessage::WorkflowReconcilerAcquisitionFailed { error },
        _ => LogMessage::LeaderAcquisitionFailed { error },
    };
    let at = worker.process.log(message)?;
    worker.world.failure_record.acquire_failed(ReportedFailure { lock, at, reason });
    Ok(())
}

pub(super) async fn write_snapshots(mut worker: CordumWorker) -> anyhow::Result<()> {
    let lock = worker.world.lock("snapshot", "");
    let instance = format!("scheduler-{}", worker.process.node);
    while !worker.is_stopping() {
        match worker.acquire(&lock).await {
            Ok(Some(hold)) => {
                let length = worker.between((0.5, 1.0));
                worker.work(&lock, &hold, length).await?;
                // Cordum logs other errors of this release at a level that is not enabled.
                worker.release_or_report(&lock, &hold).await?;
            }
            // Cordum does not log either that another replica holds the lock.
            Ok(None) => {}
            Err(error) => {
                let message = LogMessage::SnapshotAcquireFailed { instance: &instance, error: &error.text };
                let at = worker.process.log(message)?;
                worker.world.failure_record.acquire_failed(ReportedFailure { lock: &lock, at, reason: error.reason });
            }
        }
        let pause = worker.between((4.0, 6.0));
        worker.rest(pause).await;
    }
    Ok(())
}
