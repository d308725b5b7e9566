//! A worker: one connection of its own and the real scripts. It logs what goes wrong, as a program would, and the record is
//! told what really happened.

use std::time::Duration;

use anyhow::Context as _;
use redis::{Client, ConnectionAddr};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::configuration::{ABANDONED, NOT_OWNED, RELEASE_FAILED, RENEWAL_FAILED};
use super::process::Reach;
use super::report::Failure;
use super::stage::{Ground, Lock, Stage};
use crate::fleet::{End, Locker, Token, client_through};

/// Where to get Redis from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Road {
    Direct,
    /// Over a proxy on this port of the loopback interface.
    Proxy(u16),
}

pub(super) struct Worker<'a> {
    name: String,
    locker: Locker,
    patience: Duration,
    stage: &'a Stage,
}

pub(super) struct Hold {
    pub(super) lock: Lock,
    pub(super) token: Token,
    /// In the record.
    number: usize,
    pub(super) acquired: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewal {
    Done,
    Refused,
    /// No answer in time.
    Failed,
}

impl Ground {
    /// The same for another process.
    pub(super) fn reach(&self, road: Road) -> Reach {
        let info = self.client.get_connection_info();
        let settings = info.redis_settings();
        let (host, port) = match (road, info.addr()) {
            (Road::Direct, ConnectionAddr::Tcp(host, port)) => (host.clone(), *port),
            (Road::Proxy(port), _) => ("127.0.0.1".to_owned(), port),
            // Only such URLs are accepted.
            (Road::Direct, _) => unreachable!("a Redis of a drill is at a TCP address"),
        };
        Reach {
            host,
            port,
            database: settings.db(),
            username: settings.username().map(str::to_owned),
            password: settings.password().map(str::to_owned),
        }
    }

    /// A client for the same Redis over another road.
    pub(super) fn client_over(&self, road: Road) -> anyhow::Result<Client> {
        let Road::Proxy(port) = road else { return Ok(self.client.clone()) };
        client_through(port, &self.client).context("bad address of a proxy")
    }
}

impl<'a> Worker<'a> {
    /// One that waits for answers for as long as it takes.
    pub(super) async fn connect(stage: &'a Stage, name: &str, road: Road) -> anyhow::Result<Self> {
        let patience = (stage.timing().ttl * 5).max(Duration::from_secs(10));
        let client = stage.ground.client_over(road)?;
        let locker = Locker::connect_within(&client, &stage.ground.territory, patience).await;
        let locker = locker.with_context(|| format!("the {name} worker cannot connect to Redis"))?;
        Ok(Self { name: format!("{name} worker"), locker, patience, stage })
    }

