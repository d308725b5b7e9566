//! Loki's push request as JSON:
//! `{"streams": [{"stream": {"job": "a"}, "values": [["1700000000000000000", "line", {"trace": "t1"}]]}]}`.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{Limits, Malformed};
use crate::sources::push::{PushedEntry, PushedStream};

#[derive(Deserialize)]
struct Request {
    #[serde(default)]
    streams: Vec<Stream>,
}

#[derive(Deserialize)]
struct Stream {
    #[serde(default)]
    stream: Pairs,
    #[serde(default)]
    values: Vec<Entry>,
}

/// An object of texts. Other values are kept as JSON writes them.
#[derive(Default)]
struct Pairs(Vec<(String, String)>);

struct Entry(PushedEntry);

/// `Err` carries what serde says, which names line and column.
pub(super) fn parse(bytes: &[u8], limits: &mut Limits) -> Result<Result<Vec<PushedStream>, Malformed>, String> {
    // serde would take a list for an object whose fields have no names.
    if bytes.trim_ascii_start().first().is_some_and(|byte| *byte != b'{') {
        return Err("expected an object at line 1 column 1".to_owned());
    }
    let request: Request = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    Ok(checked(request, limits))
}

fn checked(request: Request, limits: &mut Limits) -> Result<Vec<PushedStream>, Malformed> {
    let mut streams = Vec::new();
    for Stream { stream: Pairs(mut labels), values } in request.streams {
        limits.add_stream()?;
        limits.check_fields(&labels)?;
        labels.sort();
        let mut entries = Vec::with_capacity(values.len());
        for Entry(entry) in values {
            limits.add_entry()?;
            limits.check_fields(&entry.metadata)?;
            entries.push(entry);
        }
        streams.push(PushedStream { labels, entries });
    }
    Ok(streams)
}

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Pairs;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object of labels")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, serde_json::Value>()? {
                    let value = match value {
                        serde_json::Value::String(text) => text,
                        other => other.to_string(),
                    };
                    pairs.push((name, value));
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Entry;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a value of the form [\"nanoseconds\", \"line\"]")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Entry, A::Error> {
                let missing = |at| de::Error::invalid_length(at, &Reader);
                let Nanoseconds(time) = items.next_element()?.ok_or_else(|| missing(0))?;
                let Line(line) = items.next_element()?.ok_or_else(|| missing(1))?;
                let Pairs(metadata) = items.next_element()?.unwrap_or_default();
                while items.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Entry(PushedEntry { time, line, metadata }))
            }
        }
        deserializer.deserialize_seq(Reader)
    }
}

/// As bytes: half a surrogate pair, which JavaScript writes when it cuts a text, must not spoil a whole request.
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

/// Loki wants them as text, since JavaScript cannot write such numbers; some clients write a number all the same.
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

    #[test]
    fn a_request_is_read() {
        let text = br#"{"streams":[{"stream":{"job":"b","app":"a"},"values":[["1700000000000000001","one"],
            [5,"two",{"trace":"t1","n":7}]]},{"values":[]}],"other":[1]}"#;
        let streams = parse(text, &mut Limits::default()).unwrap().unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(streams[0].labels, [pair("app", "a"), pair("job", "b")]);
        let [one, two] = &streams[0].entries[..] else { panic!("{streams:?}") };
        assert_eq!((one.time, one.line.as_slice(), one.metadata.len()), (1_700_000_000_000_000_001, &b"one"[..], 0));
        assert_eq!((two.time, &two.metadata[..]), (5, &[pair("trace", "t1"), pair("n", "7")][..]));
        assert_eq!(streams.len(), 2);
        assert_eq!(parse(b"{}", &mut Limits::default()), Ok(Ok(Vec::new())));
    }

    #[test]
    fn half_a_character_spoils_nothing() {
        let text = br#"{"streams":[{"stream":{},"values":[["1","cut \ud83d"],["2","whole"]]}]}"#;
        let text = String::from_utf8_lossy(text).replace("\\\\", "\\");
        let streams = parse(text.as_bytes(), &mut Limits::default()).unwrap().unwrap();
        assert!(streams[0].entries[0].line.starts_with(b"cut "));
        assert_eq!(streams[0].entries[1].line, b"whole");
    }

    #[test]
    fn what_is_something_else_is_refused_with_its_place() {
        for (text, expected) in [
            ("", "EOF"),
            ("[]", "expected"),
            (r#"{"streams":7}"#, "a sequence"),
            (r#"{"streams":[{"stream":[],"values":[]}]}"#, "an object of labels"),
            (r#"{"streams":[{"stream":{},"values":[["x","line"]]}]}"#, "nanoseconds since 1970"),
            (r#"{"streams":[{"stream":{},"values":[["1"]]}]}"#, "[\"nanoseconds\", \"line\"]"),
            (r#"{"streams":[{"stream":{},"values":[["1",2]]}]}"#, "a line as text"),
        ] {
            let error = parse(text.as_bytes(), &mut Limits::default()).unwrap_err();
            assert!(error.contains(expected) && error.contains("line 1"), "{text}: {error}");
        }
    }
}
