//! The clocks, in the one unit the program uses.

use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::event::TimeMs;

pub fn now() -> TimeMs {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_millis() as TimeMs)
}

/// A clock that never steps: the wall clock at the first call, and what has passed since. Deadlines of locks are kept in
/// it, for a corrected wall clock must not make a lock expire.
pub fn steady() -> TimeMs {
    static START: LazyLock<(Instant, TimeMs)> = LazyLock::new(|| (Instant::now(), now()));
    START.1 + START.0.elapsed().as_millis() as TimeMs
}

/// As RFC 3339. Nothing for a time that no calendar has.
pub fn format(time: TimeMs) -> Option<String> {
    jiff::Timestamp::from_millisecond(time).ok().map(|time| time.to_string())
}
