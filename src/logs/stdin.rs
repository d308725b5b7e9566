//! Log source for standard input (`path: "-"`). `daemon::run` calls [`read`] once and then
//! [`StdinReader::run`].
//!
//! A read from a pipe cannot be interrupted. One thread therefore reads until the process ends, and
//! a reload only changes which [`StdinReader`] receives the lines. Standard input cannot be read
//! twice: if the process is killed, lines that were read but not saved are lost. A log file does
//! not have this weakness.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::logs::blocks::{Blocks, Cut, count_lines};
use crate::logs::extract::{Extractor, LineAssembler};
use crate::logs::tell;
use crate::model::input::{Batch, PipelineInput, SourcePosition};
use crate::model::log_event::LogEvent;
use crate::model::position::SourceTotals;
use crate::snapshot::SourceNow;
use crate::util::clock;
use crate::util::clock::TimeMs;

/// How long to wait for lines before checking `stop`.
const PATIENCE: Duration = Duration::from_millis(100);

/// Lines from standard input. One [`StdinReader`] at a time receives them.
#[derive(Clone)]
pub struct Lines(Arc<Mutex<Receiver<StdinChunk>>>);

struct StdinChunk {
    text: Vec<u8>,
    seen: SourceTotals,
}

/// Starts the reading thread. The thread pauses while no [`StdinReader`] receives the lines,
/// because the channel is bounded.
pub fn read(max_line_bytes: usize) -> io::Result<Lines> {
    let (sender, receiver) = sync_channel(4);
    thread::Builder::new().name("stdin".to_owned()).spawn(move || match pump(max_line_bytes, &sender) {
        Ok(()) => info!("standard input has ended"),
        Err(error) => error!(%error, "can no longer read standard input"),
    })?;
    Ok(Lines(Arc::new(Mutex::new(receiver))))
}

fn pump(max_line_bytes: usize, sender: &SyncSender<StdinChunk>) -> io::Result<()> {
    let mut blocks = Blocks::new(io::stdin().lock(), max_line_bytes);
    let mut skipping = false;
    loop {
        let (cut, text) = blocks.next(skipping)?;
        let mut seen = SourceTotals { bytes: text.len() as u64, ..SourceTotals::default() };
        let searched = match cut {
            Cut::Lines(range) => {
                seen.lines = count_lines(text);
                &text[range]
            }
            Cut::TooLong(range) => {
                skipping = true;
                (seen.lines, seen.oversized_lines) = (1, 1);
                &text[range]
            }
            Cut::Skipped { ends, .. } => {
                skipping = !ends;
                &[]
            }
            Cut::Unfinished | Cut::NeedMore => return Ok(()),
        };
        if sender.send(StdinChunk { text: searched.to_vec(), seen }).is_err() {
            return Ok(());
        }
    }
}

/// Everything that following standard input needs.
pub struct StdinReader {
    pub lines: Lines,
    /// Index of the log source.
    pub source: usize,
    pub extractor: Extractor,
    pub out: mpsc::Sender<PipelineInput>,
    /// State of all log sources.
    pub now: Arc<Mutex<Vec<SourceNow>>>,
}

impl StdinReader {
    /// Sends events to the pipeline until `stop` or the end of standard input. Blocks its thread.
    pub fn run(self, stop: &CancellationToken) {
        let mut joiner = LineAssembler::default();
        let mut offset = 0;
        let Ok(lines) = self.lines.0.lock() else { return };
        tell(&self.now, self.source, |now| now.open_files = 1);
        while !self.out.is_closed() {
            let mut events = Vec::new();
            let mut seen = SourceTotals::default();
            match lines.recv_timeout(PATIENCE) {
                Ok(piece) => {
                    seen = piece.seen;
                    self.extractor.extract(&piece.text, offset, &mut joiner, &mut events);
                    offset += seen.bytes;
                }
                // `stop` is checked only when no line is waiting, because lines that were read
                // cannot be read again.
                Err(RecvTimeoutError::Timeout) if stop.is_cancelled() => break,
                Err(RecvTimeoutError::Timeout) if !joiner.is_overdue() => continue,
                Err(RecvTimeoutError::Timeout) => self.extractor.flush(&mut joiner, &mut events),
                Err(RecvTimeoutError::Disconnected) => {
                    tell(&self.now, self.source, |now| now.open_files = 0);
                    break;
                }
            }
            self.hand_over(events, seen);
        }
        // Standard input cannot be read again, so incomplete lines and records are flushed now.
        let mut events = Vec::new();
        self.extractor.flush(&mut joiner, &mut events);
        self.hand_over(events, SourceTotals::default());
    }

    fn hand_over(&self, events: Vec<LogEvent>, mut seen: SourceTotals) {
        let now = clock::now();
        seen.events = events.len() as u64;
        let read = |event: &LogEvent| event.time.unwrap_or(now - event.waited.as_millis() as TimeMs);
        let events = events.into_iter().map(|event| (read(&event), event)).collect();
        seen.last_read = (seen.bytes > 0).then_some(now);
        let batch = Batch { source: self.source, events, reached: SourcePosition::Nothing, seen };
        let _ = self.out.blocking_send(PipelineInput::Logs(batch));
    }
}
