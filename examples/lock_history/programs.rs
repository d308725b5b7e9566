//! Simulates programs that use locks in virtual time: their operations, their failures, and the
//! lines that Cordum writes about them.
//!
//! Each program acquires a lock for each piece of work, renews it if the program renews locks, and
//! releases it. Faults act on operations: before the operation the lock is lost in a certain way,
//! or Redis does not answer. This module does not depend on how the exporter interprets the result.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use redis_lock_exporter::rehearsal::fleet::Random;
use redis_lock_exporter::rehearsal::fleet::cordum::{
    self, CordumLogFormat, LineWriter, LogMessage, NOT_OWNED, RENEWAL_BUDGET, TimeScale,
};
use redis_lock_exporter::util::clock::TimeMs;
use serde::Deserialize;

use crate::scenario::{Fault, FaultKind, Scenario, Service};
use crate::store::{Entry, Store};

/// The error text of Cordum's Redis client.
const REFUSED: &str = "dial tcp 10.0.3.7:6379: connect: connection refused";
const LATE: &str = "context deadline exceeded";
const REPLICAS: u64 = 6;
/// Time between the restarts of two replicas.
const REPLICA_PAUSE_MS: TimeMs = 30_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// The workflow engine: renews, and continues its work without the lock.
    Workflow,
    /// The scheduler: renews, and stops its work without the lock.
    Scheduler,
    /// The gateway's admission: short, never renewed.
    Admission,
}

impl Kind {
    pub(crate) fn namespace(self) -> &'static str {
        match self {
            Self::Workflow => "workflow",
            Self::Scheduler => "scheduler",
            Self::Admission => "admission",
        }
    }

    fn service(self) -> cordum::Service {
        match self {
            Self::Workflow => cordum::Service::WorkflowEngine,
            Self::Scheduler => cordum::Service::Scheduler,
            Self::Admission => cordum::Service::Gateway,
        }
    }
}

/// A log line and the replica that wrote it.
#[derive(Clone)]
pub(crate) struct Line {
    pub(crate) at: TimeMs,
    pub(crate) replica: u64,
    pub(crate) text: String,
}

#[derive(Clone)]
struct Job {
    kind: Kind,
    id: u64,
    key: String,
    ends: TimeMs,
    /// Number of consecutive failed renewals.
    strikes: u32,
    /// Whether the program was paused before. Each program is paused at most once.
    stalled: bool,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Start(usize),
    Renew(u64),
    Release(u64),
    /// Redis removes keys after their deadline.
    Sweep(String),
    /// A client that took a lock from its holder has finished.
    Drop(String),
    DownBegins(usize),
    DownEnds(usize),
    Restart(u64, usize),
    Lose(usize),
}

pub(crate) struct Programs {
    scenario: Scenario,
    /// Added to the times of all faults, so that they do not start exactly at a scrape.
    shift: TimeMs,
    /// The time scale of production.
    pace: TimeScale,
    random: Random,
    queue: BinaryHeap<Reverse<(TimeMs, u64, Event)>>,
    sequence: u64,
    jobs: BTreeMap<u64, Job>,
    next_id: u64,
    /// Writes new lines to `lines`, in the format without a time, because time is virtual here.
    writer: LineWriter,
    lines: Vec<Line>,
    pub(crate) store: Store,
}

impl Programs {
    pub(crate) fn new(scenario: &Scenario, seed: u64, shift: TimeMs) -> anyhow::Result<Self> {
        let mut programs = Self {
            scenario: scenario.clone(),
            shift,
            pace: TimeScale::new(1)?,
            random: Random::new(seed),
            queue: BinaryHeap::new(),
            sequence: 0,
            jobs: BTreeMap::new(),
            next_id: 1,
            writer: LineWriter::new(CordumLogFormat::Text),
            lines: Vec::new(),
            store: Store::default(),
        };
        for service in 0..programs.scenario.services.len() {
            programs.schedule_start(service, 0);
        }
        for (index, fault) in scenario.faults.iter().enumerate() {
            let from = programs.begin(fault);
            match fault.fault {
                FaultKind::Down => {
                    programs.schedule(from, Event::DownBegins(index));
                    programs.schedule(from + minutes(fault.minutes), Event::DownEnds(index));
                }
                FaultKind::Deploy => {
                    for replica in 0..REPLICAS {
                        programs.schedule(from + replica as TimeMs * REPLICA_PAUSE_MS, Event::Restart(replica, index));
                    }
                }
                FaultKind::Lose => programs.schedule(from, Event::Lose(index)),
                _ => {}
            }
        }
        Ok(programs)
    }

