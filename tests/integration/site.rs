//! The environment of one daemon: a directory with logs, a configuration and saved state.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::daemon::{Daemon, text};

pub(crate) struct Site {
    directory: tempfile::TempDir,
}

impl Site {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("logs")).unwrap();
        Self { directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts a daemon that follows every `logs/*.log`.
    pub(crate) fn start(&self) -> Daemon {
        self.start_on(&["logs/*.log"])
    }

    /// Starts a daemon that follows these patterns, and waits until every file has a start
    /// position.
    pub(crate) fn start_on(&self, patterns: &[&str]) -> Daemon {
        let mut arguments =
            vec!["--preset".to_owned(), "cordum".to_owned(), "--state.dir".to_owned(), self.full_path("state")];
        for pattern in patterns {
            arguments.extend(["--logs.path".to_owned(), self.full_path(pattern)]);
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        ready(Daemon::start(&arguments))
    }

    /// Writes the configuration file. `SITE` is replaced by the directory of the site.
    pub(crate) fn configure(&self, yaml: &str) {
        let yaml = yaml.replace("SITE", text(self.directory.path()));
        fs::write(self.path("config.yaml"), yaml).unwrap();
    }

    pub(crate) fn start_configured(&self, flags: &[&str]) -> Daemon {
        let (config, state) = (self.full_path("config.yaml"), self.full_path("state"));
        let mut arguments = vec!["--config.file", &config, "--state.dir", &state];
        arguments.extend(flags);
        ready(Daemon::start(&arguments))
    }

    pub(crate) fn append(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let mut file = OpenOptions::new().create(true).append(true).open(self.path(name)).unwrap();
        file.write_all(bytes.as_ref()).unwrap();
    }

    pub(crate) fn rename(&self, from: &str, to: &str) {
        fs::rename(self.path(from), self.path(to)).unwrap();
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).unwrap();
    }

    /// Compresses a file as gzip(1) does: writes `name.gz`, then removes `name`.
    pub(crate) fn gzip(&self, name: &str) {
        let packed = fs::File::create(self.path(&format!("{name}.gz"))).unwrap();
        let mut encoder = GzEncoder::new(packed, Compression::fast());
        encoder.write_all(&fs::read(self.path(name)).unwrap()).unwrap();
        encoder.finish().unwrap();
        self.remove(name);
    }

    /// Rotates a file as logrotate does with `copytruncate`.
    pub(crate) fn copy_and_truncate(&self, name: &str, copy: &str) {
        fs::copy(self.path(name), self.path(copy)).unwrap();
        OpenOptions::new().write(true).truncate(true).open(self.path(name)).unwrap();
    }

    /// Returns the pattern as it appears in the label `source` and in the flag.
    pub(crate) fn full_path(&self, name: &str) -> String {
        text(&self.path(name)).to_owned()
    }

    /// Returns the series of a metric for one log source.
    pub(crate) fn series(&self, metric: &str, pattern: &str) -> String {
        format!("redis_lock_exporter_{metric}{{source=\"{}\"}}", self.full_path(pattern))
    }
}

fn ready(daemon: Daemon) -> Daemon {
    daemon.wait_ready();
    daemon
}

/// Returns `lines` log lines about refused releases in the namespace `workflow`, each of a
/// different lock.
pub(crate) fn lost(lines: usize) -> String {
    (0..lines).map(|_| lost_line() + "\n").collect()
}

/// Returns one such line without its newline.
pub(crate) fn lost_line() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let run = NEXT.fetch_add(1, Ordering::Relaxed);
    format!(
        r#"{{"time":"2026-06-25T13:37:04.123Z","level":"WARN","msg":"distributed run lock release failed","component":"workflow-engine","run_id":"run-{run}","error":"lock not owned"}}"#
    )
}
