//! Reads the text of a file from its beginning, through gzip if needed, to compare it with text
//! that was read before. Called by `matching`. Read errors are returned.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use super::discovery::Found;
use crate::model::position::{Cursor, MARK_BYTES, Mark};

/// Whether the content of `long` starts with the complete content of `short`. False if `long`
/// cannot be opened.
pub(super) fn begins_with(long: &Path, short: &Path) -> io::Result<bool> {
    let Ok(long) = File::open(long) else { return Ok(false) };
    let mut long = BufReader::new(long);
    let mut short = BufReader::new(File::open(short)?);
    loop {
        let expected = short.fill_buf()?;
        let actual = long.fill_buf()?;
        let length = expected.len().min(actual.len());
        if expected[..length] != actual[..length] || (actual.is_empty() && !expected.is_empty()) {
            return Ok(false);
        }
        if expected.is_empty() {
            return Ok(true);
        }
        short.consume(length);
        long.consume(length);
    }
}

/// Opens the text of a file at its beginning, uncompressed.
pub(super) fn open_text(found: &Found) -> io::Result<Box<dyn Read>> {
    let file = File::open(&found.path)?;
    Ok(match found.is_gzip() {
        true => Box::new(MultiGzDecoder::new(file)),
        false => Box::new(file),
    })
}

pub(super) fn head_of(found: &Found) -> io::Result<Mark> {
    let mut head = Vec::new();
    open_text(found)?.take(MARK_BYTES as u64).read_to_end(&mut head)?;
    Ok(Mark::of(&head))
}

/// Moves the cursor to the end of the file, so that nothing in the file is read. For a `.gz` the
/// offset stays 0, because callers mark a `.gz` as finished and never read it.
pub(super) fn move_to_end(cursor: &mut Cursor, found: &Found) -> io::Result<()> {
    if cursor.gzip {
        cursor.head = head_of(found)?;
        return Ok(());
    }
    let mut file = File::open(&found.path)?;
    let size = file.metadata()?.len();
    let mut head = Vec::new();
    file.by_ref().take(size.min(MARK_BYTES as u64)).read_to_end(&mut head)?;
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(size.saturating_sub(MARK_BYTES as u64)))?;
    file.take(size.min(MARK_BYTES as u64)).read_to_end(&mut tail)?;
    cursor.offset = size;
    cursor.head = Mark::of(&head);
    // If the file does not end with a newline, its last line started before this position, so the
    // remainder of that line is skipped.
    cursor.skipping = tail.last().is_some_and(|byte| *byte != b'\n');
    cursor.tail = Mark::of(&tail);
    Ok(())
}
