//! Log lines together with what Redis showed, and the answers to queries about single locks.

use tokio::sync::oneshot;

use super::*;
use crate::model::failure::{Cause, Failure, FailureKind, Operation, Reason};
use crate::model::log_event::{LogEvent, RuleId, Statement};
use crate::model::query::{IncidentsPage, IncidentsQuery, Inquiry, LockHistory, LockOrder, LocksPage, LocksQuery};
use crate::snapshot::Ratios;

const RELEASE: Failure = Failure::ReleaseFailed(Reason::NotOwned);
const RENEWAL: Failure = Failure::RenewalFailed(Reason::NotOwned);

fn event(namespace: usize, lock: Option<&str>, failure: Failure) -> LogEvent {
    let (lock, namespace) = (lock.map(str::to_owned), NamespaceId(namespace as u16));
    let (statement, waited, rule) = (Statement::Failure(failure), Duration::ZERO, RuleId(0));
    LogEvent { offset: 0, end: 0, time: None, waited, namespace, lock, statement, joins: None, rule }
}

impl World {
    fn line(&mut self, at: TimeMs, namespace: usize, lock: Option<&str>, failure: Failure) -> &mut Self {
        assert!(self.ledger.apply(at, at, &event(namespace, lock, failure)).is_some());
        self
    }

    /// Finds causes at `now`, after link A has reported all changes until then.
    fn settle(&mut self, now: TimeMs) {
        self.tell(A, LinkEvent::CaughtUp { at: now }).ledger.settle(now);
    }

    #[track_caller]
    fn causes(&self, namespace: usize, expected: &[(Cause, u64)]) {
        let namespace = &self.ledger.namespaces()[namespace];
        let found: Vec<(Cause, u64)> = self.ledger.causes(namespace).iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(found, expected);
        assert!(self.ledger.causes(namespace).total() <= self.ledger.counters(namespace).total(FailureKind::NotOwned));
    }

    fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Inquiry) -> T {
        self.ask_at(40_000, question)
    }

    fn ask_at<T>(&self, now: TimeMs, question: impl FnOnce(oneshot::Sender<T>) -> Inquiry) -> T {
        let (reply, mut answer) = oneshot::channel();
        self.ledger.answer(question(reply), now);
        answer.try_recv().unwrap()
    }

    fn locks(&self, query: LocksQuery) -> LocksPage {
        self.ask(|reply| Inquiry::Locks(query, reply))
    }

    fn lock(&self, key: &str) -> Option<LockHistory> {
        self.ask(|reply| Inquiry::Lock(key.to_owned(), reply))
    }

    fn incidents(&self, query: IncidentsQuery) -> IncidentsPage {
        self.ask(|reply| Inquiry::Incidents(query, reply))
    }

    /// The history of a lock, the latest first.
    pub(super) fn what(&self, key: &str) -> String {
        let history = self.lock(key).map(|lock| lock.history).unwrap_or_default();
        history.iter().map(|entry| entry.what).collect::<Vec<_>>().join(" ")
    }
}

/// One lock for each cause, and the line that its holder wrote.
#[test]
fn six_causes() {
    let mut world = World::watched();
    world.hold(1000, "job:never", 1, 60).hold(1000, "job:stopped", 1, 60).hold(1000, "job:stolen", 1, 60);
    world.hold(1000, "job:deleted", 1, 60).hold(2000, "job:stopped", 1, 60);
    world.hold(3000, "job:stolen", 2, 60).gone(4000, "job:deleted");
    world.gone(61_003, "job:never").gone(62_003, "job:stopped");
    for lock in ["job:never", "stopped", "job:stolen", "job:deleted", "job:elsewhere"] {
        world.line(63_000, SCHEDULER, Some(lock), RELEASE);
    }
    world.settle(67_999);
    world.causes(SCHEDULER, &[]);
    world.settle(68_000);
    let mut expected = vec![
        (Cause::ExpiredNeverRenewed, 1),
        (Cause::RenewalsStopped, 1),
        (Cause::DeletedEarly, 1),
        (Cause::TakenOver, 1),
        (Cause::Unknown, 1),
    ];
    world.causes(SCHEDULER, &expected);
    world.hold(70_000, "job:failed", 1, 60).up(A, 71_000, ServerContinuity::OtherServer).pass(A, 71_001);
    world.see(A, 71_002, "job:failed", 0, KeyState::Absent).line(72_000, SCHEDULER, Some("failed"), RENEWAL);
    world.settle(77_000);
    expected.insert(4, (Cause::LostInFailover, 1));
    world.causes(SCHEDULER, &expected);
}

