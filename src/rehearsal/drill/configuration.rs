//! The configuration that an exporter needs to observe a drill: the lock namespaces, and rules for
//! the log lines of the workers.

use std::fmt::Write as _;

use super::table::SCENARIOS;
use super::timing::{LEADER_ABSENT, Timing};
use crate::util::units::format_duration;

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
