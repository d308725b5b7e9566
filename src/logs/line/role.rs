//! Determines the role of a line in a record of several lines: a message, a part of a stack trace,
//! or the exception that ends it. `extract::records` uses the role to join lines.
//!
//! Programs print a failure on many lines: a message, `Traceback`, frames, the exception, and its
//! causes. One record is one failure, so these lines are joined. Roles are guessed from the text
//! alone, so an unusual line can get a wrong role.

use std::sync::LazyLock;

use regex::Regex;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Blank,
    /// `    at a.b.C.d(C.java:7)`, `... 7 more`, `#0 /app/Lock.php(124)`: a line of a stack trace.
    Frame,
    /// Indented text that is not a frame.
    Indented,
    /// `Caused by:`, `[previous exception]`, `Stack trace:`: belongs to the record before it,
    /// whatever its last line was.
    Trailer,
    /// A sentence that Python prints between two tracebacks.
    Chain,
    /// `Traceback (most recent call last):`
    Traceback,
    /// `a.b.SomeError: text`, not indented and without a timestamp.
    Exception,
    /// Only closing characters such as `}`: the end of a printed object.
    Closer,
    /// Anything else: the start of a record.
    Head,
}

impl Role {
    pub fn of(text: &str) -> Self {
        let trimmed = text.trim();
        let Some(first) = trimmed.chars().next() else { return Self::Blank };
        let is_indented = text.starts_with([' ', '\t']);
        if is_indented {
            return if is_frame(trimmed) { Self::Frame } else { Self::Indented };
        }
        match first {
            '{' => Self::Head,
            '}' | ')' | ']' | '"' if is_closer(trimmed) => Self::Closer,
            '^' | '~' if is_caret(trimmed) => Self::Indented,
            _ if is_frame(trimmed) => Self::Frame,
            _ if is_trailer(trimmed) => Self::Trailer,
            _ if is_chain(trimmed) => Self::Chain,
            _ if trimmed.starts_with("Traceback (most recent call last)") => Self::Traceback,
            _ if exception(trimmed) => Self::Exception,
            _ => Self::Head,
        }
    }

    /// Whether a line continues a record whose last line has the role `previous`, with `n_blanks`
    /// blank lines in between.
    pub fn continues(self, previous: Self, n_blanks: usize) -> bool {
        match self {
            Self::Blank | Self::Head => false,
            Self::Frame | Self::Indented | Self::Closer => n_blanks == 0,
            Self::Trailer | Self::Chain => n_blanks <= 1,
            Self::Traceback if previous == Self::Chain => n_blanks <= 1,
            Self::Traceback => n_blanks == 0 && matches!(previous, Self::Head | Self::Indented),
            // After frames, an exception starts another trace that was printed without a message.
            // Two exceptions in a row are two failures.
            Self::Exception => {
                n_blanks <= 1 && matches!(previous, Self::Head | Self::Indented | Self::Traceback | Self::Chain)
            }
        }
    }
}

/// Returns the statements about failures in the lines of a trace. A Rust error report puts each
/// cause on its own indented line below `Caused by:`, with a number if there are several.
pub(super) fn statements(lines: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_below_causes = false;
    for line in lines {
        is_below_causes = line.trim_end() == "Caused by:" || is_below_causes && line.starts_with([' ', '\t']);
        let cause = Some(line.trim()).filter(|_| is_below_causes && !line.starts_with('C'));
        found.extend(cause.map(unnumbered).or_else(|| statement(line)).map(str::to_owned));
    }
    found
}

/// Removes the number from `1: some error`.
fn unnumbered(cause: &str) -> &str {
    match cause.split_once(": ") {
        Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => rest,
        _ => cause,
    }
}

/// Returns the statement about a failure in a line of a trace, or `None` if the line is a frame,
/// source code or other data.
fn statement(text: &str) -> Option<&str> {
    let role = Role::of(text);
    let trimmed = text.trim().trim_start_matches(['|', '+', '-', '>', ' ']);
    match role {
        Role::Exception => Some(trimmed),
        Role::Trailer | Role::Indented | Role::Frame => {
            let marks = ["Caused by: ", "Suppressed: ", "[cause]: ", "caused by: ", "[previous exception] ", "* "];
            let mark = marks.iter().find_map(|mark| Some((*mark, trimmed.strip_prefix(mark)?)));
            match mark {
                Some(("* " | "[previous exception] ", rest)) => Some(rest),
                Some((_, rest)) => Some(rest),
                None => exception(trimmed).then_some(trimmed),
            }
        }
        _ => None,
    }
}

/// Whether the line is a marker that points at a part of the source code above it.
pub(super) fn is_caret(trimmed: &str) -> bool {
    !trimmed.is_empty()
        && trimmed.contains('^')
        && trimmed.chars().all(|character| matches!(character, '^' | '~' | ' '))
}

