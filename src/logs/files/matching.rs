//! Matches the files that exist with the saved positions. The tailer calls `Tailer::discover` every
//! 0.4 to 5 seconds.
//!
//! `meet` handles a file whose inode is known: it checks that the text is still the same. `welcome`
//! handles an unknown file. The file is new, or it contains a text that was read under another
//! inode (a copy or a `.gz`), and then reading continues in it. `miss` handles files that were
//! deleted or moved. Their positions are kept for a day, because the text may appear again. Errors
//! are counted and tried again at the next discovery.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};

use tracing::{info, warn};

use super::discovery::{Found, Listing, base_of, list};
use super::followed_file::FollowedFile;
use super::text::{begins_with, head_of, move_to_end, open_text};
use super::{MAX_CURSORS, Tailer};
use crate::config::{LogKind, LogSource, StartAt};
use crate::logs::files::likeness::{Likeness, compare};
use crate::model::input::{Batch, SourcePosition};
use crate::model::position::{Cursor, FileId, Inode, Mark, SourceTotals};
use crate::util::clock;
use crate::util::clock::TimeMs;

/// Short enough to find new files within a second.
const DISCOVERY_INTERVAL: Duration = Duration::from_millis(400);
/// If listing takes long, the pause is `PAUSE_PER_LISTING` times the duration of the listing, but
/// not longer than this.
const LONGEST_DISCOVERY_INTERVAL: Duration = Duration::from_secs(5);
const PAUSE_PER_LISTING: u32 = 10;
/// A sibling with a known head that is shorter than the text already read may be a copy that is
/// still being written. It is a complete copy if it has not changed for this long.
const COPY_SETTLES_AFTER: Duration = Duration::from_secs(5);
/// How long the position of a missing file is kept, in case its text appears again as a copy or a
/// `.gz`.
const FORGET_AFTER_MS: TimeMs = 24 * 3600 * 1000;

