//! Metrics about the process, from the operating system.
//!
//! `http/process.rs` reads the numbers. A number that cannot be read has no sample.

use super::{Metric, Numbers, counter, gauge, real, whole};

pub(super) const METRICS: &[Metric] = &[
    gauge(
        "process_resident_memory_bytes",
        "Resident memory size in bytes.",
        Numbers::Process(|process| process.resident_memory_bytes.and_then(whole)),
    ),
    counter(
        "process_cpu_seconds_total",
        "Total user and system CPU time spent in seconds.",
        Numbers::Process(|process| real(process.cpu_seconds)),
    ),
    gauge(
        "process_open_fds",
        "Number of open file descriptors.",
        Numbers::Process(|process| process.open_fds.and_then(whole)),
    ),
    gauge(
        "process_max_fds",
        "Maximum number of open file descriptors.",
        Numbers::Process(|process| process.max_fds.and_then(whole)),
    ),
    gauge(
        "process_start_time_seconds",
        "Start time of the process in seconds since the Unix epoch.",
        Numbers::Process(|process| real(process.start_time_seconds)),
    ),
];
