//! One running scenario: where its workers act, what they did, and the results of its expectations
//! so far. `scenarios` fills it, `verify` checks the exporter against it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::heartbeat::{Heartbeat, Span, Stalled};
use super::probe::Probe;
use super::progress::DrillProgress;
use super::report::{ScenarioReport, TimelineEntry};
use super::settings::Timing;
use super::table::Scenario;
use super::worker::WorkerLog;
use crate::client::scrape::{Samples, SeriesSelector};
use crate::rehearsal::fleet::{KeyScope, LockSpec, OperationLog};

/// The size limit of a timeline. The rounds of a sustained drill repeat, so the first ones are
/// enough.
const MAX_ENTRIES: usize = 100;

/// What all scenarios on one Redis share.
pub(super) struct DrillContext {
    /// Includes the password.
    pub(super) client: redis::Client,
    /// HOST:PORT. Proxies forward to it.
    pub(super) address: String,
    pub(super) key_scope: Arc<KeyScope>,
    pub(super) worker_log: WorkerLog,
    pub(super) log_file: PathBuf,
    pub(super) probe: Probe,
    /// Why the exporter cannot see the drill. If set, the check waits only a short time.
    pub(super) blind: Option<String>,
    pub(super) timing: Timing,
    pub(super) progress: Arc<DrillProgress>,
    pub(super) heartbeat: Arc<Heartbeat>,
}

pub(super) struct ScenarioRun {
    pub(super) context: Arc<DrillContext>,
    pub(super) scenario: &'static Scenario,
    /// What the exporter showed before the scenario.
    pub(super) before: Samples,
    /// One for each lock namespace of the scenario.
    records: Vec<Arc<OperationLog>>,
    started: Instant,
    notes: Mutex<Notes>,
}

/// By how much a metric of the exporter must have grown, summed over all rounds.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) expectation: &'static str,
    /// A description for people.
    pub(super) what: String,
    pub(super) selector: SeriesSelector,
    pub(super) at_least: f64,
    pub(super) at_most: f64,
    /// The claim holds only if the exporter recognizes each change. In a sustained drill it may
    /// overlook changes in the rounds in which the machine stalled.
    pub(super) needs_clear_view: bool,
    /// How much of `at_least` may be missing because of stalls.
    pub(super) excused: f64,
}

/// The exporter's incidents must contain the lock of the last round.
#[derive(Clone, Debug)]
pub(super) struct IncidentClaim {
    pub(super) lock_namespace: &'static str,
    pub(super) key: String,
    pub(super) operation: &'static str,
    pub(super) cause: &'static str,
    pub(super) wants_next_owner: bool,
    /// The machine stalled in that round, so the cause may be `unknown`.
    pub(super) may_be_unknown: bool,
}

/// When something happened for the first time, and the metric that shows it.
#[derive(Clone, Debug)]
pub(super) struct Happened {
    pub(super) what: &'static str,
    pub(super) at: Instant,
    pub(super) selector: SeriesSelector,
}

#[derive(Default)]
pub(super) struct Notes {
    pub(super) timeline: Vec<TimelineEntry>,
    pub(super) measured: BTreeMap<&'static str, f64>,
    pub(super) verdicts: BTreeMap<&'static str, (bool, String)>,
    pub(super) claims: Vec<Claim>,
    pub(super) incident: Option<IncidentClaim>,
    pub(super) happened: Vec<Happened>,
    /// Start and end of each round.
    pub(super) rounds: Vec<Span>,
}

impl ScenarioRun {
    pub(super) async fn new(context: &Arc<DrillContext>, scenario: &'static Scenario) -> anyhow::Result<Self> {
        Ok(Self {
            context: Arc::clone(context),
            scenario,
            before: context.probe.scrape().await?,
            records: scenario.namespaces.iter().map(|_| Arc::default()).collect(),
            started: Instant::now(),
            notes: Mutex::default(),
        })
    }

    pub(super) fn timing(&self) -> &Timing {
        &self.context.timing
    }

    /// Returns the lock of a round. Each round has its own. [`ScenarioRun::beside`] names the fence
    /// and the storage keys of the round.
    pub(super) fn lock_of(&self, namespace: usize, round: u32) -> LockSpec {
        let key = self.context.key_scope.key(&format!("{}-r{round}:{}", self.scenario.name, self.namespace(namespace)));
        self.lock_at(namespace, key)
    }

    /// Returns the lock whose exact key is in the exporter's configuration.
    pub(super) fn fixed_lock(&self, namespace: usize) -> LockSpec {
        self.lock_at(namespace, self.context.key_scope.key(self.namespace(namespace)))
    }

    pub(super) fn lock_at(&self, namespace: usize, key: String) -> LockSpec {
        LockSpec { key, ttl: self.timing().ttl, record: Arc::clone(&self.records[namespace]) }
    }

