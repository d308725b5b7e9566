//! The scenarios `pause` and `pause-and-delay`: a worker process stops for longer than its TTL,
//! resumes (in the second scenario over a slow network), and writes.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::super::configuration::FINISHED;
use super::super::process::{NAME as PROCESS, WorkerMessage, WorkerProcess, WorkerTask};
use super::super::report::ScenarioFailure;
use super::super::stage::{ScenarioRun, seconds};
use super::super::timing::KEEP;
use super::super::worker::{DrillWorker, RedisRoute};
use super::{CAUSES, NOT_OWNED};
use crate::client::scrape::SeriesSelector;
use crate::rehearsal::fleet::{LockSpec, LockToken, Proxy, WorkerHold, resource};

const FENCED: &str = "storage-fenced";
const PLAIN: &str = "storage-plain";
const FENCE: &str = "fence";
const OTHER: &str = "other worker";

/// A worker process and its hold. Also used to crash a process.
pub(super) struct Paused<'a> {
    stage: &'a ScenarioRun,
    process: WorkerProcess,
    hold: WorkerHold,
    fence: u64,
}

impl<'a> Paused<'a> {
    /// `renewals`: how many times the process renews before its critical section. `None`: until it
    /// is killed.
    pub(super) async fn start(
        stage: &'a ScenarioRun,
        lock: &LockSpec,
        round: u32,
        renewals: Option<u32>,
        road: RedisRoute,
    ) -> anyhow::Result<Self> {
        let ground = &stage.ground;
        let token = LockToken::random();
        // Note here what the process may write, so that the drill can clean up after it.
        ground.territory.note(&lock.key, token.reveal())?;
        ground.territory.note_counter(&stage.beside(round, FENCE))?;
        let milliseconds = |duration: Duration| duration.as_millis() as u64;
        let order = WorkerTask {
            redis: ground.reach(road),
            prefix: ground.territory.prefix().to_owned(),
            log_file: ground.log_file.clone(),
            key: lock.key.clone(),
            token: token.reveal().to_owned(),
            ttl_ms: milliseconds(stage.timing().ttl),
            renew_every_ms: milliseconds(stage.timing().renew_every()),
            renewals,
            fence_key: stage.beside(round, FENCE),
            fenced_storage: stage.beside(round, FENCED),
            plain_storage: stage.beside(round, PLAIN),
            keep_ms: milliseconds(KEEP),
        };
        let mut process = WorkerProcess::start(&order).await?;
        let WorkerMessage::Acquired { fence } = process.next(patience(stage)).await? else {
            anyhow::bail!("the worker process did not take its lock");
        };
        let hold = WorkerHold::begun(lock, &token);
        for storage in [FENCED, PLAIN] {
            ground.territory.note(&stage.beside(round, storage), &resource(fence, PROCESS))?;
        }
        stage.note(PROCESS, &format!("took the lock with fence {fence}"));
        Ok(Self { stage, process, hold, fence })
    }

    pub(super) fn hold(&self) -> &WorkerHold {
        &self.hold
    }

    /// Waits until the process has renewed this many times.
    pub(super) async fn renewed(&mut self, times: u32) -> anyhow::Result<()> {
        for _ in 0..times {
            self.expect(WorkerMessage::Renewed).await?;
            self.hold.renewed();
            self.stage.note(PROCESS, "renewed");
        }
        Ok(())
    }

    pub(super) async fn kill(&mut self) -> anyhow::Result<()> {
        // The pipe may still contain messages from before the kill. Kill first, so that no renewal
        // can follow them.
        self.process.kill().await?;
        while let Ok(WorkerMessage::Renewed) = self.process.next(Duration::from_millis(500)).await {
            self.hold.renewed();
        }
        self.hold.let_go();
        self.stage.note(PROCESS, "was killed");
        Ok(())
    }

    async fn expect(&mut self, expected: WorkerMessage) -> anyhow::Result<()> {
        let told = self.process.next(patience(self.stage)).await?;
        if told == WorkerMessage::Lost {
            return Err(ScenarioFailure(format!("the {PROCESS} could not renew a lock that was its own")).into());
        }
        anyhow::ensure!(told == expected, "the worker process reported {told:?} instead of {expected:?}");
        Ok(())
    }
}

/// Longer than any wait of a worker process.
fn patience(stage: &ScenarioRun) -> Duration {
    stage.timing().ttl * 8 + Duration::from_secs(10)
}

