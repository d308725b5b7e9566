//! Why locks were lost: looks up a reported loss in the history of the lock.
//!
//! `ledger::keyspace_updates` calls this module. A loss waits for a short time first, because its
//! line may be read before Redis shows the end of the hold. The causes of a lock namespace add up
//! to its `not_owned` count, except for losses that still wait. A loss that waits during a crash
//! gets the cause `unknown`. In reading order:
//!
//! * this file: losses that wait, and their causes
//! * `incidents`: the latest losses with their causes

pub(super) mod incidents;

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::locks::history::{EndedHold, HoldHistory};
use super::locks::hold::Ending;
use super::locks::ring::KeyHash;
use super::renumbering::Renumbering;
use crate::model::failure::{Cause, Operation};
use crate::model::label::as_text;
use crate::model::log_event::RuleId;
use crate::model::namespace::NamespaceId;
use crate::model::sighting::OwnerHash;
use crate::util::clock::TimeMs;

/// Maximum number of waiting losses. Beyond it, the oldest one gets its cause at once.
const PENDING: usize = 65_536;
/// How much longer than usual a loss may wait while Redis is not observed. Longer than a reconnect
/// takes.
const PATIENCE_MS: TimeMs = 30_000;
/// How far the clock of a program may be behind.
const CLOCK_TOLERANCE_MS: TimeMs = 2000;
/// How many holds of a lock are searched, the latest first. Bounds the time that many losses at
/// once may take.
const HOLDS: usize = 256;

/// A loss that a log line reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Loss {
    /// Time of the line.
    pub(super) at: TimeMs,
    pub(super) namespace: NamespaceId,
    /// The key or a bare id, as the line names it.
    pub(super) lock: Option<Box<str>>,
    #[serde(with = "as_text")]
    pub(super) operation: Operation,
    pub(super) rule: RuleId,
}

/// What Redis showed about a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Explanation {
    #[serde(with = "as_text")]
    pub(super) cause: Cause,
    pub(super) lost_at: Option<TimeMs>,
    pub(super) owner: Option<OwnerHash>,
    pub(super) next_owner: Option<OwnerHash>,
    /// The hold that was lost.
    pub(super) hold: Option<EndedHold>,
    /// When the next hold began.
    pub(super) next_began: Option<TimeMs>,
}

#[derive(Default)]
pub(super) struct Causes {
    /// Each loss with the time at which its cause may be looked up.
    pending: VecDeque<(TimeMs, Loss)>,
    evictions: u64,
}

impl Explanation {
    pub(super) const NOTHING: Self =
        Self { cause: Cause::Unknown, lost_at: None, owner: None, next_owner: None, hold: None, next_began: None };

    fn of(record: &EndedHold, next: Option<&EndedHold>, loss: &Loss) -> Self {
        let cause = match record.ending {
            Ending::Expired if record.renewals == 0 => Cause::ExpiredNeverRenewed,
            Ending::Expired => Cause::RenewalsStopped,
            Ending::TakenOver | Ending::HandedOver => Cause::TakenOver,
            Ending::LostInFailover => Cause::LostInFailover,
            Ending::Released | Ending::Flushed => Cause::DeletedEarly,
            Ending::Unknown => Cause::Unknown,
        };
        // Redis may have shown the end late, but the lock was lost before its holder reported it.
        let lost_at = record.ended.min(loss.at).max(record.not_before);
        let lost_at = Some(lost_at).filter(|_| cause != Cause::Unknown);
        Self {
            cause,
            lost_at,
            owner: record.owner,
            next_owner: next.and_then(|next| next.owner),
            hold: Some(*record),
            next_began: next.map(|next| next.began),
        }
    }
}

