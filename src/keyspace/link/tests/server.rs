//! A `redis-server` for one test, and a client that may write.

use std::time::Duration;

use redis::Value;

use crate::config::redis::{Address, Credentials};
use crate::keyspace::connect::{RedisTarget, connect};
use crate::keyspace::servers::RedisServer;
use crate::keyspace::wire::Wire;

pub(super) struct Server(RedisServer);

impl Server {
    pub(super) fn start(options: &[&str]) -> Self {
        let mut arguments = vec!["--enable-debug-command", "yes"];
        arguments.extend(options);
        Self(RedisServer::start(&arguments))
    }

    pub(super) fn kill(&mut self) {
        self.0.kill();
    }

    /// Starts another process at the same address after [`Server::kill`], without the data.
    pub(super) fn restart(&mut self) {
        self.0.restart();
    }

    pub(super) async fn client(&self) -> Client {
        Client::connect(&self.address()).await
    }

    pub(super) fn address(&self) -> Address {
        address(self.0.port())
    }

    pub(super) fn port(&self) -> u16 {
        self.0.port()
    }

    pub(super) fn pause(&self) {
        self.0.pause();
    }

    pub(super) fn resume(&self) {
        self.0.resume();
    }
}

pub(super) fn address(port: u16) -> Address {
    Address::Tcp { host: "127.0.0.1".to_owned(), port }
}

pub(super) struct Client(Wire);

impl Client {
    pub(super) async fn connect(address: &Address) -> Self {
        let credentials = Credentials::default();
        let timeout = Duration::from_secs(30);
        let target = RedisTarget {
            address,
            credentials: &credentials,
            database: 0,
            tls: None,
            connect_timeout: timeout,
            response_timeout: timeout,
        };
        Self(connect(&target).await.unwrap())
    }

    /// Runs a command, given as words separated by spaces. Panics on an error of the server.
    pub(super) async fn run(&mut self, command: &str) -> Value {
        let parts: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        self.run_parts(&parts).await
    }

    pub(super) async fn run_parts(&mut self, parts: &[&[u8]]) -> Value {
        match self.0.ask(parts).await.unwrap() {
            Value::ServerError(error) => panic!("{}: {error:?}", String::from_utf8_lossy(&parts.join(&b' '))),
            value => value,
        }
    }

    /// Sends many commands at once.
    pub(super) async fn run_all(&mut self, commands: impl Iterator<Item = String>) {
        let mut sent = 0;
        for command in commands {
            let parts: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
            self.0.push_command(&parts);
            sent += 1;
        }
        for _ in 0..sent {
            let reply = self.0.next().await.unwrap();
            assert!(!matches!(reply, Value::ServerError(_)), "{reply:?}");
        }
    }
}
