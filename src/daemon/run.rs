//! The `run` command: connects the sources, the pipeline and the HTTP server, and handles signals
//! and reloads.
//!
//! `main` calls [`run`]; the drill starts an `Exporter`. A reload first loads the new
//! configuration. If it is valid, the log sources end, the pipeline takes the new configuration and
//! keeps what it remembers, and new log sources start from the positions of the old ones. Links to
//! Redis keep running unless their settings changed. HTTP keeps running. At a stop the sources end,
//! then the pipeline drains its queue and saves once more. If a source, the pipeline or the HTTP
//! server ends unexpectedly, the process exits with an error.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{error, info, warn};

use crate::cli::{EXIT_FAILED, EXIT_USAGE, RunArgs};
use crate::config::redis::RedisConfig;
use crate::config::{Config, LogKind, LogSource, STDIN};
use crate::daemon::memory_file::MemoryFile;
use crate::daemon::pipeline::{Inputs, Pipeline, PipelineParts, RedisSide, Reload, ReloadStatus};
use crate::daemon::state_file::{SavedState, StateDirectory};
use crate::daemon::systemd;
use crate::http::{self, ConnectionLimits, Endpoint, Listener, ReloadRequest, ServerInputs, WebFile, WebFollower};
use crate::keyspace;
use crate::ledger::{LinkContinuity, Memory};
use crate::logs::extract::Extractor;
use crate::logs::files::{Start, Tailer};
use crate::logs::journal;
use crate::logs::push::{self, PushHandle};
use crate::logs::rules::RuleSet;
use crate::logs::stdin::{self, StdinReader};
use crate::logs::streams::StreamSet;
use crate::model::input::PipelineInput;
use crate::model::key_index::KeyMap;
use crate::model::namespace::Namespace;
use crate::model::query::Inquiry;
use crate::model::sighting::OwnerHasher;
use crate::snapshot::{Snapshot, SourceNow};
use crate::util::clock;
use crate::util::clock::TimeMs;

/// Batches that may wait for the pipeline. If the queue is full, log readers wait; the unread lines
/// stay in the files.
const QUEUE: usize = 64;
/// Lists of keys that may wait to be read. If the queue is full, the pipeline tries again later.
const READS: usize = 16;
/// Inquiries that may wait for the pipeline. The API answers 503 if there are more.
const INQUIRIES: usize = 8;
/// Name of the source that follows files.
const TAILER: &str = "tailer";
/// Name of the source that watches Redis.
const KEYSPACE: &str = "keyspace";
/// Names of the sources that read a journal and that receive push requests.
const JOURNAL: &str = "reader of a journal";
const PUSH: &str = "taker of pushed lines";
/// Time limit of each step of a stop: sources, last save, HTTP connections. After this time the
/// process exits with an error that names the step.
const GRACE: Duration = Duration::from_secs(20);

pub fn run(args: &RunArgs) -> ExitCode {
    let loaded = Config::load(args.config_file.as_deref(), &args.overrides());
    let opened = args.web_config_file.as_deref().map(WebFile::open).transpose();
    let (config, web) = match (loaded, opened) {
        (Ok(config), Ok(web)) => (config, web),
        (loaded, opened) => {
            for problems in [loaded.err(), opened.err()].into_iter().flatten() {
                error!("cannot start with this configuration:\n{problems}");
            }
            return EXIT_USAGE.into();
        }
    };
    let result = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")
        .and_then(|runtime| runtime.block_on(serve(args, config, web)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            error!("{failure:#}");
            EXIT_FAILED.into()
        }
    }
}

async fn serve(args: &RunArgs, config: Config, web: Option<(WebFile, WebFollower)>) -> anyhow::Result<()> {
    // Install the signal handlers first, so that a signal during the start also causes an orderly
    // stop.
    let mut signals = Signals::new()?;
    let mut exporter = Exporter::start(args, config, web).await?;
    let is_ready = exporter.daemon.ready.subscribe();
    let inquiries = exporter.daemon.inquiries.subscribe();
    let _life =
        systemd::watchdog().map(|limit| AbortOnDropHandle::new(tokio::spawn(systemd::report_life(limit, inquiries))));
    let starting = tokio::spawn(tell_when_ready(is_ready.clone(), Arc::clone(&exporter.running.config)));
    loop {
        let requested: Option<ReloadRequest> = tokio::select! {
            _ = signals.terminate.recv() => break,
            _ = signals.interrupt.recv() => break,
            _ = signals.hang_up.recv() => None,
            Some(request) = exporter.reloads.recv() => Some(request),
            failure = exporter.running.failed() => return Err(failure),
            Some(ended) = exporter.servers.join_next() => {
                ended.context("the http server panicked")??;
                anyhow::bail!("the http server ended by itself");
            }
        };
        systemd::reloading();
        let outcome = exporter.daemon.reload(&mut exporter.running).await?;
        if *is_ready.borrow() {
            match &outcome {
                Ok(()) => systemd::ready(&describe(&exporter.running.config)),
                Err(_) => systemd::ready("a new configuration was refused, the old one stays in effect"),
            }
        }
        if let Some(request) = requested {
            let _ = request.answer.send(outcome);
        }
    }
    starting.abort();
    systemd::stopping();
    exporter.stop().await
}

