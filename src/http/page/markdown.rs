//! Converts the Markdown of the runbooks to HTML. pulldown-cmark parses and writes it; this file
//! adds the anchors of headings, regions that scroll, and the targets of links.
//!
//! `runbooks` calls [`render`]. All text is escaped, so HTML in the Markdown stays text. The caller
//! resolves link targets; a link without a target becomes plain text, and so does an image.

use pulldown_cmark::{Alignment, CodeBlockKind, Event, Options, Parser, Tag, TagEnd, html};

use crate::util::html::Escaped;

pub(in crate::http) fn render(text: &str, resolve: impl Fn(&str) -> Option<String>) -> String {
    let mut page = Page { resolve, events: Vec::new(), heading: None, open_links: Vec::new() };
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        page.add(event);
    }
    let mut html = String::with_capacity(text.len() * 2);
    html::push_html(&mut html, page.events.into_iter());
    html
}

struct Page<'a, R> {
    resolve: R,
    events: Vec<Event<'a>>,
    /// Index of the heading that is open, and its text so far.
    heading: Option<(usize, String)>,
    /// For each link that is open: whether it has a target.
    open_links: Vec<bool>,
}

impl<'a, R: Fn(&str) -> Option<String>> Page<'a, R> {
    fn add(&mut self, event: Event<'a>) {
        if let (Some((_, words)), Event::Text(text) | Event::Code(text) | Event::InlineHtml(text)) =
            (&mut self.heading, &event)
        {
            words.push_str(text);
        }
        match event {
            Event::Start(tag) => self.open(tag),
            Event::End(tag) => self.close(tag),
            Event::Html(text) | Event::InlineHtml(text) => self.events.push(Event::Text(text)),
            event => self.events.push(event),
        }
    }

    fn open(&mut self, tag: Tag<'a>) {
        match tag {
            Tag::Heading { .. } => self.heading = Some((self.events.len(), String::new())),
            // Wide code and tables scroll, so the keyboard must be able to focus them.
            Tag::CodeBlock(kind) => {
                let label = match &kind {
                    CodeBlockKind::Fenced(language) if !language.is_empty() => language,
                    _ => "code",
                };
                let label = Escaped(label);
                return self.add_html(format!("<pre tabindex=\"0\" role=\"region\" aria-label=\"{label}\"><code>"));
            }
            // Without alignment, which would be an inline style: the page allows none.
            Tag::Table(columns) => {
                self.add_html("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"table\">".to_owned());
                return self.events.push(Event::Start(Tag::Table(vec![Alignment::None; columns.len()])));
            }
            Tag::Link { link_type, dest_url, title, id } => {
                let target = (self.resolve)(&dest_url);
                self.open_links.push(target.is_some());
                let link = |dest_url: String| Tag::Link { link_type, dest_url: dest_url.into(), title, id };
                return self.events.extend(target.map(|target| Event::Start(link(target))));
            }
            Tag::Image { .. } => return,
            _ => {}
        }
        self.events.push(Event::Start(tag));
    }

    fn close(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(_) => {
                if let Some((index, words)) = self.heading.take()
                    && let Event::Start(Tag::Heading { id, .. }) = &mut self.events[index]
                {
                    *id = Some(anchor(&words).into());
                }
            }
            TagEnd::CodeBlock => return self.add_html("</code></pre>\n".to_owned()),
            TagEnd::Table => {
                self.events.push(Event::End(tag));
                return self.add_html("</div>\n".to_owned());
            }
            TagEnd::Link if self.open_links.pop() == Some(false) => return,
            TagEnd::Image => return,
            _ => {}
        }
        self.events.push(Event::End(tag));
    }

    fn add_html(&mut self, html: String) {
        self.events.push(Event::Html(html.into()));
    }
}

/// Builds the same anchors as GitHub.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    kept.collect::<String>().replace(' ', "-")
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
            "| a | b |\n|---|:-:|\n| `x\\|y` | |\n\nend",
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"table\"><table>\
             <thead><tr><th>a</th><th>b</th></tr></thead><tbody>\n\
             <tr><td><code>x|y</code></td><td></td></tr>\n</tbody></table>\n</div>\n<p>end</p>\n",
        );
        check(
            "```sh\ncat <in # *x*\n```\nend",
            "<pre tabindex=\"0\" role=\"region\" aria-label=\"sh\"><code>cat &lt;in # *x*\n</code></pre>\n<p>end</p>\n",
        );
    }

    #[test]
    fn words_inside_a_line() {
        check("**a *b*** c", "<p><strong>a <em>b</em></strong> c</p>\n");
        check("*a* 2 * 3 * 4 `*`", "<p><em>a</em> 2 * 3 * 4 <code>*</code></p>\n");
        check("[a `b`](c.md#d) [e] (f)", "<p><a href=\"to:c.md#d\">a <code>b</code></a> [e] (f)</p>\n");
        let nowhere = render("[a](javascript:alert)", |_| None);
        assert_eq!(nowhere, "<p>a</p>\n");
    }

    #[test]
    fn everything_is_escaped() {
        check("a <b>&\"'", "<p>a &lt;b&gt;&amp;\"'</p>\n");
        check("<script>\nx\n</script>\n", "&lt;script&gt;\nx\n&lt;/script&gt;\n");
        check("![<a>](b.png)", "<p>&lt;a&gt;</p>\n");
        check("[<i>](\">x)", "<p><a href=\"to:%22%3Ex\">&lt;i&gt;</a></p>\n");
        check("# <h>", "<h1 id=\"h\">&lt;h&gt;</h1>\n");
        check(
            "```\"><x\n<y>\n",
            "<pre tabindex=\"0\" role=\"region\" aria-label=\"&quot;&gt;&lt;x\"><code>&lt;y&gt;\n</code></pre>\n",
        );
        check(
            "| <a> |\n|---|\n| `<b>` |",
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"table\"><table>\
             <thead><tr><th>&lt;a&gt;</th></tr></thead><tbody>\n\
             <tr><td><code>&lt;b&gt;</code></td></tr>\n</tbody></table>\n</div>\n",
        );
    }

    #[test]
    fn what_is_not_finished_ends_with_the_text() {
        for text in ["```", "[a](", "**a", "`a", "|", "| a |\n|--", "1. ", "* ", "#", "###### x", "*", "[](b)", "é*ü"]
        {
            assert!(!render(text, |_| None).is_empty(), "{text}");
        }
    }
}
