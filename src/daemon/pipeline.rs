//! The only writer of the ledger: receives batches, applies them, saves, and only then publishes.
//!
//! `run` starts one pipeline for the life of the process. A reload gives it a new configuration
//! ([`Reload`]) and keeps everything that the ledger remembers. Published numbers have been saved, so a crash never
//! makes a counter go backward. The one exception: if saving fails for 5 seconds (disk full,
//! read-only), the pipeline publishes unsaved numbers, because no numbers during an incident are
//! worse than a counter that may go backward. `state_durable` is then 0.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tracing::{error, info, warn};

use crate::config::{Config, LogKind};
use crate::daemon::memory_file::MemoryFile;
use crate::daemon::state_file::{SavedState, StateDirectory, encode};
use crate::ledger::{KeyspaceSettings, Ledger, LinkContinuity, Memory, Reconfiguration};
use crate::model::input::{Batch, PipelineInput, PushReceipt, SourcePosition};
use crate::model::namespace::NamespaceId;
use crate::model::query::Inquiry;
use crate::model::sighting::{LinkBatch, LinkEvent};
use crate::snapshot::{ExporterView, NamespaceView, RedisNow, RedisView, Snapshot, SourceNow, SourceView};
use crate::util::clock;
use crate::util::clock::TimeMs;

/// Shortest time between two saves. Also the time between attempts while saving fails.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);
/// Shortest time between two saves while a push client waits for one: the larger of `PROMPT_SAVE`
/// and `PROMPT_SAVE_SHARE` times the duration of the last save.
const PROMPT_SAVE: Duration = Duration::from_millis(100);
const PROMPT_SAVE_SHARE: u32 = 4;
/// Limits how often the memory file is saved: this many bytes a second on average.
const MEMORY_BYTES_PER_SECOND: f64 = 65_536.0;
/// Time between two saves of an unchanged memory. It contains until when the exporter observed.
const MEMORY_REFRESH: Duration = Duration::from_secs(60);
/// If saving fails for this long, unsaved numbers are published.
const SHOW_UNSAVED_AFTER: Duration = Duration::from_secs(5);
/// How often the pipeline asks the ledger for locks whose deadline has passed.
const DUE_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of keys in one request to the keyspace source.
const DUE_AT_ONCE: usize = 1_000;
/// At most one part in `SURVEY_SHARE` of the time is spent on surveys of all locks.
const SURVEY_SHARE: u32 = 50;
/// How long a lost lock waits for its cause while Redis reports changes. This is longer than a push
/// and a save take.
const CAUSE_WAIT: Duration = Duration::from_secs(3);

pub struct Pipeline {
    config: Arc<Config>,
    ledger: Ledger,
    /// The saved state, without the ledger.
    state: SavedState,
    directory: Option<Arc<StateDirectory>>,
    memory: MemorySaver,
    sources_now: Arc<Mutex<Vec<SourceNow>>>,
    redis: Option<RedisSide>,
    next_survey: Instant,
    publish: watch::Sender<Arc<Snapshot>>,
    started_at: TimeMs,
    reloads: watch::Receiver<ReloadStatus>,
    ready: watch::Sender<bool>,
    /// Something has changed since the last save.
    changed: bool,
    /// Number of log readers that have not yet reported their start positions.
    unstarted: usize,
    /// Push clients whose lines are counted but not saved yet.
    awaiting_save: Vec<oneshot::Sender<()>>,
    failing_since: Option<Instant>,
}

/// The arguments of [`Pipeline::new`].
pub struct PipelineParts {
    pub config: Arc<Config>,
    pub state: SavedState,
    pub directory: Option<Arc<StateDirectory>>,
    /// `None` without a state directory, or if the file cannot be used.
    pub memory_file: Option<Arc<MemoryFile>>,
    /// What the previous process remembered.
    pub memory: Option<Memory>,
    pub sources_now: Arc<Mutex<Vec<SourceNow>>>,
    /// `None` if no Redis is configured.
    pub redis: Option<RedisSide>,
    pub publish: watch::Sender<Arc<Snapshot>>,
    pub ready: watch::Sender<bool>,
    pub started: TimeMs,
    pub reloads: watch::Receiver<ReloadStatus>,
}

/// Connects the pipeline with the keyspace source, in addition to the event queue.
#[derive(Clone)]
pub struct RedisSide {
    pub now: Arc<Mutex<RedisNow>>,
    /// Keys that the keyspace source should read.
    pub reads: mpsc::Sender<Vec<Box<str>>>,
}

/// The queues that the pipeline reads from.
pub struct Inputs {
    pub events: mpsc::Receiver<PipelineInput>,
    pub inquiries: mpsc::Receiver<Inquiry>,
    pub reloads: mpsc::Receiver<Reload>,
}

