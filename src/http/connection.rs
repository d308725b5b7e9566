//! Serves one client: HTTP/1 over one connection, inside TLS if that is configured.
//!
//! The server starts [`serve`] for each accepted connection. The connection ends if the client
//! closes it, breaks a limit or stalls, if it reaches its maximum age, or if the server stops. In
//! the last two cases, a running response may finish within the drain limit. An error here affects
//! only this client.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::debug;

use super::listener::Client;
use super::routes::HttpResponse;
use super::stall::StallGuard;
use super::{Context, routes};

/// Limits of a request head. hyper answers 431 to a larger head.
const MAX_HEAD_BYTES: usize = 16 * 1024;
const MAX_HEADERS: usize = 64;
/// How long a connection without a request yet stays open when the server stops.
const FIRST_REQUEST: Duration = Duration::from_secs(2);
/// The response to plain HTTP on a TLS port.
pub(crate) const HTTPS_WANTED: &str = "this is an https server: use https://\n";

/// A bidirectional byte stream.
trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for S {}

pub(super) async fn serve(client: Client, context: Arc<Context>) {
    let limit = context.limits.header_read;
    let opened = tokio::select! {
        biased;
        opened = timeout(limit, open(client, &context)) => opened,
        () = context.stop.cancelled() => return,
    };
    match opened {
        Ok(Ok(stream)) => serve_http(stream, context).await,
        Ok(Err(error)) => debug!(%error, "TLS failed"),
        Err(_) => debug!("TLS took too long"),
    }
}

/// Returns the stream that carries HTTP: the connection itself, or TLS over it.
async fn open(client: Client, context: &Context) -> io::Result<Box<dyn ByteStream>> {
    let tls = context.web.as_ref().and_then(|web| web.tls());
    match client {
        Client::Tcp(stream) => {
            // Each response is sent in one piece. Waiting to fill a packet would only delay its
            // last bytes.
            if let Err(error) = stream.set_nodelay(true) {
                debug!(%error, "cannot set TCP_NODELAY");
            }
            match tls {
                Some(tls) => Ok(Box::new(accept_tls(expect_tls(stream).await?, tls).await?)),
                None => Ok(Box::new(stream)),
            }
        }
        Client::Unix(stream) => match tls {
            Some(tls) => Ok(Box::new(accept_tls(stream, tls).await?)),
            None => Ok(Box::new(stream)),
        },
    }
}

async fn accept_tls<S: ByteStream>(stream: S, tls: Arc<ServerConfig>) -> io::Result<TlsStream<S>> {
    TlsAcceptor::from(tls).accept(stream).await
}

/// Sends a readable response to a client that uses plain HTTP, instead of a TLS alert.
async fn expect_tls(mut stream: TcpStream) -> io::Result<TcpStream> {
    let mut first = [0];
    let is_letter = stream.peek(&mut first).await? == 1 && first[0].is_ascii_uppercase();
    if !is_letter {
        return Ok(stream);
    }
    // Closing a connection with unread bytes resets it, and the client might not get the response.
    let _ = stream.read(&mut [0; 4096]).await?;
    let head = "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close";
    let answer = format!("{head}\r\nContent-Length: {}\r\n\r\n{HTTPS_WANTED}", HTTPS_WANTED.len());
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    Err(io::Error::other("the client speaks plain http"))
}

async fn serve_http(stream: Box<dyn ByteStream>, context: Arc<Context>) {
    let limits = &context.limits;
    let stream = TokioIo::new(StallGuard::new(stream, limits.write_stall));
    let requested = Notify::new();
    let service = service_fn(|request: Request<Incoming>| {
        requested.notify_one();
        let context = Arc::clone(&context);
        async move { Ok::<Response<_>, Infallible>(answer(&context, request).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.header_read);
    builder.max_buf_size(MAX_HEAD_BYTES).max_headers(MAX_HEADERS);
    let mut connection = std::pin::pin!(builder.serve_connection(stream, service));

    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        () = close_now(&context) => {
            // The request of a new connection may be on its way. A shutdown would close the
            // connection without an answer.
            tokio::select! {
                _ = connection.as_mut() => return,
                () = requested.notified() => {}
                () = sleep(FIRST_REQUEST) => {}
            }
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

/// Checks the access rules of the web configuration, then calls the routes.
async fn answer(context: &Context, request: Request<Incoming>) -> HttpResponse {
    let Some(web) = &context.web else { return routes::answer(context, request).await };
    let mut answer = match web.admit(request.headers()).await {
        Ok(()) => routes::answer(context, request).await,
        Err(refusal) => refusal,
    };
    web.add_headers(&mut answer);
    answer
}

async fn close_now(context: &Context) {
    tokio::select! {
        () = context.stop.cancelled() => {}
        () = sleep(context.limits.connection_life) => {}
    }
}
