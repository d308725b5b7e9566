//! The HTTP server: accepts connections and answers from the published snapshot. Only queries about
//! single locks go to the pipeline, with a short time limit.
//!
//! | route | answer |
//! |---|---|
//! | `GET /metrics` | the metrics; `Accept` chooses the text format, `Accept-Encoding` gzip |
//! | `GET /-/healthy` | 200 as long as the process answers |
//! | `GET /-/ready` | 200 and what is degraded, or 503 and the reasons, one per line |
//! | `POST /-/reload` | reloads the configuration; 403 unless enabled, 500 if refused |
//! | `GET /` | the page for people; its files are under `/page/` |
//! | `GET /runbooks/` | the runbooks |
//! | `GET /api/v1/overview` | what is wrong now, and a summary of all lock namespaces |
//! | `GET /api/v1/namespaces` | policy and numbers of every lock namespace |
//! | `GET /api/v1/locks` | the locks that are held |
//! | `GET /api/v1/locks/{key}` | one lock and its history |
//! | `GET /api/v1/incidents` | lost locks with their causes |
//! | `GET /api/v1/config` | the configuration in effect, without secrets |
//! | `POST /loki/api/v1/push` | accepts log lines in Loki's protocol; 404 unless configured |
//!
//! `HEAD` works wherever `GET` does, `PUT` wherever `POST` does. Each connection is a task with
//! limits on time and size, so a slow client delays only itself. If file descriptors run out, the
//! server waits up to a second before it accepts again.
//!
//! TLS, passwords and a rate limit come from the web configuration file and apply to every route.
//!
//! `daemon::run` calls [`serve_with_limits`]. In reading order:
//!
//! * `listener`: TCP addresses, Unix sockets, sockets from systemd
//! * `connection`, `stall`: one client connection, and writes that stall
//! * `access`: passwords and the rate limit
//! * `routes`, `negotiate`: from a request to its response; text format and gzip
//! * `api`: `/api/v1`
//! * `page`: the page and the runbooks
//! * `push`: the push endpoint
//! * `process`: process metrics from `/proc`
//! * `web_file`: follows changes of the web configuration file

mod access;
mod api;
pub(crate) mod connection;
pub mod listener;
mod negotiate;
mod page;
mod process;
mod push;
mod routes;
mod stall;
mod web_file;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use self::listener::Client;
use crate::logs::push::PushHandle;
use crate::model::query::Inquiry;
use crate::snapshot::Snapshot;

pub use self::listener::Listener;
pub use self::web_file::{Web, WebFile, WebFollower};

const FIRST_ACCEPT_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_ACCEPT_PAUSE: Duration = Duration::from_secs(1);
const ACCEPT_WARNINGS_APART: Duration = Duration::from_secs(60);

/// What the server needs from the rest of the program.
pub struct ServerInputs {
    pub snapshot: watch::Receiver<Arc<Snapshot>>,
    /// Called for each request to `/-/ready`. The error lists the reasons, one per line.
    pub readiness: Box<dyn Fn() -> Result<(), String> + Send + Sync>,
    /// Queue for reload requests. `None` if reloading over HTTP is off.
    pub reload: Option<mpsc::Sender<ReloadRequest>>,
    /// Inquiry queue of the current pipeline. The channel holds `None` while the exporter starts.
    /// The field is `None` if the API is off.
    pub inquiries: Option<watch::Receiver<Option<mpsc::Sender<Inquiry>>>>,
    /// Receiver of push requests. The channel holds `None` if the configuration has no push source.
    pub pushes: watch::Receiver<Option<PushHandle>>,
    /// Serve the page, which needs the API, and the runbooks, which do not.
    pub page: bool,
}

/// A client requests a reload and waits for the result.
#[derive(Debug)]
pub struct ReloadRequest {
    /// The client receives the error text unchanged.
    pub answer: oneshot::Sender<Result<(), String>>,
}

