//! Finds the few lines in a block of log text that a rule can match. The extractor calls it for
//! every block.
//!
//! Lock events are rare, so the block is not split into lines. Instead it is searched for
//! *anchors*: short texts, one of which occurs in every line that a rule can match. This search
//! reads every byte, so there are as few anchors as possible, and rare ones. At each hit, the
//! surrounding bytes are compared with the *literals* that the anchor represents. The line is
//! parsed only if one of them matches.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use aho_corasick::{Span, packed};
use memchr::memmem;
use regex::bytes::{Regex, RegexBuilder};

use crate::config::rules::literals::AnyOf;

/// Length of an anchor in bytes. The packed search first compares four bytes, and it runs at full
/// speed with up to 32 anchors. Fewer anchors cause fewer false hits. Four letters would occur in
/// too many harmless lines (`clock`, `blocked`).
const ANCHOR: usize = 5;
/// An anchor that spans two words is worth as much as an anchor inside a word that represents this
/// many times as many literals.
const SPANNING_WEIGHT: u32 = 3;

pub struct Searcher {
    anchors: Anchors,
    /// Literals, indexed by the byte that follows their anchor. The last list is for literals that
    /// end with their anchor.
    around: Vec<Vec<AnchoredLiteral>>,
}

enum Anchors {
    /// There are no rules, so nothing matches.
    None,
    /// Some rule requires no particular text, so every line is a hit.
    Anything,
    One(Box<memmem::Finder<'static>>),
    Many(Box<packed::Searcher>),
    /// Fallback for processors without the vector instructions that the packed search requires.
    Portable(Regex),
}

/// A literal, and the position of its anchor in it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct AnchoredLiteral {
    literal: Vec<u8>,
    at: usize,
}

/// Index in `Searcher::around` of the literals that end with their anchor.
const ENDS_THERE: usize = 256;

impl Searcher {
    /// `needed` contains, for each rule, the texts that a line must contain. See
    /// [`RuleSet::needed_texts`](crate::logs::rules::RuleSet::needed_texts).
    pub fn new(needed: &[Vec<AnyOf>]) -> Self {
        let mut around: Vec<Vec<AnchoredLiteral>> = (0..=ENDS_THERE).map(|_| Vec::new()).collect();
        if needed.iter().any(Vec::is_empty) {
            return Self { anchors: Anchors::Anything, around };
        }
        let plan = plan(needed);
        let anchors = bucketed(plan.keys().cloned().collect());
        for AnchoredLiteral { literal, at } in plan.into_values().flatten() {
            let following = literal.get(at + ANCHOR).map_or(ENDS_THERE, |byte| usize::from(*byte));
            around[following].push(AnchoredLiteral { literal, at });
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

    /// Returns a position, at or after `from`, inside a line that a rule can match.
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
        let following = block.get(hit + ANCHOR).map_or(ENDS_THERE, |byte| usize::from(*byte));
        let mut candidates = self.around[ENDS_THERE].iter().chain(&self.around[following]);
        candidates.any(|around| hit >= around.at && block[hit - around.at..].starts_with(&around.literal))
    }
}

fn any_of(texts: &[Vec<u8>]) -> Option<Regex> {
    let escaped: Vec<String> = texts.iter().map(|text| regex::escape(&String::from_utf8_lossy(text))).collect();
    RegexBuilder::new(&escaped.join("|")).unicode(false).build().ok()
}

/// Chooses the anchors, and the literals that each represents. Repeatedly takes the part with the
/// highest `worth` among the remaining literals. For locks this is usually ` lock`, which most
/// literals contain.
fn plan(needed: &[Vec<AnyOf>]) -> BTreeMap<Vec<u8>, BTreeSet<AnchoredLiteral>> {
    let mut literals = chosen_literals(needed);
    let mut counts = count(literals.iter().flat_map(|literal| parts(literal)));
    let mut plan: BTreeMap<Vec<u8>, BTreeSet<AnchoredLiteral>> = BTreeMap::new();
    while let Some(anchor) = counts.iter().max_by_key(|(part, count)| worth(part, **count)).map(|(part, _)| *part) {
        let arounds = plan.entry(anchor.to_vec()).or_default();
        literals.retain(|literal| {
            let Some(at) = memmem::find(literal, anchor) else { return true };
            arounds.insert(AnchoredLiteral { literal: literal.to_vec(), at });
            for part in parts(literal) {
                counts.entry(part).and_modify(|count| *count -= 1);
            }
            false
        });
        counts.retain(|_, count| *count > 0);
    }
    plan
}

/// Orders the anchors for the packed search, which assigns them to its buckets in turn and first
/// compares half bytes. Similar anchors in one bucket cause fewer false hits, above all if they
/// have the space between words at the same position. The order affects only speed.
fn bucketed(mut anchors: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    const BUCKETS: usize = 8;
    anchors.sort_by_key(|anchor| anchor.iter().skip(1).map(|byte| byte & 0x0f).collect::<Vec<u8>>());
    let per_bucket = anchors.len().div_ceil(BUCKETS).max(1);
    let in_turn = |turn| anchors.iter().skip(turn).step_by(per_bucket).cloned();
    (0..per_bucket).flat_map(in_turn).collect()
}

/// Chooses one set of literals for each rule. Sets that contain the part that most rules share come
/// first, then the set with the rarest texts.
fn chosen_literals(needed: &[Vec<AnyOf>]) -> BTreeSet<&[u8]> {
    let n_rules = count(needed.iter().flat_map(|sets| sets.iter().flat_map(shared_parts).collect::<BTreeSet<_>>()));
    let most = n_rules.into_iter().filter(|(_, count)| *count > 1).max_by_key(|(part, count)| (*count, *part));
    let shared = most.map_or(&b""[..], |(part, _)| part);
    let telling = |set: &&AnyOf| {
        let has_shared = set.iter().all(|literal| memmem::find(literal, shared).is_some());
        (has_shared, set.iter().map(|literal| rarity(literal)).min())
    };
    needed.iter().filter_map(|sets| sets.iter().max_by_key(telling)).flatten().map(Vec::as_slice).collect()
}

fn count<'a>(parts: impl Iterator<Item = &'a [u8]>) -> HashMap<&'a [u8], u32> {
    let mut counts = HashMap::new();
    for part in parts {
        *counts.entry(part).or_default() += 1;
    }
    counts
}

