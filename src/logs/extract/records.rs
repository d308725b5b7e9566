//! Joins the lines of one record: a message, its stack trace, and the exception at its end. Called
//! by the extractor, only for lines that the search hit: it goes back to the start of the record
//! and then adds the following lines. Other lines cost only a copy of the end of each block,
//! because a record may have started in the previous block. The output stream and the tag
//! distinguish the lines of several programs in one file.
//!
//! A record that exceeds the limits, or whose end does not arrive in time, is evaluated as it is.
//! Lines of it that arrive later are recognized and not counted again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use memchr::memrchr;

use crate::logs::line::{LogLine, OutputStream, Role, Unwrapped, unwrap_line};

/// Programs print a stack trace at once, so lines that do not arrive within this time are not
/// expected any more.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Limits on the lines and bytes of one record.
const MAX_LINES: usize = 512;
const MAX_BYTES: usize = 64 * 1024;
/// Limit on the lines of other programs inside a record: between two lines of the record when
/// reading forward, and in total when going back to its start.
const MAX_OTHERS: usize = 64;
/// Limit on consecutive blank lines inside a record.
const MAX_BLANKS: usize = 2;
/// Limit on open records in one file. Each program that writes to the file may have one.
const MAX_OPEN: usize = 16;
/// How many bytes before a block a record may start.
pub(in crate::logs) const TAIL_BYTES: usize = 16 * 1024;

/// Identifies the program that wrote a line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Origin {
    stream: OutputStream,
    tag: String,
}

/// A record whose end has not been read.
#[derive(Debug)]
pub(in crate::logs) struct OpenRecord {
    origin: Origin,
    /// Offsets of its lines.
    pub(in crate::logs) offsets: Vec<u64>,
    /// Offset after its last line.
    pub(in crate::logs) end: u64,
    pub(in crate::logs) lines: Vec<LogLine>,
    n_bytes: usize,
    /// Lines that the search hit, with their offsets.
    pub(in crate::logs) hits: Vec<(u64, Vec<u8>)>,
    /// Fields that accompany the line that was hit.
    pub(in crate::logs) around: Arc<[(String, String)]>,
    /// Blank lines since the last line of the record.
    n_blanks: usize,
    /// Lines of other programs since the last line of the record.
    n_others: usize,
    /// When the first line that was hit was read.
    pub(in crate::logs) since: Instant,
}

/// The unfinished records of one file, and the text needed to find the start of the next record.
#[derive(Debug, Default)]
pub(in crate::logs) struct Records {
    open: Vec<OpenRecord>,
    /// For each program, the offset of the last line of its last counted record.
    counted: Vec<(Origin, u64)>,
    tail: BlockTail,
}

/// The end of the text before the current block.
#[derive(Debug, Default)]
struct BlockTail {
    bytes: Vec<u8>,
    /// Offset of the first byte after the text.
    end: u64,
}

/// A complete line from the extractor.
pub(in crate::logs) struct CompleteLine<'a> {
    pub(in crate::logs) text: &'a [u8],
    pub(in crate::logs) line: LogLine,
    pub(in crate::logs) stream: OutputStream,
    pub(in crate::logs) offset: u64,
    pub(in crate::logs) end: u64,
    /// The text of the block before this line, and the offset of the block.
    pub(in crate::logs) before: (&'a [u8], u64),
    pub(in crate::logs) around: Arc<[(String, String)]>,
}

impl Records {
    pub(in crate::logs) fn is_waiting(&self) -> bool {
        !self.open.is_empty()
    }

    pub(in crate::logs) fn is_overdue(&self) -> bool {
        self.open.iter().any(|open| open.since.elapsed() > TIMEOUT)
    }

