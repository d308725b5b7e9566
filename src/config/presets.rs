//! The presets that are part of the program: namespaces and rules for programs and lock libraries, as YAML files.

use super::document::Document;

/// Rules that fit many programs. Always in effect, after all others.
const GENERIC: &str = include_str!("../../presets/generic.yaml");

const PRESETS: [(&str, &str); 1] = [("cordum", include_str!("../../presets/cordum.yaml"))];

/// Names that `presets` and `--preset` take.
pub fn names() -> Vec<&'static str> {
    PRESETS.iter().map(|(name, _)| *name).collect()
}

pub(super) fn find(name: &str) -> Option<Document> {
    PRESETS.iter().find(|(known, _)| *known == name).map(|(name, text)| document(name, text))
}

pub(super) fn generic() -> Document {
    document("generic", GENERIC)
}

fn document(name: &str, text: &str) -> Document {
    Document { name: format!("preset {name}"), text: text.to_owned() }
}
