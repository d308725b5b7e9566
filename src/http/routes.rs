//! Maps a request to its response. The parent module has a table of the routes.
//!
//! `connection` calls [`answer`]. Only push requests have their body read. For `HEAD`, hyper omits
//! the body of the response and keeps its length.

use std::io::Write;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderMap, HeaderName,
    HeaderValue, LOCATION, ORIGIN, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::{info, warn};

use super::page::{landing, runbooks};
use super::process::read_process;
use super::{Context, ReloadRequest, api, negotiate, page, push};
use crate::exposition::{Build, Scrape};
use crate::snapshot::Snapshot;

pub(super) type HttpResponse = Response<Full<Bytes>>;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
pub(super) const HTML: &str = "text/html; charset=utf-8";
pub(super) const CSS: &str = "text/css; charset=utf-8";
pub(super) const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
pub(super) const SVG: &str = "image/svg+xml";

pub(super) async fn answer(context: &Context, request: Request<Incoming>) -> HttpResponse {
    let (reading, writing): (&[Method], &[Method]) = (&[Method::GET, Method::HEAD], &[Method::POST, Method::PUT]);
    let methods = match request.uri().path() {
        "/metrics" | "/-/healthy" | "/-/ready" | "/" => reading,
        "/-/reload" | push::PATH => writing,
        path if api::is_route(path) || is_for_people(context, path) => reading,
        _ => return text(StatusCode::NOT_FOUND, "not found\n"),
    };
    if !methods.contains(request.method()) {
        let allowed = if methods == reading { "GET, HEAD" } else { "POST, PUT" };
        let refusal = text(StatusCode::METHOD_NOT_ALLOWED, format!("method not allowed, only {allowed}\n"));
        return with(refusal, ALLOW, allowed);
    }
    if methods == writing && is_from_elsewhere(request.headers()) {
        return text(StatusCode::FORBIDDEN, "a page of another site may not do this\n");
    }
    match request.uri().path() {
        "/metrics" => metrics(context, &request),
        "/-/healthy" => text(StatusCode::OK, "healthy\n"),
        "/-/ready" => ready(context),
        "/-/reload" => reload(context).await,
        "/" => front_page(context, &request),
        push::PATH => push::answer(context, request).await,
        path if api::is_route(path) => api::answer(context, &request).await,
        path => for_people(&request, path),
    }
}

/// Returns whether a page of another site made the browser send this request. Browsers send one of
/// these headers; other programs send neither.
fn is_from_elsewhere(headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    match text(HeaderName::from_static("sec-fetch-site")) {
        Some(site) => !matches!(site, "same-origin" | "none"),
        None => text(ORIGIN).is_some_and(|origin| origin.split_once("://").map(|(_, host)| host) != text(HOST)),
    }
}

/// Renders and compresses in this task, because the text is small. No lock is held meanwhile.
fn metrics<B>(context: &Context, request: &Request<B>) -> HttpResponse {
    let snapshot = Arc::clone(&context.app.snapshot.borrow());
    let format = negotiate::format(request.headers());
    let text = Scrape { snapshot, process: read_process(), build: Build::CURRENT }.render(format);
    with(packed(request, &text, format.content_type()), VARY, "Accept, Accept-Encoding")
}

/// Compresses the text if the client accepts gzip.
fn packed<B>(request: &Request<B>, text: &str, content_type: &'static str) -> HttpResponse {
    let packed = if negotiate::gzip(request.headers()) { gzip(text) } else { None };
    let is_packed = packed.is_some();
    let body = packed.unwrap_or_else(|| text.as_bytes().to_vec());
    let answer = with(plain(StatusCode::OK, body, content_type), VARY, "Accept-Encoding");
    if is_packed { with(answer, CONTENT_ENCODING, "gzip") } else { answer }
}

fn gzip(text: &str) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 8), Compression::fast());
    encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish()).ok()
}

/// The exporter is ready even if Redis is down, because it still counts logs. The response names
/// what is degraded.
fn ready(context: &Context) -> HttpResponse {
    if context.stop.is_cancelled() {
        return text(StatusCode::SERVICE_UNAVAILABLE, "shutting down\n");
    }
    match (context.app.readiness)() {
        Ok(()) => text(StatusCode::OK, format!("ready\n{}", degraded(&context.app.snapshot.borrow()))),
        Err(reasons) => text(StatusCode::SERVICE_UNAVAILABLE, format!("not ready\n{}\n", reasons.trim_end())),
    }
}

