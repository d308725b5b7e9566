//! Workers that use locks all the time and write down what Redis replied.
//!
//! Each worker has its own locks, so that its record is exact. All locks of a namespace have the
//! same fate: for example, no lock of `expiring` is ever released, so every release that the
//! exporter counts there is wrong.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use redis_lock_exporter::rehearsal::fleet::{LockToken, Random};

use super::requests::{Entrance, Outcome, Requests};
use super::truth::{End, Truth};

/// The least time between two changes of one lock. The exporter must not see two at once because
/// it waited for a processor.
const APART: Duration = Duration::from_millis(150);
const LONG_PAUSE: Duration = Duration::from_millis(450);
const LONG: Duration = Duration::from_secs(600);
const BRIEF: Duration = Duration::from_millis(700);
/// Added to a deadline, so that the lock has surely expired.
const MARGIN: Duration = Duration::from_millis(100);
const N_LOCKS: usize = 3;
const N_KEPT: usize = 15;

/// What a worker does with its locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Habit {
    Release,
    Renew,
    Expire,
    Steal,
    /// One of the others each time, and always the same locks.
    Mix,
    /// Holds locks for the whole run, and acquires a lock again after a fault removed it.
    Keep,
}

/// Each namespace, the habit of its workers, and their number.
pub(super) const CREW: [(&str, Habit, usize); 6] = [
    ("released", Habit::Release, 5),
    ("renewed", Habit::Renew, 3),
    ("expiring", Habit::Expire, 5),
    ("stolen", Habit::Steal, 2),
    ("mixed", Habit::Mix, 4),
    ("kept", Habit::Keep, 1),
];

/// Workers take new locks in each period, so that their whole history is known. Not so for these.
pub(super) fn has_old_locks(namespace: &str) -> bool {
    matches!(namespace, "mixed" | "kept" | BURST)
}

/// The namespace of locks that are taken to exceed the read budget.
pub(super) const BURST: &str = "burst";

/// When the workers work.
#[derive(Default)]
struct Shift {
    state: Mutex<ShiftState>,
    changed: Condvar,
}

#[derive(Default)]
struct ShiftState {
    is_resting: bool,
    is_over: bool,
    n_idle: usize,
    /// The number of the current period of work.
    period: u64,
}

/// All workers of a run.
pub(super) struct Crew {
    shift: Arc<Shift>,
    entrance: Entrance,
    threads: Vec<JoinHandle<()>>,
}

impl Crew {
    /// Starts the workers. They rest until [`Crew::work`].
    pub(super) fn start(entrance: &Entrance, truth: &Arc<Truth>, seed: u64) -> Self {
        let shift = Arc::new(Shift::default());
        shift.state.lock().unwrap().is_resting = true;
        let mut threads = Vec::new();
        for (namespace, habit, n_workers) in CREW {
            for number in 0..n_workers {
                let worker = Worker {
                    namespace,
                    habit,
                    number,
                    requests: Requests::to(entrance),
                    random: Random::new(seed.wrapping_mul(1_000_003).wrapping_add(threads.len() as u64)),
                    truth: Arc::clone(truth),
                    last_ends: BTreeMap::new(),
                    kept: BTreeMap::new(),
                };
                let shift = Arc::clone(&shift);
                threads.push(thread::spawn(move || worker.run(&shift)));
            }
        }
        Self { shift, entrance: entrance.clone(), threads }
    }

    pub(super) fn work(&self) {
        let mut state = self.shift.state.lock().unwrap();
        state.is_resting = false;
        state.period += 1;
        self.shift.changed.notify_all();
    }

