//! The three invariants:
//!
//! 1. No counter ever grows by more than what really happened.
//! 2. Within 5 s after a fault ends, `held`, `redis_up`, `tracking_up` and `operations_source` are
//!    correct.
//! 3. From then on, counts are exact.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use super::claims::Claims;
use super::plan::{Fault, Kind, Step, step_text};
use super::report::Report;
use super::truth::Counts;
use super::worker::{BURST, CREW, has_old_locks};
use super::world::{MARKER, World};
use crate::daemon::Samples;
use crate::keyspace::scene::number;
use crate::keyspace::stage::{observed_since, own};
use crate::redis::eventually;

const RECOVERY: Duration = Duration::from_secs(5);
/// The workers go on for this long after a fault.
const AFTERMATH: Duration = Duration::from_millis(1500);
const CALM: Duration = Duration::from_millis(2500);
const POLL: Duration = Duration::from_millis(100);
/// Periods that may be repeated because the machine did not let programs run.
const N_PERIODS: usize = 3;

/// Numbers at a moment when nothing happened.
#[derive(Default)]
struct Base {
    shown: BTreeMap<&'static str, Counts>,
    least: BTreeMap<&'static str, Counts>,
}

pub(super) struct Judge {
    world: World,
    base: Base,
    claims: Claims,
    last: BTreeMap<&'static str, Counts>,
    pub(super) report: Report,
}

fn namespaces() -> impl Iterator<Item = &'static str> {
    CREW.iter().map(|(namespace, ..)| *namespace).chain([BURST])
}

impl Judge {
    /// Waits until the exporter counts, and judges a first calm period.
    pub(super) fn start(world: World) -> Result<Self, String> {
        let mut judge = Self {
            world,
            base: Base::default(),
            claims: Claims::default(),
            last: BTreeMap::new(),
            report: Report::default(),
        };
        judge.wait_until_all_is_observed();
        judge.recover(Instant::now() + RECOVERY)?;
        judge.judge_calm()?;
        Ok(judge)
    }

    /// Waits until the exporter knows all locks.
    fn wait_until_all_is_observed(&self) {
        eventually("the first pass of the exporter", || observed_since(&self.world.scrape()?));
    }

    /// Lets the faults of a step happen while the workers work, and judges what follows.
    pub(super) fn judge_step(&mut self, step: &Step) -> Result<(), String> {
        self.world.crew.work();
        self.watch(Duration::from_millis(500))?;
        self.happen(step)?;
        let over = Instant::now();
        self.world.starvation.reset(self.world.processes());
        self.watch(AFTERMATH)?;
        self.world.crew.rest();
        self.recover(over + RECOVERY)?;
        self.judge_calm()?;
        self.report.events = self.world.truth.n_events();
        Ok(())
    }

    /// Begins and ends each fault at its time.
    fn happen(&mut self, step: &Step) -> Result<(), String> {
        let start = Instant::now();
        for (milliseconds, fault, is_end) in timeline(step) {
            let due = start + Duration::from_millis(milliseconds);
            self.watch(due.saturating_duration_since(Instant::now()))?;
            match is_end {
                false => {
                    self.world.begin(fault);
                    self.claims.note(fault.action);
                    *self.report.faults.entry(fault.action.name()).or_default() += 1;
                }
                true => self.world.end(fault),
            }
        }
        Ok(())
    }

