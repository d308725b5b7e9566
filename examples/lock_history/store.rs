//! Redis in virtual time: keys with owners and deadlines, and every change in order.

use std::collections::BTreeMap;

use redis_lock_exporter::rehearsal::fleet::Random;
use redis_lock_exporter::util::clock::TimeMs;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) owner: u64,
    pub(crate) deadline: TimeMs,
}

/// A key right after a change.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) at: TimeMs,
    pub(crate) key: Box<str>,
    pub(crate) entry: Option<Entry>,
}

#[derive(Default)]
pub(crate) struct Store {
    entries: BTreeMap<Box<str>, Entry>,
    changes: Vec<Change>,
    /// Redis does not answer.
    pub(crate) down: bool,
    /// Number of failovers to another server.
    pub(crate) generation: u64,
}

impl Store {
    /// Returns a key as Redis sees it: keys after their deadline do not exist.
    pub(crate) fn get(&mut self, key: &str, now: TimeMs) -> Option<Entry> {
        let entry = self.entries.get(key).copied()?;
        if entry.deadline > now {
            return Some(entry);
        }
        self.remove(key, now);
        None
    }

    pub(crate) fn set(&mut self, key: &str, entry: Entry, now: TimeMs) {
        self.entries.insert(key.into(), entry);
        self.changes.push(Change { at: now, key: key.into(), entry: Some(entry) });
    }

    pub(crate) fn remove(&mut self, key: &str, now: TimeMs) -> bool {
        let was_there = self.entries.remove(key).is_some();
        if was_there {
            self.changes.push(Change { at: now, key: key.into(), entry: None });
        }
        was_there
    }

    /// Another server becomes the primary and has lost a share of the locks.
    pub(crate) fn fail_over(&mut self, lost: f64, random: &mut Random) {
        self.entries.retain(|_, _| random.unit() >= lost);
        self.generation += 1;
        self.down = false;
    }

    pub(crate) fn entries(&self, now: TimeMs) -> impl Iterator<Item = (&str, Entry)> {
        let there = self.entries.iter().filter(move |(_, entry)| entry.deadline > now);
        there.map(|(key, entry)| (&**key, *entry))
    }

    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }
}
