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
use crate::logs::files::ASSUMED_BYTES_PER_MS;
use crate::logs::files::prefetch::PrefetchedPart;
use crate::model::log_event::LogEvent;
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

/// Returns the time of an event. If the line has no time, its distance in bytes from the start is
/// converted to a time, as when the daemon reads a backlog. `bytes_before` is the size of the files
/// read before this one.
pub(super) fn time_of(event: &LogEvent, now: TimeMs, bytes_before: u64) -> TimeMs {
    event.time.unwrap_or_else(|| now + ((bytes_before + event.offset) / ASSUMED_BYTES_PER_MS) as TimeMs)
}

/// A closed pipe, as in `... | head`, is not a failure.
pub(super) fn is_closed_pipe(failure: &anyhow::Error) -> bool {
    failure.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
