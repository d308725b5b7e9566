//! Tests the complete text of `/metrics` against golden files, Prometheus's linter and parser, and
//! the documentation.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::{env, fs, io::Write};

use redis_lock_exporter::config::rules::countable::CountableSeries;
use redis_lock_exporter::config::{Config, Overrides};
use redis_lock_exporter::exposition::{Build, MetricKind, ProcessStats, Scrape, TextFormat, metrics, render};
use redis_lock_exporter::model::counters::FailureCounters;
use redis_lock_exporter::model::failure::{Cause, ConflictKind, FailureKind, Operation, Reason};
use redis_lock_exporter::model::key_template::KeyTemplate;
use redis_lock_exporter::model::label::Label;
use redis_lock_exporter::model::namespace::Namespace;
use redis_lock_exporter::snapshot::{NamespaceView, RedisView, Snapshot};

use crate::sample::{full_counters, full_keyspace, full_redis, full_snapshot, namespace, tally, view};

#[test]
fn the_openmetrics_format_equals_its_golden_file() {
    check_golden("metrics.openmetrics", &full_text(TextFormat::OpenMetrics));
}

#[test]
fn the_classic_format_equals_its_golden_file() {
    check_golden("metrics.classic", &full_text(TextFormat::Classic));
}

#[test]
fn the_full_snapshot_shows_exactly_the_metrics_of_the_table() {
    for format in [TextFormat::OpenMetrics, TextFormat::Classic] {
        let text = full_text(format);
        let shown: BTreeSet<&str> = samples(&text).map(name_of).collect();
        let table: BTreeSet<&str> = metrics().map(|metric| metric.name).collect();
        assert_eq!(shown, table);
    }
}

#[test]
fn samples_have_the_labels_of_the_metric_table() {
    let text = full_text(TextFormat::OpenMetrics);
    for metric in metrics() {
        let line = samples(&text).find(|line| name_of(line) == metric.name).unwrap();
        let opening: Vec<String> = metric.labels().iter().map(|label| format!("{label}=\"")).collect();
        assert!(opening.iter().all(|label| line.contains(label)), "{line}");
        assert_eq!(line.matches("=\"").count(), opening.len(), "{line}");
    }
}

