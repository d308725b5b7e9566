//! Applies a new configuration to a running ledger.
//!
//! The pipeline calls [`Ledger::reconfigure`] during a reload. Everything that is remembered stays:
//! locks, their history, losses that wait for their cause, incidents, and the counts of the last
//! hour. Only a lock namespace whose keys or meaning changed starts over.

use std::sync::Arc;
use std::time::Duration;

use super::Ledger;
use super::causes::Loss;
use super::causes::incidents::Incident;
use super::locks::{KeyspaceSettings, LockTracker};
use super::recent::Recent;
use super::renumbering::{Renumbering, RuleNumbers};
use crate::model::namespace::{Namespace, NamespaceId};
use crate::util::clock::TimeMs;

/// A new configuration for a running ledger.
pub struct Reconfiguration {
    /// The last entry must be `other`.
    pub namespaces: Vec<Arc<Namespace>>,
    pub join_window: Duration,
    pub rule_names: Arc<[String]>,
    /// `None` if Redis is not observed any more.
    pub keyspace: Option<KeyspaceSettings>,
    pub links: LinkContinuity,
}

/// What a reload does to the links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkContinuity {
    /// The same links keep running and miss nothing.
    Kept,
    /// New links to the same Redis. Every lock is doubtful until it is seen again.
    Replaced,
    /// New links to another Redis, which has other locks.
    OtherRedis,
}

impl Ledger {
    pub fn reconfigure(&mut self, change: Reconfiguration, now: TimeMs) {
        let identities: Vec<u64> = self.namespaces.iter().map(|namespace| namespace.identity()).collect();
        let (rules, rule_names) = RuleNumbers::new(&self.rule_names, &change.rule_names);
        let renumbering = Renumbering::new(&identities, &change.namespaces, rules);
        let observes_same_redis = change.keyspace.is_some() && change.links != LinkContinuity::OtherRedis;
        self.settle_all(|loss| !observes_same_redis || renumbering.namespace(loss.namespace).is_none());

        let mut recents: Vec<Recent> = change.namespaces.iter().map(|_| Recent::new(now)).collect();
        for (old, recent) in std::mem::take(&mut self.recents).into_iter().enumerate() {
            if let Some(new) = renumbering.namespace(NamespaceId(old as u16)) {
                recents[usize::from(new.0)] = recent;
            }
        }
        self.recents = recents;
        self.incidents.retain_mut(|incident| incident.renumber(&renumbering));
        let tracker = self.keyspace.take().filter(|_| observes_same_redis);
        self.namespaces = change.namespaces;
        self.join_window = change.join_window.as_millis() as TimeMs;
        self.rule_names = rule_names;
        if let Some(settings) = change.keyspace {
            self.observe(match tracker {
                Some(tracker) => tracker.reconfigured(settings, &self.namespaces, &renumbering, change.links, now),
                None => LockTracker::new(settings, &self.namespaces),
            });
        }
    }

    /// Finds the causes of these waiting losses now, with what is known.
    fn settle_all(&mut self, chosen: impl Fn(&Loss) -> bool) {
        let Some(keyspace) = &mut self.keyspace else { return };
        for loss in keyspace.causes.remove_if(chosen) {
            self.settle_loss(loss);
        }
    }
}

