//! Shows the progress of a drill on standard error: a view that is redrawn on a terminal, and plain
//! lines otherwise.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::sync::Mutex;
use std::time::Duration;

use rustix::termios::tcgetwinsize;
use tokio::time::{Instant, interval};

const DRAW_EVERY: Duration = Duration::from_millis(200);
/// How many of the latest messages the view on a terminal shows.
const LATEST: usize = 8;
/// Used if the terminal does not report its width.
const USUAL_WIDTH: usize = 80;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Waiting,
    Running,
    Checking,
    Held,
    Failed,
}

pub(super) struct DrillProgress {
    started: Instant,
    is_terminal: bool,
    view: Mutex<DrillView>,
}

#[derive(Default)]
struct DrillView {
    scenarios: Vec<(&'static str, Phase, Instant)>,
    latest: Vec<String>,
    /// How many lines of the terminal the current view occupies.
    lines: usize,
    is_over: bool,
}

impl Phase {
    fn describe(self) -> &'static str {
        match self {
            Self::Waiting => "  -",
            Self::Running => "  > running",
            Self::Checking => "  > checking what the exporter reports",
            Self::Held => "  ok",
            Self::Failed => "  FAILED",
        }
    }
}

impl DrillProgress {
    pub(super) fn new(scenarios: &[&'static str]) -> Self {
        let now = Instant::now();
        let scenarios = scenarios.iter().map(|name| (*name, Phase::Waiting, now)).collect();
        let view = DrillView { scenarios, ..DrillView::default() };
        Self { started: now, is_terminal: std::io::stderr().is_terminal(), view: Mutex::new(view) }
    }

    pub(super) fn print(&self, text: &str) {
        let line = format!("{:7.2}s  {text}", self.started.elapsed().as_secs_f64());
        if !self.is_terminal {
            eprintln!("{line}");
            return;
        }
        let mut view = self.lock();
        view.latest.push(line);
        if view.latest.len() > LATEST {
            view.latest.remove(0);
        }
    }

    pub(super) fn phase(&self, scenario: &str, phase: Phase) {
        let mut view = self.lock();
        for (_, now, since) in view.scenarios.iter_mut().filter(|(name, ..)| *name == scenario) {
            (*now, *since) = (phase, Instant::now());
        }
        drop(view);
        if !self.is_terminal {
            self.print(&format!("{scenario}: {}", phase.describe().trim_start_matches([' ', '>'])));
        }
    }

    /// Redraws until the future is dropped. Without a terminal it only waits.
    pub(super) async fn draw(&self) {
        if !self.is_terminal {
            return std::future::pending().await;
        }
        let mut clock = interval(DRAW_EVERY);
        loop {
            clock.tick().await;
            self.draw_once();
        }
    }

    /// Keeps the last view on the terminal. Later output appears below it.
    pub(super) fn end(&self) {
        if self.is_terminal {
            self.draw_once();
        }
        self.lock().is_over = true;
    }

    fn draw_once(&self) {
        let mut view = self.lock();
        if view.is_over {
            return;
        }
        let mut text = String::new();
        if view.lines > 0 {
            // Move the cursor to the first line of the view and clear everything below it.
            let _ = write!(text, "\x1b[{}A\x1b[J", view.lines);
        }
        let mut lines = Vec::new();
        for (name, phase, since) in &view.scenarios {
            let running = matches!(phase, Phase::Running | Phase::Checking);
            let time = if running { format!(" {:.0}s", since.elapsed().as_secs_f64()) } else { String::new() };
            lines.push(format!("{name:<16}{}{time}", phase.describe()));
        }
        lines.push(String::new());
        // Cut the lines to the width: a line that the terminal wraps would count as two.
        let message = tcgetwinsize(std::io::stderr()).ok().map(|size| usize::from(size.ws_col));
        let width = message.filter(|width| *width > 0).unwrap_or(USUAL_WIDTH);
        lines.extend(view.latest.iter().map(|line| line.chars().take(width - 1).collect()));
        view.lines = lines.len();
        for line in lines {
            let _ = writeln!(text, "{line}");
        }
        // The drill continues if the terminal is gone.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, DrillView> {
        self.view.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
