//! Listeners for connections: TCP addresses, Unix sockets, and sockets that systemd opened.
//!
//! `run` binds the listeners; the server accepts from them. Before a Unix socket is bound, a socket
//! file that a dead process left behind is removed. If a process still answers on it, binding
//! fails. The socket file is removed when the exporter stops. Sockets from systemd are never
//! removed.

use std::fmt;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream as BlockingUnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context as _;
use listenfd::ListenFd;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// An accepted connection.
pub(super) enum Client {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// The file of a Unix socket, removed on drop. `None` if systemd owns the socket.
pub struct SocketFile(Option<PathBuf>);

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // If another process already removed the file, there is nothing to do.
            let _ = fs::remove_file(path);
        }
    }
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

impl Listener {
    pub async fn bind(address: &ListenAddress) -> io::Result<Self> {
        match address {
            ListenAddress::Tcp { host, port } => {
                let mut failure = io::Error::other("the name has no address");
                for candidate in ListenAddress::candidates(host, *port)? {
                    match TcpListener::bind(candidate).await {
                        Ok(listener) => return Ok(Self::Tcp(listener)),
                        Err(error) => failure = error,
                    }
                }
                Err(failure)
            }
            ListenAddress::Unix { path, mode } => {
                remove_stale(path)?;
                let listener = UnixListener::bind(path)?;
                let file = SocketFile(Some(path.clone()));
                if let Some(mode) = mode {
                    fs::set_permissions(path, fs::Permissions::from_mode(*mode))?;
                }
                Ok(Self::Unix(listener, file))
            }
        }
    }

    /// `None` for a Unix socket.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(..) => None,
        }
    }

    /// Returns the sockets that systemd passed to this process. Fails if there is none.
    pub fn from_systemd() -> anyhow::Result<Vec<Self>> {
        let mut passed = ListenFd::from_env();
        let mut listeners = Vec::new();
        for index in 0..passed.len() {
            // If the socket has another type, `take_tcp_listener` does not take it.
            let listener = match passed.take_tcp_listener(index) {
                Ok(Some(listener)) => {
                    listener.set_nonblocking(true)?;
                    Self::Tcp(TcpListener::from_std(listener)?)
                }
                _ => {
                    let taken = passed.take_unix_listener(index);
                    let wrong = || format!("socket {index} of systemd is no stream socket (ListenStream=)");
                    let listener = taken.with_context(wrong)?.with_context(wrong)?;
                    listener.set_nonblocking(true)?;
                    Self::Unix(UnixListener::from_std(listener)?, SocketFile(None))
                }
            };
            listeners.push(listener);
        }
        anyhow::ensure!(
            !listeners.is_empty(),
            "systemd passed no sockets: start this by a .socket unit, or without --web.systemd-socket"
        );
        Ok(listeners)
    }

    pub(super) async fn accept(&self) -> io::Result<Client> {
        match self {
            Self::Tcp(listener) => listener.accept().await.map(|(stream, _)| Client::Tcp(stream)),
            Self::Unix(listener, _) => listener.accept().await.map(|(stream, _)| Client::Unix(stream)),
        }
    }

    /// Text for logs: `127.0.0.1:9877` or `unix:///run/exporter.sock`.
    pub(super) fn describe(&self) -> io::Result<String> {
        Ok(match self {
            Self::Tcp(listener) => listener.local_addr()?.to_string(),
            Self::Unix(listener, _) => match listener.local_addr()?.as_pathname() {
                Some(path) => format!("unix://{}", path.display()),
                None => "unix: without a name".to_owned(),
            },
        })
    }
}

/// Removes a socket file on which no process listens.
fn remove_stale(path: &Path) -> io::Result<()> {
    let kind = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !kind.is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is no socket"));
    }
    match BlockingUnixStream::connect(path) {
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process answers on this socket")),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
    }
}

/// An address to listen on. A host name is resolved by `bind`, not by the parser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    Tcp {
        /// An empty host means every interface. An IPv6 address has no brackets here.
        host: String,
        port: u16,
    },
    Unix {
        path: PathBuf,
        /// Permissions of the socket file. `None` leaves them to the umask.
        mode: Option<u32>,
    },
}

impl ListenAddress {
    /// Returns the addresses to try in turn until one can be bound.
    pub fn candidates(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if host.is_empty() {
            // On most systems the IPv6 address also accepts IPv4. The IPv4 address is for systems
            // without IPv6.
            let everywhere = [(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()];
            return Ok(everywhere.to_vec());
        }
        Ok((host, port).to_socket_addrs()?.collect())
    }

    fn parse_unix(rest: &str) -> Result<Self, String> {
        let expected = "expected unix:///PATH or unix:///PATH?mode=660";
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        if !path.starts_with('/') || path.ends_with('/') {
            return Err(expected.to_owned());
        }
        let mode = match query {
            "" => None,
            query => {
                let digits = query.strip_prefix("mode=").ok_or(expected)?;
                let mode = u32::from_str_radix(digits, 8).ok().filter(|mode| *mode <= 0o777);
                Some(mode.ok_or_else(|| format!("{digits:?} are no permissions such as 660, {expected}"))?)
            }
        };
        Ok(Self::Unix { path: path.into(), mode })
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(rest) = text.strip_prefix("unix://") {
            return Self::parse_unix(rest);
        }
        let expected = "expected :PORT, HOST:PORT, [IPV6]:PORT or unix:///PATH";
        let (host, port) = text.rsplit_once(':').ok_or(expected)?;
        let port = port.parse().map_err(|_| format!("{port:?} is not a port, {expected}"))?;
        let bare_ipv6 = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let host = match bare_ipv6 {
            Some(address) => address.parse::<Ipv6Addr>().map_err(|_| expected)?.to_string(),
            None if host.contains([':', '[', ']', '/']) => return Err(expected.to_owned()),
            None => host.to_owned(),
        };
        Ok(Self::Tcp { host, port })
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(formatter, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(formatter, "{host}:{port}"),
            Self::Unix { path, mode: None } => write!(formatter, "unix://{}", path.display()),
            Self::Unix { path, mode: Some(mode) } => write!(formatter, "unix://{}?mode={mode:o}", path.display()),
        }
    }
}
