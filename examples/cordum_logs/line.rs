//! One log line in the forms that Cordum's logger and container runtimes give it.
//!
//! JSON is Go's `slog` JSON handler; text is Cordum's own `[COMPONENT] LEVEL message key=value` without time, quoting or
//! escaping; Docker is that text inside a json-file line, whose time is then the only one. Values must not need JSON
//! escaping: all text here comes from constants and generated ids, and checking each byte would halve the speed.

use crate::random::Uuid;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Text,
    Docker,
}

/// Nanoseconds since the Unix epoch.
pub(crate) type Nanos = i64;

pub(crate) const SECOND: Nanos = 1_000_000_000;
pub(crate) const MILLISECOND: Nanos = 1_000_000;

/// Appends lines to a buffer: `begin`, any number of attributes, `end`.
pub(crate) struct LineWriter {
    pub(crate) out: Vec<u8>,
    form: Form,
    /// The text of `second`, because formatting a date for each line would be half of the cost.
    clock: (i64, String),
    time: Nanos,
    pub(crate) n_lines: u64,
}

impl LineWriter {
    pub(crate) fn new(form: Form) -> Self {
        Self { out: Vec::with_capacity(1 << 20), form, clock: (i64::MIN, String::new()), time: 0, n_lines: 0 }
    }

    pub(crate) fn begin(&mut self, time: Nanos, component: &str, level: &str, message: &str) -> &mut Self {
        self.time = time;
        match self.form {
            Form::Json => {
                self.out.extend_from_slice(b"{\"time\":\"");
                self.write_time();
                self.extend(&[
                    "\",\"level\":\"",
                    level,
                    "\",\"msg\":\"",
                    message,
                    "\",\"component\":\"",
                    component,
                    "\"",
                ]);
            }
            Form::Text | Form::Docker => {
                if self.form == Form::Docker {
                    self.extend(&["{\"log\":\""]);
                }
                self.extend(&["[", &component.to_uppercase(), "] ", level, " ", message]);
            }
        }
        self
    }

    pub(crate) fn text(&mut self, name: &str, value: &str) -> &mut Self {
        match self.form {
            Form::Json => self.extend(&[",\"", name, "\":\"", value, "\""]),
            Form::Text | Form::Docker => self.extend(&[" ", name, "=", value]),
        }
        self
    }

    pub(crate) fn number(&mut self, name: &str, value: u64) -> &mut Self {
        match self.form {
            Form::Json => self.extend(&[",\"", name, "\":"]),
            Form::Text | Form::Docker => self.extend(&[" ", name, "="]),
        }
        write_digits(&mut self.out, value, 1);
        self
    }

    /// A text made of a constant head and a number, such as `worker-17`.
    pub(crate) fn numbered(&mut self, name: &str, head: &str, value: u64) -> &mut Self {
        self.text(name, head);
        if self.form == Form::Json {
            self.out.pop();
        }
        write_digits(&mut self.out, value, 1);
        if self.form == Form::Json {
            self.out.push(b'"');
        }
        self
    }

    pub(crate) fn uuid(&mut self, name: &str, head: &str, uuid: Uuid) -> &mut Self {
        self.text(name, head);
        if self.form == Form::Json {
            self.out.pop();
        }
        uuid.write(&mut self.out);
        if self.form == Form::Json {
            self.out.push(b'"');
        }
        self
    }

    /// `slog` prints durations as nanoseconds in JSON and as `1m0s` in text.
    pub(crate) fn duration(&mut self, name: &str, nanos: u64, go_text: &str) -> &mut Self {
        match self.form {
            Form::Json => self.number(name, nanos),
            Form::Text | Form::Docker => self.text(name, go_text),
        }
    }

    pub(crate) fn end(&mut self) {
        match self.form {
            Form::Json => self.out.extend_from_slice(b"}\n"),
            Form::Text => self.out.push(b'\n'),
            Form::Docker => {
                self.extend(&["\\n\",\"stream\":\"stderr\",\"time\":\""]);
                self.write_time();
                self.out.extend_from_slice(b"\"}\n");
            }
        }
        self.n_lines += 1;
    }

    fn extend(&mut self, parts: &[&str]) {
        for part in parts {
            self.out.extend_from_slice(part.as_bytes());
        }
    }

    fn write_time(&mut self) {
        let second = self.time.div_euclid(SECOND);
        if self.clock.0 != second {
            let text = jiff::Timestamp::from_second(second).map(|timestamp| timestamp.to_string()).unwrap_or_default();
            self.clock = (second, text.trim_end_matches('Z').to_owned());
        }
        self.out.extend_from_slice(self.clock.1.as_bytes());
        self.out.push(b'.');
        write_digits(&mut self.out, self.time.rem_euclid(SECOND) as u64, 9);
        self.out.push(b'Z');
    }
}

fn write_digits(out: &mut Vec<u8>, mut value: u64, at_least: usize) {
    let mut digits = [b'0'; 20];
    let mut start = digits.len();
    while value > 0 || digits.len() - start < at_least {
        start -= 1;
        digits[start] = b'0' + (value % 10) as u8;
        value /= 10;
    }
    out.extend_from_slice(&digits[start..]);
}
