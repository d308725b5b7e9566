//! Lines that come as entries of many streams at once, each with fields around it: of a journal, or pushed with labels.
//!
//! Each stream is put together by itself, as if it were a file of its own, so that interleaved ones do not mix. The streams
//! that were heard last are remembered; of one that is forgotten, what waits for its rest is taken as it is.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::logs::blocks::count_lines;
use crate::logs::extract::{Extractor, Joiner};
use crate::logs::rules::RuleSet;
use crate::model::log_event::LogEvent;
use crate::model::position::SourceTotals;
use crate::util::clock;
use crate::util::clock::TimeMs;

/// Streams that are remembered.
const MAX_STREAMS: usize = 256;
/// Entries of one stream in which something that ends now may have begun.
const MAX_RECENT: usize = 512;

/// Fields that come with a text rather than in it.
pub type AttachedFields = Arc<[(String, String)]>;

pub struct StreamEntry<'a> {
    /// The same for all entries of one stream, and no other.
    pub stream: u64,
    /// One line or several; the last newline may be missing.
    pub text: &'a [u8],
    /// For lines without a time of their own.
    pub time: TimeMs,
    pub fields: &'a AttachedFields,
    /// What the entry is known again by. Becomes the offset of its events, plus the place of their line in the text.
    pub id: u64,
}

/// What entries had to say.
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
    /// Entries so far, which says what was heard last.
    n_entries: u64,
    /// For the text of one entry.
    buffer: Vec<u8>,
}

/// One stream as if it were a file.
#[derive(Default)]
struct EntryStream {
    joiner: Joiner,
    /// Bytes so far.
    end: u64,
    /// The last entries: a record may be judged when a later one comes.
    recent: VecDeque<Begun>,
    heard: u64,
}

/// An entry as part of its stream.
struct Begun {
    at: u64,
    id: u64,
    time: TimeMs,
}

impl StreamSet {
    pub fn new(rules: Arc<RuleSet>, max_line_bytes: usize) -> Self {
        let extractor = Extractor::with_fields_around(rules, max_line_bytes);
        Self { extractor, max_line_bytes, streams: HashMap::new(), n_waiting: 0, n_entries: 0, buffer: Vec::new() }
    }

    /// Whether a stream waits for the rest of something.
    pub fn is_waiting(&self) -> bool {
        self.n_waiting > 0
    }

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
        stream.recent.push_back(Begun { at: begin, id: entry.id, time: entry.time });
        if stream.recent.len() > MAX_RECENT {
            stream.recent.pop_front();
        }
        stream.heard = self.n_entries;
        stream.end += self.buffer.len() as u64;
        stream.joiner.surround(entry.fields);
        let mut events = Vec::new();
        self.extractor.extract(&self.buffer, begin, &mut stream.joiner, &mut events);
        report.add(events, stream);
        match (waited, stream.joiner.is_waiting()) {
            (false, true) => self.n_waiting += 1,
            (true, false) => self.n_waiting -= 1,
            _ => {}
        }
    }

    /// Takes as it is what has waited long enough for its rest.
    pub fn flush_overdue(&mut self, report: &mut StreamReport) {
        self.flush_those(Joiner::is_overdue, report);
    }

    /// The same for all that waits.
    pub fn flush(&mut self, report: &mut StreamReport) {
        self.flush_those(Joiner::is_waiting, report);
    }

    fn flush_those(&mut self, is_meant: fn(&Joiner) -> bool, report: &mut StreamReport) {
        for stream in self.streams.values_mut().filter(|stream| is_meant(&stream.joiner)) {
            flush(&self.extractor, stream, report);
            self.n_waiting -= 1;
        }
    }

    /// The one that was not heard for the longest time.
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
    /// What a place is known by, and its time: those of the entry it is in, or of the oldest that is remembered.
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
