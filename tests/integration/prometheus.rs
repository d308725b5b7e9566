//! Debian's Prometheus as a child process, in a directory of its own on a free port.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::redis::{eventually, free_port};

pub(crate) struct Prometheus {
    child: Child,
    pub(crate) address: SocketAddr,
    directory: TempDir,
}

impl Prometheus {
    /// Waits until it is ready. `files` are names and texts of what the configuration mentions.
    pub(crate) fn start(config: &str, files: &[(&str, &str)], flags: &[String]) -> Self {
        // Somebody may take the port between our look at it and the server's.
        let mut log = String::new();
        for _ in 0..5 {
            match Self::try_start(config, files, flags) {
                Ok(prometheus) => return prometheus,
                Err(ended) => log = ended,
            }
        }
        panic!("prometheus does not start: {log}");
    }

    /// What it said, if it has ended.
    fn try_start(config: &str, files: &[(&str, &str)], flags: &[String]) -> Result<Self, String> {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in [("prometheus.yml", config)].iter().chain(files) {
            fs::write(directory.path().join(name), text).unwrap();
        }
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let log = || Stdio::from(File::options().create(true).append(true).open(directory.path().join("log")).unwrap());
        let mut command = Command::new("prometheus");
        command.current_dir(&directory).args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"]);
        command.arg(format!("--web.listen-address={address}")).args(flags);
        command.stdin(Stdio::null()).stdout(log()).stderr(log());
        let child = command.spawn().expect("prometheus is missing: scripts/install.sh installs it");
        let mut prometheus = Self { child, address, directory };
        let ended = eventually("prometheus", || {
            if let Some(status) = prometheus.child.try_wait().unwrap() {
                return Some(Some(status));
            }
            TcpStream::connect(address).ok()?;
            prometheus.get("-/ready", &["--fail"]).map(|_| None)
        });
        match ended {
            None => Ok(prometheus),
            Some(status) => Err(format!("{status}\n{}", prometheus.log())),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// The labels and values of an instant query. Nothing while Prometheus is too busy to answer.
    pub(crate) fn query(&self, query: &str) -> Vec<(Value, f64)> {
        let Some(data) = self.data("query", &["--data-urlencode", &format!("query={query}")]) else {
            return Vec::new();
        };
        let results = data["result"].as_array().unwrap().iter();
        results
            .map(|result| (result["metric"].clone(), result["value"][1].as_str().unwrap().parse().unwrap()))
            .collect()
    }

    /// The largest value of a query, if it has any.
    pub(crate) fn number(&self, query: &str) -> Option<f64> {
        self.query(query).into_iter().map(|(_, value)| value).reduce(f64::max)
    }

    /// What the API answers; `flags` are curl's.
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
