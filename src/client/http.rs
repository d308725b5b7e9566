//! One GET of one URL, for the commands that query a running exporter or Prometheus.
//!
//! Each request opens its own connection, because these commands send at most a few requests a
//! second. Redirects are not followed; the response shows them. The total time and the response
//! size are limited. Errors name the URL without its user and password.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, HOST, USER_AGENT};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::config::redis::Tls;
use crate::keyspace::tls;
use crate::util::percent::percent_decode;

const AGENT: &str = concat!("redis_lock_exporter/", env!("CARGO_PKG_VERSION"));

#[derive(Clone, Debug)]
pub struct ClientLimits {
    /// From the name lookup to the last byte of the response.
    pub time: Duration,
    /// Size of the response body.
    pub bytes: usize,
    /// For `https://`: the CA certificates to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self { time: Duration::from_secs(10), bytes: 64 << 20, ca_file: None }
    }
}

/// For `https://`: the client certificate, and whether the server's certificate is checked.
#[derive(Clone, Debug, Default)]
pub struct ClientTls {
    /// PEM files of the certificate and the key.
    pub client: Option<(PathBuf, PathBuf)>,
    /// Accept any server certificate. For a server on the same machine whose certificate has
    /// another name.
    pub insecure: bool,
}

#[derive(Clone, Debug)]
pub struct Response {
    pub status: u16,
    pub body: Vec<u8>,
}

impl Response {
    /// Returns the body as text, or an error if the status is not 200.
    pub fn text(self) -> anyhow::Result<String> {
        let text = String::from_utf8(self.body).context("the answer is not UTF-8")?;
        if self.status != 200 {
            let start: String = text.trim().chars().take(200).collect();
            bail!("the answer has the status {}: {start}", self.status);
        }
        Ok(text)
    }
}

/// The parts of an `http://` or `https://` URL.
#[derive(Debug, PartialEq, Eq)]
struct HttpTarget {
    is_tls: bool,
    /// An IPv6 address has no brackets here.
    host: String,
    port: u16,
    /// Value of the `Host` header.
    authority: String,
    path: String,
    /// Value of the `Authorization` header.
    authorization: Option<String>,
}

/// Sends a GET to `http://HOST:PORT/PATH` or `https://...`. A `USER:PASSWORD@` before the host is
/// sent as basic authentication.
pub async fn get(url: &str, limits: &ClientLimits) -> anyhow::Result<Response> {
    get_as(url, limits, &ClientTls::default()).await
}

/// Like [`get`], with a client certificate or without checking the server's certificate.
pub async fn get_as(url: &str, limits: &ClientLimits, identity: &ClientTls) -> anyhow::Result<Response> {
    let shown = shown(url);
    let target = HttpTarget::parse(url).with_context(|| format!("bad URL {shown}"))?;
    within(limits, &shown, ask(&target, limits, identity)).await
}

/// Like [`get`], over a Unix socket in plain HTTP.
pub async fn get_over_unix(socket: &Path, path: &str, limits: &ClientLimits) -> anyhow::Result<Response> {
    let target = HttpTarget {
        is_tls: false,
        host: "localhost".to_owned(),
        port: 0,
        authority: "localhost".to_owned(),
        path: path.to_owned(),
        authorization: None,
    };
    let asked = async {
        let stream = UnixStream::connect(socket).await.context("cannot connect")?;
        exchange(stream, &target, limits.bytes).await
    };
    within(limits, &format!("{path} over {}", socket.display()), asked).await
}

async fn within(
    limits: &ClientLimits,
    shown: &str,
    asked: impl Future<Output = anyhow::Result<Response>>,
) -> anyhow::Result<Response> {
    match timeout(limits.time, asked).await {
        Ok(response) => response.with_context(|| format!("cannot get {shown}")),
        Err(_) => bail!("cannot get {shown}: no complete answer within {:?}", limits.time),
    }
}

/// Appends a path to a base URL, which may end in a slash.
pub fn below(base: &str, path: &str) -> String {
    format!("{}/{}", base.trim_end_matches('/'), path.trim_start_matches('/'))
}

/// Removes user and password from a URL, so that it can be printed.
pub fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        // Not a URL, but perhaps a mistyped one that contains a password.
        return url.rsplit_once('@').map_or(url, |(_, rest)| rest).to_owned();
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

impl HttpTarget {
    fn parse(url: &str) -> anyhow::Result<Self> {
        // The parser's error is dropped, because it may contain a part of the password.
        let uri: Uri = url.parse().ok().context("expected http://HOST:PORT/PATH or https://HOST:PORT/PATH")?;
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => bail!("expected a URL that begins with http:// or https://"),
        };
        let authority = uri.authority().context("there is no host")?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        if host.is_empty() {
            bail!("there is no host");
        }
        let (login, authority_text) = match authority.as_str().rsplit_once('@') {
            Some((login, rest)) => (Some(login), rest),
            None => (None, authority.as_str()),
        };
        let authorization = login.map(|login| {
            let login = percent_decode(login).context("the user or password is not percent-encoded UTF-8")?;
            Ok::<_, anyhow::Error>(format!("Basic {}", STANDARD.encode(login)))
        });
        Ok(Self {
            is_tls,
            host,
            port: authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 }),
            authority: authority_text.to_owned(),
            path: uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
            authorization: authorization.transpose()?,
        })
    }
}

