//! Parses Loki's push request as JSON:
//!
//! ```text
//! {"streams": [{"stream": {"job": "a"},
//!               "values": [["1700000000000000000", "line", {"trace": "t1"}]]}]}
//! ```
//!
//! The push endpoint calls [`parse`]. Everything is counted while it is parsed, because a short
//! text can take much memory. Error messages contain a position but no content of the request,
//! because they end up in the log of an agent.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{
    self, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::{LabelPairs, Malformed, PushLimits};
use crate::logs::push::{PushedEntry, PushedStream};

/// Why a request is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Error {
    Limit(Malformed),
    /// What the parser expected, with line and column.
    Other(String),
}

/// Counts the content of a request while it is parsed.
struct Count {
    limits: PushLimits,
    /// The limit that stopped the parser. Kept here because a serde error can carry only text.
    reached: Option<Malformed>,
}

impl Count {
    fn part<T>(&mut self) -> Seed<'_, T> {
        Seed { count: self, part: PhantomData }
    }

    fn check<T, E: de::Error>(
        &mut self,
        counted: impl FnOnce(&mut PushLimits) -> Result<T, Malformed>,
    ) -> Result<T, E> {
        counted(&mut self.limits).map_err(|malformed| {
            let error = E::custom(malformed.0);
            self.reached = Some(malformed);
            error
        })
    }
}

pub(super) fn parse(bytes: &[u8], limits: PushLimits) -> Result<Vec<PushedStream>, Error> {
    let mut count = Count { limits, reached: None };
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let read = count.part::<Request>().deserialize(&mut deserializer);
    read.and_then(|request| deserializer.end().map(|()| request.0)).map_err(|error| match count.reached {
        Some(malformed) => Error::Limit(malformed),
        None => Error::Other(without_content(&error)),
    })
}

/// Removes the content of the request from an error. serde prints the value that it found, followed
/// by ", expected" and our own words from `expecting`.
fn without_content(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match error.classify() {
        Category::Data => {
            let expected = text.rsplit_once(", expected ").map(|(_, expected)| format!("expected {expected}"));
            expected.unwrap_or_else(|| format!("at line {} column {}", error.line(), error.column()))
        }
        Category::Syntax | Category::Eof | Category::Io => text,
    }
}

/// A part of a request that is parsed from an object or a list. Derived code could not count.
trait Part: Sized {
    /// For messages.
    const EXPECTED: &'static str;
    const EXPECTED_LIST: &'static str = "a list";

    fn from_object<'de, A: MapAccess<'de>>(_: A, _: &mut Count) -> Result<Self, A::Error> {
        Err(A::Error::invalid_type(Unexpected::Map, &Self::EXPECTED))
    }

    fn from_list<'de, A: SeqAccess<'de>>(_: A, _: &mut Count) -> Result<Self, A::Error> {
        Err(A::Error::invalid_type(Unexpected::Seq, &Self::EXPECTED))
    }
}

struct Seed<'a, T> {
    count: &'a mut Count,
    part: PhantomData<T>,
}

impl<'de, T: Part> DeserializeSeed<'de> for Seed<'_, T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Part> Visitor<'de> for Seed<'_, T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(T::EXPECTED)
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
        T::from_object(fields, self.count)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<T, A::Error> {
        T::from_list(items, self.count)
    }
}

impl<T: Part> Part for Vec<T> {
    const EXPECTED: &'static str = T::EXPECTED_LIST;

    fn from_list<'de, A: SeqAccess<'de>>(mut items: A, count: &mut Count) -> Result<Self, A::Error> {
        let mut parts = Self::new();
        while let Some(part) = items.next_element_seed(count.part())? {
            parts.push(part);
        }
        Ok(parts)
    }
}

struct Request(Vec<PushedStream>);

impl Part for Request {
    const EXPECTED: &'static str = "an object with `streams`";

