//! Notices when the machine does not let programs run. An exporter that does not run cannot observe
//! single changes, so its counts are lower bounds for that time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use std::{fmt, fs};

const NAP: Duration = Duration::from_millis(5);
/// How often the kernel's statistics are read.
const INTERVAL: Duration = Duration::from_millis(100);
/// The exporter confirms every 250 ms that it is up to date, and it needs a confirmation in the
/// last 300 ms before a deadline to know how a lock ended.
const DISTURBANCE: Duration = Duration::from_millis(25);

/// A thread that measures how long programs wait for a processor: itself, and given processes.
#[derive(Clone, Default)]
pub(super) struct StarvationWatch {
    worst_ms: Arc<AtomicU64>,
    slowest_request_ms: Arc<AtomicU64>,
    processes: Arc<Mutex<Vec<u32>>>,
    is_over: Arc<AtomicBool>,
}

impl StarvationWatch {
    pub(super) fn start() -> Self {
        let watch = Self::default();
        let shared = watch.clone();
        thread::spawn(move || shared.measure());
        watch
    }

    /// Replaces the processes to watch, and forgets earlier delays.
    pub(super) fn reset(&self, processes: Vec<u32>) {
        *self.processes.lock().unwrap() = processes;
        self.worst_ms.store(0, Ordering::Relaxed);
        self.slowest_request_ms.store(0, Ordering::Relaxed);
    }

    /// A request of a worker took this long.
    pub(super) fn note_request(&self, time: Duration) {
        self.slowest_request_ms.fetch_max(time.as_millis() as u64, Ordering::Relaxed);
    }

    /// The longest delay since the last reset.
    pub(super) fn worst(&self) -> Duration {
        Duration::from_millis(self.worst_ms.load(Ordering::Relaxed))
    }

    /// Whether programs or Redis had to wait. Says nothing while a fault makes Redis wait.
    pub(super) fn is_disturbed(&self) -> bool {
        self.worst().max(self.slowest_request()) >= DISTURBANCE
    }

    pub(super) fn slowest_request(&self) -> Duration {
        Duration::from_millis(self.slowest_request_ms.load(Ordering::Relaxed))
    }

    /// The time that a machine needs in addition, if each of some turns of the programs that take
    /// part is as late as the latest one.
    pub(super) fn extra_time(&self) -> Duration {
        self.worst() * 10
    }

    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn measure(&self) {
        let mut waited = BTreeMap::new();
        let mut read = Instant::now();
        while !self.is_over.load(Ordering::Relaxed) {
            let asleep = Instant::now();
            thread::sleep(NAP);
            self.note(asleep.elapsed().saturating_sub(NAP));
            if read.elapsed() >= INTERVAL {
                read = Instant::now();
                for process in self.processes.lock().unwrap().iter() {
                    for (thread, total) in waiting_times(*process) {
                        let before = waited.insert(thread, total).unwrap_or(total);
                        self.note(total.saturating_sub(before));
                    }
                }
            }
        }
    }

    fn note(&self, delay: Duration) {
        self.worst_ms.fetch_max(delay.as_millis() as u64, Ordering::Relaxed);
    }
}

impl fmt::Display for StarvationWatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (worst, slowest) = (self.worst(), self.slowest_request());
        write!(formatter, "a program waited {worst:?} for a processor, the slowest request took {slowest:?}")
    }
}

/// For how long each thread of a process has been ready to run but had no processor. Empty if the
/// process has ended or the kernel does not say.
fn waiting_times(process: u32) -> Vec<(u32, Duration)> {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    let waiting_time = |thread: fs::DirEntry| {
        let statistics = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        let waited = statistics.split_whitespace().nth(1)?.parse().ok()?;
        Some((thread.file_name().to_str()?.parse().ok()?, Duration::from_nanos(waited)))
    };
    threads.filter_map(|thread| waiting_time(thread.ok()?)).collect()
}
