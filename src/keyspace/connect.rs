//! Connects to an address and returns a [`Wire`] that is ready for commands: dials, sets up TLS,
//! authenticates and selects the database.
//!
//! Links and `topology` call [`connect`]. HELLO 3 does all of it on Redis 6 and later, except the
//! selection of the database. For servers and proxies that do not know HELLO, it uses RESP2, which
//! has no pushes. Passwords are read at each attempt and never appear in an error.

use std::io;
use std::time::Duration;

use redis::{ServerError, Value};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::tls::{self, TlsError};
use super::wire::{Wire, WireError};
use crate::config::redis::{Address, Credentials, PasswordSource, RedisConfig, Tls};

/// Name of the connection in `CLIENT LIST`.
const CLIENT_NAME: &[u8] = b"redis_lock_exporter";
/// The user of a password without a user name.
const DEFAULT_USER: &str = "default";

/// Address, credentials and options of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct RedisTarget<'a> {
    pub(super) address: &'a Address,
    pub(super) credentials: &'a Credentials,
    pub(super) database: u32,
    /// Ignored for Unix sockets.
    pub(super) tls: Option<&'a Tls>,
    pub(super) connect_timeout: Duration,
    pub(super) response_timeout: Duration,
}

impl<'a> RedisTarget<'a> {
    /// The target for a data node of the configured Redis.
    pub(super) fn node(config: &'a RedisConfig, address: &'a Address) -> Self {
        Self {
            address,
            credentials: &config.credentials,
            database: config.database,
            tls: config.tls.as_ref(),
            connect_timeout: config.connect_timeout,
            response_timeout: config.response_timeout,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("cannot connect to {address}")]
    Dial { address: Address, source: io::Error },
    #[error("cannot connect to {address} within {after:?}")]
    Timeout { address: Address, after: Duration },
    #[error("cannot set up TLS with {address}")]
    Tls { address: Address, source: Box<TlsError> },
    #[error("TLS with {address} failed")]
    Handshake { address: Address, source: io::Error },
    #[error("cannot read the password file {path}")]
    PasswordFile { path: String, source: io::Error },
    #[error("the password file {0} is empty")]
    NoPassword(String),
    #[error("the environment variable {0} with the password is not set or empty")]
    PasswordVariable(String),
    #[error("{0} accepted the connection and closed it without an answer: does it want TLS (rediss://)?")]
    HungUp(Address),
    /// `answer` is the error text of the server.
    #[error("{address} refused {command}: {answer}")]
    Refused { address: Address, command: &'static str, answer: String },
    #[error(transparent)]
    Wire(#[from] WireError),
}

/// Returns a connection that is authenticated and uses the configured database.
pub(super) async fn connect(target: &RedisTarget<'_>) -> Result<Wire, ConnectError> {
    let login = Login::read(target.credentials).await?;
    let mut wire = dial(target).await?;
    match hello(&mut wire, &login).await {
        Ok(Protocol::Resp3) => wire.set_resp3(),
        Ok(Protocol::Resp2) => log_in(&mut wire, &login).await?,
        // Some proxies close the connection on an unknown command.
        Err(ConnectError::Wire(WireError::Closed(_))) => {
            wire = dial(target).await?;
            log_in(&mut wire, &login).await.map_err(|error| match error {
                ConnectError::Wire(WireError::Closed(address)) => ConnectError::HungUp(address),
                error => error,
            })?;
        }
        Err(error) => return Err(error),
    }
    if target.database != 0 {
        let answer = wire.ask(&[b"SELECT", target.database.to_string().as_bytes()]).await?;
        login.accept(&wire, "SELECT", answer)?;
    }
    Ok(wire)
}

enum Protocol {
    Resp2,
    Resp3,
}

async fn hello(wire: &mut Wire, login: &Login) -> Result<Protocol, ConnectError> {
    let mut parts: Vec<&[u8]> = vec![b"HELLO", b"3"];
    if login.username.is_some() || login.password.is_some() {
        let username = login.username.as_deref().unwrap_or(DEFAULT_USER);
        // A user without a password (`nopass`) accepts any password.
        let password = login.password.as_deref().unwrap_or_default();
        parts.extend([b"AUTH", username.as_bytes(), password.as_bytes()]);
    }
    parts.extend([b"SETNAME", CLIENT_NAME]);
    match wire.ask(&parts).await? {
        Value::ServerError(error) if is_unknown(&error) => Ok(Protocol::Resp2),
        answer => login.accept(wire, "HELLO", answer).map(|()| Protocol::Resp3),
    }
}

/// Whether the server answers but does not support this command or this protocol. After other
/// errors (wrong password, too many clients, protected mode) a login with RESP2 would fail as well.
fn is_unknown(error: &ServerError) -> bool {
    let details = error.details().unwrap_or_default().to_ascii_lowercase();
    match error.code() {
        "NOPROTO" | "NOPERM" => true,
        "ERR" => !details.contains("max number of clients"),
        _ => false,
    }
}

async fn log_in(wire: &mut Wire, login: &Login) -> Result<(), ConnectError> {
    let password = login.password.as_deref().unwrap_or_default().as_bytes();
    if let Some(username) = &login.username {
        let answer = wire.ask(&[b"AUTH", username.as_bytes(), password]).await?;
        login.accept(wire, "AUTH", answer)?;
    } else if login.password.is_some() {
        let answer = wire.ask(&[b"AUTH", password]).await?;
        login.accept(wire, "AUTH", answer)?;
    }
    // Shows whether the server requires a password that is not configured. A user who may not send
    // PING is logged in nevertheless.
    match wire.ask(&[b"PING"]).await? {
        Value::ServerError(error) if error.code() == "NOPERM" => {}
        answer => login.accept(wire, "PING", answer)?,
    }
    // The name is optional, so a refusal does not matter.
    wire.ask(&[b"CLIENT", b"SETNAME", CLIENT_NAME]).await?;
    Ok(())
}

async fn dial(target: &RedisTarget<'_>) -> Result<Wire, ConnectError> {
    let address = target.address;
    let after = target.connect_timeout;
    match timeout(after, dial_without_limit(target)).await {
        Ok(dialed) => dialed,
        Err(_) => Err(ConnectError::Timeout { address: address.clone(), after }),
    }
}

async fn dial_without_limit(target: &RedisTarget<'_>) -> Result<Wire, ConnectError> {
    let address = target.address.clone();
    let cannot_dial = |source| ConnectError::Dial { address: address.clone(), source };
    let (host, port) = match &address {
        Address::Tcp { host, port } => (host.as_str(), *port),
        Address::Unix(path) => {
            let (reader, writer) = UnixStream::connect(path).await.map_err(cannot_dial)?.into_split();
            return Ok(Wire::new(address, Box::new(reader), Box::new(writer), target.response_timeout));
        }
    };
    let stream = TcpStream::connect((host, port)).await.map_err(cannot_dial)?;
    // Commands are sent in complete batches, so waiting for more data would only delay them.
    stream.set_nodelay(true).map_err(cannot_dial)?;
    let Some(settings) = target.tls else {
        let (reader, writer) = stream.into_split();
        return Ok(Wire::new(address, Box::new(reader), Box::new(writer), target.response_timeout));
    };
    let cannot_set_up = |source| ConnectError::Tls { address: address.clone(), source: Box::new(source) };
    let name = tls::server_name(settings, host).map_err(cannot_set_up)?;
    let config = tls::client_config(settings).await.map_err(cannot_set_up)?;
    let secured = TlsConnector::from(config).connect(name, stream).await;
    let secured = secured.map_err(|source| ConnectError::Handshake { address: address.clone(), source })?;
    let (reader, writer) = tokio::io::split(secured);
    Ok(Wire::new(address, Box::new(reader), Box::new(writer), target.response_timeout))
}

/// The credentials as read for this attempt.
struct Login {
    username: Option<String>,
    password: Option<String>,
}

impl Login {
    async fn read(credentials: &Credentials) -> Result<Self, ConnectError> {
        let password = match &credentials.password {
            None => None,
            Some(PasswordSource::Inline(password)) => Some(password.clone()),
            Some(PasswordSource::Environment(name)) => {
                let value = std::env::var(name).ok().filter(|value| !value.is_empty());
                Some(value.ok_or_else(|| ConnectError::PasswordVariable(name.clone()))?)
            }
            Some(PasswordSource::File(path)) => {
                let name = path.display().to_string();
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(path)).await;
                match read.unwrap_or_else(|error| Err(io::Error::other(error))) {
                    Ok(text) if text.trim_end_matches(['\r', '\n']).is_empty() => {
                        return Err(ConnectError::NoPassword(name));
                    }
                    Ok(text) => Some(text.trim_end_matches(['\r', '\n']).to_owned()),
                    Err(source) => return Err(ConnectError::PasswordFile { path: name, source }),
                }
            }
        };
        Ok(Self { username: credentials.username.clone(), password })
    }

    fn accept(&self, wire: &Wire, command: &'static str, answer: Value) -> Result<(), ConnectError> {
        let Value::ServerError(error) = answer else { return Ok(()) };
        let mut answer = format!("{} {}", error.code(), error.details().unwrap_or_default());
        // Some servers repeat the arguments of a command that they do not understand.
        if let Some(password) = &self.password {
            answer = answer.replace(password.as_str(), "(password)");
        }
        let answer = answer.trim_end().to_owned();
        Err(ConnectError::Refused { address: wire.address().clone(), command, answer })
    }
}
