//! Log sources of the configuration: checks path patterns, unique names and journal matches.
//!
//! `config::assemble` calls [`build`]. In reading order:
//!
//! * `raw`: a log source as written in the file
//! * this file: the checked log source

pub(super) mod raw;

use std::path::PathBuf;

use super::yaml::document::quote;
use super::yaml::fields::Located;
use super::yaml::problem::{ConfigProblem, ProblemCollector};
use super::{JournalConfig, LogKind, LogSource, Overrides, Push, StartAt};
use crate::util::units;
use raw::{RawJournal, RawLog, RawOrigin, RawPush};

/// The longest line that is searched completely, unless `max_line_bytes` is set.
pub const DEFAULT_MAX_LINE_BYTES: usize = 1 << 20;

const LINE_BYTES_RANGE: std::ops::RangeInclusive<u64> = 1 << 10..=64 << 20;
const MAX_SOURCES: usize = 1000;
/// Size limit of one push request, unless `max_request_bytes` is set.
const DEFAULT_REQUEST_BYTES: usize = 8 << 20;
const REQUEST_BYTES_RANGE: std::ops::RangeInclusive<u64> = 64 << 10..=32 << 20;
const JOURNAL: &str = "journal";
const PUSH: &str = "push";
const MAX_MATCHES: usize = 500;

/// The path that stands for standard input.
pub const STDIN: &str = "-";

/// Returns the sources of the file, then those of the flags.
pub(super) fn build(raw: &[RawLog], overrides: &Overrides, findings: &mut ProblemCollector) -> Vec<LogSource> {
    let mut sources: Vec<LogSource> = Vec::new();
    for log in raw {
        let max_line_bytes = log.max_line_bytes.as_ref().and_then(|size| line_bytes(size, findings));
        let Some(from) = &log.from else { continue };
        let Some((name, kind)) = origin(from, log.name.as_ref(), &sources, findings) else { continue };
        sources.push(LogSource {
            name,
            kind,
            start_at: log.start_at.as_ref().map_or(StartAt::End, |start_at| start_at.value),
            max_line_bytes: max_line_bytes.unwrap_or(DEFAULT_MAX_LINE_BYTES),
        });
    }
    for path in &overrides.logs {
        if let Err((message, help)) = check_path(path, &sources) {
            findings.add_problem(ConfigProblem::without_line("--logs.path", message, help));
            continue;
        }
        let (name, kind) = named(path);
        sources.push(LogSource { name, kind, start_at: StartAt::End, max_line_bytes: DEFAULT_MAX_LINE_BYTES });
    }
    sources
}

/// Returns name and kind of a source, or `None` after reporting a problem.
fn origin(
    from: &RawOrigin,
    name: Option<&Located<String>>,
    listed: &[LogSource],
    findings: &mut ProblemCollector,
) -> Option<(String, LogKind)> {
    let (place, default, kind) = match from {
        RawOrigin::Path(path) => {
            return match check_path(&path.value, listed) {
                Ok(()) => Some(named(&path.value)),
                Err((message, help)) => {
                    findings.add(path.place, message, help);
                    None
                }
            };
        }
        RawOrigin::Journal(raw) => (raw.place, JOURNAL, LogKind::Journal(journal(&raw.value, findings)?)),
        RawOrigin::Push(raw) => {
            if listed.iter().any(|source| matches!(source.kind, LogKind::Push(_))) {
                let help = "remove one of the two: there is only one push address; labels distinguish programs";
                findings.add(raw.place, "`push` is listed twice", help);
                return None;
            }
            (raw.place, PUSH, LogKind::Push(push(&raw.value, findings)))
        }
    };
    let place = name.map_or(place, |name| name.place);
    let name = name.map_or(default, |name| &name.value);
    if listed.iter().any(|source| source.name == name) {
        let message = format!("two log sources have the name {}", quote(name));
        findings.add(place, message, "add `name: NAME`, which becomes the label `source`, to one of them");
        return None;
    }
    Some((name.to_owned(), kind))
}

