//! Workers that take locks, work, and sometimes do what goes wrong in production. A seed determines
//! what they do. Tests and benchmarks use it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use redis::Client;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{End, LockProgram, LockReply, LockSpec, Locker, OperationLog, Random, RenewalAction, Worker, WorkerHold};

/// The timeout for a reply from Redis. Longer than any pause of Redis in the tests, because the
/// record must be exact.
const PATIENCE: Duration = Duration::from_secs(30);
/// Added after an expiration, so that nothing happens at exactly that moment.
const MARGIN: Duration = Duration::from_millis(50);

/// How the workers of a run behave. Each worker has its own locks, so that its record is exact. To
/// simulate interference between programs, one worker uses two connections.
#[derive(Clone, Debug)]
pub struct Behavior {
    /// The prefix of the keys. The numbers of the worker and of the lock follow.
    pub prefix: String,
    pub workers: usize,
    pub locks_per_worker: usize,
    pub ttl: Duration,
    pub renew_every: Duration,
    /// The shortest and the longest time that work takes.
    pub shortest_work: Duration,
    pub longest_work: Duration,
    /// The pause between two pieces of work of a worker, on average.
    pub pause: Duration,
    /// How many of a hundred holds end by each of these events instead of by a release.
    pub crashes: usize,
    pub stalls: usize,
    pub steals: usize,
    pub deletes: usize,
    pub seed: u64,
}

/// Runs the workers until the deadline. A hold in progress ends first.
pub async fn run(
    client: &Client,
    behavior: &Behavior,
    record: &Arc<OperationLog>,
    until: Instant,
) -> anyhow::Result<()> {
    let mut workers = JoinSet::new();
    for number in 0..behavior.workers {
        let worker = Drawn {
            worker: Worker::new(client, PATIENCE),
            other: Locker::connect(client).await?,
            random: Random::new(behavior.seed.wrapping_mul(1_000_003).wrapping_add(number as u64)),
            number,
            behavior: behavior.clone(),
            record: Arc::clone(record),
        };
        workers.spawn(worker.run(until));
    }
    while let Some(ended) = workers.join_next().await {
        ended??;
    }
    Ok(())
}

/// A worker that draws at random how each hold ends.
struct Drawn {
    worker: Worker,
    /// Does what other programs do to this worker's locks.
    other: Locker,
    random: Random,
    number: usize,
    behavior: Behavior,
    record: Arc<OperationLog>,
}

/// Renews in time. Every renewal must get a reply.
struct InTime(Duration);

impl LockProgram for InTime {
    fn renew_after(&mut self) -> Option<Duration> {
        Some(self.0)
    }

    fn on_reply(&mut self, _: &WorkerHold, answer: &LockReply, _: u32) -> anyhow::Result<RenewalAction> {
        match answer {
            LockReply::Done | LockReply::Refused => Ok(RenewalAction::GoOn),
            LockReply::Unanswered(error) => bail!("a renewal failed: {error}"),
        }
    }
}

impl Drawn {
    async fn run(mut self, until: Instant) -> anyhow::Result<()> {
        while Instant::now() < until {
            let number = self.random.below(self.behavior.locks_per_worker);
            let key = format!("{}{}-{number}", self.behavior.prefix, self.number);
            self.hold(&LockSpec { key, ttl: self.behavior.ttl, record: Arc::clone(&self.record) }).await?;
            let pause = self.behavior.pause;
            sleep(self.random.between(pause / 2, pause * 3 / 2)).await;
        }
        Ok(())
    }

    /// One hold from its acquisition to its end. If the lock is left to expire, this waits until it
    /// has expired.
    async fn hold(&mut self, lock: &LockSpec) -> anyhow::Result<()> {
        let Some(hold) = self.worker.take(lock).await? else { return Ok(()) };
        self.work(&hold).await?;
        let Behavior { crashes, stalls, steals, deletes, .. } = self.behavior;
        let fate = self.random.below(100);
        if fate < crashes {
            expire(&hold).await;
            return Ok(());
        } else if fate < crashes + stalls {
            expire(&hold).await;
        } else if fate < crashes + stalls + steals {
            let thief = self.other.steal(&lock.key, lock.ttl).await?;
            hold.ended(End::Stolen);
            let theft = WorkerHold::begun(lock, &thief);
            self.release(&hold).await?;
            self.work(&theft).await?;
            return self.release(&theft).await;
        } else if fate < crashes + stalls + steals + deletes {
            self.other.delete(&lock.key).await?;
            hold.ended(End::Deleted);
        }
        self.release(&hold).await
    }

    /// Works and renews. Two changes of one lock are never closer together than the shortest work.
    async fn work(&mut self, hold: &WorkerHold) -> anyhow::Result<()> {
        let Behavior { shortest_work, longest_work, renew_every, .. } = self.behavior;
        let done = Instant::now() + self.random.between(shortest_work, longest_work);
        let end = CancellationToken::new();
        self.worker.keep(hold, Some(done - shortest_work), &end, &mut InTime(renew_every)).await?;
        sleep_until(done).await;
        Ok(())
    }

    /// Releases the lock. A refusal is not an error, because the lock may have been lost on
    /// purpose.
    async fn release(&mut self, hold: &WorkerHold) -> anyhow::Result<()> {
        match self.worker.release(hold).await {
            LockReply::Done | LockReply::Refused => Ok(()),
            LockReply::Unanswered(error) => Err(error.into()),
        }
    }
}

/// Sleeps until the lock has certainly expired.
async fn expire(hold: &WorkerHold) {
    sleep_until(hold.last_sign() + hold.lock.ttl).await;
    hold.expired();
    sleep(MARGIN).await;
}
