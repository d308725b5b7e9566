//! The table that `replay` prints.
//!
//! Lock namespaces without failures are omitted.

use std::io::{self, Write};
use std::time::Duration;

use crate::model::counters::FailureCounters;
use crate::model::failure::{Failure, FailureKind, Operation, Reason};
use crate::model::label::Label;
use crate::model::position::SourceTotals;
use crate::snapshot::NamespaceView;

/// A column, except the first.
struct Column {
    heading: String,
    count: fn(&FailureCounters, FailureKind) -> u64,
    kind: FailureKind,
}

fn columns() -> Vec<Column> {
    FailureKind::ALL.iter().flat_map(|kind| columns_of(*kind)).collect()
}

/// Losses have a column for each operation. Acquisitions that found the lock taken have their own.
fn columns_of(kind: FailureKind) -> Vec<Column> {
    let column = |heading: &str, count| Column { heading: heading.to_owned(), count, kind };
    match kind {
        FailureKind::NotOwned => vec![
            column("LOST AT RELEASE", |counters, _| counters.get(Failure::NotOwned(Operation::Release))),
            column("LOST AT RENEWAL", |counters, _| counters.get(Failure::NotOwned(Operation::Renew))),
            column("LOST", |counters, _| counters.get(Failure::NotOwned(Operation::Unknown))),
        ],
        FailureKind::AcquireFailed => vec![
            column("BUSY", |counters, _| counters.get(BUSY)),
            column("NOT ACQUIRED", |counters, kind| counters.total(kind) - counters.get(BUSY)),
        ],
        FailureKind::ConflictingWrite => vec![column("CONFLICTS", FailureCounters::total)],
        kind => vec![column(&kind.as_str().replace('_', " ").to_uppercase(), FailureCounters::total)],
    }
}

const BUSY: Failure = Failure::AcquireFailed(Reason::Busy);

pub(super) fn write(
    out: &mut impl Write,
    namespaces: &[NamespaceView],
    seen: &SourceTotals,
    took: Duration,
) -> io::Result<()> {
    let columns = columns();
    let numbers = |view: &NamespaceView| columns.iter().map(|column| (column.count)(&view.logs, column.kind)).collect();
    let rows: Vec<(&str, Vec<u64>)> = namespaces
        .iter()
        .map(|view| (view.namespace.name.as_str(), numbers(view)))
        .filter(|(_, numbers): &(&str, Vec<u64>)| numbers.iter().any(|number| *number > 0))
        .collect();
    if rows.is_empty() {
        writeln!(out, "No lock failures found.")?;
    } else {
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default().max("NAMESPACE".len());
        write!(out, "{:width$}", "NAMESPACE")?;
        for column in &columns {
            write!(out, "  {}", column.heading)?;
        }
        writeln!(out)?;
        for (name, numbers) in rows {
            write!(out, "{name:width$}")?;
            for (column, number) in columns.iter().zip(numbers) {
                write!(out, "  {number:>width$}", width = column.heading.len())?;
            }
            writeln!(out)?;
        }
    }
    let megabytes = seen.bytes as f64 / 1e6;
    write!(out, "\n{} lines, {megabytes:.1} MB in {:.2} s", seen.lines, took.as_secs_f64())?;
    writeln!(out, "; {} of the lines speak of locks, {} were too long", seen.events, seen.oversized_lines)
}
