//! From the bytes of a line to a record: time, message and fields.
//!
//! The tailer unwraps every line that may matter ([`unwrap_line`]) and parses it ([`Record::parse`]); the rules look at the
//! record. Nothing here can fail: whatever the bytes are, there is a record, in the worst case plain text.

mod clean;
mod json;
mod text;
mod time;
mod wrapping;

pub use wrapping::{Stream, Unwrapped, unwrap_line};

use crate::event::TimeMs;

/// Fields that hold the time, the likeliest first.
const TIME_NAMES: [&str; 6] = ["time", "ts", "timestamp", "@timestamp", "t", "datetime"];
/// Fields that hold an error, the likeliest first.
const ERROR_NAMES: [&str; 10] =
    ["error", "err", "exception", "cause", "reason_text", "stack_trace", "stack", "exc_info", "traceback", "exc_text"];
/// How often a message may turn out to be a record of its own.
const MAX_DESCENTS: u8 = 3;
/// How many bytes may stand before a JSON object: a container's name, a syslog header.
const MAX_JSON_PREFIX: usize = 128;
/// Fields of an envelope count as deeper than any field of the record inside of it.
const ENVELOPE_DEPTH: u8 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Logfmt,
    /// `[COMPONENT] LEVEL message k=v`, Cordum's own text form.
    Bracketed,
    Plain,
}

/// Why a line of plain text is not a statement of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aside {
    /// A traceback shows the source line that raised the error.
    SourceEcho,
    /// The line goes on with a stack trace.
    Continuation,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The line's own time, otherwise the wrapping's.
    pub time: Option<TimeMs>,
    /// Without leading and trailing white space. Empty if the record has none.
    pub message: String,
    pub format: Format,
    pub aside: Option<Aside>,
    fields: Vec<Field>,
}

/// One value of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    /// Names of the nested objects and of the value itself, joined by dots.
    path: String,
    /// Number of objects around it, the outermost not counted.
    depth: u8,
    value: String,
}

impl Field {
    fn leaf(&self) -> &str {
        if self.depth == 0 { &self.path } else { self.path.rsplit('.').next().unwrap_or_default() }
    }
}

impl Record {
    /// `text` is one line without its line end; `outer_time` is the time of the wrapping.
    pub fn parse(text: &[u8], outer_time: Option<TimeMs>) -> Record {
        let text = clean::line(text);
        let text = without_container_name(&text);
        let mut record = structured(text, MAX_DESCENTS).unwrap_or_else(|| plain(text));
        record.time = record.time.or(outer_time);
        record
    }

    /// By whole dotted path, or by its last name: then the shallowest wins, and the last of equals. `message` is the
    /// message, whatever it was called.
    pub fn field(&self, name: &str) -> Option<&str> {
        if name == "message" {
            return Some(&self.message);
        }
        if let Some(field) = self.fields.iter().rev().find(|field| field.path == name) {
            return Some(&field.value);
        }
        let by_leaf = self.fields.iter().rev().filter(|field| field.leaf() == name);
        by_leaf.min_by_key(|field| field.depth).map(|field| field.value.as_str())
    }

    /// The values of the error fields, the likeliest first. An error may be an object with a message of its own.
    pub fn errors(&self) -> impl Iterator<Item = &str> {
        let is_inner = |path: &str, name: &str| path.strip_suffix(".message") == Some(name);
        let inner = move |name: &str| {
            let field = self.fields.iter().rev().find(|field| is_inner(&field.path, name));
            field.map(|field| field.value.as_str())
        };
        ERROR_NAMES.iter().filter_map(move |name| self.field(name).or_else(|| inner(name)))
    }

    fn new(format: Format, message: &str) -> Record {
        Record { time: None, message: message.trim().to_owned(), format, aside: None, fields: Vec::new() }
    }

    fn with_pairs(mut self, pairs: text::Pairs) -> Record {
        self.fields.extend(pairs.into_iter().map(|(path, value)| Field { path, depth: 0, value }));
        self.time = self.time_at(0);
        self
    }

    /// The time among the fields that are not deeper than `depth`: those of user data inside of the record do not count.
    fn time_at(&self, depth: u8) -> Option<TimeMs> {
        TIME_NAMES.iter().find_map(|name| {
            let mut named = self.fields.iter().rev().filter(|field| field.depth <= depth && field.leaf() == *name);
            named.find_map(|field| time::parse(&field.value))
        })
    }
}

