//! `POST /loki/api/v1/push`: accepts lines in Loki's push protocol, JSON or snappy-compressed
//! protobuf, if the configuration has a push source.
//!
//! | status | meaning | what clients do |
//! |---|---|---|
//! | 204 | everything that counts is saved | continue |
//! | 400, 413, 415 | malformed, too large, or unknown type; the body explains it | drop it |
//! | 404 | there is no push source | drop it |
//! | 429 | the exporter is behind | send it again |
//! | 503 | it could not be saved yet, or the exporter restarts | send it again |
//!
//! Memory is bounded for any input: the bodies of all running requests share a budget, each body
//! has a time limit, its content is counted while it is parsed, and the source unpacks one body at
//! a time. No request makes the exporter read a file, connect anywhere, or keep a label longer than
//! its line.
//!
//! `http::routes` calls this module; the lines go to `logs::push`. In reading order:
//!
//! * this file: limits, status codes, unpacking
//! * `protobuf`, `labels`: a request as protobuf, and its label text
//! * `json`: a request as JSON

mod json;
mod labels;
mod protobuf;

use std::io::Read;
use std::panic::catch_unwind;
use std::time::Duration;

use flate2::read::MultiGzDecoder;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use hyper::{Request, StatusCode};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use super::Context;
use super::routes::{HttpResponse, text};
use crate::logs::push::{PushHandle, PushRequest, PushedStream};

pub(super) const PATH: &str = "/loki/api/v1/push";

/// How long a request waits for memory, and then for a slot in the queue.
const ROOM_PATIENCE: Duration = Duration::from_secs(2);
const MAX_STREAMS: usize = 10_000;
const MAX_ENTRIES: usize = 100_000;
/// Limits for one stream or one line.
const MAX_FIELDS: usize = 128;
const MAX_FIELD_BYTES: usize = 16 * 1024;
/// Limit for all streams and lines of a request. Short labels take far more memory than their
/// bytes.
const MAX_REQUEST_FIELDS: usize = 200_000;

/// What a request may still contain. Counted down while it is parsed, so that parsing stops at a
/// limit.
#[derive(Debug)]
struct PushLimits {
    streams: usize,
    entries: usize,
    fields: usize,
}

/// Labels of a stream or metadata of a line, counted while they are parsed.
#[derive(Default)]
struct LabelPairs {
    pairs: Vec<(String, String)>,
    bytes: usize,
}

/// Why a request is malformed, in words for the person who configured the client.
#[derive(Debug, PartialEq, Eq)]
struct Malformed(&'static str);

/// A response other than 204.
struct PushError {
    status: StatusCode,
    text: String,
}

impl Default for PushLimits {
    fn default() -> Self {
        Self { streams: MAX_STREAMS, entries: MAX_ENTRIES, fields: MAX_REQUEST_FIELDS }
    }
}

impl PushLimits {
    fn add_stream(&mut self) -> Result<(), Malformed> {
        self.streams = self.streams.checked_sub(1).ok_or(Malformed("more than 10000 streams in one request"))?;
        Ok(())
    }

    fn add_entry(&mut self) -> Result<(), Malformed> {
        self.entries = self.entries.checked_sub(1).ok_or(Malformed("more than 100000 lines in one request"))?;
        Ok(())
    }
}

impl LabelPairs {
    fn add(&mut self, name: String, value: String, limits: &mut PushLimits) -> Result<(), Malformed> {
        self.bytes += name.len() + value.len();
        if self.pairs.len() >= MAX_FIELDS || self.bytes > MAX_FIELD_BYTES {
            return Err(Malformed("more than 128 labels, or 16 KiB of labels, on one stream or line"));
        }
        limits.fields = limits.fields.checked_sub(1).ok_or(Malformed("more than 200000 labels in one request"))?;
        self.pairs.push((name, value));
        Ok(())
    }

    fn in_order(mut self) -> Vec<(String, String)> {
        self.pairs.sort();
        self.pairs
    }
}

pub(super) async fn answer(context: &Context, request: Request<Incoming>) -> HttpResponse {
    let intake = context.app.pushes.borrow().clone();
    let Some(intake) = intake else {
        return text(StatusCode::NOT_FOUND, "pushing logs is off: add `- push: {}` to `logs` in the configuration\n");
    };
    let Err(PushError { status, text: words }) = take(context, &intake, request).await else {
        let mut answer = text(StatusCode::NO_CONTENT, "");
        answer.headers_mut().remove(CONTENT_TYPE);
        return answer;
    };
    intake.note_rejected();
    let mut answer = text(status, format!("{words}\n"));
    if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    answer
}

async fn take(context: &Context, intake: &PushHandle, request: Request<Incoming>) -> Result<(), PushError> {
    let form = PushEncoding::of(request.headers())?;
    let max_bytes = intake.max_request_bytes;
    let announced = request.body().size_hint().exact().unwrap_or(max_bytes as u64);
    if announced > max_bytes as u64 {
        return Err(too_large(max_bytes));
    }
    let room = room_for(intake, announced).await?;
    let read = read(request.into_body(), announced, max_bytes);
    let Ok(body) = timeout(context.limits.body_read, read).await else {
        return Err(refuse(StatusCode::SERVICE_UNAVAILABLE, "the body took too long to come"));
    };
    let body = body?;
    let place = match timeout(ROOM_PATIENCE, intake.requests.clone().reserve_owned()).await {
        Ok(Ok(place)) => place,
        Ok(Err(_)) => return Err(restarting()),
        Err(_) => return Err(behind()),
    };
    let (saved, is_saved) = oneshot::channel();
    let deadline = Instant::now() + context.limits.push;
    let (refuse_it, refused) = oneshot::channel();
    // The closure owns the memory permit, because the work continues even if the client
    // disconnects.
    let unpack = move || {
        // A body that makes the parser panic must not stop the source for other requests.
        let unpacked = catch_unwind(|| form.decode(body, max_bytes));
        drop(room);
        let refusal = match unpacked {
            Ok(Ok(streams)) => return Some(streams),
            Ok(Err(refusal)) => refusal,
            Err(_) => refuse(StatusCode::BAD_REQUEST, "the body cannot be read"),
        };
        // The client may be gone.
        let _ = refuse_it.send(refusal);
        None
    };
    place.send(PushRequest { unpack: Box::new(unpack), saved });
    let outcome = async {
        match refused.await {
            Ok(refusal) => Err(refusal),
            Err(_) => is_saved.await.map_err(|_| restarting()),
        }
    };
    timeout_at(deadline, outcome).await.unwrap_or_else(|_| {
        Err(refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            "the state could not be saved yet; send it again, nothing is counted twice",
        ))
    })
}

