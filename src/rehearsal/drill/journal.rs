//! The log of the workers: one JSON line for each failure or finished work, in the file that the
//! exporter follows.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;

use anyhow::Context as _;
use serde_json::json;

use crate::util::clock;

#[derive(Debug)]
pub(super) struct WorkerLog {
    file: Mutex<File>,
}

impl WorkerLog {
    /// Opens the file for appending.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.with_context(|| format!("cannot write the workers' log {}", path.display()))?;
        Ok(Self { file: Mutex::new(file) })
    }

    /// Writes one line. `more` contains further fields: `error` if something failed, `state` if
    /// work was finished.
    pub(super) fn log(&self, message: &str, worker: &str, key: &str, more: &[(&str, &str)]) -> anyhow::Result<()> {
        let mut line = json!({
            "time": clock::format(clock::now()),
            "level": "WARN",
            "msg": message,
            "component": "drill",
            "worker": worker,
            "key": key,
        });
        for (name, value) in more {
            line[*name] = json!(value);
        }
        // One write per line, so that a reader never sees the lines of two workers mixed.
        let mut file = self.file.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        file.write_all(format!("{line}\n").as_bytes()).context("cannot write the workers' log")
    }
}