impl Causes {
    /// Lets the loss wait until `due`. If too many losses wait, returns the oldest one, which stops
    /// waiting.
    pub(super) fn wait(&mut self, loss: Loss, due: TimeMs) -> Option<Loss> {
        self.pending.push_back((due, loss));
        if self.pending.len() <= PENDING {
            return None;
        }
        self.evictions += 1;
        self.pending.pop_front().map(|(_, loss)| loss)
    }

    /// The oldest loss if it has waited until its `due` time, and whether it must not wait any
    /// longer.
    pub(super) fn first_due(&self, now: TimeMs) -> Option<(&Loss, bool)> {
        let (due, loss) = self.pending.front().filter(|(due, _)| *due <= now)?;
        Some((loss, now - due >= PATIENCE_MS))
    }

    /// Removes and returns the loss that [`Causes::first_due`] shows.
    pub(super) fn next_due(&mut self, now: TimeMs) -> Option<Loss> {
        let is_due = self.pending.front().is_some_and(|(due, _)| *due <= now);
        if is_due { self.pending.pop_front().map(|(_, loss)| loss) } else { None }
    }

    /// The losses that wait for their cause.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Loss> {
        self.pending.iter().map(|(_, loss)| loss)
    }

    /// Removes and returns the waiting losses that `chosen` accepts.
    pub(super) fn remove_if(&mut self, chosen: impl Fn(&Loss) -> bool) -> Vec<Loss> {
        let (removed, pending) = std::mem::take(&mut self.pending).into_iter().partition(|(_, loss)| chosen(loss));
        self.pending = pending;
        let removed: VecDeque<(TimeMs, Loss)> = removed;
        removed.into_iter().map(|(_, loss)| loss).collect()
    }

    /// The lock namespaces of all waiting losses must still exist.
    pub(super) fn renumber(&mut self, renumbering: &Renumbering) {
        for (_, loss) in &mut self.pending {
            loss.namespace = renumbering.namespace(loss.namespace).unwrap_or(loss.namespace);
            loss.rule = renumbering.rule(loss.rule);
        }
    }

    pub(super) fn evictions(&self) -> u64 {
        self.evictions
    }
}

/// Finds the cause of a loss: the latest abnormal end that no other failed release has claimed. If
/// there is none, and no remembered end is unknown, a release explains the loss: somebody else
/// deleted the key. That conclusion is valid only if the history reaches back to the hold in
/// question.
pub(super) fn explain(history: &mut HoldHistory, key: KeyHash, loss: &Loss) -> Explanation {
    let latest = loss.at.saturating_add(CLOCK_TOLERANCE_MS);
    let is_abnormal = |record: &EndedHold| {
        let abnormal =
            matches!(record.ending, Ending::Expired | Ending::TakenOver | Ending::HandedOver | Ending::LostInFailover);
        abnormal && !record.explained && record.not_before <= latest
    };
    if let Some((record, next)) = history.find_mut(key, HOLDS, is_abnormal) {
        // A holder whose release failed is done with the lock. A holder whose renewal failed tries
        // again, or tries to release.
        record.explained = loss.operation == Operation::Release;
        if record.ending == Ending::HandedOver {
            // A holder that reports a loss did not hand its lock over.
            record.ending = Ending::TakenOver;
        }
        return Explanation::of(record, next.as_ref(), loss);
    }
    if is_forgotten(history, key, loss) {
        return Explanation::NOTHING;
    }
    let mut next = None;
    let mut finding = Explanation::NOTHING;
    for record in history.many_of(key, HOLDS) {
        if record.not_before <= latest {
            match record.ending {
                // An end that was not observed may have been a loss.
                Ending::Unknown => return Explanation::NOTHING,
                // A hold that ended after the line probably belonged to the next owner. It is used
                // only if no earlier release is known, which means that the clocks differ.
                Ending::Released | Ending::Flushed if finding.hold.is_none_or(|hold| hold.not_before > loss.at) => {
                    finding = Explanation::of(record, next, loss);
                }
                _ => {}
            }
        }
        next = Some(record);
    }
    finding
}

