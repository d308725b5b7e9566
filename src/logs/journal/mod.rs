//! Log source for a systemd journal: runs `journalctl --follow` and saves the cursor of the last
//! entry together with the counters.
//!
//! `daemon::run` calls [`run`]. After a restart, reading resumes *at* the saved cursor, not after
//! it. If the first entry is the saved one, no entry was lost, and this entry is skipped. Otherwise
//! the journal was vacuumed, which is logged and counted. (`--after-cursor` would skip one entry
//! too many in that case.) While the pipeline is behind, the pipe is not read, and journalctl
//! waits. If journalctl ends, it is restarted at the current position after a delay. In reading
//! order:
//!
//! * this file: the source
//! * `child`: the journalctl process
//! * `entry`: parses one line of `journalctl -o json`

mod child;
mod entry;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use crate::config::{JournalConfig, StartAt};
use crate::logs::streams::{StreamEntry, StreamReport, StreamSet};
use crate::logs::tell;
use crate::model::input::{Batch, PipelineInput, SourcePosition};
use crate::model::position::{JournalPosition, SourceTotals};
use crate::snapshot::SourceNow;
use crate::util::backoff::Backoff;
use child::{From, JournalProcess, JournalRead};
use entry::JournalEntry;

/// Limits on the events and bytes of one batch.
const MAX_EVENTS: usize = 1_000;
const MAX_BYTES: u64 = 256 * 1024;
/// How long a batch may be delayed because a line or record in it is incomplete.
const LONGEST_HOLD: Duration = Duration::from_secs(3);
/// Interval between checks for overdue incomplete lines and for a due batch.
const LOOKS_APART: Duration = Duration::from_millis(200);
/// If journalctl ran at least this long, the backoff starts over.
const GOOD_LIFE: Duration = Duration::from_secs(30);
/// Limit on the size of a JSON entry: `ENTRY_FACTOR` bytes for each allowed byte of the message,
/// because journalctl writes binary messages as arrays of numbers, plus `ENTRY_EXTRA` bytes for the
/// other fields.
const ENTRY_FACTOR: usize = 4;
const ENTRY_EXTRA: usize = 1 << 20;

/// Everything that following a journal needs.
pub struct JournalSource {
    /// Index of the log source.
    pub source: usize,
    pub journal: JournalConfig,
    pub start_at: StartAt,
    pub max_line_bytes: usize,
    /// `None` if the journal was never read.
    pub position: Option<JournalPosition>,
    pub streams: StreamSet,
    pub out: mpsc::Sender<PipelineInput>,
    pub now: Arc<Mutex<Vec<SourceNow>>>,
}

/// Runs until `stop`. Errors of the journal never end it.
pub async fn run(setup: JournalSource, stop: CancellationToken) {
    let matches = setup.journal.matches.join(" ");
    let mut source = Source { setup, matches, report: StreamReport::default(), held_since: None };
    let mut backoff = Backoff::new();
    let mut is_first = true;
    // A repeated error is logged once, not at every retry.
    let mut last_complaint = None;
    loop {
        let started = Instant::now();
        let outcome = tokio::select! {
            () = stop.cancelled() => return,
            prepared = source.prepare() => prepared,
        };
        if std::mem::take(&mut is_first) {
            let _ = source.setup.out.send(PipelineInput::LogsReady).await;
        }
        let outcome = match outcome {
            Ok(()) => source.follow(&stop).await,
            Err(complaint) => Err(complaint),
        };
        let Err(complaint) = outcome else { return };
        if last_complaint.as_ref() != Some(&complaint) {
            warn!(complaint, "journal is not read, trying again");
            last_complaint = Some(complaint.clone());
        }
        source.tell_now(|now| (now.open_files, now.complaint) = (0, Some(complaint)));
        source.count_error().await;
        if started.elapsed() >= GOOD_LIFE {
            backoff.reset();
            last_complaint = None;
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(backoff.next()) => {}
        }
    }
}

struct Source {
    setup: JournalSource,
    /// All configured matches, joined with spaces.
    matches: String,
    report: StreamReport,
    /// When the current batch was first delayed.
    held_since: Option<Instant>,
}

impl Source {
    /// If the journal was never read, finds the position to start from and sends it to be saved.
    async fn prepare(&mut self) -> Result<(), String> {
        if self.setup.position.is_some() {
            return Ok(());
        }
        let position = match self.setup.start_at {
            StartAt::Beginning => JournalPosition::default(),
            StartAt::End => self.end().await?,
        };
        self.setup.position = Some(position);
        self.hand_over().await;
        Ok(())
    }

    /// Position after the last matching entry.
    async fn end(&self) -> Result<JournalPosition, String> {
        let journal = &self.setup.journal;
        if let Some(entry) = child::last(journal, &journal.matches).await? {
            return Ok(JournalPosition { cursor: Some(entry.cursor), matches: Some(self.matches.clone()) });
        }
        // No entry matches yet. Every matching entry after the last entry of the journal will be
        // new.
        let last = child::last(journal, &[]).await?;
        Ok(JournalPosition { cursor: last.map(|entry| entry.cursor), matches: None })
    }

