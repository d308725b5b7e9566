//! What all workers of the fleet do with locks: take, renew and release them as Cordum's lock store does, and keep the books.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redis::Client;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::account::{Account, Failure};
use super::bus::Bus;
use super::fault::{Fault, Faults};
use super::link::{Link, Trouble};
use super::process::Process;
use super::{Load, NOT_OWNED, Pace, Said};
use crate::fleet::{End, Random, Record, Token};

/// The namespaces of the preset whose locks the fleet takes.
pub(super) const NAMESPACES: [&str; 9] = [
    "scheduler",
    "approval",
    "reconciler",
    "replayer",
    "snapshot",
    "workflow",
    "admission",
    "workflow_reconciler",
    "delay_poller",
];

/// Renewals that may fail in a row before the holder of a job lock gives up. Holders of other locks never do.
const BUDGET: usize = 3;

/// Cordum's limit for one operation on a lock.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(2);
/// In renewal intervals, of which a TTL has three.
const LATEST_RENEWAL: f64 = 2.2;

/// What all services share.
pub(super) struct World {
    pub(super) pace: Pace,
    pub(super) load: Load,
    pub(super) faults: Faults,
    pub(super) account: Account,
    pub(super) records: BTreeMap<&'static str, Record>,
    pub(super) jobs: Bus,
    pub(super) runs: Bus,
    pub(super) stop: CancellationToken,
}

/// A lock of the preset.
pub(super) struct Lock {
    pub(super) namespace: &'static str,
    /// Of the job, run or organization; empty for what there is one of.
    pub(super) id: String,
    pub(super) key: String,
}

/// A lock that its holder believes to have.
pub(super) struct Held {
    token: Token,
    /// In the record of its namespace.
    number: usize,
    /// Redis lets it go a TTL after this, at the latest.
    pub(super) set: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// Too many renewals failed: the holder gave up.
    Abandoned,
}

pub(super) struct Worker {
    pub(super) process: Arc<Process>,
    pub(super) world: Arc<World>,
    pub(super) random: Random,
    link: Link,
}

impl World {
    pub(super) fn new(pace: Pace, load: Load) -> Self {
        Self {
            account: Account::new(pace.join_window()),
            records: NAMESPACES.into_iter().map(|namespace| (namespace, Record::default())).collect(),
            // A little longer than the locks live: who gets it again finds it free.
            jobs: Bus::new(pace.ttl("scheduler").mul_f64(1.2)),
            // And longer than any run takes that goes well.
            runs: Bus::new(pace.ttl("workflow").max(pace.seconds(load.longest_run())).mul_f64(1.2)),
            stop: CancellationToken::new(),
            faults: Faults::default(),
            pace,
            load,
        }
    }

    /// How long to wait for an answer of Redis.
    pub(super) fn patience(&self) -> Duration {
        self.pace.of(OPERATION_TIMEOUT).max(self.load.shortest_patience)
    }

    pub(super) fn record(&self, lock: &Lock) -> &Record {
        &self.records[lock.namespace]
    }
}

impl Lock {
    pub(super) fn new(namespace: &'static str, id: &str) -> Self {
        let key = match namespace {
            "scheduler" | "approval" => format!("cordum:scheduler:job:{id}"),
            "workflow" => format!("cordum:wf:run:lock:{id}"),
            "admission" => format!("cordum:wf:run:admission:{id}"),
            "reconciler" => "cordum:reconciler:default".to_owned(),
            "replayer" => "cordum:replayer:pending".to_owned(),
            "snapshot" => "cordum:scheduler:snapshot:writer".to_owned(),
            "workflow_reconciler" => "cordum:workflow-engine:reconciler:default".to_owned(),
            _ => "cordum:wf:delay:poller".to_owned(),
        };
        Self { namespace, id: id.to_owned(), key }
    }
}

impl Worker {
    pub(super) fn new(process: &Arc<Process>, world: &Arc<World>, client: &Client, random: Random) -> Self {
        let link = Link::new(client.clone(), world.patience());
        Self { process: Arc::clone(process), world: Arc::clone(world), random, link }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.world.stop.is_cancelled()
    }

    /// Between two times that are given in seconds of the real Cordum.
    pub(super) fn between(&mut self, (shortest, longest): (f64, f64)) -> Duration {
        let pace = &self.world.pace;
        self.random.between(pace.seconds(shortest), pace.seconds(longest))
    }

    /// Until the end of the fleet, if that comes first.
    pub(super) async fn rest(&self, time: Duration) {
        self.rest_until(Instant::now() + time).await;
    }

    async fn rest_until(&self, time: Instant) {
        self.world.stop.run_until_cancelled(sleep_until(time)).await;
        self.process.run().await;
    }

    /// Nothing if somebody else has it.
    pub(super) async fn acquire(&mut self, lock: &Lock) -> Result<Option<Held>, Trouble> {
        let answer = self.link.acquire(&lock.key, self.world.pace.ttl(lock.namespace)).await;
        let set = Instant::now();
        // Before it may freeze: Redis has done it by now.
        let held = match &answer {
            Ok(Some(token)) => {
                let number = self.world.record(lock).acquired(&lock.key);
                Ok(Some(Held { token: token.clone(), number, set }))
            }
            Ok(None) => Ok(None),
            Err(trouble) => Err(self.unanswered("try acquire", lock, trouble)),
        };
        self.process.run().await;
        held
    }

