//! Prints advice for people: a table, the reasons, and a configuration with the advised values.
//!
//! `advise` calls `write`; the JSON output uses [`reasons`] and [`configuration`].

use std::io::{self, Write};
use std::time::Duration;

use super::Advised;
use crate::model::namespace::Namespace;
use crate::report::advice::{Advice, Confidence, Model, Note};
use crate::util::units::{brief, format_duration};

const HEADINGS: [&str; 8] =
    ["NAMESPACE", "MODEL", "TTL", "RENEW EVERY", "MAY FAIL", "TAKEOVER / SLO", "SAMPLES", "CONFIDENCE"];

pub(super) fn write(out: &mut impl Write, advised: &[Advised]) -> io::Result<()> {
    let rows: Vec<[String; 8]> = advised.iter().map(row).collect();
    write_row(out, &HEADINGS.map(str::to_owned), &rows)?;
    for row in &rows {
        write_row(out, row, &rows)?;
    }
    writeln!(out)?;
    for advised in advised {
        writeln!(out, "{}: {}", advised.name(), verdict(advised))?;
        for reason in reasons(&advised.namespace, &advised.advice) {
            writeln!(out, "  {reason}")?;
        }
        for note in notes(&advised.advice) {
            writeln!(out, "  note: {note}")?;
        }
    }
    writeln!(out)?;
    match configuration(advised) {
        Some(yaml) => write!(out, "{yaml}"),
        None if advised.iter().any(|advised| !advised.advice.findings.is_empty()) => {
            writeln!(out, "No other value helps alone: see above.")
        }
        None => writeln!(out, "Nothing to change, according to the observed data."),
    }
}

fn write_row(out: &mut impl Write, cells: &[String; 8], rows: &[[String; 8]]) -> io::Result<()> {
    let mut line = String::new();
    for (index, cell) in cells.iter().enumerate() {
        let width = rows.iter().map(|row| row[index].len()).max().unwrap_or_default().max(HEADINGS[index].len());
        line += &format!("{cell:width$}  ");
    }
    writeln!(out, "{}", line.trim_end())
}

fn row(advised: &Advised) -> [String; 8] {
    let Advised { namespace, advice, .. } = advised;
    let takeover = advice.takeover.map(|takeover| {
        let slo = takeover.slo.map_or_else(|| "-".to_owned(), brief);
        format!("{} / {slo}", brief(takeover.bound))
    });
    let confidence = match (advice.model, advice.confidence) {
        // The advice for a loop lock follows from the configuration alone.
        (Model::Loop, Confidence::None) => "-",
        (_, confidence) => confidence.as_str(),
    };
    [
        advised.name(),
        advice.model.as_str().to_owned(),
        change(namespace.ttl, advice.ttl, if advice.is_step { "+" } else { "" }),
        change(namespace.renew_every, advice.renew_every, ""),
        advice.may_fail.map_or_else(|| "-".to_owned(), |count| count.to_string()),
        takeover.unwrap_or_else(|| "-".to_owned()),
        advice.n_samples.to_string(),
        confidence.to_owned(),
    ]
}

/// `30s`, or `10s -> 20s`. The suffix `+` means that the advised value may have to be larger.
fn change(present: Option<Duration>, advised: Option<Duration>, suffix: &str) -> String {
    match (present, advised) {
        (None, None) => "-".to_owned(),
        (Some(present), Some(advised)) if present == advised => brief(present),
        (Some(present), None) => brief(present),
        (present, Some(advised)) => {
            format!("{} -> {}{suffix}", present.map_or_else(|| "-".to_owned(), brief), brief(advised))
        }
    }
}

fn verdict(advised: &Advised) -> String {
    let Advised { namespace, advice, .. } = advised;
    if !advice.findings.is_empty() {
        return "change".to_owned();
    }
    match advice.notes.iter().find(|note| matches!(note, Note::TooFew { .. })) {
        Some(note) => note.to_string(),
        None if namespace.ttl.is_none() => "not configured".to_owned(),
        None => "fine".to_owned(),
    }
}

/// Returns the notes, without the one that [`verdict`] already shows.
fn notes(advice: &Advice) -> impl Iterator<Item = &Note> {
    let is_verdict = |note: &&Note| advice.findings.is_empty() && matches!(note, Note::TooFew { .. });
    advice.notes.iter().filter(move |note| !is_verdict(note))
}

/// Returns one sentence per finding. Without findings, returns a sentence about what is good.
pub(super) fn reasons(namespace: &Namespace, advice: &Advice) -> Vec<String> {
    if !advice.findings.is_empty() {
        return advice.findings.iter().map(ToString::to_string).collect();
    }
    let seconds = |seconds: f64| brief(Duration::try_from_secs_f64(seconds).unwrap_or_default());
    let high = advice.p99.and_then(|p99| p99.high);
    let sentence = match (advice.model, namespace.ttl, high) {
        (Model::Held, Some(ttl), Some(high)) => {
            Some(format!("99 of 100 holds take no more than {}, and the TTL is {}", seconds(high), brief(ttl)))
        }
        (Model::Held, None, Some(high)) => Some(format!("99 of 100 holds take no more than {}", seconds(high))),
        (Model::Renewed, Some(ttl), Some(high)) => Some(format!(
            "99 of 100 renewals come within {} of the one before, and the TTL is {}",
            seconds(high),
            brief(ttl)
        )),
        (Model::Loop, Some(ttl), _) => {
            Some(format!("held until the TTL of {} runs out on purpose, so only the takeover counts", brief(ttl)))
        }
        _ => None,
    };
    Vec::from_iter(sentence)
}

/// Returns the advised values as YAML, for the lock namespaces in which they differ.
pub(super) fn configuration(advised: &[Advised]) -> Option<String> {
    let changed: Vec<&Advised> =
        advised.iter().filter(|advised| advised.changes_ttl() || advised.changes_renewal()).collect();
    if changed.is_empty() {
        return None;
    }
    let mut yaml =
        String::from("# The exporter only watches: change the programs first, then its configuration with them.\n");
    yaml += "namespaces:\n";
    for advised in changed {
        let Advised { cluster, namespace, advice } = advised;
        if !cluster.is_empty() {
            yaml += &format!("  # cluster {cluster}\n");
        }
        yaml += &format!("  - name: {}\n", namespace.name);
        if let Some(ttl) = advice.ttl.filter(|_| advised.changes_ttl()) {
            let remark = if advice.is_step { "  # a step: measure again" } else { "" };
            yaml += &format!("    ttl: {}{remark}\n", format_duration(ttl));
        }
        if let Some(every) = advice.renew_every.filter(|_| advised.changes_renewal()) {
            yaml += &format!("    renew_every: {}\n", format_duration(every));
        }
    }
    Some(yaml)
}