    /// Checks the first invariant for some time.
    fn watch(&mut self, time: Duration) -> Result<(), String> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.check_bounds()?;
            thread::sleep(POLL.min(until.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    /// The first invariant. Also, no counter ever falls.
    fn check_bounds(&mut self) -> Result<Option<Samples>, String> {
        let Some(samples) = self.world.scrape() else { return Ok(None) };
        for namespace in namespaces() {
            let shown = Counts::shown(&samples, namespace);
            let last = self.last.insert(namespace, shown).unwrap_or_default();
            for ((name, now), (_, before)) in shown.named().into_iter().zip(last.named()) {
                if now < before {
                    return Err(format!("{namespace}: {name} fell from {before} to {now}"));
                }
            }
            // Read after the scrape, so it contains everything that the exporter can know.
            let tally = self.world.truth.tally(namespace);
            let shown = shown.since(&self.base.shown.get(namespace).copied().unwrap_or_default());
            let most_growth = tally.most.since(&self.base.least.get(namespace).copied().unwrap_or_default());
            for ((name, counted), (_, most)) in shown.named().into_iter().zip(most_growth.named()) {
                if counted > most {
                    return Err(format!(
                        "invariant 1: {namespace}: {counted} {name} counted, but at most {most} happened \
                         since the last calm moment\nshown {shown:?}\nmost {most_growth:?}\n{}{}",
                        self.world.truth.last_events(namespace),
                        self.world.histories(namespace),
                    ));
                }
            }
        }
        Ok(Some(samples))
    }

    /// The second invariant, while the workers rest. Ends with a new base.
    fn recover(&mut self, deadline: Instant) -> Result<(), String> {
        let rested = Instant::now();
        // A published number is up to a second old.
        let deadline = deadline.max(rested + Duration::from_secs(2));
        loop {
            let Some(samples) = self.check_bounds()? else { panic!("the exporter is stopped after the fault") };
            let wrong = self.what_is_wrong(&samples);
            if wrong.is_empty() {
                break;
            }
            if Instant::now() > deadline + self.world.starvation.extra_time() {
                return Err(format!("invariant 2: {} after the fault: {}", seconds(RECOVERY), wrong.join(", ")));
            }
            thread::sleep(POLL);
        }
        self.rebase("invariant 3: no later change is counted")
    }

    /// Lists what is not as it should be.
    fn what_is_wrong(&self, samples: &Samples) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut expect = |what: &str, shown: f64, expected: f64| {
            if shown != expected {
                wrong.push(format!("{what} is {shown} instead of {expected}"));
            }
        };
        expect("redis_up", own(samples, "redis_up"), 1.0);
        expect("tracking_up", own(samples, "tracking_up"), 1.0);
        let of_namespace = |metric: &str, namespace: &str| number(samples, metric, &[("lock_namespace", namespace)]);
        for namespace in namespaces().chain([MARKER]) {
            let held = match namespace {
                MARKER => self.world.held_markers() as f64,
                _ => self.world.truth.tally(namespace).open as f64,
            };
            expect(&format!("held of {namespace}"), of_namespace("redis_lock_held", namespace), held);
            let without_ttl = of_namespace("redis_lock_without_ttl", namespace);
            expect(&format!("without_ttl of {namespace}"), without_ttl, 0.0);
            let is_source = |source: &str| {
                let labels = [("lock_namespace", namespace), ("source", source)];
                number(samples, "redis_lock_operations_source", &labels)
            };
            let correct = self.claims.correct();
            let what = format!("operations_source {} of {namespace}", correct.join(" or "));
            expect(&what, correct.iter().map(|source| is_source(source)).sum(), 1.0);
        }
        wrong
    }

    /// Waits until the exporter has counted everything so far, and starts counting from here.
    fn rebase(&mut self, what: &str) -> Result<(), String> {
        let samples = self.sync(what)?;
        self.world.truth.settle();
        for namespace in namespaces() {
            self.base.shown.insert(namespace, Counts::shown(&samples, namespace));
            self.base.least.insert(namespace, self.world.truth.tally(namespace).least);
        }
        self.report.note_memory(self.world.lives(), samples["process_resident_memory_bytes"]);
        Ok(())
    }

    /// Waits until the exporter has counted everything so far.
    fn sync(&mut self, what: &str) -> Result<Samples, String> {
        let n_markers = self.world.toggle_markers() as f64;
        let start = Instant::now();
        loop {
            let Some(samples) = self.check_bounds()? else { panic!("the exporter is stopped") };
            let shown = number(&samples, "redis_lock_held", &[("lock_namespace", MARKER)]);
            if shown == n_markers {
                return Ok(samples);
            }
            if start.elapsed() > RECOVERY + self.world.starvation.extra_time() {
                return Err(format!("{what}: {shown} markers instead of {n_markers}"));
            }
            thread::sleep(POLL);
        }
    }

    /// The third invariant.
    fn judge_calm(&mut self) -> Result<(), String> {
        for _ in 0..N_PERIODS {
            self.world.starvation.reset(self.world.processes());
            self.world.crew.work();
            self.watch(CALM)?;
            self.world.crew.rest();
            let samples = self.sync("invariant 3: no change is counted in a calm period")?;
            let differences = self.differences(&samples);
            let is_starved = self.world.starvation.is_disturbed();
            let starvation = self.world.starvation.to_string();
            self.rebase("invariant 3")?;
            if differences.is_empty() {
                self.report.n_exact += 1;
                return Ok(());
            }
            if !is_starved {
                return Err(format!("invariant 3: in a calm period ({starvation}): {}", differences.join(", ")));
            }
        }
        eprintln!("no calm period: {}", self.world.starvation);
        self.report.n_starved += 1;
        Ok(())
    }

    /// Compares the counts since the base with the truth.
    fn differences(&self, samples: &Samples) -> Vec<String> {
        let mut differences = Vec::new();
        for namespace in namespaces() {
            let tally = self.world.truth.tally(namespace);
            assert!(tally.is_certain(), "a request was not answered in a calm period: {tally:?}");
            let shown = Counts::shown(samples, namespace).since(&self.base.shown[namespace]);
            let truth = tally.least.since(&self.base.least[namespace]);
            let n_compared = if has_old_locks(namespace) { 5 } else { 8 };
            let pairs = shown.named().into_iter().zip(truth.named()).take(n_compared);
            let different = pairs.filter(|((_, shown), (_, truth))| shown != truth);
            differences.extend(
                different.map(|((name, shown), (_, truth))| {
                    format!("{namespace}: {shown} {name} counted, {truth} happened")
                }),
            );
        }
        differences
    }

    pub(super) fn log(&self) -> String {
        self.world.log()
    }
}

/// When faults begin and end, in milliseconds after the begin of the step.
fn timeline(step: &Step) -> Vec<(u64, Fault, bool)> {
    let mut events = Vec::new();
    for kind in [Kind::Server, Kind::Network, Kind::Exporter] {
        let mut at = 0;
        for fault in step.iter().filter(|fault| fault.action.kind() == kind) {
            at += fault.after;
            events.push((at, *fault, false));
            at += fault.duration;
            events.push((at, *fault, true));
        }
    }
    events.sort_by_key(|(at, ..)| *at);
    events
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs())
}

/// Describes a failure of a step.
pub(super) fn describe(number: usize, step: &Step, failure: &str) -> String {
    format!("step {number} ({}): {failure}", step_text(step))
}