    /// Waits until no worker holds a lock, except for the locks that are kept.
    pub(super) fn rest(&self) {
        let mut state = self.shift.state.lock().unwrap();
        state.is_resting = true;
        while state.n_idle < self.threads.len() {
            assert!(self.threads.iter().all(|thread| !thread.is_finished()), "a worker ended");
            state = self.shift.changed.wait_timeout(state, MARGIN).unwrap().0;
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.entrance.close();
        self.shift.state.lock().unwrap().is_over = true;
        self.shift.changed.notify_all();
    }
}

impl Shift {
    /// Waits while the workers rest. Returns the number of the period, or `None` at the end.
    fn next(&self) -> Option<u64> {
        let mut state = self.state.lock().unwrap();
        state.n_idle += 1;
        self.changed.notify_all();
        state = self.changed.wait_while(state, |state| state.is_resting && !state.is_over).unwrap();
        state.n_idle -= 1;
        (!state.is_over).then_some(state.period)
    }
}

/// The braces make all locks of a worker belong to one slot of a cluster.
fn key(namespace: &str, worker: usize, period: u64, lock: usize) -> String {
    format!("{namespace}:lock:{{{namespace}{worker}}}-{period}-{lock}")
}

struct Worker {
    namespace: &'static str,
    habit: Habit,
    number: usize,
    requests: Requests,
    random: Random,
    truth: Arc<Truth>,
    /// How the last hold of each lock ended.
    last_ends: BTreeMap<String, End>,
    /// Open holds of [`Habit::Keep`].
    kept: BTreeMap<usize, Hold>,
}

struct Hold {
    key: String,
    token: String,
    /// When Redis last confirmed that the lock exists, at the earliest.
    existed: Instant,
    /// The TTL runs out between these times.
    deadline: (Instant, Instant),
    may_expire: bool,
}

impl Worker {
    fn run(mut self, shift: &Shift) {
        while let Some(period) = shift.next() {
            let period = if has_old_locks(self.namespace) { 0 } else { period };
            let number = self.random.below(N_LOCKS);
            let key = key(self.namespace, self.number, period, number);
            let habit = match self.habit {
                Habit::Mix => [Habit::Release, Habit::Renew, Habit::Expire, Habit::Steal][self.random.below(4)],
                habit => habit,
            };
            // `None`: the run is over.
            let _ = self.use_lock(habit, &key);
            self.pause();
        }
    }

    /// One hold from its acquisition to its end. Returns `None` if the run is over or the lock
    /// could not be acquired.
    fn use_lock(&mut self, habit: Habit, key: &str) -> Option<()> {
        match habit {
            Habit::Release | Habit::Mix => {
                let hold = self.acquire(key, LONG)?;
                self.pause();
                self.release(hold)
            }
            Habit::Renew => {
                let mut hold = self.acquire(key, BRIEF * 5)?;
                for _ in 0..self.random.below(4) {
                    self.pause();
                    if !self.renew(&mut hold, BRIEF * 5)? {
                        return self.gone(hold);
                    }
                }
                self.pause();
                self.release(hold)
            }
            Habit::Expire => {
                let hold = self.acquire(key, BRIEF)?;
                self.expire(hold)
            }
            Habit::Steal => {
                let hold = self.acquire(key, LONG)?;
                self.pause();
                let stolen = self.steal(hold)?;
                self.pause();
                self.release(stolen)
            }
            Habit::Keep => (0..N_KEPT).try_for_each(|number| self.keep(number)),
        }
    }

    fn pause(&mut self) {
        thread::sleep(self.random.between(APART, LONG_PAUSE));
    }

    fn acquire(&mut self, key: &str, ttl: Duration) -> Option<Hold> {
        let token = LockToken::random().reveal().to_owned();
        let previous = self.last_ends.get(key).copied();
        self.truth.may(self.namespace, |counts| counts.add_acquisition(previous, 1));
        let sent = Instant::now();
        match self.requests.acquire(key, &token, ttl) {
            Outcome::Done => {}
            Outcome::Refused => {
                self.truth.may(self.namespace, |counts| counts.add_acquisition(previous, -1));
                return None;
            }
            Outcome::Unknown if self.requests.holds(key, &token)? => {}
            Outcome::Unknown => {
                // Redis may have executed the request, and the lock may have ended since.
                self.truth.may(self.namespace, |counts| {
                    counts.ends += 1;
                    counts.expirations += 1;
                });
                self.last_ends.insert(key.to_owned(), End::Unanswered);
                return None;
            }
        }
        self.truth.surely(self.namespace, |counts| counts.add_acquisition(previous, 1));
        self.truth.trace(self.namespace, format!("{key} acquired for {ttl:?}"));
        let deadline = (sent + ttl, Instant::now() + ttl);
        let hold = Hold { key: key.to_owned(), token, existed: sent, deadline, may_expire: ttl < LONG };
        self.truth.opened(self.namespace, hold.may_expire);
        Some(hold)
    }