#[test]
fn redis_may_be_slower_than_the_log() {
    let mut world = World::watched();
    world.hold(1000, "job:1", 1, 60).line(62_000, SCHEDULER, Some("job:1"), RENEWAL).gone(61_003, "job:1");
    world.settle(67_000);
    world.causes(SCHEDULER, &[(Cause::ExpiredNeverRenewed, 1)]);
}

#[test]
fn a_cause_waits_until_redis_can_be_seen_again() {
    let mut world = World::watched();
    world.hold(1000, "job:1", 1, 60).hold(1000, "job:2", 1, 60).tell(A, LinkEvent::Down { at: 2000 });
    world.line(3000, SCHEDULER, Some("job:1"), RELEASE);
    world.settle(20_000);
    world.causes(SCHEDULER, &[]);
    world.up(A, 21_000, ServerContinuity::OtherServer).pass(A, 21_001).settle(22_000);
    world.causes(SCHEDULER, &[]);
    world.see(A, 22_000, "job:1", 0, KeyState::Absent).settle(22_001);
    world.causes(SCHEDULER, &[(Cause::LostInFailover, 1)]);
    let incident = world.incidents(IncidentsQuery { limit: 1, ..IncidentsQuery::default() }).incidents.remove(0);
    assert_eq!((incident.at, incident.lost_at), (3.0, Some(3.0)), "not after its holder found out");
    // But a loss does not wait forever.
    world.tell(A, LinkEvent::Down { at: 23_000 }).line(24_000, SCHEDULER, Some("job:2"), RELEASE);
    world.settle(58_999);
    world.causes(SCHEDULER, &[(Cause::LostInFailover, 1)]);
    world.settle(59_000);
    world.causes(SCHEDULER, &[(Cause::LostInFailover, 1), (Cause::Unknown, 1)]);
}

#[test]
fn lines_from_before_or_without_a_lock_have_no_cause() {
    let mut world = World::new(10);
    world.up(A, 0, ServerContinuity::None).pass(A, 5000).hold(6000, "job:1", 1, 10).gone(16_003, "job:1");
    world.line(4000, APPROVAL, Some("job:1"), RELEASE).line(20_000, APPROVAL, None, RELEASE);
    world.causes(APPROVAL, &[(Cause::Unknown, 1)]);
    world.settle(30_000);
    world.causes(APPROVAL, &[(Cause::Unknown, 2)]);
}

#[test]
fn what_waited_in_a_crash_has_no_cause() {
    let mut world = World::watched();
    world.hold(1000, "job:1", 1, 10).gone(11_003, "job:1").line(12_000, APPROVAL, Some("job:1"), RELEASE);
    let saved = serde_json::to_string(world.ledger.saved()).unwrap();
    assert!(!saved.contains("job:1"), "no keys in the file");
    let mut world = World::with(10, serde_json::from_str(&saved).unwrap());
    world.causes(APPROVAL, &[(Cause::Unknown, 1)]);
    world.settle(99_000);
    world.causes(APPROVAL, &[(Cause::Unknown, 1)]);
}

