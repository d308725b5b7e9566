//! The messages that sources send to the pipeline: batches of log events with a position, and
//! batches of link events.
//!
//! The pipeline applies each batch completely and saves the position together with the counters.

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::model::log_event::LogEvent;
use crate::model::position::{Cursor, FileId, JournalPosition, SourceTotals};
use crate::model::sighting::LinkBatch;
use crate::util::clock::TimeMs;

/// A message to the pipeline.
#[derive(Debug)]
pub enum PipelineInput {
    Logs(Batch),
    /// The log files, or a journal, have an initial position. Once it is saved, no line that is
    /// written later is lost. The tailer sends this once, and each journal source sends it once,
    /// even if the first attempt to read fails.
    LogsReady,
    Link(LinkBatch),
}

/// Events of one source, the position after them, and totals to add. A batch is applied completely
/// or not at all.
#[derive(Debug)]
pub struct Batch {
    /// Index of the configured log source.
    pub source: usize,
    /// Each event with its time: the time of the line, or the best estimate if the line has none.
    pub events: Vec<(TimeMs, LogEvent)>,
    pub reached: SourcePosition,
    /// Added to the totals of the source.
    pub seen: SourceTotals,
}

/// How far a source was read. Saved together with the counters that the batch changes.
#[derive(Debug)]
pub enum SourcePosition {
    /// The positions that changed. `None` removes a position.
    Files(Vec<(FileId, Option<Cursor>)>),
    Journal(JournalPosition),
    Pushed(PushReceipt),
    /// The source cannot be read again, so there is no position to save.
    Nothing,
}

/// What the pipeline needs from a push request, besides its events.
#[derive(Debug)]
pub struct PushReceipt {
    /// Hashes of the lines that became events. They identify the lines if the client sends the
    /// request again.
    pub lines: Vec<u64>,
    /// Notified after the batch is saved.
    pub saved: Option<oneshot::Sender<()>>,
    /// Released when the pipeline has applied the batch. The number of permits limits how many push
    /// requests can have events in the queue.
    pub place: OwnedSemaphorePermit,
}
