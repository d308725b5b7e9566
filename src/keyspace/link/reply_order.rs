//! Stream order: which replies and pushes belong to the same turn of Redis's event loop.
//!
//! Redis runs commands during a turn and appends their replies to our output as they run. It sends
//! the pushes about changes at the end of the turn. So a reply includes every change whose push
//! came before it. A push after a reply may be about a change that the reply already included, if
//! both belong to the same turn. A reply belongs to a later turn than an earlier reply if a push
//! came between them, or if its request was sent after the earlier reply had arrived.

use std::collections::VecDeque;

use crate::util::clock::TimeMs;

/// Number of a request, in sending order.
pub(super) type Sequence = u64;

#[derive(Debug)]
pub(super) struct ReplyOrder {
    next: Sequence,
    /// Replies that may belong to the same turn as the next reply or push, the oldest first. Never
    /// more than the number of requests that were pending at the same time.
    recent: VecDeque<Reply>,
    pushed_since_reply: bool,
    /// When tracking was requested. Earlier changes are not pushed.
    tracked_since: TimeMs,
}

#[derive(Debug)]
struct Reply {
    sequence: Sequence,
    sent: TimeMs,
    /// The first request that was sent after this reply had arrived.
    later_from: Sequence,
}

impl ReplyOrder {
    pub(super) fn new(tracked_since: TimeMs) -> Self {
        Self { next: 0, recent: VecDeque::new(), pushed_since_reply: false, tracked_since }
    }

    /// Returns the number of the request that is about to be sent.
    pub(super) fn sent(&mut self) -> Sequence {
        self.next += 1;
        self.next - 1
    }

    /// Records a reply. A request with several commands has several replies.
    pub(super) fn replied(&mut self, sequence: Sequence, sent: TimeMs) {
        if std::mem::take(&mut self.pushed_since_reply) {
            self.recent.clear();
        }
        while self.recent.front().is_some_and(|reply| reply.later_from <= sequence) {
            self.recent.pop_front();
        }
        match self.recent.back_mut() {
            Some(last) if last.sequence == sequence => last.later_from = self.next,
            _ => self.recent.push_back(Reply { sequence, sent, later_from: self.next }),
        }
    }

    /// Records a push about keys. Must not be called for a flush, which is pushed in the middle of
    /// a turn.
    pub(super) fn pushed(&mut self) {
        self.pushed_since_reply = true;
    }

    /// Whether the next reply or push may belong to the same turn as the last reply to this
    /// request.
    pub(super) fn may_share_turn(&self, sequence: Sequence) -> bool {
        self.recent.front().is_some_and(|oldest| oldest.sequence <= sequence)
    }

    /// All changes before this time have been pushed: the first request of the current turn was
    /// sent before the turn began, and the pushes of all earlier turns have arrived.
    pub(super) fn caught_up(&self) -> TimeMs {
        self.recent.front().map_or(self.tracked_since, |oldest| oldest.sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_ends_a_turn() {
        let mut order = ReplyOrder::new(5);
        assert_eq!(order.caught_up(), 5);
        let (first, second) = (order.sent(), order.sent());
        order.replied(first, 10);
        assert!(order.may_share_turn(first));
        order.pushed();
        assert!(order.may_share_turn(first), "pushes for other prefixes may follow");
        order.replied(second, 11);
        assert!(!order.may_share_turn(first));
        assert!(order.may_share_turn(second));
        assert_eq!(order.caught_up(), 11);
    }

    #[test]
    fn a_request_that_was_sent_later_runs_in_a_later_turn() {
        let mut order = ReplyOrder::new(0);
        let (first, second) = (order.sent(), order.sent());
        order.replied(first, 10);
        let third = order.sent();
        order.replied(second, 11);
        assert!(order.may_share_turn(first), "both were under way at the same time");
        assert_eq!(order.caught_up(), 10);
        order.replied(third, 20);
        assert!(!order.may_share_turn(first));
        assert!(order.may_share_turn(second), "the third was sent before the second reply had come");
        assert_eq!(order.caught_up(), 11);
        let fourth = order.sent();
        order.replied(fourth, 30);
        assert!(!order.may_share_turn(third));
        assert_eq!(order.recent.len(), 1);
    }

    #[test]
    fn the_last_of_several_replies_to_a_request_counts() {
        let mut order = ReplyOrder::new(0);
        let first = order.sent();
        order.replied(first, 10);
        let second = order.sent();
        order.replied(first, 10);
        order.replied(second, 12);
        assert!(order.may_share_turn(first), "the second was sent between the two replies of the first");
    }
}