/// Everything that `run` starts, without the signal handling. The drill also starts one, to compare
/// its numbers with what the workers of the drill did.
pub(crate) struct Exporter {
    /// The addresses of its TCP listeners.
    pub(crate) addresses: Vec<SocketAddr>,
    daemon: Daemon,
    running: Running,
    reloads: mpsc::Receiver<ReloadRequest>,
    servers: JoinSet<anyhow::Result<()>>,
    http: CancellationToken,
}

impl Exporter {
    pub(crate) async fn start(
        args: &RunArgs,
        config: Config,
        web: Option<(WebFile, WebFollower)>,
    ) -> anyhow::Result<Self> {
        let directory = config.state_dir.as_deref().map(StateDirectory::open).transpose()?.map(Arc::new);
        let state = match &directory {
            Some(directory) => directory.load(clock::now())?,
            None => {
                warn!(
                    "no state directory: counts are kept in memory and start at 0 with every start (see --state.dir)"
                );
                SavedState::default()
            }
        };
        let memory_file = directory.as_deref().and_then(open_memory);
        let memory = memory_file.as_ref().and_then(|file| file.load());
        let mut listeners = if args.systemd_socket { Listener::from_systemd()? } else { Vec::new() };
        for address in args.listen_addresses() {
            listeners.push(Listener::bind(&address).await.with_context(|| format!("cannot listen on {address}"))?);
        }
        let addresses = listeners.iter().filter_map(Listener::tcp_address).collect();
        let (web, follower) = web.unzip();

        let (publish, snapshots) = watch::channel(Arc::new(Snapshot::default()));
        let (ready, is_ready) = watch::channel(false);
        let (reload, reloads) = mpsc::channel(1);
        let (inquiries, is_asked) = watch::channel(None);
        let (intake, pushes) = watch::channel(None);
        let mut daemon = Daemon {
            args: args.clone(),
            web: web.clone(),
            stdin: None,
            directory,
            publish,
            ready,
            inquiries,
            intake,
            hasher: memory_file.as_ref().map(|file| file.hasher()).unwrap_or_default(),
            memory_file,
            started: clock::now(),
            reloads: watch::Sender::new(ReloadStatus { ok: true, web_ok: true, last_success: clock::now() }),
        };
        let running = daemon.start(Arc::new(config), state, memory)?;

        let http = CancellationToken::new();
        if let Some(follower) = follower {
            let reports = daemon.reloads.clone();
            let report = move |ok| reports.send_modify(|status| status.note_web(ok, clock::now()));
            tokio::spawn(follower.run(report, http.clone()));
        }
        let limits = ConnectionLimits { connections: args.max_connections, ..ConnectionLimits::default() };
        let mut servers = JoinSet::new();
        for listener in listeners {
            let is_ready = is_ready.clone();
            let app = ServerInputs {
                snapshot: snapshots.clone(),
                readiness: Box::new(move || match *is_ready.borrow() {
                    true => Ok(()),
                    false => Err("logs are being looked for and their positions saved".to_owned()),
                }),
                reload: args.enable_lifecycle.then(|| reload.clone()),
                inquiries: (!args.disable_api).then(|| is_asked.clone()),
                pushes: pushes.clone(),
                page: !args.disable_page,
            };
            let entrance = Endpoint { listener, web: web.as_ref().map(|file| Arc::clone(&file.web)) };
            servers.spawn(http::serve_with_limits(entrance, app, limits.clone(), http.clone()));
        }
        Ok(Self { addresses, daemon, running, reloads, servers, http })
    }

    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        info!("stopping");
        self.daemon.ready.send_replace(false);
        self.running.stop().await?;
        self.http.cancel();
        timeout(GRACE, self.servers.join_all()).await.context("http connections did not end in time")?;
        info!("stopped");
        Ok(())
    }
}

async fn tell_when_ready(mut is_ready: watch::Receiver<bool>, config: Arc<Config>) {
    if is_ready.wait_for(|is_ready| *is_ready).await.is_ok() {
        systemd::ready(&describe(&config));
    }
}

