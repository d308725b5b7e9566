//! Checked log sources: patterns that can be expanded, each listed once.

use std::path::PathBuf;

use super::document::quote;
use super::fields::At;
use super::problem::{Findings, Problem};
use super::raw::RawLog;
use super::{LogSource, Overrides, StartAt, units};

/// The longest line that is searched as a whole, unless `max_line_bytes` says otherwise.
pub const DEFAULT_MAX_LINE_BYTES: usize = 1 << 20;

const LINE_BYTES_RANGE: std::ops::RangeInclusive<u64> = 1 << 10..=64 << 20;
const MAX_SOURCES: usize = 1000;

/// Standard input as a log source.
pub const STDIN: &str = "-";

/// The sources of the file, then those of the flags.
pub(super) fn build(raw: &[RawLog], overrides: &Overrides, findings: &mut Findings) -> Vec<LogSource> {
    let mut sources: Vec<LogSource> = Vec::new();
    for log in raw {
        let max_line_bytes = log.max_line_bytes.as_ref().and_then(|size| line_bytes(size, findings));
        let Some(path) = &log.path else { continue };
        if let Err((message, help)) = check_path(&path.value, &sources) {
            findings.add(path.place, message, help);
            continue;
        }
        sources.push(LogSource {
            path: path.value.clone(),
            start_at: log.start_at.as_ref().map_or(StartAt::End, |start_at| start_at.value),
            max_line_bytes: max_line_bytes.unwrap_or(DEFAULT_MAX_LINE_BYTES),
        });
    }
    for path in &overrides.logs {
        if let Err((message, help)) = check_path(path, &sources) {
            findings.add_problem(Problem::without_line("--logs.path", message, help));
            continue;
        }
        let path = path.clone();
        sources.push(LogSource { path, start_at: StartAt::End, max_line_bytes: DEFAULT_MAX_LINE_BYTES });
    }
    sources
}

/// The directory of the flag, or else of the file.
pub(super) fn state_dir(raw: Option<&At<String>>, overrides: &Overrides) -> Option<PathBuf> {
    overrides.state_dir.clone().or_else(|| raw.map(|path| PathBuf::from(&path.value)))
}

fn line_bytes(size: &At<u64>, findings: &mut Findings) -> Option<usize> {
    if LINE_BYTES_RANGE.contains(&size.value) {
        return usize::try_from(size.value).ok();
    }
    let message = format!("`max_line_bytes` is out of range: {}", units::format_size(size.value));
    findings.add(size.place, message, "give a size from 1KiB to 64MiB");
    None
}

fn check_path(path: &str, listed: &[LogSource]) -> Result<(), (String, String)> {
    let refuse = |message: String, help: &str| Err((message, help.to_owned()));
    if listed.iter().any(|source| source.path == path) {
        return match path {
            STDIN => refuse("standard input is listed twice".to_owned(), "remove one of the two `-`"),
            _ => refuse(format!("the log source {} is listed twice", quote(path)), "remove one of the two"),
        };
    }
    if listed.len() >= MAX_SOURCES {
        return refuse(
            format!("more than {MAX_SOURCES} log sources"),
            "use patterns with * and ** instead of single files",
        );
    }
    if path.is_empty() {
        return refuse("the path of a log source is empty".to_owned(), "give a path such as /var/log/app/*.log");
    }
    if path.starts_with("~/") {
        return refuse(format!("`~` is not expanded in {}", quote(path)), "write the home directory in full");
    }
    if path.ends_with('/') {
        return refuse(format!("{} is a directory", quote(path)), "add a pattern for the files in it, such as *.log");
    }
    match glob::Pattern::new(path) {
        Ok(_) => Ok(()),
        Err(error) => {
            let message = format!("bad pattern {}: {}, at character {}", quote(path), error.msg, error.pos + 1);
            refuse(message, "** must be a whole part of the path, as in /var/log/**/*.log; write [[] for a plain [")
        }
    }
}
