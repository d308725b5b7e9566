//! Ports for servers that cannot choose their own, such as `redis-server` and Prometheus.
//!
//! No program can reserve a port for another program. So a caller gets a candidate from
//! [`free_port`], starts the server there, waits until [`is_listening`] confirms that this process
//! has the port, and tries another port if the server exits instead.

use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::ops::RangeInclusive;

/// How many ports a caller tries before it gives up.
pub const ATTEMPTS: usize = 10;

/// Below the range from which Linux takes the ports of outgoing connections and of listeners on
/// port 0. So the port of a server is still free when the server restarts.
const CANDIDATES: RangeInclusive<u16> = 12_000..=31_999;

/// Returns a random port of the loopback interface that is free at this moment.
pub fn free_port() -> io::Result<u16> {
    let n_candidates = u64::from(CANDIDATES.end() - CANDIDATES.start()) + 1;
    let mut refused = None;
    for attempt in 0..100 {
        let offset = RandomState::new().hash_one(attempt) % n_candidates;
        let port = CANDIDATES.start() + offset as u16;
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return Ok(port),
            Err(error) => refused = Some(error),
        }
    }
    Err(refused.unwrap_or_else(|| io::Error::from(io::ErrorKind::AddrInUse)))
}

/// Returns true if the process `pid` listens on `port` of the loopback interface. A successful
/// connection is not enough: another process may have taken the port first, while `pid` is about to
/// fail.
pub fn is_listening(pid: u32, port: u16) -> bool {
    match listening_sockets(pid, port) {
        Ok(inodes) if inodes.is_empty() => false,
        Ok(inodes) => has_socket(pid, &inodes),
        // Without /proc, a connection is the only available test.
        Err(_) => TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok(),
    }
}

/// Returns the inodes of the sockets that listen on `port` in the network namespace of `pid`.
fn listening_sockets(pid: u32, port: u16) -> io::Result<Vec<String>> {
    const LISTEN: &str = "0A";
    let mut inodes = Vec::new();
    for table in ["tcp", "tcp6"] {
        let Ok(text) = fs::read_to_string(format!("/proc/{pid}/net/{table}")) else {
            if table == "tcp" && !fs::exists("/proc/self/net/tcp")? {
                return Err(io::Error::from(io::ErrorKind::Unsupported));
            }
            continue;
        };
        for line in text.lines().skip(1) {
            // Columns: sl local_address rem_address st tx_queue:rx_queue tr:when retrnsmt uid
            // timeout inode ...
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let (Some(local), Some(state), Some(inode)) = (fields.get(1), fields.get(3), fields.get(9)) else {
                continue;
            };
            if *state == LISTEN && local.ends_with(&format!(":{port:04X}")) {
                inodes.push((*inode).to_owned());
            }
        }
    }
    Ok(inodes)
}

fn has_socket(pid: u32, inodes: &[String]) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let targets = descriptors.flatten().filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
    let wanted: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    targets.into_iter().any(|target| wanted.iter().any(|socket| target.as_os_str() == socket.as_str()))
}

/// A port on which no process listens while this value exists: it is the local port of an open
/// outgoing connection.
pub struct UnusedPort {
    pub number: u16,
    _connection: (TcpListener, TcpStream),
}

impl UnusedPort {
    pub fn reserve() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let near_end = TcpStream::connect(listener.local_addr()?)?;
        Ok(Self { number: near_end.local_addr()?.port(), _connection: (listener, near_end) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_port_is_outside_the_range_that_the_kernel_hands_out() {
        let port = free_port().unwrap();
        assert!(CANDIDATES.contains(&port));
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    }

    #[test]
    fn only_the_process_that_listens_is_listening() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(is_listening(std::process::id(), port));
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let is_other = is_listening(other.id(), port);
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(!is_other);
        drop(listener);
        assert!(!is_listening(std::process::id(), port));
    }

    #[test]
    fn nobody_listens_on_an_unused_port() {
        let unused = UnusedPort::reserve().unwrap();
        let refused = TcpStream::connect((Ipv4Addr::LOCALHOST, unused.number)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}