/// A new configuration for a running pipeline. All sources of the old configuration have ended,
/// except links that are kept.
pub struct Reload {
    pub config: Arc<Config>,
    pub sources_now: Arc<Mutex<Vec<SourceNow>>>,
    /// `None` if no Redis is configured.
    pub redis: Option<RedisSide>,
    pub links: LinkContinuity,
    /// Gets the positions of the old sources, from which the new sources start.
    pub positions: oneshot::Sender<SavedState>,
}

/// Result of the last attempt to load the configuration.
#[derive(Clone, Copy, Debug)]
pub struct ReloadStatus {
    pub ok: bool,
    /// Result of the last attempt to load the web configuration.
    pub web_ok: bool,
    /// Last time that either configuration was loaded.
    pub last_success: TimeMs,
}

impl ReloadStatus {
    /// Records that the configuration was loaded.
    pub fn note_config(&mut self, now: TimeMs) {
        self.ok = true;
        self.last_success = now;
    }

    /// Records that the web configuration was loaded or refused.
    pub fn note_web(&mut self, ok: bool, now: TimeMs) {
        self.web_ok = ok;
        if ok {
            self.last_success = now;
        }
    }
}

/// Decides when the memory file is saved.
struct MemorySaver {
    file: Option<Arc<MemoryFile>>,
    changed: bool,
    is_failing: bool,
    /// The earliest time of the next save.
    next: Instant,
}

impl MemorySaver {
    fn file_if_due(&self) -> Option<Arc<MemoryFile>> {
        let due = if self.changed { self.next } else { self.next + MEMORY_REFRESH };
        self.file.clone().filter(|_| Instant::now() >= due)
    }

    /// Records a save and the size of the file.
    fn note(&mut self, saved: std::io::Result<usize>) {
        let size = saved.as_ref().copied().unwrap_or_default();
        let pause = Duration::from_secs_f64(size as f64 / MEMORY_BYTES_PER_SECOND);
        self.next = Instant::now() + pause.max(SAVE_INTERVAL);
        self.changed = saved.is_err();
        match saved {
            Err(error) if !self.is_failing => {
                warn!(%error, "cannot save the memory of the last hour, trying again every second");
                self.is_failing = true;
            }
            Err(_) => {}
            Ok(_) => self.is_failing = false,
        }
    }
}

impl Pipeline {
    pub fn new(setup: PipelineParts) -> Self {
        let PipelineParts { config, mut state, directory, memory_file, memory, sources_now, .. } = setup;
        let PipelineParts { redis, publish, ready, started, reloads, .. } = setup;
        let saved = std::mem::take(&mut state.ledger);
        let ledger = Ledger::new(config.namespaces.clone(), config.join_window, saved);
        let mut ledger = ledger.naming_rules(config.rules.names()).starting_at(clock::steady());
        if let Some(settings) = keyspace_settings(&config) {
            ledger = ledger.observing(settings);
        }
        if let (Some(memory), Some(file)) = (memory, &memory_file) {
            ledger = ledger.remembering(memory, &file.hasher(), clock::steady(), clock::now());
        }
        let unstarted = readers(&config);
        let pipeline = Self {
            config,
            ledger,
            state,
            directory,
            memory: MemorySaver { file: memory_file, changed: true, is_failing: false, next: Instant::now() },
            sources_now,
            redis,
            next_survey: Instant::now(),
            publish,
            started_at: started,
            reloads,
            ready,
            changed: true,
            unstarted,
            awaiting_save: Vec::new(),
            failing_since: None,
        };
        // The loaded state is already saved, so it can be published immediately.
        pipeline.publish.send_replace(Arc::new(pipeline.snapshot()));
        pipeline
    }

