//! Runs journalctl as a child process and reads its output line by line. Used by the journal source
//! only.
//!
//! Dropping [`JournalProcess`] kills the child. If the exporter itself is killed, the pipe breaks
//! and journalctl ends by itself, because it watches its output while it follows. Errors are
//! sentences for people.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use memchr::memchr;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use super::entry::{self, JournalEntry};
use crate::config::JournalConfig;

const PROGRAM: &str = "journalctl";
/// Timeout for a journalctl call that ends by itself.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes kept of journalctl's error output.
const MAX_SAID: usize = 400;

/// Where to start reading.
pub(super) enum From<'a> {
    Beginning,
    /// Starts at the entry with this cursor, so that the caller can see whether the entry still
    /// exists.
    Cursor(&'a str),
}

/// A running journalctl.
pub(super) struct JournalProcess {
    child: Child,
    output: BufReader<ChildStdout>,
    /// The part of the current line that was read so far.
    line: Vec<u8>,
    is_too_long: bool,
    max_bytes: usize,
}

/// Result of one read.
pub(super) enum JournalRead {
    Line(Vec<u8>),
    /// A line was longer than `max_bytes` and was skipped.
    TooLong,
    End,
}

impl JournalProcess {
    pub(super) fn start(journal: &JournalConfig, from: &From<'_>, max_bytes: usize) -> Result<Self, String> {
        let mut command = command(journal);
        command.args(["--follow", "--no-tail"]);
        if let From::Cursor(cursor) = from {
            command.arg(format!("--cursor={cursor}"));
        }
        let mut child = command.args(&*journal.matches).spawn().map_err(|error| cannot_start(&error))?;
        let output = child.stdout.take().ok_or_else(|| format!("{PROGRAM} has no output"))?;
        Ok(Self { child, output: BufReader::new(output), line: Vec::new(), is_too_long: false, max_bytes })
    }

    /// Takes the error output. The caller reads it with [`listen`].
    pub(super) fn said(&mut self) -> Option<impl AsyncRead + Unpin + Send + use<>> {
        self.child.stderr.take()
    }

    /// Whether no more output is buffered.
    pub(super) fn is_read(&self) -> bool {
        self.output.buffer().is_empty()
    }

    /// Reads the next line. Cancel-safe: dropping the future loses no data.
    pub(super) async fn next(&mut self) -> io::Result<JournalRead> {
        loop {
            let bytes = self.output.fill_buf().await?;
            if bytes.is_empty() {
                return Ok(JournalRead::End);
            }
            let end = memchr(b'\n', bytes);
            let text = &bytes[..end.unwrap_or(bytes.len())];
            if self.line.len() + text.len() > self.max_bytes {
                self.is_too_long = true;
                self.line = Vec::new();
            } else if !self.is_too_long {
                self.line.extend_from_slice(text);
            }
            let consumed = end.map_or(bytes.len(), |end| end + 1);
            self.output.consume(consumed);
            if end.is_some() {
                let line = std::mem::take(&mut self.line);
                return Ok(if std::mem::take(&mut self.is_too_long) {
                    JournalRead::TooLong
                } else {
                    JournalRead::Line(line)
                });
            }
        }
    }

    /// Kills journalctl and waits until it has ended.
    pub(super) async fn end(mut self) {
        let _ = self.child.kill().await;
    }

    /// Describes how journalctl ended. Call it after the end of its output.
    pub(super) async fn ended(mut self) -> String {
        match self.child.wait().await {
            Ok(status) => format!("{PROGRAM} ended with {status}"),
            Err(error) => format!("cannot tell how {PROGRAM} ended: {error}"),
        }
    }
}

/// Returns the last entry that fits `matches`, or the last entry of the journal if `matches` is
/// empty. The message is not read, because it may be of any size.
pub(super) async fn last(journal: &JournalConfig, matches: &[String]) -> Result<Option<JournalEntry>, String> {
    let mut command = command(journal);
    let output = command.args(["--lines=1", "--output-fields=_PID"]).args(matches).output();
    let output = match timeout(PATIENCE, output).await {
        Ok(output) => output.map_err(|error| cannot_start(&error))?,
        Err(_) => return Err(format!("{PROGRAM} does not answer")),
    };
    if !output.status.success() {
        let said = said(&output.stderr);
        return Err(format!("{PROGRAM} ended with {}: {said}", output.status));
    }
    Ok(output.stdout.split(|byte| *byte == b'\n').find_map(entry::parse))
}

/// The first `MAX_SAID` bytes of an error output, as one line.
pub(super) fn said(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_SAID)]);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Reads the error output to its end and keeps its beginning. Calls `told` with the text so far
/// whenever the kept text grows.
pub(super) async fn listen(mut output: impl AsyncRead + Unpin, mut told: impl FnMut(String)) {
    let mut heard = Vec::new();
    let mut buffer = [0; 512];
    while let Ok(length @ 1..) = output.read(&mut buffer).await {
        let room = MAX_SAID.saturating_sub(heard.len());
        if room > 0 {
            heard.extend_from_slice(&buffer[..length.min(room)]);
            told(said(&heard));
        }
    }
}

fn command(journal: &JournalConfig) -> Command {
    let mut command = Command::new(PROGRAM);
    // `--all`: without it, long fields are null. `--merge`: only this makes `--follow` show entries
    // of earlier boots.
    command.args(["--output=json", "--all", "--merge", "--no-pager"]);
    match &journal.directory {
        Some(directory) => {
            command.arg(format!("--directory={}", directory.display()));
        }
        // Without this match, `--merge` adds the journals of containers and other machines.
        None => {
            let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
            let machine = Some(machine.trim()).filter(|machine| !machine.is_empty());
            command.args(machine.map(|machine| format!("_MACHINE_ID={machine}")));
        }
    }
    // The child gets nothing else of our environment, because it may contain the Redis password.
    command.env_clear().env("LC_ALL", "C.UTF-8").envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.kill_on_drop(true);
    command
}

fn cannot_start(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            format!(
                "{PROGRAM} is not installed: install systemd's journalctl where PATH finds it, or remove this log source"
            )
        }
        _ => format!("cannot run {PROGRAM}: {error}"),
    }
}
