//! Splits text into blocks of complete lines, in bounded memory.
//!
//! Standard input, `.gz` files and the files given to `replay` and `check --logs` are read through
//! [`Blocks`] or [`FileBlocks`]. `logs::files` reads plain files itself with the functions of this
//! module. A line longer than the limit is cut: its first part is searched, and the remainder is
//! skipped. Read errors are returned to the caller.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use memchr::{memchr, memchr_iter, memrchr};

use crate::logs::extract::Extractor;
use crate::logs::files::prefetch::{PART_BYTES, PrefetchedPart, Prefetcher};

/// Bytes read and searched at once. Large enough to make the cost of the system call negligible,
/// small enough to fit in the CPU cache.
pub const BLOCK_BYTES: usize = 256 * 1024;

/// Describes the next bytes of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Complete lines. The caller searches the range and advances to its end.
    Lines(Range<usize>),
    /// The first part of a line that is longer than the limit. The caller searches the range,
    /// advances to its end, and then skips to the newline.
    TooLong(Range<usize>),
    /// A further part of an oversized line, which is not searched. `ends` is true if it contains
    /// the newline.
    Skipped { length: usize, ends: bool },
    /// There is no complete line, and no more bytes are available.
    Unfinished,
    /// The bytes contain no complete line, but the line may still be within the limit. The caller
    /// must read more bytes.
    NeedMore,
}

impl Cut {
    /// Number of bytes to advance.
    pub fn length(&self) -> usize {
        match self {
            Cut::Lines(range) | Cut::TooLong(range) => range.end,
            Cut::Skipped { length, .. } => *length,
            Cut::Unfinished | Cut::NeedMore => 0,
        }
    }
}

/// Classifies `bytes`. They start at the beginning of a line, or inside an oversized line if
/// `skipping` is true. `more` is true if the caller can read further bytes right away.
pub fn cut(bytes: &[u8], skipping: bool, max_line_bytes: usize, more: bool) -> Cut {
    if skipping {
        return match memchr(b'\n', bytes) {
            Some(at) => Cut::Skipped { length: at + 1, ends: true },
            None if bytes.is_empty() => Cut::Unfinished,
            None => Cut::Skipped { length: bytes.len(), ends: false },
        };
    }
    match memrchr(b'\n', bytes) {
        Some(at) => Cut::Lines(0..at + 1),
        None if bytes.len() > max_line_bytes => Cut::TooLong(0..max_line_bytes),
        None if more => Cut::NeedMore,
        None => Cut::Unfinished,
    }
}

/// Number of lines in a text. A last line without a newline counts.
pub fn count_lines(text: &[u8]) -> u64 {
    let unterminated = !text.is_empty() && !text.ends_with(b"\n");
    memchr_iter(b'\n', text).count() as u64 + u64::from(unterminated)
}

/// Number of bytes to read first. It is enough to distinguish a line of `max_line_bytes` from a
/// longer one, and too few to contain two lines of that length.
pub fn block_bytes(max_line_bytes: usize) -> usize {
    BLOCK_BYTES.min(max_line_bytes + 1)
}

/// Reads blocks from any reader. Its buffer never grows beyond `max_line_bytes` plus one byte.
pub struct Blocks<R> {
    reader: R,
    buffer: Vec<u8>,
    /// The part of the buffer that contains text not yet returned.
    filled: Range<usize>,
    max_line_bytes: usize,
    at_end: bool,
}

impl<R: Read> Blocks<R> {
    pub fn new(reader: R, max_line_bytes: usize) -> Self {
        let buffer = vec![0; block_bytes(max_line_bytes)];
        Self { reader, buffer, filled: 0..0, max_line_bytes, at_end: false }
    }

    /// Returns the next piece and its text. At the end of the stream, a last line without a newline
    /// is returned as [`Cut::Lines`]. After that, the result is [`Cut::Unfinished`] with an empty
    /// text.
    pub fn next(&mut self, skipping: bool) -> io::Result<(Cut, &[u8])> {
        loop {
            let bytes = &self.buffer[self.filled.clone()];
            let found = match bytes.is_empty() {
                true => Cut::NeedMore,
                false => cut(bytes, skipping, self.max_line_bytes, true),
            };
            let length = match &found {
                Cut::Unfinished | Cut::NeedMore if !self.at_end => {
                    self.fill()?;
                    continue;
                }
                Cut::Unfinished | Cut::NeedMore => bytes.len(),
                found => found.length(),
            };
            let start = self.filled.start;
            self.filled.start += length;
            let found = match found {
                Cut::Unfinished | Cut::NeedMore if length > 0 => Cut::Lines(0..length),
                Cut::NeedMore => Cut::Unfinished,
                other => other,
            };
            return Ok((found, &self.buffer[start..start + length]));
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.filled.clone(), 0);
        self.filled = 0..self.filled.len();
        if self.filled.end == self.buffer.len() {
            // `cut` returns `TooLong` for more than `max_line_bytes` bytes without a newline, so
            // the buffer never needs more than `max_line_bytes + 1` bytes.
            let larger = (self.buffer.len() * 4).min(self.max_line_bytes + 1);
            self.buffer.resize(larger.max(self.filled.end + 1), 0);
        }
        loop {
            match self.reader.read(&mut self.buffer[self.filled.end..]) {
                Ok(0) => self.at_end = true,
                Ok(length) => self.filled.end += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            return Ok(());
        }
    }
}

/// Reads blocks from a regular file. Two threads search a long file: see [`FileBlocks::finding`].
pub struct FileBlocks {
    file: Arc<File>,
    size: u64,
    buffer: Vec<u8>,
    /// Offset of the next piece.
    offset: u64,
    max_line_bytes: usize,
    scout: Prefetcher,
    /// Offset at which the scout started. A piece must end exactly there.
    stop_at: Option<u64>,
}

impl FileBlocks {
    pub fn new(file: File, size: u64, max_line_bytes: usize) -> Self {
        let (file, buffer, scout) = (Arc::new(file), Vec::new(), Prefetcher::default());
        Self { file, size, buffer, offset: 0, max_line_bytes, scout, stop_at: None }
    }

