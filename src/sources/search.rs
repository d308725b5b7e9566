//! Finds, in a block of log text, the few lines that a rule could take.
//!
//! Lock events are rare, so lines are not split: the whole block is searched for short texts that every such line must
//! contain, and only around a hit is the line looked at. Two steps: *anchors*, as few and as short as will do because that
//! search touches every byte, then all the *literals* of the rules, on the hit lines only.

use memchr::memmem;
use regex::bytes::{Regex, RegexBuilder};

/// Shortest text that may stand for several literals. Three letters would hit too many harmless lines.
const MIN_ANCHOR: usize = 4;
const MAX_ANCHOR: usize = 12;

pub struct Searcher {
    anchors: Anchors,
    literals: Option<Regex>,
}

enum Anchors {
    /// No rules: nothing can hit.
    None,
    One(Box<memmem::Finder<'static>>),
    Many(Regex),
}

impl Searcher {
    /// `literals`: every line that matters contains at least one of them, byte for byte.
    pub fn new(literals: &[Vec<u8>]) -> Self {
        let anchors = match anchors_for(literals).as_slice() {
            [] => Anchors::None,
            [one] => Anchors::One(Box::new(memmem::Finder::new(one).into_owned())),
            many => any_of(many).map_or(Anchors::None, Anchors::Many),
        };
        Self { anchors, literals: any_of(literals) }
    }

    /// Position, at or after `from`, of something that may belong to a line that matters.
    pub fn find_at(&self, block: &[u8], from: usize) -> Option<usize> {
        match &self.anchors {
            Anchors::None => None,
            Anchors::One(finder) => finder.find(&block[from..]).map(|at| from + at),
            Anchors::Many(regex) => regex.find_at(block, from).map(|found| found.start()),
        }
    }

    /// Whether a line really contains one of the literals.
    pub fn confirms(&self, line: &[u8]) -> bool {
        self.literals.as_ref().is_some_and(|regex| regex.is_match(line))
    }
}

/// One regex for a list of plain texts; the regex crate searches such a list with vector instructions.
fn any_of<T: AsRef<[u8]>>(texts: &[T]) -> Option<Regex> {
    if texts.is_empty() {
        return None;
    }
    let escaped: Vec<String> =
        texts.iter().map(|text| regex::escape(&String::from_utf8_lossy(text.as_ref()))).collect();
    // Cannot fail for escaped texts of a sane size; if the size limit were hit, an empty regex (everything is looked at)
    // would be slow but right.
    RegexBuilder::new(&escaped.join("|")).unicode(false).size_limit(64 << 20).build().or_else(|_| Regex::new("")).ok()
}

/// As few anchors as possible: the one short text that most literals share (for locks that is `lock`), and the literals
/// that do not have it.
fn anchors_for(literals: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let Some(shared) = most_shared(literals) else { return minimal(literals.to_vec()) };
    let mut anchors: Vec<Vec<u8>> =
        literals.iter().filter(|literal| memmem::find(literal, &shared).is_none()).cloned().collect();
    anchors.push(shared);
    minimal(anchors)
}

/// The text contained in most literals; among equals the longest. None where sharing would save nothing.
fn most_shared(literals: &[Vec<u8>]) -> Option<Vec<u8>> {
    let mut candidates: std::collections::BTreeMap<&[u8], usize> = std::collections::BTreeMap::new();
    for literal in literals {
        let mut own: Vec<&[u8]> =
            (MIN_ANCHOR..=MAX_ANCHOR).flat_map(|length| literal.windows(length)).collect();
        own.sort_unstable();
        own.dedup();
        for text in own {
            *candidates.entry(text).or_default() += 1;
        }
    }
    let (text, count) = candidates.into_iter().max_by_key(|(text, count)| (*count, text.len()))?;
    (count > 1).then(|| text.to_vec())
}

/// Drops texts that contain another one of the list: the shorter one finds them too.
fn minimal(mut texts: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    texts.sort_by_key(|text| text.len());
    let mut kept: Vec<Vec<u8>> = Vec::new();
    for text in texts {
        if !kept.iter().any(|shorter| memmem::find(&text, shorter).is_some()) {
            kept.push(text);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(literals: &[&str], expected: &[&str]) {
        let literals: Vec<Vec<u8>> = literals.iter().map(|text| text.as_bytes().to_vec()).collect();
        let anchors: Vec<String> =
            anchors_for(&literals).iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect();
        assert_eq!(anchors, expected);
        let searcher = Searcher::new(&literals);
        for literal in &literals {
            let line = [b"before ", literal.as_slice(), b" after"].concat();
            assert!(searcher.find_at(&line, 0).is_some());
            assert!(searcher.confirms(&line));
        }
    }

    #[test]
    fn one_shared_text_stands_for_many_literals() {
        check(&["lock not owned", "run lock busy", "a clock"], &["lock"]);
    }

    #[test]
    fn literals_without_the_shared_text_stay_whole() {
        check(&["lock not owned", "run lock busy", "job state changed"], &["lock ", "job state changed"]);
    }

    #[test]
    fn a_single_literal_is_its_own_anchor() {
        check(&["token mismatch"], &["token mismatch"]);
    }

    #[test]
    fn no_rules_hit_nothing() {
        let searcher = Searcher::new(&[]);
        assert_eq!(searcher.find_at(b"lock not owned", 0), None);
        assert!(!searcher.confirms(b"lock not owned"));
    }

    #[test]
    fn a_hit_on_the_anchor_alone_is_not_confirmed() {
        let searcher = Searcher::new(&[b"lock not owned".to_vec(), b"run lock busy".to_vec()]);
        assert!(searcher.find_at(b"clock skew", 0).is_some());
        assert!(!searcher.confirms(b"clock skew"));
    }
}
