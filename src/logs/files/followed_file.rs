//! Reads one open log file block by block, turns complete lines into events, and detects when the
//! text before its position was replaced. Called by the tailer only.
//!
//! The file stays open while it is followed, so that a rotated or deleted file can be read to its
//! end. Read errors are returned to the tailer, which counts them and tries again.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use flate2::read::MultiGzDecoder;

use crate::logs::blocks::{BLOCK_BYTES, Blocks, Cut, block_bytes, count_lines, cut, read_at};
use crate::logs::extract::{Extractor, LineAssembler};
use crate::logs::files::prefetch::{PART_BYTES, Prefetcher};
use crate::model::log_event::LogEvent;
use crate::model::position::{Cursor, FileId, Inode, Mark, SourceTotals};
use crate::util::clock::TimeMs;

/// Number of blocks read from one file before the next file gets its turn. It is twice the number
/// of blocks in one part plus one, so that the reader reaches the start of the scout's part in one
/// turn even if the blocks are only half full.
const BLOCKS_PER_TURN: usize = 1 + PART_BYTES as usize / BLOCK_BYTES * 2;
/// A rotated or deleted file that has not changed for this long is finished. A last line without a
/// newline is then searched as it is.
const FINISHED_AFTER: Duration = Duration::from_secs(2);
/// The delay before a file that does not grow is checked again. It starts from this value and
/// doubles with each check, including the first, up to `LONGEST_WAIT`.
const FIRST_WAIT: Duration = Duration::from_millis(20);
const LONGEST_WAIT: Duration = Duration::from_millis(250);
/// If lines have no timestamp, their distance from the end of the file stands for their age: 64 KiB
/// count as about 2 s. This only decides which lines belong to one failure.
const ASSUMED_BYTES_PER_MS: u64 = 32;

pub(super) struct FollowedFile {
    pub(super) id: FileId,
    pub(super) source: usize,
    pub(super) base: PathBuf,
    pub(super) path: PathBuf,
    pub(super) cursor: Cursor,
    /// The file was rotated, moved away or deleted. No program starts a new line in it.
    pub(super) rotated: bool,
    /// The text before the position was replaced. The tailer gives the file a new cursor.
    pub(super) truncated: bool,
    text: Text,
    joiner: LineAssembler,
    /// Events and totals that were not sent yet, because a line or record is incomplete.
    report: FileReport,
    /// Size and modification time at the last check that left at most an unfinished line unread.
    caught_up: Option<(u64, SystemTime)>,
    /// Time of the last check that found nothing new to read. Later lines are newer than this.
    caught_up_at: Option<TimeMs>,
    /// Bytes that were not read yet. For a `.gz`, an estimate from its compressed size.
    unread: u64,
    /// Start of the quiet period: the last time text was found, or when the file was marked as
    /// rotated.
    changed: Instant,
    /// When to check the file next.
    next_look: Instant,
    wait: Duration,
}

enum Text {
    Plain(Arc<File>),
    Gzip(Box<Blocks<MultiGzDecoder<File>>>),
}

/// Events and totals of a file since the last report.
#[derive(Default)]
pub(super) struct FileReport {
    pub(super) events: Vec<(TimeMs, LogEvent)>,
    pub(super) seen: SourceTotals,
    /// The position changed, or incomplete lines were flushed.
    moved: bool,
}

/// Whether the file has more to read right now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadProgress {
    More,
    UpToDate,
}

/// The read buffer and the scout, which all files share.
#[derive(Default)]
pub(super) struct ReadBuffer {
    buffer: Vec<u8>,
    scout: Prefetcher,
}

/// What a read needs from the tailer. Each source has its own.
pub(super) struct ReadSettings<'a> {
    pub(super) extractor: &'a Arc<Extractor>,
    pub(super) max_line_bytes: usize,
    pub(super) now: TimeMs,
}

impl FollowedFile {
    pub(super) fn open(
        id: FileId,
        source: usize,
        base: PathBuf,
        path: PathBuf,
        cursor: Cursor,
        max_line_bytes: usize,
    ) -> io::Result<Self> {
        let file = File::open(&path)?;
        let metadata = file.metadata()?;
        let inode = Inode { device: metadata.dev(), number: metadata.ino() };
        if inode != cursor.inode {
            // The file was rotated after the listing. The next listing finds it under its new name.
            return Err(io::ErrorKind::NotFound.into());
        }
        let unread = metadata.len().saturating_sub(cursor.offset);
        let text = match cursor.gzip {
            false => Text::Plain(Arc::new(file)),
            true => {
                let mut decoder = MultiGzDecoder::new(file);
                io::copy(&mut decoder.by_ref().take(cursor.offset), &mut io::sink())?;
                Text::Gzip(Box::new(Blocks::new(decoder, max_line_bytes)))
            }
        };
        let now = Instant::now();
        Ok(Self {
            id,
            source,
            base,
            path,
            cursor,
            rotated: false,
            truncated: false,
            text,
            joiner: LineAssembler::default(),
            report: FileReport::default(),
            caught_up: None,
            caught_up_at: None,
            unread,
            changed: now,
            next_look: now,
            wait: FIRST_WAIT,
        })
    }

