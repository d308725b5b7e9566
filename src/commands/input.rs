//! Log files that a command reads once from beginning to end: plain, gzip, or standard input.
//!
//! `check --logs` and `replay` call [`open`]. It fails if a file cannot be read or is a directory.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use flate2::read::MultiGzDecoder;

use crate::config::DEFAULT_MAX_LINE_BYTES;
use crate::logs::blocks::{Blocks, Cut, FileBlocks};
use crate::logs::extract::Extractor;
use crate::logs::files::prefetch::PrefetchedPart;
use crate::model::log_event::LogEvent;
use crate::model::namespace::NamespaceId;
use crate::util::clock::TimeMs;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

pub(super) struct LogInput {
    pub(super) pieces: Pieces,
    /// Size of the input, if it is known.
    pub(super) length: Option<u64>,
}

pub(super) enum Pieces {
    Stream(Blocks<Box<dyn Read>>),
    File(FileBlocks),
}

impl Pieces {
    fn stream(reader: impl Read + 'static) -> Self {
        Self::Stream(Blocks::new(Box::new(reader), DEFAULT_MAX_LINE_BYTES))
    }

    /// See [`Blocks::next`].
    pub(super) fn next(&mut self, skipping: bool) -> io::Result<(Cut, &[u8])> {
        match self {
            Self::Stream(blocks) => blocks.next(skipping),
            Self::File(blocks) => blocks.next(skipping),
        }
    }

    /// See [`FileBlocks::finding`].
    pub(super) fn finding(&mut self, extractor: &Arc<Extractor>, is_between_lines: bool) -> Option<PrefetchedPart> {
        match self {
            Self::Stream(_) => None,
            Self::File(blocks) => blocks.finding(extractor, is_between_lines),
        }
    }
}

pub(super) fn open(path: &Path) -> anyhow::Result<LogInput> {
    if path.as_os_str() == "-" {
        return Ok(LogInput { pieces: Pieces::stream(io::stdin().lock()), length: None });
    }
    let name = path.display().to_string();
    let mut file = File::open(path).with_context(|| format!("cannot open {name:?}"))?;
    let metadata = file.metadata().with_context(|| format!("cannot access {name:?}"))?;
    if metadata.is_dir() {
        anyhow::bail!("{name:?} is a directory; name the files in it");
    }
    // Pipes and devices cannot be rewound, so they are read without the gzip check.
    let is_gzip = metadata.is_file() && {
        let mut magic = Vec::new();
        file.by_ref().take(2).read_to_end(&mut magic).with_context(|| format!("cannot read {name:?}"))?;
        file.rewind().with_context(|| format!("cannot read {name:?}"))?;
        magic == GZIP_MAGIC
    };
    // Files in /proc and pipes have no size.
    let length = Some(metadata.len()).filter(|length| *length > 0 && metadata.is_file() && !is_gzip);
    let pieces = match (is_gzip, length) {
        (true, _) => Pieces::stream(MultiGzDecoder::new(file)),
        (false, Some(length)) => Pieces::File(FileBlocks::new(file, length, DEFAULT_MAX_LINE_BYTES)),
        (false, None) => Pieces::stream(file),
    };
    Ok(LogInput { pieces, length })
}

/// The times of events, for the decision which lines belong to one failure.
///
/// A line without a time belongs to the failure of the line directly before it, if both are about
/// the same lock. The distance between other lines says nothing about the time between them, so
/// they get times that no join window covers.
pub(super) struct EventTimes {
    latest: TimeMs,
    previous: Option<PreviousEvent>,
}

struct PreviousEvent {
    at: TimeMs,
    /// Counted from the start of the first file.
    end: u64,
    namespace: NamespaceId,
    lock: Option<String>,
}

impl EventTimes {
    /// Longer than any join window.
    const APART_MS: TimeMs = 365 * 24 * 3_600_000;

    pub(super) fn new(now: TimeMs) -> Self {
        Self { latest: now, previous: None }
    }

    /// `bytes_before` is the size of the files read before this one: the last line of a rotated
    /// file is adjacent to the first line of the next file.
    pub(super) fn time_of(&mut self, event: &LogEvent, bytes_before: u64) -> TimeMs {
        let at = match (event.time, &self.previous) {
            (Some(time), _) => time,
            (None, Some(previous)) if previous.is_continued_by(event, bytes_before) => previous.at,
            (None, _) => {
                self.latest = self.latest.saturating_add(Self::APART_MS);
                self.latest
            }
        };
        let LogEvent { end, namespace, lock, .. } = event;
        self.previous = Some(PreviousEvent { at, end: bytes_before + end, namespace: *namespace, lock: lock.clone() });
        at
    }
}

impl PreviousEvent {
    fn is_continued_by(&self, event: &LogEvent, bytes_before: u64) -> bool {
        self.end == bytes_before + event.offset && self.namespace == event.namespace && self.lock == event.lock
    }
}

/// A closed pipe, as in `... | head`, is not a failure.
pub(super) fn is_closed_pipe(failure: &anyhow::Error) -> bool {
    failure.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
