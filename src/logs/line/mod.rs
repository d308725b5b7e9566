//! From the bytes of a line to a record: time, message and fields.
//!
//! `logs::extract` unwraps every line that may matter ([`unwrap_line`]) and parses it ([`LogRecord::parse`]); the rules look
//! at the record. Nothing here can fail: any bytes make a record, in the worst case plain text. In reading order:
//!
//! * this file: the record
//! * `wrapping`: removes what container runtimes add
//! * `clean`: removes colors and control characters
//! * `prefix`: removes what other tools put before each line
//! * `json`, `text`: JSON records; logfmt and plain text
//! * `time`: timestamps as logs write them
//! * `role`: message, stack trace or exception?
//! * `echo`: source code inside a stack trace

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

/// Fields that hold the time, the likeliest first.
#[rustfmt::skip]
const TIME_NAMES: [&str; 8] = [
    "time", "ts", "timestamp", "@timestamp", "t", "datetime",
    // Of `journalctl -o json`.
    "_SOURCE_REALTIME_TIMESTAMP", "__REALTIME_TIMESTAMP",
];
/// Fields that hold an error, the likeliest first.
#[rustfmt::skip]
const ERROR_NAMES: [&str; 17] = [
    "error", "err", "exception", "Exception", "@x", "thrown", "cause", "previous", "InnerException", "reason_text",
    "stack_trace", "stacktrace", "stack", "exc_info", "traceback", "exc_text", "backtrace",
];
/// How often a message may turn out to be a record of its own.
const MAX_DESCENTS: u8 = 3;
/// How many bytes may stand before a JSON object: a container's name, a syslog header.
const MAX_JSON_PREFIX: usize = 128;
/// Fields of an envelope count as deeper than any field of the record inside of it.
const ENVELOPE_DEPTH: u8 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordFormat {
    Json,
    Logfmt,
    /// `[COMPONENT] LEVEL message k=v`, Cordum's own text form.
    Bracketed,
    Plain,
}

/// Why a line is not a statement of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aside {
    /// A traceback shows the source line that raised the error.
    SourceEcho,
    /// The line goes on with a stack trace.
    Continuation,
    /// The subject of a commit.
    Commit,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// The line's own time, otherwise the wrapping's.
    pub time: Option<TimeMs>,
    /// Without leading and trailing white space. Empty if the record has none.
    pub message: String,
    pub format: RecordFormat,
    pub aside: Option<Aside>,
    fields: Vec<Field>,
    /// The lines that follow the message in the log, without source code.
    trace: String,
    /// What these lines say about failures.
    statements: Vec<String>,
}

/// A line of a log on its own: readable, and without what containers and tools put around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Whose line it is, where several programs write to one file.
    pub tag: String,
    pub role: Role,
    text: String,
    time: Option<TimeMs>,
}

impl LogLine {
    /// `text` comes without the wrapping of a container runtime, whose time is `outer_time`.
    pub fn new(text: &[u8], outer_time: Option<TimeMs>) -> Self {
        let text = clean::line(text);
        let (tag, rest) = prefix::split(&text);
        let time = if tag.is_empty() { None } else { leading_time(prefix::without_priority(&text)).0 };
        let role = match Role::of(rest) {
            // A whole traceback on one line does not belong to the line before it.
            Role::Traceback if echo::newline_of(rest).is_some() => Role::Head,
            role => role,
        };
        Self { tag: tag.to_owned(), role, text: rest.to_owned(), time: time.or(outer_time) }
    }

    /// A record of its own, whatever follows: an object that is closed.
    pub fn is_whole(&self) -> bool {
        let text = self.text.trim_end();
        text.ends_with('}') && (text.starts_with('{') || text::head(text, MAX_JSON_PREFIX).contains(" {\""))
    }

    pub fn text(&self) -> &str {
        &self.text
    }
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

impl LogRecord {
    /// `text` is one line without its line end; `outer_time` is the time of the wrapping.
    pub fn parse(text: &[u8], outer_time: Option<TimeMs>) -> LogRecord {
        Self::of_lines(&[LogLine::new(text, outer_time)])
    }

