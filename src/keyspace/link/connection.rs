//! One connection with its pending requests: which request the next reply belongs to, and how long
//! Redis took to answer. A `session` owns one for the primary and may own one for a replica.

use std::collections::VecDeque;
use std::time::Duration;

use redis::Value;
use tokio::time::Instant;

use super::key_read::Round;
use super::read_queue::Ticket;
use super::reply_order::{ReplyOrder, Sequence};
use crate::keyspace::wire::{Wire, WireError};
use crate::util::clock;
use crate::util::clock::TimeMs;

/// The purpose of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    Ping,
    Role,
    /// Asks whether keys may be evicted.
    Memory,
    /// Asks how many keys were evicted, and how many flushes there were if they are not pushed.
    Evicted,
    /// Asks for the number of keys, for the progress of a pass.
    Size,
    /// A step of the pass with this number.
    Scan(u64),
    Read {
        ticket: Ticket,
        round: Round,
        /// The read is part of a pass.
        scanned: bool,
    },
}

/// A request with missing replies.
#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) what: RequestKind,
    pub(super) sequence: Sequence,
    /// Rounded down.
    pub(super) sent: TimeMs,
    sent_at: Instant,
    replies: usize,
}

pub(super) struct Connection {
    pub(super) wire: Wire,
    pub(super) order: ReplyOrder,
    awaited: VecDeque<PendingRequest>,
    /// Replies received so far for the first pending request.
    gathered: Vec<Value>,
    pub(super) reads: usize,
    last_sent: Instant,
    last_reply: Instant,
}

/// The effect of a reply.
pub(super) enum ReplyProgress {
    Nothing,
    /// The first of several replies to a read.
    Begun(Ticket),
    Complete(PendingRequest, Vec<Value>),
}

impl Connection {
    pub(super) fn new(wire: Wire, armed: TimeMs) -> Self {
        let now = Instant::now();
        Self {
            wire,
            order: ReplyOrder::new(armed),
            awaited: VecDeque::new(),
            gathered: Vec::new(),
            reads: 0,
            last_sent: now,
            last_reply: now,
        }
    }

    /// Sends a request with `replies` commands. `send` writes them to the wire.
    pub(super) fn ask(&mut self, what: RequestKind, replies: usize, now: Instant, send: impl FnOnce(&mut Wire)) {
        let sequence = self.order.sent();
        self.reads += usize::from(matches!(what, RequestKind::Read { .. }));
        self.awaited.push_back(PendingRequest { what, sequence, sent: clock::steady(), sent_at: now, replies });
        self.last_sent = now;
        send(&mut self.wire);
    }

    /// Assigns a reply to the first pending request.
    pub(super) fn gather(&mut self, reply: Value) -> ReplyProgress {
        // A reply without a request comes only from a server that is not Redis. The next request
        // times out.
        let Some(front) = self.awaited.front() else { return ReplyProgress::Nothing };
        // BUSY means that a script has been running for long. Redis answers in the middle of an
        // event-loop turn, before it sends the pushes of that turn.
        let in_a_script = matches!(&reply, Value::ServerError(error) if error.code() == "BUSY");
        if !in_a_script {
            self.order.replied(front.sequence, front.sent);
        }
        self.gathered.push(reply);
        if self.gathered.len() < front.replies {
            return match front.what {
                RequestKind::Read { ticket, .. } if self.gathered.len() == 1 => ReplyProgress::Begun(ticket),
                _ => ReplyProgress::Nothing,
            };
        }
        let Some(complete) = self.awaited.pop_front() else { return ReplyProgress::Nothing };
        self.reads -= usize::from(matches!(complete.what, RequestKind::Read { .. }));
        ReplyProgress::Complete(complete, std::mem::take(&mut self.gathered))
    }

    /// Returns the list of replies for reuse.
    pub(super) fn recycle(&mut self, mut replies: Vec<Value>) {
        replies.clear();
        self.gathered = replies;
    }

    /// How long the replies that just arrived took, and whether no other request was before them.
    /// In that case the time includes the round trip to Redis. Must be called before the replies
    /// are gathered.
    pub(super) fn took(&mut self, now: Instant) -> Option<(Duration, bool)> {
        let front = self.awaited.front()?;
        let alone = front.sent_at >= self.last_reply;
        let took = now.saturating_duration_since(front.sent_at.max(self.last_reply));
        self.last_reply = now;
        Some((took, alone))
    }

    pub(super) fn last_sent(&self) -> Instant {
        self.last_sent
    }

    /// When the server has been silent for too long. `None` if no reply is pending.
    pub(super) fn deadline(&self, response_timeout: Duration) -> Option<Instant> {
        Some(self.awaited.front()?.sent_at.max(self.last_reply) + response_timeout)
    }

    pub(super) fn timed_out(&self, after: Duration) -> WireError {
        WireError::Timeout { address: self.wire.address().clone(), after }
    }

    /// The keys whose replies will no longer arrive over this connection.
    pub(super) fn abandoned(self) -> impl Iterator<Item = Ticket> {
        self.awaited.into_iter().filter_map(|awaited| match awaited.what {
            RequestKind::Read { ticket, .. } => Some(ticket),
            _ => None,
        })
    }
}
