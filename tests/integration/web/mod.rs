//! Tests access to the exporter: TLS, client certificates, passwords, sockets, and notifications to
//! systemd. The clients are curl and Prometheus, as in production.

mod files;
mod healthcheck;
mod prometheus;
mod rotation;
mod secrets;
mod sockets;
mod systemd;
mod tls;
mod users;

use std::fs;
use std::process::{Command, Stdio};

use crate::daemon::{Daemon, text};
use crate::redis::certificates::Certificates;
use crate::redis::eventually;
use crate::site::Site;

const PASSWORD: &str = "correct horse";
/// The cheapest cost. These tests do not test its strength.
const COST: u32 = 4;

const TLS: &str = "tls_server_config: {cert_file: server.pem, key_file: server.key}\n";

/// The response that curl received.
struct Reply {
    status: u16,
    /// Names are in lower case.
    headers: String,
    body: String,
    /// The error message of curl, if there was no response.
    error: String,
}

impl Reply {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// Sends a request with curl. A status of 0 means no response.
fn curl(arguments: &[&str]) -> Reply {
    let directory = tempfile::tempdir().unwrap();
    let (head, body) = (directory.path().join("head"), directory.path().join("body"));
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "60", "--noproxy", "*", "--write-out", "%{http_code}"]);
    command.args(["--dump-header", text(&head), "--output", text(&body)]).args(arguments).stdin(Stdio::null());
    let output = command.output().expect("curl is missing: scripts/install.sh installs it");
    let read = |path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let names_in_lower_case = |line: &str| match line.split_once(':') {
        Some((name, value)) => format!("{}:{value}\n", name.to_ascii_lowercase()),
        None => format!("{line}\n"),
    };
    Reply {
        status: String::from_utf8_lossy(&output.stdout).parse().unwrap_or(0),
        headers: read(&head).lines().map(names_in_lower_case).collect(),
        body: read(&body),
        error: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn hash(password: &str) -> String {
    bcrypt::hash(password, COST).unwrap()
}

/// A site whose exporter uses a web configuration file. Certificates are in the same directory as
/// that file.
struct Secured {
    site: Site,
    certificates: Certificates,
}

impl Secured {
    fn new(web: &str) -> Self {
        let secured = Self { site: Site::new(), certificates: Certificates::new() };
        secured.configure(web);
        secured
    }

    fn configure(&self, web: &str) {
        fs::write(self.path("web.yml"), web).unwrap();
    }

    /// Returns the path of a certificate, a key, or the configuration file.
    fn path(&self, name: &str) -> String {
        text(&self.certificates.path(name)).to_owned()
    }

    fn start(&self, flags: &[&str]) -> Daemon {
        let (logs, web) = (self.site.full_path("logs/*.log"), self.path("web.yml"));
        let state = self.site.full_path("state");
        let arguments = ["--preset", "cordum", "--logs.path", &logs, "--state.dir", &state, "--web.config.file", &web];
        Daemon::start(&[&arguments[..], flags].concat())
    }

    /// Sends a request with curl over https and trusts our CA.
    fn get(&self, daemon: &Daemon, path: &str, arguments: &[&str]) -> Reply {
        let ca = self.path("ca.pem");
        let url = format!("https://127.0.0.1:{}{path}", daemon.address.port());
        curl(&[&["--cacert", &ca], arguments, &[&url]].concat())
    }

    /// Waits until a request gets this status.
    fn wait_for_status(&self, daemon: &Daemon, path: &str, arguments: &[&str], status: u16) {
        eventually(&format!("the status {status} of {path} with {arguments:?}"), || {
            (self.get(daemon, path, arguments).status == status).then_some(())
        });
    }
}
