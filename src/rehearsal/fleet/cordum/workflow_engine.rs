//! The workflow engine: one lock for each run. It renews the lock and never gives it up. Without
//! Redis it works without a lock.

use std::time::Duration;

use super::LogMessage;
use super::failure_record::ReportedFailure;
use super::worker::CordumWorker;

pub(super) async fn run(mut worker: CordumWorker, wait: Duration) -> anyhow::Result<()> {
    worker.rest(wait).await;
    while !worker.is_stopping() {
        let run = worker.world.runs.next(&mut worker.random);
        let lock = worker.world.lock("workflow", &run);
        let length = worker.between(worker.world.load.run);
        match worker.acquire(&lock).await {
            Ok(Some(hold)) => {
                worker.work(&lock, &hold, length).await?;
                if let Some(error) = worker.release_or_report(&lock, &hold).await? {
                    let at = worker.process.log(LogMessage::RunReleaseFailed { run: &run, error: &error.text })?;
                    worker.world.failure_record.release_failed(ReportedFailure {
                        lock: &lock,
                        at,
                        reason: error.reason,
                    });
                }
            }
            // The engine skips the run without a log line, and acknowledges it.
            Ok(None) => {}
            Err(error) => {
                let at = worker.process.log(LogMessage::RunLocalOnly { run: &run, error: &error.text })?;
                worker.world.failure_record.unlocked_work(ReportedFailure { lock: &lock, at, reason: error.reason });
                worker.rest(length).await;
            }
        }
        worker.world.runs.acknowledge(&run);
        worker.process.chat(&mut worker.random)?;
        let pause = worker.between((1.0, 5.0));
        worker.rest(pause).await;
    }
    Ok(())
}
