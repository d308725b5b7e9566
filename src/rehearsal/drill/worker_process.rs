//! A worker that is a separate process, so that the drill can stop and kill it with signals.
//!
//! [`WorkerProcess`] starts the hidden subcommand `drill-worker` of this program, whose main
//! function is [`run`]. The process reads its task as one JSON line from standard input and reports
//! what it does as JSON lines on standard output. It takes a lock with a fence, renews it, works for
//! a while without checking the lock, writes its result, and releases the lock.

use std::io::{BufRead as _, Write as _};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use redis::{Client, ConnectionAddr, IntoConnectionInfo as _, RedisConnectionInfo};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::settings::{FINISHED, NOT_OWNED, RELEASE_FAILED, RENEWAL_FAILED, WRITE_REJECTED};
use super::worker::WorkerLog;
use crate::cli::{EXIT_FAILED, EXIT_OK};
use crate::rehearsal::fleet::{
    Kept, KeyScope, LockProgram, LockReply, LockSpec, LockToken, RenewalAction, Worker, WorkerHold,
};

const STOPS_WITHIN: Duration = Duration::from_secs(5);

/// The name of this worker in the log and in the timeline.
pub(super) const NAME: &str = "worker process";

/// The task of a worker process. The parent generates the token, because the parent must clean up
/// if the process is killed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WorkerTask {
    pub(super) redis: Reach,
    /// All keys that the process writes begin with this.
    pub(super) prefix: String,
    pub(super) log_file: PathBuf,
    pub(super) key: String,
    pub(super) token: String,
    pub(super) ttl_ms: u64,
    pub(super) renew_every_ms: u64,
    /// How many renewals to do before the critical section. `None`: renew forever.
    pub(super) renewals: Option<u32>,
    pub(super) fence_key: String,
    pub(super) fenced_storage: String,
    pub(super) plain_storage: String,
    pub(super) keep_ms: u64,
}

/// How to connect to Redis. Sent over a pipe, because command line arguments are visible to all
/// users.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Reach {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) database: i64,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
}

/// What a worker process reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub(super) enum WorkerMessage {
    Acquired {
        fence: u64,
    },
    Renewed,
    /// A renewal was refused earlier than planned.
    Lost,
    /// The process is in its critical section. It does not check the lock any more and writes at
    /// the end.
    Critical,
    Wrote {
        fenced: bool,
    },
    Renewal {
        done: bool,
    },
    Release {
        done: bool,
    },
}

/// The process is killed when this is dropped.
pub(super) struct WorkerProcess {
    child: Child,
    pid: Pid,
    message: Lines<BufReader<ChildStdout>>,
    /// The process ends when this is closed.
    _stdin: ChildStdin,
}

impl WorkerProcess {
    pub(super) async fn start(task: &WorkerTask) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find this program itself")?;
        let mut command = Command::new(program);
        command.arg("drill-worker").stdin(Stdio::piped()).stdout(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        let mut child = command.spawn().context("cannot start a worker process")?;
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("a worker process without pipes");
        };
        let pid = child.id().and_then(|id| Pid::from_raw(id as i32)).context("the worker process ended at once")?;
        let line = serde_json::to_string(task)? + "\n";
        stdin.write_all(line.as_bytes()).await.context("the worker process takes no order")?;
        Ok(Self { child, pid, message: BufReader::new(stdout).lines(), _stdin: stdin })
    }

    /// Waits for the next message.
    pub(super) async fn next(&mut self, patience: Duration) -> anyhow::Result<WorkerMessage> {
        let line =
            timeout(patience, self.message.next_line()).await.context("the worker process reports nothing")??;
        let line = line.context("the worker process ended before its time")?;
        serde_json::from_str(&line).with_context(|| format!("a worker process reported {line:?}"))
    }

    /// Returns a line that the process wrote and that was not read yet, if there is one.
    pub(super) async fn unread_message(&mut self) -> anyhow::Result<Option<String>> {
        match timeout(Duration::ZERO, self.message.next_line()).await {
            Ok(line) => Ok(Some(line?.context("the worker process ended before its time")?)),
            Err(_) => Ok(None),
        }
    }

    /// Sends SIGSTOP and waits until the kernel has stopped the process.
    pub(super) async fn pause(&self) -> anyhow::Result<()> {
        kill_process(self.pid, Signal::STOP).context("cannot stop the worker process")?;
        let deadline = Instant::now() + STOPS_WITHIN;
        while !self.is_stopped()? {
            anyhow::ensure!(Instant::now() < deadline, "the worker process does not stop");
            sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// Whether the kernel reports the process as stopped.
    pub(super) fn is_stopped(&self) -> anyhow::Result<bool> {
        let path = format!("/proc/{}/stat", self.pid.as_raw_nonzero());
        let stat = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        // The state follows the command name in parentheses, which can contain any character.
        Ok(stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')))
    }

    pub(super) fn resume(&self) -> anyhow::Result<()> {
        kill_process(self.pid, Signal::CONT).context("cannot continue the worker process")
    }

    /// Sends SIGKILL and waits until the process has ended.
    pub(super) async fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("cannot kill the worker process")
    }
}

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
    expected_count: Option<u32>,
}

