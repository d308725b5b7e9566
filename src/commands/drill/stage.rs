//! One scenario while it runs: where its workers act, what they did, and what has been found about its expectations.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::journal::Journal;
use super::probe::Probe;
use super::progress::Progress;
use super::report::{Entry, ScenarioReport};
use super::table::Scenario;
use super::timing::Timing;
use crate::commands::samples::{Samples, Selector};
use crate::fleet::{Record, Territory};

/// A sustained drill repeats itself; the first rounds tell all.
const MAX_ENTRIES: usize = 100;

/// Of what happened in a sustained drill, how much the exporter may count differently.
const SLACK: f64 = 0.01;

/// What all scenarios on one Redis share.
pub(super) struct Ground {
    /// With its password.
    pub(super) client: redis::Client,
    /// HOST:PORT, for proxies.
    pub(super) address: String,
    pub(super) territory: Arc<Territory>,
    pub(super) journal: Journal,
    pub(super) log_file: PathBuf,
    pub(super) probe: Probe,
    /// Why the exporter cannot see the drill: nothing is to be waited for then.
    pub(super) blind: Option<String>,
    pub(super) timing: Timing,
    pub(super) progress: Arc<Progress>,
}

pub(super) struct Stage {
    pub(super) ground: Arc<Ground>,
    pub(super) scenario: &'static Scenario,
    /// What the exporter showed before.
    pub(super) before: Samples,
    /// One for each namespace of the scenario.
    records: Vec<Arc<Record>>,
    started: Instant,
    notes: Mutex<Notes>,
}

/// One lock of one namespace of the scenario.
#[derive(Clone)]
pub(super) struct Lock {
    pub(super) key: String,
    pub(super) record: Arc<Record>,
}

/// What the exporter has to show more than before, summed over all rounds.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) expectation: &'static str,
    /// For people.
    pub(super) what: String,
    pub(super) selector: Selector,
    pub(super) at_least: f64,
    pub(super) at_most: f64,
    /// Follows from an end being told for what it was. On a machine that stands still around the deadline nobody can tell,
    /// and a sustained drill allows for that as it does for the ends themselves.
    pub(super) needs_clear_end: bool,
}

/// The last round's lock must be among the incidents.
#[derive(Clone, Debug)]
pub(super) struct IncidentClaim {
    pub(super) lock_namespace: &'static str,
    pub(super) key: String,
    pub(super) operation: &'static str,
    pub(super) cause: &'static str,
    pub(super) wants_next_owner: bool,
}

/// When something happened for the first time, and what shows it.
#[derive(Clone, Debug)]
pub(super) struct Happened {
    pub(super) what: &'static str,
    pub(super) at: Instant,
    pub(super) selector: Selector,
}

#[derive(Default)]
pub(super) struct Notes {
    pub(super) timeline: Vec<Entry>,
    pub(super) measured: BTreeMap<&'static str, f64>,
    pub(super) verdicts: BTreeMap<&'static str, (bool, String)>,
    pub(super) claims: Vec<Claim>,
    pub(super) incident: Option<IncidentClaim>,
    pub(super) happened: Vec<Happened>,
}

impl Stage {
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

    /// A lock of its own for each round. The fence and the storage behind it are at [`Stage::beside`].
    pub(super) fn lock_of(&self, namespace: usize, round: u32) -> Lock {
        let key = self.ground.territory.key(&format!("{}-r{round}:{}", self.scenario.name, self.namespace(namespace)));
        self.lock_at(namespace, key)
    }

    /// The lock that is named in the configuration as it is.
    pub(super) fn fixed_lock(&self, namespace: usize) -> Lock {
        self.lock_at(namespace, self.ground.territory.key(self.namespace(namespace)))
    }

    pub(super) fn lock_at(&self, namespace: usize, key: String) -> Lock {
        Lock { key, record: Arc::clone(&self.records[namespace]) }
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
            notes.timeline.push(Entry { at_seconds, who: who.to_owned(), what: what.to_owned() });
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
    pub(super) fn claim_exactly(&self, expectation: &'static str, what: &str, selector: Selector, count: u64) {
        self.claim(expectation, what, selector, count as f64, count as f64);
    }

    pub(super) fn claim(&self, expectation: &'static str, what: &str, selector: Selector, at_least: f64, at_most: f64) {
        let what = what.to_owned();
        self.add(Claim { expectation, what, selector, at_least, at_most, needs_clear_end: false });
    }

    /// For what follows from an end being told for what it was.
    pub(super) fn claim_clear(
        &self,
        expectation: &'static str,
        what: &str,
        selector: Selector,
        at_least: f64,
        at_most: f64,
    ) {
        let what = what.to_owned();
        self.add(Claim { expectation, what, selector, at_least, at_most, needs_clear_end: true });
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
            self.claim_exactly("refusals", &what, Selector::new("redis_lock_not_owned_total", &labels), count);
        }
    }

    /// So many losses of a namespace with this cause, and none with another.
    pub(super) fn claim_cause(&self, namespace: usize, cause: &'static str, count: u64) {
        let lock_namespace = self.namespace(namespace);
        let metric = "redis_lock_not_owned_causes_total";
        let labels = [("lock_namespace", lock_namespace), ("cause", cause)];
        self.claim_clear("cause", cause, Selector::new(metric, &labels), count as f64, count as f64);
        let all = Selector::new(metric, &labels[..1]);
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
        let selector = Selector::new("redis_lock_takeovers_total", &labels);
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
            let selector = Selector::new(metric, &[("lock_namespace", self.namespace(namespace))]);
            notes.happened.push(Happened { what, at, selector });
        }
    }

    /// All workers have ended: what they did is what the exporter has to have counted.
    pub(super) fn claim_truth(&self, rounds: u32) {
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
                let selector = Selector::new(metric, &[("lock_namespace", lock_namespace)]);
                // Among hundreds of changes a busy machine may show two at once.
                let (count, slack) = (count as f64, slack_of(count, rounds));
                self.claim("keyspace", &what, selector, count - slack, count + slack);
            }
        }
        let unclear = slack_of(u64::from(rounds), rounds) / f64::from(rounds.max(1));
        for claim in self.notes().claims.iter_mut().filter(|claim| claim.needs_clear_end) {
            claim.at_least -= claim.at_least * unclear;
        }
    }

    /// Ends the scenario: what was noted, for the report and for the check of the exporter.
    pub(super) fn finish(&self, report: &mut ScenarioReport) -> Notes {
        let mut notes = std::mem::take(&mut *self.notes());
        report.took_seconds = self.elapsed().as_secs_f64();
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

/// Of so many things that happened, how many may be missing.
fn slack_of(count: u64, rounds: u32) -> f64 {
    if rounds > 1 { (count as f64 * SLACK).ceil() } else { 0.0 }
}

pub(super) fn seconds(duration: Duration) -> String {
    format!("{:.2} s", duration.as_secs_f64())
}
