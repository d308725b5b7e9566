//! Parses and formats durations (`1m30s`) and sizes (`64KiB`) as people write them in the
//! configuration.

use std::time::Duration;

const DURATION_UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Help text for a duration that cannot be parsed.
pub(crate) const DURATION_HELP: &str = "write integers with a unit, large units first: 250ms, 2s, 10m, 1h, 7d, 1m30s";

/// Help text for a size that cannot be parsed.
pub(crate) const SIZE_HELP: &str = "write a number of bytes, or a number with KiB or MiB: 65536, 64KiB, 1MiB";

/// Parses `250ms`, `2s`, `10m`, `1h`, `7d` and concatenations, large units first and each at most
/// once.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut next_unit = 0;
    let mut total_ms: u64 = 0;
    while !rest.is_empty() {
        let (number, after_number) = split_number(rest)?;
        let n_letters = after_number.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after_number.len());
        let (unit, after_unit) = after_number.split_at(n_letters);
        let position = DURATION_UNITS[next_unit..].iter().position(|(name, _)| *name == unit)?;
        let (_, unit_ms) = DURATION_UNITS[next_unit + position];
        total_ms = total_ms.checked_add(number.checked_mul(unit_ms)?)?;
        next_unit += position + 1;
        rest = after_unit;
    }
    (!text.is_empty()).then(|| Duration::from_millis(total_ms))
}

/// Parses `65536`, `64KiB` or `1MiB`.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = split_number(text)?;
    let factor = match unit {
        "" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => return None,
    };
    number.checked_mul(factor)
}

/// Returns the shortest text for a duration.
pub(crate) fn format_duration(duration: Duration) -> String {
    let mut rest = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut text = String::new();
    for (unit, unit_ms) in DURATION_UNITS {
        let number = rest / unit_ms;
        if number > 0 {
            text += &format!("{number}{unit}");
        }
        rest %= unit_ms;
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// Returns the shortest text for a size.
pub(crate) fn format_size(bytes: u64) -> String {
    for (unit, factor) in [("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes > 0 && bytes.is_multiple_of(factor) {
            return format!("{}{unit}", bytes / factor);
        }
    }
    bytes.to_string()
}

fn split_number(text: &str) -> Option<(u64, &str)> {
    let n_digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(n_digits);
    Some((digits.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        fn check(text: &str, expected_ms: Option<u64>) {
            assert_eq!(parse_duration(text), expected_ms.map(Duration::from_millis), "{text}");
        }
        check("250ms", Some(250));
        check("0s", Some(0));
        check("1m30s", Some(90_000));
        check("7d", Some(604_800_000));
        check("1d2h3m4s5ms", Some(93_784_005));
        for bad in ["", "5", "s", "5 s", "1.5s", "-1s", "30s1m", "1s1s", "5sec", "5M", "1m30", "99999999999999999999s"]
        {
            check(bad, None);
        }
        check("18446744073709551615d", None);
    }

    #[test]
    fn durations_are_written_as_they_are_read() {
        for text in ["0s", "250ms", "2s", "1m30s", "1d2h3m4s5ms"] {
            assert_eq!(format_duration(parse_duration(text).unwrap()), text);
        }
    }

    #[test]
    fn sizes() {
        fn check(text: &str, expected: Option<u64>) {
            assert_eq!(parse_size(text), expected, "{text}");
        }
        check("0", Some(0));
        check("65536", Some(65_536));
        check("64KiB", Some(65_536));
        check("1MiB", Some(1 << 20));
        for bad in ["", "KiB", "1 MiB", "1MB", "1mib", "-1", "99999999999999999999", "18446744073709551615MiB"] {
            check(bad, None);
        }
        assert_eq!(format_size(1 << 20), "1MiB");
        assert_eq!(format_size(1500), "1500");
    }
}
