//! Searches all output of the process for secrets that the tests put into every input.

use std::fs;
use std::process::Stdio;

use super::{Reply, Secured, hash};
use crate::daemon::{Daemon, command, text};
use crate::journal::Journal;
use crate::redis::{RedisServer, eventually};

const IN_FILE: &str = "planted-password-in-a-file";
const NEW_IN_FILE: &str = "planted-new-password-in-a-file";
const IN_ENVIRONMENT: &str = "planted-password-in-the-environment";
const IN_URL: &str = "planted-password-in-a-url";
const OF_WEB: &str = "planted-password-of-the-web";
const WRONG: &str = "planted-wrong-password";
const OWNER: &str = "planted-token-of-an-owner";
const IN_LINE: &str = "planted-7f3b1c9e-token-in-a-log-line";
const IN_PUSH: &str = "planted-5d2a8e4f-token-in-a-push";
const IN_JOURNAL: &str = "planted-93c1b7d0-token-in-a-journal";

struct CollectedOutput(Vec<(String, String)>);

impl CollectedOutput {
    fn add(&mut self, place: impl Into<String>, text: impl Into<String>) {
        self.0.push((place.into(), text.into()));
    }

    fn assert_without(&self, secrets: &[String]) {
        assert!(self.0.len() > 10 && self.0.iter().all(|(_, text)| !text.is_empty()), "no output was collected");
        for (place, text) in &self.0 {
            for secret in secrets {
                assert!(!text.contains(secret.as_str()), "{secret} is shown in {place}:\n{text}");
            }
        }
    }
}

#[test]
fn no_output_contains_a_secret() {
    let server = RedisServer::start(&["--requirepass", IN_FILE]);
    for password in [IN_ENVIRONMENT, IN_URL, NEW_IN_FILE] {
        server.command(&["ACL", "SETUSER", "default", &format!(">{password}")]);
    }
    server.command(&["SET", "jobs:lock:1", OWNER, "PX", "600000"]);
    let secured = Secured::new("");
    let key = fs::read_to_string(secured.path("server.key")).unwrap();
    let key_line = key.lines().nth(1).unwrap().to_owned();
    let web_hash = hash(OF_WEB);
    let web = format!(
        "tls_server_config: {{cert_file: server.pem, key_file: server.key}}\nbasic_auth_users: {{me: {web_hash}}}\n"
    );
    secured.configure(&web);
    let mut secrets: Vec<String> =
        [IN_FILE, NEW_IN_FILE, IN_ENVIRONMENT, IN_URL, OF_WEB, WRONG, IN_LINE, IN_PUSH, IN_JOURNAL]
            .map(str::to_owned)
            .to_vec();
    secrets.extend([OWNER.to_owned(), key_line, web_hash[29..].to_owned(), "bWU6cGxhbnRlZ".to_owned()]);
    let mut outputs = CollectedOutput(Vec::new());

    let port = server.port();
    let settings = "scan: {interval: 1s, watched_interval: 1s}\nnamespaces: [{name: jobs, keys: ['jobs:lock:{id}']}]\n\
                    presets: [cordum]\nlogs: [{path: 'SITE/logs/*.log'}, {push: {}}, {journal: {directory: SITE/journal}}]\n";
    let mut journal = Journal::new(&secured.site, "a");
    journal.say("engine.service", "started");
    for redis in [
        format!("{{url: 'redis://127.0.0.1:{port}', password_file: SITE/password}}"),
        format!("{{url: 'redis://127.0.0.1:{port}', password_env: PLANTED}}"),
        format!("{{url: 'redis://:{IN_URL}@127.0.0.1:{port}'}}"),
    ] {
        fs::write(secured.site.path("password"), IN_FILE).unwrap();
        secured.site.configure(&format!("redis: {redis}\n{settings}"));
        run_through_everything(&secured, &web, &server, &mut journal, &mut outputs);
    }
    check_everything(&secured, &mut outputs);
    ask_in_vain(&mut outputs);
    outputs.assert_without(&secrets);
}

