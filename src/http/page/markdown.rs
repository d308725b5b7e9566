//! Converts the Markdown of the runbooks to HTML: headings, paragraphs, lists, tables, code,
//! emphasis and links.
//!
//! `runbooks` calls [`render`]. All text is escaped, so HTML in the Markdown stays text. Unknown
//! syntax is shown as written. The caller resolves link targets; a link without a target becomes
//! plain text.

use std::fmt::Write;

use crate::util::html::Escaped;

/// Returns the target of a link, if there is one.
type Resolve<'a> = &'a dyn Fn(&str) -> Option<String>;

pub(in crate::http) fn render(text: &str, resolve: impl Fn(&str) -> Option<String>) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut html = String::with_capacity(text.len() * 2);
    blocks(&lines, &resolve, &mut html);
    html
}

fn blocks(mut lines: &[&str], resolve: Resolve, html: &mut String) {
    while let Some((first, rest)) = lines.split_first() {
        let taken = if first.trim().is_empty() {
            1
        } else if let Some(language) = first.strip_prefix("```") {
            code(language, rest, html) + 1
        } else if let Some((level, heading)) = heading_of(first) {
            let words = inline(heading, resolve);
            put(html, format_args!("<h{level} id=\"{}\">{words}</h{level}>\n", Escaped(&anchor(heading))));
            1
        } else if is_table(lines) {
            table(lines, resolve, html)
        } else if let Some(marker) = marker_of(first) {
            list(lines, &marker, resolve, html)
        } else {
            paragraph(lines, resolve, html)
        };
        lines = &lines[taken..];
    }
}

/// Returns the number of lines consumed, without the opening line.
fn code(language: &str, lines: &[&str], html: &mut String) -> usize {
    let end = lines.iter().position(|line| line.starts_with("```")).unwrap_or(lines.len());
    let text = lines[..end].join("\n");
    // Wide code scrolls, so the keyboard must be able to focus it.
    let label = if language.is_empty() { "code" } else { language.trim() };
    put(
        html,
        format_args!(
            "<pre tabindex=\"0\" role=\"region\" aria-label=\"{}\"><code>{}\n</code></pre>\n",
            Escaped(label),
            Escaped(&text)
        ),
    );
    (end + 1).min(lines.len())
}

fn heading_of(line: &str) -> Option<(usize, &str)> {
    let level = line.len() - line.trim_start_matches('#').len();
    let heading = line[level..].strip_prefix(' ')?;
    (1..=4).contains(&level).then_some((level, heading.trim()))
}

/// Builds the same anchors as GitHub.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    kept.collect::<String>().replace(' ', "-")
}

fn is_table(lines: &[&str]) -> bool {
    let is_rule = |line: &&str| line.starts_with('|') && line.chars().all(|letter| "|-: ".contains(letter));
    lines[0].starts_with('|') && lines.get(1).is_some_and(is_rule)
}

fn table(lines: &[&str], resolve: Resolve, html: &mut String) -> usize {
    let n_lines = lines.iter().position(|line| !line.starts_with('|')).unwrap_or(lines.len());
    html.push_str("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"table\"><table>\n");
    for (index, line) in lines[..n_lines].iter().enumerate().filter(|(index, _)| *index != 1) {
        let tag = if index == 0 { "th" } else { "td" };
        html.push_str("<tr>");
        for cell in cells(line) {
            put(html, format_args!("<{tag}>{}</{tag}>", inline(&cell, resolve)));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table></div>\n");
    n_lines
}

/// A bar inside code does not end a cell.
fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut in_code = false;
    for letter in line.trim().trim_start_matches('|').trim_end_matches('|').chars() {
        in_code ^= letter == '`';
        match letter {
            '|' if !in_code => cells.push(String::new()),
            letter => cells.last_mut().expect("there is always one").push(letter),
        }
    }
    cells.iter().map(|cell| cell.trim().to_owned()).collect()
}

/// The start of a list item: its number, if it has one, and the indentation of its content.
struct Marker {
    number: Option<usize>,
    indent: usize,
}

fn marker_of(line: &str) -> Option<Marker> {
    if line.starts_with("* ") || line.starts_with("- ") {
        return Some(Marker { number: None, indent: 2 });
    }
    let digits = line.len() - line.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    let number = line[..digits].parse().ok()?;
    line[digits..].starts_with(". ").then_some(Marker { number: Some(number), indent: digits + 2 })
}

fn list(lines: &[&str], first: &Marker, resolve: Resolve, html: &mut String) -> usize {
    match first.number {
        None => html.push_str("<ul>\n"),
        Some(1) => html.push_str("<ol>\n"),
        Some(number) => put(html, format_args!("<ol start=\"{number}\">\n")),
    }
    let mut taken = 0;
    while let Some(marker) = lines.get(taken).and_then(|line| marker_of(line)) {
        if marker.number.is_some() != first.number.is_some() {
            break;
        }
        let mut item = vec![&lines[taken][marker.indent..]];
        taken += 1;
        while let Some(line) = lines.get(taken) {
            let indented = line.len() - line.trim_start().len() >= 2 && !line.trim().is_empty();
            let blank_inside =
                line.trim().is_empty() && lines.get(taken + 1).is_some_and(|next| next.starts_with("  "));
            if !indented && !blank_inside {
                break;
            }
            let inside = line.len().min(marker.indent.min(line.len() - line.trim_start().len()));
            item.push(&line[inside..]);
            taken += 1;
        }
        let mut inner = String::new();
        blocks(&item, resolve, &mut inner);
        // A single paragraph needs no space around it.
        let alone =
            inner.strip_prefix("<p>").and_then(|rest| rest.strip_suffix("</p>\n")).filter(|rest| !rest.contains("<p>"));
        put(html, format_args!("<li>{}</li>\n", alone.unwrap_or(&inner)));
    }
    html.push_str(if first.number.is_some() { "</ol>\n" } else { "</ul>\n" });
    taken
}

fn paragraph(lines: &[&str], resolve: Resolve, html: &mut String) -> usize {
    let ends = |line: &&str| {
        line.trim().is_empty() || line.starts_with("```") || line.starts_with('|') || heading_of(line).is_some()
    };
    let n_lines = lines.iter().skip(1).position(ends).map_or(lines.len(), |index| index + 1);
    put(html, format_args!("<p>{}</p>\n", inline(&lines[..n_lines].join("\n"), resolve)));
    n_lines
}

fn inline(text: &str, resolve: Resolve) -> String {
    let mut html = String::new();
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let taken = match letter {
            '`' => between(rest, "`").map(|(code, taken)| {
                put(&mut html, format_args!("<code>{}</code>", Escaped(code)));
                taken
            }),
            '*' if rest.starts_with("**") => between(rest, "**").map(|(words, taken)| {
                put(&mut html, format_args!("<strong>{}</strong>", inline(words, resolve)));
                taken
            }),
            '*' => between(rest, "*").filter(|(words, _)| !words.starts_with(' ')).map(|(words, taken)| {
                put(&mut html, format_args!("<em>{}</em>", inline(words, resolve)));
                taken
            }),
            '[' => link(rest, resolve, &mut html),
            _ => None,
        };
        let taken = taken.unwrap_or_else(|| {
            put(&mut html, format_args!("{}", Escaped(&rest[..letter.len_utf8()])));
            letter.len_utf8()
        });
        rest = &rest[taken..];
    }
    html
}

