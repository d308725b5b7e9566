//! Removes the prefix that tools put before every line of a program: `docker compose logs`, syslog
//! and journald, Heroku, process managers. Called for every parsed line.
//!
//! Lines of several programs may be interleaved in one file. The *tag* is the part of the prefix
//! that is the same for all lines of one program, so it identifies the program. A prefix of an
//! unknown form stays in the line.

use std::sync::LazyLock;

use regex::Regex;

use super::text::head;

/// Limit on the length of a prefix. Syslog prefixes with structured data may have up to
/// `MAX_STRUCTURED` bytes.
const MAX_PREFIX: usize = 200;
const MAX_STRUCTURED: usize = 2048;

/// Returns the tag and the line without its prefix. The indentation of the line itself is kept.
pub(super) fn split(text: &str) -> (&str, &str) {
    static PREFIX: LazyLock<Regex> = LazyLock::new(|| {
        let forms = [
            // `celery_1  | `, `13:37:04 web.1   | `, `0|app  | `
            r"(?:\d\d:\d\d:\d\d )?(?P<container>(?:\d+\|)?[A-Za-z0-9][A-Za-z0-9_. -]{0,62}?) *\|(?: |$)",
            // `Jun 25 13:37:04 host app[7]: `
            r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)? (?P<syslog>\S+ [^\s:\[\]]+(?:\[\d+\])?):(?: |$)",
            // `2026-06-25T13:37:04+00:00 app[web.1]: `, with or without a host before the program
            r"(?:<\d+>)?\d{4}-\d\d-\d\dT\S+ (?P<dyno>(?:\S+ )?[^\s:\[\]]+\[[\w.-]+\]):(?: |$)",
            // RFC 5424: `<165>1 2026-06-25T13:37:04Z host app 17 ID47 [a@1 k="v"] `. A byte order
            // mark may precede the text.
            r#"<\d{1,3}>\d{1,2} (?:-|\d{4}-\d\d-\d\dT\S+) (?P<rfc5424>\S+ \S+ \S+) \S+ (?:-|(?:\[[^\s="\]]+(?: [^\s="\]]+="(?:[^"\\]|\\.)*")*\])+)(?: \u{feff}?|$)"#,
            // `[pod/web-1/app] `, `[0] `
            r"\[(?P<manager>pod/[^\]\s]+|\d{1,3})\](?: |$)",
        ];
        Regex::new(&format!("^(?:{})", forms.join("|"))).expect("a constant that a test compiles")
    });
    // Every form starts with one of these characters. The check excludes JSON objects and indented
    // lines without running the regex.
    let begins_like_one = text.starts_with(|first: char| first.is_ascii_alphanumeric() || matches!(first, '[' | '<'));
    if !begins_like_one {
        return ("", text);
    }
    let length = if text.starts_with('<') { MAX_STRUCTURED } else { MAX_PREFIX };
    let Some(captures) = PREFIX.captures(head(text, length)) else { return ("", text) };
    let tag = ["container", "syslog", "dyno", "rfc5424", "manager"].iter().find_map(|name| captures.name(name));
    (tag.map_or("", |tag| tag.as_str().trim_end()), &text[captures[0].len()..])
}

/// Removes the syslog priority and version, so that the line starts with its time.
pub(super) fn without_priority(text: &str) -> &str {
    let Some((priority, rest)) = text.strip_prefix('<').and_then(|text| text.split_once('>')) else { return text };
    let is_number = |text: &str| text.len() <= 3 && text.bytes().all(|byte| byte.is_ascii_digit());
    match rest.split_once(' ') {
        _ if !is_number(priority) => text,
        Some((version, rest)) if is_number(version) => rest,
        _ => rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_off_what_tools_put_before_a_line() {
        for (text, tag, rest) in [
            ("celery_1  |     raise X", "celery_1", "    raise X"),
            ("celery_1  |", "celery_1", ""),
            ("13:37:04 web.1   | lost", "web.1", "lost"),
            ("0|app  | lost", "0|app", "lost"),
            ("Jun 25 13:37:04 host app[7]:   at x", "host app[7]", "  at x"),
            ("Jun  5 13:37:04 host app: lost", "host app", "lost"),
            ("2026-06-25T13:37:04.123456+00:00 app[web.1]: lost", "app[web.1]", "lost"),
            ("2026-06-25T13:37:04+02:00 host app[77]: lost", "host app[77]", "lost"),
            ("<165>1 2026-06-25T13:37:04.123Z host app 17 ID47 - lost", "host app 17", "lost"),
            ("<14>1 2026-06-25T13:37:04+02:00 host app - - - \u{feff}  at x", "host app -", "  at x"),
            (r#"<165>1 - host app 17 - [a@1 k="v \"\]"][b] lost"#, "host app 17", "lost"),
            ("<165>1 2026-06-25T13:37:04Z host app 17 ID47 -", "host app 17", ""),
            (
                "<165>1 2026-06-25T13:37:04Z host app 17 ID47 lost",
                "",
                "<165>1 2026-06-25T13:37:04Z host app 17 ID47 lost",
            ),
            ("[0] lost", "0", "lost"),
            ("[pod/web-1/app] lost", "pod/web-1/app", "lost"),
            ("2026-06-25T13:37:04Z ERROR app: lost", "", "2026-06-25T13:37:04Z ERROR app: lost"),
            ("[2026-06-25 13:37:04] lost", "", "[2026-06-25 13:37:04] lost"),
            ("[GATEWAY] INFO lost", "", "[GATEWAY] INFO lost"),
            ("{\"msg\":\"a | b\"}", "", "{\"msg\":\"a | b\"}"),
            ("  | lost", "", "  | lost"),
            ("", "", ""),
        ] {
            assert_eq!(split(text), (tag, rest), "{text}");
        }
    }

    #[test]
    fn the_time_of_syslog_follows_its_priority() {
        for (text, rest) in [
            ("<165>1 2026-06-25", "2026-06-25"),
            ("<13>2026-06-25 x", "2026-06-25 x"),
            ("<a>1 x", "<a>1 x"),
            ("x", "x"),
        ] {
            assert_eq!(without_priority(text), rest, "{text}");
        }
    }
}
