//! The part of the ledger that handles updates from Redis and combines them with log events.
//!
//! The pipeline calls the public methods. `ledger::Ledger` calls `lost` and `said` for log events.
//! Without [`Ledger::observing`], a loss gets the cause `unknown` at once, so that causes always
//! add up to losses.

use std::sync::Arc;

use super::Ledger;
use super::causes::incidents::Incident;
use super::causes::{self, Explanation, Loss};
use super::failures::EventContext;
use super::locks::history::CountedLine;
use super::locks::hold::Hold;
use super::locks::ring::KeyHash;
use super::locks::{AllCounters, KeyspaceSettings, LockTracker};
use crate::model::counters::Tally;
use crate::model::failure::{Cause, Failure, FailureKind, Operation};
use crate::model::label::Label;
use crate::model::log_event::RuleId;
use crate::model::namespace::{Namespace, NamespaceId};
use crate::model::query::{Inquiry, LocksPage};
use crate::model::sighting::LinkBatch;
use crate::snapshot::{KeyspaceView, RecentActivity};
use crate::util::clock::TimeMs;

impl Ledger {
    /// Enables the tracking of locks in Redis.
    pub fn observing(mut self, settings: KeyspaceSettings) -> Self {
        self.observe(LockTracker::new(settings, &self.namespaces));
        self
    }

    pub(super) fn observe(&mut self, keyspace: LockTracker) {
        for namespace in self.namespaces.iter().filter(|namespace| !namespace.keys.is_empty()) {
            self.saved.keyspace.entry(namespace.name.clone()).or_default();
        }
        self.keyspace = Some(keyspace);
    }

    /// Sets the names of rules by [`RuleId`]. Without them, incidents show an empty name.
    pub fn naming_rules(mut self, names: Arc<[String]>) -> Self {
        self.rule_names = names;
        self
    }

    /// Applies a batch of events from one link.
    pub fn apply_link(&mut self, batch: LinkBatch) {
        if let Some(keyspace) = &mut self.keyspace {
            let mut counters = AllCounters { saved: &mut self.saved.keyspace, recents: &mut self.recents };
            keyspace.apply(&mut counters, batch);
        }
    }

    /// Returns up to `limit` keys to read now: their deadline has passed, or a pass did not list
    /// them. A key is returned again every second until a sighting of it arrives.
    pub fn due_reads(&mut self, now: TimeMs, limit: usize) -> Vec<Box<str>> {
        self.keyspace.as_mut().map(|keyspace| keyspace.due_reads(now, limit)).unwrap_or_default()
    }

    /// Finds the causes of losses that have waited long enough. Returns whether there were any.
    /// `now` must come from the same clock as the `now` of [`Ledger::apply`].
    pub fn settle(&mut self, now: TimeMs) -> bool {
        let mut settled = false;
        while let Some(loss) = self.keyspace.as_mut().and_then(|keyspace| keyspace.next_settled(now)) {
            self.settle_loss(loss);
            settled = true;
        }
        settled
    }

    /// Walks all locks and updates the shortest TTL, the oldest lock and the overdue renewals of
    /// each lock namespace.
    pub fn survey(&mut self, now: TimeMs) {
        if let Some(keyspace) = &mut self.keyspace {
            keyspace.survey(now);
        }
    }

    /// Returns `None` if Redis is not observed or the lock namespace has no keys.
    pub fn keyspace_view(&self, namespace: NamespaceId, now: TimeMs) -> Option<KeyspaceView> {
        let name = &self.namespaces.get(usize::from(namespace.0))?.name;
        let counters = self.saved.keyspace.get(name).cloned().unwrap_or_default();
        let recent = self.recents.get(usize::from(namespace.0))?;
        self.keyspace.as_ref()?.view(namespace, counters, recent, now)
    }

    /// Events of the last minutes and the last hour.
    pub fn lately(&self, namespace: NamespaceId, now: TimeMs) -> RecentActivity {
        self.recents.get(usize::from(namespace.0)).map(|recent| recent.activity(now)).unwrap_or_default()
    }

    pub fn causes(&self, namespace: &Namespace) -> Tally<Cause> {
        self.saved.causes.get(&namespace.name).cloned().unwrap_or_default()
    }

    /// Sends the answer to an inquiry. The receiver may be gone; that is not an error.
    pub fn answer(&self, inquiry: Inquiry, now: TimeMs) {
        let keyspace = self.keyspace.as_ref();
        match inquiry {
            Inquiry::Locks(query, reply) => {
                let none = || LocksPage { total: 0, offset: query.offset, locks: Vec::new() };
                let _ = reply.send(keyspace.map_or_else(none, |keyspace| keyspace.locks(&query, now)));
            }
            Inquiry::Lock(key, reply) => {
                let _ = reply.send(keyspace.and_then(|keyspace| keyspace.lock(&key, now, |rule| self.rule_name(rule))));
            }
            Inquiry::Incidents(query, reply) => {
                let _ = reply.send(self.incidents(&query, now));
            }
        }
    }

    /// Number of entries that left each table because it was full.
    pub fn evictions(&self) -> Vec<(&'static str, u64)> {
        let mut evictions =
            vec![("joined_lines", self.saved.joined.evictions()), ("final_states", self.saved.finals.evictions())];
        if let Some(keyspace) = &self.keyspace {
            evictions.extend([
                ("lock_history", keyspace.history.evictions()),
                ("waiting_causes", keyspace.causes.evictions()),
                ("fences", keyspace.fences.evictions()),
                ("not_locks", keyspace.not_locks.evictions()),
                ("untracked_locks", keyspace.untracked.evictions()),
            ]);
        }
        evictions
    }

