//! A real Prometheus that scrapes over TLS, with a certificate and a password.

use std::fs;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::{PASSWORD, Secured, TLS, hash};
use crate::daemon::text;
use crate::http::ask;
use crate::redis::{eventually, free_port};

struct Prometheus {
    child: Child,
    address: SocketAddr,
    _directory: TempDir,
}

impl Prometheus {
    fn start(scrape: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("prometheus.yml");
        fs::write(&config, format!("global: {{scrape_interval: 500ms, scrape_timeout: 500ms}}\n{scrape}")).unwrap();
        let address: SocketAddr = ([127, 0, 0, 1], free_port()).into();
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", text(&config)));
        command.arg(format!("--storage.tsdb.path={}", text(&directory.path().join("data"))));
        command.arg(format!("--web.listen-address={address}"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("prometheus is missing: scripts/install.sh installs it");
        Self { child, address, _directory: directory }
    }

    /// The target that there is: its health and its last error.
    fn target(&self) -> Option<(String, String)> {
        std::net::TcpStream::connect(self.address).ok()?;
        let answer = ask(self.address, "GET /api/v1/targets HTTP/1.1\r\nHost: a\r\n\r\n");
        let targets: Value = serde_json::from_slice(&answer.body).ok()?;
        let target = &targets["data"]["activeTargets"][0];
        Some((target["health"].as_str()?.to_owned(), target["lastError"].as_str()?.to_owned()))
    }

    fn value(&self, query: &str) -> Option<f64> {
        let answer = ask(self.address, &format!("GET /api/v1/query?query={query} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let answer: Value = serde_json::from_slice(&answer.body).ok()?;
        answer["data"]["result"][0]["value"][1].as_str()?.parse().ok()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn prometheus_scrapes_with_a_certificate_and_a_password() {
    let secured = Secured::new(&format!(
        "{}, client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.pem}}\nbasic_auth_users: {{scraper: {}}}\n",
        TLS.trim_end().trim_end_matches('}'),
        hash(PASSWORD)
    ));
    let daemon = secured.start(&[]);
    let scrape = |password: &str, certificate: &str| {
        Prometheus::start(&format!(
            "scrape_configs:
- job_name: redis_lock_exporter
  scheme: https
  basic_auth: {{username: scraper, password: '{password}'}}
  tls_config: {{ca_file: '{}'{certificate}}}
  static_configs: [{{targets: ['{}']}}]
",
            secured.path("ca.pem"),
            daemon.address
        ))
    };
    let (certificate, key) = (secured.path("client.pem"), secured.path("client.key"));
    let own = format!(", cert_file: '{certificate}', key_file: '{key}'");
    let prometheus = scrape(PASSWORD, &own);
    eventually("a good scrape", || (prometheus.target()?.0 == "up").then_some(()));
    eventually("our metrics", || {
        (prometheus.value("redis_lock_exporter_config_last_reload_successful")? == 1.0).then_some(())
    });
    for (password, certificate, told) in
        [("wrong", own.as_str(), "401 Unauthorized"), (PASSWORD, "", "certificate required")]
    {
        let prometheus = scrape(password, certificate);
        let error = eventually("a refused scrape", || {
            let (health, error) = prometheus.target()?;
            (health == "down").then_some(error)
        });
        // Go 1.19 calls this alert "bad certificate".
        assert!(error.contains(told) || told.contains("certificate") && error.contains("certificate"), "{error}");
    }
}