    /// Follows the journal until `stop`. An error is a sentence for people.
    async fn follow(&mut self, stop: &CancellationToken) -> Result<(), String> {
        let position = self.setup.position.clone().unwrap_or_default();
        let from = position.cursor.as_deref().map_or(From::Beginning, From::Cursor);
        let max_bytes = self.setup.max_line_bytes * ENTRY_FACTOR + ENTRY_EXTRA;
        let mut follower = JournalProcess::start(&self.setup.journal, &from, max_bytes)?;
        info!(matches = self.matches, "following the journal");
        self.tell_now(|now| (now.open_files, now.complaint) = (1, None));
        let said = Arc::new(Mutex::new(String::new()));
        let _listener = follower.said().map(|output| {
            let (said, now, source) = (Arc::clone(&said), Arc::clone(&self.setup.now), self.setup.source);
            AbortOnDropHandle::new(tokio::spawn(child::listen(output, move |text| {
                tell(&now, source, |now| now.complaint = Some(format!("journalctl says: {text}")));
                if let Ok(mut said) = said.lock() {
                    *said = text;
                }
            })))
        });
        // The entry that must come first, because reading resumes at its cursor.
        let mut expected = position.cursor.clone().map(|cursor| JournalPosition { cursor: Some(cursor), ..position });
        let mut looks = interval(LOOKS_APART);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let next = tokio::select! {
                biased;
                () = stop.cancelled() => {
                    follower.end().await;
                    return Ok(());
                }
                _ = looks.tick() => {
                    self.setup.streams.flush_overdue(&mut self.report);
                    self.hand_over_if_due(follower.is_read()).await;
                    continue;
                }
                next = follower.next() => next,
            };
            match next {
                Ok(JournalRead::Line(line)) => {
                    if let Some(entry) = entry::parse(&line) {
                        self.take(entry, expected.take());
                    }
                }
                Ok(JournalRead::TooLong) => self.report.seen.oversized_lines += 1,
                Ok(JournalRead::End) | Err(_) => break,
            }
            self.hand_over_if_due(follower.is_read()).await;
        }
        // The entries were read, so their events count. The next piece of a split line would go to
        // the next journalctl process, so incomplete lines are flushed here.
        self.setup.streams.flush(&mut self.report);
        self.hand_over().await;
        let ended = follower.ended().await;
        let said = said.lock().map(|said| said.clone()).unwrap_or_default();
        Err(if said.is_empty() { ended } else { format!("{ended}: {said}") })
    }

    fn take(&mut self, entry: JournalEntry, expected: Option<JournalPosition>) {
        if let Some(expected) = expected {
            if expected.cursor.as_ref() == Some(&entry.cursor) {
                return;
            }
            if expected.matches.as_ref() == Some(&self.matches) {
                warn!(
                    "the entry at which reading the journal had stopped is gone (vacuumed or rotated away); \
                     going on with the oldest one after it, entries between them are not counted"
                );
                self.report.seen.read_errors += 1;
            }
        }
        let JournalEntry { cursor, time, message, fields, stream } = entry;
        self.setup.position = Some(JournalPosition { cursor: Some(cursor), matches: Some(self.matches.clone()) });
        let entry = StreamEntry { stream, text: &message, time, fields: &fields, id: 0 };
        self.setup.streams.take(&entry, &mut self.report);
    }

    /// Sends the batch if it is due. A batch is delayed while a line or record is incomplete,
    /// because the saved position would be inside it. The delay ends after `LONGEST_HOLD`, or when
    /// the batch is large. `is_read` is true if no more output is buffered, so waiting would
    /// collect nothing more.
    async fn hand_over_if_due(&mut self, is_read: bool) {
        if self.report.is_empty() {
            return;
        }
        if self.setup.streams.is_waiting() {
            let since = *self.held_since.get_or_insert_with(Instant::now);
            let is_much = self.report.events.len() >= MAX_EVENTS || self.report.seen.bytes >= MAX_BYTES;
            if since.elapsed() < LONGEST_HOLD && !is_much {
                return;
            }
            self.setup.streams.flush(&mut self.report);
        }
        let is_much = self.report.events.len() >= MAX_EVENTS || self.report.seen.bytes >= MAX_BYTES;
        if is_read || is_much {
            self.hand_over().await;
        }
    }

    /// Sends the batch with the current position. Waits while the pipeline is behind.
    async fn hand_over(&mut self) {
        self.held_since = None;
        let StreamReport { events, seen } = std::mem::take(&mut self.report);
        let reached = self.setup.position.clone().map_or(SourcePosition::Nothing, SourcePosition::Journal);
        let batch = Batch { source: self.setup.source, events, reached, seen };
        let _ = self.setup.out.send(PipelineInput::Logs(batch)).await;
    }

    async fn count_error(&mut self) {
        let seen = SourceTotals { read_errors: 1, ..SourceTotals::default() };
        let batch = Batch { source: self.setup.source, events: Vec::new(), reached: SourcePosition::Nothing, seen };
        let _ = self.setup.out.send(PipelineInput::Logs(batch)).await;
    }

    fn tell_now(&self, change: impl FnOnce(&mut SourceNow)) {
        tell(&self.setup.now, self.setup.source, change);
    }
}