fn is_frame(trimmed: &str) -> bool {
    static FRAME: LazyLock<Regex> = LazyLock::new(|| {
        // In this order: Java, Node and .NET; `... 7 more`; PHP; Ruby; Go.
        let forms = [
            r"at ",
            r"\.\.\. \d+ ",
            r"#\d+ (?:/|\[internal|\{main|\S+\(\d+\)|\S+(?:->|::))",
            r"from \S+:\d+:in ",
            // Ruby's report of an uncaught exception starts like a frame but continues with the
            // message, so the pattern must end here.
            r"\S+:\d+:in [`'][^']*'$",
            r"goroutine \d+ \[",
        ];
        Regex::new(&format!("^(?:{})", forms.join("|"))).expect("a constant that a test compiles")
    });
    FRAME.is_match(trimmed)
}

fn is_closer(trimmed: &str) -> bool {
    trimmed.chars().all(|character| "}])\";, ".contains(character))
}

fn is_trailer(trimmed: &str) -> bool {
    let starts = ["Caused by:", "Suppressed:", "[stacktrace]", "[previous exception]", "Stack trace:", "Node.js v"];
    starts.iter().any(|start| trimmed.starts_with(start)) || trimmed.starts_with("--- End of")
}

fn is_chain(trimmed: &str) -> bool {
    trimmed.starts_with("During handling of the above exception")
        || trimmed.starts_with("The above exception was the direct cause")
}

/// Whether the line starts with an exception class, usually followed by its message:
/// `redis.exceptions.LockError: text`, `ExecutionError: text`, `Redlock::LockError`. A plain word
/// such as `Author: ` does not count.
fn exception(trimmed: &str) -> bool {
    static EXCEPTION: LazyLock<Regex> = LazyLock::new(|| {
        let qualified = r"(?:[A-Za-z_][\w$]*(?:\.|::|\\{1,4}))+[A-Z_][\w$]*";
        let named = r"(?:[A-Z]\w*)?(?:Error|Exception|Failure|Timeout|Interrupt|Acquired|Expirable)";
        let form =
            format!(r"^(?:Uncaught |Unhandled |unhandled )?(?:{qualified}|{named})(?: \[[^\]]*\])?(?:: ?|\(| \(|$)");
        Regex::new(&form).expect("a constant that a test compiles")
    });
    EXCEPTION.is_match(trimmed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_roles() {
        for (text, role) in [
            ("", Role::Blank),
            ("\tat a.b.C.d(C.java:7)", Role::Frame),
            ("at a.b.Lock", Role::Frame),
            ("\t... 7 more", Role::Frame),
            ("#0 /app/Lock.php(124): block()", Role::Frame),
            ("/app/lib/lock.rb:9:in `lock!'", Role::Frame),
            ("/app/lib/lock.rb:9:in `lock!': lost (Redlock::LockError)", Role::Head),
            ("    raise LockError(\"x\")", Role::Indented),
            ("    ^^^^^", Role::Indented),
            ("Caused by: java.lang.X: y", Role::Trailer),
            ("[previous exception] [object] (X(code: 0): y", Role::Trailer),
            ("Node.js v20.20.2", Role::Trailer),
            ("During handling of the above exception, another exception occurred:", Role::Chain),
            ("Traceback (most recent call last):", Role::Traceback),
            ("redis.exceptions.LockNotOwnedError: Cannot release", Role::Exception),
            ("redis_lock.NotAcquired: Lock(lock:a) is not acquired", Role::Exception),
            ("ExecutionError: The operation", Role::Exception),
            ("Error: Lost mutex for key mutex:a", Role::Exception),
            ("Redlock::LockError: failed", Role::Exception),
            ("}", Role::Closer),
            ("\"} ", Role::Closer),
            ("{\"msg\":\"x\"}", Role::Head),
            ("Author: somebody", Role::Head),
            ("2026-06-25 13:37:04 ERROR lost", Role::Head),
            ("https://example.com/a.B: x", Role::Head),
        ] {
            assert_eq!(Role::of(text), role, "{text}");
        }
    }

    #[test]
    fn only_lines_that_name_an_error_say_something() {
        for (text, said) in [
            (
                "Caused by: java.lang.IllegalMonitorStateException: attempt",
                Some("java.lang.IllegalMonitorStateException: attempt"),
            ),
            ("\t* redsync: failed to unlock", Some("redsync: failed to unlock")),
            ("    [cause]: ResourceLockedError: The operation", Some("ResourceLockedError: The operation")),
            (" ---> System.TimeoutException: Timeout", Some("System.TimeoutException: Timeout")),
            ("          ExecutionError: The operation", Some("ExecutionError: The operation")),
            ("  | redis.exceptions.LockError: x", Some("redis.exceptions.LockError: x")),
            ("    Fix: lock not owned on release", None),
            ("    lock not owned", None),
            ("\tat a.b.Error.c(x)", None),
        ] {
            assert_eq!(statement(text), said, "{text}");
        }
    }
    #[test]
    fn causes_of_a_rust_report_are_statements() {
        for (lines, said) in [
            (&["Caused by:", "    Redis key mismatch"][..], &["Redis key mismatch"][..]),
            (
                &["Caused by:", "    0: could not extend", "    1: not ours", "Stack backtrace:", "   0: std::rt"],
                &["could not extend", "not ours"],
            ),
            (&["Caused by: java.lang.X: y", "    lock not owned"], &["java.lang.X: y"]),
            (&["    lock not owned", "Caused by:"], &[]),
        ] {
            assert_eq!(statements(lines), said, "{lines:?}");
        }
    }
}
