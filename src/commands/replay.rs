//! The `replay` command: reads complete log files once, with the rules and the ledger of the
//! daemon, and prints what it counts.
//!
//! `main` calls [`run`]. Events are printed as they are found, one JSON object per line; metrics
//! and the table are printed at the end. Standard error shows the progress if it is a terminal. A
//! file that cannot be read is reported; the other files are still read, and the exit code is 2.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::Serialize;
use tracing::error;

use crate::cli::{EXIT_FAILED, EXIT_USAGE, ReplayArgs, ReplayOutput};
use crate::commands::input::{self, EventTimes, Pieces, is_closed_pipe};
use crate::commands::table;
use crate::config::{Config, DEFAULT_MAX_LINE_BYTES};
use crate::exposition::{Build, ProcessStats, Scrape, TextFormat};
use crate::ledger::Ledger;
use crate::logs::blocks::{Cut, count_lines};
use crate::logs::extract::{Extractor, LineAssembler};
use crate::logs::rules::RuleSet;
use crate::model::failure::Failure;
use crate::model::label::Label;
use crate::model::log_event::LogEvent;
use crate::model::position::SourceTotals;
use crate::snapshot::{NamespaceView, Snapshot};
use crate::util::clock;
use crate::util::clock::TimeMs;

pub fn run(args: &ReplayArgs) -> ExitCode {
    let config = match Config::load_without_logs(args.config_file.as_deref(), &args.overrides()) {
        Ok(config) => config,
        Err(problems) => {
            error!("cannot replay with this configuration:\n{problems}");
            return EXIT_USAGE.into();
        }
    };
    let mut replay = Replay::new(args, config);
    let mut failed = false;
    for path in &args.files {
        if let Err(failure) = replay.file(path) {
            replay.progress.clear();
            if is_closed_pipe(&failure) {
                return ExitCode::SUCCESS;
            }
            error!("{failure:#}");
            failed = true;
        }
    }
    match replay.finish() {
        Ok(()) if !failed => ExitCode::SUCCESS,
        Err(failure) if !is_closed_pipe(&failure) => {
            error!("{failure:#}");
            EXIT_FAILED.into()
        }
        _ if failed => EXIT_FAILED.into(),
        _ => ExitCode::SUCCESS,
    }
}

struct Replay<'a> {
    args: &'a ReplayArgs,
    config: Config,
    extractor: Arc<Extractor>,
    ledger: Ledger,
    out: BufWriter<io::Stdout>,
    seen: SourceTotals,
    started: Instant,
    now: TimeMs,
    times: EventTimes,
    progress: ReplayProgress,
}

/// One line of `--output events`.
#[derive(Serialize)]
struct EventLine<'a> {
    file: &'a str,
    offset: u64,
    time: Option<String>,
    event: &'static str,
    lock_namespace: &'a str,
    operation: Option<&'static str>,
    reason: Option<&'static str>,
    /// Omitted with `--redact`, not null.
    #[serde(skip_serializing_if = "Option::is_none")]
    lock_id: Option<Option<&'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lock_key: Option<&'a str>,
    rule: &'a str,
}

impl<'a> Replay<'a> {
    fn new(args: &'a ReplayArgs, config: Config) -> Self {
        let extractor = Arc::new(Extractor::new(RuleSet::compile(&config), DEFAULT_MAX_LINE_BYTES));
        let ledger = Ledger::new(config.namespaces.clone(), config.join_window, Default::default());
        Self {
            args,
            config,
            extractor,
            ledger,
            out: BufWriter::new(io::stdout()),
            seen: SourceTotals::default(),
            started: Instant::now(),
            now: clock::now(),
            times: EventTimes::new(clock::now()),
            progress: ReplayProgress::new(),
        }
    }

    fn file(&mut self, path: &Path) -> anyhow::Result<()> {
        let input = input::open(path)?;
        self.progress.expect(input.length);
        self.text(input.pieces, &path.display().to_string())
    }

