//! A worker: takes locks, keeps them while it works, and releases them, over its own connection.
//!
//! Everything that locks in a simulation is a worker: the services of [`cordum`](super::cordum),
//! the workers and worker processes of drills, and the workers of the tests (see
//! [`Behavior`](super::Behavior)). The worker writes each reply to the record of the lock before
//! anything else can happen. A [`LockProgram`] decides how a program reacts to a reply. A
//! [`PauseGate`] pauses all workers of a simulated process at once.

use std::sync::Arc;
use std::time::Duration;

use redis::{Client, RedisError, RedisResult};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::{End, KeyScope, LockToken, Locker, OperationLog};

/// One lock, and the record of what happens to it.
#[derive(Clone, Debug)]
pub struct LockSpec {
    pub key: String,
    pub ttl: Duration,
    pub record: Arc<OperationLog>,
}

/// A lock that its holder believes it holds.
#[derive(Clone, Debug)]
pub struct WorkerHold {
    pub lock: LockSpec,
    pub token: LockToken,
    pub acquired: Instant,
    /// The number of the hold in the record.
    number: usize,
}

/// The result of a renewal or a release.
#[derive(Debug)]
pub enum LockReply {
    Done,
    /// The caller no longer owned the lock.
    Refused,
    Unanswered(UnknownResult),
}

/// Why it is unknown whether Redis executed the request.
#[derive(Debug, thiserror::Error)]
pub enum UnknownResult {
    #[error("no answer of Redis in time")]
    Late,
    #[error("Redis or the connection to it failed")]
    Failed(#[source] RedisError),
}

/// What a program does about the renewals of one lock.
pub trait LockProgram {
    /// How long after the last attempt to renew again. `None` if the lock is not renewed, or not
    /// any more.
    fn renew_after(&mut self) -> Option<Duration>;

    /// Called after each renewal. `failures`: how many renewals in a row, including this one, did
    /// not succeed.
    fn on_reply(&mut self, hold: &WorkerHold, answer: &LockReply, failures: u32) -> anyhow::Result<RenewalAction>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewalAction {
    GoOn,
    GiveUp,
}

/// How the time with a lock ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The work was finished or canceled.
    Done,
    /// The program gave up the lock.
    GivenUp,
}

pub struct Worker {
    client: Client,
    patience: Duration,
    key_scope: Option<Arc<KeyScope>>,
    gate: PauseGate,
    /// Opened when it is needed, and again after an error.
    locker: Option<Locker>,
}

impl Worker {
    /// Creates a worker that waits this long for each reply.
    pub fn new(client: &Client, patience: Duration) -> Self {
        Self { client: client.clone(), patience, key_scope: None, gate: PauseGate::default(), locker: None }
    }

    /// Limits the worker to the keys of a key scope.
    pub fn within(self, key_scope: &Arc<KeyScope>) -> Self {
        Self { key_scope: Some(Arc::clone(key_scope)), ..self }
    }

    /// Pauses the worker while the gate of its process is closed.
    pub fn behind(self, gate: &PauseGate) -> Self {
        Self { gate: gate.clone(), ..self }
    }

    pub fn wait_at_most(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Returns the connection. Opens one if there is none.
    pub async fn locker(&mut self) -> RedisResult<&mut Locker> {
        let locker = match self.locker.take() {
            Some(locker) => locker,
            None => Locker::patient(&self.client, self.patience, self.key_scope.clone()).await?,
        };
        Ok(self.locker.insert(locker))
    }

    /// Returns `None` if the lock is taken.
    pub async fn take(&mut self, lock: &LockSpec) -> Result<Option<WorkerHold>, UnknownResult> {
        self.take_as(lock, &LockToken::random()).await
    }

    /// Takes the lock with a given token.
    pub async fn take_as(&mut self, lock: &LockSpec, token: &LockToken) -> Result<Option<WorkerHold>, UnknownResult> {
        let answer = self.ask(async |locker| locker.acquire_as(&lock.key, token, lock.ttl).await).await;
        let taken = answer.map(|is_free| is_free.then(|| WorkerHold::begun(lock, token)));
        // Pause only now: Redis has executed the request, and the record contains it.
        self.gate.pass().await;
        taken
    }

    /// Tries until the lock is acquired, like a program that waits for a lock. Returns `None` if
    /// the time is over or `end` is canceled.
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
            // If Redis did not execute the release, the lock expires by its TTL.
            LockReply::Unanswered(_) => lock.record.lost(hold.number),
        }
        self.gate.pass().await;
        answer
    }

