//! Percent encoding of URLs.
//!
//! The API, the HTTP client and the URL of Redis decode with it. Queries to Prometheus and
//! `healthcheck` encode with it. Only decoding can fail: unlike the crate, it accepts no `%`
//! without two digits, because such a text was probably not encoded at all.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use thiserror::Error;

/// All characters except those that RFC 3986 calls unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum PercentError {
    #[error("a % without two hexadecimal digits")]
    BadEscape,
    #[error("not UTF-8")]
    NotUtf8,
}

pub(crate) fn percent_encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

pub(crate) fn percent_decode(text: &str) -> Result<String, PercentError> {
    let has_digits = |escape: &str| escape.len() >= 2 && escape.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    if !text.split('%').skip(1).all(has_digits) {
        return Err(PercentError::BadEscape);
    }
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| PercentError::NotUtf8)?;
    Ok(decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding() {
        for (text, expected) in
            [("", Ok("")), ("lock%3Aa%2fb+%C3%BC", Ok("lock:a/b+ü")), ("%ff", Err(PercentError::NotUtf8))]
        {
            assert_eq!(percent_decode(text), expected.map(str::to_owned), "{text}");
        }
        for bad in ["%", "%4", "%zz", "a%-1", "%+1", "%%41", "%é"] {
            assert_eq!(percent_decode(bad), Err(PercentError::BadEscape), "{bad}");
        }
    }

    #[test]
    fn encoding() {
        assert_eq!(percent_encode("a{b=~\"c|d\"}[7d]-_.é"), "a%7Bb%3D~%22c%7Cd%22%7D%5B7d%5D-_.%C3%A9");
    }
}
