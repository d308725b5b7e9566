//! Finds, in a block of log text, the few lines that a rule could take.
//!
//! Lock events are rare, so lines are not split: the whole block is searched for *anchors*, short texts of which every such
//! line contains one, as few as will do because that search touches every byte. At a hit the bytes around it are compared
//! with the *literals* that the anchor stands for, and only then is a line looked at.

use std::collections::{BTreeMap, BTreeSet};

use aho_corasick::{Span, packed};
use memchr::memmem;
use regex::bytes::{Regex, RegexBuilder};

use crate::sources::rules::AnyOf;

/// Length of a text that many literals have in common. Three letters would be in too many harmless lines.
const SHARED_LENGTHS: std::ops::RangeInclusive<usize> = 4..=6;
/// Length of the part of a literal that is searched for when it has nothing in common with others.
const WINDOW: usize = 8;

pub struct Searcher {
    anchors: Anchors,
    /// Literals by the byte `KEYED` bytes after the beginning of their anchor; the last list is for those that end there.
    around: Vec<Vec<Around>>,
}

enum Anchors {
    /// No rules: nothing can hit.
    None,
    /// A rule needs no text in particular: every byte is a hit.
    Anything,
    One(Box<memmem::Finder<'static>>),
    Many(Box<packed::Searcher>),
    /// Processors without the vector instructions that the packed search needs.
    Portable(Regex),
}

/// A literal, and where in it its anchor is.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Around {
    literal: Vec<u8>,
    at: usize,
}

const KEYED: usize = 4;
const ENDS_THERE: usize = 256;

impl Searcher {
    /// `needed`: for each rule the texts that a line must contain, see
    /// [`RuleSet::needed_texts`](crate::sources::rules::RuleSet::needed_texts).
    pub fn new(needed: &[Vec<AnyOf>]) -> Self {
        let mut around: Vec<Vec<Around>> = (0..=ENDS_THERE).map(|_| Vec::new()).collect();
        if needed.iter().any(Vec::is_empty) {
            return Self { anchors: Anchors::Anything, around };
        }
        let plan = plan(needed);
        let anchors: Vec<Vec<u8>> = plan.keys().cloned().collect();
        for Around { literal, at } in plan.into_values().flatten() {
            let following = literal.get(at + KEYED).map_or(ENDS_THERE, |byte| usize::from(*byte));
            around[following].push(Around { literal, at });
        }
        let anchors = match anchors.as_slice() {
            [] => Anchors::None,
            [one] => Anchors::One(Box::new(memmem::Finder::new(one).into_owned())),
            many => match packed::Searcher::new(many) {
                Some(searcher) => Anchors::Many(Box::new(searcher)),
                None => any_of(many).map_or(Anchors::Anything, Anchors::Portable),
            },
        };
        Self { anchors, around }
    }

    /// Position, at or after `from`, of something inside a line that a rule could take.
    pub fn find_at(&self, block: &[u8], mut from: usize) -> Option<usize> {
        loop {
            let hit = match &self.anchors {
                Anchors::None => return None,
                Anchors::Anything => return (from < block.len()).then_some(from),
                Anchors::One(finder) => from + finder.find(block.get(from..)?)?,
                Anchors::Many(searcher) => searcher.find_in(block, Span { start: from, end: block.len() })?.start(),
                Anchors::Portable(regex) => regex.find_at(block, from)?.start(),
            };
            if self.is_literal_around(block, hit) {
                return Some(hit);
            }
            from = hit + 1;
            if from >= block.len() {
                return None;
            }
        }
    }

    fn is_literal_around(&self, block: &[u8], hit: usize) -> bool {
        let following = block.get(hit + KEYED).map_or(ENDS_THERE, |byte| usize::from(*byte));
        let mut candidates = self.around[ENDS_THERE].iter().chain(&self.around[following]);
        candidates.any(|around| hit >= around.at && block[hit - around.at..].starts_with(&around.literal))
    }
}

fn any_of(texts: &[Vec<u8>]) -> Option<Regex> {
    let escaped: Vec<String> = texts.iter().map(|text| regex::escape(&String::from_utf8_lossy(text))).collect();
    RegexBuilder::new(&escaped.join("|")).unicode(false).build().ok()
}

/// Which anchors to search for, and the literals each stands for. For locks, `lock` is in nearly everything: with the byte
/// that follows it in a literal it is the anchor of many. A rule that has it nowhere is searched by a part of its longest
/// text.
fn plan(needed: &[Vec<AnyOf>]) -> BTreeMap<Vec<u8>, BTreeSet<Around>> {
    let shared = most_shared(needed).unwrap_or_default();
    // One more byte keeps out `blocked` and `clock_skew`; a longer text does not need it.
    let length = shared.len() + usize::from(shared.len() == *SHARED_LENGTHS.start());
    let mut plan: BTreeMap<Vec<u8>, BTreeSet<Around>> = BTreeMap::new();
    for sets in needed {
        let has_shared = |set: &&AnyOf| !shared.is_empty() && all_contain(set, &shared);
        let telling = |set: &&AnyOf| set.iter().map(Vec::len).min();
        let set = sets.iter().filter(has_shared).max_by_key(telling).or_else(|| sets.iter().max_by_key(telling));
        for literal in set.into_iter().flatten() {
            let extended = memmem::find_iter(literal, &shared)
                .filter(|_| !shared.is_empty())
                .map(|at| at..at + length)
                .find(|range| range.end <= literal.len());
            let range = extended.unwrap_or_else(|| rarest_window(literal));
            let around = Around { literal: literal.clone(), at: range.start };
            plan.entry(literal[range].to_vec()).or_default().insert(around);
        }
    }
    plan
}

