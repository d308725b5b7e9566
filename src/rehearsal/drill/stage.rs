//! One scenario while it runs: where its workers act, what they did, and what has been found about its expectations.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::heartbeat::{Heartbeat, Span, Stalled};
use super::journal::WorkerLog;
use super::probe::Probe;
use super::progress::DrillProgress;
use super::report::{ScenarioReport, TimelineEntry};
use super::table::Scenario;
use super::timing::Timing;
use crate::client::scrape::{Samples, SeriesSelector};
use crate::rehearsal::fleet::{LockSpec, OperationLog, Territory};

/// A sustained drill repeats itself; the first rounds tell all.
const MAX_ENTRIES: usize = 100;

/// What all scenarios on one Redis share.
pub(super) struct Ground {
    /// With its password.
    pub(super) client: redis::Client,
    /// HOST:PORT, for proxies.
    pub(super) address: String,
    pub(super) territory: Arc<Territory>,
    pub(super) journal: WorkerLog,
    pub(super) log_file: PathBuf,
    pub(super) probe: Probe,
    /// Why the exporter cannot see the drill: nothing is to be waited for then.
    pub(super) blind: Option<String>,
    pub(super) timing: Timing,
    pub(super) progress: Arc<DrillProgress>,
    pub(super) heartbeat: Arc<Heartbeat>,
}

pub(super) struct ScenarioRun {
    pub(super) ground: Arc<Ground>,
    pub(super) scenario: &'static Scenario,
    /// What the exporter showed before.
    pub(super) before: Samples,
    /// One for each namespace of the scenario.
    records: Vec<Arc<OperationLog>>,
    started: Instant,
    notes: Mutex<Notes>,
}

/// What the exporter has to show more than before, summed over all rounds.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) expectation: &'static str,
    /// For people.
    pub(super) what: String,
    pub(super) selector: SeriesSelector,
    pub(super) at_least: f64,
    pub(super) at_most: f64,
    /// Follows from each change being seen for what it was. In a round of a sustained drill in which the machine stood still
    /// it need not have been.
    pub(super) needs_clear_view: bool,
    /// How much of `at_least` may be missing for that reason.
    pub(super) excused: f64,
}

/// The last round's lock must be among the incidents.
#[derive(Clone, Debug)]
pub(super) struct IncidentClaim {
    pub(super) lock_namespace: &'static str,
    pub(super) key: String,
    pub(super) operation: &'static str,
    pub(super) cause: &'static str,
    pub(super) wants_next_owner: bool,
    /// The machine stood still in that round.
    pub(super) may_be_unknown: bool,
}

/// When something happened for the first time, and what shows it.
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
    /// From their beginning to their end.
    pub(super) rounds: Vec<Span>,
}

impl ScenarioRun {
    pub(super) async fn new(ground: &Arc<Ground>, scenario: &'static Scenario) -> anyhow::Result<Self> {
        Ok(Self {
            ground: Arc::clone(ground),
            scenario,
            before: ground.probe.scrape().await?,
            records: scenario.namespaces.iter().map(|_| Arc::default()).collect(),
            started: Instant::now(),
            notes: Mutex::default(),
        })
    }

    pub(super) fn timing(&self) -> &Timing {
        &self.ground.timing
    }

    /// A lock of its own for each round. The fence and the storage behind it are at [`ScenarioRun::beside`].
    pub(super) fn lock_of(&self, namespace: usize, round: u32) -> LockSpec {
        let key = self.ground.territory.key(&format!("{}-r{round}:{}", self.scenario.name, self.namespace(namespace)));
        self.lock_at(namespace, key)
    }

    /// The lock that is named in the configuration as it is.
    pub(super) fn fixed_lock(&self, namespace: usize) -> LockSpec {
        self.lock_at(namespace, self.ground.territory.key(self.namespace(namespace)))
    }

    pub(super) fn lock_at(&self, namespace: usize, key: String) -> LockSpec {
        LockSpec { key, ttl: self.timing().ttl, record: Arc::clone(&self.records[namespace]) }
    }

    /// What belongs to the locks of a round: no other scenario's fence may have counted before.
    pub(super) fn beside(&self, round: u32, what: &str) -> String {
        self.ground.territory.key(&format!("{}-r{round}:{what}", self.scenario.name))
    }

    pub(super) fn namespace(&self, index: usize) -> &'static str {
        self.scenario.namespaces[index].name
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// For the timeline, and for who watches.
    pub(super) fn note(&self, who: &str, what: &str) {
        self.ground.progress.say(&format!("{}: {who} {what}", self.scenario.name));
        let at_seconds = self.elapsed().as_secs_f64();
        let mut notes = self.notes();
        if notes.timeline.len() < MAX_ENTRIES {
            notes.timeline.push(TimelineEntry { at_seconds, who: who.to_owned(), what: what.to_owned() });
        }
    }