#[test]
fn without_redis_all_causes_are_unknown_at_once() {
    let mut ledger = Ledger::new(namespaces(), Duration::from_secs(2), Saved::default());
    ledger.apply(0, 0, &event(0, Some("job:1"), RELEASE));
    assert_eq!(ledger.causes(&ledger.namespaces()[0]).get(Cause::Unknown), 1);
    assert_eq!(ledger.keyspace_view(NamespaceId(0), 0), None);
    assert_eq!(ledger.due_reads(0, 10).len(), 0);
    let (reply, mut answer) = oneshot::channel();
    ledger.answer(Inquiry::Lock("job:1".to_owned(), reply), 0);
    assert_eq!(answer.try_recv(), Ok(None));
    let (reply, gone) = oneshot::channel();
    drop(gone);
    ledger.answer(Inquiry::Locks(LocksQuery::default(), reply), 0);
}

#[test]
fn ratios_put_lines_and_locks_together() {
    let mut world = World::watched();
    assert_eq!(world.view(APPROVAL, 0).ratios, [Ratios::default(); 2]);
    world.hold(1000, "job:1", 1, 10).gone(11_003, "job:1").line(12_000, APPROVAL, Some("job:1"), RENEWAL);
    world.hold(20_000, "job:2", 1, 10).hold(22_000, "job:2", 1, 10).hold(24_000, "job:2", 1, 10);
    world.gone(26_000, "job:2");
    let [minutes, hour] = world.view(APPROVAL, 30_000).ratios;
    assert_eq!(minutes.not_owned, Some(0.25));
    assert_eq!((hour.renewal_failure, hour.expiry), (Some(1.0 / 3.0), Some(0.5)));
    assert_eq!(world.view(APPROVAL, 400_000).ratios[0], Ratios::default());
}

#[test]
fn an_incident_says_who_lost_what_to_whom() {
    let mut world = World::watched();
    world.hold(1000, "job:1", 1, 60).gone(61_003, "job:1").hold(70_000, "job:1", 2, 60);
    world.line(71_000, SCHEDULER, Some("1"), RELEASE).line(71_000, LEADER, None, Failure::NotOwned(Operation::Unknown));
    world.settle(76_000);
    let all = world.incidents(IncidentsQuery { limit: 10, ..IncidentsQuery::default() });
    assert_eq!((all.total, all.incidents.len()), (2, 2));
    let query = IncidentsQuery { lock_namespace: Some("scheduler".to_owned()), limit: 1, offset: 0 };
    let page = world.incidents(query.clone());
    let incident = &page.incidents[0];
    assert_eq!((page.total, incident.cause, incident.operation), (1, "expired_never_renewed", "release"));
    assert_eq!((incident.at, incident.lost_at, incident.lock.as_deref()), (71.0, Some(61.002), Some("1")));
    assert!(incident.owner.is_some() && incident.next_owner.is_some() && incident.owner != incident.next_owner);
    assert_eq!(world.incidents(IncidentsQuery { offset: 1, ..query }).incidents.len(), 0);
}

#[test]
fn an_incident_has_its_verdict_even_where_the_next_owner_comes_later() {
    let mut world = World::watched();
    world.hold(1000, "job:1", 1, 60).gone(61_003, "job:1").line(62_000, SCHEDULER, Some("1"), RENEWAL);
    world.settle(67_000);
    let told = |world: &World| {
        let query = IncidentsQuery { limit: 1, ..IncidentsQuery::default() };
        let page: IncidentsPage = world.ask_at(90_000, |reply| Inquiry::Incidents(query, reply));
        page.incidents[0].clone()
    };
    let first = told(&world);
    assert!(first.verdict.unwrap().ends_with("; nobody has taken it since: expired, never renewed"));
    assert_eq!((first.next_owner, first.runbook), (None, "RedisLockTtlTooShort"));
    world.hold(70_000, "job:1", 2, 60).gone(75_000, "job:1");
    let second = told(&world);
    let verdict = second.verdict.unwrap();
    assert!(verdict.contains("held 60 s of a 60 s TTL, never renewed; owner "), "{verdict}");
    assert!(verdict.ends_with(" took over 9 s after expiry: expired, never renewed"), "{verdict}");
    assert!(second.next_owner.is_some_and(|owner| verdict.contains(&owner)));
}

