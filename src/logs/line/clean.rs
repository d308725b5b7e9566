//! Makes bytes into text that can be matched and shown: no colours, no control characters, valid UTF-8.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::bytes::Regex;

/// Replaces what is not UTF-8, and drops what can surround a line: zeros (the hole that a truncated file leaves), a byte
/// order mark, the carriage return of a CRLF.
pub(super) fn line(bytes: &[u8]) -> Cow<'_, str> {
    let start = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
    let bytes = &bytes[start..];
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let end = bytes.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |last| last + 1);
    match String::from_utf8_lossy(&bytes[..end]) {
        Cow::Borrowed(valid) => text(valid),
        Cow::Owned(repaired) => Cow::Owned(text(&repaired).into_owned()),
    }
}

/// Drops terminal escapes and replaces control characters other than tab and newline.
pub(super) fn text(text: &str) -> Cow<'_, str> {
    // Control characters are single bytes, or begin with this one in UTF-8.
    let is_suspect = |byte: u8| byte < b' ' || byte == 0x7f || byte == 0xc2;
    if !text.bytes().any(|byte| is_suspect(byte) && !matches!(byte, b'\t' | b'\n')) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' {
            match characters.next_if(|next| matches!(next, '[' | ']')) {
                // Colours and cursor: parameters up to a final letter.
                Some('[') => while characters.next().is_some_and(|next| !matches!(next, '@'..='~')) {},
                // Titles and links: up to BEL, or ESC and a backslash.
                Some(_) => while characters.next().is_some_and(|next| !matches!(next, '\u{7}' | '\\')) {},
                None => {}
            }
        } else if is_unwanted(character) {
            out.push(char::REPLACEMENT_CHARACTER);
        } else {
            out.push(character);
        }
    }
    Cow::Owned(out)
}

/// The bytes of a line without colors, be their escape character written as it is or as JSON writes it. None: there are none.
pub fn without_colors(line: &[u8]) -> Option<Vec<u8>> {
    static COLOR: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?-u)(?:\x1b|\\u001[bB]|\\x1[bB]|\\033)\[[0-9;:]*[A-Za-z]")
            .expect("a constant that a test compiles")
    });
    memchr::memchr2(0x1b, b'\\', line)?;
    match COLOR.replace_all(line, b"".as_slice()) {
        Cow::Borrowed(_) => None,
        Cow::Owned(text) => Some(text),
    }
}

fn is_unwanted(character: char) -> bool {
    character.is_control() && !matches!(character, '\t' | '\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], expected: &str) {
        assert_eq!(line(bytes), expected);
    }

    #[test]
    fn keeps_what_is_clean() {
        check(b"", "");
        check("lock lost \u{2014} run".as_bytes(), "lock lost \u{2014} run");
        check(b"\tat Lock.java", "\tat Lock.java");
    }

    #[test]
    fn cleans() {
        check(b"\0\0\0\0\xef\xbb\xbflock lost\r", "lock lost");
        check(b"\x1b[33mWARN\x1b[0m lock lost", "WARN lock lost");
        check(b"\x1b]0;title\x07lock \x1b]8;;url\x1b\\lost", "lock lost");
        check(b"lo\x01ck \xff\xfe", "lo\u{fffd}ck \u{fffd}\u{fffd}");
        check(b"\x1b", "");
        check(b"\x1b[", "");
        check(b"\0\0", "");
    }
}
