//! Describes in one sentence what happened to a lock. Pure: the API and the page show the same
//! words. `ledger::queries` calls it. Example:
//!
//! "owner 3fa2c1d0 held 41 s of a 30 s TTL, last renewed 30 s before; owner 9c01ab34 took over 2.1
//! s after expiry: expired, renewals stopped"

use crate::ledger::locks::history::EndedHold;
use crate::ledger::locks::hold::{Ending, Hold};
use crate::model::namespace::{Namespace, Style};
use crate::model::sighting::OwnerHash;
use crate::util::clock::TimeMs;
use crate::util::units::span;

/// The hold after the one that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ledger) struct NextHold {
    pub(in crate::ledger) owner: Option<OwnerHash>,
    pub(in crate::ledger) began: TimeMs,
}

/// Whether a hold ended abnormally. An `item` lock must not expire, and a `loop` lock must not be
/// released.
pub(in crate::ledger) fn is_loss(record: &EndedHold, style: Style) -> bool {
    match record.ending {
        Ending::Expired => style == Style::Item,
        Ending::Released | Ending::HandedOver => style == Style::Loop,
        Ending::TakenOver | Ending::LostInFailover | Ending::Flushed => true,
        Ending::Unknown => false,
    }
}

/// Describes a hold, its end and the next hold.
pub(in crate::ledger) fn of_end(record: &EndedHold, next: Option<NextHold>, namespace: &Namespace) -> String {
    let held = (record.ended - record.began).max(0);
    let at_least = if record.acquisition_seen { "" } else { "at least " };
    let ttl = record.ttl.map(|ttl| TimeMs::from(ttl.get()));
    let ttl = ttl.or(namespace.ttl.map(|ttl| ttl.as_millis() as TimeMs));
    let of_ttl = ttl.map_or_else(String::new, |ttl| format!(" of a {} TTL", span(ttl)));
    let renewed = match (record.renewals, record.sign_of_life_known) {
        (0, _) => "never renewed".to_owned(),
        (_, true) => format!("last renewed {} before", span((record.ended - record.sign_of_life).max(0))),
        (1, false) => "renewed once".to_owned(),
        (times, false) => format!("renewed {times} times"),
    };
    let left = ttl.map(|ttl| record.sign_of_life + ttl - record.ended).filter(|_| record.sign_of_life_known);
    format!(
        "{} held {at_least}{}{of_ttl}, {renewed}; {}: {}",
        name(record.owner),
        span(held),
        next_phrase(record, next, left),
        ending_phrase(record, namespace.style)
    )
}

/// Describes who holds a lock, since when, and how long its TTL lasts.
pub(in crate::ledger) fn of_life(life: &Hold, now: TimeMs, is_overdue: bool, is_doubtful: bool) -> String {
    let since = if life.acquisition_seen { "for" } else { "for at least" };
    let left = match (life.deadline, life.full_ttl()) {
        (None, _) => "it has no TTL and will not end by itself".to_owned(),
        (Some(deadline), Some(ttl)) => format!("{} left of a {} TTL", span((deadline.low - now).max(0)), span(ttl)),
        (Some(deadline), None) => format!("{} left of its TTL", span((deadline.low - now).max(0))),
    };
    let renewed = match life.renewals {
        0 => "not renewed so far".to_owned(),
        _ => format!("last renewed {} ago", span((now - life.set_at).max(0))),
    };
    let overdue = if is_overdue { "; its renewal is overdue" } else { "" };
    let doubtful = if is_doubtful { "; not seen since the connection was interrupted" } else { "" };
    let held = span((now - life.began).max(0));
    format!("held by {} {since} {held}, {left}, {renewed}{overdue}{doubtful}", name(life.owner))
}

/// Describes a lock that nobody holds.
pub(in crate::ledger) fn of_absence(last: Option<&EndedHold>, now: TimeMs) -> String {
    match last {
        Some(record) => format!("nobody has held it for {}", span((now - record.ended).max(0))),
        None => "nobody holds it, and nothing was seen of it in Redis".to_owned(),
    }
}

fn next_phrase(record: &EndedHold, next: Option<NextHold>, left: Option<TimeMs>) -> String {
    let Some(NextHold { owner, began }) = next else {
        return match record.ending {
            Ending::TakenOver => "another owner replaced it".to_owned(),
            _ => "nobody has taken it since".to_owned(),
        };
    };
    let later = span((began - record.ended).max(0));
    let is_same = owner.is_some() && owner == record.owner;
    match (record.ending, is_same) {
        (_, true) => format!("the same owner took it again {later} later"),
        (Ending::TakenOver, false) => match left.filter(|left| *left > 0) {
            Some(left) => format!("{} replaced it with {} left", name(owner), span(left)),
            None => format!("{} replaced it", name(owner)),
        },
        (Ending::Expired, false) => format!("{} took over {later} after expiry", name(owner)),
        (_, false) => format!("{} took it {later} later", name(owner)),
    }
}

