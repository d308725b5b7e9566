//! A YAML text as a tree in which every value knows its position, so that every problem can be
//! shown with line and column.
//!
//! `serde_yaml` reports positions only in errors. So every value gets a number in the order of
//! reading. To find the position of value N, the text is read again and the reader fails on purpose
//! at value N. This costs one more pass for each problem shown, and nothing for a configuration
//! without problems. It needs no second YAML parser that might read the text differently, and it is
//! exact in block and flow style. An alias has the position of its anchor.
//!
//! saphyr-parser 0.3, which keeps positions, is not used. It reports a bad escape at the beginning
//! of its text, accepts control characters, and leaves it to its caller to expand aliases and to
//! find out which scalars are numbers.
//!
//! What can go wrong: YAML that does not parse, more than one document, too many values (aliases of
//! aliases).

use std::cell::Cell;
use std::fmt;

use serde::de::{self, DeserializeSeed, EnumAccess, IgnoredAny, MapAccess, SeqAccess, VariantAccess, Visitor};

use super::problem::ConfigProblem;

/// A value that an alias stands for counts each time. The limit prevents a small text from becoming
/// a huge tree.
const MAX_VALUES: usize = 200_000;

/// A YAML text: the user's file or a preset.
#[derive(Debug)]
pub(crate) struct Document {
    /// The name in messages: the path, or `preset NAME`.
    pub(crate) name: String,
    pub(crate) text: String,
}

/// Position of a value: number `node` of document `document`, both in the order of reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct YamlPosition {
    pub(crate) document: usize,
    pub(crate) node: usize,
}

#[derive(Debug)]
pub(crate) struct YamlNode {
    pub(crate) place: YamlPosition,
    pub(crate) kind: YamlValue,
}

#[derive(Debug)]
pub(crate) enum YamlValue {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<YamlNode>),
    /// In the order of the text. A key can occur twice.
    Mapping(Vec<(YamlNode, YamlNode)>),
    /// A value with a tag such as `!secret`. No field accepts tags.
    Tagged(String),
}

impl YamlNode {
    /// Returns a description of the value for messages.
    pub(crate) fn describe(&self) -> String {
        match &self.kind {
            YamlValue::Null => "nothing".to_owned(),
            YamlValue::Bool(value) => format!("the boolean {value}"),
            YamlValue::Integer(value) => format!("the number {value}"),
            YamlValue::Float(value) => format!("the number {value}"),
            YamlValue::Text(value) => format!("the text {}", quote(value)),
            YamlValue::List(_) => "a list".to_owned(),
            YamlValue::Mapping(_) => "a mapping".to_owned(),
            YamlValue::Tagged(tag) => format!("a value with the tag !{tag}"),
        }
    }
}

