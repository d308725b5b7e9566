//! How far a log file has been read, and how to know that file again.
//!
//! A file is known by device, inode and a hash of its head; that we are still where we were, by a hash of the bytes just
//! before the offset. Together they survive renames, notice truncation even when the file has grown past the old offset,
//! notice a reused inode, and find the same text again in a copy or in a `.gz`. Cursors are saved together with the counters.

use std::hash::Hasher;
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;

use crate::util::clock::TimeMs;

/// Bytes of the head, and of the text before the offset, that are hashed.
pub const MARK_BYTES: usize = 1024;

/// Names a cursor for as long as it lives, across restarts. A file that is truncated gets a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileId(pub u64);

/// Device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Inode {
    pub device: u64,
    pub number: u64,
}

/// A hash of some bytes and how many they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    pub bytes: u32,
    pub hash: u64,
}

impl Mark {
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = SipHasher13::new();
        hasher.write(bytes);
        Self { bytes: bytes.len() as u32, hash: hasher.finish() }
    }

    pub fn len(self) -> usize {
        self.bytes as usize
    }

    pub fn is_empty(self) -> bool {
        self.bytes == 0
    }
}

impl Default for Mark {
    fn default() -> Self {
        Self::of(&[])
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cursor {
    /// The configured path pattern that the file belongs to.
    pub source: String,
    /// Where the file was last seen.
    pub path: String,
    pub inode: Inode,
    /// The text is read through gzip; offset and marks speak of the uncompressed text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gzip: bool,
    /// Everything before this byte has been counted.
    pub offset: u64,
    pub head: Mark,
    /// The bytes just before `offset`.
    pub tail: Mark,
    /// `offset` lies inside a line that was too long; what is left of it is skipped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skipping: bool,
    /// Rotated away and read to its end. Kept so that the file, its copy or its `.gz` is not read again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub finished: bool,
    /// Since when the text has not been found under any name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone_since: Option<TimeMs>,
}

impl Cursor {
    /// A file that has not been read at all.
    pub fn at_beginning(source: &str, path: &Path, inode: Inode, gzip: bool) -> Self {
        Self {
            source: source.to_owned(),
            path: path.to_string_lossy().into_owned(),
            inode,
            gzip,
            offset: 0,
            head: Mark::default(),
            tail: Mark::default(),
            skipping: false,
            finished: false,
            gone_since: None,
        }
    }

    /// Moves past `text`, the bytes that begin at the present offset, and renews both marks.
    /// `before` are the bytes that `tail` was made of.
    pub fn advance(&mut self, before: &[u8], text: &[u8]) {
        let head_length = self.head.len();
        if self.offset == head_length as u64 && head_length < MARK_BYTES {
            // The head is still growing: then the whole file so far is `before` (it is no longer than the mark).
            let whole = [before, &text[..text.len().min(MARK_BYTES - head_length)]].concat();
            self.head = Mark::of(&whole);
        }
        self.tail = if text.len() >= MARK_BYTES {
            Mark::of(&text[text.len() - MARK_BYTES..])
        } else {
            let keep = before.len().min(MARK_BYTES - text.len());
            Mark::of(&[&before[before.len() - keep..], text].concat())
        };
        self.offset += text.len() as u64;
    }
}

/// Whether a text is the one a cursor speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Likeness {
    /// The same text at least up to the offset: reading can go on there.
    Continues,
    /// The same head, but the text ends before the offset.
    Shorter,
    Different,
}

/// Compares the text that `reader` gives from its beginning with what `cursor` remembers.
pub fn compare(reader: &mut impl Read, cursor: &Cursor) -> io::Result<Likeness> {
    let head = read_up_to(reader, cursor.head.len())?;
    // A text shorter than the mark cannot be compared, so nothing speaks for it.
    if head.len() < cursor.head.len() || Mark::of(&head) != cursor.head {
        return Ok(Likeness::Different);
    }
    let tail_start = cursor.offset - cursor.tail.len() as u64;
    let tail = if tail_start >= head.len() as u64 {
        let between = tail_start - head.len() as u64;
        if io::copy(&mut reader.by_ref().take(between), &mut io::sink())? < between {
            return Ok(Likeness::Shorter);
        }
        read_up_to(reader, cursor.tail.len())?
    } else {
        // Head and tail overlap: a short file.
        let mut tail = head[tail_start as usize..].to_vec();
        let missing = cursor.tail.len().saturating_sub(tail.len());
        tail.extend(read_up_to(reader, missing)?);
        tail.truncate(cursor.tail.len());
        tail
    };
    Ok(match tail.len() < cursor.tail.len() {
        true => Likeness::Shorter,
        false if Mark::of(&tail) == cursor.tail => Likeness::Continues,
        false => Likeness::Different,
    })
}

fn read_up_to(reader: &mut impl Read, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(length);
    reader.by_ref().take(length as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8], steps: &[usize]) -> Cursor {
        let inode = Inode { device: 1, number: 2 };
        let mut cursor = Cursor::at_beginning("*.log", Path::new("a.log"), inode, false);
        for step in steps {
            let offset = cursor.offset as usize;
            let before = &text[offset - cursor.tail.len()..offset];
            cursor.advance(before, &text[offset..offset + step]);
        }
        cursor
    }

    fn check(text: &[u8], cursor: &Cursor, expected: Likeness) {
        assert_eq!(compare(&mut &text[..], cursor).unwrap(), expected, "{cursor:?}");
    }

    fn text(length: usize) -> Vec<u8> {
        (0..length).map(|index| (index * 7 + index / 251) as u8).collect()
    }

    #[test]
    fn the_same_text_continues_however_it_was_read() {
        let text = text(5000);
        for steps in [&[1][..], &[500], &[1024], &[10, 20, 1000, 30], &[4000], &[1023, 1, 1], &[5000]] {
            let cursor = read(&text, steps);
            check(&text, &cursor, Likeness::Continues);
            assert_eq!(cursor, read(&text, &[steps.iter().sum()]), "marks do not depend on the steps");
        }
    }

    #[test]
    fn a_change_in_head_or_tail_is_noticed() {
        let text = text(5000);
        let cursor = read(&text, &[3000]);
        for at in [0, 1023, 1976, 2999] {
            let mut changed = text.clone();
            changed[at] ^= 1;
            check(&changed, &cursor, Likeness::Different);
        }
        let mut later = text.clone();
        later[3000] ^= 1;
        check(&later, &cursor, Likeness::Continues);
    }

    #[test]
    fn a_shorter_text_with_the_same_head_is_told_apart() {
        let text = text(5000);
        let cursor = read(&text, &[3000]);
        check(&text[..2999], &cursor, Likeness::Shorter);
        check(&text[..1500], &cursor, Likeness::Shorter);
        check(&text[..1024], &cursor, Likeness::Shorter);
        check(&text[..1023], &cursor, Likeness::Different);
        check(b"", &cursor, Likeness::Different);
    }

    #[test]
    fn an_unread_file_continues_as_anything() {
        check(b"whatever", &read(b"", &[]), Likeness::Continues);
    }
}
