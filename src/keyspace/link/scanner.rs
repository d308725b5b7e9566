//! Passes over the keyspace: when they start, how fast they go, and how far they are. `session` owns
//! the scanner, sends its steps and gives it the replies.
//!
//! `SCAN` lists every key that exists during the complete pass at least once. The keys of a step
//! are read before the next step. So a pass is complete when the cursor is back at 0 and none of
//! its keys waits to be read.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::time::Instant;

use super::connection::ResponseTime;
use super::owner;
use super::pace::ScanPacer;
use crate::keyspace::status::LastPass;
use crate::model::sighting::LinkEvent;
use crate::util::clock;
use crate::util::clock::TimeMs;

/// The cursor at the begin and at the end of a pass.
const ORIGIN: &[u8] = b"0";
/// Delay before the next pass after a pass has failed.
const FAILED_PASS_PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Scanner {
    pattern: Arc<str>,
    schedule: Schedule,
    pacer: ScanPacer,
    pass: Option<Pass>,
    passes_begun: u64,
    /// The last pass failed. The failure is not logged again.
    has_failed: bool,
}

/// The next step of a pass.
#[derive(Debug)]
pub(super) struct ScanStep {
    pass: PassNumber,
    cursor: Vec<u8>,
    count: String,
    pattern: Arc<str>,
}

/// Distinguishes the replies of a pass from those of a discarded pass.
pub(super) type PassNumber = u64;

#[derive(Debug)]
pub(super) struct Pass {
    number: PassNumber,
    started: TimeMs,
    started_at: Instant,
    cursor: Vec<u8>,
    state: PassState,
    /// Hash table buckets visited so far: the sum of the `COUNT` arguments.
    visited: u64,
    /// Number of keys in the database, when known.
    size: Option<u64>,
    keys: u64,
    lock_keys: u64,
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
pub(super) struct ScanError(String);

impl fmt::Display for ScanError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The requests whose replies were handled in one turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    steps: u32,
    reads: u32,
    scanned_reads: u32,
}

impl Work {
    pub(super) fn scan_step() -> Self {
        Self { steps: 1, ..Self::default() }
    }

    pub(super) fn read() -> Self {
        Self { reads: 1, ..Self::default() }
    }

    /// A read that is part of a pass.
    pub(super) fn scanned_read() -> Self {
        Self { scanned_reads: 1, ..Self::read() }
    }

    pub(super) fn add(&mut self, more: Self) {
        self.steps += more.steps;
        self.reads += more.reads;
        self.scanned_reads += more.scanned_reads;
    }
}

impl Scanner {
    /// `interval` is the time between the starts of two passes, and `shortest_interval` the minimum
    /// if the next pass must make up for skipped keys. Passes use at most `redis_share` of Redis's
    /// time.
    pub(super) fn new(
        pattern: String,
        interval: Duration,
        shortest_interval: Duration,
        redis_share: f64,
        now: Instant,
    ) -> Self {
        Self {
            pattern: pattern.into(),
            schedule: Schedule::new(interval, shortest_interval, now),
            pacer: ScanPacer::new(redis_share, now),
            pass: None,
            passes_begun: 0,
            has_failed: false,
        }
    }

    /// When the next pass is due. `None` during a pass.
    pub(super) fn next_pass(&self) -> Option<Instant> {
        self.pass.is_none().then_some(self.schedule.next)
    }

    pub(super) fn begin_pass(&mut self, now: Instant) {
        self.schedule.began(now);
        self.passes_begun += 1;
        self.pass = Some(Pass::new(self.passes_begun, clock::steady(), now));
    }

    /// Whether the pass waits for its next step.
    pub(super) fn is_ready_for_step(&self) -> bool {
        self.pass.as_ref().is_some_and(Pass::is_ready)
    }

    /// When steps and reads for a pass may be sent again without exceeding the share of Redis's
    /// time.
    pub(super) fn ready(&self) -> Instant {
        self.pacer.ready()
    }

    /// Returns the next step of the pass, if it may be sent now, and marks it as sent.
    pub(super) fn next_step(&mut self, now: Instant) -> Option<ScanStep> {
        if now < self.pacer.ready() {
            return None;
        }
        let count = self.pacer.count();
        let pass = self.pass.as_mut().filter(|pass| pass.is_ready())?;
        let cursor = pass.ask(count).to_vec();
        Some(ScanStep { pass: pass.number, cursor, count: count.to_string(), pattern: Arc::clone(&self.pattern) })
    }

