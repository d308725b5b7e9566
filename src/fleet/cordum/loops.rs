//! What one replica does for all: loops whose lock is taken at every tick and never released, and the writer of snapshots,
//! whose lock is.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::Said;
use super::account::Failure;
use super::fault::Fault;
use super::link::Trouble;
use super::worker::{Held, Lock, Worker};

/// A duty is known by the namespace of its lock.
pub(super) const RECONCILER: &str = "reconciler";
pub(super) const REPLAYER: &str = "replayer";
pub(super) const WORKFLOW_RECONCILER: &str = "workflow_reconciler";
pub(super) const DELAY_POLLER: &str = "delay_poller";

/// So that nothing is noted at the very moment of the expiry.
const MARGIN: Duration = Duration::from_millis(50);

pub(super) async fn run(mut worker: Worker, duty: &'static str) -> anyhow::Result<()> {
    let lock = Lock::new(duty, "");
    let ttl = worker.world.pace.ttl(duty);
    // A lock lives for two polls. Replicas do not start at the same moment.
    let poll = ttl / 2;
    let start = worker.random.between(Duration::ZERO, poll);
    worker.rest(start).await;
    // Held until its TTL runs out.
    let mut left: Option<Held> = None;
    while !worker.is_stopping() {
        if duty == DELAY_POLLER && worker.world.faults.has(Fault::Leaderless) {
            worker.rest(poll).await;
            continue;
        }
        match worker.acquire(&lock).await {
            Ok(Some(mut held)) => {
                // It would not be free otherwise.
                if let Some(before) = left.take() {
                    worker.leave(&lock, &before);
                }
                let length = worker.random.between(poll / 6, poll);
                worker.work(&lock, &mut held, length).await?;
                left = Some(held);
            }
            Ok(None) => {}
            Err(trouble) => tell_acquisition_failed(&worker, &lock, &trouble)?,
        }
        worker.rest(poll).await;
        if let Some(before) = left.take_if(|held| Instant::now() >= held.set + ttl + MARGIN) {
            worker.leave(&lock, &before);
        }
    }
    if let Some(before) = left {
        sleep_until(before.set + ttl + MARGIN).await;
        worker.leave(&lock, &before);
    }
    Ok(())
}

/// The delay poller has no line for it.
fn tell_acquisition_failed(worker: &Worker, lock: &Lock, trouble: &Trouble) -> anyhow::Result<()> {
    let error = trouble.text.as_str();
    let said = match lock.namespace {
        DELAY_POLLER => return Ok(()),
        WORKFLOW_RECONCILER => Said::WorkflowReconcilerAcquisitionFailed { error },
        _ => Said::LeaderAcquisitionFailed { error },
    };
    let at = worker.process.say(said)?;
    worker.world.account.acquire_failed(Failure { lock, at, reason: trouble.reason });
    Ok(())
}

pub(super) async fn write_snapshots(mut worker: Worker) -> anyhow::Result<()> {
    let lock = Lock::new("snapshot", "");
    let instance = format!("scheduler-{}", worker.process.node);
    while !worker.is_stopping() {
        match worker.acquire(&lock).await {
            Ok(Some(mut held)) => {
                let length = worker.between((0.5, 1.0));
                worker.work(&lock, &mut held, length).await?;
                // What else a failed release says is said at a level that is not logged.
                worker.release_or_tell(&lock, &held).await?;
            }
            // The same goes for a lock that another replica has.
            Ok(None) => {}
            Err(trouble) => {
                let said = Said::SnapshotAcquireFailed { instance: &instance, error: &trouble.text };
                let at = worker.process.say(said)?;
                worker.world.account.acquire_failed(Failure { lock: &lock, at, reason: trouble.reason });
            }
        }
        let pause = worker.between((4.0, 6.0));
        worker.rest(pause).await;
    }
    Ok(())
}
