//! Cordum's log lines, and the formats in which they reach a log file.

use serde::Deserialize;

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line {
    pub(crate) component: String,
    pub(crate) level: String,
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) attributes: Vec<(String, Value)>,
    #[serde(default)]
    pub(crate) expect: std::collections::BTreeMap<String, String>,
}

#[derive(Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum Value {
    Number(i64),
    Text(String),
    Two { json: Box<Value>, text: Box<Value> },
}

impl Value {
    fn json(&self) -> String {
        match self {
            Value::Number(number) => number.to_string(),
            Value::Text(text) => quoted(text),
            Value::Two { json, .. } => json.json(),
        }
    }

    fn text(&self) -> String {
        match self {
            Value::Number(number) => number.to_string(),
            Value::Text(text) => text.clone(),
            Value::Two { text, .. } => text.text(),
        }
    }
}

impl Line {
    /// Creates a line for a test: `[COMPONENT] LEVEL message` and its attributes.
    pub(crate) fn new(component: &str, message: &str, attributes: &[(&str, &str)]) -> Self {
        let attributes =
            attributes.iter().map(|(name, value)| ((*name).to_owned(), Value::Text((*value).to_owned()))).collect();
        let (component, message) = (component.to_owned(), message.to_owned());
        Self { component, level: "WARN".to_owned(), message, attributes, expect: Default::default() }
    }

    pub(crate) fn json(&self, time: &str) -> String {
        let mut members = vec![
            format!("\"time\":\"{time}\",\"level\":{}", quoted(&self.level)),
            format!("\"msg\":{},\"component\":{}", quoted(&self.message), quoted(&self.component)),
        ];
        members.extend(self.attributes.iter().map(|(name, value)| format!("\"{name}\":{}", value.json())));
        format!("{{{}}}", members.join(","))
    }

    /// Formats the line as text. A value with newlines produces several lines.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("[{}] {} {}", self.component.to_uppercase(), self.level, self.message);
        for (name, value) in &self.attributes {
            text.push_str(&format!(" {name}={}", value.text()));
        }
        text
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Wrapping {
    Bare,
    Docker,
    Cri,
    /// Like `Cri`, with each line split in two.
    CriPieces,
}

impl Wrapping {
    pub(crate) const ALL: [Self; 4] = [Self::Bare, Self::Docker, Self::Cri, Self::CriPieces];

    /// Wraps one line of a program in this format. The result can be several lines, each with its
    /// newline.
    pub(crate) fn wrap(self, line: &str, time: &str) -> String {
        match self {
            Self::Bare => format!("{line}\n"),
            Self::Docker => {
                let log = quoted(&format!("{line}\n"));
                format!("{{\"log\":{log},\"stream\":\"stderr\",\"time\":\"{time}\"}}\n")
            }
            Self::Cri => format!("{time} stderr F {line}\n"),
            Self::CriPieces => {
                let middle = line.char_indices().nth(line.chars().count() / 2).map_or(0, |(at, _)| at);
                let (first, rest) = line.split_at(middle);
                format!("{time} stderr P {first}\n{time} stderr F {rest}\n")
            }
        }
    }
}

/// Returns the time 2026-06-25 13:00 plus so many milliseconds.
pub(crate) fn time(milliseconds: u64) -> String {
    let (seconds, milliseconds) = (milliseconds / 1000, milliseconds % 1000);
    let (minutes, seconds) = (seconds / 60, seconds % 60);
    let (hours, minutes) = (13 + minutes / 60, minutes % 60);
    format!("2026-06-25T{hours:02}:{minutes:02}:{seconds:02}.{milliseconds:03}Z")
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}
