//! Key templates, such as `cordum:wf:run:lock:{run_id}`.
//!
//! A field stands for any text of at least one character. The text may contain `:` and `@`, because
//! ids contain them. Literal braces (hash tags of Redis Cluster) are written twice:
//! `bull:{{{queue}}}:lock`. A template that cannot be parsed is reported as a configuration
//! problem.

/// A key pattern: a sequence of literal texts and named fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyTemplate {
    text: String,
    /// Never empty. Contains at least one literal. Two fields are never adjacent.
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    Field(String),
}

impl KeyTemplate {
    /// The error is a sentence for the person who wrote the template.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            let brace = &rest[at..];
            if brace.starts_with("{{") || brace.starts_with("}}") {
                literal.push_str(&brace[..1]);
                rest = &brace[2..];
                continue;
            }
            if brace.starts_with('}') {
                return Err(format!("`}}` without `{{` in key template `{text}` (a literal brace is written twice)"));
            }
            let Some(end) = brace.find('}') else {
                return Err(format!("`{{` without `}}` in key template `{text}` (a literal brace is written twice)"));
            };
            let name = &brace[1..end];
            if !is_field_name(name) {
                return Err(format!("`{{{name}}}` in key template `{text}` is not a field name"));
            }
            if literal.is_empty() && matches!(parts.last(), Some(Part::Field(_))) {
                return Err(format!(
                    "two fields are adjacent in key template `{text}`: where the first one ends is ambiguous"
                ));
            }
            if !literal.is_empty() {
                parts.push(Part::Literal(std::mem::take(&mut literal)));
            }
            parts.push(Part::Field(name.to_owned()));
            rest = &brace[end + 1..];
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(Part::Literal(literal));
        }
        if !parts.iter().any(|part| matches!(part, Part::Literal(_))) {
            return Err(format!("key template `{text}` has no literal text: it would claim every key"));
        }
        Ok(Self { text: text.to_owned(), parts })
    }

    /// Returns the template as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the literal text before the first field. A scan searches for this prefix. Empty if
    /// the template begins with a field.
    pub fn prefix(&self) -> &str {
        match self.parts.first() {
            Some(Part::Literal(literal)) => literal,
            _ => "",
        }
    }

    /// Returns true if the template has no fields and so describes exactly one key.
    pub fn is_fixed(&self) -> bool {
        self.fields().next().is_none()
    }

    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Field(name) => Some(name.as_str()),
            Part::Literal(_) => None,
        })
    }

    /// Returns the number of bytes of literal text. If two templates match a key, the one with more
    /// literal text describes the key better.
    pub fn literal_length(&self) -> usize {
        let literals = self.parts.iter().filter_map(|part| match part {
            Part::Literal(literal) => Some(literal.len()),
            Part::Field(_) => None,
        });
        literals.sum()
    }

    /// Returns the part of a key that distinguishes one lock from another: the key without the
    /// literal text at its start and end. `None` if the template is fixed or does not match the
    /// key.
    pub fn id_of<'a>(&self, key: &'a str) -> Option<&'a str> {
        let end = match self.parts.last() {
            Some(Part::Literal(literal)) if self.parts.len() > 1 => literal.as_str(),
            _ => "",
        };
        let is_match = !self.is_fixed() && self.matches(key);
        is_match.then(|| &key[self.prefix().len()..key.len() - end.len()])
    }

    pub fn matches(&self, key: &str) -> bool {
        let Some((last, head)) = self.parts.split_last() else { return false };
        let mut rest = key;
        let mut after_field = false;
        for part in head {
            match part {
                Part::Field(_) => after_field = true,
                // The first position of a literal is always the best one: if the rest does not
                // match after it, the rest does not match after a later position either.
                Part::Literal(literal) if after_field => match find_after_first_char(rest, literal) {
                    Some(end) => (rest, after_field) = (&rest[end..], false),
                    None => return false,
                },
                Part::Literal(literal) => match rest.strip_prefix(literal.as_str()) {
                    Some(tail) => rest = tail,
                    None => return false,
                },
            }
        }
        match last {
            Part::Field(_) => !rest.is_empty(),
            Part::Literal(literal) if after_field => rest.len() > literal.len() && rest.ends_with(literal.as_str()),
            Part::Literal(literal) => rest == literal,
        }
    }

    /// Returns the value of a field in a key. It chooses the positions of literals in the same
    /// manner as [`Self::matches`]. `None` if the template does not match the key or has no such
    /// field.
    pub fn field_of<'a>(&self, key: &'a str, field: &str) -> Option<&'a str> {
        let at = self.parts.iter().position(|part| matches!(part, Part::Field(name) if name == field))?;
        let mut rest = self.matches(key).then_some(key)?;
        let mut after_field = false;
        for part in &self.parts[..at] {
            match part {
                Part::Field(_) => after_field = true,
                Part::Literal(literal) if after_field => {
                    (rest, after_field) = (&rest[find_after_first_char(rest, literal)?..], false);
                }
                Part::Literal(literal) => rest = rest.strip_prefix(literal.as_str())?,
            }
        }
        match &self.parts[at + 1..] {
            [Part::Literal(last)] => rest.strip_suffix(last.as_str()),
            [Part::Literal(next), ..] => Some(&rest[..find_after_first_char(rest, next)? - next.len()]),
            _ => Some(rest),
        }
    }

    /// Returns the key with the given field values, or `None` if a field is missing or empty.
    pub fn build<'a>(&self, field: impl Fn(&str) -> Option<&'a str>) -> Option<String> {
        let mut key = String::new();
        for part in &self.parts {
            match part {
                Part::Literal(literal) => key.push_str(literal),
                Part::Field(name) => key.push_str(field(name).filter(|value| !value.is_empty())?),
            }
        }
        Some(key)
    }
}

