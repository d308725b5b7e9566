//! Infers what happened to one lock from its previous state, the current sighting and the state of
//! the link.
//!
//! Pure: [`infer`] returns transitions, and `apply_sighting` counts them. Nothing is guessed. Each
//! transition certainly happened, and an end that was not observed is [`Ending::Unknown`]. If one
//! read shows the result of many changes, the counts are lower bounds.
//!
//! A deadline is an interval: Redis reports the remaining TTL as of some unknown moment between our
//! request and its reply. The time of a change is an interval too: from [`Sighting::since`] until
//! the read. Each push announces the changes of one turn of Redis's event loop.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::model::counters::After;
use crate::model::sighting::{Held, OwnerHash, Sighting};
use crate::util::clock::TimeMs;

/// A link that lags by at most this much shows changes as they happen: a change that it announces
/// after a deadline happened after the deadline. A lock is read 100 ms before its deadline and at
/// its deadline, which leaves some room for a busy machine.
const CALM_MS: TimeMs = 250;
/// Without pushes, a lock that a read showed this short before its deadline, and that is gone after
/// the deadline, has expired.
const LAST_READ_MS: TimeMs = 150;
/// A deadline may move because of clock drift alone. A move of less than this fraction of the time
/// since the last read is not a renewal.
const RENEWAL_DRIFT: f64 = 0.002;
/// Drift of a clock that is kept in sync, 500 ppm, plus a margin. Used to classify ends.
const CLOCK_DRIFT: f64 = 0.0006;
/// The hold time is measured only if the time of the end is known this precisely.
const HOLD_PRECISION_MS: TimeMs = 1000;
/// Upper bound for the hold time of a hold that began and ended between a push and the read that it
/// caused.
const SHORT_HOLD_MS: TimeMs = 10;
/// A hold that began and ended within this time did not expire: no lock has a shorter TTL, unless
/// its namespace says so.
const SHORTEST_TTL_MS: TimeMs = 500;

/// When Redis lets the lock expire: not before `low` and not after `high`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ledger) struct Deadline {
    pub(in crate::ledger) low: TimeMs,
    /// `high - low + 1`. Never 0, so that `Option<Deadline>` needs no extra memory.
    width: NonZeroU32,
}

impl Deadline {
    fn new(low: TimeMs, high: TimeMs) -> Self {
        let width = u32::try_from(high.saturating_sub(low)).unwrap_or(u32::MAX);
        Self { low, width: NonZeroU32::MIN.saturating_add(width) }
    }

    pub(in crate::ledger) fn high(&self) -> TimeMs {
        self.low.saturating_add(TimeMs::from(self.width.get() - 1))
    }
}

/// State of a held lock. Kept small, because there may be a million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ledger) struct Hold {
    pub(in crate::ledger) owner: Option<OwnerHash>,
    pub(in crate::ledger) deadline: Option<Deadline>,
    /// Time of the acquisition if `acquisition_seen`, otherwise time of the first sighting.
    pub(in crate::ledger) began: TimeMs,
    /// When the acquisition or a renewal last set the TTL. Exact only if `set_at_known`.
    pub(in crate::ledger) set_at: TimeMs,
    /// When the last read that showed the lock was sent.
    pub(in crate::ledger) read_sent: TimeMs,
    pub(in crate::ledger) renewals: u32,
    pub(in crate::ledger) acquisition_seen: bool,
    pub(in crate::ledger) set_at_known: bool,
    /// First seen on a watched link without a push. The push may still arrive.
    pub(in crate::ledger) unannounced: bool,
    /// The lock had a TTL and lost it while it was held.
    pub(in crate::ledger) lost_ttl: bool,
}