    /// Adds a line to the open record that it belongs to, and returns whether there is one. Records
    /// that end because of this line are appended to `ended`.
    pub(in crate::logs) fn offer(
        &mut self,
        whole: &CompleteLine<'_>,
        is_hit: bool,
        ended: &mut Vec<OpenRecord>,
    ) -> bool {
        let open = &mut self.open;
        let mut belongs = false;
        let mut index = 0;
        while index < open.len() {
            let record = &mut open[index];
            let is_own = record.origin.stream == whole.stream && record.origin.tag == whole.line.tag;
            let goes_on = match (is_own, whole.line.role) {
                (false, _) => {
                    record.n_others += 1;
                    record.n_others <= MAX_OTHERS
                }
                (true, Role::Blank) => {
                    record.n_blanks += 1;
                    record.n_blanks <= MAX_BLANKS
                }
                (true, role) => role.continues(record.last_role(), record.n_blanks) && record.has_room(),
            };
            if is_own && goes_on {
                belongs = true;
                record.end = whole.end;
                if whole.line.role != Role::Blank {
                    record.push(whole.line.clone(), whole.offset, is_hit.then_some(whole.text));
                }
            }
            if goes_on {
                index += 1;
            } else {
                ended.push(open.remove(index));
            }
        }
        belongs
    }

    /// Starts a record with a line that was hit, and adds the earlier lines that belong to it.
    /// Returns false if the earlier lines belong to a record that was already counted.
    pub(in crate::logs) fn begin(&mut self, whole: CompleteLine<'_>, ended: &mut Vec<OpenRecord>) -> bool {
        let origin = Origin { stream: whole.stream, tag: whole.line.tag.clone() };
        let counted_until = self.counted.iter().find(|(other, _)| *other == origin).map(|(_, offset)| *offset);
        let Some(before) = self.look_back(&whole, &origin, counted_until) else { return false };
        let (offsets, lines) = before.into_iter().unzip();
        let mut record = OpenRecord {
            origin,
            offsets,
            end: whole.end,
            lines,
            n_bytes: 0,
            hits: Vec::new(),
            around: whole.around,
            n_blanks: 0,
            n_others: 0,
            since: Instant::now(),
        };
        record.push(whole.line, whole.offset, Some(whole.text));
        if self.open.len() == MAX_OPEN {
            ended.push(self.open.remove(0));
        }
        self.open.push(record);
        true
    }

    /// Closes and returns all open records.
    pub(in crate::logs) fn finish_all(&mut self) -> Vec<OpenRecord> {
        std::mem::take(&mut self.open)
    }

    /// Offsets of the lines of all open records.
    pub(in crate::logs) fn waiting_lines(&self) -> impl Iterator<Item = u64> {
        self.open.iter().flat_map(|open| open.offsets.iter().copied())
    }

    /// Remembers that a rule matched the record, so that its later lines are not counted again.
    pub(in crate::logs) fn is_counted(&mut self, open: &OpenRecord) {
        self.counted.retain(|(origin, _)| *origin != open.origin);
        if self.counted.len() == MAX_OPEN {
            self.counted.remove(0);
        }
        self.counted.push((open.origin.clone(), open.offsets.last().copied().unwrap_or_default()));
    }

    /// Keeps the end of a block, because a record of the next block may have started there.
    pub(in crate::logs) fn remember(&mut self, block: &[u8], offset: u64) {
        let BlockTail { bytes, end } = &mut self.tail;
        if *end != offset || block.len() >= TAIL_BYTES {
            bytes.clear();
        }
        let kept = &block[block.len().saturating_sub(TAIL_BYTES)..];
        let excess = (bytes.len() + kept.len()).saturating_sub(TAIL_BYTES);
        bytes.drain(..excess);
        bytes.extend_from_slice(kept);
        *end = offset + block.len() as u64;
    }

