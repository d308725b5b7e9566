//! Notices when the machine does not let programs run. An exporter that does not run cannot observe
//! single changes, so its counts are lower bounds for that time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const NAP: Duration = Duration::from_millis(5);
/// The exporter confirms every 250 ms that it is up to date, and it needs a confirmation in the
/// last 300 ms before a deadline to know how a lock ended.
const DISTURBANCE: Duration = Duration::from_millis(25);

/// A thread that sleeps, and measures how much too late it wakes up.
pub(super) struct StarvationWatch {
    worst_ms: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl StarvationWatch {
    pub(super) fn start() -> Self {
        let watch = Self { worst_ms: Arc::default(), is_over: Arc::default() };
        let (worst, is_over) = (Arc::clone(&watch.worst_ms), Arc::clone(&watch.is_over));
        thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let asleep = Instant::now();
                thread::sleep(NAP);
                let late = asleep.elapsed().saturating_sub(NAP).as_millis() as u64;
                worst.fetch_max(late, Ordering::Relaxed);
            }
        });
        watch
    }

    pub(super) fn reset(&self) {
        self.worst_ms.store(0, Ordering::Relaxed);
    }

    /// The time that a machine needs in addition, if each of some turns of the programs that take
    /// part is as late as the latest one.
    pub(super) fn extra_time(&self) -> Duration {
        self.worst() * 10
    }

    /// The longest delay since the last reset.
    pub(super) fn worst(&self) -> Duration {
        Duration::from_millis(self.worst_ms.load(Ordering::Relaxed))
    }

    pub(super) fn is_disturbed(&self) -> bool {
        self.worst() >= DISTURBANCE
    }
}

impl Drop for StarvationWatch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}
