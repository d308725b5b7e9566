//! One connection to Redis: sends commands, and receives replies and pushes in stream order.
//!
//! The clients of the redis crate deliver pushes and replies through different channels. That loses
//! their relative order, which the watching of locks depends on. So only the decoder of that crate
//! is used. [`super::connect`] creates a [`Wire`], and a link uses it with `push_command` and
//! `next`. Nothing here retries: after an error the wire is unusable.

use std::io;
use std::time::Duration;

use redis::{Value, ValueCodec};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use tokio_util::bytes::BytesMut;
use tokio_util::codec::Decoder;

use crate::config::redis::Address;

/// The longest accepted reply. Replies to a link are far smaller, but a list of pushed keys may be
/// long.
const MAX_FRAME_BYTES: usize = 64 << 20;
/// Bytes per read. An empty input buffer of more than four times this size is replaced by a small
/// one.
const READ_BYTES: usize = 64 << 10;

pub(super) type ReplyReader = Box<dyn AsyncRead + Send + Unpin>;
pub(super) type Writer = Box<dyn AsyncWrite + Send + Unpin>;

pub(super) struct Wire {
    address: Address,
    reader: ReplyReader,
    writer: Writer,
    codec: ValueCodec,
    /// Received but not yet decoded.
    input: BytesMut,
    /// Bytes received of the incomplete frame. The decoder keeps its own state of that frame.
    frame_bytes: usize,
    /// Commands not yet written to the stream.
    output: BytesMut,
    /// Data was written to a stream that may still buffer it (TLS).
    unflushed: bool,
    response_timeout: Duration,
    is_resp3: bool,
}

/// Why a connection became unusable.
#[derive(Debug, thiserror::Error)]
pub(super) enum WireError {
    #[error("{0} closed the connection")]
    Closed(Address),
    #[error("the connection to {address} broke")]
    Broken { address: Address, source: io::Error },
    #[error("{address} sent something that is no reply of Redis")]
    NotRedis { address: Address, source: redis::RedisError },
    #[error("{0} sent a reply of more than 64 MiB")]
    TooLarge(Address),
    #[error("{address} did not answer within {after:?}")]
    Timeout { address: Address, after: Duration },
}

