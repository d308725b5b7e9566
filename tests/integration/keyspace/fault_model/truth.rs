//! What really happened to the locks, according to the replies of Redis.
//!
//! A fault can hide the result of a request, so the truth has two sides: what surely happened, and
//! what may have happened at most. Without a fault both are equal.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::daemon::Samples;
use crate::keyspace::scene::number;

/// For how long the record remembers when keys were removed. Workers notice it much sooner.
const REMEMBERED: Duration = Duration::from_secs(60);
/// How many events a failure can show.
const N_TRACED: usize = 1000;

/// Numbers that the exporter counts for one namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) acquisitions: i64,
    pub(super) renewals: i64,
    pub(super) releases: i64,
    pub(super) expirations: i64,
    /// Ends of holds of any kind.
    pub(super) ends: i64,
    pub(super) changes_after_release: i64,
    pub(super) changes_after_expiry: i64,
    /// Holds whose owner differs from the owner of the previous hold.
    pub(super) changes: i64,
}

impl Counts {
    pub(super) fn shown(samples: &Samples, namespace: &str) -> Self {
        let get = |metric: &str| {
            number(samples, &format!("redis_lock_{metric}_total"), &[("lock_namespace", namespace)]) as i64
        };
        let changes = |after: &str| {
            let labels = [("lock_namespace", namespace), ("after", after)];
            number(samples, "redis_lock_owner_changes_total", &labels) as i64
        };
        let (releases, expirations) = (get("releases"), get("expirations"));
        Self {
            acquisitions: get("acquisitions"),
            renewals: get("renewals"),
            releases,
            expirations,
            ends: releases + expirations + get("unknown_ends"),
            changes_after_release: changes("release"),
            changes_after_expiry: changes("expiry"),
            changes: get("owner_changes"),
        }
    }

    /// Each number with its name.
    pub(super) fn named(&self) -> [(&'static str, i64); 8] {
        [
            ("acquisitions", self.acquisitions),
            ("renewals", self.renewals),
            ("releases", self.releases),
            ("expirations", self.expirations),
            ("ends", self.ends),
            ("owner changes after a release", self.changes_after_release),
            ("owner changes after an expiration", self.changes_after_expiry),
            ("owner changes", self.changes),
        ]
    }

    /// Adds an acquisition of a lock whose previous hold ended like this. Each hold has another
    /// owner.
    pub(super) fn add_acquisition(&mut self, previous: Option<End>, n: i64) {
        self.acquisitions += n;
        self.changes += if previous.is_some() { n } else { 0 };
        match previous {
            Some(End::Released) => self.changes_after_release += n,
            Some(End::Expired | End::RemovedOrExpired) => self.changes_after_expiry += n,
            Some(End::Unanswered) => {
                self.changes_after_release += n;
                self.changes_after_expiry += n;
            }
            Some(End::Removed) | None => {}
        }
    }

    pub(super) fn since(&self, base: &Self) -> Self {
        Self {
            acquisitions: self.acquisitions - base.acquisitions,
            renewals: self.renewals - base.renewals,
            releases: self.releases - base.releases,
            expirations: self.expirations - base.expirations,
            ends: self.ends - base.ends,
            changes_after_release: self.changes_after_release - base.changes_after_release,
            changes_after_expiry: self.changes_after_expiry - base.changes_after_expiry,
            changes: self.changes - base.changes,
        }
    }
}

/// The truth about one namespace.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// What surely happened.
    pub(super) least: Counts,
    /// What happened at most. A hold that is open may end at any moment, so its end is included.
    pub(super) most: Counts,
    /// Open holds.
    pub(super) open: i64,
    /// Open holds whose TTL may run out during the test.
    may_expire: i64,
}

/// How a hold ended, as far as the replies of Redis show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Released,
    Expired,
    /// Overwritten, flushed, evicted, or lost with the data of the server.
    Removed,
    /// A fault removed keys near the deadline.
    RemovedOrExpired,
    /// A release without a reply, and the key is gone.
    Unanswered,
}

#[derive(Default)]
struct Records {
    tallies: BTreeMap<&'static str, Tally>,
    /// From when to when a fault may have removed keys. `None` if it has not ended yet.
    removals: Vec<(Instant, Option<Instant>)>,
    /// The last events, for people who read a failure.
    trace: VecDeque<(Instant, &'static str, String)>,
}

/// All workers write to it, and the judge reads it.
#[derive(Default)]
pub(super) struct Truth {
    records: Mutex<Records>,
}

impl Truth {
    /// A request was sent, so from now on it may have been executed. `change` adds to the numbers.
    pub(super) fn may(&self, namespace: &'static str, change: impl FnOnce(&mut Counts)) {
        self.change(namespace, |tally| change(&mut tally.most));
    }

