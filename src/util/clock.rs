//! The clocks of the program, and times as text for people.
//!
//! All times are in milliseconds. Log lines use the wall clock; locks use the steady clock.

use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Milliseconds since the Unix epoch.
pub type TimeMs = i64;

pub fn now() -> TimeMs {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_millis() as TimeMs)
}

/// A clock that never jumps: the wall clock at the first call plus the time that has passed since.
/// Deadlines of locks use this clock, because a correction of the wall clock must not make a lock
/// expire.
pub fn steady() -> TimeMs {
    static START: LazyLock<(Instant, TimeMs)> = LazyLock::new(|| (Instant::now(), now()));
    START.1 + START.0.elapsed().as_millis() as TimeMs
}

/// Formats a time as RFC 3339. Returns `None` for a time outside the supported range of years.
pub fn format(time: TimeMs) -> Option<String> {
    jiff::Timestamp::from_millisecond(time).ok().map(|time| time.to_string())
}

/// Formats a time span for people: tenths of a second only below 10 s, and at most two units.
pub fn span(time: TimeMs) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
