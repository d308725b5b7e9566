//! Suggestions ("did you mean"): finds the allowed word that is closest to the word that was
//! written. All parts of `config` use it for help texts.

/// Returns the closest of `allowed`, or `None` if all of them are too different.
pub(crate) fn nearest<'a>(written: &str, allowed: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let normalized = normalize(written);
    let max_distance = (normalized.len() / 3).max(1);
    allowed
        .into_iter()
        .map(|word| (distance(&normalized, &normalize(word)), word))
        .filter(|(distance, _)| *distance <= max_distance)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// Returns a help text: the closest allowed word, if there is one, and all allowed words.
pub(crate) fn help_with(written: &str, allowed: &[&str]) -> String {
    let list = list(allowed);
    match nearest(written, allowed.iter().copied()) {
        Some(word) => format!("did you mean `{word}`? allowed: {list}"),
        None => format!("allowed: {list}"),
    }
}

/// Returns the words as a list for a sentence: "a, b, c".
pub(crate) fn list(words: &[&str]) -> String {
    words.join(", ")
}

fn normalize(word: &str) -> Vec<char> {
    // Long text is never a misspelled word, and the comparison takes time proportional to the
    // product of the lengths.
    const MAX_CHARS: usize = 64;
    let lower = word.chars().take(MAX_CHARS).flat_map(char::to_lowercase);
    lower.map(|c| if c == '-' || c == ' ' { '_' } else { c }).collect()
}

/// Returns the number of edits (insert, delete, replace, swap neighbors) that turn one word into
/// the other.
fn distance(left: &[char], right: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for (i, left_char) in left.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, right_char) in right.iter().enumerate() {
            let replace = last[j] + usize::from(left_char != right_char);
            let mut best = replace.min(last[j + 1] + 1).min(row[j] + 1);
            let swapped = i > 0 && j > 0 && left[i - 1] == *right_char && left[i] == right[j - 1];
            if swapped {
                best = best.min(before_last[j - 1] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_word() {
        fn check(written: &str, expected: Option<&str>) {
            assert_eq!(nearest(written, ["ttl", "renew_every", "max_hold", "keys"]), expected, "{written}");
        }
        check("tll", Some("ttl"));
        check("TTL", Some("ttl"));
        check("renew-every", Some("renew_every"));
        check("renewevery", Some("renew_every"));
        check("maxhold", Some("max_hold"));
        check("key", Some("keys"));
        check("color", None);
        check("", None);
    }
}