#[test]
fn without_redis_there_are_incidents_too() {
    let mut ledger = Ledger::new(namespaces(), Duration::from_secs(2), Saved::default());
    ledger.apply(5_000, 5_000, &event(0, Some("job:1"), RELEASE));
    let (reply, mut answer) = oneshot::channel();
    let query = IncidentsQuery { limit: 10, ..IncidentsQuery::default() };
    ledger.answer(Inquiry::Incidents(query, reply), 6_000);
    let page = answer.try_recv().unwrap();
    let incident = &page.incidents[0];
    assert_eq!((page.total, incident.cause, incident.lock.as_deref()), (1, "unknown", Some("job:1")));
    assert_eq!((&incident.verdict, incident.runbook), (&None, "RedisLockNotOwnedRatioHigh"));
    let [minutes, _] = ledger.lately(NamespaceId(0), 6_000).windows;
    assert_eq!(minutes.failures.get(FailureKind::NotOwned), 1);
}

/// A history contains every event of a lock in order, with its owner.
#[test]
fn a_history_has_renewals_with_their_margin_and_log_lines() {
    let mut world = World::watched();
    world.hold(1000, "job:1", 1, 60).hold(21_000, "job:1", 1, 60).hold(66_000, "job:1", 1, 60);
    world.gone(126_003, "job:1").hold(127_000, "job:1", 2, 60);
    world.line(128_000, SCHEDULER, Some("1"), RENEWAL);
    let lock: LockHistory = world.ask_at(130_000, |reply| Inquiry::Lock("job:1".to_owned(), reply)).unwrap();
    let told: Vec<&str> = lock.history.iter().map(|one| one.what).collect();
    assert_eq!(told, ["log", "acquired", "expired", "renewed", "renewed", "acquired"]);
    let margins: Vec<Option<f64>> = lock.history.iter().map(|one| one.margin).collect();
    assert_eq!(margins, [None, None, None, Some(0.25), Some(0.667), None]);
    let line = &lock.history[0];
    assert_eq!((line.at, line.event, line.reason), (128.0, Some("not_owned"), Some("not_owned")));
    let owners: Vec<bool> = lock.history.iter().map(|one| one.owner == lock.holds[1].owner).collect();
    assert_eq!(owners, [false, false, true, true, true, true]);
    let [second, first] = &lock.holds[..] else { panic!("{:?}", lock.holds) };
    assert_eq!((first.ended_at, first.ending, first.renewals), (Some(126.002), Some("expired"), 2));
    assert_eq!((first.last_renewed_at, first.ttl_seconds), (Some(66.0), Some(60.002)));
    assert_eq!((second.ended_at, second.ending, second.deadline_at), (None, None, Some(187.002)));
    assert_eq!(lock.lock_namespace.as_deref(), Some("scheduler"));
    assert_eq!(lock.now.as_ref().map(|now| now.owner_changes), Some(1));
    let (first, second) = (first.owner.as_deref().unwrap(), second.owner.as_deref().unwrap());
    assert_eq!(
        lock.verdict.unwrap(),
        format!(
            "owner {first} held 2 min 5 s of a 60 s TTL, last renewed 60 s before; owner {second} took over 1 s after expiry: \
             expired, renewals stopped"
        )
    );
    assert_eq!(lock.state, format!("held by owner {second} for 3 s, 57 s left of a 60 s TTL, not renewed so far"));
}

#[test]
fn a_lock_that_only_lines_speak_of_is_known_by_them() {
    let mut world = World::watched();
    world.line(3000, SCHEDULER, Some("7"), RELEASE).line(4000, LEADER, Some("leader"), RENEWAL);
    let lock = world.lock("job:7").unwrap();
    assert_eq!((world.what("job:7").as_str(), world.what("leader").as_str()), ("log", "log"));
    assert_eq!(lock.state, "nobody holds it, and nothing was seen of it in Redis");
    assert!(lock.now.is_none() && lock.verdict.is_none() && lock.holds.is_empty());
    assert_eq!(world.lock("7"), None, "the id alone is no key");
}

