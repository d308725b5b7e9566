//! Makes alert rules and Alertmanager configurations run faster: divides every duration in them by
//! a factor. The demo and the tests use it.
//!
//! The bundled rules wait for minutes before they fire. That is right for a pager and too long for
//! a demo or a test. This module changes the text of the bundled rules, so that no second set of
//! rules exists. It scales ranges and offsets in expressions (also in the queries of annotations),
//! `interval`, `for`, `keep_firing_for` and the waiting times of Alertmanager. The caller must also
//! scrape more often by the same factor, and must shorten lock TTLs, leader absences and similar
//! durations in the exporter's configuration.
//!
//! Plain numbers of seconds in expressions are not scaled, because the text does not distinguish
//! them from other numbers. Names are not changed either: after scaling, `increase10m` covers less
//! than ten minutes.

use std::sync::LazyLock;
use std::time::Duration;

use regex::{Captures, Regex};

/// A duration in the syntax of Prometheus, such as `5m30s`.
const DURATION: &str = r"(?:\d+(?:ms|[smhdwy]))+";

static PLACES: LazyLock<Regex> = LazyLock::new(|| {
    let fields = "interval|for|keep_firing_for|group_wait|group_interval|repeat_interval|resolve_timeout|\
                  scrape_interval|scrape_timeout|evaluation_interval";
    let pattern = format!(
        r#"(?x)
        (?P<field> ^\s* (?:-\s+)? (?:{fields}) :\s+ ["']? ) (?P<value> {DURATION} ) \b
        | \[ (?P<range> {DURATION} ) (?: (?P<colon> :) (?P<step> {DURATION} )? )? \]
        | \b offset \s+ (?P<offset> {DURATION} ) \b
        "#
    );
    Regex::new(&pattern).expect("a constant that the tests compile")
});
static PARTS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(\d+)(ms|[smhdwy])").expect("a constant that the tests compile"));

/// Returns the text with every duration divided by `factor`, but at least 1 ms. Comments are not
/// changed.
pub fn scale(text: &str, factor: u32) -> String {
    let mut scaled = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        match line.trim_start().starts_with('#') {
            true => scaled.push_str(line),
            false => scaled.push_str(&PLACES.replace_all(line, |found: &Captures| replace(found, factor))),
        }
    }
    scaled
}

/// Formats a duration in the syntax of Prometheus. Go's `time.ParseDuration` accepts the result,
/// too.
pub fn to_text(duration: Duration) -> String {
    match duration.subsec_millis() {
        0 => format!("{}s", duration.as_secs()),
        _ => format!("{}ms", duration.as_millis()),
    }
}

fn replace(found: &Captures, factor: u32) -> String {
    let divided = |name: &str| found.name(name).map(|text| divide(text.as_str(), factor)).unwrap_or_default();
    let kept = |name: &str| found.name(name).map_or("", |text| text.as_str());
    if found.name("field").is_some() {
        format!("{}{}", kept("field"), divided("value"))
    } else if found.name("range").is_some() {
        format!("[{}{}{}]", divided("range"), kept("colon"), divided("step"))
    } else {
        format!("offset {}", divided("offset"))
    }
}

fn divide(text: &str, factor: u32) -> String {
    let shorter = parse(text) / factor.max(1);
    to_text(Duration::from_millis(u64::try_from(shorter.as_millis()).unwrap_or(u64::MAX)).max(Duration::from_millis(1)))
}

/// Parses a text that matches `DURATION`. Numbers that are too large saturate.
fn parse(text: &str) -> Duration {
    let part = |found: Captures| {
        let number: u64 = found[1].parse().unwrap_or(u64::MAX);
        let milliseconds: u64 = match &found[2] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 604_800_000,
            _ => 31_536_000_000,
        };
        Duration::from_millis(number.saturating_mul(milliseconds))
    };
    PARTS.captures_iter(text).map(part).fold(Duration::ZERO, Duration::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, factor: u32, expected: &str) {
        assert_eq!(scale(text, factor), expected);
    }

    #[test]
    fn fields_ranges_and_offsets() {
        check("    interval: 30s\n", 10, "    interval: 3s\n");
        check("        for: 35m", 10, "        for: 210s");
        check("        keep_firing_for: \"5m30s\"  # why\n", 60, "        keep_firing_for: \"5500ms\"  # why\n");
        check("      - interval: 1m", 2, "      - interval: 30s");
        check("increase(a_total[2m]) > b[5m30s] offset 1h", 10, "increase(a_total[12s]) > b[33s] offset 360s");
        check("max_over_time(x[1d:5m])  y[6h:]", 60, "max_over_time(x[1440s:5s])  y[360s:]");
        check(
            "      group_wait: 10s\r\n      repeat_interval: 4h\r\n",
            10,
            "      group_wait: 1s\r\n      repeat_interval: 1440s\r\n",
        );
    }

    #[test]
    fn everything_else_stays() {
        for text in [
            "# So `interval: 30s` belongs to the rules: x[5m].\n",
            "  record: lock_namespace:redis_lock_not_owned:increase10m",
            "  of the releases of the last 10 minutes. Wait 5m for: it",
            "  url: http://host/[id]?a[5]=1 offset by 3",
            "  expr: time() - x > 180 + 720 * y",
            "",
        ] {
            check(text, 10, text);
        }
    }

    #[test]
    fn never_nothing() {
        check("x[5ms]", 1000, "x[1ms]");
        check("x[30s]", 0, "x[30s]");
        check("x[99999999999999999999y]", 1, "x[18446744073709551615ms]");
    }

    /// Checks that the scaling finds every duration in the bundled files.
    #[test]
    fn bundled_rules() {
        let any = Regex::new(r"\b(?:\d+(?:ms|[smhdwy]))+\b").unwrap();
        for (name, text) in [
            ("redis_lock.rules.yml", include_str!("../../alerts/redis_lock.rules.yml")),
            ("cordum.rules.yml", include_str!("../../alerts/cordum.rules.yml")),
            ("alertmanager.yml", include_str!("../../alerts/alertmanager.yml")),
        ] {
            let lines = || text.lines().filter(|line| !line.trim_start().starts_with('#'));
            let found: usize = lines().map(|line| any.find_iter(line).count()).sum();
            let places: usize = lines().map(|line| PLACES.find_iter(line).count()).sum();
            assert_eq!(places, found, "{name}");
            let scaled = scale(text, 10);
            assert_eq!(scaled.lines().count(), text.lines().count(), "{name}");
            let before: Duration = lines().flat_map(|line| any.find_iter(line)).map(|part| parse(part.as_str())).sum();
            let after: Duration = any.find_iter(&without_comments(&scaled)).map(|part| parse(part.as_str())).sum();
            assert_eq!(before, after * 10, "{name}");
        }
    }

    fn without_comments(text: &str) -> String {
        text.lines().filter(|line| !line.trim_start().starts_with('#')).collect::<Vec<_>>().join("\n")
    }
}
