//! The wall clock, in the one unit the program uses.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::event::TimeMs;

pub fn now() -> TimeMs {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_millis() as TimeMs)
}

/// As RFC 3339. Nothing for a time that no calendar has.
pub fn format(time: TimeMs) -> Option<String> {
    jiff::Timestamp::from_millisecond(time).ok().map(|time| time.to_string())
}