    /// Returns a key that belongs to the locks of one round, such as the fence. Each round of each
    /// scenario has its own, so that a fence starts at zero.
    pub(super) fn beside(&self, round: u32, what: &str) -> String {
        self.context.key_scope.key(&format!("{}-r{round}:{what}", self.scenario.name))
    }

    pub(super) fn namespace(&self, index: usize) -> &'static str {
        self.scenario.namespaces[index].name
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Adds an entry to the timeline and shows it as progress.
    pub(super) fn note(&self, who: &str, what: &str) {
        self.context.progress.print(&format!("{}: {who} {what}", self.scenario.name));
        let at_seconds = self.elapsed().as_secs_f64();
        let mut notes = self.notes();
        if notes.timeline.len() < MAX_ENTRIES {
            notes.timeline.push(TimelineEntry { at_seconds, who: who.to_owned(), what: what.to_owned() });
        }
    }

    /// Records whether an expectation held. It must hold in every round. The report shows the first
    /// failure.
    pub(super) fn expect(&self, id: &'static str, held: bool, measured: String) {
        let mut notes = self.notes();
        let result = notes.verdicts.entry(id).or_insert((true, String::new()));
        if result.0 {
            *result = (held, measured);
        }
    }

    /// Records a duration. The longest of all rounds is kept.
    pub(super) fn measure(&self, name: &'static str, value: Duration) {
        let mut notes = self.notes();
        let worst = notes.measured.entry(name).or_insert(0.0);
        *worst = worst.max(value.as_secs_f64());
    }

    /// Adds a claim that the metric grows by exactly `count`.
    pub(super) fn claim_exactly(&self, expectation: &'static str, what: &str, selector: SeriesSelector, count: u64) {
        self.claim(expectation, what, selector, count as f64, count as f64);
    }

    pub(super) fn claim(
        &self,
        expectation: &'static str,
        what: &str,
        selector: SeriesSelector,
        at_least: f64,
        at_most: f64,
    ) {
        let what = what.to_owned();
        self.add(Claim { expectation, what, selector, at_least, at_most, needs_clear_view: false, excused: 0.0 });
    }

    /// Adds a claim that holds only if the exporter recognizes each change (`needs_clear_view`).
    pub(super) fn claim_clear(
        &self,
        expectation: &'static str,
        what: &str,
        selector: SeriesSelector,
        at_least: f64,
        at_most: f64,
    ) {
        let what = what.to_owned();
        self.add(Claim { expectation, what, selector, at_least, at_most, needs_clear_view: true, excused: 0.0 });
    }

    /// Adds up the claims of all rounds about the same thing.
    fn add(&self, claim: Claim) {
        let mut notes = self.notes();
        let is_same = |known: &&mut Claim| known.expectation == claim.expectation && known.what == claim.what;
        match notes.claims.iter_mut().find(is_same) {
            Some(known) => {
                known.at_least += claim.at_least;
                known.at_most += claim.at_most;
            }
            None => notes.claims.push(claim),
        }
    }

    /// Claims that the exporter counts every refused operation of a lock namespace, and no others.
    pub(super) fn claim_refusals(&self, namespace: usize, releases: u64, renewals: u64) {
        for (operation, count) in [("release", releases), ("renew", renewals)] {
            let labels = [("lock_namespace", self.namespace(namespace)), ("operation", operation)];
            let what = format!("{} refused {operation}", self.namespace(namespace));
            self.claim_exactly("refusals", &what, SeriesSelector::new("redis_lock_not_owned_total", &labels), count);
        }
    }

    /// Claims `count` losses of a lock namespace with this cause, and none with another cause.
    pub(super) fn claim_cause(&self, namespace: usize, cause: &'static str, count: u64) {
        let lock_namespace = self.namespace(namespace);
        let metric = "redis_lock_not_owned_causes_total";
        let labels = [("lock_namespace", lock_namespace), ("cause", cause)];
        self.claim_clear("cause", cause, SeriesSelector::new(metric, &labels), count as f64, count as f64);
        let all = SeriesSelector::new(metric, &labels[..1]);
        self.claim_exactly("cause", "causes of any kind", all.clone(), count);
        if self.timing().duration.is_some() {
            // In rounds with a stall a cause may be unknown, but never wrong.
            let wrong = all.but(&[("cause", cause), ("cause", "unknown")]);
            self.claim_exactly("cause", "wrong causes", wrong, 0);
        }
    }

    pub(super) fn claim_takeover(&self, namespace: usize, within_slo: bool) {
        let within = if within_slo { "true" } else { "false" };
        let labels = [("lock_namespace", self.namespace(namespace)), ("within_slo", within)];
        let selector = SeriesSelector::new("redis_lock_takeovers_total", &labels);
        let what = if within_slo { "takeovers within the SLO" } else { "takeovers beyond the SLO" };
        self.claim_clear("takeover-seen", what, selector, 1.0, 1.0);
    }

