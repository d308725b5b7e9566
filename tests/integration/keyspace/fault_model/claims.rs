//! What `operations_source` may claim after faults: `partial` while changes of the last five
//! minutes may have been missed, otherwise `watch`.

use std::time::{Duration, Instant};

use super::plan::Action;

/// The exporter reports missed changes for this long.
const REPORTED: Duration = Duration::from_secs(300);
/// How exactly the test knows when the exporter noticed a fault.
const SLACK: Duration = Duration::from_secs(15);

/// When faults last had an effect on what the exporter can claim.
#[derive(Default)]
pub(super) struct Claims {
    /// The connection to Redis was interrupted.
    interrupted: Option<Instant>,
    /// A fault that may or may not hide changes.
    uncertain: Option<Instant>,
}

impl Claims {
    pub(super) fn note(&mut self, action: Action) {
        let now = Some(Instant::now());
        match action {
            Action::KillConnection | Action::Cut | Action::RestartWithData | Action::RestartWithoutData => {
                self.interrupted = now;
            }
            // It depends on the duration and on what the workers do meanwhile. A new process does
            // not know what the old one missed.
            Action::Failover
            | Action::Stall
            | Action::StopRedis
            | Action::StopExporter
            | Action::Burst
            | Action::KillExporter
            | Action::RestartExporter => self.uncertain = now,
            Action::Flush
            | Action::FlushOther
            | Action::Evict
            | Action::MigrateSlot
            | Action::Delay
            | Action::Reload
            | Action::ClockForward
            | Action::ClockBackward => {}
        }
    }

    /// The claims that are correct now.
    pub(super) fn correct(&self) -> &'static [&'static str] {
        let is_recent = |at: Option<Instant>, time| at.is_some_and(|at| at.elapsed() < time);
        if is_recent(self.uncertain, REPORTED + SLACK) {
            &["watch", "partial"]
        } else if is_recent(self.interrupted, REPORTED - SLACK) {
            &["partial"]
        } else if is_recent(self.interrupted, REPORTED + SLACK) {
            &["watch", "partial"]
        } else {
            &["watch"]
        }
    }
}
