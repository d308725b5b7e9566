//! A worker: takes locks, keeps them while it works and lets them go, over a connection of its own.
//!
//! Whatever locks in a simulation is one of these: the services of [`cordum`](super::cordum), the workers and worker processes of
//! drills, and those of the tests, whose [`Behavior`](super::Behavior) is drawn. What was done is noted in the record of the
//! lock before anything else can happen. What a program says and does about an answer is its own: a [`LockProgram`].

use std::sync::Arc;
use std::time::Duration;

use redis::{Client, RedisError, RedisResult};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::{End, Gate, LockToken, Locker, OperationLog, Territory};

/// One lock, and where it is noted what happens to it.
#[derive(Clone, Debug)]
pub struct LockSpec {
    pub key: String,
    pub ttl: Duration,
    pub record: Arc<OperationLog>,
}

/// A lock that its holder believes to have.
#[derive(Clone, Debug)]
pub struct WorkerHold {
    pub lock: LockSpec,
    pub token: LockToken,
    pub acquired: Instant,
    /// In the record.
    number: usize,
}

/// To a renewal or a release.
#[derive(Debug)]
pub enum LockReply {
    Done,
    /// The lock was no longer the caller's.
    Refused,
    Unanswered(UnknownResult),
}

/// Why nobody knows whether Redis has done it.
#[derive(Debug, thiserror::Error)]
pub enum UnknownResult {
    #[error("no answer of Redis in time")]
    Late,
    #[error("Redis or the connection to it failed")]
    Failed(#[source] RedisError),
}

/// What a program does about the renewals of one lock.
pub trait LockProgram {
    /// How long after the last attempt to try again; `None` where the lock is not renewed, or no more.
    fn renew_after(&mut self) -> Option<Duration>;

    /// A renewal has ended. `failures`: how many in a row, with this one, did not succeed.
    fn heard(&mut self, hold: &WorkerHold, answer: &LockReply, failures: u32) -> anyhow::Result<RenewalAction>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewalAction {
    GoOn,
    GiveUp,
}

/// How the time with a lock ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The work was done, or was told to end.
    Done,
    /// The program gave up the lock.
    GivenUp,
}

pub struct Worker {
    client: Client,
    patience: Duration,
    territory: Option<Arc<Territory>>,
    gate: Gate,
    /// Made when it is needed, and anew after an error.
    locker: Option<Locker>,
}

impl Worker {
    /// One that waits this long for each answer.
    pub fn new(client: &Client, patience: Duration) -> Self {
        Self { client: client.clone(), patience, territory: None, gate: Gate::default(), locker: None }
    }

    /// It refuses to write anywhere else.
    pub fn within(self, territory: &Arc<Territory>) -> Self {
        Self { territory: Some(Arc::clone(territory)), ..self }
    }

    /// It stands still when its process does.
    pub fn behind(self, gate: &Gate) -> Self {
        Self { gate: gate.clone(), ..self }
    }

