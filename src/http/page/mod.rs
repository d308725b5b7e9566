//! The page at `/`: one document, its scripts and its style sheet, all part of the binary.
//!
//! The scripts ask `/api/v1` and build the document from the answers with DOM calls only: what comes from keys and logs is
//! text, never markup. The policy allows nothing but these files and questions to the exporter itself. Paths are relative,
//! so that a proxy may serve all of it below a path of its own.

pub(super) mod landing;
mod markdown;
pub(super) mod runbooks;

use super::routes::{CSS, HTML, JAVASCRIPT, SVG};

/// Scripts and style sheets of the exporter, and nothing inline.
pub(super) const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) const DOCUMENT: File = File { content_type: HTML, text: include_str!("assets/index.html") };

pub(super) struct File {
    pub(super) content_type: &'static str,
    pub(super) text: &'static str,
}

/// By the part of the path behind `/page/`.
const FILES: [(&str, File); 12] = [
    ("page.css", File { content_type: CSS, text: include_str!("assets/page.css") }),
    ("icon.svg", File { content_type: SVG, text: include_str!("assets/icon.svg") }),
    ("main.js", script(include_str!("assets/main.js"))),
    ("ask.js", script(include_str!("assets/ask.js"))),
    ("dom.js", script(include_str!("assets/dom.js"))),
    ("format.js", script(include_str!("assets/format.js"))),
    ("overview.js", script(include_str!("assets/overview.js"))),
    ("namespace.js", script(include_str!("assets/namespace.js"))),
    ("lock.js", script(include_str!("assets/lock.js"))),
    ("timeline.js", script(include_str!("assets/timeline.js"))),
    ("incidents.js", script(include_str!("assets/incidents.js"))),
    ("exporter.js", script(include_str!("assets/exporter.js"))),
];

const fn script(text: &'static str) -> File {
    File { content_type: JAVASCRIPT, text }
}

pub(super) fn file(path: &str) -> Option<&'static File> {
    let name = path.strip_prefix("/page/")?;
    FILES.iter().find(|(known, _)| *known == name).map(|(_, file)| file)
}
