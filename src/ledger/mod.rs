//! THE state, pure: no I/O, no clock, cannot fail. Time and events are arguments.
//!
//! The pipeline is the only caller in the daemon. `replay` and `check --logs` also call it, without Redis. There are two
//! inputs. [`Ledger::apply`] takes a log event and decides what it adds to the counters. [`Ledger::apply_link`] takes a
//! batch of sightings and infers what happened to the locks. Both meet in the causes of lost locks. In reading order:
//!
//! * this file: the ledger, and how a log event is counted
//! * `failures`: one failure counts once, however many lines report it
//! * `keyspace_updates`: batches of links, due reads, losses and views
//! * `locks`: the locks as Redis shows them
//! * `causes`: why locks were lost
//! * `recent`: counts and ratios of the last minutes and the last hour
//! * `queries`: answers about single locks

mod causes;
mod failures;
mod keyspace_updates;
mod locks;
mod queries;
mod recent;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::counters::{KeyspaceCounters, LogCounters, Tally};
use crate::model::failure::{Cause, ConflictKind, Operation, Reason};
use crate::model::log_event::{Happening, LogEvent, RuleId};
use crate::model::namespace::{Namespace, NamespaceId};
use crate::util::clock::TimeMs;
use causes::incidents::IncidentLog;
use failures::final_states::Finals;
use failures::joining::{Aspect, Joined, LockHash, Window};
pub use locks::KeyspaceSettings;
use locks::LockTracker;
use recent::{Event, Recent};

/// A lost lock is noticed by each renewal that follows. They are one loss while they keep coming at about the pace of
/// renewals.
const RENEWALS_OF_ONE_LOSS: f64 = 1.5;

pub struct Ledger {
    namespaces: Vec<Arc<Namespace>>,
    join_window: TimeMs,
    saved: Saved,
    /// `None`: Redis is not observed.
    keyspace: Option<LockTracker>,
    /// For their names.
    rule_names: Arc<[String]>,
    /// What happened lately, for each namespace.
    recents: Vec<Recent>,
    incidents: IncidentLog,
}

/// All that must survive a restart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Saved {
    /// By name: also those that the configuration no longer has, for it may get them back.
    namespaces: BTreeMap<String, LogCounters>,
    joined: Joined,
    finals: Finals,
    /// By name, too.
    keyspace: BTreeMap<String, KeyspaceCounters>,
    /// As many as there are lost locks in `namespaces`, but for those that waited for their cause when this was saved.
    causes: BTreeMap<String, Tally<Cause>>,
}

/// What an event was counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    pub event: &'static str,
    pub operation: Option<&'static str>,
    pub reason: Option<Reason>,
}

impl Ledger {
    /// `namespaces` ends with `other`.
    pub fn new(namespaces: Vec<Arc<Namespace>>, join_window: Duration, saved: Saved) -> Self {
        let join_window = join_window.as_millis() as TimeMs;
        let recents = namespaces.iter().map(|_| Recent::new()).collect();
        let (keyspace, rule_names, incidents) = (None, Arc::default(), IncidentLog::default());
        let mut ledger = Self { namespaces, join_window, saved, keyspace, rule_names, recents, incidents };
        ledger.settle_saved();
        ledger
    }

    pub fn saved(&self) -> &Saved {
        &self.saved
    }

    pub fn into_saved(self) -> Saved {
        self.saved
    }

    pub fn namespaces(&self) -> &[Arc<Namespace>] {
        &self.namespaces
    }

    pub fn counters(&self, namespace: &Namespace) -> LogCounters {
        self.saved.namespaces.get(&namespace.name).cloned().unwrap_or_default()
    }

    /// Forgets what no later line can be joined with. `now` is the time of arrival, not of lines.
    pub fn tidy(&mut self, now: TimeMs) {
        let renewals = self.namespaces.iter().map(|namespace| renewal_window(namespace)).max().unwrap_or_default();
        self.saved.joined.tidy(now, self.join_window.max(renewals));
    }

