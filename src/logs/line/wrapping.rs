//! Removes what a container runtime puts around a program's line: Docker's json-file driver and
//! CRI.
//!
//! The extractor calls it for every line that may be about a lock. A line without wrapping costs
//! only a check of its first bytes. The text is copied only if Docker escaped something in it. A
//! line in an unknown form is returned unchanged.

use std::borrow::Cow;

use memchr::{memchr, memchr2};

use super::time;
use crate::util::clock::TimeMs;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    None,
    Stdout,
    Stderr,
}

/// A program's line, or a piece of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwrapped<'a> {
    /// Without its line ending.
    pub text: Cow<'a, [u8]>,
    /// When the runtime received the line.
    pub time: Option<TimeMs>,
    pub stream: OutputStream,
    /// The runtime split the line. The next line of the same output stream continues it.
    pub partial: bool,
}

/// Unwraps one line. `line` has no `\n` at its end.
pub fn unwrap_line(line: &[u8]) -> Unwrapped<'_> {
    let wrapped = match line.first() {
        Some(b'{') => docker(line),
        Some(b'0'..=b'9') => cri(line),
        _ => None,
    };
    let bare = || Unwrapped { text: Cow::Borrowed(line), time: None, stream: OutputStream::None, partial: false };
    wrapped.unwrap_or_else(bare)
}

/// Parses `<RFC 3339> stdout|stderr F|P <text>`. The tag `F` or `P` may have more text after a
/// colon.
fn cri(line: &[u8]) -> Option<Unwrapped<'_>> {
    let time_end = memchr(b' ', &line[..line.len().min(64)])?;
    let (stream, rest) = if let Some(rest) = line[time_end + 1..].strip_prefix(b"stderr ") {
        (OutputStream::Stderr, rest)
    } else {
        (OutputStream::Stdout, line[time_end + 1..].strip_prefix(b"stdout ")?)
    };
    let tag_end = memchr(b' ', &rest[..rest.len().min(64)]).unwrap_or(rest.len());
    let partial = match rest[..tag_end].split(|byte| *byte == b':').next() {
        Some(b"F") => false,
        Some(b"P") => true,
        _ => return None,
    };
    let (time, read) = time::leading(str::from_utf8(&line[..time_end]).ok()?)?;
    if read != time_end {
        return None;
    }
    let text = rest.get(tag_end + 1..).unwrap_or_default();
    Some(Unwrapped { text: Cow::Borrowed(text), time: Some(time), stream, partial })
}

/// Parses `{"log":"...\n","stream":"stderr","time":"..."}`. It may also contain `attrs`, if Docker
/// logs labels.
fn docker(line: &[u8]) -> Option<Unwrapped<'_>> {
    let body = line.strip_prefix(b"{\"log\":\"")?;
    let end = string_end(body);
    if end == body.len() {
        // The line exceeded the length limit and was cut inside the text, so there is no end to
        // parse.
        return Some(Unwrapped { text: unescape(body), time: None, stream: OutputStream::None, partial: false });
    }
    let (time, stream) = docker_tail(&body[end + 1..])?;
    let (text, partial) = match body[..end].strip_suffix(b"\\n") {
        Some(text) if ends_unescaped(text) => (text, false),
        _ => (&body[..end], true),
    };
    Some(Unwrapped { text: unescape(text), time, stream, partial })
}

/// Whether the next character after `text` is not escaped, because `text` ends with an even number
/// of backslashes.
fn ends_unescaped(text: &[u8]) -> bool {
    text.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 0
}

/// Parses the members after the text. Returns `None` if there are unknown members, because then the
/// line is a program's own JSON with a field `log`.
fn docker_tail(tail: &[u8]) -> Option<(Option<TimeMs>, OutputStream)> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct DockerTail<'a> {
        #[serde(borrow)]
        stream: Option<&'a str>,
        #[serde(borrow)]
        time: Option<&'a str>,
        #[serde(rename = "attrs")]
        _attrs: Option<serde::de::IgnoredAny>,
    }
    let members = tail.strip_prefix(b",")?;
    let mut object = Vec::with_capacity(members.len() + 1);
    object.push(b'{');
    object.extend_from_slice(members);
    let tail: DockerTail<'_> = serde_json::from_slice(&object).ok()?;
    let stream = match tail.stream {
        Some("stdout") => OutputStream::Stdout,
        Some("stderr") => OutputStream::Stderr,
        _ => OutputStream::None,
    };
    Some((tail.time.and_then(time::parse), stream))
}

