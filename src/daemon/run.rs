//! The `run` command: connects the sources, the pipeline and the HTTP server, and handles signals
//! and reloads.
//!
//! `main` calls [`run`]; the drill starts an `Exporter`. A *generation* is the sources and the
//! pipeline of one configuration. A reload first loads the new configuration. If it is valid, the
//! old generation stops (sources end, the queue drains, a last save) and the next one starts from
//! its state. HTTP keeps running. A stop is the same without a next generation. If a source, the
//! pipeline or the HTTP server ends unexpectedly, the process exits with an error.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{error, info, warn};

use crate::cli::{EXIT_FAILED, EXIT_USAGE, RunArgs};
use crate::config::{Config, LogKind, LogSource, STDIN};
use crate::daemon::pipeline::{Inputs, Pipeline, PipelineParts, RedisSide, ReloadStatus};
use crate::daemon::state_file::{SavedState, StateDirectory};
use crate::daemon::systemd;
use crate::http::{self, ConnectionLimits, Endpoint, Listener, ReloadRequest, ServerInputs, WebFile, WebFollower};
use crate::keyspace;
use crate::logs::extract::Extractor;
use crate::logs::files::{Start, Tailer};
use crate::logs::journal;
use crate::logs::push::{self, PushHandle};
use crate::logs::rules::RuleSet;
use crate::logs::stdin::{self, StdinReader};
use crate::logs::streams::StreamSet;
use crate::model::input::PipelineInput;
use crate::model::key_index::KeyMap;
use crate::model::query::Inquiry;
use crate::model::sighting::OwnerHasher;
use crate::snapshot::Snapshot;
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
    let starting = tokio::spawn(tell_when_ready(is_ready.clone(), Arc::clone(&exporter.generation.config)));
    loop {
        let requested: Option<ReloadRequest> = tokio::select! {
            _ = signals.terminate.recv() => break,
            _ = signals.interrupt.recv() => break,
            _ = signals.hang_up.recv() => None,
            Some(request) = exporter.reloads.recv() => Some(request),
            failure = exporter.generation.failed() => return Err(failure),
            Some(ended) = exporter.servers.join_next() => {
                ended.context("the http server panicked")??;
                anyhow::bail!("the http server ended by itself");
            }
        };
        systemd::reloading();
        let outcome = exporter.daemon.reload(&mut exporter.generation).await?;
        if *is_ready.borrow() {
            match &outcome {
                Ok(()) => systemd::ready(&describe(&exporter.generation.config)),
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
    generation: Generation,
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
            hasher: OwnerHasher::new(),
            started: clock::now(),
            reloads: watch::Sender::new(ReloadStatus { ok: true, web_ok: true, last_success: clock::now() }),
        };
        let generation = daemon.start(Arc::new(config), state)?;

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
        Ok(Self { addresses, daemon, generation, reloads, servers, http })
    }

    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        info!("stopping");
        self.daemon.ready.send_replace(false);
        self.generation.stop().await?;
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

/// The status text for `systemctl status`.
fn describe(config: &Config) -> String {
    let redis = config.redis.as_ref().map_or_else(String::new, |redis| format!(", redis {}", redis.name));
    format!("watching {} log sources{redis}, {} namespaces", config.logs.len(), config.namespaces.len())
}

/// The parts that outlive a generation.
struct Daemon {
    args: RunArgs,
    web: Option<WebFile>,
    stdin: Option<stdin::Lines>,
    directory: Option<Arc<StateDirectory>>,
    publish: watch::Sender<Arc<Snapshot>>,
    ready: watch::Sender<bool>,
    /// Inquiry queue of the running generation.
    inquiries: watch::Sender<Option<mpsc::Sender<Inquiry>>>,
    /// Receiver of push requests in the running generation.
    intake: watch::Sender<Option<PushHandle>>,
    /// Kept across reloads, so that an owner's hash stays the same.
    hasher: OwnerHasher,
    started: TimeMs,
    reloads: watch::Sender<ReloadStatus>,
}

/// The running sources and pipeline of one configuration.
struct Generation {
    config: Arc<Config>,
    stop: CancellationToken,
    /// Each task returns the name of its source when it ends.
    sources: JoinSet<&'static str>,
    pipeline: JoinHandle<SavedState>,
}

impl Daemon {
    fn start(&mut self, config: Arc<Config>, state: SavedState) -> anyhow::Result<Generation> {
        info!(
            sources = config.logs.len(), namespaces = config.namespaces.len(), rules = config.n_rules,
            presets = ?config.presets, "watching"
        );
        let stop = CancellationToken::new();
        let (out, events) = mpsc::channel::<PipelineInput>(QUEUE);
        let sources_now = Arc::new(Mutex::new(vec![Default::default(); config.logs.len()]));
        let mut sources = JoinSet::new();
        let rules = RuleSet::compile(&config);
        let extractor = |source: &LogSource| Extractor::new(Arc::clone(&rules), source.max_line_bytes);

        let start = Start {
            cursors: state.cursors.clone(),
            next_id: state.next_file_id,
            known_sources: state.sources.keys().cloned().collect(),
        };
        let extractors = config.logs.iter().map(|source| Arc::new(extractor(source))).collect();
        let tailer = Tailer::new(config.logs.clone(), extractors, start, out.clone(), Arc::clone(&sources_now));
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
                now: Arc::clone(&sources_now),
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
                        now: Arc::clone(&sources_now),
                    };
                    let stop = stop.clone();
                    sources.spawn(async move {
                        journal::run(setup, stop).await;
                        JOURNAL
                    });
                }
                LogKind::Push(push) => {
                    let (sender, requests) = mpsc::channel(push::QUEUE);
                    intake = Some(PushHandle::new(push, sender, index, &sources_now));
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

        let redis = config.redis.clone().map(|redis| {
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
            let stop = stop.clone();
            sources.spawn(async move {
                keyspace::run(setup, stop).await;
                KEYSPACE
            });
            RedisSide { now, reads }
        });

        let pipeline = Pipeline::new(PipelineParts {
            config: Arc::clone(&config),
            state,
            directory: self.directory.clone(),
            sources_now,
            redis,
            publish: self.publish.clone(),
            ready: self.ready.clone(),
            started: self.started,
            reloads: self.reloads.subscribe(),
        });
        let (inquiries, asked) = mpsc::channel(INQUIRIES);
        self.inquiries.send_replace(Some(inquiries));
        self.intake.send_replace(intake);
        let pipeline = tokio::spawn(pipeline.run(Inputs { events, inquiries: asked }));
        Ok(Generation { config, stop, sources, pipeline })
    }

    /// Returns `Ok(Err)` if a new configuration is refused and the old one stays in effect. The
    /// configuration and the web configuration are independent: one may be accepted and the other
    /// refused.
    async fn reload(&mut self, generation: &mut Generation) -> anyhow::Result<Result<(), String>> {
        let web = match &self.web {
            Some(web) => web.reload().await,
            None => Ok(()),
        };
        if let Err(refusal) = &web {
            error!("web configuration refused, the old one stays in effect:\n{refusal}");
        }
        Ok(self.reload_config(generation).await?.and(web))
    }

    async fn reload_config(&mut self, generation: &mut Generation) -> anyhow::Result<Result<(), String>> {
        let args = self.args.clone();
        let loaded = spawn_blocking(move || Config::load(args.config_file.as_deref(), &args.overrides())).await?;
        let old_directory: Option<PathBuf> = generation.config.state_dir.clone();
        let refusal = match loaded {
            Ok(config) if config.state_dir == old_directory => {
                self.reloads.send_modify(|status| status.note_config(clock::now()));
                info!("configuration loaded, starting with it");
                let state = generation.stop().await?;
                *generation = self.start(Arc::new(config), state)?;
                return Ok(Ok(()));
            }
            Ok(_) => "the state directory cannot change while running; restart instead".to_owned(),
            Err(problems) => problems.to_string(),
        };
        error!("configuration refused, the old one stays in effect:\n{refusal}");
        self.reloads.send_modify(|status| status.ok = false);
        Ok(Err(refusal))
    }
}