    /// The time when a fault begins.
    pub(crate) fn begin(&self, fault: &Fault) -> TimeMs {
        minutes(fault.from) + self.shift
    }

    pub(crate) fn advance(&mut self, to: TimeMs) {
        while let Some(Reverse((at, _, _))) = self.queue.peek()
            && *at <= to
        {
            let Some(Reverse((at, _, event))) = self.queue.pop() else { return };
            self.happen(at, event);
        }
    }

    /// Returns the lines written so far, in order.
    pub(crate) fn take_lines(&mut self, now: TimeMs) -> Vec<Line> {
        self.lines.sort_by_key(|line| line.at);
        let later = self.lines.split_off(self.lines.partition_point(|line| line.at <= now));
        std::mem::replace(&mut self.lines, later)
    }

    fn happen(&mut self, at: TimeMs, event: Event) {
        match event {
            Event::Start(service) => {
                self.schedule_start(service, at);
                self.start(service, at);
            }
            Event::Renew(id) => self.renew(id, at),
            Event::Release(id) => self.release(id, at),
            Event::Sweep(key) => {
                self.store.get(&key, at);
            }
            Event::Drop(key) => {
                self.store.remove(&key, at);
            }
            Event::DownBegins(_) => self.store.down = true,
            Event::DownEnds(fault) => {
                let lost = self.scenario.faults[fault].share;
                self.store.fail_over(lost, &mut self.random);
            }
            Event::Restart(replica, fault) => self.restart(replica, self.scenario.faults[fault].share, at),
            Event::Lose(fault) => {
                let fault = self.scenario.faults[fault].clone();
                let keys: Vec<String> = self.jobs.values().map(|job| job.key.clone()).collect();
                for key in keys.into_iter().take(fault.share as usize) {
                    self.store.remove(&key, at);
                }
            }
        }
    }

    fn start(&mut self, service: usize, at: TimeMs) {
        let Service { kind, work, .. } = self.scenario.services[service];
        let id = self.next_id;
        self.next_id += 1;
        let work = seconds(work.0 + (work.1 - work.0) * self.random.unit());
        let key = cordum::lock_key(kind.namespace(), &id.to_string());
        let job = Job { kind, id, key, ends: at + work, strikes: 0, stalled: false };
        if let Some((why, tries)) = self.unanswered(kind, at) {
            let error = format!("job store try acquire lock {}: {why}", job.key);
            let (name, error) = (&*id.to_string(), &*error);
            return match kind {
                Kind::Workflow => self.say(&job, at, LogMessage::RunLocalOnly { run: name, error }),
                Kind::Scheduler => {
                    self.say_each(&job, at, tries, LogMessage::JobAcquisitionFailed { job: name, error })
                }
                Kind::Admission => self.say_each(&job, at, tries, LogMessage::AdmissionFailed { org: name, error }),
            };
        }
        self.set(&job, at);
        match self.renew_every(kind) {
            Some(every) if at + every < job.ends => self.schedule(at + every, Event::Renew(id)),
            _ => self.schedule(job.ends, Event::Release(id)),
        }
        self.jobs.insert(id, job);
    }

