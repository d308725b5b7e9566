//! The state of each link: whether it reports every change, and since when.
//!
//! `LockTracker` applies the events of a link here and asks about locks and times. Each
//! interruption and each flush starts a new epoch. A lock last seen in an earlier epoch of its link
//! is doubtful: what happened to it since then is unknown, whatever the next sighting shows. After
//! a flush, a key that is not a known lock is still known to be absent.

use std::collections::BTreeMap;

use super::table::TrackedLock;
use crate::model::sighting::{LinkEvent, LinkId, OperationsSource, ServerContinuity};
use crate::util::clock::TimeMs;

/// A watched link whose latest answer is older than this is not observed now.
const STALE_MS: TimeMs = 10_000;

#[derive(Default)]
pub(in crate::ledger) struct Links {
    links: BTreeMap<LinkId, LinkState>,
    last_epoch: u32,
    /// When the first link came up for the first time.
    began: Option<TimeMs>,
    /// When the first complete pass ended.
    first_baseline: Option<TimeMs>,
    /// Changes before this time may have been missed, because a link was interrupted or replaced.
    missed_until: Option<TimeMs>,
    /// When a link was last removed. Cleared when the locks of removed links are verified.
    orphaned: Option<TimeMs>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(in crate::ledger) struct LinkState {
    pub(in crate::ledger) epoch: u32,
    pub(in crate::ledger) up: bool,
    pub(in crate::ledger) watching: bool,
    /// A complete pass has ended since the last interruption.
    pub(in crate::ledger) baseline: bool,
    /// A complete pass has ended at some time.
    had_baseline: bool,
    /// When the last complete pass began.
    pub(in crate::ledger) pass_started: Option<TimeMs>,
    /// When the link last came back with another server.
    failover: Option<TimeMs>,
    interrupted: TimeMs,
    /// The epoch that the last interruption started. Later epochs started with a flush.
    interrupted_epoch: u32,
    /// Redis evicted keys at some time before this one.
    pub(in crate::ledger) evicted: Option<TimeMs>,
    /// All changes before this time have been reported.
    caught_up: Option<TimeMs>,
    /// Since when no change has been missed.
    observed_since: Option<TimeMs>,
}

impl LinkState {
    /// Whether the lock was last seen before another server replaced the one that had it.
    pub(in crate::ledger) fn failed_over_since(&self, lock: &TrackedLock) -> bool {
        // A lock that moved to another node was not lost with its old node.
        lock.epoch != 0 && self.failover.is_some_and(|failover| lock.life.read_sent < failover)
    }

    /// Whether there was a flush, but no interruption, since the lock was last seen.
    pub(in crate::ledger) fn only_flushed_since(&self, lock: &TrackedLock) -> bool {
        (self.interrupted_epoch..self.epoch).contains(&lock.epoch)
    }
}

impl Links {
    pub(in crate::ledger) fn get(&self, id: LinkId) -> Option<&LinkState> {
        self.links.get(&id)
    }

    pub(in crate::ledger) fn is_doubtful(&self, lock: &TrackedLock) -> bool {
        self.links.get(&lock.link).is_none_or(|link| link.epoch != lock.epoch)
    }

    pub(in crate::ledger) fn is_watched(&self, lock: &TrackedLock) -> bool {
        self.links.get(&lock.link).is_some_and(|link| link.watching)
    }

    /// When the first link came up.
    pub(in crate::ledger) fn began(&self) -> Option<TimeMs> {
        self.began
    }

    /// When all locks were known for the first time.
    pub(in crate::ledger) fn first_baseline(&self) -> Option<TimeMs> {
        self.first_baseline
    }

    /// Changes before this time may have been missed. In the future while a link is interrupted.
    /// What was missed before the first complete pass does not count.
    pub(in crate::ledger) fn missed_until(&self) -> Option<TimeMs> {
        let is_interrupted = self.links.values().any(|link| link.had_baseline && !link.baseline);
        if is_interrupted { Some(TimeMs::MAX) } else { self.missed_until }
    }

