//! Runs the exporter in virtual time with its real extractor, pipeline, ledger and exposition. Only
//! the outside is simulated: this module passes lines like a tailer and changes in Redis like a
//! link.

use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use redis_lock_exporter::config::{Config, Overrides};
use redis_lock_exporter::daemon::pipeline::{Inputs, Pipeline, PipelineParts, RedisSide, ReloadStatus};
use redis_lock_exporter::daemon::state_file::SavedState;
use redis_lock_exporter::exposition::{self, TextFormat};
use redis_lock_exporter::logs::extract::{Extractor, LineAssembler};
use redis_lock_exporter::logs::rules::RuleSet;
use redis_lock_exporter::model::input::{Batch, PipelineInput, SourcePosition};
use redis_lock_exporter::model::position::SourceTotals;
use redis_lock_exporter::model::sighting::{
    Held, KeyState, LinkBatch, LinkEvent, LinkId, OwnerHasher, ServerContinuity, Sighting,
};
use redis_lock_exporter::snapshot::{RedisNow, Snapshot, SourceNow};
use redis_lock_exporter::util::clock;
use redis_lock_exporter::util::clock::TimeMs;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::programs::Line;
use crate::store::{Change, Entry, Store};

const LINK: LinkId = LinkId(0);
const MAX_LINE_BYTES: usize = 65_536;
/// Intervals between passes with and without watching: the exporter's defaults.
const WATCHED_PASS_MS: TimeMs = 300_000;
const SCAN_PASS_MS: TimeMs = 15_000;

/// What the exporter observes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Eyes {
    pub(crate) redis: bool,
    pub(crate) watch: bool,
}

pub(crate) struct Exporter {
    config: Arc<Config>,
    extractor: Extractor,
    joiner: LineAssembler,
    hasher: OwnerHasher,
    eyes: Eyes,
    /// The monotonic clock at virtual time 0.
    zero: TimeMs,
    offset: u64,
    running: Option<Running>,
    state: SavedState,
    redis_now: Arc<Mutex<RedisNow>>,
    generation: Option<u64>,
    /// The exporter is connected to Redis.
    up: bool,
    caught_up: TimeMs,
    next_pass: TimeMs,
}

/// Redis as one exporter reaches it.
#[derive(Clone, Copy)]
pub(crate) struct RedisSeen<'a> {
    pub(crate) store: &'a Store,
    /// Changes since the last update.
    pub(crate) changes: &'a [Change],
    /// Whether the exporter can connect.
    pub(crate) reaches: bool,
}

struct Running {
    inputs: mpsc::Sender<PipelineInput>,
    reads: mpsc::Receiver<Vec<Box<str>>>,
    published: watch::Receiver<Arc<Snapshot>>,
    task: JoinHandle<SavedState>,
    /// Kept so that the channels stay open.
    _inquiries: mpsc::Sender<redis_lock_exporter::model::query::Inquiry>,
    _reloads: watch::Sender<ReloadStatus>,
}