fn ending_phrase(record: &EndedHold, style: Style) -> &'static str {
    match (record.ending, style) {
        (Ending::Expired, Style::Loop) => "expired, as a loop lock does",
        (Ending::Expired, Style::Item) if record.renewals == 0 => "expired, never renewed",
        (Ending::Expired, Style::Item) => "expired, renewals stopped",
        (Ending::Released | Ending::HandedOver, Style::Item) => "released",
        (Ending::Released | Ending::HandedOver, Style::Loop) => "released before its time",
        (Ending::TakenOver, _) => "taken over before its time",
        (Ending::LostInFailover, _) => "lost in a failover or restart of Redis",
        (Ending::Flushed, _) => "Redis was flushed",
        (Ending::Unknown, _) => "how it ended was not seen",
    }
}

fn name(owner: Option<OwnerHash>) -> String {
    owner.map_or_else(|| "an owner that cannot be read".to_owned(), |owner| format!("owner {}", owner.short()))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use super::*;
    use crate::model::namespace::NamespaceId;
    use crate::model::sighting::OwnerHasher;

    struct Cast {
        first: OwnerHash,
        second: OwnerHash,
        item: Namespace,
        leader: Namespace,
    }

    fn cast() -> Cast {
        let hasher = OwnerHasher::new();
        let item = Namespace { ttl: Some(Duration::from_secs(30)), ..Namespace::other() };
        let leader = Namespace { style: Style::Loop, ..item.clone() };
        Cast { first: hasher.hash(b"1"), second: hasher.hash(b"2"), item, leader }
    }

    /// A hold from 100 s to 141 s, last renewed 30 s before its end.
    fn record(cast: &Cast) -> EndedHold {
        EndedHold {
            owner: Some(cast.first),
            began: 100_000,
            ended: 141_000,
            sign_of_life: 111_000,
            renewals: 1,
            ttl: NonZeroU32::new(30_000),
            ending: Ending::Expired,
            ..EndedHold::short(0, NamespaceId(0))
        }
    }

    fn check(cast: &Cast, sentence: &str, expected: &str) {
        let expected = expected.replace("FIRST", &cast.first.short()).replace("SECOND", &cast.second.short());
        assert_eq!(sentence, expected);
    }

    #[test]
    fn an_expired_lock_and_who_took_it() {
        let cast = cast();
        let next = Some(NextHold { owner: Some(cast.second), began: 143_100 });
        check(
            &cast,
            &of_end(&record(&cast), next, &cast.item),
            "owner FIRST held 41 s of a 30 s TTL, last renewed 30 s before; owner SECOND took over 2.1 s after expiry: \
             expired, renewals stopped",
        );
        let never = EndedHold { renewals: 0, began: 111_000, ..record(&cast) };
        check(
            &cast,
            &of_end(&never, None, &cast.item),
            "owner FIRST held 30 s of a 30 s TTL, never renewed; nobody has taken it since: expired, never renewed",
        );
        let same = Some(NextHold { owner: Some(cast.first), began: 141_000 });
        let unseen = EndedHold { acquisition_seen: false, sign_of_life_known: false, ttl: None, ..record(&cast) };
        check(
            &cast,
            &of_end(&unseen, same, &cast.leader),
            "owner FIRST held at least 41 s of a 30 s TTL, renewed once; the same owner took it again 0 s later: expired, as \
             a loop lock does",
        );
    }

    #[test]
    fn other_endings() {
        let cast = cast();
        let next = Some(NextHold { owner: Some(cast.second), began: 121_000 });
        let ended = |ending| EndedHold { ended: 121_000, ending, ..record(&cast) };
        let head = "owner FIRST held 21 s of a 30 s TTL, last renewed 10 s before; ";
        for (ending, namespace, next, expected) in [
            (
                Ending::TakenOver,
                &cast.item,
                next,
                "owner SECOND replaced it with 20 s left: taken over before its time",
            ),
            (Ending::TakenOver, &cast.item, None, "another owner replaced it: taken over before its time"),
            (Ending::Released, &cast.item, next, "owner SECOND took it 0 s later: released"),
            (Ending::Released, &cast.leader, None, "nobody has taken it since: released before its time"),
            (Ending::Flushed, &cast.item, None, "nobody has taken it since: Redis was flushed"),
            (
                Ending::LostInFailover,
                &cast.item,
                Some(NextHold { owner: None, began: 125_000 }),
                "an owner that cannot be read took it 4 s later: lost in a failover or restart of Redis",
            ),
            (Ending::Unknown, &cast.item, None, "nobody has taken it since: how it ended was not seen"),
        ] {
            check(&cast, &of_end(&ended(ending), next, namespace), &format!("{head}{expected}"));
        }
    }

    #[test]
    fn what_counts_as_a_loss() {
        let cast = cast();
        let losses = |style| {
            let endings = [
                Ending::Released,
                Ending::Expired,
                Ending::TakenOver,
                Ending::LostInFailover,
                Ending::Flushed,
                Ending::Unknown,
            ];
            endings.map(|ending| is_loss(&EndedHold { ending, ..record(&cast) }, style))
        };
        assert_eq!(losses(Style::Item), [false, true, true, true, true, false]);
        assert_eq!(losses(Style::Loop), [true, false, true, true, true, false]);
    }
}
