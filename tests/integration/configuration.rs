//! Configurations, good and bad, through the public way in.
//!
//! `tests/fixtures/bad-config/NAME.yaml` has its whole expected output in `NAME.expected`.
//! `UPDATE_FIXTURES=1 cargo test --test integration bad_configurations` rewrites them: read the difference before a commit.

use std::fs;
use std::path::{Path, PathBuf};

use redis_lock_exporter::config::{Config, Overrides};

fn fixtures(extension: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/bad-config");
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|e| e == extension)).collect();
    paths.sort();
    paths
}

/// What a user sees for a text: its problems, or that there are none.
fn output(name: &str, text: &str) -> String {
    match Config::from_yaml(name, text, &Overrides::default()) {
        Ok(_) => "no problems\n".to_owned(),
        Err(problems) => format!("{problems}\n"),
    }
}

#[test]
fn bad_configurations() {
    let update = std::env::var_os("UPDATE_FIXTURES").is_some();
    let mut differences = String::new();
    for path in fixtures("yaml") {
        let name = path.file_name().unwrap().to_str().unwrap();
        let found = output(name, &fs::read_to_string(&path).unwrap());
        let expected_path = path.with_extension("expected");
        if update {
            fs::write(&expected_path, &found).unwrap();
        }
        let expected = fs::read_to_string(&expected_path).unwrap_or_default();
        if found != expected || found == "no problems\n" {
            differences += &format!("--- {name}, expected:\n{expected}--- found:\n{found}\n");
        }
    }
    assert!(differences.is_empty(), "{differences}");
    assert_eq!(fixtures("yaml").len(), fixtures("expected").len(), "an .expected without its .yaml");
}

#[test]
fn every_position_is_inside_the_text() {
    for path in fixtures("yaml") {
        let text = fs::read_to_string(&path).unwrap();
        let Err(problems) = Config::from_yaml("c.yaml", &text, &Overrides::default()) else { continue };
        for problem in problems.0.iter().filter(|problem| problem.file == "c.yaml") {
            let line = text.lines().nth(problem.line - 1).unwrap_or_default();
            assert!(problem.column <= line.chars().count() + 1, "{}: {problem}", path.display());
        }
    }
}

#[test]
fn examples_of_the_documentation_load() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/configuration.md");
    let text = fs::read_to_string(path).unwrap();
    let mut n_examples = 0;
    for block in text.split("```yaml\n").skip(1) {
        let yaml = block.split("```").next().unwrap();
        // Parts of a configuration are shown without log sources.
        let overrides = match yaml.contains("logs:") {
            true => Overrides::default(),
            false => Overrides { logs: vec!["/var/log/app.log".to_owned()], ..Overrides::default() },
        };
        if let Err(problems) = Config::from_yaml("docs/configuration.md", yaml, &overrides) {
            panic!("{problems}\n\n{yaml}");
        }
        n_examples += 1;
    }
    assert!(n_examples > 0);
}

#[test]
fn every_preset_loads_alone_and_with_all_others() {
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
