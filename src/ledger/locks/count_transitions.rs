//! Adds inferred transitions to the counters, to the history and to the counts of the last hour.
//!
//! `apply_sighting` and `LockTracker::flushed` call [`LockTracker::count`].

use super::history::{EndedHold, ObservedRenewal};
use super::hold::{Ending, Transition};
use super::ring::KeyHash;
use super::{AllCounters, LockTracker};
use crate::model::counters::{After, KeyspaceCounters};
use crate::model::namespace::{NamespaceId, Style};
use crate::model::sighting::OwnerHash;
use crate::snapshot::ObservedOperation;
use crate::util::clock::TimeMs;

impl LockTracker {
    pub(in crate::ledger) fn counters_of<'a>(
        &self,
        counters: &'a mut AllCounters,
        namespace: NamespaceId,
    ) -> &'a mut KeyspaceCounters {
        let name = &self.namespaces[usize::from(namespace.0)].name;
        counters.saved.entry(name.clone()).or_default()
    }

    pub(in crate::ledger) fn count(
        &mut self,
        counters: &mut AllCounters,
        key: &str,
        hash: KeyHash,
        namespace: NamespaceId,
        transition: &Transition,
    ) {
        let index = usize::from(namespace.0);
        let of_namespace = counters.saved.entry(self.namespaces[index].name.clone()).or_default();
        let recent = &mut counters.recents[index];
        let is_loop = self.namespaces[index].style == Style::Loop;
        match *transition {
            Transition::ShortHold { at, lasted } => {
                of_namespace.acquisitions += 1;
                recent.add(ObservedOperation::Acquisition, 1, at);
                let ending = match lasted {
                    Some(lasted) => {
                        of_namespace.releases += 1;
                        of_namespace.early_releases += u64::from(is_loop);
                        of_namespace.hold_seconds.observe(seconds(lasted));
                        recent.add(ObservedOperation::Release, 1, at);
                        Ending::Released
                    }
                    None => {
                        of_namespace.unknown_ends += 1;
                        Ending::Unknown
                    }
                };
                let owner_changes = self.owner_changes(hash, None);
                self.history.push(hash, EndedHold { owner_changes, ending, ..EndedHold::short(at, namespace) });
                self.held_until(key, at);
            }
            Transition::Acquired { owner, at } => {
                of_namespace.acquisitions += 1;
                if let Some(at) = at {
                    recent.add(ObservedOperation::Acquisition, 1, at);
                }
                self.succeeded(counters, hash, owner, at);
            }
            Transition::Renewed { at, margin } => {
                of_namespace.renewals += 1;
                if let Some(margin) = margin {
                    of_namespace.renewal_margin_ratio.observe(margin);
                }
                recent.add(ObservedOperation::Renewal, 1, at);
                self.renewals.push(hash, ObservedRenewal { at, margin: margin.map(|margin| margin as f32) });
            }
            Transition::Ended { hold, ending, at, seen_until, lasted } => {
                match ending {
                    Ending::Released | Ending::HandedOver => {
                        of_namespace.releases += 1;
                        of_namespace.early_releases += u64::from(is_loop);
                        recent.add(ObservedOperation::Release, 1, at);
                    }
                    Ending::Expired => {
                        of_namespace.expirations += 1;
                        recent.add(ObservedOperation::Expiration, 1, at);
                    }
                    // Every hold counts as a release, an expiration or an unknown end, so that
                    // holds add up.
                    Ending::TakenOver | Ending::LostInFailover | Ending::Flushed | Ending::Unknown => {
                        of_namespace.unknown_ends += 1;
                    }
                }
                if let Some(lasted) = lasted {
                    of_namespace.hold_seconds.observe(seconds(lasted));
                }
                let not_before = if ending == Ending::Expired { at } else { seen_until };
                let owner_changes = self.owner_changes(hash, hold.owner);
                let record = EndedHold::of(&hold, ending, (not_before, at), namespace);
                self.history.push(hash, EndedHold { owner_changes, ..record });
                let is_told =
                    matches!(ending, Ending::Released | Ending::HandedOver | Ending::Expired | Ending::TakenOver);
                self.held_until(key, if is_told { at } else { seen_until });
            }
            Transition::ReplacedUnseen => of_namespace.owner_changes.increment(After::Unknown),
        }
    }

    /// Counts an owner change and a takeover if the new owner differs from the previous one. Both
    /// are counted in the lock namespace of the hold that ended.
    fn succeeded(&mut self, counters: &mut AllCounters, hash: KeyHash, owner: Option<OwnerHash>, at: Option<TimeMs>) {
        let Some(latest) = self.history.latest(hash).copied() else { return };
        if !self.is_other_owner(hash, owner) {
            return;
        }
        let takeover_slo = self.namespaces[usize::from(latest.namespace.0)].takeover_slo;
        let of_namespace = self.counters_of(counters, latest.namespace);
        of_namespace.owner_changes.increment(latest.ending.after());
        let Some(at) = at.filter(|_| latest.ending == Ending::Expired && latest.sign_of_life_known) else { return };
        let takeover = (at - latest.sign_of_life).max(0);
        of_namespace.takeover_seconds.observe(seconds(takeover));
        match takeover_slo.map(|slo| takeover <= slo.as_millis() as TimeMs) {
            Some(true) => of_namespace.takeovers_within_slo += 1,
            Some(false) => of_namespace.takeovers_beyond_slo += 1,
            None => {}
        }
    }

    /// Compares with the last known owner. Holds that were too short to be observed have no owner.
    fn is_other_owner(&self, hash: KeyHash, owner: Option<OwnerHash>) -> bool {
        let before = self.history.of(hash).find_map(|record| record.owner);
        owner.zip(before).is_some_and(|(owner, before)| owner != before)
    }

    /// Number of owner changes of the lock including the one to `owner`, as far as the history
    /// reaches.
    pub(in crate::ledger) fn owner_changes(&self, hash: KeyHash, owner: Option<OwnerHash>) -> u16 {
        let before = self.history.latest(hash).map_or(0, |record| record.owner_changes);
        before.saturating_add(u16::from(self.is_other_owner(hash, owner)))
    }

    fn held_until(&mut self, key: &str, at: TimeMs) {
        for fixed in self.fixed.iter_mut().filter(|fixed| *fixed.key == *key) {
            fixed.last_held = fixed.last_held.max(Some(at));
        }
    }
}

pub(in crate::ledger) fn seconds(time: TimeMs) -> f64 {
    time as f64 / 1000.0
}
