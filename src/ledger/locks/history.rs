//! What is remembered of single locks beside those that are held: how holds ended, renewals with their margin, and what log
//! lines said. None of it is saved.

use std::num::NonZeroU32;

use super::hold::{Ending, Life};
use super::ring::Ring;
use crate::model::log_event::RuleId;
use crate::model::namespace::NamespaceId;
use crate::model::sighting::OwnerHash;
use crate::util::clock::TimeMs;

/// Holds that have ended; the one that goes on is in the table.
pub(in crate::ledger) type HoldHistory = Ring<EndedHold, 131_072, 16>;
/// In a ring of their own, for they come more often than all else.
pub(in crate::ledger) type Renewals = Ring<ObservedRenewal, 65_536, 64>;
/// In a ring of their own, so that renewals do not push them out.
pub(in crate::ledger) type Sayings = Ring<Saying, 16_384, 32>;

/// A hold that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ledger) struct EndedHold {
    pub(in crate::ledger) owner: Option<OwnerHash>,
    /// When it was acquired, or first seen.
    pub(in crate::ledger) began: TimeMs,
    pub(in crate::ledger) ended: TimeMs,
    /// It may have ended earlier, but not before this.
    pub(in crate::ledger) not_before: TimeMs,
    /// The acquisition or the last renewal, if `sign_of_life_known`.
    pub(in crate::ledger) sign_of_life: TimeMs,
    pub(in crate::ledger) renewals: u32,
    /// The TTL that was set last, in milliseconds, as far as seen.
    pub(in crate::ledger) ttl: Option<NonZeroU32>,
    pub(in crate::ledger) namespace: NamespaceId,
    /// How often the lock had changed its owner when this hold began, as far as remembered.
    pub(in crate::ledger) owner_changes: u16,
    pub(in crate::ledger) ending: Ending,
    pub(in crate::ledger) acquisition_seen: bool,
    pub(in crate::ledger) sign_of_life_known: bool,
    /// A holder has found out and is done with the lock: no other refusal is about this end.
    pub(in crate::ledger) explained: bool,
}

/// One renewal, or several that were not seen one by one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::ledger) struct ObservedRenewal {
    pub(in crate::ledger) at: TimeMs,
    /// Share of the TTL that was left, where it was seen.
    pub(in crate::ledger) margin: Option<f32>,
}

/// What a log line said about a lock; only those that counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ledger) struct Saying {
    pub(in crate::ledger) at: TimeMs,
    pub(in crate::ledger) event: &'static str,
    pub(in crate::ledger) reason: Option<&'static str>,
    pub(in crate::ledger) rule: RuleId,
}

impl EndedHold {
    /// `ended`: not before the first time, not after the second.
    pub(in crate::ledger) fn of(life: &Life, ending: Ending, ended: (TimeMs, TimeMs), namespace: NamespaceId) -> Self {
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

    /// A hold that was too short to be seen; whose it was is not known.
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

    /// The rings may grow to this, whatever the number of locks: 17 MB, and some for their tables.
    #[test]
    fn what_is_remembered_is_as_small_as_it_is_said_to_be() {
        assert_eq!((size_of::<EndedHold>(), size_of::<ObservedRenewal>(), size_of::<Saying>()), (56, 16, 48));
    }
}
