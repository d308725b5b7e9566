//! Where events come from. Each source turns something outside (log files, standard input, a journal, what others
//! push, Redis) into batches for the pipeline.

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