fn named(path: &str) -> (String, LogKind) {
    let kind = if path == STDIN { LogKind::Stdin } else { LogKind::Files };
    (path.to_owned(), kind)
}

fn journal(raw: &RawJournal, findings: &mut ProblemCollector) -> Option<JournalConfig> {
    let mut matches = Vec::new();
    let mut is_sound = true;
    for unit in &raw.units {
        if unit.value.contains(['*', '?', '[', '=']) {
            let message = format!("{} is not the name of a unit", quote(&unit.value));
            let help = "name each unit; for all instances of a template give \
                        `matches: [_SYSTEMD_SLICE=system-NAME.slice]`";
            findings.add(unit.place, message, help);
            is_sound = false;
            continue;
        }
        // `journalctl` also adds `.service` to a unit name without a suffix.
        let suffix = if unit.value.contains('.') { "" } else { ".service" };
        matches.push(format!("_SYSTEMD_UNIT={}{suffix}", unit.value));
    }
    matches.extend(raw.identifiers.iter().map(|identifier| format!("SYSLOG_IDENTIFIER={}", identifier.value)));
    for text in &raw.matches {
        let is_name = |name: &str| {
            let is_known = |letter: u8| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == b'_';
            !name.is_empty() && name.bytes().all(is_known)
        };
        if !text.value.split_once('=').is_some_and(|(name, _)| is_name(name)) {
            let message = format!("{} is not of the form FIELD=value", quote(&text.value));
            findings.add(text.place, message, "write it as for journalctl, such as CONTAINER_NAME=scheduler");
            is_sound = false;
            continue;
        }
        matches.push(text.value.clone());
    }
    if matches.len() > MAX_MATCHES {
        let place = raw.units.iter().chain(&raw.identifiers).chain(&raw.matches).map(|text| text.place).next()?;
        findings.add(place, format!("more than {MAX_MATCHES} units, identifiers and matches"), "leave some out");
        is_sound = false;
    }
    let directory = raw.directory.as_ref().map(|directory| PathBuf::from(&directory.value));
    is_sound.then(|| JournalConfig { matches: matches.into(), directory })
}

fn push(raw: &RawPush, findings: &mut ProblemCollector) -> Push {
    let max_request_bytes = raw.max_request_bytes.as_ref().and_then(|size| {
        if REQUEST_BYTES_RANGE.contains(&size.value) {
            return usize::try_from(size.value).ok();
        }
        let message = format!("`max_request_bytes` is out of range: {}", units::format_size(size.value));
        findings.add(size.place, message, "give a size from 64KiB to 32MiB");
        None
    });
    Push { max_request_bytes: max_request_bytes.unwrap_or(DEFAULT_REQUEST_BYTES) }
}

/// Returns the directory from the flag, otherwise from the file.
pub(super) fn state_dir(raw: Option<&Located<String>>, overrides: &Overrides) -> Option<PathBuf> {
    overrides.state_dir.clone().or_else(|| raw.map(|path| PathBuf::from(&path.value)))
}

fn line_bytes(size: &Located<u64>, findings: &mut ProblemCollector) -> Option<usize> {
    if LINE_BYTES_RANGE.contains(&size.value) {
        return usize::try_from(size.value).ok();
    }
    let message = format!("`max_line_bytes` is out of range: {}", units::format_size(size.value));
    findings.add(size.place, message, "give a size from 1KiB to 64MiB");
    None
}

fn check_path(path: &str, listed: &[LogSource]) -> Result<(), (String, String)> {
    let refuse = |message: String, help: &str| Err((message, help.to_owned()));
    if listed.iter().any(|source| source.name == path) {
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
            refuse(message, "** must be a complete part of the path, as in /var/log/**/*.log; write [[] for a plain [")
        }
    }
}