/// Returns the text between two marks, and the length of that text with both marks.
fn between<'a>(text: &'a str, mark: &str) -> Option<(&'a str, usize)> {
    let inside = &text[mark.len()..];
    let end = inside.find(mark).filter(|end| *end > 0)?;
    Some((&inside[..end], end + 2 * mark.len()))
}

fn link(text: &str, resolve: Resolve, html: &mut String) -> Option<usize> {
    let (words, rest) = text[1..].split_once("](")?;
    let (target, _) = rest.split_once(')')?;
    if words.contains(']') || target.contains(char::is_whitespace) {
        return None;
    }
    let shown = inline(words, resolve);
    match resolve(target) {
        Some(target) => put(html, format_args!("<a href=\"{}\">{shown}</a>", Escaped(&target))),
        None => html.push_str(&shown),
    }
    Some(words.len() + target.len() + 4)
}

fn put(html: &mut String, what: std::fmt::Arguments) {
    html.write_fmt(what).expect("a String takes every write");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(render(text, |link| Some(format!("to:{link}"))), expected, "{text}");
    }

    #[test]
    fn blocks_one_by_one() {
        check(
            "# A `b`\n\n## Is it real?\n",
            "<h1 id=\"a-b\">A <code>b</code></h1>\n<h2 id=\"is-it-real\">Is it real?</h2>\n",
        );
        check("one\ntwo\n\nthree", "<p>one\ntwo</p>\n<p>three</p>\n");
        check("* a\n  b\n* c", "<ul>\n<li>a\nb</li>\n<li>c</li>\n</ul>\n");
        check("3. a\n   b\n4. c\n", "<ol start=\"3\">\n<li>a\nb</li>\n<li>c</li>\n</ol>\n");
        check(
            "| a | b |\n|---|:-:|\n| `x|y` | |\nend",
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"table\"><table>\n<tr><th>a</th><th>b</th></tr>\n\
             <tr><td><code>x|y</code></td><td></td></tr>\n</table></div>\n<p>end</p>\n",
        );
        check(
            "```sh\ncat <in # *x*\n```\nend",
            "<pre tabindex=\"0\" role=\"region\" aria-label=\"sh\"><code>cat &lt;in # *x*\n</code></pre>\n<p>end</p>\n",
        );
    }

    #[test]
    fn words_inside_a_line() {
        check("**a *b*** c", "<p><strong>a *b</strong>* c</p>\n");
        check("*a* 2 * 3 * 4 `*`", "<p><em>a</em> 2 * 3 * 4 <code>*</code></p>\n");
        check("[a `b`](c.md#d) [e] (f)", "<p><a href=\"to:c.md#d\">a <code>b</code></a> [e] (f)</p>\n");
        let nowhere = render("[a](javascript:alert)", |_| None);
        assert_eq!(nowhere, "<p>a</p>\n");
    }

    #[test]
    fn everything_is_escaped() {
        check("<b>&\"'", "<p>&lt;b&gt;&amp;&quot;&#39;</p>\n");
        check("[<i>](\"><script>)", "<p><a href=\"to:&quot;&gt;&lt;script&gt;\">&lt;i&gt;</a></p>\n");
        check("# <h>", "<h1 id=\"h\">&lt;h&gt;</h1>\n");
        check(
            "```\"><x\n<y>\n",
            "<pre tabindex=\"0\" role=\"region\" aria-label=\"&quot;&gt;&lt;x\"><code>&lt;y&gt;\n</code></pre>\n",
        );
        check(
            "| <a> |\n|---|\n| `<b>` |",
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"table\"><table>\n\
             <tr><th>&lt;a&gt;</th></tr>\n<tr><td><code>&lt;b&gt;</code></td></tr>\n</table></div>\n",
        );
    }

    #[test]
    fn what_is_not_finished_ends_with_the_text() {
        for text in ["```", "[a](", "**a", "`a", "|", "| a |\n|--", "1. ", "* ", "#", "###### x", "*", "[]()", "é*ü"]
        {
            assert!(!render(text, |_| None).is_empty(), "{text}");
        }
    }
}
