//! A Redis of our own: `redis-server` from PATH, on a free port of the loopback interface, in a
//! private directory, without persistence. It is killed when it is dropped, also during a panic.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use crate::util::ports;

const PROGRAM: &str = "redis-server";
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the kernel may take to end a killed process.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

pub struct Server {
    child: KilledOnDrop,
    port: u16,
    /// Declared after the child, so that it is removed when no process writes to it any more.
    _directory: TempDir,
}

/// A process that is killed when this is dropped. The drop waits until the process has ended, for
/// at most 5 s, so that its files can be removed.
pub struct KilledOnDrop(pub Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        if self.0.start_kill().is_err() {
            return;
        }
        let deadline = std::time::Instant::now() + ENDS_WITHIN;
        while matches!(self.0.try_wait(), Ok(None)) && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Server {
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_with(&[]).await
    }

    /// Starts a replica and waits until it is connected to its primary and synchronized.
    pub async fn start_replica(primary: &Self) -> anyhow::Result<Self> {
        let replica = Self::start_with(&["--replicaof", "127.0.0.1", &primary.port.to_string()]).await?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let info: String = replica.ask(redis::cmd("INFO").arg("replication")).await?;
            if info.contains("master_link_status:up") {
                return Ok(replica);
            }
            if Instant::now() > deadline {
                bail!("the replica does not get in step with its primary");
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn start_with(more: &[&str]) -> anyhow::Result<Self> {
        for _ in 0..ports::ATTEMPTS {
            if let Some(server) = Self::try_start(more).await? {
                return Ok(server);
            }
        }
        bail!("{PROGRAM} does not start")
    }

    /// Returns `None` if the server ended, most likely because its port was taken.
    async fn try_start(more: &[&str]) -> anyhow::Result<Option<Self>> {
        let directory = tempfile::tempdir().context("cannot make a directory for redis-server")?;
        let port = ports::free_port().context("cannot find a free port for redis-server")?;
        let mut command = Command::new(PROGRAM);
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        command.arg("--dir").arg(directory.path()).args(["--logfile", "redis.log"]);
        command.args(["--repl-diskless-sync-delay", "0"]).args(more);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // With its own process group, the server does not receive Ctrl-C. The program still needs
        // the server to clean up.
        command.process_group(0);
        let child = command.spawn().with_context(|| {
            format!("cannot start {PROGRAM}: install it (its package is called redis-server or redis)")
        })?;
        let mut server = Self { child: KilledOnDrop(child), port, _directory: directory };
        let deadline = Instant::now() + PATIENCE;
        loop {
            if server.child.0.try_wait()?.is_some() {
                return Ok(None);
            }
            let is_listening = server.child.0.id().is_some_and(|pid| ports::is_listening(pid, port));
            if is_listening && server.ask::<String>(&redis::cmd("PING")).await.is_ok() {
                return Ok(Some(server));
            }
            if Instant::now() > deadline {
                bail!("{PROGRAM} does not answer on port {port}");
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn url(&self) -> String {
        format!("redis://{}/", self.address())
    }

    /// Sends one command over a new connection.
    pub async fn ask<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> anyhow::Result<T> {
        let client = redis::Client::open(self.url())?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        Ok(command.query_async(&mut connection).await?)
    }

    /// Kills the server without a shutdown, like a crash.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        self.child.0.kill().await.context("cannot kill redis-server")
    }
}