    fn renew(&mut self, id: u64, at: TimeMs) {
        let Some(job) = self.jobs.get(&id).cloned() else { return };
        let late = self.fault_now(FaultKind::LateRenewals, at);
        let before = match late {
            Some(late) if self.strikes_now(&late, job.kind, at) => Before::Unanswered(LATE, late.tries),
            _ => self.before(&job, at),
        };
        let outcome = match before {
            Before::Later(later) => return self.schedule(later, Event::Renew(id)),
            Before::Died => return drop(self.jobs.remove(&id)),
            Before::Unanswered(why, tries) => Err((format!("job store renew lock {}: {why}", job.key), tries)),
            Before::Fine if self.owns(&job, at) => Ok(()),
            Before::Fine => Err((NOT_OWNED.to_owned(), 1)),
        };
        let strikes = if outcome.is_ok() { 0 } else { job.strikes + 1 };
        let name = &*id.to_string();
        match outcome {
            Ok(()) => self.set(&job, at),
            Err((error, _)) if job.kind == Kind::Scheduler && strikes >= RENEWAL_BUDGET => {
                self.say(&job, at, LogMessage::JobAbandoned { job: name, failures: strikes, error: &error });
                self.jobs.remove(&id);
                return;
            }
            Err((error, tries)) => {
                let said = match job.kind {
                    Kind::Scheduler => LogMessage::JobRenewalFailed { job: name, attempt: strikes, error: &error },
                    _ => LogMessage::RunRenewalFailed { run: name, error: &error },
                };
                self.say_each(&job, at, tries, said);
            }
        }
        if let Some(job) = self.jobs.get_mut(&id) {
            job.strikes = strikes;
        }
        let every = self.renew_every(job.kind).unwrap_or(self.ttl(job.kind));
        // During a failure, a handler continues until its work is done, and at least until it has
        // noticed the failure.
        match at + every < job.ends || (strikes > 0 && job.kind == Kind::Scheduler) {
            true => self.schedule(at + every, Event::Renew(id)),
            false => self.schedule(job.ends.max(at + 1), Event::Release(id)),
        }
    }

    fn release(&mut self, id: u64, at: TimeMs) {
        let Some(job) = self.jobs.get(&id).cloned() else { return };
        match self.before(&job, at) {
            Before::Later(later) => return self.schedule(later, Event::Release(id)),
            Before::Died => {}
            Before::Unanswered(why, tries) => {
                let error = format!("job store release lock {}: {why}", job.key);
                self.say_each(&job, at, tries, release_failed(job.kind, &id.to_string(), &error));
            }
            Before::Fine if self.owns(&job, at) => {
                self.store.remove(&job.key, at);
            }
            Before::Fine => {
                self.say(&job, at, LogMessage::TokenMismatch { key: &job.key });
                self.say(&job, at + 1, release_failed(job.kind, &id.to_string(), NOT_OWNED));
            }
        }
        self.jobs.remove(&id);
    }

    /// Applies a fault to an operation before the operation reaches Redis.
    fn before(&mut self, job: &Job, at: TimeMs) -> Before {
        if let Some((why, tries)) = self.unanswered(job.kind, at) {
            return Before::Unanswered(why, tries);
        }
        let noise =
            self.scenario.services.iter().find(|service| service.kind == job.kind).and_then(|service| service.noise);
        if self.random.unit() < noise.unwrap_or(self.scenario.noise) {
            return self.stall(job, at);
        }
        for index in 0..self.scenario.faults.len() {
            let fault = self.scenario.faults[index].clone();
            if !self.strikes_now(&fault, job.kind, at) {
                continue;
            }
            match fault.fault {
                FaultKind::Delete => {
                    self.store.remove(&job.key, at - 1);
                }
                FaultKind::Steal if self.owns(job, at) => {
                    let thief = Entry { owner: u64::MAX - job.id, deadline: at + self.ttl(job.kind) };
                    self.store.set(&job.key, thief, at - 1);
                    let done = at + 500 + self.random.below(2_000) as TimeMs;
                    self.schedule(done, Event::Drop(job.key.clone()));
                }
                FaultKind::Stall if !job.stalled => return self.stall(job, at),
                FaultKind::Crash => return Before::Died,
                _ => {}
            }
        }
        Before::Fine
    }

    /// The holder is paused until its lock has expired.
    fn stall(&mut self, job: &Job, at: TimeMs) -> Before {
        if let Some(job) = self.jobs.get_mut(&job.id) {
            job.stalled = true;
        }
        Before::Later(at + self.ttl(job.kind) + 500 + self.random.below(5_000) as TimeMs)
    }

    /// Why Redis does not answer now, and how often the program tries.
    fn unanswered(&mut self, kind: Kind, at: TimeMs) -> Option<(&'static str, u32)> {
        if self.store.down {
            return Some((REFUSED, self.fault_now(FaultKind::Down, at).map_or(1, |fault| fault.tries)));
        }
        let late = self.fault_now(FaultKind::Timeout, at)?;
        self.strikes_now(&late, kind, at).then_some((LATE, late.tries))
    }

