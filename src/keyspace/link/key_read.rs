//! How a key is read: which commands are sent, and what their replies show.
//!
//! `session` sends rounds and evaluates them. One round of commands reads the value,
//! assuming the type that such keys had last, and the TTL. If the type is different, the next round
//! asks for the type, and the one after it for the value. Only the replies of the last round count,
//! so that the result shows one moment. A key that is being moved between nodes of a cluster is
//! read once more with `ASKING`.

use redis::{ServerError, ServerErrorKind, Value};

use super::owner::{self, Holder, OwnerParser};
use crate::keyspace::status::Command;
use crate::model::sighting::{Held, KeyState};
use crate::util::clock::TimeMs;

/// Last byte of a value that is read. Any token is shorter. A longer value is compared by its
/// beginning.
const VALUE_END: &[u8] = b"16383";
/// A value of this length may be truncated.
const VALUE_LIMIT: usize = 16_384;
/// Maximum number of rounds for one key. A key that keeps changing its type is not a lock.
const MAX_ROUNDS: u8 = 6;

/// The type of the value of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum KeyType {
    #[default]
    String,
    Hash,
    SortedSet,
    /// A lock that several readers hold together. Its members are not read.
    Set,
}

/// One round of commands for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Round {
    /// `None` asks for the type.
    kind: Option<KeyType>,
    asking: bool,
    fence: bool,
    number: u8,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReadResult {
    Seen(KeyState),
    Again(Round),
    /// Another node serves the key.
    Moved,
}

impl Round {
    pub(super) fn first(kind: KeyType, fence: bool) -> Self {
        Self { kind: Some(kind), asking: false, fence, number: 1 }
    }

    /// The type of value that the round reads. `None` if it asks for the type.
    pub(super) fn kind(self) -> Option<KeyType> {
        self.kind
    }

    pub(super) fn reads_fence(self) -> bool {
        self.fence
    }

    /// Number of replies to this round.
    pub(super) fn replies(self) -> usize {
        let commands = if self.kind.is_some() { 2 + usize::from(self.fence) } else { 1 };
        if self.asking { 2 * commands } else { commands }
    }

    /// Passes each command of the round to `send`.
    pub(super) fn send(self, key: &[u8], fence_key: Option<&[u8]>, mut send: impl FnMut(Command, &[&[u8]])) {
        let mut ask = |command: Command, parts: &[&[u8]]| {
            if self.asking {
                send(Command::Asking, &[b"ASKING"]);
            }
            send(command, parts);
        };
        match self.kind {
            None => return ask(Command::Type, &[b"TYPE", key]),
            Some(KeyType::String) => ask(Command::Getrange, &[b"GETRANGE", key, b"0", VALUE_END]),
            Some(KeyType::Hash) => ask(Command::Hscan, &[b"HSCAN", key, b"0", b"COUNT", b"64"]),
            Some(KeyType::SortedSet) => ask(Command::Zrange, &[b"ZRANGE", key, b"0", b"63"]),
            Some(KeyType::Set) => ask(Command::Type, &[b"TYPE", key]),
        }
        ask(Command::Pttl, &[b"PTTL", key]);
        if self.fence {
            ask(Command::Getrange, &[b"GETRANGE", fence_key.unwrap_or_default(), b"0", b"31"]);
        }
    }

    /// Evaluates the replies. `may_ask` means that the key is known to be on this node, whichever
    /// node serves its slot.
    pub(super) fn conclude(self, replies: &[Value], may_ask: bool, reader: OwnerParser<'_>) -> ReadResult {
        // The replies to ASKING contain no information.
        let step = if self.asking { 2 } else { 1 };
        let mut answers = replies.iter().skip(step - 1).step_by(step);
        let (value, rest) = (answers.next(), answers);
        let Some(value) = value else { return ReadResult::Seen(KeyState::Unreadable) };
        match self.kind {
            None => self.after_type(value, may_ask, reader),
            Some(kind) => self.after_value(kind, value, rest, may_ask, reader),
        }
    }

