//! The gateway: short locks that are never renewed. One kind is for approvals of jobs (the
//! scheduler's key with a shorter TTL), the other for admitting the runs of an organization.

use super::LogMessage;
use super::failure_record::ReportedFailure;
use super::faults::Fault;
use super::worker::CordumWorker;

/// How long an admission takes, in seconds.
const USUAL: (f64, f64) = (0.5, 1.5);
/// Longer than the TTL of the lock.
const SLOW: (f64, f64) = (13.0, 16.0);

pub(super) async fn approve(mut worker: CordumWorker) -> anyhow::Result<()> {
    while !worker.is_stopping() {
        let job = worker.random.uuid().to_string();
        let lock = worker.world.lock("approval", &job);
        match worker.acquire_patiently(&lock).await {
            Ok(Some(hold)) => {
                let length = worker.between((1.0, 6.0));
                worker.work(&lock, &hold, length).await?;
                if let Some(error) = worker.release_or_report(&lock, &hold).await? {
                    let at = worker.process.log(LogMessage::ApprovalReleaseFailed { job: &job, error: &error.text })?;
                    worker.world.failure_record.release_failed(ReportedFailure {
                        lock: &lock,
                        at,
                        reason: error.reason,
                    });
                }
            }
            // No other worker uses the id of this job, so its lock is free.
            Ok(None) => {}
            Err(error) => {
                let at = worker.process.log(LogMessage::ApprovalAcquireFailed { job: &job, error: &error.text })?;
                worker.world.failure_record.acquire_failed(ReportedFailure { lock: &lock, at, reason: error.reason });
            }
        }
        worker.process.chat(&mut worker.random)?;
        let pause = worker.between((1.0, 5.0));
        worker.rest(pause).await;
    }
    Ok(())
}

pub(super) async fn admit(mut worker: CordumWorker) -> anyhow::Result<()> {
    while !worker.is_stopping() {
        // Each gateway has its own organizations.
        let number = worker.random.below(worker.world.load.organizations);
        let org = format!("org-{}{number}", worker.process.node);
        let lock = worker.world.lock("admission", &org);
        let failed = match worker.acquire_patiently(&lock).await {
            Ok(Some(hold)) => {
                let length = worker.between(if worker.world.faults.has(Fault::SlowAdmissions) { SLOW } else { USUAL });
                worker.work(&lock, &hold, length).await?;
                if let Some(error) = worker.release_or_report(&lock, &hold).await? {
                    let at =
                        worker.process.log(LogMessage::AdmissionReleaseFailed { org: &org, error: &error.text })?;
                    worker.world.failure_record.release_failed(ReportedFailure {
                        lock: &lock,
                        at,
                        reason: error.reason,
                    });
                }
                None
            }
            // Cordum logs only the error of the expired context here.
            Ok(None) => Some(("context deadline exceeded".to_owned(), "busy")),
            Err(error) => Some((error.text, error.reason)),
        };
        if let Some((error, reason)) = failed {
            let at = worker.process.log(LogMessage::AdmissionFailed { org: &org, error: &error })?;
            worker.world.failure_record.acquire_failed(ReportedFailure { lock: &lock, at, reason });
        }
        let pause = worker.between(worker.world.load.between_admissions);
        worker.rest(pause).await;
    }
    Ok(())
}
