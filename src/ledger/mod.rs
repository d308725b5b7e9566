//! The state of the exporter. The ledger is pure: it does no I/O, reads no clock and cannot fail.
//! Time and events are arguments.
//!
//! The pipeline is the only caller in the daemon. `replay` and `check --logs` also call the ledger,
//! without Redis. There are two inputs. [`Ledger::apply`] takes a log event and decides what it
//! adds to the counters. [`Ledger::apply_link`] takes a batch of sightings and infers what happened
//! to the locks. The causes of losses combine both inputs. In reading order:
//!
//! * this file: the ledger and its log events
//! * `failures`: counts each failure once, however many lines report it
//! * `keyspace_updates`: batches from links, due reads, losses and views
//! * `locks`: the locks as Redis shows them
//! * `causes`: why locks were lost
//! * `recent`: counts and ratios of the last minutes and the last hour
//! * `queries`: answers about single locks
//! * `reconfigure`, `renumbering`: a new configuration for a running ledger
//! * `memory`: what survives a restart besides the counters

mod causes;
mod failures;
mod keyspace_updates;
mod locks;
mod memory;
mod queries;
mod recent;
mod reconfigure;
mod renumbering;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::counters::{FailureCounters, KeyspaceCounters, Tally};
use crate::model::failure::{Cause, Failure};
use crate::model::log_event::LogEvent;
use crate::model::namespace::{Namespace, NamespaceId};
use crate::util::clock::TimeMs;
use causes::incidents::IncidentLog;
use failures::final_states::FinalStates;
use failures::joining::FailureJoiner;
use failures::{EventContext, renewal_window};
pub use locks::KeyspaceSettings;
use locks::LockTracker;
pub use memory::Memory;
use recent::Recent;
pub use reconfigure::{LinkContinuity, Reconfiguration};

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
}

/// The part of the ledger that survives a restart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Saved {
    /// Keyed by lock namespace. Namespaces removed from the configuration are kept, because they
    /// may come back.
    namespaces: BTreeMap<String, FailureCounters>,
    joined: FailureJoiner,
    finals: FinalStates,
    /// Keyed by lock namespace, like `namespaces`.
    keyspace: BTreeMap<String, KeyspaceCounters>,
    /// Keyed by lock namespace. The sum of the causes equals the number of losses (`not_owned`) in
    /// `namespaces`, minus the losses that still waited for their cause when this was saved.
    causes: BTreeMap<String, Tally<Cause>>,
}

impl Ledger {
    /// The last entry of `namespaces` must be `other`.
    pub fn new(namespaces: Vec<Arc<Namespace>>, join_window: Duration, saved: Saved) -> Self {
        let join_window = join_window.as_millis() as TimeMs;
        let recents = namespaces.iter().map(|_| Recent::new(0)).collect();
        let (keyspace, rule_names, incidents) = (None, Arc::default(), IncidentLog::default());
        let mut ledger = Self { namespaces, join_window, saved, keyspace, rule_names, recents, incidents };
        ledger.settle_saved();
        ledger
    }

    /// Sets the time from which on events are observed.
    pub fn starting_at(mut self, now: TimeMs) -> Self {
        self.recents = self.namespaces.iter().map(|_| Recent::new(now)).collect();
        self
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

    pub fn counters(&self, namespace: &Namespace) -> FailureCounters {
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
    pub fn apply(&mut self, at: TimeMs, now: TimeMs, event: &LogEvent) -> Option<Failure> {
        let joins = event.joins.map_or(0, |joins| joins.as_millis() as TimeMs);
        let context = EventContext {
            at,
            now,
            window: self.join_window.max(joins),
            joins,
            lock: event.lock.as_deref(),
            rule: event.rule,
            id: self.known(event.namespace),
            namespace: self.namespace(event.namespace),
        };
        let counted = self.count_statement(&context, &event.statement);
        if let Some(failure) = counted {
            self.said(&context, failure);
        }
        counted
    }

    /// Maps an id outside the configured range to `other`, which is the last namespace. Such an id
    /// comes from a rule of another configuration.
    fn known(&self, id: NamespaceId) -> NamespaceId {
        NamespaceId(id.0.min((self.namespaces.len() - 1) as u16))
    }

    fn namespace(&self, id: NamespaceId) -> Arc<Namespace> {
        Arc::clone(&self.namespaces[usize::from(self.known(id).0)])
    }
}

#[cfg(test)]
mod tests;
