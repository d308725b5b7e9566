//! Removes source code from stack traces. Called by `line`.
//!
//! Python shows the source lines that raised an exception, and Node the line that threw it. These
//! lines contain the text of the message, sometimes with variable names instead of values, and do
//! not report a failure themselves.

use std::borrow::Cow;

use memchr::memchr2;

use super::role::is_caret;

/// Returns the lines without source code.
pub(super) fn drop_echoes<'a>(lines: &[&'a str]) -> Vec<&'a str> {
    let mut kept = Vec::with_capacity(lines.len());
    // Indentation of the `File "..."` line above, while its source lines continue.
    let mut source_below: Option<usize> = None;
    for (index, line) in lines.iter().enumerate() {
        let trimmed = line.trim_start_matches([' ', '\t', '|']);
        let indentation = line.len() - trimmed.len();
        if trimmed.starts_with("File \"") && trimmed.contains(", line ") {
            source_below = Some(indentation);
            kept.push(*line);
            continue;
        }
        if source_below.is_some_and(|file| indentation > file) {
            continue;
        }
        source_below = None;
        let is_pointed_at = lines.get(index + 1).is_some_and(|next| is_caret(next.trim()));
        let is_source = is_echo(trimmed) || is_caret(trimmed.trim_end()) || is_pointed_at;
        if !is_source {
            kept.push(*line);
        }
    }
    kept
}

/// Whether the line is the statement that raised or threw the exception.
pub(super) fn is_echo(trimmed: &str) -> bool {
    trimmed.starts_with("raise ") || trimmed.starts_with("throw ")
}

/// Removes source code from a text of several lines, or from a stack trace on one line whose
/// newlines are written as `\n` or `#012`.
pub(super) fn without_echoes(text: &str) -> Cow<'_, str> {
    let text = unfold(text);
    if !text.contains('\n') {
        return text;
    }
    let lines: Vec<&str> = text.split('\n').collect();
    let kept = drop_echoes(&lines);
    if kept.len() == lines.len() { text } else { Cow::Owned(kept.join("\n")) }
}

/// Splits a stack trace on one line into lines. A backslash followed by `n` is not enough evidence,
/// because it may be part of a path.
fn unfold(text: &str) -> Cow<'_, str> {
    // Most texts contain neither byte, and this check is cheap.
    if memchr2(b'\\', b'#', text.as_bytes()).is_none() {
        return Cow::Borrowed(text);
    }
    match newline_of(text) {
        Some(newline) => Cow::Owned(text.replace(newline, "\n").replace("\\t", "\t").replace("#011", "\t")),
        None => Cow::Borrowed(text),
    }
}

/// How newlines are written in a stack trace on one line. `None` if the text is not such a trace.
pub(super) fn newline_of(text: &str) -> Option<&'static str> {
    let is_folded =
        |newline: &&str| text.match_indices(*newline).any(|(at, _)| begins_a_line(&text[at + newline.len()..]));
    ["\\n", "#012"].into_iter().find(is_folded)
}

/// Whether `rest` starts with a line of a stack trace. Frames are indented by two spaces in Python,
/// three in .NET, four in Node, and a tab in Java.
fn begins_a_line(rest: &str) -> bool {
    const INDENTED: [&str; 2] = ["at ", "File "];
    const NEXT: [&str; 5] = ["Caused by:", "Traceback (most recent", "[stacktrace]", "#0 ", "--- End of"];
    let text = rest.trim_start_matches([' ', '\t']);
    let text = ["\\t", "#011"].iter().find_map(|tab| text.strip_prefix(tab)).unwrap_or(text);
    let is_indented = text.len() < rest.len();
    let begins_with = |starts: &[&str]| starts.iter().any(|start| text.starts_with(start));
    is_indented && begins_with(&INDENTED) || begins_with(&NEXT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(without_echoes(text), expected, "{text}");
    }

    #[test]
    fn source_code_is_left_out() {
        check(
            "failed\nTraceback (most recent call last):\n  File \"a.py\", line 3, in f\n    lock.release()\n    ~~~~~^^\n  File \"b.py\", line 7, in g\n    raise LockError(\n    ...<2 lines>...\n    )\nLockError: lost",
            "failed\nTraceback (most recent call last):\n  File \"a.py\", line 3, in f\n  File \"b.py\", line 7, in g\nLockError: lost",
        );
        check(
            "/app/x.js:281\n  return reject(new Error(\"lost\"));\n         ^\n\nError: lost\n    at f",
            "/app/x.js:281\n\nError: lost\n    at f",
        );
        check("    throw new Error(\"lost\")\nx", "x");
    }

    #[test]
    fn a_trace_on_one_line_is_unfolded() {
        check(r"Error: lost\n    at f (x.js:1)\n    at g", "Error: lost\n    at f (x.js:1)\n    at g");
        check("java.lang.X: lost#012#011at a.b.C", "java.lang.X: lost\n\tat a.b.C");
        check(r"System.X: lost\n   at A.B() in b.cs:line 7", "System.X: lost\n   at A.B() in b.cs:line 7");
        check(r"RuntimeException: lost\n#0 /srv/a.php(7): f()", "RuntimeException: lost\n#0 /srv/a.php(7): f()");
        check(
            r"lost\n   --- End of inner exception stack trace ---",
            "lost\n   --- End of inner exception stack trace ---",
        );
        check(r"C:\new\at", r"C:\new\at");
        check(r"look\nat this", r"look\nat this");
        check("one line", "one line");
    }
}
