//! How far a log file has been read, and how to know that file again.
//!
//! A file is known by device, inode and a hash of its head; that we are still where we were, by a hash of the bytes just
//! before the offset. Together they survive renames, notice truncation even when the file has grown past the old offset,
//! notice a reused inode, and find the same text again in a copy or in a `.gz`. Cursors are saved together with the counters.

use std::hash::Hasher;
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

/// How far a journal has been read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalPosition {
    /// Of the last entry that was counted, or that was there before counting began. None: the journal was empty.
    pub cursor: Option<String>,
    /// What selected that entry. With another selection it need not come again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matches: Option<String>,
}

/// What one configured log source has given so far; saved together with the offsets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SourceTotals {
    pub bytes: u64,
    pub lines: u64,
    /// Lines that said something about a lock, before several lines about one failure are joined.
    pub events: u64,
    pub oversized_lines: u64,
    pub rotations: u64,
    pub truncations: u64,
    pub read_errors: u64,
    /// Pushed lines about a lock that had been counted before.
    #[serde(skip_serializing_if = "is_zero")]
    pub duplicates: u64,
    /// When new bytes were last read: kept over a restart, or a source that fell silent would look new.
    pub last_read: Option<TimeMs>,
}

impl SourceTotals {
    pub fn add(&mut self, more: &Self) {
        let Self { bytes, lines, events, oversized_lines, rotations, truncations, read_errors, duplicates, last_read } =
            more;
        self.bytes += bytes;
        self.lines += lines;
        self.events += events;
        self.oversized_lines += oversized_lines;
        self.rotations += rotations;
        self.truncations += truncations;
        self.read_errors += read_errors;
        self.duplicates += duplicates;
        self.last_read = self.last_read.max(*last_read);
    }
}

/// What is left out of the saved state, so that an older version can still read it.
fn is_zero(number: &u64) -> bool {
    *number == 0
}
