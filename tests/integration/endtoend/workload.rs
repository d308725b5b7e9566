//! Runs the demo's fleet on its own runtime, with enough work to trigger a page.

use std::path::Path;
use std::time::Duration;

use redis_lock_exporter::rehearsal::fleet::cordum::{Fault, Fleet, Load, TimeScale, Totals};
use tokio::runtime::Runtime;

/// Runs last longer than an outage of 45 s, and admissions happen all the time.
fn load() -> Load {
    Load {
        run: (80.0, 90.0),
        admitters: 2,
        between_admissions: (1.0, 2.0),
        // Large enough that the same lock is rarely used twice.
        organizations: 1_000_000,
        // The result must depend on whether Redis is up, not on how busy the machine is.
        shortest_patience: Duration::from_secs(5),
        ..Load::default()
    }
}

pub(super) struct Workload {
    fleet: Fleet,
    /// The runtime ends with the fleet that runs on it.
    runtime: Option<Runtime>,
}

impl Workload {
    pub(super) fn start(redis: &str, pace: TimeScale, logs: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let fleet = runtime.block_on(Fleet::start(&format!("redis://{redis}/"), logs, pace, load(), 1)).unwrap();
        Self { fleet, runtime: Some(runtime) }
    }

    /// Makes handlers slow, as a bad deployment does.
    pub(super) fn slow_down(&mut self) {
        self.fleet.begin(Fault::SlowAdmissions);
    }

    /// Makes handlers fast again, as a rollback does.
    pub(super) fn calm(&mut self) {
        self.fleet.calm();
    }

    /// Points the services to another primary at HOST:PORT.
    pub(super) fn fail_over(&mut self, redis: &str) {
        self.fleet.fail_over(redis);
    }

    pub(super) fn totals(&self) -> Totals {
        self.fleet.totals()
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
