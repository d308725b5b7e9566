//! The speed of the fleet: divides the TTLs and intervals of the preset, and the waiting times of
//! Cordum, by one number.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;

use crate::config::{Config, Overrides};
use crate::model::namespace::Namespace;

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

#[cfg(test)]
mod tests {
    use super::super::worker::{NAMESPACES, lock_key};
    use super::*;
    use crate::model::key_index::KeyMap;

    #[test]
    fn every_lock_of_the_fleet_is_one_of_the_preset() {
        let pace = TimeScale::new(10).unwrap();
        let keys = KeyMap::new(&pace.namespaces);
        for namespace in NAMESPACES {
            assert!(pace.ttl(namespace) > Duration::ZERO);
            let key = lock_key(namespace, "some-id");
            let mut fitting = keys.namespaces_of(&key).map(|id| pace.namespaces[usize::from(id.0)].name.clone());
            assert!(fitting.any(|name| name == namespace), "{key} is not of {namespace}");
        }
        assert_eq!(pace.ttl("workflow"), Duration::from_secs(3));
        assert_eq!(pace.renew_every("workflow"), Some(Duration::from_secs(1)));
        assert!(TimeScale::new(0).is_err() && TimeScale::new(TimeScale::FASTEST + 1).is_err());
    }
}