    pub fn wait_at_most(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Its connection, made if there is none.
    pub async fn locker(&mut self) -> RedisResult<&mut Locker> {
        let locker = match self.locker.take() {
            Some(locker) => locker,
            None => Locker::patient(&self.client, self.patience, self.territory.clone()).await?,
        };
        Ok(self.locker.insert(locker))
    }

    /// Nothing if somebody else has it.
    pub async fn take(&mut self, lock: &LockSpec) -> Result<Option<WorkerHold>, UnknownResult> {
        self.take_as(lock, &LockToken::random()).await
    }

    /// With a token that was made before.
    pub async fn take_as(&mut self, lock: &LockSpec, token: &LockToken) -> Result<Option<WorkerHold>, UnknownResult> {
        let answer = self.ask(async |locker| locker.acquire_as(&lock.key, token, lock.ttl).await).await;
        let taken = answer.map(|is_free| is_free.then(|| WorkerHold::begun(lock, token)));
        // Only now may it stand still: Redis has done it, and so it is noted.
        self.gate.pass().await;
        taken
    }

    /// Tries again and again, as a program that waits for a lock. Nothing if it waited in vain, or was told to end.
    pub async fn wait_for(
        &mut self,
        lock: &LockSpec,
        (every, until): (Duration, Instant),
        end: &CancellationToken,
    ) -> Result<Option<WorkerHold>, UnknownResult> {
        loop {
            let taken = self.take(lock).await?;
            if taken.is_some() || Instant::now() >= until || end.is_cancelled() {
                return Ok(taken);
            }
            self.rest_until(Instant::now() + every, end).await;
        }
    }

    pub async fn renew(&mut self, hold: &WorkerHold) -> LockReply {
        let WorkerHold { lock, token, .. } = hold;
        let answer = self.ask(async |locker| locker.renew(&lock.key, token, lock.ttl).await).await.into();
        match answer {
            LockReply::Done => hold.renewed(),
            LockReply::Refused => hold.refused(),
            LockReply::Unanswered(_) => {}
        }
        self.gate.pass().await;
        answer
    }

    pub async fn release(&mut self, hold: &WorkerHold) -> LockReply {
        let WorkerHold { lock, token, .. } = hold;
        let answer = self.ask(async |locker| locker.release(&lock.key, token).await).await.into();
        hold.let_go();
        match answer {
            LockReply::Done => hold.ended(End::Released),
            LockReply::Refused => {
                hold.refused();
                lock.record.lost(hold.number);
            }
            // If Redis did not do it, the TTL will.
            LockReply::Unanswered(_) => lock.record.lost(hold.number),
        }
        self.gate.pass().await;
        answer
    }

    /// Works until then, or until it is told to end, and renews meanwhile as the program says.
    pub async fn keep(
        &mut self,
        hold: &WorkerHold,
        until: Option<Instant>,
        end: &CancellationToken,
        program: &mut impl LockProgram,
    ) -> anyhow::Result<Kept> {
        let mut failures = 0;
        let mut last_attempt = hold.last_sign();
        while let Some(every) = program.renew_after() {
            let due = last_attempt + every;
            if until.is_some_and(|until| due >= until) {
                break;
            }
            self.rest_until(due, end).await;
            if end.is_cancelled() {
                return Ok(Kept::Done);
            }
            // Not of the answer, which may take long: programs renew by the clock.
            last_attempt = Instant::now();
            let answer = self.renew(hold).await;
            failures = if matches!(answer, LockReply::Done) { 0 } else { failures + 1 };
            if program.heard(hold, &answer, failures)? == RenewalAction::GiveUp {
                hold.let_go();
                return Ok(Kept::GivenUp);
            }
        }
        if let Some(until) = until {
            self.rest_until(until, end).await;
        }
        Ok(Kept::Done)
    }

    /// Does nothing until then, or until it is told to end.
    pub async fn rest_until(&self, time: Instant, end: &CancellationToken) {
        end.run_until_cancelled(sleep_until(time)).await;
        self.gate.pass().await;
    }

    async fn ask<T>(&mut self, question: impl AsyncFnOnce(&mut Locker) -> RedisResult<T>) -> Result<T, UnknownResult> {
        let patience = self.patience;
        match timeout(patience, async { question(self.locker().await?).await }).await {
            Ok(Ok(answer)) => Ok(answer),
            // A late answer belongs to nobody; the connection is good for the next question.
            Err(_) => Err(UnknownResult::Late),
            Ok(Err(error)) => {
                self.locker = None;
                Err(UnknownResult::Failed(error))
            }
        }
    }
}

impl From<Result<bool, UnknownResult>> for LockReply {
    fn from(answer: Result<bool, UnknownResult>) -> Self {
        match answer {
            Ok(true) => Self::Done,
            Ok(false) => Self::Refused,
            Err(trouble) => Self::Unanswered(trouble),
        }
    }
}

impl WorkerHold {
    /// Begins just now, for whoever has taken the lock with this token.
    pub fn begun(lock: &LockSpec, token: &LockToken) -> Self {
        let (number, acquired) = lock.record.acquired(&lock.key);
        Self { lock: lock.clone(), token: token.clone(), acquired, number }
    }

    /// Acquisition or last renewal.
    pub fn last_sign(&self) -> Instant {
        self.lock.record.last_sign(self.number).unwrap_or(self.acquired)
    }

    /// For how long the next holder believed to have the lock, too.
    pub fn overlap(&self) -> Duration {
        self.lock.record.overlap(self.number)
    }

    /// From its last sign of life to the next holder, if its TTL ran out.
    pub fn takeover(&self) -> Option<Duration> {
        self.lock.record.takeover(self.number)
    }

    pub fn renewed(&self) {
        self.lock.record.renewed(self.number);
    }

    /// A renewal or release was.
    pub fn refused(&self) {
        self.lock.record.refused(self.number);
    }

    /// The holder works no more as if it had the lock.
    pub fn let_go(&self) {
        self.lock.record.let_go(self.number);
    }

    pub fn ended(&self, end: End) {
        self.lock.record.ended(self.number, end);
    }

    /// Its TTL ran out, at the time that follows from the last sign of life.
    pub fn expired(&self) {
        self.lock.record.expired(self.number, self.lock.ttl);
    }
}
