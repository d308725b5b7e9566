//! The result of a drill: every expectation with what was measured, and the timeline of every
//! scenario. Written as text, JSON or Markdown.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use tokio::time::Instant;

use super::table::Scenario;

/// The locks did not behave as the scenario expects, and the scenario cannot continue. This is a
/// finding about the locks. Every other error is a problem of the drill itself.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct ScenarioFailure(pub(super) String);

#[derive(Debug, Serialize)]
pub(super) struct DrillReport {
    /// Every expectation held, the drill was not interrupted, the exporter could see it, and no key
    /// was left behind.
    pub(super) held: bool,
    pub(super) interrupted: bool,
    pub(super) run_id: String,
    pub(super) started: String,
    pub(super) took_seconds: f64,
    /// The address, without its password.
    pub(super) redis: String,
    pub(super) exporter: String,
    /// Why the exporter cannot see the drill, and how to fix that.
    pub(super) exporter_problem: Option<String>,
    pub(super) prometheus: Option<String>,
    pub(super) speed: u32,
    pub(super) ttl_seconds: f64,
    pub(super) duration_seconds: Option<f64>,
    /// How the durations differ from those of production.
    pub(super) timing: String,
    pub(super) scenarios: Vec<ScenarioReport>,
    pub(super) cleanup: Cleanup,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Cleanup {
    pub(super) keys_written: usize,
    pub(super) keys_left: Vec<String>,
    /// Why the cleanup failed, if it did. Keys that were not deleted expire, because every key has
    /// a TTL.
    pub(super) error: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct ScenarioReport {
    pub(super) name: &'static str,
    pub(super) rehearses: &'static str,
    pub(super) held: bool,
    pub(super) took_seconds: f64,
    /// When the last round ended.
    #[serde(skip)]
    pub(super) ended: Option<Instant>,
    /// How many times the failure was caused.
    pub(super) rounds: u32,
    /// Why the scenario stopped early.
    pub(super) error: Option<String>,
    /// `error` is a problem of the drill itself, not a [`ScenarioFailure`].
    #[serde(skip)]
    pub(super) is_broken: bool,
    pub(super) expectations: Vec<ExpectationResult>,
    /// In seconds, the worst value of all rounds.
    pub(super) measured: BTreeMap<&'static str, f64>,
    pub(super) timeline: Vec<TimelineEntry>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct ExpectationResult {
    pub(super) id: &'static str,
    /// Who must fulfill it: workers, exporter or alerts.
    pub(super) side: &'static str,
    pub(super) statement: String,
    pub(super) held: bool,
    pub(super) measured: String,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct TimelineEntry {
    /// Seconds since the scenario began.
    pub(super) at_seconds: f64,
    pub(super) who: String,
    pub(super) what: String,
}

impl ScenarioReport {
    /// The report of a scenario that has not run: no expectation holds yet.
    pub(super) fn new(scenario: &'static Scenario) -> Self {
        let expectations = scenario.expectations.iter().map(|expectation| ExpectationResult {
            id: expectation.id,
            side: expectation.side.as_str(),
            statement: expectation.statement.to_owned(),
            held: false,
            measured: "not reached".to_owned(),
        });
        Self {
            name: scenario.name,
            rehearses: scenario.rehearses,
            held: false,
            took_seconds: 0.0,
            ended: None,
            rounds: 0,
            error: None,
            is_broken: false,
            expectations: expectations.collect(),
            measured: BTreeMap::new(),
            timeline: Vec::new(),
        }
    }

    pub(super) fn stop(&mut self, failure: &anyhow::Error) {
        self.error = Some(format!("{failure:#}"));
        self.is_broken = !failure.is::<ScenarioFailure>();
    }

    fn stopped(&self) -> &'static str {
        if self.is_broken { "could not be run to its end" } else { "failed before its end" }
    }

    pub(super) fn conclude(&mut self) {
        self.held = self.error.is_none() && self.expectations.iter().all(|result| result.held);
    }

    pub(super) fn failed(&self) -> impl Iterator<Item = &ExpectationResult> {
        self.expectations.iter().filter(|result| !result.held)
    }
}

impl DrillReport {
    pub(super) fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report has text keys only") + "\n"
    }

    fn outcome(&self) -> String {
        let (held, all) = self.count();
        let result = match (self.interrupted, self.held) {
            (true, _) => "interrupted",
            (false, true) => "all expectations held",
            (false, false) => "FAILED",
        };
        format!("{result} ({held} of {all})")
    }

    fn count(&self) -> (usize, usize) {
        let all = self.scenarios.iter().flat_map(|scenario| &scenario.expectations);
        (all.clone().filter(|result| result.held).count(), all.count())
    }

    fn cleanup_line(&self) -> String {
        let Cleanup { keys_written, keys_left, error } = &self.cleanup;
        match (error, keys_left.is_empty()) {
            (Some(error), _) => {
                format!("{keys_written} keys written; cleaning up failed: {error} (every key has a TTL)")
            }
            (None, true) => format!("{keys_written} keys written, none left behind"),
            (None, false) => format!("{keys_written} keys written, left behind: {}", keys_left.join(", ")),
        }
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(text, "\nDrill {}: {} in {:.0} s", self.run_id, self.outcome(), self.took_seconds);
        let _ = writeln!(text, "  {}", self.timing);
        if let Some(problem) = &self.exporter_problem {
            let _ = writeln!(text, "  FAILED: {problem}");
        }
        for scenario in &self.scenarios {
            let result = if scenario.held { "ok    " } else { "FAILED" };
            let _ = writeln!(text, "\n{result} {}: {}", scenario.name, scenario.rehearses);
            if let Some(error) = &scenario.error {
                let _ = writeln!(text, "       {}: {error}", scenario.stopped());
            }
            for result in &scenario.expectations {
                let status_text = if result.held { "ok    " } else { "FAILED" };
                let _ = writeln!(text, "       {status_text} {}: {}", result.side, result.statement);
                let _ = writeln!(text, "              {}", result.measured);
            }
        }
        let _ = writeln!(text, "\n{}", self.cleanup_line());
        text
    }

    pub(super) fn markdown(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(text, "# Lock drill {}: {}\n", self.run_id, self.outcome());
        let _ = writeln!(text, "| | |\n|---|---|");
        let mut row = |name: &str, value: &str| {
            let _ = writeln!(text, "| {name} | {} |", cell(value));
        };
        row("started", &self.started);
        row("took", &format!("{:.1} s", self.took_seconds));
        row("times", &self.timing);
        row("Redis", &self.redis);
        row("exporter", &self.exporter);
        if let Some(problem) = &self.exporter_problem {
            row("**problem**", problem);
        }
        row("Prometheus", self.prometheus.as_deref().unwrap_or("not asked"));
        row("clean-up", &self.cleanup_line());
        let _ = writeln!(text, "\n| scenario | | takeover | overlap | detection | failed expectations |");
        let _ = writeln!(text, "|---|---|---|---|---|---|");
        for scenario in &self.scenarios {
            let measured =
                |name| scenario.measured.get(name).map_or_else(|| "-".to_owned(), |value| format!("{value:.2} s"));
            let failed: Vec<&str> = scenario.failed().map(|result| result.id).collect();
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} |",
                scenario.name,
                status_text(scenario.held),
                measured("takeover"),
                measured("overlap"),
                measured("detection"),
                if failed.is_empty() { "none".to_owned() } else { failed.join(", ") },
            );
        }
        for scenario in &self.scenarios {
            scenario.write_markdown(&mut text);
        }
        text
    }
}

impl ScenarioReport {
    fn write_markdown(&self, text: &mut String) {
        let _ = writeln!(text, "\n## {}: {}\n\nRehearsed: {}.", self.name, status_text(self.held), self.rehearses);
        let times = if self.rounds == 1 { "once".to_owned() } else { format!("{} times", self.rounds) };
        let _ = writeln!(text, "Happened {times}, in {:.1} s.", self.took_seconds);
        if let Some(error) = &self.error {
            let _ = writeln!(text, "\n**It {}:** {error}", self.stopped());
        }
        let _ = writeln!(text, "\n| expected of | that it | | measured |\n|---|---|---|---|");
        for result in &self.expectations {
            let (statement, measured) = (cell(&result.statement), cell(&result.measured));
            let _ = writeln!(text, "| {} | {statement} | {} | {measured} |", result.side, status_text(result.held));
        }
        let _ = writeln!(text, "\n| at | who | did |\n|---|---|---|");
        for entry in &self.timeline {
            let _ = writeln!(text, "| {:.2} s | {} | {} |", entry.at_seconds, cell(&entry.who), cell(&entry.what));
        }
    }
}

fn status_text(held: bool) -> &'static str {
    if held { "ok" } else { "**FAILED**" }
}

/// Escapes a text for a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
