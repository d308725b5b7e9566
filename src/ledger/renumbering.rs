//! Finds the lock namespaces and rules of one configuration in another one.
//!
//! What the ledger remembers refers to namespaces and rules by their place in the configuration.
//! `reconfigure` uses a [`Renumbering`] after a reload, and `memory` after a restart. A namespace
//! whose keys or meaning changed is another namespace: what was remembered of it is dropped.

use std::sync::Arc;

use crate::model::log_event::RuleId;
use crate::model::namespace::{Namespace, NamespaceId};

pub(super) struct Renumbering {
    namespaces: Vec<Option<NamespaceId>>,
    rules: Vec<RuleId>,
}

impl Renumbering {
    /// `identities` are the [`Namespace::identity`] of the old namespaces.
    pub(super) fn new(identities: &[u64], namespaces: &[Arc<Namespace>], rules: RuleNumbers) -> Self {
        let new: Vec<u64> = namespaces.iter().map(|namespace| namespace.identity()).collect();
        let place = |identity: &u64| new.iter().position(|new| new == identity).map(|at| NamespaceId(at as u16));
        Self { namespaces: identities.iter().map(place).collect(), rules: rules.0 }
    }

    /// Returns `None` if the namespace does not exist any more, or has changed.
    pub(super) fn namespace(&self, old: NamespaceId) -> Option<NamespaceId> {
        self.namespaces.get(usize::from(old.0)).copied().flatten()
    }

    /// The rule, or a number without a name if there are too many.
    pub(super) fn rule(&self, old: RuleId) -> RuleId {
        self.rules.get(usize::from(old.0)).copied().unwrap_or(RuleId(u16::MAX))
    }
}

/// The new id of each old rule.
pub(super) struct RuleNumbers(Vec<RuleId>);

impl RuleNumbers {
    /// Also returns the names by new id. Names of rules that are no longer configured follow the
    /// configured ones, because incidents still refer to them.
    pub(super) fn new(old: &[String], configured: &[String]) -> (Self, Arc<[String]>) {
        let mut names = configured.to_vec();
        let mut number = |name: &String| {
            let at = names.iter().position(|known| known == name).unwrap_or_else(|| {
                names.push(name.clone());
                names.len() - 1
            });
            RuleId(u16::try_from(at).unwrap_or(u16::MAX))
        };
        let numbers = Self(old.iter().map(&mut number).collect());
        names.truncate(usize::from(u16::MAX));
        (numbers, names.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::key_template::KeyTemplate;
    use crate::model::namespace::{Severity, Style};

    fn namespace(name: &str, key: &str) -> Namespace {
        let keys = vec![KeyTemplate::parse(key).unwrap()];
        Namespace { name: name.to_owned(), keys, ..Namespace::other() }
    }

    #[test]
    fn a_namespace_is_found_wherever_it_moved_unless_its_meaning_changed() {
        let old = [namespace("a", "a:{id}"), namespace("b", "b:{id}"), namespace("c", "c:{id}"), Namespace::other()];
        let identities: Vec<u64> = old.iter().map(Namespace::identity).collect();
        let policy = Namespace { severity: Severity::Page, ..old[2].clone() };
        let style = Namespace { style: Style::Loop, ..old[1].clone() };
        let new = [policy, namespace("a", "other:{id}"), style, namespace("d", "a:{id}"), Namespace::other()];
        let (rules, _) = RuleNumbers::new(&[], &[]);
        let renumbering = Renumbering::new(&identities, &new.map(Arc::new), rules);
        let found = (0..5).map(|old| renumbering.namespace(NamespaceId(old)).map(|new| new.0));
        assert_eq!(found.collect::<Vec<_>>(), [None, None, Some(0), Some(4), None]);
    }

    #[test]
    fn the_name_of_a_removed_rule_is_kept() {
        let names = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let (RuleNumbers(numbers), all) = RuleNumbers::new(&names("first gone last"), &names("new last first"));
        assert_eq!(all.join(" "), "new last first gone");
        assert_eq!(numbers, [RuleId(2), RuleId(3), RuleId(1)]);
        let (_, again) = RuleNumbers::new(&all, &names("first"));
        assert_eq!(again.join(" "), "first new last gone");
    }
}