/// Returns one line per problem.
fn degraded(snapshot: &Snapshot) -> String {
    let logs = snapshot.sources.iter().filter_map(|source| {
        let complaint = source.now.complaint.as_ref()?;
        Some(format!("degraded: log source {}: {complaint}\n", source.name))
    });
    let logs: String = logs.collect();
    let Some(redis) = &snapshot.redis else { return logs };
    let complaints = redis.now.complaints.iter().map(|complaint| format!("degraded: {complaint}\n"));
    let down = (redis.now.complaints.is_empty() && !redis.now.is_up()).then(|| {
        let (up, known) = (redis.now.nodes_up, redis.now.nodes);
        format!("degraded: redis {}: {up} of {known} known primaries connected\n", redis.name)
    });
    logs + &complaints.chain(down).collect::<String>()
}

async fn reload(context: &Context) -> HttpResponse {
    let Some(requests) = &context.app.reload else {
        return text(
            StatusCode::FORBIDDEN,
            "reloading over http is off, start with --web.enable-lifecycle to allow it\n",
        );
    };
    let (answer, outcome) = oneshot::channel();
    let asked = async {
        requests.send(ReloadRequest { answer }).await.map_err(|_| "the exporter is shutting down".to_owned())?;
        outcome.await.map_err(|_| "the exporter is shutting down".to_owned())?
    };
    let outcome = timeout(context.limits.reload, asked).await;
    match outcome.unwrap_or_else(|_| Err("it takes too long, its outcome will be in the log".to_owned())) {
        Ok(()) => {
            info!("configuration reloaded over http");
            text(StatusCode::OK, "configuration reloaded\n")
        }
        Err(error) => {
            warn!(%error, "configuration not reloaded over http");
            text(StatusCode::INTERNAL_SERVER_ERROR, format!("configuration not reloaded: {}\n", error.trim_end()))
        }
    }
}

/// Returns the page. If the page or the API is off, returns the landing page, which needs no
/// scripts.
fn front_page<B>(context: &Context, request: &Request<B>) -> HttpResponse {
    let has_api = context.app.inquiries.is_some();
    if context.app.page && has_api {
        let page = shown(request, page::DOCUMENT.text, page::DOCUMENT.content_type);
        return with(page, CONTENT_SECURITY_POLICY, page::CONTENT_SECURITY_POLICY);
    }
    let routes: &[&str] = if has_api { &api::ROUTES } else { &[] };
    let page = landing::page(&context.app.snapshot.borrow(), Build::CURRENT, routes);
    with(shown(request, &page, HTML), CONTENT_SECURITY_POLICY, landing::CONTENT_SECURITY_POLICY)
}

/// Returns whether the path is a file of the page or a runbook.
fn is_for_people(context: &Context, path: &str) -> bool {
    let is_known =
        path == runbooks::PREFIX.trim_end_matches('/') || page::file(path).is_some() || runbooks::is_page(path);
    context.app.page && is_known
}

fn for_people<B>(request: &Request<B>, path: &str) -> HttpResponse {
    if let Some(file) = page::file(path) {
        return shown(request, file.text, file.content_type);
    }
    match runbooks::page(path) {
        Some(page) => {
            let policy = runbooks::CONTENT_SECURITY_POLICY;
            with(shown(request, &page, HTML), CONTENT_SECURITY_POLICY, policy)
        }
        // Without the slash, the relative links in the list of runbooks would be wrong.
        None => with(text(StatusCode::MOVED_PERMANENTLY, "see runbooks/\n"), LOCATION, "runbooks/"),
    }
}

/// Never cached: after an upgrade, all files of the page must have the same version.
fn shown<B>(request: &Request<B>, text: &str, content_type: &'static str) -> HttpResponse {
    let answer = with(packed(request, text, content_type), CACHE_CONTROL, "no-store");
    with(answer, REFERRER_POLICY, "no-referrer")
}

pub(super) fn json(status: StatusCode, body: String) -> HttpResponse {
    with(plain(status, body, JSON), CACHE_CONTROL, "no-store")
}

/// For status 200. Errors are short and use `json`, which does not compress.
pub(super) fn packed_json<B>(request: &Request<B>, body: &str) -> HttpResponse {
    with(packed(request, body, JSON), CACHE_CONTROL, "no-store")
}

pub(super) fn text(status: StatusCode, body: impl Into<Bytes>) -> HttpResponse {
    with(plain(status, body, TEXT), CACHE_CONTROL, "no-store")
}

fn plain(status: StatusCode, body: impl Into<Bytes>, content_type: &'static str) -> HttpResponse {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let answer = with(answer, CONTENT_TYPE, content_type);
    // Text that contains words from logs or the configuration must not be interpreted as HTML.
    with(answer, X_CONTENT_TYPE_OPTIONS, "nosniff")
}

fn with(mut answer: HttpResponse, name: HeaderName, value: &'static str) -> HttpResponse {
    answer.headers_mut().insert(name, HeaderValue::from_static(value));
    answer
}
