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

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;

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
    let read = Request(&mut count).deserialize(&mut deserializer);
    read.and_then(|streams| deserializer.end().map(|()| streams)).map_err(|error| match count.reached {
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

struct Request<'a>(&'a mut Count);

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum RequestKey {
    Streams,
    #[serde(other)]
    Other,
}

impl<'de> DeserializeSeed<'de> for Request<'_> {
    type Value = Vec<PushedStream>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Request<'_> {
    type Value = Vec<PushedStream>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object with `streams`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut streams = Vec::new();
        while let Some(key) = map.next_key()? {
            match key {
                RequestKey::Streams => streams.extend(map.next_value_seed(Streams(self.0))?),
                RequestKey::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(streams)
    }
}

struct Streams<'a>(&'a mut Count);

impl<'de> DeserializeSeed<'de> for Streams<'_> {
    type Value = Vec<PushedStream>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Streams<'_> {
    type Value = Vec<PushedStream>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of streams")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut streams = Vec::new();
        while let Some(stream) = items.next_element_seed(Stream(self.0))? {
            streams.push(stream);
        }
        Ok(streams)
    }
}

struct Stream<'a>(&'a mut Count);

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum StreamKey {
    Stream,
    Values,
    #[serde(other)]
    Other,
}

impl<'de> DeserializeSeed<'de> for Stream<'_> {
    type Value = PushedStream;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<PushedStream, D::Error> {
        self.0.check(PushLimits::add_stream)?;
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Stream<'_> {
    type Value = PushedStream;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object with `stream` and `values`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PushedStream, A::Error> {
        let (mut labels, mut entries) = (LabelPairs::default(), Vec::new());
        while let Some(key) = map.next_key()? {
            match key {
                StreamKey::Stream => labels = map.next_value_seed(Pairs(self.0))?,
                StreamKey::Values => entries.extend(map.next_value_seed(Entries(self.0))?),
                StreamKey::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(PushedStream { labels: labels.in_order(), entries })
    }
}

struct Entries<'a>(&'a mut Count);

impl<'de> DeserializeSeed<'de> for Entries<'_> {
    type Value = Vec<PushedEntry>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Entries<'_> {
    type Value = Vec<PushedEntry>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of values")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = items.next_element_seed(Entry(self.0))? {
            entries.push(entry);
        }
        Ok(entries)
    }
}

struct Entry<'a>(&'a mut Count);

impl<'de> DeserializeSeed<'de> for Entry<'_> {
    type Value = PushedEntry;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<PushedEntry, D::Error> {
        self.0.check(PushLimits::add_entry)?;
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Entry<'_> {
    type Value = PushedEntry;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value of the form [\"nanoseconds\", \"line\"]")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<PushedEntry, A::Error> {
        let Some(Nanoseconds(time)) = items.next_element()? else { return Err(de::Error::invalid_length(0, &self)) };
        let Some(Line(line)) = items.next_element()? else { return Err(de::Error::invalid_length(1, &self)) };
        let metadata = items.next_element_seed(Pairs(self.0))?.unwrap_or_default();
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(PushedEntry { time, line, metadata: metadata.pairs })
    }
}

/// An object of labels.
struct Pairs<'a>(&'a mut Count);

impl<'de> DeserializeSeed<'de> for Pairs<'_> {
    type Value = LabelPairs;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<LabelPairs, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Pairs<'_> {
    type Value = LabelPairs;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object of labels")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LabelPairs, A::Error> {
        let mut fields = LabelPairs::default();
        while let Some((name, Scalar(value))) = map.next_entry::<String, Scalar>()? {
            self.0.check(|limits| fields.add(name, value, limits))?;
        }
        Ok(fields)
    }
}

/// The value of a label. Loki requires text. Numbers, booleans and null are kept as JSON writes
/// them.
struct Scalar(String);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Scalar;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a label as text")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar(text.to_owned()))
            }

            fn visit_bool<E: de::Error>(self, value: bool) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Scalar, E> {
                Ok(Scalar(serde_json::Value::from(value).to_string()))
            }

            fn visit_unit<E: de::Error>(self) -> Result<Scalar, E> {
                Ok(Scalar("null".to_owned()))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// A line, as bytes. JavaScript writes half a surrogate pair if it cuts a text in two, and that
/// must not make the request invalid.
struct Line(Vec<u8>);

impl<'de> Deserialize<'de> for Line {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Line;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a line as text")
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Line, E> {
                Ok(Line(bytes.to_vec()))
            }
        }
        deserializer.deserialize_bytes(Reader)
    }
}

/// A time. Loki requires text, because JavaScript numbers cannot hold nanoseconds. Some clients
/// write a number anyway.
struct Nanoseconds(i64);

impl<'de> Deserialize<'de> for Nanoseconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Nanoseconds;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("nanoseconds since 1970 as text")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Nanoseconds, E> {
                let number = text.parse().map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))?;
                Ok(Nanoseconds(number))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Nanoseconds, E> {
                let number =
                    i64::try_from(number).map_err(|_| E::invalid_value(de::Unexpected::Unsigned(number), &self))?;
                Ok(Nanoseconds(number))
            }
        }
        deserializer.deserialize_any(Reader)
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
