//! The whole text of `/metrics`: golden files, Prometheus's own linter and parser, and the documentation beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::{env, fs, io::Write};

use redis_lock_exporter::event::{ConflictKind, Label, Operation, Reason};
use redis_lock_exporter::exposition::{Build, Format, Kind, METRICS, Process, Scrape, render};
use redis_lock_exporter::ledger::counters::LogCounters;
use redis_lock_exporter::snapshot::Snapshot;

use crate::sample::{full_snapshot, namespace, view};

#[test]
fn openmetrics_equals_its_golden_file() {
    check_golden("metrics.openmetrics", &full_text(Format::OpenMetrics));
}

#[test]
fn classic_equals_its_golden_file() {
    check_golden("metrics.classic", &full_text(Format::Classic));
}

#[test]
fn the_full_snapshot_shows_every_metric_of_the_table_and_no_other() {
    for format in [Format::OpenMetrics, Format::Classic] {
        let text = full_text(format);
        let shown: BTreeSet<&str> = samples(&text).map(|line| line.split(['{', ' ']).next().unwrap()).collect();
        let table: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(shown, table);
    }
}

#[test]
fn samples_carry_the_labels_of_the_table() {
    let text = full_text(Format::OpenMetrics);
    for metric in METRICS {
        let line = samples(&text).find(|line| line.split(['{', ' ']).next() == Some(metric.name)).unwrap();
        let opening: Vec<String> = metric.labels().iter().map(|label| format!("{label}=\"")).collect();
        assert!(opening.iter().all(|label| line.contains(label)), "{line}");
        assert_eq!(line.matches("=\"").count(), opening.len(), "{line}");
    }
}

#[test]
fn counters_of_every_namespace_and_label_value_start_at_zero() {
    let namespaces = ["approval", "other"].map(|name| view(namespace(name), LogCounters::default()));
    let text = render(&Snapshot { namespaces: namespaces.into(), ..Snapshot::default() }, Format::Classic);
    fn values<L: Label>() -> Vec<&'static str> {
        L::ALL.iter().map(|label| label.as_str()).collect()
    }
    let values: BTreeMap<&str, Vec<&str>> = BTreeMap::from([
        ("operation", values::<Operation>()),
        ("reason", values::<Reason>()),
        ("kind", values::<ConflictKind>()),
    ]);
    for metric in METRICS.iter().filter(|metric| metric.kind == Kind::Counter) {
        for namespace in ["approval", "other"] {
            let expected: Vec<String> = match metric.labels() {
                ["lock_namespace"] => vec![format!("{}{{lock_namespace=\"{namespace}\"}} 0", metric.name)],
                ["lock_namespace", label] => {
                    let name = metric.name;
                    let line = |value| format!("{name}{{lock_namespace=\"{namespace}\",{label}=\"{value}\"}} 0");
                    values[label].iter().map(line).collect()
                }
                _ => continue,
            };
            for line in expected {
                assert!(text.lines().any(|shown| shown == line), "missing: {line}");
            }
        }
    }
}

#[test]
fn promtool_finds_nothing_to_say_about_the_classic_form() {
    let (ok, output) = promtool(&["check", "metrics"], &full_text(Format::Classic));
    assert!(ok && output.is_empty(), "promtool check metrics: {output}");
}

/// `promtool check metrics` reads the classic form only; its importer has Prometheus's OpenMetrics parser, and wants timestamps.
#[test]
fn prometheus_parses_the_openmetrics_form() {
    let text = full_text(Format::OpenMetrics);
    let stamped: Vec<String> = text
        .lines()
        .map(|line| if line.starts_with('#') { line.to_owned() } else { format!("{line} 1785000000") })
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let (input, blocks) = (folder.path().join("metrics"), folder.path().join("blocks"));
    fs::write(&input, stamped.join("\n") + "\n").unwrap();
    let arguments = ["tsdb", "create-blocks-from", "openmetrics", input.to_str().unwrap(), blocks.to_str().unwrap()];
    let (ok, output) = promtool(&arguments, "");
    assert!(ok, "promtool cannot read the OpenMetrics form: {output}");

    let block = fs::read_dir(&blocks).unwrap().map(|entry| entry.unwrap().path().join("meta.json"));
    let meta: serde_json::Value =
        serde_json::from_slice(&fs::read(block.into_iter().find(|meta| meta.exists()).unwrap()).unwrap()).unwrap();
    assert_eq!(meta["stats"]["numSeries"], samples(&text).count(), "{meta}");
}

#[test]
fn both_forms_hold_the_same_samples() {
    let (openmetrics, classic) = (full_text(Format::OpenMetrics), full_text(Format::Classic));
    assert!(samples(&openmetrics).eq(samples(&classic)));
}

/// Rows of the tables in the documentation: `| `name` | type | `label`, ... | meaning |`.
#[test]
fn the_documentation_lists_the_metrics_of_the_table_and_no_other() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    let page = fs::read_to_string(&path).unwrap();
    let mut documented = BTreeMap::new();
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, labels, meaning] = cells[..] else { panic!("not four columns: {row}") };
        assert!(meaning.len() > 20, "says nothing: {row}");
        let twice = documented.insert(name.replace('`', ""), (kind.to_owned(), labels.replace('`', "")));
        assert!(twice.is_none(), "documented twice: {row}");
    }
    let table: BTreeMap<String, (String, String)> = METRICS
        .iter()
        .map(|metric| (metric.name.to_owned(), (metric.kind.as_str().to_owned(), metric.labels().join(", "))))
        .collect();
    assert_eq!(documented, table);

    let words = page.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
    for word in
        words.filter(|word| word.starts_with("redis_lock_") && *word != "redis_lock_exporter" && !word.ends_with('_'))
    {
        assert!(table.contains_key(word), "{} speaks of {word}, which is no metric", path.display());
    }
}

fn full_text(format: Format) -> String {
    let process = Process {
        resident_memory_bytes: Some(12_345_344),
        cpu_seconds: Some(1.25),
        open_fds: Some(17),
        max_fds: Some(1_024),
        start_time_seconds: Some(1_784_998_999.75),
    };
    let build = Build { version: "1.2.3", revision: "0123456789ab" };
    Scrape { snapshot: Arc::new(full_snapshot()), process, build }.render(format)
}

fn samples(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with('#'))
}

/// With `UPDATE_FIXTURES=1` the golden file is rewritten instead: read the difference before committing it.
fn check_golden(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/golden").join(name);
    if env::var_os("UPDATE_FIXTURES").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, actual).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    for (number, (golden, actual)) in golden.lines().zip(actual.lines()).enumerate() {
        assert_eq!(golden, actual, "{}:{}", path.display(), number + 1);
    }
    assert_eq!(golden, actual);
}

/// Runs promtool, which `make test` needs installed; answers success and all its output.
fn promtool(arguments: &[&str], input: &str) -> (bool, String) {
    let mut command = Command::new("promtool");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("promtool is needed for the tests: apt-get install prometheus");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text.into_owned())
}
