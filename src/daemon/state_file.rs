//! The state file: log positions and the counters that belong to them, replaced by one atomic
//! rename.
//!
//! Both describe the same moment after a crash, so every line counts exactly once. `run` opens the
//! directory and loads the file; the pipeline saves it. A file that cannot be used (damaged,
//! foreign or from a newer version) is renamed to `state.json.unusable-<time>` and never
//! overwritten. The directory is locked, because two processes would overwrite each other's state.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::hash::Hasher;
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;

use crate::ledger;
use crate::model::position::{Cursor, FileId, JournalPosition, SourceTotals};
use crate::model::pushed_lines::CountedPushes;
use crate::util::clock::TimeMs;

const FILE: &str = "state.json";
const TEMPORARY: &str = "state.json.tmp";
const LOCK: &str = "lock";
const FORMAT: &str = "redis_lock_exporter state";
const VERSION: u32 = 1;
/// No state that this program writes is this large. A larger file is treated as foreign.
const MAX_BYTES: u64 = 64 << 20;

/// Everything that survives a restart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SavedState {
    pub ledger: ledger::Saved,
    /// Keyed by source name, which is the path pattern for files. A source in this map has been
    /// followed before.
    pub sources: BTreeMap<String, SourceTotals>,
    pub cursors: BTreeMap<FileId, Cursor>,
    pub next_file_id: u64,
    /// Keyed by source name. Omitted while empty, so that an older version can still read the file.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub journals: BTreeMap<String, JournalPosition>,
    #[serde(skip_serializing_if = "CountedPushes::is_empty")]
    pub pushed: CountedPushes,
    pub saves: u64,
    pub saved_at: Option<TimeMs>,
    pub save_errors: u64,
    pub set_aside: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("cannot use state directory {path:?}")]
    Directory { path: PathBuf, source: io::Error },
    #[error("state directory {path:?} is in use by another process; give each process a directory of its own")]
    InUse { path: PathBuf },
    #[error("cannot read state file {path:?}")]
    Read { path: PathBuf, source: io::Error },
}

/// Why a state file cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    #[error("it is not a state file of this program")]
    Foreign,
    #[error("it was written by a newer version (format {found}, this one knows {VERSION})")]
    Newer { found: u32 },
    #[error("it is damaged: {detail}")]
    Damaged { detail: String },
}

/// The first line of the file.
#[derive(Serialize, Deserialize)]
struct Header {
    format: String,
    version: u32,
    checksum: String,
}

/// A locked state directory.
pub struct StateDirectory {
    path: PathBuf,
    /// Keeps the directory locked until the process ends.
    _lock: File,
}

impl StateDirectory {
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let fail = |source| StateError::Directory { path: path.to_owned(), source };
        // Only the user of the exporter may look into a new directory.
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(fail)?;
        let lock = File::options().create(true).truncate(false).write(true).open(path.join(LOCK)).map_err(fail)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(StateError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => Err(fail(source)),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the saved state. Returns an empty state if there is no file, or if the file was
    /// unusable and has been renamed.
    pub fn load(&self, now: TimeMs) -> Result<SavedState, StateError> {
        let path = self.path.join(FILE);
        let fail = |source| StateError::Read { path: path.clone(), source };
        let mut bytes = Vec::new();
        match File::open(&path) {
            Ok(file) => file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(fail)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(SavedState::default()),
            Err(error) => return Err(fail(error)),
        };
        match decode(&bytes) {
            Ok(state) => Ok(state),
            Err(unusable) => {
                let aside = self.path.join(format!("{FILE}.unusable-{now}"));
                fs::rename(&path, &aside).map_err(fail)?;
                tracing::error!(
                    path = %path.display(), moved_to = %aside.display(), reason = %unusable,
                    "state file cannot be used and was set aside; counters start at 0 and logs at their configured start"
                );
                Ok(SavedState { set_aside: 1, ..SavedState::default() })
            }
        }
    }

    /// Replaces the state file. When this function returns, the state survives a crash of the
    /// machine.
    pub fn save(&self, encoded: &[u8]) -> io::Result<()> {
        let temporary = self.path.join(TEMPORARY);
        let mut file = File::create(&temporary)?;
        file.write_all(encoded)?;
        file.sync_all()?;
        fs::rename(&temporary, self.path.join(FILE))?;
        File::open(&self.path)?.sync_all()
    }
}

pub fn encode(state: &SavedState) -> Vec<u8> {
    // Serializing plain structs and maps with string or number keys into memory cannot fail.
    let body = serde_json::to_vec(state).unwrap_or_default();
    let header = Header { format: FORMAT.to_owned(), version: VERSION, checksum: checksum(&body) };
    let mut encoded = serde_json::to_vec(&header).unwrap_or_default();
    encoded.push(b'\n');
    encoded.extend_from_slice(&body);
    encoded
}

pub fn decode(bytes: &[u8]) -> Result<SavedState, Unusable> {
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Unusable::Foreign);
    }
    let end = memchr::memchr(b'\n', bytes).unwrap_or(bytes.len());
    let header: Header = match serde_json::from_slice(&bytes[..end]) {
        Ok(header) => header,
        Err(_) if bytes.is_empty() => return Err(damaged("it is empty")),
        Err(_) => return Err(Unusable::Foreign),
    };
    if header.format != FORMAT {
        return Err(Unusable::Foreign);
    }
    if header.version > VERSION {
        return Err(Unusable::Newer { found: header.version });
    }
    if header.version == 0 {
        return Err(damaged("format 0 never existed"));
    }
    let body = bytes.get(end + 1..).unwrap_or_default();
    if header.checksum != checksum(body) {
        return Err(damaged("the checksum does not match"));
    }
    serde_json::from_slice(body).map_err(|error| damaged(&error.to_string()))
}

