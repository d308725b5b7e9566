//! The speed, the size and the load of the fleet, and the settings of an exporter that observes it.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;

use crate::config::{Config, Overrides};
use crate::model::namespace::Namespace;
use crate::util::units::format_duration;

#[derive(Clone, Debug)]
pub struct TimeScale {
    speed: u32,
    /// With the durations of the preset.
    namespaces: Vec<Arc<Namespace>>,
}

impl TimeScale {
    /// At a higher speed, the locks of approvals and of jobs, which share their keys, could not be
    /// distinguished by their TTLs.
    pub const FASTEST: u32 = 30;

    pub fn new(speed: u32) -> anyhow::Result<Self> {
        anyhow::ensure!((1..=Self::FASTEST).contains(&speed), "the speed must be from 1 to {}", Self::FASTEST);
        // A configuration needs a log source or a Redis. Nothing reads this path.
        let overrides = Overrides {
            presets: vec!["cordum".to_owned()],
            logs: vec!["/nonexistent/*.log".to_owned()],
            ..Overrides::default()
        };
        let config = Config::load(None, &overrides).map_err(|problems| anyhow::anyhow!("{problems}"));
        let namespaces = config.context("the preset cordum is broken")?.namespaces;
        Ok(Self { speed, namespaces })
    }

    pub fn speed(&self) -> u32 {
        self.speed
    }

    /// Without lock namespaces that have no keys, such as `other`.
    pub fn namespaces(&self) -> impl Iterator<Item = &Namespace> {
        self.namespaces.iter().map(AsRef::as_ref).filter(|namespace| !namespace.keys.is_empty())
    }

    /// Scales a duration of the real Cordum.
    pub fn of(&self, real: Duration) -> Duration {
        real / self.speed
    }

    pub fn seconds(&self, real: f64) -> Duration {
        self.of(Duration::from_secs_f64(real))
    }

    /// Lines about one lock and operation within this time report one failure. The window is
    /// shorter than any renewal interval, and longer than the two attempts of a release.
    pub fn join_window(&self) -> Duration {
        self.of(Duration::from_secs(5))
    }

    /// The TTL of a lock namespace that the fleet uses.
    pub fn ttl(&self, namespace: &str) -> Duration {
        let ttl = self.find(namespace).and_then(|namespace| namespace.ttl);
        self.of(ttl.expect("the preset gives every lock of the fleet a TTL, as a test says"))
    }

    /// `None` if the locks of the lock namespace are not renewed.
    pub fn renew_every(&self, namespace: &str) -> Option<Duration> {
        self.find(namespace)?.renew_every.map(|every| self.of(every))
    }

    fn find(&self, namespace: &str) -> Option<&Namespace> {
        self.namespaces.iter().map(AsRef::as_ref).find(|known| known.name == namespace)
    }
}

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

/// The exporter publishes once a second at any speed of the fleet, so a shorter absence could not
/// be noticed.
const SHORTEST_ABSENCE: Duration = Duration::from_secs(3);

/// Durations in the configuration have a resolution of one millisecond.
const SHORTEST_RETRY: Duration = Duration::from_millis(1);

/// Returns part of a configuration. The caller adds `redis`, `logs` and other sections. The text
/// ends with the list of namespaces, so the caller can append more of them.
pub fn exporter_settings(time_scale: &TimeScale) -> String {
    let mut yaml =
        format!("join_window: {}\npresets: [cordum]\nnamespaces:\n", format_duration(time_scale.join_window()));
    for namespace in time_scale.namespaces() {
        let absence = namespace.thresholds.leader_absent.map(|absence| time_scale.of(absence).max(SHORTEST_ABSENCE));
        let times = [
            ("ttl", namespace.ttl.map(|time| time_scale.of(time))),
            ("renew_every", namespace.renew_every.map(|time| time_scale.of(time))),
            ("retry_every", namespace.retry_every.map(|time| time_scale.of(time).max(SHORTEST_RETRY))),
            ("takeover_slo", namespace.takeover_slo.map(|time| time_scale.of(time))),
            ("max_hold", namespace.thresholds.max_hold.map(|time| time_scale.of(time))),
            ("leader_absent", absence),
        ];
        let _ = writeln!(yaml, "  - name: {}", namespace.name);
        for (field, time) in times.into_iter().filter_map(|(field, time)| Some((field, time?))) {
            let _ = writeln!(yaml, "    {field}: {}", format_duration(time));
        }
    }
    yaml
}

#[cfg(test)]
mod tests {
    use super::super::worker::{NAMESPACES, lock_key};
    use super::*;
    use crate::model::key_index::KeyMap;

    #[test]
    fn every_lock_of_the_fleet_is_one_of_the_preset() {
        let time_scale = TimeScale::new(10).unwrap();
        let keys = KeyMap::new(&time_scale.namespaces);
        for namespace in NAMESPACES {
            assert!(time_scale.ttl(namespace) > Duration::ZERO);
            let key = lock_key(namespace, "some-id");
            let mut fitting = keys.namespaces_of(&key).map(|id| time_scale.namespaces[usize::from(id.0)].name.clone());
            assert!(fitting.any(|name| name == namespace), "{key} is not of {namespace}");
        }
        assert_eq!(time_scale.ttl("workflow"), Duration::from_secs(3));
        assert_eq!(time_scale.renew_every("workflow"), Some(Duration::from_secs(1)));
        assert!(TimeScale::new(0).is_err() && TimeScale::new(TimeScale::FASTEST + 1).is_err());
    }
}
