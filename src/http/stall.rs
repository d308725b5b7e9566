//! A stream whose writes fail if the client accepts no bytes for too long.
//!
//! `connection` wraps each client stream in it. hyper limits the time for a request head, but not
//! for a response. Without this limit, a client that never reads its response would hold its
//! connection forever.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

pub(super) struct StallGuard<S> {
    stream: S,
    limit: Duration,
    /// Set while a write waits. Reset as soon as the client accepts a byte.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> StallGuard<S> {
    pub(super) fn new(stream: S, limit: Duration) -> Self {
        Self { stream, limit, deadline: None }
    }

    fn watch<T>(&mut self, context: &mut Context<'_>, write: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if write.is_ready() {
            self.deadline = None;
            return write;
        }
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(self.limit)));
        ready!(deadline.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes no bytes")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallGuard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallGuard<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, write)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.watch(context, write)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flush = Pin::new(&mut self.stream).poll_flush(context);
        self.watch(context, flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shutdown = Pin::new(&mut self.stream).poll_shutdown(context);
        self.watch(context, shutdown)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::net::UnixStream;
    use tokio::time::Instant;

    use super::*;

    static CHUNK: [u8; 32 * 1024] = [0; 32 * 1024];

    async fn write(guard: &mut StallGuard<UnixStream>) -> io::Result<usize> {
        poll_fn(|context| Pin::new(&mut *guard).poll_write(context, &CHUNK)).await
    }

    #[tokio::test]
    async fn a_reader_that_takes_nothing_is_an_error_after_the_limit() {
        let (stream, _reader) = UnixStream::pair().unwrap();
        let mut guard = StallGuard::new(stream, Duration::from_millis(50));
        let started = Instant::now();
        let error = loop {
            if let Err(error) = write(&mut guard).await {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(started.elapsed() >= Duration::from_millis(50));
    }

    /// On virtual time, so that a busy machine cannot delay the reader.
    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_something_starts_the_time_anew() {
        let (stream, reader) = UnixStream::pair().unwrap();
        let mut guard = StallGuard::new(stream, Duration::from_millis(500));
        let reading = tokio::spawn(async move {
            loop {
                sleep(Duration::from_millis(100)).await;
                reader.readable().await.unwrap();
                reader.try_read(&mut [0; 128 * 1024]).unwrap();
            }
        });
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(1_200) {
            write(&mut guard).await.unwrap();
        }
        reading.abort();
    }
}
