//! Log source for lines that log agents push, in Loki's protocol. `http::push` receives the
//! requests and passes them to this module; `daemon::run` calls [`run`].
//!
//! A client repeats a request if it gets no answer. Each line about a lock is therefore identified
//! by a hash of its stream's labels, its time and its text, and a line that was already counted is
//! not counted again. This also works across a crash, because the identifiers are saved together
//! with the counters. A request is answered after its events are saved. A request without events
//! has nothing to lose and is answered as soon as the pipeline has its totals.

use crate::model::pushed_lines::CountedPushes;
use std::collections::{HashMap, HashSet};
use std::hash::Hasher;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};

use siphasher::sip::SipHasher13;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use crate::config::Push;
use crate::logs::streams::{AttachedFields, StreamEntry, StreamReport, StreamSet};
use crate::model::input::{Batch, PipelineInput, PushReceipt, SourcePosition};
use crate::snapshot::{PushNow, SourceNow};
use crate::util::clock::TimeMs;

/// Maximum number of requests waiting to be unpacked.
pub const QUEUE: usize = 1;
/// Maximum number of requests whose events the pipeline has not applied yet.
const HANDED_OVER: usize = 1;
/// Memory for the bodies of all requests in progress.
const BODIES_KIB: usize = 64 * 1024;

pub struct PushRequest {
    /// Decodes the body. Returns `None` if the body is invalid. In that case the closure itself
    /// informs the client.
    pub unpack: Box<dyn FnOnce() -> Option<Vec<PushedStream>> + Send>,
    /// Signaled when the complete request is saved. Dropped if it will not be saved.
    pub saved: oneshot::Sender<()>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct PushedStream {
    /// Sorted by name.
    pub labels: Vec<(String, String)>,
    pub entries: Vec<PushedEntry>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct PushedEntry {
    /// Nanoseconds since the Unix epoch.
    pub time: i64,
    pub line: Vec<u8>,
    /// Fields of this line only.
    pub metadata: Vec<(String, String)>,
}

/// The HTTP server's handle for passing requests to the source.
#[derive(Clone)]
pub struct PushHandle {
    pub requests: mpsc::Sender<PushRequest>,
    pub max_request_bytes: usize,
    /// One permit stands for 1 KiB of a request body.
    pub bodies: Arc<Semaphore>,
    source: usize,
    now: Arc<Mutex<Vec<SourceNow>>>,
}

impl PushHandle {
    pub fn new(
        push: &Push,
        requests: mpsc::Sender<PushRequest>,
        source: usize,
        now: &Arc<Mutex<Vec<SourceNow>>>,
    ) -> Self {
        if let Ok(mut now) = now.lock() {
            // A push source has no file. The open endpoint counts as one, because 0 open files
            // means that a source is not read.
            now[source] = SourceNow { open_files: 1, push: Some(PushNow::default()), ..SourceNow::default() };
        }
        Self {
            requests,
            max_request_bytes: push.max_request_bytes,
            bodies: Arc::new(Semaphore::new(BODIES_KIB)),
            source,
            now: Arc::clone(now),
        }
    }

    /// Counts a request that the server refused.
    pub fn note_rejected(&self) {
        let Ok(mut now) = self.now.lock() else { return };
        if let Some(push) = now.get_mut(self.source).and_then(|now| now.push.as_mut()) {
            push.rejected += 1;
        }
    }
}

/// Everything that the push source needs.
pub struct PushSource {
    /// Index of the log source.
    pub source: usize,
    pub streams: StreamSet,
    pub known: CountedPushes,
    pub requests: mpsc::Receiver<PushRequest>,
    pub out: mpsc::Sender<PipelineInput>,
}

/// Runs until `stop`. Requests that are still waiting are dropped, and the server asks their
/// clients to send them again.
///
/// The work runs on its own thread for two reasons. First, a large request takes long enough to
/// delay scrapes and the watchdog. Second, a decoded request takes many times its size in small
/// allocations, which the allocator caches for each thread. With one thread, each request reuses
/// the memory of the request before it.
pub async fn run(setup: PushSource, stop: CancellationToken) {
    let PushSource { source, streams, known, mut requests, out } = setup;
    let places = Arc::new(Semaphore::new(HANDED_OVER));
    let mut taker = PushWorker { source, streams, known, places, out };
    let runtime = Handle::current();
    let taking = async move {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some(request) = requests.recv() => taker.take(request).await,
            }
        }
    };
    let ended = spawn_blocking(move || runtime.block_on(taking)).await;
    if let Some(panic) = ended.err().and_then(|failure| failure.try_into_panic().ok()) {
        resume_unwind(panic);
    }
}

