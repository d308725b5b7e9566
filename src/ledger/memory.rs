//! What the ledger remembers over a restart besides its counters: the counts of the last hour, the
//! latest incidents, and since when locks have been held.
//!
//! The pipeline saves [`Ledger::memory`] and passes it to [`Ledger::remembering`] at the next
//! start. It contains ids of locks, so the file must be protected. All sizes are bounded. Nothing
//! is taken over for a lock namespace whose keys or meaning changed.

use serde::{Deserialize, Serialize};

use super::Ledger;
use super::causes::Explanation;
use super::causes::incidents::Incident;
use super::locks::remembered_holds::{RememberedHold, RememberedHolds};
use super::recent::{Recent, SavedRecent};
use super::renumbering::{Renumbering, RuleNumbers};
use crate::model::namespace::NamespaceId;
use crate::model::sighting::OwnerHasher;
use crate::util::clock::TimeMs;

/// Changes when the meaning of a field changes. Memory of another version is ignored.
const VERSION: u32 = 1;
/// Number of incidents that are saved, the latest ones.
const INCIDENTS: usize = 200;
/// A longer id of a lock is cut.
const MAX_ID_BYTES: usize = 1024;
const CLOCK_PRECISION_MS: TimeMs = 1000;
/// Memory from the future by more than this comes from a wrong clock and is ignored.
const FUTURE_MS: TimeMs = 60_000;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    version: u32,
    /// When it was saved, on the clock of the ledger, and the wall clock minus that clock.
    at: TimeMs,
    wall_clock_ahead: TimeMs,
    /// The identity of each lock namespace. The position of a namespace here is its number below.
    namespaces: Vec<u64>,
    rules: Vec<String>,
    /// One entry per lock namespace.
    recents: Vec<SavedRecent>,
    /// The oldest first.
    incidents: Vec<Incident>,
    holds: Vec<RememberedHold>,
}

impl Ledger {
    /// `wall_clock` is the wall clock at `now`.
    pub fn memory(&self, hasher: &OwnerHasher, now: TimeMs, wall_clock: TimeMs) -> Memory {
        let keyspace = self.keyspace.as_ref();
        // After a restart, the cause of a loss that waits for it can no longer be found.
        let waiting = keyspace.into_iter().flat_map(|keyspace| keyspace.causes.waiting());
        let waiting = waiting.map(|loss| Incident { loss: loss.clone(), finding: Explanation::NOTHING });
        let waiting: Vec<Incident> = waiting.collect();
        let known = self.incidents.iter().cloned();
        let mut incidents: Vec<Incident> = waiting.into_iter().rev().chain(known).take(INCIDENTS).collect();
        incidents.reverse();
        incidents.iter_mut().for_each(Incident::cut_id);
        Memory {
            version: VERSION,
            at: now,
            wall_clock_ahead: wall_clock - now,
            namespaces: self.namespaces.iter().map(|namespace| namespace.identity()).collect(),
            rules: self.rule_names.to_vec(),
            recents: self.recents.iter().map(|recent| recent.saved(now)).collect(),
            incidents,
            holds: keyspace.map(|keyspace| keyspace.holds_to_remember(hasher)).unwrap_or_default(),
        }
    }

    /// Continues at `now` with the memory of a previous process. Must be called after all other
    /// settings are made.
    pub fn remembering(mut self, memory: Memory, hasher: &OwnerHasher, now: TimeMs, wall_clock: TimeMs) -> Self {
        let shift = memory.wall_clock_ahead.saturating_sub(wall_clock - now);
        // Both clocks are read one after the other, so a small difference means nothing.
        let shift = if shift.abs() < CLOCK_PRECISION_MS { 0 } else { shift };
        let until = memory.at.saturating_add(shift);
        if memory.version != VERSION || until > now.saturating_add(FUTURE_MS) {
            return self;
        }
        let (rules, rule_names) = RuleNumbers::new(&memory.rules, &self.rule_names);
        let renumbering = Renumbering::new(&memory.namespaces, &self.namespaces, rules);
        self.rule_names = rule_names;
        for (old, saved) in memory.recents.into_iter().enumerate() {
            if let Some(new) = renumbering.namespace(NamespaceId(old as u16)) {
                self.recents[usize::from(new.0)] = Recent::restore(saved, until, shift, now);
            }
        }
        for mut incident in memory.incidents {
            if incident.renumber(&renumbering) {
                incident.shift(shift);
                self.incidents.remember(incident);
            }
        }
        if let Some(keyspace) = &mut self.keyspace {
            let holds = memory.holds.into_iter();
            let holds = holds.map(|hold| RememberedHold { began: hold.began.saturating_add(shift), ..hold }).collect();
            keyspace.remembered = RememberedHolds::new(hasher.clone(), holds);
        }
        self
    }
}