/// Returns `None` if there is no usable key. Then the exporter runs without memory of the previous
/// process.
fn open_memory(directory: &StateDirectory) -> Option<Arc<MemoryFile>> {
    let opened = MemoryFile::open(directory.path());
    let warning =
        "no key for the memory of the last hour: a restart forgets incidents, charts and since when locks are held";
    opened.inspect_err(|error| warn!(%error, "{warning}")).ok().map(Arc::new)
}

/// The status text for `systemctl status`.
fn describe(config: &Config) -> String {
    let redis = config.redis.as_ref().map_or_else(String::new, |redis| format!(", redis {}", redis.name));
    format!("watching {} log sources{redis}, {} namespaces", config.logs.len(), config.namespaces.len())
}

/// The parts that outlive the sources.
struct Daemon {
    args: RunArgs,
    web: Option<WebFile>,
    stdin: Option<stdin::Lines>,
    directory: Option<Arc<StateDirectory>>,
    memory_file: Option<Arc<MemoryFile>>,
    publish: watch::Sender<Arc<Snapshot>>,
    ready: watch::Sender<bool>,
    /// Inquiry queue of the pipeline.
    inquiries: watch::Sender<Option<mpsc::Sender<Inquiry>>>,
    /// Receiver of push requests in the configuration in effect.
    intake: watch::Sender<Option<PushHandle>>,
    hasher: OwnerHasher,
    started: TimeMs,
    reloads: watch::Sender<ReloadStatus>,
}

/// The pipeline, and the sources of the configuration in effect.
struct Running {
    config: Arc<Config>,
    logs: SourceGroup,
    /// `None` if no Redis is configured.
    redis: Option<RedisSource>,
    pipeline: JoinHandle<SavedState>,
    /// `None` after a stop. The pipeline ends when all senders are dropped.
    out: Option<mpsc::Sender<PipelineInput>>,
    reload: mpsc::Sender<Reload>,
}

/// Sources that start and stop together.
#[derive(Default)]
struct SourceGroup {
    stop: CancellationToken,
    /// Each task returns the name of its source when it ends.
    tasks: JoinSet<&'static str>,
}

struct RedisSource {
    group: SourceGroup,
    side: RedisSide,
}

/// The current state of each log source, shared with the pipeline.
type SourcesNow = Arc<Mutex<Vec<SourceNow>>>;

fn sources_now(config: &Config) -> SourcesNow {
    Arc::new(Mutex::new(vec![Default::default(); config.logs.len()]))
}

impl Daemon {
    fn start(&mut self, config: Arc<Config>, state: SavedState, memory: Option<Memory>) -> anyhow::Result<Running> {
        let (out, events) = mpsc::channel::<PipelineInput>(QUEUE);
        let sources_now = sources_now(&config);
        let logs = self.start_logs(&config, &state, &out, &sources_now)?;
        let redis = self.keyspace_source(&config, &out).map(RedisSource::start);
        let pipeline = Pipeline::new(PipelineParts {
            config: Arc::clone(&config),
            state,
            directory: self.directory.clone(),
            memory_file: self.memory_file.clone(),
            memory,
            sources_now,
            redis: redis.as_ref().map(|redis| redis.side.clone()),
            publish: self.publish.clone(),
            ready: self.ready.clone(),
            started: self.started,
            reloads: self.reloads.subscribe(),
        });
        let (inquiries, asked) = mpsc::channel(INQUIRIES);
        self.inquiries.send_replace(Some(inquiries));
        let (reload, reloads) = mpsc::channel(1);
        let pipeline = tokio::spawn(pipeline.run(Inputs { events, inquiries: asked, reloads }));
        Ok(Running { config, logs, redis, pipeline, out: Some(out), reload })
    }

