//! Infers what happened to one lock from its previous state, the current sighting and the state of
//! the link.
//!
//! Pure: [`judge`] returns facts (transitions), and `apply_sighting` counts them. Nothing is
//! guessed: an end that was not observed is [`Ending::Unknown`].
//!
//! A deadline is an interval: Redis reports the remaining TTL as of some unknown moment between our
//! request and its reply. Changes are counted from pushes. `n` pushes announce at least `n`
//! changes, or `n - 1` if the previous reply may already have included the change of the first
//! push.

use std::num::NonZeroU32;

use crate::model::counters::After;
use crate::model::sighting::{Held, OwnerHash, Sighting};
use crate::util::clock::TimeMs;

/// A lock that still existed this long before its deadline, and is gone after the deadline, has
/// expired.
const EXPIRY_TOLERANCE_MS: TimeMs = 300;
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
    /// Redis evicted keys at some time before this one.
    pub(in crate::ledger) evicted: Option<TimeMs>,
    /// When the last complete pass began.
    pub(in crate::ledger) pass_started: TimeMs,
    /// The TTL configured for the lock.
    pub(in crate::ledger) ttl: Option<TimeMs>,
    /// The configured renewal interval. `None` if the lock is not renewed.
    pub(in crate::ledger) renew_every: Option<TimeMs>,
    /// A renewal writes a new token.
    pub(in crate::ledger) renewal_changes_owner: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ledger) enum Ending {
    Released,
    Expired,
    /// Another owner held the lock before the deadline, and no release was observed.
    TakenOver,
    LostInFailover,
    Flushed,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::ledger) enum Transition {
    /// Holds that began and ended between two reads. Each lasted about `hold`.
    ShortHolds {
        count: u64,
        at: TimeMs,
        hold: TimeMs,
    },
    /// `at` is `None` if the time of the acquisition cannot be inferred from a later read.
    Acquired {
        owner: Option<OwnerHash>,
        at: Option<TimeMs>,
    },
    /// `hold` is `None` if the begin or the end is not known precisely enough. At `seen_until` the
    /// lock still existed.
    Ended {
        life: Hold,
        ending: Ending,
        at: TimeMs,
        seen_until: TimeMs,
        hold: Option<TimeMs>,
    },
    Renewed {
        count: u64,
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
            Self::Released => After::Release,
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

/// Lower bound on the number of changes that the pushes of this sighting announce.
fn effective(sighting: &Sighting) -> u64 {
    u64::from(sighting.pushes).saturating_sub(u64::from(sighting.first_push_may_be_old))
}

pub(in crate::ledger) fn deadline_of(held: &Held, sighting: &Sighting) -> Option<Deadline> {
    let Sighting { sent, received, .. } = *sighting;
    held.ttl_ms.map(|ttl| Deadline::new(sent.saturating_add(ttl), received.saturating_add(ttl).saturating_add(1)))
}

/// Adds to `facts`, in order, what happened to a lock up to this sighting. Returns the new state of
/// the lock, or `None` if nobody holds it. `held` is what the sighting shows, `None` for an absent
/// key.
pub(in crate::ledger) fn judge(
    before: Option<&Hold>,
    held: Option<&Held>,
    sighting: &Sighting,
    circumstances: &SightingContext,
    facts: &mut Vec<Transition>,
) -> Option<Hold> {
    let watching = circumstances.watching && sighting.since.is_some();
    let doubtful = circumstances.doubtful || sighting.missed;
    let case = Case { sighting, circumstances, watching, doubtful, changes: effective(sighting) };
    match (before, held) {
        (None, None) => {
            if watching && circumstances.baseline && !sighting.missed {
                let renewals = case.renewals_among(case.changes.saturating_sub(2));
                case.short_holds((case.changes - renewals).div_ceil(2), facts);
                case.renewed_unseen(renewals, facts);
            }
            None
        }
        (None, Some(held)) => Some(case.begin(held, circumstances.baseline && !sighting.missed, facts)),
        (Some(life), None) => {
            case.gone(case.announced(life, facts), facts);
            None
        }
        (Some(life), Some(held)) => {
            let life = case.announced(life, facts);
            Some(if life.may_be_owned_by(held.owner) || case.may_be_renewed_by_another_token(&life) {
                case.same_owner(life, held, facts)
            } else {
                case.other_owner(&life, held, facts)
            })
        }
    }
}

struct Case<'a> {
    sighting: &'a Sighting,
    circumstances: &'a SightingContext,
    watching: bool,
    doubtful: bool,
    changes: u64,
}

impl Case<'_> {
    fn short_holds(&self, count: u64, facts: &mut Vec<Transition>) {
        if count > 0 {
            let Sighting { since, until, .. } = *self.sighting;
            // The hold time was not observed. It was shorter than the time between push and read.
            let hold = since.map_or(0, |since| until - since).clamp(0, SHORT_HOLD_MS);
            facts.push(Transition::ShortHolds { count, at: until, hold });
        }
    }

    /// How many of `changes` unobserved changes are renewals. Each short hold uses up two changes.
    /// An odd change is a renewal if there was time for one: on a busy machine, pushes are read
    /// late and several at once.
    fn renewals_among(&self, changes: u64) -> u64 {
        let Sighting { since, until, .. } = *self.sighting;
        let window = since.map_or(0, |since| until - since);
        let had_time = self.circumstances.renew_every.is_some_and(|every| window >= every / 2);
        if had_time { changes % 2 } else { 0 }
    }

    fn renewed_unseen(&self, renewals: u64, facts: &mut Vec<Transition>) {
        if renewals > 0 {
            facts.push(Transition::Renewed { count: renewals, at: self.sighting.until, margin: None });
        }
    }

    /// Handles the push of a lock that a read showed before the push arrived. The lock was acquired
    /// at the time of that read.
    fn announced(&self, life: &Hold, facts: &mut Vec<Transition>) -> Hold {
        let mut life = *life;
        if life.unannounced && self.sighting.pushes > 0 {
            life.unannounced = false;
            if self.sighting.first_push_may_be_old && !self.doubtful {
                life.acquisition_seen = true;
                life.set_at_known = true;
                facts.push(Transition::Acquired { owner: life.owner, at: Some(life.began) });
            }
        }
        life
    }

    /// Starts a hold. `is_new` means that the lock did not exist before, so this is an acquisition
    /// and not only a first sighting.
    fn begin(&self, held: &Held, is_new: bool, facts: &mut Vec<Transition>) -> Hold {
        let Sighting { sent, received, since, until, pushes, .. } = *self.sighting;
        let deadline = deadline_of(held, self.sighting);
        let acquired = is_new && (!self.watching || pushes > 0);
        let extra = if acquired && self.watching { self.changes.saturating_sub(1) } else { 0 };
        let renewals = self.renewals_among(extra);
        self.short_holds((extra - renewals).div_ceil(2), facts);
        let acquired_at = match self.watching {
            true if renewals > 0 => since,
            true => Some(until),
            false => {
                let set_at =
                    deadline.zip(self.circumstances.ttl).and_then(|(deadline, ttl)| self.set_at(deadline, ttl));
                set_at.filter(|set_at| *set_at >= self.circumstances.pass_started)
            }
        };
        if acquired {
            facts.push(Transition::Acquired { owner: held.owner, at: acquired_at });
        }
        self.renewed_unseen(renewals, facts);
        let acquired_at = acquired_at.filter(|_| acquired);
        let began = acquired_at.unwrap_or(received);
        Hold {
            owner: held.owner,
            deadline,
            began,
            set_at: if renewals > 0 { until } else { began },
            read_sent: sent,
            renewals: renewals as u32,
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

    fn gone(&self, mut life: Hold, facts: &mut Vec<Transition>) {
        let ending = match self.ending(&life) {
            // A lock without a TTL ends only if somebody deletes it.
            None if self.watching => self.deleted(&life),
            None => Ending::Unknown,
            Some(ending) => ending,
        };
        let extra = if self.doubtful { 0 } else { self.changes.saturating_sub(1) };
        // Nobody renews an expired lock. A client that finds the lock expired acquires it in one
        // step, and Redis announces the expiration and the acquisition together.
        let renewals = if ending == Ending::Expired { 0 } else { extra % 2 };
        life.renewals = life.renewals.saturating_add(renewals as u32);
        self.renewed_unseen(renewals, facts);
        self.end(&life, ending, facts);
        self.short_holds((extra - renewals).div_ceil(2), facts);
    }

    /// How a hold ended that the sighting no longer shows. `None` if the lock has no TTL.
    fn ending(&self, life: &Hold) -> Option<Ending> {
        if self.doubtful {
            return Some(if self.circumstances.failover { Ending::LostInFailover } else { Ending::Unknown });
        }
        let deadline = life.deadline?;
        let Sighting { sent, until, .. } = *self.sighting;
        let drift = share(until - life.read_sent, CLOCK_DRIFT);
        // Without a push, only our own read can have removed the key: Redis deletes an expired key
        // when it is read.
        let went_by_read = self.watching && self.changes == 0 && sent >= deadline.low;
        Some(if until < deadline.low - drift {
            self.deleted(life)
        } else if went_by_read || self.not_before(life) >= deadline.high() - EXPIRY_TOLERANCE_MS - drift {
            Ending::Expired
        } else {
            Ending::Unknown
        })
    }

    /// The end of a deleted lock: a release, unless Redis may have evicted the key to free memory.
    fn deleted(&self, life: &Hold) -> Ending {
        let may_be_evicted = self.circumstances.evicted.is_some_and(|evicted| self.not_before(life) <= evicted);
        if may_be_evicted { Ending::Unknown } else { Ending::Released }
    }

    /// Nothing happened to the lock before this time.
    fn not_before(&self, life: &Hold) -> TimeMs {
        // After an interruption, the link knows only the changes since then.
        let since = self.sighting.since.filter(|_| self.watching && !self.doubtful);
        since.unwrap_or(life.read_sent).max(life.read_sent)
    }

    fn end(&self, life: &Hold, ending: Ending, facts: &mut Vec<Transition>) {
        let until = self.sighting.until;
        let not_before = self.not_before(life);
        let at = match (ending, life.deadline) {
            (Ending::Expired, Some(deadline)) => deadline.high().min(until),
            _ => until,
        };
        let is_precise = match ending {
            Ending::Expired => true,
            Ending::Released | Ending::TakenOver => until - not_before <= HOLD_PRECISION_MS,
            Ending::LostInFailover | Ending::Flushed | Ending::Unknown => false,
        };
        let hold = (is_precise && life.acquisition_seen).then(|| (at - life.began).max(0));
        facts.push(Transition::Ended { life: *life, ending, at, seen_until: not_before.min(at), hold });
    }

    fn same_owner(&self, mut life: Hold, held: &Held, facts: &mut Vec<Transition>) -> Hold {
        let Sighting { sent, received, since, .. } = *self.sighting;
        let new = deadline_of(held, self.sighting);
        let (Some(old), Some(now)) = (life.deadline, new) else {
            let lost_ttl = new.is_none() && (life.lost_ttl || life.deadline.is_some());
            return Hold { owner: held.owner.or(life.owner), deadline: new, read_sent: sent, lost_ttl, ..life };
        };
        let tolerance = 1 + share(received - life.read_sent, RENEWAL_DRIFT);
        let is_later = now.low > old.high() + tolerance;
        let overlaps = now.low <= old.high() && old.low <= now.high();
        if is_later {
            let drift = share(received - life.read_sent, CLOCK_DRIFT);
            let has_expired = self.watching && !self.doubtful && since.is_some_and(|since| since > old.high() + drift);
            if has_expired {
                self.end(&life, Ending::Expired, facts);
                // One of the pushes announced the expiration.
                return Case { changes: self.changes.saturating_sub(1), ..*self }.begin(held, true, facts);
            }
            self.renewed(&mut life, old, now, facts);
        }
        let deadline = match overlaps {
            true => Deadline::new(now.low.max(old.low), now.high().min(old.high())),
            false => now,
        };
        Hold { owner: held.owner.or(life.owner), deadline: Some(deadline), read_sent: sent, ..life }
    }

    /// Whether a new owner may be a new token of the same holder: one change replaced it before the
    /// deadline, and renewals do that here.
    fn may_be_renewed_by_another_token(&self, life: &Hold) -> bool {
        let is_one_change = self.watching && !self.doubtful && self.changes < 2;
        let is_before_deadline = life.deadline.is_none_or(|deadline| self.sighting.until < deadline.low);
        self.circumstances.renewal_changes_owner && is_one_change && is_before_deadline
    }

    fn renewed(&self, life: &mut Hold, old: Deadline, now: Deadline, facts: &mut Vec<Transition>) {
        let until = self.sighting.until;
        let count = if self.doubtful { 1 } else { self.changes.max(1) };
        let at = match self.watching && !self.doubtful {
            true => Some(until),
            // The TTL is known from before, so the deadline shows when it was set.
            false => life.full_ttl().or(self.circumstances.ttl).and_then(|ttl| self.set_at(now, ttl)),
        };
        let at = at.filter(|at| *at >= life.read_sent);
        let margin = at.filter(|_| !self.doubtful).map(|at| {
            let full = (now.high() - at).max(1) as f64;
            ((old.high() - at) as f64 / full).clamp(0.0, 1.0)
        });
        life.renewals = life.renewals.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        life.set_at = at.unwrap_or(until);
        life.set_at_known = at.is_some();
        facts.push(Transition::Renewed { count, at: life.set_at, margin });
    }

    fn other_owner(&self, life: &Hold, held: &Held, facts: &mut Vec<Transition>) -> Hold {
        let ending =
            self.ending(life).unwrap_or_else(|| if self.watching { self.deleted(life) } else { Ending::Unknown });
        let ending = match ending {
            // One change cannot be both a release and an acquisition. Between two passes there may
            // have been more changes.
            Ending::Released if self.changes < 2 && self.watching => Ending::TakenOver,
            Ending::Released if self.changes < 2 => Ending::Unknown,
            ending => ending,
        };
        self.end(life, ending, facts);
        if self.doubtful {
            facts.push(Transition::ReplacedUnseen);
            return self.begin(held, false, facts);
        }
        self.short_holds(self.changes.saturating_sub(2).div_ceil(2), facts);
        let mut life = Case { changes: 0, ..*self }.begin(held, true, facts);
        if life.unannounced {
            // The new owner proves an acquisition, although its push has not arrived yet.
            life = Hold { unannounced: false, acquisition_seen: true, set_at_known: true, ..life };
            facts.push(Transition::Acquired { owner: life.owner, at: Some(life.began) });
        }
        life
    }
}

fn share(time: TimeMs, share: f64) -> TimeMs {
    (time.max(0) as f64 * share) as TimeMs
}

#[cfg(test)]
mod tests;