impl Tailer {
    /// Lists the files and matches each with its cursor. Returns the pause before the next
    /// discovery.
    pub(super) fn discover(&mut self, first_round: bool) -> Duration {
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
                // The empty batch registers the source with the pipeline as known, even if it has
                // no file yet.
                self.count(source, SourceTotals::default());
            }
            let has_files = self.live.values().any(|live| live.source == source);
            let LogSource { name: path, kind, .. } = &self.sources[source];
            if !has_files && *kind == LogKind::Files && self.reported.insert(format!("no file: {path}")) {
                warn!(path = %path, "no log file matches yet, searching again every second");
            } else if has_files {
                self.reported.remove(&format!("no file: {path}"));
            }
        }
        pause
    }

    /// Handles a file whose inode is known. Returns false if its text is not the known one.
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
                // The file has its original name again, so its last line may continue.
                live.rotated = false;
            }
            return true;
        }
        let state = (found.size, found.modified);
        let Some(cursor) = self.cursors.get(&id) else { return false };
        if self.settled.get(&found.inode) == Some(&state) && cursor.path == path {
            return true;
        }
        // Inodes are reused. If nothing of the text was read, it cannot be recognized.
        let likeness = if cursor.head.is_empty() { Ok(Likeness::Different) } else { likeness(found, cursor) };
        match likeness {
            Ok(Likeness::Continues) => {
                // A file that was already rotated may be renamed again, which is not another
                // rotation.
                let is_news = found.rotated && Path::new(&cursor.path) == found.base;
                // Another source's pattern may match the file now.
                let source = self.sources[found.source].name.clone();
                let mut cursor = Cursor { source, path, ..cursor.clone() };
                if is_news {
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

    /// Handles a file without a cursor: a new file, or a known text under a new inode.
    fn welcome(&mut self, found: Found, first_round: bool) {
        let state = (found.size, found.modified);
        // An empty sibling is a copy that is about to be written, or stays empty.
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

    /// Creates the cursor of a file whose source was never followed before. The existing text is
    /// skipped, unless `start_at` is `beginning`. Rotated files and `.gz` files are always skipped.
    fn start_with(&self, found: &Found) -> io::Result<Option<Cursor>> {
        let source = &self.sources[found.source];
        let mut cursor = Cursor::at_beginning(&source.name, &found.path, found.inode, found.is_gzip());
        if source.start_at == StartAt::Beginning && !found.rotated && !cursor.gzip {
            return Ok(Some(cursor));
        }
        cursor.finished = found.rotated || cursor.gzip;
        move_to_end(&mut cursor, found)?;
        Ok(Some(cursor))
    }

    /// Creates the cursor of an unknown file. If the file contains a text that was read under
    /// another inode, reading continues after that text: in a copy made by copytruncate, in a
    /// `.gz`, or (right after a start) in the same file on a device whose number changed. Otherwise
    /// the file is new and is read from its beginning. Returns `None` if it is too early to decide.
    fn recognise(&mut self, found: &Found, first_round: bool) -> io::Result<Option<Cursor>> {
        let mut continued: Option<(FileId, Cursor)> = None;
        let mut is_beginning_of_known = false;
        if found.rotated && self.is_being_copied(found)? {
            return Ok(None);
        }
        for (id, cursor) in self.originals_of(found, first_round) {
            match compare(&mut open_text(found)?, &cursor)? {
                // The original is open and is read to its end. After that, this file is examined
                // again.
                Likeness::Continues if self.live.contains_key(&id) => return Ok(None),
                Likeness::Continues if continued.as_ref().is_none_or(|(_, best)| best.offset < cursor.offset) => {
                    continued = Some((id, cursor));
                }
                Likeness::Shorter if found.rotated => is_beginning_of_known = true,
                Likeness::Continues | Likeness::Shorter | Likeness::Different => {}
            }
        }
        let source = self.sources[found.source].name.clone();
        let mut cursor = Cursor::at_beginning(&source, &found.path, found.inode, found.is_gzip());
        if let Some((old, known)) = continued {
            info!(path = %found.path.display(), offset = known.offset, "continues in a copy of a file that was read \
                 before");
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

    /// Cursors of texts that an unknown file may be a copy of.
    fn originals_of(&self, found: &Found, first_round: bool) -> Vec<(FileId, Cursor)> {
        let mut originals = Vec::new();
        for (id, cursor) in &self.cursors {
            let same_base = self.base_of_cursor(cursor).is_some_and(|(base, _)| base == found.base);
            let plausible = match self.live.get(id) {
                // An open file is a candidate only if a program still writes to it, or if it was
                // deleted, as gzip deletes the file that it compressed.
                Some(live) => found.rotated && (!live.rotated || live.is_deleted()),
                // A file with the base name is new, except in two cases: the old file disappeared
                // while the exporter was down, or the same inode is back (a directory was moved
                // away, or a mount was unavailable for a while).
                None => cursor.gone_since.is_some() && (found.rotated || first_round || cursor.inode == found.inode),
            };
            if same_base && plausible {
                originals.push((*id, self.live.get(id).map_or(cursor, |live| &live.cursor).clone()));
            }
        }
        originals.retain(|(_, cursor)| cursor.offset > 0);
        originals
    }

    /// Whether a sibling may be a copy of an existing file of which nothing was read yet. The marks
    /// of such a file are empty, so they cannot decide this.
    fn is_being_copied(&self, found: &Found) -> io::Result<bool> {
        let unread = |live: &&FollowedFile| live.base == found.base && live.cursor.offset == 0 && !live.is_empty();
        let mut open = self.live.values().filter(|live| !live.rotated || live.is_deleted());
        if open.any(|live| unread(&live)) {
            return Ok(true);
        }
        let is_known = self.live.values().any(|live| live.path == found.base);
        Ok(!is_known && !found.is_gzip() && begins_with(&found.base, &found.path)?)
    }

    /// Finds, by inode, unfinished files that were renamed while the exporter was down to a name
    /// that the listing does not include. Only the same directory is searched. The kernel reuses the
    /// inode numbers of deleted files, so the text has to be the one that was read, too.
    fn find_moved(&self, files: &[Found]) -> Vec<Found> {
        let listed: BTreeSet<Inode> = files.iter().map(|found| found.inode).collect();
        let mut moved = Vec::new();
        for cursor in self.cursors.values().filter(|cursor| !cursor.finished && cursor.gone_since.is_none()) {
            let Some((base, source)) = self.base_of_cursor(cursor) else { continue };
            let Some(Ok(entries)) = base.parent().map(fs::read_dir) else { continue };
            for path in entries.flatten().map(|entry| entry.path()) {
                let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
                let inode = Inode { device: metadata.dev(), number: metadata.ino() };
                if inode != cursor.inode || listed.contains(&inode) {
                    continue;
                }
                // A name that rotation makes is new since the files were listed. The next listing
                // finds it and knows which log it belongs to.
                if base_of(&path).is_some() {
                    break;
                }
                let modified = metadata.modified().unwrap_or(UNIX_EPOCH);
                let base = base.clone();
                let found = Found { source, path, base, inode, size: metadata.len(), modified, rotated: true };
                if is_same_file(&found, cursor) {
                    moved.push(found);
                }
                break;
            }
        }
        moved
    }

    /// Gives each truncated file a new cursor at its beginning. The cursor of the old text is kept,
    /// because a copy of that text may be found.
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

    /// Marks open files that were not found as rotated, and cursors without a file as gone.
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

    /// Deletes cursors that have been gone too long, and the oldest gone cursors beyond
    /// `MAX_CURSORS`.
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

    /// Marks a cursor as gone: its text is no longer in its file.
    fn lose(&mut self, id: FileId, source: usize) {
        let Some(cursor) = self.cursors.get(&id) else { return };
        self.settled.remove(&cursor.inode);
        let cursor = Cursor { gone_since: Some(clock::now()), ..cursor.clone() };
        self.set_cursor(source, id, cursor);
    }

    /// Deletes a cursor, also from the saved state.
    fn forget(&mut self, id: FileId, source: usize) {
        self.cursors.remove(&id);
        let reached = SourcePosition::Files(vec![(id, None)]);
        self.send(Batch { source, events: Vec::new(), reached, seen: SourceTotals::default() });
    }

    /// Remembers the current size and modification time of a file, so that it is not opened again
    /// until it changes.
    pub(super) fn settle(&mut self, inode: Inode, path: &str) {
        if let Ok(metadata) = fs::metadata(path) {
            self.settled.insert(inode, (metadata.len(), metadata.modified().unwrap_or(UNIX_EPOCH)));
        }
    }

    fn source_of(&self, cursor: &Cursor) -> Option<usize> {
        self.sources.iter().position(|source| source.name == cursor.source)
    }

    fn base_of_cursor(&self, cursor: &Cursor) -> Option<(PathBuf, usize)> {
        let path = Path::new(&cursor.path);
        Some((base_of(path).unwrap_or_else(|| path.to_owned()), self.source_of(cursor)?))
    }
}

/// Whether a file is the one that the cursor describes, under another name: it contains the text
/// that was read. If nothing was read, its name must begin like that of the log.
fn is_same_file(found: &Found, cursor: &Cursor) -> bool {
    if cursor.head.is_empty() {
        let stem = found.base.file_stem().unwrap_or_default().as_encoded_bytes();
        return found.path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(stem));
    }
    matches!(likeness(found, cursor), Ok(Likeness::Continues))
}

/// Compares the text of a file with the text that the cursor describes.
fn likeness(found: &Found, cursor: &Cursor) -> io::Result<Likeness> {
    if cursor.gzip != found.is_gzip() {
        return Ok(Likeness::Different);
    }
    compare(&mut open_text(found)?, cursor)
}
