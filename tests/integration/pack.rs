//! Tests `pack`, which writes the repository's files from the binary, with and without changes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use promql_parser::label::{MatchOp, Matcher};
use promql_parser::parser::VectorSelector;
use serde::Deserialize;
use serde_json::Value;

use crate::daemon::{command, text};
use crate::runbooks::queries::collect;
use crate::skipped::{skip, target_directory};

const REPOSITORY: &str = env!("CARGO_MANIFEST_DIR");
const SELECTOR: &str = r#"env="prod",team=~"a|b""#;

/// Returns every file below a directory, by its relative path.
fn tree(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => directories.push(path),
                false => {
                    let name = text(path.strip_prefix(root).unwrap()).to_owned();
                    files.insert(name, fs::read(path).unwrap());
                }
            }
        }
    }
    files
}

/// Returns the files that the pack must contain.
fn shipped() -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for directory in ["alerts", "dashboards", "deploy/prometheus", "docs/runbooks"] {
        let root = PathBuf::from(REPOSITORY).join(directory);
        if root.exists() {
            files.extend(tree(&root).into_iter().map(|(name, bytes)| (format!("{directory}/{name}"), bytes)));
        }
    }
    // Users do not need the tests of the alerts.
    files.retain(|name, _| !name.starts_with("alerts/") || name.matches('/').count() == 1);
    files
}

fn pack(directory: &Path, flags: &[&str]) -> Output {
    command(&[&["pack", text(directory)], flags].concat())
}

fn packed(flags: &[&str]) -> (tempfile::TempDir, BTreeMap<String, String>) {
    let directory = tempfile::tempdir().unwrap();
    let output = pack(directory.path(), flags);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let files = tree(directory.path()).into_iter().map(|(name, bytes)| (name, String::from_utf8(bytes).unwrap()));
    let files = files.collect();
    (directory, files)
}

#[test]
fn without_options_the_pack_equals_the_repository() {
    let directory = tempfile::tempdir().unwrap();
    let below = directory.path().join("not/there/yet");
    assert!(pack(&below, &[]).status.success());
    let (expected, found) = (shipped(), tree(&below));
    let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(names(&found), names(&expected), "add new files to src/bundle/mod.rs");
    assert!(found == expected);
    assert!(found.len() > 40, "{}", found.len());
}

#[test]
fn changed_files_are_kept_without_force() {
    let (directory, files) = packed(&[]);
    let again = pack(directory.path(), &[]);
    assert_eq!(again.status.code(), Some(0));
    assert!(String::from_utf8(again.stdout).unwrap().starts_with("0 files written"));

    let (rules, alertmanager) = ("alerts/redis_lock.rules.yml", "alerts/alertmanager.yml");
    fs::write(directory.path().join(rules), "mine").unwrap();
    fs::remove_file(directory.path().join(alertmanager)).unwrap();
    let refused = pack(directory.path(), &[]);
    let printed = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{printed}");
    assert!(printed.contains(rules) && printed.contains("--force") && !printed.contains(alertmanager), "{printed}");
    assert_eq!(fs::read_to_string(directory.path().join(rules)).unwrap(), "mine");
    assert!(!directory.path().join(alertmanager).exists(), "no file may be written");

    assert_eq!(pack(directory.path(), &["--force"]).status.code(), Some(0));
    assert_eq!(fs::read_to_string(directory.path().join(rules)).unwrap(), files[rules]);
    assert!(directory.path().join(alertmanager).exists());
}

#[test]
fn runbook_links_can_use_another_base_url() {
    for (url, expected) in [
        ("https://wiki.example.com/locks/", "https://wiki.example.com/locks/ALERT"),
        ("https://git.example.com/{alert}.md?plain=1", "https://git.example.com/ALERT.md?plain=1"),
    ] {
        let (_directory, files) = packed(&["--runbook-base-url", url]);
        let mut n_alerts = 0;
        for (name, original) in shipped() {
            let original = String::from_utf8(original).unwrap();
            let mut alert = "";
            for (before, after) in original.lines().zip(files[&name].lines()) {
                alert = before.trim_start().strip_prefix("- alert: ").unwrap_or(alert);
                if name.ends_with(".yml") && before.contains("runbook_url:") {
                    let expected = expected.replace("ALERT", alert);
                    assert_eq!(after.trim(), format!("runbook_url: {expected}"), "{name}");
                    n_alerts += 1;
                } else {
                    assert_eq!(after, before, "{name}");
                }
            }
            assert_eq!(original.lines().count(), files[&name].lines().count());
        }
        assert!(n_alerts > 60, "{n_alerts}");
    }
}

