//! A systemd journal as a log source: runs `journalctl --follow` and saves the cursor of the last entry with its counts.
//!
//! `daemon::run` calls [`run`]. After a start, reading resumes *at* the saved cursor, not after it. If the first entry is
//! the saved one, nothing was missed and it is skipped. If not, the journal was vacuumed, and that is reported.
//! (`--after-cursor` would skip one entry too many in that case.) While the pipeline is behind, the pipe is not read and
//! journalctl waits. A child that ends is restarted after a wait, at its position. In reading order:
//!
//! * this file: the source
//! * `child`: the journalctl process
//! * `entry`: one line of `journalctl -o json`

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
use crate::model::input::{Batch, PipelineInput, Reached};
use crate::model::position::{JournalPosition, SourceTotals};
use crate::snapshot::SourceNow;
use crate::util::backoff::Backoff;
use child::{From, JournalProcess, JournalRead};
use entry::JournalEntry;

/// Entries and bytes that are handed over at once at most.
const MAX_EVENTS: usize = 1_000;
const MAX_BYTES: u64 = 256 * 1024;
/// How long entries may be held back because a line among them waits for its rest.
const LONGEST_HOLD: Duration = Duration::from_secs(3);
const LOOKS_APART: Duration = Duration::from_millis(200);
/// A child that lived this long was a good one.
const GOOD_LIFE: Duration = Duration::from_secs(30);
/// Bytes of an entry for each byte of its message (bytes are written as numbers), and for its other fields.
const ENTRY_FACTOR: usize = 4;
const ENTRY_EXTRA: usize = 1 << 20;

/// What following a journal needs.
pub struct JournalSource {
    /// Index of the log source.
    pub source: usize,
    pub journal: JournalConfig,
    pub start_at: StartAt,
    pub max_line_bytes: usize,
    /// None: it has never been read.
    pub position: Option<JournalPosition>,
    pub streams: StreamSet,
    pub out: mpsc::Sender<PipelineInput>,
    pub now: Arc<Mutex<Vec<SourceNow>>>,
}

/// Runs until `stop`, whatever happens to the journal.
pub async fn run(setup: JournalSource, stop: CancellationToken) {
    let matches = setup.journal.matches.join(" ");
    let mut source = Source { setup, matches, report: StreamReport::default(), held_since: None };
    let mut backoff = Backoff::new();
    let mut is_first = true;
    // Each is logged once, not every few seconds.
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
    /// All that select entries, as one text.
    matches: String,
    report: StreamReport,
    /// Since when entries are held back.
    held_since: Option<Instant>,
}

impl Source {
    /// At the very first start: finds the place to start from and has it saved.
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

    async fn end(&self) -> Result<JournalPosition, String> {
        let journal = &self.setup.journal;
        if let Some(entry) = child::last(journal, &journal.matches).await? {
            return Ok(JournalPosition { cursor: Some(entry.cursor), matches: Some(self.matches.clone()) });
        }
        // Nothing fits yet: whatever comes after the last of all entries is new.
        let last = child::last(journal, &[]).await?;
        Ok(JournalPosition { cursor: last.map(|entry| entry.cursor), matches: None })
    }

    /// Until `stop`. An error is a sentence for people.
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
        // The entry that must come first.
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
        // What was read was read; the rest of a cut line would come to another child.
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

    /// Nothing is handed over while a line waits for its rest, for the saved position would lie inside it; but not for
    /// ever. `is_read`: no more output is at hand, so there is nothing to collect.
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

    /// Waits while the pipeline is behind.
    async fn hand_over(&mut self) {
        self.held_since = None;
        let StreamReport { events, seen } = std::mem::take(&mut self.report);
        let reached = self.setup.position.clone().map_or(Reached::Nothing, Reached::Journal);
        let batch = Batch { source: self.setup.source, events, reached, seen };
        let _ = self.setup.out.send(PipelineInput::Logs(batch)).await;
    }

    async fn count_error(&mut self) {
        let seen = SourceTotals { read_errors: 1, ..SourceTotals::default() };
        let batch = Batch { source: self.setup.source, events: Vec::new(), reached: Reached::Nothing, seen };
        let _ = self.setup.out.send(PipelineInput::Logs(batch)).await;
    }

    fn tell_now(&self, change: impl FnOnce(&mut SourceNow)) {
        tell(&self.setup.now, self.setup.source, change);
    }
}
