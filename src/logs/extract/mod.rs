//! Finds the log events in a block of complete lines. All log sources, `replay` and `check --logs`
//! call this module. Nothing here can fail.
//!
//! Container runtimes split long lines into pieces (`P` records of CRI, Docker records without a
//! newline). [`LineAssembler`] joins the pieces of each output stream, within limits, and joins the lines
//! of one record. While a line or record is incomplete ([`LineAssembler::is_waiting`]), the caller must
//! not move the saved position. In reading order:
//!
//! * this file: finds a line, joins its pieces, evaluates the rules
//! * `search`: finds the few lines that a rule can match
//! * `records`: joins the lines of one record: a message, its stack trace, its exception

pub(super) mod records;
pub mod search;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use memchr::{memchr, memmem, memrchr};

use crate::logs::line::{LogLine, LogRecord, OutputStream, Unwrapped, unwrap_line, without_colors};
use crate::logs::rules::{RuleMatch, RuleSet};
use crate::model::log_event::LogEvent;
use crate::util::clock::TimeMs;
use records::{CompleteLine, OpenRecord, Records};
use search::Searcher;

/// If the next piece of a split line does not arrive within this time, the line is flushed.
const JOIN_TIMEOUT: Duration = Duration::from_secs(2);

pub struct Extractor {
    rules: Arc<RuleSet>,
    searcher: Searcher,
    max_line_bytes: usize,
}

/// Incomplete input: split lines waiting for their next piece, and multi-line records waiting for
/// their end. Bounded: a split line keeps at most `max_line_bytes` bytes, and there is at most one
/// for each output stream. `records` has its own limits.
#[derive(Debug, Default)]
pub struct LineAssembler {
    /// Split lines waiting for their next piece, at most one for each output stream.
    waiting: Vec<PartialLine>,
    /// Fields that accompany the lines and are not part of them.
    around: Arc<[(String, String)]>,
    records: Records,
}

#[derive(Debug)]
/// A line, or the pieces of a split line that were read so far.
struct PartialLine {
    stream: OutputStream,
    /// Offset of the first piece.
    offset: u64,
    /// Offset after the last piece.
    end: u64,
    time: Option<TimeMs>,
    text: Vec<u8>,
    since: Instant,
}

/// What the extractor reports about a line that it inspected.
pub enum InspectedLine<'a> {
    /// One piece of a split line, or one line of a record. The complete line or record is reported
    /// as [`InspectedLine::Line`] after its last piece.
    Piece { offset: u64 },
    /// A complete line or record.
    Line {
        /// Offset of the line. For a split line, the offset of its first piece.
        offset: u64,
        /// The text without the wrapping of a container runtime.
        text: &'a [u8],
        /// Time from the wrapping, or the time of a joined record that a rule matched.
        time: Option<TimeMs>,
        /// `None` if the line contains no text that any rule needs.
        judged: Option<Box<(LogRecord, RuleMatch)>>,
    },
}

impl LineAssembler {
    /// Sets the fields that accompany the following lines. See [`Extractor::with_fields_around`].
    pub fn surround(&mut self, fields: &Arc<[(String, String)]>) {
        self.around = Arc::clone(fields);
    }

    /// Whether a line or record is incomplete.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() || self.records.is_waiting()
    }

    /// Whether an incomplete line or record has waited too long, so that the caller must flush it.
    pub fn is_overdue(&self) -> bool {
        self.records.is_overdue() || self.waiting.iter().any(|piece| piece.since.elapsed() > JOIN_TIMEOUT)
    }

    /// Provides the text before the offset `end` at which reading starts, because a record may have
    /// started in it.
    pub fn prime(&mut self, before: &[u8], end: u64) {
        self.records.remember(before, end - before.len() as u64);
    }

    /// Removes and returns the incomplete line of an output stream.
    fn take(&mut self, stream: OutputStream) -> Option<PartialLine> {
        let index = self.waiting.iter().position(|piece| piece.stream == stream)?;
        Some(self.waiting.swap_remove(index))
    }
}

