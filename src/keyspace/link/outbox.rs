//! Events for the pipeline, in order. The link never waits for the pipeline.
//!
//! A link must handle pushes while the pipeline is busy. If the queue of the pipeline is full,
//! events wait here. The link reads no more keys until the queue has room again, so the number of
//! waiting events stays small.

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::model::input::PipelineInput;
use crate::model::sighting::{LinkBatch, LinkEvent, LinkId};
use crate::util::clock;

pub(super) struct Outbox {
    link: LinkId,
    out: mpsc::Sender<PipelineInput>,
    waiting: Vec<LinkEvent>,
    /// Waiting events must not be sent yet.
    held_back: bool,
}

impl Outbox {
    pub(super) fn new(link: LinkId, out: mpsc::Sender<PipelineInput>) -> Self {
        Self { link, out, waiting: Vec::new(), held_back: false }
    }

    pub(super) fn add(&mut self, event: LinkEvent) {
        match (self.waiting.last_mut(), &event) {
            // These events may repeat without limit while the pipeline is busy. The last one is
            // enough.
            (Some(last @ LinkEvent::CaughtUp { .. }), LinkEvent::CaughtUp { .. })
            | (Some(last @ LinkEvent::Flushed { .. }), LinkEvent::Flushed { .. }) => *last = event,
            _ => self.waiting.push(event),
        }
    }

    pub(super) fn extend(&mut self, events: impl IntoIterator<Item = LinkEvent>) {
        events.into_iter().for_each(|event| self.add(event));
    }

    /// Stops sending until [`Outbox::resume`] is called.
    pub(super) fn hold_back(&mut self) {
        self.held_back = true;
    }

    /// Sends waiting events again, with `first` before them.
    pub(super) fn resume(&mut self, first: Option<LinkEvent>) {
        self.held_back = false;
        if let Some(first) = first {
            self.waiting.insert(0, first);
        }
    }

    /// The connection ended before Redis reported evictions. Assumes that keys were evicted.
    pub(super) fn release_held(&mut self) {
        if self.held_back {
            self.resume(Some(LinkEvent::Evicted { at: clock::steady() }));
        }
    }

    /// Sends the waiting events if the queue has room.
    pub(super) fn flush(&mut self) {
        if self.waiting.is_empty() || self.held_back {
            return;
        }
        let batch = LinkBatch { link: self.link, news: std::mem::take(&mut self.waiting) };
        if let Err(TrySendError::Full(PipelineInput::Link(batch))) = self.out.try_send(PipelineInput::Link(batch)) {
            self.waiting = batch.news;
        }
    }

    /// Whether events wait because the queue is full.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() && !self.held_back
    }

    /// Waits until the queue has room.
    pub(super) async fn wait_for_capacity(&self) {
        // An error means that the pipeline is gone. The link is stopped at the same time.
        drop(self.out.reserve().await);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn events_wait_in_order_until_the_queue_has_room() {
        let (out, mut input) = mpsc::channel(1);
        let mut outbox = Outbox::new(LinkId(3), out);
        outbox.add(LinkEvent::Down { at: 1 });
        outbox.flush();
        for at in 2..5 {
            outbox.add(LinkEvent::CaughtUp { at });
        }
        outbox.flush();
        outbox.add(LinkEvent::Gap { at: 5 });
        outbox.flush();
        assert!(outbox.is_waiting());
        let events = |input: Option<PipelineInput>| match input {
            Some(PipelineInput::Link(batch)) => batch.news,
            other => panic!("{other:?}"),
        };
        assert_eq!(events(input.recv().await), [LinkEvent::Down { at: 1 }]);
        outbox.wait_for_capacity().await;
        outbox.flush();
        assert!(!outbox.is_waiting());
        assert_eq!(events(input.recv().await), [LinkEvent::CaughtUp { at: 4 }, LinkEvent::Gap { at: 5 }]);
        outbox.hold_back();
        outbox.add(LinkEvent::Down { at: 6 });
        outbox.flush();
        assert!(!outbox.is_waiting() && input.try_recv().is_err());
        outbox.resume(Some(LinkEvent::Evicted { at: 7 }));
        outbox.flush();
        assert_eq!(events(input.recv().await), [LinkEvent::Evicted { at: 7 }, LinkEvent::Down { at: 6 }]);
    }
}
