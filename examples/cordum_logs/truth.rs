//! The failures that really happened, with the names of the exporter's metrics.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use redis_lock_exporter::rehearsal::fleet::Failures;
use serde::{Deserialize, Serialize};

#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Truth {
    pub(crate) bytes: u64,
    pub(crate) lines: u64,
    /// Lines about failed locks. Several lines can belong to one failure.
    pub(crate) event_lines: u64,
    /// How often each of those messages was printed. A counter without joining must find these
    /// numbers.
    pub(crate) messages: BTreeMap<String, u64>,
    #[serde(rename = "series")]
    pub(crate) failures: Failures,
}

impl Truth {
    pub(crate) fn add_message(&mut self, message: &str) {
        self.event_lines += 1;
        match self.messages.get_mut(message) {
            Some(count) => *count += 1,
            None => _ = self.messages.insert(message.to_owned(), 1),
        }
    }

    /// Writes a temporary file and renames it, so that a reader never sees a partial file. Writes
    /// directly to a device such as `/dev/null`, because a rename would replace the device with a
    /// file.
    pub(crate) fn save(&self, path: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        if path.exists() && !path.is_file() {
            return std::fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()));
        }
        let temporary = path.with_extension("tmp");
        std::fs::write(&temporary, text + "\n").with_context(|| format!("cannot write {}", temporary.display()))?;
        std::fs::rename(&temporary, path).with_context(|| format!("cannot write {}", path.display()))
    }

    pub(crate) fn load(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("cannot understand {}", path.display()))
    }
}
