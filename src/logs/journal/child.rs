//! journalctl as a child process: how it is called, and its lines.
//!
//! It ends when it is dropped. Should this process be killed, the child's pipe breaks, and journalctl ends by itself: it
//! watches its output while it follows.

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
/// For a question with one answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Of what journalctl says about problems.
const MAX_SAID: usize = 400;

/// What to begin with.
pub(super) enum From<'a> {
    Beginning,
    /// Itself included, so that it can be seen whether it is still there.
    Cursor(&'a str),
}

/// journalctl at work.
pub(super) struct JournalProcess {
    child: Child,
    output: BufReader<ChildStdout>,
    /// The beginning of a line whose end has not come.
    line: Vec<u8>,
    is_too_long: bool,
    max_bytes: usize,
}

/// What came next.
pub(super) enum JournalRead {
    Line(Vec<u8>),
    /// A line that was longer than allowed.
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

    /// What it says about problems, to be read by somebody else.
    pub(super) fn said(&mut self) -> Option<impl AsyncRead + Unpin + Send + use<>> {
        self.child.stderr.take()
    }

    /// Whether no more output is at hand.
    pub(super) fn is_read(&self) -> bool {
        self.output.buffer().is_empty()
    }

    /// Can be dropped at any moment and called again.
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

    /// Ends it, and waits until it has ended.
    pub(super) async fn end(mut self) {
        let _ = self.child.kill().await;
    }

    /// After the end of its output: how it ended.
    pub(super) async fn ended(mut self) -> String {
        match self.child.wait().await {
            Ok(status) => format!("{PROGRAM} ended with {status}"),
            Err(error) => format!("cannot tell how {PROGRAM} ended: {error}"),
        }
    }
}

/// The last entry, of all or of those that fit, without its message: that may be of any size.
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

/// The first of it, as one line.
pub(super) fn said(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_SAID)]);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Reads to the end and keeps the beginning. `told` hears what there is so far, each time there is more.
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
    // All: long fields are null otherwise. Merge: nothing but this makes `--follow` show entries of earlier boots.
    command.args(["--output=json", "--all", "--merge", "--no-pager"]);
    match &journal.directory {
        Some(directory) => {
            command.arg(format!("--directory={}", directory.display()));
        }
        // Without this, merging brings in the journals of containers and other machines.
        None => {
            let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
            let machine = Some(machine.trim()).filter(|machine| !machine.is_empty());
            command.args(machine.map(|machine| format!("_MACHINE_ID={machine}")));
        }
    }
    // Nothing else of our environment: the password for Redis may be in it.
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
