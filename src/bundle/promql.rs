//! Finds the metrics in a PromQL expression, with their label matchers, and adds matchers. `bundle`
//! and `rule_check` call it.
//!
//! This is not a parser: `promtool` checks the grammar.

/// `name{label="value", ...}`. The braces are optional.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PromqlSelector {
    pub(crate) name: String,
    pub(crate) matchers: Vec<LabelMatcher>,
    room: Room,
}

/// Where to insert further matchers, as an offset into the expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// The selector has no braces.
    After(usize),
    /// Before the closing brace.
    Inside { at: usize, needs_comma: bool },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LabelMatcher {
    pub(crate) label: String,
    pub(crate) operator: String,
    pub(crate) value: String,
}

/// Returns every name in the expression that is not followed by `(`, with its matchers. The names
/// include labels in `by (...)`, so the caller must consider only names that can be metrics.
pub(crate) fn selectors(expression: &str) -> Vec<PromqlSelector> {
    let tokens = tokens(expression);
    let mut selectors = Vec::new();
    let mut index = 0;
    while index < tokens.len() {
        let (at, PromqlToken::Word(name)) = &tokens[index] else {
            index += 1;
            continue;
        };
        index += 1;
        let mut matchers = Vec::new();
        let mut room = Room::After(at + name.len());
        let sign = |wanted| move |(_, token): &(usize, PromqlToken<'_>)| *token == PromqlToken::Sign(wanted);
        match tokens.get(index).map(|(_, token)| token) {
            Some(PromqlToken::Sign("(")) => continue,
            Some(PromqlToken::Sign("{")) => {
                let end = tokens[index..].iter().position(sign("}"));
                let end = end.map_or(tokens.len(), |end| index + end);
                let inside = &tokens[index + 1..end];
                let needs_comma = inside.last().is_some_and(|last| !sign(",")(last));
                room = Room::Inside { at: tokens.get(end).map_or(expression.len(), |(at, _)| *at), needs_comma };
                for matcher in inside.split(sign(",")) {
                    if let [
                        (_, PromqlToken::Word(label)),
                        (_, PromqlToken::Sign(operator)),
                        (_, PromqlToken::Text(value)),
                    ] = matcher
                    {
                        matchers.push(LabelMatcher {
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
        selectors.push(PromqlSelector { name: name.to_string(), matchers, room });
    }
    selectors
}

/// Returns the labels in the lists of `by`, `without`, `on`, `ignoring`, `group_left` and
/// `group_right`.
pub(crate) fn listed_labels(expression: &str) -> Vec<String> {
    const LISTS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
    let tokens = tokens(expression);
    let mut labels = Vec::new();
    for (index, pair) in tokens.windows(2).enumerate() {
        if let [(_, PromqlToken::Word(word)), (_, PromqlToken::Sign("("))] = pair
            && LISTS.contains(word)
        {
            let inside = tokens[index + 2..].iter().map(|(_, token)| token);
            labels.extend(inside.take_while(|token| **token != PromqlToken::Sign(")")).filter_map(
                |token| match token {
                    PromqlToken::Word(label) => Some(label.to_string()),
                    _ => None,
                },
            ));
        }
    }
    labels
}

/// Returns the expressions that a template sends to Prometheus: `{{ query "..." }}` and `{{ printf
/// "..." $labels.x | query }}`. Placeholders of `printf` become empty texts.
pub(crate) fn queries_of_template(template: &str) -> Vec<String> {
    let mut queries = Vec::new();
    let mut rest = template;
    while let Some(start) = rest.find("{{") {
        rest = &rest[start + 2..];
        let end = end_of_action(rest);
        let tokens = tokens(&rest[..end]);
        if tokens.iter().any(|(_, token)| *token == PromqlToken::Word("query")) {
            queries.extend(tokens.into_iter().filter_map(|(_, token)| match token {
                PromqlToken::Text(text) => Some(text.replace("%q", "\"\"").replace("%s", "").replace("%v", "")),
                _ => None,
            }));
        }
        rest = &rest[end..];
    }
    queries
}

/// Returns the offset of the first `}}` that is not inside a quoted text.
fn end_of_action(text: &str) -> usize {
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        at += match first {
            '"' | '\'' | '`' => quoted(&text[at..], first).1,
            '}' if text[at..].starts_with("}}") => return at,
            _ => first.len_utf8(),
        };
    }
    text.len()
}

/// Returns the expression with `extra`, matchers without braces, added to the selectors of the
/// wanted metrics. Everything else stays unchanged.
pub(crate) fn with_matchers(expression: &str, extra: &str, is_wanted: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    let mut copied = 0;
    for selector in selectors(expression).iter().filter(|selector| is_wanted(&selector.name)) {
        let (at, added) = match selector.room {
            Room::After(at) => (at, format!("{{{extra}}}")),
            Room::Inside { at, needs_comma: true } => (at, format!(",{extra}")),
            Room::Inside { at, needs_comma: false } => (at, extra.to_owned()),
        };
        text += &expression[copied..at];
        text += &added;
        copied = at;
    }
    text + &expression[copied..]
}

/// Returns true if the text is a list of matchers such as `label="value", other=~"regex"`, and
/// nothing else.
pub(crate) fn is_list_of_matchers(text: &str) -> bool {
    let tokens: Vec<PromqlToken<'_>> = tokens(text).into_iter().map(|(_, token)| token).collect();
    let is_matcher = |matcher: &[PromqlToken<'_>]| match matcher {
        [PromqlToken::Word(label), PromqlToken::Sign("=" | "!=" | "=~" | "!~"), PromqlToken::Text(_)] => {
            !label.contains(':') && !label.starts_with(|first: char| first.is_ascii_digit())
        }
        _ => false,
    };
    tokens.split(|token| *token == PromqlToken::Sign(",")).all(is_matcher)
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PromqlToken<'a> {
    Word(&'a str),
    Text(String),
    Sign(&'a str),
}

/// Returns the tokens of an expression, each with its offset.
fn tokens(expression: &str) -> Vec<(usize, PromqlToken<'_>)> {
    let mut tokens = Vec::new();
    let mut rest = expression.trim_start();
    while let Some(first) = rest.chars().next() {
        let at = expression.len() - rest.len();
        let length = match first {
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '"' | '\'' | '`' => {
                let (text, length) = quoted(rest, first);
                tokens.push((at, PromqlToken::Text(text)));
                length
            }
            _ if is_word(first) => {
                let length = rest.find(|other: char| !is_word(other)).unwrap_or(rest.len());
                tokens.push((at, PromqlToken::Word(&rest[..length])));
                length
            }
            _ => {
                let two = ["=~", "!~", "!=", "==", ">=", "<="].into_iter().find(|sign| rest.starts_with(sign));
                let length = two.map_or(first.len_utf8(), str::len);
                tokens.push((at, PromqlToken::Sign(&rest[..length])));
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

/// Returns the text without its quotes, and its length with quotes.
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

    #[test]
    fn lists_of_labels_are_found() {
        let found = listed_labels("sum by (a, b) (on) / on(c) group_left () sum without(d)(x{by=\"(e)\"}) # by (f)");
        assert_eq!(found, ["a", "b", "c", "d"]);
        for broken in ["by (", "by (a", "on(", "by"] {
            listed_labels(broken);
        }
    }

    #[test]
    fn queries_of_templates_are_found() {
        let template = r#"a {{ with query "a{b!=\"}}\"}" }}{{ . | first | label "c" }}{{ end }} query "no"
            {{ printf "d{e=%q,f=\"%s\"}" $labels.e $labels.f | query | first }} {{ `query "g"` }}"#;
        assert_eq!(queries_of_template(template), ["a{b!=\"}}\"}", "d{e=\"\",f=\"\"}"]);
        for broken in ["{{", "{{ query \"", "{{ query `é", "}}{{}}"] {
            queries_of_template(broken);
        }
    }

    #[test]
    fn matchers_are_added_to_some_metrics() {
        fn check(expression: &str, expected: &str) {
            assert_eq!(with_matchers(expression, "e=\"p\"", |name| name.starts_with("a_")), expected);
        }
        check("a_b", "a_b{e=\"p\"}");
        check("sum by (a) (rate(a_b[5m])) / b", "sum by (a) (rate(a_b{e=\"p\"}[5m])) / b");
        check("a_b{} + a_c{x=\"}\"} + a_d{x='1', }", "a_b{e=\"p\"} + a_c{x=\"}\",e=\"p\"} + a_d{x='1', e=\"p\"}");
        check("a_b{x=~\"$x\"}[$__rate_interval] # a_b", "a_b{x=~\"$x\",e=\"p\"}[$__rate_interval] # a_b");
        check("a_b(c) or b:a_c:d", "a_b(c) or b:a_c:d");
        for good in ["a=\"b\"", "a=~'b|c', d!=`e`"] {
            assert!(is_list_of_matchers(good), "{good}");
        }
        for bad in ["", "a", "a=b", "a=\"b\",", "{a=\"b\"}", "a:b=\"c\"", "a==\"b\"", "1=\"b\"", "a=\"b\"} or up{"] {
            assert!(!is_list_of_matchers(bad), "{bad}");
        }
    }
}
