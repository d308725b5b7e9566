//! Loads valid and invalid configurations through the public interface.
//!
//! `NAME.expected` contains the complete expected output for `tests/fixtures/bad-config/NAME.yaml`.
//! `UPDATE_FIXTURES=1 cargo test --test integration bad_configurations` rewrites these files.
//! Review the diff before you commit it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use redis_lock_exporter::config::redis::{Credentials, PasswordSource, RedisMode, ScanFrom, WatchConfig};
use redis_lock_exporter::config::{Config, LogKind, LogSource, Overrides, Push, StartAt};
use redis_lock_exporter::model::failure::FailureKind;
use redis_lock_exporter::model::label::Label;

fn fixtures(extension: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/bad-config");
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|e| e == extension)).collect();
    paths.sort();
    paths
}

#[test]
fn bad_configurations() {
    let update = std::env::var_os("UPDATE_FIXTURES").is_some();
    let mut differences = String::new();
    for path in fixtures("yaml") {
        let name = path.file_name().unwrap().to_str().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let problems = Config::from_yaml(name, &text, &Overrides::default()).expect_err(name);
        for problem in problems.0.iter().filter(|problem| problem.file == name) {
            let line = text.lines().nth(problem.line - 1).unwrap_or_default();
            assert!(problem.column <= line.chars().count() + 1, "the position is outside the text: {problem}");
        }
        let found = format!("{problems}\n");
        let expected_path = path.with_extension("expected");
        if update {
            fs::write(&expected_path, &found).unwrap();
        }
        let expected = fs::read_to_string(&expected_path).unwrap_or_default();
        if found != expected {
            differences += &format!("--- {name}, expected:\n{expected}--- found:\n{found}\n");
        }
    }
    assert!(differences.is_empty(), "{differences}");
    assert_eq!(fixtures("yaml").len(), fixtures("expected").len(), "an .expected file has no .yaml file");
}

#[test]
fn documented_configuration_examples_load() {
    let read = |page: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap();
    let text = read("docs/configuration.md") + &read("docs/log-sources.md");
    let mut n_examples = 0;
    for block in text.split("```yaml\n").skip(1) {
        let yaml = block.split("```").next().unwrap();
        // These blocks are configurations of Promtail, Vector and Fluent Bit.
        if ["clients:", "sources:", "pipeline:"].iter().any(|begin| yaml.starts_with(begin)) {
            continue;
        }
        // The documentation shows parts of a configuration without log sources.
        let overrides = match yaml.contains("logs:") {
            true => Overrides::default(),
            false => Overrides { logs: vec!["/var/log/app.log".to_owned()], ..Overrides::default() },
        };
        if let Err(problems) = Config::from_yaml("docs/configuration.md", yaml, &overrides) {
            panic!("{problems}\n\n{yaml}");
        }
        n_examples += 1;
    }
    assert!(n_examples > 4);
}

#[test]
fn every_preset_loads_alone_and_combined_with_all_others() {
    let names: Vec<String> =
        redis_lock_exporter::config::presets::names().iter().map(|name| name.to_string()).collect();
    let mut choices: Vec<Vec<String>> = names.iter().map(|name| vec![name.clone()]).collect();
    choices.push(Vec::new());
    choices.push(names);
    for presets in choices {
        let overrides = Overrides { presets: presets.clone(), logs: vec!["-".to_owned()], ..Overrides::default() };
        let config = Config::load(None, &overrides).unwrap_or_else(|problems| panic!("{presets:?}:\n{problems}"));
        assert_eq!(config.presets, presets);
        assert!(config.n_rules > 0);
    }
}

fn load_problems(path: &Path) -> String {
    Config::load(Some(path), &Overrides::default()).unwrap_err().to_string()
}

#[test]
fn unusable_files_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("c.yaml");
    let shown = path.display();
    let help = "\n  help: check the path given to --config.file and its permissions";
    assert_eq!(
        load_problems(&path),
        format!("{shown}: cannot read the file: No such file or directory (os error 2){help}")
    );

    fs::write(&path, "a".repeat((1 << 20) + 1)).unwrap();
    assert!(load_problems(&path).starts_with(&format!("{shown}: the file is larger than 1MiB\n")));

    fs::write(&path, b"logs:\n  - path: \xc3\xa4\xff\n").unwrap();
    assert_eq!(load_problems(&path), format!("{shown}:2:12: not UTF-8 text\n  help: save the file as UTF-8"));

    fs::write(&path, "\u{feff}logs:\r\n  - path: /a.log\r\n").unwrap();
    assert!(Config::load(Some(&path), &Overrides::default()).is_ok(), "BOM and CRLF");
}

