//! How a key is read: which commands are sent, and what their replies show.
//!
//! `session` sends rounds and evaluates them. One round of commands reads the value,
//! assuming the type that such keys had last, and the TTL. If the type is different, the next round
//! asks for the type, and the one after it for the value. The fields of a hash may have TTLs of their
//! own: a round that shows their names is followed by one that also asks for their TTLs. Only the
//! replies of the last round count, so that the result shows one moment. A key that is being moved
//! between nodes of a cluster is read once more with `ASKING`.

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
/// Maximum number of fields whose TTLs are read. A lock has one owner, or a few that share it.
const MAX_FIELDS: usize = 64;

/// The type of the value of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum KeyType {
    #[default]
    String,
    Hash,
    /// A hash whose fields may have TTLs of their own (`HPEXPIRE`).
    HashWithFieldTtls,
    SortedSet,
    /// A lock that several readers hold together. Its members are not read.
    Set,
}

/// One round of commands for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Round {
    /// `None` asks for the type.
    kind: Option<KeyType>,
    asking: bool,
    fence: bool,
    /// The server has `HPTTL`, and the user may use it.
    has_field_ttls: bool,
    /// The owners' fields of a hash, if their TTLs are asked for. They are tokens, and forgotten
    /// with the round.
    fields: Option<Box<[Vec<u8>]>>,
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
    pub(super) fn first(kind: KeyType, fence: bool, has_field_ttls: bool) -> Self {
        Self { kind: Some(kind), asking: false, fence, has_field_ttls, fields: None, number: 1 }
    }

    pub(super) fn reads_fence(&self) -> bool {
        self.fence
    }

    /// Number of replies to this round.
    pub(super) fn replies(&self) -> usize {
        let more = usize::from(self.fields.is_some()) + usize::from(self.fence);
        let commands = if self.kind.is_some() { 2 + more } else { 1 };
        if self.asking { 2 * commands } else { commands }
    }

    /// Passes each command of the round to `send`.
    pub(super) fn send(&self, key: &[u8], fence_key: Option<&[u8]>, mut send: impl FnMut(Command, &[&[u8]])) {
        let mut ask = |command: Command, parts: &[&[u8]]| {
            if self.asking {
                send(Command::Asking, &[b"ASKING"]);
            }
            send(command, parts);
        };
        match self.kind {
            None => return ask(Command::Type, &[b"TYPE", key]),
            Some(KeyType::String) => ask(Command::Getrange, &[b"GETRANGE", key, b"0", VALUE_END]),
            Some(KeyType::Hash | KeyType::HashWithFieldTtls) => {
                ask(Command::Hscan, &[b"HSCAN", key, b"0", b"COUNT", b"64"])
            }
            Some(KeyType::SortedSet) => ask(Command::Zrange, &[b"ZRANGE", key, b"0", b"63"]),
            Some(KeyType::Set) => ask(Command::Type, &[b"TYPE", key]),
        }
        ask(Command::Pttl, &[b"PTTL", key]);
        if let Some(fields) = &self.fields {
            let count = fields.len().to_string();
            let mut parts: Vec<&[u8]> = vec![b"HPTTL", key, b"FIELDS", count.as_bytes()];
            parts.extend(fields.iter().map(Vec::as_slice));
            ask(Command::Hpttl, &parts);
        }
        if self.fence {
            ask(Command::Getrange, &[b"GETRANGE", fence_key.unwrap_or_default(), b"0", b"31"]);
        }
    }

    /// Evaluates the replies. `may_ask` means that the key is known to be on this node, whichever
    /// node serves its slot.
    pub(super) fn conclude(&self, replies: &[Value], may_ask: bool, reader: OwnerParser<'_>) -> ReadResult {
        let mut answers = self.answers(replies);
        let (value, rest) = (answers.next(), answers);
        let Some(value) = value else { return ReadResult::Seen(KeyState::Unreadable) };
        match self.kind {
            None => self.after_type(value, may_ask, reader),
            Some(kind) => self.after_value(kind, value, rest, may_ask, reader),
        }
    }

    /// The type of value that the replies show, as a guess for other keys with the same prefix.
    pub(super) fn shown_type(&self, replies: &[Value]) -> Option<KeyType> {
        let has_ttl = |reply: &Value| matches!(reply, Value::Int(0..));
        match (&self.fields, self.answers(replies).nth(2)) {
            (None, _) => self.kind,
            (Some(_), Some(Value::Array(ttls))) if ttls.iter().any(has_ttl) => Some(KeyType::HashWithFieldTtls),
            (Some(_), _) => Some(KeyType::Hash),
        }
    }

    /// The replies without those to `ASKING`, which contain no information.
    fn answers<'a>(&self, replies: &'a [Value]) -> impl Iterator<Item = &'a Value> + use<'a> {
        let step = if self.asking { 2 } else { 1 };
        replies.iter().skip(step - 1).step_by(step)
    }

    fn after_type(&self, reply: &Value, may_ask: bool, reader: OwnerParser<'_>) -> ReadResult {
        match reply {
            Value::ServerError(error) => self.after_error(error, may_ask),
            reply => match owner::bytes(reply) {
                // The key may be gone or replaced by now. The next round shows it.
                Some(b"string" | b"none") => self.again(Some(KeyType::String)),
                Some(b"hash") if self.has_field_ttls => self.again(Some(KeyType::HashWithFieldTtls)),
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
        &self,
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
        let mut field_ttl = None;
        let holder = match (kind, value) {
            (_, Value::ServerError(error)) if is_denied(error) => Holder::Unknown,
            (_, Value::ServerError(error)) => return self.after_error(error, may_ask),
            // An empty token is unusual. More likely, the key was created between the two commands.
            (KeyType::String, Value::BulkString(value)) if value.is_empty() && self.number == 1 => {
                return self.again(Some(KeyType::String));
            }
            (KeyType::String, Value::BulkString(value)) => reader.of_string(value, value.len() < VALUE_LIMIT),
            (KeyType::String, _) => return ReadResult::Seen(KeyState::Unreadable),
            (KeyType::Hash | KeyType::HashWithFieldTtls, value) => {
                let fields: Box<[Vec<u8>]> =
                    reader.fields_of_owners(value).take(MAX_FIELDS).map(<[u8]>::to_vec).collect();
                // Each hash has a field. Either the key was created between the two commands, or all
                // its fields have expired and Redis did not delete them yet.
                if fields.is_empty() && self.number == 1 {
                    return self.again(self.kind);
                }
                let may_have_ttls = self.has_field_ttls && (kind == KeyType::HashWithFieldTtls || ttl < 0);
                if may_have_ttls && !fields.is_empty() {
                    if self.fields.as_ref() != Some(&fields) {
                        return self.again_with(self.kind, Some(fields));
                    }
                    field_ttl = match rest.next() {
                        Some(Value::ServerError(error)) if !is_denied(error) => {
                            return self.after_error(error, may_ask);
                        }
                        Some(Value::Array(ttls)) => match last_field_ttl(ttls) {
                            Ok(ttl) => ttl,
                            Err(FieldIsGone) => return self.again(self.kind),
                        },
                        _ => None,
                    };
                }
                reader.of_hash(value)
            }
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
        let key_ttl = (ttl >= 0).then_some(ttl as TimeMs);
        let ttl_ms = [key_ttl, field_ttl].into_iter().flatten().min();
        ReadResult::Seen(KeyState::Held(Held { owner, ttl_ms, fence }))
    }

    fn after_error(&self, error: &ServerError, may_ask: bool) -> ReadResult {
        match error.kind() {
            Some(ServerErrorKind::Moved) if may_ask && !self.asking => {
                Self { asking: true, ..self.clone() }.again(self.kind)
            }
            Some(ServerErrorKind::Moved | ServerErrorKind::Ask) => ReadResult::Moved,
            _ if error.code() == "WRONGTYPE" => self.again(None),
            _ => ReadResult::Seen(KeyState::Unreadable),
        }
    }

    fn again(&self, kind: Option<KeyType>) -> ReadResult {
        self.again_with(kind, None)
    }

    fn again_with(&self, kind: Option<KeyType>, fields: Option<Box<[Vec<u8>]>>) -> ReadResult {
        match self.number {
            MAX_ROUNDS.. => ReadResult::Seen(KeyState::Unreadable),
            number => ReadResult::Again(Self { kind, fields, number: number + 1, ..*self }),
        }
    }
}

/// A field was there when the names were read, and not any more when the TTLs were.
struct FieldIsGone;

/// When the last owner's field expires, from the reply to `HPTTL`. `None` if one never does.
fn last_field_ttl(ttls: &[Value]) -> Result<Option<TimeMs>, FieldIsGone> {
    let mut last = None;
    for ttl in ttls {
        match ttl {
            Value::Int(ttl @ 0..) => last = last.max(Some(*ttl as TimeMs)),
            Value::Int(-2) => return Err(FieldIsGone),
            _ => return Ok(None),
        }
    }
    Ok(last)
}

pub(super) fn is_denied(error: &ServerError) -> bool {
    error.kind() == Some(ServerErrorKind::NoPerm)
}

#[cfg(test)]
mod tests;
