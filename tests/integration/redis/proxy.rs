//! A network between the exporter and a server that tests can make fail. A stalled proxy delays all
//! bytes and closes nothing. A cut proxy ends all connections, and ends new ones immediately.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

#[derive(Clone, Copy, PartialEq, Eq)]
enum ProxyMode {
    Open,
    Stalled,
    Cut,
    Ended,
}

struct Forwarder {
    mode: Mutex<ProxyMode>,
    changed: Condvar,
    /// Both ends of every connection.
    streams: Mutex<Vec<TcpStream>>,
}

pub struct Proxy {
    port: u16,
    forwarder: Arc<Forwarder>,
}

impl Proxy {
    /// Forwards connections to a server on the loopback interface.
    pub fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let forwarder =
            Forwarder { mode: Mutex::new(ProxyMode::Open), changed: Condvar::new(), streams: Mutex::default() };
        let forwarder = Arc::new(forwarder);
        let shared = Arc::clone(&forwarder);
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                match shared.current_mode() {
                    ProxyMode::Ended => return,
                    ProxyMode::Cut => continue,
                    ProxyMode::Open | ProxyMode::Stalled => {}
                }
                let Ok(far) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                shared.join(near, far);
            }
        });
        Self { port, forwarder }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Stops forwarding in both directions. Connections stay open and clients can open new ones.
    pub fn stall(&self) {
        self.forwarder.set_mode(ProxyMode::Stalled);
    }

    /// Ends all connections, and ends new ones immediately.
    pub fn cut(&self) {
        self.forwarder.set_mode(ProxyMode::Cut);
        self.forwarder.close();
    }

    /// Forwards everything again, delayed bytes first.
    pub fn resume(&self) {
        self.forwarder.set_mode(ProxyMode::Open);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.forwarder.set_mode(ProxyMode::Ended);
        self.forwarder.close();
        // Wakes the thread that accepts connections.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Forwarder {
    fn current_mode(&self) -> ProxyMode {
        *self.mode.lock().unwrap()
    }

    fn set_mode(&self, mode: ProxyMode) {
        *self.mode.lock().unwrap() = mode;
        self.changed.notify_all();
    }

    fn close(&self) {
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn join(self: &Arc<Self>, near: TcpStream, far: TcpStream) {
        for stream in [&near, &far] {
            stream.set_nodelay(true).unwrap();
            self.streams.lock().unwrap().push(stream.try_clone().unwrap());
        }
        for (from, to) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)] {
            let forwarder = Arc::clone(self);
            thread::spawn(move || forwarder.forward(from, to));
        }
    }

    fn forward(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut bytes = [0; 65_536];
        loop {
            let read = from.read(&mut bytes);
            // The end of a connection is delayed like its bytes.
            let mode = *self.changed.wait_while(self.mode.lock().unwrap(), |mode| *mode == ProxyMode::Stalled).unwrap();
            let Ok(n_bytes @ 1..) = read else { break };
            if mode != ProxyMode::Open || to.write_all(&bytes[..n_bytes]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }
}
