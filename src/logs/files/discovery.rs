//! Lists the log files that match the configured patterns, and their rotated siblings. The tailer
//! calls it every 0.4 to 5 seconds.
//!
//! A rotated sibling has the name of the original file plus a number, a date or `.gz` (`app.log.1`,
//! `app.log-20260625.gz`). Siblings are listed even if the pattern does not match them, because a
//! file that was rotated while the exporter was down must still be read. Files and directories that
//! cannot be examined are returned as problems.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::SystemTime;

use regex::Regex;

use crate::config::{LogKind, LogSource};
use crate::model::position::Inode;

/// The suffix that rotation adds to a file name.
static ROTATION_SUFFIX: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r"(?:[._-](?:[0-9][0-9._T:-]*|old|bak)(?:\.gz)?|\.gz)$";
    Regex::new(pattern).expect("the pattern is a constant that the tests compile")
});

/// Suffixes of compressed formats that the exporter cannot read. Such files are ignored, even if a
/// wide pattern matches them.
const UNREADABLE_SUFFIXES: [&str; 6] = [".zst", ".xz", ".bz2", ".lz4", ".zip", ".Z"];

/// A file that exists now.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// Index of the configured source.
    pub(super) source: usize,
    pub(super) path: PathBuf,
    /// The path that the program writes to: `path` itself, or the path that the file had before its
    /// rotation.
    pub(super) base: PathBuf,
    pub(super) inode: Inode,
    pub(super) size: u64,
    pub(super) modified: SystemTime,
    /// The file was rotated. No program starts a new line in it.
    pub(super) rotated: bool,
}

impl Found {
    pub(super) fn is_gzip(&self) -> bool {
        self.path.as_os_str().as_encoded_bytes().ends_with(b".gz")
    }
}

/// A path that cannot be examined: index of the source, path, and error.
pub(super) type ListingError = (usize, String, std::io::Error);

#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Sorted by base, and oldest first within a base, so that a rotated file is read before the
    /// file that follows it.
    pub(super) files: Vec<Found>,
    pub(super) problems: Vec<ListingError>,
}

/// Lists the files of all sources. `known_bases` contains the bases of files that were found
/// before, with their source. Their siblings are found even if no file has the base name itself.
pub(super) fn list(sources: &[LogSource], known_bases: &BTreeMap<PathBuf, usize>) -> Listing {
    let mut listing = Listing::default();
    let mut bases = known_bases.clone();
    let mut matched: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for (source, log) in sources.iter().enumerate().filter(|(_, log)| log.kind == LogKind::Files) {
        for path in expand(&log.name, source, &mut listing.problems) {
            matched.entry(path).or_insert(source);
        }
    }
    for (path, source) in &matched {
        let base = base_of(path).filter(|base| matched.contains_key(base) || bases.contains_key(base));
        bases.entry(base.unwrap_or_else(|| path.clone())).or_insert(*source);
    }
    let mut paths = matched.clone();
    let directories: BTreeSet<&Path> = bases.keys().filter_map(|base| base.parent()).collect();
    for directory in directories {
        // The glob reports a missing directory. Here it only means that there are no siblings.
        let Ok(entries) = fs::read_dir(directory) else { continue };
        for path in entries.flatten().map(|entry| entry.path()) {
            let source = base_of(&path).and_then(|base| bases.get(&base).copied());
            if let Some(source) = source {
                paths.entry(path).or_insert(source);
            }
        }
    }
    let mut seen = BTreeSet::new();
    for (path, source) in &paths {
        if is_unreadable(path) || has_plain_twin(path) {
            continue;
        }
        let metadata = match fs::metadata(path) {
            Ok(metadata) if metadata.is_file() => metadata,
            Ok(_) => continue,
            // The file was rotated or deleted after it was listed.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => {
                listing.problems.push((*source, path.display().to_string(), error));
                continue;
            }
        };
        let inode = Inode { device: metadata.dev(), number: metadata.ino() };
        if !seen.insert(inode) {
            continue;
        }
        let base = base_of(path).filter(|base| bases.contains_key(base)).unwrap_or_else(|| path.clone());
        let rotated = base != *path && (!matched.contains_key(path) || matched.contains_key(&base));
        let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        listing.files.push(Found {
            source: *source,
            path: path.clone(),
            base,
            inode,
            size: metadata.len(),
            modified,
            rotated,
        });
    }
    listing.files.sort_by(|a, b| {
        let key = |found: &Found| (found.base.clone(), found.base == found.path, found.modified);
        // If the modification times are equal, the higher number is the older file.
        key(a).cmp(&key(b)).then_with(|| rotation_number(b).cmp(&rotation_number(a)))
    });
    listing
}

/// Returns the paths that a pattern matches, with symlinked files resolved. A pattern without
/// wildcards matches at most one file.
fn expand(pattern: &str, source: usize, problems: &mut Vec<ListingError>) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for path in matches(pattern, source, problems) {
        if !path.is_symlink() {
            paths.push(path);
            continue;
        }
        // The siblings of a symlinked file (as in Kubernetes' /var/log/containers) are next to its
        // target, not next to the link.
        match fs::canonicalize(&path) {
            Ok(target) => paths.push(target),
            // The target was rotated away or does not exist yet.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => problems.push((source, path.display().to_string(), error)),
        }
    }
    paths
}