    fn text(&mut self, mut pieces: Pieces, name: &str) -> anyhow::Result<()> {
        let mut joiner = LineAssembler::default();
        let mut skipping = false;
        let bytes_before = self.seen.bytes;
        let mut offset = 0;
        let mut events = Vec::new();
        loop {
            if let Some(finding) = pieces.finding(&self.extractor, !skipping && !joiner.is_waiting()) {
                offset = finding.end;
                self.seen.lines += finding.lines;
                self.seen.bytes += finding.end - finding.start;
                events.extend(finding.events);
                joiner = finding.joiner;
                self.progress.show(name, offset, self.seen.bytes, self.started);
                self.count(name, bytes_before, &mut events)?;
            }
            let (cut, text) = pieces.next(skipping).with_context(|| format!("cannot read {name:?}"))?;
            match cut {
                Cut::Unfinished | Cut::NeedMore => break,
                Cut::Skipped { ends, .. } => skipping = !ends,
                Cut::Lines(_) | Cut::TooLong(_) => {
                    skipping = matches!(cut, Cut::TooLong(_));
                    self.seen.oversized_lines += u64::from(skipping);
                    self.seen.lines += count_lines(text);
                    self.extractor.extract(text, offset, &mut joiner, &mut events);
                }
            }
            offset += text.len() as u64;
            self.seen.bytes += text.len() as u64;
            self.progress.show(name, offset, self.seen.bytes, self.started);
            self.count(name, bytes_before, &mut events)?;
        }
        self.extractor.flush(&mut joiner, &mut events);
        self.count(name, bytes_before, &mut events)
    }

    fn count(&mut self, file: &str, bytes_before: u64, events: &mut Vec<LogEvent>) -> anyhow::Result<()> {
        for event in events.drain(..) {
            self.seen.events += 1;
            let at = self.times.time_of(&event, bytes_before);
            let counted = self.ledger.apply(at, self.now, &event);
            if let (ReplayOutput::Events, Some(counted)) = (self.args.output, counted) {
                self.progress.clear();
                self.print(file, &event, counted)?;
            }
        }
        Ok(())
    }

    fn print(&mut self, file: &str, event: &LogEvent, counted: Failure) -> anyhow::Result<()> {
        let namespace = &self.config.namespaces[event.namespace.0 as usize];
        let lock = namespace.name_lock(event.lock.as_deref());
        let redact = self.args.redact;
        let line = EventLine {
            file,
            offset: event.offset,
            time: event.time.and_then(clock::format),
            event: counted.event_name(),
            lock_namespace: &namespace.name,
            operation: counted.operation_name(),
            reason: counted.reason().map(Label::as_str),
            lock_id: (!redact).then_some(lock.id),
            lock_key: lock.key.filter(|_| !redact),
            rule: self.config.rules.name(event.rule),
        };
        serde_json::to_writer(&mut self.out, &line).map_err(io::Error::from)?;
        Ok(self.out.write_all(b"\n")?)
    }

    fn finish(mut self) -> anyhow::Result<()> {
        self.progress.clear();
        let namespaces: Vec<NamespaceView> = self
            .ledger
            .namespaces()
            .iter()
            .map(|namespace| NamespaceView {
                namespace: Arc::clone(namespace),
                logs: self.ledger.counters(namespace),
                causes: self.ledger.causes(namespace),
                keyspace: None,
                lately: Default::default(),
            })
            .collect();
        match self.args.output {
            ReplayOutput::Events => {}
            ReplayOutput::Metrics => {
                let snapshot = Arc::new(Snapshot { namespaces, ..Snapshot::default() });
                let scrape = Scrape { snapshot, process: ProcessStats::default(), build: Build::CURRENT };
                self.out.write_all(scrape.render(TextFormat::Classic).as_bytes())?;
            }
            ReplayOutput::Table => table::write(&mut self.out, &namespaces, &self.seen, self.started.elapsed())?,
        }
        Ok(self.out.flush()?)
    }
}

/// The progress line of a long replay, on standard error.
struct ReplayProgress {
    is_terminal: bool,
    expected: Option<u64>,
    next: Instant,
    shown: bool,
}

impl ReplayProgress {
    /// Short replays show no progress.
    const FIRST_AFTER: Duration = Duration::from_millis(500);
    const EVERY: Duration = Duration::from_millis(100);

    fn new() -> Self {
        let is_terminal = io::stderr().is_terminal();
        Self { is_terminal, expected: None, next: Instant::now() + Self::FIRST_AFTER, shown: false }
    }

    /// Sets the size of the next file, if it is known.
    fn expect(&mut self, bytes: Option<u64>) {
        self.expected = bytes;
    }

    fn show(&mut self, name: &str, offset: u64, total: u64, started: Instant) {
        if !self.is_terminal || Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + Self::EVERY;
        self.shown = true;
        let speed = total as f64 / 1e6 / started.elapsed().as_secs_f64().max(0.001);
        let share = self.expected.map(|bytes| 100.0 * offset as f64 / bytes as f64);
        let bar = share.map_or(String::new(), |share| {
            let filled = (share / 5.0).clamp(0.0, 20.0) as usize;
            format!("[{}{}] {share:3.0} % ", "#".repeat(filled), ".".repeat(20 - filled))
        });
        eprint!("\r\x1b[K{bar}{:.0} MB read, {speed:.0} MB/s  {name}", total as f64 / 1e6);
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            eprint!("\r\x1b[K");
        }
    }
}
