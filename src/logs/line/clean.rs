//! Converts bytes to text that can be matched and displayed: without colors and control characters,
//! in valid UTF-8. Called for every parsed line and every JSON string.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::bytes::Regex;

/// Replaces invalid UTF-8, and removes what can surround a line: zero bytes (a truncated file can
/// start with a hole of zeros), a byte order mark, and the carriage return of a CRLF.
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

/// Removes terminal escape sequences, and replaces control characters other than tab and newline.
pub(super) fn text(text: &str) -> Cow<'_, str> {
    // A control character is a single byte or, for U+0080 to U+009F, starts with the byte 0xc2 in
    // UTF-8.
    let is_suspect = |byte: u8| byte < b' ' || byte == 0x7f || byte == 0xc2;
    if !text.bytes().any(|byte| is_suspect(byte) && !matches!(byte, b'\t' | b'\n')) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' {
            match characters.next_if(|next| matches!(next, '[' | ']')) {
                // Colors and cursor movements end with a final byte from `@` to `~`.
                Some('[') => while characters.next().is_some_and(|next| !matches!(next, '@'..='~')) {},
                // Titles and links end with BEL, or with ESC and a backslash. The loop stops at any
                // backslash.
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

/// Returns the line without colors, whether their escape character is a raw byte or escaped as in
/// JSON and other notations. Returns `None` if the line has no colors.
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