    /// One record of several lines: the message, and what follows it. Not empty.
    pub fn of_lines(lines: &[LogLine]) -> LogRecord {
        let Some((first, rest)) = lines.split_first() else { return LogRecord::new(RecordFormat::Plain, "") };
        let mut record = structured(&first.text, MAX_DESCENTS).unwrap_or_else(|| plain(&first.text));
        record.time = record.time.or(first.time);
        record.drop_echoes();
        if text::is_commit(&record.message) {
            record.aside = Some(Aside::Commit);
            return record;
        }
        if rest.is_empty() {
            return record;
        }
        let mut rest: Vec<&str> = rest.iter().map(|line| line.text.as_str()).collect();
        if let Some((level, logger)) = text::dotnet_head(&record.message) {
            // The message is on the next line.
            record.fields.extend([("level", level), ("logger", logger)].map(|(name, value)| Field {
                path: name.to_owned(),
                depth: 0,
                value,
            }));
            record.message = rest.remove(0).trim().to_owned();
        }
        record.aside = None;
        if !matches!(first.role, Role::Head | Role::Exception) {
            // A trace whose message is not at hand.
            record.message.clear();
            rest.insert(0, &first.text);
        }
        let kept = echo::drop_echoes(&rest);
        record.statements = role::statements(&kept);
        record.trace = kept.join("\n");
        record
    }

    /// The record with fields from outside of its line. Those of the line itself win.
    pub fn within(mut self, fields: &[(String, String)]) -> LogRecord {
        let field = |(name, value): &(String, String)| Field {
            path: name.clone(),
            depth: ENVELOPE_DEPTH,
            value: value.clone(),
        };
        self.fields.splice(0..0, fields.iter().map(field));
        self
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

    /// Texts that speak of failures, the likeliest first: the message, the error fields, the lines of a trace that do.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        [self.message.as_str()].into_iter().chain(self.errors()).chain(self.statements())
    }

    /// The same, with the error fields before the message: they tell the reason, and which lock it was.
    pub fn texts_by_detail(&self) -> impl Iterator<Item = &str> {
        self.errors().chain([self.message.as_str()]).chain(self.statements())
    }

    fn statements(&self) -> impl Iterator<Item = &str> {
        self.statements.iter().map(String::as_str)
    }

    /// Everything beside the message that may tell what the program was doing: the lines of a trace and the error fields.
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

    /// An error that is an object with a class and a message becomes one text as well: `some.Class: its message`. Of a chain of
    /// errors in a list, each is a line.
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
            // In a list each class is followed by its own.
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

    /// Source code in a message or an error that has a whole stack trace in it.
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

    /// The time among the fields that are not deeper than `depth`: those of user data inside of the record do not count.
    fn time_at(&self, depth: u8) -> Option<TimeMs> {
        TIME_NAMES.iter().find_map(|name| {
            let mut named = self.fields.iter().rev().filter(|field| field.depth <= depth && field.leaf() == *name);
            named.find_map(|field| time::parse(&field.value))
        })
    }
}

/// A record in one of the formats that have fields.
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

/// A JSON object after a short prefix, up to the end of the line. Without a message of its own it is the context of what
/// stands before it.
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
    // Raw tabs are not allowed inside of JSON's strings, but some programs write them.
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

/// A message that is a record itself: a shipper put a program's line into its own object.
fn inner_record(message: &str, descents: u8) -> Option<LogRecord> {
    let begins_like_a_record =
        message.starts_with(['{', '[']) || message.split_once('=').is_some_and(|(name, _)| !name.contains(' '));
    if !begins_like_a_record {
        return None;
    }
    structured(message, descents)
}

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

fn aside(text: &str, message: &str) -> Option<Aside> {
    if echo::is_echo(message) {
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

#[cfg(test)]
mod tests;
