//! Debian's Prometheus with the rules of the pack, scraping one exporter and telling one Alertmanager.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::compression::Compression;
use crate::redis::{eventually, free_port};

const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/alerts/redis_lock.rules.yml");

pub(super) struct Prometheus {
    child: Child,
    address: SocketAddr,
    directory: TempDir,
}

impl Prometheus {
    /// Scrapes every 15 s, evaluates every 30 s, and has Prometheus's defaults otherwise: all of it compressed.
    pub(super) fn start(compression: Compression, exporter: SocketAddr, alertmanager: SocketAddr) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), compression.apply(text)).unwrap();
        write("rules.yml", &fs::read_to_string(RULES).unwrap());
        let config = "global: {scrape_interval: 15s, evaluation_interval: 30s}\n\
             rule_files: [rules.yml]\n\
             alerting: {alertmanagers: [{static_configs: [{targets: ['ALERTMANAGER']}]}]}\n\
             scrape_configs:\n\
             \x20 - {job_name: locks, static_configs: [{targets: ['EXPORTER'], labels: {cluster: main}}]}\n";
        // Addresses go in last: a port is no duration, but who knows.
        let config = compression.apply(config).replace("ALERTMANAGER", &alertmanager.to_string());
        fs::write(directory.path().join("prometheus.yml"), config.replace("EXPORTER", &exporter.to_string())).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let place = directory.path().display();
        let arguments = [
            format!("--config.file={place}/prometheus.yml"),
            format!("--storage.tsdb.path={place}/data"),
            format!("--web.listen-address={address}"),
            compression.apply("--rules.alert.resend-delay=1m"),
            compression.apply("--query.lookback-delta=5m"),
        ];
        let log = || Stdio::from(File::options().create(true).append(true).open(directory.path().join("log")).unwrap());
        let mut command = Command::new("prometheus");
        command.args(arguments).stdin(Stdio::null()).stdout(log()).stderr(log());
        let child = command.spawn().expect("prometheus is missing: scripts/install.sh installs it");
        let mut prometheus = Self { child, address, directory };
        eventually("prometheus", || {
            let ended = prometheus.child.try_wait().unwrap();
            assert!(ended.is_none(), "prometheus: {ended:?}\n{}", prometheus.log());
            TcpStream::connect(address).ok()
        });
        prometheus
    }

    /// The labels and values of an instant query, its durations compressed. Nothing while Prometheus is not ready.
    pub(super) fn query(&self, compression: Compression, query: &str) -> Vec<(Value, f64)> {
        let mut command = Command::new("curl");
        command.args(["--silent", "--max-time", "20", "--get", "--data-urlencode"]);
        command.arg(format!("query={}", compression.apply(query)));
        let output = command.arg(format!("http://{}/api/v1/query", self.address)).stdin(Stdio::null()).output();
        let output = output.expect("curl is missing: scripts/install.sh installs it");
        let Ok(answer) = serde_json::from_slice::<Value>(&output.stdout) else { return Vec::new() };
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        let results = answer["data"]["result"].as_array().unwrap().iter();
        results
            .map(|result| (result["metric"].clone(), result["value"][1].as_str().unwrap().parse().unwrap()))
            .collect()
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
