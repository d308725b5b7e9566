//! An HTTP client for tests. It sends bytes unchanged and returns the complete response.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Names are in lower case.
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Sends one request unchanged, closes the sending side, and reads to the end.
pub(crate) fn ask(address: SocketAddr, request: &str) -> Answer {
    ask_with_body(address, request, &[])
}

/// Sends a request with a body. The head must contain the content length.
pub(crate) fn ask_with_body(address: SocketAddr, head: &str, body: &[u8]) -> Answer {
    let mut stream = connect(address);
    let head = head.replacen("\r\n", "\r\nConnection: close\r\n", 1);
    // A server that refuses a body does not need to read all of it.
    let _ = stream.write_all(&[head.as_bytes(), body].concat());
    let bytes = drain(&mut stream);
    let head_end =
        bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap_or_else(|| panic!("no head: {bytes:?}"));
    let head = String::from_utf8(bytes[..head_end].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines.map(|line| line.split_once(": ").unwrap());
    let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    let answer = Answer { status, headers, body: bytes[head_end + 4..].to_vec() };
    if !answer.body.is_empty() {
        assert_eq!(answer.header("content-length"), Some(answer.body.len().to_string().as_str()));
    }
    answer
}

/// Reads until the server closes the connection. The server may reset it when it refuses a request.
pub(crate) fn drain(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset => panic!("{error} after {bytes:?}"),
        _ => bytes,
    }
}
