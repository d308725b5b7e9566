//! Checks whether a file contains the text that a saved position describes, by comparing hashes of
//! its head and of the bytes before the offset. Called by `matching`. Read errors are returned.

use std::io::{self, Read};

use crate::model::position::{Cursor, Mark};

/// Result of comparing a text with a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Likeness {
    /// The text is the same at least up to the offset, so reading can continue there.
    Continues,
    /// The head is the same, but the text ends before the offset.
    Shorter,
    Different,
}

/// Compares the text of `reader`, from its beginning, with the marks in `cursor`.
pub(super) fn compare(reader: &mut impl Read, cursor: &Cursor) -> io::Result<Likeness> {
    let head = read_up_to(reader, cursor.head.len())?;
    // A text shorter than the mark cannot be compared, so it counts as different.
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
        // Head and tail overlap, because the text is short.
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
    use std::path::Path;

    use super::*;
    use crate::model::position::Inode;

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