/// Position of the closing quote, or the length of `body` if there is none.
fn string_end(body: &[u8]) -> usize {
    let mut at = 0;
    while let Some(next) = memchr2(b'"', b'\\', &body[at.min(body.len())..]) {
        if body[at + next] == b'"' {
            return at + next;
        }
        at += next + 2;
    }
    body.len()
}

/// Decodes JSON escapes. An unknown escape loses its backslash, and its character is kept.
fn unescape(text: &[u8]) -> Cow<'_, [u8]> {
    if memchr(b'\\', text).is_none() {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        let escape = &rest[at..];
        let (byte, length) = match escape.get(1) {
            Some(b'n') => (b'\n', 2),
            Some(b'r') => (b'\r', 2),
            Some(b't') => (b'\t', 2),
            Some(b'b') => (8, 2),
            Some(b'f') => (12, 2),
            Some(b'u') => {
                let (character, length) = unicode_escape(escape);
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                rest = &escape[length..];
                continue;
            }
            Some(other) => (*other, 2),
            None => (b'\\', 1),
        };
        out.push(byte);
        rest = &escape[length..];
    }
    out.extend_from_slice(rest);
    Cow::Owned(out)
}

/// Decodes `\u00e9` or a surrogate pair, and returns its length. Half a pair or invalid digits
/// become the replacement character.
fn unicode_escape(escape: &[u8]) -> (char, usize) {
    let unit = |at: usize| -> Option<u16> {
        let digits = escape.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
    };
    let Some(first) = unit(0) else { return (char::REPLACEMENT_CHARACTER, 2) };
    if let Some(character) = char::from_u32(u32::from(first)) {
        return (character, 6);
    }
    match unit(6).map(|second| char::decode_utf16([first, second]).next()) {
        Some(Some(Ok(character))) => (character, 12),
        _ => (char::REPLACEMENT_CHARACTER, 6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, text: &str, stream: OutputStream, partial: bool) {
        let unwrapped = unwrap_line(line.as_bytes());
        let found = (String::from_utf8_lossy(&unwrapped.text), unwrapped.stream, unwrapped.partial);
        assert_eq!(found, (text.into(), stream, partial), "{line}");
        assert_eq!(unwrapped.time.is_some(), line.contains("2026-"), "{line}");
    }

    #[test]
    fn takes_off_cri() {
        check("2026-06-25T13:37:04.123456789Z stderr F lock lost", "lock lost", OutputStream::Stderr, false);
        check("2026-06-25T13:37:04+02:00 stdout P  lo", " lo", OutputStream::Stdout, true);
        check("2026-06-25T13:37:04Z stdout F:tag x", "x", OutputStream::Stdout, false);
        check("2026-06-25T13:37:04Z stdout F ", "", OutputStream::Stdout, false);
        check("2026-06-25T13:37:04Z stdout F", "", OutputStream::Stdout, false);
    }

    #[test]
    fn takes_off_docker() {
        let end = r#"","stream":"stderr","time":"2026-06-25T13:37:04.1Z"}"#;
        check(&format!(r#"{{"log":"lock lost\n{end}"#), "lock lost", OutputStream::Stderr, false);
        check(&format!(r#"{{"log":"lock {end}"#), "lock ", OutputStream::Stderr, true);
        check(&format!(r#"{{"log":"dir\\n{end}"#), "dir\\n", OutputStream::Stderr, true);
        check(
            &format!(r#"{{"log":"a \"b\" \u2014 \ud83d\ude00 \\n\t\n{end}"#),
            "a \"b\" — 😀 \\n\t",
            OutputStream::Stderr,
            false,
        );
        check(&format!(r#"{{"log":"\ud83d \u12 \n{end}"#), "\u{fffd} \u{fffd}12 ", OutputStream::Stderr, false);
        check(
            r#"{"log":"x\n","stream":"stdout","attrs":{"tag":"t"},"time":"2026-06-25T13:37:04Z"}"#,
            "x",
            OutputStream::Stdout,
            false,
        );
        check(r#"{"log":"a long lin"#, "a long lin", OutputStream::None, false);
    }

    #[test]
    fn leaves_other_lines_alone() {
        for line in [
            "",
            "{",
            "12 stderr F x",
            "soon stderr F x",
            r#"{"log":"x","level":"warn"}"#,
            r#"{"log":"x"}"#,
            r#"{"msg":"x","stream":"stdout"}"#,
        ] {
            let unwrapped = unwrap_line(line.as_bytes());
            assert_eq!(unwrapped.text, Cow::Borrowed(line.as_bytes()), "{line}");
            assert!(matches!(unwrapped.text, Cow::Borrowed(_)));
            assert_eq!((unwrapped.stream, unwrapped.partial), (OutputStream::None, false), "{line}");
        }
    }
}