    fn fault_now(&self, kind: FaultKind, at: TimeMs) -> Option<Fault> {
        self.scenario.faults.iter().find(|fault| fault.fault == kind && self.is_active(fault, at)).cloned()
    }

    fn is_active(&self, fault: &Fault, at: TimeMs) -> bool {
        let from = self.begin(fault);
        (from..from + minutes(fault.minutes)).contains(&at)
    }

    fn strikes_now(&mut self, fault: &Fault, kind: Kind, at: TimeMs) -> bool {
        if !self.is_active(fault, at) || fault.only.is_some_and(|only| only != kind) {
            return false;
        }
        let grown = match fault.grows > 0.0 {
            true => ((at - self.begin(fault)) as f64 / minutes(fault.grows) as f64).min(1.0),
            false => 1.0,
        };
        self.random.unit() < fault.share * grown
    }

    fn owns(&mut self, job: &Job, at: TimeMs) -> bool {
        self.store.get(&job.key, at).is_some_and(|entry| entry.owner == job.id)
    }

    fn set(&mut self, job: &Job, at: TimeMs) {
        let deadline = at + self.ttl(job.kind);
        self.store.set(&job.key, Entry { owner: job.id, deadline }, at);
        // Redis looks for expired keys ten times a second and finds some of them later.
        let found = deadline + 1 + self.random.below(400) as TimeMs;
        self.schedule(found, Event::Sweep(job.key.clone()));
    }

    fn restart(&mut self, replica: u64, ending_well: f64, at: TimeMs) {
        let ids: Vec<u64> = self.jobs.keys().copied().filter(|id| id % REPLICAS == replica).collect();
        for id in ids {
            let Some(job) = self.jobs.remove(&id) else { continue };
            if self.random.unit() < ending_well && self.owns(&job, at) {
                self.store.remove(&job.key, at);
            }
        }
    }

    fn schedule_start(&mut self, service: usize, now: TimeMs) {
        let Service { kind, ops, work, .. } = self.scenario.services[service];
        let renewals =
            self.renew_every(kind).map_or(0.0, |every| ((work.0 + work.1) * 500.0 / every as f64 - 0.5).max(0.0));
        let rate = ops / (1.0 + renewals);
        let pause = -(1.0 - self.random.unit()).ln() / rate;
        self.schedule(now + seconds(pause).max(1), Event::Start(service));
    }

    fn schedule(&mut self, at: TimeMs, event: Event) {
        self.sequence += 1;
        self.queue.push(Reverse((at, self.sequence, event)));
    }

    fn ttl(&self, kind: Kind) -> TimeMs {
        self.pace.ttl(kind.namespace()).as_millis() as TimeMs
    }

    fn renew_every(&self, kind: Kind) -> Option<TimeMs> {
        self.pace.renew_every(kind.namespace()).map(|every| every.as_millis() as TimeMs)
    }

    /// Writes one line for each attempt.
    fn say_each(&mut self, job: &Job, at: TimeMs, tries: u32, said: LogMessage) {
        let mut time = at;
        for _ in 0..tries {
            self.say(job, time, said);
            time += 200 + self.random.below(200) as TimeMs;
        }
    }

    fn say(&mut self, job: &Job, at: TimeMs, said: LogMessage) {
        said.write(&mut self.writer, 0, job.kind.service());
        let text = String::from_utf8_lossy(&self.writer.out).into_owned();
        self.writer.out.clear();
        self.lines.push(Line { at, replica: job.id % REPLICAS, text });
    }
}

fn release_failed<'a>(kind: Kind, name: &'a str, error: &'a str) -> LogMessage<'a> {
    match kind {
        Kind::Workflow => LogMessage::RunReleaseFailed { run: name, error },
        Kind::Scheduler => LogMessage::JobReleaseFailed { job: name, error },
        Kind::Admission => LogMessage::AdmissionReleaseFailed { org: name, error },
    }
}

enum Before {
    Fine,
    Unanswered(&'static str, u32),
    /// The holder is paused until then.
    Later(TimeMs),
    Died,
}

pub(crate) fn minutes(minutes: f64) -> TimeMs {
    seconds(minutes * 60.0)
}

pub(crate) fn seconds(seconds: f64) -> TimeMs {
    (seconds * 1_000.0) as TimeMs
}
