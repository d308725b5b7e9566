//! Takes the role of the pager and the ticket system: receives the notifications of Alertmanager
//! and keeps them for the view and the summary.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::alerts::{AlertName, Annotations};

const MAX_BYTES: usize = 1 << 20;

/// One alert of a message.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Notification {
    /// `page` or `ticket`.
    pub(super) kind: String,
    /// `firing` or `resolved`.
    pub(super) status: String,
    #[serde(flatten)]
    pub(super) alert: AlertName,
    pub(super) description: String,
}

#[derive(Deserialize)]
struct Message {
    alerts: Vec<MessageAlert>,
}

#[derive(Deserialize)]
struct MessageAlert {
    status: String,
    labels: AlertName,
    annotations: Annotations,
}

type Received = Arc<Mutex<Vec<Notification>>>;

/// The server stops when this is dropped.
pub(super) struct Receiver {
    pub(super) address: SocketAddr,
    received: Received,
    _tasks: JoinSet<()>,
}

impl Receiver {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("cannot listen for notifications")?;
        let address = listener.local_addr()?;
        let received = Received::default();
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&received)));
        Ok(Self { address, received, _tasks: tasks })
    }

    /// Takes the notifications that came since the last call.
    pub(super) fn take(&self) -> Vec<Notification> {
        std::mem::take(&mut *self.received.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }
}

async fn accept(listener: TcpListener, received: Received) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((stream, _)) = listener.accept() => {
                connections.spawn(serve(stream, Arc::clone(&received)));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream, received: Received) {
    let service = service_fn(|request: Request<Incoming>| {
        let received = Arc::clone(&received);
        async move {
            let status = take_in(request, &received).await;
            let mut response = Response::new(Empty::<Bytes>::new());
            *response.status_mut() = status;
            Ok::<_, Infallible>(response)
        }
    });
    // If the connection fails, Alertmanager opens a new one.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn take_in(request: Request<Incoming>, received: &Received) -> StatusCode {
    let kind = request.uri().path().trim_matches('/').to_owned();
    let Ok(body) = Limited::new(request.into_body(), MAX_BYTES).collect().await else {
        return StatusCode::PAYLOAD_TOO_LARGE;
    };
    let Ok(message) = serde_json::from_slice::<Message>(&body.to_bytes()) else { return StatusCode::BAD_REQUEST };
    let notifications = message.alerts.into_iter().map(|alert| Notification {
        kind: kind.clone(),
        status: alert.status,
        alert: alert.labels,
        description: alert.annotations.description,
    });
    received.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).extend(notifications);
    StatusCode::OK
}
