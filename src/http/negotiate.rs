//! Content negotiation: the text format by `Accept`, gzip by `Accept-Encoding`. `routes` calls it.
//!
//! No client is refused. If a client accepts nothing that the exporter offers, it gets uncompressed
//! classic text, as from other exporters.

use hyper::HeaderMap;
use hyper::header::{ACCEPT, ACCEPT_ENCODING, HeaderName};

use crate::exposition::TextFormat;

/// Returns the format with the highest quality. If both are equal, the one named first wins. A bare
/// `*/*` gets classic text.
pub(super) fn format(headers: &HeaderMap) -> TextFormat {
    let ranges = ranges(headers, &ACCEPT);
    let openmetrics = best_match(&ranges, "application/openmetrics-text", "1.0.0");
    let classic = best_match(&ranges, "text/plain", "0.0.4");
    let Some(openmetrics) = openmetrics.filter(|wish| wish.quality > 0.0) else { return TextFormat::Classic };
    let prefer_openmetrics = match classic {
        Some(classic) if classic.quality == openmetrics.quality => openmetrics.position < classic.position,
        Some(classic) => classic.quality < openmetrics.quality,
        None => true,
    };
    if prefer_openmetrics { TextFormat::OpenMetrics } else { TextFormat::Classic }
}

pub(super) fn gzip(headers: &HeaderMap) -> bool {
    let ranges = ranges(headers, &ACCEPT_ENCODING);
    let quality = |names: &[&str]| {
        let named = ranges.iter().find(|range| names.iter().any(|name| range.name.eq_ignore_ascii_case(name)));
        named.map(|range| range.quality)
    };
    let gzip = quality(&["gzip", "x-gzip"]).or_else(|| quality(&["*"])).unwrap_or(0.0);
    gzip > 0.0 && gzip >= quality(&["identity"]).unwrap_or(0.0)
}

/// One element of an `Accept` or `Accept-Encoding` header, such as
/// `text/plain;version=0.0.4;q=0.5`.
struct Range<'a> {
    name: &'a str,
    version: Option<&'a str>,
    quality: f32,
}

struct Preference {
    quality: f32,
    position: usize,
}

fn ranges<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Vec<Range<'a>> {
    let lines = headers.get_all(name).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(parse_range).filter(|range| !range.name.is_empty()).collect()
}

fn parse_range(text: &str) -> Range<'_> {
    let mut parts = text.split(';').map(str::trim);
    let mut range = Range { name: parts.next().unwrap_or(""), version: None, quality: 1.0 };
    for (name, value) in parts.filter_map(|parameter| parameter.split_once('=')) {
        let value = value.trim().trim_matches('"');
        match name.trim() {
            "q" | "Q" => range.quality = value.parse().ok().filter(|q| (0.0..=1.0).contains(q)).unwrap_or(0.0),
            name if name.eq_ignore_ascii_case("version") => range.version = Some(value),
            _ => {}
        }
    }
    range
}

/// The most specific range that matches this type and version decides, regardless of its position.
/// Among equally specific ranges, the highest quality wins.
fn best_match(ranges: &[Range<'_>], media_type: &str, version: &str) -> Option<Preference> {
    let main_type = media_type.split('/').next().unwrap_or("");
    let specificity = |range: &Range<'_>| match range.version {
        Some(wanted) if wanted != version => None,
        Some(_) if range.name.eq_ignore_ascii_case(media_type) => Some(3),
        None if range.name.eq_ignore_ascii_case(media_type) => Some(2),
        _ if range.name.strip_suffix("/*").is_some_and(|name| name.eq_ignore_ascii_case(main_type)) => Some(1),
        _ if range.name == "*/*" => Some(0),
        _ => None,
    };
    let matches = ranges.iter().enumerate().filter_map(|(position, range)| {
        let wish = Preference { quality: range.quality, position };
        specificity(range).map(|specificity| (specificity, wish))
    });
    let best =
        matches.reduce(|best, next| if (next.0, next.1.quality) > (best.0, best.1.quality) { next } else { best });
    best.map(|(_, wish)| wish)
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn headers(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    fn check_format(accept: &str, expected: TextFormat) {
        assert_eq!(format(&headers(ACCEPT, accept)), expected, "{accept}");
    }

    fn check_gzip(accept_encoding: &str, expected: bool) {
        assert_eq!(gzip(&headers(ACCEPT_ENCODING, accept_encoding)), expected, "{accept_encoding}");
    }

    #[test]
    fn prometheus_gets_openmetrics() {
        use TextFormat::OpenMetrics;
        // The headers of Prometheus 2.45, of 2.50 with native histograms, and of 3.x.
        check_format(
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
             text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            OpenMetrics,
        );
        check_format(
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,\
             application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
             text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            OpenMetrics,
        );
        check_format(
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;\
             version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,\
             */*;q=0.2",
            OpenMetrics,
        );
    }

    #[test]
    fn the_format_with_the_higher_quality_wins() {
        use TextFormat::{Classic, OpenMetrics};
        check_format("application/openmetrics-text", OpenMetrics);
        check_format("Application/OpenMetrics-Text; Version=\"1.0.0\"; Q=0.9, text/plain; q=0.8", OpenMetrics);
        check_format("application/openmetrics-text;q=0.3, text/plain;q=0.7", Classic);
        check_format("text/plain, application/openmetrics-text", Classic);
        check_format("application/openmetrics-text, text/plain", OpenMetrics);
        check_format("text/plain;q=0, */*", OpenMetrics);
        check_format("application/*, text/*;q=0.5", OpenMetrics);
    }

    #[test]
    fn everybody_else_gets_classic_text() {
        for accept in [
            "*/*",
            "",
            ",;,",
            "text/plain",
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            "application/json",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;version=1.0.0;q=0,*/*",
            "application/openmetrics-text;version=0.0.1,text/plain;version=0.0.4;q=0.5",
            "application/openmetrics-text;version=2.0.0",
            "application/openmetrics-text;q=nonsense",
            "text/plain;version=1.0.0",
        ] {
            check_format(accept, TextFormat::Classic);
        }
        assert_eq!(format(&HeaderMap::new()), TextFormat::Classic);
    }

    #[test]
    fn several_header_lines_are_one_list() {
        let mut headers = headers(ACCEPT, "text/plain;q=0.5");
        headers.append(ACCEPT, HeaderValue::from_static("application/openmetrics-text;version=1.0.0"));
        assert_eq!(format(&headers), TextFormat::OpenMetrics);
    }

    #[test]
    fn gzip_only_for_who_asks() {
        for accept_encoding in ["gzip", "deflate, GZIP;q=0.5, br", "x-gzip", "*", "identity;q=0.5, gzip", "gzip, *;q=0"]
        {
            check_gzip(accept_encoding, true);
        }
        for accept_encoding in ["", "identity", "br", "gzip;q=0", "gzip;q=0, *", "*;q=0", "gzip;q=0.1, identity;q=0.9"]
        {
            check_gzip(accept_encoding, false);
        }
        assert!(!gzip(&HeaderMap::new()));
    }
}
