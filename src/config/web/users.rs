//! Reads `basic_auth_users`: user names and bcrypt hashes of passwords.
//!
//! `http/access.rs` checks passwords against the result. Problems never show a value, because it
//! may be a plain password.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use bcrypt::HashParts;

use super::super::yaml::document::{YamlNode, YamlValue, quote};
use super::super::yaml::problem::ProblemCollector;

/// Above this cost, one attempt takes seconds, so a higher cost is certainly a mistake.
const MAX_COST: u32 = 18;
const HASH_HELP: &str = "make a hash with `htpasswd -nBC 10 NAME` (Debian: apache2-utils)";

/// The users who can send requests. Hashes are not shown, not even by `Debug`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Users {
    hashes: BTreeMap<String, String>,
    /// Compared instead of the hash of an unknown user, so that a rejection takes the same time.
    nobody: String,
    /// The lowest and the highest cost of the hashes.
    costs: (u32, u32),
}

impl Users {
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Returns a warning if the time of a rejection can reveal whether a user name exists.
    pub fn warning(&self) -> Option<String> {
        let (lowest, highest) = self.costs;
        (lowest < highest).then(|| {
            format!(
                "the bcrypt hashes have costs from {lowest} to {highest}: a faster rejection than for an unknown \
                 name shows that a user exists; give all of them a cost of {highest}"
            )
        })
    }

    /// Returns the hash to compare with, and whether the user exists.
    pub fn find(&self, name: &str) -> (&str, bool) {
        match self.hashes.get(name) {
            Some(hash) => (hash, true),
            None => (&self.nobody, false),
        }
    }
}

impl fmt::Debug for Users {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Users({})", self.hashes.len())
    }
}

pub(super) fn build(node: &YamlNode, findings: &mut ProblemCollector) -> Users {
    let YamlValue::Mapping(entries) = &node.kind else {
        // The value is not shown, because it may be a password.
        findings.add(node.place, "`basic_auth_users` must be a mapping", "write NAME: HASH, one user a line");
        return Users::default();
    };
    let mut users = Users::default();
    let mut costs = Vec::new();
    for (name, hash) in entries {
        let YamlValue::Text(text) = &name.kind else {
            let message = format!("a user's name must be text, found {}", name.describe());
            findings.add(name.place, message, "put it in quotes");
            continue;
        };
        if text.is_empty() || text.contains(':') {
            let message = format!("{} cannot be the name of a user", quote(text));
            findings.add(name.place, message, "basic authentication has no empty names and no `:` in them");
        }
        match check_hash(hash) {
            Ok((hash, cost)) => {
                costs.push(cost);
                if users.hashes.insert(text.clone(), hash).is_some() {
                    findings.add(name.place, format!("the user {} is listed twice", quote(text)), "remove one of them");
                }
            }
            Err((message, help)) => findings.add(hash.place, format!("the user {}: {message}", quote(text)), help),
        }
    }
    users.costs = (costs.iter().copied().min().unwrap_or(0), costs.into_iter().max().unwrap_or(0));
    users.nobody = format!("$2y${:02}${}", users.costs.1, ".".repeat(53));
    users
}

/// Returns the hash and its cost. The error does not show the value, because people may write plain
/// passwords there.
fn check_hash(node: &YamlNode) -> Result<(String, u32), (String, String)> {
    let no_hash = || ("the value is not a bcrypt hash of a password".to_owned(), HASH_HELP.to_owned());
    let YamlValue::Text(hash) = &node.kind else { return Err(no_hash()) };
    let cost = HashParts::from_str(hash).map_err(|_| no_hash())?.get_cost();
    if !(4..=31).contains(&cost) {
        return Err((format!("bcrypt has no cost {cost}"), HASH_HELP.to_owned()));
    }
    if cost > MAX_COST {
        let message = format!("with a cost of {cost} comparing a password takes too long");
        return Err((message, format!("use a cost of up to {MAX_COST}; 10 takes some 70 ms, each step doubles it")));
    }
    Ok((hash.clone(), cost))
}
