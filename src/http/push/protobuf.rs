//! Parses Loki's push request as protobuf. The messages of `logproto`:
//!
//! ```text
//! PushRequest { repeated Stream streams = 1 }
//! Stream { string labels = 1; repeated Entry entries = 2 }
//! Entry { Timestamp timestamp = 1; string line = 2; repeated LabelPair structuredMetadata = 3 }
//! Timestamp { int64 seconds = 1; int32 nanos = 2 }
//! LabelPair { string name = 1; string value = 2 }
//! ```
//!
//! By hand, because a generated decoder such as prost builds the complete message before anything
//! can be counted. Here the limits apply while decoding, as for JSON.
//!
//! The push endpoint calls [`parse`]. Unknown fields are skipped, as protobuf requires.

use super::{LabelPairs, Malformed, PushLimits, labels};
use crate::logs::push::{PushedEntry, PushedStream};

const DAMAGED: Malformed = Malformed("the protobuf is damaged");

pub(super) fn parse(bytes: &[u8], limits: &mut PushLimits) -> Result<Vec<PushedStream>, Malformed> {
    let mut streams = Vec::new();
    each(bytes, |number, value| {
        if let (1, ProtobufValue::Bytes(bytes)) = (number, value) {
            limits.add_stream()?;
            streams.push(stream(bytes, limits)?);
        }
        Ok(())
    })?;
    Ok(streams)
}

fn stream(bytes: &[u8], limits: &mut PushLimits) -> Result<PushedStream, Malformed> {
    let mut stream = PushedStream { labels: Vec::new(), entries: Vec::new() };
    each(bytes, |number, value| {
        match (number, value) {
            (1, ProtobufValue::Bytes(bytes)) => {
                stream.labels = labels::parse(str::from_utf8(bytes).unwrap_or_default(), limits)?;
            }
            (2, ProtobufValue::Bytes(bytes)) => {
                limits.add_entry()?;
                stream.entries.push(entry(bytes, limits)?);
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(stream)
}

fn entry(bytes: &[u8], limits: &mut PushLimits) -> Result<PushedEntry, Malformed> {
    let (mut time, mut line, mut metadata) = (0, Vec::new(), LabelPairs::default());
    each(bytes, |number, value| {
        match (number, value) {
            (1, ProtobufValue::Bytes(bytes)) => time = timestamp(bytes)?,
            (2, ProtobufValue::Bytes(bytes)) => line = bytes.to_vec(),
            (3, ProtobufValue::Bytes(bytes)) => {
                let (name, value) = pair(bytes)?;
                metadata.add(name, value, limits)?;
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(PushedEntry { time, line, metadata: metadata.pairs })
}

fn timestamp(bytes: &[u8]) -> Result<i64, Malformed> {
    let (mut seconds, mut nanos) = (0_i64, 0_i64);
    each(bytes, |number, value| {
        match (number, value) {
            (1, ProtobufValue::Number(number)) => seconds = number.cast_signed(),
            (2, ProtobufValue::Number(number)) => nanos = number.cast_signed(),
            _ => {}
        }
        Ok(())
    })?;
    let time = seconds.checked_mul(1_000_000_000).and_then(|time| time.checked_add(nanos));
    time.ok_or(Malformed("a timestamp is out of range"))
}

fn pair(bytes: &[u8]) -> Result<(String, String), Malformed> {
    let (mut name, mut text) = (String::new(), String::new());
    each(bytes, |number, value| {
        if let (1 | 2, ProtobufValue::Bytes(bytes)) = (number, value) {
            let written = if number == 1 { &mut name } else { &mut text };
            *written = String::from_utf8_lossy(bytes).into_owned();
        }
        Ok(())
    })?;
    Ok((name, text))
}

enum ProtobufValue<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// A fixed-width value. No known field has this type.
    Other,
}

/// Calls `take` with the number and the value of each field of a message.
fn each<'a>(
    mut rest: &'a [u8],
    mut take: impl FnMut(u64, ProtobufValue<'a>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    while !rest.is_empty() {
        let key = varint(&mut rest)?;
        let value = match key & 7 {
            0 => ProtobufValue::Number(varint(&mut rest)?),
            1 => skip(&mut rest, 8)?,
            2 => {
                let length = usize::try_from(varint(&mut rest)?).map_err(|_| DAMAGED)?;
                ProtobufValue::Bytes(rest.split_off(..length).ok_or(DAMAGED)?)
            }
            5 => skip(&mut rest, 4)?,
            _ => return Err(DAMAGED),
        };
        take(key >> 3, value)?;
    }
    Ok(())
}

fn skip<'a>(rest: &mut &'a [u8], length: usize) -> Result<ProtobufValue<'a>, Malformed> {
    rest.split_off(..length).ok_or(DAMAGED)?;
    Ok(ProtobufValue::Other)
}

fn varint(rest: &mut &[u8]) -> Result<u64, Malformed> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *rest.split_off_first().ok_or(DAMAGED)?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(DAMAGED)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes one length-delimited field: a message, a text or bytes.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        assert!(bytes.len() < 128);
        [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
    }

    fn request() -> Vec<u8> {
        let time = [0x08, 0x81, 0x80, 0x01, 0x10, 0x05];
        let metadata = field(3, &[field(1, b"trace"), field(2, b"t1")].concat());
        // An unknown varint field and an unknown fixed-width field.
        let entry = [field(1, &time), field(2, b"lock lost"), metadata, vec![0x48, 0x07, 0x51, 0, 0, 0, 0, 0, 0, 0, 0]];
        let stream = [field(1, br#"{job="a"}"#), field(2, &entry.concat()), vec![0x18, 0x09]];
        field(1, &stream.concat())
    }

    #[test]
    fn a_request_is_read_and_what_is_unknown_is_read_over() {
        let metadata = vec![("trace".to_owned(), "t1".to_owned())];
        let entry = PushedEntry { time: 16385 * 1_000_000_000 + 5, line: b"lock lost".to_vec(), metadata };
        let labels = vec![("job".to_owned(), "a".to_owned())];
        let expected = vec![PushedStream { labels, entries: vec![entry] }];
        assert_eq!(parse(&request(), &mut PushLimits::default()), Ok(expected));
        assert_eq!(parse(&[], &mut PushLimits::default()), Ok(Vec::new()));
    }

    #[test]
    fn a_cut_or_damaged_request_is_refused_and_never_a_panic() {
        let request = request();
        for length in 1..request.len() {
            assert!(parse(&request[..length], &mut PushLimits::default()).is_err(), "cut at {length}");
        }
        for index in 0..request.len() {
            for bit in 0..8 {
                let mut changed = request.clone();
                changed[index] ^= 1 << bit;
                // Some bit flips only change a text, so that parsing succeeds.
                let _ = parse(&changed, &mut PushLimits::default());
            }
        }
        assert!(parse(&[0xff; 11], &mut PushLimits::default()).is_err());
        assert!(parse(&field(1, &field(1, b"job")), &mut PushLimits::default()).is_err());
    }
}
