//! Parses the labels of a stream in Prometheus syntax: `{job="cordum", host="a\"b"}`.
//!
//! `protobuf` calls [`parse`]; JSON requests contain labels as objects. A request with malformed
//! labels is refused.

use super::{LabelPairs, Malformed, PushLimits};

const NOT_LABELS: Malformed = Malformed("the labels of a stream are not of the form {name=\"value\"}");

/// Returns the labels in the order of their names.
pub(super) fn parse(text: &str, limits: &mut PushLimits) -> Result<Vec<(String, String)>, Malformed> {
    let inner = text.trim().strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    let mut rest = inner.ok_or(NOT_LABELS)?.trim();
    let mut labels = LabelPairs::default();
    while !rest.is_empty() {
        let (name, value, after) = label(rest).ok_or(NOT_LABELS)?;
        labels.add(name.to_owned(), value, limits)?;
        rest = match after.strip_prefix(',') {
            Some(next) => next.trim_start(),
            None if after.is_empty() => after,
            None => return Err(NOT_LABELS),
        };
    }
    Ok(labels.in_order())
}

/// Returns the first label's name and value, and the remaining text.
fn label(text: &str) -> Option<(&str, String, &str)> {
    let (name, value) = text.split_once('=')?;
    let name = name.trim();
    if name.is_empty() || name.contains(['"', ',', '{', '}']) {
        return None;
    }
    let (value, after) = quoted(value.trim_start())?;
    Some((name, value, after.trim_start()))
}

/// Returns the value of a quoted Go string, and the remaining text.
fn quoted(text: &str) -> Option<(String, &str)> {
    if let Some(raw) = text.strip_prefix('`') {
        let (value, after) = raw.split_once('`')?;
        return Some((value.to_owned(), after));
    }
    let mut rest = text.strip_prefix('"')?;
    let mut bytes = Vec::new();
    loop {
        let next = rest.chars().next()?;
        rest = &rest[next.len_utf8()..];
        match next {
            '"' => break,
            '\\' => rest = escape(rest, &mut bytes)?,
            character => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Some((String::from_utf8_lossy(&bytes).into_owned(), rest))
}

/// Decodes the escape sequence after a backslash into `bytes`. Returns the remaining text.
fn escape<'a>(text: &'a str, bytes: &mut Vec<u8>) -> Option<&'a str> {
    let kind = text.chars().next()?;
    let rest = &text[kind.len_utf8()..];
    let digits = |from: &'a str, length: usize, radix: u32| -> Option<(u32, &'a str)> {
        let number = from.get(..length).filter(|digits| !digits.starts_with('+'))?;
        Some((u32::from_str_radix(number, radix).ok()?, &from[length..]))
    };
    let (byte, rest) = match kind {
        'a' => (7, rest),
        'b' => (8, rest),
        'f' => (12, rest),
        'n' => (b'\n', rest),
        'r' => (b'\r', rest),
        't' => (b'\t', rest),
        'v' => (11, rest),
        '\\' | '"' | '\'' => (kind as u8, rest),
        'x' => digits(rest, 2, 16).map(|(number, rest)| (number as u8, rest))?,
        '0'..='7' => {
            let (number, rest) = digits(text, 3, 8)?;
            (u8::try_from(number).ok()?, rest)
        }
        'u' | 'U' => {
            let (number, rest) = digits(rest, if kind == 'u' { 4 } else { 8 }, 16)?;
            let character = char::from_u32(number)?;
            bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            return Some(rest);
        }
        _ => return None,
    };
    bytes.push(byte);
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<&[(&str, &str)]>) {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let expected = expected.map(|labels| labels.iter().map(owned).collect()).ok_or(NOT_LABELS);
        assert_eq!(parse(text, &mut PushLimits::default()), expected, "{text}");
    }

    #[test]
    fn labels_come_in_order_with_their_escapes_undone() {
        check("{}", Some(&[]));
        check(r#" { job = "b" , app="a",} "#, Some(&[("app", "a"), ("job", "b")]));
        check(r#"{a="x\"y\\z\n\t\x41\u00e9\101,}"}"#, Some(&[("a", "x\"y\\z\n\tA\u{e9}A,}")]));
        check("{a=`raw\"\\`}", Some(&[("a", "raw\"\\")]));
        check("{a=\"é\"}", Some(&[("a", "é")]));
    }

    #[test]
    fn what_is_something_else_is_nothing() {
        for text in [
            "",
            "job",
            "{job}",
            "{job=}",
            "{job=x}",
            r#"{job="x"#,
            r#"{job="x}"#,
            r#"{="x"}"#,
            r#"{a="x" b="y"}"#,
            r#"{a="\q"}"#,
            r#"{a="\x4"}"#,
            r#"{a="\u+123"}"#,
            r#"{a="\ud800"}"#,
            r#"{a="\777"}"#,
            "{a=\"\\é\"}",
        ] {
            check(text, None);
        }
    }
}