    /// An expectation that held or did not; over all rounds it must hold each time, and the first failure is what is shown.
    pub(super) fn expect(&self, id: &'static str, held: bool, measured: String) {
        let mut notes = self.notes();
        let verdict = notes.verdicts.entry(id).or_insert((true, String::new()));
        if verdict.0 {
            *verdict = (held, measured);
        }
    }

    /// The worst of all rounds is kept.
    pub(super) fn measure(&self, name: &'static str, value: Duration) {
        let mut notes = self.notes();
        let worst = notes.measured.entry(name).or_insert(0.0);
        *worst = worst.max(value.as_secs_f64());
    }

    /// Adds to what the exporter has to show.
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

    /// For what follows from each change being seen for what it was.
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

    /// Claims of the same thing, one of each round, are added up.
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

    /// Every refused operation of a namespace, and no others.
    pub(super) fn claim_refusals(&self, namespace: usize, releases: u64, renewals: u64) {
        for (operation, count) in [("release", releases), ("renew", renewals)] {
            let labels = [("lock_namespace", self.namespace(namespace)), ("operation", operation)];
            let what = format!("{} refused {operation}", self.namespace(namespace));
            self.claim_exactly("refusals", &what, SeriesSelector::new("redis_lock_not_owned_total", &labels), count);
        }
    }

    /// So many losses of a namespace with this cause, and none with another.
    pub(super) fn claim_cause(&self, namespace: usize, cause: &'static str, count: u64) {
        let lock_namespace = self.namespace(namespace);
        let metric = "redis_lock_not_owned_causes_total";
        let labels = [("lock_namespace", lock_namespace), ("cause", cause)];
        self.claim_clear("cause", cause, SeriesSelector::new(metric, &labels), count as f64, count as f64);
        let all = SeriesSelector::new(metric, &labels[..1]);
        self.claim_exactly("cause", "causes of any kind", all.clone(), count);
        if self.timing().duration.is_some() {
            // What could not be told may be called unknown, but nothing else.
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

    /// Something happened that the exporter shows by one more of these.
    pub(super) fn happened(&self, what: &'static str, at: Instant, metric: &'static str, namespace: usize) {
        let mut notes = self.notes();
        if notes.happened.iter().all(|known| known.what != what) {
            let selector = SeriesSelector::new(metric, &[("lock_namespace", self.namespace(namespace))]);
            notes.happened.push(Happened { what, at, selector });
        }
    }

    /// All workers have ended: what they did is what the exporter has to have counted.
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

    /// Which one it is, from 1 on.
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

    /// What need not have been seen, because the machine stood still. A drill in which each failure happens once has to be
    /// exact: nothing is left of it otherwise.
    pub(super) fn excuse_stalls(&self) -> Stalled {
        if self.timing().duration.is_none() {
            return Stalled::default();
        }
        let mut notes = self.notes();
        let stalled = self.ground.heartbeat.stalled(&notes.rounds);
        notes.claims.iter_mut().for_each(|claim| claim.excuse(stalled));
        if let Some(incident) = &mut notes.incident {
            incident.may_be_unknown = stalled.in_last && stalled.share() > 0.0;
        }
        stalled
    }

    /// Ends the scenario: what was noted, for the report and for the check of the exporter.
    pub(super) fn finish(&self, report: &mut ScenarioReport) -> Notes {
        let mut notes = std::mem::take(&mut *self.notes());
        report.took_seconds = self.elapsed().as_secs_f64();
        report.ended = Some(Instant::now());
        report.rounds = notes.rounds.len() as u32;
        report.timeline = std::mem::take(&mut notes.timeline);
        report.measured = std::mem::take(&mut notes.measured);
        for verdict in &mut report.expectations {
            if let Some((held, measured)) = notes.verdicts.remove(verdict.id) {
                (verdict.held, verdict.measured) = (held, measured);
            }
        }
        notes
    }

    fn notes(&self) -> std::sync::MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Claim {
    /// Never upward: what did not happen must not be seen either.
    fn excuse(&mut self, stalled: Stalled) {
        if self.needs_clear_view {
            let excused = self.at_least * stalled.share();
            // Half a change cannot be missing.
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
        // Most of them: nothing would be proven.
        check(true, 11, 0.0);
        check(false, 3, 0.0);
    }
}