    pub(super) fn unread(&self) -> u64 {
        self.unread
    }

    pub(super) fn next_look(&self) -> Instant {
        self.next_look
    }

    pub(super) fn is_empty(&self) -> bool {
        match &self.text {
            Text::Plain(file) => file.metadata().is_ok_and(|metadata| metadata.len() == 0),
            Text::Gzip(_) => false,
        }
    }

    /// Marks the file as rotated. The program may still have it open, so the quiet period starts
    /// now.
    pub(super) fn set_rotated(&mut self) {
        self.rotated = true;
        self.changed = Instant::now();
    }

    pub(super) fn is_deleted(&self) -> bool {
        match &self.text {
            Text::Plain(file) => file.metadata().is_ok_and(|metadata| metadata.nlink() == 0),
            // A `.gz` is not followed. It is read once from beginning to end.
            Text::Gzip(_) => false,
        }
    }

    /// Reads a few blocks. The tailer lends `desk`, which all files share.
    pub(super) fn read(&mut self, means: &ReadSettings<'_>, desk: &mut ReadBuffer) -> io::Result<ReadProgress> {
        let scouted = self.send_scout(means, &mut desk.scout);
        let mut progress = ReadProgress::UpToDate;
        for _ in 0..BLOCKS_PER_TURN {
            progress = match self.text {
                Text::Plain(_) => self.read_plain(means, &mut desk.buffer, scouted)?,
                Text::Gzip(_) => self.read_gzip(means)?,
            };
            let is_at_scouted = scouted.is_some_and(|start| self.cursor.offset >= start);
            if progress == ReadProgress::UpToDate || is_at_scouted {
                break;
            }
        }
        if scouted.is_some() {
            self.take_finding(means, &mut desk.scout);
        }
        if self.joiner.is_overdue() {
            self.flush_joiner(means);
        }
        self.wait = match progress {
            ReadProgress::More => FIRST_WAIT,
            ReadProgress::UpToDate => (self.wait * 2).min(LONGEST_WAIT),
        };
        self.next_look = match progress {
            ReadProgress::More => Instant::now(),
            ReadProgress::UpToDate => Instant::now() + self.wait,
        };
        Ok(progress)
    }

    /// Delays the next check by the longest wait, after a failed read.
    pub(super) fn back_off(&mut self) {
        self.next_look = Instant::now() + LONGEST_WAIT;
    }

    /// Returns the report if it may be sent. It is held back while a line or record is incomplete,
    /// because the saved position would be inside it.
    pub(super) fn take_report(&mut self) -> Option<FileReport> {
        let ready = self.report.moved && !self.joiner.is_waiting();
        ready.then(|| std::mem::take(&mut self.report))
    }

    /// Whether a line or record is incomplete.
    pub(super) fn is_waiting(&self) -> bool {
        self.joiner.is_waiting()
    }

    /// Flushes incomplete lines and records.
    pub(super) fn flush_joiner(&mut self, means: &ReadSettings<'_>) {
        let mut events = Vec::new();
        means.extractor.flush(&mut self.joiner, &mut events);
        self.keep(events, means);
        self.report.moved = true;
    }

    /// Starts the scout if the backlog is long, so that two threads search it. Returns the offset
    /// at which the scout starts.
    fn send_scout(&mut self, means: &ReadSettings<'_>, scout: &mut Prefetcher) -> Option<u64> {
        let Text::Plain(file) = &self.text else { return None };
        let is_between_lines = !self.cursor.skipping && !self.joiner.is_waiting();
        let is_long = self.unread > 2 * PART_BYTES && means.max_line_bytes >= BLOCK_BYTES;
        if is_long && is_between_lines { scout.send(file, means.extractor, self.cursor.offset) } else { None }
    }

    /// Uses the scout's results and advances past its part, if the part starts at the current
    /// position and follows the same text.
    fn take_finding(&mut self, means: &ReadSettings<'_>, scout: &mut Prefetcher) {
        let is_between_lines = !self.cursor.skipping && !self.joiner.is_waiting() && !self.truncated;
        let Some(finding) = scout.finding().filter(|_| is_between_lines) else { return };
        if (finding.start, finding.before) != (self.cursor.offset, self.cursor.tail) {
            return;
        }
        let length = finding.end - finding.start;
        self.report.seen.lines += finding.lines;
        self.report.seen.bytes += length;
        self.keep(finding.events, means);
        self.joiner = finding.joiner;
        self.cursor.offset = finding.end;
        self.cursor.tail = finding.tail;
        self.unread = self.unread.saturating_sub(length);
    }