fn matches(pattern: &str, source: usize, problems: &mut Vec<ListingError>) -> Vec<PathBuf> {
    let (directories, below) = split_recursive(pattern);
    let mut paths = Vec::new();
    // The configuration check guarantees a valid pattern.
    let Ok(entries) = glob::glob(directories) else { return paths };
    for entry in entries {
        match (entry, below) {
            (Ok(path), None) => paths.push(path),
            (Ok(directory), Some(below)) => walk(&directory, below, source, &mut paths, problems),
            (Err(error), _) => problems.push((source, error.path().display().to_string(), error.into())),
        }
    }
    paths
}

/// Splits a pattern before its first `**`.
fn split_recursive(pattern: &str) -> (&str, Option<&str>) {
    if pattern.starts_with("**") {
        return (".", Some(pattern));
    }
    match pattern.find("/**") {
        Some(slash) => (&pattern[..=slash], Some(&pattern[slash + 1..])),
        None => (pattern, None),
    }
}

/// Adds the paths that `below` matches in `root` and its subdirectories. Symlinked directories are
/// not entered, because a link can lead back up.
fn walk(root: &Path, below: &str, source: usize, paths: &mut Vec<PathBuf>, problems: &mut Vec<ListingError>) {
    let Ok(pattern) = glob::Pattern::new(below) else { return };
    let options = glob::MatchOptions { require_literal_separator: true, ..glob::MatchOptions::new() };
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            // The directory was removed after it was listed.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => {
                problems.push((source, directory.display().to_string(), error));
                continue;
            }
        };
        for entry in entries.flatten() {
            let path = entry.path();
            if path.strip_prefix(root).is_ok_and(|below| pattern.matches_path_with(below, options)) {
                paths.push(path.clone());
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                directories.push(path);
            }
        }
    }
}

/// Returns `app.log` for `app.log.2.gz`, and `None` for a name without a rotation suffix.
pub(super) fn base_of(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let suffix = ROTATION_SUFFIX.find(name).filter(|suffix| suffix.start() > 0)?;
    Some(path.with_file_name(&name[..suffix.start()]))
}

/// The number at the end of a rotated name, or 0 if there is none.
fn rotation_number(found: &Found) -> u64 {
    let name = found.path.to_string_lossy();
    let digits = name.trim_end_matches(".gz").rsplit(['.', '-', '_']).next().unwrap_or_default();
    digits.parse().unwrap_or_default()
}

fn is_unreadable(path: &Path) -> bool {
    let name = path.to_string_lossy();
    UNREADABLE_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
}

/// gzip writes `x.gz` next to `x` and removes `x` when it is done. Until then, the `.gz` is
/// incomplete.
fn has_plain_twin(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "gz") && path.with_extension("").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_find_files_and_do_not_enter_linked_directories() {
        let directory = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(directory.path()).unwrap();
        for name in ["a.log", "b.txt", "one/a.log", "one/two/a.log", "one/two/c.log", "other/a.log"] {
            fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            fs::write(root.join(name), "").unwrap();
        }
        std::os::unix::fs::symlink(&root, root.join("one/up")).unwrap();
        let check = |pattern: &str, expected: &[&str]| {
            let mut problems = Vec::new();
            let mut found = expand(&format!("{}/{pattern}", root.display()), 0, &mut problems);
            found.sort();
            let expected: Vec<PathBuf> = expected.iter().map(|name| root.join(name)).collect();
            assert_eq!((found, problems.len()), (expected, 0), "{pattern}");
        };
        check("a.log", &["a.log"]);
        check("*.log", &["a.log"]);
        check("*/a.log", &["one/a.log", "other/a.log"]);
        check("**/*.log", &["a.log", "one/a.log", "one/two/a.log", "one/two/c.log", "other/a.log"]);
        check("**/two/*.log", &["one/two/a.log", "one/two/c.log"]);
        check("o*/**/a.log", &["one/a.log", "one/two/a.log", "other/a.log"]);
        check("one/up/*.log", &["one/up/a.log"]);
        check("**/one/**/c.log", &["one/two/c.log"]);
        check("nowhere/**/*.log", &[]);
        check("a.log/**/*.log", &[]);
    }

    #[test]
    fn rotation_suffixes_are_recognised() {
        let check = |name: &str, base: Option<&str>| {
            assert_eq!(base_of(Path::new(name)), base.map(PathBuf::from), "{name}");
        };
        check("/l/app.log.1", Some("/l/app.log"));
        check("/l/app.log.12.gz", Some("/l/app.log"));
        check("/l/app.log-20260625", Some("/l/app.log"));
        check("/l/app.log-20260625-1782394624.gz", Some("/l/app.log"));
        check("/l/app.log.2026-06-25T13:37:04", Some("/l/app.log"));
        check("/l/0.log.20260625-133704.gz", Some("/l/0.log"));
        check("/l/app.log.gz", Some("/l/app.log"));
        check("/l/app.log.old", Some("/l/app.log"));
        check("/l/app.log", None);
        check("/l/app-worker.log", None);
        check("/l/1.log", None);
        check("/l/.1", None);
    }
}