impl Incident {
    /// Returns false if its lock namespace does not exist any more.
    pub(super) fn renumber(&mut self, renumbering: &Renumbering) -> bool {
        let Some(namespace) = renumbering.namespace(self.loss.namespace) else { return false };
        self.loss.namespace = namespace;
        self.loss.rule = renumbering.rule(self.loss.rule);
        if let Some(hold) = &mut self.finding.hold {
            // The hold may belong to another namespace that shares the key template.
            hold.namespace = renumbering.namespace(hold.namespace).unwrap_or(namespace);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Saved;
    use crate::model::failure::{Cause, Failure, FailureKind, Reason};
    use crate::model::key_template::KeyTemplate;
    use crate::model::log_event::{LogEvent, RuleId, Statement};

    const SETTINGS: KeyspaceSettings = KeyspaceSettings { max_tracked_locks: 10, cause_wait: 3000 };

    fn namespaces(names: &[&str]) -> Vec<Arc<Namespace>> {
        let named = names.iter().map(|name| Namespace {
            name: (*name).to_owned(),
            keys: vec![KeyTemplate::parse(&format!("{name}:{{id}}")).unwrap()],
            ..Namespace::other()
        });
        named.chain([Namespace::other()]).map(Arc::new).collect()
    }

    /// A ledger in which one loss of each of the namespaces `a` and `b` waits for its cause.
    fn waiting() -> Ledger {
        let ledger = Ledger::new(namespaces(&["a", "b"]), Duration::from_secs(2), Saved::default());
        let mut ledger = ledger.starting_at(0).observing(SETTINGS);
        for namespace in [0, 1] {
            let event = LogEvent {
                offset: 0,
                end: 0,
                time: None,
                waited: Duration::ZERO,
                namespace: NamespaceId(namespace),
                lock: Some("1".to_owned()),
                statement: Statement::Failure(Failure::ReleaseFailed(Reason::NotOwned)),
                joins: None,
                rule: RuleId(0),
            };
            ledger.apply(1000, 1000, &event);
        }
        assert_eq!(ledger.incidents.iter().count(), 0);
        ledger
    }

    fn change(names: &[&str], keyspace: Option<KeyspaceSettings>, links: LinkContinuity) -> Reconfiguration {
        let (namespaces, rule_names) = (namespaces(names), Arc::default());
        Reconfiguration { namespaces, join_window: Duration::from_secs(2), rule_names, keyspace, links }
    }

    /// Number of waiting losses, and the causes that were found for `a` and `b`.
    fn waiting_and_settled(ledger: &Ledger) -> (usize, [u64; 2]) {
        let waiting = ledger.keyspace.as_ref().map_or(0, |keyspace| keyspace.causes.waiting().count());
        let settled = |name: &str| ledger.saved.causes.get(name).map_or(0, |causes| causes.get(Cause::Unknown));
        (waiting, [settled("a"), settled("b")])
    }

    #[test]
    fn a_loss_waits_on_unless_its_namespace_or_its_redis_is_gone() {
        for (names, keyspace, links, expected) in [
            (["b", "a"].as_slice(), Some(SETTINGS), LinkContinuity::Kept, (2, [0, 0])),
            (&["c", "a", "b"], Some(SETTINGS), LinkContinuity::Replaced, (2, [0, 0])),
            (&["b"], Some(SETTINGS), LinkContinuity::Replaced, (1, [1, 0])),
            (&["a", "b"], Some(SETTINGS), LinkContinuity::OtherRedis, (0, [1, 1])),
            (&["a", "b"], None, LinkContinuity::OtherRedis, (0, [1, 1])),
        ] {
            let mut ledger = waiting();
            ledger.reconfigure(change(names, keyspace, links), 2000);
            assert_eq!(waiting_and_settled(&ledger), expected, "{names:?} {links:?}");
            assert!(!ledger.settle(3000), "too early");
            ledger.settle(100_000);
            assert_eq!(waiting_and_settled(&ledger), (0, [1, 1]), "causes add up");
            let known = names.iter().filter(|name| ["a", "b"].contains(name)).count();
            assert_eq!(ledger.incidents.iter().count(), known, "{names:?} {links:?}");
            let losses: Vec<u64> = (0..names.len())
                .map(|id| ledger.lately(NamespaceId(id as u16), 2000).windows[0].failures.get(FailureKind::NotOwned))
                .collect();
            let expected: Vec<u64> = names.iter().map(|name| u64::from(*name != "c")).collect();
            assert_eq!(losses, expected);
        }
    }
}