    /// Applies every event of a link except sightings and skipped changes.
    pub(in crate::ledger) fn apply(&mut self, id: LinkId, news: &LinkEvent) {
        match *news {
            LinkEvent::Up { at, watching, past } => {
                self.began.get_or_insert(at);
                self.interrupt(id, at);
                if let Some(link) = self.links.get_mut(&id) {
                    (link.up, link.watching) = (true, watching);
                    if past == ServerContinuity::OtherServer {
                        link.failover = Some(at);
                    }
                }
            }
            LinkEvent::Down { at } => {
                self.interrupt(id, at);
                if let Some(link) = self.links.get_mut(&id) {
                    link.up = false;
                }
            }
            LinkEvent::Gap { at } => self.interrupt(id, at),
            LinkEvent::Flushed { .. } => {
                self.last_epoch += 1;
                if let Some(link) = self.links.get_mut(&id) {
                    link.epoch = self.last_epoch;
                }
            }
            LinkEvent::Evicted { at } => {
                if let Some(link) = self.links.get_mut(&id) {
                    link.evicted = Some(at);
                }
            }
            LinkEvent::Removed { at } => {
                if self.links.remove(&id).is_some() {
                    self.orphaned = Some(at);
                    self.missed_until = Some(at);
                }
            }
            LinkEvent::CaughtUp { at } => self.caught_up(id, at),
            LinkEvent::PassDone { started, at } => {
                let Some(link) = self.links.get_mut(&id) else { return };
                // A pass that began before the last interruption may have missed locks.
                if started >= link.interrupted {
                    let was_interrupted = link.had_baseline && !link.baseline;
                    if was_interrupted || self.orphaned.is_some() {
                        self.missed_until = Some(at);
                    }
                    (link.baseline, link.had_baseline) = (true, true);
                    link.pass_started = Some(started);
                    link.observed_since.get_or_insert(at);
                    self.first_baseline.get_or_insert(at);
                }
            }
            LinkEvent::Seen(_) | LinkEvent::Skipped { .. } => {}
        }
    }

    /// New links replace all links. Epochs continue, so every lock is doubtful until a new link
    /// shows it.
    pub(in crate::ledger) fn replaced(&mut self, at: TimeMs) {
        self.links.clear();
        self.orphaned = Some(at);
    }

    fn interrupt(&mut self, id: LinkId, at: TimeMs) {
        self.last_epoch += 1;
        let link = self.links.entry(id).or_default();
        (link.epoch, link.interrupted_epoch) = (self.last_epoch, self.last_epoch);
        link.baseline = false;
        link.observed_since = None;
        link.interrupted = at;
    }

    pub(in crate::ledger) fn caught_up(&mut self, id: LinkId, at: TimeMs) {
        if let Some(link) = self.links.get_mut(&id) {
            link.caught_up = link.caught_up.max(Some(at));
        }
    }

    /// When a link was removed, if every remaining link has completed a pass, including the links
    /// that replaced the removed one. Locks of the removed link that no pass has listed since must
    /// be verified. Returns each removal once.
    pub(in crate::ledger) fn orphans_missing_since(&mut self) -> Option<TimeMs> {
        if self.know_all_locks() { self.orphaned.take() } else { None }
    }

    /// Whether every link has completed a pass since its last interruption.
    pub(in crate::ledger) fn know_all_locks(&self) -> bool {
        self.links.values().all(|link| link.baseline)
    }

    /// Whether every link has reported all changes before this time.
    pub(in crate::ledger) fn have_shown(&self, at: TimeMs) -> bool {
        let has_shown = |link: &LinkState| {
            let up_to = if link.watching { link.caught_up } else { link.pass_started };
            link.baseline && up_to >= Some(at)
        };
        !self.links.is_empty() && self.links.values().all(has_shown)
    }

    /// What all links together can observe.
    pub(in crate::ledger) fn source(&self) -> OperationsSource {
        let mut up = self.links.values().filter(|link| link.up).map(|link| link.watching);
        match up.next() {
            None => OperationsSource::None,
            Some(first) if first && up.all(|watching| watching) => OperationsSource::Watch,
            Some(_) => OperationsSource::Scan,
        }
    }

    /// Since when no link has missed a change.
    pub(in crate::ledger) fn observed_since(&self, now: TimeMs) -> Option<TimeMs> {
        let since = |link: &LinkState| {
            let is_stale = link.watching && link.caught_up.is_none_or(|caught_up| now - caught_up > STALE_MS);
            link.observed_since.filter(|_| !is_stale)
        };
        let all: Option<Vec<TimeMs>> = self.links.values().map(since).collect();
        all?.into_iter().max()
    }

    /// When the lock was last known to exist.
    pub(in crate::ledger) fn last_known(&self, lock: &TrackedLock) -> TimeMs {
        let caught_up = self
            .links
            .get(&lock.link)
            .filter(|link| link.watching && link.epoch == lock.epoch)
            .and_then(|link| link.caught_up);
        let known = caught_up.unwrap_or(lock.life.read_sent).max(lock.life.read_sent);
        lock.life.deadline.map_or(known, |deadline| known.min(deadline.high()))
    }
}