    /// Applies the reply to a step. Returns the keys of locks that it listed.
    pub(super) fn take_reply(
        &mut self,
        number: PassNumber,
        reply: Value,
        is_lock: impl Fn(&str) -> bool,
    ) -> Result<Vec<Box<str>>, ScanError> {
        let Some(pass) = self.pass.as_mut().filter(|pass| pass.number == number) else { return Ok(Vec::new()) };
        let key = |value: Value| match value {
            // Keys of locks are UTF-8, because templates are.
            Value::BulkString(key) => {
                String::from_utf8(key).ok().filter(|key| is_lock(key)).map(String::into_boxed_str)
            }
            _ => None,
        };
        let keys: Vec<Box<str>> = pass.step(reply)?.into_iter().filter_map(key).collect();
        pass.lock_keys += keys.len() as u64;
        Ok(keys)
    }

    /// Whether the pass has listed all keys.
    pub(super) fn is_listed(&self) -> bool {
        self.pass.as_ref().is_some_and(Pass::is_listed)
    }

    pub(super) fn set_size(&mut self, size: u64) {
        if let Some(pass) = &mut self.pass {
            pass.size = Some(size);
        }
    }

    pub(super) fn progress(&self) -> Option<f64> {
        self.pass.as_ref().and_then(Pass::progress)
    }

    /// Ends a pass that has listed all keys. Call it when all of them have been read.
    pub(super) fn finish(&mut self) -> Option<Pass> {
        let pass = self.pass.take_if(|pass| pass.is_listed())?;
        self.has_failed = false;
        Some(pass)
    }

    /// Discards the current pass, because its results are no longer complete, and schedules a new
    /// one at once.
    pub(super) fn restart(&mut self, now: Instant) {
        self.pass = None;
        self.schedule.at_once(now);
    }

    /// Discards the current pass, because it cannot go on. Returns whether there was one.
    pub(super) fn fail(&mut self, now: Instant) -> bool {
        let was_under_way = self.pass.take().is_some();
        if was_under_way {
            self.schedule.after(FAILED_PASS_PAUSE, now);
        }
        was_under_way
    }

    /// Whether this is the first failure since the last complete pass.
    pub(super) fn is_first_failure(&mut self) -> bool {
        !std::mem::replace(&mut self.has_failed, true)
    }

    /// Keys were skipped: the next pass starts earlier.
    pub(super) fn hurry(&mut self, now: Instant) {
        self.schedule.hurry(now);
    }

    /// Records how long Redis took for the replies of one turn. Returns how much of it was not the
    /// way to Redis and back.
    pub(super) fn record(&mut self, time: ResponseTime, work: Work, now: Instant) -> Duration {
        let busy = match time {
            ResponseTime::Alone(took) => {
                self.pacer.answered(took);
                self.pacer.beyond_round_trip(took)
            }
            ResponseTime::Queued(took) => took,
        };
        if work.steps > 0 {
            self.pacer.stepped(busy);
            self.pacer.spent(busy, now);
        } else if work.scanned_reads > 0 {
            let share = f64::from(work.scanned_reads) / f64::from(work.reads.max(1));
            self.pacer.spent(busy.mul_f64(share), now);
        }
        busy
    }
}

impl ScanStep {
    pub(super) fn pass(&self) -> PassNumber {
        self.pass
    }

    pub(super) fn command(&self) -> [&[u8]; 6] {
        [b"SCAN", &self.cursor, b"MATCH", self.pattern.as_bytes(), b"COUNT", self.count.as_bytes()]
    }
}

impl Pass {
    fn new(number: PassNumber, started: TimeMs, started_at: Instant) -> Self {
        let (cursor, state) = (ORIGIN.to_vec(), PassState::Ready);
        Self { number, started, started_at, cursor, state, visited: 0, size: None, keys: 0, lock_keys: 0 }
    }

    /// The event that reports the complete pass.
    pub(super) fn done(&self, at: TimeMs) -> LinkEvent {
        LinkEvent::PassDone { started: self.started, at }
    }

    pub(super) fn summary(&self, now: Instant) -> LastPass {
        LastPass {
            seconds: (now - self.started_at).as_secs_f64(),
            keys: self.keys_seen(),
            lock_keys: self.lock_keys,
            ended: clock::now(),
        }
    }