    fn after_type(self, reply: &Value, may_ask: bool, reader: OwnerParser<'_>) -> ReadResult {
        match reply {
            Value::ServerError(error) => self.after_error(error, may_ask),
            reply => match owner::bytes(reply) {
                // The key may be gone or replaced by now. The next round shows it.
                Some(b"string" | b"none") => self.again(Some(KeyType::String)),
                Some(b"hash") => self.again(Some(KeyType::Hash)),
                Some(b"zset") => self.again(Some(KeyType::SortedSet)),
                // A plain set may be anything. It is a lock only if the lock namespace is
                // configured as shared.
                Some(b"set") if reader.is_shared() => self.again(Some(KeyType::Set)),
                Some(_) => ReadResult::Seen(KeyState::NotALock),
                None => ReadResult::Seen(KeyState::Unreadable),
            },
        }
    }

    fn after_value<'a>(
        self,
        kind: KeyType,
        value: &Value,
        mut rest: impl Iterator<Item = &'a Value>,
        may_ask: bool,
        reader: OwnerParser<'_>,
    ) -> ReadResult {
        let ttl = match rest.next() {
            Some(Value::Int(ttl)) => *ttl,
            Some(Value::ServerError(error)) => return self.after_error(error, may_ask),
            _ => return ReadResult::Seen(KeyState::Unreadable),
        };
        if ttl == -2 {
            return ReadResult::Seen(KeyState::Absent);
        }
        let holder = match (kind, value) {
            (_, Value::ServerError(error)) if is_denied(error) => Holder::Unknown,
            (_, Value::ServerError(error)) => return self.after_error(error, may_ask),
            // An empty token is unusual. More likely, the key was created between the two commands.
            (KeyType::String, Value::BulkString(value)) if value.is_empty() && self.number == 1 => {
                return self.again(Some(KeyType::String));
            }
            (KeyType::String, Value::BulkString(value)) => reader.of_string(value, value.len() < VALUE_LIMIT),
            (KeyType::String, _) => return ReadResult::Seen(KeyState::Unreadable),
            (KeyType::Hash, value) => reader.of_hash(value),
            (KeyType::SortedSet, value) => reader.of_sorted_set(value),
            (KeyType::Set, value) if owner::bytes(value) == Some(b"set") => reader.several(),
            (KeyType::Set, _) => return self.again(None),
        };
        let owner = match holder {
            Holder::Owner(owner) => Some(owner),
            Holder::Unknown => None,
            Holder::Nobody => return ReadResult::Seen(KeyState::Vacant),
        };
        let fence = rest.next().and_then(owner::bytes).and_then(|text| str::from_utf8(text).ok()?.parse().ok());
        ReadResult::Seen(KeyState::Held(Held { owner, ttl_ms: (ttl >= 0).then_some(ttl as TimeMs), fence }))
    }

    fn after_error(self, error: &ServerError, may_ask: bool) -> ReadResult {
        match error.kind() {
            Some(ServerErrorKind::Moved) if may_ask && !self.asking => Self { asking: true, ..self }.again(self.kind),
            Some(ServerErrorKind::Moved | ServerErrorKind::Ask) => ReadResult::Moved,
            _ if error.code() == "WRONGTYPE" => self.again(None),
            _ => ReadResult::Seen(KeyState::Unreadable),
        }
    }

    fn again(self, kind: Option<KeyType>) -> ReadResult {
        match self.number {
            MAX_ROUNDS.. => ReadResult::Seen(KeyState::Unreadable),
            number => ReadResult::Again(Self { kind, number: number + 1, ..self }),
        }
    }
}

pub(super) fn is_denied(error: &ServerError) -> bool {
    error.kind() == Some(ServerErrorKind::NoPerm)
}

#[cfg(test)]
mod tests;
