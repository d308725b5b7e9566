//! Debian's Prometheus, scraping exporters once a second.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::http::ask;
use crate::redis::{eventually, free_port};

pub(super) struct Prometheus {
    child: Child,
    pub(super) address: SocketAddr,
    directory: TempDir,
}

impl Prometheus {
    pub(super) fn start(exporters: &[SocketAddr]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let targets: Vec<String> = exporters.iter().map(|address| format!("'{address}'")).collect();
        let config = format!(
            "global: {{scrape_interval: 1s}}\nscrape_configs:\n  - {{job_name: locks, static_configs: [{{targets: [{}]}}]}}\n",
            targets.join(", ")
        );
        fs::write(directory.path().join("prometheus.yml"), config).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let place = directory.path().display();
        let arguments = [
            format!("--config.file={place}/prometheus.yml"),
            format!("--storage.tsdb.path={place}/data"),
            format!("--web.listen-address={address}"),
        ];
        let log = || Stdio::from(File::options().create(true).append(true).open(directory.path().join("log")).unwrap());
        let mut command = Command::new("prometheus");
        command.args(arguments).stdin(Stdio::null()).stdout(log()).stderr(log());
        let child = command.spawn().expect("prometheus is missing: scripts/install.sh installs it");
        let mut prometheus = Self { child, address, directory };
        eventually("prometheus", || {
            let ended = prometheus.child.try_wait().unwrap();
            assert!(ended.is_none(), "prometheus: {ended:?}\n{}", prometheus.log());
            std::net::TcpStream::connect(address).ok()?;
            (prometheus.get("/-/ready").0 == 200).then_some(())
        });
        prometheus
    }

    /// The first value of an instant query.
    pub(super) fn number(&self, query: &str) -> Option<f64> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let (status, body) = self.get(&format!("/api/v1/query?query={encoded}"));
        assert_eq!(status, 200, "{query}: {body}");
        let answer: Value = serde_json::from_str(&body).unwrap();
        answer["data"]["result"][0]["value"][1].as_str()?.parse().ok()
    }

    fn get(&self, path: &str) -> (u16, String) {
        // 1.0: an answer in one piece.
        let answer = ask(self.address, &format!("GET {path} HTTP/1.0\r\nHost: test\r\n\r\n"));
        (answer.status, answer.text())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
