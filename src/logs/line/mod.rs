//! Parses the bytes of a line into a record: time, message and fields.
//!
//! `logs::extract` unwraps every line that may matter ([`unwrap_line`]) and parses it
//! ([`LogLine::new`], [`LogRecord::of_lines`]). The rules evaluate the record. Nothing here can
//! fail: any bytes make a record, in the worst case plain text. In reading order:
//!
//! * this file: the record
//! * `wrapping`: removes what container runtimes add
//! * `clean`: removes colors and control characters
//! * `prefix`: removes what other tools put before each line
//! * `json`, `text`: JSON records; logfmt and plain text
//! * `time`: timestamps in log formats
//! * `role`: distinguishes messages, stack traces and exceptions
//! * `echo`: removes source code from a stack trace

mod clean;
mod echo;
mod json;
mod prefix;
mod role;
mod text;
mod time;
mod wrapping;

pub use clean::without_colors;
pub use role::Role;
pub use wrapping::{OutputStream, Unwrapped, unwrap_line};

use std::borrow::Cow;

use crate::util::clock::TimeMs;

/// Names of fields that contain the time, most likely first.
#[rustfmt::skip]
const TIME_NAMES: [&str; 8] = [
    "time", "ts", "timestamp", "@timestamp", "t", "datetime",
    // Fields of `journalctl -o json`.
    "_SOURCE_REALTIME_TIMESTAMP", "__REALTIME_TIMESTAMP",
];
/// Names of fields that contain an error, most likely first.
#[rustfmt::skip]
const ERROR_NAMES: [&str; 17] = [
    "error", "err", "exception", "Exception", "@x", "thrown", "cause", "previous", "InnerException", "reason_text",
    "stack_trace", "stacktrace", "stack", "exc_info", "traceback", "exc_text", "backtrace",
];
/// How many levels of records inside messages are parsed.
const MAX_DESCENTS: u8 = 3;
/// Maximum number of bytes before a JSON object, such as a container name or a syslog header.
const MAX_JSON_PREFIX: usize = 128;
/// Added to the depth of an envelope's fields, so that they are deeper than all fields of the
/// record inside the envelope.
const ENVELOPE_DEPTH: u8 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordFormat {
    Json,
    Logfmt,
    /// `[COMPONENT] LEVEL message k=v`, the text format of Cordum.
    Bracketed,
    Plain,
}

/// Why a line does not report an event itself. The rules ignore such a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NonStatement {
    /// The line is source code that a traceback shows.
    SourceEcho,
    /// The line continues a stack trace.
    Continuation,
    /// The line is the subject of a commit.
    Commit,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// The time in the line, or else the time of the wrapping.
    pub time: Option<TimeMs>,
    /// Has no leading or trailing white space. Empty if the record has no message.
    pub message: String,
    pub format: RecordFormat,
    pub aside: Option<NonStatement>,
    fields: Vec<Field>,
    /// The lines after the message, without source code.
    trace: String,
    /// The lines of `trace` that report an error, without markers such as `Caused by: `.
    statements: Vec<String>,
}

/// One cleaned log line, without wrapping and prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Identifies the program that wrote the line, if several programs write to one file.
    pub tag: String,
    pub role: Role,
    text: String,
    time: Option<TimeMs>,
}

impl LogLine {
    /// `text` has no wrapping of a container runtime. `outer_time` is the time of that wrapping.
    pub fn new(text: &[u8], outer_time: Option<TimeMs>) -> Self {
        let text = clean::line(text);
        let (tag, rest) = prefix::split(&text);
        let time = if tag.is_empty() { None } else { leading_time(prefix::without_priority(&text)).0 };
        let role = match Role::of(rest) {
            // A complete traceback on one line does not belong to the line before it.
            Role::Traceback if echo::newline_of(rest).is_some() => Role::Head,
            role => role,
        };
        Self { tag: tag.to_owned(), role, text: rest.to_owned(), time: time.or(outer_time) }
    }