    /// Returns the earlier lines of the record that `whole` belongs to, in file order and with
    /// their offsets. Returns `None` if the record was already counted.
    fn look_back(
        &self,
        whole: &CompleteLine<'_>,
        origin: &Origin,
        counted_until: Option<u64>,
    ) -> Option<Vec<(u64, LogLine)>> {
        let mut back = LookBack { lines: Vec::new(), role: whole.line.role, n_blanks: 0, n_others: 0, counted_until };
        // A line and its earliest known offset. More of its pieces may come earlier in the file.
        let mut ending: Option<(u64, Unwrapped<'_>)> = None;
        let mut n_bytes = 0;
        for (offset, bytes) in self.lines_before(whole.before) {
            n_bytes += bytes.len();
            if back.is_done() || n_bytes > MAX_BYTES {
                break;
            }
            // These bytes are pieces of the line itself.
            if offset >= whole.offset {
                continue;
            }
            let unwrapped = unwrap_line(bytes);
            if unwrapped.stream != origin.stream {
                back.n_others += usize::from(!unwrapped.partial);
                continue;
            }
            match &mut ending {
                Some((start, end)) if unwrapped.partial => {
                    *start = offset;
                    end.text = [unwrapped.text.as_ref(), end.text.as_ref()].concat().into();
                    end.time = unwrapped.time;
                }
                _ => {
                    if let Some((offset, line)) = ending.replace((offset, unwrapped)) {
                        back.take(offset, &line, origin)?;
                    }
                }
            }
        }
        if let (Some((offset, line)), false) = (ending, back.is_done()) {
            back.take(offset, &line, origin)?;
        }
        back.lines.reverse();
        Some(back.lines)
    }

    /// Iterates backward over the lines of the block and then of the tail. A line whose start is
    /// not available is omitted.
    fn lines_before<'a>(&'a self, (before, offset): (&'a [u8], u64)) -> impl Iterator<Item = (u64, &'a [u8])> {
        let tail = if self.tail.end == offset { self.tail.bytes.as_slice() } else { &[] };
        let tail_start = offset - tail.len() as u64;
        // The tail may start in the middle of a line.
        let whole_from = if tail_start == 0 { 0 } else { memchr::memchr(b'\n', tail).map_or(tail.len(), |at| at + 1) };
        let in_block = backwards(before).map(move |(at, line)| (offset + at as u64, line));
        let in_tail =
            backwards(&tail[whole_from..]).map(move |(at, line)| (tail_start + (whole_from + at) as u64, line));
        in_block.chain(in_tail)
    }
}

/// State of the search from a line that was hit back to the start of its record.
struct LookBack {
    /// In reverse file order.
    lines: Vec<(u64, LogLine)>,
    /// Role of the earliest line found so far. `Head` means that the start of the record was found.
    role: Role,
    n_blanks: usize,
    n_others: usize,
    counted_until: Option<u64>,
}

impl LookBack {
    fn is_done(&self) -> bool {
        self.role == Role::Head || self.lines.len() == MAX_LINES || self.n_others > MAX_OTHERS
    }

    /// Handles the next complete line of the same output stream. Returns `None` if it belongs to a
    /// record that was already counted.
    fn take(&mut self, offset: u64, unwrapped: &Unwrapped<'_>, origin: &Origin) -> Option<()> {
        if self.is_done() {
            return Some(());
        }
        let line = LogLine::new(&unwrapped.text, unwrapped.time);
        if line.tag != origin.tag {
            self.n_others += 1;
        } else if line.role == Role::Blank {
            self.n_blanks += 1;
        } else if self.role.continues(line.role, self.n_blanks) {
            if self.counted_until.is_some_and(|counted| offset <= counted) {
                return None;
            }
            (self.role, self.n_blanks) = (line.role, 0);
            self.lines.push((offset, line));
        } else {
            // The line belongs to another record.
            self.role = Role::Head;
        }
        Some(())
    }
}

/// Iterates backward over the lines of a text that ends with a newline, with their start positions.
fn backwards(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut end = text.len();
    std::iter::from_fn(move || {
        let stop = end.checked_sub(1)?;
        let start = memrchr(b'\n', &text[..stop]).map_or(0, |at| at + 1);
        let line = text[start..end].strip_suffix(b"\n").unwrap_or(&text[start..end]);
        end = start;
        Some((start, line))
    })
}

impl OpenRecord {
    fn last_role(&self) -> Role {
        self.lines.last().map_or(Role::Head, |line| line.role)
    }

    fn has_room(&self) -> bool {
        self.lines.len() < MAX_LINES && self.n_bytes < MAX_BYTES
    }

    fn push(&mut self, line: LogLine, offset: u64, hit: Option<&[u8]>) {
        self.n_bytes += line.text().len();
        self.lines.push(line);
        self.hits.extend(hit.map(|text| (offset, text.to_vec())));
        self.offsets.push(offset);
        (self.n_blanks, self.n_others) = (0, 0);
    }
}
