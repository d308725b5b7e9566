//! Finds, in a block of log text, the few lines that a rule could take.
//!
//! Lock events are rare, so lines are not split: the whole block is searched for *anchors*, texts of which every such line
//! contains one, as few and as short as will do because that search touches every byte. At a hit the bytes around it are
//! compared with the *literals* that contain the anchor, which dismisses `blocked` and `clock_skew` at once.

use std::collections::{BTreeMap, BTreeSet};

use memchr::memmem;
use regex::bytes::{Regex, RegexBuilder};

use crate::sources::rules::AnyOf;

/// Shortest text that may stand for many literals. Three letters would hit too many harmless lines.
const MIN_SHARED: usize = 4;
const MAX_SHARED: usize = 12;

pub struct Searcher {
    anchors: Anchors,
    /// Literals by the byte that follows the first `MIN_SHARED` bytes of their anchor; the last list is for those that end
    /// there.
    around: Vec<Vec<Around>>,
}

enum Anchors {
    /// No rules: nothing can hit.
    None,
    /// A rule needs no text in particular: every byte is a hit.
    Anything,
    One(Box<memmem::Finder<'static>>),
    Many(Regex),
}

/// A literal, and where in it the anchor is.
struct Around {
    literal: Vec<u8>,
    at: usize,
}

const ENDS_THERE: usize = 256;

impl Searcher {
    /// `needed`: for each rule the texts that a line must contain, see
    /// [`RuleSet::needed_texts`](crate::sources::rules::RuleSet::needed_texts).
    pub fn new(needed: &[Vec<AnyOf>]) -> Self {
        let mut around: Vec<Vec<Around>> = (0..=ENDS_THERE).map(|_| Vec::new()).collect();
        if needed.iter().any(Vec::is_empty) {
            return Self { anchors: Anchors::Anything, around };
        }
        let (anchors, literals) = plan(needed);
        for literal in literals {
            let anchor = anchors.iter().find_map(|anchor| Some((memmem::find(&literal, anchor)?, anchor)));
            let Some((at, _)) = anchor else { continue };
            let following = literal.get(at + MIN_SHARED).map_or(ENDS_THERE, |byte| usize::from(*byte));
            around[following].push(Around { literal, at });
        }
        let anchors = match anchors.as_slice() {
            [] => Anchors::None,
            [one] => Anchors::One(Box::new(memmem::Finder::new(one).into_owned())),
            many => any_of(many).map_or(Anchors::Anything, Anchors::Many),
        };
        Self { anchors, around }
    }

    /// Position, at or after `from`, of something inside a line that a rule could take.
    pub fn find_at(&self, block: &[u8], mut from: usize) -> Option<usize> {
        loop {
            let hit = match &self.anchors {
                Anchors::None => return None,
                Anchors::Anything => return (from < block.len()).then_some(from),
                Anchors::One(finder) => from + finder.find(&block[from..])?,
                Anchors::Many(regex) => regex.find_at(block, from)?.start(),
            };
            if self.is_literal_around(block, hit) {
                return Some(hit);
            }
            from = hit + 1;
        }
    }

