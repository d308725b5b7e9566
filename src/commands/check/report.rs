//! Prints the result of `check --logs`: rows for people, or one JSON document.
//!
//! `check::lines` calls this module. Both formats are written while the sample is read, so that a
//! pipe shows each line immediately.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::cli::{CheckArgs, CheckOutput};
use crate::config::Config;

const MAX_MESSAGE_CHARS: usize = 100;
/// Why a line is silent.
pub(in crate::commands) const NO_TEXT: &str = "contains none of the texts that the rules search for";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::commands) enum LineOutcome {
    Counted,
    Joined,
    Noted,
    Ignored,
    Near,
    Unknown,
    Overlooked,
    Silent,
}

/// The result for one line.
#[derive(Debug, Serialize)]
pub(in crate::commands) struct LineReport<'a> {
    pub(in crate::commands) line: u64,
    pub(in crate::commands) offset: u64,
    pub(in crate::commands) outcome: LineOutcome,
    pub(in crate::commands) time: Option<String>,
    pub(in crate::commands) event: Option<&'static str>,
    pub(in crate::commands) lock_namespace: Option<&'a str>,
    pub(in crate::commands) operation: Option<&'static str>,
    pub(in crate::commands) reason: Option<&'static str>,
    pub(in crate::commands) lock_id: Option<String>,
    pub(in crate::commands) lock_key: Option<String>,
    /// The rule that matched the line, or came nearest.
    pub(in crate::commands) rule: Option<&'a str>,
    /// The line that counted the failure to which this line belongs.
    pub(in crate::commands) joins_line: Option<u64>,
    /// Why nothing was counted.
    pub(in crate::commands) why: Option<String>,
    /// The start of the message of a line that was not counted.
    pub(in crate::commands) message: Option<String>,
}

impl LineReport<'_> {
    pub(in crate::commands) fn new(line: u64, offset: u64, outcome: LineOutcome) -> Self {
        Self {
            line,
            offset,
            outcome,
            time: None,
            event: None,
            lock_namespace: None,
            operation: None,
            reason: None,
            lock_id: None,
            lock_key: None,
            rule: None,
            joins_line: None,
            why: None,
            message: None,
        }
    }
}

#[derive(Debug, Default, Serialize)]
pub(in crate::commands) struct CheckSummary {
    pub(in crate::commands) lines: u64,
    counted: u64,
    joined: u64,
    noted: u64,
    ignored: u64,
    near: u64,
    unknown: u64,
    overlooked: u64,
    silent: u64,
    pub(in crate::commands) oversized: u64,
    pub(in crate::commands) generic_rules_only: bool,
}

impl CheckSummary {
    pub(in crate::commands) fn count(&mut self, outcome: LineOutcome) {
        match outcome {
            LineOutcome::Counted => self.counted += 1,
            LineOutcome::Joined => self.joined += 1,
            LineOutcome::Noted => self.noted += 1,
            LineOutcome::Ignored => self.ignored += 1,
            LineOutcome::Near => self.near += 1,
            LineOutcome::Unknown => self.unknown += 1,
            LineOutcome::Overlooked => self.overlooked += 1,
            LineOutcome::Silent => self.silent += 1,
        }
    }
}

pub(in crate::commands) struct CheckReport<'w, W> {
    out: &'w mut W,
    output: CheckOutput,
    colors: bool,
    namespace_width: usize,
    is_first: bool,
    /// First and last of the silent lines since the last row. The text output shows them as one
    /// row.
    silent: Option<(u64, u64)>,
}

impl<'w, W: Write> CheckReport<'w, W> {
    pub(in crate::commands) fn new(args: &CheckArgs, config: &Config, out: &'w mut W) -> anyhow::Result<Self> {
        let names = config.namespaces.iter().map(|namespace| namespace.name.len());
        let colors = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        match args.output {
            CheckOutput::Json => write!(out, "{{\"problems\":[],\"lines\":[")?,
            CheckOutput::Text => {
                writeln!(out, "The configuration is good.")?;
                if args.has_generic_rules_only() {
                    writeln!(out, "Neither --config.file nor --preset was given: only the generic rules are used.")?;
                }
                writeln!(out)?;
            }
        }
        let namespace_width = names.max().unwrap_or_default();
        Ok(Self { out, output: args.output, colors, namespace_width, is_first: true, silent: None })
    }

