//! The size and the load of the fleet. Durations are in seconds of the real Cordum, before the
//! speed is applied.

use std::time::Duration;

use anyhow::Context as _;

const NAMES: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
pub struct Load {
    pub n_nodes: usize,
    /// The shortest and the longest duration of a workflow run.
    pub run: (f64, f64),
    /// How many admissions each gateway handles at the same time.
    pub admitters: usize,
    /// How long each of them waits between two admissions.
    pub between_admissions: (f64, f64),
    /// How many organizations each gateway has. The lines of a gateway have no time, so the
    /// exporter can separate two failures of one organization only if they are well apart. With
    /// frequent admissions, many organizations are needed.
    pub organizations: usize,
    /// The shortest time that services wait for a reply from Redis, at any speed. A busy machine
    /// needs this time.
    pub shortest_patience: Duration,
}

/// Two nodes with little load.
impl Default for Load {
    fn default() -> Self {
        Self {
            n_nodes: 2,
            run: (4.0, 26.0),
            admitters: 1,
            between_admissions: (10.0, 20.0),
            organizations: 2,
            shortest_patience: Duration::from_millis(250),
        }
    }
}

impl Load {
    pub(super) fn nodes(&self) -> anyhow::Result<&'static [&'static str]> {
        NAMES.get(..self.n_nodes).filter(|nodes| nodes.len() > 1).context("a fleet has two or three nodes")
    }

    pub(super) fn longest_run(&self) -> f64 {
        self.run.1
    }
}