/// State of the link that shows a lock, and the configuration of the lock.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::ledger) struct SightingContext {
    /// Every change is pushed.
    pub(in crate::ledger) watching: bool,
    /// All existing locks are known, so a lock that is new to us was acquired.
    pub(in crate::ledger) baseline: bool,
    /// The link was interrupted since the lock was last seen, or another link showed the lock.
    pub(in crate::ledger) doubtful: bool,
    /// The interruption was a restart or a failover of Redis.
    pub(in crate::ledger) failover: bool,
    /// The interruption was only a flush, perhaps of another database.
    pub(in crate::ledger) flushed: bool,
    /// Redis evicted keys, or a flush deleted them, at some time before this one.
    pub(in crate::ledger) evicted: Option<TimeMs>,
    /// When the last complete pass began.
    pub(in crate::ledger) pass_started: TimeMs,
    /// The TTL configured for the lock.
    pub(in crate::ledger) ttl: Option<TimeMs>,
    /// A renewal writes a new token.
    pub(in crate::ledger) renewal_changes_owner: bool,
    /// Nobody overwrites a held lock, so an owner change proves that the key was removed.
    pub(in crate::ledger) acquired_with_nx: bool,
    /// The key may exist although nobody holds the lock, so a key that comes and goes is not
    /// certainly a hold.
    pub(in crate::ledger) may_be_vacant: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::ledger) enum Ending {
    Released,
    /// The key was removed and another owner acquired the lock, all in one turn. A release, unless
    /// the previous owner reports a loss.
    HandedOver,
    Expired,
    /// Another owner held the lock before the deadline, and no release was observed.
    TakenOver,
    LostInFailover,
    Flushed,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::ledger) enum Transition {
    /// A hold that began and ended between two reads. `lasted` is `None` if its end is unknown.
    ShortHold {
        at: TimeMs,
        lasted: Option<TimeMs>,
    },
    /// `at` is `None` if the time of the acquisition cannot be inferred from a later read.
    Acquired {
        owner: Option<OwnerHash>,
        at: Option<TimeMs>,
        follows: Follows,
    },
    /// `lasted` is `None` if the begin or the end is not known precisely enough. At `seen_until`
    /// the lock still existed.
    Ended {
        hold: Hold,
        ending: Ending,
        at: TimeMs,
        seen_until: TimeMs,
        lasted: Option<TimeMs>,
    },
    Renewed {
        at: TimeMs,
        margin: Option<f64>,
    },
    /// Another owner replaced the previous one at an unknown time. This is the first sighting of
    /// the new owner.
    ReplacedUnseen,
}

impl Ending {
    pub(in crate::ledger) fn after(self) -> After {
        match self {
            Self::Released | Self::HandedOver => After::Release,
            Self::Expired => After::Expiry,
            Self::TakenOver | Self::LostInFailover | Self::Flushed | Self::Unknown => After::Unknown,
        }
    }
}

impl Hold {
    /// The TTL that was last set, if its time is known.
    pub(in crate::ledger) fn full_ttl(&self) -> Option<TimeMs> {
        self.deadline.filter(|_| self.set_at_known).map(|deadline| deadline.high() - self.set_at)
    }

    /// Whether the owner may be the same. An owner that cannot be read matches any owner.
    pub(in crate::ledger) fn may_be_owned_by(&self, owner: Option<OwnerHash>) -> bool {
        self.owner == owner || self.owner.is_none() || owner.is_none()
    }
}

pub(in crate::ledger) fn deadline_of(held: &Held, sighting: &Sighting) -> Option<Deadline> {
    let Sighting { sent, received, .. } = *sighting;
    held.ttl_ms.map(|ttl| Deadline::new(sent.saturating_add(ttl), received.saturating_add(ttl).saturating_add(1)))
}

/// Adds to `transitions`, in order, what certainly happened to a lock up to this sighting. Returns
/// the new state of the lock, or `None` if nobody holds it. `held` is what the sighting shows,
/// `None` for an absent key.
pub(in crate::ledger) fn infer(
    before: Option<&Hold>,
    held: Option<&Held>,
    sighting: &Sighting,
    context: &SightingContext,
    transitions: &mut Vec<Transition>,
) -> Option<Hold> {
    let watching = context.watching && sighting.since.is_some();
    let inference = Inference { sighting, context, watching };
    match (before, held) {
        (None, None) => {
            if context.baseline && watching && inference.turns() > 0 {
                inference.short_hold(transitions);
            }
            None
        }
        (None, Some(held)) => Some(inference.begin(held, context.baseline, transitions)),
        (Some(hold), None) => {
            inference.gone(&inference.announced(hold, transitions), transitions);
            None
        }
        (Some(hold), Some(held)) => {
            let hold = inference.announced(hold, transitions);
            Some(if hold.may_be_owned_by(held.owner) || inference.may_be_renewed_by_another_token(&hold) {
                inference.same_owner(hold, held, transitions)
            } else {
                inference.other_owner(&hold, held, transitions)
            })
        }
    }
}

/// Which hold an acquisition follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ledger) enum Follows {
    LastObservedHold,
    /// Several changes were read at once, so there may have been another hold in between.
    PerhapsUnseenHold,
}

struct Inference<'a> {
    sighting: &'a Sighting,
    context: &'a SightingContext,
    watching: bool,
}

