//! Where the owner of a lock is in what its key holds, for libraries that store more than a bare token.

use regex::bytes::Regex;

/// As configured by `owner` of a namespace. By default the whole string is the owner, or every field of a hash, or every
/// member of a set.
#[derive(Clone, Debug, Default)]
pub struct OwnerRule {
    /// Fields of a hash and members of a set that are not owners.
    pub skip: Vec<Regex>,
    /// The group `owner` is the part of a value, a field or a member that tells owners apart.
    pub part: Option<Regex>,
    /// In a string that is a JSON object: the path of the value that is the owner.
    pub json: Vec<String>,
    /// A value, or each of the members, of a key that exists although nobody holds the lock.
    pub not_held: Option<Regex>,
    /// Several may hold the lock at the same time: who comes and goes is no change of owner.
    pub shared: bool,
}

impl OwnerRule {
    /// The value is the owner, and nothing else is to be known.
    pub fn is_default(&self) -> bool {
        let Self { skip, part, json, not_held, shared } = self;
        skip.is_empty() && part.is_none() && json.is_empty() && not_held.is_none() && !shared
    }

    pub fn skips(&self, name: &[u8]) -> bool {
        self.skip.iter().any(|regex| regex.is_match(name))
    }

    /// The part of a text that tells owners apart; all of it where the rule does not say or does not fit.
    pub fn part_of<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        let found = self.part.as_ref().and_then(|regex| regex.captures(text)?.name("owner"));
        found.map_or(text, |part| part.as_bytes())
    }

    pub fn is_held(&self, text: &[u8]) -> bool {
        !self.not_held.as_ref().is_some_and(|regex| regex.is_match(text))
    }
}