    /// Counts an event. `at` is the time to judge it by, `now` the time of its arrival. None: it is part of a failure
    /// that was counted already.
    pub fn apply(&mut self, at: TimeMs, now: TimeMs, event: &LogEvent) -> Option<Counted> {
        let joins = event.joins.map_or(0, |joins| joins.as_millis() as TimeMs);
        let moment = Moment {
            at,
            now,
            window: self.join_window.max(joins),
            joins,
            lock: event.lock.as_deref(),
            rule: event.rule,
            id: self.known(event.namespace),
            namespace: self.namespace(event.namespace),
        };
        let counted = match &event.happening {
            Happening::ReleaseFailed(reason) => self.release_failed(&moment, *reason),
            Happening::RenewalFailed(reason) => self.renewal_failed(&moment, *reason),
            Happening::AcquireFailed(reason) => self.acquire_failed(&moment, *reason),
            Happening::NotOwned => self.not_owned(&moment),
            Happening::Abandoned(reason) => self.abandoned(&moment, *reason),
            Happening::UnlockedWork(reason) => self.unlocked_work(&moment, *reason),
            Happening::TerminalState { state, may_follow } => {
                self.terminal_state(&moment, state, may_follow.as_deref())
            }
            Happening::ConflictingWrite(kind) => self.conflicting_write(&moment, *kind),
        };
        if let Some(counted) = &counted {
            self.said(&moment, counted);
        }
        counted
    }

    fn release_failed(&mut self, moment: &Moment, reason: Reason) -> Option<Counted> {
        let failed = self.is_new(moment, Aspect::Release, moment.joining());
        let lost = reason == Reason::NotOwned && self.is_new_loss(moment, Aspect::ReleaseLoss, moment.joining());
        let counters = self.counters_of(moment);
        if failed {
            counters.release_failures.increment(reason);
        }
        if lost {
            counters.not_owned.increment(Operation::Release);
            self.lost(moment, Operation::Release);
        }
        counted(lost, "not_owned", "release", reason).or_else(|| counted(failed, "release_failed", "release", reason))
    }

    fn renewal_failed(&mut self, moment: &Moment, reason: Reason) -> Option<Counted> {
        if reason == Reason::Canceled {
            return None;
        }
        let loss_window = moment.loss_window();
        let failed = self.is_new(moment, Aspect::Renewal, moment.joining());
        let lost = reason == Reason::NotOwned && self.is_new_loss(moment, Aspect::RenewalLoss, loss_window);
        let counters = self.counters_of(moment);
        if failed {
            counters.renewal_failures.increment(reason);
        }
        if lost {
            counters.not_owned.increment(Operation::Renew);
            self.lost(moment, Operation::Renew);
        }
        if failed {
            self.happened_lately(moment, Event::RenewalFailure);
        }
        counted(lost, "not_owned", "renew", reason).or_else(|| counted(failed, "renewal_failed", "renew", reason))
    }

    fn acquire_failed(&mut self, moment: &Moment, reason: Reason) -> Option<Counted> {
        let failed = self.is_new(moment, Aspect::Acquire, moment.joining());
        if failed {
            self.counters_of(moment).acquire_failures.increment(reason);
            if !matches!(reason, Reason::Busy | Reason::Canceled) {
                self.happened_lately(moment, Event::AcquireFailure);
            }
        }
        counted(failed, "acquire_failed", "acquire", reason)
    }

    /// The operation is not known, so the line may be another one about a release or renewal that was counted; where the rule
    /// says so, about an acquisition, too.
    fn not_owned(&mut self, moment: &Moment) -> Option<Counted> {
        let windows = [
            (Aspect::ReleaseLoss, moment.window),
            (Aspect::RenewalLoss, moment.window),
            (Aspect::Acquire, moment.joins),
        ];
        let part_of_known = windows
            .into_iter()
            .any(|(aspect, window)| self.saved.joined.is_open(moment.hash(aspect), moment.at, window));
        let lost = !part_of_known && self.is_new(moment, Aspect::UnknownLoss, moment.joining());
        if lost {
            self.counters_of(moment).not_owned.increment(Operation::Unknown);
            self.lost(moment, Operation::Unknown);
        }
        counted(lost, "not_owned", "unknown", Reason::NotOwned)
    }

    fn abandoned(&mut self, moment: &Moment, reason: Option<Reason>) -> Option<Counted> {
        let loss_window = moment.loss_window();
        let abandoned = self.is_new(moment, Aspect::Abandonment, loss_window);
        if abandoned {
            self.counters_of(moment).abandonments += 1;
            self.happened_lately(moment, Event::Abandonment);
        }
        // The line that gives up stands for one more failed renewal.
        let renewal = reason.and_then(|reason| self.renewal_failed(moment, reason));
        match abandoned {
            true => Some(Counted { event: "abandoned", operation: Some("renew"), reason }),
            false => renewal,
        }
    }

