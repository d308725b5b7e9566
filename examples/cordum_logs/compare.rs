//! Prints a table of the exporter's counters and the recorded failures.

use std::path::Path;

use anyhow::Context;
use redis_lock_exporter::rehearsal::fleet::Failures;

use crate::truth::Truth;

/// Returns whether all counters agree. `metrics` is a file with the text of `/metrics`.
pub(crate) fn run(truth: &Path, metrics: &Path) -> anyhow::Result<bool> {
    let truth = Truth::load(truth)?;
    let text = std::fs::read_to_string(metrics).with_context(|| format!("cannot read {}", metrics.display()))?;
    let mut all_agree = true;
    println!(
        "{:>9} {:>9}  {} lines, {} of them about lock failures",
        "truth", "exporter", truth.lines, truth.event_lines
    );
    for line in truth.failures.compare(&Failures::counted(&text)) {
        let agrees = line.truth == line.counted;
        let mark = if agrees { " " } else { "*" };
        all_agree &= agrees;
        println!("{:>9} {:>9} {mark}{}", line.truth, line.counted, line.series.trim_start_matches("redis_lock_"));
    }
    Ok(all_agree)
}