#[test]
fn counters_of_every_namespace_and_label_value_start_at_zero() {
    let keys = vec![KeyTemplate::parse("lock:{id}").unwrap()];
    let namespaces = ["approval", "jobs"]
        .map(|name| view(Namespace { keys: keys.clone(), ..namespace(name) }, FailureCounters::default()));
    let text = render(&Snapshot { namespaces: namespaces.into(), ..Snapshot::default() }, TextFormat::Classic);
    fn values<L: Label>() -> Vec<&'static str> {
        L::ALL.iter().map(|label| label.as_str()).collect()
    }
    let values: BTreeMap<&str, Vec<&str>> = BTreeMap::from([
        ("operation", values::<Operation>()),
        ("reason", values::<Reason>()),
        ("kind", values::<ConflictKind>()),
        ("cause", values::<Cause>()),
    ]);
    for metric in metrics().filter(|metric| metric.kind == MetricKind::Counter) {
        for namespace in ["approval", "jobs"] {
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
fn keyspace_counters_that_can_count_start_at_zero() {
    let text = full_text(TextFormat::Classic);
    // This namespace was not observed yet.
    let labels = "redis=\"main\",lock_namespace=\"reconciler\"";
    let counters = ["acquisitions", "renewals", "releases", "expirations", "unknown_ends", "early_releases"];
    for counter in counters.into_iter().chain(["untracked_locks"]) {
        let line = format!("redis_lock_{counter}_total{{{labels}}} 0");
        assert!(text.lines().any(|shown| shown == line), "missing: {line}");
    }
    for after in ["release", "expiry", "unknown"] {
        let line = format!("redis_lock_owner_changes_total{{{labels},after=\"{after}\"}} 0");
        assert!(text.lines().any(|shown| shown == line), "missing: {line}");
    }
    assert!(text.contains(&format!("\nredis_lock_operations_source{{{labels},source=\"none\"}} 1\n")));
    assert!(text.contains(&format!("\nredis_lock_takeover_seconds_bucket{{le=\"+Inf\",{labels}}} 0\n")));
    for absent in ["hold_seconds_count", "renewal_margin_ratio_count", "fence_regressions_total", "takeovers_total"] {
        assert!(
            !text.contains(&format!("redis_lock_{absent}{{{labels}")),
            "{absent} cannot be counted in this namespace"
        );
    }
    let keyspace = samples(&text).filter(|line| line.contains("redis=\"main\""));
    assert!(
        keyspace.into_iter().all(|line| !line.contains("lock_namespace=\"other\"")),
        "the namespace `other` has no keys"
    );
}

/// A counter without a rule has no series, but a nonzero counter always has one.
#[test]
fn a_counter_without_a_rule_has_no_series_until_it_is_counted() {
    let overrides = Overrides { presets: vec!["cordum".to_owned()], ..Overrides::default() };
    let config = Config::load_without_logs(None, &overrides).unwrap();
    let views = config.namespaces.iter().map(|namespace| view(Namespace::clone(namespace), FailureCounters::default()));
    let mut snapshot =
        Snapshot { namespaces: views.collect(), countable: config.rules.countable(), ..Snapshot::default() };
    let text = render(&snapshot, TextFormat::Classic);
    let has = |text: &str, sample: &str| text.contains(&format!("\nredis_lock_{sample} "));
    for possible in [
        "renewal_failures_total{lock_namespace=\"scheduler\",reason=\"denied\"}",
        "renewal_failures_total{lock_namespace=\"saga\",reason=\"not_owned\"}",
        "acquire_failures_total{lock_namespace=\"saga\",reason=\"busy\"}",
        "release_failures_total{lock_namespace=\"delay_poller\",reason=\"other\"}",
        "conflicting_writes_total{lock_namespace=\"scheduler\",kind=\"duplicate_terminal_state\"}",
        "abandonments_total{lock_namespace=\"scheduler\"}",
        "unlocked_work_total{lock_namespace=\"workflow\"}",
        "not_owned_total{lock_namespace=\"other\",operation=\"renew\"}",
    ] {
        assert!(has(&text, possible), "missing: {possible}");
    }
    let impossible = [
        "renewal_failures_total{lock_namespace=\"saga\",reason=\"denied\"}",
        "renewal_failures_total{lock_namespace=\"scheduler\",reason=\"busy\"}",
        "abandonments_total{lock_namespace=\"saga\"}",
    ];
    assert!(impossible.iter().all(|sample| !has(&text, sample)), "{text}");
    for view in &mut snapshot.namespaces {
        view.logs = full_counters();
    }
    let text = render(&snapshot, TextFormat::Classic);
    assert!(impossible.iter().all(|sample| has(&text, sample)), "{text}");
}

#[test]
fn promtool_reports_no_problem_with_the_classic_format() {
    let (ok, output) = promtool(&["check", "metrics"], &full_text(TextFormat::Classic));
    assert!(ok && output.is_empty(), "promtool check metrics: {output}");
}

/// `promtool check metrics` reads only the classic format. promtool's importer contains
/// Prometheus's OpenMetrics parser and requires timestamps.
#[test]
fn prometheus_parses_the_openmetrics_format() {
    let text = full_text(TextFormat::OpenMetrics);
    let stamped: Vec<String> = text
        .lines()
        .map(|line| if line.starts_with('#') { line.to_owned() } else { format!("{line} 1785000000") })
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let (input, blocks) = (folder.path().join("metrics"), folder.path().join("blocks"));
    fs::write(&input, stamped.join("\n") + "\n").unwrap();
    let arguments = ["tsdb", "create-blocks-from", "openmetrics", input.to_str().unwrap(), blocks.to_str().unwrap()];
    let (ok, output) = promtool(&arguments, "");
    assert!(ok, "promtool cannot read the OpenMetrics format: {output}");

    let block = fs::read_dir(&blocks).unwrap().map(|entry| entry.unwrap().path().join("meta.json"));
    let meta: serde_json::Value =
        serde_json::from_slice(&fs::read(block.into_iter().find(|meta| meta.exists()).unwrap()).unwrap()).unwrap();
    assert_eq!(meta["stats"]["numSeries"], samples(&text).count(), "{meta}");
}

#[test]
fn both_text_formats_contain_the_same_samples() {
    let (openmetrics, classic) = (full_text(TextFormat::OpenMetrics), full_text(TextFormat::Classic));
    assert!(samples(&openmetrics).eq(samples(&classic)));
}

/// Returns the rows of the documentation's tables: `| `name` | type | `label`, ... | meaning |`.
#[test]
fn the_documentation_lists_exactly_the_metrics_of_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    let page = fs::read_to_string(&path).unwrap();
    let mut documented = BTreeMap::new();
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, labels, meaning] = cells[..] else { panic!("not four columns: {row}") };
        assert!(meaning.len() > 20, "the meaning is too short: {row}");
        let twice = documented.insert(name.replace('`', ""), (kind.to_owned(), labels.replace('`', "")));
        assert!(twice.is_none(), "documented twice: {row}");
    }
    let table: BTreeMap<String, (String, String)> = metrics()
        .map(|metric| (metric.name.to_owned(), (metric.kind.as_str().to_owned(), metric.labels().join(", "))))
        .collect();
    assert_eq!(documented, table);

    let words = page.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
    for word in
        words.filter(|word| word.starts_with("redis_lock_") && *word != "redis_lock_exporter" && !word.ends_with('_'))
    {
        assert!(table.contains_key(word), "{} mentions {word}, which is not a metric", path.display());
    }
}

