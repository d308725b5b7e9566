//! Tests the example configuration for Alertmanager: amtool accepts it, every alert of the pack
//! reaches its receiver, and a running Alertmanager mutes exactly the expected alerts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::redis::{eventually, listens, on_free_port};
use crate::runbooks::pack::{Rule, alerts};

pub(crate) const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/alerts/alertmanager.yml");
/// The program's name in Debian, and its name upstream.
const PROGRAMS: [&str; 2] = ["prometheus-alertmanager", "alertmanager"];

#[test]
fn amtool_accepts_the_example() {
    amtool(&["check-config", CONFIG]);
}

#[test]
fn every_alert_reaches_its_receiver() {
    for (name, rules) in alerts() {
        for rule in rules {
            let receiver = match rule.labels["severity"].as_str() {
                "critical" => "lock-pager",
                "warning" => "lock-tickets",
                "info" => "nobody",
                other => panic!("{name}: severity {other}"),
            };
            let labels: Vec<String> = rule.labels.iter().map(|(label, value)| format!("{label}={value}")).collect();
            assert_eq!(route(&labels), receiver, "{name}");
        }
    }
    assert_eq!(route(&["alertname=Other".to_owned(), "severity=critical".to_owned()]), "nobody");
}

#[test]
fn a_page_mutes_the_tickets_of_its_namespace_only() {
    let page = firing("RedisLockNotOwnedRatioHigh", "critical").of("workflow");
    let early_sign = firing("RedisLockExpiryRatioHigh", "warning");
    check(&[page, early_sign.clone().of("workflow"), early_sign.clone().of("approval")], &[1]);
    // Two alerts that both lack a label do not share a namespace.
    check(&[firing("RedisLockExporterAbsent", "critical"), firing("RedisLockStateNotSaved", "warning")], &[]);
    check(&[firing("RedisLockExporterAbsent", "critical"), firing("RedisLockExporterAbsent", "warning")], &[1]);
}

#[test]
fn redis_down_mutes_symptoms_but_not_consequences() {
    let symptoms = [
        "RedisLockNotOwnedRatioHigh",
        "RedisLockRenewalFailureRatioHigh",
        "RedisLockMassRenewalOverdue",
        "RedisLockAcquireFailing",
    ];
    let damage = ["RedisLockUnlockedWork", "RedisLockDuplicateTerminalState", "RedisLockFenceRegression"];
    let mut posted = vec![firing("RedisLockRedisDown", "critical")];
    posted.extend(symptoms.iter().chain(&damage).map(|name| firing(name, "critical").of("workflow")));
    posted.push(firing("RedisLockStateNotSaved", "warning"));
    posted.push(firing("RedisLockNotOwnedRatioHigh", "critical").of("workflow").in_cluster("other"));
    check(&posted, &[1, 2, 3, 4]);
}

#[test]
fn a_partial_redis_outage_mutes_nothing() {
    let posted = [
        firing("RedisLockRedisDown", "critical").with("scope", "part"),
        firing("RedisLockRenewalFailureRatioHigh", "critical").of("workflow"),
        firing("RedisLockAcquireFailing", "critical").of("scheduler"),
    ];
    check(&posted, &[]);
}

#[test]
fn unlocked_work_pages_when_locks_cannot_be_acquired() {
    let posted = [
        firing("RedisLockUnlockedWork", "critical").of("workflow"),
        firing("RedisLockAcquireFailing", "critical").of("workflow"),
        firing("RedisLockAcquireFailing", "critical").of("scheduler"),
        firing("RedisLockAcquireFailing", "critical").of("workflow").in_cluster("other"),
    ];
    check(&posted, &[1]);
}

#[test]
fn a_failover_mutes_related_tickets_but_no_page() {
    let mut posted = vec![firing("RedisLockFailoverObserved", "info")];
    let mut muted = Vec::new();
    for (name, rules) in alerts() {
        // These alerts mute other alerts.
        let muting =
            ["RedisLockRedisDown", "RedisLockExporterAbsent", "RedisLockFailoverObserved", "RedisLockUnlockedWork"];
        if muting.contains(&name.as_str()) {
            continue;
        }
        for rule in rules {
            let is_sensitive = rule.labels.get("failover_sensitive").is_some_and(|value| value == "true");
            assert!(!is_sensitive || rule.labels["severity"] == "warning", "{name}: a failover could mute this page");
            if is_sensitive {
                muted.push(posted.len());
            }
            // A page would mute the tickets of its own namespace.
            let namespace = if rule.labels["severity"] == "critical" { "workflow" } else { "approval" };
            posted.push(Firing::new(&name, &rule).of(namespace));
        }
    }
    assert!(muted.len() >= 3, "too few tickets are failover-sensitive");
    // A page is not muted even if someone marks it as failover-sensitive.
    posted.push(firing("RedisLockLeaderAbsent", "critical").of("marked").with("failover_sensitive", "true"));
    check(&posted, &muted);
}