/// Returns the text in quotes, on one line and with limited length.
pub(crate) fn quote(text: &str) -> String {
    const MAX_CHARS: usize = 60;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

impl Document {
    /// Parses the complete text. `index` becomes the document number in the positions of its
    /// values.
    pub(crate) fn parse(&self, index: usize) -> Result<YamlNode, ConfigProblem> {
        let walk = Walk { document: index, visited: Cell::new(0), stop_at: None };
        let deserializer = serde_yaml::Deserializer::from_str(&self.text);
        NodeSeed(&walk).deserialize(deserializer).map_err(|error| {
            // If the parser reports no position, the position of the last value that was read is
            // used.
            let last = YamlPosition { document: index, node: walk.visited.get().saturating_sub(1) };
            let position = error.location().map_or_else(|| self.position(last), |at| (at.line(), at.column()));
            self.explain(&error, position)
        })
    }

    /// Returns line and column of a value, both counted from 1.
    pub(crate) fn position(&self, place: YamlPosition) -> (usize, usize) {
        let walk = Walk { document: place.document, visited: Cell::new(0), stop_at: Some(place.node) };
        let stopped = NodeSeed(&walk).deserialize(serde_yaml::Deserializer::from_str(&self.text));
        location_of(stopped.err().as_ref())
    }

    fn explain(&self, error: &serde_yaml::Error, (line, column): (usize, usize)) -> ConfigProblem {
        // The parser includes the position in its message. It is removed, because our messages
        // start with the position.
        let sentence = error.to_string().replacen(&format!(" at line {line} column {column}"), "", 1);
        let at = |(line, column), message: String, help: &str| {
            let help = Some(help.to_owned());
            ConfigProblem { file: self.name.clone(), line, column, message, help }
        };
        if sentence.contains("more than one document") {
            let message = "more than one YAML document in the file".to_owned();
            at(self.second_document(), message, "remove this `---` and merge the two parts")
        } else if sentence.ends_with(TOO_MANY_VALUES) || sentence.contains("repetition limit") {
            let message = format!("too many values: an alias counts for all that it stands for, up to {MAX_VALUES}");
            at((line, column), message, "write the values without aliases of aliases")
        } else if sentence.contains("recursion limit") {
            let help = "no field of the configuration is nested more than five levels deep";
            at((line, column), "nested too deeply".to_owned(), help)
        } else if sentence.contains("control characters") {
            let position = position_of(&self.text, self.text.find(is_control).unwrap_or(0));
            let message = "not valid YAML: control characters are not allowed".to_owned();
            at(position, message, "remove the invisible character here")
        } else {
            at((line, column), format!("not valid YAML: {sentence}"), self.help_for(line, &sentence))
        }
    }

    fn help_for(&self, line: usize, sentence: &str) -> &'static str {
        let text_line = self.text.lines().nth(line - 1).unwrap_or_default();
        let indentation = &text_line[..text_line.len() - text_line.trim_start().len()];
        if indentation.contains('\t') {
            "indent with spaces: YAML does not allow tabs there"
        } else if sentence.contains("mapping values are not allowed") {
            "put text that contains `: ` in quotes, and check the indentation"
        } else if sentence.contains("unknown anchor") {
            "write the anchor (`&name`) above its first use (`*name`)"
        } else if sentence.contains("escape") {
            "put regular expressions and other text with backslashes in 'single quotes'"
        } else {
            "check the indentation, brackets and quotes of this line and the ones above it"
        }
    }

    /// Returns the position of the `---` that begins the second document. If there is none, the
    /// position of its first value.
    fn second_document(&self) -> (usize, usize) {
        let walk = Walk { document: 0, visited: Cell::new(0), stop_at: Some(0) };
        let second = serde_yaml::Deserializer::from_str(&self.text).nth(1);
        let stopped = second.and_then(|deserializer| NodeSeed(&walk).deserialize(deserializer).err());
        let (line, column) = location_of(stopped.as_ref());
        let marker =
            self.text.lines().take(line).collect::<Vec<_>>().into_iter().rposition(|text| text.starts_with("---"));
        marker.map_or((line, column), |index| (index + 1, 1))
    }
}

/// Returns line and column of a byte offset, both counted from 1.
pub(crate) fn position_of(text: &str, offset: usize) -> (usize, usize) {
    let before = &text[..offset];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

fn location_of(error: Option<&serde_yaml::Error>) -> (usize, usize) {
    let location = error.and_then(serde_yaml::Error::location);
    location.map_or((1, 1), |location| (location.line(), location.column()))
}

fn is_control(character: char) -> bool {
    character.is_control() && !matches!(character, '\n' | '\r' | '\t' | '\u{85}')
}

const TOO_MANY_VALUES: &str = "too many values";

/// The state of one reading of a document.
struct Walk {
    document: usize,
    visited: Cell<usize>,
    /// The reader fails at this value, so that the error contains its position.
    stop_at: Option<usize>,
}

impl Walk {
    /// Numbers the value that is being read.
    fn enter<E: de::Error>(&self) -> Result<YamlPosition, E> {
        let node = self.visited.replace(self.visited.get() + 1);
        if self.stop_at == Some(node) {
            return Err(E::custom("here"));
        }
        if node >= MAX_VALUES {
            return Err(E::custom(TOO_MANY_VALUES));
        }
        Ok(YamlPosition { document: self.document, node })
    }

    fn leaf<E: de::Error>(&self, kind: YamlValue) -> Result<YamlNode, E> {
        Ok(YamlNode { place: self.enter()?, kind })
    }
}

struct NodeSeed<'walk>(&'walk Walk);