/// Reserves memory for a body. The permit is released when the body is unpacked.
async fn room_for(intake: &PushHandle, bytes: u64) -> Result<OwnedSemaphorePermit, PushError> {
    let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
    match timeout(ROOM_PATIENCE, intake.bodies.clone().acquire_many_owned(kib)).await {
        Ok(Ok(room)) => Ok(room),
        _ => Err(behind()),
    }
}

/// Reads the body. The caller has reserved memory for `announced` bytes.
async fn read(mut body: Incoming, announced: u64, max_bytes: usize) -> Result<Vec<u8>, PushError> {
    let mut bytes = Vec::with_capacity(usize::try_from(announced).unwrap_or(max_bytes));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| refuse(StatusCode::BAD_REQUEST, "the body ended too soon"))?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > max_bytes {
            return Err(too_large(max_bytes));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

/// The encoding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PushEncoding {
    is_json: bool,
    is_gzip: bool,
}

impl PushEncoding {
    fn of(headers: &HeaderMap) -> Result<Self, PushError> {
        let word = |name| {
            let value = headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
            value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
        };
        let is_json = match word(CONTENT_TYPE).as_str() {
            "application/json" => true,
            "application/x-protobuf" | "" => false,
            _ => return Err(unsupported("Content-Type", "application/json or application/x-protobuf")),
        };
        let is_gzip = match word(CONTENT_ENCODING).as_str() {
            "gzip" => true,
            "" | "identity" => false,
            // Protobuf is always snappy-compressed, so the header changes nothing.
            "snappy" if !is_json => false,
            _ => return Err(unsupported("Content-Encoding", "gzip, or snappy for protobuf")),
        };
        Ok(Self { is_json, is_gzip })
    }

    /// The size limit also applies to the unpacked body.
    fn decode(self, body: Vec<u8>, max_bytes: usize) -> Result<Vec<PushedStream>, PushError> {
        let malformed = |Malformed(words)| refuse(StatusCode::BAD_REQUEST, words);
        let body = if self.is_gzip { unzip(&body, max_bytes)? } else { body };
        if self.is_json {
            return json::parse(&body, PushLimits::default()).map_err(|error| match error {
                json::Error::Limit(words) => malformed(words),
                json::Error::Other(words) => {
                    refuse(StatusCode::BAD_REQUEST, &format!("the JSON is not a push request: {words}"))
                }
            });
        }
        let damaged = |_| malformed(Malformed("the snappy compression is damaged"));
        if snap::raw::decompress_len(&body).map_err(damaged)? > max_bytes {
            return Err(too_large(max_bytes));
        }
        let message = snap::raw::Decoder::new().decompress_vec(&body).map_err(damaged)?;
        drop(body);
        protobuf::parse(&message, &mut PushLimits::default()).map_err(malformed)
    }
}

fn unzip(body: &[u8], max_bytes: usize) -> Result<Vec<u8>, PushError> {
    let mut unpacked = Vec::new();
    let mut decoder = MultiGzDecoder::new(body).take(max_bytes as u64 + 1);
    let read = decoder.read_to_end(&mut unpacked);
    read.map_err(|_| refuse(StatusCode::BAD_REQUEST, "the gzip is damaged"))?;
    if unpacked.len() > max_bytes {
        return Err(too_large(max_bytes));
    }
    Ok(unpacked)
}

fn refuse(status: StatusCode, text: &str) -> PushError {
    PushError { status, text: text.to_owned() }
}

fn behind() -> PushError {
    refuse(StatusCode::TOO_MANY_REQUESTS, "the exporter is behind, send it again")
}

fn restarting() -> PushError {
    refuse(StatusCode::SERVICE_UNAVAILABLE, "the exporter is restarting or loads its configuration, send it again")
}

fn too_large(max_bytes: usize) -> PushError {
    let text = format!(
        "the request is larger than {max_bytes} bytes, unpacked or packed: send smaller batches or raise max_request_bytes"
    );
    PushError { status: StatusCode::PAYLOAD_TOO_LARGE, text }
}

fn unsupported(header: &str, known: &str) -> PushError {
    refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, &format!("unknown {header}: use {known}"))
}