impl Wire {
    pub(super) fn new(address: Address, reader: ReplyReader, writer: Writer, response_timeout: Duration) -> Self {
        Self {
            address,
            reader,
            writer,
            codec: ValueCodec::default(),
            input: BytesMut::with_capacity(READ_BYTES),
            frame_bytes: 0,
            output: BytesMut::new(),
            unflushed: false,
            response_timeout,
            is_resp3: false,
        }
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// Pushes need RESP3.
    pub(super) fn is_resp3(&self) -> bool {
        self.is_resp3
    }

    pub(super) fn set_resp3(&mut self) {
        self.is_resp3 = true;
    }

    /// Appends a command to the output. `next` sends it.
    pub(super) fn push_command(&mut self, parts: &[&[u8]]) {
        let mut digits = DecimalBuffer::default();
        self.output.extend_from_slice(b"*");
        self.output.extend_from_slice(digits.format(parts.len()));
        for part in parts {
            self.output.extend_from_slice(b"\r\n$");
            self.output.extend_from_slice(digits.format(part.len()));
            self.output.extend_from_slice(b"\r\n");
            self.output.extend_from_slice(part);
        }
        self.output.extend_from_slice(b"\r\n");
    }

    /// Returns the next reply or push in stream order. Sends the output at the same time, so that
    /// the two sides never wait for each other. Cancel-safe: the future may be dropped at any await
    /// without losing data.
    pub(super) async fn next(&mut self) -> Result<Value, WireError> {
        loop {
            if let Some(value) = self.decode()? {
                return Ok(value);
            }
            self.input.reserve(READ_BYTES);
            let waits = !self.output.is_empty() || self.unflushed;
            tokio::select! {
                biased;
                sent = send(&mut self.writer, &mut self.output, &mut self.unflushed), if waits => {
                    sent.map_err(|source| self.broken(source))?;
                }
                read = self.reader.read_buf(&mut self.input) => match read {
                    Ok(0) => return Err(WireError::Closed(self.address.clone())),
                    Ok(n_bytes) => self.frame_bytes += n_bytes,
                    Err(source) => return Err(self.broken(source)),
                },
            }
        }
    }

    /// Returns a reply or push that was already received, without waiting.
    pub(super) fn next_received(&mut self) -> Result<Option<Value>, WireError> {
        self.decode()
    }

    /// Sends one command and waits for its reply. Only for the setup of a connection: no other
    /// request may be pending, and pushes are ignored. An error reply of the server is returned as
    /// a value.
    pub(super) async fn ask(&mut self, parts: &[&[u8]]) -> Result<Value, WireError> {
        self.push_command(parts);
        let after = self.response_timeout;
        let answer = async {
            loop {
                match self.next().await? {
                    Value::Push { .. } => {}
                    value => return Ok(value),
                }
            }
        };
        match timeout(after, answer).await {
            Ok(answered) => answered,
            Err(_) => Err(WireError::Timeout { address: self.address.clone(), after }),
        }
    }

    fn decode(&mut self) -> Result<Option<Value>, WireError> {
        let not_redis = |source| WireError::NotRedis { address: self.address.clone(), source };
        if self.input.is_empty() {
            return Ok(None);
        }
        let decoded = self.codec.decode(&mut self.input).map_err(not_redis)?;
        if decoded.is_some() {
            self.frame_bytes = self.input.len();
            if self.input.is_empty() && self.input.capacity() > 4 * READ_BYTES {
                self.input = BytesMut::with_capacity(READ_BYTES);
            }
        } else if self.frame_bytes > MAX_FRAME_BYTES {
            return Err(WireError::TooLarge(self.address.clone()));
        }
        Ok(decoded)
    }

    fn broken(&self, source: io::Error) -> WireError {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        match source.kind() {
            // The error kind of a closed connection depends on what the other side had not read
            // yet.
            BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof => WireError::Closed(self.address.clone()),
            _ => WireError::Broken { address: self.address.clone(), source },
        }
    }
}

/// Each step removes what it has sent from `output`, so that nothing is sent twice if the future is
/// dropped midway.
async fn send(writer: &mut Writer, output: &mut BytesMut, unflushed: &mut bool) -> io::Result<()> {
    while !output.is_empty() {
        *unflushed = true;
        if writer.write_buf(output).await? == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
    }
    writer.flush().await?;
    *unflushed = false;
    Ok(())
}

/// Formats lengths in decimal without allocating: a link sends tens of thousands of commands a
/// second.
#[derive(Default)]
struct DecimalBuffer([u8; 20]);

impl DecimalBuffer {
    fn format(&mut self, mut number: usize) -> &[u8] {
        let mut start = self.0.len();
        loop {
            start -= 1;
            self.0[start] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return &self.0[start..];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire() -> (Wire, tokio::io::DuplexStream) {
        wire_through(64)
    }

    fn wire_through(capacity: usize) -> (Wire, tokio::io::DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(capacity);
        let (reader, writer) = tokio::io::split(ours);
        let address = Address::Tcp { host: "redis".to_owned(), port: 6379 };
        (Wire::new(address, Box::new(reader), Box::new(writer), Duration::from_secs(5)), theirs)
    }

    #[tokio::test]
    async fn commands_are_sent_while_replies_are_awaited() {
        let (mut wire, mut theirs) = wire();
        let value = [b'x'; 1000];
        wire.push_command(&[b"PTTL", b"key:1"]);
        wire.push_command(&[&value]);
        let mut received = vec![0; 2000];
        let server = async {
            // The pipe holds 64 bytes, so the command is only sent completely while `next` waits.
            let mut length = 0;
            while length < 25 + 1013 {
                length += theirs.read(&mut received[length..]).await.unwrap();
            }
            theirs.write_all(b":-2\r\n").await.unwrap();
            length
        };
        let (reply, length) = tokio::join!(wire.next(), server);
        assert_eq!(reply.unwrap(), Value::Int(-2));
        assert_eq!(&received[..41], b"*2\r\n$4\r\nPTTL\r\n$5\r\nkey:1\r\n*1\r\n$1000\r\nxxxxx");
        assert_eq!(length, 25 + 1013);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_next_loses_nothing() {
        let (mut wire, mut theirs) = wire();
        theirs.write_all(b"*2\r\n:1\r\n$5\r\nhel").await.unwrap();
        for _ in 0..3 {
            assert!(timeout(Duration::from_millis(1), wire.next()).await.is_err());
        }
        theirs.write_all(b"lo\r\n>2\r\n+invalidate\r\n*1\r\n+k\r\n").await.unwrap();
        let reply = wire.next().await.unwrap();
        assert_eq!(reply, Value::Array(vec![Value::Int(1), Value::BulkString(b"hello".to_vec())]));
        assert!(matches!(wire.next_received(), Ok(Some(Value::Push { .. }))));
        assert!(matches!(wire.next_received(), Ok(None)));
    }

    #[tokio::test(start_paused = true)]
    async fn ways_to_end() {
        let (mut wire, theirs) = wire();
        assert!(matches!(wire.ask(&[b"PING"]).await, Err(WireError::Timeout { .. })), "nobody answers");
        drop(theirs);
        assert!(matches!(wire.next().await, Err(WireError::Closed(_))));

        let (mut wire, mut theirs) = self::wire();
        theirs.write_all(b"HTTP/1.1 400 Bad Request\r\n").await.unwrap();
        let error = wire.next().await.unwrap_err();
        assert_eq!(error.to_string(), "redis:6379 sent something that is no reply of Redis");
    }

    #[tokio::test]
    async fn a_reply_without_end_is_refused() {
        let (mut wire, mut theirs) = wire_through(1 << 20);
        let server = tokio::spawn(async move {
            theirs.write_all(b"$1000000000\r\n").await.unwrap();
            while theirs.write_all(&[b'x'; 64 << 10]).await.is_ok() {}
        });
        assert!(matches!(wire.next().await, Err(WireError::TooLarge(_))));
        drop(wire);
        server.await.unwrap();
    }
}
