//! Determines the owner of a lock from the value of its key. Keeps only the hash of the token,
//! never the token itself. `key_read` calls it.
//!
//! A string is the token, or a JSON object that lists its `owners`. A hash has owners as fields,
//! and a sorted set has them as members. For other formats, the `owner` setting of the lock
//! namespace describes where the owner is. If several owners share a lock, all of them together
//! count as one owner, so that joining and leaving is not an owner change.

use redis::Value;

use crate::model::owner::OwnerRule;
use crate::model::sighting::{OwnerHash, OwnerHasher};

const SEVERAL: &[u8] = b"several owners";
/// The field that distinguishes shared and exclusive holds (Redisson and others). It is not an
/// owner.
const MODE: &[u8] = b"mode";

/// The owner rule of the lock namespace, and the hasher for tokens.
#[derive(Clone, Copy)]
pub(super) struct OwnerParser<'a> {
    rule: &'a OwnerRule,
    hasher: &'a OwnerHasher,
}

/// Who holds the lock, according to the value of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Owner(OwnerHash),
    /// The key exists, and its value shows that nobody holds the lock.
    Nobody,
    /// The owner cannot be determined from the data that was read.
    Unknown,
}

impl<'a> OwnerParser<'a> {
    pub(super) fn new(rule: &'a OwnerRule, hasher: &'a OwnerHasher) -> Self {
        Self { rule, hasher }
    }

    /// Whether several holders share each lock.
    pub(super) fn is_shared(self) -> bool {
        self.rule.shared
    }

    /// `is_whole` means that the value is complete. The owners in a truncated JSON object are
    /// unknown.
    pub(super) fn of_string(self, value: &[u8], is_whole: bool) -> Holder {
        let is_object = value.first() == Some(&b'{');
        if !self.rule.is_held(value) {
            return Holder::Nobody;
        }
        if self.rule.shared {
            return self.several();
        }
        if is_object && !is_whole {
            return Holder::Unknown;
        }
        let owner = if is_object { self.of_json(value) } else { None };
        owner.unwrap_or_else(|| Holder::Owner(self.hasher.hash(self.rule.part_of(value))))
    }

    fn of_json(self, value: &[u8]) -> Option<Holder> {
        let document: serde_json::Value = serde_json::from_slice(value).ok()?;
        if !self.rule.json.is_empty() {
            let owner = self.rule.json.iter().try_fold(&document, |value, name| value.get(name))?;
            let text = owner.as_str().map_or_else(|| owner.to_string(), str::to_owned);
            return Some(Holder::Owner(self.hasher.hash(self.rule.part_of(text.as_bytes()))));
        }
        let names: Vec<&str> = match document.get("owners")? {
            serde_json::Value::Object(owners) => owners.keys().map(String::as_str).collect(),
            serde_json::Value::Array(owners) => owners.iter().map(|owner| owner.as_str()).collect::<Option<_>>()?,
            _ => return None,
        };
        let is_shared = document.get("mode").and_then(serde_json::Value::as_str) == Some("shared");
        Some(self.of_names(names.iter().map(|name| name.as_bytes()), is_shared))
    }

    /// Parses a reply to `HSCAN`: a cursor and a list of fields and values.
    pub(super) fn of_hash(self, reply: &Value) -> Holder {
        let Some(fields) = fields(reply) else { return Holder::Unknown };
        let is_shared = fields.clone().any(|(field, value)| field == MODE && (value == b"read" || value == b"shared"));
        self.of_names(fields.map(|(field, _)| field).filter(|field| *field != MODE), is_shared)
    }

    /// The fields of a hash that are owners, from a reply to `HSCAN`.
    pub(super) fn fields_of_owners(self, reply: &Value) -> impl Iterator<Item = &[u8]> {
        let names = fields(reply).into_iter().flatten().map(|(field, _)| field);
        names.filter(move |name| *name != MODE && self.is_owner(name))
    }

    fn is_owner(self, name: &[u8]) -> bool {
        !self.rule.skips(name) && self.rule.is_held(name)
    }

    /// Parses a reply to `ZRANGE`: a list of members.
    pub(super) fn of_sorted_set(self, reply: &Value) -> Holder {
        let Value::Array(members) = reply else { return Holder::Unknown };
        self.of_names(members.iter().filter_map(bytes), false)
    }

    /// The owner of a shared lock. All its holders together count as one owner, whoever they are.
    pub(super) fn several(self) -> Holder {
        Holder::Owner(self.hasher.hash(SEVERAL))
    }

    fn of_names<'n>(self, names: impl Iterator<Item = &'n [u8]>, is_shared: bool) -> Holder {
        let mut owners = names.filter(|name| self.is_owner(name));
        match (owners.next(), owners.next()) {
            (None, _) => Holder::Nobody,
            (_, Some(_)) => self.several(),
            _ if is_shared || self.rule.shared => self.several(),
            (Some(first), None) => Holder::Owner(self.hasher.hash(self.rule.part_of(first))),
        }
    }
}

