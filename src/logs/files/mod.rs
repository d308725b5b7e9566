//! Follows all log files of all sources on one thread, by polling. (File system events get lost on network mounts,
//! overlays and symlinks; polling a quiet file costs one system call.)
//!
//! `daemon::run` calls [`Tailer::run`]. Each round lists the files, matches them with saved positions, and reads a little
//! from each file that has new text. Batches go to the pipeline. When the pipeline is behind, sending waits and the files
//! are the buffer. Only `stop` ends the thread: errors are counted and retried. In reading order:
//!
//! * this file: the rounds
//! * `discovery`: which files there are
//! * `matching`: files <-> saved positions
//! * `likeness`: does a file contain the text that a position describes?
//! * `text`: reads a file from its beginning, through gzip if needed
//! * `followed_file`: one open file
//! * `prefetch`: searches the next part of a long backlog on another thread

mod discovery;
mod followed_file;
mod likeness;
mod matching;
pub mod prefetch;
mod text;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::config::{LogKind, LogSource};
use crate::logs::extract::Extractor;
use crate::model::input::{Batch, PipelineInput, Reached};
use crate::model::position::{Cursor, FileId, Inode, SourceTotals};
use crate::snapshot::SourceNow;
use crate::util::clock;
use discovery::Found;
use followed_file::{Desk, Live, Means, ReadProgress};

pub use followed_file::ASSUMED_BYTES_PER_MS;

/// Most positions kept; beyond it the longest gone are forgotten first.
const MAX_CURSORS: usize = 20_000;

/// What the tailer starts from: everything that was saved.
#[derive(Clone, Debug, Default)]
pub struct Start {
    pub cursors: BTreeMap<FileId, Cursor>,
    pub next_id: u64,
    /// Sources that have been followed before. Files of any other source begin where `start_at` says.
    pub known_sources: BTreeSet<String>,
}

pub struct Tailer {
    sources: Vec<LogSource>,
    extractors: Vec<Arc<Extractor>>,
    cursors: BTreeMap<FileId, Cursor>,
    next_id: u64,
    live: BTreeMap<FileId, Live>,
    /// Open files of each base in reading order.
    order: BTreeMap<PathBuf, Vec<FileId>>,
    /// Sources whose files are looked at for the first time ever.
    first_time: Vec<bool>,
    /// Size and time of change of files that were looked at and need no reading, so that they are not opened each time.
    settled: HashMap<Inode, (u64, SystemTime)>,
    /// Problems that were logged already, so that each is logged once until it goes away.
    reported: BTreeSet<String>,
    out: mpsc::Sender<PipelineInput>,
    now: Arc<Mutex<Vec<SourceNow>>>,
    desk: Desk,
    /// A file was truncated: its copy must be looked for before anything else is read from it.
    discover_now: bool,
}

impl Tailer {
    pub fn new(
        sources: Vec<LogSource>,
        extractors: Vec<Arc<Extractor>>,
        start: Start,
        out: mpsc::Sender<PipelineInput>,
        now: Arc<Mutex<Vec<SourceNow>>>,
    ) -> Self {
        let first_time = sources.iter().map(|source| !start.known_sources.contains(&source.name)).collect();
        Self {
            sources,
            extractors,
            cursors: start.cursors,
            next_id: start.next_id,
            live: BTreeMap::new(),
            order: BTreeMap::new(),
            first_time,
            settled: HashMap::new(),
            reported: BTreeSet::new(),
            out,
            now,
            desk: Desk::default(),
            discover_now: false,
        }
    }

    /// Runs until `stop`, or until nobody takes the batches any more. Blocks its thread.
    pub fn run(mut self, stop: &CancellationToken) {
        let mut pause = self.discover(true);
        let _ = self.out.blocking_send(PipelineInput::LogsReady);
        let mut next_discovery = Instant::now() + pause;
        while !stop.is_cancelled() && !self.out.is_closed() {
            if self.discover_now || Instant::now() >= next_discovery {
                pause = self.discover(false);
                next_discovery = Instant::now() + pause;
            }
            let busy = self.read_round(stop);
            self.publish_now();
            if !busy && !self.discover_now {
                let next_look = self.live.values().map(Live::next_look).min().unwrap_or(next_discovery);
                let wait = next_look.min(next_discovery).saturating_duration_since(Instant::now());
                // Short enough for a prompt stop; a wait on the token would need the runtime.
                std::thread::sleep(wait.clamp(Duration::from_millis(1), Duration::from_millis(50)));
            }
        }
    }