    /// Whether the next step may be sent.
    fn is_ready(&self) -> bool {
        self.state == PassState::Ready
    }

    fn is_listed(&self) -> bool {
        self.state == PassState::Listed
    }

    /// Marks a step as sent. Returns its cursor.
    fn ask(&mut self, count: u32) -> &[u8] {
        self.state = PassState::Asked { count };
        &self.cursor
    }

    /// Applies the reply to a step. Returns the keys that it listed.
    fn step(&mut self, reply: Value) -> Result<Vec<Value>, ScanError> {
        if let PassState::Asked { count } = self.state {
            self.visited += u64::from(count);
        }
        let mut parts = match reply {
            Value::Array(parts) if parts.len() == 2 => parts.into_iter(),
            Value::ServerError(error) => {
                return Err(ScanError(format!("{} {}", error.code(), error.details().unwrap_or_default())));
            }
            _ => return Err(ScanError("not a reply to SCAN".to_owned())),
        };
        let cursor = parts.next().as_ref().and_then(owner::bytes).map(<[u8]>::to_vec);
        let (Some(cursor), Some(Value::Array(keys))) = (cursor, parts.next()) else {
            return Err(ScanError("not a reply to SCAN".to_owned()));
        };
        self.state = if cursor == ORIGIN { PassState::Listed } else { PassState::Ready };
        self.cursor = cursor;
        self.keys += keys.len() as u64;
        Ok(keys)
    }

    /// From 0 to 1. `SCAN` visits buckets. Their number is the number of keys, rounded up to a
    /// power of two.
    fn progress(&self) -> Option<f64> {
        let buckets = self.size?.next_power_of_two();
        Some((self.visited as f64 / buckets as f64).min(1.0))
    }

    /// Number of keys in the database, or at least the number of listed keys.
    fn keys_seen(&self) -> u64 {
        self.size.unwrap_or(0).max(self.keys)
    }
}

/// Decides when passes start.
#[derive(Debug)]
struct Schedule {
    /// Time from the start of one pass to the start of the next.
    interval: Duration,
    /// Minimum time between the starts of two passes if the next pass must make up for skipped
    /// keys.
    shortest_interval: Duration,
    last: Option<Instant>,
    next: Instant,
}

impl Schedule {
    fn new(interval: Duration, shortest_interval: Duration, now: Instant) -> Self {
        Self { interval, shortest_interval, last: None, next: now }
    }

    fn began(&mut self, now: Instant) {
        self.last = Some(now);
        self.next = now + self.interval;
    }

    /// The locks are no longer known: the next pass starts as soon as possible.
    fn at_once(&mut self, now: Instant) {
        self.next = now;
    }

    /// A pass failed: the next one starts after `pause` at the latest.
    fn after(&mut self, pause: Duration, now: Instant) {
        self.next = self.next.min(now + pause);
    }

    /// Keys were skipped: the next pass starts earlier.
    fn hurry(&mut self, now: Instant) {
        let soonest = self.last.map_or(now, |last| last + self.shortest_interval).max(now);
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
        pass.size = Some(100);
        assert_eq!(pass.step(step("17", &["a", "b"])).unwrap().len(), 2);
        assert_eq!(pass.progress(), Some(0.125));
        assert!(pass.is_ready());
        assert_eq!(pass.ask(16), b"17");
        assert_eq!(pass.step(step("0", &[])).unwrap().len(), 0);
        assert!(pass.is_listed() && !pass.is_ready());
        assert_eq!((pass.keys, pass.keys_seen()), (2, 100));
        assert!(pass.step(Value::Okay).is_err());
        let error = redis::parse_redis_value(b"-NOPERM no\r\n").unwrap();
        assert_eq!(pass.step(error).unwrap_err(), ScanError("NOPERM no".to_owned()));
    }

    #[test]
    fn passes_are_due_in_time() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut schedule = Schedule::new(300 * second, 15 * second, start);
        assert_eq!(schedule.next, start);
        schedule.began(start);
        assert_eq!(schedule.next, start + 300 * second);
        schedule.hurry(start + second);
        assert_eq!(schedule.next, start + 15 * second);
        schedule.hurry(start + 20 * second);
        assert_eq!(schedule.next, start + 15 * second, "overdue already");
        schedule.at_once(start + 21 * second);
        assert_eq!(schedule.next, start + 21 * second);
    }
}
