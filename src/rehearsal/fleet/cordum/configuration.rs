//! What an exporter that watches the fleet has to know: the preset `cordum` with the times of the fleet.

use std::fmt::Write as _;
use std::time::Duration;

use super::TimeScale;
use crate::util::units::format_duration;

/// The exporter publishes once a second, at any speed of the fleet: a shorter absence would not be one.
const SHORTEST_ABSENCE: Duration = Duration::from_secs(3);

/// Durations of the configuration have no parts of a millisecond.
const SHORTEST_RETRY: Duration = Duration::from_millis(1);

/// A part of a configuration, to which `redis`, `logs` and the like are to be added. It ends with the list of namespaces.
pub fn exporter_settings(pace: &TimeScale) -> String {
    let mut yaml = format!("join_window: {}\npresets: [cordum]\nnamespaces:\n", format_duration(pace.join_window()));
    for namespace in pace.namespaces() {
        let absence = namespace.thresholds.leader_absent.map(|absence| pace.of(absence).max(SHORTEST_ABSENCE));
        let times = [
            ("ttl", namespace.ttl.map(|time| pace.of(time))),
            ("renew_every", namespace.renew_every.map(|time| pace.of(time))),
            ("retry_every", namespace.retry_every.map(|time| pace.of(time).max(SHORTEST_RETRY))),
            ("takeover_slo", namespace.takeover_slo.map(|time| pace.of(time))),
            ("max_hold", namespace.thresholds.max_hold.map(|time| pace.of(time))),
            ("leader_absent", absence),
        ];
        let _ = writeln!(yaml, "  - name: {}", namespace.name);
        for (field, time) in times.into_iter().filter_map(|(field, time)| Some((field, time?))) {
            let _ = writeln!(yaml, "    {field}: {}", format_duration(time));
        }
    }
    yaml
}
