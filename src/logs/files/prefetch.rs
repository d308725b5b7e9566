//! Searches the next part of a long backlog on another thread, while the caller reads the current
//! part. Reading and searching keep one core busy, so two threads take about half the time. Used by
//! `followed_file` and by `blocks`.
//!
//! The scout can only save work. Its result is used if the reader arrives exactly at the start of
//! the scout's part with no incomplete line or record. `followed_file` also requires that the text
//! before that start is unchanged. Otherwise, and after an error, the result is dropped, and the
//! reader continues by itself.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use memchr::{memchr, memrchr};

use crate::logs::blocks::{BLOCK_BYTES, count_lines};
use crate::logs::extract::records::TAIL_BYTES;
use crate::logs::extract::{Extractor, LineAssembler};
use crate::model::log_event::LogEvent;
use crate::model::position::{MARK_BYTES, Mark};

/// Size of the part that the reader reads, and of the part that the scout searches. The backlog
/// must be longer than both.
pub const PART_BYTES: u64 = 4 << 20;

/// The owner of the search thread. The thread starts when it is first needed. If it cannot start,
/// the reader reads everything itself.
#[derive(Default)]
pub struct Prefetcher {
    worker: Option<PrefetchThread>,
    /// A task was sent, and its result was not received yet.
    is_out: bool,
}

struct PrefetchThread {
    tasks: Sender<Task>,
    findings: Receiver<io::Result<Option<PrefetchedPart>>>,
}

struct Task {
    file: Arc<File>,
    extractor: Arc<Extractor>,
    start: u64,
}

/// The result of searching one part.
pub struct PrefetchedPart {
    pub start: u64,
    /// Mark of the bytes before `start`, as the scout read them.
    pub before: Mark,
    /// Offset after the last complete line.
    pub end: u64,
    /// Mark of the bytes before `end`.
    pub tail: Mark,
    pub lines: u64,
    pub events: Vec<LogEvent>,
    /// State with which the reader continues after the part. Nothing in it is incomplete.
    pub joiner: LineAssembler,
}

impl Prefetcher {
    /// Sends the scout ahead of a reader at `offset`. Returns the offset at which the scout starts
    /// and the reader must stop. Returns `None` if no line starts within 64 KiB after the reader's
    /// part, or if the thread cannot start.
    pub fn send(&mut self, file: &Arc<File>, extractor: &Arc<Extractor>, offset: u64) -> Option<u64> {
        self.recall();
        let start = line_start(file, offset + PART_BYTES)?;
        if self.worker.is_none() {
            self.worker = start_worker();
        }
        let task = Task { file: Arc::clone(file), extractor: Arc::clone(extractor), start };
        self.is_out = self.worker.as_ref()?.tasks.send(task).is_ok();
        self.is_out.then_some(start)
    }

    /// Waits for the scout's result. Returns `None` if there is no task, or if the scout could not
    /// use the part.
    pub fn finding(&mut self) -> Option<PrefetchedPart> {
        if !std::mem::take(&mut self.is_out) {
            return None;
        }
        // An error is dropped here. The reader gets the same error when it reads this part itself.
        self.worker.as_ref()?.findings.recv().ok()?.ok()?
    }

    /// Drops the result of a task that was not collected.
    fn recall(&mut self) {
        drop(self.finding());
    }
}

fn start_worker() -> Option<PrefetchThread> {
    let (tasks, received) = channel::<Task>();
    let (sender, findings) = channel();
    let work = move || {
        let mut buffer = Vec::new();
        for task in received {
            if sender.send(task.search(&mut buffer)).is_err() {
                break;
            }
        }
    };
    thread::Builder::new().name("scout".to_owned()).spawn(work).ok()?;
    Some(PrefetchThread { tasks, findings })
}

/// Offset of the first line that starts after `near`, if it is within 64 KiB.
fn line_start(file: &File, near: u64) -> Option<u64> {
    let mut buffer = vec![0; 64 * 1024];
    let length = file.read_at(&mut buffer, near).ok()?;
    memchr(b'\n', &buffer[..length]).map(|at| near + at as u64 + 1)
}

impl Task {
    /// Searches complete lines that fit into a block. Anything else is left to the reader.
    fn search(&self, buffer: &mut Vec<u8>) -> io::Result<Option<PrefetchedPart>> {
        buffer.resize(MARK_BYTES + BLOCK_BYTES, 0);
        let mut finding = PrefetchedPart {
            start: self.start,
            before: Mark::default(),
            end: self.start,
            tail: Mark::default(),
            lines: 0,
            events: Vec::new(),
            joiner: LineAssembler::default(),
        };
        let before = self.start.min(TAIL_BYTES as u64) as usize;
        let length = self.file.read_at(&mut buffer[..before], self.start - before as u64)?;
        if length < before {
            return Ok(None);
        }
        finding.joiner.set_preceding_text(&buffer[..before], self.start);
        while finding.end < self.start + PART_BYTES {
            // Every read includes the bytes before `end`. If they changed, the file was rewritten.
            let length = self.file.read_at(buffer, finding.end - MARK_BYTES as u64)?;
            if length <= MARK_BYTES {
                break;
            }
            let (before, bytes) = buffer[..length].split_at(MARK_BYTES);
            match finding.end == self.start {
                true => finding.before = Mark::of(before),
                false if Mark::of(before) != finding.tail => return Ok(None),
                false => {}
            }
            let Some(last) = memrchr(b'\n', bytes) else { break };
            let text = &bytes[..=last];
            finding.lines += count_lines(text);
            self.extractor.extract(text, finding.end, &mut finding.joiner, &mut finding.events);
            finding.end += text.len() as u64;
            finding.tail = Mark::of(&buffer[text.len()..text.len() + MARK_BYTES]);
        }
        Ok((finding.end > self.start && !finding.joiner.is_waiting()).then_some(finding))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Overrides};
    use crate::logs::rules::RuleSet;

    /// Searches `text` in a file that has enough bytes before it.
    fn found(text: &str) -> Option<PrefetchedPart> {
        let config =
            Config::from_yaml("test", "presets: [cordum]\nlogs: [{path: '-'}]", &Overrides::default()).unwrap();
        let before = format!("{}\n", "x".repeat(2 * MARK_BYTES));
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(path.path(), format!("{before}{text}")).unwrap();
        let extractor = Arc::new(Extractor::new(RuleSet::compile(&config), 1 << 20));
        let file = Arc::new(path.reopen().unwrap());
        Task { file, extractor, start: before.len() as u64 }.search(&mut Vec::new()).unwrap()
    }

    const CUT: &str = "2026-06-25T13:37:04Z stderr P [SCHEDULER] WARN lock renewal fai\n";
    const REST: &str = "2026-06-25T13:37:04Z stderr F led error=lock not owned\n";
    const NEXT: &str = "2026-06-25T13:37:05Z stderr F [SCHEDULER] INFO next\n";

    #[test]
    fn whole_lines_are_found_and_the_rest_is_left() {
        let finding = found(&format!("{CUT}{REST}{NEXT}half a li")).unwrap();
        assert_eq!((finding.lines, finding.events.len()), (3, 1));
        assert_eq!(finding.end - finding.start, (CUT.len() + REST.len() + NEXT.len()) as u64);
    }

    #[test]
    fn a_part_that_ends_inside_a_cut_line_is_left_to_the_reader() {
        assert!(found(&format!("{CUT}{REST}{NEXT}{CUT}")).is_none());
        // More lines of the record may follow.
        assert!(found(&format!("{CUT}{REST}")).is_none());
        assert!(found("no whole line").is_none());
    }
}
