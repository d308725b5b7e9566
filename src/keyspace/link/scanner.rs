//! One pass over the keyspace: where it is and what it has seen.
//!
//! `SCAN` shows every key that is there from the begin of a pass to its end at least once. Its keys are read before the next
//! step, so that a pass is complete when the cursor is back at 0 and nothing it found waits to be read.

use std::time::Duration;

use redis::Value;
use tokio::time::Instant;

use super::owner;
use crate::util::clock::TimeMs;

/// Where the cursor begins and ends.
const ORIGIN: &[u8] = b"0";

#[derive(Debug)]
pub(super) struct Pass {
    /// Tells the replies of this pass from those of one that was given up.
    pub(super) number: u64,
    pub(super) started: TimeMs,
    pub(super) started_at: Instant,
    cursor: Vec<u8>,
    state: PassState,
    /// Buckets of the hash table that were asked for so far.
    visited: u64,
    /// Keys in the database, once known.
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
    /// All keys are listed; the last ones are being read.
    Listed,
}

/// A reply that is none to `SCAN`, with what the server said.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotAStep(pub(super) String);

impl Pass {
    pub(super) fn new(number: u64, started: TimeMs, started_at: Instant) -> Self {
        let (cursor, state) = (ORIGIN.to_vec(), PassState::Ready);
        Self { number, started, started_at, cursor, state, visited: 0, size: None, keys: 0, lock_keys: 0 }
    }

    /// The next step may be asked for.
    pub(super) fn is_ready(&self) -> bool {
        self.state == PassState::Ready
    }

    pub(super) fn is_listed(&self) -> bool {
        self.state == PassState::Listed
    }

    /// The cursor to ask with.
    pub(super) fn ask(&mut self, count: u32) -> &[u8] {
        self.state = PassState::Asked { count };
        &self.cursor
    }

    pub(super) fn set_size(&mut self, size: u64) {
        self.size = Some(size);
    }

    /// The keys that a step listed.
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

    /// From 0 to 1. `SCAN` visits buckets, of which there are as many as keys, rounded up to a power of two.
    pub(super) fn progress(&self) -> Option<f64> {
        let buckets = self.size?.next_power_of_two();
        Some((self.visited as f64 / buckets as f64).min(1.0))
    }

    /// Keys in the database, or at least those that were listed.
    pub(super) fn keys_seen(&self) -> u64 {
        self.size.unwrap_or(0).max(self.keys)
    }
}

/// When passes begin.
#[derive(Debug)]
pub(super) struct Timetable {
    /// From the begin of one to the begin of the next.
    interval: Duration,
    /// The least time from one begin to the next when a pass has to make good what was skipped.
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

    /// Nothing is known any more: as soon as possible.
    pub(super) fn at_once(&mut self, now: Instant) {
        self.next = now;
    }

    /// A pass failed.
    pub(super) fn after(&mut self, pause: Duration, now: Instant) {
        self.next = self.next.min(now + pause);
    }

    /// Something was skipped.
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
