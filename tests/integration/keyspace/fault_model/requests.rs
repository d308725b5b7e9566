//! Requests of the workers to the server that is responsible for a key, on any kind of
//! installation.

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, RwLock, RwLockWriteGuard};
use std::thread;
use std::time::{Duration, Instant};

use redis::Value;
use redis_lock_exporter::rehearsal::fleet::RELEASE;

use super::starvation::StarvationWatch;
use crate::redis::client::{Client, text};

const RENEW: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0";
/// A moving slot redirects a client at most a few times.
const MOST_REDIRECTIONS: usize = 5;
const RETRY: Duration = Duration::from_millis(20);

/// Where workers send their requests.
#[derive(Clone)]
pub(super) struct Entrance {
    /// The port of the server that workers ask first. It changes with a failover. 0 at the end of
    /// the run: then no request waits any longer.
    port: Arc<AtomicU16>,
    /// Every request holds it for reading.
    gate: Arc<RwLock<()>>,
    starvation: StarvationWatch,
}

impl Entrance {
    pub(super) fn new(port: u16, starvation: &StarvationWatch) -> Self {
        Self { port: Arc::new(AtomicU16::new(port)), gate: Arc::default(), starvation: starvation.clone() }
    }

    pub(super) fn lead_to(&self, port: u16) {
        self.port.store(port, Ordering::Relaxed);
    }

    pub(super) fn close(&self) {
        self.lead_to(0);
    }

    /// Waits until no request is in progress. None begins until the result is dropped.
    pub(super) fn pause(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write().unwrap()
    }

    fn port(&self) -> Option<u16> {
        Some(self.port.load(Ordering::Relaxed)).filter(|port| *port != 0)
    }
}

/// What is known about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// Redis executed the request, and it changed nothing.
    Refused,
    /// No reply, so Redis may have executed the request or not.
    Unknown,
}

/// The connection of one worker. A failed connection is opened again with the next request.
pub(super) struct Requests {
    entrance: Entrance,
    /// The entrance at the time of the connection.
    entered: u16,
    client: Option<Client>,
}

impl Requests {
    pub(super) fn to(entrance: &Entrance) -> Self {
        Self { entrance: entrance.clone(), entered: 0, client: None }
    }

    pub(super) fn acquire(&mut self, key: &str, token: &str, ttl: Duration) -> Outcome {
        let ttl = ttl.as_millis().to_string();
        self.outcome(&["SET", key, token, "NX", "PX", &ttl])
    }

    pub(super) fn renew(&mut self, key: &str, token: &str, ttl: Duration) -> Outcome {
        let ttl = ttl.as_millis().to_string();
        self.outcome(&["EVAL", RENEW, "1", key, token, &ttl])
    }

    pub(super) fn release(&mut self, key: &str, token: &str) -> Outcome {
        self.outcome(&["EVAL", RELEASE, "1", key, token])
    }

    /// Overwrites a lock without a comparison, but only if it exists, so that the reply shows
    /// whether it took the lock from its holder.
    pub(super) fn steal(&mut self, key: &str, token: &str, ttl: Duration) -> Outcome {
        let ttl = ttl.as_millis().to_string();
        self.outcome(&["SET", key, token, "XX", "PX", &ttl])
    }

    /// Whether the lock is held with this token. Repeats the request until Redis answers. Returns
    /// `None` if the run is over.
    pub(super) fn holds(&mut self, key: &str, token: &str) -> Option<bool> {
        loop {
            if let Some(value) = self.ask(&["GET", key]) {
                return Some(text(&value) == token);
            }
            self.entrance.port()?;
            thread::sleep(RETRY);
        }
    }

    fn outcome(&mut self, parts: &[&str]) -> Outcome {
        match self.ask(parts) {
            Some(Value::Okay | Value::Int(1)) => Outcome::Done,
            Some(_) => Outcome::Refused,
            None => Outcome::Unknown,
        }
    }

    /// Returns `None` if the connection failed. Repeats a request that the server did not execute.
    fn ask(&mut self, parts: &[&str]) -> Option<Value> {
        let mut redirections = 0;
        loop {
            let value = self.send(parts)?;
            let Value::ServerError(error) = &value else { return Some(value) };
            let details = error.details().unwrap_or_default().to_owned();
            match error.code() {
                code @ ("MOVED" | "ASK") if redirections < MOST_REDIRECTIONS => {
                    redirections += 1;
                    let port = details.rsplit(':').next()?.parse().ok()?;
                    self.client = Some(Client::connect(port).ok()?);
                    if code == "ASK" {
                        self.send(&["ASKING"])?;
                    }
                }
                // The server loads its data, is a replica now, or has no memory; or the slot moves.
                "LOADING" | "READONLY" | "OOM" | "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN" | "MOVED" | "ASK" => {
                    redirections = 0;
                    self.client = None;
                    self.entrance.port()?;
                    thread::sleep(RETRY);
                }
                _ => panic!("{parts:?}: {error:?}"),
            }
        }
    }

    fn send(&mut self, parts: &[&str]) -> Option<Value> {
        let gate = Arc::clone(&self.entrance.gate);
        let _passed = gate.read().unwrap();
        let client = self.client()?;
        let sent = Instant::now();
        let answer = client.try_command(parts).ok();
        self.entrance.starvation.note_request(sent.elapsed());
        if answer.is_none() {
            self.client = None;
        }
        answer
    }

    /// Waits until a server accepts a connection. Leaves a server that is not the primary any more.
    fn client(&mut self) -> Option<&mut Client> {
        while self.client.is_none() || self.entrance.port()? != self.entered {
            self.entered = self.entrance.port()?;
            match Client::connect(self.entered) {
                Ok(client) => self.client = Some(client),
                Err(_) => {
                    self.client = None;
                    thread::sleep(RETRY);
                }
            }
        }
        self.client.as_mut()
    }
}
