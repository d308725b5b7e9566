//! Parses one line of `journalctl -o json`: a journal entry with its fields.
//!
//! A value is a string, an array of bytes if it is not printable text, or null if journalctl
//! omitted it. A field that occurs more than once is an array of such values. Lines that are not
//! entries are ignored.

use std::hash::Hasher;

use serde_json::{Map, Value};
use siphasher::sip::SipHasher13;

use crate::logs::streams::AttachedFields;
use crate::util::clock::TimeMs;

/// Fields that together identify a stream. Not every entry has all of them.
const STREAM: [&str; 5] = ["_STREAM_ID", "_SYSTEMD_UNIT", "SYSLOG_IDENTIFIER", "_PID", "CONTAINER_ID"];
/// Longer values are dropped: rule conditions do not need them.
const MAX_FIELD_BYTES: usize = 4096;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct JournalEntry {
    pub(super) cursor: String,
    pub(super) time: TimeMs,
    /// Empty if the entry has no message.
    pub(super) message: Vec<u8>,
    /// All other fields with a single text value of at most `MAX_FIELD_BYTES`.
    pub(super) fields: AttachedFields,
    /// Hash of the fields in `STREAM`.
    pub(super) stream: u64,
}

/// Returns `None` if the line is not an entry.
pub(super) fn parse(line: &[u8]) -> Option<JournalEntry> {
    let mut members: Map<String, Value> = serde_json::from_slice(line).ok()?;
    let cursor = match members.remove("__CURSOR")? {
        Value::String(cursor) => cursor,
        _ => return None,
    };
    let microseconds = |name| members.get(name).and_then(Value::as_str).and_then(|text| text.parse::<TimeMs>().ok());
    // The first field is the time of the program, the second one the time of the journal.
    let time = microseconds("_SOURCE_REALTIME_TIMESTAMP").or_else(|| microseconds("__REALTIME_TIMESTAMP"))? / 1000;
    let message = members.remove("MESSAGE").map(bytes).unwrap_or_default();
    let message = rewrapped(message, &members, time);
    let mut stream = SipHasher13::new();
    for name in STREAM {
        stream.write(members.get(name).and_then(Value::as_str).unwrap_or_default().as_bytes());
        stream.write_u8(0);
    }
    let fields = members.into_iter().filter_map(|(name, value)| match value {
        Value::String(value) if value.len() <= MAX_FIELD_BYTES => Some((name, value)),
        _ => None,
    });
    Some(JournalEntry { cursor, time, message, fields: fields.collect::<Vec<_>>().into(), stream: stream.finish() })
}

fn bytes(value: Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.into_bytes(),
        Value::Array(items) if items.iter().all(Value::is_number) => {
            let byte = |item: &Value| item.as_u64().and_then(|number| u8::try_from(number).ok());
            items.iter().filter_map(byte).collect()
        }
        Value::Array(items) => items.into_iter().map(bytes).collect::<Vec<_>>().join(&b'\n'),
        _ => Vec::new(),
    }
}

/// Docker's journald driver splits long lines and marks the pieces in fields. This function
/// rewrites a piece as a CRI line, so that the joiner joins the pieces like those of CRI.
fn rewrapped(message: Vec<u8>, members: &Map<String, Value>, time: TimeMs) -> Vec<u8> {
    if !members.contains_key("CONTAINER_PARTIAL_ID") {
        return message;
    }
    let goes_on = members.get("CONTAINER_PARTIAL_MESSAGE").and_then(Value::as_str) == Some("true");
    let Ok(time) = jiff::Timestamp::from_millisecond(time) else { return message };
    let head = format!("{time} stdout {} ", if goes_on { "P" } else { "F" });
    [head.into_bytes(), message].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(value: &str) -> String {
        let line = format!(r#"{{"__CURSOR":"c","__REALTIME_TIMESTAMP":"1700000001234567","MESSAGE":{value}}}"#);
        let entry = parse(line.as_bytes()).unwrap();
        assert_eq!((entry.cursor.as_str(), entry.time), ("c", 1_700_000_001_234));
        String::from_utf8_lossy(&entry.message).into_owned()
    }

    #[test]
    fn a_message_is_text_or_bytes_or_nothing() {
        assert_eq!(message(r#""lock lost""#), "lock lost");
        assert_eq!(message("[97,10,98,255,99]"), "a\nb\u{fffd}c");
        assert_eq!(message("null"), "");
        assert_eq!(message(r#"["one",[116,119,111],null]"#), "one\ntwo\n");
        assert_eq!(message("[300,-1,97]"), "a");
    }

    #[test]
    fn the_time_of_the_program_comes_first() {
        let line =
            br#"{"__CURSOR":"c","__REALTIME_TIMESTAMP":"2000","_SOURCE_REALTIME_TIMESTAMP":"1000","A":"b","C":["d"]}"#;
        let entry = parse(line).unwrap();
        assert_eq!((entry.time, entry.message.as_slice()), (1, &b""[..]));
        assert!(entry.fields.contains(&("A".to_owned(), "b".to_owned())));
        assert!(!entry.fields.iter().any(|(name, _)| name == "C"));
    }

    #[test]
    fn streams_are_told_apart() {
        let stream = |rest: &str| {
            parse(format!(r#"{{"__CURSOR":"c","__REALTIME_TIMESTAMP":"1"{rest}}}"#).as_bytes()).unwrap().stream
        };
        let one = stream(r#","_SYSTEMD_UNIT":"a.service","_PID":"1""#);
        assert_eq!(one, stream(r#","_PID":"1","_SYSTEMD_UNIT":"a.service","PRIORITY":"3""#));
        assert_ne!(one, stream(r#","_SYSTEMD_UNIT":"a.service","_PID":"2""#));
        assert_ne!(one, stream(r#","_SYSTEMD_UNIT":"a.service1","_PID":"""#));
    }

    #[test]
    fn pieces_of_a_line_are_marked() {
        let piece = |rest: &str| {
            let line = format!(
                r#"{{"__CURSOR":"c","__REALTIME_TIMESTAMP":"1700000001000000","MESSAGE":"lo","CONTAINER_PARTIAL_ID":"7"{rest}}}"#
            );
            String::from_utf8(parse(line.as_bytes()).unwrap().message).unwrap()
        };
        assert_eq!(piece(r#","CONTAINER_PARTIAL_MESSAGE":"true""#), "2023-11-14T22:13:21Z stdout P lo");
        assert_eq!(piece(""), "2023-11-14T22:13:21Z stdout F lo");
    }

    #[test]
    fn what_is_no_entry_is_nothing() {
        for line in
            ["", "-- No entries --", "{}", r#"{"MESSAGE":"x"}"#, r#"{"__CURSOR":"c"}"#, r#"{"__CURSOR":1}"#, "[1]"]
        {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
    }
}