#[test]
fn owner_changes_are_counted_and_sorted_by() {
    let mut world = World::watched();
    for (at, owner) in [(1000, 1), (3000, 2), (5000, 2), (7000, 1)] {
        world.hold(at, "job:moving", owner, 60).gone(at + 1000, "job:moving");
    }
    world.hold(9000, "job:moving", 3, 60).hold(9000, "job:quiet", 1, 60);
    world.hold(9000, "job:stolen", 1, 60).hold(10_000, "job:stolen", 2, 60);
    let query = LocksQuery { limit: 10, sort: LockOrder::OwnerChanges, ..LocksQuery::default() };
    let page = world.locks(query);
    let told: Vec<(&str, u16)> = page.locks.iter().map(|lock| (lock.key.as_str(), lock.owner_changes)).collect();
    assert_eq!(told, [("job:moving", 3), ("job:stolen", 1), ("job:quiet", 0)]);
}

#[test]
fn locks_are_found_sorted_and_paged() {
    let mut world = World::watched();
    world.hold(1000, "job:b", 1, 60).hold(2000, "job:a", 1, 10).hold(3000, "job:ab", 1, 40);
    let forever = KeyState::Held(Held { owner: None, ttl_ms: None, fence: None });
    world.see(A, 500, "leader", 1, forever);
    let keys = |query: LocksQuery| {
        let page = world.locks(query);
        (page.total, page.locks.iter().map(|lock| lock.key.clone()).collect::<Vec<_>>().join(" "))
    };
    let all = LocksQuery { limit: 10, ..LocksQuery::default() };
    assert_eq!(keys(all.clone()), (4, "job:a job:ab job:b leader".to_owned()));
    let longest = LocksQuery { sort: LockOrder::HeldLongest, ..all.clone() };
    assert_eq!(keys(longest.clone()), (4, "leader job:b job:a job:ab".to_owned()));
    assert_eq!(keys(LocksQuery { limit: 2, offset: 1, ..longest }), (4, "job:b job:a".to_owned()));
    assert_eq!(keys(LocksQuery { sort: LockOrder::Key, limit: 1, ..all.clone() }), (4, "job:a".to_owned()));
    assert_eq!(keys(LocksQuery { offset: 9, ..all.clone() }), (4, String::new()));
    assert_eq!(keys(LocksQuery { limit: 0, ..all.clone() }), (4, String::new()));
    let search = LocksQuery { search: Some("b:a".to_owned()), ..all.clone() };
    assert_eq!(keys(search.clone()), (2, "job:a job:ab".to_owned()));
    let approval = Some("approval".to_owned());
    assert_eq!(keys(LocksQuery { lock_namespace: approval, ..search }), (1, "job:a".to_owned()));
    assert_eq!(keys(LocksQuery { search: Some("*".to_owned()), ..all }).0, 0, "plain text");
}

#[test]
fn one_lock_is_told_with_its_history() {
    let mut world = World::watched();
    world.hold(1000, "job:1", 1, 60).hold(21_000, "job:1", 1, 60);
    let now = world.lock("job:1").and_then(|lock| lock.now).unwrap();
    assert_eq!((now.acquired_at, now.last_renewed_at, now.renewals), (Some(1.0), Some(21.0), 1));
    assert_eq!((now.ttl_remaining_seconds, now.full_ttl_seconds), (Some(41.0), Some(60.002)));
    assert!(!now.renewal_overdue && !now.doubtful);
    world.gone(22_000, "job:1").hold(23_000, "job:1", 2, 60).tell(A, LinkEvent::Down { at: 24_000 });
    assert_eq!(world.what("job:1"), "acquired released renewed acquired");
    assert!(world.lock("job:1").and_then(|lock| lock.now).unwrap().doubtful);
    assert_eq!(world.lock("job:2"), None);
}
