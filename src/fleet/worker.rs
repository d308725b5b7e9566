//! A worker that takes locks, works, and now and then does what goes wrong in production.

use std::sync::Arc;
use std::time::Duration;

use redis::{Client, RedisResult};
use tokio::time::{Instant, sleep, sleep_until};

use super::{End, Locker, Random, Record, Token};

/// How the workers of a run behave. Each worker has locks of its own, so that its record is exact; what they do to each
/// other's is done by one worker with two connections.
#[derive(Clone, Debug)]
pub struct Behavior {
    /// Beginning of the keys; worker and lock number are added.
    pub prefix: String,
    pub workers: usize,
    pub locks_per_worker: usize,
    pub ttl: Duration,
    pub renew_every: Duration,
    /// How long work takes.
    pub shortest_work: Duration,
    pub longest_work: Duration,
    /// Between two pieces of work of a worker.
    pub pause: Duration,
    /// How many of a hundred holds end other than by release.
    pub crashes: usize,
    pub stalls: usize,
    pub steals: usize,
    pub deletes: usize,
    pub seed: u64,
}

/// Runs until the deadline; holds that are under way end first.
pub async fn run(client: &Client, behavior: &Behavior, record: &Arc<Record>, until: Instant) -> RedisResult<()> {
    let mut workers = tokio::task::JoinSet::new();
    for number in 0..behavior.workers {
        let worker = Worker {
            locker: Locker::connect(client).await?,
            other: Locker::connect(client).await?,
            random: Random::new(behavior.seed.wrapping_mul(1_000_003).wrapping_add(number as u64)),
            number,
            behavior: behavior.clone(),
            record: Arc::clone(record),
        };
        workers.spawn(worker.run(until));
    }
    while let Some(ended) = workers.join_next().await {
        ended.map_err(std::io::Error::other)??;
    }
    Ok(())
}

struct Worker {
    locker: Locker,
    /// Does what other programs do to this worker's locks.
    other: Locker,
    random: Random,
    number: usize,
    behavior: Behavior,
    record: Arc<Record>,
}

impl Worker {
    async fn run(mut self, until: Instant) -> RedisResult<()> {
        while Instant::now() < until {
            let lock = self.random.below(self.behavior.locks_per_worker);
            let key = format!("{}{}-{lock}", self.behavior.prefix, self.number);
            self.hold(&key).await?;
            let pause = self.behavior.pause;
            sleep(self.random.between(pause / 2, pause * 3 / 2)).await;
        }
        Ok(())
    }

    /// One hold from the acquisition to its end. Where it is left to expire, the next holder waits for it.
    async fn hold(&mut self, key: &str) -> RedisResult<()> {
        let Some(token) = self.locker.acquire(key, self.behavior.ttl).await? else { return Ok(()) };
        let hold = self.record.acquired(key);
        let last_sign = self.work(key, &token, hold).await?;
        let Behavior { crashes, stalls, steals, deletes, .. } = self.behavior;
        let fate = self.random.below(100);
        if fate < crashes {
            self.expire(hold, last_sign).await;
        } else if fate < crashes + stalls {
            self.expire(hold, last_sign).await;
            self.release_in_vain(key, &token, hold).await?;
        } else if fate < crashes + stalls + steals {
            let thief = self.other.steal(key, self.behavior.ttl).await?;
            self.record.ended(hold, End::Stolen);
            let theft = self.record.acquired(key);
            self.release_in_vain(key, &token, hold).await?;
            self.work(key, &thief, theft).await?;
            self.finish(key, &thief, theft).await?;
        } else if fate < crashes + stalls + steals + deletes {
            self.other.delete(key).await?;
            self.record.ended(hold, End::Deleted);
            self.release_in_vain(key, &token, hold).await?;
        } else {
            self.finish(key, &token, hold).await?;
        }
        Ok(())
    }

    /// Works and renews; gives the time of the last sign of life.
    async fn work(&mut self, key: &str, token: &Token, hold: usize) -> RedisResult<Instant> {
        let mut last_sign = Instant::now();
        let work = self.random.between(self.behavior.shortest_work, self.behavior.longest_work);
        let done = last_sign + work;
        loop {
            let renewal = last_sign + self.behavior.renew_every;
            // Changes of one lock are never closer together than the shortest work.
            if done < renewal + self.behavior.shortest_work {
                sleep_until(done).await;
                return Ok(last_sign);
            }
            sleep_until(renewal).await;
            last_sign = Instant::now();
            match self.locker.renew(key, token, self.behavior.ttl).await? {
                true => self.record.renewed(hold),
                false => self.record.change(hold, |deed| deed.refused += 1),
            }
        }
    }

    /// Sleeps until the lock has surely expired.
    async fn expire(&mut self, hold: usize, last_sign: Instant) {
        let expiry = last_sign + self.behavior.ttl;
        sleep_until(expiry).await;
        self.record.ended(hold, End::Expired);
        // So that nothing happens at the very moment of the expiry.
        sleep(Duration::from_millis(50)).await;
    }

    async fn finish(&mut self, key: &str, token: &Token, hold: usize) -> RedisResult<()> {
        match self.locker.release(key, token).await? {
            true => self.record.ended(hold, End::Released),
            false => {
                self.record.change(hold, |deed| deed.refused += 1);
                self.record.ended(hold, End::Expired);
            }
        }
        Ok(())
    }

    async fn release_in_vain(&mut self, key: &str, token: &Token, hold: usize) -> RedisResult<()> {
        match self.locker.release(key, token).await? {
            // Its last renewal came late to Redis: it was not in vain.
            true => self.record.ended(hold, End::Released),
            false => self.record.change(hold, |deed| deed.refused += 1),
        }
        Ok(())
    }
}