    /// Gives every file its turn that is due. Of the files of one base, a later one is read only when the earlier ones have just
    /// been looked at, due or not, are up to date, and nothing in them waits for its rest.
    fn read_round(&mut self, stop: &CancellationToken) -> bool {
        let mut busy = false;
        let mut order = std::mem::take(&mut self.order);
        for ids in order.values() {
            if stop.is_cancelled() || self.out.is_closed() {
                break;
            }
            let is_due = |id| self.live.get(id).is_some_and(|live| Instant::now() >= live.next_look());
            let Some(last_due) = ids.iter().rposition(is_due) else { continue };
            for id in &ids[..=last_due] {
                let has_more = self.read_file(*id) == ReadProgress::More;
                busy |= has_more;
                if has_more || self.live.get(id).is_some_and(Live::is_waiting) {
                    break;
                }
            }
        }
        order.retain(|_, ids| {
            ids.retain(|id| self.live.contains_key(id));
            !ids.is_empty()
        });
        self.order = order;
        busy
    }

    fn read_file(&mut self, id: FileId) -> ReadProgress {
        let Some(live) = self.live.get_mut(&id) else { return ReadProgress::UpToDate };
        if live.truncated {
            return ReadProgress::UpToDate;
        }
        let source = live.source;
        let means = Means {
            extractor: &self.extractors[source],
            max_line_bytes: self.sources[source].max_line_bytes,
            now: clock::now(),
        };
        let progress = live.read(&means, &mut self.desk);
        if live.truncated {
            // What was found before is still true; the rest of a cut line is not coming.
            live.flush_joiner(&means);
            self.discover_now = true;
        }
        let report = live.take_report();
        let cursor = live.cursor.clone();
        let path = live.path.display().to_string();
        if let Some(report) = report {
            self.cursors.insert(id, cursor.clone());
            self.send(Batch {
                source,
                events: report.events,
                reached: Reached::Files(vec![(id, Some(cursor.clone()))]),
                seen: report.seen,
            });
        }
        if cursor.finished {
            debug!(path, "read a rotated file to its end");
            self.live.remove(&id);
        }
        progress.unwrap_or_else(|error| {
            self.problem(source, &path, &error);
            if cursor.gzip {
                // Damaged, or not whole yet: looked at again when it changes.
                self.live.remove(&id);
                self.settle(cursor.inode, &path);
            } else if let Some(live) = self.live.get_mut(&id) {
                live.back_off();
            }
            ReadProgress::UpToDate
        })
    }

    fn follow(&mut self, id: FileId, found: &Found, cursor: Cursor) {
        self.settled.remove(&found.inode);
        self.set_cursor(found.source, id, cursor.clone());
        self.open(id, found.source, found.base.clone(), found.path.clone(), found.rotated, cursor);
    }

    fn open(&mut self, id: FileId, source: usize, base: PathBuf, path: PathBuf, rotated: bool, cursor: Cursor) {
        let max_line_bytes = self.sources[source].max_line_bytes;
        match Live::open(id, source, base.clone(), path.clone(), cursor.clone(), max_line_bytes) {
            Ok(mut live) => {
                debug!(path = %path.display(), offset = cursor.offset, "following");
                if rotated {
                    live.set_rotated();
                }
                self.reported.remove(&path.display().to_string());
                self.cursors.insert(id, cursor);
                self.live.insert(id, live);
                self.order.entry(base).or_default().push(id);
            }
            Err(error) => self.problem(source, &path.display().to_string(), &error),
        }
    }

    fn set_cursor(&mut self, source: usize, id: FileId, cursor: Cursor) {
        if self.cursors.get(&id) == Some(&cursor) {
            return;
        }
        self.cursors.insert(id, cursor.clone());
        let reached = Reached::Files(vec![(id, Some(cursor))]);
        self.send(Batch { source, events: Vec::new(), reached, seen: SourceTotals::default() });
    }

    fn count(&self, source: usize, seen: SourceTotals) {
        self.send(Batch { source, events: Vec::new(), reached: Reached::Nothing, seen });
    }

    /// Waits while the pipeline is behind. If it is gone, `run` ends at the next look.
    fn send(&self, batch: Batch) {
        let _ = self.out.blocking_send(PipelineInput::Logs(batch));
    }

    /// Counts a failed look at a file and logs it the first time.
    fn problem(&mut self, source: usize, path: &str, error: &io::Error) {
        if error.kind() == io::ErrorKind::NotFound {
            return;
        }
        if self.reported.len() < MAX_CURSORS && self.reported.insert(path.to_owned()) {
            warn!(path, %error, "cannot read log file, trying again");
        }
        self.count(source, SourceTotals { read_errors: 1, ..SourceTotals::default() });
    }

    fn publish_now(&self) {
        let mut now = vec![SourceNow::default(); self.sources.len()];
        for live in self.live.values() {
            now[live.source].open_files += 1;
            now[live.source].lag_bytes += live.unread();
        }
        if let Ok(mut shared) = self.now.lock() {
            // The others speak for themselves.
            let files = self.sources.iter().zip(shared.iter_mut()).zip(now);
            for ((_, shared), now) in files.filter(|((source, _), _)| source.kind == LogKind::Files) {
                *shared = now;
            }
        }
    }
}