fn all_contain(set: &AnyOf, text: &[u8]) -> bool {
    set.iter().all(|literal| memmem::find(literal, text).is_some())
}

/// The text that can stand for most rules; among equals the longest. None where sharing would save nothing.
fn most_shared(needed: &[Vec<AnyOf>]) -> Option<Vec<u8>> {
    let mut rules_with: BTreeMap<&[u8], usize> = BTreeMap::new();
    for sets in needed {
        let mut own: BTreeSet<&[u8]> = BTreeSet::new();
        for set in sets {
            let shortest = set.iter().min_by_key(|literal| literal.len()).into_iter();
            let parts = shortest.flat_map(|literal| SHARED_LENGTHS.flat_map(|length| literal.windows(length)));
            own.extend(parts.filter(|text| all_contain(set, text)));
        }
        for text in own {
            *rules_with.entry(text).or_default() += 1;
        }
    }
    let (text, count) = rules_with.into_iter().max_by_key(|(text, count)| (*count, text.len()))?;
    (count > 1).then(|| text.to_vec())
}

/// The part of a text that ordinary log lines are least likely to have. The end of one word and the beginning of the next
/// are rarer than any word, and the packed search looks at the first four bytes.
fn rarest_window(literal: &[u8]) -> std::ops::Range<usize> {
    let length = literal.len().min(WINDOW);
    let commonness = |start: &usize| {
        let window = &literal[*start..start + length];
        let spans_words = window.len() > 3 && window[1..3].contains(&b' ');
        (!spans_words, window.iter().map(|byte| commonness(*byte)).sum::<u32>())
    };
    let start = (0..=literal.len() - length).min_by_key(commonness).unwrap_or_default();
    start..start + length
}

/// How common a byte is in logs, roughly.
fn commonness(byte: u8) -> u32 {
    match byte {
        b'e' | b' ' => 12,
        b't' | b'a' | b'o' | b'i' | b'n' | b's' | b'r' => 8,
        b'l' | b'd' | b'c' | b'u' | b'0'..=b'9' => 5,
        b'm' | b'p' | b'f' | b'g' | b'h' | b'b' | b'_' | b':' | b'-' | b'.' | b',' => 3,
        _ => 1,
    }
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
        let plan = plan(&needed);
        let anchors: Vec<String> = plan.keys().map(|text| String::from_utf8_lossy(text).into_owned()).collect();
        assert_eq!(anchors, expected);
        let searcher = Searcher::new(&needed);
        for texts in rules {
            let line = format!("before {} after", texts.join(" and "));
            assert!(searcher.find_at(line.as_bytes(), 0).is_some(), "{line}");
        }
    }

    #[test]
    fn one_shared_text_stands_for_many_literals() {
        check(&[&["lock not owned"], &["run lock busy"], &["saga lock: "]], &["lock ", "lock:"]);
    }

    #[test]
    fn a_rule_is_searched_by_the_text_it_shares() {
        check(&[&["lock not owned"], &["run lock busy"], &["replay of a job failed", "job lock busy"]], &["lock "]);
    }

    #[test]
    fn a_rule_without_the_shared_text_is_searched_by_a_rare_part_of_its_own() {
        check(&[&["lock not owned"], &["lock not had"], &["job state changed"]], &["ock no", "te chang"]);
    }

    #[test]
    fn a_single_text_is_its_own_anchor() {
        check(&[&["token mismatch"]], &["n mismat"]);
    }

    #[test]
    fn no_rules_hit_nothing_and_a_rule_without_text_hits_everything() {
        assert_eq!(Searcher::new(&[]).find_at(b"lock not owned", 0), None);
        assert_eq!(Searcher::new(&needed(&[&["lock"], &[]])).find_at(b"anything", 3), Some(3));
    }

    #[test]
    fn an_anchor_without_its_literal_is_no_hit() {
        let searcher = Searcher::new(&needed(&[&["lock not owned"], &["run lock busy"], &["my lock"]]));
        for harmless in ["clock skew", "blocked", "lock", "lock nor owned", "run  lock busy", "lock not owne"] {
            assert_eq!(searcher.find_at(harmless.as_bytes(), 0), None, "{harmless}");
        }
        assert_eq!(searcher.find_at(b"clock, blocked, lock, lock not owned", 0), Some(22));
        assert_eq!(searcher.find_at(b"unlock my lock", 0).map(|at| at > 6), Some(true));
    }
}
