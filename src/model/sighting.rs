//! What Redis shows about locks: sightings of keys, and the state of the link that read them.
//!
//! Links (`keyspace`) produce [`LinkBatch`]es. The pipeline passes them to the ledger, which
//! compares successive sightings to infer what happened to a lock. All times here come from
//! [`crate::util::clock::steady`].

use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;

use crate::model::label::{Label, label_enum};
use crate::model::namespace::NamespaceId;
use crate::util::clock::TimeMs;

/// Identifies one primary while it is connected or expected to return. Ids are not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u16);

/// Keyed hash of an owner's token. The token is a capability: whoever knows it can release the
/// lock. The exporter keeps only this hash, and the hash key is a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OwnerHash(NonZeroU64);

impl OwnerHash {
    /// Returns the form that is shown to people: 8 hex digits, enough to distinguish owners.
    pub fn short(self) -> String {
        format!("{:08x}", self.0.get() >> 32)
    }
}

/// Creates [`OwnerHash`]es. The secret is random. It lives as long as the process, or as long as the
/// state directory, so that an owner can be recognized after a restart.
#[derive(Clone)]
pub struct OwnerHasher {
    secret: (u64, u64),
}

impl OwnerHasher {
    pub fn new() -> Self {
        // `RandomState` is the only source of randomness in std. Each one has its own keys.
        let random = || std::collections::hash_map::RandomState::new().hash_one(0);
        Self { secret: (random(), random()) }
    }

    pub fn with_secret(secret: (u64, u64)) -> Self {
        Self { secret }
    }

    pub fn hash(&self, token: &[u8]) -> OwnerHash {
        OwnerHash(NonZeroU64::new(self.hash_bytes(token)).unwrap_or(NonZeroU64::MAX))
    }

    /// Hashes the key of a lock.
    pub fn hash_key(&self, key: &str) -> u64 {
        self.hash_bytes(key.as_bytes())
    }

    fn hash_bytes(&self, bytes: &[u8]) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.secret.0, self.secret.1);
        hasher.write(bytes);
        hasher.finish()
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

/// The result of reading a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyState {
    Absent,
    /// The key exists, but nobody holds the lock. Others may wait for it.
    Vacant,
    Held(Held),
    /// Another node now serves the slot of the key. The state of the lock is unknown until that
    /// node reports it.
    Elsewhere,
    /// The key has a type that no lock has.
    NotALock,
    /// The state of the lock is unknown: the Redis user is not allowed to read the key, or the read
    /// failed.
    Unreadable,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// `None` if the value cannot be read.
    pub owner: Option<OwnerHash>,
    /// The reply to `PTTL`. `None` if the key has no TTL.
    pub ttl_ms: Option<TimeMs>,
    /// The lock's fence counter, if its namespace has one and it was readable.
    pub fence: Option<u64>,
}

/// One read of one key, and the pushes about the key since the previous read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    pub key: Box<str>,
    /// When the read was sent (rounded down) and when its reply was received (rounded up). Redis
    /// answered between the two.
    pub sent: TimeMs,
    pub received: TimeMs,
    /// All changes since the previous read of the key happened at or after this time: when the last
    /// request before the first push was sent whose reply confirms that all earlier pushes had
    /// arrived. `None` without tracking: changes can have happened at any time since the previous
    /// read.
    pub since: Option<TimeMs>,
    /// All announced changes since the previous read of the key happened at or before this time:
    /// when the last push about the key was received, otherwise `received`. The read itself may
    /// show a change that is not announced yet, such as an expiration at any time up to `received`.
    /// After a stall of the connection, `since` is before the stall and `until` after it.
    pub until: TimeMs,
    /// Number of pushes about the key between the previous reply about it and this one. Each push
    /// announces one or more changes.
    pub pushes: u16,
    /// The first of these pushes arrived so soon after the previous reply that the reply may
    /// already include its change.
    pub first_push_may_be_old: bool,
    /// Pushes about the key were skipped because of the limit on reads, so the changes in between
    /// are unknown.
    pub missed: bool,
    pub sight: KeyState,
}

label_enum! {
    /// How operations on the locks of a namespace are observed.
    OperationsSource {
        /// Tracking announces every change.
        Watch = "watch",
        /// Tracking announces every change, but changes of the last five minutes were missed. The
        /// counts are a lower bound.
        Partial = "partial",
        /// Two passes are compared. The counts are a lower bound.
        Scan = "scan",
        /// Operations are not observed.
        None = "none",
    }
}

impl OperationsSource {
    /// Whether changes are pushed, so that only interruptions hide some.
    pub fn is_pushed(self) -> bool {
        matches!(self, Self::Watch | Self::Partial)
    }
}

/// Whether a link that connected shows the same data as at its previous connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerContinuity {
    /// The link was never connected before.
    None,
    /// The same process with the same replication id.
    SameServer,
    /// Another run id or replication id, because of a restart or failover. Locks can be lost
    /// without a release or expiration.
    OtherServer,
}

/// An event of a link. Events are sent in the order in which they happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// The link is connected. If `watching`, tracking is enabled. A first pass follows. Changes
    /// between the last `CaughtUp` and this event were not observed.
    Up {
        at: TimeMs,
        watching: bool,
        past: ServerContinuity,
    },
    /// The connection is lost. The link will try to reconnect.
    Down {
        at: TimeMs,
    },
    /// The node is no longer a primary. The link sends nothing more.
    Removed {
        at: TimeMs,
    },
    /// All changes up to `at` have been reported.
    CaughtUp {
        at: TimeMs,
    },
    /// All keys that existed from `started` to `at` have been reported since `started`.
    PassDone {
        started: TimeMs,
        at: TimeMs,
    },
    /// A flush deleted all keys of a database, perhaps of another one: Redis does not say which.
    Flushed {
        at: TimeMs,
    },
    /// Redis evicted keys some time before `at`, or deleted all keys. Which keys is unknown, so an
    /// end that is reported later and may have happened before `at` is not certainly a release.
    Evicted {
        at: TimeMs,
    },
    /// Pushes were lost, and it is unknown which keys they were about. The effect is the same as a
    /// reconnect.
    Gap {
        at: TimeMs,
    },
    /// Changes of locks in these namespaces were announced up to `at` and will not be reported,
    /// because of the limit on reads. Their counts up to `at` are incomplete. The next sighting of
    /// each of these locks is marked as `missed`.
    Skipped {
        at: TimeMs,
        namespaces: Vec<NamespaceId>,
    },
    Seen(Sighting),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkBatch {
    pub link: LinkId,
    pub news: Vec<LinkEvent>,
}