#[test]
fn an_unknown_event_is_reported_with_every_event() {
    let text = "logs: [{path: '-'}]\nrules: [{message: lock lost, event: not-owned}]";
    let problems = Config::from_yaml("c.yaml", text, &Overrides::default()).unwrap_err();
    let kinds = FailureKind::ALL.iter().map(|kind| kind.as_str());
    let events: Vec<&str> = kinds.chain(["terminal_state", "ignore"]).collect();
    assert_eq!(problems.0[0].message, "unknown event \"not-owned\"");
    let help = format!("did you mean `not_owned`? allowed: {}", events.join(", "));
    assert_eq!(problems.0[0].help, Some(help));
}

#[test]
fn flags_are_checked_like_the_file() {
    let overrides = Overrides {
        logs: vec!["/a.log".to_owned(), "/b**.log".to_owned()],
        presets: vec!["cordon".to_owned()],
        ..Overrides::default()
    };
    let problems = Config::from_yaml("c.yaml", "logs: [{path: /a.log}]", &overrides).unwrap_err();
    let places: Vec<String> =
        problems.0.iter().map(|problem| format!("{}: {}", problem.file, problem.message)).collect();
    assert_eq!(places.len(), 3, "{problems}");
    assert_eq!(places[0], "--preset: unknown preset \"cordon\"");
    assert_eq!(places[1], "--logs.path: the log source \"/a.log\" is listed twice");
    assert!(places[2].starts_with("--logs.path: bad pattern \"/b**.log\""), "{problems}");

    let nothing = Config::load(None, &Overrides::default()).unwrap_err().to_string();
    assert!(nothing.starts_with("command line: nothing to watch"), "{nothing}");
    assert!(nothing.contains("--logs.path"), "{nothing}");
    assert!(Config::load_without_logs(None, &Overrides::default()).is_ok());
}

#[test]
fn flags_add_sources_and_presets_and_override_the_state_directory() {
    let overrides = Overrides {
        logs: vec!["/b.log".to_owned()],
        presets: vec!["cordum".to_owned()],
        state_dir: Some("/flag".into()),
        ..Overrides::default()
    };
    let text =
        "{state_dir: /file, presets: [cordum], logs: [{path: /a.log, start_at: beginning, max_line_bytes: 2KiB}]}";
    let config = Config::from_yaml("c.yaml", text, &overrides).unwrap();
    assert_eq!(config.state_dir.as_deref(), Some(Path::new("/flag")));
    assert_eq!(config.presets, ["cordum"]);
    let a = LogSource {
        name: "/a.log".to_owned(),
        kind: LogKind::Files,
        start_at: StartAt::Beginning,
        max_line_bytes: 2048,
    };
    let b = LogSource { name: "/b.log".to_owned(), kind: LogKind::Files, start_at: StartAt::End, ..a.clone() };
    let b = LogSource { max_line_bytes: 1 << 20, ..b };
    assert_eq!(config.logs, [a, b]);
}

const NAMESPACE: &str = "namespaces: [{name: a, keys: [\"a:{id}\"], fence: \"fence:{key}\"}]";

#[test]
fn a_complete_redis_section_is_parsed() {
    let text = format!(
        "redis:
  name: main
  url: rediss://redis:6380/3
  mode: sentinel
  addresses: [b, '[::1]:7']
  sentinel: {{primary: mymaster, username: s, password_env: S}}
  username: exporter
  password_file: /run/secrets/redis
  tls: {{ca_file: /ca, cert_file: /cert, key_file: /key, server_name: name}}
  connect_timeout: 1s
  response_timeout: 2s
  max_tracked_locks: 3000000
scan: {{interval: 10s, watched_interval: 1m, max_redis_share: 1, from: replica}}
watch: {{mode: off, max_reads_per_second: 7}}
{NAMESPACE}"
    );
    let config = Config::from_yaml("c.yaml", &text, &Overrides::default()).unwrap();
    assert_eq!(config.namespaces[0].fence.as_ref().unwrap().as_str(), "fence:{key}");
    let redis = config.redis.unwrap();
    let addresses: Vec<String> = redis.addresses.iter().map(ToString::to_string).collect();
    assert_eq!((redis.name.as_str(), redis.database), ("main", 3));
    assert_eq!(addresses, ["redis:6380", "b:26379", "[::1]:7"]);
    let credentials =
        Credentials { username: Some("s".to_owned()), password: Some(PasswordSource::Environment("S".to_owned())) };
    assert_eq!(redis.mode, RedisMode::Sentinel { primary: "mymaster".to_owned(), credentials });
    assert_eq!(redis.credentials.username.as_deref(), Some("exporter"));
    assert_eq!(redis.credentials.password, Some(PasswordSource::File("/run/secrets/redis".into())));
    let tls = redis.tls.unwrap();
    assert_eq!((tls.ca_file, tls.server_name), (Some("/ca".into()), Some("name".to_owned())));
    assert_eq!(tls.client, Some(("/cert".into(), "/key".into())));
    assert_eq!((redis.connect_timeout, redis.response_timeout), (Duration::from_secs(1), Duration::from_secs(2)));
    assert_eq!(redis.max_tracked_locks, 3_000_000);
    assert_eq!((redis.scan.interval, redis.scan.watched_interval), (Duration::from_secs(10), Duration::from_secs(60)));
    assert_eq!((redis.scan.max_redis_share, redis.scan.from), (1.0, ScanFrom::Replica));
    assert_eq!(redis.watch, WatchConfig { enabled: false, max_reads_per_second: 7 });
}

