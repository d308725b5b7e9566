//! A TCP proxy between workers and Redis that can delay, block or redirect the traffic.
//!
//! It listens on the loopback interface only. Delayed bytes wait in memory. That is only a few
//! kilobytes, because a worker that gets no replies sends little.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use redis::{Client, ConnectionAddr, RedisResult};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// How many chunks may wait in one direction of one connection. Then the sender waits.
const WAITING: usize = 256;
const CHUNK: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Direction {
    /// The server for new connections. If `None`, they end immediately.
    server: Option<String>,
    /// Added in each direction.
    delay: Duration,
    /// No bytes pass, and no connection is closed.
    blocked: bool,
    /// Incremented when all connections must end.
    generation: u64,
}

/// The proxy and its connections end when this is dropped.
pub struct Proxy {
    address: SocketAddr,
    way: watch::Sender<Direction>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// `server` is HOST:PORT.
    pub async fn start(server: &str) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("cannot start a proxy")?;
        let address = listener.local_addr()?;
        let way = Direction { server: Some(server.to_owned()), delay: Duration::ZERO, blocked: false, generation: 0 };
        let way = watch::Sender::new(way);
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, way.clone()));
        Ok(Self { address, way, _tasks: tasks })
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn delay(&self, delay: Duration) {
        self.way.send_modify(|way| way.delay = delay);
    }

    pub fn block(&self) {
        self.way.send_modify(|way| way.blocked = true);
    }

    /// Lets the waiting bytes pass.
    pub fn unblock(&self) {
        self.way.send_modify(|way| way.blocked = false);
    }

    /// Ends all connections. New ones lead to another server.
    pub fn redirect(&self, server: &str) {
        self.end_connections(Some(server.to_owned()));
    }

    /// Ends all connections, and new ones immediately, until [`Proxy::redirect`].
    pub fn cut(&self) {
        self.end_connections(None);
    }

    fn end_connections(&self, next_server: Option<String>) {
        self.way.send_modify(|way| {
            way.server = next_server;
            way.generation += 1;
        });
    }
}

/// Returns a client with the same settings that connects through the proxy on this port.
pub fn client_through(port: u16, client: &Client) -> RedisResult<Client> {
    let nearby = ConnectionAddr::Tcp(Ipv4Addr::LOCALHOST.to_string(), port);
    Client::open(client.get_connection_info().clone().set_addr(nearby))
}

async fn accept(listener: TcpListener, way: watch::Sender<Direction>) {
    // The connections end with this task, because dropping the set aborts them.
    let mut connections = JoinSet::new();
    let way = Arc::new(way);
    loop {
        tokio::select! {
            Ok((near, _)) = listener.accept() => {
                connections.spawn(connect(near, way.subscribe()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one connection until one side closes it or the proxy is redirected.
async fn connect(near: TcpStream, mut way: watch::Receiver<Direction>) {
    let Direction { server, generation, .. } = way.borrow_and_update().clone();
    let Some(server) = server else { return };
    let Ok(far) = TcpStream::connect(&server).await else { return };
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let (near_reader, near_writer) = near.into_split();
    let (far_reader, far_writer) = far.into_split();
    tokio::select! {
        () = carry(near_reader, far_writer, way.clone()) => {}
        () = carry(far_reader, near_writer, way.clone()) => {}
        _ = way.wait_for(|way| way.generation != generation) => {}
    }
}

async fn carry(reader: OwnedReadHalf, writer: OwnedWriteHalf, way: watch::Receiver<Direction>) {
    let (out, waiting) = mpsc::channel(WAITING);
    let mut writing = pin!(write(writer, waiting, way.clone()));
    tokio::select! {
        // The end of a connection is delayed like its bytes.
        () = read(reader, out, way) => writing.await,
        () = &mut writing => {}
    }
}

async fn read(mut reader: OwnedReadHalf, out: mpsc::Sender<(Instant, Vec<u8>)>, way: watch::Receiver<Direction>) {
    let mut bytes = [0; CHUNK];
    while let Ok(length @ 1..) = reader.read(&mut bytes).await {
        // The delay applies to bytes that arrive now, even if it ends later.
        let due = Instant::now() + way.borrow().delay;
        if out.send((due, bytes[..length].to_vec())).await.is_err() {
            return;
        }
    }
}

async fn write(
    mut writer: OwnedWriteHalf,
    mut waiting: mpsc::Receiver<(Instant, Vec<u8>)>,
    mut way: watch::Receiver<Direction>,
) {
    while let Some((due, bytes)) = waiting.recv().await {
        sleep_until(due).await;
        if way.wait_for(|way| !way.blocked).await.is_err() || writer.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that replies to each byte with its own name and that byte.
    async fn echo(name: u8) -> String {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut byte = [0];
                    while stream.read_exact(&mut byte).await.is_ok() {
                        stream.write_all(&[name, byte[0]]).await.unwrap();
                    }
                });
            }
        });
        address.to_string()
    }

    async fn ask(stream: &mut TcpStream) -> std::io::Result<[u8; 2]> {
        stream.write_all(b"x").await?;
        let mut answer = [0; 2];
        stream.read_exact(&mut answer).await?;
        Ok(answer)
    }

    #[tokio::test]
    async fn delays_blocks_and_leads_elsewhere() {
        let (first, second) = (echo(b'1').await, echo(b'2').await);
        let proxy = Proxy::start(&first).await.unwrap();
        let mut stream = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
        assert_eq!(&ask(&mut stream).await.unwrap(), b"1x");
        proxy.delay(Duration::from_millis(100));
        let start = Instant::now();
        assert_eq!(&ask(&mut stream).await.unwrap(), b"1x");
        assert!(start.elapsed() >= Duration::from_millis(200), "both ways");
        proxy.delay(Duration::ZERO);
        proxy.block();
        let mut asked = Box::pin(ask(&mut stream));
        assert!(tokio::time::timeout(Duration::from_millis(100), &mut asked).await.is_err());
        proxy.unblock();
        assert_eq!(&asked.await.unwrap(), b"1x", "what waited goes on");
        proxy.redirect(&second);
        assert!(ask(&mut stream).await.is_err(), "connections end");
        let mut stream = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
        assert_eq!(&ask(&mut stream).await.unwrap(), b"2x");
        proxy.cut();
        assert!(ask(&mut stream).await.is_err(), "connections end");
        let mut stream = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
        assert!(ask(&mut stream).await.is_err(), "new ones, too");
    }

    #[tokio::test]
    async fn bytes_before_the_end_of_a_connection_arrive() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let proxy = Proxy::start(&listener.local_addr().unwrap().to_string()).await.unwrap();
        proxy.delay(Duration::from_millis(100));
        let mut near = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        far.write_all(b"last words").await.unwrap();
        drop(far);
        let mut words = String::new();
        near.read_to_string(&mut words).await.unwrap();
        assert_eq!(words, "last words");
    }
}