    pub(in crate::commands) fn lines(&mut self, findings: &[LineReport<'_>]) -> anyhow::Result<()> {
        for finding in findings {
            match self.output {
                CheckOutput::Text if finding.outcome == LineOutcome::Silent => {
                    let first = self.silent.map_or(finding.line, |(first, _)| first);
                    self.silent = Some((first, finding.line));
                }
                CheckOutput::Text => {
                    self.silent_row()?;
                    self.row(finding)?;
                }
                CheckOutput::Json => {
                    self.out.write_all(if self.is_first { b"\n" } else { b",\n" })?;
                    serde_json::to_writer(&mut *self.out, finding).map_err(io::Error::from)?;
                }
            }
            self.is_first = false;
        }
        Ok(self.out.flush()?)
    }

    pub(in crate::commands) fn finish(&mut self, summary: &CheckSummary) -> anyhow::Result<()> {
        match self.output {
            CheckOutput::Json => {
                write!(self.out, "\n],\"summary\":")?;
                serde_json::to_writer(&mut *self.out, summary).map_err(io::Error::from)?;
                writeln!(self.out, "}}")?;
            }
            CheckOutput::Text => {
                self.silent_row()?;
                self.totals(summary)?;
            }
        }
        Ok(self.out.flush()?)
    }

    fn silent_row(&mut self) -> io::Result<()> {
        let Some((first, last)) = self.silent.take() else { return Ok(()) };
        let lines = if first == last { first.to_string() } else { format!("{first}-{last}") };
        writeln!(self.out, "{lines:>7}  {:<10}  {NO_TEXT}", "silent")
    }

    fn row(&mut self, finding: &LineReport<'_>) -> io::Result<()> {
        let (word, color) = match finding.outcome {
            LineOutcome::Counted => ("counted", "31"),
            LineOutcome::Joined => ("joined", "33"),
            LineOutcome::Noted => ("noted", "2"),
            LineOutcome::Ignored => ("ignored", "2"),
            LineOutcome::Near => ("near", "36"),
            LineOutcome::Unknown => ("unknown", "36"),
            LineOutcome::Overlooked => ("overlooked", "35"),
            LineOutcome::Silent => ("silent", "2"),
        };
        write!(self.out, "{:>7}  ", finding.line)?;
        match self.colors {
            true => write!(self.out, "\x1b[{color}m{word:<10}\x1b[0m  ")?,
            false => write!(self.out, "{word:<10}  ")?,
        }
        if let (Some(event), Some(namespace)) = (finding.event, finding.lock_namespace) {
            write!(self.out, "{event:<14}  {namespace:<width$}", width = self.namespace_width)?;
            let joins = finding.joins_line.map(|line| line.to_string());
            let lock = finding.lock_id.as_deref().map(printable);
            for (name, value) in [
                ("line", joins.as_deref()),
                ("operation", finding.operation),
                ("reason", finding.reason),
                ("lock", lock.as_deref()),
                ("time", finding.time.as_deref()),
                ("rule", finding.rule),
            ] {
                if let Some(value) = value {
                    write!(self.out, "  {name}={value}")?;
                }
            }
            return writeln!(self.out);
        }
        if let Some(rule) = finding.rule {
            write!(self.out, "{rule}: ")?;
        }
        writeln!(self.out, "{}", finding.why.as_deref().unwrap_or_default())?;
        match &finding.message {
            Some(message) if finding.outcome != LineOutcome::Ignored => {
                writeln!(self.out, "{:21}{}", "", printable(message))
            }
            _ => Ok(()),
        }
    }

    fn totals(&mut self, summary: &CheckSummary) -> io::Result<()> {
        let CheckSummary {
            lines, counted, joined, noted, ignored, near, unknown, overlooked, silent, oversized, ..
        } = *summary;
        if !self.is_first {
            writeln!(self.out)?;
        }
        writeln!(self.out, "{lines:>7}  lines")?;
        for (count, word, meaning) in [
            (counted, "counted", "a separate failure"),
            (joined, "joined", "one more line about a failure that was counted"),
            (noted, "noted", "a final state; a second one for the same work would be counted"),
            (ignored, "ignored", "a rule matched, but there is nothing to count"),
            (near, "near", "no rule took it, but one nearly did"),
            (unknown, "unknown", "looks like a problem with a lock, but no rule matches"),
            (overlooked, "overlooked", "a rule would match if the search found the line"),
            (silent, "silent", NO_TEXT),
            (oversized, "oversized", "searched in its first part only"),
        ] {
            if count > 0 || word == "counted" {
                writeln!(self.out, "{count:>7}  {word:<10}  {meaning}")?;
            }
        }
        Ok(())
    }
}

/// Cuts the text to one terminal line and replaces control characters.
fn printable(text: &str) -> String {
    let harmless = |character: char| if character.is_control() { char::REPLACEMENT_CHARACTER } else { character };
    let mut cut: String = text.chars().take(MAX_MESSAGE_CHARS).map(harmless).collect();
    if text.chars().nth(MAX_MESSAGE_CHARS).is_some() {
        cut.push_str("...");
    }
    cut
}