    fn unlocked_work(&mut self, moment: &Moment, reason: Reason) -> Option<Counted> {
        let unlocked = self.is_new(moment, Aspect::UnlockedWork, moment.joining());
        if unlocked {
            self.counters_of(moment).unlocked_work += 1;
            self.happened_lately(moment, Event::UnlockedWork);
        }
        let acquire = self.acquire_failed(moment, reason);
        counted(unlocked, "unlocked_work", "acquire", reason).or(acquire)
    }

    fn terminal_state(&mut self, moment: &Moment, state: &str, may_follow: Option<&str>) -> Option<Counted> {
        let lock = moment.hash(Aspect::FinalState)?;
        let conflict = self.saved.finals.reached(lock, state, may_follow);
        if conflict {
            self.counters_of(moment).conflicting_writes.increment(ConflictKind::DuplicateTerminalState);
            self.happened_lately(moment, Event::ConflictingWrite);
        }
        conflict.then_some(Counted { event: "duplicate_terminal_state", operation: None, reason: None })
    }

    fn conflicting_write(&mut self, moment: &Moment, kind: ConflictKind) -> Option<Counted> {
        let new = self.is_new(moment, Aspect::Conflict(kind), moment.joining());
        if new {
            self.counters_of(moment).conflicting_writes.increment(kind);
            self.happened_lately(moment, Event::ConflictingWrite);
        }
        let event = match kind {
            ConflictKind::DuplicateTerminalState => "duplicate_terminal_state",
            ConflictKind::StaleWriteRejected => "stale_write_rejected",
            ConflictKind::StateConflict => "state_conflict",
        };
        new.then_some(Counted { event, operation: None, reason: None })
    }

    /// Whether this begins a new failure of that kind rather than being one more line about the last one. Without a known
    /// lock nothing can be joined: two such lines may speak of two locks.
    fn is_new(&mut self, moment: &Moment, aspect: Aspect, window: Window) -> bool {
        match moment.hash(aspect) {
            Some(lock) => self.saved.joined.begins(lock, moment.at, moment.now, window),
            None => true,
        }
    }

    /// As `is_new`, for a lost lock: a line that did not tell the operation may have counted it already.
    fn is_new_loss(&mut self, moment: &Moment, aspect: Aspect, window: Window) -> bool {
        let unknown_loss = moment.hash(Aspect::UnknownLoss);
        let counted_as_unknown = self.saved.joined.is_open(unknown_loss, moment.at, moment.window);
        self.is_new(moment, aspect, window) && !counted_as_unknown
    }

    /// `other` is the last one and takes what a rule made for another configuration could not place.
    fn known(&self, id: NamespaceId) -> NamespaceId {
        NamespaceId(id.0.min((self.namespaces.len() - 1) as u16))
    }

    fn namespace(&self, id: NamespaceId) -> Arc<Namespace> {
        Arc::clone(&self.namespaces[usize::from(self.known(id).0)])
    }

    fn counters_of(&mut self, moment: &Moment) -> &mut LogCounters {
        self.saved.namespaces.entry(moment.namespace.name.clone()).or_default()
    }
}

/// One event's circumstances.
struct Moment<'a> {
    at: TimeMs,
    now: TimeMs,
    /// How far from the last line about a failure this one may be and still be about it.
    window: TimeMs,
    /// What the rule asks for, 0 if nothing.
    joins: TimeMs,
    lock: Option<&'a str>,
    rule: RuleId,
    id: NamespaceId,
    namespace: Arc<Namespace>,
}

impl Moment<'_> {
    /// For one attempt and all that is said about it.
    fn joining(&self) -> Window {
        Window::FromFirst(self.window)
    }

    /// For what every renewal notices again.
    fn loss_window(&self) -> Window {
        Window::FromLast(self.window.max(renewal_window(&self.namespace)))
    }

    fn hash(&self, aspect: Aspect) -> Option<LockHash> {
        self.lock.map(|lock| LockHash::new(&self.namespace.name, lock, aspect))
    }
}

fn renewal_window(namespace: &Namespace) -> TimeMs {
    namespace.renew_every.unwrap_or_default().mul_f64(RENEWALS_OF_ONE_LOSS).as_millis() as TimeMs
}

fn counted(happened: bool, event: &'static str, operation: &'static str, reason: Reason) -> Option<Counted> {
    happened.then_some(Counted { event, operation: Some(operation), reason: Some(reason) })
}

#[cfg(test)]
mod tests;
