//! What the user sees during the demo: a view that is redrawn every second on a terminal, and plain
//! lines otherwise. The lines go to standard error if the result is JSON. Also reads the keys that
//! the user presses.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Read as _, Write as _};
use std::time::Duration;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

use super::alerts::{Alert, AlertState};
use super::demo_run::DemoRun;
use crate::cli::{DemoArgs, DemoIncident, DemoOutput};
use crate::rehearsal::fleet::Truth;
use crate::util::units::format_duration;

/// How many of the latest events the view on a terminal shows.
const LATEST: usize = 9;
/// How many alerts the view shows at the same time.
const ALERTS: usize = 8;
/// The table needs about this many columns.
const NARROWEST: usize = 80;
/// How many bad slices of the last twenty cause a page.
const SLICES_OF_A_PAGE: u64 = 15;
const BOLD: &str = "\x1b[1m";
const RED: &str = "\x1b[1;31m";
const PLAIN: &str = "\x1b[0m";
/// Moves the cursor to the first line and clears the terminal.
const CLEAR: &str = "\x1b[H\x1b[J";

#[derive(Clone, Copy, PartialEq, Eq)]
enum DisplayMode {
    Picture,
    Lines,
    LinesBesideJson,
}

pub(super) struct DemoView {
    kind: DisplayMode,
    /// How many events were already printed as lines.
    n_printed: usize,
    incident_after: Duration,
    duration: Option<Duration>,
}

impl DemoView {
    pub(super) fn new(args: &DemoArgs, demo: &DemoRun) -> Self {
        let kind = match args.output {
            DemoOutput::Json => DisplayMode::LinesBesideJson,
            DemoOutput::Text if std::io::stdout().is_terminal() => DisplayMode::Picture,
            DemoOutput::Text => DisplayMode::Lines,
        };
        let view = Self { kind, n_printed: 0, incident_after: args.incident_after, duration: args.duration };
        if kind != DisplayMode::Picture {
            view.write(&addresses(demo));
        }
        view
    }

    pub(super) fn show(&mut self, demo: &DemoRun) {
        if self.kind == DisplayMode::Picture {
            self.write(&format!("{CLEAR}{}", self.picture(demo)));
            return;
        }
        let mut lines = String::new();
        for (time, what) in &demo.events[self.n_printed..] {
            let _ = writeln!(lines, "{:6.1}s  {what}", time.as_secs_f64());
        }
        self.n_printed = demo.events.len();
        self.write(&lines);
    }

    /// Later output appears below the last view.
    pub(super) fn finish(&self) {
        if self.kind == DisplayMode::Picture {
            self.write("\n");
        }
    }

    fn picture(&self, demo: &DemoRun) -> String {
        let mut text = addresses(demo);
        let elapsed = demo.elapsed();
        let state = match demo.faults.as_slice() {
            [] if demo.incidents.is_empty() && elapsed < self.incident_after => {
                format!("all is well; an incident begins in {} s", (self.incident_after - elapsed).as_secs() + 1)
            }
            [] => "all is well".to_owned(),
            faults => format!("{RED}faults{PLAIN}: {}", faults.iter().map(describe).collect::<Vec<_>>().join(", ")),
        };
        let end = self.duration.map(|end| format!(", ends after {}", format_duration(end))).unwrap_or_default();
        let _ = writeln!(text, "\n{BOLD}{:4.0} s{PLAIN}  {state}{end}", elapsed.as_secs_f64());
        text += "keys: p freeze node b   s slow network   f fail over   c calm down   q quit\n\n";
        let width = terminal_width();
        self.table(demo, width, &mut text);
        alerts(demo, width, &mut text);
        let events = &demo.events[demo.events.len().saturating_sub(LATEST)..];
        for (time, what) in events {
            let _ = writeln!(text, "{}", shortened(&format!("{:6.1}s  {what}", time.as_secs_f64()), width));
        }
        text
    }

    /// Shows the numbers of the exporter next to those of the fleet.
    fn table(&self, demo: &DemoRun, width: usize, text: &mut String) {
        let Some(seen) = demo.latest.as_ref().and_then(|observation| observation.seen.as_ref()) else {
            text.push_str("the exporter does not answer\n");
            return;
        };
        let ratio = format!("lost ({})", format_duration(demo.ratio_window()));
        let _ = writeln!(
            text,
            "{BOLD}{:<20} {:>5} {:>15} {:>15} {:>15} {:>11}  why{PLAIN}",
            "lock namespace", "held", "acquired", "expired", "not owned", ratio
        );
        let (totals, counted_failures) = (demo.fleet.totals(), &seen.failures);
        for (namespace, truth) in &totals.locks {
            let counted: Truth = seen.locks(namespace);
            let lost = totals.failures.total("not_owned", Some(namespace));
            let counted_lost = counted_failures.total("not_owned", Some(namespace));
            let ratio = demo.ratio(namespace).map_or("-".to_owned(), |ratio| format!("{:.0} %", ratio * 100.0));
            let causes = seen.causes(namespace);
            let causes: Vec<String> = causes.iter().map(|(cause, count)| format!("{cause} {count}")).collect();
            let row = format!(
                "{namespace:<20} {:>5} {:>15} {:>15} {:>15} {ratio:>11}  {}",
                counted.held,
                format!("{} of {}", counted.acquisitions, truth.acquisitions),
                format!("{} of {}", counted.expirations, truth.expirations),
                format!("{counted_lost} of {lost}"),
                causes.join(", "),
            );
            let _ = writeln!(text, "{}", shortened(&row, width));
        }
        text.push_str("(counted by the exporter, of what the fleet really did)\n\n");
    }

