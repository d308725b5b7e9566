//! The durations of a drill, and the configuration that an exporter needs to observe it: the lock
//! namespaces, and rules for the log lines of the workers. The durations are those of production,
//! divided by the speed.

use std::fmt::Write as _;
use std::time::Duration;

use super::table::SCENARIOS;
use crate::util::units::format_duration;

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

/// All keys of all drills begin with this prefix, followed by the run id.
pub(super) const PREFIX: &str = "redis_lock_drill:";

// The log messages of the workers. The rules below match them.
pub(super) const RELEASE_FAILED: &str = "drill: lock release failed";
pub(super) const RENEWAL_FAILED: &str = "drill: lock renewal failed";
pub(super) const ABANDONED: &str = "drill: lock abandoned, worker fenced";
pub(super) const WRITE_REJECTED: &str = "drill: stale write rejected";
pub(super) const FINISHED: &str = "drill: work finished";
/// The generic rules and reasons recognize this text.
pub(super) const NOT_OWNED: &str = "lock not owned";

/// Returns `namespaces` and `rules` as YAML. Only the leader's key contains the run id, because the
/// key of a `loop` namespace has no variable part.
pub(super) fn namespaces_and_rules(run_id: &str, timing: &Timing) -> String {
    let mut yaml = "namespaces:\n".to_owned();
    for namespace in SCENARIOS.iter().flat_map(|scenario| scenario.namespaces) {
        let key = match namespace.is_loop {
            true => format!("{PREFIX}{run_id}:{}", namespace.name),
            false => format!("{PREFIX}{{lock}}:{}", namespace.name),
        };
        let duration = |value| format_duration(value);
        let _ = write!(
            yaml,
            "  - name: {}\n    keys: [\"{key}\"]\n    style: {}\n    on_renewal_failure: {}\n    severity: page\n    \
             ttl: {}\n    renew_every: {}\n    takeover_slo: {}\n",
            namespace.name,
            if namespace.is_loop { "loop" } else { "item" },
            namespace.policy,
            duration(timing.ttl),
            duration(timing.renew_every()),
            duration(timing.takeover_slo()),
        );
        if namespace.is_loop {
            let _ = writeln!(yaml, "    leader_absent: {}", duration(LEADER_ABSENT));
        } else {
            let _ = writeln!(yaml, "    fence: \"{PREFIX}{{lock}}:fence\"");
        }
    }
    let rules = [
        (RELEASE_FAILED, "event: release_failed"),
        (RENEWAL_FAILED, "event: renewal_failed"),
        (ABANDONED, "event: abandoned"),
        (WRITE_REJECTED, "event: conflicting_write, kind: stale_write_rejected"),
        (FINISHED, "event: terminal_state, state: state, terminal: [DONE]"),
    ];
    yaml += "rules:\n";
    for (message, event) in rules {
        let _ = writeln!(yaml, "  - {{message: \"{message}\", {event}}}");
    }
    yaml
}

/// The output of `--print-config`: text to add to the configuration of a running exporter.
pub(super) fn snippet(run_id: &str, timing: &Timing, log_file: &str) -> String {
    format!(
        "# For redis_lock_exporter drill. Add it to the exporter's configuration and reload; then, on the same machine:\n\
         #   redis_lock_exporter drill --run-id {run_id} --speed {} --exporter http://HOST:9877 \\\n\
         #     --redis.url redis://HOST:6379 --log-file {log_file}\n\
         # The Redis must be the one that this exporter watches. Take it out again after the drill.\n\
         logs:\n  - path: {log_file}\n{}",
        timing.speed,
        namespaces_and_rules(run_id, timing),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Overrides};

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

    #[test]
    fn it_is_a_good_configuration_at_every_speed() {
        for speed in [1, 7, 15, 30] {
            let text =
                snippet("abc", &Timing::new(speed, None), "/tmp/drill.log") + "redis: {url: 'redis://127.0.0.1'}\n";
            let config = Config::from_yaml("drill.yaml", &text, &Overrides::default()).unwrap();
            let names: Vec<&str> = config.namespaces.iter().map(|namespace| namespace.name.as_str()).collect();
            assert_eq!(names.len(), 12, "eleven of ours and other: {names:?}");
        }
    }
}
