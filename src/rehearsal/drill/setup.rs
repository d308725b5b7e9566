//! Prepares a drill: a Redis, an exporter that observes it, a log file, and the keys that the drill
//! may write. Also stops and cleans up all of that. `drill` calls it.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use redis::{Client, ConnectionAddr};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::heartbeat::Heartbeat;
use super::probe::Probe;
use super::progress::DrillProgress;
use super::report::Cleanup;
use super::scenario_run::DrillContext;
use super::scenarios::Servers;
use super::settings::{FINISHED, PREFIX, namespaces_and_rules, snippet as render_snippet};
use super::settings::{KEEP, Timing};
use super::table::SCENARIOS;
use super::worker::WorkerLog;
use crate::cli::{Cli, Command, DrillArgs, DrillScenario, RunArgs};
use crate::client::http;
use crate::client::scrape::SeriesSelector;
use crate::config::Config;
use crate::daemon::run::Exporter;
use crate::http::listener::ListenAddress;
use crate::rehearsal::fleet::{KeyScope, LockToken, Locker, Server};

/// The timeout for a reply from Redis during setup and cleanup.
const PATIENCE: Duration = Duration::from_secs(10);
const NO_PROXY: &str =
    "a drill needs a Redis at redis://HOST:PORT: it puts a slow network in between, which TLS and sockets forbid";
/// How often to renew the key that reserves the run id. Much shorter than the TTL of that key, and
/// rare enough to be no load.
const RENEW_MARK: Duration = Duration::from_secs(5);
/// How soon an exporter must read a log line.
const READ_WITHIN: Duration = Duration::from_secs(10);

/// The Redis and the directory of a drill. It outlives everything else, because it cleans up at the
/// end.
pub(super) struct Base {
    client: Client,
    key_scope: Arc<KeyScope>,
    /// `None` if the drill was given a Redis.
    server: Option<Server>,
    directory: TempDir,
}

/// Everything that runs during a drill.
pub(super) struct DrillSetup {
    context: Arc<DrillContext>,
    /// `None` if the drill was given an exporter.
    exporter: Option<Exporter>,
    exporter_url: String,
    /// Renews the key that reserves the run id, until this is dropped.
    _reservation: JoinSet<()>,
}

/// The parts of a `Ground` that do not depend on the exporter.
struct ContextParts {
    client: Client,
    key_scope: Arc<KeyScope>,
    log_file: PathBuf,
    timing: Timing,
    progress: Arc<DrillProgress>,
    heartbeat: Arc<Heartbeat>,
    for_failover: bool,
}

pub(super) fn random_id() -> String {
    LockToken::random().reveal()[..8].to_owned()
}

pub(super) fn snippet(args: &DrillArgs) -> String {
    let run_id = args.run_id.clone().unwrap_or_else(random_id);
    let log_file =
        args.log_file.as_ref().map_or_else(|| "/var/log/drill.log".to_owned(), |path| path.display().to_string());
    render_snippet(&run_id, &Timing::new(args.speed, args.duration), &log_file)
}

impl Base {
    /// Opens a client for the given Redis, or starts a Redis. Writes no key yet.
    pub(super) async fn open(args: &DrillArgs, run_id: &str, progress: &DrillProgress) -> anyhow::Result<Self> {
        let key_scope = Arc::new(KeyScope::new(&format!("{PREFIX}{run_id}:"))?);
        let directory = tempfile::Builder::new().prefix("redis_lock_drill.").tempdir();
        let directory = directory.context("cannot make a directory for the drill")?;
        let (client, server) = match &args.redis_url {
            Some(url) => (client_of(url, args)?, None),
            None => {
                progress.print("starting a Redis of our own");
                let server = Server::start()
                    .await
                    .context("no Redis for the drill: --redis.url takes one of a staging environment")?;
                (Client::open(server.url())?, Some(server))
            }
        };
        Ok(Self { client, key_scope, server, directory })
    }

    pub(super) fn redis(&self) -> anyhow::Result<String> {
        let origin = if self.server.is_some() { "started for the drill" } else { "given" };
        Ok(format!("{} ({origin})", address_of(&self.client)?))
    }

    /// Deletes every key that the drill wrote and that still exists.
    pub(super) async fn clean_up(&self) -> Cleanup {
        let cleared = async {
            let mut locker = Locker::connect_within(&self.client, &self.key_scope, PATIENCE).await?;
            self.key_scope.clear(&mut locker).await
        };
        match cleared.await {
            Ok(cleared) => Cleanup { keys_written: cleared.made, keys_left: cleared.left, error: None },
            Err(error) => Cleanup { error: Some(error.to_string()), ..Cleanup::default() },
        }
    }
}