/// Starts a daemon with maximum logging, requests every path, and makes it fail in many ways.
fn run_through_everything(
    secured: &Secured,
    web: &str,
    server: &RedisServer,
    journal: &mut Journal,
    outputs: &mut CollectedOutput,
) {
    let site = &secured.site;
    let (config, state, web_file) = (site.full_path("config.yaml"), site.full_path("state"), secured.path("web.yml"));
    let stdout = site.path("stdout");
    let arguments = [
        "--config.file",
        &config,
        "--state.dir",
        &state,
        "--web.config.file",
        &web_file,
        "--web.enable-lifecycle",
        "--log.level",
        "trace",
    ];
    let daemon = Daemon::start_with(&arguments, |command| {
        command.env("PLANTED", IN_ENVIRONMENT).stdout(Stdio::from(fs::File::create(&stdout).unwrap()))
    });
    let me = format!("me:{OF_WEB}");
    let ask = |path: &str, more: &[&str]| secured.get(&daemon, path, &[&["--user", &me], more].concat());
    let is_up = || ask("/metrics", &[]).body.contains("redis_lock_held{redis=\"redis\",lock_namespace=\"jobs\"} 1");
    eventually("the exporter to see the lock", || is_up().then_some(()));
    let line = format!(
        r#"{{"msg":"distributed run lock release failed","component":"workflow-engine","run_id":"1","token":"{IN_LINE}","error":"lock not owned: {IN_LINE}"}}"#
    );
    site.append("logs/app.log", format!("{line}\nlock lost, owner {IN_LINE}\n"));
    eventually("the exporter to count the line", || {
        ask("/metrics", &[])
            .body
            .lines()
            .any(|line| line.starts_with("redis_lock_exporter_log_events_total") && !line.ends_with(" 0"))
            .then_some(())
    });
    push_and_write(&ask, journal, outputs);
    // Wrong passwords for the exporter and for Redis.
    outputs.add("a refusal", secured.get(&daemon, "/", &["--user", &format!("me:{WRONG}")]).body);
    fs::write(site.path("password"), WRONG).unwrap();
    server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    eventually("a new or refused connection", || {
        let reply = ask("/metrics", &[]).body;
        let reconnects =
            reply.lines().find(|line| line.starts_with("redis_lock_exporter_redis_connect_errors_total"))?;
        (!reconnects.ends_with(" 0") || is_up()).then_some(())
    });
    // A reload reads a secret that changed in its file.
    fs::write(site.path("password"), NEW_IN_FILE).unwrap();
    assert_eq!(ask("/-/reload", &["--request", "POST"]).status, 200);
    eventually("the exporter to see the lock again", || is_up().then_some(()));
    // Refused reloads.
    secured.configure(&format!("{web}basic_auth_users: {{me: {WRONG}}}\n"));
    outputs.add("a refused reload", ask("/-/reload", &["--request", "POST"]).body);
    secured.configure(web);
    let good = fs::read_to_string(&config).unwrap();
    site.configure(&good.replacen("redis://", &format!("redis//:{WRONG}@x/"), 1));
    outputs.add("another refused reload", ask("/-/reload", &["--request", "POST"]).body);
    fs::write(&config, &good).unwrap();
    for path in [
        "/",
        "/metrics",
        "/-/ready",
        "/api/v1/namespaces",
        "/api/v1/locks",
        "/api/v1/locks/jobs:lock:1",
        "/api/v1/incidents",
        "/api/v1/overview",
        "/api/v1/config",
        "/no-such-page",
    ] {
        outputs.add(path, ask(path, &["--header", "Accept: application/openmetrics-text"]).body);
    }
    let pid = daemon.pid();
    outputs.add("its command line", fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap());
    let mut daemon = daemon;
    daemon.signal("TERM");
    daemon.wait_for_exit();
    outputs.add("standard error", daemon.log());
    outputs.add("standard output", format!("it outputs: {}", fs::read_to_string(&stdout).unwrap()));
    for file in fs::read_dir(site.path("state")).unwrap() {
        let path = file.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        if !bytes.is_empty() {
            outputs.add(text(&path), String::from_utf8_lossy(&bytes));
        }
    }
}

