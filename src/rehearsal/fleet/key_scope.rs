//! Where a run may write, and what it has written there, so that all of it can be taken away again.
//!
//! A [`Locker`] that is bound to a territory refuses every key outside of it before anything is sent. What it is about to
//! write is noted first: whatever interrupts the run, nothing is in Redis that is not in the notes. Clearing compares
//! before it deletes, so that what somebody else put there stays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use redis::{ErrorKind, RedisError, RedisResult};
use tokio::time::{Instant, sleep};

use super::Locker;

/// For what is still on its way to Redis when clearing begins.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub struct Territory {
    prefix: String,
    made: Mutex<BTreeMap<String, Made>>,
}

/// What may be at a key because of us.
#[derive(Clone, Debug, Default)]
pub(super) struct Made {
    pub(super) values: BTreeSet<String>,
    /// Any number: a counter.
    pub(super) counter: bool,
}

/// What clearing found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleared {
    /// Keys that were written to at any time.
    pub made: usize,
    /// Keys that were still there and were deleted.
    pub deleted: usize,
    /// Keys that hold something that is not ours, or could not be deleted.
    pub left: Vec<String>,
}

impl Territory {
    /// The keys that begin with `prefix`, which must be long enough to belong to nobody else.
    pub fn new(prefix: &str) -> RedisResult<Self> {
        if prefix.len() < 8 || !prefix.ends_with(':') {
            return Err(refusal("a territory needs a prefix of its own that ends in a colon", prefix));
        }
        Ok(Self { prefix: prefix.to_owned(), made: Mutex::default() })
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    pub fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Somebody is about to write this value.
    pub fn note(&self, key: &str, value: &str) -> RedisResult<()> {
        self.change(key, |made| {
            made.values.insert(value.to_owned());
        })
    }

    pub fn note_counter(&self, key: &str) -> RedisResult<()> {
        self.change(key, |made| made.counter = true)
    }

    /// Deletes what is left of what was made. Asks again for a while: a last command may still be on its way.
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
            // Two looks at least, and the last one must have found nothing of ours.
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

    fn change(&self, key: &str, change: impl FnOnce(&mut Made)) -> RedisResult<()> {
        self.check(key)?;
        change(self.lock().entry(key.to_owned()).or_default());
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Made>> {
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
        let territory = Territory::new("drill:abc:").unwrap();
        assert!(territory.note("drill:abc:x", "1").is_ok());
        for foreign in ["", "x", "drill:abc", "drill:abc:", "drill:abd:x", "drill:", "cordum:wf:run:lock:1"] {
            assert!(territory.note(foreign, "1").is_err(), "{foreign}");
            assert!(territory.note_counter(foreign).is_err(), "{foreign}");
        }
        assert_eq!(territory.lock().len(), 1);
        for short in ["", ":", "a:", "drill", "drill:abc"] {
            assert!(Territory::new(short).is_err(), "{short}");
        }
    }
}
