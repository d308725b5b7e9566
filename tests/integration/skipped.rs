//! Reports skipped tests. A test that lacks a dependency writes one line, and the summary of `make
//! test` shows it.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::thread;

/// Records a skipped test. Call it and return from the test. `SKIPPED_TESTS` names the file that
/// scripts/test.sh reads.
pub(crate) fn skip(reason: &str) {
    let line = format!("{}: {reason}\n", thread::current().name().unwrap_or("a test"));
    eprint!("skipped: {line}");
    if let Some(path) = std::env::var_os("SKIPPED_TESTS") {
        let mut file = File::options().create(true).append(true).open(path).unwrap();
        file.write_all(line.as_bytes()).unwrap();
    }
}

/// Returns the directory for build output of cargo and the scripts.
pub(crate) fn target_directory() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().to_owned()
}
