//! One connection with its pending requests: which request the next reply belongs to, and how long
//! Redis took to answer. A `session` owns one for the primary and may own one for a replica.

use std::collections::VecDeque;
use std::time::Duration;

use redis::Value;
use tokio::time::Instant;

use super::key_read::Round;
use super::read_queue::Ticket;
use super::reply_order::{ReplyOrder, Sequence};
use super::scanner::PassNumber;
use crate::keyspace::wire::{Wire, WireError};
use crate::util::clock;
use crate::util::clock::TimeMs;

/// Identifies one of the two connections of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionRole {
    Primary,
    Replica,
}

/// The purpose of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    Ping,
    /// Asks for the role and the replication history of the server.
    Replication,
    /// Asks whether keys may be evicted.
    Memory,
    /// Asks how many keys were evicted, and how many flushes there were if they are not pushed.
    Evictions,
    /// Asks for the number of keys, for the progress of a pass.
    Size,
    /// A step of the pass with this number.
    Scan(PassNumber),
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
    kind: RequestKind,
    sequence: Sequence,
    /// Rounded down.
    sent: TimeMs,
    sent_at: Instant,
    replies: usize,
}

pub(super) struct Connection {
    wire: Wire,
    order: ReplyOrder,
    pending: VecDeque<PendingRequest>,
    /// Replies received so far for the first pending request.
    replies: Vec<Value>,
    pending_reads: usize,
    last_sent: Instant,
    last_reply: Instant,
}

/// How long Redis took to answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum ResponseTime {
    /// No other request was pending, so the time includes the way to Redis and back.
    Alone(Duration),
    /// The time since the previous reply.
    Queued(Duration),
}

/// The effect of a reply.
pub(super) enum ReplyProgress {
    Nothing,
    /// The first of several replies to a read.
    Begun(Ticket),
    Complete(PendingRequest, Vec<Value>),
}

impl PendingRequest {
    pub(super) fn kind(&self) -> &RequestKind {
        &self.kind
    }

    pub(super) fn sequence(&self) -> Sequence {
        self.sequence
    }

    pub(super) fn sent(&self) -> TimeMs {
        self.sent
    }
}

impl Connection {
    /// `tracked_since` is when tracking was requested: earlier changes are not pushed.
    pub(super) fn new(wire: Wire, tracked_since: TimeMs) -> Self {
        let now = Instant::now();
        Self {
            wire,
            order: ReplyOrder::new(tracked_since),
            pending: VecDeque::new(),
            replies: Vec::new(),
            pending_reads: 0,
            last_sent: now,
            last_reply: now,
        }
    }

    /// Returns the next reply or push in stream order. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Value, WireError> {
        self.wire.next().await
    }

    /// Returns a reply or push that was already received, without waiting.
    pub(super) fn next_received(&mut self) -> Result<Option<Value>, WireError> {
        self.wire.next_received()
    }

    /// Sends a request with `replies` commands. `write` writes them to the wire.
    pub(super) fn send(&mut self, kind: RequestKind, replies: usize, now: Instant, write: impl FnOnce(&mut Wire)) {
        let sequence = self.order.sent();
        self.pending_reads += usize::from(matches!(kind, RequestKind::Read { .. }));
        self.pending.push_back(PendingRequest { kind, sequence, sent: clock::steady(), sent_at: now, replies });
        self.last_sent = now;
        write(&mut self.wire);
    }

    /// Assigns a reply to the first pending request.
    pub(super) fn take_reply(&mut self, reply: Value) -> ReplyProgress {
        // A reply without a request comes only from a server that is not Redis. The next request
        // times out.
        let Some(first) = self.pending.front() else { return ReplyProgress::Nothing };
        // BUSY means that a script has been running for long. Redis answers in the middle of an
        // event-loop turn, before it sends the pushes of that turn.
        let is_during_script = matches!(&reply, Value::ServerError(error) if error.code() == "BUSY");
        if !is_during_script {
            self.order.replied(first.sequence, first.sent);
        }
        self.replies.push(reply);
        if self.replies.len() < first.replies {
            return match first.kind {
                RequestKind::Read { ticket, .. } if self.replies.len() == 1 => ReplyProgress::Begun(ticket),
                _ => ReplyProgress::Nothing,
            };
        }
        let Some(complete) = self.pending.pop_front() else { return ReplyProgress::Nothing };
        self.pending_reads -= usize::from(matches!(complete.kind, RequestKind::Read { .. }));
        ReplyProgress::Complete(complete, std::mem::take(&mut self.replies))
    }

    /// Records a push about keys.
    pub(super) fn record_push(&mut self) {
        self.order.pushed();
    }

    pub(super) fn order(&self) -> &ReplyOrder {
        &self.order
    }

    pub(super) fn pending_reads(&self) -> usize {
        self.pending_reads
    }

    /// Returns the list of replies for reuse.
    pub(super) fn recycle(&mut self, mut replies: Vec<Value>) {
        replies.clear();
        self.replies = replies;
    }

    /// How long the replies that just arrived took. Must be called before the replies are
    /// taken.
    pub(super) fn response_time(&mut self, now: Instant) -> Option<ResponseTime> {
        let front = self.pending.front()?;
        let is_alone = front.sent_at >= self.last_reply;
        let took = now.saturating_duration_since(front.sent_at.max(self.last_reply));
        self.last_reply = now;
        Some(if is_alone { ResponseTime::Alone(took) } else { ResponseTime::Queued(took) })
    }

    pub(super) fn last_sent(&self) -> Instant {
        self.last_sent
    }

    /// When the server has been silent for too long. `None` if no reply is pending.
    pub(super) fn deadline(&self, response_timeout: Duration) -> Option<Instant> {
        Some(self.pending.front()?.sent_at.max(self.last_reply) + response_timeout)
    }

    pub(super) fn timeout_error(&self, after: Duration) -> WireError {
        WireError::Timeout { address: self.wire.address().clone(), after }
    }

    /// The keys whose replies will no longer arrive over this connection.
    pub(super) fn abandoned_reads(self) -> impl Iterator<Item = Ticket> {
        self.pending.into_iter().filter_map(|request| match request.kind {
            RequestKind::Read { ticket, .. } => Some(ticket),
            _ => None,
        })
    }
}
