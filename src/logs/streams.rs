//! Handles entries of many interleaved streams: journal entries, and lines of push requests. Each
//! entry has fields in addition to its text. `journal` and `push` call this module.
//!
//! Each stream has its own joiner, as if it were a separate file, so that split lines and records
//! of different streams do not mix. Only the 256 most recently active streams are kept. When a
//! stream is dropped, its incomplete lines and records are flushed as they are.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::logs::blocks::count_lines;
use crate::logs::extract::{Extractor, LineAssembler};
use crate::logs::rules::RuleSet;
use crate::model::log_event::LogEvent;
use crate::model::position::SourceTotals;
use crate::util::clock;
use crate::util::clock::TimeMs;

/// Number of streams kept at a time.
const MAX_STREAMS: usize = 256;
/// Number of recent entries kept for each stream. A split line or record that ends now must have
/// started in one of them to get the id and time of its own entry.
const MAX_RECENT: usize = 512;

/// Fields that accompany a text and are not part of it: journal fields, or the labels and metadata
/// of a push request.
pub type AttachedFields = Arc<[(String, String)]>;

pub struct StreamEntry<'a> {
    /// Identifies the stream. Entries of different streams have different values.
    pub stream: u64,
    /// One or more lines. The last newline may be missing.
    pub text: &'a [u8],
    /// Time of events whose line has no timestamp.
    pub time: TimeMs,
    pub fields: &'a AttachedFields,
    /// Identifies the entry, so that a repeated entry is recognized. The offset of an event is this
    /// value plus the byte offset of the event's line in `text`.
    pub id: u64,
}

/// Events and totals of the entries since the last report.
#[derive(Default)]
pub struct StreamReport {
    pub events: Vec<(TimeMs, LogEvent)>,
    pub seen: SourceTotals,
}

pub struct StreamSet {
    extractor: Extractor,
    max_line_bytes: usize,
    streams: HashMap<u64, EntryStream>,
    n_waiting: usize,
    /// Number of entries so far. Serves as a clock that orders streams by their last entry.
    n_entries: u64,
    /// Reused buffer for the text of one entry.
    buffer: Vec<u8>,
}

/// State of one stream, which is treated like a file.
#[derive(Default)]
struct EntryStream {
    joiner: LineAssembler,
    /// Length of the stream so far in bytes, which is the offset of the next entry.
    end: u64,
    /// The most recent entries. An event may belong to an earlier entry than the one that completes
    /// its record.
    recent: VecDeque<EntryStart>,
    /// Value of `StreamSet::n_entries` at the last entry of this stream.
    heard: u64,
}

/// The start of an entry in its stream.
struct EntryStart {
    /// Offset in the stream.
    at: u64,
    id: u64,
    time: TimeMs,
}

impl StreamSet {
    pub fn new(rules: Arc<RuleSet>, max_line_bytes: usize) -> Self {
        let extractor = Extractor::with_fields_around(rules, max_line_bytes);
        Self { extractor, max_line_bytes, streams: HashMap::new(), n_waiting: 0, n_entries: 0, buffer: Vec::new() }
    }

    /// Whether any stream has an incomplete line or record.
    pub fn is_waiting(&self) -> bool {
        self.n_waiting > 0
    }

    /// Adds the events of one entry to `report`. Text beyond `max_line_bytes` is ignored and
    /// counted as an oversized line.
    pub fn take(&mut self, entry: &StreamEntry<'_>, report: &mut StreamReport) {
        let seen = &mut report.seen;
        seen.bytes += entry.text.len() as u64;
        seen.lines += count_lines(entry.text);
        seen.last_read = Some(clock::now());
        if entry.text.len() > self.max_line_bytes {
            seen.oversized_lines += 1;
        }
        let text = &entry.text[..entry.text.len().min(self.max_line_bytes)];
        self.buffer.clear();
        self.buffer.extend_from_slice(text.strip_suffix(b"\n").unwrap_or(text));
        self.buffer.push(b'\n');

        if self.streams.len() >= MAX_STREAMS && !self.streams.contains_key(&entry.stream) {
            self.forget_one(report);
        }
        self.n_entries += 1;
        let stream = self.streams.entry(entry.stream).or_default();
        let waited = stream.joiner.is_waiting();
        let begin = stream.end;
        stream.recent.push_back(EntryStart { at: begin, id: entry.id, time: entry.time });
        if stream.recent.len() > MAX_RECENT {
            stream.recent.pop_front();
        }
        stream.heard = self.n_entries;
        stream.end += self.buffer.len() as u64;
        stream.joiner.set_attached_fields(entry.fields);
        let mut events = Vec::new();
        self.extractor.extract(&self.buffer, begin, &mut stream.joiner, &mut events);
        report.add(events, stream);
        match (waited, stream.joiner.is_waiting()) {
            (false, true) => self.n_waiting += 1,
            (true, false) => self.n_waiting -= 1,
            _ => {}
        }
    }

    /// Flushes the streams whose incomplete lines or records have waited too long.
    pub fn flush_overdue(&mut self, report: &mut StreamReport) {
        self.flush_those(LineAssembler::is_overdue, report);
    }

    /// Flushes all streams. Call it when no more input will arrive.
    pub fn flush(&mut self, report: &mut StreamReport) {
        self.flush_those(LineAssembler::is_waiting, report);
    }

    fn flush_those(&mut self, is_meant: fn(&LineAssembler) -> bool, report: &mut StreamReport) {
        for stream in self.streams.values_mut().filter(|stream| is_meant(&stream.joiner)) {
            flush(&self.extractor, stream, report);
            self.n_waiting -= 1;
        }
    }

    /// Drops the stream whose last entry is the oldest.
    fn forget_one(&mut self, report: &mut StreamReport) {
        let oldest = self.streams.iter().min_by_key(|(_, stream)| stream.heard).map(|(id, _)| *id);
        let Some(mut stream) = oldest.and_then(|id| self.streams.remove(&id)) else { return };
        if stream.joiner.is_waiting() {
            flush(&self.extractor, &mut stream, report);
            self.n_waiting -= 1;
        }
    }
}

fn flush(extractor: &Extractor, stream: &mut EntryStream, report: &mut StreamReport) {
    let mut events = Vec::new();
    extractor.flush(&mut stream.joiner, &mut events);
    report.add(events, stream);
}

impl EntryStream {
    /// Returns the id and the time for an offset of the stream. They come from the entry that
    /// contains the offset. If that entry is no longer kept, the oldest kept entry is used.
    fn known_of(&self, offset: u64) -> Option<(u64, TimeMs)> {
        let entry = self.recent.iter().rev().find(|entry| entry.at <= offset).or(self.recent.front())?;
        Some((entry.id.wrapping_add(offset.saturating_sub(entry.at)), entry.time))
    }
}

impl StreamReport {
    pub fn is_empty(&self) -> bool {
        self.events.is_empty() && self.seen == SourceTotals::default()
    }

    fn add(&mut self, events: Vec<LogEvent>, stream: &EntryStream) {
        self.seen.events += events.len() as u64;
        self.events.extend(events.into_iter().map(|event| {
            let (offset, time) = stream.known_of(event.offset).unwrap_or((event.offset, clock::now()));
            (event.time.unwrap_or(time), LogEvent { offset, ..event })
        }));
    }
}