    /// Returns whether the lock was still held.
    fn renew(&mut self, hold: &mut Hold, ttl: Duration) -> Option<bool> {
        self.truth.may(self.namespace, |counts| counts.renewals += 1);
        let sent = Instant::now();
        match self.requests.renew(&hold.key, &hold.token, ttl) {
            Outcome::Done => self.truth.surely(self.namespace, |counts| counts.renewals += 1),
            Outcome::Refused => {
                self.truth.may(self.namespace, |counts| counts.renewals -= 1);
                return Some(false);
            }
            Outcome::Unknown => {
                // Nobody knows whether the deadline moved.
                hold.deadline.1 = Instant::now() + ttl;
                return self.requests.holds(&hold.key, &hold.token);
            }
        }
        self.truth.trace(self.namespace, format!("{} renewed", hold.key));
        hold.existed = sent;
        hold.deadline = (sent + ttl, Instant::now() + ttl);
        Some(true)
    }

    fn release(&mut self, hold: Hold) -> Option<()> {
        loop {
            self.truth.may(self.namespace, |counts| counts.releases += 1);
            match self.requests.release(&hold.key, &hold.token) {
                Outcome::Done => {
                    self.truth.surely(self.namespace, |counts| counts.releases += 1);
                    self.ended(hold, End::Released);
                    return Some(());
                }
                Outcome::Refused => {
                    self.truth.may(self.namespace, |counts| counts.releases -= 1);
                    return self.gone(hold);
                }
                Outcome::Unknown if self.requests.holds(&hold.key, &hold.token)? => {
                    self.truth.may(self.namespace, |counts| counts.releases -= 1);
                }
                Outcome::Unknown => {
                    self.ended(hold, End::Unanswered);
                    return Some(());
                }
            }
        }
    }

    /// Lets the lock expire.
    fn expire(&mut self, hold: Hold) -> Option<()> {
        loop {
            thread::sleep((hold.deadline.1 + MARGIN).saturating_duration_since(Instant::now()));
            if !self.requests.holds(&hold.key, &hold.token)? {
                return self.gone(hold);
            }
            thread::sleep(MARGIN);
        }
    }

    /// Takes the lock as another owner that ignores the first one.
    fn steal(&mut self, hold: Hold) -> Option<Hold> {
        let token = LockToken::random().reveal().to_owned();
        self.truth.may(self.namespace, |counts| counts.add_acquisition(Some(End::Removed), 1));
        let sent = Instant::now();
        match self.requests.steal(&hold.key, &token, LONG) {
            Outcome::Done => {}
            Outcome::Refused => {
                self.truth.may(self.namespace, |counts| counts.add_acquisition(Some(End::Removed), -1));
                self.gone(hold);
                return None;
            }
            Outcome::Unknown if self.requests.holds(&hold.key, &token)? => {}
            Outcome::Unknown => {
                // Redis may have executed the request, and both holds may have ended since.
                self.truth.may(self.namespace, |counts| counts.ends += 1);
                self.leave(hold)?;
                return None;
            }
        }
        self.truth.surely(self.namespace, |counts| counts.add_acquisition(Some(End::Removed), 1));
        self.truth.trace(self.namespace, format!("{} stolen", hold.key));
        let stolen = Hold { key: hold.key.clone(), token, existed: sent, deadline: hold.deadline, may_expire: false };
        self.ended(hold, End::Removed);
        self.truth.opened(self.namespace, stolen.may_expire);
        Some(Hold { deadline: (sent + LONG, Instant::now() + LONG), ..stolen })
    }

    /// Releases a lock that somebody may have taken.
    fn leave(&mut self, hold: Hold) -> Option<()> {
        match self.requests.holds(&hold.key, &hold.token)? {
            true => self.release(hold),
            false => self.gone(hold),
        }
    }

    /// Holds the lock for the whole run. A lock that is gone is acquired the next time.
    fn keep(&mut self, number: usize) -> Option<()> {
        let Some(mut hold) = self.kept.remove(&number) else {
            let key = key(self.namespace, self.number, 0, number);
            let hold = self.acquire(&key, LONG);
            self.kept.extend(hold.map(|hold| (number, hold)));
            return Some(());
        };
        let asked = Instant::now();
        if !self.requests.holds(&hold.key, &hold.token)? {
            return self.gone(hold);
        }
        hold.existed = asked;
        self.kept.insert(number, hold);
        Some(())
    }

    /// Redis says that the lock is not held any more.
    fn gone(&mut self, hold: Hold) -> Option<()> {
        let end = self.truth.why_gone(hold.existed, hold.deadline);
        self.ended(hold, end);
        Some(())
    }

    fn ended(&mut self, hold: Hold, end: End) {
        self.truth.closed(self.namespace, end, hold.may_expire);
        self.truth.trace(self.namespace, format!("{} ended: {end:?}", hold.key));
        self.last_ends.insert(hold.key, end);
    }
}