impl DrillSetup {
    pub(super) async fn start(
        base: &Base,
        args: &DrillArgs,
        run_id: &str,
        timing: Timing,
        progress: &Arc<DrillProgress>,
    ) -> anyhow::Result<Self> {
        let reservation = claim_run_id(&base.client, &base.key_scope, run_id).await?;
        let log_file = args.log_file.clone().unwrap_or_else(|| base.directory.path().join("drill.log"));
        // Create the file before the exporter searches for it.
        let worker_log = WorkerLog::open(&log_file)?;
        let (exporter, exporter_url) = match &args.exporter {
            Some(url) => (None, url.clone()),
            None => {
                progress.print("starting an exporter of our own");
                let run = RunArgs {
                    redis_url: Some(url_of(&base.client, args.redis_url.as_deref())),
                    redis_password_file: args.redis_password_file.clone(),
                    ..run_args(args.listen_address.clone())
                };
                let exporter = start_exporter(run, &base.directory, run_id, &timing, &log_file).await?;
                let url = url_of_exporter(&exporter)?;
                (Some(exporter), url)
            }
        };
        let parts = ContextParts {
            client: base.client.clone(),
            key_scope: Arc::clone(&base.key_scope),
            log_file,
            timing,
            progress: Arc::clone(progress),
            heartbeat: Arc::new(Heartbeat::start()),
            for_failover: false,
        };
        Ok(Self {
            context: parts.wait_until_observed(&exporter_url, worker_log).await?,
            exporter,
            exporter_url,
            _reservation: reservation,
        })
    }

    /// Starts another exporter for the servers of the failover scenario. Its locks have the TTL of
    /// production, because that scenario does not wait for an expiration.
    pub(super) async fn for_failover(
        context: &DrillContext,
        servers: &Servers,
        directory: &TempDir,
    ) -> anyhow::Result<Self> {
        let url = format!("redis://{}/", servers.address());
        let log_file = directory.path().join("drill.log");
        let worker_log = WorkerLog::open(&log_file)?;
        let parts = ContextParts {
            client: Client::open(url.as_str())?,
            key_scope: Arc::new(KeyScope::new(context.key_scope.prefix())?),
            log_file,
            timing: Timing::new(1, context.timing.duration),
            progress: Arc::clone(&context.progress),
            heartbeat: Arc::clone(&context.heartbeat),
            for_failover: true,
        };
        let run = RunArgs { redis_url: Some(url), ..run_args(loopback()) };
        let exporter = start_exporter(run, directory, "failover", &parts.timing, &parts.log_file).await?;
        let exporter_url = url_of_exporter(&exporter)?;
        let context = parts.wait_until_observed(&exporter_url, worker_log).await?;
        // The drill already reserved the run id.
        Ok(Self { context, exporter: Some(exporter), exporter_url, _reservation: JoinSet::new() })
    }

    pub(super) fn context(&self) -> &Arc<DrillContext> {
        &self.context
    }

    pub(super) fn exporter(&self) -> String {
        let origin = if self.exporter.is_some() { "started for the drill" } else { "given" };
        format!("{} ({origin})", http::shown(&self.exporter_url))
    }

    pub(super) async fn stop(self) {
        if let Some(exporter) = self.exporter
            && let Err(failure) = exporter.stop().await
        {
            eprintln!("the exporter did not stop in order: {failure:#}");
        }
    }
}

impl ContextParts {
    /// Waits until the exporter observes Redis and the log file. Records in `blind` what it cannot
    /// see.
    async fn wait_until_observed(self, exporter_url: &str, worker_log: WorkerLog) -> anyhow::Result<Arc<DrillContext>> {
        let Self { client, key_scope, log_file, timing, progress, heartbeat, for_failover } = self;
        let address = address_of(&client)?;
        let probe = Probe::start(exporter_url).await?;
        progress.print("waiting until the exporter sees everything");
        let namespaces: Vec<_> = SCENARIOS
            .iter()
            .filter(|scenario| (scenario.kind == DrillScenario::RedisFailover) == for_failover)
            .flat_map(|scenario| scenario.namespaces)
            .collect();
        let mut blind = probe.ready(&namespaces).await.err().map(|problem| format!("{problem:#}"));
        if blind.is_none() {
            blind = reads_the_log(&probe, &worker_log, &key_scope, &log_file).await?;
        }
        if let Some(problem) = &blind {
            progress.print(problem);
        }
        Ok(Arc::new(DrillContext {
            client,
            address,
            key_scope,
            worker_log,
            log_file,
            probe,
            blind,
            timing,
            progress,
            heartbeat,
        }))
    }
}

