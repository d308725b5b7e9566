//! Log files that a command reads once, from beginning to end: plain, `.gz`, or standard input.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;

use anyhow::Context as _;
use flate2::read::MultiGzDecoder;

use crate::event::{LogEvent, TimeMs};
use crate::sources::tailer::ASSUMED_BYTES_PER_MS;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

pub(super) struct Input {
    pub(super) reader: Box<dyn Read>,
    /// Bytes to expect, where that is known.
    pub(super) length: Option<u64>,
}

pub(super) fn open(path: &Path) -> anyhow::Result<Input> {
    if path.as_os_str() == "-" {
        return Ok(Input { reader: Box::new(io::stdin().lock()), length: None });
    }
    let name = path.display().to_string();
    let mut file = File::open(path).with_context(|| format!("cannot open {name:?}"))?;
    let metadata = file.metadata().with_context(|| format!("cannot look at {name:?}"))?;
    if metadata.is_dir() {
        anyhow::bail!("{name:?} is a directory; name the files in it");
    }
    // What is no regular file (a pipe, a device) cannot be rewound and is taken as it is.
    let is_gzip = metadata.is_file() && {
        let mut magic = Vec::new();
        file.by_ref().take(2).read_to_end(&mut magic).with_context(|| format!("cannot read {name:?}"))?;
        file.rewind().with_context(|| format!("cannot read {name:?}"))?;
        magic == GZIP_MAGIC
    };
    Ok(match is_gzip {
        true => Input { reader: Box::new(MultiGzDecoder::new(file)), length: None },
        false => Input { reader: Box::new(file), length: Some(metadata.len()).filter(|length| *length > 0) },
    })
}

/// The time to judge an event by. Where lines carry no time, their distance stands for it, as when the daemon reads a
/// backlog; `bytes_before` are those of the files read before this one.
pub(super) fn time_of(event: &LogEvent, now: TimeMs, bytes_before: u64) -> TimeMs {
    event.time.unwrap_or_else(|| now + ((bytes_before + event.offset) / ASSUMED_BYTES_PER_MS) as TimeMs)
}

/// `... | head` is no failure.
pub(super) fn is_closed_pipe(failure: &anyhow::Error) -> bool {
    failure.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
