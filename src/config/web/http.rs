//! Reads the sections `http_server_config` and `rate_limit` of the web configuration and reports
//! invalid values.

use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue};

use super::super::yaml::document::{YamlNode, YamlValue, quote};
use super::super::yaml::fields::YamlMapping;
use super::super::yaml::problem::ProblemCollector;
use super::RateLimit;

/// The headers that can be set, and their allowed values. An empty list allows any value.
const HEADERS: [(&str, &[&str]); 5] = [
    ("Strict-Transport-Security", &[]),
    ("X-Content-Type-Options", &["nosniff"]),
    ("X-Frame-Options", &["deny", "sameorigin"]),
    ("X-XSS-Protection", &[]),
    ("Content-Security-Policy", &[]),
];

/// `http2` is accepted and has no effect, because the server offers only HTTP/1.1.
pub(super) fn headers(node: &YamlNode, findings: &mut ProblemCollector) -> Vec<(HeaderName, HeaderValue)> {
    let Some(fields) = YamlMapping::of(node, "`http_server_config`", &["http2", "headers"], findings) else {
        return Vec::new();
    };
    fields.boolean("http2", findings);
    let Some(node) = super::section(&fields, "headers") else { return Vec::new() };
    let names = HEADERS.map(|(name, _)| name);
    let Some(written) = YamlMapping::of(node, "`headers`", &names, findings) else { return Vec::new() };
    HEADERS.iter().filter_map(|(name, allowed)| header(&written, name, allowed, findings)).collect()
}

/// Reads one header. An empty value means that the header is not set, unless only certain values
/// are allowed.
fn header(
    written: &YamlMapping<'_>,
    name: &'static str,
    allowed: &[&str],
    findings: &mut ProblemCollector,
) -> Option<(HeaderName, HeaderValue)> {
    let node = written.get(name)?;
    let is_blank =
        matches!(&node.kind, YamlValue::Null) || matches!(&node.kind, YamlValue::Text(text) if text.is_empty());
    if is_blank && allowed.is_empty() {
        return None;
    }
    let value = match &node.kind {
        // YAML reads `X-XSS-Protection: 0` as a number.
        YamlValue::Integer(number) => number.to_string(),
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

/// Returns `None` if there is no limit or after reporting a problem.
pub(super) fn rate_limit(node: &YamlNode, findings: &mut ProblemCollector) -> Option<RateLimit> {
    let fields = YamlMapping::of(node, "`rate_limit`", &["interval", "burst"], findings)?;
    // A bare 0 is a valid duration here and turns the limit off.
    let is_off = matches!(fields.get("interval"), None | Some(YamlNode { kind: YamlValue::Integer(0), .. }));
    let interval = if is_off { None } else { fields.duration("interval", findings) };
    let burst = fields.count("burst", findings);
    match (interval, burst) {
        (Some(interval), Some(burst)) if interval.value > Duration::ZERO => {
            Some(RateLimit { interval: interval.value, burst: burst.value })
        }
        (Some(interval), None) if interval.value > Duration::ZERO && !fields.has("burst") => {
            findings.add(interval.place, "`rate_limit` without `burst` rejects every request", "add `burst: 20`");
            None
        }
        _ => None,
    }
}
