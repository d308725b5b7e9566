//! The message bus of the simulated services: an endless supply of work. A message that is not
//! acknowledged in time is delivered again to the next service that asks. That is how two replicas
//! can work on the same job.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::rehearsal::fleet::Random;

/// How many finished messages are remembered. This is enough, because a second delivery comes soon.
const REMEMBERED: usize = 10_000;

pub(super) struct Bus {
    acknowledge_within: Duration,
    messages: Mutex<Messages>,
}

#[derive(Default)]
struct Messages {
    /// The unacknowledged messages and when each was last delivered.
    delivered: BTreeMap<String, Instant>,
    finished: BTreeSet<String>,
    /// The oldest first.
    finished_in_order: VecDeque<String>,
}

impl Bus {
    pub(super) fn new(acknowledge_within: Duration) -> Self {
        Self { acknowledge_within, messages: Mutex::default() }
    }

    pub(super) fn next(&self, random: &mut Random) -> String {
        let now = Instant::now();
        let mut messages = self.lock();
        let is_late = |delivered: &Instant| now - *delivered >= self.acknowledge_within;
        let late = messages.delivered.iter().find(|(_, delivered)| is_late(delivered)).map(|(id, _)| id.clone());
        let id = late.unwrap_or_else(|| random.uuid().to_string());
        messages.delivered.insert(id.clone(), now);
        id
    }

    pub(super) fn acknowledge(&self, id: &str) {
        self.lock().delivered.remove(id);
    }

    /// Marks the work as finished. Returns whether it was not finished before.
    pub(super) fn finish(&self, id: &str) -> bool {
        let mut messages = self.lock();
        let is_first = messages.finished.insert(id.to_owned());
        if is_first {
            messages.finished_in_order.push_back(id.to_owned());
        }
        if messages.finished_in_order.len() > REMEMBERED
            && let Some(oldest) = messages.finished_in_order.pop_front()
        {
            messages.finished.remove(&oldest);
        }
        is_first
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Messages> {
        self.messages.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_not_acknowledged_comes_again() {
        let bus = Bus::new(Duration::from_secs(10));
        let mut random = Random::new(1);
        let (first, second) = (bus.next(&mut random), bus.next(&mut random));
        assert_ne!(first, second);
        bus.acknowledge(&second);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(bus.next(&mut random), first);
        assert_ne!(bus.next(&mut random), first, "it has just been delivered again");
        assert!(bus.finish(&first));
        assert!(!bus.finish(&first));
    }
}