fn damaged(detail: &str) -> Unusable {
    Unusable::Damaged { detail: detail.to_owned() }
}

fn checksum(body: &[u8]) -> String {
    let mut hasher = SipHasher13::new();
    hasher.write(body);
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_is_what_is_loaded() {
        let directory = tempfile::tempdir().unwrap();
        let state_directory = StateDirectory::open(directory.path()).unwrap();
        assert_eq!(state_directory.load(0).unwrap(), SavedState::default());
        let mut state = SavedState { next_file_id: 7, ..SavedState::default() };
        state.sources.insert("*.log".to_owned(), SourceTotals { bytes: 5, ..SourceTotals::default() });
        state_directory.save(&encode(&state)).unwrap();
        assert_eq!(state_directory.load(0).unwrap(), state);
    }

    /// A state file of format 1 in which every field is set. Other versions of the program read
    /// such files, so neither the names nor the order of the fields may change.
    const VERSION_1: &[u8] = include_bytes!("../../tests/fixtures/state/v1.json");

    #[test]
    fn a_file_of_format_1_is_written_as_it_was_read() {
        let state = decode(VERSION_1).unwrap();
        assert_eq!(String::from_utf8(encode(&state)).unwrap(), str::from_utf8(VERSION_1).unwrap());
    }

    /// If a field is 0 in the fixture, a version that drops this field still passes the other test.
    #[test]
    fn every_field_of_the_fixture_is_set() {
        fn assert_set(path: &str, value: &serde_json::Value) {
            use serde_json::Value;
            match value {
                Value::Null => panic!("{path} is null"),
                Value::Bool(value) => assert!(value, "{path} is false"),
                Value::Number(number) => assert!(number.as_f64() != Some(0.0), "{path} is 0"),
                Value::String(text) => assert!(!text.is_empty(), "{path} is empty"),
                Value::Array(values) => {
                    assert!(!values.is_empty(), "{path} is empty");
                    values.iter().enumerate().for_each(|(index, value)| assert_set(&format!("{path}[{index}]"), value));
                }
                Value::Object(fields) => {
                    assert!(!fields.is_empty(), "{path} is empty");
                    fields.iter().for_each(|(name, value)| assert_set(&format!("{path}.{name}"), value));
                }
            }
        }
        let body = VERSION_1.splitn(2, |byte| *byte == b'\n').nth(1).unwrap();
        let body: serde_json::Value = serde_json::from_slice(body).unwrap();
        assert_set("state", &body);
        // The program omits these fields while they are empty.
        for optional in ["/journals", "/pushed", "/sources/~1var~1log~1app~1*.log/duplicates"] {
            assert!(body.pointer(optional).is_some(), "{optional}");
        }
        for optional in ["gzip", "skipping", "finished", "gone_since"] {
            assert!(body.pointer("/cursors/3").unwrap().get(optional).is_some(), "{optional}");
        }
    }

    #[test]
    fn every_damage_is_noticed() {
        let encoded = encode(&SavedState { saves: 3, ..SavedState::default() });
        assert!(decode(&encoded).is_ok());
        for length in 0..encoded.len() {
            assert!(decode(&encoded[..length]).is_err(), "cut at {length}");
        }
        for index in 0..encoded.len() {
            let mut changed = encoded.clone();
            changed[index] ^= 1;
            assert!(decode(&changed).is_err(), "bit flipped at {index}");
        }
    }

    #[test]
    fn foreign_and_newer_files_are_told_apart() {
        assert_eq!(decode(b"{\"some\":\"json\"}"), Err(Unusable::Foreign));
        assert_eq!(decode(b"not json"), Err(Unusable::Foreign));
        let newer =
            String::from_utf8(encode(&SavedState::default())).unwrap().replace("\"version\":1", "\"version\":2");
        assert_eq!(decode(newer.as_bytes()), Err(Unusable::Newer { found: 2 }));
    }

    #[test]
    fn an_unusable_file_is_set_aside_and_counted() {
        let directory = tempfile::tempdir().unwrap();
        let state_directory = StateDirectory::open(directory.path()).unwrap();
        fs::write(directory.path().join(FILE), b"garbage").unwrap();
        assert_eq!(state_directory.load(42).unwrap().set_aside, 1);
        assert_eq!(fs::read(directory.path().join("state.json.unusable-42")).unwrap(), b"garbage");
    }

    #[test]
    fn a_directory_serves_one_process() {
        let directory = tempfile::tempdir().unwrap();
        let _first = StateDirectory::open(directory.path()).unwrap();
        assert!(matches!(StateDirectory::open(directory.path()), Err(StateError::InUse { .. })));
    }
}
