//! The durations of a drill: those of production, divided by the speed. The workers and the
//! exporter's configuration use the same ones.

use std::time::Duration;

/// The TTL of a lock in production, and in a drill at speed 1.
const BASE_TTL: Duration = Duration::from_secs(30);
/// After this many failed renewals, a worker with the policy `fence` gives up.
pub(super) const RENEWAL_BUDGET: u32 = 3;
/// The shortest timeout for a reply from Redis. With a shorter one, a busy machine would count as a
/// failure.
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(250);
/// The `leader_absent` setting in the exporter's configuration. It is long, because there is also
/// no leader before and after the drill.
pub(super) const LEADER_ABSENT: Duration = Duration::from_secs(300);
/// The TTL of fences and of the storage keys, which applies if a drill is killed before it cleans
/// up.
pub(super) const KEEP: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    pub(super) speed: u32,
    pub(super) ttl: Duration,
    /// How long each failure is repeated. `None`: each failure happens once.
    pub(super) duration: Option<Duration>,
}

impl Timing {
    pub(super) fn new(speed: u32, duration: Option<Duration>) -> Self {
        Self { speed, ttl: BASE_TTL / speed, duration }
    }

    /// A fifth of the TTL, so that a budget of three failed renewals is used up before the TTL.
    pub(super) fn renew_every(&self) -> Duration {
        self.ttl / 5
    }

    /// How long a worker waits for a reply before the operation counts as failed.
    pub(super) fn answer(&self) -> Duration {
        self.renew_every().max(SHORTEST_TIMEOUT)
    }

    pub(super) fn takeover_slo(&self) -> Duration {
        self.ttl * 3 / 2
    }

    /// How long there is no leader in the scenario that loses one.
    pub(super) fn absence(&self) -> Duration {
        (self.ttl * 5 / 2).max(self.duration.unwrap_or_default())
    }

    /// How often a worker that waits for a lock tries to acquire it.
    pub(super) fn poll(&self) -> Duration {
        self.ttl / 40
    }

    /// The network delay in one direction. Both directions together take longer than the TTL.
    pub(super) fn delay(&self) -> Duration {
        self.ttl * 3 / 5
    }

    pub(super) fn describe(&self) -> String {
        let ttl = self.ttl.as_secs_f64();
        let shortened = match self.speed {
            1 => "TTLs are those of production".to_owned(),
            speed => format!(
                "TTLs are {speed} times shorter than in production ({} s; redis-failover has those of production)",
                BASE_TTL.as_secs()
            ),
        };
        let repeated = match self.duration {
            Some(duration) => format!("each failure is repeated for {:.0} s", duration.as_secs_f64()),
            None => "each failure happens once".to_owned(),
        };
        format!("{shortened}: {ttl:.2} s, renewed every {:.2} s; {repeated}", self.renew_every().as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_falls_before_the_expiry_at_every_speed() {
        for speed in [1, 15, 30] {
            let timing = Timing::new(speed, None);
            // Each attempt begins when it is due, but not before the previous attempt has failed.
            let fenced = timing.renew_every() + timing.answer() * RENEWAL_BUDGET;
            assert!(fenced < timing.ttl, "speed {speed}");
            assert!(timing.delay() * 2 > timing.ttl);
        }
    }
}
