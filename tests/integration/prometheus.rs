//! Runs Debian's Prometheus as a child process, in its own directory and on a free port.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::redis::{eventually, listens, on_free_port};

pub(crate) struct Prometheus {
    child: Child,
    pub(crate) address: SocketAddr,
    directory: TempDir,
}

impl Prometheus {
    /// Starts Prometheus and waits until it is ready. `files` holds the names and contents of the
    /// files that the configuration refers to.
    pub(crate) fn start(config: &str, files: &[(&str, &str)], flags: &[String]) -> Self {
        on_free_port("prometheus", |port| Self::try_start(port, config, files, flags))
    }

    /// Prints the log and returns `None` if Prometheus exits.
    fn try_start(port: u16, config: &str, files: &[(&str, &str)], flags: &[String]) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in [("prometheus.yml", config)].iter().chain(files) {
            fs::write(directory.path().join(name), text).unwrap();
        }
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let log = || Stdio::from(File::options().create(true).append(true).open(directory.path().join("log")).unwrap());
        let mut command = Command::new("prometheus");
        command.current_dir(&directory).args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"]);
        command.arg(format!("--web.listen-address={address}")).args(flags);
        command.stdin(Stdio::null()).stdout(log()).stderr(log());
        let child = command.spawn().expect("prometheus is missing: scripts/install.sh installs it");
        let mut prometheus = Self { child, address, directory };
        if !listens(&mut prometheus.child, port) {
            eprintln!("prometheus ended:\n{}", prometheus.log());
            return None;
        }
        eventually("Prometheus to be ready", || prometheus.get("-/ready", &["--fail"]));
        Some(prometheus)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Returns the labels and values of an instant query. Returns nothing while Prometheus is too
    /// busy to answer.
    pub(crate) fn query(&self, query: &str) -> Vec<(Value, f64)> {
        let Some(data) = self.data("query", &["--data-urlencode", &format!("query={query}")]) else {
            return Vec::new();
        };
        let results = data["result"].as_array().unwrap().iter();
        results
            .map(|result| (result["metric"].clone(), result["value"][1].as_str().unwrap().parse().unwrap()))
            .collect()
    }

    /// Returns the largest value of a query, or `None` if the query has no result.
    pub(crate) fn number(&self, query: &str) -> Option<f64> {
        self.query(query).into_iter().map(|(_, value)| value).reduce(f64::max)
    }

    /// Returns the data in an API response. `flags` are passed to curl.
    pub(crate) fn data(&self, what: &str, flags: &[&str]) -> Option<Value> {
        let answer: Value = serde_json::from_slice(&self.get(&format!("api/v1/{what}"), flags)?).ok()?;
        assert_eq!(answer["status"], "success", "{what} {flags:?}: {answer}");
        Some(answer["data"].clone())
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    fn get(&self, path: &str, flags: &[&str]) -> Option<Vec<u8>> {
        let mut command = Command::new("curl");
        command.args(["--silent", "--max-time", "20", "--get"]).args(flags).arg(format!("{}{path}", self.url()));
        let output = command.stdin(Stdio::null()).output().expect("curl is missing: scripts/install.sh installs it");
        output.status.success().then_some(output.stdout)
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
