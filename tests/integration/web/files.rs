//! Tests the web configuration file: errors in bad files, and that Prometheus accepts every file
//! that the exporter accepts.

use std::fs;
use std::process::Command;

use super::{PASSWORD, Secured, TLS, hash};
use crate::daemon::command;

/// Returns the exit code and all output of `check` for a file.
fn check(secured: &Secured, web: &str) -> (i32, String) {
    secured.configure(web);
    let path = secured.path("web.yml");
    let output = command(&["check", "--web.config.file", &path]);
    let printed = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(printed).unwrap().replace(&path, "web.yml"))
}

fn promtool_accepts(secured: &Secured) -> bool {
    let output = Command::new("promtool").args(["check", "web-config", &secured.path("web.yml")]).output();
    output.expect("promtool is missing: scripts/install.sh installs it").status.success()
}

#[test]
fn hashes_of_different_costs_produce_a_warning() {
    let secured = Secured::new("");
    let users = |cost: u32| {
        let slower = bcrypt::hash(PASSWORD, cost).unwrap();
        format!("basic_auth_users: {{me: {}, you: {slower}}}\n", hash(PASSWORD))
    };
    let (code, printed) = check(&secured, &users(5));
    assert!(code == 0 && printed.contains("costs from 4 to 5"), "{printed}");
    let output = command(&["check", "--web.config.file", &secured.path("web.yml"), "--output", "json"]);
    let findings: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    let costs = findings.iter().find(|finding| finding["message"].as_str().unwrap().contains("costs from 4 to 5"));
    assert_eq!(costs.unwrap()["severity"], "warning");
    let (code, printed) = check(&secured, &users(4));
    assert!(code == 0 && !printed.contains("costs"), "{printed}");
}

#[test]
fn every_problem_is_shown_with_its_position() {
    let secured = Secured::new("");
    for (web, expected) in [
        (
            "tls_server_config: {}\nbasic_auth_user: {}\n",
            "web.yml:2:1: unknown field `basic_auth_user` in the web configuration\n  help: did you mean `basic_auth_users`?",
        ),
        ("tls_server_config:\n  cert_file: nowhere.pem\n  key_file: server.key\n", "web.yml:2:14: cannot read "),
        ("tls_server_config:\n  cert_file: server.pem\n", "web.yml:2:3: TLS without `key_file`"),
        (
            "tls_server_config: {cert_file: server.key, key_file: server.key}\n",
            "web.yml:1:32: there is no certificate in server.key",
        ),
        (
            "tls_server_config: {cert_file: server.pem, key_file: client.key}\n",
            "web.yml:1:54: the key does not belong to the certificate",
        ),
        (
            "tls_server_config: {cert_file: server.pem, key_file: ca.pem}\n",
            "web.yml:1:54: there is no private key in ca.pem",
        ),
        (
            "tls_server_config: {cert_file: server.pem, cert: x, key_file: server.key}\n",
            "web.yml:1:32: there is `cert` too",
        ),
        (
            "tls_server_config: {cert_file: server.pem, key_file: server.key, client_auth_type: Always}\n",
            "web.yml:1:84: unknown client_auth_type \"Always\"",
        ),
        (
            "tls_server_config: {cert_file: server.pem, key_file: server.key, client_ca_file: ca.pem}\n",
            "web.yml:1:82: there is a CA for clients, but client certificates are not requested",
        ),
        (
            "tls_server_config: {cert_file: server.pem, key_file: server.key, client_auth_type: RequireAndVerifyClientCert}\n",
            "web.yml:1:84: certificates of clients cannot be verified without a CA",
        ),
        (
            "tls_server_config: {cert_file: server.pem, key_file: server.key, client_auth_type: VerifyClientCertIfGiven, client_ca_file: ca.pem, client_allowed_sans: [a]}\n",
            "web.yml:1:154: `client_allowed_sans` requires client certificates",
        ),
        (
            "tls_server_config: {cert_file: server.pem, key_file: server.key, min_version: TLS10}\n",
            "web.yml:1:79: `min_version`: TLS10 is not supported",
        ),
        (
            "tls_server_config: {cert_file: server.pem, key_file: server.key, min_version: '1.2'}\n",
            "web.yml:1:79: `min_version`: there is no \"1.2\"",
        ),
        (
            "tls_server_config: {cert_file: server.pem, key_file: server.key, min_version: TLS13, max_version: TLS12}\n",
            "web.yml:1:99: `max_version` is older than `min_version`",
        ),
        (
            "tls_server_config: {cert_file: server.pem, key_file: server.key, cipher_suites: [TLS_RSA_WITH_AES_128_CBC_SHA]}\n",
            "web.yml:1:82: `cipher_suites`: TLS_RSA_WITH_AES_128_CBC_SHA is not supported",
        ),
        (
            "tls_server_config: {cert_file: server.pem, key_file: server.key, curve_preferences: [CurveP521]}\n",
            "web.yml:1:86: `curve_preferences`: CurveP521 is not supported",
        ),
        (
            "http_server_config: {headers: {X-Powered-By: me}}\n",
            "web.yml:1:32: unknown field `X-Powered-By` in `headers`",
        ),
        (
            "http_server_config: {headers: {X-Frame-Options: allow}}\n",
            "web.yml:1:49: `X-Frame-Options` cannot be \"allow\"",
        ),
        ("http_server_config: {http2: 2}\n", "web.yml:1:29: `http2` must be true or false"),
        ("basic_auth_users: {'a:b': x}\n", "web.yml:1:20: \"a:b\" cannot be the name of a user"),
        ("rate_limit: {interval: 1s}\n", "web.yml:1:24: `rate_limit` without `burst`"),
    ] {
        let (code, printed) = check(&secured, web);
        assert!(code == 1 && printed.contains(expected), "{web}\n{code}: {printed}");
    }
    let (code, printed) = check(&secured, "tls_server_config: {min_version: TLS9}\nbasic_auth_users: {a: b}\nx: y\n");
    assert_eq!((code, printed.matches("web.yml:").count()), (1, 5), "all problems must be reported at once: {printed}");
    let path = secured.path("web.yml");
    fs::remove_file(&path).unwrap();
    let output = command(&["check", "--web.config.file", &path]);
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(printed.contains("check the path given to --web.config.file"), "{printed}");
}

