//! Parses timestamps in logs: RFC 3339 and similar forms, and epoch numbers. A date without a time
//! zone is interpreted as UTC. Text that is not a timestamp gives `None`.

use crate::util::clock::TimeMs;

/// Parses a complete value: a date with a time, or a number of seconds, milliseconds, microseconds
/// or nanoseconds since the epoch.
pub(super) fn parse(text: &str) -> Option<TimeMs> {
    let text = text.trim();
    match leading(text) {
        Some((time, end)) if end == text.len() => Some(time),
        _ => epoch(text),
    }
}

/// Parses a date with a time at the start of a text. Returns the time and the length of the parsed
/// text.
pub(super) fn leading(text: &str) -> Option<(TimeMs, usize)> {
    let mut reader = TimeParser { bytes: text.as_bytes(), at: 0 };
    let year = reader.digits(4)?;
    let separator = reader.one_of(b"-/")?;
    let month = reader.digits(2).filter(|month| (1..=12).contains(month))?;
    reader.one_of(&[separator])?;
    let day = reader.digits(2).filter(|day| (1..=31).contains(day))?;
    reader.one_of(b"Tt ")?;
    let hour = reader.digits(2).filter(|hour| *hour < 24)?;
    reader.one_of(b":")?;
    let minute = reader.digits(2).filter(|minute| *minute < 60)?;
    reader.one_of(b":")?;
    let second = reader.digits(2).filter(|second| *second <= 60)?;
    let millis = reader.fraction();
    let offset_minutes = reader.zone();
    let days = days_since_epoch(year, month, day);
    let seconds = ((days * 24 + hour) * 60 + minute - offset_minutes) * 60 + second;
    Some((seconds * 1000 + millis, reader.at))
}

/// The size of the number determines its unit: seconds have at most 11 digits until the year 5138.
fn epoch(text: &str) -> Option<TimeMs> {
    let number: f64 = text.parse().ok()?;
    // Smaller numbers are durations or counters, not dates.
    if !(1e8..1e20).contains(&number) {
        return None;
    }
    let millis = match number {
        n if n < 1e11 => n * 1e3,
        n if n < 1e14 => n,
        n if n < 1e17 => n / 1e3,
        n => n / 1e6,
    };
    Some(millis.floor() as TimeMs)
}

struct TimeParser<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl TimeParser<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn one_of(&mut self, accepted: &[u8]) -> Option<u8> {
        let byte = self.peek().filter(|byte| accepted.contains(byte))?;
        self.at += 1;
        Some(byte)
    }

    fn digits(&mut self, count: usize) -> Option<i64> {
        let digits = self.bytes.get(self.at..self.at + count)?;
        let mut number = 0;
        for digit in digits {
            if !digit.is_ascii_digit() {
                return None;
            }
            number = number * 10 + i64::from(digit - b'0');
        }
        self.at += count;
        Some(number)
    }

    /// Parses `.123456789` or `,123` and returns milliseconds, or 0 if there is no fraction.
    fn fraction(&mut self) -> i64 {
        let start = self.at;
        if self.one_of(b".,").is_none() {
            return 0;
        }
        let mut millis = 0;
        let mut scale = 100;
        while let Some(digit) = self.peek().filter(u8::is_ascii_digit) {
            millis += i64::from(digit - b'0') * scale;
            scale /= 10;
            self.at += 1;
        }
        if self.at == start + 1 {
            self.at = start;
        }
        millis
    }

    /// Parses `Z`, ` UTC`, `+02:00`, `+0200` or ` +0200`, and returns minutes east of UTC, or 0 if
    /// there is no zone.
    fn zone(&mut self) -> i64 {
        let start = self.at;
        if self.one_of(b"Zz").is_some() {
            return 0;
        }
        let _ = self.one_of(b" ");
        if self.bytes[self.at..].starts_with(b"UTC") {
            self.at += 3;
            return 0;
        }
        match self.signed_offset() {
            Some(minutes) => minutes,
            None => {
                self.at = start;
                0
            }
        }
    }

    fn signed_offset(&mut self) -> Option<i64> {
        let sign = if self.one_of(b"+-")? == b'-' { -1 } else { 1 };
        let hours = self.digits(2).filter(|hours| *hours < 24)?;
        let _ = self.one_of(b":");
        let minutes = self.digits(2).filter(|minutes| *minutes < 60)?;
        Some(sign * (hours * 60 + minutes))
    }
}

/// Days since 1970-01-01 in the Gregorian calendar. The calculation starts the year in March, so
/// that the leap day is the last day of the year.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<TimeMs>) {
        assert_eq!(parse(text), expected, "{text}");
    }

    const EXPECTED: Option<TimeMs> = Some(1_782_394_624_123);

    #[test]
    fn reads_dates() {
        check("1970-01-01T00:00:00Z", Some(0));
        check("2000-02-29T12:00:00Z", Some(951_825_600_000));
        check("2026-06-25T13:37:04.123456789Z", EXPECTED);
        check("2026-06-25T15:37:04.123+02:00", EXPECTED);
        check("2026-06-25 09:07:04.1239 -0430", EXPECTED);
        check("2026-06-25 13:37:04,123", EXPECTED);
        check("2026/06/25 13:37:04.123", EXPECTED);
        check("2026-06-25 13:37:04.123 UTC", EXPECTED);
    }

    #[test]
    fn reads_epoch_numbers_by_size() {
        check("1782394624.123", EXPECTED);
        check("1782394624123", EXPECTED);
        check("1782394624123456", EXPECTED);
        check("1782394624123456789", EXPECTED);
        check("12.5", None);
    }

    #[test]
    fn refuses_other_text() {
        for text in ["", "2026", "2026-13-01T00:00:00Z", "2026-06-25", "2026-06-25T13:37", "NaN", "inf", "yesterday"] {
            check(text, None);
        }
        check("2026-06-25T13:37:04Z and more", None);
    }

    #[test]
    fn says_how_much_it_read() {
        assert_eq!(leading("2026-06-25T13:37:04Z lock"), Some((1_782_394_624_000, 20)));
        assert_eq!(leading("2026-06-25 13:37:04. lock"), Some((1_782_394_624_000, 19)));
        assert_eq!(leading("2026-06-25 13:37:04 - lock"), Some((1_782_394_624_000, 19)));
    }
}