fn is_field_name(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'@'))
}

/// Returns the end of the first `literal` in `text` that has at least one character before it.
fn find_after_first_char(text: &str, literal: &str) -> Option<usize> {
    let skip = text.chars().next()?.len_utf8();
    Some(skip + text[skip..].find(literal)? + literal.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(template: &str, matching: &[&str], other: &[&str]) {
        let template = KeyTemplate::parse(template).unwrap();
        for key in matching {
            assert!(template.matches(key), "{} should match {key}", template.as_str());
        }
        for key in other {
            assert!(!template.matches(key), "{} should not match {key}", template.as_str());
        }
    }

    #[test]
    fn fields_are_found_in_keys() {
        let template = KeyTemplate::parse("a:{one}:{two}:lock").unwrap();
        let fields = |key| (template.field_of(key, "one"), template.field_of(key, "two"));
        assert_eq!(fields("a:1:2:lock"), (Some("1"), Some("2")));
        assert_eq!(fields("a:1:2:lock:lock"), (Some("1"), Some("2:lock")));
        assert_eq!(fields("a::2:3:lock"), (Some(":2"), Some("3")));
        assert_eq!(fields("a:1:lock"), (None, None));
        assert_eq!(template.field_of("a:1:2:lock", "three"), None);
        assert_eq!(KeyTemplate::parse("a:{id}").unwrap().field_of("a:7", "id"), Some("7"));
    }

    #[test]
    fn matches_whole_keys_only() {
        check("cordum:dlq:cleanup", &["cordum:dlq:cleanup"], &["cordum:dlq:cleanup2", "cordum:dlq", ""]);
        check(
            "cordum:scheduler:job:{job_id}",
            &["cordum:scheduler:job:7c1f", "cordum:scheduler:job:run-1:step@2", "cordum:scheduler:job:é"],
            &["cordum:scheduler:job:", "cordum:scheduler:input_fail_open_total"],
        );
        check(
            "saga:{workflow_id}:lock",
            &["saga:a:lock", "saga::lock:lock"],
            &["saga:a:stack", "saga::lock", "saga:lock"],
        );
        check(
            "lock:tenant:{tenant}:{resource}",
            &["lock:tenant:t:r", "lock:tenant:t:packs:global"],
            &["lock:tenant:t:", "lock:tenant::r", "lock:packs:global"],
        );
        check("bull:{{{queue}}}:lock", &["bull:{mail}:lock"], &["bull:mail:lock"]);
    }

    #[test]
    fn knows_its_parts() {
        let template = KeyTemplate::parse("lock:eval:{tenant}:{id}").unwrap();
        assert_eq!(template.prefix(), "lock:eval:");
        assert_eq!(template.fields().collect::<Vec<_>>(), ["tenant", "id"]);
        assert_eq!(template.literal_length(), 11);
        assert!(!template.is_fixed());
        let values = |name: &str| if name == "tenant" { Some("t") } else { Some("9") };
        assert_eq!(template.build(values).as_deref(), Some("lock:eval:t:9"));
        assert_eq!(template.build(|name| if name == "tenant" { Some("t") } else { Some("") }), None);
    }

    #[test]
    fn refuses_what_cannot_work() {
        for text in ["", "{id}", "a{", "a}", "a{}", "a{b c}", "a:{b}{c}"] {
            assert!(KeyTemplate::parse(text).is_err(), "{text}");
        }
    }
}
