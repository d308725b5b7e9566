//! Tests how users work with presets: list, explain, supply keys, change, and document them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use redis_lock_exporter::commands::presets::markdown;
use redis_lock_exporter::config::{Config, Overrides, presets};
use serde_json::Value;

use crate::daemon::{command, text};

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn load(yaml: &str) -> Result<Config, String> {
    Config::from_yaml("c.yaml", yaml, &Overrides::default()).map_err(|problems| problems.to_string())
}

fn output(arguments: &[&str]) -> String {
    let output = command(arguments);
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
    String::from_utf8(output.stdout).unwrap()
}

/// A preset file that is missing from the list would not be part of the program.
#[test]
fn every_preset_file_is_listed() {
    let entries = fs::read_dir(repository("presets")).unwrap().map(|entry| entry.unwrap().path());
    let files: BTreeSet<String> = entries.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    let known = presets::names().into_iter().map(str::to_owned).chain(["generic".to_owned()]).collect();
    assert_eq!(files, known);
    assert_eq!(presets::all().len(), presets::names().len(), "every preset must have a description");
}

#[test]
fn presets_are_listed_and_explained() {
    let list = output(&["presets"]);
    assert!(list.lines().any(|line| line.starts_with("redis-py ") && line.contains("Python")), "{list}");
    let shown = output(&["presets", "show", "redis-py"]);
    for part in ["Not observed in the logs:", "`acquire()` that returns False", "keys_from_user:", "redis-py/release"] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    let names: Value = serde_json::from_str(&output(&["presets", "--output", "json"])).unwrap();
    let names: Vec<&str> = names.as_array().unwrap().iter().map(|preset| preset["name"].as_str().unwrap()).collect();
    assert_eq!(names, presets::names());
    let one: Value = serde_json::from_str(&output(&["presets", "show", "redis-py", "--output", "json"])).unwrap();
    assert_eq!(one["about"]["keys_from_user"][0]["namespace"], "redis-py");
    assert!(one["yaml"].as_str().unwrap().starts_with('#'));
    let refused = command(&["presets", "show", "redis-pie"]);
    assert_eq!(refused.status.code(), Some(64));
}

/// `UPDATE_FIXTURES=1` (`make docs`) writes the page instead.
#[test]
fn presets_md_is_up_to_date() {
    let path = repository("docs/presets.md");
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        fs::write(&path, markdown()).unwrap();
    }
    assert!(fs::read_to_string(&path).unwrap() == markdown(), "docs/presets.md is out of date: run `make docs`");
}

#[test]
fn a_preset_without_a_key_prefix_requires_keys() {
    let redis = "redis: {url: 'redis://127.0.0.1:1'}\n";
    let complaint = load(&format!("{redis}presets: [redis-py]\n")).unwrap_err();
    let expected = "c.yaml:2:11: the preset `redis-py` does not know which keys are locks: redis-py has no fixed \
         prefix\n  \
         help: add `namespaces: [{name: redis-py, keys: [\"myapp:lock:{lock_name}\"]}]` with the keys of your program, or `keys: []` if its \
         logs are enough";
    assert_eq!(complaint, expected);
    // Uses the snippet from the help text unchanged.
    let snippet = complaint.split('`').find(|part| part.starts_with("namespaces: ")).unwrap();
    load(&format!("{redis}presets: [redis-py]\n{snippet}\n")).unwrap();
    // Other answers: from the logs alone, or under another name.
    load(&format!("{redis}presets: [redis-py]\nnamespaces: [{{name: redis-py, keys: []}}]\n")).unwrap();
    let config = load(&format!(
        "{redis}presets: [redis-py]\nnamespaces: [{{name: orders, like: redis-py, keys: ['orders:{{id}}']}}]\n"
    ));
    assert!(config.unwrap().namespaces[0].no_ttl_is_normal, "the namespace must inherit from its base");
    load("presets: [redis-py]\nlogs: [{path: '-'}]\n").unwrap();
    let by_flag = Overrides {
        presets: vec!["redis-py".to_owned()],
        redis_url: Some("redis://127.0.0.1:1".to_owned()),
        ..Overrides::default()
    };
    let complaint = Config::load(None, &by_flag).unwrap_err().to_string();
    assert!(complaint.starts_with("--preset: the preset `redis-py` does not know"), "{complaint}");
}

