//! Follows all log files of all sources, on one thread, by polling (events of the file system are lost on network mounts,
//! overlays and symlinks; a look at a quiet file costs one system call).
//!
//! Each round: find out which files there are ([`discovery`](super::discovery)), tie them to the cursors we have, then read a
//! little from each that has something new. What was read goes to the pipeline as a [`Batch`]; when the pipeline is behind,
//! sending waits and the files are our buffer. Nothing here ends the thread but `stop`: errors are counted and tried again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flate2::read::MultiGzDecoder;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::clock;
use crate::config::{LogSource, StartAt};
use crate::event::{Batch, Input, TimeMs};
use crate::snapshot::{SourceNow, SourceTotals};
use crate::sources::cursor::{Cursor, FileId, Inode, Likeness, MARK_BYTES, Mark, compare};
use crate::sources::discovery::{Found, Listing, base_of, list};
use crate::sources::extractor::Extractor;
use crate::sources::live::{Live, Means, Progress};

/// New files are found within a second.
const DISCOVERY_INTERVAL: Duration = Duration::from_millis(400);
/// A tree so large that listing it takes long is listed less often, within reason.
const LONGEST_DISCOVERY_INTERVAL: Duration = Duration::from_secs(5);
const PAUSE_PER_LISTING: u32 = 10;
/// Blocks read from one file before the next one has its turn.
const BLOCKS_PER_TURN: usize = 16;
/// A sibling with a known head that is shorter than what we have read may be a copy that is still being written.
const COPY_SETTLES_AFTER: Duration = Duration::from_secs(5);
/// How long the position in a vanished file is kept, in case its text shows up again as a copy or a `.gz`.
const FORGET_AFTER_MS: TimeMs = 24 * 3600 * 1000;
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
    extractors: Vec<Extractor>,
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
    out: mpsc::Sender<Input>,
    now: Arc<Mutex<Vec<SourceNow>>>,
    buffer: Vec<u8>,
    /// A file was truncated: its copy must be looked for before anything else is read from it.
    discover_now: bool,
}

