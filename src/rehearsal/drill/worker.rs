//! The worker of a drill, and the log file of the workers, which the exporter follows. A worker logs
//! failures as a real program does, and adds what it does to the timeline. The scenarios use it.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Context as _;
use redis::{Client, ConnectionAddr};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::report::ScenarioFailure;
use super::scenario_run::{DrillContext, ScenarioRun};
use super::settings::{ABANDONED, NOT_OWNED, RELEASE_FAILED, RENEWAL_FAILED};
use super::worker_process::Reach;
use crate::rehearsal::fleet::{
    self, Kept, LockProgram, LockReply, LockSpec, Locker, RenewalAction, UnknownResult, WorkerHold, client_through,
};
use crate::util::clock;

/// How a worker connects to Redis.
#[derive(Clone, Copy, Debug)]
pub(super) enum RedisRoute {
    Direct,
    /// Through a proxy on this port of the loopback interface.
    Proxy(u16),
}

/// How a worker reacts to failed renewals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RenewalPolicy {
    /// No renewal may fail. If one does, the scenario has failed.
    Succeed,
    /// The worker stops itself after this many failures in a row.
    Fence(u32),
    /// The worker carries on.
    Continue,
}

pub(super) struct DrillWorker<'a> {
    inner: fleet::Worker,
    reporter: WorkerReporter<'a>,
}

/// Writes log lines and timeline entries in the name of a worker.
struct WorkerReporter<'a> {
    name: String,
    scenario_run: &'a ScenarioRun,
}

/// A worker that keeps a lock and counts its failed renewals.
struct WorkerRenewal<'a> {
    reporter: &'a WorkerReporter<'a>,
    policy: RenewalPolicy,
    n_failed: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RenewalResult {
    Done,
    Refused,
    /// No reply in time.
    Failed,
}

impl DrillContext {
    /// How another process connects to the same Redis.
    pub(super) fn reach(&self, route: RedisRoute) -> Reach {
        let info = self.client.get_connection_info();
        let settings = info.redis_settings();
        let (host, port) = match (route, info.addr()) {
            (RedisRoute::Direct, ConnectionAddr::Tcp(host, port)) => (host.clone(), *port),
            (RedisRoute::Proxy(port), _) => ("127.0.0.1".to_owned(), port),
            // `setup` accepts only URLs with a TCP address.
            (RedisRoute::Direct, _) => unreachable!("a Redis of a drill is at a TCP address"),
        };
        Reach {
            host,
            port,
            database: settings.db(),
            username: settings.username().map(str::to_owned),
            password: settings.password().map(str::to_owned),
        }
    }

    /// Returns a client for the same Redis, direct or through a proxy.
    pub(super) fn client_over(&self, route: RedisRoute) -> anyhow::Result<Client> {
        let RedisRoute::Proxy(port) = route else { return Ok(self.client.clone()) };
        client_through(port, &self.client).context("bad address of a proxy")
    }
}

impl<'a> DrillWorker<'a> {
    /// Connects a worker with a timeout so long that it waits for every reply.
    pub(super) async fn connect(scenario_run: &'a ScenarioRun, name: &str, route: RedisRoute) -> anyhow::Result<Self> {
        let patience = (scenario_run.timing().ttl * 5).max(Duration::from_secs(10));
        let client = scenario_run.context.client_over(route)?;
        let mut inner = fleet::Worker::new(&client, patience).within(&scenario_run.context.key_scope);
        inner.locker().await.with_context(|| format!("the {name} worker cannot connect to Redis"))?;
        Ok(Self { inner, reporter: WorkerReporter { name: format!("{name} worker"), scenario_run } })
    }

    /// Sets the timeout for replies from now on. Only shortened when no reply can come, because a
    /// slow reply on a busy machine is not a failure.
    pub(super) fn wait_at_most(&mut self, patience: Duration) {
        self.inner.wait_at_most(patience);
    }

