//! The main function of a worker process (see `process.rs`). It takes a lock with a fence, renews
//! it, works for a while without checking the lock, writes its result, and releases the lock.

use std::io::{BufRead as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use redis::{Client, ConnectionAddr, IntoConnectionInfo as _, RedisConnectionInfo};
use tokio_util::sync::CancellationToken;

use super::configuration::{FINISHED, NOT_OWNED, RELEASE_FAILED, RENEWAL_FAILED, WRITE_REJECTED};
use super::journal::WorkerLog;
use super::process::{NAME, Reach, WorkerMessage, WorkerTask};
use crate::cli::{EXIT_FAILED, EXIT_OK};
use crate::rehearsal::fleet::{
    Kept, KeyScope, LockProgram, LockReply, LockSpec, LockToken, RenewalAction, Worker, WorkerHold,
};

/// How long the critical section takes: long enough to stop the process in it.
const CRITICAL: Duration = Duration::from_millis(400);
/// The timeout for a reply from Redis. It is long, because the drill may slow down the network.
const PATIENCE: Duration = Duration::from_secs(180);

/// Runs the process and returns its exit code.
pub fn run() -> u8 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = runtime.context("cannot start the runtime").and_then(|runtime| runtime.block_on(work()));
    match result {
        Ok(()) => EXIT_OK,
        Err(failure) => {
            eprintln!("drill-worker: {failure:#}");
            EXIT_FAILED
        }
    }
}

impl Reach {
    pub(super) fn client(&self) -> anyhow::Result<Client> {
        let mut settings = RedisConnectionInfo::default().set_db(self.database);
        if let Some(username) = &self.username {
            settings = settings.set_username(username);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password);
        }
        let info = ConnectionAddr::Tcp(self.host.clone(), self.port).into_connection_info()?;
        Ok(Client::open(info.set_redis_settings(settings))?)
    }
}

/// Renews the lock and reports each renewal.
struct ProcessRenewal {
    every: Duration,
    /// How many renewals are left. `None`: renew forever.
    wanted: Option<u32>,
}

async fn work() -> anyhow::Result<()> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).context("no order")?;
    let order: WorkerTask = serde_json::from_str(&line).context("an order that cannot be read")?;
    end_with_parent();

    let territory = Arc::new(KeyScope::new(&order.prefix)?);
    let journal = WorkerLog::open(&order.log_file)?;
    let mut worker = Worker::new(&order.redis.client()?, PATIENCE).within(&territory);
    let lock = LockSpec { key: order.key.clone(), ttl: Duration::from_millis(order.ttl_ms), record: Arc::default() };
    let (key, keep) = (order.key.as_str(), Duration::from_millis(order.keep_ms));
    let hold = worker.take_as(&lock, &LockToken::new(&order.token)).await?.context("the lock is taken")?;
    let fence = worker.locker().await?.next_fence(&order.fence_key, keep).await?;
    tell(WorkerMessage::Acquired { fence })?;

    let mut renewing = ProcessRenewal { every: Duration::from_millis(order.renew_every_ms), wanted: order.renewals };
    if worker.keep(&hold, None, &CancellationToken::new(), &mut renewing).await? == Kept::GivenUp {
        return tell(WorkerMessage::Lost);
    }

    // The last renewal succeeded. From here on the process finishes its work and does not check the
    // lock again.
    tell(WorkerMessage::Critical)?;
    std::thread::sleep(CRITICAL);
    // Write to both storage keys at the same time.
    let locker = worker.locker().await?;
    let mut second = locker.clone();
    let (fenced, plain) = tokio::join!(
        locker.write_fenced(&order.fenced_storage, fence, NAME, keep),
        second.write(&order.plain_storage, fence, NAME, keep),
    );
    plain?;
    let fenced = fenced?;
    if !fenced {
        journal.log(WRITE_REJECTED, NAME, key, &[])?;
    }
    journal.log(FINISHED, NAME, key, &[("state", "DONE")])?;
    tell(WorkerMessage::Wrote { fenced })?;

    let done = is_done(worker.renew(&hold).await)?;
    if !done {
        journal.log(RENEWAL_FAILED, NAME, key, &[("error", NOT_OWNED)])?;
    }
    tell(WorkerMessage::Renewal { done })?;
    let done = is_done(worker.release(&hold).await)?;
    if !done {
        journal.log(RELEASE_FAILED, NAME, key, &[("error", NOT_OWNED)])?;
    }
    tell(WorkerMessage::Release { done })
}

impl LockProgram for ProcessRenewal {
    fn renew_after(&mut self) -> Option<Duration> {
        (self.wanted != Some(0)).then_some(self.every)
    }

    fn heard(&mut self, _: &WorkerHold, answer: &LockReply, _: u32) -> anyhow::Result<RenewalAction> {
        match answer {
            LockReply::Done => {
                self.wanted = self.wanted.map(|wanted| wanted - 1);
                tell(WorkerMessage::Renewed)?;
                Ok(RenewalAction::GoOn)
            }
            LockReply::Refused => Ok(RenewalAction::GiveUp),
            LockReply::Unanswered(trouble) => bail!("a renewal failed: {trouble}"),
        }
    }
}

fn is_done(answer: LockReply) -> anyhow::Result<bool> {
    match answer {
        LockReply::Done => Ok(true),
        LockReply::Refused => Ok(false),
        LockReply::Unanswered(trouble) => Err(trouble.into()),
    }
}

/// Ends this process when the drill ends and closes the pipe, so that a killed drill leaves no
/// workers behind.
fn end_with_parent() {
    std::thread::spawn(|| {
        let mut rest = String::new();
        while std::io::stdin().lock().read_line(&mut rest).is_ok_and(|length| length > 0) {}
        std::process::exit(EXIT_FAILED.into());
    });
}

fn tell(told: WorkerMessage) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(&told)?)?;
    out.flush().context("nobody listens")
}