impl Exporter {
    pub(crate) fn new(eyes: Eyes, zero: TimeMs) -> anyhow::Result<Self> {
        let redis = if eyes.redis { "redis: {url: 'redis://127.0.0.1:6379/0'}\n" } else { "" };
        let watch = if eyes.watch { "" } else { "watch: off\n" };
        let watch = if eyes.redis { watch } else { "" };
        let yaml = format!("logs: [{{path: /var/log/cordum/all.log}}]\npresets: [cordum]\n{redis}{watch}");
        let config = Config::from_yaml("scenario", &yaml, &Overrides::default());
        let config = Arc::new(config.map_err(|problems| anyhow::anyhow!("{problems}"))?);
        Ok(Self {
            extractor: Extractor::new(RuleSet::compile(&config), MAX_LINE_BYTES),
            config,
            joiner: LineAssembler::default(),
            hasher: OwnerHasher::new(),
            eyes,
            zero,
            offset: 0,
            running: None,
            state: SavedState::default(),
            redis_now: Arc::default(),
            generation: None,
            up: false,
            caught_up: 0,
            next_pass: 0,
        })
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    pub(crate) fn start(&mut self, now: TimeMs) {
        let (inputs, events) = mpsc::channel(4_096);
        let (inquiries, inquired) = mpsc::channel(1);
        let (asked, reads) = mpsc::channel(64);
        let (publish, published) = watch::channel(Arc::default());
        let started = self.zero + now;
        let (reloads, reloaded) = watch::channel(ReloadStatus { ok: true, web_ok: true, last_success: started });
        *self.lock_redis() = RedisNow { nodes: u64::from(self.eyes.redis), ..RedisNow::default() };
        let pipeline = Pipeline::new(PipelineParts {
            config: Arc::clone(&self.config),
            state: std::mem::take(&mut self.state),
            directory: None,
            memory_file: None,
            memory: None,
            sources_now: Arc::new(Mutex::new(vec![SourceNow { open_files: 1, ..SourceNow::default() }])),
            redis: self.eyes.redis.then(|| RedisSide { now: Arc::clone(&self.redis_now), reads: asked }),
            publish,
            ready: watch::channel(false).0,
            started,
            reloads: reloaded,
        });
        let new_configurations = mpsc::channel(1).1;
        let task = tokio::spawn(pipeline.run(Inputs { events, inquiries: inquired, reloads: new_configurations }));
        self.up = false;
        self.generation = None;
        self.running = Some(Running { inputs, reads, published, task, _inquiries: inquiries, _reloads: reloads });
    }

    /// Stops the exporter as SIGTERM does. The next start may or may not find the saved state.
    pub(crate) async fn stop(&mut self, keeps_state: bool) -> anyhow::Result<()> {
        let Some(running) = self.running.take() else { return Ok(()) };
        drop(running.inputs);
        let state = running.task.await.context("the pipeline failed")?;
        self.state = if keeps_state { state } else { SavedState::default() };
        Ok(())
    }

    /// Passes on all changes up to `now`.
    pub(crate) async fn tell(&mut self, now: TimeMs, lines: &[&Line], redis: RedisSeen<'_>) -> anyhow::Result<()> {
        let RedisSeen { changes, store, reaches } = redis;
        if !lines.is_empty() {
            let batch = self.batch(now, lines);
            self.send(PipelineInput::Logs(batch)).await?;
        }
        if !self.eyes.redis {
            return Ok(());
        }
        let mut news = Vec::new();
        match (self.up, reaches) {
            (true, false) => {
                self.up = false;
                news.push(LinkEvent::Down { at: self.zero + now });
            }
            (false, true) => {
                self.connect(now, store, &mut news);
                self.pass(now, store, &mut news);
            }
            (false, false) => {}
            (true, true) => self.watch(now, changes, store, &mut news),
        }
        self.report();
        if !news.is_empty() {
            self.send(PipelineInput::Link(LinkBatch { link: LINK, news })).await?;
        }
        Ok(())
    }

    /// Returns the samples of these namespaces in a scrape.
    pub(crate) fn scrape(&self, namespaces: &[&str]) -> Option<String> {
        let snapshot = self.running.as_ref()?.published.borrow().clone();
        let mut shown = Snapshot::clone(&snapshot);
        let is_wanted: Vec<bool> =
            shown.namespaces.iter().map(|view| namespaces.contains(&view.namespace.name.as_str())).collect();
        let mut wanted = is_wanted.iter();
        shown.namespaces.retain(|_| *wanted.next().unwrap_or(&false));
        let countable = snapshot.countable.iter().zip(&is_wanted).filter(|(_, wanted)| **wanted);
        shown.countable = countable.map(|(series, _)| series.clone()).collect();
        Some(exposition::render(&shown, TextFormat::Classic))
    }

    fn batch(&mut self, now: TimeMs, lines: &[&Line]) -> Batch {
        // The pipeline converts the wall-clock time of lines to monotonic time.
        let wall = clock::now() - now;
        let mut events = Vec::new();
        let mut seen = SourceTotals { last_read: Some(self.zero + now), ..SourceTotals::default() };
        for line in lines {
            let mut found = Vec::new();
            self.extractor.extract(line.text.as_bytes(), self.offset, &mut self.joiner, &mut found);
            // In production a line waits a second for other lines of its record, and counts at the
            // time when it was read.
            self.extractor.flush(&mut self.joiner, &mut found);
            self.offset += line.text.len() as u64;
            seen.bytes += line.text.len() as u64;
            seen.lines += 1;
            seen.events += found.len() as u64;
            events.extend(found.into_iter().map(|event| (wall + line.at, event)));
        }
        Batch { source: 0, events, reached: SourcePosition::Nothing, seen }
    }

    fn connect(&mut self, now: TimeMs, store: &Store, news: &mut Vec<LinkEvent>) {
        let past = match self.generation {
            None => ServerContinuity::None,
            Some(generation) if generation == store.generation => ServerContinuity::SameServer,
            Some(_) => ServerContinuity::OtherServer,
        };
        {
            let mut redis = self.lock_redis();
            redis.connects += 1;
            redis.failovers += u64::from(past == ServerContinuity::OtherServer);
        }
        self.generation = Some(store.generation);
        self.up = true;
        self.caught_up = now;
        news.push(LinkEvent::Up { at: self.zero + now, watching: self.eyes.watch, past });
    }

    /// Passes a sighting of every key.
    fn pass(&mut self, now: TimeMs, store: &Store, news: &mut Vec<LinkEvent>) {
        let started = self.zero + now;
        for (key, entry) in store.entries(now) {
            let since = self.eyes.watch.then_some(self.zero + self.caught_up);
            news.push(LinkEvent::Seen(self.sighting(now, key.into(), Some(entry), since, 0)));
        }
        news.push(LinkEvent::PassDone { started, at: started + 2 });
        self.next_pass = now + if self.eyes.watch { WATCHED_PASS_MS } else { SCAN_PASS_MS };
        let at = self.zero + now;
        let mut redis = self.lock_redis();
        redis.scan_passes += 1;
        redis.scan_interval_seconds = Some((self.next_pass - now) as f64 / 1000.0);
        redis.scan_duration_seconds = Some(0.002);
        redis.scan_last_success = Some(at);
    }

    fn watch(&mut self, now: TimeMs, changes: &[Change], store: &Store, news: &mut Vec<LinkEvent>) {
        if self.eyes.watch {
            for change in changes {
                let since = Some(self.zero + self.caught_up.min(change.at));
                news.push(LinkEvent::Seen(self.sighting(change.at, change.key.clone(), change.entry, since, 1)));
                self.caught_up = self.caught_up.max(change.at);
            }
        }
        // Keys that the ledger requested.
        let mut asked = Vec::new();
        if let Some(running) = &mut self.running {
            while let Ok(keys) = running.reads.try_recv() {
                asked.extend(keys);
            }
        }
        for key in asked {
            let entry = store.entries(now).find(|(name, _)| **name == *key).map(|(_, entry)| entry);
            let since = self.eyes.watch.then_some(self.zero + self.caught_up);
            news.push(LinkEvent::Seen(self.sighting(now, key, entry, since, 0)));
        }
        if now >= self.next_pass {
            self.pass(now, store, news);
        }
        self.caught_up = now;
        news.push(LinkEvent::CaughtUp { at: self.zero + now });
    }

    fn sighting(
        &self,
        at: TimeMs,
        key: Box<str>,
        entry: Option<Entry>,
        since: Option<TimeMs>,
        pushes: u16,
    ) -> Sighting {
        let at_clock = self.zero + at;
        let sight = match entry {
            None => KeyState::Absent,
            Some(entry) => KeyState::Held(Held {
                owner: Some(self.hasher.hash(&entry.owner.to_be_bytes())),
                ttl_ms: Some(entry.deadline - at),
                fence: None,
            }),
        };
        let (sent, received) = (at_clock, at_clock + 1);
        let until = if pushes > 0 { sent } else { received };
        Sighting { key, sent, received, since, until, pushes, first_push_may_be_old: false, missed: false, sight }
    }

    fn report(&self) {
        let mut redis = self.lock_redis();
        redis.nodes_up = u64::from(self.up);
        redis.nodes_tracking = u64::from(self.up && self.eyes.watch);
    }

    async fn send(&self, input: PipelineInput) -> anyhow::Result<()> {
        let Some(running) = &self.running else { return Ok(()) };
        running.inputs.send(input).await.ok().context("the pipeline ended")
    }

    fn lock_redis(&self) -> std::sync::MutexGuard<'_, RedisNow> {
        self.redis_now.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