    /// Tries again and again for as long as Cordum does: 2 s.
    pub(super) async fn acquire_patiently(&mut self, lock: &Lock) -> Result<Option<Held>, Trouble> {
        let deadline = Instant::now() + self.world.pace.seconds(2.0);
        loop {
            match self.acquire(lock).await {
                Ok(None) if Instant::now() < deadline && !self.is_stopping() => {
                    self.rest(Duration::from_millis(25)).await;
                }
                other => return other,
            }
        }
    }

    /// Whether it was still the worker's.
    pub(super) async fn release(&mut self, lock: &Lock, held: &Held) -> Result<bool, Trouble> {
        let answer = self.link.release(&lock.key, &held.token).await;
        let record = self.world.record(lock);
        let released = match answer {
            Ok(true) => {
                record.ended(held.number, End::Released);
                Ok(true)
            }
            Ok(false) => {
                record.change(held.number, |deed| deed.refused += 1);
                record.ended(held.number, End::Expired);
                Ok(false)
            }
            // If Redis did not do it, the TTL will.
            Err(trouble) => {
                record.ended(held.number, End::Expired);
                Err(self.unanswered("release", lock, &trouble))
            }
        };
        self.process.run().await;
        released
    }

    /// Releases as the lock store does, which has a line of its own for a lock that was lost. Gives the error of a release that
    /// failed.
    pub(super) async fn release_or_tell(&mut self, lock: &Lock, held: &Held) -> anyhow::Result<Option<Trouble>> {
        Ok(match self.release(lock, held).await {
            Ok(true) => None,
            Ok(false) => {
                let at = self.process.say(Said::TokenMismatch { key: &lock.key })?;
                self.world.account.release_failed(Failure { lock, at, reason: "not_owned" });
                Some(Trouble::not_owned())
            }
            Err(trouble) => Some(trouble),
        })
    }

    /// Nobody releases it: it expires.
    pub(super) fn leave(&self, lock: &Lock, held: &Held) {
        self.world.record(lock).ended(held.number, End::Expired);
    }

    /// Works for a while, or until the end of the fleet, and renews meanwhile where such locks are renewed.
    pub(super) async fn work(&mut self, lock: &Lock, held: &mut Held, length: Duration) -> anyhow::Result<Outcome> {
        let done = Instant::now() + length;
        let mut failures = 0;
        let mut last_attempt = held.set;
        while let Some(every) = self.renew_after(lock)
            && last_attempt + every < done
        {
            self.rest_until(last_attempt + every).await;
            if self.is_stopping() {
                return Ok(Outcome::Done);
            }
            failures = match self.renew(lock, held).await {
                Ok(true) => 0,
                Ok(false) => self.tell_renewal_failed(lock, failures + 1, &Trouble::not_owned())?,
                Err(trouble) => self.tell_renewal_failed(lock, failures + 1, &trouble)?,
            };
            if failures >= BUDGET && lock.namespace == "scheduler" {
                return Ok(Outcome::Abandoned);
            }
            last_attempt = Instant::now();
        }
        self.rest_until(done).await;
        Ok(Outcome::Done)
    }

    /// How long to wait for the next renewal, where such locks are renewed.
    fn renew_after(&mut self, lock: &Lock) -> Option<Duration> {
        let every = self.world.pace.renew_every(lock.namespace)?;
        let is_late = self.world.faults.has(Fault::LateRenewals);
        Some(if is_late { self.random.between(every, every.mul_f64(LATEST_RENEWAL)) } else { every })
    }

    /// Gives back the number of failures in a row.
    fn tell_renewal_failed(&self, lock: &Lock, failures: usize, trouble: &Trouble) -> anyhow::Result<usize> {
        let (id, error) = (lock.id.as_str(), trouble.text.as_str());
        let at = self.process.say(match lock.namespace {
            "scheduler" if failures >= BUDGET => Said::JobAbandoned { job: id, failures, error },
            "scheduler" => Said::JobRenewalFailed { job: id, attempt: failures, error },
            "workflow" => Said::RunRenewalFailed { run: id, error },
            _ => Said::ReconcilerRenewalFailed { error },
        })?;
        let renew_every = self.world.pace.renew_every(lock.namespace).unwrap_or_default();
        self.world.account.renewal_failed(Failure { lock, at, reason: trouble.reason }, renew_every);
        Ok(failures)
    }

    async fn renew(&mut self, lock: &Lock, held: &mut Held) -> Result<bool, Trouble> {
        let answer = self.link.renew(&lock.key, &held.token, self.world.pace.ttl(lock.namespace)).await;
        let record = self.world.record(lock);
        let renewed = match answer {
            Ok(true) => {
                held.set = Instant::now();
                record.change(held.number, |deed| deed.renewals += 1);
                Ok(true)
            }
            Ok(false) => {
                record.change(held.number, |deed| deed.refused += 1);
                Ok(false)
            }
            Err(trouble) => Err(self.unanswered("renew", lock, &trouble)),
        };
        self.process.run().await;
        renewed
    }

    /// The error as the lock store passes it on.
    fn unanswered(&self, operation: &str, lock: &Lock, trouble: &Trouble) -> Trouble {
        self.world.account.unanswered();
        let text = format!("job store {operation} lock {}: {}", lock.key, trouble.text);
        Trouble { text, reason: trouble.reason }
    }
}

impl Trouble {
    fn not_owned() -> Self {
        Self { text: NOT_OWNED.to_owned(), reason: "not_owned" }
    }
}
