//! One client: HTTP/1 over one connection, inside TLS where that is configured, until either side has enough.
//!
//! Ends when the client closes, breaks a limit or stalls, when the connection has lived long enough, or when the server
//! stops; in the last two cases a running answer may finish within the drain limit. An error here concerns this client only.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::debug;

use super::listener::Client;
use super::routes::HttpResponse;
use super::stall::StallGuard;
use super::{Context, routes};

/// A request head has to fit; hyper answers 431 otherwise.
const MAX_HEAD_BYTES: usize = 16 * 1024;
const MAX_HEADERS: usize = 64;
/// For those who speak plain HTTP, and get nothing else.
pub(crate) const HTTPS_WANTED: &str = "this is an https server: use https://\n";

/// Anything that carries bytes both ways.
trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for S {}

pub(super) async fn serve(client: Client, context: Arc<Context>) {
    let limit = context.limits.header_read;
    let opened = tokio::select! {
        opened = timeout(limit, open(client, &context)) => opened,
        () = context.stop.cancelled() => return,
    };
    match opened {
        Ok(Ok(stream)) => serve_http(stream, context).await,
        Ok(Err(error)) => debug!(%error, "TLS failed"),
        Err(_) => debug!("TLS took too long"),
    }
}

/// What HTTP is spoken over.
async fn open(client: Client, context: &Context) -> io::Result<Box<dyn ByteStream>> {
    let tls = context.web.as_ref().and_then(|web| web.tls());
    match client {
        Client::Tcp(stream) => {
            // Answers go out in one piece; waiting to fill a packet would only delay its end.
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

/// Somebody who speaks plain HTTP gets an answer that can be understood, instead of the bytes of an alert.
async fn expect_tls(mut stream: TcpStream) -> io::Result<TcpStream> {
    let mut first = [0];
    let is_letter = stream.peek(&mut first).await? == 1 && first[0].is_ascii_uppercase();
    if !is_letter {
        return Ok(stream);
    }
    // Closing with something unread would reset the connection, and the answer might be lost with it.
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
    let service = service_fn(|request: Request<Incoming>| {
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

/// The routes, behind what the web configuration asks for.
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
