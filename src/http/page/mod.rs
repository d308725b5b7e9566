//! The page at `/`: one document, its scripts and its style sheet, all part of the binary
//! (`assets/`).
//!
//! `http::routes` calls this module. The scripts query `/api/v1` and build the document with DOM
//! calls only: text from keys and logs never becomes markup. The content security policy allows
//! only these files and requests to the exporter. Paths are relative, so a proxy may serve
//! everything below its own path. In reading order:
//!
//! * this file: the files of the page
//! * `landing`: `/` without scripts
//! * `runbooks`: `/runbooks/`
//! * `markdown`: from Markdown to HTML, for the runbooks

pub(super) mod landing;
mod markdown;
pub(super) mod runbooks;

use super::routes::{CSS, HTML, JAVASCRIPT, SVG};

/// Allows scripts and style sheets from the exporter, and nothing inline.
pub(super) const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) const DOCUMENT: PageAsset = PageAsset { content_type: HTML, text: include_str!("assets/index.html") };

pub(super) struct PageAsset {
    pub(super) content_type: &'static str,
    pub(super) text: &'static str,
}

/// Keyed by the part of the path after `/page/`.
const FILES: [(&str, PageAsset); 12] = [
    ("page.css", PageAsset { content_type: CSS, text: include_str!("assets/page.css") }),
    ("icon.svg", PageAsset { content_type: SVG, text: include_str!("assets/icon.svg") }),
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

const fn script(text: &'static str) -> PageAsset {
    PageAsset { content_type: JAVASCRIPT, text }
}

pub(super) fn file(path: &str) -> Option<&'static PageAsset> {
    let name = path.strip_prefix("/page/")?;
    FILES.iter().find(|(known, _)| *known == name).map(|(_, file)| file)
}
