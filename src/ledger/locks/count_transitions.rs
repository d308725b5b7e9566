//! Adds inferred transitions to the counters, to the history and to the counts of the last hour.
//!
//! `apply_sighting` and `LockTracker::flushed` call [`LockTracker::count`].

use super::history::{EndedHold, ObservedRenewal};
use super::hold::{Ending, Follows, Transition};
use super::ring::KeyHash;
use super::{AllCounters, LockTracker};
use crate::model::counters::{After, KeyspaceCounters};
use crate::model::namespace::{NamespaceId, Style};
use crate::model::sighting::OwnerHash;
use crate::snapshot::ObservedOperation;
use crate::util::clock::TimeMs;

impl LockTracker {
    pub(super) fn counters_of<'a>(
        &self,
        counters: &'a mut AllCounters,
        namespace: NamespaceId,
    ) -> &'a mut KeyspaceCounters {
        let name = &self.namespaces[usize::from(namespace.0)].name;
        counters.saved.entry(name.clone()).or_default()
    }

    pub(super) fn count(
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
                self.memory.add_end(hash, EndedHold { ending, ..EndedHold::short(at, namespace) });
                self.keys.held_until(key, at);
            }
            Transition::Acquired { owner, at, follows } => {
                of_namespace.acquisitions += 1;
                if let Some(at) = at {
                    recent.add(ObservedOperation::Acquisition, 1, at);
                }
                self.count_owner_change(counters, hash, owner, at, follows);
            }
            Transition::Renewed { at, margin } => {
                of_namespace.renewals += 1;
                if let Some(margin) = margin {
                    of_namespace.renewal_margin_ratio.observe(margin);
                }
                recent.add(ObservedOperation::Renewal, 1, at);
                self.memory.add_renewal(hash, ObservedRenewal { at, margin: margin.map(|margin| margin as f32) });
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
                self.memory.add_end(hash, EndedHold::of(&hold, ending, (not_before, at), namespace));
                let is_known =
                    matches!(ending, Ending::Released | Ending::HandedOver | Ending::Expired | Ending::TakenOver);
                self.keys.held_until(key, if is_known { at } else { seen_until });
            }
            Transition::ReplacedUnseen => of_namespace.owner_changes.increment(After::Unknown),
        }
    }

    /// Counts an owner change and a takeover if the new owner differs from the previous one. Both
    /// are counted in the lock namespace of the hold that ended.
    fn count_owner_change(
        &mut self,
        counters: &mut AllCounters,
        hash: KeyHash,
        owner: Option<OwnerHash>,
        at: Option<TimeMs>,
        follows: Follows,
    ) {
        let Some(latest) = self.memory.last_end(hash).copied() else { return };
        if !self.memory.is_other_owner(hash, owner) {
            return;
        }
        let takeover_slo = self.namespaces[usize::from(latest.namespace.0)].takeover_slo;
        let missed_until = self.links.missed_until().max(self.states[usize::from(latest.namespace.0)].missed_until);
        let of_namespace = self.counters_of(counters, latest.namespace);
        if follows == Follows::PerhapsUnseenHold || missed_until > Some(latest.ended) {
            of_namespace.owner_changes.increment(After::Unknown);
            return;
        }
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
}

pub(in crate::ledger) fn seconds(time: TimeMs) -> f64 {
    time as f64 / 1000.0
}
