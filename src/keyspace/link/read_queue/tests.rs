//! The read queue with made-up times: which pushes each read covers, priorities, skipped keys and
//! limits.

use super::*;

/// One stream and its read queue, driven by hand. All keys are watched.
struct Stream {
    order: ReplyOrder,
    reads: ReadQueue,
}

impl Stream {
    fn new() -> Self {
        Self { order: ReplyOrder::new(0), reads: ReadQueue::new(8, Instant::now()) }
    }

    fn push(&mut self, keys: &[&str], now: TimeMs) -> Vec<QueueOutcome> {
        let taken = keys.iter().map(|key| self.reads.pushed(key, &self.order, now)).collect();
        self.order.pushed();
        taken
    }

    fn ask(&mut self, reason: ReadReason) -> Option<(Ticket, Sequence)> {
        let ticket = self.reads.next_for(reason)?;
        Some((ticket, self.order.sent()))
    }

    fn first_reply(&mut self, (ticket, sequence): (Ticket, Sequence), sent: TimeMs) {
        self.order.replied(sequence, sent);
        self.reads.begin_reply(ticket);
    }

    fn reply(&mut self, (ticket, sequence): (Ticket, Sequence), sent: TimeMs, received: TimeMs) -> ReadContext {
        self.order.replied(sequence, sent);
        self.reads.complete(ticket, sequence, Some(&self.order), received)
    }

    fn ping(&mut self, sent: TimeMs) {
        let sequence = self.order.sent();
        self.order.replied(sequence, sent);
    }
}

fn check(circumstances: &ReadContext, expected: (&str, Option<TimeMs>, TimeMs, u16, bool, bool)) {
    let ReadContext { key, since, until, pushes, first_push_may_be_old, missed } = circumstances;
    assert_eq!((&**key, *since, *until, *pushes, *first_push_may_be_old, *missed), expected);
}

#[test]
fn pushes_before_a_reply_belong_to_it() {
    let mut stream = Stream::new();
    stream.ping(100);
    assert_eq!(stream.push(&["a", "b"], 150), [QueueOutcome::Queued, QueueOutcome::Queued]);
    let a = stream.ask(ReadReason::Pushed).unwrap();
    stream.push(&["a"], 160);
    let b = stream.ask(ReadReason::Pushed).unwrap();
    check(&stream.reply(a, 151, 170), ("a", Some(100), 160, 2, false, false));
    check(&stream.reply(b, 161, 171), ("b", Some(100), 150, 1, false, false));
    assert!(stream.ask(ReadReason::Pushed).is_none(), "one read covers both pushes");
}

#[test]
fn a_push_directly_behind_a_reply_may_be_old() {
    let mut stream = Stream::new();
    stream.ping(0);
    stream.push(&["a"], 10);
    let read = stream.ask(ReadReason::Pushed).unwrap();
    stream.reply(read, 11, 12);
    // First the pushes of another prefix, in the same turn.
    stream.push(&["z"], 13);
    stream.push(&["a"], 13);
    let read = stream.ask(ReadReason::Pushed).unwrap();
    assert_eq!(stream.reads.key(read.0), "z");
    let read_a = stream.ask(ReadReason::Pushed).unwrap();
    check(&stream.reply(read, 14, 15), ("z", Some(11), 13, 1, false, false));
    check(&stream.reply(read_a, 14, 15), ("a", Some(11), 13, 1, true, false));
}

#[test]
fn a_push_after_a_later_turn_is_new() {
    let mut stream = Stream::new();
    stream.push(&["a"], 10);
    let read = stream.ask(ReadReason::Pushed).unwrap();
    stream.reply(read, 11, 12);
    stream.ping(250);
    stream.push(&["a"], 300);
    let read = stream.ask(ReadReason::Pushed).unwrap();
    check(&stream.reply(read, 301, 302), ("a", Some(250), 300, 1, false, false));
    // A push, then a reply about another key, then a push.
    stream.push(&["z"], 303);
    let read = stream.ask(ReadReason::Pushed).unwrap();
    stream.reply(read, 304, 305);
    stream.push(&["a"], 305);
    let read = stream.ask(ReadReason::Pushed).unwrap();
    check(&stream.reply(read, 306, 307), ("a", Some(304), 305, 1, false, false));
}