/// Sends lines in accepted and refused push requests, and one line through the journal.
fn push_and_write(ask: &dyn Fn(&str, &[&str]) -> Reply, journal: &mut Journal, outputs: &mut CollectedOutput) {
    let push = |body: &str| {
        let headers = ["--header", "Content-Type: application/json", "--data-binary", body];
        ask("/loki/api/v1/push", &headers)
    };
    let line = |token: &str| format!("release failed: lock not owned, token {token}");
    let body = |time: &str| {
        let line = line(IN_PUSH);
        format!(r#"{{"streams":[{{"stream":{{"token":"{IN_PUSH}"}},"values":[["{time}","{line}"]]}}]}}"#)
    };
    assert_eq!(push(&body("1782394624000000000")).status, 204);
    for body in [
        body(IN_PUSH),
        format!(r#""{IN_PUSH}""#),
        format!(r#"{{"streams":"{IN_PUSH}"}}"#),
        format!(r#"{{"streams":[{{"stream":{{"a":["{IN_PUSH}"]}}}}]}}"#),
        format!(r#"{{"streams":[{{"stream":{{}},"values":[{{"{IN_PUSH}":1}}]}}]}}"#),
        format!("{{}} {IN_PUSH}"),
        format!("{{{IN_PUSH}"),
    ] {
        let reply = push(&body);
        assert_eq!(reply.status, 400, "{body}");
        outputs.add("a refused push", reply.body);
    }
    let events = || {
        let metrics = ask("/metrics", &[]).body;
        let series = "redis_lock_exporter_log_events_total{source=\"journal\"} ";
        metrics.lines().find_map(|line| line.strip_prefix(series)?.parse::<f64>().ok()).unwrap()
    };
    let before = events();
    journal.say("engine.service", line(IN_JOURNAL));
    eventually("the exporter to count the entry", || (events() > before).then_some(()));
}

/// Runs `check` on valid and invalid files.
fn check_everything(secured: &Secured, outputs: &mut CollectedOutput) {
    let (config, web) = (secured.site.full_path("config.yaml"), secured.path("web.yml"));
    let mut check = |place: &str, output: &str| {
        let output = command(&["check", "--config.file", &config, "--web.config.file", &web, "--output", output]);
        outputs.add(place, String::from_utf8([output.stdout, output.stderr].concat()).unwrap());
    };
    check("check of good files", "text");
    secured.site.configure(&format!("redis: {{url: 'redis://me:{WRONG}@h:port'}}\nlogs: [{{path: a}}]\n"));
    secured.configure(&format!("tls_server_config: {{cert_file: server.pem, key: [{WRONG}]}}\nbasic_auth_users: {{me: {WRONG}, you: [{WRONG}]}}\n"));
    check("check of bad files", "text");
    check("check of bad files as JSON", "json");
    secured.configure(&format!("basic_auth_users: [{WRONG}]\n"));
    check("check of worse files", "text");
}

/// Runs commands with a password in a URL that does not answer.
fn ask_in_vain(outputs: &mut CollectedOutput) {
    let (redis, web) = (format!("redis://:{WRONG}@127.0.0.1:1/0"), format!("http://me:{WRONG}@127.0.0.1:1/"));
    for arguments in [
        &["drill", "stale-release", "--redis.url", &redis][..],
        &["drill", "stale-release", "--prometheus", &web],
        &["drill", "--redis.url", &redis, "--exporter", &web, "--log-file", "/nonexistent/log", "--run-id", "planted"],
        &["drill", "--redis.url", &format!("redis//:{WRONG}@x")],
        &["advise", "--exporter", &web],
        &["advise", "--prometheus", &web],
        &["advise", "--prometheus", &format!("http//me:{WRONG}@x")],
    ] {
        let output = command(arguments);
        assert_ne!(output.status.code(), Some(0), "{arguments:?}");
        outputs.add(arguments[..2].join(" "), String::from_utf8([output.stdout, output.stderr].concat()).unwrap());
    }
}
