//! Rounds of commands with made-up replies: types, owners, errors, and keys that move between
//! nodes.

use std::sync::LazyLock;

use super::*;
use crate::model::owner::OwnerRule;
use crate::model::sighting::OwnerHasher;

fn text(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

/// An error reply. `line` is the text of the reply without the dash.
fn error(line: &str) -> Value {
    redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap()
}

/// The complete value is the owner.
fn plain(hasher: &OwnerHasher) -> OwnerParser<'_> {
    static WHOLE_VALUE: LazyLock<OwnerRule> = LazyLock::new(OwnerRule::default);
    OwnerParser::new(&WHOLE_VALUE, hasher)
}

fn conclude(round: &Round, replies: &[Value]) -> ReadResult {
    round.conclude(replies, true, plain(&OwnerHasher::new()))
}

/// Starts with the first round of a string on a server without TTLs of fields. `rounds` contains the
/// replies of each round.
fn read(rounds: &[&[Value]], hasher: &OwnerHasher) -> (ReadResult, Vec<String>) {
    read_from(Round::first(KeyType::String, false, false), rounds, hasher)
}

fn read_from(mut round: Round, rounds: &[&[Value]], hasher: &OwnerHasher) -> (ReadResult, Vec<String>) {
    let mut sent = Vec::new();
    for replies in rounds {
        let mut commands = 0;
        round.send(b"k", None, |_, parts| {
            commands += 1;
            sent.push(parts.iter().map(|part| String::from_utf8_lossy(part)).collect::<Vec<_>>().join(" "));
        });
        assert_eq!(commands, round.replies());
        match round.conclude(replies, true, plain(hasher)) {
            ReadResult::Again(next) => round = next,
            outcome => return (outcome, sent),
        }
    }
    (ReadResult::Again(round), sent)
}

fn held(owner: Option<&str>, ttl_ms: Option<TimeMs>, hasher: &OwnerHasher) -> ReadResult {
    let owner = owner.map(|owner| hasher.hash(owner.as_bytes()));
    ReadResult::Seen(KeyState::Held(Held { owner, ttl_ms, fence: None }))
}

#[test]
fn strings_take_one_round() {
    let hasher = OwnerHasher::new();
    let (outcome, sent) = read(&[&[text("token"), Value::Int(9000)]], &hasher);
    assert_eq!(outcome, held(Some("token"), Some(9000), &hasher));
    assert_eq!(sent, ["GETRANGE k 0 16383", "PTTL k"]);
    assert_eq!(read(&[&[text("token"), Value::Int(-1)]], &hasher).0, held(Some("token"), None, &hasher));
    assert_eq!(read(&[&[text(""), Value::Int(-2)]], &hasher).0, ReadResult::Seen(KeyState::Absent));
    assert_eq!(read(&[&[text("token"), Value::Int(-2)]], &hasher).0, ReadResult::Seen(KeyState::Absent));
}

#[test]
fn an_empty_token_is_looked_at_twice() {
    let hasher = OwnerHasher::new();
    let empty = [text(""), Value::Int(5)];
    assert_eq!(read(&[&empty, &empty], &hasher).0, held(Some(""), Some(5), &hasher));
    assert_eq!(read(&[&empty, &[text("a"), Value::Int(4)]], &hasher).0, held(Some("a"), Some(4), &hasher));
}

#[test]
fn other_types_take_two_more_rounds() {
    let hasher = OwnerHasher::new();
    let wrong = [error("WRONGTYPE Operation against a key"), Value::Int(9000)];
    let hash = [Value::Array(vec![text("0"), Value::Array(vec![text("a"), text("1")])]), Value::Int(8999)];
    let (outcome, sent) = read(&[&wrong, &[Value::SimpleString("hash".to_owned())], &hash], &hasher);
    assert_eq!(outcome, held(Some("a"), Some(8999), &hasher));
    assert_eq!(sent[2..], ["TYPE k", "HSCAN k 0 COUNT 64", "PTTL k"]);
    let set = [Value::Array(vec![text("a")]), Value::Int(8999)];
    let (outcome, sent) = read(&[&wrong, &[Value::SimpleString("zset".to_owned())], &set], &hasher);
    assert_eq!(outcome, held(Some("a"), Some(8999), &hasher));
    assert_eq!(sent[2..], ["TYPE k", "ZRANGE k 0 63", "PTTL k"]);
    for other in ["list", "set"] {
        let (outcome, _) = read(&[&wrong, &[Value::SimpleString(other.to_owned())]], &hasher);
        assert_eq!(outcome, ReadResult::Seen(KeyState::NotALock));
    }
    let (outcome, _) = read(&[&wrong, &[Value::SimpleString("none".to_owned())], &[text(""), Value::Int(-2)]], &hasher);
    assert_eq!(outcome, ReadResult::Seen(KeyState::Absent));
}

