//! The memory file: incidents, the last hour and since when locks have been held, for the next
//! start.
//!
//! `run` opens it beside the state file, and the pipeline saves it. It contains ids of locks and
//! hashes of owners, so it is encrypted with a key that only the user of the exporter can read. The
//! key also hashes owners, so that an owner is recognized after a restart. Counters do not depend
//! on this file: if it cannot be used, the exporter starts without memory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::error::Unspecified;
use ring::rand::{SecureRandom, SystemRandom};

use crate::ledger::Memory;
use crate::model::sighting::OwnerHasher;

const KEY_FILE: &str = "key";
const FILE: &str = "memory";
const TEMPORARY: &str = "memory.tmp";
/// The first bytes of the file, in clear.
const FORMAT: &[u8] = b"redis_lock_exporter memory 1\n";
/// No memory that this program writes is this large.
const MAX_BYTES: u64 = 16 << 20;
const SEALING_KEY_BYTES: usize = 32;
/// The key that encrypts, then the key that hashes.
const KEY_BYTES: usize = SEALING_KEY_BYTES + 16;
/// Nobody but the user of the exporter.
const PRIVATE: u32 = 0o600;

pub struct MemoryFile {
    directory: PathBuf,
    key: LessSafeKey,
    hasher: OwnerHasher,
}

impl MemoryFile {
    /// Reads the key, or creates one. The state directory must be locked.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let path = directory.join(KEY_FILE);
        let key = match read(&path, KEY_BYTES as u64) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => create_key(&path)?,
            read => read?,
        };
        let Some((sealing, hashing)) = key.split_at_checked(SEALING_KEY_BYTES).filter(|_| key.len() == KEY_BYTES)
        else {
            return Err(io::Error::other(format!("{} is not a key of this program", path.display())));
        };
        let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        Ok(Self {
            directory: directory.to_owned(),
            key: LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, sealing).map_err(failed)?),
            hasher: OwnerHasher::with_secret((number(&hashing[..8]), number(&hashing[8..]))),
        })
    }

    pub fn hasher(&self) -> OwnerHasher {
        self.hasher.clone()
    }

    /// Returns `None` if there is no usable file.
    pub fn load(&self) -> Option<Memory> {
        let path = self.directory.join(FILE);
        match read(&path, MAX_BYTES).and_then(|bytes| self.unseal(bytes)) {
            Ok(memory) => Some(memory),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::warn!(
                    path = %path.display(), %error,
                    "the memory of the last hour cannot be used; counters are not affected"
                );
                None
            }
        }
    }

    /// Replaces the file and returns its size.
    pub fn save(&self, memory: &Memory) -> io::Result<usize> {
        let sealed = self.seal(memory)?;
        let temporary = self.directory.join(TEMPORARY);
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(PRIVATE).open(&temporary)?;
        file.write_all(&sealed)?;
        // Not synced: after a crash of the machine, an incomplete file is recognized and ignored.
        fs::rename(&temporary, self.directory.join(FILE))?;
        Ok(sealed.len())
    }

    fn seal(&self, memory: &Memory) -> io::Result<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(failed)?;
        let mut body = serde_json::to_vec(memory)?;
        self.key
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(FORMAT), &mut body)
            .map_err(failed)?;
        Ok([FORMAT, &nonce, &body].concat())
    }

    fn unseal(&self, bytes: Vec<u8>) -> io::Result<Memory> {
        let damaged = || io::Error::other("it is damaged, or it belongs to another key");
        let sealed = bytes.strip_prefix(FORMAT).ok_or_else(|| io::Error::other("it has another format"))?;
        let (nonce, body) = sealed.split_first_chunk::<NONCE_LEN>().ok_or_else(damaged)?;
        let mut body = body.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let text = self.key.open_in_place(nonce, Aad::from(FORMAT), &mut body).map_err(|_| damaged())?;
        Ok(serde_json::from_slice(text)?)
    }
}

/// Reads at most one byte more than `limit`.
fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn create_key(path: &Path) -> io::Result<Vec<u8>> {
    let mut key = vec![0; KEY_BYTES];
    SystemRandom::new().fill(&mut key).map_err(failed)?;
    let mut file = OpenOptions::new().create_new(true).write(true).mode(PRIVATE).open(path)?;
    file.write_all(&key)?;
    file.sync_all()?;
    Ok(key)
}

fn failed(_: Unspecified) -> io::Error {
    io::Error::other("cryptography failed")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::ledger::{Ledger, Saved};
    use crate::model::failure::{Failure, Reason};
    use crate::model::log_event::{LogEvent, RuleId, Statement};
    use crate::model::namespace::{Namespace, NamespaceId};

    const ID: &str = "a-secret-run-id";

    fn memory(file: &MemoryFile) -> Memory {
        let namespaces = vec![Arc::new(Namespace::other())];
        let mut ledger = Ledger::new(namespaces, Duration::from_secs(2), Saved::default());
        let event = LogEvent {
            offset: 0,
            end: 0,
            time: None,
            waited: Duration::ZERO,
            namespace: NamespaceId(0),
            lock: Some(ID.to_owned()),
            statement: Statement::Failure(Failure::ReleaseFailed(Reason::NotOwned)),
            joins: None,
            rule: RuleId(0),
        };
        ledger.apply(1000, 1000, &event);
        ledger.memory(&file.hasher(), 1000, 1000)
    }

    #[test]
    fn it_is_private_and_readable_only_with_its_key() {
        let directory = tempfile::tempdir().unwrap();
        let file = MemoryFile::open(directory.path()).unwrap();
        assert_eq!(file.load(), None);
        let memory = memory(&file);
        assert!(serde_json::to_string(&memory).unwrap().contains(ID));
        file.save(&memory).unwrap();
        for name in [KEY_FILE, FILE] {
            let path = directory.path().join(name);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, PRIVATE, "{name}");
            let bytes = fs::read(path).unwrap();
            assert!(!bytes.windows(ID.len()).any(|part| part == ID.as_bytes()), "{name}");
        }
        let again = MemoryFile::open(directory.path()).unwrap();
        assert_eq!(again.load(), Some(memory));
        assert_eq!(again.hasher().hash(b"token"), file.hasher().hash(b"token"));
        fs::remove_file(directory.path().join(KEY_FILE)).unwrap();
        assert_eq!(MemoryFile::open(directory.path()).unwrap().load(), None, "another key");
    }

    #[test]
    fn every_damage_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let file = MemoryFile::open(directory.path()).unwrap();
        let sealed = file.seal(&memory(&file)).unwrap();
        assert!(file.unseal(sealed.clone()).is_ok());
        for length in 0..sealed.len() {
            assert!(file.unseal(sealed[..length].to_vec()).is_err(), "cut at {length}");
        }
        for index in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[index] ^= 1;
            assert!(file.unseal(changed).is_err(), "bit flipped at {index}");
        }
    }

    #[test]
    fn a_foreign_key_is_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(KEY_FILE), b"mine").unwrap();
        assert!(MemoryFile::open(directory.path()).is_err());
        assert_eq!(fs::read(directory.path().join(KEY_FILE)).unwrap(), b"mine");
    }
}
