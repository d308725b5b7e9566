//! What Redis tells about locks: sightings of keys, and what became of the link they were seen over.
//!
//! Links (`keyspace`) produce [`LinkBatch`]es; the pipeline hands them to the ledger, which infers from what was
//! there before and what is there now what happened to a lock. All times here are those of [`crate::util::clock::steady`].

use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::num::NonZeroU64;

use siphasher::sip::SipHasher13;

use crate::model::label::{Label, label_enum};
use crate::util::clock::TimeMs;

/// One primary of the watched Redis, for as long as it is connected to or expected back. Numbers are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u16);

/// Stands for an owner's token, which is a capability: whoever knows it can release the lock. Only this hash, keyed with
/// a secret of the process, is ever kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwnerHash(NonZeroU64);

impl OwnerHash {
    /// What is shown to people: enough to tell owners apart.
    pub fn short(self) -> String {
        format!("{:08x}", self.0.get() >> 32)
    }
}

/// Makes [`OwnerHash`]es. The secret is random and lives as long as the process.
#[derive(Clone)]
pub struct OwnerHasher {
    secret: (u64, u64),
}

impl OwnerHasher {
    pub fn new() -> Self {
        // The one source of randomness in std: each `RandomState` has keys of its own.
        let random = || std::collections::hash_map::RandomState::new().hash_one(0);
        Self { secret: (random(), random()) }
    }

    pub fn hash(&self, token: &[u8]) -> OwnerHash {
        let mut hasher = SipHasher13::new_with_keys(self.secret.0, self.secret.1);
        hasher.write(token);
        OwnerHash(NonZeroU64::new(hasher.finish()).unwrap_or(NonZeroU64::MAX))
    }
}

impl Default for OwnerHasher {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for OwnerHasher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("OwnerHasher(secret)")
    }
}

/// What a read of a key showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sight {
    Absent,
    /// The key is there, and nobody holds the lock: somebody may wait for it.
    Vacant,
    Held(Held),
    /// The key's slot is served by another node by now: nothing is known about the lock until that node shows it.
    Elsewhere,
    /// The key is of a type that no lock has.
    NotALock,
    /// The user may not read the key, or the read failed: nothing is known.
    Unreadable,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// `None`: the value may not be read.
    pub owner: Option<OwnerHash>,
    /// What `PTTL` said. `None`: the key has no TTL.
    pub ttl_ms: Option<TimeMs>,
    /// The lock's fence counter, where the namespace has one and it could be read.
    pub fence: Option<u64>,
}

/// One read of one key, and the pushes about it since the read before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    pub key: Box<str>,
    /// When the read was sent (rounded down) and its reply received (rounded up): Redis answered in between.
    pub sent: TimeMs,
    pub received: TimeMs,
    /// What changed since the last read of the key did not change before this. `None`: it may have been any time since the
    /// last read (no tracking).
    pub since: Option<TimeMs>,
    /// ... nor after this: when the last push about the key came in, otherwise `received`.
    pub until: TimeMs,
    /// Pushes about the key between the last reply about it and this one. Each is one change or several.
    pub pushes: u16,
    /// The first of these pushes came so close behind the last reply that the reply may have shown its change already.
    pub first_push_may_be_old: bool,
    /// Pushes about the key were skipped (ceiling on reads): what happened in between is not known.
    pub missed: bool,
    pub sight: Sight,
}

label_enum! {
    /// How operations on the locks of a namespace are seen.
    OperationsSource {
        /// Every change.
        Watch = "watch",
        /// What differs between two passes: a lower bound.
        Scan = "scan",
        /// Not at all.
        None = "none",
    }
}

/// Whose data a link shows after it (re)connected, compared with the last time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Past {
    /// It was never connected before.
    None,
    /// The same process with the same replication id.
    SameServer,
    /// Another run or replication id: a restart or failover; locks may be lost without having been released or expired.
    OtherServer,
}

/// What a link has to tell, in the order in which it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkNews {
    /// Connected; with tracking armed if `watching`. A first pass follows. Changes since the link was last caught up were
    /// not seen.
    Up {
        at: TimeMs,
        watching: bool,
        past: Past,
    },
    /// The connection is lost; another attempt follows.
    Down {
        at: TimeMs,
    },
    /// The node is no longer a primary: nothing more comes from this link.
    Removed {
        at: TimeMs,
    },
    /// Everything that changed up to `at` has been told.
    CaughtUp {
        at: TimeMs,
    },
    /// All keys that existed from `started` to `at` have been shown since `started`.
    PassDone {
        started: TimeMs,
        at: TimeMs,
    },
    /// The whole keyspace was flushed.
    Flushed {
        at: TimeMs,
    },
    /// Some time before `at`, Redis deleted keys to make room, or all of them; it is not known which: no end that is told later and may have
    /// been before `at` is a release for sure.
    Evicted {
        at: TimeMs,
    },
    /// Pushes were lost, it is not known about which keys: as after a reconnect.
    Gap {
        at: TimeMs,
    },
    Seen(Sighting),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkBatch {
    pub link: LinkId,
    pub news: Vec<LinkNews>,
}