    fn write(&self, text: &str) {
        // The demo continues if the terminal is gone.
        let _ = match self.kind {
            DisplayMode::LinesBesideJson => std::io::stderr().write_all(text.as_bytes()),
            _ => std::io::stdout().write_all(text.as_bytes()).and_then(|()| std::io::stdout().flush()),
        };
    }
}

/// Returns the URLs to open, and the speed.
fn addresses(demo: &DemoRun) -> String {
    let mut text = format!("exporter      {}/\n", demo.exporter.url());
    let missing = match demo.is_without_prometheus {
        true => "is turned off: no alerts are shown",
        false => "is not on PATH: no alerts are shown",
    };
    match &demo.prometheus {
        Some(program) => _ = writeln!(text, "Prometheus    {}/alerts", program.url()),
        None => _ = writeln!(text, "Prometheus    {missing}"),
    }
    if let Some(program) = &demo.alertmanager {
        let _ = writeln!(text, "Alertmanager  {}/", program.url());
    }
    let speed = demo.time_scale.speed();
    let _ = writeln!(
        text,
        "TTLs and the durations of the rules are {speed} times shorter than in production: a page that takes 8 minutes there \
         takes {} s here",
        480 / speed
    );
    text
}

/// Shows the alerts, the most severe first.
fn alerts(demo: &DemoRun, width: usize, text: &mut String) {
    let slices = demo.latest.iter().flat_map(|observation| &observation.bad_slices);
    for (namespace, count) in slices.filter(|(_, count)| **count > 0 && **count < SLICES_OF_A_PAGE) {
        let _ = writeln!(text, "{namespace}: {count} bad slices of the {SLICES_OF_A_PAGE} that make a page");
    }
    let is_shown = |alert: &&Alert| alert.state != AlertState::Gone && alert.name.severity != "info";
    let mut shown: Vec<&Alert> = demo.alerts.0.iter().filter(is_shown).collect();
    shown.sort_by_key(|alert| (alert.state != AlertState::Firing, alert.name.severity != "critical"));
    for alert in shown.iter().take(ALERTS) {
        let (color, word) = match alert.state {
            AlertState::Firing => (RED, "FIRING "),
            _ => (BOLD, "pending"),
        };
        let line = shortened(&format!("{word} {}: {}", alert.name, likely_cause(&alert.description)), width);
        let _ = writeln!(text, "{color}{}{PLAIN}{}", &line[..word.len()], &line[word.len()..]);
    }
    if shown.len() > ALERTS {
        let _ = writeln!(text, "and {} more", shown.len() - ALERTS);
    }
    text.push('\n');
}

/// Returns the sentence about the likely cause, if the description contains one.
fn likely_cause(description: &str) -> &str {
    match description.find("Likely cause: ") {
        Some(start) => description[start..].split_inclusive('.').next().unwrap_or_default(),
        None => description,
    }
}

fn describe(incident: &DemoIncident) -> &'static str {
    match incident {
        DemoIncident::Pauses => "node b freezes repeatedly",
        DemoIncident::SlowNetwork => "the network to Redis is slow",
        DemoIncident::Failover => "Redis fails over",
    }
}

/// Cuts a line to the width, because a line that wraps would move the lines below it.
fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

fn terminal_width() -> usize {
    rustix::termios::tcgetwinsize(std::io::stdout()).map_or(0, |size| usize::from(size.ws_col)).max(NARROWEST)
}

/// Restores the settings of the terminal when it is dropped.
pub(super) struct Keyboard {
    keys: mpsc::Receiver<char>,
    before: Option<Termios>,
}

impl Keyboard {
    pub(super) fn listen() -> Self {
        let before = if std::io::stdin().is_terminal() { take_single_keys() } else { None };
        let (out, keys) = mpsc::channel(16);
        // Nothing can interrupt a blocking read of the terminal, so nothing joins this thread.
        std::thread::spawn(move || {
            let mut key = [0];
            while std::io::stdin().read_exact(&mut key).is_ok() {
                if out.blocking_send(char::from(key[0])).is_err() {
                    return;
                }
            }
        });
        Self { keys, before }
    }

    /// Waits for the next key. Waits forever if standard input was closed.
    pub(super) async fn key(&mut self) -> char {
        match self.keys.recv().await {
            Some(key) => key,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // An error means that the terminal is gone, and then there is nothing to restore.
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}

/// Turns off line buffering and echo; Ctrl-C still interrupts. Returns the previous settings. If
/// the terminal refuses, the user must press Enter after each key.
fn take_single_keys() -> Option<Termios> {
    let before = tcgetattr(std::io::stdin()).ok()?;
    let mut settings = before.clone();
    settings.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
    tcsetattr(std::io::stdin(), OptionalActions::Now, &settings).ok()?;
    Some(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_what_counts() {
        assert_eq!(
            likely_cause("In x, 8.12% are lost. Likely cause: taken_over. First: look."),
            "Likely cause: taken_over."
        );
        assert_eq!(likely_cause("No cause here."), "No cause here.");
        assert_eq!((shortened("short", 5), shortened("longer", 5)), ("short".to_owned(), "long…".to_owned()));
    }
}
