//! A slow network between workers and Redis: what they send arrives late, in order. Answers come back at once.
//!
//! Delay is set for all connections together, at any time; bytes that are under way keep the delay they were sent with. Where
//! Redis is not there, connections end at once.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Pieces of one connection that may be under way; the sender waits when there are more.
const UNDER_WAY: usize = 1024;
const PIECE_BYTES: usize = 16 << 10;

/// Ends with all its connections when it is dropped.
pub struct Proxy {
    address: SocketAddr,
    delay: watch::Sender<Duration>,
    _end: DropGuard,
}

impl Proxy {
    /// Listens on a free port of the loopback interface.
    pub async fn start(redis: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let delay = watch::Sender::new(Duration::ZERO);
        let end = CancellationToken::new();
        tokio::spawn(end.clone().run_until_cancelled_owned(accept(listener, redis, delay.subscribe())));
        Ok(Self { address, delay, _end: end.drop_guard() })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How long everything takes to get to Redis from now on.
    pub fn delay(&self, delay: Duration) {
        self.delay.send_replace(delay);
    }
}

async fn accept(listener: TcpListener, redis: SocketAddr, delay: watch::Receiver<Duration>) {
    // Dropped with this future, and the connections with it.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((near, _)) => _ = connections.spawn(join(near, redis, delay.clone())),
                // Out of descriptors, perhaps: not for long.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn join(near: TcpStream, redis: SocketAddr, delay: watch::Receiver<Duration>) {
    let Ok(far) = TcpStream::connect(redis).await else { return };
    // Small packets are what this is about. A socket that cannot do so is slower and still right.
    let _ = near.set_nodelay(true);
    let _ = far.set_nodelay(true);
    let (from_near, mut to_near) = near.into_split();
    let (mut from_far, to_far) = far.into_split();
    // The end of one direction is the end of both.
    tokio::select! {
        _ = carry(from_near, to_far, delay) => {}
        _ = tokio::io::copy(&mut from_far, &mut to_near) => {}
    }
}

async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    delay: watch::Receiver<Duration>,
) -> std::io::Result<()> {
    let (send, mut under_way) = mpsc::channel::<(Instant, Vec<u8>)>(UNDER_WAY);
    let read = async move {
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let n_bytes = from.read(&mut piece).await?;
            let due = Instant::now() + *delay.borrow();
            if n_bytes == 0 || send.send((due, piece[..n_bytes].to_vec())).await.is_err() {
                return Ok::<_, std::io::Error>(());
            }
        }
    };
    let write = async move {
        while let Some((due, piece)) = under_way.recv().await {
            sleep_until(due).await;
            to.write_all(&piece).await?;
        }
        Ok(())
    };
    tokio::try_join!(read, write).map(drop)
}