#[test]
fn only_the_first_push_after_a_reply_may_be_old() {
    let mut stream = Stream::new();
    stream.push(&["a"], 10);
    let read = stream.ask(ReadReason::Pushed).unwrap();
    stream.reply(read, 11, 12);
    stream.push(&["a"], 12);
    let read = stream.ask(ReadReason::Pushed).unwrap();
    stream.push(&["a"], 13);
    check(&stream.reply(read, 13, 14), ("a", Some(11), 13, 2, true, false));
}

#[test]
fn a_push_between_two_replies_of_a_reading_tears_it() {
    let mut stream = Stream::new();
    stream.push(&["a"], 10);
    let read = stream.ask(ReadReason::Pushed).unwrap();
    stream.first_reply(read, 11);
    assert!(stream.reads.is_consistent(read.0));
    stream.push(&["a"], 12);
    assert!(!stream.reads.is_consistent(read.0));
    stream.reads.mark_resent(read.0);
    let again = (read.0, stream.order.sent());
    stream.push(&["a"], 13);
    stream.first_reply(again, 14);
    assert!(stream.reads.is_consistent(again.0));
    check(&stream.reply(again, 14, 15), ("a", Some(0), 13, 3, false, false));
}

#[test]
fn readings_without_pushes_date_from_when_the_link_was_caught_up() {
    let mut stream = Stream::new();
    stream.ping(100);
    stream.reads.request("a".into(), ReadReason::Scanned);
    let read = stream.ask(ReadReason::Scanned).unwrap();
    check(&stream.reply(read, 140, 150), ("a", Some(140), 150, 0, false, false));
    stream.reads.request("a".into(), ReadReason::Requested);
    let (ticket, sequence) = stream.ask(ReadReason::Requested).unwrap();
    let unwatched = stream.reads.complete(ticket, sequence, None, 160);
    check(&unwatched, ("a", None, 160, 0, false, false));
}

#[test]
fn a_slow_reply_may_show_what_happened_after_the_last_push() {
    let mut stream = Stream::new();
    stream.push(&["a"], 10);
    let read = stream.ask(ReadReason::Pushed).unwrap();
    check(&stream.reply(read, 11, 5000), ("a", Some(0), 5000, 1, false, false));
}

#[test]
fn reasones_are_joined_and_the_most_urgent_one_counts() {
    let mut stream = Stream::new();
    for reason in [ReadReason::Scanned, ReadReason::Requested, ReadReason::Scanned] {
        stream.reads.request("a".into(), reason);
    }
    stream.reads.request("b".into(), ReadReason::Scanned);
    stream.push(&["a"], 10);
    assert_eq!(stream.reads.scanned_left(), 2);
    let read = stream.ask(ReadReason::Pushed).unwrap();
    assert!(stream.ask(ReadReason::Requested).is_none());
    stream.reads.request("a".into(), ReadReason::Requested);
    check(&stream.reply(read, 11, 12), ("a", Some(0), 10, 1, false, false));
    assert_eq!(stream.reads.scanned_left(), 1);
    let read = stream.ask(ReadReason::Scanned).unwrap();
    assert_eq!(stream.reads.key(read.0), "b");
    stream.reply(read, 13, 14);
    assert_eq!(stream.reads.scanned_left(), 0);
    assert!(stream.ask(ReadReason::Scanned).is_none());
}

#[test]
fn tickets_of_finished_keys_are_worth_nothing() {
    let mut stream = Stream::new();
    stream.reads.request("a".into(), ReadReason::Scanned);
    stream.push(&["a"], 10);
    let read = stream.ask(ReadReason::Pushed).unwrap();
    stream.reply(read, 11, 12);
    // The slot is reused for a key that no pass waits for.
    stream.push(&["b"], 13);
    assert!(stream.ask(ReadReason::Scanned).is_none());
    assert!(stream.ask(ReadReason::Pushed).is_some());
}