    /// Whether the line is a complete record by itself: it ends with a closed JSON object.
    pub fn is_whole(&self) -> bool {
        let text = self.text.trim_end();
        text.ends_with('}') && (text.starts_with('{') || text::head(text, MAX_JSON_PREFIX).contains(" {\""))
    }

    pub fn text(&self) -> &str {
        &self.text
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    /// Names of the enclosing objects and of the value itself, joined by dots.
    path: String,
    /// Number of enclosing objects, without the outermost.
    depth: u8,
    value: String,
}

impl Field {
    fn leaf(&self) -> &str {
        if self.depth == 0 { &self.path } else { self.path.rsplit('.').next().unwrap_or_default() }
    }
}

impl LogRecord {
    /// Parses a record of one line. `text` has no line ending. `outer_time` is the time of the
    /// wrapping.
    pub fn parse(text: &[u8], outer_time: Option<TimeMs>) -> LogRecord {
        Self::of_lines(&[LogLine::new(text, outer_time)])
    }

    /// Parses a record of one or more lines: the message and the lines after it. `lines` should not
    /// be empty; an empty list gives an empty record.
    pub fn of_lines(lines: &[LogLine]) -> LogRecord {
        let Some((first, rest)) = lines.split_first() else { return LogRecord::new(RecordFormat::Plain, "") };
        let mut record = structured(&first.text, MAX_DESCENTS).unwrap_or_else(|| plain(&first.text));
        record.time = record.time.or(first.time);
        record.drop_echoes();
        if text::is_commit(&record.message) {
            record.aside = Some(NonStatement::Commit);
            return record;
        }
        if rest.is_empty() {
            return record;
        }
        let mut rest: Vec<&str> = rest.iter().map(|line| line.text.as_str()).collect();
        if let Some((level, logger)) = text::dotnet_head(&record.message) {
            // The .NET console logger puts the message on the next line.
            record.fields.extend([("level", level), ("logger", logger)].map(|(name, value)| Field {
                path: name.to_owned(),
                depth: 0,
                value,
            }));
            record.message = rest.remove(0).trim().to_owned();
        }
        record.aside = None;
        if !matches!(first.role, Role::Head | Role::Exception) {
            // The lines are a stack trace whose message is not available.
            record.message.clear();
            rest.insert(0, &first.text);
        }
        let kept = echo::drop_echoes(&rest);
        record.statements = role::statements(&kept);
        record.trace = kept.join("\n");
        record
    }

    /// Adds fields from outside the line. A field of the line itself takes precedence over an added
    /// field with the same path.
    pub fn within(mut self, fields: &[(String, String)]) -> LogRecord {
        let field = |(name, value): &(String, String)| Field {
            path: name.clone(),
            depth: ENVELOPE_DEPTH,
            value: value.clone(),
        };
        self.fields.splice(0..0, fields.iter().map(field));
        self
    }

    /// Finds a field by its full dotted path, or else by its last name. If several fields have that
    /// last name, the one with the lowest depth wins, and among those the last. `message` always
    /// means the message, whatever the name of its field.
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

    /// Values of the error fields, most likely first. An error may be an object that has its own
    /// message.
    pub fn errors(&self) -> impl Iterator<Item = &str> {
        let is_inner = |path: &str, name: &str| path.strip_suffix(".message") == Some(name);
        let inner = move |name: &str| {
            let field = self.fields.iter().rev().find(|field| is_inner(&field.path, name));
            field.map(|field| field.value.as_str())
        };
        ERROR_NAMES.iter().filter_map(move |name| self.field(name).or_else(|| inner(name)))
    }

    /// Texts that may report a failure, most likely first: the message, the error fields, the
    /// statements of a stack trace.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        [self.message.as_str()].into_iter().chain(self.errors()).chain(self.statements())
    }