/// Reserves the run id, so that two drills never share their keys. Returns the task that renews the
/// reservation.
async fn claim_run_id(client: &Client, key_scope: &Arc<KeyScope>, run_id: &str) -> anyhow::Result<JoinSet<()>> {
    let shown = address_of(client)?;
    let mut locker = Locker::connect_within(client, key_scope, PATIENCE)
        .await
        .with_context(|| format!("cannot connect to Redis at {shown}"))?;
    let key = key_scope.key("running");
    let taken = locker.acquire(&key, KEEP).await;
    let taken = taken.with_context(|| format!("cannot write to Redis at {shown}: the drill needs a user that may"))?;
    let Some(token) = taken else {
        bail!("another drill with the run id {run_id} is under way, or was killed less than 10 minutes ago");
    };
    let mut reservation = JoinSet::new();
    reservation.spawn(async move {
        // Renew until the key is deleted. After a failed renewal the loop tries again.
        while !matches!(locker.renew(&key, &token, KEEP).await, Ok(false)) {
            sleep(RENEW_MARK).await;
        }
    });
    Ok(reservation)
}

/// Checks that the exporter reads the log file, and returns instructions if it does not. The check
/// writes a line that reports no failure.
async fn reads_the_log(
    probe: &Probe,
    worker_log: &WorkerLog,
    key_scope: &KeyScope,
    log_file: &std::path::Path,
) -> anyhow::Result<Option<String>> {
    let events = SeriesSelector::new("redis_lock_exporter_log_events_total", &[]);
    let before = probe.scrape().await?.sum(&events);
    let key = key_scope.key(&format!("r0:{}", SCENARIOS[0].namespaces[0].name));
    worker_log.log(FINISHED, "drill", &key, &[("state", "DONE")])?;
    let deadline = Instant::now() + READ_WITHIN;
    while probe.now().sum(&events) <= before {
        if Instant::now() > deadline {
            let log_file = log_file.display();
            let help = "add it to `logs` and the drill's `rules` to its configuration, see `drill --print-config`";
            return Ok(Some(format!("the exporter does not understand the lines in {log_file}: {help}")));
        }
        sleep(Duration::from_millis(50)).await;
    }
    Ok(None)
}

async fn start_exporter(
    run: RunArgs,
    directory: &TempDir,
    run_id: &str,
    timing: &Timing,
    log_file: &std::path::Path,
) -> anyhow::Result<Exporter> {
    let file = directory.path().join("exporter.yaml");
    let yaml = format!(
        "logs:\n  - path: '{}'\nscan: {{interval: 1s, watched_interval: 30s}}\n{}",
        log_file.display(),
        namespaces_and_rules(run_id, timing)
    );
    fs::write(&file, yaml).context("cannot write the configuration of the exporter")?;
    let run = RunArgs { config_file: Some(file), state_dir: Some(directory.path().join("state")), ..run };
    let config = Config::load(run.config_file.as_deref(), &run.overrides());
    let config =
        config.map_err(|problems| anyhow::anyhow!("the exporter of the drill cannot be configured: {problems}"))?;
    Exporter::start(&run, config, None).await.context("cannot start an exporter")
}

fn url_of_exporter(exporter: &Exporter) -> anyhow::Result<String> {
    let address = exporter.addresses.first().context("the exporter of a drill has to listen on HOST:PORT")?;
    Ok(format!("http://{address}"))
}

/// The arguments of `run` without any flags, except for the address.
fn run_args(listen_address: ListenAddress) -> RunArgs {
    let Ok(Command::Run(args)) = Cli::parse_from(["redis_lock_exporter"]) else {
        unreachable!("no flag is required, and without a command it is run")
    };
    RunArgs { listen_addresses: vec![listen_address], ..args }
}

fn loopback() -> ListenAddress {
    ListenAddress::Tcp { host: "127.0.0.1".to_owned(), port: 0 }
}

/// Opens a client, with the password from the flags if they contain one.
fn client_of(url: &str, args: &DrillArgs) -> anyhow::Result<Client> {
    if !url.starts_with("redis://") {
        bail!(NO_PROXY);
    }
    // The error of the library is not shown, because it could contain part of a password.
    let client =
        Client::open(url).ok().context("bad --redis.url: expected redis://USER:PASSWORD@HOST:PORT/DATABASE")?;
    address_of(&client)?;
    let info = client.get_connection_info().clone();
    let settings = info.redis_settings().clone();
    let settings = match args.password()? {
        Some(password) => settings.set_password(password),
        None => settings,
    };
    Ok(Client::open(info.set_redis_settings(settings))?)
}

/// Returns the given URL, or the URL of the server that the drill started.
fn url_of(client: &Client, given: Option<&str>) -> String {
    match (given, client.get_connection_info().addr()) {
        (Some(url), _) => url.to_owned(),
        (None, address) => format!("redis://{address}/"),
    }
}

fn address_of(client: &Client) -> anyhow::Result<String> {
    match client.get_connection_info().addr() {
        ConnectionAddr::Tcp(host, port) => Ok(format!("{host}:{port}")),
        _ => bail!(NO_PROXY),
    }
}