    /// Works until that time or until `end` is canceled, and renews the lock as the program
    /// decides.
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
            // The time of the attempt, not of its reply, which may take long. Programs renew at
            // fixed intervals.
            last_attempt = Instant::now();
            let answer = self.renew(hold).await;
            failures = if matches!(answer, LockReply::Done) { 0 } else { failures + 1 };
            if program.on_reply(hold, &answer, failures)? == RenewalAction::GiveUp {
                hold.let_go();
                return Ok(Kept::GivenUp);
            }
        }
        if let Some(until) = until {
            self.rest_until(until, end).await;
        }
        Ok(Kept::Done)
    }

    /// Waits until that time or until `end` is canceled.
    pub async fn rest_until(&self, time: Instant, end: &CancellationToken) {
        end.run_until_cancelled(sleep_until(time)).await;
        self.gate.pass().await;
    }

    async fn ask<T>(&mut self, question: impl AsyncFnOnce(&mut Locker) -> RedisResult<T>) -> Result<T, UnknownResult> {
        let patience = self.patience;
        match timeout(patience, async { question(self.locker().await?).await }).await {
            Ok(Ok(answer)) => Ok(answer),
            // The connection discards the late reply, so it can be used for the next request.
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
            Err(error) => Self::Unanswered(error),
        }
    }
}

impl WorkerHold {
    /// Begins a hold now. Call it when the lock was just acquired with this token.
    pub fn begun(lock: &LockSpec, token: &LockToken) -> Self {
        let (number, acquired) = lock.record.acquired(&lock.key);
        Self { lock: lock.clone(), token: token.clone(), acquired, number }
    }

    /// The time of the acquisition or of the last renewal.
    pub fn last_sign(&self) -> Instant {
        self.lock.record.last_sign(self.number).unwrap_or(self.acquired)
    }

    /// For how long this holder and the next one both believed that they held the lock.
    pub fn overlap(&self) -> Duration {
        self.lock.record.overlap(self.number)
    }

    /// The time from the last sign of life to the next holder, if the TTL ran out.
    pub fn takeover(&self) -> Option<Duration> {
        self.lock.record.takeover(self.number)
    }

    pub fn renewed(&self) {
        self.lock.record.renewed(self.number);
    }

    /// Redis refused a renewal or a release.
    pub fn refused(&self) {
        self.lock.record.refused(self.number);
    }

    /// The holder no longer works as if it held the lock.
    pub fn let_go(&self) {
        self.lock.record.let_go(self.number);
    }

    pub fn ended(&self, end: End) {
        self.lock.record.ended(self.number, end);
    }

    /// The TTL ran out, counted from the acquisition or the last renewal.
    pub fn expired(&self) {
        self.lock.record.expired(self.number, self.lock.ttl);
    }
}

#[derive(Clone, Debug, Default)]
pub struct PauseGate {
    is_closed: Arc<watch::Sender<bool>>,
}

impl PauseGate {
    pub fn close(&self, is_closed: bool) {
        self.is_closed.send_replace(is_closed);
    }

    /// Waits while the gate is closed.
    pub async fn pass(&self) {
        // The wait cannot fail, because the gate owns the sender.
        let _ = self.is_closed.subscribe().wait_for(|is_closed| !is_closed).await;
    }
}
