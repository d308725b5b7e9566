//! Parses records that are not JSON: logfmt as slog writes it, Cordum's text format, and plain
//! text. Called by `line`. Nothing here can fail, and all functions are linear in the length of the
//! text.
//!
//! Cordum writes `[COMPONENT] LEVEL message k=v k=v` and quotes nothing, so a value extends to the
//! next ` name=`.

use std::sync::LazyLock;

use regex::Regex;

/// Limit on the pairs of a record, more than real records have.
const MAX_PAIRS: usize = 4096;
/// Limit on the start of Cordum's bracket, because a log shipper may put text before it.
const MAX_PREFIX: usize = 128;

/// Names and values, in the order of the line.
pub(super) type LogfmtPairs = Vec<(String, String)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quoting {
    /// Values may be quoted as in Go: `k="v \"v\""`.
    Go,
    /// A quote is an ordinary character.
    None,
}

/// `[COMPONENT] LEVEL message k=v`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bracketed<'a> {
    /// Position of the bracket.
    pub(super) start: usize,
    pub(super) message: &'a str,
    /// The first two are `component` and `level`.
    pub(super) pairs: LogfmtPairs,
}

pub(super) fn bracketed(text: &str) -> Option<Bracketed<'_>> {
    static HEAD: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"\[([A-Z0-9][A-Z0-9 _./-]{0,62})\] (DEBUG|INFO|WARN|ERROR)(?:[+-]\d+)? ")
            .expect("a constant that a test compiles")
    });
    let captures = HEAD.captures(head(text, 2 * MAX_PREFIX))?;
    let whole = captures.get(0).filter(|whole| whole.start() <= MAX_PREFIX)?;
    let (message, attributes) = split_pairs(&text[whole.end()..], Quoting::None);
    let mut pairs =
        vec![("component".to_owned(), captures[1].to_lowercase()), ("level".to_owned(), captures[2].to_owned())];
    pairs.extend(attributes);
    Some(Bracketed { start: whole.start(), message: message.trim_end(), pairs })
}

/// Parses `time=... level=WARN msg="..." k=v`: a line of pairs only, one of which is the message.
pub(super) fn logfmt(text: &str) -> Option<(String, LogfmtPairs)> {
    let (head, pairs) = split_pairs(text, Quoting::Go);
    if !head.is_empty() {
        return None;
    }
    let message = ["msg", "message", "event"]
        .iter()
        .find_map(|name| pairs.iter().rev().find(|(key, _)| key == name))
        .map(|(_, value)| value.clone())?;
    Some((message, pairs))
}

/// Parses `warn: Some.Category[0]`, the first line of a record of the .NET console logger. Returns
/// the level and the category. The message is on the next line.
pub(super) fn dotnet_head(message: &str) -> Option<(String, String)> {
    static HEAD: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^(trce|dbug|info|warn|fail|crit): (\S.*)\[\d+\]$").expect("a constant that a test compiles")
    });
    let captures = HEAD.captures(message)?;
    Some((captures[1].to_owned(), captures[2].to_owned()))
}

/// Whether the message is a line of `git log` or quotes one: `1f2e3d4 Fix: some subject`,
/// `commit 1f2e3d4c5b6a: some subject`. Some programs start their lines with an id that resembles a
/// commit hash, so the word after a bare hash must be typical of a commit subject.
pub(super) fn is_commit(message: &str) -> bool {
    static COMMIT: LazyLock<Regex> = LazyLock::new(|| {
        let verbs = "[Aa]dd|[Cc]hange|[Ff]ix|[Hh]andle|[Ii]gnore|[Ll]og|[Mm]erge|[Rr]emove|[Rr]etry|[Rr]evert|[Tt]est|[Uu]pdate";
        let kinds = "build|chore|ci|docs|feat|perf|refactor|style";
        let form = format!(
            r"^(?:commit [0-9a-f]{{7,40}}\b|[0-9a-f]{{7,40}} (?:\([^)]*\) )?(?:{verbs}|{kinds})(?:\([^)]*\))?!?:? )"
        );
        Regex::new(&form).expect("a constant that a test compiles")
    });
    COMMIT.is_match(head(message, MAX_PREFIX))
}

/// Splits `some words k=v k=v` before the first pair. Linear in the length of the text.
pub(super) fn split_pairs(text: &str, quoting: Quoting) -> (&str, LogfmtPairs) {
    let mut pairs = LogfmtPairs::new();
    let Some(mut name) = next_name(text, 0) else { return (text, pairs) };
    let message = text[..name.start].trim_end();
    while pairs.len() < MAX_PAIRS {
        let value_start = name.end + 1;
        let quoted = match quoting {
            Quoting::Go => unquote(&text[value_start..]),
            Quoting::None => None,
        };
        let search_from = value_start + quoted.as_ref().map_or(0, |(_, length)| *length);
        let next = next_name(text, search_from);
        let value_end = next.as_ref().map_or(text.len(), |next| next.start);
        let value = match quoted {
            Some((value, length)) if text[value_start + length..value_end].trim().is_empty() => value,
            _ => text[value_start..value_end].trim_end().to_owned(),
        };
        pairs.push((text[name.start..name.end].to_owned(), value));
        match next {
            Some(next) => name = next,
            None => break,
        }
    }
    (message, pairs)
}