    /// The same texts, but with the error fields before the message, because they contain the
    /// reason and the lock.
    pub fn texts_by_detail(&self) -> impl Iterator<Item = &str> {
        self.errors().chain([self.message.as_str()]).chain(self.statements())
    }

    fn statements(&self) -> impl Iterator<Item = &str> {
        self.statements.iter().map(String::as_str)
    }

    /// Everything except the message that may show what the program was doing: the lines of a stack
    /// trace and the error fields.
    pub fn stack(&self) -> Option<String> {
        let of_message = self.message.split_once('\n').map(|(_, rest)| rest);
        let lines = Some(self.trace.as_str()).filter(|trace| !trace.is_empty());
        let texts: Vec<&str> = of_message.into_iter().chain(lines).chain(self.errors()).collect();
        (!texts.is_empty()).then(|| texts.join("\n"))
    }

    fn new(format: RecordFormat, message: &str) -> LogRecord {
        let message = message.trim().to_owned();
        let (trace, statements) = (String::new(), Vec::new());
        LogRecord { time: None, message, format, aside: None, fields: Vec::new(), trace, statements }
    }

    /// Adds a text field for each error that is an object with a class and a message:
    /// `some.Class: its message`. For a list of errors, the text has one line for each.
    fn name_errors(&mut self) {
        const CLASS_NAMES: [&str; 5] = ["class", "type", "name", "kind", "exc_type"];
        const TEXT_NAMES: [&str; 2] = ["message", "exc_value"];
        let mut named: Vec<Field> = Vec::new();
        let classes = self.fields.iter().enumerate().filter(|(_, field)| CLASS_NAMES.contains(&field.leaf()));
        for (index, field) in classes {
            let Some((parent, _)) = field.path.rsplit_once('.') else { continue };
            let leaf = parent.rsplit('.').next().unwrap_or_default();
            if !ERROR_NAMES.contains(&leaf) || self.fields.iter().any(|other| other.path == parent) {
                continue;
            }
            let is_text = |other: &&Field| {
                let name = other.path.strip_prefix(parent).and_then(|rest| rest.strip_prefix('.'));
                name.is_some_and(|name| TEXT_NAMES.contains(&name))
            };
            // In a list, each class is followed by its own message.
            let text = self.fields[index..].iter().find(is_text).or_else(|| self.fields.iter().find(is_text));
            let text = text.map_or("", |text| text.value.as_str());
            let value = if text.is_empty() { field.value.clone() } else { format!("{}: {text}", field.value) };
            match named.iter_mut().find(|other| other.path == parent) {
                Some(other) => other.value.extend(["\n", value.as_str()]),
                None => {
                    named.push(Field { path: parent.to_owned(), depth: field.depth.saturating_sub(1), value });
                }
            }
        }
        self.fields.extend(named);
    }

    /// Removes source code from a message or an error that contains a complete stack trace.
    fn drop_echoes(&mut self) {
        if let Cow::Owned(message) = echo::without_echoes(&self.message) {
            self.message = message;
        }
        for field in &mut self.fields {
            let is_error = ERROR_NAMES.contains(&field.leaf());
            if let (true, Cow::Owned(value)) = (is_error, echo::without_echoes(&field.value)) {
                field.value = value;
            }
        }
    }

    fn with_pairs(mut self, pairs: text::LogfmtPairs) -> LogRecord {
        self.fields.extend(pairs.into_iter().map(|(path, value)| Field { path, depth: 0, value }));
        self.time = self.time_at(0);
        self
    }

    /// Time from the fields at most as deep as `depth`. Deeper fields are user data inside the
    /// record.
    fn time_at(&self, depth: u8) -> Option<TimeMs> {
        TIME_NAMES.iter().find_map(|name| {
            let mut named = self.fields.iter().rev().filter(|field| field.depth <= depth && field.leaf() == *name);
            named.find_map(|field| time::parse(&field.value))
        })
    }
}

