//! What happened in a run, and how much memory the exporter needed.

use std::collections::BTreeMap;
use std::fmt;

use super::plan::Action;

/// The memory of a process is judged after this many measurements.
const ENOUGH: usize = 100;
/// The growth of memory that is normal, in bytes.
const NORMAL_GROWTH: f64 = 16e6;

#[derive(Default)]
pub(super) struct Report {
    pub(super) faults: BTreeMap<&'static str, usize>,
    /// Acquisitions, renewals and ends.
    pub(super) events: i64,
    /// Calm periods whose counts were exact.
    pub(super) n_exact: usize,
    /// Calm periods in which the machine did not let programs run.
    pub(super) n_starved: usize,
    /// The resident memory of the current exporter process after each step, in bytes.
    memory: Vec<f64>,
    /// The number of exporter processes so far.
    lives: usize,
    peak_memory: f64,
}

impl Report {
    pub(super) fn note_memory(&mut self, lives: usize, bytes: f64) {
        if self.lives != lives {
            self.lives = lives;
            self.memory.clear();
        }
        self.memory.push(bytes);
        self.peak_memory = self.peak_memory.max(bytes);
    }

    /// Returns an error if the memory of a process that has run for long grows all the time.
    pub(super) fn check_memory(&self) -> Result<(), String> {
        let n = self.memory.len();
        if n < ENOUGH {
            return Ok(());
        }
        let highest = |part: &[f64]| part.iter().copied().fold(0.0, f64::max);
        let (early, late) = (highest(&self.memory[n / 10..n / 3]), highest(&self.memory[2 * n / 3..]));
        match late - early > NORMAL_GROWTH {
            true => Err(format!("memory grows: {:.1} MB early, {:.1} MB late", early / 1e6, late / 1e6)),
            false => Ok(()),
        }
    }

    fn n_kills(&self) -> usize {
        self.faults.get(Action::KillExporter.name()).copied().unwrap_or_default()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: Vec<String> = self.faults.iter().map(|(name, n)| format!("{name} {n}")).collect();
        let megabytes = |bytes: Option<&f64>| bytes.copied().unwrap_or_default() / 1e6;
        write!(
            formatter,
            "{} events, {} faults, {} kills, {} exact periods, {} starved periods, memory {:.1} MB at first, \
             {:.1} MB at last, {:.1} MB at most ({})",
            self.events,
            self.faults.values().sum::<usize>(),
            self.n_kills(),
            self.n_exact,
            self.n_starved,
            megabytes(self.memory.first()),
            megabytes(self.memory.last()),
            self.peak_memory / 1e6,
            faults.join(", "),
        )
    }
}
