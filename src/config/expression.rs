//! The metrics that a PromQL expression names, with their label matchers. Not a parser: `promtool` checks the grammar.

/// `name{label="value", ...}`, the braces optional.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Selector {
    pub(super) name: String,
    pub(super) matchers: Vec<Matcher>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Matcher {
    pub(super) label: String,
    pub(super) operator: String,
    pub(super) value: String,
}

/// Every name in the expression that is followed by neither `(` nor a modifier's list, with the matchers behind it. Names of
/// labels in `by (...)` are among them: the caller looks at names that can only be metrics.
pub(super) fn selectors(expression: &str) -> Vec<Selector> {
    let tokens = tokens(expression);
    let mut selectors = Vec::new();
    let mut index = 0;
    while index < tokens.len() {
        let Token::Word(name) = &tokens[index] else {
            index += 1;
            continue;
        };
        index += 1;
        let mut matchers = Vec::new();
        match tokens.get(index) {
            Some(Token::Sign("(")) => continue,
            Some(Token::Sign("{")) => {
                let end = tokens[index..].iter().position(|token| *token == Token::Sign("}"));
                let end = end.map_or(tokens.len(), |end| index + end);
                for matcher in tokens[index + 1..end].split(|token| *token == Token::Sign(",")) {
                    if let [Token::Word(label), Token::Sign(operator), Token::Text(value)] = matcher {
                        matchers.push(Matcher {
                            label: label.to_string(),
                            operator: operator.to_string(),
                            value: value.clone(),
                        });
                    }
                }
                index = end;
            }
            _ => {}
        }
        selectors.push(Selector { name: name.to_string(), matchers });
    }
    selectors
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Text(String),
    Sign(&'a str),
}

fn tokens(expression: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = expression.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '"' | '\'' | '`' => {
                let (text, length) = quoted(rest, first);
                tokens.push(Token::Text(text));
                length
            }
            _ if is_word(first) => {
                let length = rest.find(|other: char| !is_word(other)).unwrap_or(rest.len());
                tokens.push(Token::Word(&rest[..length]));
                length
            }
            _ => {
                let two = ["=~", "!~", "!=", "==", ">=", "<="].into_iter().find(|sign| rest.starts_with(sign));
                let length = two.map_or(first.len_utf8(), str::len);
                tokens.push(Token::Sign(&rest[..length]));
                length
            }
        };
        rest = rest[length..].trim_start();
    }
    tokens
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | ':')
}

/// The text without its quotes, and how long it is with them.
fn quoted(rest: &str, quote: char) -> (String, usize) {
    let mut text = String::new();
    let mut escaped = false;
    for (at, character) in rest.char_indices().skip(1) {
        match character {
            _ if escaped => {
                text.push(character);
                escaped = false;
            }
            '\\' if quote != '`' => escaped = true,
            _ if character == quote => return (text, at + 1),
            _ => text.push(character),
        }
    }
    (text, rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expression: &str, expected: &[&str]) {
        let found: Vec<String> = selectors(expression)
            .iter()
            .map(|selector| {
                let matchers: Vec<String> = selector
                    .matchers
                    .iter()
                    .map(|matcher| format!("{}{}{}", matcher.label, matcher.operator, matcher.value))
                    .collect();
                format!("{}[{}]", selector.name, matchers.join(","))
            })
            .collect();
        assert_eq!(found, expected, "{expression}");
    }

    #[test]
    fn names_and_matchers_are_found_and_functions_are_not() {
        check("a", &["a[]"]);
        check("sum(rate(a_total{x=\"1\", y!~'2|3',}[5m]))", &["a_total[x=1,y!~2|3]", "5m[]"]);
        check("a{} > b:c # d\n or e", &["a[]", "b:c[]", "or[]", "e[]"]);
        check("label_replace(a, \"x(\\\"\", \"b{\", `c\\`, \"d\")", &["a[]"]);
        check("a{x=\"}\"} unless b", &["a[x=}]", "unless[]", "b[]"]);
        for broken in ["a{", "a{x=", "\"", "a{x=\"1\"", "é{x='", "", "{{}}"] {
            selectors(broken);
        }
    }
}
