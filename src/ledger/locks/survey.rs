//! The gauges of each lock namespace. `ledger::keyspace_updates` calls this module.
//!
//! [`LockTracker::survey`] walks all locks, so the pipeline limits how often it runs.
//! [`LockTracker::view`] uses the result of the last survey.

use super::LockTracker;
use super::count_transitions::seconds;
use super::table::TrackedLock;
use crate::ledger::recent::Recent;
use crate::model::counters::KeyspaceCounters;
use crate::model::namespace::NamespaceId;
use crate::model::sighting::OperationsSource;
use crate::snapshot::{KeyspaceNow, KeyspaceView, Ratios};
use crate::util::clock::TimeMs;

/// A renewal is overdue after this many renewal intervals.
const OVERDUE_AFTER: f64 = 1.5;
/// How far an observed TTL may be from the configured one, as a fraction of it, and still count as
/// the same TTL.
const TTL_TOLERANCE: f64 = 0.2;

/// Result of a walk over all locks of a lock namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::ledger) struct Surveyed {
    first_deadline: Option<TimeMs>,
    oldest: Option<TimeMs>,
    overdue: u64,
}

impl LockTracker {
    pub(in crate::ledger) fn survey(&mut self, now: TimeMs) {
        let mut found = vec![Surveyed::default(); self.namespaces.len()];
        for (_, lock) in self.table.iter() {
            let found = &mut found[usize::from(lock.namespace().0)];
            let hold = lock.hold();
            found.oldest = Some(found.oldest.map_or(hold.began, |oldest| oldest.min(hold.began)));
            if let Some(deadline) = hold.deadline {
                let first = found.first_deadline.map_or(deadline.low, |first| first.min(deadline.low));
                found.first_deadline = Some(first);
                found.overdue += u64::from(self.is_overdue(lock, now));
            }
        }
        for (state, found) in self.states.iter_mut().zip(found) {
            state.surveyed = found;
        }
    }

    /// When the TTL was last set: as observed, otherwise computed from the deadline and the
    /// configured TTL.
    fn last_set(&self, lock: &TrackedLock) -> TimeMs {
        let hold = lock.hold();
        let from_configuration = || Some(hold.deadline?.high() - self.chooser.ttl(lock.namespace())?);
        match hold.set_at_known {
            true => hold.set_at,
            false => from_configuration().map_or(hold.set_at, |set_at| set_at.min(hold.set_at)),
        }
    }

    pub(in crate::ledger) fn is_overdue(&self, lock: &TrackedLock, now: TimeMs) -> bool {
        let is_late = |after| self.known_until(lock, now) - self.last_set(lock) > after;
        self.overdue_after(lock).is_some_and(is_late)
    }

    /// How long after its TTL was set the renewal of a lock is overdue. `None` if the lock is not
    /// expected to be renewed.
    ///
    /// Libraries renew after a fraction of the TTL, so the interval is scaled by the TTL that was
    /// observed. Many libraries also acquire locks for a fixed time and never renew them. Therefore
    /// a lock without a renewal is expected to be renewed only if it has the configured TTL.
    fn overdue_after(&self, lock: &TrackedLock) -> Option<TimeMs> {
        let renew_every = self.namespaces[usize::from(lock.namespace().0)].renew_every?;
        let usual = renew_every.mul_f64(OVERDUE_AFTER).as_millis() as f64;
        let hold = lock.hold();
        let at_least = hold.deadline?.high() - hold.set_at;
        let Some(configured) = self.chooser.ttl(lock.namespace()) else { return Some(usual as TimeMs) };
        let share = match hold.full_ttl() {
            Some(observed) => observed as f64 / configured as f64,
            None if hold.renewals == 0 => return None,
            None => (at_least as f64 / configured as f64).max(1.0),
        };
        let is_usual = (share - 1.0).abs() <= TTL_TOLERANCE;
        match hold.renewals {
            _ if is_usual => Some(usual as TimeMs),
            0 => None,
            _ => Some((usual * share) as TimeMs),
        }
    }

    /// Until when a renewal would have been observed: `now` if changes are pushed, otherwise the
    /// time of the last read.
    fn known_until(&self, lock: &TrackedLock, now: TimeMs) -> TimeMs {
        let is_pushed = self.links.is_watched(lock) && !self.links.is_doubtful(lock);
        match is_pushed && self.is_watchable(lock.namespace()) {
            true => now,
            false => lock.hold().read_sent,
        }
    }

    pub(in crate::ledger) fn view(
        &self,
        id: NamespaceId,
        counters: KeyspaceCounters,
        recent: &Recent,
        now: TimeMs,
    ) -> Option<KeyspaceView> {
        let namespace = self.namespaces.get(usize::from(id.0)).filter(|namespace| !namespace.keys.is_empty())?;
        let state = &self.states[usize::from(id.0)];
        let totals = self.table.totals(id);
        let missed_until = self.links.missed_until().max(state.missed_until);
        let is_incomplete = |window: TimeMs| missed_until.is_some_and(|missed| missed > now - window);
        let source = match self.links.source() {
            OperationsSource::Watch if !state.watchable => OperationsSource::Scan,
            OperationsSource::Watch if is_incomplete(Ratios::WINDOWS[0].1) => OperationsSource::Partial,
            source => source,
        };
        let mut ratios = recent.ratios(now, namespace.style);
        for (ratios, (_, window)) in ratios.iter_mut().zip(Ratios::WINDOWS) {
            if source != OperationsSource::Scan && is_incomplete(window) {
                *ratios = Ratios::default();
            }
        }
        let Surveyed { first_deadline, oldest, overdue } = match totals.held() {
            // All locks that the last survey counted have ended since.
            0 => Surveyed::default(),
            _ => state.surveyed,
        };
        Some(KeyspaceView {
            counters,
            now: KeyspaceNow {
                source: Some(source),
                observed_since: self
                    .links
                    .observed_since(now)
                    .map(|since| state.missed_until.unwrap_or(since).max(since)),
                held: totals.held(),
                without_ttl: if namespace.no_ttl_is_normal { 0 } else { totals.without_ttl() },
                lost_ttl: if namespace.no_ttl_is_normal { 0 } else { totals.lost_ttl() },
                renewal_overdue: overdue.min(totals.held()),
                not_locks: self.keys.of_wrong_type(id),
                ttl_remaining_min_seconds: first_deadline.map(|first| seconds((first - now).max(0))),
                oldest_acquired: oldest,
                last_held: self.last_held(id),
            },
            ratios,
        })
    }

    fn last_held(&self, id: NamespaceId) -> Vec<(String, TimeMs)> {
        let with_time = self.keys.fixed(id).filter_map(|(key, last_held)| {
            let held = self.table.lock(key).map(|lock| self.links.last_known(lock));
            Some((key.to_owned(), held.max(last_held).or(self.links.began())?))
        });
        with_time.collect()
    }
}
