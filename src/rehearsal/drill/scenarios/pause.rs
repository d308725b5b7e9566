//! The scenarios `pause` and `pause-and-delay`: a worker process stops for longer than its TTL,
//! resumes (in the second scenario over a slow network), and writes.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::super::report::ScenarioFailure;
use super::super::scenario_run::{ScenarioRun, seconds};
use super::super::settings::FINISHED;
use super::super::settings::KEEP;
use super::super::worker::{DrillWorker, RedisRoute};
use super::super::worker_process::{NAME as PROCESS, WorkerMessage, WorkerProcess, WorkerTask};
use super::{CAUSES, NOT_OWNED};
use crate::client::scrape::SeriesSelector;
use crate::rehearsal::fleet::{LockSpec, LockToken, Proxy, WorkerHold, resource};

const FENCED: &str = "storage-fenced";
const PLAIN: &str = "storage-plain";
const FENCE: &str = "fence";
const OTHER: &str = "other worker";

/// A worker process and its hold. Also used to crash a process.
pub(super) struct Paused<'a> {
    scenario_run: &'a ScenarioRun,
    process: WorkerProcess,
    hold: WorkerHold,
    fence: u64,
}

impl<'a> Paused<'a> {
    /// `renewals`: how many times the process renews before its critical section. `None`: until it
    /// is killed.
    pub(super) async fn start(
        scenario_run: &'a ScenarioRun,
        lock: &LockSpec,
        round: u32,
        renewals: Option<u32>,
        route: RedisRoute,
    ) -> anyhow::Result<Self> {
        let context = &scenario_run.context;
        let token = LockToken::random();
        // Note here what the process may write, so that the drill can clean up after it.
        context.key_scope.note(&lock.key, token.reveal())?;
        context.key_scope.note_counter(&scenario_run.beside(round, FENCE))?;
        let milliseconds = |duration: Duration| duration.as_millis() as u64;
        let task = WorkerTask {
            redis: context.reach(route),
            prefix: context.key_scope.prefix().to_owned(),
            log_file: context.log_file.clone(),
            key: lock.key.clone(),
            token: token.reveal().to_owned(),
            ttl_ms: milliseconds(scenario_run.timing().ttl),
            renew_every_ms: milliseconds(scenario_run.timing().renew_every()),
            renewals,
            fence_key: scenario_run.beside(round, FENCE),
            fenced_storage: scenario_run.beside(round, FENCED),
            plain_storage: scenario_run.beside(round, PLAIN),
            keep_ms: milliseconds(KEEP),
        };
        let mut process = WorkerProcess::start(&task).await?;
        let WorkerMessage::Acquired { fence } = process.next(patience(scenario_run)).await? else {
            anyhow::bail!("the worker process did not take its lock");
        };
        let hold = WorkerHold::begun(lock, &token);
        for storage in [FENCED, PLAIN] {
            context.key_scope.note(&scenario_run.beside(round, storage), &resource(fence, PROCESS))?;
        }
        scenario_run.note(PROCESS, &format!("took the lock with fence {fence}"));
        Ok(Self { scenario_run, process, hold, fence })
    }

    pub(super) fn hold(&self) -> &WorkerHold {
        &self.hold
    }