    /// Starts the log sources from the positions in `state`.
    fn start_logs(
        &mut self,
        config: &Config,
        state: &SavedState,
        out: &mpsc::Sender<PipelineInput>,
        sources_now: &SourcesNow,
    ) -> anyhow::Result<SourceGroup> {
        info!(
            sources = config.logs.len(), namespaces = config.namespaces.len(), rules = config.n_rules,
            presets = ?config.presets, "watching"
        );
        let mut group = SourceGroup::default();
        let (stop, sources) = (group.stop.clone(), &mut group.tasks);
        let rules = RuleSet::compile(config);
        let extractor = |source: &LogSource| Extractor::new(Arc::clone(&rules), source.max_line_bytes);

        let start = Start {
            cursors: state.cursors.clone(),
            next_id: state.next_file_id,
            known_sources: state.sources.keys().cloned().collect(),
        };
        let extractors = config.logs.iter().map(|source| Arc::new(extractor(source))).collect();
        let tailer = Tailer::new(config.logs.clone(), extractors, start, out.clone(), Arc::clone(sources_now));
        let stop_tailer = stop.clone();
        sources.spawn_blocking(move || {
            tailer.run(&stop_tailer);
            TAILER
        });

        for (index, source) in config.logs.iter().enumerate().filter(|(_, source)| source.kind == LogKind::Stdin) {
            let lines = match &self.stdin {
                Some(lines) => lines.clone(),
                None => stdin::read(source.max_line_bytes).context("cannot read standard input")?,
            };
            self.stdin = Some(lines.clone());
            let follower = StdinReader {
                lines,
                source: index,
                extractor: extractor(source),
                out: out.clone(),
                now: Arc::clone(sources_now),
            };
            let stop = stop.clone();
            sources.spawn_blocking(move || {
                follower.run(&stop);
                STDIN
            });
        }

        let mut intake = None;
        for (index, source) in config.logs.iter().enumerate() {
            let streams = || StreamSet::new(Arc::clone(&rules), source.max_line_bytes);
            match &source.kind {
                LogKind::Files | LogKind::Stdin => {}
                LogKind::Journal(journal) => {
                    let setup = journal::JournalSource {
                        source: index,
                        journal: journal.clone(),
                        start_at: source.start_at,
                        max_line_bytes: source.max_line_bytes,
                        position: state.journals.get(&source.name).cloned(),
                        streams: streams(),
                        out: out.clone(),
                        now: Arc::clone(sources_now),
                    };
                    let stop = stop.clone();
                    sources.spawn(async move {
                        journal::run(setup, stop).await;
                        JOURNAL
                    });
                }
                LogKind::Push(push) => {
                    let (sender, requests) = mpsc::channel(push::QUEUE);
                    intake = Some(PushHandle::new(push, sender, index, sources_now));
                    let known = state.pushed.clone();
                    let setup =
                        push::PushSource { source: index, streams: streams(), known, requests, out: out.clone() };
                    let stop = stop.clone();
                    sources.spawn(async move {
                        push::run(setup, stop).await;
                        PUSH
                    });
                }
            }
        }

        self.intake.send_replace(intake);
        Ok(group)
    }

    /// Prepares the keyspace source, which starts later. `None` if no Redis is configured.
    fn keyspace_source(
        &self,
        config: &Config,
        out: &mpsc::Sender<PipelineInput>,
    ) -> Option<(keyspace::KeyspaceSource, RedisSide)> {
        let redis = config.redis.clone()?;
        let now = Arc::default();
        let (reads, wanted) = mpsc::channel(READS);
        let setup = keyspace::KeyspaceSource {
            config: redis,
            keys: Arc::new(KeyMap::new(&config.namespaces)),
            namespaces: config.namespaces.clone(),
            hasher: self.hasher.clone(),
            out: out.clone(),
            now: Arc::clone(&now),
            reads: wanted,
        };
        Some((setup, RedisSide { now, reads }))
    }

    /// Returns `Ok(Err)` if a new configuration is refused and the old one stays in effect. The
    /// configuration and the web configuration are independent: one may be accepted and the other
    /// refused.
    async fn reload(&mut self, running: &mut Running) -> anyhow::Result<Result<(), String>> {
        let web = match &self.web {
            Some(web) => web.reload().await,
            None => Ok(()),
        };
        if let Err(refusal) = &web {
            error!("web configuration refused, the old one stays in effect:\n{refusal}");
        }
        Ok(self.reload_config(running).await?.and(web))
    }

    async fn reload_config(&mut self, running: &mut Running) -> anyhow::Result<Result<(), String>> {
        let args = self.args.clone();
        let loaded = spawn_blocking(move || Config::load(args.config_file.as_deref(), &args.overrides())).await?;
        let old_directory: Option<PathBuf> = running.config.state_dir.clone();
        let refusal = match loaded {
            Ok(config) if config.state_dir == old_directory => {
                self.reloads.send_modify(|status| status.note_config(clock::now()));
                info!("configuration loaded, starting with it");
                self.apply(Arc::new(config), running).await?;
                return Ok(Ok(()));
            }
            Ok(_) => "the state directory cannot change while running; restart instead".to_owned(),
            Err(problems) => problems.to_string(),
        };
        error!("configuration refused, the old one stays in effect:\n{refusal}");
        self.reloads.send_modify(|status| status.ok = false);
        Ok(Err(refusal))
    }

