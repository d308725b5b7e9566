//! The proxy of the simulated fleet, for tests without a runtime of their own: a network between the
//! exporter and a server that can fail.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use redis_lock_exporter::rehearsal::fleet;
use tokio::runtime::Runtime;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

pub struct Proxy {
    proxy: fleet::Proxy,
    server: String,
    is_cut: AtomicBool,
}

impl Proxy {
    /// Forwards connections to a server on the loopback interface.
    pub fn start(server: u16) -> Self {
        let server = format!("127.0.0.1:{server}");
        // On its own thread, because the caller may be inside another runtime.
        let start = || RUNTIME.block_on(fleet::Proxy::start(&server)).unwrap();
        let proxy = thread::scope(|scope| scope.spawn(start).join().unwrap());
        Self { proxy, server, is_cut: AtomicBool::new(false) }
    }

    pub fn port(&self) -> u16 {
        self.proxy.port()
    }

    /// Stops forwarding in both directions. Connections stay open and clients can open new ones.
    pub fn stall(&self) {
        self.proxy.block();
    }

    /// Ends all connections, and ends new ones immediately.
    pub fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
        self.proxy.cut();
    }

    /// Forwards everything again, delayed bytes first.
    pub fn resume(&self) {
        if self.is_cut.swap(false, Ordering::Relaxed) {
            self.proxy.redirect(&self.server);
        }
        self.proxy.unblock();
    }
}
