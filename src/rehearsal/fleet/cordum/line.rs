//! Writes one log line in the formats of Cordum's logger and of container runtimes.
//!
//! JSON is the format of Go's `slog` JSON handler. Text is Cordum's own `[COMPONENT] LEVEL message
//! key=value`, without time, quoting or escaping. Docker is that text inside a json-file line, so
//! that only the json-file line has a time. Values must not need JSON escaping: all text here comes
//! from constants and generated ids, and checking each byte would halve the speed.

use std::time::Duration;

use crate::rehearsal::fleet::Uuid;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum CordumLogFormat {
    Json,
    Text,
    Docker,
}

/// Nanoseconds since the Unix epoch.
pub type Nanos = i64;

pub const SECOND: Nanos = 1_000_000_000;
pub const MILLISECOND: Nanos = 1_000_000;

/// Appends lines to a buffer: `begin`, any number of attributes, `end`.
pub struct LineWriter {
    pub out: Vec<u8>,
    form: CordumLogFormat,
    /// A second and its formatted text. Formatting the date for each line would take half of the
    /// time.
    clock: (i64, String),
    time: Nanos,
    pub n_lines: u64,
}

impl LineWriter {
    pub fn new(form: CordumLogFormat) -> Self {
        Self { out: Vec::with_capacity(1 << 20), form, clock: (i64::MIN, String::new()), time: 0, n_lines: 0 }
    }

    pub fn begin(&mut self, time: Nanos, component: &str, level: &str, message: &str) -> &mut Self {
        self.time = time;
        match self.form {
            CordumLogFormat::Json => {
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
            CordumLogFormat::Text | CordumLogFormat::Docker => {
                if self.form == CordumLogFormat::Docker {
                    self.extend(&["{\"log\":\""]);
                }
                self.extend(&["[", &component.to_uppercase(), "] ", level, " ", message]);
            }
        }
        self
    }

    pub fn text(&mut self, name: &str, value: &str) -> &mut Self {
        match self.form {
            CordumLogFormat::Json => self.extend(&[",\"", name, "\":\"", value, "\""]),
            CordumLogFormat::Text | CordumLogFormat::Docker => self.extend(&[" ", name, "=", value]),
        }
        self
    }

    pub fn number(&mut self, name: &str, value: usize) -> &mut Self {
        match self.form {
            CordumLogFormat::Json => self.extend(&[",\"", name, "\":"]),
            CordumLogFormat::Text | CordumLogFormat::Docker => self.extend(&[" ", name, "="]),
        }
        write_digits(&mut self.out, value as u64, 1);
        self
    }

    /// A text that consists of a constant prefix and a number, such as `worker-17`.
    pub fn numbered(&mut self, name: &str, head: &str, value: usize) -> &mut Self {
        self.text(name, head);
        if self.form == CordumLogFormat::Json {
            self.out.pop();
        }
        write_digits(&mut self.out, value as u64, 1);
        if self.form == CordumLogFormat::Json {
            self.out.push(b'"');
        }
        self
    }

    pub fn uuid(&mut self, name: &str, head: &str, uuid: Uuid) -> &mut Self {
        self.text(name, head);
        if self.form == CordumLogFormat::Json {
            self.out.pop();
        }
        uuid.write(&mut self.out);
        if self.form == CordumLogFormat::Json {
            self.out.push(b'"');
        }
        self
    }

    /// `slog` prints durations as nanoseconds in JSON and as `1m0s` in text.
    pub fn duration(&mut self, name: &str, duration: Duration) -> &mut Self {
        match self.form {
            CordumLogFormat::Json => self.number(name, duration.as_nanos() as usize),
            CordumLogFormat::Text | CordumLogFormat::Docker => self.text(name, &go_duration(duration)),
        }
    }

    pub fn end(&mut self) {
        match self.form {
            CordumLogFormat::Json => self.out.extend_from_slice(b"}\n"),
            CordumLogFormat::Text => self.out.push(b'\n'),
            CordumLogFormat::Docker => {
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

/// Formats a duration as Go does, rounded down to the millisecond.
fn go_duration(duration: Duration) -> String {
    let (minutes, seconds) = (duration.as_secs() / 60, duration.as_secs() % 60);
    let thousandths = match duration.subsec_millis() {
        0 => String::new(),
        milliseconds => format!(".{milliseconds:03}").trim_end_matches('0').to_owned(),
    };
    match (minutes, seconds) {
        (0, 0) => format!("{}ms", duration.as_millis()),
        (0, seconds) => format!("{seconds}{thousandths}s"),
        (minutes @ 1..60, seconds) => format!("{minutes}m{seconds}{thousandths}s"),
        (minutes, seconds) => format!("{}h{}m{seconds}{thousandths}s", minutes / 60, minutes % 60),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(form: CordumLogFormat, expected: &str) {
        let mut out = LineWriter::new(form);
        out.begin(1_782_394_624 * SECOND + 5, "scheduler", "WARN", "a message")
            .text("error", "lock not owned")
            .numbered("worker_id", "worker-", 17)
            .duration("ttl", Duration::from_millis(61_500))
            .end();
        assert_eq!(String::from_utf8(out.out).unwrap(), expected);
    }

    #[test]
    fn forms() {
        check(
            CordumLogFormat::Json,
            "{\"time\":\"2026-06-25T13:37:04.000000005Z\",\"level\":\"WARN\",\"msg\":\"a message\",\"component\":\"scheduler\",\
             \"error\":\"lock not owned\",\"worker_id\":\"worker-17\",\"ttl\":61500000000}\n",
        );
        let text = "[SCHEDULER] WARN a message error=lock not owned worker_id=worker-17 ttl=1m1.5s";
        check(CordumLogFormat::Text, &format!("{text}\n"));
        let time = "2026-06-25T13:37:04.000000005Z";
        check(
            CordumLogFormat::Docker,
            &format!("{{\"log\":\"{text}\\n\",\"stream\":\"stderr\",\"time\":\"{time}\"}}\n"),
        );
    }

    #[test]
    fn durations() {
        for (milliseconds, expected) in
            [(0, "0ms"), (250, "250ms"), (2000, "2s"), (60_000, "1m0s"), (3_600_000, "1h0m0s")]
        {
            assert_eq!(go_duration(Duration::from_millis(milliseconds)), expected);
        }
    }
}