struct PushWorker {
    source: usize,
    streams: StreamSet,
    known: CountedPushes,
    places: Arc<Semaphore>,
    out: mpsc::Sender<PipelineInput>,
}

impl PushWorker {
    /// Waits while the pipeline is behind. The client waits too.
    async fn take(&mut self, request: PushRequest) {
        let PushRequest { unpack, saved } = request;
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&self.places).acquire_owned().await else { return };
        let Some(streams) = unpack() else { return };
        let report = self.search(streams);
        self.hand_over(report, saved, place).await;
    }

    fn search(&mut self, streams: Vec<PushedStream>) -> StreamReport {
        let mut report = StreamReport::default();
        // Two equal lines with the same time in one request are two different lines: a client
        // repeats requests, not lines.
        let mut repetitions: HashMap<u64, u64> = HashMap::new();
        for stream in streams {
            let stream_id =
                hash_of(|hasher| stream.labels.iter().for_each(|(name, value)| feed(hasher, &[name, value])));
            let labels: AttachedFields = stream.labels.into();
            for entry in stream.entries {
                let line = hash_of(|hasher| {
                    hasher.write_u64(stream_id);
                    hasher.write_i64(entry.time);
                    hasher.write(&entry.line);
                });
                let repetition = repetitions.entry(line).or_default();
                let id = line.wrapping_add(*repetition);
                *repetition += 1;
                let fields = match entry.metadata.is_empty() {
                    true => Arc::clone(&labels),
                    false => labels.iter().cloned().chain(entry.metadata).collect(),
                };
                let time: TimeMs = entry.time / 1_000_000;
                let entry = StreamEntry { stream: stream_id, text: &entry.line, time, fields: &fields, id };
                self.streams.take(&entry, &mut report);
            }
        }
        // The answer confirms that the complete request is saved, so no line may wait for the next
        // request.
        self.streams.flush(&mut report);
        report
    }

    async fn hand_over(&mut self, mut report: StreamReport, client: oneshot::Sender<()>, place: OwnedSemaphorePermit) {
        let n_events = report.events.len();
        let mut known: HashSet<u64> = if n_events > 0 { self.known.iter().collect() } else { HashSet::new() };
        report.events.retain(|(_, event)| known.insert(event.offset));
        let lines: Vec<u64> = report.events.iter().map(|(_, event)| event.offset).collect();
        report.seen.events = lines.len() as u64;
        report.seen.duplicates = (n_events - lines.len()) as u64;
        self.known.remember(lines.iter().copied());
        // A line that is already known may not be saved yet, so a repeated request waits for the
        // save too.
        let (saved, client) = if n_events > 0 { (Some(client), None) } else { (None, Some(client)) };
        let reached = SourcePosition::Pushed(PushReceipt { lines, saved, place });
        let batch = Batch { source: self.source, events: report.events, reached, seen: report.seen };
        if self.out.send(PipelineInput::Logs(batch)).await.is_ok()
            && let Some(client) = client
        {
            let _ = client.send(());
        }
    }
}

fn hash_of(write: impl FnOnce(&mut SipHasher13)) -> u64 {
    let mut hasher = SipHasher13::new();
    write(&mut hasher);
    hasher.finish()
}

fn feed(hasher: &mut SipHasher13, parts: &[&str]) {
    for part in parts {
        hasher.write_usize(part.len());
        hasher.write(part.as_bytes());
    }
}
