//! Detects whether the drill itself stalled: a task wakes up every 50 ms and notes when it wakes up
//! late. `scenario_run` uses it.
//!
//! If the machine stalls around a deadline, no exporter can determine how a hold ended. The drill
//! accepts missing changes for this reason, but only in rounds with a measured stall.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

const BEAT: Duration = Duration::from_millis(50);
/// A beat that is later than this is a stall. The exporter reads a lock 100 ms before its deadline
/// and knows how the lock ended if it can do so within 250 ms.
pub(super) const LATE: Duration = Duration::from_millis(150);
/// How long after a round the exporter may still be processing it.
const AFTERMATH: Duration = Duration::from_secs(1);

/// Start and end. For a stall: from when the beat was due to when it came.
pub(super) type Span = (Instant, Instant);

/// The beat stops when this is dropped.
pub(super) struct Heartbeat {
    stalls: Arc<Mutex<Vec<Span>>>,
    _task: JoinSet<()>,
}

/// How many rounds of a scenario (`rounds`) out of all rounds (`of`) contain a stall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stalled {
    pub(super) rounds: usize,
    pub(super) of: usize,
    /// Whether the last round contains a stall.
    pub(super) in_last: bool,
}

impl Heartbeat {
    pub(super) fn start() -> Self {
        let stalls = Arc::default();
        let mut task = JoinSet::new();
        task.spawn(beat(Arc::clone(&stalls)));
        Self { stalls, _task: task }
    }

    pub(super) fn stalled(&self, rounds: &[Span]) -> Stalled {
        let stalls = self.stalls.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        count(rounds, &stalls)
    }
}

impl Stalled {
    /// The share of the changes that the exporter may have missed. It is 0 if more than half of the
    /// rounds contain a stall, because then such a drill would prove nothing.
    pub(super) fn share(self) -> f64 {
        if self.rounds * 2 > self.of { 0.0 } else { self.rounds as f64 / self.of.max(1) as f64 }
    }
}

async fn beat(stalls: Arc<Mutex<Vec<Span>>>) {
    loop {
        let due = Instant::now() + BEAT;
        sleep_until(due).await;
        let now = Instant::now();
        if now - due > LATE {
            stalls.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((due, now));
        }
    }
}

fn count(rounds: &[Span], stalls: &[Span]) -> Stalled {
    let is_disturbed = |(start, end): &Span| stalls.iter().any(|(due, over)| *due <= *end + AFTERMATH && over >= start);
    Stalled {
        rounds: rounds.iter().filter(|round| is_disturbed(round)).count(),
        of: rounds.len(),
        in_last: rounds.last().is_some_and(is_disturbed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_with_a_stall_in_them() {
        let start = Instant::now();
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let rounds: Vec<Span> =
            (0..4).map(|round| (at(10.0 * f64::from(round)), at(10.0 * f64::from(round) + 8.0))).collect();
        let check = |stalls: &[(f64, f64)], expected: (usize, bool), share: f64| {
            let stalls: Vec<Span> = stalls.iter().map(|(due, over)| (at(*due), at(*over))).collect();
            let stalled = count(&rounds, &stalls);
            assert_eq!(
                (stalled.rounds, stalled.in_last, stalled.share()),
                (expected.0, expected.1, share),
                "{stalls:?}"
            );
        };
        check(&[], (0, false), 0.0);
        check(&[(3.0, 3.4), (5.0, 5.3)], (1, false), 0.25);
        // Just after a round, the exporter may not have processed all of it.
        check(&[(38.5, 39.0)], (1, true), 0.25);
        check(&[(9.2, 9.6)], (0, false), 0.0);
        check(&[(7.0, 12.0)], (2, false), 0.5);
        // With stalls in most rounds nothing is excused.
        check(&[(0.0, 25.0)], (3, false), 0.0);
    }

    #[tokio::test]
    async fn a_stall_is_noted() {
        let heartbeat = Heartbeat::start();
        tokio::time::sleep(BEAT).await;
        let start = Instant::now();
        // Block the thread, so that the heartbeat task cannot run.
        std::thread::sleep(BEAT + LATE * 2);
        tokio::time::sleep(BEAT * 2).await;
        assert_eq!(heartbeat.stalled(&[(start, Instant::now())]), Stalled { rounds: 1, of: 1, in_last: true });
    }
}