/// How the lines of a block are wrapped, which determines how to find split lines. The first line
/// of each block decides.
#[derive(Clone, Copy, PartialEq)]
enum Cutting {
    Never,
    Cri,
    Docker,
}

impl Extractor {
    pub fn new(rules: Arc<RuleSet>, max_line_bytes: usize) -> Self {
        let searcher = Searcher::new(&rules.needed_texts());
        Self { rules, searcher, max_line_bytes }
    }

    /// Creates an extractor for lines that are accompanied by fields ([`LineAssembler::surround`]). The
    /// search must not require the text of a rule's conditions, because those may match an
    /// accompanying field that is not in the line.
    pub fn with_fields_around(rules: Arc<RuleSet>, max_line_bytes: usize) -> Self {
        let searcher = Searcher::new(&rules.needed_texts_of_messages());
        Self { rules, searcher, max_line_bytes }
    }

    /// Appends the events of `block` to `events`. The block contains complete lines (the newline of
    /// the last line may be missing) and starts at `offset` of its file.
    pub fn extract(&self, block: &[u8], offset: u64, joiner: &mut LineAssembler, events: &mut Vec<LogEvent>) {
        self.look(block, offset, joiner, &mut |look| events.extend(event_of(look)));
    }

    /// Flushes incomplete lines and records. Call it when no more input will arrive.
    pub fn flush(&self, joiner: &mut LineAssembler, events: &mut Vec<LogEvent>) {
        self.look_at_rest(joiner, &mut |look| events.extend(event_of(look)));
    }