    fn from_object<'de, A: MapAccess<'de>>(mut fields: A, count: &mut Count) -> Result<Self, A::Error> {
        let mut streams = Vec::new();
        while let Some(name) = fields.next_key::<String>()? {
            match name.as_str() {
                "streams" => streams.extend(fields.next_value_seed(count.part::<Vec<_>>())?),
                _ => drop(fields.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Self(streams))
    }
}

impl Part for PushedStream {
    const EXPECTED: &'static str = "an object with `stream` and `values`";
    const EXPECTED_LIST: &'static str = "a list of streams";

    fn from_object<'de, A: MapAccess<'de>>(mut fields: A, count: &mut Count) -> Result<Self, A::Error> {
        count.check(PushLimits::add_stream)?;
        let (mut labels, mut entries) = (LabelPairs::default(), Vec::new());
        while let Some(name) = fields.next_key::<String>()? {
            match name.as_str() {
                "stream" => labels = fields.next_value_seed(count.part())?,
                "values" => entries.extend(fields.next_value_seed(count.part::<Vec<_>>())?),
                _ => drop(fields.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Self { labels: labels.in_order(), entries })
    }
}

impl Part for PushedEntry {
    const EXPECTED: &'static str = "a value of the form [\"nanoseconds\", \"line\"]";
    const EXPECTED_LIST: &'static str = "a list of values";

    fn from_list<'de, A: SeqAccess<'de>>(mut items: A, count: &mut Count) -> Result<Self, A::Error> {
        count.check(PushLimits::add_entry)?;
        let time = nanoseconds(items.next_element()?.ok_or_else(|| A::Error::invalid_length(0, &Self::EXPECTED))?)?;
        let line = items.next_element_seed(Line)?.ok_or_else(|| A::Error::invalid_length(1, &Self::EXPECTED))?;
        let metadata = items.next_element_seed(count.part::<LabelPairs>())?.unwrap_or_default();
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self { time, line, metadata: metadata.pairs })
    }
}

impl Part for LabelPairs {
    const EXPECTED: &'static str = "an object of labels";

    fn from_object<'de, A: MapAccess<'de>>(mut fields: A, count: &mut Count) -> Result<Self, A::Error> {
        let mut labels = Self::default();
        while let Some((name, value)) = fields.next_entry()? {
            let value = label(value)?;
            count.check(|limits| labels.add(name, value, limits))?;
        }
        Ok(labels)
    }
}

/// The value of a label. Loki requires text. Numbers, booleans and null are kept as they are
/// written.
fn label<E: de::Error>(value: &RawValue) -> Result<String, E> {
    let json = value.get();
    let text = match json.as_bytes().first() {
        Some(b'"') => serde_json::from_str(json).ok(),
        Some(b'[' | b'{') => None,
        _ => Some(json.to_owned()),
    };
    text.ok_or_else(|| E::invalid_value(Unexpected::Other("value"), &"a label as text"))
}

/// A time. Loki requires text, because JavaScript numbers cannot hold nanoseconds. Some clients
/// write a number anyway.
fn nanoseconds<E: de::Error>(value: &RawValue) -> Result<i64, E> {
    let digits = value.get().trim_matches('"');
    digits.parse().map_err(|_| E::invalid_value(Unexpected::Other("value"), &"nanoseconds since 1970 as text"))
}

/// A line, as bytes. JavaScript writes half a surrogate pair if it cuts a text in two, and that
/// must not make the request invalid.
struct Line;

impl<'de> DeserializeSeed<'de> for Line {
    type Value = Vec<u8>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<u8>, D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl Visitor<'_> for Line {
    type Value = Vec<u8>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a line as text")
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
        Ok(bytes.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &[u8]) -> Result<Vec<PushedStream>, Error> {
        super::parse(text, PushLimits::default())
    }

    #[test]
    fn a_request_is_read() {
        let text = br#"{"streams":[{"stream":{"job":"b","app":"a"},"values":[["1700000000000000001","one"],
            [5,"two",{"trace":"t1","n":7,"x":-1,"f":1.5,"yes":true,"none":null}]]},{"values":[]}],"other":[1]}"#;
        let streams = parse(text).unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(streams[0].labels, [pair("app", "a"), pair("job", "b")]);
        let [one, two] = &streams[0].entries[..] else { panic!("{streams:?}") };
        assert_eq!((one.time, one.line.as_slice(), one.metadata.len()), (1_700_000_000_000_000_001, &b"one"[..], 0));
        let metadata = [("trace", "t1"), ("n", "7"), ("x", "-1"), ("f", "1.5"), ("yes", "true"), ("none", "null")]
            .map(|(n, v)| pair(n, v));
        assert_eq!((two.time, &two.metadata[..]), (5, &metadata[..]));
        assert_eq!(streams.len(), 2);
        assert_eq!(parse(b"{}"), Ok(Vec::new()));
    }

    #[test]
    fn half_a_character_spoils_nothing() {
        let text = br#"{"streams":[{"stream":{},"values":[["1","cut \ud83d"],["2","whole"]]}]}"#;
        let text = String::from_utf8_lossy(text).replace("\\\\", "\\");
        let streams = parse(text.as_bytes()).unwrap();
        assert!(streams[0].entries[0].line.starts_with(b"cut "));
        assert_eq!(streams[0].entries[1].line, b"whole");
    }

    #[test]
    fn what_is_something_else_is_refused_with_its_place_and_without_its_content() {
        for (text, expected) in [
            ("", "EOF"),
            ("{} secret", "trailing characters"),
            ("[]", "an object with `streams`"),
            (r#""secret""#, "an object with `streams`"),
            (r#"{"streams":7}"#, "a list of streams"),
            (r#"{"streams":"secret"}"#, "a list of streams"),
            (r#"{"streams":[["secret"]]}"#, "an object with `stream` and `values`"),
            (r#"{"streams":[{"stream":[],"values":[]}]}"#, "an object of labels"),
            (r#"{"streams":[{"stream":{"a":["secret"]}}]}"#, "a label as text"),
            (r#"{"streams":[{"stream":{"a":{"secret":1}}}]}"#, "a label as text"),
            (r#"{"streams":[{"stream":{},"values":[["secret","line"]]}]}"#, "nanoseconds since 1970"),
            (r#"{"streams":[{"stream":{},"values":[["secret, expected secret","line"]]}]}"#, "nanoseconds since 1970"),
            (r#"{"streams":[{"stream":{},"values":[["1"]]}]}"#, "[\"nanoseconds\", \"line\"]"),
            (r#"{"streams":[{"stream":{},"values":[["1",2]]}]}"#, "a line as text"),
        ] {
            let Err(Error::Other(error)) = parse(text.as_bytes()) else { panic!("{text}") };
            assert!(error.contains(expected) && error.contains("line 1"), "{text}: {error}");
            assert!(!error.contains("secret"), "{text}: {error}");
        }
    }

    #[test]
    fn reading_ends_where_a_limit_does() {
        let times = |text: &str, count: usize| vec![text; count].join(",");
        let labels = |count: usize| (0..count).map(|at| format!(r#""{at}":"""#)).collect::<Vec<_>>().join(",");
        // The text after the limit is not valid JSON: the parser must stop before it.
        for (text, expected) in [
            (format!(r#"{{"streams":[{},!"#, times("{}", 10_001)), "more than 10000 streams"),
            (format!(r#"{{"streams":[{{"values":[{},!"#, times(r#"["1",""]"#, 100_001)), "more than 100000 lines"),
            (format!(r#"{{"streams":[{{"stream":{{{},!"#, labels(129)), "more than 128 labels"),
            (format!(r#"{{"streams":[{{"stream":{{"a":"{}"}}!"#, "x".repeat(16 << 10)), "16 KiB of labels"),
            (
                format!(r#"{{"streams":[{{"values":[{},!"#, times(&format!(r#"["1","",{{{}}}]"#, labels(100)), 2_001)),
                "more than 200000 labels",
            ),
        ] {
            let Err(Error::Limit(Malformed(words))) = parse(text.as_bytes()) else { panic!("{expected}") };
            assert!(words.contains(expected), "{words}");
        }
    }
}
