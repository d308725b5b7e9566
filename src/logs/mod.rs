//! Log sources: files, standard input, journals and push requests. Each source sends batches of log
//! events to the pipeline.
//!
//! `daemon::run` starts each source. `replay` and `check --logs` read through `blocks` and call
//! [`extract`] directly. After a read error, files and journals are tried again; standard input
//! ends. In reading order:
//!
//! * `files`: follows log files
//! * `stdin`: reads standard input
//! * `blocks`: splits text into blocks of complete lines
//! * `journal`: follows a systemd journal
//! * `push`: handles push requests of log agents
//! * `streams`: keeps the streams of journals and push requests apart
//! * `extract`: turns a block of lines into log events
//! * `line`: parses one line into a record
//! * `rules`: turns a record into a log event

pub mod blocks;
pub mod extract;
pub mod files;
pub mod journal;
pub mod line;
pub mod push;
pub mod rules;
pub mod stdin;
pub mod streams;

use std::sync::Mutex;

use crate::snapshot::SourceNow;

/// Changes the published state of one log source, which the page and the metrics show. Does nothing
/// if the index is unknown or the mutex is poisoned.
fn tell(now: &Mutex<Vec<SourceNow>>, source: usize, change: impl FnOnce(&mut SourceNow)) {
    if let Ok(mut now) = now.lock()
        && let Some(now) = now.get_mut(source)
    {
        change(now);
    }
}