/// Whether the lost hold may be older than the history: older than the searched holds of a busy
/// lock, or than everything left in the ring of all locks. A holder seldom notices a loss later
/// than two TTLs after it set the last TTL.
fn is_forgotten(history: &HoldHistory, key: KeyHash, loss: &Loss) -> bool {
    let mut forgotten_until = history.oldest_of_many().map(|oldest| oldest.ended);
    let (mut count, mut longest) = (0, 0);
    for record in history.many_of(key, HOLDS) {
        count += 1;
        longest = record.ttl.map_or(0, |ttl| TimeMs::from(ttl.get())).max(longest);
        if count == HOLDS {
            forgotten_until = forgotten_until.max(Some(record.began));
        }
    }
    forgotten_until.is_some_and(|until| loss.at.saturating_sub(until) < 2 * longest)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::model::sighting::OwnerHasher;

    const KEY: KeyHash = KeyHash(7);

    fn history(ends: &[(TimeMs, Ending, u32)]) -> HoldHistory {
        let mut history = HoldHistory::default();
        for (ended, ending, renewals) in ends {
            let record = EndedHold { ending: *ending, renewals: *renewals, ..EndedHold::short(*ended, NamespaceId(0)) };
            history.push(KEY, record);
        }
        history
    }

    fn loss(at: TimeMs, operation: Operation) -> Loss {
        Loss { at, namespace: NamespaceId(0), lock: None, operation, rule: RuleId(0) }
    }

    /// Checks the cause of each line (time, operation, cause). All lines share one history.
    fn check(ends: &[(TimeMs, Ending, u32)], lines: &[(TimeMs, Operation, Cause)]) {
        let mut history = history(ends);
        for (at, operation, cause) in lines {
            let finding = explain(&mut history, KEY, &loss(*at, *operation));
            assert_eq!(finding.cause, *cause, "line at {at} with {ends:?}");
        }
    }

    #[test]
    fn six_causes() {
        use Operation::Release;
        check(&[(10, Ending::Expired, 0)], &[(20, Release, Cause::ExpiredNeverRenewed)]);
        check(&[(10, Ending::Expired, 3)], &[(20, Release, Cause::RenewalsStopped)]);
        check(&[(10, Ending::TakenOver, 3)], &[(20, Release, Cause::TakenOver)]);
        check(&[(10, Ending::LostInFailover, 0)], &[(20, Release, Cause::LostInFailover)]);
        check(&[(10, Ending::Released, 0)], &[(20, Release, Cause::DeletedEarly)]);
        check(&[(10, Ending::HandedOver, 0)], &[(20, Release, Cause::TakenOver)]);
        check(&[(10, Ending::Flushed, 0)], &[(20, Release, Cause::DeletedEarly)]);
        check(&[(10, Ending::Unknown, 0)], &[(20, Release, Cause::Unknown)]);
        check(&[], &[(20, Release, Cause::Unknown)]);
    }

    #[test]
    fn one_end_explains_one_release_and_any_number_of_renewals() {
        use Operation::{Release, Renew};
        let ends = [(10, Ending::Expired, 0), (50, Ending::TakenOver, 0), (60, Ending::Released, 0)];
        let lines = [
            (70, Renew, Cause::TakenOver),
            (70, Release, Cause::TakenOver),
            (70, Renew, Cause::ExpiredNeverRenewed),
            (70, Release, Cause::ExpiredNeverRenewed),
            (70, Release, Cause::DeletedEarly),
        ];
        check(&ends, &lines);
    }

    #[test]
    fn what_happened_later_is_not_the_cause() {
        let ends = [(10_000, Ending::Expired, 1), (50_000, Ending::TakenOver, 0)];
        check(&ends, &[(47_999, Operation::Release, Cause::RenewalsStopped)]);
        check(&ends, &[(48_000, Operation::Release, Cause::TakenOver)]);
        check(&ends, &[(7_999, Operation::Release, Cause::Unknown)]);
    }

    #[test]
    fn a_release_among_what_cannot_be_told_proves_nothing() {
        let ends = [(10, Ending::Unknown, 0), (20, Ending::Released, 0)];
        check(&ends, &[(30, Operation::Release, Cause::Unknown)]);
    }

    #[test]
    fn tells_who_lost_it_and_who_had_it_next() {
        let hasher = OwnerHasher::new();
        let (first, second) = (Some(hasher.hash(b"1")), Some(hasher.hash(b"2")));
        let mut history = HoldHistory::default();
        let record = EndedHold::short(10, NamespaceId(0));
        history.push(KEY, EndedHold { owner: first, ending: Ending::Expired, ..record });
        history.push(KEY, EndedHold { owner: second, ended: 30, ..record });
        let finding = explain(&mut history, KEY, &loss(40, Operation::Renew));
        assert_eq!((finding.lost_at, finding.owner, finding.next_owner), (Some(10), first, second));
    }

    /// One hold that expires at 1 s, then `released` holds with the given TTL that end 100 ms
    /// apart.
    fn busy(released: usize, ttl: u32) -> (HoldHistory, TimeMs) {
        let mut history = history(&[(1000, Ending::Expired, 0)]);
        let mut ended = 1000;
        for _ in 0..released {
            ended += 100;
            history.push(KEY, EndedHold { ttl: NonZeroU32::new(ttl), ..EndedHold::short(ended, NamespaceId(0)) });
        }
        (history, ended)
    }

    fn cause(history: &mut HoldHistory, at: TimeMs) -> Cause {
        explain(history, KEY, &loss(at, Operation::Release)).cause
    }

    #[test]
    fn on_a_busy_lock_an_expiry_is_found_among_many_holds() {
        let (mut history, now) = busy(HOLDS - 1, 5000);
        assert_eq!(cause(&mut history, now), Cause::ExpiredNeverRenewed);
    }

    #[test]
    fn releases_prove_nothing_where_the_memory_is_shorter_than_a_hold() {
        let (mut history, now) = busy(HOLDS, 60_000);
        assert_eq!(cause(&mut history, now), Cause::Unknown, "256 holds of a busy lock");
        let (mut history, now) = busy(HOLDS, 5000);
        assert_eq!(cause(&mut history, now), Cause::DeletedEarly, "they reach back far enough");
    }

    #[test]
    fn the_release_after_the_line_is_the_next_owners() {
        let hasher = OwnerHasher::new();
        let (first, second) = (Some(hasher.hash(b"1")), Some(hasher.hash(b"2")));
        let record = EndedHold::short(10_000, NamespaceId(0));
        let mut history = HoldHistory::default();
        history.push(KEY, EndedHold { owner: first, ..record });
        history.push(KEY, EndedHold { owner: second, ..EndedHold::short(12_000, NamespaceId(0)) });
        let finding = explain(&mut history, KEY, &loss(11_000, Operation::Release));
        assert_eq!((finding.cause, finding.lost_at), (Cause::DeletedEarly, Some(10_000)));
        assert_eq!((finding.owner, finding.next_owner), (first, second));
        let finding = explain(&mut history, KEY, &loss(9_000, Operation::Release));
        assert_eq!(finding.owner, first, "clocks differ: the one nearest to the line");
    }

    #[test]
    fn waiting_is_bounded() {
        let mut causes = Causes::default();
        for at in 0..PENDING as TimeMs {
            assert_eq!(causes.wait(loss(at, Operation::Renew), at), None);
        }
        assert_eq!(causes.wait(loss(-1, Operation::Renew), 9).map(|loss| loss.at), Some(0));
        assert_eq!(causes.evictions(), 1);
        assert_eq!(causes.next_due(0), None);
        assert_eq!(causes.next_due(1).map(|loss| loss.at), Some(1));
    }
}
