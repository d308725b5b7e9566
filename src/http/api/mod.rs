//! `/api/v1`: lock namespaces and single locks as JSON. `docs/api.md` describes every field.
//!
//! `http::routes` calls this module. The overview, namespaces and configuration come from the
//! published snapshot. Only the ledger knows single locks, so these queries go to the pipeline over
//! a bounded channel. While the pipeline is busy the answer is 503, because a query must never
//! delay counting. In reading order:
//!
//! * this file: the routes of the API
//! * `parameters`: query parameters, decoded and checked
//! * `overview`: `/api/v1/overview`
//! * `namespaces`: `/api/v1/namespaces`
//! * `config`: `/api/v1/config`

mod config;
mod namespaces;
mod overview;
pub(crate) mod parameters;

use hyper::{Request, StatusCode};
use serde::Serialize;
use serde_json::json;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Context;
use super::routes::{HttpResponse, json, packed_json};
use crate::model::query::{IncidentsQuery, Inquiry, LockOrder, LocksQuery};
use crate::util::clock;
use crate::util::percent::percent_decode;
use parameters::{Parameters, bad};

const OVERVIEW: &str = "/api/v1/overview";
const NAMESPACES: &str = "/api/v1/namespaces";
const LOCKS: &str = "/api/v1/locks";
const INCIDENTS: &str = "/api/v1/incidents";
const CONFIG: &str = "/api/v1/config";

/// The landing page links to these routes.
pub(super) const ROUTES: [&str; 5] = [OVERVIEW, NAMESPACES, LOCKS, INCIDENTS, CONFIG];

const STARTING: &str = "the exporter is starting, ask again";

/// An error response of the API.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    pub(super) message: String,
}

impl ApiError {
    pub(super) fn bad_request(message: String) -> Self {
        Self { status: StatusCode::BAD_REQUEST, message }
    }

    fn not_found(message: impl Into<String>) -> Self {
        Self { status: StatusCode::NOT_FOUND, message: message.into() }
    }

    fn unavailable(message: &str) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, message: message.to_owned() }
    }
}

/// Returns whether a path is one of these routes. A lock's key may contain any character, including
/// slashes.
pub(super) fn is_route(path: &str) -> bool {
    ROUTES.contains(&path) || key_of(path).is_some()
}

fn key_of(path: &str) -> Option<&str> {
    path.strip_prefix(LOCKS)?.strip_prefix('/').filter(|key| !key.is_empty())
}

pub(super) async fn answer<B>(context: &Context, request: &Request<B>) -> HttpResponse {
    match look_up(context, request).await {
        Ok(body) => packed_json(request, &body),
        Err(ApiError { status, message }) => json(status, json!({ "error": message }).to_string()),
    }
}

async fn look_up<B>(context: &Context, request: &Request<B>) -> Result<String, ApiError> {
    if context.app.inquiries.is_none() {
        return Err(ApiError::not_found("the API is off: the exporter was started with --web.disable-api"));
    }
    let parameters = Parameters::parse(request.uri().query())?;
    let path = request.uri().path();
    match path {
        OVERVIEW => {
            parameters.finish(&[])?;
            Ok(overview::body(&context.app.snapshot.borrow(), clock::now()))
        }
        CONFIG => {
            parameters.finish(&[])?;
            let config = context.app.snapshot.borrow().config.clone();
            config.map(|config| config::body(&config)).ok_or_else(|| ApiError::unavailable(STARTING))
        }
        NAMESPACES => {
            parameters.finish(&[])?;
            Ok(namespaces::body(&context.app.snapshot.borrow()))
        }
        LOCKS => locks(context, parameters).await,
        INCIDENTS => incidents(context, parameters).await,
        _ => lock(context, key_of(path).unwrap_or_default(), parameters).await,
    }
}

async fn locks(context: &Context, mut parameters: Parameters) -> Result<String, ApiError> {
    let sort = match parameters.take("sort").as_deref() {
        None | Some("ttl") => LockOrder::TtlRemaining,
        Some("held") => LockOrder::HeldLongest,
        Some("changes") => LockOrder::OwnerChanges,
        Some("key") => LockOrder::Key,
        Some(_) => return Err(bad("sort", "must be ttl, held, changes or key")),
    };
    let query = LocksQuery {
        lock_namespace: parameters.take("lock_namespace"),
        search: parameters.take("search"),
        sort,
        limit: parameters.take_limit()?,
        offset: parameters.take_offset()?,
    };
    parameters.finish(&["lock_namespace", "search", "sort", "limit", "offset"])?;
    must_be_known(context, query.lock_namespace.as_deref())?;
    let page = ask(context, |answer| Inquiry::Locks(query, answer)).await?;
    Ok(encode(&page))
}

async fn lock(context: &Context, key: &str, parameters: Parameters) -> Result<String, ApiError> {
    parameters.finish(&[])?;
    let key = percent_decode(key)
        .map_err(|_| ApiError::bad_request("the key in the path must be percent-encoded UTF-8".to_owned()))?;
    let history = ask(context, |answer| Inquiry::Lock(key, answer)).await?;
    let unknown = "nothing is known about this lock: it is not held, and nothing was observed recently";
    history.map(|history| encode(&history)).ok_or_else(|| ApiError::not_found(unknown))
}

async fn incidents(context: &Context, mut parameters: Parameters) -> Result<String, ApiError> {
    let query = IncidentsQuery {
        lock_namespace: parameters.take("lock_namespace"),
        limit: parameters.take_limit()?,
        offset: parameters.take_offset()?,
    };
    parameters.finish(&["lock_namespace", "limit", "offset"])?;
    must_be_known(context, query.lock_namespace.as_deref())?;
    let page = ask(context, |answer| Inquiry::Incidents(query, answer)).await?;
    Ok(encode(&page))
}

/// An unknown lock namespace is an error, because an empty page would suggest that nothing is
/// wrong.
fn must_be_known(context: &Context, lock_namespace: Option<&str>) -> Result<(), ApiError> {
    let Some(name) = lock_namespace else { return Ok(()) };
    let is_known = context.app.snapshot.borrow().namespaces.iter().any(|view| view.namespace.name == name);
    if is_known { Ok(()) } else { Err(ApiError::not_found(format!("there is no lock namespace {name:?}"))) }
}

async fn ask<T>(context: &Context, inquiry: impl FnOnce(oneshot::Sender<T>) -> Inquiry) -> Result<T, ApiError> {
    let busy = "the exporter is busy, ask again";
    let inquiries = context.app.inquiries.as_ref().and_then(|inquiries| inquiries.borrow().clone());
    let inquiries = inquiries.ok_or_else(|| ApiError::unavailable(STARTING))?;
    let (answer, answered) = oneshot::channel();
    inquiries.try_send(inquiry(answer)).map_err(|error| match error {
        TrySendError::Full(_) => ApiError::unavailable(busy),
        TrySendError::Closed(_) => ApiError::unavailable(STARTING),
    })?;
    // The pipeline ends only if the process stops. Then pending inquiries fail.
    match timeout(context.limits.inquiry, answered).await {
        Ok(answer) => answer.map_err(|_| ApiError::unavailable(STARTING)),
        Err(_) => Err(ApiError::unavailable(busy)),
    }
}

fn encode(answer: &impl Serialize) -> String {
    serde_json::to_string(answer).expect("answers have text keys only, and a String takes every write")
}