    /// Gives saved losses without a cause the cause `unknown`: their process ended while they
    /// waited, or an older version that had no causes counted them.
    pub(super) fn settle_saved(&mut self) {
        for (name, counters) in &self.saved.namespaces {
            let lost = counters.total(FailureKind::NotOwned);
            let settled = self.saved.causes.get(name).map_or(0, Tally::total);
            if lost > settled {
                self.saved.causes.entry(name.clone()).or_default().add(Cause::Unknown, lost - settled);
            }
        }
    }

    /// Must be called once for each loss that is counted.
    pub(super) fn lost(&mut self, moment: &EventContext, operation: Operation) {
        let loss = Loss {
            at: moment.at,
            namespace: moment.id,
            lock: moment.lock.map(Box::from),
            operation,
            rule: moment.rule,
        };
        let at_once = match &mut self.keyspace {
            Some(keyspace) if loss.lock.is_some() => {
                let due = moment.now.saturating_add(keyspace.settings.cause_wait);
                keyspace.causes.wait(loss, due)
            }
            _ => Some(loss),
        };
        if let Some(loss) = at_once {
            self.settle_loss(loss);
        }
    }

    /// Adds a counted log event to the history of its lock.
    pub(super) fn said(&mut self, moment: &EventContext, failure: Failure) {
        let (Some(keyspace), Some(lock)) = (&mut self.keyspace, moment.lock) else { return };
        let (event, reason) = (failure.event_name(), failure.reason().map(Label::as_str));
        let saying = CountedLine { at: moment.at, event, reason, rule: moment.rule };
        for key in keyspace.keys_of(moment.id, lock) {
            keyspace.sayings.push(keyspace.hash(&key), saying);
        }
    }

    pub(super) fn rule_name(&self, rule: RuleId) -> &str {
        self.rule_names.get(usize::from(rule.0)).map_or("", String::as_str)
    }

    pub(super) fn settle_loss(&mut self, loss: Loss) {
        let finding = self.keyspace.as_mut().map_or(Explanation::NOTHING, |keyspace| keyspace.explain(&loss));
        let name = self.namespaces[usize::from(loss.namespace.0)].name.clone();
        self.saved.causes.entry(name).or_default().increment(finding.cause);
        self.incidents.remember(Incident { loss, finding });
    }
}

impl LockTracker {
    /// The next loss that has waited long enough, if Redis has shown everything that happened
    /// before it. A loss that has waited too long is returned in any case.
    fn next_settled(&mut self, now: TimeMs) -> Option<Loss> {
        let (loss, is_late) = self.causes.first_due(now)?;
        if is_late || self.has_shown(loss) {
            return self.causes.next_due(now);
        }
        None
    }

    /// Whether every link has reported all changes before the line was written, and the lock is
    /// neither doubtful nor about to be verified.
    fn has_shown(&self, loss: &Loss) -> bool {
        let Some(lock) = loss.lock.as_deref() else { return true };
        let is_open = |key: String| {
            let slot = self.table.find(self.hash(&key), &key);
            slot.and_then(|slot| self.table.get(slot))
                .is_some_and(|lock| lock.unverified || self.links.is_doubtful(lock))
        };
        self.links.have_shown(loss.at) && !self.possible_keys(loss.namespace, lock).into_iter().any(is_open)
    }

    fn explain(&mut self, loss: &Loss) -> Explanation {
        let was_observed = self.links.first_baseline().is_some_and(|baseline| loss.at >= baseline);
        let Some(lock) = loss.lock.as_deref().filter(|_| was_observed) else { return Explanation::NOTHING };
        let keys = self.possible_keys(loss.namespace, lock);
        for key in keys {
            let hash = self.hash(&key);
            if self.history.latest(hash).is_none() {
                continue;
            }
            let mut finding = causes::explain(&mut self.history, hash, loss);
            if finding.lost_at.is_some() && finding.next_owner.is_none() {
                let next = self.life_now(hash, &key).filter(|life| life.owner.is_some() && life.owner != finding.owner);
                (finding.next_owner, finding.next_began) =
                    (next.and_then(|life| life.owner), next.map(|life| life.began));
            }
            return finding;
        }
        Explanation::NOTHING
    }

    /// A line names the key or only an id. Returns the text itself and each key that a template
    /// with one field builds from it.
    fn possible_keys(&self, namespace: NamespaceId, lock: &str) -> Vec<String> {
        let templates = &self.namespaces[usize::from(namespace.0)].keys;
        let with_one_field = templates.iter().filter(|template| template.fields().count() == 1);
        let built = with_one_field.filter_map(|template| template.build(|_| Some(lock)));
        std::iter::once(lock.to_owned()).chain(built).collect()
    }

    /// The text itself if it matches a key template, otherwise the keys that templates build from
    /// it.
    pub(super) fn keys_of(&self, namespace: NamespaceId, lock: &str) -> Vec<String> {
        let is_key = self.namespaces[usize::from(namespace.0)].template_of(lock).is_some();
        let mut keys = self.possible_keys(namespace, lock);
        if is_key {
            keys.truncate(1)
        } else {
            drop(keys.drain(..1))
        };
        keys
    }

    pub(super) fn life_now(&self, hash: KeyHash, key: &str) -> Option<&Hold> {
        Some(&self.table.get(self.table.find(hash, key)?)?.life)
    }
}
