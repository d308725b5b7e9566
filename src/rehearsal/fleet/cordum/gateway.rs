//! The gateway: short locks that are never renewed. One kind is for approvals of jobs (the
//! scheduler's key with a shorter TTL), the other for admitting the runs of an organization.

use super::Said;
use super::account::ReportedFailure;
use super::fault::Fault;
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
                if let Some(trouble) = worker.release_or_tell(&lock, &hold).await? {
                    let at = worker.process.say(Said::ApprovalReleaseFailed { job: &job, error: &trouble.text })?;
                    worker.world.account.release_failed(ReportedFailure { lock: &lock, at, reason: trouble.reason });
                }
            }
            // No other worker uses the id of this job, so its lock is free.
            Ok(None) => {}
            Err(trouble) => {
                let at = worker.process.say(Said::ApprovalAcquireFailed { job: &job, error: &trouble.text })?;
                worker.world.account.acquire_failed(ReportedFailure { lock: &lock, at, reason: trouble.reason });
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
                if let Some(trouble) = worker.release_or_tell(&lock, &hold).await? {
                    let at = worker.process.say(Said::AdmissionReleaseFailed { org: &org, error: &trouble.text })?;
                    worker.world.account.release_failed(ReportedFailure { lock: &lock, at, reason: trouble.reason });
                }
                None
            }
            // Cordum logs only the error of the expired context here.
            Ok(None) => Some(("context deadline exceeded".to_owned(), "busy")),
            Err(trouble) => Some((trouble.text, trouble.reason)),
        };
        if let Some((error, reason)) = failed {
            let at = worker.process.say(Said::AdmissionFailed { org: &org, error: &error })?;
            worker.world.account.acquire_failed(ReportedFailure { lock: &lock, at, reason });
        }
        let pause = worker.between(worker.world.load.between_admissions);
        worker.rest(pause).await;
    }
    Ok(())
}