#[test]
fn redis_can_be_configured_by_flags() {
    let flags = |url: &str| Overrides { redis_url: Some(url.to_owned()), ..Overrides::default() };
    let text = format!("{{redis: {{url: redis://file, name: main}}, {NAMESPACE}}}");
    let config = Config::from_yaml("c.yaml", &text, &flags("redis://:secret@flag/1")).unwrap();
    let redis = config.redis.unwrap();
    assert_eq!((redis.name.as_str(), redis.database), ("main", 1));
    assert_eq!(redis.addresses[0].to_string(), "flag:6379");
    assert_eq!(redis.credentials.password, Some(PasswordSource::Inline("secret".to_owned())));
    assert!(!format!("{redis:?}").contains("secret"));
    assert_eq!((redis.mode, redis.tls, redis.watch), (RedisMode::Single, None, WatchConfig::default()));

    let presets = vec!["cordum".to_owned()];
    let password = Overrides { redis_password_env: Some("P".to_owned()), presets, ..flags("rediss://flag") };
    let redis = Config::load(None, &password).unwrap().redis.unwrap();
    assert_eq!(redis.credentials.password, Some(PasswordSource::Environment("P".to_owned())));
    assert!(redis.tls.is_some());
    let file = Overrides { redis_password_file: Some("/p".into()), ..password };
    let redis = Config::load(None, &file).unwrap().redis.unwrap();
    assert_eq!(redis.credentials.password, Some(PasswordSource::File("/p".into())));

    let check = |overrides: &Overrides, expected: &str| {
        let problems = Config::load(None, overrides).unwrap_err().to_string();
        assert!(problems.starts_with(expected) && !problems.contains("secret"), "{problems}");
    };
    check(&flags("redis://flag"), "--redis.url: no namespace has `keys`");
    check(&flags("http://:secret@flag"), "--redis.url: the URL of Redis has the scheme \"http\"");
    check(&Overrides { redis_url: None, ..file }, "--redis.password-file: there is a password but no Redis");
}

#[test]
fn a_namespace_in_the_file_overrides_single_fields_of_the_preset() {
    let load = |text: &str| Config::from_yaml("c.yaml", text, &Overrides::default()).unwrap();
    let plain = load("{logs: [{path: /a.log}], presets: [cordum]}");
    let changed = load(
        "{logs: [{path: /a.log}], presets: [cordum],
          namespaces: [{name: workflow, ttl: 5m, thresholds: {busy_ratio: 0.9}}, {name: mine}]}",
    );
    let find = |config: &Config| {
        let found = config.namespaces.iter().find(|namespace| namespace.name == "workflow");
        found.unwrap().clone()
    };
    let (before, after) = (find(&plain), find(&changed));
    assert_eq!(after.ttl, Some(Duration::from_secs(300)));
    assert_eq!(after.thresholds.busy_ratio, Some(0.9));
    assert_eq!(after.renew_every, before.renew_every);
    assert_eq!(after.keys, before.keys);
    assert_eq!(after.on_renewal_failure, before.on_renewal_failure);
    assert_eq!(after.thresholds.not_owned_ratio, before.thresholds.not_owned_ratio);
    let names: Vec<&str> = changed.namespaces.iter().map(|namespace| namespace.name.as_str()).collect();
    assert_eq!(names[..2], ["workflow", "mine"]);
    assert_eq!(names.last(), Some(&"other"));
    assert_eq!(changed.namespaces.len(), plain.namespaces.len() + 1);
}

