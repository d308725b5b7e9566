//! Limits where a run may write, and remembers what it wrote, so that all of it can be deleted
//! again.
//!
//! A [`Locker`] with a key scope refuses every key outside of it before it sends anything. The
//! key scope notes each value before the locker writes it, so that after any interruption Redis
//! contains nothing that is not in the notes. `clear` compares before it deletes, so that values of
//! other programs stay.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use redis::{ErrorKind, RedisError, RedisResult};
use tokio::time::{Instant, sleep};

use super::Locker;

/// How long to repeat the clearing, because commands may still be in transit to Redis.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub struct KeyScope {
    prefix: String,
    made: Mutex<BTreeMap<String, WrittenKey>>,
}

/// What this run may have written to a key.
#[derive(Clone, Debug, Default)]
pub(super) struct WrittenKey {
    pub(super) values: BTreeSet<String>,
    /// The key is a counter, so any number is ours.
    pub(super) counter: bool,
}

/// The result of clearing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleared {
    /// Keys that were written at any time.
    pub made: usize,
    /// Keys that still existed and were deleted.
    pub deleted: usize,
    /// Keys that contain another program's value, or that could not be deleted.
    pub left: Vec<String>,
}

impl KeyScope {
    /// The keys that begin with `prefix`. It must be long enough to belong to no other program.
    pub fn new(prefix: &str) -> RedisResult<Self> {
        if prefix.len() < 8 || !prefix.ends_with(':') {
            return Err(refusal("a key scope needs a prefix of its own that ends in a colon", prefix));
        }
        Ok(Self { prefix: prefix.to_owned(), made: Mutex::default() })
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    pub fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Notes a value that is about to be written.
    pub fn note(&self, key: &str, value: &str) -> RedisResult<()> {
        self.change(key, |made| {
            made.values.insert(value.to_owned());
        })
    }

    pub fn note_counter(&self, key: &str) -> RedisResult<()> {
        self.change(key, |made| made.counter = true)
    }

    /// Deletes what is left of what the run wrote. Repeats for a while, because a last command may
    /// still be in transit to Redis.
    pub async fn clear(&self, locker: &mut Locker) -> RedisResult<Cleared> {
        let made = self.lock().clone();
        let mut cleared = Cleared { made: made.len(), ..Cleared::default() };
        let deadline = Instant::now() + PATIENCE;
        for round in 0.. {
            cleared.left.clear();
            let before = cleared.deleted;
            for (key, made) in &made {
                match locker.clear(key, made).await? {
                    0 => {}
                    1 => cleared.deleted += 1,
                    _ => cleared.left.push(key.clone()),
                }
            }
            // Make at least two passes, and end only after a pass that deleted nothing.
            if round > 0 && cleared.deleted == before || Instant::now() > deadline {
                break;
            }
            sleep(PAUSE).await;
        }
        Ok(cleared)
    }

    pub(super) fn check(&self, key: &str) -> RedisResult<()> {
        match key.strip_prefix(&self.prefix) {
            Some(name) if !name.is_empty() => Ok(()),
            _ => Err(refusal("this key is outside of what may be written to", key)),
        }
    }

    fn change(&self, key: &str, change: impl FnOnce(&mut WrittenKey)) -> RedisResult<()> {
        self.check(key)?;
        change(self.lock().entry(key.to_owned()).or_default());
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, WrittenKey>> {
        self.made.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn refusal(why: &'static str, key: &str) -> RedisError {
    (ErrorKind::Client, why, format!("{key:?}")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_below_the_prefix() {
        let key_scope = KeyScope::new("drill:abc:").unwrap();
        assert!(key_scope.note("drill:abc:x", "1").is_ok());
        for foreign in ["", "x", "drill:abc", "drill:abc:", "drill:abd:x", "drill:", "cordum:wf:run:lock:1"] {
            assert!(key_scope.note(foreign, "1").is_err(), "{foreign}");
            assert!(key_scope.note_counter(foreign).is_err(), "{foreign}");
        }
        assert_eq!(key_scope.lock().len(), 1);
        for short in ["", ":", "a:", "drill", "drill:abc"] {
            assert!(KeyScope::new(short).is_err(), "{short}");
        }
    }
}