pub(super) async fn pause(stage: &ScenarioRun, round: u32, slow_network: bool) -> anyhow::Result<()> {
    let ttl = stage.timing().ttl;
    let lock = stage.lock_of(0, round);
    let proxy = Proxy::start(&stage.ground.address).await?;
    let mut paused = Paused::start(stage, &lock, round, Some(2), RedisRoute::Proxy(proxy.port())).await?;
    let mut other = DrillWorker::connect(stage, "other", RedisRoute::Direct).await?;
    paused.renewed(2).await?;
    paused.expect(WorkerMessage::Critical).await?;
    paused.process.pause().await?;
    let stopped = Instant::now();
    stage.note(PROCESS, "was stopped (SIGSTOP) in the middle of its work");
    if slow_network {
        proxy.delay(stage.timing().delay());
        stage.note("network", &format!("delays by {} each way", seconds(stage.timing().delay())));
    }

    let next = other.wait_for(&lock).await?;
    paused.hold.expired();
    stage.judge_takeover(&paused.hold);
    let (fenced, plain) = (stage.beside(round, FENCED), stage.beside(round, PLAIN));
    let fence = other.locker().await?.next_fence(&stage.beside(round, FENCE), KEEP).await?;
    if !other.locker().await?.write_fenced(&fenced, fence, OTHER, KEEP).await? {
        let refused = format!("the write of the new owner with fence {fence} is refused");
        stage.expect("fenced-write", false, refused.clone());
        return Err(ScenarioFailure(refused).into());
    }
    other.locker().await?.write(&plain, fence, OTHER, KEEP).await?;
    stage.ground.journal.log(FINISHED, OTHER, &lock.key, &[("state", "DONE")])?;
    other.note(&format!("finished the work with fence {fence}"));
    let released_at = stopped + ttl * 13 / 10;
    other.work_until(&next, released_at).await?;
    sleep_until(released_at).await;

    let stands_still = paused.process.is_stopped()?;
    let told = paused.process.told_already().await?;
    let pause = stopped.elapsed();
    let state = if stands_still { "stopped" } else { "running" };
    let said = told.clone().unwrap_or_else(|| "nothing".to_owned());
    let measured = format!(
        "for {} it was {state}, according to the kernel, and reported {said}; the TTL is {}",
        seconds(pause),
        seconds(ttl)
    );
    stage.measure("pause", pause);
    stage.expect("paused", stands_still && told.is_none() && pause > ttl, measured.clone());
    if told.is_some() {
        return Err(ScenarioFailure(format!("the {PROCESS} did not stand still: {measured}")).into());
    }
    paused.process.resume()?;
    let woken = Instant::now();
    stage.note(PROCESS, "woke up (SIGCONT) and writes");
    let told = finish_stale(&mut paused, &mut other, &next).await?;
    let answered = woken.elapsed();
    if slow_network {
        stage.measure("answered", told.first_answer);
        let measured =
            format!("its writes were answered after {}, the TTL is {}", seconds(told.first_answer), seconds(ttl));
        stage.expect("delayed", told.first_answer > ttl, measured);
    }
    stage.note(PROCESS, &format!("found out that it had lost the lock, {} after waking up", seconds(answered)));
    paused.hold.let_go();
    stage.measure("overlap", paused.hold.overlap());

    let fenced_now = other.locker().await?.read(&fenced).await?.unwrap_or_default();
    let plain_now = other.locker().await?.read(&plain).await?.unwrap_or_default();
    let (ours, stale) = (resource(fence, OTHER), resource(paused.fence, PROCESS));
    let measured =
        format!("the write with fence {} after fence {fence}; the storage holds {fenced_now:?}", paused.fence);
    stage.expect("fenced-write", !told.fenced && fenced_now == ours, measured);
    let measured = format!("the storage holds {plain_now:?} after {ours:?}");
    stage.expect("unfenced-write", plain_now == stale, measured);
    let refused = |done| if done { "accepted" } else { "refused" };
    let measured = format!("renewal {}, release {}", refused(told.renewed), refused(told.released));
    stage.expect("refused", !told.renewed && !told.released, measured);
    stage.happened("the refused operations", told.refused_at, NOT_OWNED, 0);
    stage.happened("their cause", told.refused_at, CAUSES, 0);
    other.release(&next).await?;

    let conflicts = |kind: &'static str| {
        let labels = [("lock_namespace", stage.namespace(0)), ("kind", kind)];
        SeriesSelector::new("redis_lock_conflicting_writes_total", &labels)
    };
    stage.claim_exactly("conflicts", "stale writes rejected", conflicts("stale_write_rejected"), 1);
    stage.claim_exactly("conflicts", "work finished twice", conflicts("duplicate_terminal_state"), 1);
    stage.claim_refusals(0, 1, 1);
    stage.claim_cause(0, "renewals_stopped", 2);
    Ok(())
}

/// The replies that the process got after it resumed.
struct Stale {
    fenced: bool,
    first_answer: Duration,
    refused_at: Instant,
    renewed: bool,
    released: bool,
}

/// Lets the resumed process finish. The new owner renews its lock meanwhile.
async fn finish_stale(
    paused: &mut Paused<'_>,
    other: &mut DrillWorker<'_>,
    next: &WorkerHold,
) -> anyhow::Result<Stale> {
    let woken = Instant::now();
    let patience = patience(paused.stage);
    let hold = paused.hold.clone();
    let through = CancellationToken::new();
    let stale = async {
        let WorkerMessage::Wrote { fenced } = paused.process.next(patience).await? else {
            anyhow::bail!("the worker process did not write");
        };
        let first_answer = woken.elapsed();
        let WorkerMessage::Renewal { done: renewed } = paused.process.next(patience).await? else {
            anyhow::bail!("the worker process did not renew");
        };
        let refused_at = Instant::now();
        let WorkerMessage::Release { done: released } = paused.process.next(patience).await? else {
            anyhow::bail!("the worker process did not release");
        };
        through.cancel();
        [renewed, released].into_iter().filter(|done| !done).for_each(|_| hold.refused());
        Ok(Stale { fenced, first_answer, refused_at, renewed, released })
    };
    let (stale, ()) = tokio::try_join!(stale, other.keep_until(next, &through))?;
    Ok(stale)
}
