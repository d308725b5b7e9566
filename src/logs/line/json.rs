//! Parses JSON records: every member becomes a field with a dotted path, and one of them is the
//! message. Called by `line`.
//!
//! Members are collected while the text is parsed, so an object that is cut off in the middle still
//! gives the members before the cut. Depth, number of fields and path length are limited.

use std::fmt;
use std::sync::LazyLock;

use regex::Regex;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::Field;

/// Names of the message field, most likely first.
#[rustfmt::skip]
const MESSAGE_NAMES: [&str; 13] = [
    "msg", "message", "Message", "@m", "@mt", "RenderedMessage", "log", "event", "text", "body", "short_message", "MESSAGE",
    "@message",
];

/// Names that user data often has too. They name the message only at the top level or inside
/// `ENVELOPES`.
const WEAK_NAMES: [&str; 4] = ["log", "event", "text", "body"];
/// Objects that are known to contain log records.
#[rustfmt::skip]
const ENVELOPES: [&str; 12] = [
    "log", "event", "record", "message", "msg", "body", "fields", "attributes", "properties", "jsonPayload", "_source", "log_processed",
];

/// Deeper objects are skipped.
const MAX_DEPTH: u8 = 8;
/// Real records have fewer fields. Together with `MAX_PATH`, this limits the memory for paths.
const MAX_FIELDS: usize = 4096;
const MAX_PATH: usize = 256;

/// The members of an object that could be parsed.
#[derive(Debug, Default)]
pub(super) struct Object {
    pub(super) fields: Vec<Field>,
    /// Index of the message in `fields`.
    pub(super) message: Option<usize>,
    /// Length of the object in the text. `None` if the object is damaged or cut off.
    pub(super) length: Option<usize>,
}

/// Parses the object at the start of the text. Returns `None` if it has no members that become
/// fields.
pub(super) fn parse(text: &str) -> Option<Object> {
    let object = collect(text);
    let is_whole = object.as_ref().is_some_and(|object| object.length.is_some());
    if is_whole || !text.contains("\\ud") && !text.contains("\\uD") {
        return object;
    }
    // JavaScript writes half a surrogate pair when it cuts a text in the middle of a pair. It must
    // not hide the members after it. The replacement has the same length, so `length` is still
    // correct.
    static SURROGATE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}").expect("a constant that a test compiles"));
    collect(&SURROGATE.replace_all(text, r"\ufffd"))
}

fn collect(text: &str) -> Option<Object> {
    let mut collector = Collector::default();
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    let length = match stream.next() {
        Some(Ok(_)) => Some(stream.byte_offset()),
        _ => None,
    };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    // An error only means that there is nothing more to collect.
    let _ = Value(&mut collector).deserialize(&mut deserializer);
    if collector.fields.is_empty() {
        return None;
    }
    Some(Object { fields: collector.fields, message: collector.message.map(|(_, _, index)| index), length })
}

#[derive(Default)]
struct Collector {
    fields: Vec<Field>,
    path: String,
    depth: u8,
    /// Depth, rank of the name, and index of the best message so far.
    message: Option<(u8, usize, usize)>,
}

impl Collector {
    fn add(&mut self, value: String) -> usize {
        let field = Field { path: self.path.clone(), depth: self.depth.saturating_sub(1), value };
        self.fields.push(field);
        self.fields.len() - 1
    }

    fn has_room(&self) -> bool {
        self.fields.len() < MAX_FIELDS && self.path.len() <= MAX_PATH
    }

    fn add_text(&mut self, value: &str) {
        if !self.has_room() {
            return;
        }
        let index = self.add(super::clean::text(value).into_owned());
        let field = &self.fields[index];
        let Some(rank) = MESSAGE_NAMES.iter().position(|name| *name == field.leaf()) else { return };
        if WEAK_NAMES.contains(&field.leaf()) && !is_in_envelopes(field) {
            return;
        }
        let candidate = (field.depth, rank);
        if self.message.is_none_or(|(depth, rank, _)| candidate <= (depth, rank)) && !value.trim().is_empty() {
            self.message = Some((candidate.0, candidate.1, index));
        }
    }

    fn add_number(&mut self, value: impl fmt::Display) {
        if self.has_room() {
            self.add(value.to_string());
        }
    }
}

/// Whether the field is at the top level or inside objects that are all known to contain log
/// records.
fn is_in_envelopes(field: &Field) -> bool {
    let Some((parents, _)) = field.path.rsplit_once('.') else { return true };
    field.depth == 0 || parents.split('.').all(|parent| ENVELOPES.contains(&parent))
}