async fn work() -> anyhow::Result<()> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).context("no order")?;
    let task: WorkerTask = serde_json::from_str(&line).context("an order that cannot be read")?;
    end_with_parent();

    let key_scope = Arc::new(KeyScope::new(&task.prefix)?);
    let worker_log = WorkerLog::open(&task.log_file)?;
    let mut worker = Worker::new(&task.redis.client()?, PATIENCE).within(&key_scope);
    let lock = LockSpec { key: task.key.clone(), ttl: Duration::from_millis(task.ttl_ms), record: Arc::default() };
    let (key, keep) = (task.key.as_str(), Duration::from_millis(task.keep_ms));
    let hold = worker.take_as(&lock, &LockToken::new(&task.token)).await?.context("the lock is taken")?;
    let fence = worker.locker().await?.next_fence(&task.fence_key, keep).await?;
    send(WorkerMessage::Acquired { fence })?;

    let mut renewing =
        ProcessRenewal { every: Duration::from_millis(task.renew_every_ms), expected_count: task.renewals };
    if worker.keep(&hold, None, &CancellationToken::new(), &mut renewing).await? == Kept::GivenUp {
        return send(WorkerMessage::Lost);
    }

    // The last renewal succeeded. From here on the process finishes its work and does not check the
    // lock again.
    send(WorkerMessage::Critical)?;
    std::thread::sleep(CRITICAL);
    // Write to both storage keys at the same time.
    let locker = worker.locker().await?;
    let mut second = locker.clone();
    let (fenced, plain) = tokio::join!(
        locker.write_fenced(&task.fenced_storage, fence, NAME, keep),
        second.write(&task.plain_storage, fence, NAME, keep),
    );
    plain?;
    let fenced = fenced?;
    if !fenced {
        worker_log.log(WRITE_REJECTED, NAME, key, &[])?;
    }
    worker_log.log(FINISHED, NAME, key, &[("state", "DONE")])?;
    send(WorkerMessage::Wrote { fenced })?;

    let done = is_done(worker.renew(&hold).await)?;
    if !done {
        worker_log.log(RENEWAL_FAILED, NAME, key, &[("error", NOT_OWNED)])?;
    }
    send(WorkerMessage::Renewal { done })?;
    let done = is_done(worker.release(&hold).await)?;
    if !done {
        worker_log.log(RELEASE_FAILED, NAME, key, &[("error", NOT_OWNED)])?;
    }
    send(WorkerMessage::Release { done })
}

impl LockProgram for ProcessRenewal {
    fn renew_after(&mut self) -> Option<Duration> {
        (self.expected_count != Some(0)).then_some(self.every)
    }

    fn on_reply(&mut self, _: &WorkerHold, answer: &LockReply, _: u32) -> anyhow::Result<RenewalAction> {
        match answer {
            LockReply::Done => {
                self.expected_count = self.expected_count.map(|expected_count| expected_count - 1);
                send(WorkerMessage::Renewed)?;
                Ok(RenewalAction::GoOn)
            }
            LockReply::Refused => Ok(RenewalAction::GiveUp),
            LockReply::Unanswered(error) => bail!("a renewal failed: {error}"),
        }
    }
}

fn is_done(answer: LockReply) -> anyhow::Result<bool> {
    match answer {
        LockReply::Done => Ok(true),
        LockReply::Refused => Ok(false),
        LockReply::Unanswered(error) => Err(error.into()),
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

fn send(message: WorkerMessage) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(&message)?)?;
    out.flush().context("nobody listens")
}
