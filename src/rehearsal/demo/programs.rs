//! Starts and stops the other programs of the demo, and writes their configuration files. Each one
//! listens on a free port of the loopback interface and writes its output to a file. Alert rules and
//! the Alertmanager configuration are the bundled ones with shorter durations.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use crate::rehearsal::fleet::KilledOnDrop;
use crate::rehearsal::fleet::cordum::{TimeScale, exporter_settings};
use crate::rehearsal::rule_scaling::{scale, to_text};
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
    let mut addresses = names.iter().flat_map(|name| directories.iter().map(move |directory| directory.join(name)));
    addresses.find(|place| place.is_file())
}

fn last_lines(output: &Path) -> String {
    let text = std::fs::read_to_string(output).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

const RULES: &str = include_str!("../../../alerts/redis_lock.rules.yml");
const ALERTMANAGER: &str = include_str!("../../../alerts/alertmanager.yml");
/// The receiver address in the bundled Alertmanager configuration.
const EXAMPLE_RECEIVER: &str = "127.0.0.1:5001";
/// The rules need a scrape at least every 30 s. Scraping more often shows more detail.
const SCRAPE_EVERY: Duration = Duration::from_secs(10);
/// The exporter publishes once a second, so scraping much more often would show nothing new.
const SHORTEST_SCRAPE: Duration = Duration::from_millis(300);
const RULES_EVERY: Duration = Duration::from_secs(30);

/// The preset `cordum` with the durations of the fleet.
pub(super) fn exporter_config(time_scale: &TimeScale, redis_port: u16, logs: &Path) -> String {
    format!(
        "logs:\n  - path: {}\n    start_at: beginning\nredis:\n  name: demo\n  url: redis://127.0.0.1:{redis_port}/0\n{}",
        serde_json::Value::from(format!("{}/*.log", logs.display())),
        exporter_settings(time_scale),
    )
}

pub(super) fn prometheus_config(time_scale: &TimeScale, exporter: &str, alertmanager: Option<&str>) -> String {
    let scrape_every = to_text(scrape_every(time_scale));
    let mut yaml = format!(
        "global: {{scrape_interval: {scrape_every}, scrape_timeout: {scrape_every}, evaluation_interval: {}}}\n\
         rule_files: [rules.yml]\n\
         scrape_configs:\n  - job_name: redis_lock_exporter\n    static_configs: [{{targets: ['{exporter}']}}]\n",
        to_text(time_scale.of(RULES_EVERY)),
    );
    if let Some(alertmanager) = alertmanager {
        let _ = writeln!(yaml, "alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{alertmanager}']}}]}}]}}");
    }
    yaml
}

pub(super) fn scrape_every(time_scale: &TimeScale) -> Duration {
    time_scale.of(SCRAPE_EVERY).max(SHORTEST_SCRAPE)
}

pub(super) fn scaled_rules(time_scale: &TimeScale) -> String {
    scale(RULES, time_scale.speed())
}

pub(super) fn alertmanager_config(time_scale: &TimeScale, receiver: &str) -> String {
    scale(ALERTMANAGER, time_scale.speed()).replace(EXAMPLE_RECEIVER, receiver)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Overrides};

    #[test]
    fn the_exporter_accepts_it_at_every_speed() {
        for speed in [1, 7, 20, TimeScale::FASTEST] {
            let time_scale = TimeScale::new(speed).unwrap();
            let text = exporter_config(&time_scale, 6379, Path::new("/tmp/a \"b\"/logs"));
            let config = Config::from_yaml("demo.yaml", &text, &Overrides::default());
            let config = config.unwrap_or_else(|problems| panic!("speed {speed}: {problems}\n{text}"));
            let workflow = config.namespaces.iter().find(|namespace| namespace.name == "workflow").unwrap();
            assert_eq!(workflow.ttl.map(|ttl| ttl.as_millis()), Some(u128::from(30_000 / speed)));
        }
    }

    #[test]
    fn receivers_are_ours() {
        let text = alertmanager_config(&TimeScale::new(10).unwrap(), "127.0.0.1:7");
        assert_eq!((text.matches("127.0.0.1:7/").count(), text.matches(EXAMPLE_RECEIVER).count()), (2, 0));
    }
}
