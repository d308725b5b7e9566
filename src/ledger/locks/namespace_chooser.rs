//! Chooses the lock namespace of a lock. If several namespaces share a key template, the TTL
//! decides: the namespace with the shortest configured TTL that the lock can have.
//!
//! `apply_sighting` calls it for each sighting, `queries` for a key that is not held.

use std::sync::Arc;

use crate::model::key_index::KeyMap;
use crate::model::namespace::{Namespace, NamespaceId};
use crate::util::clock::TimeMs;

/// How far an observed TTL may exceed the configured one and still match it.
const TTL_TOLERANCE_MS: TimeMs = 1000;

pub(in crate::ledger) struct NamespaceChooser {
    keys: KeyMap,
    /// The configured TTL of each lock namespace, which its locks cannot exceed. `None` allows any
    /// TTL.
    longest_ttl: Vec<Option<TimeMs>>,
}

/// The chosen namespace, and whether it was chosen among several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ledger) struct ChosenNamespace {
    pub(in crate::ledger) namespace: NamespaceId,
    pub(in crate::ledger) shared: bool,
}

impl NamespaceChooser {
    pub(in crate::ledger) fn new(namespaces: &[Arc<Namespace>]) -> Self {
        let longest_ttl = namespaces.iter().map(|namespace| namespace.ttl.map(|ttl| ttl.as_millis() as TimeMs));
        Self { keys: KeyMap::new(namespaces), longest_ttl: longest_ttl.collect() }
    }

    /// The TTL configured for the lock namespace.
    pub(in crate::ledger) fn ttl(&self, namespace: NamespaceId) -> Option<TimeMs> {
        self.longest_ttl.get(usize::from(namespace.0)).copied().flatten()
    }

    /// `ttl` is a lower bound of the lock's TTL, `None` for a lock without a TTL. Returns `None`
    /// for a key that matches no template.
    pub(in crate::ledger) fn choose(&self, key: &str, ttl: Option<TimeMs>) -> Option<ChosenNamespace> {
        let mut best = None;
        let mut candidates = 0;
        for namespace in self.keys.namespaces_of(key) {
            candidates += 1;
            let rank = self.rank(namespace, ttl);
            if best.is_none_or(|(best_rank, _)| rank < best_rank) {
                best = Some((rank, namespace));
            }
        }
        best.map(|(_, namespace)| ChosenNamespace { namespace, shared: candidates > 1 })
    }

    /// Whether the key can belong to the lock namespace, with some TTL.
    pub(in crate::ledger) fn is_candidate(&self, namespace: NamespaceId, key: &str) -> bool {
        self.keys.namespaces_of(key).any(|candidate| candidate == namespace)
    }

    pub(in crate::ledger) fn can_have(&self, namespace: NamespaceId, ttl: Option<TimeMs>) -> bool {
        match (self.ttl(namespace), ttl) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(longest), Some(ttl)) => ttl <= longest + TTL_TOLERANCE_MS,
        }
    }

    /// Lower is better. Namespaces that can have the TTL come first, ordered by the shortest TTL.
    /// The others follow, ordered by the longest TTL.
    fn rank(&self, namespace: NamespaceId, ttl: Option<TimeMs>) -> (bool, TimeMs) {
        let longest = self.ttl(namespace).unwrap_or(TimeMs::MAX);
        match self.can_have(namespace, ttl) {
            true => (false, longest),
            false => (true, -longest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::key_template::KeyTemplate;
    use std::time::Duration;

    fn check(ttls: &[Option<u64>], observed: Option<TimeMs>, expected: u16) {
        let namespaces: Vec<Arc<Namespace>> = ttls
            .iter()
            .map(|ttl| {
                let keys = vec![KeyTemplate::parse("job:{id}").unwrap()];
                Arc::new(Namespace { keys, ttl: ttl.map(Duration::from_secs), ..Namespace::other() })
            })
            .collect();
        let choice = NamespaceChooser::new(&namespaces).choose("job:1", observed);
        let expected = ChosenNamespace { namespace: NamespaceId(expected), shared: ttls.len() > 1 };
        assert_eq!(choice, Some(expected), "{observed:?} of {ttls:?}");
    }

    #[test]
    fn the_shortest_ttl_that_fits() {
        for (observed, expected) in [(1, 1), (10_000, 1), (11_000, 1), (11_001, 0), (60_000, 0), (99_000, 0)] {
            check(&[Some(60), Some(10)], Some(observed), expected);
        }
        check(&[Some(60), Some(10)], None, 0);
        check(&[Some(60), None], Some(99_000), 1);
        check(&[Some(60), None], None, 1);
        check(&[Some(60)], Some(99_000), 0);
        check(&[Some(60), Some(60)], Some(1), 0);
    }
}