/// The fields and values in a reply to `HSCAN`.
fn fields(reply: &Value) -> Option<impl Iterator<Item = (&[u8], &[u8])> + Clone> {
    let Value::Array(parts) = reply else { return None };
    let [_, Value::Array(pairs)] = parts.as_slice() else { return None };
    Some(pairs.chunks_exact(2).filter_map(|pair| Some((bytes(&pair[0])?, bytes(&pair[1])?))))
}

pub(super) fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.as_bytes()),
        Value::VerbatimString { text, .. } => Some(text.as_bytes()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use regex::bytes::Regex;

    use super::*;

    fn owner(rule: &OwnerRule, same_as: &str, read: impl Fn(OwnerParser<'_>) -> Holder) {
        let hasher = OwnerHasher::new();
        assert_eq!(
            read(OwnerParser { rule, hasher: &hasher }),
            Holder::Owner(hasher.hash(same_as.as_bytes())),
            "{same_as}"
        );
    }

    fn nobody(rule: &OwnerRule, read: impl Fn(OwnerParser<'_>) -> Holder) {
        let hasher = OwnerHasher::new();
        assert_eq!(read(OwnerParser { rule, hasher: &hasher }), Holder::Nobody);
    }

    fn check(value: &str, same_as: &str) {
        owner(&OwnerRule::default(), same_as, |reader| reader.of_string(value.as_bytes(), true));
    }

    fn list(texts: &[&str]) -> Value {
        Value::Array(texts.iter().map(|text| Value::BulkString(text.as_bytes().to_vec())).collect())
    }

    fn scan(texts: &[&str]) -> Value {
        Value::Array(vec![Value::BulkString(b"0".to_vec()), list(texts)])
    }

    fn regex(source: &str) -> Regex {
        Regex::new(source).unwrap()
    }

    #[test]
    fn strings_are_tokens_or_documents() {
        check("token", "token");
        check("", "");
        check(r#"{"updated_at":1,"mode":"exclusive","owners":{"worker-1":1}}"#, "worker-1");
        check(r#"{"owners":["worker-1"]}"#, "worker-1");
        check(r#"{"mode":"shared","owners":{"worker-1":1}}"#, "several owners");
        check(r#"{"owners":{"worker-1":1,"worker-2":1}}"#, "several owners");
        for whole in [r#"{"owner":"worker-1"}"#, r#"{"owners":3}"#, r#"{"owners":[3]}"#, r#"{"owners":{"wor"#] {
            check(whole, whole);
        }
    }

    #[test]
    fn hashes_have_fields_and_sorted_sets_members() {
        let plain = OwnerRule::default();
        owner(&plain, "a:1", |reader| reader.of_hash(&scan(&["mode", "write", "a:1", "2"])));
        owner(&plain, "several owners", |reader| reader.of_hash(&scan(&["mode", "read", "a:1", "2"])));
        owner(&plain, "several owners", |reader| reader.of_hash(&scan(&["a:1", "1", "b:1", "1"])));
        owner(&plain, "a", |reader| reader.of_sorted_set(&list(&["a"])));
        owner(&plain, "several owners", |reader| reader.of_sorted_set(&list(&["a", "b"])));
        let hasher = OwnerHasher::new();
        assert_eq!(OwnerParser { rule: &plain, hasher: &hasher }.of_hash(&Value::Nil), Holder::Unknown);
    }

    #[test]
    fn what_is_no_owner_is_skipped() {
        let skip = vec![regex("^__write__$"), regex(":expire_time$")];
        let rule = OwnerRule { skip, ..OwnerRule::default() };
        owner(&rule, "token", |reader| reader.of_sorted_set(&list(&["__write__", "token"])));
        nobody(&rule, |reader| reader.of_sorted_set(&list(&["__write__"])));
        owner(&rule, "a", |reader| reader.of_hash(&scan(&["a", "o", "a:o:expire_time", "7"])));
    }

    #[test]
    fn a_part_of_the_value_is_the_owner() {
        let rule = OwnerRule { part: Some(regex("(?s-u)^(?P<owner>.{4})")), ..OwnerRule::default() };
        owner(&rule, "abcd", |reader| reader.of_string(b"abcd and more", true));
        owner(&rule, "abc", |reader| reader.of_string(b"abc", true));
        let rule = OwnerRule { json: vec!["holder".to_owned(), "id".to_owned()], ..OwnerRule::default() };
        owner(&rule, "w1", |reader| reader.of_string(br#"{"at":1,"holder":{"id":"w1"}}"#, true));
    }

    #[test]
    fn some_keys_are_held_by_nobody_and_some_by_several() {
        let rule = OwnerRule { not_held: Some(regex("_WAITING$")), ..OwnerRule::default() };
        nobody(&rule, |reader| reader.of_string(b"host_WAITING", true));
        owner(&rule, "host", |reader| reader.of_string(b"host", true));
        let rule = OwnerRule { shared: true, ..OwnerRule::default() };
        owner(&rule, "several owners", |reader| reader.of_sorted_set(&list(&["a"])));
        owner(&rule, "several owners", |reader| reader.of_string(b"a", true));
    }
}