/// A record in one of the formats that have fields.
fn structured(text: &str, descents: u8) -> Option<Record> {
    let start = text.trim_start();
    if start.starts_with('{') {
        return json_record(start, descents);
    }
    let bracketed = text::bracketed(text);
    let object_at = text::head(text, MAX_JSON_PREFIX).find(" {\"");
    let object_first = object_at.is_some_and(|at| bracketed.as_ref().is_none_or(|found| at < found.start));
    if let (Some(at), true) = (object_at, object_first)
        && let Some(record) = prefixed_json(text, at + 1, descents)
    {
        return Some(record);
    }
    if let Some(found) = bracketed {
        let mut record = Record::new(Format::Bracketed, found.message).with_pairs(found.pairs);
        record.time = record.time.or(leading_time(text).0);
        return Some(record);
    }
    let (message, pairs) = text::logfmt(start)?;
    Some(Record::new(Format::Logfmt, &message).with_pairs(pairs))
}

/// A JSON object with a message after a short prefix, up to the end of the line.
fn prefixed_json(text: &str, at: usize, descents: u8) -> Option<Record> {
    let object = json::parse(&text[at..])?;
    object.message?;
    if object.length.is_some_and(|length| !text[at + length..].trim().is_empty()) {
        return None;
    }
    let mut record = json_record(&text[at..], descents)?;
    record.time = record.time.or(leading_time(text).0);
    Some(record)
}

fn json_record(text: &str, descents: u8) -> Option<Record> {
    // Raw tabs are not allowed inside of JSON's strings, but some programs write them.
    let untabbed = if text.contains('\t') { Some(text.replace('\t', " ")) } else { None };
    let object = json::parse(untabbed.as_deref().unwrap_or(text))?;
    let message_at = object.message;
    let mut record = Record::new(Format::Json, message_at.map_or("", |at| &object.fields[at].value));
    record.fields = object.fields;
    record.time = record.time_at(message_at.map_or(0, |at| record.fields[at].depth));
    if descents > 0
        && let Some(inner) = inner_record(&record.message, descents - 1)
    {
        return Some(inside(record, inner));
    }
    Some(record)
}

/// A message that is a record itself: a shipper put a program's line into its own object.
fn inner_record(message: &str, descents: u8) -> Option<Record> {
    let begins_like_a_record =
        message.starts_with(['{', '[']) || message.split_once('=').is_some_and(|(name, _)| !name.contains(' '));
    if !begins_like_a_record {
        return None;
    }
    structured(message, descents)
}

fn inside(envelope: Record, inner: Record) -> Record {
    let mut fields = envelope.fields;
    for field in &mut fields {
        field.depth = field.depth.saturating_add(ENVELOPE_DEPTH);
    }
    fields.extend(inner.fields);
    Record { time: inner.time.or(envelope.time), fields, ..inner }
}

fn plain(text: &str) -> Record {
    let (time, message) = leading_time(text);
    let mut record = Record::new(Format::Plain, message).with_pairs(text::split_pairs(message, text::Quoting::Go).1);
    record.time = time.or(record.time);
    record.aside = aside(text, &record.message);
    record
}

fn aside(text: &str, message: &str) -> Option<Aside> {
    if message.starts_with("raise ") || message.starts_with("throw ") {
        return Some(Aside::SourceEcho);
    }
    let continues = text.starts_with(char::is_whitespace)
        || ["at ", "Caused by:", "..."].iter().any(|start| text.starts_with(start));
    continues.then_some(Aside::Continuation)
}

/// The time at the beginning of a line, perhaps in brackets, and the text after it.
fn leading_time(text: &str) -> (Option<TimeMs>, &str) {
    let opened = text.strip_prefix('[');
    let Some((time, length)) = time::leading(opened.unwrap_or(text)) else { return (None, text) };
    let rest = &opened.unwrap_or(text)[length..];
    match opened {
        Some(_) => (Some(time), rest.strip_prefix(']').unwrap_or(rest)),
        None => (Some(time), rest),
    }
}

/// Drops `scheduler-1  | `, which `docker compose logs` puts before each line.
fn without_container_name(text: &str) -> &str {
    let Some(bar) = text::head(text, 64).find(" | ") else { return text };
    let name = text[..bar].trim_end();
    let is_name = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.');
    if name.is_empty() || !name.chars().all(is_name) { text } else { &text[bar + 3..] }
}

#[cfg(test)]
mod tests;
