//! Answers queries about single locks, for the API.
//!
//! `ledger::keyspace_updates` calls this module. Each answer is bounded by its query. Locks are
//! sorted only as far as the query asks, because there may be a million. In reading order:
//!
//! * this file: lists, histories and incidents
//! * `sentences`: the state and the end of a hold in words

mod sentences;

use memchr::memmem;

use super::Ledger;
use super::causes::incidents::Incident;
use super::locks::LockTracker;
use super::locks::count_transitions::seconds;
use super::locks::history::EndedHold;
use super::locks::hold::Ending;
use super::locks::ring::KeyHash;
use super::locks::table::{LockSlot, TrackedLock};
use crate::model::failure::Cause;
use crate::model::label::Label;
use crate::model::log_event::RuleId;
use crate::model::namespace::{Namespace, NamespaceId};
use crate::model::query::{
    HistoryView, HoldView, IncidentView, IncidentsPage, IncidentsQuery, LockHistory, LockOrder, LockView, LocksPage,
    LocksQuery,
};
use crate::model::sighting::OwnerHash;
use crate::util::clock::TimeMs;
use sentences::NextHold;

impl Ledger {
    pub(super) fn incidents(&self, query: &IncidentsQuery, now: TimeMs) -> IncidentsPage {
        let name = |incident: &Incident| self.namespaces[usize::from(incident.loss.namespace.0)].name.as_str();
        let fits = |incident: &&Incident| query.lock_namespace.as_deref().is_none_or(|wanted| wanted == name(incident));
        let view = |incident: &Incident| {
            let Incident { loss, finding } = incident;
            let next = self.keyspace.as_ref().and_then(|keyspace| keyspace.next_of(incident, now));
            IncidentView {
                at: seconds(loss.at),
                lock_namespace: name(incident).to_owned(),
                lock: loss.lock.as_deref().map(str::to_owned),
                operation: loss.operation.as_str(),
                cause: finding.cause.as_str(),
                lost_at: finding.lost_at.map(seconds),
                owner: finding.owner.map(OwnerHash::short),
                next_owner: finding.next_owner.or(next.and_then(|next| next.owner)).map(OwnerHash::short),
                rule: self.rule_name(loss.rule).to_owned(),
                verdict: finding.hold.map(|hold| sentences::of_end(&hold, next, self.namespace_of(hold.namespace))),
                runbook: runbook(finding.cause),
            }
        };
        let page = self.incidents.iter().filter(fits).skip(query.offset).take(query.limit);
        let total = self.incidents.iter().filter(fits).count();
        IncidentsPage { total, offset: query.offset, incidents: page.map(view).collect() }
    }

    fn namespace_of(&self, id: NamespaceId) -> &Namespace {
        &self.namespaces[usize::from(id.0)]
    }
}

/// The runbook that explains what to do about the cause.
fn runbook(cause: Cause) -> &'static str {
    match cause {
        Cause::ExpiredNeverRenewed => "RedisLockTtlTooShort",
        Cause::RenewalsStopped => "RedisLockRenewalFailureRatioHigh",
        Cause::LostInFailover => "RedisLockFailoverObserved",
        Cause::DeletedEarly | Cause::TakenOver => "common/causes",
        Cause::Unknown => "RedisLockNotOwnedRatioHigh",
    }
}

impl LockTracker {
    pub(super) fn locks(&self, query: &LocksQuery, now: TimeMs) -> LocksPage {
        let namespace = query.lock_namespace.as_deref();
        let finder = query.search.as_deref().map(|search| memmem::Finder::new(search.as_bytes()));
        let fits = |lock: &TrackedLock| {
            namespace.is_none_or(|name| self.namespace_name(lock) == name)
                && finder.as_ref().is_none_or(|finder| finder.find(lock.key.as_bytes()).is_some())
        };
        let found = self.table.iter().filter(|(_, lock)| fits(lock));
        // The sort number is computed once for each lock. The key decides between equal numbers.
        let mut slots: Vec<(TimeMs, LockSlot)> =
            found.map(|(slot, lock)| (self.sort_number(query.sort, lock), slot)).collect();
        let total = slots.len();
        let end = query.offset.saturating_add(query.limit).min(total);
        let key = |slot: LockSlot| self.table.get(slot).map(|lock| &lock.key);
        let compare = |left: &(TimeMs, LockSlot), right: &(TimeMs, LockSlot)| {
            left.0.cmp(&right.0).then_with(|| key(left.1).cmp(&key(right.1)))
        };
        // Only the requested page is sorted. The order before and after it does not matter.
        if end < total {
            slots.select_nth_unstable_by(end, compare);
            slots.truncate(end);
        }
        let begin = query.offset.min(slots.len());
        if 0 < begin && begin < slots.len() {
            slots.select_nth_unstable_by(begin, compare);
        }
        let page = &mut slots[begin..];
        page.sort_unstable_by(compare);
        let page = page.iter().filter_map(|(_, slot)| self.table.get(*slot));
        LocksPage { total, offset: query.offset, locks: page.map(|lock| self.lock_view(lock, now)).collect() }
    }

