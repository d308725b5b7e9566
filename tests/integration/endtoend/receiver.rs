//! Receives Alertmanager's webhooks: a small HTTP server on the loopback interface that stores all
//! requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

/// One webhook message. The path distinguishes pages from tickets.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) path: String,
    pub(super) body: Value,
}

impl Message {
    pub(super) fn is_firing(&self) -> bool {
        self.body["status"] == "firing"
    }

    pub(super) fn alerts(&self) -> &[Value] {
        self.body["alerts"].as_array().unwrap()
    }
}

pub(super) struct Receiver {
    pub(super) address: SocketAddr,
    messages: Arc<Mutex<Vec<Message>>>,
}

impl Receiver {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let messages = Arc::new(Mutex::new(Vec::new()));
        let received = Arc::clone(&messages);
        // The thread runs until the process of this test exits.
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let received = Arc::clone(&received);
                // Alertmanager keeps connections open.
                thread::spawn(move || {
                    while let Some(message) = receive(&stream) {
                        received.lock().unwrap().push(message);
                    }
                });
            }
        });
        Self { address, messages }
    }

    pub(super) fn pages(&self) -> Vec<Message> {
        self.of("/page")
    }

    pub(super) fn tickets(&self) -> Vec<Message> {
        self.of("/ticket")
    }

    fn of(&self, path: &str) -> Vec<Message> {
        self.messages.lock().unwrap().iter().filter(|message| message.path == path).cloned().collect()
    }
}

/// Reads and answers one request. Returns `None` when the connection has ended.
fn receive(mut stream: &TcpStream) -> Option<Message> {
    let mut reader = BufReader::with_capacity(1, stream);
    let mut first = String::new();
    reader.read_line(&mut first).ok()?;
    let path = first.split(' ').nth(1)?.to_owned();
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.parse().ok()?,
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").ok()?;
    Some(Message { path, body: serde_json::from_slice(&body).expect("Alertmanager sends JSON") })
}