    pub(super) fn claim_incident(&self, claim: IncidentClaim) {
        self.notes().incident = Some(claim);
    }

    /// Records an event that increases a metric of the exporter by at least one. Only the first
    /// event of each kind is kept.
    pub(super) fn happened(&self, what: &'static str, at: Instant, metric: &'static str, namespace: usize) {
        let mut notes = self.notes();
        if notes.happened.iter().all(|known| known.what != what) {
            let selector = SeriesSelector::new(metric, &[("lock_namespace", self.namespace(namespace))]);
            notes.happened.push(Happened { what, at, selector });
        }
    }

    /// Claims that the exporter counted exactly what the workers did. Call it after all workers
    /// have ended.
    pub(super) fn claim_truth(&self) {
        for (index, record) in self.records.iter().enumerate() {
            let truth = record.truth();
            let lock_namespace = self.namespace(index);
            let counts = [
                ("acquisitions", "redis_lock_acquisitions_total", truth.acquisitions),
                ("renewals", "redis_lock_renewals_total", truth.renewals),
                ("releases", "redis_lock_releases_total", truth.releases),
                ("expiries", "redis_lock_expirations_total", truth.expirations),
            ];
            for (what, metric, count) in counts {
                let what = match self.records.len() {
                    1 => what.to_owned(),
                    _ => format!("{lock_namespace} {what}"),
                };
                let selector = SeriesSelector::new(metric, &[("lock_namespace", lock_namespace)]);
                self.claim_clear("keyspace", &what, selector, count as f64, count as f64);
            }
        }
    }

    /// Starts a round and returns its number, counted from 1.
    pub(super) fn round_begins(&self) -> u32 {
        let now = Instant::now();
        let mut notes = self.notes();
        notes.rounds.push((now, now));
        notes.rounds.len() as u32
    }

    pub(super) fn round_ends(&self) {
        if let Some((_, end)) = self.notes().rounds.last_mut() {
            *end = Instant::now();
        }
    }

    /// Excuses the changes that the exporter may have missed because the machine stalled. A drill
    /// in which each failure happens once excuses nothing: it has no other round that could prove
    /// the claim.
    pub(super) fn excuse_stalls(&self) -> Stalled {
        if self.timing().duration.is_none() {
            return Stalled::default();
        }
        let mut notes = self.notes();
        let stalled = self.context.heartbeat.stalled(&notes.rounds);
        notes.claims.iter_mut().for_each(|claim| claim.excuse(stalled));
        if let Some(incident) = &mut notes.incident {
            incident.may_be_unknown = stalled.in_last && stalled.share() > 0.0;
        }
        stalled
    }

    /// Ends the scenario. Copies the notes into the report and returns the rest for the check of
    /// the exporter.
    pub(super) fn finish(&self, report: &mut ScenarioReport) -> Notes {
        let mut notes = std::mem::take(&mut *self.notes());
        report.took_seconds = self.elapsed().as_secs_f64();
        report.ended = Some(Instant::now());
        report.rounds = notes.rounds.len() as u32;
        report.timeline = std::mem::take(&mut notes.timeline);
        report.measured = std::mem::take(&mut notes.measured);
        for result in &mut report.expectations {
            if let Some((held, measured)) = notes.verdicts.remove(result.id) {
                (result.held, result.measured) = (held, measured);
            }
        }
        notes
    }

    fn notes(&self) -> std::sync::MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Claim {
    /// Lowers `at_least` only. `at_most` stays, because the exporter must never show what did not
    /// happen.
    fn excuse(&mut self, stalled: Stalled) {
        if self.needs_clear_view {
            let excused = self.at_least * stalled.share();
            // Changes are counted in integers, so the excused number is rounded down.
            self.excused = if self.at_least.fract() == 0.0 { (excused + 1e-9).floor() } else { excused };
        }
    }
}

pub(super) fn seconds(duration: Duration) -> String {
    format!("{:.2} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(needs_clear_view: bool) -> Claim {
        let selector = SeriesSelector::new("redis_lock_expirations_total", &[]);
        let what = "expiries".to_owned();
        Claim { expectation: "keyspace", what, selector, at_least: 20.0, at_most: 20.0, needs_clear_view, excused: 0.0 }
    }

    #[test]
    fn only_a_stall_that_was_measured_is_an_excuse() {
        let check = |needs_clear_view, rounds, excused: f64| {
            let mut claim = claim(needs_clear_view);
            claim.excuse(Stalled { rounds, of: 20, in_last: false });
            assert_eq!((claim.excused, claim.at_least, claim.at_most), (excused, 20.0, 20.0), "{rounds} of 20");
        };
        check(true, 0, 0.0);
        check(true, 1, 1.0);
        check(true, 3, 3.0);
        check(true, 7, 7.0);
        // With stalls in more than half of the rounds nothing is excused.
        check(true, 11, 0.0);
        check(false, 3, 0.0);
    }
}
