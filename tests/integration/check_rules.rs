//! Tests `check --rules`, which checks whether Prometheus rules match this exporter.

use std::fs;

use crate::daemon::{command, text};

fn check(yaml: &str, flags: &[&str]) -> (i32, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rules.yml");
    fs::write(&path, yaml).unwrap();
    let mut arguments = vec!["check", "--rules", text(&path)];
    arguments.extend(flags);
    let output = command(&arguments);
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8(printed).unwrap().replace(text(&path), "rules.yml");
    (output.status.code().unwrap(), printed)
}

const GOOD: &str = r#"
groups:
  - name: locks
    rules:
      - record: lock_namespace:redis_lock_not_owned:rate5m
        expr: sum by (lock_namespace) (rate(redis_lock_not_owned_total{job="x", operation=~"release|renew"}[5m]))
      - alert: Lost
        expr: lock_namespace:redis_lock_not_owned:rate5m > 0 and on () up == 1
      - alert: Slow
        expr: histogram_quantile(0.99, sum by (le) (rate(redis_lock_hold_seconds_bucket{cluster="a"}[5m]))) > 5
"#;

#[test]
fn matching_rules_are_counted() {
    let (code, printed) = check(GOOD, &[]);
    assert_eq!((code, printed.as_str()), (0, "The rules fit this exporter: 2 alerts, 1 recording rule.\n"));
    assert_eq!(check(GOOD, &["--output", "json"]), (0, "[]\n".to_owned()));
    let manifest =
        format!("apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nspec:{}", GOOD.replace('\n', "\n  "));
    assert_eq!(check(&manifest, &[]).0, 0);
}

#[test]
fn unknown_metrics_and_labels_are_reported_with_their_line() {
    let bad = GOOD
        .replace("redis_lock_not_owned_total{", "redis_lock_not_ownd_total{")
        .replace("lock_namespace:redis_lock_not_owned:rate5m > 0", "lock_namespace:redis_lock_not_owned:rate1m > 0")
        .replace("hold_seconds_bucket{cluster=\"a\"}", "hold_seconds_bucket{reason=\"other\"}");
    let (code, printed) = check(&bad, &[]);
    assert_eq!(code, 1);
    for part in [
        "rules.yml:6:15: this exporter has no metric `redis_lock_not_ownd_total`",
        "did you mean `redis_lock_not_owned_total`?",
        "rules.yml:8:15: neither this file nor the bundled rules record `lock_namespace:redis_lock_not_owned:rate1m`",
        "rules.yml:10:15: `redis_lock_hold_seconds` has no label `reason`",
        "3 problems",
    ] {
        assert!(printed.contains(part), "no {part:?} in\n{printed}");
    }
    let (code, printed) = check(&GOOD.replace("release|renew", "acquire"), &["--output", "json"]);
    assert_eq!(code, 1);
    assert!(printed.contains("is never \\\"acquire\\\""), "{printed}");
}

#[test]
fn grouping_and_join_labels_and_annotation_queries_are_checked() {
    let rule = |expr: &str, annotation: &str| {
        let rule = serde_json::json!({"alert": "A", "expr": expr, "annotations": {"description": annotation}});
        check(&serde_json::json!({"groups": [{"name": "a", "rules": [rule]}]}).to_string(), &[])
    };
    for (expr, annotation) in [
        ("sum by (lock_namespace, team, le) (redis_lock_held) > 1", "{{ $value }}"),
        // Metrics of another exporter, metrics recorded by the bundled rules, and labels created by
        // the expression.
        ("sum by (reason) (other_total) * on (lock_namespace) redis_lock_held", ""),
        (
            "lock_namespace:redis_lock_not_owned:sustained > 0",
            "{{ with query \"redis_lock_held{redis=\\\"a\\\"}\" }}{{ end }}",
        ),
        ("sum by (reason) (label_replace(redis_lock_held, \"reason\", \"a\", \"\", \"\"))", ""),
    ] {
        let (code, printed) = rule(expr, annotation);
        assert_eq!(code, 0, "{expr}: {printed}");
    }
    for (expr, annotation, complaint) in [
        ("sum by (lock_namspace) (redis_lock_held) > 1", "", "no label `lock_namspace`"),
        ("sum without (reason) (redis_lock_held) > 1", "", "none of the metrics has the label `reason`"),
        ("redis_lock_held * on (cause) redis_lock_without_ttl", "", "none of the metrics has the label `cause`"),
        ("up == 1", "{{ with query \"redis_lock_hold\" }}{{ end }}", "no metric `redis_lock_hold`"),
        ("up == 1", "{{ printf \"redis_lock_held{reason=%q}\" $labels.x | query }}", "has no label `reason`"),
        (
            "lock_namespace:redis_lock_not_owned:sustaned > 0",
            "",
            "did you mean `lock_namespace:redis_lock_not_owned:sustained`?",
        ),
    ] {
        let (code, printed) = rule(expr, annotation);
        assert!(code == 1 && printed.contains(complaint), "{expr} {annotation}: {printed}");
    }
}

#[test]
fn the_bundled_rules_match_the_exporter() {
    for file in ["redis_lock.rules.yml", "links.rules.yml", "cordum.rules.yml", "prometheus-operator.yml"] {
        let path = format!("{}/alerts/{file}", env!("CARGO_MANIFEST_DIR"));
        let output = command(&["check", "--rules", &path]);
        assert!(output.status.success(), "{file}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn a_file_without_rules_is_rejected() {
    for (yaml, complaint) in
        [("{}", "there are no rules"), ("groups: [", "rules.yml:"), ("a: 1\n---\nb: 2", "more than one")]
    {
        let (code, printed) = check(yaml, &[]);
        assert_eq!(code, 1, "{yaml}: {printed}");
        assert!(printed.contains(complaint), "{yaml}: {printed}");
    }
    let output = command(&["check", "--rules", "/nonexistent/rules.yml"]);
    assert_eq!(output.status.code(), Some(1));
}
