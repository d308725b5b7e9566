//! What the workers log: one JSON line for each thing that went wrong, in the file that the exporter follows.

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
    /// Lines are added at the end of the file.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.with_context(|| format!("cannot write the workers' log {}", path.display()))?;
        Ok(Self { file: Mutex::new(file) })
    }

    /// With an error text where something failed, and a state where work was finished.
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
        // One write, so that a reader never sees half a line of two workers.
        let mut file = self.file.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        file.write_all(format!("{line}\n").as_bytes()).context("cannot write the workers' log")
    }
}
