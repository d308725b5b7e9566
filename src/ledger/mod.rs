//! The state of the exporter. The ledger is pure: it does no I/O, reads no clock and cannot fail.
//! Time and events are arguments.
//!
//! The pipeline is the only caller in the daemon. `replay` and `check --logs` also call the ledger,
//! without Redis. There are two inputs. [`Ledger::apply`] takes a log event and decides what it
//! adds to the counters. [`Ledger::apply_link`] takes a batch of sightings and infers what happened
//! to the locks. The causes of losses combine both inputs. In reading order:
//!
//! * this file: the ledger, and how a log event is counted
//! * `failures`: one failure counts once, however many lines report it
//! * `keyspace_updates`: batches from links, due reads, losses and views
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
use causes::PendingLosses;
use causes::incidents::IncidentLog;
use failures::final_states::FinalStates;
use failures::joining::{Aspect, FailureJoiner, LockHash, Window};
pub use locks::KeyspaceSettings;
use locks::LockTracker;
use recent::{Event, Recent};

/// Each renewal after a loss reports the same loss again. Reports belong to one loss as long as the
/// time between two of them is at most this many renewal intervals.
const RENEWALS_OF_ONE_LOSS: f64 = 1.5;

pub struct Ledger {
    namespaces: Vec<Arc<Namespace>>,
    join_window: TimeMs,
    saved: Saved,
    /// `None` if Redis is not observed.
    keyspace: Option<LockTracker>,
    /// Indexed by [`RuleId`]. Incidents and lock histories show these names.
    rule_names: Arc<[String]>,
    /// Counts of the last hour, one entry per lock namespace.
    recents: Vec<Recent>,
    incidents: IncidentLog,
    pending_losses: PendingLosses,
}

/// The part of the ledger that survives a restart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Saved {
    /// Keyed by lock namespace. Namespaces removed from the configuration are kept, because they
    /// may come back.
    namespaces: BTreeMap<String, LogCounters>,
    joined: FailureJoiner,
    finals: FinalStates,
    /// Keyed by lock namespace, like `namespaces`.
    keyspace: BTreeMap<String, KeyspaceCounters>,
    /// Keyed by lock namespace. The sum of the causes equals the number of losses (`not_owned`) in
    /// `namespaces`, minus the losses that still waited for their cause when this was saved.
    causes: BTreeMap<String, Tally<Cause>>,
}

/// How [`Ledger::apply`] counted an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    pub event: &'static str,
    pub operation: Option<&'static str>,
    pub reason: Option<Reason>,
}

