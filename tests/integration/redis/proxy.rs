//! A network between the exporter and a server that can be made to fail: it stalls (bytes wait, nothing is closed) or is cut
//! (all connections end, new ones end at once).

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Open,
    Stalled,
    Cut,
    Ended,
}

struct Road {
    way: Mutex<Way>,
    changed: Condvar,
    /// Both ends of every connection.
    streams: Mutex<Vec<TcpStream>>,
}

pub struct Proxy {
    port: u16,
    road: Arc<Road>,
}

impl Proxy {
    /// To a server on the loopback interface.
    pub fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let road = Road { way: Mutex::new(Way::Open), changed: Condvar::new(), streams: Mutex::default() };
        let road = Arc::new(road);
        let shared = Arc::clone(&road);
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                match shared.now() {
                    Way::Ended => return,
                    Way::Cut => continue,
                    Way::Open | Way::Stalled => {}
                }
                let Ok(far) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                shared.join(near, far);
            }
        });
        Self { port, road }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on nothing comes through, in neither direction. Connections stay open and can still be made.
    pub fn stall(&self) {
        self.road.turn(Way::Stalled);
    }

    /// Ends all connections, and new ones at once.
    pub fn cut(&self) {
        self.road.turn(Way::Cut);
        self.road.close();
    }

    /// Everything comes through again, what has waited first.
    pub fn resume(&self) {
        self.road.turn(Way::Open);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.road.turn(Way::Ended);
        self.road.close();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Road {
    fn now(&self) -> Way {
        *self.way.lock().unwrap()
    }

    fn turn(&self, way: Way) {
        *self.way.lock().unwrap() = way;
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
            let road = Arc::clone(self);
            thread::spawn(move || road.carry(from, to));
        }
    }

    fn carry(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut bytes = [0; 65_536];
        loop {
            let read = from.read(&mut bytes);
            // The end of a connection waits like everything else.
            let way = *self.changed.wait_while(self.way.lock().unwrap(), |way| *way == Way::Stalled).unwrap();
            let Ok(n_bytes @ 1..) = read else { break };
            if way != Way::Open || to.write_all(&bytes[..n_bytes]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }
}
