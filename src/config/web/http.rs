//! `http_server_config` and `rate_limit`.

use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue};

use super::super::yaml::document::{Kind, Node, quote};
use super::super::yaml::fields::Fields;
use super::super::yaml::problem::Findings;
use super::RateLimit;

/// The headers that can be set, and their values where only some make sense.
const HEADERS: [(&str, &[&str]); 5] = [
    ("Strict-Transport-Security", &[]),
    ("X-Content-Type-Options", &["nosniff"]),
    ("X-Frame-Options", &["deny", "sameorigin"]),
    ("X-XSS-Protection", &[]),
    ("Content-Security-Policy", &[]),
];

/// `http2` is read and has no effect: clients agree on HTTP/1.1, which is all that is served here.
pub(super) fn headers(node: &Node, findings: &mut Findings) -> Vec<(HeaderName, HeaderValue)> {
    let Some(fields) = Fields::of(node, "`http_server_config`", &["http2", "headers"], findings) else {
        return Vec::new();
    };
    fields.boolean("http2", findings);
    let Some(node) = super::section(&fields, "headers") else { return Vec::new() };
    let names = HEADERS.map(|(name, _)| name);
    let Some(written) = Fields::of(node, "`headers`", &names, findings) else { return Vec::new() };
    HEADERS.iter().filter_map(|(name, allowed)| header(&written, name, allowed, findings)).collect()
}

/// A blank value is the same as none.
fn header(
    written: &Fields<'_>,
    name: &'static str,
    allowed: &[&str],
    findings: &mut Findings,
) -> Option<(HeaderName, HeaderValue)> {
    let node = written.get(name)?;
    let is_blank = matches!(&node.kind, Kind::Null) || matches!(&node.kind, Kind::Text(text) if text.is_empty());
    if is_blank && allowed.is_empty() {
        return None;
    }
    let value = match &node.kind {
        // `X-XSS-Protection: 0` is read as a number.
        Kind::Integer(number) => number.to_string(),
        _ => written.text(name, findings)?.value,
    };
    if !allowed.is_empty() && !allowed.contains(&value.as_str()) {
        let message = format!("`{name}` cannot be {}", quote(&value));
        findings.add(node.place, message, format!("allowed: {}", allowed.join(", ")));
        return None;
    }
    let name_bytes = HeaderName::from_bytes(name.as_bytes()).ok()?;
    match HeaderValue::from_str(&value) {
        Ok(value) => Some((name_bytes, value)),
        Err(_) => {
            let message = format!("the value of `{name}` cannot be sent");
            findings.add(node.place, message, "use visible ASCII characters on one line");
            None
        }
    }
}

/// `None`: there is no limit, or it was reported what is wrong with it.
pub(super) fn rate_limit(node: &Node, findings: &mut Findings) -> Option<RateLimit> {
    let fields = Fields::of(node, "`rate_limit`", &["interval", "burst"], findings)?;
    // A bare 0 is a duration too, and the way to turn it off.
    let is_off = matches!(fields.get("interval"), None | Some(Node { kind: Kind::Integer(0), .. }));
    let interval = if is_off { None } else { fields.duration("interval", findings) };
    let burst = fields.count("burst", findings);
    match (interval, burst) {
        (Some(interval), Some(burst)) if interval.value > Duration::ZERO => {
            Some(RateLimit { interval: interval.value, burst: burst.value })
        }
        (Some(interval), None) if interval.value > Duration::ZERO && !fields.has("burst") => {
            findings.add(interval.place, "`rate_limit` without `burst` lets nobody in", "add `burst: 20`");
            None
        }
        _ => None,
    }
}