impl Generation {
    /// Returns when a part ends that should keep running. Standard input may end.
    async fn failed(&mut self) -> anyhow::Error {
        loop {
            tokio::select! {
                Some(ended) = self.sources.join_next() => match ended {
                    Ok(STDIN) => {}
                    Ok(name) => return anyhow::anyhow!("the {name} ended by itself"),
                    Err(error) => return anyhow::Error::new(error).context("a source failed"),
                },
                ended = &mut self.pipeline => {
                    return match ended {
                        Ok(_) => anyhow::anyhow!("the pipeline ended by itself"),
                        Err(error) => anyhow::Error::new(error).context("the pipeline failed"),
                    };
                }
            }
        }
    }

    /// The sources finish their batch. Then the pipeline applies the remaining batches and saves.
    async fn stop(&mut self) -> anyhow::Result<SavedState> {
        self.stop.cancel();
        let sources = async { while self.sources.join_next().await.is_some() {} };
        timeout(GRACE, sources).await.context("the sources did not stop in time")?;
        let state = timeout(GRACE, &mut self.pipeline).await.context("the last save did not end in time")?;
        state.context("the pipeline panicked")
    }
}

/// Without the cancellation, a source that reads files would run forever, and the runtime would
/// wait for it.
impl Drop for Generation {
    fn drop(&mut self) {
        self.stop.cancel();
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
