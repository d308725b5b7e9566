//! Positions: how far a log file or a journal was read, and how to recognize the file again.
//!
//! A file is identified by device, inode and a hash of its first bytes. A hash of the bytes
//! directly before the offset confirms that the text there is still the same. Together they survive
//! renames, detect truncation even if the file grew past the old offset, detect a reused inode, and
//! find the same text in a copy or in a `.gz`. Cursors are saved together with the counters.

use std::hash::Hasher;
use std::path::Path;

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;

use crate::util::clock::TimeMs;

/// Maximum number of bytes that each mark covers: at the start of the file, and before the offset.
pub const MARK_BYTES: usize = 1024;

/// Identifies a cursor across restarts. A file that is truncated gets a new id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileId(pub u64);

/// Identifies a file on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Inode {
    pub device: u64,
    pub number: u64,
}

/// A hash of some bytes, and the number of bytes.
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
    /// The configured path pattern that matches the file.
    pub source: String,
    /// The last known path of the file.
    pub path: String,
    pub inode: Inode,
    /// The text is read through gzip. The offset and the marks refer to the uncompressed text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gzip: bool,
    /// Everything before this byte has been counted.
    pub offset: u64,
    pub head: Mark,
    /// Mark of the bytes directly before `offset`.
    pub tail: Mark,
    /// `offset` is inside a line that is too long. The rest of that line is skipped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skipping: bool,
    /// The file was rotated and read to its end. The cursor is kept so that the file, its copy or
    /// its `.gz` is not read again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub finished: bool,
    /// Since when no file with this text was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone_since: Option<TimeMs>,
}

impl Cursor {
    /// Returns the cursor of a file that was not read yet.
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

    /// Moves past `text`, which begins at the current offset, and updates both marks. `before`
    /// contains the bytes that `tail` covers.
    pub fn advance(&mut self, before: &[u8], text: &[u8]) {
        let head_length = self.head.len();
        if self.offset == head_length as u64 && head_length < MARK_BYTES {
            // The head mark is still growing, so `before` is the complete file up to the offset: it
            // is not longer than the mark.
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

/// How far a journal was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalPosition {
    /// Cursor of the last entry that was counted, or of the last entry that existed before counting
    /// began. `None` if the journal was empty.
    pub cursor: Option<String>,
    /// The filter that selected this entry. With another filter, `journalctl` may not return the
    /// entry again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matches: Option<String>,
}

/// Totals of one configured log source. Saved together with the positions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SourceTotals {
    pub bytes: u64,
    pub lines: u64,
    /// Lines that report something about a lock, before lines about the same failure are joined.
    pub events: u64,
    pub oversized_lines: u64,
    pub rotations: u64,
    pub truncations: u64,
    pub read_errors: u64,
    /// Pushed lines about a lock that were already counted.
    #[serde(skip_serializing_if = "is_zero")]
    pub duplicates: u64,
    /// When new bytes were last read. Kept across restarts; otherwise a source that stopped sending
    /// would seem to be new.
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

/// Zero is omitted from the saved state, so that an older version can still read it.
fn is_zero(number: &u64) -> bool {
    *number == 0
}