    /// Lower numbers come first.
    fn sort_number(&self, order: LockOrder, lock: &TrackedLock) -> TimeMs {
        match order {
            LockOrder::TtlRemaining => lock.life.deadline.map_or(TimeMs::MAX, |deadline| deadline.low),
            LockOrder::HeldLongest => lock.life.began,
            LockOrder::OwnerChanges => -TimeMs::from(self.owner_changes(self.hash(&lock.key), lock.life.owner)),
            LockOrder::Key => 0,
        }
    }

    /// Returns `None` for a key that is neither held nor in the history.
    pub(super) fn lock<'a>(
        &self,
        key: &str,
        now: TimeMs,
        rule_name: impl Fn(RuleId) -> &'a str,
    ) -> Option<LockHistory> {
        let hash = self.hash(key);
        let lock = self.table.find(hash, key).and_then(|slot| self.table.get(slot));
        let holds = self.holds(hash, lock);
        let mut history: Vec<HistoryView> = holds.iter().flat_map(HoldSummary::events).collect();
        for renewal in self.renewals.of(hash) {
            let hold = holds.iter().find(|hold| hold.spans(renewal.at));
            let margin = renewal.margin.map(|margin| (f64::from(margin) * 1000.0).round() / 1000.0);
            history.push(HistoryView { margin, ..happened(renewal.at, "renewed", hold.and_then(|hold| hold.owner)) });
        }
        history.extend(self.sayings.of(hash).map(|saying| HistoryView {
            event: Some(saying.event),
            reason: saying.reason,
            rule: Some(rule_name(saying.rule).to_owned()),
            ..happened(saying.at, "log", None)
        }));
        if history.is_empty() {
            return None;
        }
        // The latest first. The sort is stable: events at the same time keep the order of the
        // holds.
        history.sort_by(|left, right| right.at.total_cmp(&left.at));
        let latest = self.history.latest(hash);
        let namespace = lock.map(|lock| lock.namespace).or(latest.map(|record| record.namespace));
        let namespace = namespace.or_else(|| Some(self.belonging.choose(key, None)?.namespace));
        let state = match lock {
            Some(lock) => sentences::of_life(&lock.life, now, self.is_overdue(lock, now), self.links.is_doubtful(lock)),
            None => sentences::of_absence(latest, now),
        };
        Some(LockHistory {
            key: key.to_owned(),
            lock_namespace: namespace.map(|id| self.namespaces[usize::from(id.0)].name.clone()),
            now: lock.map(|lock| self.lock_view(lock, now)),
            state,
            verdict: self.loss_of(hash, lock),
            holds: holds.iter().map(HoldSummary::view).collect(),
            history,
        })
    }

    /// The latest first.
    fn holds(&self, hash: KeyHash, lock: Option<&TrackedLock>) -> Vec<HoldSummary> {
        let now = lock.map(|lock| {
            let life = &lock.life;
            HoldSummary {
                owner: life.owner,
                began: life.began,
                acquisition_seen: life.acquisition_seen,
                ended: None,
                ttl: life.full_ttl(),
                deadline: life.deadline.map(|deadline| deadline.high()),
                renewals: life.renewals,
                last_renewed: (life.renewals > 0).then_some(life.set_at),
                has_marks: self.has_renewal_at(hash, life.set_at),
            }
        });
        let ended = self.history.of(hash).map(|record| {
            let ttl = record.ttl.map(|ttl| TimeMs::from(ttl.get()));
            HoldSummary {
                owner: record.owner,
                began: record.began,
                acquisition_seen: record.acquisition_seen,
                ended: Some((record.ended, record.ending)),
                ttl,
                deadline: ttl.filter(|_| record.sign_of_life_known).map(|ttl| record.sign_of_life + ttl),
                renewals: record.renewals,
                last_renewed: (record.renewals > 0).then_some(record.sign_of_life),
                has_marks: self.has_renewal_at(hash, record.sign_of_life),
            }
        });
        now.into_iter().chain(ended).collect()
    }

    fn has_renewal_at(&self, hash: KeyHash, at: TimeMs) -> bool {
        self.renewals.of(hash).any(|renewal| renewal.at == at)
    }

    /// The sentence about the latest loss, if there was one.
    fn loss_of(&self, hash: KeyHash, lock: Option<&TrackedLock>) -> Option<String> {
        let mut next = lock.map(|lock| NextHold { owner: lock.life.owner, began: lock.life.began });
        for record in self.history.of(hash) {
            let namespace = &self.namespaces[usize::from(record.namespace.0)];
            if sentences::is_loss(record, namespace.style) {
                return Some(sentences::of_end(record, next, namespace));
            }
            next = Some(NextHold { owner: record.owner, began: record.began });
        }
        None
    }

    /// The hold after the one that an incident is about. Uses what was known when the cause was
    /// found, otherwise what is known now.
    fn next_of(&self, incident: &Incident, now: TimeMs) -> Option<NextHold> {
        let Incident { loss, finding } = incident;
        if let Some(began) = finding.next_began {
            return Some(NextHold { owner: finding.next_owner, began });
        }
        let ended = finding.hold?.ended;
        let hashes = self.keys_of(loss.namespace, loss.lock.as_deref()?).into_iter().map(|key| (self.hash(&key), key));
        let follows = |began: TimeMs| (ended..=now).contains(&began);
        hashes
            .filter_map(|(hash, key)| {
                let later = self.history.of(hash).filter(|record| follows(record.began)).last();
                let later = later.map(|record: &EndedHold| NextHold { owner: record.owner, began: record.began });
                let life = self.life_now(hash, &key).filter(|life| follows(life.began));
                later.or(life.map(|life| NextHold { owner: life.owner, began: life.began }))
            })
            .next()
    }

    fn lock_view(&self, lock: &TrackedLock, now: TimeMs) -> LockView {
        let life = &lock.life;
        LockView {
            key: lock.key.to_string(),
            lock_namespace: self.namespace_name(lock).to_owned(),
            owner: life.owner.map(OwnerHash::short),
            acquired_at: life.acquisition_seen.then(|| seconds(life.began)),
            first_seen_at: seconds(life.began),
            last_renewed_at: (life.renewals > 0).then(|| seconds(life.set_at)),
            renewals: life.renewals,
            ttl_remaining_seconds: life.deadline.map(|deadline| seconds((deadline.low - now).max(0))),
            full_ttl_seconds: life.full_ttl().map(seconds),
            owner_changes: self.owner_changes(self.hash(&lock.key), life.owner),
            renewal_overdue: self.is_overdue(lock, now),
            doubtful: self.links.is_doubtful(lock),
        }
    }

    fn namespace_name(&self, lock: &TrackedLock) -> &str {
        &self.namespaces[usize::from(lock.namespace.0)].name
    }
}

