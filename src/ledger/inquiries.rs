//! Answers about single locks. Each is bounded by its query; the order of locks is only worked out as far as it is asked
//! for, since there may be a million of them.

use std::cmp::Ordering;

use memchr::memmem;

use super::causes::Incident;
use super::counting::seconds;
use super::history::Record;
use super::keyspace::Keyspace;
use super::life::Ending;
use super::table::{Lock, Slot};
use crate::event::{Label, RuleId, TimeMs};
use crate::inquiry::{
    HistoryView, IncidentView, IncidentsPage, IncidentsQuery, LockHistory, LockOrder, LockView, LocksPage, LocksQuery,
};
use crate::observation::OwnerHash;

impl Keyspace {
    pub(super) fn locks(&self, query: &LocksQuery, now: TimeMs) -> LocksPage {
        let namespace = query.lock_namespace.as_deref();
        let finder = query.search.as_deref().map(|search| memmem::Finder::new(search.as_bytes()));
        let fits = |lock: &Lock| {
            namespace.is_none_or(|name| self.namespace_name(lock) == name)
                && finder.as_ref().is_none_or(|finder| finder.find(lock.key.as_bytes()).is_some())
        };
        let mut slots: Vec<Slot> = self.table.iter().filter(|(_, lock)| fits(lock)).map(|(slot, _)| slot).collect();
        let total = slots.len();
        let end = query.offset.saturating_add(query.limit).min(total);
        let compare = |left: &Slot, right: &Slot| self.compare(query.sort, *left, *right);
        if end < total {
            slots.select_nth_unstable_by(end, compare);
            slots.truncate(end);
        }
        slots.sort_unstable_by(compare);
        let page = slots.into_iter().skip(query.offset).filter_map(|slot| self.table.get(slot));
        LocksPage { total, offset: query.offset, locks: page.map(|lock| self.lock_view(lock, now)).collect() }
    }

    fn compare(&self, order: LockOrder, left: Slot, right: Slot) -> Ordering {
        let (Some(left), Some(right)) = (self.table.get(left), self.table.get(right)) else { return Ordering::Equal };
        let deadline = |lock: &Lock| lock.life.deadline.map_or(TimeMs::MAX, |deadline| deadline.low);
        let ordering = match order {
            LockOrder::TtlRemaining => deadline(left).cmp(&deadline(right)),
            LockOrder::HeldLongest => left.life.began.cmp(&right.life.began),
            LockOrder::Key => Ordering::Equal,
        };
        ordering.then_with(|| left.key.cmp(&right.key))
    }

    /// Nothing for a key that is neither held nor remembered.
    pub(super) fn lock(&self, key: &str, now: TimeMs) -> Option<LockHistory> {
        let hash = self.hash(key);
        let lock = self.table.find(hash, key).and_then(|slot| self.table.get(slot));
        let mut history = Vec::new();
        if let Some(lock) = lock {
            let life = &lock.life;
            let begin = begin(life.acquisition_seen);
            push_hold(&mut history, begin, life.began, (life.renewals > 0).then_some(life.set_at), life.owner);
        }
        for record in self.history.records(hash) {
            push_record(&mut history, record);
        }
        let now = lock.map(|lock| self.lock_view(lock, now));
        (now.is_some() || !history.is_empty()).then(|| LockHistory { key: key.to_owned(), now, history })
    }

    pub(super) fn incidents<'a>(&self, query: &IncidentsQuery, rule_name: impl Fn(RuleId) -> &'a str) -> IncidentsPage {
        let name = |incident: &Incident| self.namespaces[usize::from(incident.loss.namespace.0)].name.as_str();
        let fits = |incident: &&Incident| query.lock_namespace.as_deref().is_none_or(|wanted| wanted == name(incident));
        let view = |incident: &Incident| {
            let Incident { loss, finding } = incident;
            IncidentView {
                at: seconds(loss.at),
                lock_namespace: name(incident).to_owned(),
                lock: loss.lock.as_deref().map(str::to_owned),
                operation: loss.operation.as_str(),
                cause: finding.cause.as_str(),
                lost_at: finding.lost_at.map(seconds),
                owner: finding.owner.map(OwnerHash::short),
                next_owner: finding.next_owner.map(OwnerHash::short),
                rule: rule_name(loss.rule).to_owned(),
            }
        };
        let page = self.causes.incidents().filter(fits).skip(query.offset).take(query.limit);
        let total = self.causes.incidents().filter(fits).count();
        IncidentsPage { total, offset: query.offset, incidents: page.map(view).collect() }
    }

    fn lock_view(&self, lock: &Lock, now: TimeMs) -> LockView {
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
            renewal_overdue: self.is_overdue(lock, now),
            doubtful: self.links.is_doubtful(lock),
        }
    }

    fn namespace_name(&self, lock: &Lock) -> &str {
        &self.namespaces[usize::from(lock.namespace.0)].name
    }
}

fn begin(acquisition_seen: bool) -> &'static str {
    if acquisition_seen { "acquired" } else { "first_seen" }
}

fn push_record(history: &mut Vec<HistoryView>, record: &Record) {
    let what = match record.ending {
        Ending::Released => "released",
        Ending::Expired => "expired",
        Ending::TakenOver => "taken_over",
        Ending::LostInFailover => "lost_in_failover",
        Ending::Flushed => "flushed",
        Ending::Unknown => "ended",
    };
    let owner = record.owner;
    history.push(HistoryView { at: seconds(record.ended), what, owner: owner.map(OwnerHash::short) });
    let renewed = (record.renewals > 0).then_some(record.sign_of_life);
    push_hold(history, begin(record.acquisition_seen), record.began, renewed, owner);
}

/// The begin of a hold and, of all its renewals, the last one.
fn push_hold(
    history: &mut Vec<HistoryView>,
    begin: &'static str,
    began: TimeMs,
    last_renewed: Option<TimeMs>,
    owner: Option<OwnerHash>,
) {
    let owner = owner.map(OwnerHash::short);
    if let Some(at) = last_renewed {
        history.push(HistoryView { at: seconds(at), what: "last_renewed", owner: owner.clone() });
    }
    history.push(HistoryView { at: seconds(began), what: begin, owner });
}
