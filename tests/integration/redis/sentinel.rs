//! A primary with two replicas, and three Sentinels that monitor them.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use redis::Value;
use tempfile::TempDir;

use super::client::{Client, text};
use super::{RedisServer, eventually, listens, on_free_port};

/// The Sentinels fail over a primary that does not answer for this long. The value is large because
/// a busy machine can pause a server for a second or two.
const DOWN_AFTER_MS: u64 = 5000;
/// Sentinels may give up a requested failover.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(10);
pub const PRIMARY_NAME: &str = "mymaster";

pub struct Sentinels {
    /// The first server is the primary at the start.
    pub servers: Vec<RedisServer>,
    sentinels: Vec<Sentinel>,
}

struct Sentinel {
    child: Child,
    port: u16,
    _directory: TempDir,
}

impl Sentinels {
    /// `extra` holds arguments for the servers.
    pub fn start(extra: &[&str]) -> Self {
        let primary = RedisServer::start(extra);
        let port = primary.port().to_string();
        let mut of_replica = vec!["--replicaof", "127.0.0.1", &port];
        of_replica.extend(extra);
        let mut servers = vec![primary];
        servers.extend((0..2).map(|_| RedisServer::start(&of_replica)));
        for replica in &servers[1..] {
            eventually("the replica to be connected to its primary", || {
                (replica.info("master_link_status")? == "up").then_some(())
            });
        }
        let sentinels: Vec<Sentinel> = (0..3).map(|_| Sentinel::start(servers[0].port())).collect();
        for sentinel in &sentinels {
            eventually("the Sentinels to know each other and the replicas", || {
                let others = sentinel.about_primary("num-other-sentinels")?;
                let replicas = sentinel.about_primary("num-slaves")?;
                (others == "2" && replicas == "2").then_some(())
            });
        }
        Self { servers, sentinels }
    }

    /// Returns `HOST:PORT` of the Sentinels.
    pub fn addresses(&self) -> Vec<String> {
        self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port)).collect()
    }

    /// Returns the server that the first Sentinel names as the primary.
    pub fn primary(&self) -> Option<usize> {
        let port: u16 = self.sentinels[0].about_primary("port")?.parse().ok()?;
        self.servers.iter().position(|server| server.port() == port)
    }

    /// Makes the Sentinels choose another primary without a failure, and waits until they have done
    /// so.
    pub fn fail_over(&self) -> usize {
        let before = self.primary();
        let mut client = Client::connect(self.sentinels[0].port).unwrap();
        let mut begun: Option<Instant> = None;
        eventually("the Sentinels to choose another primary", || {
            if begun.is_none_or(|begun| begun.elapsed() > ASKED_AGAIN_AFTER) {
                // The Sentinels refuse while no replica is suitable and while another failover is
                // in progress.
                let answer = client.try_command(&["SENTINEL", "FAILOVER", PRIMARY_NAME]).unwrap();
                begun = matches!(answer, Value::Okay).then(Instant::now).or(begun);
            }
            self.primary().filter(|primary| Some(*primary) != before)
        })
    }
}

impl Sentinel {
    fn start(primary: u16) -> Self {
        on_free_port("redis-sentinel", |port| Self::try_start(primary, port))
    }

    fn try_start(primary: u16, port: u16) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {directory}\nlogfile sentinel.log\n\
             sentinel monitor {PRIMARY_NAME} 127.0.0.1 {primary} 2\n\
             sentinel down-after-milliseconds {PRIMARY_NAME} {DOWN_AFTER_MS}\n\
             sentinel failover-timeout {PRIMARY_NAME} 3000\n",
            directory = directory.path().display(),
        );
        fs::write(&path, text).unwrap();
        let mut command = Command::new("redis-sentinel");
        command.arg(&path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("redis-sentinel is missing: scripts/install.sh installs it");
        let mut sentinel = Self { child, port, _directory: directory };
        let is_up = listens(&mut sentinel.child, port);
        is_up.then(|| eventually("redis-sentinel to answer", || sentinel.about_primary("port")))?;
        Some(sentinel)
    }

    /// Returns a field of the Sentinel's information about the primary.
    fn about_primary(&self, field: &str) -> Option<String> {
        let mut client = Client::connect(self.port).ok()?;
        let Value::Array(items) = client.try_command(&["SENTINEL", "MASTER", PRIMARY_NAME]).ok()? else { return None };
        items.as_chunks::<2>().0.iter().find(|[name, _]| text(name) == field).map(|[_, value]| text(value))
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
