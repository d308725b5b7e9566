//! Text that a line must contain for a rule to take it, so that whole blocks of a log can be searched before any line is
//! parsed.
//!
//! A line is searched as it stands in the file, and encoders write some characters in several ways (`<` as `\u003c`, `/`
//! as `\/`, `—` as `\u2014`), so only bytes that every encoder leaves alone are used.

use regex_syntax::hir::{Hir, HirKind};

use super::Matcher;

/// Shorter text is in too many lines.
const MIN_LENGTH: usize = 3;
/// An alternation of more texts than this is no help.
const MAX_ALTERNATIVES: usize = 64;

/// Nothing if no literal text of three bytes, after leaving out what JSON encoders may escape, is in every match: the
/// configuration refuses such a regex.
pub fn required_literals(regex_source: &str) -> Option<Vec<Vec<u8>>> {
    let hir = regex_syntax::parse(regex_source).ok()?;
    of_hir(&hir)
}

/// An empty literal, which every line contains, if there is none.
pub(super) fn of_matcher(matcher: &Matcher) -> Vec<Vec<u8>> {
    let everything = || vec![Vec::new()];
    match matcher {
        Matcher::Regex(regex) => required_literals(regex.as_str()).unwrap_or_else(everything),
        Matcher::Message(messages) => {
            let each = messages.iter().map(|message| safe_run(message.trim().as_bytes()));
            each.collect::<Option<_>>().unwrap_or_else(everything)
        }
    }
}

/// Leaves out every literal that contains another one.
pub(super) fn shortest(mut literals: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    literals.sort_by(|a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
    let mut kept: Vec<Vec<u8>> = Vec::new();
    for literal in literals {
        if !kept.iter().any(|shorter| memchr::memmem::find(&literal, shorter).is_some()) {
            kept.push(literal);
        }
    }
    kept
}

fn of_hir(hir: &Hir) -> Option<Vec<Vec<u8>>> {
    match hir.kind() {
        HirKind::Literal(literal) => safe_run(&literal.0).map(|run| vec![run]),
        HirKind::Capture(capture) => of_hir(&capture.sub),
        HirKind::Repetition(repetition) if repetition.min >= 1 => of_hir(&repetition.sub),
        // All parts are needed, so the most telling one is enough.
        HirKind::Concat(parts) => {
            let weight = |literals: &Vec<Vec<u8>>| literals.iter().map(Vec::len).min();
            parts.iter().filter_map(of_hir).max_by_key(weight)
        }
        HirKind::Alternation(parts) => {
            let mut union: Vec<Vec<u8>> = Vec::new();
            for part in parts {
                union.extend(of_hir(part)?);
            }
            (union.len() <= MAX_ALTERNATIVES).then_some(union)
        }
        HirKind::Repetition(_) | HirKind::Empty | HirKind::Class(_) | HirKind::Look(_) => None,
    }
}

/// The longest run of bytes that every encoder writes as they are.
fn safe_run(text: &[u8]) -> Option<Vec<u8>> {
    let mut longest: &[u8] = &[];
    for run in text.split(|byte| !is_safe(*byte)) {
        if run.len() > longest.len() {
            longest = run;
        }
    }
    (longest.len() >= MIN_LENGTH).then(|| longest.to_vec())
}

fn is_safe(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b" _-:,.()[]{}=@#*!?;|~^%$".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `expected` are the literals joined by `|`; empty for none.
    fn check(regex: &str, expected: &str) {
        let found = required_literals(regex).unwrap_or_default();
        let found: Vec<String> = found.iter().map(|literal| String::from_utf8_lossy(literal).into_owned()).collect();
        assert_eq!(found.join("|"), expected.replace('/', "|"), "{regex}");
    }

    #[test]
    fn finds_the_text_of_every_match() {
        check("lock not owned", "lock not owned");
        check(r"run lock busy: (?P<id>\S+)", "run lock busy: ");
        check(r"^job store (?:try acquire|release) lock (?P<key>\S+): ", "job store ");
        check("lock (?:lost|stolen)", "lock ");
        check("(?:was lost|got stolen)", "was lost/got stolen");
        check(r"[Ll]ock (?:is )?not owned", "not owned");
        check(r"\b[Ll]ock\b.{0,80}token mismatch|token mismatch.{0,80}\b[Ll]ock\b", "token mismatch/token mismatch");
        check("(?:renew)+ x", "renew");
        check("Can't update lock", "t update lock");
        check(r#"release the \\?".+?\\?" lock"#, "release the ");
    }

    #[test]
    fn finds_none_where_there_is_none() {
        for regex in [r"\w+", "(?i)lock", "lock|x", "(?:lock)?", "(?:lock)*", "", "lo", "锁丢失", "(", r"</lo\d"] {
            check(regex, "");
        }
    }

    #[test]
    fn keeps_the_shortest() {
        let texts = ["job lock lost", "lock lost", "lock lost", "other"].map(|text| text.as_bytes().to_vec());
        assert_eq!(shortest(texts.to_vec()), [b"other".to_vec(), b"lock lost".to_vec()]);
    }

    #[test]
    fn reads_messages() {
        let literals = of_matcher(&Matcher::Message(vec!["no lock \u{2014} using a local one".to_owned()]));
        assert_eq!(literals, [b" using a local one".to_vec()]);
        assert_eq!(of_matcher(&Matcher::Message(vec!["锁".to_owned()])), [Vec::<u8>::new()]);
    }
}