    /// Like [`Extractor::extract`], but calls `told` for every inspected line. Other lines are not
    /// reported, because they contain no text that any rule needs.
    pub fn look(
        &self,
        block: &[u8],
        offset: u64,
        joiner: &mut LineAssembler,
        told: &mut impl FnMut(InspectedLine<'_>),
    ) {
        let cutting = cutting(block);
        let mut position = 0;
        let mut hit = self.searcher.find_at(block, 0);
        let mut cut = find_cut(cutting, block, 0);
        let escapes = Escapes::of(block);
        let mut colored = self.find_colored(escapes, block, 0);
        while position < block.len() {
            let next = if joiner.is_waiting() {
                position
            } else {
                match [hit, cut, colored].into_iter().flatten().min() {
                    Some(next) => next,
                    None => break,
                }
            };
            let start = memrchr(b'\n', &block[position..next]).map_or(position, |at| position + at + 1);
            let end = memchr(b'\n', &block[next..]).map_or(block.len(), |at| next + at);
            position = (end + 1).min(block.len());
            self.take_line(&block[start..end], (block, offset, start..position), joiner, told);
            if hit.is_some_and(|at| at < position) {
                hit = self.searcher.find_at(block, position);
            }
            if cut.is_some_and(|at| at < position) {
                cut = find_cut(cutting, block, position);
            }
            if colored.is_some_and(|at| at < position) {
                colored = self.find_colored(escapes, block, position);
            }
        }
        joiner.records.remember(block, offset);
        joiner.records.waiting_lines().for_each(|offset| told(InspectedLine::Piece { offset }));
    }

    /// Like [`Extractor::flush`], but calls `told` for every flushed line.
    pub fn look_at_rest(&self, joiner: &mut LineAssembler, told: &mut impl FnMut(InspectedLine<'_>)) {
        for piece in std::mem::take(&mut joiner.waiting) {
            self.take_text(&piece, (&[], piece.offset), joiner, told);
        }
        for open in joiner.records.finish_all() {
            self.judge(&open, joiner, told);
        }
    }

    /// Unwraps one line and joins it with the waiting pieces of its output stream. The tuple
    /// contains the block, the offset of the block in the file, and the place of the line and its
    /// newline in the block.
    fn take_line(
        &self,
        line: &[u8],
        (block, block_offset, place): (&[u8], u64, Range<usize>),
        joiner: &mut LineAssembler,
        told: &mut impl FnMut(InspectedLine<'_>),
    ) {
        let (offset, end) = (block_offset + place.start as u64, block_offset + place.end as u64);
        let before = |offset: u64| (&block[..offset.saturating_sub(block_offset) as usize], block_offset);
        let Unwrapped { text, time, stream, partial } = unwrap_line(line);
        match (joiner.take(stream), partial) {
            (None, false) => {
                let whole = PartialLine { stream, offset, end, time, text: text.into_owned(), since: Instant::now() };
                self.take_text(&whole, before(offset), joiner, told);
            }
            (None, true) => {
                told(InspectedLine::Piece { offset });
                let text = text.into_owned();
                joiner.waiting.push(PartialLine { stream, offset, end, time, text, since: Instant::now() });
            }
            (Some(mut piece), partial) => {
                told(InspectedLine::Piece { offset });
                // Text beyond the limit is read but not kept, so only the first part of a very long
                // line is searched.
                piece.end = end;
                let room = self.max_line_bytes.saturating_sub(piece.text.len());
                piece.text.extend_from_slice(&text[..text.len().min(room)]);
                if partial {
                    joiner.waiting.push(piece);
                } else {
                    self.take_text(&piece, before(piece.offset), joiner, told);
                }
            }
        }
    }

    /// Handles a complete line: adds it to an open record, evaluates it, or starts a record with
    /// it.
    fn take_text(
        &self,
        whole: &PartialLine,
        before: (&[u8], u64),
        joiner: &mut LineAssembler,
        told: &mut impl FnMut(InspectedLine<'_>),
    ) {
        let PartialLine { stream, offset, end, time, text, .. } = whole;
        let is_hit = self.is_hit(text);
        let nothing = InspectedLine::Line { offset: *offset, text, time: *time, judged: None };
        if !is_hit && !joiner.records.is_waiting() {
            return told(nothing);
        }
        let line = LogLine::new(text, *time);
        let whole = CompleteLine {
            text,
            line,
            stream: *stream,
            offset: *offset,
            end: *end,
            before,
            around: Arc::clone(&joiner.around),
        };
        let mut ended = Vec::new();
        let belongs = joiner.records.offer(&whole, is_hit, &mut ended);
        ended.drain(..).for_each(|open| self.judge(&open, joiner, told));
        if belongs {
            return;
        }
        if !is_hit {
            return told(nothing);
        }
        if whole.line.is_whole() {
            let record = LogRecord::of_lines(&[whole.line]).within(&joiner.around);
            let verdict = self.verdict(&record, *offset..*end, Duration::ZERO);
            return told(InspectedLine::Line {
                offset: *offset,
                text,
                time: *time,
                judged: Some(Box::new((record, verdict))),
            });
        }
        if !joiner.records.begin(whole, &mut ended) {
            told(InspectedLine::Piece { offset: *offset });
        }
        ended.drain(..).for_each(|open| self.judge(&open, joiner, told));
    }

    /// Evaluates the rules on a complete record. If no rule matches, each line that was hit is
    /// reported separately.
    fn judge(&self, open: &OpenRecord, joiner: &mut LineAssembler, told: &mut impl FnMut(InspectedLine<'_>)) {
        let record = LogRecord::of_lines(&open.lines).within(&open.around);
        let offset = open.offsets.first().copied().unwrap_or_default();
        match self.verdict(&record, offset..open.end, open.since.elapsed()) {
            RuleMatch::NoMatch => {
                for (offset, text) in &open.hits {
                    let judged =
                        Some(Box::new((LogRecord::parse(text, record.time).within(&open.around), RuleMatch::NoMatch)));
                    told(InspectedLine::Line { offset: *offset, text, time: None, judged });
                }
            }
            verdict => {
                joiner.records.is_counted(open);
                open.offsets.iter().for_each(|offset| told(InspectedLine::Piece { offset: *offset }));
                let (text, time) = (open.lines.first().map_or("", LogLine::text), record.time);
                told(InspectedLine::Line {
                    offset,
                    text: text.as_bytes(),
                    time,
                    judged: Some(Box::new((record, verdict))),
                });
            }
        }
    }

    fn verdict(&self, record: &LogRecord, place: Range<u64>, waited: Duration) -> RuleMatch {
        match self.rules.evaluate(record) {
            RuleMatch::Event(event) => {
                RuleMatch::Event(LogEvent { offset: place.start, end: place.end, waited, ..event })
            }
            other => other,
        }
    }

    /// Whether a line contains a text that a rule needs, either directly or after colors are
    /// removed.
    fn is_hit(&self, line: &[u8]) -> bool {
        let is_found = |text: &[u8]| self.searcher.find_at(text, 0).is_some();
        is_found(line) || without_colors(line).is_some_and(|text| is_found(&text))
    }

    /// Position inside the next line, at or after `from`, that contains a needed text once its
    /// colors are removed.
    fn find_colored(&self, escapes: Escapes, block: &[u8], mut from: usize) -> Option<usize> {
        loop {
            let at = from + escapes.find(block.get(from..)?)?;
            let start = memrchr(b'\n', &block[from..at]).map_or(from, |newline| from + newline + 1);
            let end = memchr(b'\n', &block[at..]).map_or(block.len(), |newline| at + newline);
            let text = without_colors(&block[start..end]);
            if text.is_some_and(|text| self.searcher.find_at(&text, 0).is_some()) {
                return Some(at);
            }
            from = end + 1;
        }
    }
}

/// Which spellings of the escape character, which starts a color, occur in a block. Most blocks
/// contain neither, and then no line is searched for colors.
#[derive(Clone, Copy)]
struct Escapes {
    /// The byte 0x1b.
    as_they_are: bool,
    /// `\u001b`, as JSON escapes it.
    escaped: bool,
}

impl Escapes {
    fn of(block: &[u8]) -> Self {
        Self { as_they_are: find_escape(block).is_some(), escaped: find_escaped(block).is_some() }
    }

    fn find(self, text: &[u8]) -> Option<usize> {
        let first = if self.as_they_are { find_escape(text) } else { None };
        let second = if self.escaped { find_escaped(&text[..first.unwrap_or(text.len())]) } else { None };
        second.or(first)
    }
}

fn find_escape(text: &[u8]) -> Option<usize> {
    memchr(0x1b, text)
}

fn find_escaped(text: &[u8]) -> Option<usize> {
    let is_escape = |at: &usize| matches!(text.get(at + 5), Some(b'b' | b'B'));
    memmem::find_iter(text, b"\\u001").find(is_escape)
}

fn event_of(look: InspectedLine<'_>) -> Option<LogEvent> {
    match look {
        InspectedLine::Line { judged, .. } => match *judged? {
            (_, RuleMatch::Event(event)) => Some(event),
            _ => None,
        },
        InspectedLine::Piece { .. } => None,
    }
}

fn cutting(block: &[u8]) -> Cutting {
    if block.starts_with(b"{\"log\":\"") {
        Cutting::Docker
    } else if block.first().is_some_and(u8::is_ascii_digit) && is_cri(block) {
        Cutting::Cri
    } else {
        Cutting::Never
    }
}

/// CRI lines have the form `2026-06-25T13:37:04.123456789Z stderr F text`. The second word is the
/// output stream.
fn is_cri(block: &[u8]) -> bool {
    let head = &block[..block.len().min(64)];
    memchr(b' ', head).is_some_and(|at| {
        let rest = &head[at + 1..];
        rest.starts_with(b"stdout ") || rest.starts_with(b"stderr ")
    })
}

/// Position inside the next line, at or after `from`, that is a piece of a split line.
fn find_cut(cutting: Cutting, block: &[u8], from: usize) -> Option<usize> {
    match cutting {
        Cutting::Never => None,
        Cutting::Cri => {
            // One search for both output streams. Two searches would each scan the rest of the
            // block again for every line.
            let is_cut = |at: &usize| block[..*at].ends_with(b" stdout") || block[..*at].ends_with(b" stderr");
            memmem::find_iter(&block[from..], b" P ").map(|at| from + at).find(is_cut)
        }
        // The text of a complete line ends with an escaped newline.
        Cutting::Docker => memmem::find_iter(&block[from..], b"\",\"stream\":\"")
            .map(|at| from + at)
            .find(|&at| !block[..at].ends_with(b"\\n")),
    }
}
