//! Starts and stops the other programs of the demo. Each one listens on a free port of the loopback
//! interface and writes its output to a file.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use crate::rehearsal::fleet::KilledOnDrop;
use crate::util::ports;

const PATIENCE: Duration = Duration::from_secs(20);
/// How many lines of a program's output an error message shows.
const LAST_LINES: usize = 10;

/// The program is killed when this is dropped.
pub(super) struct ChildProgram {
    name: &'static str,
    child: KilledOnDrop,
    pub(super) address: SocketAddr,
    output: PathBuf,
}

impl ChildProgram {
    /// Starts the program and waits until it listens. `arguments` returns the arguments for an
    /// address to listen on.
    pub(super) async fn start(
        name: &'static str,
        program: &Path,
        directory: &Path,
        arguments: impl Fn(SocketAddr) -> Vec<OsString>,
    ) -> anyhow::Result<Self> {
        let output = directory.join(format!("{name}.log"));
        for _ in 0..ports::ATTEMPTS {
            let port = ports::free_port().with_context(|| format!("cannot find a free port for {name}"))?;
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let log = std::fs::File::create(&output).with_context(|| format!("cannot write {}", output.display()))?;
            let mut command = Command::new(program);
            command.args(arguments(address)).current_dir(directory);
            command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
            // With its own process group, the program does not receive Ctrl-C. The demo ends all
            // programs in order.
            command.process_group(0);
            let child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
            let mut started = Self { name, child: KilledOnDrop(child), address, output: output.clone() };
            if started.listens().await? {
                return Ok(started);
            }
        }
        bail!("{name} does not start, its last words are:\n{}", last_lines(&output));
    }

    /// Waits until the program listens. Returns false if it ended, most likely because its port was
    /// taken.
    async fn listens(&mut self) -> anyhow::Result<bool> {
        let deadline = Instant::now() + PATIENCE;
        while self.child.0.try_wait()?.is_none() {
            if self.child.0.id().is_some_and(|pid| ports::is_listening(pid, self.address.port())) {
                return Ok(true);
            }
            if Instant::now() > deadline {
                bail!("{} does not listen, its last words are:\n{}", self.name, last_lines(&self.output));
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(false)
    }

    /// Fails if the program has ended.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        match self.child.0.try_wait()? {
            None => Ok(()),
            Some(status) => {
                bail!("{} ended with {status}, its last words are:\n{}", self.name, last_lines(&self.output))
            }
        }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) async fn end(mut self) -> anyhow::Result<()> {
        self.child.0.kill().await.with_context(|| format!("cannot end {}", self.name))
    }
}

/// Returns the first of these names that is a file in a directory of PATH.
pub(super) fn find(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let mut places = names.iter().flat_map(|name| directories.iter().map(move |directory| directory.join(name)));
    places.find(|place| place.is_file())
}

fn last_lines(output: &Path) -> String {
    let text = std::fs::read_to_string(output).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}