    /// How long it waits for the answer to a renewal from now on. Only shortened where none can come: a busy machine is no
    /// failure.
    pub(super) fn wait_at_most(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// The lock must be free.
    pub(super) async fn acquire(&mut self, lock: &Lock) -> anyhow::Result<Hold> {
        let hold = self.try_acquire(lock).await?;
        hold.with_context(|| format!("{} is taken, although it is a lock of this drill only", lock.key))
    }

    pub(super) async fn try_acquire(&mut self, lock: &Lock) -> anyhow::Result<Option<Hold>> {
        let Some(token) = self.locker.acquire(&lock.key, self.stage.timing().ttl).await? else { return Ok(None) };
        let number = lock.record.acquired(&lock.key);
        self.note("took the lock");
        Ok(Some(Hold { lock: lock.clone(), token, number, acquired: Instant::now() }))
    }

    /// Tries again and again, as a program that waits for a lock.
    pub(super) async fn wait_for(&mut self, lock: &Lock) -> anyhow::Result<Hold> {
        let deadline = Instant::now() + self.stage.timing().ttl * 4;
        loop {
            if let Some(hold) = self.try_acquire(lock).await? {
                return Ok(hold);
            }
            if Instant::now() > deadline {
                return Err(Failure(format!("the {} waited in vain for {}", self.name, lock.key)).into());
            }
            sleep(self.stage.timing().poll()).await;
        }
    }

    pub(super) async fn renew(&mut self, hold: &Hold) -> anyhow::Result<Renewal> {
        let renewal = self.locker.renew(&hold.lock.key, &hold.token, self.stage.timing().ttl);
        let Ok(answer) = timeout(self.patience, renewal).await else {
            self.note("got no answer to its renewal");
            self.log(RENEWAL_FAILED, hold, "i/o timeout")?;
            return Ok(Renewal::Failed);
        };
        match answer.context("a renewal failed")? {
            true => {
                hold.lock.record.renewed(hold.number);
                self.note("renewed");
                Ok(Renewal::Done)
            }
            false => {
                self.refused(hold, RENEWAL_FAILED, "tried to renew and was refused")?;
                Ok(Renewal::Refused)
            }
        }
    }

    /// Works and renews until then. Everything is answered.
    pub(super) async fn work_until(&mut self, hold: &Hold, until: Instant) -> anyhow::Result<()> {
        let every = self.stage.timing().renew_every();
        let mut next = Instant::now() + every;
        while next < until {
            sleep_until(next).await;
            if self.renew(hold).await? != Renewal::Done {
                return Err(self.lost());
            }
            next += every;
        }
        sleep_until(until).await;
        Ok(())
    }

    /// Works and renews until it is told to stop. What was sent is always waited for, so that the record is exact.
    pub(super) async fn keep_until(&mut self, hold: &Hold, stop: &CancellationToken) -> anyhow::Result<()> {
        let every = self.stage.timing().renew_every();
        while !stop.is_cancelled() {
            let next = Instant::now() + every;
            tokio::select! {
                () = stop.cancelled() => {}
                () = sleep_until(next) => {}
            }
            if !stop.is_cancelled() && self.renew(hold).await? != Renewal::Done {
                return Err(self.lost());
            }
        }
        Ok(())
    }

    /// Whether the lock was still its own.
    pub(super) async fn release(&mut self, hold: &Hold) -> anyhow::Result<bool> {
        let released = self.locker.release(&hold.lock.key, &hold.token).await.context("a release failed")?;
        hold.lock.record.let_go(hold.number);
        if released {
            hold.lock.record.ended(hold.number, End::Released);
            self.note("released");
        } else {
            self.refused(hold, RELEASE_FAILED, "tried to release and was refused")?;
        }
        Ok(released)
    }

    /// The policy `fence`: it stops itself because it cannot know whether the lock is still its own.
    pub(super) fn abandon(&mut self, hold: &Hold) -> anyhow::Result<()> {
        hold.lock.record.let_go(hold.number);
        self.note("gave up the lock and stopped itself");
        self.stage.ground.journal.log(ABANDONED, &self.name, &hold.lock.key, &[])
    }

    /// The silent bug.
    pub(super) async fn delete_blindly(&mut self, lock: &Lock) -> anyhow::Result<bool> {
        let deleted = self.locker.delete(&lock.key).await.context("a DEL failed")?;
        self.note("deleted the lock of another with a plain DEL");
        Ok(deleted)
    }

    pub(super) async fn holds(&mut self, hold: &Hold) -> anyhow::Result<bool> {
        self.locker.holds(&hold.lock.key, &hold.token).await.context("a GET failed")
    }

    pub(super) fn locker(&mut self) -> &mut Locker {
        &mut self.locker
    }

    pub(super) fn note(&self, what: &str) {
        self.stage.note(&self.name, what);
    }

    fn lost(&self) -> anyhow::Error {
        Failure(format!("the {} could not renew a lock that was its own", self.name)).into()
    }

    fn refused(&mut self, hold: &Hold, message: &str, what: &str) -> anyhow::Result<()> {
        hold.lock.record.change(hold.number, |deed| deed.refused += 1);
        self.note(what);
        self.log(message, hold, NOT_OWNED)
    }

    fn log(&self, message: &str, hold: &Hold, error: &str) -> anyhow::Result<()> {
        self.stage.ground.journal.log(message, &self.name, &hold.lock.key, &[("error", error)])
    }
}

impl Hold {
    /// One that another process has just begun.
    pub(super) fn of_process(lock: &Lock, token: Token) -> Self {
        let number = lock.record.acquired(&lock.key);
        Self { lock: lock.clone(), token, number, acquired: Instant::now() }
    }

    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// Its TTL has run out.
    pub(super) fn expired(&self, ttl: Duration) {
        self.lock.record.expired(self.number, ttl);
    }

    /// Somebody deleted it.
    pub(super) fn deleted(&self) {
        self.lock.record.ended(self.number, End::Deleted);
    }

    /// Lost with its server.
    pub(super) fn lost(&self) {
        self.lock.record.ended(self.number, End::Stolen);
    }

    pub(super) fn let_go(&self) {
        self.lock.record.let_go(self.number);
    }

    /// For how long the next holder believed to have the lock, too.
    pub(super) fn overlap(&self) -> Duration {
        self.lock.record.overlap(self.number)
    }

    /// From its last sign of life to the next holder, if its TTL ran out.
    pub(super) fn takeover(&self) -> Option<Duration> {
        self.lock.record.takeover(self.number)
    }

    pub(super) fn last_sign(&self) -> Instant {
        self.lock.record.deeds()[self.number].last_sign
    }
}
