//! Tests a real Prometheus that scrapes over TLS, with a certificate and a password.

use super::{PASSWORD, Secured, TLS, hash};
use crate::prometheus::Prometheus;
use crate::redis::eventually;

/// Returns the health and the last error of the only target.
fn target(prometheus: &Prometheus) -> Option<(String, String)> {
    let targets = prometheus.data("targets", &[])?;
    let target = &targets["activeTargets"][0];
    Some((target["health"].as_str()?.to_owned(), target["lastError"].as_str()?.to_owned()))
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
        let config = format!(
            "global: {{scrape_interval: 5s, scrape_timeout: 5s}}
scrape_configs:
- job_name: redis_lock_exporter
  scheme: https
  basic_auth: {{username: scraper, password: '{password}'}}
  tls_config: {{ca_file: '{}'{certificate}}}
  static_configs: [{{targets: ['{}']}}]
",
            secured.path("ca.pem"),
            daemon.address
        );
        Prometheus::start(&config, &[], &[])
    };
    let (certificate, key) = (secured.path("client.pem"), secured.path("client.key"));
    let own = format!(", cert_file: '{certificate}', key_file: '{key}'");
    let prometheus = scrape(PASSWORD, &own);
    eventually("a successful scrape", || (target(&prometheus)?.0 == "up").then_some(()));
    eventually("our metrics in Prometheus", || {
        (prometheus.number("redis_lock_exporter_config_last_reload_successful")? == 1.0).then_some(())
    });
    for (password, certificate, told) in
        [("wrong", own.as_str(), "401 Unauthorized"), (PASSWORD, "", "certificate required")]
    {
        let prometheus = scrape(password, certificate);
        eventually(&format!("a scrape refused with {told}"), || {
            let (health, error) = target(&prometheus)?;
            // Go 1.19 calls this alert "bad certificate".
            let is_told = error.contains(told) || told.contains("certificate") && error.contains("certificate");
            (health == "down" && is_told).then_some(())
        });
    }
}
