//! Checks whether one key can match two key templates.
//!
//! If two templates match a key, the one with more literal text applies. So only templates with the
//! same amount of literal text are ambiguous. `namespaces::build` reports them.

use crate::model::key_template::KeyTemplate;

/// A step of a template: one given character, any one character, or any number of characters.
#[derive(Clone, Copy, PartialEq)]
enum Step {
    Exactly(char),
    Any,
    Rest,
}

/// Returns true if a key can match both templates and both have the same amount of literal text.
pub(in crate::config) fn is_ambiguous(left: &KeyTemplate, right: &KeyTemplate) -> bool {
    left.literal_length() == right.literal_length() && overlap(&steps(left.as_str()), &steps(right.as_str()))
}

/// Returns true if both templates match exactly the same keys. The names of fields do not matter.
pub(in crate::config) fn is_same(left: &KeyTemplate, right: &KeyTemplate) -> bool {
    steps(left.as_str()) == steps(right.as_str())
}

/// Converts a template to steps. A field needs at least one character. Doubled braces are literal
/// braces.
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

/// Walks both templates at the same time. `reachable[j]` is true if some text matches the steps of
/// `left` so far and the first `j` steps of `right`.
fn overlap(left: &[Step], right: &[Step]) -> bool {
    let mut reachable = vec![false; right.len() + 1];
    reachable[0] = true;
    skip_rests(&mut reachable, right);
    for step in left {
        let mut next = match step {
            // Matches nothing, or any number of steps of `right`.
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

/// A `Rest` step can match zero characters.
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
