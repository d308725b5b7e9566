//! One connection with what is under way on it: which request the next reply belongs to, and what Redis took to answer.

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

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Ping,
    Role,
    /// Whether keys may be evicted.
    Memory,
    /// How many were; and flushes, where they are not pushed.
    Evicted,
    /// How many keys there are, for the progress of a pass.
    Size,
    /// A step of the pass with this number.
    Scan(u64),
    Read {
        ticket: Ticket,
        round: Round,
        /// A pass wants it.
        scanned: bool,
    },
}

/// A request whose replies have not all come.
#[derive(Debug)]
pub(super) struct Awaited {
    pub(super) what: What,
    pub(super) sequence: Sequence,
    /// Rounded down.
    pub(super) sent: TimeMs,
    sent_at: Instant,
    replies: usize,
}

pub(super) struct Lane {
    pub(super) wire: Wire,
    pub(super) order: ReplyOrder,
    awaited: VecDeque<Awaited>,
    /// Replies to the request at the front.
    gathered: Vec<Value>,
    pub(super) reads: usize,
    last_sent: Instant,
    last_reply: Instant,
}

/// What a reply completed.
pub(super) enum Gathered {
    Nothing,
    /// The first of several replies.
    Begun(What),
    Complete(Awaited, Vec<Value>),
}

impl Lane {
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

    /// Sends a request of so many commands; `send` gives them to the wire.
    pub(super) fn ask(&mut self, what: What, replies: usize, now: Instant, send: impl FnOnce(&mut Wire)) {
        let sequence = self.order.sent();
        self.reads += usize::from(matches!(what, What::Read { .. }));
        self.awaited.push_back(Awaited { what, sequence, sent: clock::steady(), sent_at: now, replies });
        self.last_sent = now;
        send(&mut self.wire);
    }

    /// Takes a reply.
    pub(super) fn gather(&mut self, reply: Value) -> Gathered {
        // A reply to nothing can only come from a server that is none; the next one that is waited for times out.
        let Some(front) = self.awaited.front() else { return Gathered::Nothing };
        // A script that has been running for long: Redis answers in its middle, before anything of this turn is pushed.
        let in_a_script = matches!(&reply, Value::ServerError(error) if error.code() == "BUSY");
        if !in_a_script {
            self.order.replied(front.sequence, front.sent);
        }
        self.gathered.push(reply);
        if self.gathered.len() < front.replies {
            return if self.gathered.len() == 1 { Gathered::Begun(front.what) } else { Gathered::Nothing };
        }
        let Some(complete) = self.awaited.pop_front() else { return Gathered::Nothing };
        self.reads -= usize::from(matches!(complete.what, What::Read { .. }));
        Gathered::Complete(complete, std::mem::take(&mut self.gathered))
    }

    /// Gives the list of replies back, to be used again.
    pub(super) fn recycle(&mut self, mut replies: Vec<Value>) {
        replies.clear();
        self.gathered = replies;
    }

    /// How long the replies that have come now took, and whether nothing was ahead of them: then that includes the way to
    /// Redis and back. To be called before they are gathered.
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

    /// When the server has been silent for too long. `None`: nothing is waited for.
    pub(super) fn deadline(&self, response_timeout: Duration) -> Option<Instant> {
        Some(self.awaited.front()?.sent_at.max(self.last_reply) + response_timeout)
    }

    pub(super) fn timed_out(&self, after: Duration) -> WireError {
        WireError::Timeout { address: self.wire.address().clone(), after }
    }

    /// Keys whose replies will not come over this lane any more.
    pub(super) fn abandoned(self) -> impl Iterator<Item = Ticket> {
        self.awaited.into_iter().filter_map(|awaited| match awaited.what {
            What::Read { ticket, .. } => Some(ticket),
            _ => None,
        })
    }
}
