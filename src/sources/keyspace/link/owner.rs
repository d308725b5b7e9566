//! From what a lock's key holds to the owner: never the token itself, only its hash.
//!
//! A string is the token, or a JSON object that lists its `owners`; a hash has owners for fields; a sorted set has them for
//! members. Where several share a lock, all of them together are one owner, so that joining and leaving is no change of it.

use redis::Value;

use crate::observation::{OwnerHash, OwnerHasher};

const SEVERAL: &[u8] = b"several owners";
/// Tells shared and exclusive holding apart (Redisson and others): not an owner.
const MODE: &[u8] = b"mode";

/// `is_whole`: the value has no more than this. Of a JSON object that was cut off, nobody knows the owners.
pub(super) fn of_string(value: &[u8], is_whole: bool, hasher: &OwnerHasher) -> Option<OwnerHash> {
    let is_object = value.first() == Some(&b'{');
    if is_object && !is_whole {
        return None;
    }
    let owner = if is_object { of_json(value, hasher) } else { None };
    Some(owner.unwrap_or_else(|| hasher.hash(value)))
}

fn of_json(value: &[u8], hasher: &OwnerHasher) -> Option<OwnerHash> {
    let document: serde_json::Value = serde_json::from_slice(value).ok()?;
    let names: Vec<&str> = match document.get("owners")? {
        serde_json::Value::Object(owners) => owners.keys().map(String::as_str).collect(),
        serde_json::Value::Array(owners) => owners.iter().map(|owner| owner.as_str()).collect::<Option<_>>()?,
        _ => return None,
    };
    let is_shared = document.get("mode").and_then(serde_json::Value::as_str) == Some("shared");
    Some(of_names(names.iter().map(|name| name.as_bytes()), is_shared, hasher))
}

/// What `HSCAN` answers: a cursor and a list of fields and values. `None`: not such an answer.
pub(super) fn of_hash(reply: &Value, hasher: &OwnerHasher) -> Option<OwnerHash> {
    let Value::Array(parts) = reply else { return None };
    let [_, Value::Array(pairs)] = parts.as_slice() else { return None };
    let fields = pairs.chunks_exact(2).filter_map(|pair| Some((bytes(&pair[0])?, bytes(&pair[1])?)));
    let is_shared = fields.clone().any(|(field, value)| field == MODE && (value == b"read" || value == b"shared"));
    let owners = fields.map(|(field, _)| field).filter(|field| *field != MODE);
    Some(of_names(owners, is_shared, hasher))
}

/// What `ZRANGE` answers: a list of members.
pub(super) fn of_sorted_set(reply: &Value, hasher: &OwnerHasher) -> Option<OwnerHash> {
    let Value::Array(members) = reply else { return None };
    Some(of_names(members.iter().filter_map(bytes), false, hasher))
}

fn of_names<'a>(mut names: impl Iterator<Item = &'a [u8]>, is_shared: bool, hasher: &OwnerHasher) -> OwnerHash {
    let first = names.next().unwrap_or_default();
    let single = names.next().is_none() && !is_shared;
    hasher.hash(if single { first } else { SEVERAL })
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
    use super::*;

    fn check(value: &str, same_as: &str) {
        let hasher = OwnerHasher::new();
        assert_eq!(of_string(value.as_bytes(), true, &hasher), Some(hasher.hash(same_as.as_bytes())), "{value}");
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
        let hasher = OwnerHasher::new();
        let list = |texts: &[&str]| {
            Value::Array(texts.iter().map(|text| Value::BulkString(text.as_bytes().to_vec())).collect())
        };
        let scan = |texts: &[&str]| Value::Array(vec![Value::BulkString(b"0".to_vec()), list(texts)]);
        assert_eq!(of_hash(&scan(&["mode", "write", "a:1", "2"]), &hasher), Some(hasher.hash(b"a:1")));
        assert_eq!(of_hash(&scan(&["mode", "read", "a:1", "2"]), &hasher), Some(hasher.hash(SEVERAL)));
        assert_eq!(of_hash(&scan(&["a:1", "1", "b:1", "1"]), &hasher), Some(hasher.hash(SEVERAL)));
        assert_eq!(of_sorted_set(&list(&["a"]), &hasher), Some(hasher.hash(b"a")));
        assert_eq!(of_sorted_set(&list(&["a", "b"]), &hasher), Some(hasher.hash(SEVERAL)));
        assert_eq!(of_hash(&Value::Nil, &hasher), None);
    }
}
