//! What the session knows about the server: what the user may do, which server answers, and whether
//! keys disappear without a release. `session` sends its `INFO` requests and gives it the replies.
//!
//! Redis announces an evicted key like a released lock. If evictions are possible, the session
//! holds back sightings of ended locks until Redis has reported the number of evicted keys. That
//! reply comes after the read in the same stream. If changes are not watched, the same applies to
//! flushes, which are then visible only in the command statistics.

use std::time::Duration;

use redis::Value;
use tokio::time::Instant;

use super::connection::ConnectionRole;
use super::evictions::Evictions;
use super::identity::Replication;
use super::permissions::Permissions;
use crate::keyspace::status::Command;

/// How soon a failover is noticed that keeps the connection open.
pub(super) const INFO_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct ServerMonitor {
    permissions: Permissions,
    replication: Replication,
    has_changed: bool,
    evictions: Evictions,
    /// Whether events about ended locks wait for the number of evicted keys.
    check: EvictionCheck,
    next_info: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EvictionCheck {
    Idle,
    Pending,
    /// A lock may have ended on the replica connection since the request was sent, so another
    /// request must follow.
    PendingTwice,
}

impl ServerMonitor {
    pub(super) fn new(permissions: Permissions, replication: Replication, evictions: Evictions, now: Instant) -> Self {
        Self { permissions, replication, has_changed: false, evictions, check: EvictionCheck::Idle, next_info: now }
    }

    pub(super) fn allows(&self, command: Command) -> bool {
        self.permissions.allow(command)
    }

    /// When the server is asked for its state again. `None` if that is not allowed.
    pub(super) fn next_info(&self) -> Option<Instant> {
        self.allows(Command::Info).then_some(self.next_info)
    }

    /// Returns whether the server must be asked for its state now. The caller then asks.
    pub(super) fn take_due_info(&mut self, now: Instant) -> bool {
        let is_due = self.next_info().is_some_and(|next| now >= next);
        if is_due {
            self.next_info = now + INFO_INTERVAL;
        }
        is_due
    }

    /// Applies a reply to `INFO replication`.
    pub(super) fn take_replication(&mut self, reply: &Value) {
        self.has_changed |= Replication::read(reply).is_some_and(|now| !now.continues(&self.replication));
    }

    /// Whether the server changed its role or its replication history.
    pub(super) fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// Applies a reply to `INFO memory`.
    pub(super) fn take_memory(&mut self, reply: &Value) {
        self.evictions.learn_policy(reply);
    }

    /// The sections of `INFO` that contain the numbers of evicted keys and of flushes.
    pub(super) fn eviction_sections(&self) -> &'static [&'static [u8]] {
        self.evictions.sections()
    }

    /// A lock may have ended, shown by this connection. Returns whether events must be held back
    /// until Redis has reported evictions. The caller then asks for them.
    pub(super) fn begin_eviction_check(&mut self, shown_by: ConnectionRole) -> bool {
        if self.check != EvictionCheck::Idle {
            // A read on the primary connection was answered before the pending request, so the
            // reply to that request covers it. A read on the replica connection needs another
            // request.
            if shown_by == ConnectionRole::Replica {
                self.check = EvictionCheck::PendingTwice;
            }
            return false;
        }
        let is_needed = self.evictions.are_possible() && self.allows(Command::Info);
        if is_needed {
            self.check = EvictionCheck::Pending;
        }
        is_needed
    }

    /// Applies the replies to a request for evictions. Returns how many keys were evicted and how
    /// many flushes that are not pushed there were since the last one.
    pub(super) fn take_evictions(&mut self, replies: &[Value]) -> (u64, u64) {
        let evicted = replies.first().map_or(0, |reply| self.evictions.learn_evicted(reply));
        let flushes = replies.get(1).map_or(0, |reply| self.evictions.learn_flushes(reply));
        (evicted, flushes)
    }

    /// Ends the check after its reply. Returns whether another one must follow.
    pub(super) fn end_eviction_check(&mut self) -> bool {
        std::mem::replace(&mut self.check, EvictionCheck::Idle) == EvictionCheck::PendingTwice
    }

    /// Whether the operator has not been warned about evicted keys yet.
    pub(super) fn is_first_eviction(&mut self) -> bool {
        self.evictions.is_first()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn an_end_on_the_replica_needs_a_later_request() {
        let mut server =
            ServerMonitor::new(Permissions::default(), Replication::default(), Evictions::new(false), Instant::now());
        assert!(server.begin_eviction_check(ConnectionRole::Primary));
        assert!(!server.begin_eviction_check(ConnectionRole::Primary), "the pending reply covers it");
        assert!(!server.end_eviction_check());
        assert!(server.begin_eviction_check(ConnectionRole::Replica));
        assert!(!server.begin_eviction_check(ConnectionRole::Replica));
        assert!(server.end_eviction_check());
        assert!(!server.end_eviction_check());
    }

    #[test]
    fn another_role_is_noticed() {
        let replication = Replication::read(&info("role:master\r\nmaster_replid:a\r\n")).unwrap();
        let now = Instant::now();
        let mut server = ServerMonitor::new(Permissions::default(), replication, Evictions::new(true), now);
        assert!(server.take_due_info(now) && !server.take_due_info(now));
        server.take_replication(&info("role:master\r\nmaster_replid:a\r\n"));
        assert!(!server.has_changed());
        server.take_replication(&info("role:slave\r\nmaster_replid:a\r\n"));
        assert!(server.has_changed());
    }
}