    /// A request that was sent was executed. The maximum includes it already.
    pub(super) fn surely(&self, namespace: &'static str, change: impl FnOnce(&mut Counts)) {
        self.change(namespace, |tally| change(&mut tally.least));
    }

    pub(super) fn opened(&self, namespace: &'static str, may_expire: bool) {
        self.change(namespace, |tally| {
            tally.open += 1;
            tally.most.ends += 1;
            tally.may_expire += i64::from(may_expire);
            tally.most.expirations += i64::from(may_expire);
        });
    }

    pub(super) fn closed(&self, namespace: &'static str, end: End, may_expire: bool) {
        self.change(namespace, |tally| {
            tally.open -= 1;
            tally.may_expire -= i64::from(may_expire);
            tally.least.ends += 1;
            match end {
                End::Released | End::Removed => tally.most.expirations -= i64::from(may_expire),
                End::Expired => {
                    tally.least.expirations += 1;
                    // A lock that was not expected to expire did expire.
                    tally.most.expirations += i64::from(!may_expire);
                }
                End::RemovedOrExpired | End::Unanswered => {}
            }
        });
    }

    /// A fault that may remove keys begins or ends.
    pub(super) fn removal_begins(&self) {
        self.records.lock().unwrap().removals.push((Instant::now(), None));
    }

    pub(super) fn removal_ends(&self) {
        for (_, end) in &mut self.records.lock().unwrap().removals {
            end.get_or_insert(Instant::now());
        }
    }

    /// Why a key is gone: its deadline lies in `deadline`, and it existed at some time since
    /// `existed`.
    pub(super) fn why_gone(&self, existed: Instant, deadline: (Instant, Instant)) -> End {
        let now = Instant::now();
        let records = self.records.lock().unwrap();
        let is_in_time =
            |(begin, end): &&(Instant, Option<Instant>)| *begin <= deadline.1 && end.is_none_or(|end| end >= existed);
        let may_be_removed = records.removals.iter().any(|removal| is_in_time(&removal));
        match (may_be_removed, now >= deadline.0) {
            (false, true) => End::Expired,
            (true, false) => End::Removed,
            (true, true) => End::RemovedOrExpired,
            (false, false) => panic!("a lock vanished {:?} before its deadline without a fault", deadline.0 - now),
        }
    }

    /// Remembers an event for [`Truth::last_events`].
    pub(super) fn trace(&self, namespace: &'static str, event: String) {
        let trace = &mut self.records.lock().unwrap().trace;
        trace.push_back((Instant::now(), namespace, event));
        if trace.len() > N_TRACED {
            trace.pop_front();
        }
    }

    /// The last events in a namespace, with their age.
    pub(super) fn last_events(&self, namespace: &str) -> String {
        let records = self.records.lock().unwrap();
        let events = records.trace.iter().filter(|(_, of, _)| *of == namespace);
        events.map(|(at, _, event)| format!("{:6} ms ago: {event}\n", at.elapsed().as_millis())).collect()
    }

    pub(super) fn tally(&self, namespace: &'static str) -> Tally {
        self.records.lock().unwrap().tallies.get(namespace).copied().unwrap_or_default()
    }

    /// Events that surely happened, in all namespaces.
    pub(super) fn n_events(&self) -> i64 {
        let records = self.records.lock().unwrap();
        let of_tally = |tally: &Tally| tally.least.acquisitions + tally.least.renewals + tally.least.ends;
        records.tallies.values().map(of_tally).sum()
    }

    /// Forgets what may have happened but was never confirmed. Call it while the workers rest.
    pub(super) fn settle(&self) {
        let mut records = self.records.lock().unwrap();
        for tally in records.tallies.values_mut() {
            tally.most = tally.least;
            tally.most.ends += tally.open;
            tally.most.expirations += tally.may_expire;
        }
        records.removals.retain(|(_, end)| end.is_none_or(|end| end.elapsed() < REMEMBERED));
    }

    fn change(&self, namespace: &'static str, change: impl FnOnce(&mut Tally)) {
        change(self.records.lock().unwrap().tallies.entry(namespace).or_default());
    }
}

impl Tally {
    /// Whether everything that may have happened surely happened, apart from the ends of open
    /// holds.
    pub(super) fn is_certain(&self) -> bool {
        let mut closed = self.most;
        closed.ends -= self.open;
        closed.expirations -= self.may_expire;
        closed == self.least
    }
}
