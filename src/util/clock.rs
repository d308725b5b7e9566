//! The clocks of the program.
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