#[derive(Deserialize)]
struct Rules {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Manifest {
    spec: Rules,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<BTreeMap<String, serde_yaml::Value>>,
}

/// Returns all rules of a file or of the operator's manifest.
fn rules(file: &str) -> Vec<BTreeMap<String, serde_yaml::Value>> {
    let groups = match serde_yaml::from_str::<Rules>(file) {
        Ok(rules) => rules.groups,
        Err(_) => serde_yaml::from_str::<Manifest>(file).unwrap().spec.groups,
    };
    groups.into_iter().flat_map(|group| group.rules).collect()
}

fn parse(expression: &str) -> promql_parser::parser::Expr {
    let readable = expression.replace("$__rate_interval", "4m").replace("$__range", "1h");
    promql_parser::parser::parse(&readable).unwrap_or_else(|error| panic!("{error}\n{readable}"))
}

/// Series recorded by rules have only the labels that the rules keep.
fn is_recorded(selector: &VectorSelector) -> bool {
    selector.name.as_deref().is_some_and(|name| name.contains(':') || name.starts_with("ALERTS"))
}

/// Checks that every selector of a metric that is not recorded has the matchers and that nothing
/// else changed. Returns the number of selectors.
fn compare(before: &str, after: &str) -> usize {
    let (before, after) = (parse(before), parse(after));
    let (mut old, mut new) = (Vec::new(), Vec::new());
    collect(&before, &mut old);
    collect(&after, &mut new);
    assert_eq!(old.len(), new.len());
    let mut n_changed = 0;
    for (old, new) in old.iter().zip(&new) {
        let (old, new) = (old.selector, new.selector);
        assert_eq!(old.name, new.name);
        let mut expected = old.matchers.matchers.clone();
        if !is_recorded(old) {
            expected.push(Matcher::new(MatchOp::Equal, "env", "prod"));
            expected.push(Matcher::new(MatchOp::Re("^(?:a|b)$".parse().unwrap()), "team", "a|b"));
            n_changed += 1;
        }
        let written = |matchers: &[Matcher]| matchers.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
        assert_eq!(written(&new.matchers.matchers), written(&expected), "{:?}", old.name);
    }
    let rest = after.to_string().replace(r#","#, ", ").replace(r#"env="prod""#, "").replace(r#"team=~"a|b""#, "");
    let plain = |text: &str| text.replace([' ', ',', '{', '}'], "");
    assert_eq!(plain(&rest), plain(&before.to_string()));
    n_changed
}

/// Returns every query string of a dashboard, by its location.
fn queries(json: &Value, place: &str, found: &mut BTreeMap<String, String>) {
    match json {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            let place = format!("{place}/{name}");
            match (name.as_str(), value) {
                ("expr" | "query" | "definition", Value::String(text)) => {
                    found.insert(place, text.clone());
                }
                _ => queries(value, &place, found),
            }
        }),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| queries(item, &format!("{place}/{index}"), found));
        }
        _ => {}
    }
}

/// Returns the selector inside `label_values(...)`. The name of a data source is not a query.
fn selected(query: &str) -> Option<&str> {
    match query.strip_prefix("label_values(") {
        Some(rest) => Some(rest.rsplit_once(", ").unwrap().0),
        None => (query != "prometheus").then_some(query),
    }
}

#[test]
fn matchers_are_added_to_every_selector() {
    let (directory, files) = packed(&["--selector", SELECTOR]);
    let mut n_changed = 0;
    for (name, original) in shipped() {
        let (before, after) = (String::from_utf8(original).unwrap(), &files[&name]);
        if name.ends_with(".rules.yml") || name == "alerts/prometheus-operator.yml" {
            let (old, new) = (rules(&before), rules(after));
            assert_eq!(old.len(), new.len());
            for (mut old, mut new) in old.into_iter().zip(new) {
                let (before, after) = (old.remove("expr").unwrap(), new.remove("expr").unwrap());
                n_changed += compare(before.as_str().unwrap(), after.as_str().unwrap());
                assert_eq!(old, new, "only expressions may change");
            }
        } else if name.ends_with(".json") {
            let (mut old, mut new) = (BTreeMap::new(), BTreeMap::new());
            queries(&serde_json::from_str(&before).unwrap(), "", &mut old);
            queries(&serde_json::from_str(after).unwrap(), "", &mut new);
            for (place, query) in &old {
                let Some(query) = selected(query) else { continue };
                n_changed += compare(query, selected(&new[place]).unwrap());
            }
            let is_query =
                |line: &str| ["\"expr\"", "\"query\"", "\"definition\""].iter().any(|field| line.contains(field));
            let others =
                |text: &str| text.lines().filter(|line| !is_query(line)).map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(others(&before), others(after), "{name}");
        } else {
            assert_eq!(&before, after, "{name}");
        }
    }
    assert!(n_changed > 150, "{n_changed}");
    for file in ["redis_lock.rules.yml", "cordum.rules.yml"] {
        promtool(&["check", "rules", text(&directory.path().join("alerts").join(file))]);
    }
}

#[test]
fn invalid_options_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    for flags in [
        ["--selector", "env=prod"],
        ["--selector", "{env=\"prod\"}"],
        ["--selector", "env=\"prod\"} or up{"],
        ["--selector", "env=\"a: b\""],
        ["--runbook-base-url", "wiki"],
    ] {
        let output = pack(directory.path(), &flags);
        let printed = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(64) && printed.contains(flags[0]), "{flags:?}: {printed}");
    }
    assert!(tree(directory.path()).is_empty());
}

#[test]
fn prometheus_accepts_the_scrape_examples() {
    let (directory, _) = packed(&[]);
    let prometheus = directory.path().join("deploy/prometheus");
    // promtool requires the files that the examples name.
    let secrets = prometheus.join("redis_lock_exporter");
    fs::create_dir(&secrets).unwrap();
    for name in ["ca.pem", "prometheus.pem", "prometheus.key", "password"] {
        fs::write(secrets.join(name), "").unwrap();
    }
    promtool(&["check", "config", text(&prometheus.join("scrape.yml"))]);
    // Debian 12 builds Prometheus without Kubernetes support. Newer versions have it, if
    // scripts/install_promtools.sh could install them.
    let kubernetes = prometheus.join("kubernetes.yml");
    let promtools = target_directory().join("promtool");
    let newer = ["trixie", "sid"].map(|release| promtools.join(release).join("usr/bin/promtool"));
    let found: Vec<_> = newer.iter().filter(|path| path.exists()).collect();
    if found.is_empty() {
        skip("no promtool that knows Kubernetes; `make test-all` fetches one and tests deployment files with it");
    }
    for promtool in found {
        run(text(promtool), &["check", "config", text(&kubernetes)]);
    }
}

fn promtool(arguments: &[&str]) {
    run("promtool", arguments);
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}; scripts/install.sh installs it"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
