//! Follows all log files of all sources on one thread, by polling. (File system events get lost on
//! network mounts, overlays and symlinks. Polling an unchanged file costs one system call.)
//!
//! `daemon::run` calls [`Tailer::run`]. Each round lists the files, matches them with saved
//! positions, and reads a few blocks from each file that has new text. Batches go to the pipeline.
//! When the pipeline is behind, sending waits, and unread text stays in the files. Errors are
//! counted and retried; only `stop` or a closed pipeline ends the thread. In reading order:
//!
//! * this file: the rounds
//! * `discovery`: lists the files
//! * `matching`: matches files with saved positions
//! * `likeness`: checks whether a file contains the text that a position describes
//! * `text`: reads a file from its beginning, through gzip if needed
//! * `followed_file`: reads one open file
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
use crate::model::input::{Batch, PipelineInput, SourcePosition};
use crate::model::position::{Cursor, FileId, Inode, SourceTotals};
use crate::snapshot::SourceNow;
use crate::util::clock;
use discovery::Found;
use followed_file::{FollowedFile, ReadBuffer, ReadProgress, ReadSettings};

/// Maximum number of saved positions. Beyond it, positions of files that disappeared are dropped,
/// oldest first. Also limits `Tailer::reported`.
const MAX_CURSORS: usize = 20_000;

/// The saved state that the tailer starts from.
#[derive(Clone, Debug, Default)]
pub struct Start {
    pub cursors: BTreeMap<FileId, Cursor>,
    pub next_id: u64,
    /// Sources that were followed before. For any other source, `start_at` determines where its
    /// files start.
    pub known_sources: BTreeSet<String>,
}

pub struct Tailer {
    sources: Vec<LogSource>,
    extractors: Vec<Arc<Extractor>>,
    cursors: BTreeMap<FileId, Cursor>,
    next_id: u64,
    live: BTreeMap<FileId, FollowedFile>,
    /// IDs of the open files of each base, in reading order.
    order: BTreeMap<PathBuf, Vec<FileId>>,
    /// For each source, whether its files have never been listed before.
    first_time: Vec<bool>,
    /// Size and modification time of files that were examined and need no reading, so that they are
    /// not opened again at every discovery.
    settled: HashMap<Inode, (u64, SystemTime)>,
    /// Problems that were already logged. Each is logged once until it goes away.
    reported: BTreeSet<String>,
    out: mpsc::Sender<PipelineInput>,
    now: Arc<Mutex<Vec<SourceNow>>>,
    desk: ReadBuffer,
    /// A file was truncated. Discovery must search for a copy of its old text before anything else
    /// is read from it.
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
            desk: ReadBuffer::default(),
            discover_now: false,
        }
    }

    /// Runs until `stop` or until the pipeline is closed. Blocks its thread.
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
                let next_look = self.live.values().map(FollowedFile::next_look).min().unwrap_or(next_discovery);
                let wait = next_look.min(next_discovery).saturating_duration_since(Instant::now());
                // Short enough to stop promptly. Waiting on the token would require the async
                // runtime.
                std::thread::sleep(wait.clamp(Duration::from_millis(1), Duration::from_millis(50)));
            }
        }
    }

    /// Reads from every file that is due, and returns whether any has more to read. Files of one
    /// base are read in order, starting with the first, due or not. A later file is read only if
    /// all earlier ones are up to date and have no incomplete line or record.
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
                if has_more || self.live.get(id).is_some_and(FollowedFile::is_waiting) {
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
        let means = ReadSettings {
            extractor: &self.extractors[source],
            max_line_bytes: self.sources[source].max_line_bytes,
            now: clock::now(),
        };
        let progress = live.read(&means, &mut self.desk);
        if live.truncated {
            // Events found before the truncation are still valid. The next piece of a split line
            // will not arrive.
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
                reached: SourcePosition::Files(vec![(id, Some(cursor.clone()))]),
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
                // The `.gz` is damaged or incomplete. It is read again after it changes.
                self.live.remove(&id);
                self.settle(cursor.inode, &path);
            } else if let Some(live) = self.live.get_mut(&id) {
                live.back_off();
            }
            ReadProgress::UpToDate
        })
    }

    /// Saves the cursor and opens the file.
    fn follow(&mut self, id: FileId, found: &Found, cursor: Cursor) {
        self.settled.remove(&found.inode);
        self.set_cursor(found.source, id, cursor.clone());
        self.open(id, found.source, found.base.clone(), found.path.clone(), found.rotated, cursor);
    }

    /// Opens a file and adds it to the files that are read in each round.
    fn open(&mut self, id: FileId, source: usize, base: PathBuf, path: PathBuf, rotated: bool, cursor: Cursor) {
        let max_line_bytes = self.sources[source].max_line_bytes;
        match FollowedFile::open(id, source, base.clone(), path.clone(), cursor.clone(), max_line_bytes) {
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

    /// Sends a changed cursor to the pipeline to be saved.
    fn set_cursor(&mut self, source: usize, id: FileId, cursor: Cursor) {
        if self.cursors.get(&id) == Some(&cursor) {
            return;
        }
        self.cursors.insert(id, cursor.clone());
        let reached = SourcePosition::Files(vec![(id, Some(cursor))]);
        self.send(Batch { source, events: Vec::new(), reached, seen: SourceTotals::default() });
    }

    fn count(&self, source: usize, seen: SourceTotals) {
        self.send(Batch { source, events: Vec::new(), reached: SourcePosition::Nothing, seen });
    }

    /// Waits while the pipeline is behind. If the pipeline is closed, `run` ends at its next check.
    fn send(&self, batch: Batch) {
        let _ = self.out.blocking_send(PipelineInput::Logs(batch));
    }

    /// Counts a read error and logs it the first time. A missing file is not an error.
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
            // Other kinds of sources publish their own state.
            let files = self.sources.iter().zip(shared.iter_mut()).zip(now);
            for ((_, shared), now) in files.filter(|((source, _), _)| source.kind == LogKind::Files) {
                *shared = now;
            }
        }
    }
}
