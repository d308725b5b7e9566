//! The configuration files for the programs of the demo. Alert rules and the Alertmanager
//! configuration are the bundled ones with shorter durations.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use crate::rehearsal::fleet::cordum::{TimeScale, exporter_settings};
use crate::rehearsal::rule_scaling::{scale, to_text};

const RULES: &str = include_str!("../../../alerts/redis_lock.rules.yml");
const ALERTMANAGER: &str = include_str!("../../../alerts/alertmanager.yml");
/// The receiver address in the bundled Alertmanager configuration.
const EXAMPLE_RECEIVER: &str = "127.0.0.1:5001";
/// The rules need a scrape at least every 30 s. Scraping more often shows more detail.
const SCRAPE_EVERY: Duration = Duration::from_secs(10);
/// The exporter publishes once a second, so scraping much more often would show nothing new.
const SHORTEST_SCRAPE: Duration = Duration::from_millis(300);
const RULES_EVERY: Duration = Duration::from_secs(30);

/// The preset `cordum` with the durations of the fleet.
pub(super) fn exporter(pace: &TimeScale, redis_port: u16, logs: &Path) -> String {
    format!(
        "logs:\n  - path: {}\n    start_at: beginning\nredis:\n  name: demo\n  url: redis://127.0.0.1:{redis_port}/0\n{}",
        serde_json::Value::from(format!("{}/*.log", logs.display())),
        exporter_settings(pace),
    )
}

pub(super) fn prometheus(pace: &TimeScale, exporter: &str, alertmanager: Option<&str>) -> String {
    let scrape_every = to_text(scrape_every(pace));
    let mut yaml = format!(
        "global: {{scrape_interval: {scrape_every}, scrape_timeout: {scrape_every}, evaluation_interval: {}}}\n\
         rule_files: [rules.yml]\n\
         scrape_configs:\n  - job_name: redis_lock_exporter\n    static_configs: [{{targets: ['{exporter}']}}]\n",
        to_text(pace.of(RULES_EVERY)),
    );
    if let Some(alertmanager) = alertmanager {
        let _ = writeln!(yaml, "alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{alertmanager}']}}]}}]}}");
    }
    yaml
}

pub(super) fn scrape_every(pace: &TimeScale) -> Duration {
    pace.of(SCRAPE_EVERY).max(SHORTEST_SCRAPE)
}

pub(super) fn rules(pace: &TimeScale) -> String {
    scale(RULES, pace.speed())
}

pub(super) fn alertmanager(pace: &TimeScale, receiver: &str) -> String {
    scale(ALERTMANAGER, pace.speed()).replace(EXAMPLE_RECEIVER, receiver)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Overrides};

    #[test]
    fn the_exporter_accepts_it_at_every_speed() {
        for speed in [1, 7, 20, TimeScale::FASTEST] {
            let pace = TimeScale::new(speed).unwrap();
            let text = exporter(&pace, 6379, Path::new("/tmp/a \"b\"/logs"));
            let config = Config::from_yaml("demo.yaml", &text, &Overrides::default());
            let config = config.unwrap_or_else(|problems| panic!("speed {speed}: {problems}\n{text}"));
            let workflow = config.namespaces.iter().find(|namespace| namespace.name == "workflow").unwrap();
            assert_eq!(workflow.ttl.map(|ttl| ttl.as_millis()), Some(u128::from(30_000 / speed)));
        }
    }

    #[test]
    fn receivers_are_ours() {
        let text = alertmanager(&TimeScale::new(10).unwrap(), "127.0.0.1:7");
        assert_eq!((text.matches("127.0.0.1:7/").count(), text.matches(EXAMPLE_RECEIVER).count()), (2, 0));
    }
}
