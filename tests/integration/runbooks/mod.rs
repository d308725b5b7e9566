//! Tests the runbooks. Each alert has one, its queries use existing metrics, and its commands run,
//! only read, and print no token.

mod commands;
pub(crate) mod pack;
mod page;
pub(crate) mod queries;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use page::{DIRECTORY, Page, alert_pages, all_pages};
use regex::Regex;

const SECTIONS: [&str; 7] = ["Meaning", "Impact", "Is it real?", "Diagnosis", "Mitigation", "Tuning", "Related"];

#[test]
fn every_alert_has_a_runbook_and_every_runbook_an_alert() {
    let alerts: BTreeSet<String> = pack::alerts().into_keys().collect();
    let pages: BTreeSet<String> = alert_pages().iter().map(|page| page.name().to_owned()).collect();
    let without: Vec<&String> = alerts.difference(&pages).collect();
    let orphans: Vec<&String> = pages.difference(&alerts).collect();
    assert!(without.is_empty() && orphans.is_empty(), "without a runbook: {without:?}; of no alert: {orphans:?}");
}

#[test]
fn every_runbook_url_points_to_its_page() {
    for (alert, rules) in pack::alerts() {
        for rule in rules {
            let url = rule.annotations.get("runbook_url").unwrap_or_else(|| panic!("{alert} has no runbook_url"));
            assert!(url.ends_with(&format!("/docs/runbooks/{alert}.md")), "{alert}: {url}");
        }
    }
}

#[test]
fn every_runbook_has_all_sections_in_order_with_content() {
    for page in alert_pages() {
        assert_eq!(page.headings(1), [page.name()], "{}", page.place());
        assert_eq!(page.headings(2), SECTIONS, "{}", page.place());
        for section in SECTIONS {
            assert!(page.section(section).len() > 20, "{}: {section} is too short", page.place());
        }
        let diagnosis = page.section("Diagnosis");
        assert!(diagnosis.contains("|---|"), "{}: no decision table", page.place());
    }
}

/// The first line of a page agrees with the rule file: `critical · for 5m · keeps firing 10m ·
/// failover-sensitive`.
#[test]
fn the_first_line_of_a_runbook_agrees_with_the_rules() {
    for page in alert_pages() {
        let rules = &pack::alerts()[page.name()];
        let expected: BTreeSet<String> = rules.iter().map(in_short).collect();
        let shown = page.text.lines().nth(2).unwrap_or_default().trim_matches('*');
        let shown: BTreeSet<String> = shown.split("**, **").map(str::to_owned).collect();
        assert_eq!(shown, expected, "{}", page.place());
    }
}

fn in_short(rule: &pack::Rule) -> String {
    let mut words = vec![rule.labels["severity"].clone()];
    words.extend(rule.pending.as_ref().map(|duration| format!("for {duration}")));
    words.extend(rule.keep_firing_for.as_ref().map(|duration| format!("keeps firing {duration}")));
    if rule.labels.get("failover_sensitive").is_some_and(|value| value == "true") {
        words.push("failover-sensitive".to_owned());
    }
    words.join(" · ")
}