#[test]
fn yaml_merge_keys_fill_in_missing_fields() {
    let text = "
logs: [{path: /a.log}]
namespaces:
  - &usual {name: a, ttl: 30s, renew_every: 10s, severity: ticket}
  - {<<: *usual, name: b, ttl: 60s}
";
    let config = Config::from_yaml("c.yaml", text, &Overrides::default()).unwrap();
    let b = &config.namespaces[1];
    assert_eq!((b.name.as_str(), b.ttl), ("b", Some(Duration::from_secs(60))));
    assert_eq!(b.renew_every, Some(Duration::from_secs(10)));
}

#[test]
fn a_long_list_of_problems_is_truncated() {
    let text = format!("logs: [{{path: /a.log}}]\nrules:\n{}", "  - {event: nothing}\n".repeat(300));
    let problems = Config::from_yaml("c.yaml", &text, &Overrides::default()).unwrap_err();
    assert_eq!(problems.0.len(), 101);
    assert_eq!(problems.0[100].message, "500 more problems are not shown");
}

#[test]
fn the_check_command_prints_problems_and_a_summary() {
    let check = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_redis_lock_exporter"));
        let output = command.arg("check").args(arguments).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("c.yaml");
    let path = path.to_str().unwrap();

    fs::write(path, "logs: [{path: /a.log}]\nnamespaces: [{name: A}]\n").unwrap();
    let help = "  help: use up to 64 of a-z, 0-9, _ and -\n";
    let problem = format!("{path}:2:21: \"A\" cannot be the name of a namespace\n{help}1 problem\n");
    assert_eq!(check(&["--config.file", path]), (Some(1), String::new(), problem));
    let (code, json, errors) = check(&["--config.file", path, "--output", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let expected = serde_json::json!([{
        "severity": "error", "file": path, "line": 2, "column": 21, "message": "\"A\" cannot be the name of a namespace",
        "help": "use up to 64 of a-z, 0-9, _ and -",
    }]);
    assert_eq!((code, json, errors), (Some(1), expected, String::new()));

    fs::write(path, "logs: [{path: /a.log}]\nnamespaces: [{name: a, keys: 'a:{id}', ttl: 90s}]\n").unwrap();
    let (code, summary, errors) = check(&["--config.file", path]);
    assert_eq!((code, errors), (Some(0), String::new()));
    for part in ["/a.log (from the end at the first start", "  a (item, fences itself, page, ttl 1m30s)\n    a:{id}\n"]
    {
        assert!(summary.contains(part), "{summary}");
    }
    fs::write(path, "redis: {url: 'rediss://me:secret@redis:6380/2'}\nnamespaces: [{name: a, keys: 'a:{id}'}]\n")
        .unwrap();
    let (code, summary, errors) = check(&["--config.file", path]);
    assert_eq!((code, errors), (Some(0), String::new()));
    assert!(summary.contains("redis\n  redis at redis:6380 (database 2, TLS, watched where possible"), "{summary}");
    assert!(!summary.contains("secret"), "{summary}");
    assert_eq!(check(&["--config.file", path, "--output", "json"]), (Some(0), "[]\n".to_owned(), String::new()));
    assert_eq!(check(&["--no-such-flag"]).0, Some(64));
}

#[test]
fn journals_and_pushed_lines_are_log_sources() {
    let text = "logs:\n\
        - journal: {units: [engine, a.socket], identifiers: app, matches: 'CONTAINER_NAME=x', directory: /j}\n  \
          start_at: beginning\n\
        - {journal: , name: all}\n\
        - {push: {max_request_bytes: 1MiB}, max_line_bytes: 2KiB}\n";
    let config = Config::from_yaml("config.yaml", text, &Overrides::default()).unwrap();
    let [selected, all, pushed] = &config.logs[..] else { panic!("{:?}", config.logs) };
    let LogKind::Journal(journal) = &selected.kind else { panic!("{selected:?}") };
    let matches =
        ["_SYSTEMD_UNIT=engine.service", "_SYSTEMD_UNIT=a.socket", "SYSLOG_IDENTIFIER=app", "CONTAINER_NAME=x"];
    assert_eq!(*journal.matches, matches);
    assert_eq!(journal.directory.as_deref(), Some(Path::new("/j")));
    assert_eq!((selected.name.as_str(), selected.start_at), ("journal", StartAt::Beginning));
    let LogKind::Journal(journal) = &all.kind else { panic!("{all:?}") };
    assert_eq!((all.name.as_str(), journal.matches.len(), &journal.directory), ("all", 0, &None));
    assert_eq!(pushed.kind, LogKind::Push(Push { max_request_bytes: 1 << 20 }));
    assert_eq!((pushed.name.as_str(), pushed.max_line_bytes), ("push", 2048));
}
