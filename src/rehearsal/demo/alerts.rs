//! The life cycle of each alert that Prometheus reports: pending, firing, gone. `demo_run` updates it
//! after every query; `view` and `summary` show it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The labels that identify an alert.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AlertName {
    #[serde(rename(deserialize = "alertname"))]
    pub(super) alert: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lock_namespace: Option<String>,
    pub(super) severity: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum AlertState {
    Pending,
    Firing,
    Gone,
}

/// An alert in a response of Prometheus.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct PrometheusAlert {
    pub(super) labels: AlertName,
    pub(super) state: AlertState,
    #[serde(default)]
    pub(super) annotations: Annotations,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Annotations {
    #[serde(default)]
    pub(super) description: String,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Alert {
    #[serde(flatten)]
    pub(super) name: AlertName,
    pub(super) state: AlertState,
    /// Time since the start of the demo.
    #[serde(rename = "pending_after_seconds", serialize_with = "seconds")]
    pub(super) pending: Option<Duration>,
    #[serde(rename = "firing_after_seconds", serialize_with = "seconds")]
    pub(super) firing: Option<Duration>,
    pub(super) description: String,
}

#[derive(Default)]
pub(super) struct Alerts(pub(super) Vec<Alert>);

impl Alerts {
    /// Applies the alerts that Prometheus reports now. Returns a line of text for each change.
    pub(super) fn update(&mut self, reported: Vec<PrometheusAlert>, now: Duration) -> Vec<String> {
        let mut changes = Vec::new();
        for known in &mut self.0 {
            if known.state != AlertState::Gone && !reported.iter().any(|reported| reported.labels == known.name) {
                known.state = AlertState::Gone;
                changes.push(format!("{} is over", known.name));
            }
        }
        for reported in reported {
            let index = self.0.iter().position(|known| known.name == reported.labels).unwrap_or_else(|| {
                let (name, description) = (reported.labels.clone(), String::new());
                self.0.push(Alert { name, state: AlertState::Gone, pending: None, firing: None, description });
                self.0.len() - 1
            });
            let known = &mut self.0[index];
            if known.state != reported.state {
                known.state = reported.state;
                let (first, word) = match reported.state {
                    AlertState::Firing => (&mut known.firing, "FIRES"),
                    _ => (&mut known.pending, "is pending"),
                };
                first.get_or_insert(now);
                changes.push(format!("{} {word}", known.name));
            }
            known.description = reported.annotations.description;
        }
        changes
    }
}

impl std::fmt::Display for AlertName {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} ({}", self.alert, self.severity)?;
        if let Some(namespace) = &self.lock_namespace {
            write!(formatter, ", {namespace}")?;
        }
        write!(formatter, ")")
    }
}

fn seconds<S: serde::Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| (time.as_secs_f64() * 10.0).round() / 10.0).serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(state: &str) -> Vec<PrometheusAlert> {
        let json = format!(
            r#"[{{"labels":{{"alertname":"A","severity":"critical","lock_namespace":"n","x":"y"}},"state":"{state}","annotations":{{}}}}]"#
        );
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn each_change_is_told_once() {
        let mut alerts = Alerts::default();
        let mut update = |reported, second| alerts.update(reported, Duration::from_secs(second));
        assert_eq!(update(reported("pending"), 1), ["A (critical, n) is pending"]);
        assert_eq!(update(reported("pending"), 2), [""; 0]);
        assert_eq!(update(reported("firing"), 3), ["A (critical, n) FIRES"]);
        assert_eq!(update(Vec::new(), 4), ["A (critical, n) is over"]);
        assert_eq!(update(Vec::new(), 5), [""; 0]);
        assert_eq!(update(reported("firing"), 6), ["A (critical, n) FIRES"]);
        let alert = &alerts.0[0];
        assert_eq!((alert.pending, alert.firing), (Some(Duration::from_secs(1)), Some(Duration::from_secs(3))));
    }
}
