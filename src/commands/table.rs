//! The table that `replay` prints.
//!
//! Lock namespaces without failures are omitted.

use std::io::{self, Write};
use std::time::Duration;

use crate::model::counters::{LogCounters, Tally};
use crate::model::failure::{Operation, Reason};
use crate::model::label::Label;
use crate::model::position::SourceTotals;
use crate::snapshot::NamespaceView;

/// Heading and value of each column except the first.
type Column = (&'static str, fn(&LogCounters) -> u64);

const COLUMNS: [Column; 10] = [
    ("LOST AT RELEASE", |counters| counters.not_owned.get(Operation::Release)),
    ("LOST AT RENEWAL", |counters| counters.not_owned.get(Operation::Renew)),
    ("LOST", |counters| counters.not_owned.get(Operation::Unknown)),
    ("RENEWAL FAILED", |counters| sum(&counters.renewal_failures)),
    ("RELEASE FAILED", |counters| sum(&counters.release_failures)),
    ("BUSY", |counters| counters.acquire_failures.get(Reason::Busy)),
    ("NOT ACQUIRED", |counters| sum(&counters.acquire_failures) - counters.acquire_failures.get(Reason::Busy)),
    ("ABANDONED", |counters| counters.abandonments),
    ("UNLOCKED WORK", |counters| counters.unlocked_work),
    ("CONFLICTS", |counters| sum(&counters.conflicting_writes)),
];

pub(super) fn write(
    out: &mut impl Write,
    namespaces: &[NamespaceView],
    seen: &SourceTotals,
    took: Duration,
) -> io::Result<()> {
    let rows: Vec<(&str, Vec<u64>)> = namespaces
        .iter()
        .map(|view| (view.namespace.name.as_str(), COLUMNS.iter().map(|(_, number)| number(&view.logs)).collect()))
        .filter(|(_, numbers): &(&str, Vec<u64>)| numbers.iter().any(|number| *number > 0))
        .collect();
    if rows.is_empty() {
        writeln!(out, "No lock failures found.")?;
    } else {
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default().max("NAMESPACE".len());
        write!(out, "{:width$}", "NAMESPACE")?;
        for (heading, _) in &COLUMNS {
            write!(out, "  {heading}")?;
        }
        writeln!(out)?;
        for (name, numbers) in rows {
            write!(out, "{name:width$}")?;
            for ((heading, _), number) in COLUMNS.iter().zip(numbers) {
                write!(out, "  {number:>width$}", width = heading.len())?;
            }
            writeln!(out)?;
        }
    }
    let megabytes = seen.bytes as f64 / 1e6;
    write!(out, "\n{} lines, {megabytes:.1} MB in {:.2} s", seen.lines, took.as_secs_f64())?;
    writeln!(out, "; {} of the lines speak of locks, {} were too long", seen.events, seen.oversized_lines)
}

fn sum<L: Label>(tally: &Tally<L>) -> u64 {
    tally.iter().map(|(_, count)| count).sum()
}