    fn is_literal_around(&self, block: &[u8], hit: usize) -> bool {
        let following = block.get(hit + MIN_SHARED).map_or(ENDS_THERE, |byte| usize::from(*byte));
        let candidates = self.around[ENDS_THERE].iter().chain(&self.around[following]);
        candidates.into_iter().any(|around| hit >= around.at && block[hit - around.at..].starts_with(&around.literal))
    }
}

/// One regex for a list of plain texts; the regex crate searches such a list with vector instructions.
fn any_of(texts: &[Vec<u8>]) -> Option<Regex> {
    let escaped: Vec<String> = texts.iter().map(|text| regex::escape(&String::from_utf8_lossy(text))).collect();
    RegexBuilder::new(&escaped.join("|")).unicode(false).build().ok()
}

/// Which anchors to search for, and the literals they stand for. For locks, `lock` stands for nearly everything; a rule that
/// has it nowhere is searched by its longest text.
fn plan(needed: &[Vec<AnyOf>]) -> (Vec<Vec<u8>>, BTreeSet<Vec<u8>>) {
    let shared = most_shared(needed);
    let has_shared = |any_of: &&AnyOf| shared.as_ref().is_some_and(|shared| all_contain(any_of, shared));
    let mut literals = BTreeSet::new();
    let mut anchors = BTreeSet::new();
    for sets in needed {
        let longest = |sets: &mut dyn Iterator<Item = &AnyOf>| sets.max_by_key(|set| set.iter().map(Vec::len).min()).cloned();
        if let Some(set) = longest(&mut sets.iter().filter(has_shared)) {
            literals.extend(set);
            anchors.extend(shared.clone());
        } else if let Some(set) = longest(&mut sets.iter()) {
            literals.extend(set.iter().cloned());
            anchors.extend(set);
        }
    }
    (minimal(anchors), literals)
}

fn all_contain(any_of: &AnyOf, text: &[u8]) -> bool {
    any_of.iter().all(|literal| memmem::find(literal, text).is_some())
}

/// The text that can stand for most rules; among equals the longest. None where sharing would save nothing.
fn most_shared(needed: &[Vec<AnyOf>]) -> Option<Vec<u8>> {
    let mut rules_with: BTreeMap<&[u8], usize> = BTreeMap::new();
    for sets in needed {
        let mut own: BTreeSet<&[u8]> = BTreeSet::new();
        for set in sets {
            let first = set.iter().min_by_key(|literal| literal.len()).into_iter();
            let candidates = first.flat_map(|literal| (MIN_SHARED..=MAX_SHARED).flat_map(|length| literal.windows(length)));
            own.extend(candidates.filter(|text| all_contain(set, text)));
        }
        for text in own {
            *rules_with.entry(text).or_default() += 1;
        }
    }
    let (text, count) = rules_with.into_iter().max_by_key(|(text, count)| (*count, text.len()))?;
    (count > 1).then(|| text.to_vec())
}

/// Drops texts that contain another one of the list: the shorter one finds them too.
fn minimal(texts: BTreeSet<Vec<u8>>) -> Vec<Vec<u8>> {
    let contains_another = |text: &Vec<u8>| texts.iter().any(|other| other != text && memmem::find(text, other).is_some());
    texts.iter().filter(|text| !contains_another(text)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One rule for each list of texts, all of which are needed.
    fn needed(rules: &[&[&str]]) -> Vec<Vec<AnyOf>> {
        rules.iter().map(|texts| texts.iter().map(|text| vec![text.as_bytes().to_vec()]).collect()).collect()
    }

    fn check(rules: &[&[&str]], expected: &[&str]) {
        let needed = needed(rules);
        let (anchors, _) = plan(&needed);
        let anchors: Vec<String> = anchors.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect();
        assert_eq!(anchors, expected);
        let searcher = Searcher::new(&needed);
        for texts in rules {
            let line = format!("before {} after", texts.join(" and "));
            assert!(searcher.find_at(line.as_bytes(), 0).is_some(), "{line}");
        }
    }

    #[test]
    fn one_shared_text_stands_for_many_literals() {
        check(&[&["lock not owned"], &["run lock busy"], &["a clock"]], &["lock"]);
    }

    #[test]
    fn a_rule_is_searched_by_the_text_it_shares() {
        check(&[&["lock not owned"], &["run lock busy"], &["replay of a job failed", "job lock"]], &["lock"]);
    }

    #[test]
    fn a_rule_without_the_shared_text_is_searched_by_its_own() {
        check(&[&["lock not owned"], &["run lock busy"], &["job state changed"]], &["job state changed", "lock "]);
    }

    #[test]
    fn a_single_text_is_its_own_anchor() {
        check(&[&["token mismatch"]], &["token mismatch"]);
    }

    #[test]
    fn no_rules_hit_nothing_and_a_rule_without_text_hits_everything() {
        assert_eq!(Searcher::new(&[]).find_at(b"lock not owned", 0), None);
        assert_eq!(Searcher::new(&needed(&[&["lock"], &[]])).find_at(b"anything", 3), Some(3));
    }

    #[test]
    fn an_anchor_without_its_literal_is_no_hit() {
        let searcher = Searcher::new(&needed(&[&["lock not owned"], &["run lock busy"], &["the lock"]]));
        for harmless in ["clock skew", "blocked", "lock", "lock nor owned", "run  lock busy", "lock not owne"] {
            assert_eq!(searcher.find_at(harmless.as_bytes(), 0), None, "{harmless}");
        }
        assert_eq!(searcher.find_at(b"clock, blocked, lock, lock not owned", 0), Some(22));
        assert_eq!(searcher.find_at(b"unlock the lock", 0), Some(11));
    }
}