#[test]
fn fields_of_a_hash_may_have_ttls() {
    let hasher = OwnerHasher::new();
    let of_kind = |kind| Round::first(kind, false, true);
    let names = |names: &[&str]| {
        let pairs = names.iter().flat_map(|name| [text(name), text("1")]).collect();
        Value::Array(vec![text("0"), Value::Array(pairs)])
    };
    let ttls = |ttls: &[i64]| Value::Array(ttls.iter().map(|ttl| Value::Int(*ttl)).collect());
    let check = |kind, rounds: &[&[Value]], owner, ttl| {
        let (outcome, sent) = read_from(of_kind(kind), rounds, &hasher);
        assert_eq!(outcome, held(Some(owner), ttl, &hasher));
        sent
    };
    let a = || names(&["mode", "a"]);
    // A key with a TTL, of a library that sets no TTLs of fields.
    assert_eq!(check(KeyType::Hash, &[&[a(), Value::Int(9)]], "a", Some(9)), ["HSCAN k 0 COUNT 64", "PTTL k"]);
    let none = Value::Int(-1);
    let sent = check(KeyType::Hash, &[&[a(), none.clone()], &[a(), none.clone(), ttls(&[7])]], "a", Some(7));
    assert_eq!(sent[2..], ["HSCAN k 0 COUNT 64", "PTTL k", "HPTTL k FIELDS 1 a"]);
    check(KeyType::Hash, &[&[a(), none.clone()], &[a(), none.clone(), ttls(&[-1])]], "a", None);
    // The earlier of both.
    let with_ttls = KeyType::HashWithFieldTtls;
    for (of_key, of_field, expected) in [(9, 7, 7), (7, 9, 7), (9, -1, 9)] {
        let of_key = Value::Int(of_key);
        check(with_ttls, &[&[a(), of_key.clone()], &[a(), of_key, ttls(&[of_field])]], "a", Some(expected));
    }
    // Owners who share a lock hold it until the last of them is gone.
    let both = || names(&["a", "b"]);
    check(with_ttls, &[&[both(), none.clone()], &[both(), none.clone(), ttls(&[5, 7])]], "several owners", Some(7));
    check(with_ttls, &[&[both(), none.clone()], &[both(), none.clone(), ttls(&[5, -1])]], "several owners", None);
    // The owner changed between two rounds, or the field expired between two commands.
    let changed: [&[Value]; 3] =
        [&[a(), none.clone()], &[names(&["b"]), none.clone(), ttls(&[-2])], &[names(&["b"]), none.clone(), ttls(&[3])]];
    check(with_ttls, &changed, "b", Some(3));
    let expired: [&[Value]; 3] = [&[a(), none.clone()], &[a(), none.clone(), ttls(&[-2])], &[names(&[]), none.clone()]];
    assert_eq!(read_from(of_kind(with_ttls), &expired, &hasher).0, ReadResult::Seen(KeyState::Vacant));
    // Without permission, the key shows what it shows.
    let denied = error("NOPERM this user has no permissions to run the 'hpttl' command");
    check(with_ttls, &[&[a(), Value::Int(9)], &[a(), Value::Int(9), denied]], "a", Some(9));
}

#[test]
fn a_hash_teaches_whether_its_fields_have_ttls() {
    let round = Round { fields: Some([b"a".to_vec()].into()), ..Round::first(KeyType::Hash, false, true) };
    let shown = |ttl| round.shown_type(&[Value::Nil, Value::Int(-1), Value::Array(vec![Value::Int(ttl)])]);
    assert_eq!((shown(5), shown(-1)), (Some(KeyType::HashWithFieldTtls), Some(KeyType::Hash)));
}

#[test]
fn an_empty_hash_is_looked_at_twice() {
    let hasher = OwnerHasher::new();
    let empty = [Value::Array(vec![text("0"), Value::Array(Vec::new())]), Value::Int(-1)];
    let round = || Round::first(KeyType::Hash, false, false);
    assert_eq!(read_from(round(), &[&empty, &empty], &hasher).0, ReadResult::Seen(KeyState::Vacant));
    let later = [Value::Array(vec![text("0"), Value::Array(vec![text("a"), text("1")])]), Value::Int(5)];
    assert_eq!(read_from(round(), &[&empty, &later], &hasher).0, held(Some("a"), Some(5), &hasher));
}

