//! What Redis showed of one lock: the only connection between the locks and the causes of losses.
//!
//! `ledger::keyspace_updates` asks [`LockTracker`] for the evidence about a reported loss, and
//! `ledger::causes` explains the loss with it.

use super::LockTracker;
use super::history::{CountedLine, EndedHold, HoldHistory};
use super::hold::Hold;
use super::ring::KeyHash;
use crate::model::namespace::NamespaceId;
use crate::util::clock::TimeMs;

/// How many holds of a lock are searched, the latest first. Bounds the time that many losses at
/// once may take.
pub(in crate::ledger) const SEARCHED_HOLDS: usize = 256;

/// The holds of one lock.
pub(in crate::ledger) struct LockEvidence<'a> {
    history: &'a mut HoldHistory,
    key: KeyHash,
    held: Option<Hold>,
}

impl<'a> LockEvidence<'a> {
    pub(in crate::ledger) fn new(history: &'a mut HoldHistory, key: KeyHash, held: Option<Hold>) -> Self {
        Self { history, key, held }
    }

    /// The current hold.
    pub(in crate::ledger) fn held(&self) -> Option<&Hold> {
        self.held.as_ref()
    }

    /// The ended holds, the latest first.
    pub(in crate::ledger) fn ended(&self) -> impl Iterator<Item = &EndedHold> {
        self.history.many_of(self.key, SEARCHED_HOLDS)
    }

    /// The latest ended hold that fits, with the hold after it.
    pub(in crate::ledger) fn find_mut(
        &mut self,
        fits: impl Fn(&EndedHold) -> bool,
    ) -> Option<(&mut EndedHold, Option<EndedHold>)> {
        self.history.find_mut(self.key, SEARCHED_HOLDS, fits)
    }

    /// Holds of this lock that ended before this time may be forgotten.
    pub(in crate::ledger) fn forgotten_until(&self) -> Option<TimeMs> {
        let of_all_locks = self.history.oldest_of_many().map(|oldest| oldest.ended);
        let of_this_lock = self.ended().nth(SEARCHED_HOLDS - 1).map(|record| record.began);
        of_all_locks.max(of_this_lock)
    }
}

impl LockTracker {
    /// Whether every link has reported all changes before this time, and no key that the text may
    /// mean is doubtful or about to be verified.
    pub(in crate::ledger) fn has_shown(&self, namespace: NamespaceId, lock: &str, at: TimeMs) -> bool {
        let is_open =
            |key: String| self.table.lock(&key).is_some_and(|lock| lock.needs_read() || self.links.is_doubtful(lock));
        self.links.have_shown(at) && !self.possible_keys(namespace, lock).into_iter().any(is_open)
    }

    /// What is known about the lock that a line names. `None` if no hold of it has ended, or if
    /// Redis was not observed at that time.
    pub(in crate::ledger) fn evidence(
        &mut self,
        namespace: NamespaceId,
        lock: &str,
        at: TimeMs,
    ) -> Option<LockEvidence<'_>> {
        self.links.first_baseline().filter(|baseline| at >= *baseline)?;
        let keys = self.possible_keys(namespace, lock);
        let key = keys.into_iter().find(|key| self.memory.last_end(self.table.hash(key)).is_some())?;
        let held = self.hold(&key).copied();
        Some(LockEvidence::new(self.memory.ended_mut(), self.table.hash(&key), held))
    }

    /// Adds a counted log event to the history of its lock.
    pub(in crate::ledger) fn record_line(&mut self, namespace: NamespaceId, lock: &str, line: CountedLine) {
        for key in self.keys_of(namespace, lock) {
            self.memory.add_line(self.table.hash(&key), line);
        }
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
    pub(in crate::ledger) fn keys_of(&self, namespace: NamespaceId, lock: &str) -> Vec<String> {
        let is_key = self.namespaces[usize::from(namespace.0)].template_of(lock).is_some();
        let mut keys = self.possible_keys(namespace, lock);
        if is_key {
            keys.truncate(1)
        } else {
            drop(keys.drain(..1))
        };
        keys
    }
}
