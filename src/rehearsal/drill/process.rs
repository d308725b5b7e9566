//! A worker that is a process of its own, so that it can be stopped and killed as processes are: the hidden subcommand
//! `drill-worker` of this very program. It is told what to do in one JSON line and tells what it did in others.

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

/// As it writes and is told of.
pub(super) const NAME: &str = "worker process";

/// What a worker process has to do. The token is the parent's, who has to clean up if anything happens to the process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WorkerTask {
    pub(super) redis: Reach,
    /// Of what may be written to.
    pub(super) prefix: String,
    pub(super) log_file: PathBuf,
    pub(super) key: String,
    pub(super) token: String,
    pub(super) ttl_ms: u64,
    pub(super) renew_every_ms: u64,
    /// How often to renew before the critical part; `None` is for ever.
    pub(super) renewals: Option<u32>,
    pub(super) fence_key: String,
    pub(super) fenced_storage: String,
    pub(super) plain_storage: String,
    pub(super) keep_ms: u64,
}

/// How to reach Redis. Sent over a pipe, for arguments are seen by everybody.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Reach {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) database: i64,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
}

/// What a worker process tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub(super) enum WorkerMessage {
    Acquired {
        fence: u64,
    },
    Renewed,
    /// A renewal was refused before its time.
    Lost,
    /// It works and listens to nobody; then it writes.
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

/// Killed when it is dropped.
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

    /// The next thing that it tells.
    pub(super) async fn next(&mut self, patience: Duration) -> anyhow::Result<WorkerMessage> {
        let line = timeout(patience, self.told.next_line()).await.context("the worker process tells nothing")??;
        let line = line.context("the worker process ended before its time")?;
        serde_json::from_str(&line).with_context(|| format!("a worker process told {line:?}"))
    }

    /// What it has told and nobody has heard yet.
    pub(super) async fn told_already(&mut self) -> anyhow::Result<Option<String>> {
        match timeout(Duration::ZERO, self.told.next_line()).await {
            Ok(line) => Ok(Some(line?.context("the worker process ended before its time")?)),
            Err(_) => Ok(None),
        }
    }

    /// Until it is stopped, which takes the kernel a moment.
    pub(super) async fn pause(&self) -> anyhow::Result<()> {
        kill_process(self.pid, Signal::STOP).context("cannot stop the worker process")?;
        let deadline = Instant::now() + STOPS_WITHIN;
        while !self.is_stopped()? {
            anyhow::ensure!(Instant::now() < deadline, "the worker process does not stop");
            sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// As the kernel tells.
    pub(super) fn is_stopped(&self) -> anyhow::Result<bool> {
        let path = format!("/proc/{}/stat", self.pid.as_raw_nonzero());
        let stat = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        // The state follows the name, which may hold anything.
        Ok(stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')))
    }

    pub(super) fn resume(&self) -> anyhow::Result<()> {
        kill_process(self.pid, Signal::CONT).context("cannot continue the worker process")
    }

    /// SIGKILL, and waits for the end.
    pub(super) async fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("cannot kill the worker process")
    }
}
