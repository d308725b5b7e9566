//! The settings of an exporter that observes the fleet: the preset `cordum` with the durations of
//! the fleet.

use std::fmt::Write as _;
use std::time::Duration;

use super::TimeScale;
use crate::util::units::format_duration;

/// The exporter publishes once a second at any speed of the fleet, so a shorter absence could not
/// be noticed.
const SHORTEST_ABSENCE: Duration = Duration::from_secs(3);

/// Durations in the configuration have a resolution of one millisecond.
const SHORTEST_RETRY: Duration = Duration::from_millis(1);

/// Returns part of a configuration. The caller adds `redis`, `logs` and other sections. The text
/// ends with the list of namespaces, so the caller can append more of them.
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
