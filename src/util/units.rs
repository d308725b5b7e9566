//! Parses and formats durations (`1m30s`) and sizes (`64KiB`) as people write them in the
//! configuration, and formats durations for sentences (`1 min 30 s`).

use std::time::Duration;

use super::clock::TimeMs;

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

/// Formats a duration as in the configuration, but with tenths of seconds: `7.5s`.
pub(crate) fn brief(duration: Duration) -> String {
    let tenths = (duration.as_secs_f64() * 10.0).round() as u64;
    match tenths {
        ..10 => format_duration(duration),
        10..600 if !tenths.is_multiple_of(10) => format!("{}.{}s", tenths / 10, tenths % 10),
        _ => format_duration(Duration::from_secs((tenths + 5) / 10)),
    }
}

/// Formats a time span for people: tenths of a second only below 10 s, and at most two units.
pub(crate) fn span(time: TimeMs) -> String {
    let time = time.max(0);
    let seconds = time / 1000;
    match seconds {
        0..10 => match format!("{:.1}", time as f64 / 1000.0) {
            short if short.ends_with(".0") => format!("{} s", short.trim_end_matches(".0")),
            short => format!("{short} s"),
        },
        10..120 => format!("{} s", (time + 500) / 1000),
        120..7_200 => two_units(seconds, (60, "min"), (1, "s")),
        7_200..172_800 => two_units(seconds, (3_600, "h"), (60, "min")),
        _ => two_units(seconds, (86_400, "d"), (3_600, "h")),
    }
}

fn two_units(seconds: TimeMs, (large, large_name): (TimeMs, &str), (small, small_name): (TimeMs, &str)) -> String {
    match seconds % large / small {
        0 => format!("{} {large_name}", seconds / large),
        rest => format!("{} {large_name} {rest} {small_name}", seconds / large),
    }
}

/// Returns a duration as metrics and JSON show it.
pub(crate) fn seconds(duration: Option<Duration>) -> Option<f64> {
    duration.map(|duration| duration.as_secs_f64())
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
    fn spans_as_people_say_them() {
        for (milliseconds, expected) in [
            (0, "0 s"),
            (49, "0 s"),
            (2_060, "2.1 s"),
            (3_000, "3 s"),
            (9_990, "10 s"),
            (41_400, "41 s"),
            (119_600, "120 s"),
            (120_000, "2 min"),
            (200_000, "3 min 20 s"),
            (7_260_000, "2 h 1 min"),
            (180_000_000, "2 d 2 h"),
        ] {
            assert_eq!(span(milliseconds), expected, "{milliseconds}");
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
