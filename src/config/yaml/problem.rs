//! Problems of a configuration: the position, the message and a help text.
//!
//! The stages of loading add problems to one [`ProblemCollector`] and continue, so that a user sees
//! all problems at once. Line and column are computed at the end, only for problems that were found
//! (see `document.rs` for the reason).

use std::fmt;

use serde::Serialize;

use super::document::{Document, YamlPosition};

/// Computing a position parses the text again, so the number of problems shown is limited.
const MAX_SHOWN: usize = 100;

/// One thing to fix in a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConfigProblem {
    /// The file as the user named it, `preset NAME`, or the flag that caused the problem.
    pub file: String,
    /// Counted from 1. 0 if there is no line, as for a flag or for a file that cannot be read.
    pub line: usize,
    /// In characters, counted from 1. 0 if there is no line.
    pub column: usize,
    pub message: String,
    /// How to fix the problem.
    pub help: Option<String>,
}

/// All problems of a configuration, in the order of the text. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<ConfigProblem>);

impl ConfigProblem {
    /// Returns a problem of a file that has no position, or of a flag.
    pub(crate) fn without_line(file: &str, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line: 0, column: 0, message: message.into(), help: some_help(help) }
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.file)?;
        if self.line > 0 {
            write!(formatter, ":{}:{}", self.line, self.column)?;
        }
        write!(formatter, ": {}", self.message)?;
        if let Some(help) = &self.help {
            write!(formatter, "\n  help: {help}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let line_break = if index == 0 { "" } else { "\n" };
            write!(formatter, "{line_break}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// The problems found so far, each at a node of a document.
#[derive(Debug, Default)]
pub(crate) struct ProblemCollector {
    found: Vec<(YamlPosition, String, String)>,
    without_place: Vec<ConfigProblem>,
}

impl ProblemCollector {
    /// Reports a problem at a position. An empty `help` is omitted.
    pub(crate) fn add(&mut self, place: YamlPosition, message: impl Into<String>, help: impl Into<String>) {
        self.found.push((place, message.into(), help.into()));
    }

    /// Reports a problem of a flag, or one whose position is already known.
    pub(crate) fn add_problem(&mut self, problem: ConfigProblem) {
        self.without_place.push(problem);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty() && self.without_place.is_empty()
    }

    /// Computes line and column of every problem.
    pub(crate) fn into_problems(mut self, documents: &[Document]) -> Problems {
        self.found.sort_by_key(|(place, ..)| *place);
        let n_left_out = self.found.len().saturating_sub(MAX_SHOWN);
        let mut problems = self.without_place;
        for (place, message, help) in self.found.into_iter().take(MAX_SHOWN) {
            let document = &documents[place.document];
            let (line, column) = document.position(place);
            problems.push(ConfigProblem { file: document.name.clone(), line, column, message, help: some_help(help) });
        }
        if n_left_out > 0 {
            let message = format!("{n_left_out} more problems are not shown");
            problems.push(ConfigProblem::without_line("configuration", message, "fix the ones above first"));
        }
        Problems(problems)
    }
}

fn some_help(help: impl Into<String>) -> Option<String> {
    Some(help.into()).filter(|help| !help.is_empty())
}
