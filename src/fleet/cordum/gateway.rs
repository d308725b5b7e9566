//! The gateway: short locks that are never renewed, for approvals of jobs (the scheduler's key, a shorter TTL) and for admitting
//! runs of an organization.

use super::Said;
use super::account::Failure;
use super::worker::{Lock, Worker};

/// Each gateway has organizations of its own: its lines have no time, so two failures of one organization have to be well apart to be
/// told from one.
const ORGANIZATIONS: [(&str, [&str; 2]); 2] = [("a", ["acme", "globex"]), ("b", ["initech", "umbrella"])];

pub(super) async fn approve(mut worker: Worker) -> anyhow::Result<()> {
    while !worker.is_stopping() {
        let job = worker.random.uuid().to_string();
        let lock = Lock::new("approval", &job);
        match worker.acquire_patiently(&lock).await {
            Ok(Some(mut held)) => {
                let length = worker.between(1.0, 6.0);
                worker.work(&lock, &mut held, length).await?;
                if let Some(trouble) = worker.release_or_tell(&lock, &held).await? {
                    let at = worker.process.say(Said::ApprovalReleaseFailed { job: &job, error: &trouble.text })?;
                    worker.world.account.release_failed(Failure { lock: &lock, at, reason: trouble.reason });
                }
            }
            // Nobody else knows the job.
            Ok(None) => {}
            Err(trouble) => {
                let at = worker.process.say(Said::ApprovalAcquireFailed { job: &job, error: &trouble.text })?;
                worker.world.account.acquire_failed(Failure { lock: &lock, at, reason: trouble.reason });
            }
        }
        worker.process.chat(&mut worker.random)?;
        let pause = worker.between(1.0, 5.0);
        worker.rest(pause).await;
    }
    Ok(())
}

pub(super) async fn admit(mut worker: Worker) -> anyhow::Result<()> {
    let own = ORGANIZATIONS.iter().find(|(node, _)| *node == worker.process.node);
    let own = own.map_or(&ORGANIZATIONS[0].1, |(_, own)| own);
    while !worker.is_stopping() {
        let org = worker.random.pick(own);
        let lock = Lock::new("admission", org);
        let failed = match worker.acquire_patiently(&lock).await {
            Ok(Some(mut held)) => {
                let length = worker.between(0.5, 1.5);
                worker.work(&lock, &mut held, length).await?;
                if let Some(trouble) = worker.release_or_tell(&lock, &held).await? {
                    let at = worker.process.say(Said::AdmissionReleaseFailed { org, error: &trouble.text })?;
                    worker.world.account.release_failed(Failure { lock: &lock, at, reason: trouble.reason });
                }
                None
            }
            // The wait ends with the bare error of its context.
            Ok(None) => Some(("context deadline exceeded".to_owned(), "busy")),
            Err(trouble) => Some((trouble.text, trouble.reason)),
        };
        if let Some((error, reason)) = failed {
            let at = worker.process.say(Said::AdmissionFailed { org, error: &error })?;
            worker.world.account.acquire_failed(Failure { lock: &lock, at, reason });
        }
        let pause = worker.between(10.0, 20.0);
        worker.rest(pause).await;
    }
    Ok(())
}