async fn ask(target: &HttpTarget, limits: &ClientLimits, identity: &ClientTls) -> anyhow::Result<Response> {
    let address = (target.host.as_str(), target.port);
    let stream =
        TcpStream::connect(address).await.with_context(|| format!("cannot connect to {}", target.authority))?;
    if !target.is_tls {
        return exchange(stream, target, limits.bytes).await;
    }
    let settings = Tls { ca_file: limits.ca_file.clone(), client: identity.client.clone(), ..Tls::default() };
    let name = tls::server_name(&settings, &target.host)?;
    let config =
        if identity.insecure { tls::trusting_config(&settings).await? } else { tls::client_config(&settings).await? };
    let connector = TlsConnector::from(config);
    let stream = connector.connect(name, stream).await.context("TLS failed")?;
    exchange(stream, target, limits.bytes).await
}

async fn exchange<S>(stream: S, target: &HttpTarget, max_bytes: usize) -> anyhow::Result<Response>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let mut request = Request::get(&target.path).header(HOST, &target.authority).header(USER_AGENT, AGENT);
    if let Some(authorization) = &target.authorization {
        request = request.header(AUTHORIZATION, authorization);
    }
    let answer = async {
        let response = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), max_bytes).collect().await.map_err(anyhow::Error::from_boxed)?;
        Ok(Response { status, body: body.to_bytes().to_vec() })
    };
    // hyper makes progress only while the connection is polled. The response may be complete before
    // the connection ends, or after.
    let mut answer = std::pin::pin!(answer);
    tokio::select! {
        answer = &mut answer => answer,
        ended = connection => {
            ended.context("the connection failed")?;
            answer.await
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::util::ports::UnusedPort;

    #[test]
    fn urls() {
        let target = HttpTarget::parse("http://127.0.0.1:9877/metrics?a=b%20c").unwrap();
        assert_eq!((target.is_tls, target.host.as_str(), target.port), (false, "127.0.0.1", 9877));
        assert_eq!((target.path.as_str(), target.authority.as_str()), ("/metrics?a=b%20c", "127.0.0.1:9877"));
        let target = HttpTarget::parse("https://me:a%40b@[::1]").unwrap();
        assert_eq!((target.is_tls, target.host.as_str(), target.port), (true, "::1", 443));
        assert_eq!((target.path.as_str(), target.authority.as_str()), ("/", "[::1]"));
        assert_eq!(target.authorization.as_deref(), Some("Basic bWU6YUBi"));
        for bad in ["", "127.0.0.1:9877", "ftp://a/", "/metrics", "http://", "http://a:b@/", "http://%:x@a/"] {
            assert!(HttpTarget::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(below("http://a/prometheus/", "/api/v1"), "http://a/prometheus/api/v1");
        assert_eq!(shown("http://me:secret@a:1/b@c"), "http://a:1/b@c");
        assert_eq!((shown("http//me:secret@a/b"), shown("a:1/b")), ("a/b".to_owned(), "a:1/b".to_owned()));
    }

    /// Starts a server that sends `answer` to one request. Returns its URL and the request that it
    /// gets.
    async fn serve(answer: &'static [u8]) -> (String, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://me:secret@{}/x", listener.local_addr().unwrap());
        let asked = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4096];
            let length = stream.read(&mut request).await.unwrap();
            stream.write_all(answer).await.unwrap();
            request.truncate(length);
            String::from_utf8(request).unwrap()
        });
        (url, asked)
    }

    #[tokio::test]
    async fn an_answer_with_and_without_a_length() {
        for answer in [&b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone"[..], b"HTTP/1.0 404 No\r\n\r\nnone"]
        {
            let (url, asked) = serve(answer).await;
            let response = get(&url, &ClientLimits::default()).await.unwrap();
            assert_eq!((response.status, response.body.as_slice()), (404, &b"none"[..]));
            let asked = asked.await.unwrap();
            assert!(asked.starts_with("GET /x HTTP/1.1\r\n"), "{asked}");
            assert!(asked.to_lowercase().contains("authorization: basic bwu6c2vjcmv0\r\n"), "{asked}");
            assert!(response.text().unwrap_err().to_string().contains("404"));
        }
    }

    #[tokio::test]
    async fn too_much_too_slow_and_not_there() {
        let limits = ClientLimits { time: Duration::from_millis(300), bytes: 3, ca_file: None };
        let (url, _asked) = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfour").await;
        let error = format!("{:#}", get(&url, &limits).await.unwrap_err());
        assert!(error.contains("length limit exceeded") && !error.contains("secret"), "{error}");
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = silent.local_addr().unwrap();
        let error = get(&format!("http://{address}/"), &limits).await.unwrap_err().to_string();
        assert!(error.contains("no complete answer within 300ms"), "{error}");
        let unused = UnusedPort::reserve().unwrap();
        let url = format!("http://127.0.0.1:{}/", unused.number);
        let error = format!("{:#}", get(&url, &limits).await.unwrap_err());
        assert!(error.contains("cannot connect to 127.0.0.1"), "{error}");
    }
}
