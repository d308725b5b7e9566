//! Finds the owner of a lock in the value of its key, for libraries that store more than a bare
//! token.
//!
//! Configured by `owner` in a lock namespace. Links apply the rule when they read a key.

use regex::bytes::Regex;

/// The setting `owner` of a lock namespace. By default the complete string is the owner, or every
/// field of a hash, or every member of a set.
#[derive(Clone, Debug, Default)]
pub struct OwnerRule {
    /// Matches fields of a hash and members of a set that are not owners.
    pub skip: Vec<Regex>,
    /// Its group `owner` captures the part of a value, a field or a member that identifies the
    /// owner.
    pub part: Option<Regex>,
    /// For a string that contains a JSON object: the path to the value that is the owner.
    pub json: Vec<String>,
    /// Matches the value, or each member, of a key that exists although nobody holds the lock.
    pub not_held: Option<Regex>,
    /// Several owners can hold the lock at the same time, so a different owner is not an owner
    /// change.
    pub shared: bool,
}

impl OwnerRule {
    /// Returns true if the complete value is the owner and no other setting applies.
    pub fn is_default(&self) -> bool {
        let Self { skip, part, json, not_held, shared } = self;
        skip.is_empty() && part.is_none() && json.is_empty() && not_held.is_none() && !shared
    }

    /// Whether the key of a lock may exist although nobody holds the lock.
    pub fn may_show_nobody(&self) -> bool {
        self.not_held.is_some()
    }

    pub fn skips(&self, name: &[u8]) -> bool {
        self.skip.iter().any(|regex| regex.is_match(name))
    }

    /// Returns the part of a text that identifies the owner, or the complete text if `part` is not
    /// configured or does not match.
    pub fn part_of<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        let found = self.part.as_ref().and_then(|regex| regex.captures(text)?.name("owner"));
        found.map_or(text, |part| part.as_bytes())
    }

    pub fn is_held(&self, text: &[u8]) -> bool {
        !self.not_held.as_ref().is_some_and(|regex| regex.is_match(text))
    }
}
