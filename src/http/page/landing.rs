//! The landing page: the version, links to the routes, and the main counters. `/` shows it if the
//! page or the API is off.
//!
//! `routes` calls [`page`]. It is one self-contained document without scripts. All text from the
//! configuration is escaped. The content security policy allows only the style sheet inside the
//! document, by its hash.

use std::fmt;

use crate::exposition::Build;
use crate::model::failure::FailureKind;
use crate::model::label::Label;
use crate::snapshot::{KeyspaceView, Snapshot};
use crate::util::html::Escaped;

/// Contains the hash of [`STYLE`]; a test compares them.
pub(in crate::http) const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'sha256-mDqisd/CQetTJ3mYs49/0tmI3i3LIpubuRrIgD7qOTQ='; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'";

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:1rem/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.5rem}small{font-weight:normal;opacity:.7}\
.scroll{overflow-x:auto}table{border-collapse:collapse}\
th,td{padding:.3rem .8rem;border-bottom:1px solid #8886;text-align:right}\
th:first-child,td:first-child{text-align:left}td{font-variant-numeric:tabular-nums}\
.zero{opacity:.4}";

const KEYSPACE_COLUMNS: [&str; 8] =
    ["held now", "acquisitions", "renewals", "releases", "expirations", "unknown ends", "owner changes", "takeovers"];

/// `routes` are the paths of the API, or empty if it is off.
pub(in crate::http) fn page(snapshot: &Snapshot, build: Build, routes: &[&str]) -> String {
    let kinds = FailureKind::ALL.iter().map(|kind| kind.counter().replace('_', " "));
    let failures = table(kinds, &failure_rows(snapshot));
    let locks = locks(snapshot);
    let routes: String = routes.iter().map(|route| format!(" · <a href=\"{route}\">{route}</a>")).collect();
    let (version, revision) = (Escaped(build.version), Escaped(build.revision));
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>redis_lock_exporter</title>\n<style>{STYLE}</style></head>\n<body>\n\
         <h1>redis_lock_exporter <small>{version} ({revision})</small></h1>\n\
         <p>Prometheus exporter for distributed locks in Redis.\n\
         <a href=\"/metrics\">Metrics</a> · <a href=\"/-/healthy\">Healthy</a> · <a href=\"/-/ready\">Ready</a>{routes}</p>\n\
         <p>Failures read from the logs since counting began:</p>\n{failures}{locks}</body></html>\n"
    )
}

/// Returns an empty string if no Redis is configured.
fn locks(snapshot: &Snapshot) -> String {
    let Some(redis) = &snapshot.redis else { return String::new() };
    let state = if redis.now.is_up() { "connected" } else { "not connected" };
    let locks = table(KEYSPACE_COLUMNS, &keyspace_rows(snapshot));
    format!("<p>Locks observed in Redis {} ({state}) since counting began:</p>\n{locks}", Escaped(&redis.name))
}

fn table(columns: impl IntoIterator<Item: fmt::Display>, rows: &str) -> String {
    let columns: String = columns.into_iter().map(|column| format!("<th scope=\"col\">{column}</th>")).collect();
    let head = format!("<th scope=\"col\">lock namespace</th>{columns}");
    format!("<div class=\"scroll\"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n")
}

fn failure_rows(snapshot: &Snapshot) -> String {
    let rows = snapshot.namespaces.iter().map(|view| {
        let counts: Vec<u64> = FailureKind::ALL.iter().map(|kind| view.logs.total(*kind)).collect();
        row(&view.namespace.name, &counts)
    });
    rows.collect()
}

fn keyspace_rows(snapshot: &Snapshot) -> String {
    let rows = snapshot.namespaces.iter().filter_map(|view| {
        let KeyspaceView { counters, now, .. } = view.keyspace.as_ref()?;
        let counts = [
            now.held,
            counters.acquisitions,
            counters.renewals,
            counters.releases,
            counters.expirations,
            counters.unknown_ends,
            counters.owner_changes.total(),
            counters.takeover_seconds.count(),
        ];
        Some(row(&view.namespace.name, &counts))
    });
    rows.collect()
}

fn row(name: &str, counts: &[u64]) -> String {
    let cells: String = counts.iter().map(|count| cell(*count)).collect();
    format!("<tr><td>{}</td>{cells}</tr>\n", Escaped(name))
}

fn cell(count: u64) -> String {
    let class = if count == 0 { " class=\"zero\"" } else { "" };
    format!("<td{class}>{count}</td>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_snapshot_still_makes_a_page() {
        let page = page(&Snapshot::default(), Build { version: "1.2.3", revision: "<abc>" }, &[]);
        assert!(page.contains("1.2.3 (&lt;abc&gt;)"), "{page}");
        assert!(!page.contains("Redis main") && !page.contains("/api/"), "{page}");
        assert!(page.ends_with("</html>\n"));
    }
}
