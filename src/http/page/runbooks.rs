//! `/runbooks/`: the runbooks of the alerts, as HTML.
//!
//! `routes` calls this module. The runbooks are part of the binary, so that `runbook_url` can point
//! to the exporter and works even if nothing else is reachable.

use super::markdown;
use crate::bundle::original;
use crate::util::html::Escaped;

pub(in crate::http) const PREFIX: &str = "/runbooks/";

/// Allows no scripts.
pub(in crate::http) const CONTENT_SECURITY_POLICY: &str =
    "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Returns a runbook by the part of its path after the prefix. The empty name is the list of
/// runbooks.
fn text_of(name: &str) -> Option<&'static str> {
    match name {
        "" => original("docs/runbooks/README.md"),
        "README" => None,
        name => original(&format!("docs/runbooks/{name}.md")),
    }
}

pub(in crate::http) fn is_page(path: &str) -> bool {
    path.strip_prefix(PREFIX).is_some_and(|name| text_of(name).is_some())
}

/// Returns the page as HTML, or `None` if there is no such runbook.
pub(in crate::http) fn page(path: &str) -> Option<String> {
    let name = path.strip_prefix(PREFIX)?;
    let text = text_of(name)?;
    let depth = name.matches('/').count() + 1;
    let root = "../".repeat(depth);
    let title = text.lines().next().unwrap_or_default().trim_start_matches("# ");
    let title = Escaped(title);
    let body = markdown::render(text, |link| resolve(name, link));
    Some(format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>{title} · runbook</title>\n\
         <link rel=\"icon\" href=\"{root}page/icon.svg\">\n<link rel=\"stylesheet\" href=\"{root}page/page.css\"></head>\n\
         <body>\n<header class=\"top\"><a class=\"brand\" href=\"{root}\">redis_lock_exporter</a>\n\
         <nav aria-label=\"Main\"><a href=\"{root}#/\">Overview</a><a href=\"{root}#/incidents\">Incidents</a>\
         <a href=\"{root}#/exporter\">Exporter</a><a href=\"{root}runbooks/\" aria-current=\"page\">Runbooks</a></nav></header>\n\
         <main class=\"prose\" id=\"main\">\n{body}</main>\n</body></html>\n"
    ))
}

/// Resolves a link of a runbook to another runbook, or to the file in the repository.
fn resolve(page: &str, link: &str) -> Option<String> {
    if link.starts_with("https://") || link.starts_with("http://") {
        return Some(link.to_owned());
    }
    let (file, anchor) =
        link.split_once('#').map_or((link, String::new()), |(file, anchor)| (file, format!("#{anchor}")));
    if file.is_empty() {
        return Some(anchor);
    }
    let mut place: Vec<&str> = ["docs", "runbooks"].into_iter().chain(page.split('/')).collect();
    place.pop();
    for part in file.split('/') {
        match part {
            ".." => drop(place.pop()?),
            "." => {}
            part => place.push(part),
        }
    }
    let target = place.join("/");
    let runbook = target.strip_prefix("docs/runbooks/").and_then(|name| name.strip_suffix(".md"));
    let runbook = runbook.map(|name| if name == "README" { "" } else { name });
    match runbook.filter(|name| text_of(name).is_some()) {
        Some(name) => Some(format!("{}{name}{anchor}", "../".repeat(page.matches('/').count()) + "./")),
        None => Some(format!("{}/blob/main/{target}{anchor}", env!("CARGO_PKG_REPOSITORY"))),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_runbook_of_the_repository_is_here() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/runbooks");
        let mut names = BTreeSet::new();
        for (folder, prefix) in [(directory.clone(), ""), (directory.join("common"), "common/")] {
            for entry in std::fs::read_dir(folder).unwrap() {
                let file = entry.unwrap().file_name().into_string().unwrap();
                let name = file.strip_suffix(".md").map(|name| format!("{prefix}{name}"));
                names.extend(name.map(|name| if name == "README" { String::new() } else { name }));
            }
        }
        let missing: Vec<&String> = names.iter().filter(|name| text_of(name).is_none()).collect();
        assert!(names.len() > 40 && missing.is_empty(), "add {missing:?} to src/pack.rs");
    }

    #[test]
    fn links_lead_to_runbooks_or_into_the_repository() {
        let check = |page, link, expected: Option<&str>| assert_eq!(resolve(page, link).as_deref(), expected, "{link}");
        check("", "RedisLockAbandoned.md", Some("./RedisLockAbandoned"));
        check("RedisLockAbandoned", "common/causes.md#decision-table", Some("./common/causes#decision-table"));
        check("common/causes", "looking.md", Some(".././common/looking"));
        check("common/causes", "../RedisLockAbandoned.md", Some(".././RedisLockAbandoned"));
        check("common/causes", "../README.md", Some(".././"));
        check("common/causes", "#here", Some("#here"));
        let repository = env!("CARGO_PKG_REPOSITORY");
        let outside = format!("{repository}/blob/main/docs/configuration.md#namespaces");
        check("common/causes", "../../configuration.md#namespaces", Some(&outside));
        check("", "../../alerts", Some(&format!("{repository}/blob/main/alerts")));
        check("", "https://example.com/", Some("https://example.com/"));
        check("", "../../../../etc", None);
    }
}