    /// Waits until the process has renewed this many times.
    pub(super) async fn renewed(&mut self, times: u32) -> anyhow::Result<()> {
        for _ in 0..times {
            self.expect(WorkerMessage::Renewed).await?;
            self.hold.renewed();
            self.scenario_run.note(PROCESS, "renewed");
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
        self.scenario_run.note(PROCESS, "was killed");
        Ok(())
    }

    async fn expect(&mut self, expected: WorkerMessage) -> anyhow::Result<()> {
        let message = self.process.next(patience(self.scenario_run)).await?;
        if message == WorkerMessage::Lost {
            return Err(ScenarioFailure(format!("the {PROCESS} could not renew a lock that was its own")).into());
        }
        anyhow::ensure!(message == expected, "the worker process reported {message:?} instead of {expected:?}");
        Ok(())
    }
}

/// Longer than any wait of a worker process.
fn patience(scenario_run: &ScenarioRun) -> Duration {
    scenario_run.timing().ttl * 8 + Duration::from_secs(10)
}

pub(super) async fn pause(scenario_run: &ScenarioRun, round: u32, slow_network: bool) -> anyhow::Result<()> {
    let ttl = scenario_run.timing().ttl;
    let lock = scenario_run.lock_of(0, round);
    let proxy = Proxy::start(&scenario_run.context.address).await?;
    let mut paused = Paused::start(scenario_run, &lock, round, Some(2), RedisRoute::Proxy(proxy.port())).await?;
    let mut other = DrillWorker::connect(scenario_run, "other", RedisRoute::Direct).await?;
    paused.renewed(2).await?;
    paused.expect(WorkerMessage::Critical).await?;
    paused.process.pause().await?;
    let stopped = Instant::now();
    scenario_run.note(PROCESS, "was stopped (SIGSTOP) in the middle of its work");
    if slow_network {
        proxy.delay(scenario_run.timing().delay());
        scenario_run.note("network", &format!("delays by {} each way", seconds(scenario_run.timing().delay())));
    }

    let next = other.wait_for(&lock).await?;
    paused.hold.expired();
    scenario_run.judge_takeover(&paused.hold);
    let (fenced, plain) = (scenario_run.beside(round, FENCED), scenario_run.beside(round, PLAIN));
    let fence = other.locker().await?.next_fence(&scenario_run.beside(round, FENCE), KEEP).await?;
    if !other.locker().await?.write_fenced(&fenced, fence, OTHER, KEEP).await? {
        let refused = format!("the write of the new owner with fence {fence} is refused");
        scenario_run.expect("fenced-write", false, refused.clone());
        return Err(ScenarioFailure(refused).into());
    }
    other.locker().await?.write(&plain, fence, OTHER, KEEP).await?;
    scenario_run.context.worker_log.log(FINISHED, OTHER, &lock.key, &[("state", "DONE")])?;
    other.note(&format!("finished the work with fence {fence}"));
    let released_at = stopped + ttl * 13 / 10;
    other.work_until(&next, released_at).await?;
    sleep_until(released_at).await;

    let stands_still = paused.process.is_stopped()?;
    let message = paused.process.unread_message().await?;
    let pause = stopped.elapsed();
    let state = if stands_still { "stopped" } else { "running" };
    let output = message.clone().unwrap_or_else(|| "nothing".to_owned());
    let measured = format!(
        "for {} it was {state}, according to the kernel, and reported {output}; the TTL is {}",
        seconds(pause),
        seconds(ttl)
    );
    scenario_run.measure("pause", pause);
    scenario_run.expect("paused", stands_still && message.is_none() && pause > ttl, measured.clone());
    if message.is_some() {
        return Err(ScenarioFailure(format!("the {PROCESS} did not stand still: {measured}")).into());
    }
    paused.process.resume()?;
    let woken = Instant::now();
    scenario_run.note(PROCESS, "woke up (SIGCONT) and writes");
    let message = finish_stale(&mut paused, &mut other, &next).await?;
    let answered = woken.elapsed();
    if slow_network {
        scenario_run.measure("answered", message.first_answer);
        let measured =
            format!("its writes were answered after {}, the TTL is {}", seconds(message.first_answer), seconds(ttl));
        scenario_run.expect("delayed", message.first_answer > ttl, measured);
    }
    scenario_run.note(PROCESS, &format!("found out that it had lost the lock, {} after waking up", seconds(answered)));
    paused.hold.let_go();
    scenario_run.measure("overlap", paused.hold.overlap());

    let fenced_now = other.locker().await?.read(&fenced).await?.unwrap_or_default();
    let plain_now = other.locker().await?.read(&plain).await?.unwrap_or_default();
    let (ours, stale) = (resource(fence, OTHER), resource(paused.fence, PROCESS));
    let measured =
        format!("the write with fence {} after fence {fence}; the storage holds {fenced_now:?}", paused.fence);
    scenario_run.expect("fenced-write", !message.fenced && fenced_now == ours, measured);
    let measured = format!("the storage holds {plain_now:?} after {ours:?}");
    scenario_run.expect("unfenced-write", plain_now == stale, measured);
    let refused = |done| if done { "accepted" } else { "refused" };
    let measured = format!("renewal {}, release {}", refused(message.renewed), refused(message.released));
    scenario_run.expect("refused", !message.renewed && !message.released, measured);
    scenario_run.happened("the refused operations", message.refused_at, NOT_OWNED, 0);
    scenario_run.happened("their cause", message.refused_at, CAUSES, 0);
    other.release(&next).await?;

    let conflicts = |kind: &'static str| {
        let labels = [("lock_namespace", scenario_run.namespace(0)), ("kind", kind)];
        SeriesSelector::new("redis_lock_conflicting_writes_total", &labels)
    };
    scenario_run.claim_exactly("conflicts", "stale writes rejected", conflicts("stale_write_rejected"), 1);
    scenario_run.claim_exactly("conflicts", "work finished twice", conflicts("duplicate_terminal_state"), 1);
    scenario_run.claim_refusals(0, 1, 1);
    scenario_run.claim_cause(0, "renewals_stopped", 2);
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
    let patience = patience(paused.scenario_run);
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
