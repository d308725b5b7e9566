//! How large the fleet is and how much it has to do. Numbers are seconds of the real Cordum.

use std::time::Duration;

use anyhow::Context as _;

const NAMES: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
pub struct Load {
    pub n_nodes: usize,
    /// The shortest and the longest run of a workflow.
    pub run: (f64, f64),
    /// Admissions that each gateway works on at the same time.
    pub admitters: usize,
    /// How long each of them waits between two admissions.
    pub between_admissions: (f64, f64),
    /// Of each gateway, for its lines have no time: two failures of one organization are told from one only if they are
    /// well apart. Who admits often needs many.
    pub organizations: usize,
    /// How long services wait for an answer of Redis at least, at any speed: a busy machine needs its time.
    pub shortest_patience: Duration,
}

/// Two nodes with little to do.
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