/// All distinct parts of a literal that can be its anchor. A literal shorter than an anchor is its
/// own only part.
fn parts(literal: &[u8]) -> BTreeSet<&[u8]> {
    literal.windows(ANCHOR.min(literal.len()).max(1)).collect()
}

/// Parts that can be the anchor of every literal in the set.
fn shared_parts(set: &AnyOf) -> BTreeSet<&[u8]> {
    let mut shared = set.first().map(|literal| parts(literal)).unwrap_or_default();
    shared.retain(|part| set.iter().skip(1).all(|literal| memmem::find(literal, part).is_some()));
    shared
}

/// How good a text is as an anchor for `n_literals` literals. The end of one word and the start of
/// the next are rarer in ordinary lines than a part of a word. The text itself breaks ties, so that
/// the plan is deterministic.
fn worth(text: &[u8], n_literals: u32) -> (u32, &[u8]) {
    let spans_words = text.iter().skip(1).take(2).any(|byte| *byte == b' ');
    let weight = if spans_words { SPANNING_WEIGHT } else { 1 };
    (n_literals * weight * rarity(text), text)
}

/// Rough measure of how rare a text is in logs. For example, ` timeout` is more common than
/// `Acquire `.
fn rarity(text: &[u8]) -> u32 {
    let of_byte = |byte: &u8| match byte {
        b'e' | b' ' => 1,
        b't' | b'a' | b'o' | b'i' | b'n' | b's' | b'r' => 5,
        b'l' | b'd' | b'c' | b'u' | b'0'..=b'9' => 8,
        b'm' | b'p' | b'f' | b'g' | b'h' | b'b' | b'_' | b':' | b'-' | b'.' | b',' => 10,
        _ => 12,
    };
    text.iter().map(of_byte).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates one rule for each list of texts. A rule needs all of its texts.
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

    const LOCKS: [&[&str]; 4] = [&["the lock not owned"], &["run lock busy"], &["saga lock: "], &["my lock"]];

    #[test]
    fn one_shared_text_stands_for_many_literals() {
        check(&LOCKS, &[" lock"]);
    }

    #[test]
    fn a_rule_is_searched_by_the_text_it_shares() {
        check(&[&LOCKS[..], &[&["replay of a job failed", "job lock held"]]].concat(), &[" lock"]);
    }

    #[test]
    fn a_rule_without_the_shared_text_is_searched_by_a_rare_part_of_its_own() {
        check(&[&LOCKS[..], &[&["job state changed"]]].concat(), &[" lock", "ob st"]);
        check(&[&["token mismatch"]], &["n mis"]);
        check(&[&["one"]], &["one"]);
    }

    #[test]
    fn a_rule_is_searched_by_the_rarest_of_its_texts() {
        check(&[&["Acquire ", "mutex ", " timeout"]], &["Acqui"]);
    }

    #[test]
    fn many_anchors_are_all_found() {
        let texts: Vec<String> =
            ('a'..='z').flat_map(|letter| [format!("x {letter}yz"), format!("{letter}1")]).collect();
        let rules: Vec<Vec<AnyOf>> = texts.iter().map(|text| vec![vec![text.as_bytes().to_vec()]]).collect();
        let searcher = Searcher::new(&rules);
        for text in &texts {
            assert_eq!(searcher.find_at(format!("... {text} ...").as_bytes(), 0), Some(4), "{text}");
        }
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
        let found = searcher.find_at(b"clock, blocked, lock, lock not owned", 0);
        assert!(found.is_some_and(|at| at >= 22), "{found:?}");
        assert_eq!(searcher.find_at(b"unlock my lock", 0).map(|at| at > 6), Some(true));
    }
}
