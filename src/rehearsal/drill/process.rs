//! A worker that is a separate process, so that the drill can stop and kill it with signals. The
//! process runs the hidden subcommand `drill-worker` of this program (`worker_process`). It reads
//! its task as one JSON line from standard input and reports what it does as JSON lines on standard
//! output.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{Instant, sleep, timeout};

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
    told: Lines<BufReader<ChildStdout>>,
    /// The process ends when this is closed.
    _orders: ChildStdin,
}

impl WorkerProcess {
    pub(super) async fn start(order: &WorkerTask) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find this program itself")?;
        let mut command = Command::new(program);
        command.arg("drill-worker").stdin(Stdio::piped()).stdout(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        let mut child = command.spawn().context("cannot start a worker process")?;
        let (Some(mut orders), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("a worker process without pipes");
        };
        let pid = child.id().and_then(|id| Pid::from_raw(id as i32)).context("the worker process ended at once")?;
        let line = serde_json::to_string(order)? + "\n";
        orders.write_all(line.as_bytes()).await.context("the worker process takes no order")?;
        Ok(Self { child, pid, told: BufReader::new(stdout).lines(), _orders: orders })
    }

    /// Waits for the next message.
    pub(super) async fn next(&mut self, patience: Duration) -> anyhow::Result<WorkerMessage> {
        let line = timeout(patience, self.told.next_line()).await.context("the worker process reports nothing")??;
        let line = line.context("the worker process ended before its time")?;
        serde_json::from_str(&line).with_context(|| format!("a worker process reported {line:?}"))
    }

    /// Returns a line that the process wrote and that was not read yet, if there is one.
    pub(super) async fn told_already(&mut self) -> anyhow::Result<Option<String>> {
        match timeout(Duration::ZERO, self.told.next_line()).await {
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