#[test]
fn a_plain_password_instead_of_a_hash_is_not_shown() {
    let secured = Secured::new("");
    for value in
        ["hunter2-hunter2", "12345678901", "[hunter2-hunter2]", "$2y$10$hunter2-hunter2", "{hunter2-hunter2: 1}"]
    {
        let (code, printed) = check(&secured, &format!("basic_auth_users:\n  me: {value}\n"));
        assert!(
            code == 1 && printed.contains("web.yml:2:7: the user \"me\": the value is not a bcrypt hash"),
            "{printed}"
        );
        assert!(!printed.contains("hunter2") && !printed.contains("12345678901"), "{printed}");
    }
    let too_slow = format!("basic_auth_users:\n  me: $2y$31${}\n", ".".repeat(53));
    let (code, printed) = check(&secured, &too_slow);
    assert!(code == 1 && printed.contains("with a cost of 31 comparing a password takes too long"), "{printed}");
}

#[test]
fn check_summarizes_a_valid_file() {
    let secured = Secured::new("");
    let verified = "client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.pem}";
    let web =
        format!("{}, {verified}\nbasic_auth_users: {{me: {}}}\n", TLS.trim_end().trim_end_matches('}'), hash(PASSWORD));
    let (code, printed) = check(&secured, &web);
    let expected =
        "The web configuration is good: https, verified client certificates, a password of 1 user, 0 added headers.\n";
    assert_eq!((code, printed.as_str()), (0, expected));
    let path = secured.path("web.yml");
    let output = command(&["check", "--web.config.file", &path, "--output", "json"]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "[]\n");
    let output = command(&["check", "--preset", "cordum", "--web.config.file", &path]);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(
        printed.contains("The web configuration is good") && printed.contains("The configuration is good"),
        "{printed}"
    );
}

#[test]
fn a_bad_web_configuration_prevents_the_daemon_from_starting() {
    let secured = Secured::new("basic_auth_users: 7\n");
    let path = secured.path("web.yml");
    let logs = secured.site.full_path("logs/*.log");
    let output = command(&["--logs.path", &logs, "--preset", "cordum", "--web.config.file", &path]);
    let printed = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(64), "{printed}");
    assert!(printed.contains("web.yml:1:19: `basic_auth_users` must be a mapping"), "{printed}");
}

#[test]
fn promtool_accepts_every_file_that_check_accepts() {
    let secured = Secured::new("");
    let hash = hash(PASSWORD);
    let tls = TLS.trim_end().trim_end_matches('}');
    let verified = "client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.pem";
    let files = [
        String::new(),
        "tls_server_config:\nbasic_auth_users:\nhttp_server_config:\n".to_owned(),
        TLS.to_owned(),
        format!("{tls}, {verified}}}\n"),
        format!("{tls}, client_auth_type: VerifyClientCertIfGiven, client_ca_file: ca.pem}}\n"),
        format!("{tls}, client_auth_type: RequestClientCert}}\n"),
        format!("{tls}, client_auth_type: RequireAnyClientCert, client_ca_file: ca.pem}}\n"),
        format!("{tls}, client_auth_type: RequireClientCert}}\n"),
        format!("{tls}, min_version: TLS12, max_version: TLS13, prefer_server_cipher_suites: false}}\n"),
        format!("{tls}, curve_preferences: [X25519, CurveP256, CurveP384]}}\n"),
        format!(
            "{tls}, cipher_suites: [TLS_AES_128_GCM_SHA256, TLS_AES_256_GCM_SHA384, TLS_CHACHA20_POLY1305_SHA256, \
             TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, \
             TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, \
             TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256]}}\n"
        ),
        "http_server_config: {http2: true}\n".to_owned(),
        "http_server_config: {http2: false, headers: {X-Frame-Options: sameorigin, X-XSS-Protection: '', \
         Strict-Transport-Security: max-age=1, X-Content-Type-Options: nosniff}}\n"
            .to_owned(),
        format!("basic_auth_users: {{me: {hash}, 'you and me': {hash}}}\n"),
        format!("basic_auth_users: {{me: {}}}\n", hash.replace("$2b$", "$2y$")),
        format!("basic_auth_users: {{me: {}}}\n", hash.replace("$2b$", "$2a$")),
    ];
    for web in &files {
        let (code, printed) = check(&secured, web);
        assert_eq!(code, 0, "{web}\n{printed}");
        assert!(promtool_accepts(&secured), "promtool refuses\n{web}");
    }
    // Checks that promtool rejects bad files at all.
    secured.configure("basic_auth_users: {me: x}\n");
    assert!(!promtool_accepts(&secured));
}

#[test]
fn the_documented_example_is_valid() {
    let secured = Secured::new("");
    let document = include_str!("../../../docs/web-configuration.md");
    let example = document.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let (code, printed) = check(&secured, example);
    assert_eq!(code, 0, "{printed}");
    let hash = example.lines().find_map(|line| line.trim().strip_prefix("prometheus: ")).unwrap();
    assert!(bcrypt::verify(PASSWORD, hash).unwrap(), "the hash does not match the password in the comment");
}