impl Incident {
    fn cut_id(&mut self) {
        if let Some(lock) = self.loss.lock.as_mut().filter(|lock| lock.len() > MAX_ID_BYTES) {
            let end = (0..=MAX_ID_BYTES).rev().find(|end| lock.is_char_boundary(*end)).unwrap_or(0);
            *lock = lock[..end].into();
        }
    }

    /// Moves all times to another clock.
    fn shift(&mut self, by: TimeMs) {
        let Self { loss, finding } = self;
        let hold = finding
            .hold
            .iter_mut()
            .flat_map(|hold| [&mut hold.began, &mut hold.ended, &mut hold.not_before, &mut hold.sign_of_life]);
        let times = finding.lost_at.iter_mut().chain(&mut finding.next_began).chain([&mut loss.at]).chain(hold);
        times.for_each(|time| *time = time.saturating_add(by));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::ledger::Saved;
    use crate::ledger::causes::Loss;
    use crate::ledger::locks::KeyspaceSettings;
    use crate::model::failure::FailureKind;
    use crate::model::failure::{Cause, Operation};
    use crate::model::key_template::KeyTemplate;
    use crate::model::log_event::RuleId;
    use crate::model::namespace::Namespace;
    use crate::model::sighting::{Held, KeyState, LinkBatch, LinkEvent, LinkId, ServerContinuity, Sighting};
    use crate::snapshot::ObservedOperation;

    const NOW: TimeMs = 1_700_000_000_000;

    /// A ledger with this many namespaces besides `other`.
    fn ledger(namespaces: usize) -> Ledger {
        let namespace = |number: usize| Namespace {
            name: format!("namespace-{number}"),
            keys: vec![KeyTemplate::parse(&format!("locks:{number}:{{id}}")).unwrap()],
            ..Namespace::other()
        };
        let namespaces = (0..namespaces).map(namespace).chain([Namespace::other()]).map(Arc::new).collect();
        let settings = KeyspaceSettings { max_tracked_locks: 100_000, cause_wait: 3000 };
        Ledger::new(namespaces, Duration::from_secs(2), Saved::default()).starting_at(NOW).observing(settings)
    }

    fn see(ledger: &mut Ledger, key: &str, owner: &[u8], hasher: &OwnerHasher, at: TimeMs) {
        let held = Held { owner: Some(hasher.hash(owner)), ttl_ms: Some(600_000), fence: None };
        let sighting = Sighting {
            key: key.into(),
            sent: at,
            received: at,
            since: None,
            until: at,
            pushes: 0,
            first_push_may_be_old: false,
            missed: false,
            sight: KeyState::Held(held),
        };
        ledger.apply_link(LinkBatch { link: LinkId(0), news: vec![LinkEvent::Seen(sighting)] });
    }

    fn connect(ledger: &mut Ledger, at: TimeMs) {
        let up = LinkEvent::Up { at, watching: true, past: ServerContinuity::None };
        ledger.apply_link(LinkBatch { link: LinkId(0), news: vec![up] });
    }

    fn oldest(ledger: &mut Ledger, now: TimeMs) -> Option<TimeMs> {
        ledger.survey(now);
        ledger.keyspace_view(NamespaceId(0), now)?.now.oldest_acquired
    }

    /// The lock is known since `NOW`. Returns since when it is known after a restart, if its owner
    /// then is `owner`.
    fn known_since(owner: &[u8], restarts: usize) -> TimeMs {
        let hasher = OwnerHasher::new();
        let mut before = ledger(1);
        connect(&mut before, NOW);
        see(&mut before, "locks:0:a", b"first", &hasher, NOW);
        let mut now = NOW;
        for _ in 0..restarts {
            now += 60_000;
            // Without Redis, the next process does not see any lock.
            before = ledger(1).remembering(before.memory(&hasher, now, now), &hasher, now, now);
        }
        connect(&mut before, now);
        see(&mut before, "locks:0:a", owner, &hasher, now);
        oldest(&mut before, now).unwrap()
    }

    #[test]
    fn the_same_owner_holds_the_lock_since_it_was_first_seen() {
        assert_eq!(known_since(b"first", 1), NOW);
        assert_eq!(known_since(b"first", 3), NOW, "Redis was not seen in between");
        assert_eq!(known_since(b"second", 1), NOW + 60_000);
    }

    #[test]
    fn a_lock_that_is_acquired_after_the_restart_is_a_new_hold() {
        let hasher = OwnerHasher::new();
        let mut before = ledger(1);
        connect(&mut before, NOW);
        see(&mut before, "locks:0:a", b"first", &hasher, NOW);
        let now = NOW + 60_000;
        let mut after = ledger(1).remembering(before.memory(&hasher, now, now), &hasher, now, now);
        connect(&mut after, now);
        let pass = LinkEvent::PassDone { started: now, at: now };
        after.apply_link(LinkBatch { link: LinkId(0), news: vec![pass] });
        see(&mut after, "locks:0:a", b"first", &hasher, now + 1000);
        assert_eq!(oldest(&mut after, now + 1000), Some(now + 1000));
    }

    #[test]
    fn memory_from_another_clock_or_version_is_converted_or_ignored() {
        let hasher = OwnerHasher::new();
        let mut before = ledger(1);
        (0..3).for_each(|_| before.recents[0].add_failure(FailureKind::NotOwned, NOW));
        let losses =
            |ledger: &Ledger, now| ledger.lately(NamespaceId(0), now).windows[0].failures.get(FailureKind::NotOwned);
        let memory = || before.memory(&hasher, NOW, NOW + 7_200_000);
        // The wall clock was corrected while the first process ran.
        let now = NOW + 7_200_000 + 1000;
        assert_eq!(losses(&ledger(1).remembering(memory(), &hasher, now, now), now), 3);
        let early = ledger(1).remembering(memory(), &hasher, NOW, NOW);
        assert_eq!(losses(&early, NOW), 0, "it is from the future");
        let other = Memory { version: VERSION + 1, ..memory() };
        assert_eq!(losses(&ledger(1).remembering(other, &hasher, now, now), now), 0);
        assert_eq!(losses(&ledger(0).remembering(memory(), &hasher, now, now), now), 0, "no such namespace");
    }

    /// The size of a full memory: 20 busy namespaces, all incidents and all holds.
    #[test]
    fn it_is_bounded() {
        let hasher = OwnerHasher::new();
        let mut ledger = ledger(20);
        for recent in &mut ledger.recents {
            for bucket in 0..361 {
                for operation in
                    [ObservedOperation::Release, ObservedOperation::Renewal, ObservedOperation::Acquisition]
                {
                    recent.add(operation, 5000, NOW - 10_000 * bucket);
                }
            }
        }
        for number in 0..2000 {
            let lock = Some(format!("{number}-{}", "é".repeat(MAX_ID_BYTES)).into());
            let (namespace, operation, rule) = (NamespaceId(0), Operation::Renew, RuleId(0));
            let loss = Loss { at: NOW, namespace, lock, operation, rule };
            ledger
                .incidents
                .remember(Incident { loss, finding: Explanation { cause: Cause::TakenOver, ..Explanation::NOTHING } });
        }
        connect(&mut ledger, NOW);
        for number in 0..20_000 {
            see(&mut ledger, &format!("locks:1:{number}"), b"owner", &hasher, NOW + number);
        }
        let memory = ledger.memory(&hasher, NOW, NOW);
        assert_eq!((memory.incidents.len(), memory.holds.len()), (200, 10_000));
        assert!(memory.holds.iter().all(|hold| hold.began < NOW + 10_000), "the longest holds");
        let recents = serde_json::to_vec(&memory.recents).unwrap().len();
        let incidents = serde_json::to_vec(&memory.incidents).unwrap().len();
        let holds = serde_json::to_vec(&memory.holds).unwrap().len();
        assert!(recents < 400_000 && incidents < 300_000 && holds < 1_000_000, "{recents} {incidents} {holds}");
    }
}
