//! Percent encoding of URLs.
//!
//! The API and the HTTP client decode with it. Queries to Prometheus and `healthcheck` encode with
//! it. Only decoding can fail.

/// Encodes all bytes except the characters that RFC 3986 calls unreserved.
pub(crate) fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => encoded.push(byte.into()),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// Returns `None` unless the text is percent-encoded UTF-8.
pub(crate) fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |index: usize| char::from(*after.get(index)?).to_digit(16);
        bytes.push((digit(0)? * 16 + digit(1)?) as u8);
        rest = &after[2..];
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_encoding() {
        let check =
            |text: &str, expected: Option<&str>| assert_eq!(percent_decode(text).as_deref(), expected, "{text}");
        check("", Some(""));
        check("lock%3Aa%2fb+%C3%BC", Some("lock:a/b+ü"));
        for bad in ["%", "%4", "%zz", "a%-1", "%ff", "%+1"] {
            check(bad, None);
        }
    }

    #[test]
    fn queries_are_encoded() {
        assert_eq!(percent_encode("a{b=~\"c|d\"}[7d]"), "a%7Bb%3D~%22c%7Cd%22%7D%5B7d%5D");
    }
}