    /// Runs until all senders of events are dropped. Then saves once more and returns the state.
    pub async fn run(mut self, inputs: Inputs) -> SavedState {
        let Inputs { mut events, mut inquiries, mut reloads } = inputs;
        let mut next_save = Instant::now();
        let mut prompt_save = Instant::now();
        let mut due = interval(DUE_INTERVAL);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = sleep_until(next_save) => {
                    let begun = Instant::now();
                    self.save_and_publish().await;
                    prompt_save = Instant::now() + PROMPT_SAVE.max(begun.elapsed() * PROMPT_SAVE_SHARE);
                    next_save = Instant::now() + SAVE_INTERVAL;
                }
                _ = due.tick(), if self.redis.is_some() => self.ask_for_due_reads(),
                Some(inquiry) = inquiries.recv() => self.ledger.answer(inquiry, clock::steady()),
                Some(reload) = reloads.recv() => {
                    // The batches of the old sources refer to the old configuration.
                    for _ in 0..events.len() {
                        events.try_recv().into_iter().for_each(|input| self.receive(input));
                    }
                    let positions = self.reconfigure(reload);
                    self.save_and_publish().await;
                    // The receiver is gone only if the process ends.
                    let _ = positions.send(self.state.clone());
                }
                received = events.recv() => match received {
                    Some(input) => {
                        let is_start = matches!(input, PipelineInput::LogsReady);
                        self.receive(input);
                        if is_start {
                            // After the first save of the start positions, no line is lost.
                            next_save = Instant::now();
                        } else if !self.awaiting_save.is_empty() && self.failing_since.is_none() {
                            next_save = next_save.min(prompt_save);
                        }
                    }
                    None => break,
                }
            }
        }
        (self.memory.changed, self.memory.next) = (true, Instant::now());
        self.save_and_publish().await;
        self.state.ledger = self.ledger.into_saved();
        self.state
    }

    fn receive(&mut self, input: PipelineInput) {
        match input {
            PipelineInput::Logs(batch) => self.apply(batch),
            PipelineInput::Link(batch) => self.apply_link(batch),
            PipelineInput::LogsReady => self.unstarted = self.unstarted.saturating_sub(1),
        }
    }

    fn reconfigure(&mut self, reload: Reload) -> oneshot::Sender<SavedState> {
        let Reload { config, sources_now, redis, links, positions } = reload;
        let change = Reconfiguration {
            namespaces: config.namespaces.clone(),
            join_window: config.join_window,
            rule_names: config.rules.names(),
            keyspace: keyspace_settings(&config),
            links,
        };
        self.ledger.reconfigure(change, clock::steady());
        self.unstarted = readers(&config);
        (self.config, self.sources_now, self.redis) = (config, sources_now, redis);
        (self.next_survey, self.changed) = (Instant::now(), true);
        positions
    }

    fn apply(&mut self, batch: Batch) {
        let Some(source) = self.config.logs.get(batch.source) else { return };
        self.changed = true;
        self.state.sources.entry(source.name.clone()).or_default().add(&batch.seen);
        // Log lines carry wall-clock times; the ledger uses the steady clock.
        let now = clock::steady();
        let correction = now - clock::now();
        for (at, event) in &batch.events {
            self.ledger.apply(*at + correction, now, event);
        }
        match batch.reached {
            SourcePosition::Files(cursors) => {
                for (id, cursor) in cursors {
                    self.state.next_file_id = self.state.next_file_id.max(id.0 + 1);
                    match cursor {
                        Some(cursor) => self.state.cursors.insert(id, cursor),
                        None => self.state.cursors.remove(&id),
                    };
                }
            }
            SourcePosition::Journal(position) => {
                self.state.journals.insert(source.name.clone(), position);
            }
            SourcePosition::Pushed(PushReceipt { lines, saved, place }) => {
                self.state.pushed.remember(lines);
                self.awaiting_save.extend(saved);
                drop(place);
            }
            SourcePosition::Nothing => {}
        }
    }

    fn apply_link(&mut self, batch: LinkBatch) {
        let is_news = |news: &LinkEvent| !matches!(news, LinkEvent::CaughtUp { .. });
        self.changed |= batch.news.iter().any(is_news);
        self.ledger.apply_link(batch);
    }

    /// If the queue is full, no keys are sent. The ledger offers the same keys again later.
    fn ask_for_due_reads(&mut self) {
        let Some(redis) = &self.redis else { return };
        let Ok(permit) = redis.reads.try_reserve() else { return };
        let keys = self.ledger.due_reads(clock::steady(), DUE_AT_ONCE);
        if !keys.is_empty() {
            permit.send(keys);
        }
    }

    /// Finds the causes that are due. Surveys all locks if the last survey was long enough ago.
    fn look_around(&mut self) {
        let now = clock::steady();
        self.changed |= self.ledger.settle(now);
        if self.redis.is_some() && Instant::now() >= self.next_survey {
            let begun = Instant::now();
            self.ledger.survey(now);
            self.next_survey = begun + begun.elapsed() * SURVEY_SHARE;
        }
    }

    async fn save_and_publish(&mut self) {
        self.look_around();
        if self.changed {
            self.ledger.tidy(clock::steady());
            match self.save().await {
                Ok(()) => {
                    if self.failing_since.take().is_some() {
                        info!("state is saved again");
                    }
                    self.changed = false;
                    self.memory.changed = true;
                    for saved in self.awaiting_save.drain(..) {
                        // A client that stopped waiting sends its lines again, and they are
                        // recognized.
                        let _ = saved.send(());
                    }
                }
                Err(error) => {
                    self.state.save_errors += 1;
                    self.awaiting_save.retain(|saved| !saved.is_closed());
                    if self.failing_since.is_none() {
                        error!(%error, "cannot save state, trying again every second; counting goes on");
                        self.failing_since = Some(Instant::now());
                    }
                    let overdue = self.failing_since.is_some_and(|since| since.elapsed() >= SHOW_UNSAVED_AFTER);
                    if !overdue {
                        self.publish_health();
                        return;
                    }
                }
            }
        }
        // Only saved counts are remembered.
        if !self.changed {
            self.save_memory().await;
        }
        self.publish.send_replace(Arc::new(self.snapshot()));
        if self.unstarted == 0 {
            self.ready.send_replace(true);
        }
    }

    async fn save(&mut self) -> std::io::Result<()> {
        let Some(directory) = self.directory.clone() else { return Ok(()) };
        let saved_at = Some(clock::now());
        let saves = self.state.saves + 1;
        let state = SavedState { ledger: self.ledger.saved().clone(), saves, saved_at, ..self.state.clone() };
        let encoded = encode(&state);
        let saved = tokio::task::spawn_blocking(move || directory.save(&encoded)).await;
        saved.unwrap_or_else(|error| Err(std::io::Error::other(error)))?;
        self.state.saves = saves;
        self.state.saved_at = saved_at;
        Ok(())
    }

    async fn save_memory(&mut self) {
        let Some(file) = self.memory.file_if_due() else { return };
        let memory = self.ledger.memory(&file.hasher(), clock::steady(), clock::now());
        let saved = tokio::task::spawn_blocking(move || file.save(&memory)).await;
        self.memory.note(saved.unwrap_or_else(|error| Err(std::io::Error::other(error))));
    }

    /// Updates only the health of the exporter and of Redis. The other published numbers stay the
    /// same.
    fn publish_health(&self) {
        let mut snapshot = Snapshot::clone(&self.publish.borrow());
        snapshot.exporter = self.exporter_view();
        snapshot.redis = self.redis_view();
        snapshot.taken = clock::now();
        self.publish.send_replace(Arc::new(snapshot));
    }

    fn snapshot(&self) -> Snapshot {
        let now = clock::steady();
        let namespaces = self.ledger.namespaces().iter().enumerate().map(|(index, namespace)| NamespaceView {
            namespace: Arc::clone(namespace),
            logs: self.ledger.counters(namespace),
            causes: self.ledger.causes(namespace),
            keyspace: self.ledger.keyspace_view(NamespaceId(index as u16), now),
            lately: self.ledger.lately(NamespaceId(index as u16), now),
        });
        let sources_now = self.sources_now.lock().map(|now| now.clone()).unwrap_or_default();
        let sources = self.config.logs.iter().enumerate().map(|(index, source)| SourceView {
            name: source.name.clone(),
            totals: self.state.sources.get(&source.name).cloned().unwrap_or_default(),
            now: sources_now.get(index).cloned().unwrap_or_default(),
        });
        Snapshot {
            namespaces: namespaces.collect(),
            countable: self.config.rules.countable(),
            sources: sources.collect(),
            redis: self.redis_view(),
            exporter: self.exporter_view(),
            taken: clock::now(),
            config: Some(Arc::clone(&self.config)),
        }
    }

    fn redis_view(&self) -> Option<RedisView> {
        let (config, side) = (self.config.redis.as_ref()?, self.redis.as_ref()?);
        let now = side.now.lock().map(|now| now.clone()).unwrap_or_default();
        Some(RedisView { name: config.name.clone(), now })
    }

    fn exporter_view(&self) -> ExporterView {
        let reloads = *self.reloads.borrow();
        ExporterView {
            state_enabled: self.directory.is_some(),
            state_durable: self.directory.is_some() && self.failing_since.is_none(),
            state_saves: self.state.saves,
            state_save_errors: self.state.save_errors,
            state_last_save: self.state.saved_at,
            state_set_aside: self.state.set_aside,
            evictions: self.ledger.evictions().to_vec(),
            config_reload_ok: reloads.ok && reloads.web_ok,
            config_reloaded: reloads.last_success,
            started: self.started_at,
        }
    }
}

/// `None` if no Redis is configured.
fn keyspace_settings(config: &Config) -> Option<KeyspaceSettings> {
    let redis = config.redis.as_ref()?;
    let watched = if redis.watch.enabled { Duration::ZERO } else { redis.scan.interval };
    Some(KeyspaceSettings {
        max_tracked_locks: redis.max_tracked_locks,
        cause_wait: (CAUSE_WAIT + watched).as_millis() as TimeMs,
    })
}

/// Number of log readers that report their start positions. The tailer always runs, even without
/// files to follow.
fn readers(config: &Config) -> usize {
    1 + config.logs.iter().filter(|source| matches!(source.kind, LogKind::Journal(_))).count()
}