    /// Reads one block. It ends at `stop_at` at the latest, which is the start of a line.
    fn read_plain(
        &mut self,
        means: &ReadSettings<'_>,
        buffer: &mut Vec<u8>,
        stop_at: Option<u64>,
    ) -> io::Result<ReadProgress> {
        let Text::Plain(file) = &self.text else { return Ok(ReadProgress::UpToDate) };
        let metadata = file.metadata()?;
        let state = (metadata.len(), metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH));
        self.unread = state.0.saturating_sub(self.cursor.offset);
        let unchanged = self.caught_up == Some(state);
        let finishing = self.rotated && self.changed.elapsed() > FINISHED_AFTER;
        if unchanged && !finishing {
            self.caught_up_at = Some(means.now);
            return Ok(ReadProgress::UpToDate);
        }
        let tail = self.cursor.tail.len();
        let start = self.cursor.offset - tail as u64;
        let mut wanted = block_bytes(means.max_line_bytes);
        if let Some(stop_at) = stop_at {
            wanted = wanted.min((stop_at - self.cursor.offset) as usize);
        }
        loop {
            if buffer.len() < tail + wanted {
                buffer.resize(tail + wanted, 0);
            }
            let length = read_at(file, &mut buffer[..tail + wanted], start)?;
            // Every read includes the bytes before the offset. If they are unchanged, the new bytes
            // are their continuation.
            if length < tail || Mark::of(&buffer[..tail]) != self.cursor.tail {
                self.truncated = true;
                self.unread = 0;
                return Ok(ReadProgress::UpToDate);
            }
            let (before, bytes) = buffer[..length].split_at(tail);
            let more = length == tail + wanted;
            match cut(bytes, self.cursor.skipping, means.max_line_bytes, more) {
                Cut::NeedMore => wanted = (wanted * 4).min(means.max_line_bytes + 1),
                Cut::Unfinished if unchanged => {
                    // The file is rotated and quiet, so the newline will not arrive.
                    let rest = Cut::Lines(0..bytes.len());
                    self.take(rest, before, bytes, means);
                    self.flush_joiner(means);
                    self.cursor.finished = true;
                    return Ok(ReadProgress::UpToDate);
                }
                Cut::Unfinished => {
                    self.changed = Instant::now();
                    self.caught_up = Some(state);
                    self.caught_up_at = Some(means.now);
                    return Ok(ReadProgress::UpToDate);
                }
                found => {
                    self.take(found, before, bytes, means);
                    return Ok(ReadProgress::More);
                }
            }
        }
    }

    fn read_gzip(&mut self, means: &ReadSettings<'_>) -> io::Result<ReadProgress> {
        let Text::Gzip(blocks) = &mut self.text else { return Ok(ReadProgress::UpToDate) };
        let (found, bytes) = blocks.next(self.cursor.skipping)?;
        if found == Cut::Unfinished {
            self.flush_joiner(means);
            self.cursor.finished = true;
            self.unread = 0;
            return Ok(ReadProgress::UpToDate);
        }
        let bytes = bytes.to_vec();
        self.take(found, &[], &bytes, means);
        Ok(ReadProgress::More)
    }

    /// Searches a piece of text and advances past it.
    fn take(&mut self, found: Cut, before: &[u8], bytes: &[u8], means: &ReadSettings<'_>) {
        let seen = &mut self.report.seen;
        let (length, searched) = match found {
            Cut::Lines(range) => {
                let text = &bytes[range.clone()];
                seen.lines += count_lines(text);
                (range.end, range)
            }
            Cut::TooLong(range) => {
                self.cursor.skipping = true;
                seen.lines += 1;
                seen.oversized_lines += 1;
                (range.end, range)
            }
            Cut::Skipped { length, ends } => {
                self.cursor.skipping = !ends;
                (length, 0..0)
            }
            Cut::Unfinished | Cut::NeedMore => (0, 0..0),
        };
        seen.bytes += length as u64;
        seen.last_read = Some(means.now);
        let mut events = Vec::new();
        means.extractor.extract(&bytes[searched], self.cursor.offset, &mut self.joiner, &mut events);
        self.keep(events, means);
        match self.cursor.gzip {
            // A `.gz` is never truncated, so the offset is enough.
            true => self.cursor.offset += length as u64,
            false => self.cursor.advance(before, &bytes[..length]),
        }
        self.unread = self.unread.saturating_sub(length as u64);
        self.changed = Instant::now();
        self.report.moved = true;
    }

    /// Adds events to the report. An event without a timestamp gets an estimated time.
    fn keep(&mut self, events: Vec<LogEvent>, means: &ReadSettings<'_>) {
        let end = self.cursor.offset + self.unread;
        let floor = self.caught_up_at.unwrap_or(TimeMs::MIN);
        self.report.seen.events += events.len() as u64;
        for event in events {
            let age = (end.saturating_sub(event.offset) / ASSUMED_BYTES_PER_MS) as TimeMs;
            let read = (means.now - age).max(floor);
            let at = event.time.unwrap_or(read - event.waited.as_millis() as TimeMs);
            self.report.events.push((at, event));
        }
    }
}
