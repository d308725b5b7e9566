//! From a block of whole lines to the events in it. Shared by the tailer, standard input and `replay`.
//!
//! Container runtimes cut long lines into pieces (`P` records of CRI, Docker records without a newline). Pieces are joined
//! here, for each stream of a file, within bounds. While a piece is waiting for the rest the caller must not move the saved
//! position: [`Joiner::is_waiting`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use memchr::{memchr, memmem, memrchr};

use crate::event::{LogEvent, TimeMs};
use crate::sources::lines::{Record, Stream, Unwrapped, unwrap_line};
use crate::sources::rules::{RuleSet, Verdict};
use crate::sources::search::Searcher;

/// A piece whose rest does not come within this time is taken as it is.
const JOIN_TIMEOUT: Duration = Duration::from_secs(2);

pub struct Extractor {
    rules: Arc<RuleSet>,
    searcher: Searcher,
    max_line_bytes: usize,
}

/// Pieces of cut lines that wait for their rest. Bounded by `max_line_bytes` for each of the two streams.
#[derive(Default)]
pub struct Joiner {
    waiting: Vec<Piece>,
}

struct Piece {
    stream: Stream,
    offset: u64,
    time: Option<TimeMs>,
    text: Vec<u8>,
    since: Instant,
}

/// What the extractor tells about a line it looked at.
pub enum Look<'a> {
    /// One piece of a cut line. The whole comes as a [`Look::Line`] after its last piece.
    Piece { offset: u64 },
    /// A whole line.
    Line {
        /// Where it begins; for a cut line, where its first piece does.
        offset: u64,
        /// Without wrapping.
        text: &'a [u8],
        /// Time of the wrapping.
        time: Option<TimeMs>,
        /// None: no text in it that any rule needs.
        verdict: Option<Verdict>,
    },
}

impl Joiner {
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub fn is_overdue(&self) -> bool {
        self.waiting.iter().any(|piece| piece.since.elapsed() > JOIN_TIMEOUT)
    }

    fn take(&mut self, stream: Stream) -> Option<Piece> {
        let index = self.waiting.iter().position(|piece| piece.stream == stream)?;
        Some(self.waiting.swap_remove(index))
    }
}

/// How a file's lines are wrapped, judged by the first line of each block, decides how cut lines are looked for.
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

    /// Appends the events of `block`, which holds whole lines (the newline of the last one may be missing) and starts at
    /// `offset` of its file.
    pub fn extract(&self, block: &[u8], offset: u64, joiner: &mut Joiner, events: &mut Vec<LogEvent>) {
        self.look(block, offset, joiner, &mut |look| events.extend(event_of(look)));
    }

    /// Takes what waits for its rest as it is: the rest is not coming.
    pub fn flush(&self, joiner: &mut Joiner, events: &mut Vec<LogEvent>) {
        self.look_at_rest(joiner, &mut |look| events.extend(event_of(look)));
    }

    /// As [`Extractor::extract`], and tells about every line that is looked at. Of the others nothing is to be told: they
    /// have no text that any rule needs.
    pub fn look(&self, block: &[u8], offset: u64, joiner: &mut Joiner, told: &mut impl FnMut(Look<'_>)) {
        let cutting = cutting(block);
        let mut position = 0;
        let mut hit = self.searcher.find_at(block, 0);
        let mut cut = find_cut(cutting, block, 0);
        while position < block.len() {
            let next = if joiner.is_waiting() {
                position
            } else {
                match (hit, cut) {
                    (Some(hit), Some(cut)) => hit.min(cut),
                    (Some(at), None) | (None, Some(at)) => at,
                    (None, None) => break,
                }
            };
            let start = memrchr(b'\n', &block[position..next]).map_or(position, |at| position + at + 1);
            let end = memchr(b'\n', &block[next..]).map_or(block.len(), |at| next + at);
            self.take_line(&block[start..end], offset + start as u64, joiner, told);
            position = (end + 1).min(block.len());
            if hit.is_some_and(|at| at < position) {
                hit = self.searcher.find_at(block, position);
            }
            if cut.is_some_and(|at| at < position) {
                cut = find_cut(cutting, block, position);
            }
        }
    }

    /// As [`Extractor::flush`], telling about it.
    pub fn look_at_rest(&self, joiner: &mut Joiner, told: &mut impl FnMut(Look<'_>)) {
        for piece in std::mem::take(&mut joiner.waiting) {
            self.take_text(&piece.text, piece.time, piece.offset, told);
        }
    }

    fn take_line(&self, line: &[u8], offset: u64, joiner: &mut Joiner, told: &mut impl FnMut(Look<'_>)) {
        let Unwrapped { text, time, stream, partial } = unwrap_line(line);
        match (joiner.take(stream), partial) {
            (None, false) => self.take_text(&text, time, offset, told),
            (None, true) => {
                told(Look::Piece { offset });
                let text = text.into_owned();
                joiner.waiting.push(Piece { stream, offset, time, text, since: Instant::now() });
            }
            (Some(mut piece), partial) => {
                told(Look::Piece { offset });
                // Past the limit the rest is read but not kept: a long line is searched in its first part.
                let room = self.max_line_bytes.saturating_sub(piece.text.len());
                piece.text.extend_from_slice(&text[..text.len().min(room)]);
                if partial {
                    joiner.waiting.push(piece);
                } else {
                    self.take_text(&piece.text, piece.time, piece.offset, told);
                }
            }
        }
    }

    fn take_text(&self, text: &[u8], time: Option<TimeMs>, offset: u64, told: &mut impl FnMut(Look<'_>)) {
        let is_found = self.searcher.find_at(text, 0).is_some();
        let verdict = is_found.then(|| self.rules.evaluate(&Record::parse(text, time)));
        let verdict = verdict.map(|verdict| match verdict {
            Verdict::Event(event) => Verdict::Event(LogEvent { offset, ..event }),
            other => other,
        });
        told(Look::Line { offset, text, time, verdict });
    }
}

fn event_of(look: Look<'_>) -> Option<LogEvent> {
    match look {
        Look::Line { verdict: Some(Verdict::Event(event)), .. } => Some(event),
        _ => None,
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

/// `2026-06-25T13:37:04.123456789Z stderr F text`: the second word names the stream.
fn is_cri(block: &[u8]) -> bool {
    let head = &block[..block.len().min(64)];
    memchr(b' ', head).is_some_and(|at| {
        let rest = &head[at + 1..];
        rest.starts_with(b"stdout ") || rest.starts_with(b"stderr ")
    })
}

/// Position inside the next line, at or after `from`, that is a piece of a longer one.
fn find_cut(cutting: Cutting, block: &[u8], from: usize) -> Option<usize> {
    match cutting {
        Cutting::Never => None,
        Cutting::Cri => {
            let find = |text: &[u8]| memmem::find(&block[from..], text).map(|at| from + at);
            [find(b" stdout P "), find(b" stderr P ")].into_iter().flatten().min()
        }
        // The text of a whole line ends in an escaped newline.
        Cutting::Docker => memmem::find_iter(&block[from..], b"\",\"stream\":\"")
            .map(|at| from + at)
            .find(|&at| !block[..at].ends_with(b"\\n")),
    }
}