#[test]
fn users_can_change_namespaces_and_rules_of_a_preset() {
    let directory = tempfile::tempdir().unwrap();
    let (config, log) = (directory.path().join("c.yaml"), directory.path().join("app.log"));
    let lines = "redis.exceptions.LockNotOwnedError: Cannot release a lock that's no longer owned\n\
                 redis.exceptions.LockError: Unable to acquire lock within the time specified\n";
    fs::write(&log, lines).unwrap();
    let rules = "presets: [redis-py]\nnamespaces: [{name: orders}]\nrules:\n\
                 - {name: redis-py/busy, regex: 'Unable to acquire lock within', event: ignore}\n\
                 - {regex: 'Cannot release a lock', event: not_owned, operation: release, namespace: orders}\n";
    fs::write(&config, rules).unwrap();
    let events = output(&["replay", "--config.file", text(&config), "--output", "events", text(&log)]);
    let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.len(), 1);
    assert_eq!((&events[0]["lock_namespace"], &events[0]["rule"]), (&"orders".into(), &"config/rule-2".into()));
}

#[test]
fn check_warns_about_events_that_a_preset_cannot_see() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("c.yaml");
    fs::write(&config, "logs: [{path: '-'}]\npresets: [redis-py]\n").unwrap();
    let printed = output(&["check", "--config.file", text(&config)]);
    assert!(
        printed.contains("1 warning\n  redis-py: without `redis` it cannot observe: `acquire()` that returns False"),
        "{printed}"
    );
    let warnings = |config: &Path| -> Vec<Value> {
        serde_json::from_str(&output(&["check", "--config.file", text(config), "--output", "json"])).unwrap()
    };
    let found = warnings(&config);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((&found[0]["severity"], &found[0]["file"]), (&"warning".into(), &"preset redis-py".into()));
    let message = found[0]["message"].as_str().unwrap();
    assert!(message.starts_with("without `redis` it cannot observe: `acquire()` that returns False"), "{message}");
    let redis = "redis: {url: 'redis://127.0.0.1:1'}\npresets: [redis-py]\nnamespaces: [{name: redis-py, keys: []}]\n";
    fs::write(&config, format!("{redis}  \n")).unwrap();
    let printed = output(&["check", "--config.file", text(&config)]);
    assert!(printed.contains("the namespace redis-py has no keys"), "{printed}");
    assert!(printed.contains("redis-py: without `logs` it cannot observe: attempts that failed"), "{printed}");
    let messages: Vec<String> = warnings(&config).iter().map(|found| found["message"].to_string()).collect();
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert!(messages.iter().any(|message| message.contains("the namespace redis-py has no keys")), "{messages:?}");
}

/// Writes every file that docs/own-rules.md shows, runs every command, and compares the output with
/// the page. `UPDATE_FIXTURES=1` writes the output to the page instead.
#[test]
fn the_commands_in_own_rules_md_print_the_documented_output() {
    let page = repository("docs/own-rules.md");
    let original = fs::read_to_string(&page).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut made = String::new();
    let mut n_commands = 0;
    for (index, part) in original.split("```").enumerate() {
        let separator = if index == 0 { "" } else { "```" };
        let is_block = index % 2 == 1;
        let (head, body) = part.split_once('\n').unwrap_or((part, ""));
        made += separator;
        match head.split_once(' ') {
            Some((_, file)) if is_block => fs::write(directory.path().join(file), body).unwrap(),
            _ if is_block && head == "console" => {
                let line = body.lines().next().unwrap();
                let arguments = line.strip_prefix("$ redis_lock_exporter ").unwrap().split(' ');
                let output = std::process::Command::new(crate::daemon::BINARY)
                    .args(arguments)
                    .current_dir(directory.path())
                    .output()
                    .unwrap();
                let printed = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
                made += &format!("console\n{line}\n{printed}");
                n_commands += 1;
                continue;
            }
            _ => {}
        }
        made += part;
    }
    assert!(n_commands >= 3);
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        fs::write(&page, &made).unwrap();
    }
    assert_eq!(made, fs::read_to_string(&page).unwrap());
}
