//! The order of the stream: which replies and pushes belong to the same turn of Redis's event loop.
//!
//! Redis runs commands during a turn and appends their replies to our output as they run; what changed is pushed at the
//! end of the turn. So a push that comes before a reply is visible in it, and a push that comes behind a reply may be about a
//! change that the reply showed already, if both are of the same turn. Two things tell that a reply is of a later turn than
//! another one: a push between them, or that its request was sent after the other one had come.

use std::collections::VecDeque;

use crate::util::clock::TimeMs;

/// Number of a request, in the order of sending.
pub(super) type Sequence = u64;

#[derive(Debug)]
pub(super) struct ReplyOrder {
    next: Sequence,
    /// Replies that may be of the same turn as whatever comes next, the oldest first. Never more than were in flight at the
    /// same time.
    recent: VecDeque<Reply>,
    pushed_since_reply: bool,
    /// When tracking was asked for: what happened before is not pushed.
    armed: TimeMs,
}

#[derive(Debug)]
struct Reply {
    sequence: Sequence,
    sent: TimeMs,
    /// Requests from this one on were sent after the reply had come.
    later_from: Sequence,
}

impl ReplyOrder {
    pub(super) fn new(armed: TimeMs) -> Self {
        Self { next: 0, recent: VecDeque::new(), pushed_since_reply: false, armed }
    }

    /// A request is about to be sent.
    pub(super) fn sent(&mut self) -> Sequence {
        self.next += 1;
        self.next - 1
    }

    /// A reply to the request has come; requests of several commands have several.
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

    /// Keys were pushed. Not to be called for a flush, which is pushed in the middle of a turn.
    pub(super) fn pushed(&mut self) {
        self.pushed_since_reply = true;
    }

    /// What comes next may be of the same turn as the last reply to this request.
    pub(super) fn may_share_turn(&self, sequence: Sequence) -> bool {
        self.recent.front().is_some_and(|oldest| oldest.sequence <= sequence)
    }

    /// Everything that happened before this has been pushed: the first request of a turn was sent before the turn began, and
    /// all turns before have been pushed.
    pub(super) fn caught_up(&self) -> TimeMs {
        self.recent.front().map_or(self.armed, |oldest| oldest.sent)
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
