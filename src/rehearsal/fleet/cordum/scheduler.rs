//! The scheduler: one lock for each job. It renews the lock, gives it up after three failed
//! renewals in a row, and tries a failed release a second time.

use super::LogMessage;
use super::failure_record::ReportedFailure;
use super::worker::{CordumLock, CordumWorker};
use crate::rehearsal::fleet::{End, Kept, WorkerHold};

pub(super) async fn run(mut worker: CordumWorker) -> anyhow::Result<()> {
    while !worker.is_stopping() {
        let job = worker.world.jobs.next(&mut worker.random);
        let lock = worker.world.lock("scheduler", &job);
        match worker.acquire_patiently(&lock).await {
            Ok(Some(hold)) => handle(&mut worker, &lock, hold).await?,
            // Cordum does not log a busy lock: the bus delivers the job again.
            Ok(None) => {}
            Err(error) => {
                let at = worker.process.log(LogMessage::JobAcquisitionFailed { job: &job, error: &error.text })?;
                worker.world.failure_record.acquire_failed(ReportedFailure { lock: &lock, at, reason: error.reason });
            }
        }
        worker.process.chat(&mut worker.random)?;
        let pause = worker.between((2.0, 10.0));
        worker.rest(pause).await;
    }
    Ok(())
}

async fn handle(worker: &mut CordumWorker, lock: &CordumLock, hold: WorkerHold) -> anyhow::Result<()> {
    let job = lock.id.as_str();
    let length = worker.between((5.0, 90.0));
    match worker.work(lock, &hold, length).await? {
        Kept::GivenUp => {
            worker.world.failure_record.abandoned(lock);
            worker.process.log(LogMessage::JobReleaseSkipped { job })?;
            hold.ended(End::Expired);
        }
        Kept::Done => {
            finish(worker, lock)?;
            release(worker, lock, &hold).await?;
        }
    }
    worker.world.jobs.acknowledge(job);
    Ok(())
}

/// Finishes the job. A second worker finds the job in a final state, and its write is rejected.
fn finish(worker: &CordumWorker, lock: &CordumLock) -> anyhow::Result<()> {
    let (job, state) = (lock.id.as_str(), "SUCCEEDED");
    if worker.world.jobs.finish(job) {
        worker.process.log(LogMessage::JobStateChanged { job, state })?;
    } else {
        let error = "invalid transition SUCCEEDED -> SUCCEEDED";
        worker.process.log(LogMessage::JobStateRefused { job, state, error })?;
        worker.world.failure_record.stale_write_rejected(lock);
    }
    Ok(())
}

async fn release(worker: &mut CordumWorker, lock: &CordumLock, hold: &WorkerHold) -> anyhow::Result<()> {
    let job = lock.id.as_str();
    let Some(error) = worker.release_or_report(lock, hold).await? else { return Ok(()) };
    let at = worker.process.log(LogMessage::JobReleaseFailed { job, error: &error.text })?;
    worker.world.failure_record.release_failed(ReportedFailure { lock, at, reason: error.reason });
    if let Some(error) = worker.release_or_report(lock, hold).await? {
        let ttl = worker.world.time_scale.ttl(lock.namespace);
        worker.process.log(LogMessage::JobReleaseRetryFailed { job, ttl, error: &error.text })?;
    }
    Ok(())
}
