//! One pass over the keyspace, and the schedule of passes. `session` owns both.
//!
//! `SCAN` lists every key that exists during the complete pass at least once. The keys of a step
//! are read before the next step. So a pass is complete when the cursor is back at 0 and none of
//! its keys waits to be read.

use std::time::Duration;

use redis::Value;
use tokio::time::Instant;

use super::owner;
use crate::util::clock::TimeMs;

/// The cursor at the begin and at the end of a pass.
const ORIGIN: &[u8] = b"0";

#[derive(Debug)]
pub(super) struct Pass {
    /// Distinguishes the replies of this pass from those of a discarded pass.
    pub(super) number: u64,
    pub(super) started: TimeMs,
    pub(super) started_at: Instant,
    cursor: Vec<u8>,
    state: PassState,
    /// Hash table buckets visited so far: the sum of the `COUNT` arguments.
    visited: u64,
    /// Number of keys in the database, when known.
    size: Option<u64>,
    pub(super) keys: u64,
    pub(super) lock_keys: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PassState {
    Ready,
    Asked {
        count: u32,
    },
    /// All keys are listed. The last ones are being read.
    Listed,
}

/// A reply that is not a valid reply to `SCAN`, with the error text of the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotAStep(pub(super) String);

impl Pass {
    pub(super) fn new(number: u64, started: TimeMs, started_at: Instant) -> Self {
        let (cursor, state) = (ORIGIN.to_vec(), PassState::Ready);
        Self { number, started, started_at, cursor, state, visited: 0, size: None, keys: 0, lock_keys: 0 }
    }

    /// Whether the next step may be sent.
    pub(super) fn is_ready(&self) -> bool {
        self.state == PassState::Ready
    }

    pub(super) fn is_listed(&self) -> bool {
        self.state == PassState::Listed
    }

    /// Marks a step as sent. Returns its cursor.
    pub(super) fn ask(&mut self, count: u32) -> &[u8] {
        self.state = PassState::Asked { count };
        &self.cursor
    }

    pub(super) fn set_size(&mut self, size: u64) {
        self.size = Some(size);
    }

    /// Applies the reply to a step. Returns the keys that it listed.
    pub(super) fn step(&mut self, reply: Value) -> Result<Vec<Value>, NotAStep> {
        if let PassState::Asked { count } = self.state {
            self.visited += u64::from(count);
        }
        let mut parts = match reply {
            Value::Array(parts) if parts.len() == 2 => parts.into_iter(),
            Value::ServerError(error) => {
                return Err(NotAStep(format!("{} {}", error.code(), error.details().unwrap_or_default())));
            }
            _ => return Err(NotAStep("not a reply to SCAN".to_owned())),
        };
        let cursor = parts.next().as_ref().and_then(owner::bytes).map(<[u8]>::to_vec);
        let (Some(cursor), Some(Value::Array(keys))) = (cursor, parts.next()) else {
            return Err(NotAStep("not a reply to SCAN".to_owned()));
        };
        self.state = if cursor == ORIGIN { PassState::Listed } else { PassState::Ready };
        self.cursor = cursor;
        self.keys += keys.len() as u64;
        Ok(keys)
    }

    /// From 0 to 1. `SCAN` visits buckets. Their number is the number of keys, rounded up to a
    /// power of two.
    pub(super) fn progress(&self) -> Option<f64> {
        let buckets = self.size?.next_power_of_two();
        Some((self.visited as f64 / buckets as f64).min(1.0))
    }

    /// Number of keys in the database, or at least the number of listed keys.
    pub(super) fn keys_seen(&self) -> u64 {
        self.size.unwrap_or(0).max(self.keys)
    }
}

/// Decides when passes start.
#[derive(Debug)]
pub(super) struct Timetable {
    /// Time from the start of one pass to the start of the next.
    interval: Duration,
    /// Minimum time between the starts of two passes if the next pass must make up for skipped
    /// keys.
    hurried: Duration,
    last: Option<Instant>,
    pub(super) next: Instant,
}

impl Timetable {
    pub(super) fn new(interval: Duration, hurried: Duration, now: Instant) -> Self {
        Self { interval, hurried, last: None, next: now }
    }

    pub(super) fn began(&mut self, now: Instant) {
        self.last = Some(now);
        self.next = now + self.interval;
    }

    /// The locks are no longer known: the next pass starts as soon as possible.
    pub(super) fn at_once(&mut self, now: Instant) {
        self.next = now;
    }

    /// A pass failed: the next one starts after `pause` at the latest.
    pub(super) fn after(&mut self, pause: Duration, now: Instant) {
        self.next = self.next.min(now + pause);
    }

    /// Keys were skipped: the next pass starts earlier.
    pub(super) fn hurry(&mut self, now: Instant) {
        let soonest = self.last.map_or(now, |last| last + self.hurried).max(now);
        self.next = self.next.min(soonest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(cursor: &str, keys: &[&str]) -> Value {
        let text = |text: &&str| Value::BulkString(text.as_bytes().to_vec());
        Value::Array(vec![text(&cursor), Value::Array(keys.iter().map(text).collect())])
    }

    #[test]
    fn a_pass_ends_where_it_began() {
        let mut pass = Pass::new(1, 5, Instant::now());
        assert_eq!(pass.ask(16), b"0");
        assert!(!pass.is_ready());
        pass.set_size(100);
        assert_eq!(pass.step(step("17", &["a", "b"])).unwrap().len(), 2);
        assert_eq!(pass.progress(), Some(0.125));
        assert!(pass.is_ready());
        assert_eq!(pass.ask(16), b"17");
        assert_eq!(pass.step(step("0", &[])).unwrap().len(), 0);
        assert!(pass.is_listed() && !pass.is_ready());
        assert_eq!((pass.keys, pass.keys_seen()), (2, 100));
        assert!(pass.step(Value::Okay).is_err());
        let error = redis::parse_redis_value(b"-NOPERM no\r\n").unwrap();
        assert_eq!(pass.step(error).unwrap_err(), NotAStep("NOPERM no".to_owned()));
    }

    #[test]
    fn passes_are_due_in_time() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut timetable = Timetable::new(300 * second, 15 * second, start);
        assert_eq!(timetable.next, start);
        timetable.began(start);
        assert_eq!(timetable.next, start + 300 * second);
        timetable.hurry(start + second);
        assert_eq!(timetable.next, start + 15 * second);
        timetable.hurry(start + 20 * second);
        assert_eq!(timetable.next, start + 15 * second, "overdue already");
        timetable.at_once(start + 21 * second);
        assert_eq!(timetable.next, start + 21 * second);
    }
}