/// One hold, ended or not.
struct HoldSummary {
    owner: Option<OwnerHash>,
    began: TimeMs,
    acquisition_seen: bool,
    ended: Option<(TimeMs, Ending)>,
    ttl: Option<TimeMs>,
    deadline: Option<TimeMs>,
    renewals: u32,
    last_renewed: Option<TimeMs>,
    /// The ring of renewals still contains the last renewal of this hold.
    has_marks: bool,
}

impl HoldSummary {
    fn spans(&self, at: TimeMs) -> bool {
        self.began <= at && self.ended.is_none_or(|(ended, _)| at <= ended)
    }

    /// The end, the last renewal if the ring of renewals no longer contains it, and the begin.
    fn events(&self) -> Vec<HistoryView> {
        let begin = if self.acquisition_seen { "acquired" } else { "first_seen" };
        let ended = self.ended.map(|(at, ending)| happened(at, what(ending), self.owner));
        let renewed = self.last_renewed.filter(|_| !self.has_marks);
        let renewed = renewed.map(|at| happened(at, "last_renewed", self.owner));
        ended.into_iter().chain(renewed).chain([happened(self.began, begin, self.owner)]).collect()
    }

    fn view(&self) -> HoldView {
        HoldView {
            owner: self.owner.map(OwnerHash::short),
            began_at: seconds(self.began),
            acquisition_seen: self.acquisition_seen,
            ended_at: self.ended.map(|(at, _)| seconds(at)),
            ending: self.ended.map(|(_, ending)| what(ending)),
            ttl_seconds: self.ttl.map(seconds),
            deadline_at: self.deadline.map(seconds),
            renewals: self.renewals,
            last_renewed_at: self.last_renewed.map(seconds),
        }
    }
}

fn what(ending: Ending) -> &'static str {
    match ending {
        Ending::Released | Ending::HandedOver => "released",
        Ending::Expired => "expired",
        Ending::TakenOver => "taken_over",
        Ending::LostInFailover => "lost_in_failover",
        Ending::Flushed => "flushed",
        Ending::Unknown => "ended",
    }
}

fn happened(at: TimeMs, what: &'static str, owner: Option<OwnerHash>) -> HistoryView {
    let owner = owner.map(OwnerHash::short);
    HistoryView { at: seconds(at), what, owner, margin: None, event: None, reason: None, rule: None }
}