#[test]
fn beyond_the_ceiling_keys_are_skipped_and_say_so_later() {
    let mut stream = Stream::new();
    let keys: Vec<String> = (0..10).map(|index| format!("k{index}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let taken = stream.push(&keys, 10);
    assert_eq!(taken[7..], [QueueOutcome::Queued, QueueOutcome::Skipped, QueueOutcome::Skipped]);
    assert_eq!(stream.reads.skipped(), 2);
    while let Some(read) = stream.ask(ReadReason::Pushed) {
        assert!(!stream.reply(read, 11, 12).missed);
    }
    assert_eq!(stream.reads.reported_up_to(77), 77, "skipped keys are never reported");
    // A pass lists one of them. The other one is gone.
    stream.reads.request("k8".into(), ReadReason::Scanned);
    stream.reads.request_skipped();
    assert_eq!(stream.reads.scanned_left(), 2);
    let read = stream.ask(ReadReason::Scanned).unwrap();
    check(&stream.reply(read, 20, 21), ("k8", Some(0), 10, 1, false, true));
    // The queue has room for pushes again.
    assert_eq!(stream.push(&["k9"], 30), [QueueOutcome::Queued]);
    let read = stream.ask(ReadReason::Pushed).unwrap();
    check(&stream.reply(read, 31, 32), ("k9", Some(0), 30, 2, false, true));
    assert_eq!(stream.reads.skipped(), 0);
}

#[test]
fn skipped_keys_are_read_when_the_limit_allows_it() {
    let start = Instant::now();
    let mut reads = ReadQueue::new(4, start);
    let order = ReplyOrder::new(0);
    for index in 0..6 {
        reads.pushed(&format!("k{index}"), &order, 10);
    }
    assert_eq!(reads.skipped(), 2);
    let mut now = start;
    let mut keys = Vec::new();
    while let Some(ready) = reads.pushed_ready() {
        now = now.max(ready);
        let ticket = reads.next(now, now).unwrap();
        keys.push(reads.key(ticket).to_owned());
    }
    assert_eq!(keys, ["k0", "k1", "k2", "k3", "k4", "k5"]);
    assert_eq!(reads.skipped(), 0);
    assert!(now > start, "the limit applies to skipped keys, too");
}

#[test]
fn what_waits_has_not_been_told() {
    let mut stream = Stream::new();
    stream.ping(100);
    stream.push(&["a"], 150);
    stream.ping(400);
    assert_eq!(stream.reads.reported_up_to(stream.order.caught_up()), 100);
    let read = stream.ask(ReadReason::Pushed).unwrap();
    assert_eq!(stream.reads.reported_up_to(stream.order.caught_up()), 100);
    stream.reply(read, 401, 402);
    assert_eq!(stream.reads.reported_up_to(stream.order.caught_up()), 401);
}

#[test]
fn too_many_pushed_keys_are_lost() {
    let mut stream = Stream { order: ReplyOrder::new(0), reads: ReadQueue::new(MAX_PUSHED as u32, Instant::now()) };
    for index in 0..MAX_PUSHED {
        assert_eq!(stream.reads.pushed(&format!("k{index}"), &stream.order, 1), QueueOutcome::Queued);
    }
    assert_eq!(stream.push(&["more", "k3"], 2), [QueueOutcome::Lost, QueueOutcome::Queued]);
    stream.reads.request("wanted".into(), ReadReason::Requested);
    assert_eq!(stream.push(&["wanted"], 2), [QueueOutcome::Lost]);
    let read = stream.ask(ReadReason::Pushed).unwrap();
    stream.reply(read, 3, 4);
    assert_eq!(stream.push(&["more"], 5), [QueueOutcome::Queued]);
}