impl Ledger {
    /// The last entry of `namespaces` must be `other`.
    pub fn new(namespaces: Vec<Arc<Namespace>>, join_window: Duration, saved: Saved) -> Self {
        let join_window = join_window.as_millis() as TimeMs;
        let recents = namespaces.iter().map(|_| Recent::new()).collect();
        let (keyspace, rule_names, incidents) = (None, Arc::default(), IncidentLog::default());
        let pending_losses = PendingLosses::default();
        let mut ledger =
            Self { namespaces, join_window, saved, keyspace, rule_names, recents, incidents, pending_losses };
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

    /// Removes entries that no later line can be joined with. `now` is an arrival time, not the
    /// time of a line.
    pub fn tidy(&mut self, now: TimeMs) {
        let renewals = self.namespaces.iter().map(|namespace| renewal_window(namespace)).max().unwrap_or_default();
        self.saved.joined.tidy(now, self.join_window.max(renewals));
    }

    /// Counts an event. `at` is the time of its line, or an estimate if the line has no time; it
    /// decides which failure the event belongs to. `now` is the arrival time, on the same clock.
    /// Returns `None` if the event adds nothing to the counters, for example because it belongs to
    /// a failure that was already counted.
    pub fn apply(&mut self, at: TimeMs, now: TimeMs, event: &LogEvent) -> Option<Counted> {
        let joins = event.joins.map_or(0, |joins| joins.as_millis() as TimeMs);
        let moment = EventContext {
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

    fn release_failed(&mut self, moment: &EventContext, reason: Reason) -> Option<Counted> {
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

    fn renewal_failed(&mut self, moment: &EventContext, reason: Reason) -> Option<Counted> {
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

    fn acquire_failed(&mut self, moment: &EventContext, reason: Reason) -> Option<Counted> {
        let failed = self.is_new(moment, Aspect::Acquire, moment.joining());
        if failed {
            self.counters_of(moment).acquire_failures.increment(reason);
            if !matches!(reason, Reason::Busy | Reason::Canceled) {
                self.happened_lately(moment, Event::AcquireFailure);
            }
        }
        counted(failed, "acquire_failed", "acquire", reason)
    }

    /// The operation is unknown, so the line may repeat a release loss or a renewal loss that was
    /// already counted. If the rule sets `joins`, the line may also belong to a failed acquisition.
    fn not_owned(&mut self, moment: &EventContext) -> Option<Counted> {
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

    fn abandoned(&mut self, moment: &EventContext, reason: Option<Reason>) -> Option<Counted> {
        let loss_window = moment.loss_window();
        let abandoned = self.is_new(moment, Aspect::Abandonment, loss_window);
        if abandoned {
            self.counters_of(moment).abandonments += 1;
            self.happened_lately(moment, Event::Abandonment);
        }
        // The line that reports the abandonment also reports one more failed renewal.
        let renewal = reason.and_then(|reason| self.renewal_failed(moment, reason));
        match abandoned {
            true => Some(Counted { event: "abandoned", operation: Some("renew"), reason }),
            false => renewal,
        }
    }

    fn unlocked_work(&mut self, moment: &EventContext, reason: Reason) -> Option<Counted> {
        let unlocked = self.is_new(moment, Aspect::UnlockedWork, moment.joining());
        if unlocked {
            self.counters_of(moment).unlocked_work += 1;
            self.happened_lately(moment, Event::UnlockedWork);
        }
        let acquire = self.acquire_failed(moment, reason);
        counted(unlocked, "unlocked_work", "acquire", reason).or(acquire)
    }

    fn terminal_state(&mut self, moment: &EventContext, state: &str, may_follow: Option<&str>) -> Option<Counted> {
        let lock = moment.hash(Aspect::FinalState)?;
        let conflict = self.saved.finals.reached(lock, state, may_follow);
        if conflict {
            self.counters_of(moment).conflicting_writes.increment(ConflictKind::DuplicateTerminalState);
            self.happened_lately(moment, Event::ConflictingWrite);
        }
        conflict.then_some(Counted { event: "duplicate_terminal_state", operation: None, reason: None })
    }

    fn conflicting_write(&mut self, moment: &EventContext, kind: ConflictKind) -> Option<Counted> {
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

    /// Whether the event starts a new failure of this aspect. If not, it is one more line about the
    /// last failure. Events without a lock are never joined, because two such lines may be about
    /// two locks.
    fn is_new(&mut self, moment: &EventContext, aspect: Aspect, window: Window) -> bool {
        match moment.hash(aspect) {
            Some(lock) => self.saved.joined.begins(lock, moment.at, moment.now, window),
            None => true,
        }
    }

    /// Like `is_new`, for a loss: a line with an unknown operation may already have counted it.
    fn is_new_loss(&mut self, moment: &EventContext, aspect: Aspect, window: Window) -> bool {
        let unknown_loss = moment.hash(Aspect::UnknownLoss);
        let counted_as_unknown = self.saved.joined.is_open(unknown_loss, moment.at, moment.window);
        self.is_new(moment, aspect, window) && !counted_as_unknown
    }

    /// Maps an id outside the configured range to `other`, which is the last namespace. Such an id
    /// comes from a rule of another configuration.
    fn known(&self, id: NamespaceId) -> NamespaceId {
        NamespaceId(id.0.min((self.namespaces.len() - 1) as u16))
    }

    fn namespace(&self, id: NamespaceId) -> Arc<Namespace> {
        Arc::clone(&self.namespaces[usize::from(self.known(id).0)])
    }

    fn counters_of(&mut self, moment: &EventContext) -> &mut LogCounters {
        self.saved.namespaces.entry(moment.namespace.name.clone()).or_default()
    }
}

/// One event with its times, its lock and its lock namespace.
struct EventContext<'a> {
    at: TimeMs,
    now: TimeMs,
    /// How far this line may be from a failure and still belong to it.
    window: TimeMs,
    /// The join window that the rule asks for, or 0.
    joins: TimeMs,
    lock: Option<&'a str>,
    rule: RuleId,
    id: NamespaceId,
    namespace: Arc<Namespace>,
}

impl EventContext<'_> {
    /// The window for all lines about one attempt.
    fn joining(&self) -> Window {
        Window::FromFirst(self.window)
    }

    /// The window for a loss, which every later renewal reports again.
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