    /// Acquires a lock that must be free.
    pub(super) async fn acquire(&mut self, lock: &LockSpec) -> anyhow::Result<WorkerHold> {
        let hold = self.try_acquire(lock).await?;
        hold.with_context(|| format!("{} is taken, although it is a lock of this drill only", lock.key))
    }

    pub(super) async fn try_acquire(&mut self, lock: &LockSpec) -> anyhow::Result<Option<WorkerHold>> {
        let taken = self.inner.take(lock).await.context("an acquisition failed")?;
        Ok(taken.inspect(|_| self.note("took the lock")))
    }

    /// Tries until the lock is acquired, like a program that waits for a lock.
    pub(super) async fn wait_for(&mut self, lock: &LockSpec) -> anyhow::Result<WorkerHold> {
        let rhythm = (self.reporter.scenario_run.timing().poll(), Instant::now() + lock.ttl * 4);
        let taken = self.inner.wait_for(lock, rhythm, &CancellationToken::new()).await;
        let Some(hold) = taken.context("an acquisition failed")? else {
            return Err(ScenarioFailure(format!("the {} waited in vain for {}", self.reporter.name, lock.key)).into());
        };
        self.note("took the lock");
        Ok(hold)
    }

    pub(super) async fn renew(&mut self, hold: &WorkerHold) -> anyhow::Result<RenewalResult> {
        let answer = self.inner.renew(hold).await;
        self.reporter.report_renewal(hold, &answer)
    }

    /// Works and renews until that time. Every renewal must succeed.
    pub(super) async fn work_until(&mut self, hold: &WorkerHold, until: Instant) -> anyhow::Result<()> {
        self.keep(hold, Some(until), &CancellationToken::new(), RenewalPolicy::Succeed).await?;
        Ok(())
    }

    /// Works and renews until `stop` is canceled. Always waits for the reply to a request that was
    /// sent, so that the record is exact.
    pub(super) async fn keep_until(&mut self, hold: &WorkerHold, stop: &CancellationToken) -> anyhow::Result<()> {
        self.keep(hold, None, stop, RenewalPolicy::Succeed).await?;
        Ok(())
    }

    /// Works until that time and tries to renew without success. Returns the number of failed
    /// renewals.
    pub(super) async fn fail_until(
        &mut self,
        hold: &WorkerHold,
        until: Instant,
        policy: RenewalPolicy,
    ) -> anyhow::Result<u32> {
        let (kept, n_failed) = self.keep(hold, Some(until), &CancellationToken::new(), policy).await?;
        if kept == Kept::GivenUp {
            self.note("gave up the lock and stopped itself");
            self.reporter.scenario_run.context.worker_log.log(ABANDONED, &self.reporter.name, &hold.lock.key, &[])?;
        }
        Ok(n_failed)
    }

    async fn keep(
        &mut self,
        hold: &WorkerHold,
        until: Option<Instant>,
        stop: &CancellationToken,
        policy: RenewalPolicy,
    ) -> anyhow::Result<(Kept, u32)> {
        let mut renewing = WorkerRenewal { reporter: &self.reporter, policy, n_failed: 0 };
        let kept = self.inner.keep(hold, until, stop, &mut renewing).await?;
        Ok((kept, renewing.n_failed))
    }

    /// Releases the lock. Returns whether the worker still owned it.
    pub(super) async fn release(&mut self, hold: &WorkerHold) -> anyhow::Result<bool> {
        match self.inner.release(hold).await {
            LockReply::Done => self.note("released"),
            LockReply::Refused => {
                self.note("tried to release and was refused");
                self.reporter.log(RELEASE_FAILED, hold, NOT_OWNED)?;
                return Ok(false);
            }
            LockReply::Unanswered(error) => return Err(anyhow::Error::new(error).context("a release failed")),
        }
        Ok(true)
    }

    /// Deletes a lock that the worker does not own, a bug that causes no error.
    pub(super) async fn delete_blindly(&mut self, lock: &LockSpec) -> anyhow::Result<bool> {
        let deleted = self.locker().await?.delete(&lock.key).await.context("a DEL failed")?;
        self.note("deleted the lock of another with a plain DEL");
        Ok(deleted)
    }