impl Tailer {
    pub fn new(
        sources: Vec<LogSource>,
        extractors: Vec<Extractor>,
        start: Start,
        out: mpsc::Sender<Input>,
        now: Arc<Mutex<Vec<SourceNow>>>,
    ) -> Self {
        let first_time = sources.iter().map(|source| !start.known_sources.contains(&source.path)).collect();
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
            buffer: Vec::new(),
            discover_now: false,
        }
    }

    /// Runs until `stop`, or until nobody takes the batches any more. Blocks its thread.
    pub fn run(mut self, stop: &CancellationToken) {
        let mut pause = self.discover(true);
        let _ = self.out.blocking_send(Input::LogsReady);
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

    /// Gives every file its turn. Of the files of one base, a later one is read only when the earlier ones are up to date.
    fn read_round(&mut self, stop: &CancellationToken) -> bool {
        let mut busy = false;
        let mut order = std::mem::take(&mut self.order);
        for ids in order.values() {
            if stop.is_cancelled() || self.out.is_closed() {
                break;
            }
            busy |= ids.iter().any(|id| self.read_file(*id) == Progress::More);
        }
        order.retain(|_, ids| {
            ids.retain(|id| self.live.contains_key(id));
            !ids.is_empty()
        });
        self.order = order;
        busy
    }

    fn read_file(&mut self, id: FileId) -> Progress {
        let Some(live) = self.live.get_mut(&id) else { return Progress::UpToDate };
        if live.truncated || Instant::now() < live.next_look() {
            return Progress::UpToDate;
        }
        let source = live.source;
        let means = Means {
            extractor: &self.extractors[source],
            max_line_bytes: self.sources[source].max_line_bytes,
            now: clock::now(),
        };
        let progress = live.read(&means, &mut self.buffer, BLOCKS_PER_TURN);
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
                cursors: vec![(id, Some(cursor.clone()))],
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
            Progress::UpToDate
        })
    }

    /// Looks which files there are and ties each to its cursor. Returns how long to wait before the next time.
    fn discover(&mut self, first_round: bool) -> Duration {
        self.discover_now = false;
        let started = Instant::now();
        let bases = self.cursors.values().filter_map(|cursor| self.base_of_cursor(cursor)).collect();
        let Listing { mut files, problems } = list(&self.sources, &bases);
        let pause = (started.elapsed() * PAUSE_PER_LISTING).clamp(DISCOVERY_INTERVAL, LONGEST_DISCOVERY_INTERVAL);
        for (source, path, error) in problems {
            self.problem(source, &path, &error);
        }
        if first_round {
            files.extend(self.find_moved(&files));
        }
        self.replace_truncated();
        let known: HashMap<Inode, FileId> = self
            .cursors
            .iter()
            .filter(|(_, cursor)| cursor.gone_since.is_none())
            .map(|(id, cursor)| (cursor.inode, *id))
            .collect();
        let mut unknown = Vec::new();
        let mut seen = BTreeSet::new();
        for found in files {
            match known.get(&found.inode) {
                Some(id) if self.meet(*id, &found) => {
                    seen.insert(*id);
                }
                _ => unknown.push(found),
            }
        }
        self.miss(&seen);
        for found in unknown {
            self.welcome(found, first_round);
        }
        for source in 0..self.sources.len() {
            if std::mem::take(&mut self.first_time[source]) {
                // Tells the pipeline that the source is known from now on, even if it has no file yet.
                self.count(source, SourceTotals::default());
            }
            let has_files = self.live.values().any(|live| live.source == source);
            let path = &self.sources[source].path;
            if !has_files && path != "-" && self.reported.insert(format!("no file: {path}")) {
                warn!(path = %path, "no log file matches yet, looking again every second");
            } else if has_files {
                self.reported.remove(&format!("no file: {path}"));
            }
        }
        pause
    }

    /// A file whose inode we know. False when it is not the text we knew.
    fn meet(&mut self, id: FileId, found: &Found) -> bool {
        let path = found.path.to_string_lossy().into_owned();
        if let Some(live) = self.live.get_mut(&id) {
            if live.path != found.path {
                info!(from = %live.path.display(), to = path, "log file was renamed");
                live.path = found.path.clone();
                live.cursor.path = path.clone();
            }
            if found.rotated && !live.rotated {
                live.set_rotated();
                let source = live.source;
                self.count(source, SourceTotals { rotations: 1, ..SourceTotals::default() });
            } else if !found.rotated {
                // Back under its own name: its last line may go on.
                live.rotated = false;
            }
            return true;
        }
        let state = (found.size, found.modified);
        let Some(cursor) = self.cursors.get(&id) else { return false };
        if self.settled.get(&found.inode) == Some(&state) && cursor.path == path {
            return true;
        }
        // Inodes are used again. Where nothing of the text was read, nothing tells whether it is the same one.
        let likeness = match cursor.head.is_empty() || cursor.gzip != found.is_gzip() {
            true => Ok(Likeness::Different),
            false => open_text(found).and_then(|mut text| compare(&mut text, cursor)),
        };
        match likeness {
            Ok(Likeness::Continues) => {
                // Another pattern may be the one that finds it now.
                let source = self.sources[found.source].path.clone();
                let mut cursor = Cursor { source, path, ..cursor.clone() };
                if found.rotated && cursor.path != self.cursors[&id].path {
                    self.count(found.source, SourceTotals { rotations: 1, ..SourceTotals::default() });
                }
                let grown = !cursor.gzip && found.size > cursor.offset;
                if cursor.finished && !grown {
                    self.settled.insert(found.inode, state);
                    self.set_cursor(found.source, id, cursor);
                } else {
                    cursor.finished = false;
                    self.follow(id, found, cursor);
                }
                true
            }
            Ok(Likeness::Shorter | Likeness::Different) => {
                self.lose(id, found.source);
                false
            }
            Err(error) => {
                self.problem(found.source, &path, &error);
                true
            }
        }
    }

    /// A file we have no cursor for: new, or an old text under a new inode.
    fn welcome(&mut self, found: Found, first_round: bool) {
        let state = (found.size, found.modified);
        // An empty sibling is a copy that is about to be written, or nothing at all.
        let is_pointless = found.rotated && found.size == 0 && !self.first_time[found.source];
        if is_pointless || self.settled.get(&found.inode) == Some(&state) {
            return;
        }
        let result =
            if self.first_time[found.source] { self.start_with(&found) } else { self.recognise(&found, first_round) };
        match result {
            Ok(Some(cursor)) => {
                let id = FileId(self.next_id);
                self.next_id += 1;
                if cursor.finished {
                    self.settled.insert(found.inode, state);
                    self.set_cursor(found.source, id, cursor);
                } else {
                    self.follow(id, &found, cursor);
                }
            }
            Ok(None) => {}
            Err(error) => self.problem(found.source, &found.path.display().to_string(), &error),
        }
    }

    /// The very first start: what was written before us is not ours, unless asked for.
    fn start_with(&self, found: &Found) -> io::Result<Option<Cursor>> {
        let source = &self.sources[found.source];
        let mut cursor = Cursor::at_beginning(&source.path, &found.path, found.inode, found.is_gzip());
        if source.start_at == StartAt::Beginning && !found.rotated && !cursor.gzip {
            return Ok(Some(cursor));
        }
        cursor.finished = found.rotated || cursor.gzip;
        move_to_end(&mut cursor, found)?;
        Ok(Some(cursor))
    }

    /// Whether an unknown file holds a text that we have read under another inode: a copy made by copytruncate, a `.gz`,
    /// or (right after a start) the same file on a device that got another number. Otherwise it is new, from its beginning.
    /// None: too early to tell.
    fn recognise(&mut self, found: &Found, first_round: bool) -> io::Result<Option<Cursor>> {
        let mut continued: Option<(FileId, Cursor)> = None;
        let mut is_beginning_of_known = false;
        if found.rotated && self.is_being_copied(found)? {
            return Ok(None);
        }
        for (id, cursor) in self.originals_of(found, first_round) {
            match compare(&mut open_text(found)?, &cursor)? {
                // The original is open: it is read to its end there, and after that this is looked at again.
                Likeness::Continues if self.live.contains_key(&id) => return Ok(None),
                Likeness::Continues if continued.as_ref().is_none_or(|(_, best)| best.offset < cursor.offset) => {
                    continued = Some((id, cursor));
                }
                Likeness::Shorter if found.rotated || first_round => is_beginning_of_known = true,
                Likeness::Continues | Likeness::Shorter | Likeness::Different => {}
            }
        }
        let source = self.sources[found.source].path.clone();
        let mut cursor = Cursor::at_beginning(&source, &found.path, found.inode, found.is_gzip());
        if let Some((old, known)) = continued {
            info!(path = %found.path.display(), offset = known.offset, "goes on in a copy of a file that was read before");
            let Cursor { offset, head, skipping, .. } = known;
            let tail = if cursor.gzip { Mark::default() } else { known.tail };
            self.forget(old, found.source);
            return Ok(Some(Cursor { offset, head, tail, skipping, ..cursor }));
        }
        if is_beginning_of_known {
            if found.modified.elapsed().unwrap_or_default() < COPY_SETTLES_AFTER {
                return Ok(None);
            }
            info!(path = %found.path.display(), "a copy of a text that was read already");
            cursor.finished = true;
            move_to_end(&mut cursor, found)?;
        } else if cursor.gzip {
            cursor.head = head_of(found)?;
        }
        Ok(Some(cursor))
    }

    /// Positions in texts that an unknown file may be a copy of.
    fn originals_of(&self, found: &Found, first_round: bool) -> Vec<(FileId, Cursor)> {
        let mut originals = Vec::new();
        for (id, cursor) in &self.cursors {
            let same_base = self.base_of_cursor(cursor).is_some_and(|(base, _)| base == found.base);
            let plausible = match self.live.get(id) {
                // Of the open files only that which is written to, or one that gzip has just removed.
                Some(live) => found.rotated && (!live.rotated || live.is_deleted()),
                // A file that stands under the base name is new, unless the old one vanished while nobody looked or is back
                // from where it was (a directory moved away, a mount that was gone for a while).
                None => cursor.gone_since.is_some() && (found.rotated || first_round || cursor.inode == found.inode),
            };
            if same_base && plausible {
                originals.push((*id, self.live.get(id).map_or(cursor, |live| &live.cursor).clone()));
            }
        }
        originals.retain(|(_, cursor)| cursor.offset > 0);
        originals
    }

    /// Whether a sibling may be a copy of a text that is there too and of which nothing was read yet: marks cannot tell.
    fn is_being_copied(&self, found: &Found) -> io::Result<bool> {
        let unread = |live: &&Live| live.base == found.base && live.cursor.offset == 0 && !live.is_empty();
        let mut open = self.live.values().filter(|live| !live.rotated || live.is_deleted());
        if open.any(|live| unread(&live)) {
            return Ok(true);
        }
        let is_known = self.live.values().any(|live| live.path == found.base);
        Ok(!is_known && !found.is_gzip() && begins_with(&found.base, &found.path)?)
    }

    /// Files whose name rotation did not make, found by their inode: where a file went while nobody looked.
    fn find_moved(&self, files: &[Found]) -> Vec<Found> {
        let listed: BTreeSet<Inode> = files.iter().map(|found| found.inode).collect();
        let mut moved = Vec::new();
        for cursor in self.cursors.values().filter(|cursor| !cursor.finished && cursor.gone_since.is_none()) {
            let Some((base, source)) = self.base_of_cursor(cursor) else { continue };
            let Some(Ok(entries)) = base.parent().map(fs::read_dir) else { continue };
            for path in entries.flatten().map(|entry| entry.path()) {
                let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
                let inode = Inode { device: metadata.dev(), number: metadata.ino() };
                if inode == cursor.inode && !listed.contains(&inode) {
                    let modified = metadata.modified().unwrap_or(UNIX_EPOCH);
                    let base = base.clone();
                    moved.push(Found { source, path, base, inode, size: metadata.len(), modified, rotated: true });
                    break;
                }
            }
        }
        moved
    }

    /// A truncated file starts anew; the position in its old text is kept, for a copy of it may be found.
    fn replace_truncated(&mut self) {
        let truncated: Vec<FileId> = self.live.values().filter(|live| live.truncated).map(|live| live.id).collect();
        for id in truncated {
            let Some(live) = self.live.remove(&id) else { continue };
            info!(path = %live.path.display(), offset = live.cursor.offset, "log file was truncated, reading it from its beginning");
            self.lose(id, live.source);
            self.count(live.source, SourceTotals { truncations: 1, ..SourceTotals::default() });
            let new = FileId(self.next_id);
            self.next_id += 1;
            let cursor = Cursor::at_beginning(&live.cursor.source, &live.path, live.cursor.inode, false);
            let (source, base, path, rotated) = (live.source, live.base, live.path, live.rotated);
            self.open(new, source, base, path, rotated, cursor);
        }
    }

    /// Marks what was not found any more.
    fn miss(&mut self, seen: &BTreeSet<FileId>) {
        let mut rotated = Vec::new();
        for live in self.live.values_mut().filter(|live| !seen.contains(&live.id) && !live.rotated) {
            info!(path = %live.path.display(), deleted = live.is_deleted(), "log file is gone from its place, reading it to its end");
            live.set_rotated();
            rotated.push(live.source);
        }
        for source in rotated {
            self.count(source, SourceTotals { rotations: 1, ..SourceTotals::default() });
        }
        let gone: Vec<FileId> = self
            .cursors
            .iter()
            .filter(|(id, cursor)| cursor.gone_since.is_none() && !seen.contains(id) && !self.live.contains_key(id))
            .map(|(id, _)| *id)
            .collect();
        for id in gone {
            let cursor = &self.cursors[&id];
            let source = self.source_of(cursor);
            if let (Some(_), false) = (source, cursor.finished) {
                warn!(
                    path = cursor.path,
                    offset = cursor.offset,
                    "a log file vanished while it was not followed; its rest is read if a copy or .gz of it turns up"
                );
            }
            self.lose(id, source.unwrap_or_default());
        }
        self.prune();
    }

    fn prune(&mut self) {
        let now = clock::now();
        let mut gone: Vec<(TimeMs, FileId)> =
            self.cursors.iter().filter_map(|(id, cursor)| Some((cursor.gone_since?, *id))).collect();
        gone.sort_unstable();
        let excess = self.cursors.len().saturating_sub(MAX_CURSORS);
        for (index, (since, id)) in gone.into_iter().enumerate() {
            if index < excess || now - since > FORGET_AFTER_MS {
                let source = self.source_of(&self.cursors[&id]).unwrap_or_default();
                self.forget(id, source);
            }
        }
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

    /// The text of this cursor is not where it was.
    fn lose(&mut self, id: FileId, source: usize) {
        let Some(cursor) = self.cursors.get(&id) else { return };
        self.settled.remove(&cursor.inode);
        let cursor = Cursor { gone_since: Some(clock::now()), ..cursor.clone() };
        self.set_cursor(source, id, cursor);
    }

    fn forget(&mut self, id: FileId, source: usize) {
        self.cursors.remove(&id);
        let cursors = vec![(id, None)];
        self.send(Batch { source, events: Vec::new(), cursors, seen: SourceTotals::default() });
    }

    fn set_cursor(&mut self, source: usize, id: FileId, cursor: Cursor) {
        if self.cursors.get(&id) == Some(&cursor) {
            return;
        }
        self.cursors.insert(id, cursor.clone());
        let cursors = vec![(id, Some(cursor))];
        self.send(Batch { source, events: Vec::new(), cursors, seen: SourceTotals::default() });
    }

    fn count(&self, source: usize, seen: SourceTotals) {
        self.send(Batch { source, events: Vec::new(), cursors: Vec::new(), seen });
    }

    /// Waits while the pipeline is behind. If it is gone, `run` ends at the next look.
    fn send(&self, batch: Batch) {
        let _ = self.out.blocking_send(Input::Logs(batch));
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

    fn settle(&mut self, inode: Inode, path: &str) {
        if let Ok(metadata) = fs::metadata(path) {
            self.settled.insert(inode, (metadata.len(), metadata.modified().unwrap_or(UNIX_EPOCH)));
        }
    }

    fn source_of(&self, cursor: &Cursor) -> Option<usize> {
        self.sources.iter().position(|source| source.path == cursor.source)
    }

    fn base_of_cursor(&self, cursor: &Cursor) -> Option<(PathBuf, usize)> {
        let path = Path::new(&cursor.path);
        Some((base_of(path).unwrap_or_else(|| path.to_owned()), self.source_of(cursor)?))
    }

    fn publish_now(&self) {
        let mut now = vec![SourceNow::default(); self.sources.len()];
        for live in self.live.values() {
            now[live.source].open_files += 1;
            now[live.source].lag_bytes += live.unread();
        }
        if let Ok(mut shared) = self.now.lock() {
            *shared = now;
        }
    }
}

/// Whether the text of `long` begins with the whole text of `short`. No, where there is no `long`.
fn begins_with(long: &Path, short: &Path) -> io::Result<bool> {
    let Ok(long) = File::open(long) else { return Ok(false) };
    let mut long = BufReader::new(long);
    let mut short = BufReader::new(File::open(short)?);
    loop {
        let expected = short.fill_buf()?;
        let actual = long.fill_buf()?;
        let length = expected.len().min(actual.len());
        if expected[..length] != actual[..length] || (actual.is_empty() && !expected.is_empty()) {
            return Ok(false);
        }
        if expected.is_empty() {
            return Ok(true);
        }
        short.consume(length);
        long.consume(length);
    }
}

/// The text of a file from its beginning, uncompressed.
fn open_text(found: &Found) -> io::Result<Box<dyn Read>> {
    let file = File::open(&found.path)?;
    Ok(match found.is_gzip() {
        true => Box::new(MultiGzDecoder::new(file)),
        false => Box::new(file),
    })
}

fn head_of(found: &Found) -> io::Result<Mark> {
    let mut head = Vec::new();
    open_text(found)?.take(MARK_BYTES as u64).read_to_end(&mut head)?;
    Ok(Mark::of(&head))
}

/// Takes everything in the file as read. How long the text of a `.gz` is, nobody needs to know.
fn move_to_end(cursor: &mut Cursor, found: &Found) -> io::Result<()> {
    if cursor.gzip {
        cursor.head = head_of(found)?;
        return Ok(());
    }
    let mut file = File::open(&found.path)?;
    let size = file.metadata()?.len();
    let mut head = Vec::new();
    file.by_ref().take(size.min(MARK_BYTES as u64)).read_to_end(&mut head)?;
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(size.saturating_sub(MARK_BYTES as u64)))?;
    file.take(size.min(MARK_BYTES as u64)).read_to_end(&mut tail)?;
    cursor.offset = size;
    cursor.head = Mark::of(&head);
    // The rest of a line that is being written now began before us.
    cursor.skipping = tail.last().is_some_and(|byte| *byte != b'\n');
    cursor.tail = Mark::of(&tail);
    Ok(())
}