impl Inference<'_> {
    /// Lower bound on the number of turns of Redis's event loop that changed the key since the
    /// previous read.
    fn turns(&self) -> u16 {
        self.sighting.pushes.saturating_sub(u16::from(self.sighting.first_push_may_be_old))
    }

    /// Whether all changes since the previous read happened in one turn.
    fn is_one_turn(&self) -> bool {
        self.watching && self.sighting.pushes <= 1
    }

    /// One turn acquires the lock, and one more ends the previous hold if this sighting shows its
    /// end. Further turns may be an unseen hold.
    fn follows(&self, transitions: &[Transition]) -> Follows {
        let ended = transitions.iter().any(|transition| matches!(transition, Transition::Ended { .. }));
        match self.watching && self.turns() > 1 + u16::from(ended) {
            true => Follows::PerhapsUnseenHold,
            false => Follows::LastObservedHold,
        }
    }

    /// A key was created and removed again. There may have been more holds, but one is certain.
    fn short_hold(&self, transitions: &mut Vec<Transition>) {
        if self.context.may_be_vacant {
            return;
        }
        let Sighting { since, until, .. } = *self.sighting;
        let since = since.unwrap_or(until);
        let is_released = !self.may_include_a_ttl(since) && !self.may_be_evicted(since);
        // The hold time was not observed. It was shorter than the time between push and read.
        let lasted = is_released.then(|| (until - since).clamp(0, SHORT_HOLD_MS));
        transitions.push(Transition::ShortHold { at: until, lasted });
    }

    /// Whether a lock that was acquired after `since` may have expired by now.
    fn may_include_a_ttl(&self, since: TimeMs) -> bool {
        let shortest = self.context.ttl.map_or(SHORTEST_TTL_MS, |ttl| ttl.min(SHORTEST_TTL_MS));
        self.sighting.received - since >= shortest
    }

    fn may_be_evicted(&self, since: TimeMs) -> bool {
        self.context.evicted.is_some_and(|evicted| since <= evicted)
    }

    /// Handles the push of a lock that a read showed before the push arrived. The lock was acquired
    /// at the time of that read.
    fn announced(&self, hold: &Hold, transitions: &mut Vec<Transition>) -> Hold {
        let mut hold = *hold;
        if hold.unannounced && self.sighting.pushes > 0 {
            hold.unannounced = false;
            if self.sighting.first_push_may_be_old && !self.context.doubtful {
                hold.acquisition_seen = true;
                hold.set_at_known = true;
                let follows = self.follows(transitions);
                transitions.push(Transition::Acquired { owner: hold.owner, at: Some(hold.began), follows });
            }
        }
        hold
    }

    /// Starts a hold. `is_new` means that the lock did not exist before, so this is an acquisition
    /// and not only a first sighting.
    fn begin(&self, held: &Held, is_new: bool, transitions: &mut Vec<Transition>) -> Hold {
        let Sighting { sent, received, until, pushes, .. } = *self.sighting;
        let deadline = deadline_of(held, self.sighting);
        let acquired = is_new && (!self.watching || pushes > 0);
        let acquired_at = match self.watching {
            true => Some(until),
            false => {
                let set_at = deadline.zip(self.context.ttl).and_then(|(deadline, ttl)| self.set_at(deadline, ttl));
                set_at.filter(|set_at| *set_at >= self.context.pass_started)
            }
        };
        if acquired {
            let follows = self.follows(transitions);
            transitions.push(Transition::Acquired { owner: held.owner, at: acquired_at, follows });
        }
        let acquired_at = acquired_at.filter(|_| acquired);
        let began = acquired_at.unwrap_or(received);
        Hold {
            owner: held.owner,
            deadline,
            began,
            set_at: began,
            read_sent: sent,
            renewals: 0,
            acquisition_seen: acquired_at.is_some(),
            set_at_known: acquired_at.is_some(),
            unannounced: is_new && !acquired,
            lost_ttl: false,
        }
    }

    /// When the TTL was set, assuming that it was `ttl`. `None` if the deadline contradicts that.
    fn set_at(&self, deadline: Deadline, ttl: TimeMs) -> Option<TimeMs> {
        let received = self.sighting.received;
        (deadline.low - ttl <= received).then(|| (deadline.high() - ttl).min(received))
    }

    fn gone(&self, hold: &Hold, transitions: &mut Vec<Transition>) {
        let ending = match self.in_doubt(hold) {
            Some(ending) => ending,
            None if self.may_have_expired(hold) => self.expired(hold),
            None => self.deleted(hold),
        };
        self.end(hold, ending, transitions);
        // Nothing changes an expired lock, so a second turn began another hold.
        if ending == Ending::Expired && self.turns() >= 2 {
            self.short_hold(transitions);
        }
    }

    /// The end of a hold that the link did not observe.
    fn in_doubt(&self, hold: &Hold) -> Option<Ending> {
        let SightingContext { doubtful, failover, flushed, .. } = *self.context;
        // A flush is the only change that is not pushed for each key.
        let went_by_flush = flushed && self.sighting.pushes == 0 && !self.may_have_expired(hold);
        let flushed_or_unknown = if went_by_flush { Ending::Flushed } else { Ending::Unknown };
        doubtful.then_some(if failover { Ending::LostInFailover } else { flushed_or_unknown })
    }

    /// Whether the TTL of the hold may have run out before the read.
    fn may_have_expired(&self, hold: &Hold) -> bool {
        hold.deadline.is_some_and(|deadline| self.sighting.received >= deadline.low - self.drift(hold))
    }

    /// The end of a hold whose TTL may have run out: an expiration if it certainly did.
    fn expired(&self, hold: &Hold) -> Ending {
        let Some(deadline) = hold.deadline else { return Ending::Unknown };
        let Sighting { sent, until, pushes, .. } = *self.sighting;
        let (not_before, drift) = (self.not_before(hold), self.drift(hold));
        // Nothing changed before the turn of the read, and that turn began after the deadline.
        let went_by_read = self.watching && pushes == 0 && sent >= deadline.high();
        let is_timely = self.is_one_turn()
            && until >= deadline.low - drift
            && until.max(deadline.high() - drift) - not_before <= CALM_MS;
        let was_just_there = !self.watching && not_before >= deadline.low - LAST_READ_MS;
        match not_before >= deadline.high() + drift || went_by_read || is_timely || was_just_there {
            true => Ending::Expired,
            false => Ending::Unknown,
        }
    }

    /// The end of a hold that was deleted before its deadline: a release, unless Redis may have
    /// evicted the key to free memory, or another owner may have overwritten the lock and let it
    /// expire.
    fn deleted(&self, hold: &Hold) -> Ending {
        let not_before = self.not_before(hold);
        let may_be_replaced = self.watching && self.sighting.pushes > 0 && self.may_include_a_ttl(not_before);
        let may_be_another_end = match hold.deadline {
            Some(_) => may_be_replaced && !self.context.acquired_with_nx,
            // A lock without a TTL ends only if somebody deletes it.
            None => may_be_replaced || !self.watching,
        };
        match may_be_another_end || self.may_be_evicted(not_before) {
            true => Ending::Unknown,
            false => Ending::Released,
        }
    }

    /// Nothing happened to the lock before this time.
    fn not_before(&self, hold: &Hold) -> TimeMs {
        // After an interruption, the link knows only the changes since then.
        let since = self.sighting.since.filter(|_| self.watching && !self.context.doubtful);
        since.unwrap_or(hold.read_sent).max(hold.read_sent)
    }

    /// How far our clock and the clock of Redis may have drifted apart since the last read.
    fn drift(&self, hold: &Hold) -> TimeMs {
        share(self.sighting.received - hold.read_sent, CLOCK_DRIFT)
    }

    fn end(&self, hold: &Hold, ending: Ending, transitions: &mut Vec<Transition>) {
        let until = self.sighting.until;
        let not_before = self.not_before(hold);
        let at = match (ending, hold.deadline) {
            (Ending::Expired, Some(deadline)) => deadline.high().min(until),
            _ => until,
        };
        let is_precise = match ending {
            Ending::Expired => true,
            Ending::Released | Ending::HandedOver | Ending::TakenOver => until - not_before <= HOLD_PRECISION_MS,
            Ending::LostInFailover | Ending::Flushed | Ending::Unknown => false,
        };
        let lasted = (is_precise && hold.acquisition_seen).then(|| (at - hold.began).max(0));
        transitions.push(Transition::Ended { hold: *hold, ending, at, seen_until: not_before.min(at), lasted });
    }

    /// The owner that was seen before still holds the lock, or holds it again.
    fn same_owner(&self, mut hold: Hold, held: &Held, transitions: &mut Vec<Transition>) -> Hold {
        let Sighting { sent, received, .. } = *self.sighting;
        let new = deadline_of(held, self.sighting);
        let (Some(old), Some(now)) = (hold.deadline, new) else {
            let lost_ttl = new.is_none() && (hold.lost_ttl || hold.deadline.is_some());
            return Hold { owner: held.owner.or(hold.owner), deadline: new, read_sent: sent, lost_ttl, ..hold };
        };
        let tolerance = 1 + share(received - hold.read_sent, RENEWAL_DRIFT);
        let is_later = now.low > old.high() + tolerance;
        let overlaps = now.low <= old.high() && old.low <= now.high();
        if is_later {
            let has_expired = self.watching && self.not_before(&hold) > old.high() + self.drift(&hold);
            if has_expired && !self.context.doubtful {
                self.end(&hold, Ending::Expired, transitions);
                return self.acquired(held, transitions);
            }
            self.extended(&mut hold, old, now, transitions);
        }
        // A change may have moved the deadline within the new interval.
        let is_unchanged = self.watching && self.sighting.pushes == 0 && !self.context.doubtful;
        let deadline = match overlaps && is_unchanged {
            true => Deadline::new(now.low.max(old.low), now.high().min(old.high())),
            false => now,
        };
        Hold { owner: held.owner.or(hold.owner), deadline: Some(deadline), read_sent: sent, ..hold }
    }

    /// Whether a new owner may be a new token of the same holder: one turn replaced it before the
    /// deadline, and renewals do that here.
    fn may_be_renewed_by_another_token(&self, hold: &Hold) -> bool {
        let is_observed = self.is_one_turn() && !self.context.doubtful;
        self.context.renewal_changes_owner && is_observed && !self.may_have_expired(hold)
    }

    /// The deadline has moved. That is a renewal, unless the lock may have ended and the same owner
    /// may have acquired it again.
    fn extended(&self, hold: &mut Hold, old: Deadline, now: Deadline, transitions: &mut Vec<Transition>) {
        let Sighting { received, until, .. } = *self.sighting;
        // Some programs use the same token for all their holds.
        let may_be_released = if self.watching { !self.is_one_turn() } else { hold.owner.is_none() };
        let may_be_acquired_again = self.context.doubtful || self.may_have_expired(hold) || may_be_released;
        if may_be_acquired_again {
            (hold.set_at, hold.set_at_known) = (received, false);
            return;
        }
        let at = match self.watching {
            true => Some(until),
            // The TTL is known from before, so the deadline shows when it was set.
            false => hold.full_ttl().or(self.context.ttl).and_then(|ttl| self.set_at(now, ttl)),
        };
        let at = at.filter(|at| *at >= hold.read_sent);
        let margin = at.map(|at| {
            let full = (now.high() - at).max(1) as f64;
            ((old.high() - at) as f64 / full).clamp(0.0, 1.0)
        });
        hold.renewals = hold.renewals.saturating_add(1);
        hold.set_at = at.unwrap_or(until);
        hold.set_at_known = at.is_some();
        transitions.push(Transition::Renewed { at: hold.set_at, margin });
    }

    fn other_owner(&self, hold: &Hold, held: &Held, transitions: &mut Vec<Transition>) -> Hold {
        let ending = match self.in_doubt(hold) {
            Some(ending) => ending,
            None if self.may_have_expired(hold) => self.expired(hold),
            None => self.replaced(hold),
        };
        self.end(hold, ending, transitions);
        // Another server may show an older state, in which the other owner held the lock.
        let may_be_older = self.context.doubtful && !self.context.flushed;
        let may_be_renewed = self.context.renewal_changes_owner && ending == Ending::Unknown;
        if may_be_older || may_be_renewed {
            transitions.push(Transition::ReplacedUnseen);
            return self.begin(held, false, transitions);
        }
        self.acquired(held, transitions)
    }

    /// The end of a hold whose lock another owner held before the deadline.
    fn replaced(&self, hold: &Hold) -> Ending {
        let not_before = self.not_before(hold);
        // A lock without a TTL may have got one, and may have expired.
        let was_removed = hold.deadline.is_some() || self.watching && !self.may_include_a_ttl(not_before);
        let is_removed_first = self.context.acquired_with_nx && !self.context.renewal_changes_owner;
        let was_released = is_removed_first && was_removed && !self.may_be_evicted(not_before);
        match (was_released, self.is_one_turn()) {
            (true, true) => Ending::HandedOver,
            (true, false) => Ending::Released,
            (false, true) => Ending::TakenOver,
            // Between two turns, the lock may have been released.
            (false, false) => Ending::Unknown,
        }
    }

    /// Starts a hold that certainly began with an acquisition, even if its push has not arrived
    /// yet.
    fn acquired(&self, held: &Held, transitions: &mut Vec<Transition>) -> Hold {
        let hold = self.begin(held, true, transitions);
        if !hold.unannounced {
            return hold;
        }
        let follows = self.follows(transitions);
        transitions.push(Transition::Acquired { owner: hold.owner, at: Some(hold.began), follows });
        Hold { unannounced: false, acquisition_seen: true, set_at_known: true, ..hold }
    }
}

fn share(time: TimeMs, share: f64) -> TimeMs {
    (time.max(0) as f64 * share) as TimeMs
}

#[cfg(test)]
mod tests;