/// The number of bad slices of an alert determines how long a failure must last. The page states it
/// as a number or in minutes.
#[test]
fn the_meaning_of_a_runbook_names_the_slices_that_the_rules_count() {
    let count = Regex::new(r"sum_over_time\([a-z_:]+:slice_[a-z]+\[\w+\]\) >= (\d+)").unwrap();
    let number = Regex::new(r"\d+").unwrap();
    let shared = Page::read(&Path::new(DIRECTORY).join("common/sustained.md"));
    let mut n_counts = 0;
    for page in alert_pages() {
        let meaning = page.section("Meaning");
        for rule in &pack::alerts()[page.name()] {
            let is_used = |record: &&pack::Rule| rule.expr.contains(record.record.as_deref().unwrap());
            let recorded = pack::rules().into_iter().filter(|rule| rule.record.is_some());
            let records: Vec<pack::Rule> = recorded.filter(|record| is_used(&record)).collect();
            // The shared page states it for both ratios.
            let is_shared = records.iter().any(|record| record.expr.contains("slice_bad[5m30s]"));
            let text = if is_shared { &shared.text } else { &meaning };
            let said: BTreeSet<u32> = number.find_iter(text).map(|found| found.as_str().parse().unwrap()).collect();
            for expression in records.iter().map(|record| &record.expr).chain([&rule.expr]) {
                for captures in count.captures_iter(expression) {
                    let slices: u32 = captures[1].parse().unwrap();
                    let is_said = said.contains(&slices) || (slices.is_multiple_of(2) && said.contains(&(slices / 2)));
                    assert!(is_said || slices == 1, "{}: {slices} slices", page.place());
                    n_counts += 1;
                }
            }
        }
    }
    assert!(n_counts > 10, "only {n_counts} counts were found");
}

/// If an alert compares a ratio over some minutes with a fixed share, its page names the number of
/// minutes.
#[test]
fn the_meaning_of_a_runbook_names_the_window_of_a_fixed_share() {
    let share = Regex::new(r":ratio(\d+)m >=? 0\.\d+").unwrap();
    let mut n_windows = 0;
    for page in alert_pages() {
        let meaning = page.section("Meaning").replace('\n', " ");
        for rule in &pack::alerts()[page.name()] {
            for captures in share.captures_iter(&rule.expr) {
                let window = format!("{} minutes", &captures[1]);
                assert!(meaning.contains(&window), "{}: the page does not name {window}", page.place());
                n_windows += 1;
            }
        }
    }
    assert!(n_windows > 0, "no alert compares a ratio with a fixed share");
}

/// Fields such as `thresholds.min_failures` and `style: loop` in runbooks exist in the
/// configuration.
#[test]
fn configuration_fields_in_runbooks_are_documented() {
    let configuration = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/configuration.md");
    let configuration = fs::read_to_string(configuration).unwrap();
    let field = Regex::new(r"`(?:[a-z_]+\.)*([a-z_]+)(?:: [^`]*)?`").unwrap();
    let mut n_fields = 0;
    for page in alert_pages() {
        for captures in field.captures_iter(&page.section("Tuning")) {
            let is_known = configuration.contains(&format!("`{}`", &captures[1]));
            assert!(is_known, "{}: {} is not a documented configuration field", page.place(), &captures[0]);
            n_fields += 1;
        }
    }
    assert!(n_fields > 20, "only {n_fields} fields were found");
}

#[test]
fn the_index_links_to_every_page() {
    let index = all_pages().into_iter().find(|page| page.name() == "README").unwrap();
    let links: BTreeSet<String> = index.links().into_iter().collect();
    for page in all_pages().iter().filter(|page| page.name() != "README") {
        assert!(links.contains(&page.place()), "README.md has no link to {}", page.place());
    }
}

#[test]
fn links_point_to_existing_files_and_headings() {
    for page in all_pages() {
        for link in page.links() {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { page.path.clone() } else { page.path.parent().unwrap().join(file) };
            assert!(target.exists(), "{}: {link}", page.place());
            let is_known = anchor.is_empty() || Page::read(&target).anchors().iter().any(|known| known == anchor);
            assert!(is_known, "{}: {link}: no such heading", page.place());
        }
    }
}

/// Shared text belongs in the shared pages. A sentence in several runbooks would be updated in only
/// one of them.
#[test]
fn runbooks_do_not_repeat_each_other() {
    let mut seen: Vec<(String, String)> = Vec::new();
    for page in alert_pages() {
        for line in page.prose().lines().filter(|line| line.len() > 100) {
            let earlier = seen.iter().find(|(text, _)| text == line);
            assert!(earlier.is_none(), "{} and {}: {line}", page.place(), earlier.unwrap().1);
            seen.push((line.to_owned(), page.place()));
        }
    }
}