/// Posts the alerts to an Alertmanager, and compares the indexes of the alerts that it mutes.
#[track_caller]
fn check(posted: &[Firing], muted: &[usize]) {
    // Takes the place of the receivers, so that no message leaves the test. It never answers.
    let receivers = TcpListener::bind("127.0.0.1:0").unwrap();
    let alertmanager = Alertmanager::start(&fs::read_to_string(CONFIG).unwrap(), receivers.local_addr().unwrap());
    alertmanager.post(posted);
    // Alertmanager processes alerts in order. When it mutes this pair, it has processed all earlier
    // alerts.
    let canary = [
        firing("RedisLockNotOwnedRatioHigh", "critical").of("canary"),
        firing("RedisLockExpiryRatioHigh", "warning").of("canary"),
    ]
    .map(|alert| alert.in_cluster("canary"));
    alertmanager.post(&canary);
    let shown = eventually("Alertmanager to mute the canary alert", || {
        let shown = alertmanager.muted();
        shown.contains(&canary[1].0).then_some(shown)
    });
    let expected: BTreeSet<_> =
        muted.iter().map(|index| posted[*index].0.clone()).chain([canary[1].0.clone()]).collect();
    let differing: Vec<_> = shown.symmetric_difference(&expected).collect();
    assert!(differing.is_empty(), "wrongly muted or wrongly not muted: {differing:#?}");
}

/// The labels of a firing alert.
#[derive(Clone)]
struct Firing(BTreeMap<String, String>);

fn firing(name: &str, severity: &str) -> Firing {
    let rules = alerts().remove(name).unwrap_or_else(|| panic!("no alert {name}"));
    let rule = rules.iter().find(|rule| rule.labels["severity"] == severity);
    Firing::new(name, rule.unwrap_or_else(|| panic!("{name} is never {severity}")))
}

impl Firing {
    fn new(name: &str, rule: &Rule) -> Self {
        let mut labels = rule.labels.clone();
        labels.insert("alertname".to_owned(), name.to_owned());
        Self(labels).in_cluster("main")
    }

    fn of(self, namespace: &str) -> Self {
        self.with("lock_namespace", namespace)
    }

    fn in_cluster(self, cluster: &str) -> Self {
        self.with("cluster", cluster)
    }

    fn with(mut self, label: &str, value: &str) -> Self {
        self.0.insert(label.to_owned(), value.to_owned());
        self
    }
}

pub(crate) struct Alertmanager {
    child: Child,
    pub(crate) address: SocketAddr,
    _directory: TempDir,
}

impl Alertmanager {
    /// Starts Alertmanager with the example's configuration. Only the address of the receivers
    /// differs.
    pub(crate) fn start(config: &str, receivers: SocketAddr) -> Self {
        on_free_port("alertmanager", |port| Self::try_start(port, config, receivers))
    }

    fn try_start(port: u16, config: &str, receivers: SocketAddr) -> Option<Self> {
        let text = config.replace("127.0.0.1:5001", &receivers.to_string());
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("alertmanager.yml");
        fs::write(&config, text).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let arguments = [
            format!("--config.file={}", config.display()),
            format!("--storage.path={}", directory.path().display()),
            format!("--web.listen-address={address}"),
            "--cluster.listen-address=".to_owned(),
        ];
        let start = |program| {
            let mut command = Command::new(program);
            command.args(&arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.spawn().ok()
        };
        let child = PROGRAMS.into_iter().find_map(start);
        let child = child.expect("alertmanager is missing: scripts/install.sh installs it");
        let mut alertmanager = Self { child, address, _directory: directory };
        listens(&mut alertmanager.child, port).then_some(alertmanager)
    }

    fn post(&self, alerts: &[Firing]) {
        let body: Vec<Value> = alerts.iter().map(|alert| json!({"labels": alert.0})).collect();
        self.curl(&["--header", "Content-Type: application/json", "--data", &Value::from(body).to_string()]);
    }

    /// Returns the labels of the alerts that an inhibition mutes now.
    fn muted(&self) -> BTreeSet<BTreeMap<String, String>> {
        let alerts: Value = serde_json::from_str(&self.curl(&[])).unwrap();
        let is_muted = |alert: &&Value| alert["status"]["inhibitedBy"].as_array().is_some_and(|by| !by.is_empty());
        let muted = alerts.as_array().unwrap().iter().filter(is_muted);
        muted.map(|alert| serde_json::from_value(alert["labels"].clone()).unwrap()).collect()
    }

    fn curl(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--fail-with-body", "--max-time", "20"]).args(arguments);
        let output = command.arg(format!("http://{}/api/v2/alerts", self.address)).stdin(Stdio::null()).output();
        let output = output.expect("curl is missing: scripts/install.sh installs it");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Alertmanager {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn route(labels: &[String]) -> String {
    let mut arguments = vec!["config", "routes", "test", "--config.file", CONFIG];
    arguments.extend(labels.iter().map(String::as_str));
    amtool(&arguments).trim().to_owned()
}

fn amtool(arguments: &[&str]) -> String {
    let output = Command::new("amtool").args(arguments).stdin(Stdio::null()).output();
    let output = output.expect("amtool is missing: scripts/install.sh installs it");
    assert!(output.status.success(), "amtool {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
