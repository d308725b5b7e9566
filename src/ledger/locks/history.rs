//! What the ledger remembers about single locks besides the held ones: ended holds, renewals with
//! their margin, and counted log events. None of it is saved.
//!
//! `count_transitions` and `ledger::keyspace_updates` write it; `causes` and `queries` read it.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::hold::{Ending, Hold};
use super::ring::Ring;
use crate::model::log_event::RuleId;
use crate::model::namespace::NamespaceId;
use crate::model::sighting::OwnerHash;
use crate::util::clock::TimeMs;

/// Ended holds. Current holds are in the table.
pub(in crate::ledger) type HoldHistory = Ring<EndedHold, 131_072, 16>;
/// A separate ring, because renewals are the most frequent events.
pub(in crate::ledger) type Renewals = Ring<ObservedRenewal, 65_536, 64>;
/// A separate ring, so that renewals do not evict log events.
pub(in crate::ledger) type CountedLines = Ring<CountedLine, 16_384, 32>;

/// A hold that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::ledger) struct EndedHold {
    pub(in crate::ledger) owner: Option<OwnerHash>,
    /// When the lock was acquired or first seen.
    pub(in crate::ledger) began: TimeMs,
    pub(in crate::ledger) ended: TimeMs,
    /// The hold may have ended earlier than `ended`, but not before this time.
    pub(in crate::ledger) not_before: TimeMs,
    /// Time of the acquisition or the last renewal. Exact only if `sign_of_life_known`.
    pub(in crate::ledger) sign_of_life: TimeMs,
    pub(in crate::ledger) renewals: u32,
    /// The TTL that was last set, in milliseconds, if it was observed.
    pub(in crate::ledger) ttl: Option<NonZeroU32>,
    pub(in crate::ledger) namespace: NamespaceId,
    /// Number of owner changes of the lock before this hold, as far as the history reaches.
    pub(in crate::ledger) owner_changes: u16,
    pub(in crate::ledger) ending: Ending,
    pub(in crate::ledger) acquisition_seen: bool,
    pub(in crate::ledger) sign_of_life_known: bool,
    /// A failed release was attributed to this end. No other loss is attributed to it.
    pub(in crate::ledger) explained: bool,
}

/// One renewal, or several that were not observed separately.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::ledger) struct ObservedRenewal {
    pub(in crate::ledger) at: TimeMs,
    /// Fraction of the TTL that was left, if it was observed.
    pub(in crate::ledger) margin: Option<f32>,
}

/// A log event about a lock. Only counted events are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ledger) struct CountedLine {
    pub(in crate::ledger) at: TimeMs,
    pub(in crate::ledger) event: &'static str,
    pub(in crate::ledger) reason: Option<&'static str>,
    pub(in crate::ledger) rule: RuleId,
}

impl EndedHold {
    /// `ended` is an interval: not before the first time and not after the second.
    pub(in crate::ledger) fn of(life: &Hold, ending: Ending, ended: (TimeMs, TimeMs), namespace: NamespaceId) -> Self {
        let ttl = life.full_ttl().and_then(|ttl| u32::try_from(ttl).ok()).and_then(NonZeroU32::new);
        Self {
            owner: life.owner,
            began: life.began,
            ended: ended.1,
            not_before: ended.0,
            sign_of_life: life.set_at,
            renewals: life.renewals,
            ttl,
            namespace,
            owner_changes: 0,
            ending,
            acquisition_seen: life.acquisition_seen,
            sign_of_life_known: life.set_at_known,
            explained: false,
        }
    }

    /// A hold that was too short to be observed. Its owner is unknown.
    pub(in crate::ledger) fn short(at: TimeMs, namespace: NamespaceId) -> Self {
        Self {
            owner: None,
            began: at,
            ended: at,
            not_before: at,
            sign_of_life: at,
            renewals: 0,
            ttl: None,
            namespace,
            owner_changes: 0,
            ending: Ending::Released,
            acquisition_seen: true,
            sign_of_life_known: true,
            explained: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limits the memory of the rings, which does not depend on the number of locks: 17 MB, plus
    /// their hash tables.
    #[test]
    fn what_is_remembered_is_as_small_as_it_is_said_to_be() {
        assert_eq!((size_of::<EndedHold>(), size_of::<ObservedRenewal>(), size_of::<CountedLine>()), (56, 16, 48));
    }
}