/// Finds the first `name=` at or after `from` that is at the start of the text or after a space or
/// tab.
fn next_name(text: &str, from: usize) -> Option<std::ops::Range<usize>> {
    let bytes = text.as_bytes();
    let mut start = if from == 0 { Some(0) } else { None };
    for (at, byte) in bytes.iter().enumerate().skip(from) {
        match byte {
            b' ' | b'\t' => start = Some(at + 1),
            b'=' => match start {
                Some(start) if at > start && !bytes[start].is_ascii_digit() => return Some(start..at),
                _ => start = None,
            },
            b'_' | b'.' | b'-' | b'@' => {}
            other if other.is_ascii_alphanumeric() => {}
            _ => start = None,
        }
    }
    None
}

/// Parses a string that is quoted as in Go. Returns it with its length in the text, including the
/// quotes.
fn unquote(text: &str) -> Option<(String, usize)> {
    let mut characters = text.char_indices();
    if characters.next()?.1 != '"' {
        return None;
    }
    let mut value = String::new();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, at + 1)),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                't' => value.push('\t'),
                'r' => value.push('\r'),
                'x' => value.push(hexadecimal(&mut characters, 2)),
                'u' => value.push(hexadecimal(&mut characters, 4)),
                'U' => value.push(hexadecimal(&mut characters, 8)),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

fn hexadecimal(characters: &mut std::str::CharIndices<'_>, digits: usize) -> char {
    let text: String = characters.by_ref().take(digits).map(|(_, digit)| digit).collect();
    u32::from_str_radix(&text, 16).ok().and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The first bytes of a text, at most `limit`, without splitting a character.
pub(super) fn head(text: &str, limit: usize) -> &str {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(message: &str, pairs: &LogfmtPairs) -> String {
        let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("{message}|{}", pairs.join("|"))
    }

    fn check(text: &str, expected: &str) {
        let found = bracketed(text).map(|found| shown(found.message, &found.pairs));
        assert_eq!(found.as_deref().unwrap_or_default(), expected, "{text}");
    }

    fn check_logfmt(text: &str, expected: &str) {
        let found = logfmt(text).map(|(message, pairs)| shown(&message, &pairs));
        assert_eq!(found.as_deref().unwrap_or_default(), expected, "{text}");
    }

    #[test]
    fn reads_bracketed_text() {
        check(
            "[SCHEDULER] WARN job lock renewal failed job_id=7c attempt=1 error=lock not owned",
            "job lock renewal failed|component=scheduler|level=WARN|job_id=7c|attempt=1|error=lock not owned",
        );
        check(
            "scheduler-1  | [WORKFLOW-ENGINE] ERROR+2 no lock — alone component=workflow error=a: b=c \"d",
            "no lock — alone|component=workflow-engine|level=ERROR|component=workflow|error=a:|b=c \"d",
        );
        check("[GATEWAY] INFO done", "done|component=gateway|level=INFO");
        check("[GATEWAY] INFO x a= b=", "x|component=gateway|level=INFO|a=|b=");
        check("[gateway] INFO done", "");
        check("[GATEWAY] done", "");
        check("[GATEWAY] INFO", "");
        check(&format!("{}[GATEWAY] INFO done", "é".repeat(65)), "");
    }

    #[test]
    fn reads_logfmt() {
        check_logfmt(
            r#"time=2026-06-25T13:37:04Z level=WARN msg="lock \"a\" lost" k="v v" n=1"#,
            r#"lock "a" lost|time=2026-06-25T13:37:04Z|level=WARN|msg=lock "a" lost|k=v v|n=1"#,
        );
        check_logfmt("level=warn msg=lock lost err=x", "lock lost|level=warn|msg=lock lost|err=x");
        check_logfmt(r#"msg="a k=v b" k=w"#, "a k=v b|msg=a k=v b|k=w");
        check_logfmt(r#"msg="\u2014\x41\n" k="cut off"#, "—A\n|msg=—A\n|k=\"cut off");
        check_logfmt("level=warn k=v", "");
        check_logfmt("lost msg=x", "");
        check_logfmt("", "");
    }

    #[test]
    fn knows_commits() {
        for (message, expected) in [
            ("1f2e3d4 Fix: Cannot release a lock that's no longer owned", true),
            ("1f2e3d4c (HEAD -> main) fix(lock): lock not owned", true),
            ("commit 1f2e3d4c5b6a: lock not owned", true),
            ("commit failed: lock not owned", false),
            ("1f2e3d4 lock not owned", false),
            ("deadbeef ERROR lock not owned", false),
        ] {
            assert_eq!(is_commit(message), expected, "{message}");
        }
    }

    #[test]
    fn finds_pairs_after_words_only() {
        let found = |text| split_pairs(text, Quoting::Go).0.to_owned();
        assert_eq!(found("lock lost id=7"), "lock lost");
        assert_eq!(found("a == b, x+y=z http://h/?q=1 5=6"), "a == b, x+y=z http://h/?q=1 5=6");
        assert_eq!(found(""), "");
    }

    #[test]
    fn is_linear_on_hostile_text() {
        for text in ["a=\"", "a =", " a=\"b\\", "=", " "] {
            let long = text.repeat(300_000);
            let _ = (split_pairs(&long, Quoting::Go), split_pairs(&long, Quoting::None), bracketed(&long));
        }
    }
}