    /// Same contract as [`Blocks::next`].
    pub fn next(&mut self, skipping: bool) -> io::Result<(Cut, &[u8])> {
        let mut wanted = block_bytes(self.max_line_bytes);
        if let Some(stop_at) = self.stop_at {
            wanted = wanted.min((stop_at - self.offset) as usize);
        }
        loop {
            if self.buffer.len() < wanted {
                self.buffer.resize(wanted, 0);
            }
            let filled = read_at(&self.file, &mut self.buffer[..wanted], self.offset)?;
            let found = match cut(&self.buffer[..filled], skipping, self.max_line_bytes, filled == wanted) {
                Cut::NeedMore => {
                    wanted = (wanted * 4).min(self.max_line_bytes + 1);
                    continue;
                }
                Cut::Unfinished if filled > 0 => Cut::Lines(0..filled),
                found => found,
            };
            let length = found.length();
            self.offset += length as u64;
            return Ok((found, &self.buffer[..length]));
        }
    }

    /// Returns the part that the scout searched, if it starts exactly at the next piece, and
    /// advances past it. Call this before each call of [`FileBlocks::next`]: it also starts the
    /// scout when the rest of the file is long enough. `is_between_lines` must be false while a
    /// line or record is incomplete.
    pub fn finding(&mut self, extractor: &Arc<Extractor>, is_between_lines: bool) -> Option<PrefetchedPart> {
        if self.stop_at.is_some_and(|stop_at| self.offset >= stop_at) {
            self.stop_at = None;
            let finding = self.scout.finding().filter(|finding| is_between_lines && finding.start == self.offset)?;
            self.offset = finding.end;
            return Some(finding);
        }
        let is_long = self.size.saturating_sub(self.offset) > 2 * PART_BYTES;
        if self.stop_at.is_none() && is_long && is_between_lines && self.max_line_bytes >= BLOCK_BYTES {
            self.stop_at = self.scout.send(&self.file, extractor, self.offset);
        }
        None
    }
}

/// Reads with one system call, so that all bytes are from the same moment. The result is shorter
/// than the buffer only at the end of the file.
pub fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match file.read_at(buffer, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `input` in steps of `step` bytes and compares the searched lines. A cut line ends with
    /// `...`.
    fn check(input: &str, max_line_bytes: usize, step: usize, expected: &[&str]) {
        struct Slow<'a>(&'a [u8], usize);
        impl Read for Slow<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let length = self.1.min(self.0.len()).min(buffer.len());
                buffer[..length].copy_from_slice(&self.0[..length]);
                self.0 = &self.0[length..];
                Ok(length)
            }
        }
        let mut blocks = Blocks::new(Slow(input.as_bytes(), step), max_line_bytes);
        assert_eq!(searched(|skipping| blocks.next(skipping).map(owned)), expected, "step {step}");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), input).unwrap();
        let mut blocks = FileBlocks::new(file.reopen().unwrap(), input.len() as u64, max_line_bytes);
        assert_eq!(searched(|skipping| blocks.next(skipping).map(owned)), expected, "from a file");
    }

    fn owned((cut, text): (Cut, &[u8])) -> (Cut, String) {
        (cut, String::from_utf8_lossy(text).into_owned())
    }

    fn searched(mut next: impl FnMut(bool) -> io::Result<(Cut, String)>) -> Vec<String> {
        let mut seen = Vec::new();
        let mut skipping = false;
        loop {
            let (cut, text) = next(skipping).unwrap();
            match cut {
                Cut::Lines(_) => seen.extend(text.split_inclusive('\n').map(str::to_owned)),
                Cut::TooLong(_) => {
                    seen.push(format!("{text}..."));
                    skipping = true;
                }
                Cut::Skipped { ends, .. } => skipping = !ends,
                Cut::Unfinished => break,
                Cut::NeedMore => unreachable!("the caller never sees it"),
            }
        }
        seen
    }

    #[test]
    fn lines_come_whole_however_they_are_read() {
        for step in [1, 2, 3, 7, 100] {
            check("one\ntwo\n\nthree", 10, step, &["one\n", "two\n", "\n", "three"]);
        }
    }

    #[test]
    fn a_line_as_long_as_allowed_is_whole_and_a_longer_one_is_cut() {
        for step in [1, 4, 100] {
            check("12345\n123456789\nab\n", 5, step, &["12345\n", "12345...", "ab\n"]);
            check("123456", 5, step, &["12345..."]);
        }
    }

    #[test]
    fn nothing_gives_nothing() {
        check("", 5, 1, &[]);
    }
}