/// Parses a record in a format that has fields.
fn structured(text: &str, descents: u8) -> Option<LogRecord> {
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
        let mut record = LogRecord::new(RecordFormat::Bracketed, found.message).with_pairs(found.pairs);
        record.time = record.time.or(leading_time(text).0);
        return Some(record);
    }
    let (message, pairs) = text::logfmt(start)?;
    Some(LogRecord::new(RecordFormat::Logfmt, &message).with_pairs(pairs))
}

/// Parses a JSON object after a short prefix, up to the end of the line. If the object has no
/// message, the text before it is the message.
fn prefixed_json(text: &str, at: usize, descents: u8) -> Option<LogRecord> {
    let object = json::parse(&text[at..])?;
    let is_whole = object.length.is_some_and(|length| matches!(text[at + length..].trim(), "" | "[]" | "{}"));
    if !is_whole && (object.message.is_none() || object.length.is_some()) {
        return None;
    }
    let mut record = json_record(&text[at..], descents)?;
    let (time, before) = leading_time(text);
    record.time = record.time.or(time);
    if object.message.is_none() {
        let end = text.len() - at;
        record.message = before[..before.len() - end].trim().to_owned();
    }
    Some(record)
}

fn json_record(text: &str, descents: u8) -> Option<LogRecord> {
    // JSON does not allow raw tabs inside strings, but some programs write them.
    let untabbed = if text.contains('\t') { Some(text.replace('\t', " ")) } else { None };
    let object = json::parse(untabbed.as_deref().unwrap_or(text))?;
    let message_at = object.message;
    let mut record = LogRecord::new(RecordFormat::Json, message_at.map_or("", |at| &object.fields[at].value));
    record.fields = object.fields;
    record.name_errors();
    record.time = record.time_at(message_at.map_or(0, |at| record.fields[at].depth));
    if descents > 0
        && let Some(inner) = inner_record(&record.message, descents - 1)
    {
        return Some(inside(record, inner));
    }
    Some(record)
}

/// Parses a message that is itself a record, because a log shipper put a program's line into its
/// own object.
fn inner_record(message: &str, descents: u8) -> Option<LogRecord> {
    let begins_like_a_record =
        message.starts_with(['{', '[']) || message.split_once('=').is_some_and(|(name, _)| !name.contains(' '));
    if !begins_like_a_record {
        return None;
    }
    structured(message, descents)
}

/// Combines a record with the fields of its envelope.
fn inside(envelope: LogRecord, inner: LogRecord) -> LogRecord {
    let mut fields = envelope.fields;
    for field in &mut fields {
        field.depth = field.depth.saturating_add(ENVELOPE_DEPTH);
    }
    fields.extend(inner.fields);
    LogRecord { time: inner.time.or(envelope.time), fields, ..inner }
}

fn plain(text: &str) -> LogRecord {
    let (time, message) = leading_time(text);
    let mut record =
        LogRecord::new(RecordFormat::Plain, message).with_pairs(text::split_pairs(message, text::Quoting::Go).1);
    record.time = time.or(record.time);
    record.aside = aside(text, &record.message);
    record
}

fn aside(text: &str, message: &str) -> Option<NonStatement> {
    if echo::is_echo(message) {
        return Some(NonStatement::SourceEcho);
    }
    let continues = text.starts_with(char::is_whitespace)
        || ["at ", "Caused by:", "..."].iter().any(|start| text.starts_with(start));
    continues.then_some(NonStatement::Continuation)
}

/// Parses the time at the start of a line, optionally in brackets, and returns it with the text
/// after it.
fn leading_time(text: &str) -> (Option<TimeMs>, &str) {
    let opened = text.strip_prefix('[');
    let Some((time, length)) = time::leading(opened.unwrap_or(text)) else { return (None, text) };
    let rest = &opened.unwrap_or(text)[length..];
    match opened {
        Some(_) => (Some(time), rest.strip_prefix(']').unwrap_or(rest)),
        None => (Some(time), rest),
    }
}

#[cfg(test)]
mod tests;