/// Uses the largest preset. Half of its namespaces have enough activity for advice and takeovers,
/// and contain keys that are not locks.
#[test]
fn a_scrape_with_the_cordum_preset_stays_below_100_kb() {
    let overrides = Overrides {
        logs: vec!["/var/log/cordum/*.log".to_owned()],
        presets: vec!["cordum".to_owned()],
        ..Overrides::default()
    };
    let config = Config::load(None, &overrides).unwrap();
    let namespaces = config.namespaces.iter().enumerate().map(|(index, namespace)| NamespaceView {
        namespace: Arc::clone(namespace),
        logs: counted(&config.rules.countable()[index]),
        causes: tally(60),
        keyspace: (!namespace.keys.is_empty()).then(|| {
            let mut keyspace = full_keyspace(namespace);
            if index % 2 == 1 {
                keyspace.counters.takeover_seconds = Default::default();
                keyspace.counters.hold_seconds = Default::default();
                keyspace.counters.renewal_margin_ratio = Default::default();
                keyspace.now.not_locks = 0;
            }
            keyspace
        }),
        lately: Default::default(),
    });
    let redis = RedisView { name: "redis".to_owned(), now: full_redis() };
    let mut snapshot = Snapshot {
        namespaces: namespaces.collect(),
        countable: config.rules.countable(),
        redis: Some(redis),
        ..full_snapshot()
    };
    snapshot.sources.truncate(1);
    for format in [TextFormat::OpenMetrics, TextFormat::Classic] {
        let text = text(snapshot.clone(), format);
        assert!(text.len() < 100_000, "{format:?}: {} bytes, {} series", text.len(), samples(&text).count());
    }
}

/// Returns nonzero counters for everything that the rules can count.
fn counted(countable: &CountableSeries) -> FailureCounters {
    let mut counters = FailureCounters::default();
    let failures = FailureKind::ALL.iter().flat_map(|kind| kind.all_failures());
    failures.filter(|failure| countable.contains(*failure)).for_each(|failure| counters.add(failure, 1_000));
    counters
}

fn full_text(format: TextFormat) -> String {
    text(full_snapshot(), format)
}

fn text(snapshot: Snapshot, format: TextFormat) -> String {
    let process = ProcessStats {
        resident_memory_bytes: Some(12_345_344),
        cpu_seconds: Some(1.25),
        open_fds: Some(17),
        max_fds: Some(1_024),
        start_time_seconds: Some(1_784_998_999.75),
    };
    let build = Build { version: "1.2.3", revision: "0123456789ab" };
    Scrape { snapshot: Arc::new(snapshot), process, build }.render(format)
}

/// Returns the metric to which a sample belongs.
fn name_of(sample: &str) -> &str {
    let name = sample.split(['{', ' ']).next().unwrap();
    let histogram = metrics().filter(|metric| metric.kind == MetricKind::Histogram).find(|metric| {
        let suffix = name.strip_prefix(metric.name);
        suffix.is_some_and(|suffix| ["_bucket", "_sum", "_count"].contains(&suffix))
    });
    histogram.map_or(name, |metric| metric.name)
}

fn samples(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with('#'))
}

/// Compares text with a golden file. `UPDATE_FIXTURES=1` rewrites the file instead. Review the diff
/// before you commit it.
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

/// Runs promtool and returns whether it succeeded, with all its output. `make test` needs promtool
/// installed.
fn promtool(arguments: &[&str], input: &str) -> (bool, String) {
    let mut command = Command::new("promtool");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("promtool is needed for the tests: apt-get install prometheus");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text.into_owned())
}
