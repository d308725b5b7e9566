//! Searches, on another thread, the part of a long backlog that comes after the part being read. Reading and searching each
//! have a core busy, so two parts at once take half the time.
//!
//! A scout only ever saves work: what it found is used if the reader arrives exactly where it began, over the same text, with
//! nothing left open; otherwise it is dropped and the reader goes on by itself.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use memchr::{memchr, memrchr};

use crate::logs::blocks::{BLOCK_BYTES, count_lines};
use crate::logs::extract::records::TAIL_BYTES;
use crate::logs::extract::{Extractor, Joiner};
use crate::model::log_event::LogEvent;
use crate::model::position::{MARK_BYTES, Mark};

/// What the reader takes itself, and what the scout takes, of a backlog that is longer than both.
pub const PART_BYTES: u64 = 4 << 20;

/// Starts its thread when it is needed first. Without one everything is read in turn.
#[derive(Default)]
pub struct Scout {
    worker: Option<PrefetchThread>,
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

/// What a part holds.
pub struct PrefetchedPart {
    pub start: u64,
    /// The bytes before the start, as the scout saw them.
    pub before: Mark,
    /// Behind the last whole line.
    pub end: u64,
    /// The bytes before the end.
    pub tail: Mark,
    pub lines: u64,
    pub events: Vec<LogEvent>,
    /// What the reader needs to know of the part to go on: nothing waits in it.
    pub joiner: Joiner,
}

impl Scout {
    /// Sends the scout ahead of a reader that is at `offset`, and tells where the reader is to stop. None where the next
    /// part does not begin near by, or no thread is to be had.
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

    /// Waits for what was found. Nothing if the part is not as simple as it should be.
    pub fn finding(&mut self) -> Option<PrefetchedPart> {
        if !std::mem::take(&mut self.is_out) {
            return None;
        }
        // An error is the reader's to meet.
        self.worker.as_ref()?.findings.recv().ok()?.ok()?
    }

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

/// The beginning of the first line that begins at or after `near`.
fn line_start(file: &File, near: u64) -> Option<u64> {
    let mut buffer = vec![0; 64 * 1024];
    let length = file.read_at(&mut buffer, near).ok()?;
    memchr(b'\n', &buffer[..length]).map(|at| near + at as u64 + 1)
}

impl Task {
    /// Only whole lines that fit into a block: anything else is left to the reader.
    fn search(&self, buffer: &mut Vec<u8>) -> io::Result<Option<PrefetchedPart>> {
        buffer.resize(MARK_BYTES + BLOCK_BYTES, 0);
        let mut finding = PrefetchedPart {
            start: self.start,
            before: Mark::default(),
            end: self.start,
            tail: Mark::default(),
            lines: 0,
            events: Vec::new(),
            joiner: Joiner::default(),
        };
        let before = self.start.min(TAIL_BYTES as u64) as usize;
        let length = self.file.read_at(&mut buffer[..before], self.start - before as u64)?;
        if length < before {
            return Ok(None);
        }
        finding.joiner.prime(&buffer[..before], self.start);
        while finding.end < self.start + PART_BYTES {
            // The bytes before the end come with every read, and must be those that were there.
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

    /// Searches `text` behind enough bytes to have something before it.
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
        // More of the record may follow.
        assert!(found(&format!("{CUT}{REST}")).is_none());
        assert!(found("no whole line").is_none());
    }
}
