//! Cuts a stream (standard input, a `.gz`, a file given to `replay`) into blocks of whole lines, in bounded memory.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use memchr::{memchr, memchr_iter, memrchr};

use crate::logs::extract::Extractor;
use crate::logs::files::prefetch::{PART_BYTES, PrefetchedPart, Scout};

/// How much is read and searched at once: large enough to pay for the system call, small enough to stay in the cache.
pub const BLOCK_BYTES: usize = 256 * 1024;

/// What the next bytes of a log turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Whole lines; the range is what to search and what to move past.
    Lines(Range<usize>),
    /// The first part of a line that is too long: search the range, move past it, then skip to the newline.
    TooLong(Range<usize>),
    /// The rest of such a line: nothing to search. `ends` tells whether its newline was found.
    Skipped { length: usize, ends: bool },
    /// A line without its newline yet.
    Unfinished,
    /// Not one whole line in the bytes at hand although it may become one: look at more bytes.
    NeedMore,
}

impl Cut {
    /// Bytes to move past.
    pub fn length(&self) -> usize {
        match self {
            Cut::Lines(range) | Cut::TooLong(range) => range.end,
            Cut::Skipped { length, .. } => *length,
            Cut::Unfinished | Cut::NeedMore => 0,
        }
    }
}

/// Decides what `bytes`, which begin at a line (or inside a too long one when `skipping`), hold.
/// `more` tells whether bytes beyond these are already there.
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

/// Lines in a text, the last one with or without its newline.
pub fn count_lines(text: &[u8]) -> u64 {
    let unterminated = !text.is_empty() && !text.ends_with(b"\n");
    memchr_iter(b'\n', text).count() as u64 + u64::from(unterminated)
}

/// Bytes to look at so that a line of `max_line_bytes` can be told from a longer one, but never two such lines at once.
pub fn block_bytes(max_line_bytes: usize) -> usize {
    BLOCK_BYTES.min(max_line_bytes + 1)
}

/// A reader with one buffer that grows to the longest allowed line and no further.
pub struct Blocks<R> {
    reader: R,
    buffer: Vec<u8>,
    /// The part of the buffer that holds unread text.
    filled: Range<usize>,
    max_line_bytes: usize,
    at_end: bool,
}

impl<R: Read> Blocks<R> {
    pub fn new(reader: R, max_line_bytes: usize) -> Self {
        let buffer = vec![0; block_bytes(max_line_bytes)];
        Self { reader, buffer, filled: 0..0, max_line_bytes, at_end: false }
    }

    /// The next piece and its text. At the end of the stream a last line without newline comes as [`Cut::Lines`]; after
    /// that, [`Cut::Unfinished`] with no text.
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
            // `cut` takes anything longer than the longest line, so the buffer stays bounded by it.
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

/// The same for a regular file. Long ones are searched in two places at once: see [`FileBlocks::finding`].
pub struct FileBlocks {
    file: Arc<File>,
    size: u64,
    buffer: Vec<u8>,
    /// Where the next piece begins.
    offset: u64,
    max_line_bytes: usize,
    scout: Scout,
    /// Where the scout began: a piece ends there.
    stop_at: Option<u64>,
}

impl FileBlocks {
    pub fn new(file: File, size: u64, max_line_bytes: usize) -> Self {
        let (file, buffer, scout) = (Arc::new(file), Vec::new(), Scout::default());
        Self { file, size, buffer, offset: 0, max_line_bytes, scout, stop_at: None }
    }

    /// As [`Blocks::next`].
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

    /// What was found ahead of the next piece, if it can be used: then the next piece begins behind it. To be asked before
    /// each piece; `is_between_lines` tells that no line is half done.
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

/// One system call, so that all bytes are of one moment. Short only at the end of the file.
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

    /// Reads `input` a few bytes at a time and returns what was searched, cut marks included.
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