/// Limits for clients.
#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    /// Maximum number of open connections. Further clients wait in the kernel's queue.
    pub connections: usize,
    /// Time for a complete request head, and for the next one on an idle connection.
    pub header_read: Duration,
    /// Time without the client accepting a byte of a response.
    pub write_stall: Duration,
    /// Maximum age of a connection. It then closes after the current response, and Prometheus opens
    /// another one.
    pub connection_life: Duration,
    /// Time for a running response when its connection has to close.
    pub drain: Duration,
    /// Time for a reload.
    pub reload: Duration,
    /// Time for the pipeline to answer an inquiry.
    pub inquiry: Duration,
    /// Time for a complete request body, on routes that read one.
    pub body_read: Duration,
    /// Time for pushed lines to be counted and saved.
    pub push: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            connections: 512,
            header_read: Duration::from_secs(10),
            write_stall: Duration::from_secs(10),
            connection_life: Duration::from_secs(300),
            drain: Duration::from_secs(5),
            reload: Duration::from_secs(30),
            inquiry: Duration::from_secs(5),
            body_read: Duration::from_secs(15),
            push: Duration::from_secs(10),
        }
    }
}

/// A listener and the access rules for its clients.
pub struct Endpoint {
    pub listener: Listener,
    /// `None` means plain HTTP without access control.
    pub web: Option<Arc<Web>>,
}

impl From<TcpListener> for Endpoint {
    fn from(listener: TcpListener) -> Self {
        Self { listener: listener.into(), web: None }
    }
}

/// Serves until `stop`. Running responses then have the drain limit (5 seconds by default) to
/// finish.
pub async fn serve_with_limits(
    entrance: impl Into<Endpoint>,
    app: ServerInputs,
    limits: ConnectionLimits,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    process::note_start();
    let Endpoint { listener, web } = entrance.into();
    let address = listener.describe()?;
    let tls = web.as_ref().is_some_and(|web| web.tls().is_some());
    info!(%address, tls, "serving http");
    let slots = Arc::new(Semaphore::new(limits.connections));
    let context = Arc::new(Context { app, limits, web, stop: stop.clone() });
    let connections = TaskTracker::new();
    let mut accept_pause = FIRST_ACCEPT_PAUSE;
    let mut last_warning: Option<Instant> = None;
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = accept(&listener, &slots) => accepted,
        };
        match accepted {
            Ok((client, slot)) => {
                accept_pause = FIRST_ACCEPT_PAUSE;
                let context = Arc::clone(&context);
                connections.spawn(async move {
                    connection::serve(client, context).await;
                    drop(slot);
                });
            }
            Err(error) if concerns_one_client(&error) => debug!(%error, "client went away before it was accepted"),
            Err(error) => {
                if last_warning.is_none_or(|warned| warned.elapsed() >= ACCEPT_WARNINGS_APART) {
                    last_warning = Some(Instant::now());
                    warn!(%address, %error, "cannot accept connections, trying again");
                }
                tokio::select! {
                    () = stop.cancelled() => break,
                    () = sleep(accept_pause) => {}
                }
                accept_pause = LONGEST_ACCEPT_PAUSE.min(accept_pause * 2);
            }
        }
    }
    // New clients are refused from here on. Each connection ends within its drain limit.
    drop(listener);
    connections.close();
    connections.wait().await;
    Ok(())
}

/// Shared by all connections.
struct Context {
    app: ServerInputs,
    limits: ConnectionLimits,
    web: Option<Arc<Web>>,
    stop: CancellationToken,
}

/// Waits for a free slot first. Until then, new connections stay in the kernel's queue.
async fn accept(listener: &Listener, slots: &Arc<Semaphore>) -> io::Result<(Client, OwnedSemaphorePermit)> {
    let slot = Arc::clone(slots).acquire_owned().await.map_err(io::Error::other)?;
    Ok((listener.accept().await?, slot))
}

/// Returns whether an error of `accept` affects only one client, so that the next `accept` may
/// succeed.
fn concerns_one_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
