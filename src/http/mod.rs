//! The HTTP side: accepts connections and answers from the published snapshot. Only questions about single locks go to the
//! pipeline, and they do not wait for it for long.
//!
//! | route | answer |
//! |---|---|
//! | `GET /metrics` | the metrics, OpenMetrics or classic text by `Accept`, gzip by `Accept-Encoding` |
//! | `GET /-/healthy` | 200 as long as the process answers |
//! | `GET /-/ready` | 200 with what is degraded, or 503 with the reasons, one a line |
//! | `POST /-/reload` | loads the configuration again; 403 unless enabled, 500 with the reasons when refused |
//! | `GET /` | a page for people, and its parts under `/page/` |
//! | `GET /runbooks/` | the runbooks |
//! | `GET /api/v1/overview` | what is wrong now, and all namespaces in short |
//! | `GET /api/v1/namespaces` | every namespace: its policy and its numbers |
//! | `GET /api/v1/locks` | the locks that are held |
//! | `GET /api/v1/locks/{key}` | one lock and its history |
//! | `GET /api/v1/incidents` | locks that were lost, and why |
//! | `GET /api/v1/config` | the configuration in effect, without secrets |
//! | `POST /loki/api/v1/push` | takes log lines in Loki's protocol; 404 unless the configuration wants them |
//!
//! `HEAD` works wherever `GET` does, `PUT` wherever `POST` does. Each connection is a task of its own with limits on time and
//! size, so a slow client holds up nobody but itself. When file descriptors run out, accepting backs off and goes on.
//!
//! With a web configuration file all of this is behind TLS, passwords and a rate limit, without exceptions.
//!
//! `daemon::run` calls [`serve_with_limits`]. In reading order:
//!
//! * `listener`: TCP addresses, Unix sockets, sockets of systemd
//! * `connection`, `stall`: one client connection, and writes that stall
//! * `access`: passwords and the rate limit
//! * `routes`, `negotiate`: from a request to its answer; text format and gzip
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
use crate::logs::push::Intake;
use crate::model::query::Inquiry;
use crate::snapshot::Snapshot;

pub use self::listener::Listener;
pub use self::web_file::{Web, WebFile, WebFollower};

const FIRST_ACCEPT_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_ACCEPT_PAUSE: Duration = Duration::from_secs(1);
const ACCEPT_WARNINGS_APART: Duration = Duration::from_secs(60);

/// What the server needs from the rest of the program.
pub struct App {
    pub snapshot: watch::Receiver<Arc<Snapshot>>,
    /// Whether the program does its work by now; otherwise the reasons why not, one a line. Called for each request.
    pub readiness: Box<dyn Fn() -> Result<(), String> + Send + Sync>,
    /// Where to ask for the configuration to be loaded again; `None` unless that is enabled.
    pub reload: Option<mpsc::Sender<ReloadRequest>>,
    /// Where to ask about single locks: the pipeline of the day, and none while the exporter starts. `None`: the API is
    /// off.
    pub inquiries: Option<watch::Receiver<Option<mpsc::Sender<Inquiry>>>>,
    /// Where pushed lines go: `None` inside unless the configuration in effect wants them.
    pub pushes: watch::Receiver<Option<Intake>>,
    /// Serve the page, which needs the API, and the runbooks, which do not.
    pub page: bool,
}

/// Somebody asked for the configuration to be loaded again and waits for the outcome.
#[derive(Debug)]
pub struct ReloadRequest {
    /// The error is shown to the client as it is.
    pub answer: oneshot::Sender<Result<(), String>>,
}

/// What a client may take from us.
#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    /// At the same time; more wait in the kernel's queue until one ends.
    pub connections: usize,
    /// For a whole request head, and for the next one on an idle connection.
    pub header_read: Duration,
    /// Without the client taking a single byte of an answer.
    pub write_stall: Duration,
    /// After this the connection is closed at the next chance; Prometheus just opens another one.
    pub connection_life: Duration,
    /// For what is still being answered when a connection has to close.
    pub drain: Duration,
    /// For a reload to be finished.
    pub reload: Duration,
    /// For the pipeline to answer a question.
    pub inquiry: Duration,
    /// For a whole request body, where one is read.
    pub body_read: Duration,
    /// For pushed lines to be counted and saved.
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

/// Where to listen, and what to ask of those who come.
pub struct Entrance {
    pub listener: Listener,
    /// `None`: plain HTTP for everybody.
    pub web: Option<Arc<Web>>,
}

impl From<TcpListener> for Entrance {
    fn from(listener: TcpListener) -> Self {
        Self { listener: listener.into(), web: None }
    }
}

/// Serves until `stop`, then lets running answers finish for a few seconds.
pub async fn serve_with_limits(
    entrance: impl Into<Entrance>,
    app: App,
    limits: ConnectionLimits,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    process::note_start();
    let Entrance { listener, web } = entrance.into();
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
    // New clients are refused from here on; each connection ends by itself within the drain limit.
    drop(listener);
    connections.close();
    connections.wait().await;
    Ok(())
}

/// What every connection shares.
struct Context {
    app: App,
    limits: ConnectionLimits,
    web: Option<Arc<Web>>,
    stop: CancellationToken,
}

/// Waits for a free slot first: a connection that cannot be served stays in the kernel's queue.
async fn accept(listener: &Listener, slots: &Arc<Semaphore>) -> io::Result<(Client, OwnedSemaphorePermit)> {
    let slot = Arc::clone(slots).acquire_owned().await.map_err(io::Error::other)?;
    Ok((listener.accept().await?, slot))
}

/// Errors of `accept` that say nothing about the next client.
fn concerns_one_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