    /// Replaces the log sources, and the links if their settings changed.
    async fn apply(&mut self, config: Arc<Config>, running: &mut Running) -> anyhow::Result<()> {
        let Some(out) = running.out.clone() else { return Ok(()) };
        let links = link_continuity(&running.config, &config);
        let replaced = running.redis.take_if(|_| links != LinkContinuity::Kept);
        running.logs.stop.cancel();
        if let Some(mut redis) = replaced {
            redis.group.end().await?;
        }
        running.logs.end().await?;
        let new_redis = match &running.redis {
            Some(_) => None,
            None => self.keyspace_source(&config, &out),
        };
        let side = running.redis.as_ref().map(|redis| &redis.side).or(new_redis.as_ref().map(|(_, side)| side));
        let sources_now = sources_now(&config);
        let (positions, state) = oneshot::channel();
        let reload = Reload {
            config: Arc::clone(&config),
            sources_now: Arc::clone(&sources_now),
            redis: side.cloned(),
            links,
            positions,
        };
        running.reload.send(reload).await.context("the pipeline ended")?;
        let state = state.await.context("the pipeline ended during a reload")?;
        // New links start only now, because the pipeline has to forget the old links first.
        running.redis = new_redis.map(RedisSource::start).or(running.redis.take());
        running.logs = self.start_logs(&config, &state, &out, &sources_now)?;
        running.config = config;
        Ok(())
    }
}

/// What a new configuration means for the links to Redis.
fn link_continuity(old: &Config, new: &Config) -> LinkContinuity {
    let (Some(before), Some(after)) = (&old.redis, &new.redis) else { return LinkContinuity::OtherRedis };
    // The links do not use these settings.
    let (name, max_tracked_locks) = (after.name.clone(), after.max_tracked_locks);
    let same_settings = RedisConfig { name, max_tracked_locks, ..before.clone() } == *after;
    let with_keys = |config: &Config| -> Vec<Arc<Namespace>> {
        config.namespaces.iter().filter(|namespace| !namespace.keys.is_empty()).cloned().collect()
    };
    let (keys_before, keys_after) = (with_keys(old), with_keys(new));
    let same_keys = keys_before.len() == keys_after.len()
        && keys_before.iter().zip(&keys_after).all(|(before, after)| before.is_read_like(after));
    if same_settings && same_keys {
        LinkContinuity::Kept
    } else if before.is_same_redis(after) {
        LinkContinuity::Replaced
    } else {
        LinkContinuity::OtherRedis
    }
}

impl RedisSource {
    fn start((source, side): (keyspace::KeyspaceSource, RedisSide)) -> Self {
        let mut group = SourceGroup::default();
        let stop = group.stop.clone();
        group.tasks.spawn(async move {
            keyspace::run(source, stop).await;
            KEYSPACE
        });
        Self { group, side }
    }
}

impl SourceGroup {
    /// Ends all sources. Each one finishes its batch first.
    async fn end(&mut self) -> anyhow::Result<()> {
        self.stop.cancel();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        timeout(GRACE, ended).await.context("the sources did not stop in time")
    }

    /// Returns when a source ends that should keep running. Standard input may end.
    async fn failed(&mut self) -> anyhow::Error {
        loop {
            match self.tasks.join_next().await {
                Some(Ok(STDIN)) => {}
                Some(Ok(name)) => return anyhow::anyhow!("the {name} ended by itself"),
                Some(Err(error)) => return anyhow::Error::new(error).context("a source failed"),
                None => std::future::pending().await,
            }
        }
    }
}

/// Without the cancellation, a source that reads files would run forever, and the runtime would
/// wait for it.
impl Drop for SourceGroup {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Running {
    /// Returns when a part ends that should keep running.
    async fn failed(&mut self) -> anyhow::Error {
        let redis = async {
            match &mut self.redis {
                Some(redis) => redis.group.failed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            failure = self.logs.failed() => failure,
            failure = redis => failure,
            ended = &mut self.pipeline => match ended {
                Ok(_) => anyhow::anyhow!("the pipeline ended by itself"),
                Err(error) => anyhow::Error::new(error).context("the pipeline failed"),
            },
        }
    }

    /// The sources finish their batch. Then the pipeline applies the remaining batches and saves.
    async fn stop(&mut self) -> anyhow::Result<()> {
        self.logs.stop.cancel();
        if let Some(mut redis) = self.redis.take() {
            redis.group.end().await?;
        }
        self.logs.end().await?;
        self.out = None;
        let ended = timeout(GRACE, &mut self.pipeline).await.context("the last save did not end in time")?;
        ended.context("the pipeline panicked").map(drop)
    }
}

/// SIGTERM and SIGINT stop, SIGHUP reloads.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }
}