impl<'de> DeserializeSeed<'de> for NodeSeed<'_> {
    type Value = YamlNode;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<YamlNode, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for NodeSeed<'_> {
    type Value = YamlNode;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<YamlNode, E> {
        self.0.leaf(YamlValue::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<YamlNode, E> {
        self.0.leaf(YamlValue::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<YamlNode, E> {
        self.0.leaf(YamlValue::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<YamlNode, E> {
        self.0.leaf(YamlValue::Integer(value.into()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<YamlNode, E> {
        self.0.leaf(YamlValue::Integer(value.into()))
    }

    fn visit_i128<E: de::Error>(self, value: i128) -> Result<YamlNode, E> {
        self.0.leaf(YamlValue::Integer(value))
    }

    fn visit_u128<E: de::Error>(self, value: u128) -> Result<YamlNode, E> {
        self.0.leaf(YamlValue::Integer(i128::try_from(value).unwrap_or(i128::MAX)))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<YamlNode, E> {
        self.0.leaf(YamlValue::Float(value))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<YamlNode, E> {
        self.0.leaf(YamlValue::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<YamlNode, A::Error> {
        let place = self.0.enter()?;
        let mut nodes = Vec::new();
        while let Some(node) = items.next_element_seed(NodeSeed(self.0))? {
            nodes.push(node);
        }
        Ok(YamlNode { place, kind: YamlValue::List(nodes) })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<YamlNode, A::Error> {
        let place = self.0.enter()?;
        let mut nodes = Vec::new();
        while let Some(entry) = entries.next_entry_seed(NodeSeed(self.0), NodeSeed(self.0))? {
            nodes.push(entry);
        }
        Ok(YamlNode { place, kind: YamlValue::Mapping(nodes) })
    }

    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<YamlNode, A::Error> {
        let place = self.0.enter()?;
        let (tag, content) = access.variant::<String>()?;
        content.newtype_variant::<IgnoredAny>()?;
        Ok(YamlNode { place, kind: YamlValue::Tagged(tag) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn document(text: &str) -> Document {
        Document { name: "c.yaml".to_owned(), text: text.to_owned() }
    }

    fn visit(node: &YamlNode, each: &mut impl FnMut(&YamlNode)) {
        each(node);
        match &node.kind {
            YamlValue::List(items) => items.iter().for_each(|item| visit(item, each)),
            YamlValue::Mapping(entries) => entries.iter().for_each(|(key, value)| {
                visit(key, each);
                visit(value, each);
            }),
            _ => {}
        }
    }

    #[test]
    fn every_value_knows_its_position() {
        let text = "# größer\nk1: v1\nk2: &a1 {k3: v3, k4: [v4, {k5: v5}]}\nk6:\n- v6\n-   k7: v7\n    k8: größ8\n- *a1\n- v9\n";
        let document = document(text);
        let mut n_values = 0;
        visit(&document.parse(0).unwrap(), &mut |node| {
            if let YamlValue::Text(value) = &node.kind {
                assert_eq!(document.position(node.place), position_of(text, text.find(value).unwrap()), "{value}");
                n_values += 1;
            }
        });
        assert_eq!(n_values, 22, "the five of the alias count twice");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[ab0:\\-{}\\[\\],&*!|>'\"#\t\n ~<.?%@ä\u{0}]{0,60}") {
            let document = document(&text);
            match document.parse(0) {
                Ok(root) => visit(&root, &mut |node| {
                    let (line, column) = document.position(node.place);
                    assert!(line >= 1 && column >= 1);
                }),
                Err(problem) => assert!(problem.line >= 1 && problem.column >= 1),
            }
        }
    }
}
