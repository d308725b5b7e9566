//! What the sources send to the pipeline: batches of log events with the position they reach, and batches of links.

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::model::log_event::LogEvent;
use crate::model::position::{Cursor, FileId, JournalPosition, SourceTotals};
use crate::model::sighting::LinkBatch;
use crate::util::clock::TimeMs;

/// What the pipeline is told.
#[derive(Debug)]
pub enum PipelineInput {
    Logs(Batch),
    /// The log files, or a journal, have their place to start from: once that is saved, nothing written later can be
    /// missed. Told once by the tailer and once for each journal, also where looking failed.
    LogsReady,
    Link(LinkBatch),
}

/// What one source has to report: events, how far it got, and what it saw on the way. Applied as a whole or not at all.
#[derive(Debug)]
pub struct Batch {
    /// Index of the configured log source.
    pub source: usize,
    /// Each event with the time to judge it by: that of the line, or the best guess where the line has none.
    pub events: Vec<(TimeMs, LogEvent)>,
    pub reached: Reached,
    /// To be added to the source's totals.
    pub seen: SourceTotals,
}

/// How far a source got, to be saved together with what its events add to the counters.
#[derive(Debug)]
pub enum Reached {
    /// Positions that have changed; `None` forgets one.
    Files(Vec<(FileId, Option<Cursor>)>),
    Journal(JournalPosition),
    Pushed(Pushed),
    /// It cannot be read again, so there is nothing to remember.
    Nothing,
}

/// What a push request leaves behind.
#[derive(Debug)]
pub struct Pushed {
    /// What the events' lines are known again by, should the client send them once more.
    pub lines: Vec<u64>,
    /// Told once all of this is saved.
    pub saved: Option<oneshot::Sender<()>>,
    /// Given back when the events were taken: so few requests at a time have events that wait.
    pub place: OwnedSemaphorePermit,
}