/// Collects one value of any type under the collector's current path.
struct Value<'c>(&'c mut Collector);

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let collector = self.0;
        if collector.depth >= MAX_DEPTH {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(());
        }
        collector.depth += 1;
        let parent = collector.path.len();
        while let Some(name) = map.next_key::<String>()? {
            if parent > 0 {
                collector.path.push('.');
            }
            // A path that is too long is not kept, so it may be truncated.
            collector.path.extend(name.chars().take(MAX_PATH + 1));
            map.next_value_seed(Value(collector))?;
            collector.path.truncate(parent);
        }
        collector.depth -= 1;
        Ok(())
    }

    /// Elements of a list are user data and are skipped, except in an error field: there they are a
    /// chain of causes.
    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<(), A::Error> {
        let collector = self.0;
        let leaf = collector.path.rsplit('.').next().unwrap_or_default();
        if super::ERROR_NAMES.contains(&leaf) {
            while sequence.next_element_seed(Value(collector))?.is_some() {}
        } else {
            while sequence.next_element::<IgnoredAny>()?.is_some() {}
        }
        Ok(())
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        self.0.add_text(value);
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.0.add_number(value);
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.0.add_number(value);
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.0.add_number(value);
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.0.add_number(value);
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `expected` lists the fields as `path=value`, separated by spaces. A `*` marks the message.
    fn check(text: &str, expected: &str) {
        let object = parse(text).unwrap_or_default();
        let shown = |(index, field): (usize, &Field)| {
            let mark = if object.message == Some(index) { "*" } else { "" };
            format!("{mark}{}={}", field.path, field.value)
        };
        let found: Vec<String> = object.fields.iter().enumerate().map(shown).collect();
        assert_eq!(found.join(" "), expected, "{text}");
    }

    #[test]
    fn flattens() {
        check(r#"{"msg":"m","n":1,"f":1.5,"neg":-2,"b":true,"z":null}"#, "*msg=m n=1 f=1.5 neg=-2 b=true");
        check(r#"{"a":{"b":{"msg":"m"}},"c":2}"#, "*a.b.msg=m c=2");
        check(r#"{"list":["msg",{"msg":"no"}],"msg":"m"}"#, "*msg=m");
        check(
            r#"{"msg":"m","exception":[{"exc_value":"a","frames":[{"locals":"no"}]},{"exc_value":"b"}]}"#,
            "*msg=m exception.exc_value=a exception.exc_value=b",
        );
        check("{}", "");
        check("{not json", "");
    }

    #[test]
    fn finds_the_message() {
        check(r#"{"event":"e","message":"m","text":"t"}"#, "event=e *message=m text=t");
        check(r#"{"data":{"msg":"deep"},"body":"b"}"#, "data.msg=deep *body=b");
        check(r#"{"msg":"first","msg":"last"}"#, "msg=first *msg=last");
        check(r#"{"log":{"level":"warn"},"msg":7,"message":"m"}"#, "log.level=warn msg=7 *message=m");
        check(r#"{"msg":"","text":"t"}"#, "msg= *text=t");
        check(r#"{"request":{"body":"b","text":"t"},"n":1}"#, "request.body=b request.text=t n=1");
        check(r#"{"jsonPayload":{"event":"e"}}"#, "*jsonPayload.event=e");
        check(r#"{"a.b":"x","log.text":"t"}"#, "a.b=x log.text=t");
    }

    #[test]
    fn keeps_what_came_before_the_cut() {
        check(r#"{"msg":"m","a":{"b":"x","c":"cut of"#, "*msg=m a.b=x");
        check(r#"{"msg":"m","a":[1,2"#, "*msg=m");
        check(r#"{"msg":"m"#, "");
    }

    #[test]
    fn survives_half_a_surrogate_pair() {
        check(r#"{"a":"x\ud83d","msg":"m"}"#, "a=x\u{fffd} *msg=m");
        check(r#"{"a":"\ud83d\ude00","msg":"m"}"#, "a=😀 *msg=m");
        check(r#"{"a":"\uD83D\\ud83d","msg":"m","cut"#, "a=\u{fffd}\\ufffd *msg=m");
    }

    #[test]
    fn measures_whole_objects_only() {
        assert_eq!(parse(r#"{"a":"b"} tail"#).unwrap().length, Some(9));
        assert_eq!(parse(r#"{"a":"b","#).unwrap().length, None);
    }

    #[test]
    fn is_bounded() {
        let deep = format!("{}1{}", r#"{"a":"x","b":"#.repeat(200), "}".repeat(200));
        assert_eq!(parse(&deep).unwrap().fields.len(), usize::from(MAX_DEPTH));
        let wide = format!("{{{}\"msg\":1}}", r#""k":1,"#.repeat(10_000));
        assert_eq!(parse(&wide).unwrap().fields.len(), MAX_FIELDS);
        let long_name = format!(r#"{{"{}":{{"a":1}},"b":2}}"#, "é".repeat(10_000));
        assert_eq!(parse(&long_name).unwrap().fields.len(), 1);
    }
}
