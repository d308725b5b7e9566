//! Can one key fit two key templates?
//!
//! Where two templates fit a key, the one with more literal text describes it. Only templates with equally much of it
//! leave open which namespace the key belongs to.

use crate::model::key_template::KeyTemplate;

/// A step of a template: a character, any character, or any number of characters.
#[derive(Clone, Copy, PartialEq)]
enum Step {
    Exactly(char),
    Any,
    Rest,
}

/// Is there a key that fits both, and describes neither better?
pub(in crate::config) fn is_ambiguous(left: &KeyTemplate, right: &KeyTemplate) -> bool {
    left.literal_length() == right.literal_length() && overlap(&steps(left.as_str()), &steps(right.as_str()))
}

/// Do both take exactly the same keys, whatever they call their fields?
pub(in crate::config) fn is_same(left: &KeyTemplate, right: &KeyTemplate) -> bool {
    steps(left.as_str()) == steps(right.as_str())
}

/// A field takes at least one character. Braces that are written twice are literal ones.
fn steps(template: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut characters = template.chars().peekable();
    while let Some(character) = characters.next() {
        let is_brace = matches!(character, '{' | '}');
        let is_literal = !is_brace || characters.next_if_eq(&character).is_some();
        if is_literal {
            steps.push(Step::Exactly(character));
        } else {
            characters.by_ref().find(|end| *end == '}');
            steps.extend([Step::Any, Step::Rest]);
        }
    }
    steps
}

/// Walks both templates at once: `reachable[j]` says whether some text takes us past the steps of `left` so far and past
/// the first `j` steps of `right`.
fn overlap(left: &[Step], right: &[Step]) -> bool {
    let mut reachable = vec![false; right.len() + 1];
    reachable[0] = true;
    skip_rests(&mut reachable, right);
    for step in left {
        let mut next = match step {
            // Nothing, or as much of `right` as we like.
            Step::Rest => {
                let first = reachable.iter().position(|reached| *reached).unwrap_or(reachable.len());
                (0..reachable.len()).map(|index| index >= first).collect()
            }
            Step::Exactly(_) | Step::Any => {
                let mut next = vec![false; reachable.len()];
                for (index, other) in right.iter().enumerate().filter(|(index, _)| reachable[*index]) {
                    match other {
                        Step::Rest => next[index] = true,
                        _ if *other == *step || *other == Step::Any || *step == Step::Any => next[index + 1] = true,
                        _ => {}
                    }
                }
                next
            }
        };
        skip_rests(&mut next, right);
        reachable = next;
    }
    reachable.last() == Some(&true)
}

/// "Any number of characters" may be none.
fn skip_rests(reachable: &mut [bool], steps: &[Step]) {
    for (index, step) in steps.iter().enumerate() {
        if reachable[index] && *step == Step::Rest {
            reachable[index + 1] = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(left: &str, right: &str, expected: bool) {
        let template = |text| KeyTemplate::parse(text).unwrap();
        assert_eq!(is_ambiguous(&template(left), &template(right)), expected, "{left} and {right}");
        assert_eq!(is_ambiguous(&template(right), &template(left)), expected, "{right} and {left}");
    }

    #[test]
    fn ambiguous_templates() {
        check("job:{id}", "job:{job_id}", true);
        check("job:{id}", "run:{id}", false);
        check("job:{id}", "job:lock:{id}", false);
        check("job:lock", "job:{id}:lock", false);
        check("job:lock", "job:lock", true);
        check("job:lock", "job:lick", false);
        check("a:{x}:b", "a:{x}:c", false);
        check("a:{x}:b", "a:b:{x}", true);
        check("a:{x}", "{x}:a", true);
        check("{x}ab", "{x}bc", false);
        check("a{x}b{y}c", "a{x}c", false);
        check("bull:{{{queue}}}:x", "bull:{{{q}}}:x", true);
        check("bull:{{{queue}}}:x", "bull:[{q}]:x", false);
    }

    #[test]
    fn same_templates() {
        let template = |text| KeyTemplate::parse(text).unwrap();
        assert!(is_same(&template("job:{id}"), &template("job:{job_id}")));
        assert!(!is_same(&template("a:{x}:b"), &template("a:b:{x}")));
    }
}
