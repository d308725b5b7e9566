//! One client: HTTP/1 over one TCP connection until either side has enough.
//!
//! Ends when the client closes, breaks a limit or stalls, when the connection has lived long enough, or when the server
//! stops; in the last two cases a running answer may finish within the drain limit. An error here concerns this client only.

use std::convert::Infallible;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tracing::debug;

use super::stall::StallGuard;
use super::{Context, routes};

/// A request head has to fit; hyper answers 431 otherwise.
const MAX_HEAD_BYTES: usize = 16 * 1024;
const MAX_HEADERS: usize = 64;

pub(super) async fn serve(stream: TcpStream, context: Arc<Context>) {
    // Answers go out in one piece; waiting to fill a packet would only delay its end.
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "cannot set TCP_NODELAY");
    }
    let limits = &context.limits;
    let stream = TokioIo::new(StallGuard::new(stream, limits.write_stall));
    let service = service_fn(|request: Request<Incoming>| {
        let context = Arc::clone(&context);
        async move { Ok::<Response<_>, Infallible>(routes::answer(&context, &request).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.header_read);
    builder.max_buf_size(MAX_HEAD_BYTES).max_headers(MAX_HEADERS);
    let mut connection = std::pin::pin!(builder.serve_connection(stream, service));

    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        () = close_now(&context) => {
            connection.as_mut().graceful_shutdown();
            let Ok(outcome) = timeout(limits.drain, connection).await else {
                debug!("connection did not finish in time");
                return;
            };
            outcome
        }
    };
    if let Err(error) = outcome {
        debug!(error = &error as &dyn std::error::Error, "connection failed");
    }
}

async fn close_now(context: &Context) {
    tokio::select! {
        () = context.stop.cancelled() => {}
        () = sleep(context.limits.connection_life) => {}
    }
}
