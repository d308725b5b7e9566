//! Log sources: files, standard input, journals and pushed lines -> batches of log events for the pipeline.
//!
//! `daemon::run` starts each source; `replay` and `check --logs` use [`extract`] alone. In reading order:
//!
//! * `files`: follows log files
//! * `stdin`: reads standard input
//! * `blocks`: cuts text into blocks of complete lines
//! * `journal`: follows a systemd journal
//! * `push`: takes lines that others push
//! * `streams`: entries of journals and pushes, one stream each, with their fields
//! * `extract`: from a block of lines to log events
//! * `line`: one line -> record
//! * `rules`: record -> log event

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

/// How a source is doing now, for the page and the metrics.
fn tell(now: &Mutex<Vec<SourceNow>>, source: usize, change: impl FnOnce(&mut SourceNow)) {
    if let Ok(mut now) = now.lock()
        && let Some(now) = now.get_mut(source)
    {
        change(now);
    }
}