    pub(super) async fn holds(&mut self, hold: &WorkerHold) -> anyhow::Result<bool> {
        self.locker().await?.holds(&hold.lock.key, &hold.token).await.context("a GET failed")
    }

    pub(super) async fn locker(&mut self) -> anyhow::Result<&mut Locker> {
        self.inner.locker().await.context("cannot connect to Redis")
    }

    pub(super) fn note(&self, what: &str) {
        self.reporter.note(what);
    }
}

impl WorkerReporter<'_> {
    fn note(&self, what: &str) {
        self.scenario_run.note(&self.name, what);
    }

    fn log(&self, message: &str, hold: &WorkerHold, error: &str) -> anyhow::Result<()> {
        self.scenario_run.context.worker_log.log(message, &self.name, &hold.lock.key, &[("error", error)])
    }

    fn report_renewal(&self, hold: &WorkerHold, answer: &LockReply) -> anyhow::Result<RenewalResult> {
        Ok(match answer {
            LockReply::Done => {
                self.note("renewed");
                RenewalResult::Done
            }
            LockReply::Refused => {
                self.note("tried to renew and was refused");
                self.log(RENEWAL_FAILED, hold, NOT_OWNED)?;
                RenewalResult::Refused
            }
            LockReply::Unanswered(UnknownResult::Late) => {
                self.note("got no answer to its renewal");
                self.log(RENEWAL_FAILED, hold, "i/o timeout")?;
                RenewalResult::Failed
            }
            LockReply::Unanswered(UnknownResult::Failed(error)) => anyhow::bail!("a renewal failed: {error}"),
        })
    }
}

impl LockProgram for WorkerRenewal<'_> {
    fn renew_after(&mut self) -> Option<Duration> {
        Some(self.reporter.scenario_run.timing().renew_every())
    }

    fn on_reply(&mut self, hold: &WorkerHold, answer: &LockReply, failures: u32) -> anyhow::Result<RenewalAction> {
        let renewal = self.reporter.report_renewal(hold, answer)?;
        self.n_failed += u32::from(renewal == RenewalResult::Failed);
        match (self.policy, renewal) {
            (RenewalPolicy::Succeed, RenewalResult::Done) | (RenewalPolicy::Continue, RenewalResult::Failed) => {
                Ok(RenewalAction::GoOn)
            }
            (RenewalPolicy::Fence(budget), RenewalResult::Failed) if failures < budget => Ok(RenewalAction::GoOn),
            (RenewalPolicy::Fence(_), RenewalResult::Failed | RenewalResult::Refused) => Ok(RenewalAction::GiveUp),
            (RenewalPolicy::Succeed, _) => {
                let name = &self.reporter.name;
                Err(ScenarioFailure(format!("the {name} could not renew a lock that was its own")).into())
            }
            (RenewalPolicy::Fence(_), RenewalResult::Done) | (RenewalPolicy::Continue, _) => {
                anyhow::bail!("a renewal was answered although nothing is forwarded")
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct WorkerLog {
    file: Mutex<File>,
}

impl WorkerLog {
    /// Opens the file for appending.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.with_context(|| format!("cannot write the workers' log {}", path.display()))?;
        Ok(Self { file: Mutex::new(file) })
    }

    /// Writes one line. `more` contains further fields: `error` if something failed, `state` if
    /// work was finished.
    pub(super) fn log(&self, message: &str, worker: &str, key: &str, more: &[(&str, &str)]) -> anyhow::Result<()> {
        let mut line = json!({
            "time": clock::format(clock::now()),
            "level": "WARN",
            "msg": message,
            "component": "drill",
            "worker": worker,
            "key": key,
        });
        for (name, value) in more {
            line[*name] = json!(value);
        }
        // One write per line, so that a reader never sees the lines of two workers mixed.
        let mut file = self.file.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        file.write_all(format!("{line}\n").as_bytes()).context("cannot write the workers' log")
    }
}
