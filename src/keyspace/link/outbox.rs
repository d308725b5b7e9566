//! The way out: news for the pipeline, in order, without ever waiting for it.
//!
//! A link must go on taking pushes while the pipeline is busy. What the pipeline has no room for waits here, and the link
//! reads no more keys until it is gone, so that it stays small.

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::model::input::PipelineInput;
use crate::model::sighting::{LinkBatch, LinkId, LinkNews};
use crate::util::clock;

pub(super) struct Teller {
    link: LinkId,
    out: mpsc::Sender<PipelineInput>,
    waiting: Vec<LinkNews>,
    /// What waits may not be told yet.
    held_back: bool,
}

impl Teller {
    pub(super) fn new(link: LinkId, out: mpsc::Sender<PipelineInput>) -> Self {
        Self { link, out, waiting: Vec::new(), held_back: false }
    }

    pub(super) fn add(&mut self, news: LinkNews) {
        match (self.waiting.last_mut(), &news) {
            // What comes in any number while the pipeline is stuck: the last one says it all.
            (Some(last @ LinkNews::CaughtUp { .. }), LinkNews::CaughtUp { .. })
            | (Some(last @ LinkNews::Flushed { .. }), LinkNews::Flushed { .. }) => *last = news,
            _ => self.waiting.push(news),
        }
    }

    /// From now on nothing is told, until it is said what to tell first.
    pub(super) fn hold_back(&mut self) {
        self.held_back = true;
    }

    /// What was held back may be told, after this.
    pub(super) fn go_on(&mut self, first: Option<LinkNews>) {
        self.held_back = false;
        if let Some(first) = first {
            self.waiting.insert(0, first);
        }
    }

    /// Nobody will say any more whether keys were evicted.
    pub(super) fn let_go(&mut self) {
        if self.held_back {
            self.go_on(Some(LinkNews::Evicted { at: clock::steady() }));
        }
    }

    /// Hands over what waits, if there is room.
    pub(super) fn tell(&mut self) {
        if self.waiting.is_empty() || self.held_back {
            return;
        }
        let batch = LinkBatch { link: self.link, news: std::mem::take(&mut self.waiting) };
        if let Err(TrySendError::Full(PipelineInput::Link(batch))) = self.out.try_send(PipelineInput::Link(batch)) {
            self.waiting = batch.news;
        }
    }

    /// The pipeline has no room.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() && !self.held_back
    }

    /// Until there is room.
    pub(super) async fn room(&self) {
        // An error says that the pipeline is gone: the link is stopped at the same time.
        drop(self.out.reserve().await);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn news_wait_in_order_until_there_is_room() {
        let (out, mut input) = mpsc::channel(1);
        let mut teller = Teller::new(LinkId(3), out);
        teller.add(LinkNews::Down { at: 1 });
        teller.tell();
        for at in 2..5 {
            teller.add(LinkNews::CaughtUp { at });
        }
        teller.tell();
        teller.add(LinkNews::Gap { at: 5 });
        teller.tell();
        assert!(teller.is_waiting());
        let news = |input: Option<PipelineInput>| match input {
            Some(PipelineInput::Link(batch)) => batch.news,
            other => panic!("{other:?}"),
        };
        assert_eq!(news(input.recv().await), [LinkNews::Down { at: 1 }]);
        teller.room().await;
        teller.tell();
        assert!(!teller.is_waiting());
        assert_eq!(news(input.recv().await), [LinkNews::CaughtUp { at: 4 }, LinkNews::Gap { at: 5 }]);
        teller.hold_back();
        teller.add(LinkNews::Down { at: 6 });
        teller.tell();
        assert!(!teller.is_waiting() && input.try_recv().is_err());
        teller.go_on(Some(LinkNews::Evicted { at: 7 }));
        teller.tell();
        assert_eq!(news(input.recv().await), [LinkNews::Evicted { at: 7 }, LinkNews::Down { at: 6 }]);
    }
}