/// Readers of a lock are members of a plain set. It is enough that there are any.
#[test]
fn a_set_is_a_lock_where_several_may_hold_it() {
    let hasher = OwnerHasher::new();
    let rule = OwnerRule { shared: true, ..OwnerRule::default() };
    let reader = OwnerParser::new(&rule, &hasher);
    let set = || Value::SimpleString("set".to_owned());
    let typed = Round { kind: None, ..Round::first(KeyType::String, false, true) };
    let ReadResult::Again(round) = typed.conclude(&[set()], true, reader) else { panic!("no further round") };
    let mut sent = Vec::new();
    round.send(b"k", None, |command, _| sent.push(command));
    assert_eq!(sent, [Command::Type, Command::Pttl]);
    let outcome = round.conclude(&[set(), Value::Int(8999)], true, reader);
    assert_eq!(outcome, held(Some("several owners"), Some(8999), &hasher));
    // The key changed its type in between.
    let replaced = round.conclude(&[Value::SimpleString("string".to_owned()), Value::Int(5)], true, reader);
    assert!(matches!(replaced, ReadResult::Again(Round { kind: None, .. })));
}

#[test]
fn a_key_that_never_stays_the_same_is_given_up() {
    let hasher = OwnerHasher::new();
    let wrong = [error("WRONGTYPE Operation against a key"), Value::Int(9000)];
    let string = [Value::SimpleString("string".to_owned())];
    let rounds: Vec<&[Value]> = vec![&wrong, &string, &wrong, &string, &wrong, &string, &wrong];
    assert_eq!(read(&rounds, &hasher).0, ReadResult::Seen(KeyState::Unreadable));
}

#[test]
fn without_permission_the_owner_or_everything_is_unknown() {
    let hasher = OwnerHasher::new();
    let denied = || error("NOPERM this user has no permissions to access one of the keys used as arguments");
    assert_eq!(read(&[&[denied(), Value::Int(5)]], &hasher).0, held(None, Some(5), &hasher));
    assert_eq!(read(&[&[denied(), Value::Int(-2)]], &hasher).0, ReadResult::Seen(KeyState::Absent));
    assert_eq!(read(&[&[text("a"), denied()]], &hasher).0, ReadResult::Seen(KeyState::Unreadable));
    assert_eq!(
        read(&[&[error("LOADING dataset"), error("LOADING dataset")]], &hasher).0,
        ReadResult::Seen(KeyState::Unreadable)
    );
}

#[test]
fn a_key_that_is_being_moved_here_is_asked_for() {
    let hasher = OwnerHasher::new();
    let moved = || error("MOVED 3999 127.0.0.1:6381");
    let (outcome, sent) = read(&[&[moved(), moved()], &[Value::Okay, text("a"), Value::Okay, Value::Int(5)]], &hasher);
    assert_eq!(outcome, held(Some("a"), Some(5), &hasher));
    assert_eq!(sent[2..], ["ASKING", "GETRANGE k 0 16383", "ASKING", "PTTL k"]);
    let refused = [&[moved(), moved()][..], &[Value::Okay, moved(), Value::Okay, moved()]];
    assert_eq!(read(&refused, &hasher).0, ReadResult::Moved);
    assert_eq!(read(&[&[error("ASK 1 h:1"), error("ASK 1 h:1")]], &hasher).0, ReadResult::Moved);
    let round = Round::first(KeyType::String, false, true);
    assert_eq!(round.conclude(&[moved(), moved()], false, plain(&hasher)), ReadResult::Moved);
}

#[test]
fn a_fence_comes_along() {
    let round = Round::first(KeyType::String, true, true);
    let mut sent = Vec::new();
    round.send(b"k", Some(b"fence:k"), |command, parts| sent.push((command, parts[1].to_vec())));
    assert_eq!(sent.last(), Some(&(Command::Getrange, b"fence:k".to_vec())));
    let fence = |reply: Value| match conclude(&round, &[text("a"), Value::Int(5), reply]) {
        ReadResult::Seen(KeyState::Held(held)) => held.fence,
        other => panic!("{other:?}"),
    };
    assert_eq!(fence(text("17")), Some(17));
    for odd in [text(""), text("x"), error("NOPERM no"), error("MOVED 1 h:1")] {
        assert_eq!(fence(odd), None);
    }
}
