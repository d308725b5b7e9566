//! Starts real Redis servers for tests. Each one listens on a free loopback port, uses its own
//! directory, has no persistence unless a test asks for it, and is killed when it is dropped.
//!
//! Tests wait for a condition with a deadline and never just sleep. The unit tests of `keyspace`
//! include these files too.

#![allow(dead_code, unreachable_pub, reason = "no test binary uses all of it, and in one it is a private module")]

pub mod certificates;
pub mod client;
pub mod cluster;
pub mod proxy;
pub mod sentinel;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use redis::Value;
use redis_lock_exporter::util::ports;
use tempfile::TempDir;

use client::Client;

/// Generous, because a test must not fail just because the machine is busy.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// Placeholder for an additional free port in a server's arguments.
pub const FREE_PORT: &str = "(free port)";

/// Waits until `ready` returns a value.
pub fn eventually<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(start.elapsed() < DEADLINE, "timed out waiting for {what}");
        sleep(Duration::from_millis(10));
    }
}

/// Starts a server that cannot choose its own port. `start` returns `None` if the server exited,
/// most likely because another process took the port first. In that case this function tries
/// another port.
pub fn on_free_port<T>(what: &str, mut start: impl FnMut(u16) -> Option<T>) -> T {
    let started = (0..ports::ATTEMPTS).find_map(|_| start(ports::free_port().unwrap()));
    started.unwrap_or_else(|| panic!("{what} does not start"))
}

/// Waits until the child listens on the port. Returns false if the child exited.
pub fn listens(child: &mut Child, port: u16) -> bool {
    eventually("the server to listen", || match child.try_wait().unwrap() {
        Some(_) => Some(false),
        None => ports::is_listening(child.id(), port).then_some(true),
    })
}

pub struct RedisServer {
    child: Child,
    program: String,
    port: u16,
    password: Option<String>,
    arguments: Vec<String>,
    directory: TempDir,
}

impl RedisServer {
    /// Starts a server. `extra` holds redis-server arguments such as `["--requirepass", "secret"]`,
    /// which override the defaults. The environment variable `REDIS_SERVER` can name another
    /// program that takes the same arguments.
    pub fn start(extra: &[&str]) -> Self {
        let program = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        on_free_port(&format!("{program} with {extra:?}"), |port| {
            let other = ports::free_port().unwrap().to_string();
            let extra: Vec<&str> = extra.iter().map(|word| if *word == FREE_PORT { &other } else { *word }).collect();
            Self::try_start(&program, port, &extra)
        })
    }

    /// Starts a server with TLS on [`RedisServer::tls_port`] in addition to the plain port.
    pub fn start_tls(certificates: &certificates::Certificates, extra: &[&str]) -> Self {
        let path = |name| certificates.path(name).to_str().unwrap().to_owned();
        let (ca, certificate, key) = (path("ca.pem"), path("server.pem"), path("server.key"));
        let mut arguments = vec!["--tls-port", FREE_PORT, "--tls-ca-cert-file", &ca];
        arguments.extend(["--tls-cert-file", &certificate, "--tls-key-file", &key]);
        arguments.extend(extra);
        Self::start(&arguments)
    }

    fn try_start(program: &str, port: u16, extra: &[&str]) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let port_text = port.to_string();
        let path = directory.path().to_str().unwrap();
        let socket = format!("{path}/redis.sock");
        let mut arguments = vec!["--port", &port_text, "--bind", "127.0.0.1", "--dir", path, "--logfile", "redis.log"];
        arguments.extend([
            "--save",
            "",
            "--appendonly",
            "no",
            "--unixsocket",
            &socket,
            "--repl-diskless-sync-delay",
            "0",
        ]);
        arguments.extend(extra);
        let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
        let password = value_of(&arguments, "--requirepass");
        let child = spawn(program, &arguments);
        let mut server = Self { child, program: program.to_owned(), port, password, arguments, directory };
        server.wait_until_ready().then_some(server)
    }

    /// Returns false if the server exited, most likely because its port was in use.
    fn wait_until_ready(&mut self) -> bool {
        if !listens(&mut self.child, self.port) {
            return false;
        }
        eventually("redis-server to answer", || {
            // Any reply shows that the server is up, even one that asks for a password.
            let answer = Client::connect(self.port).and_then(|mut client| client.try_command(&["PING"])).ok()?;
            let is_loading = matches!(&answer, Value::ServerError(error) if error.code() == "LOADING");
            (!is_loading).then_some(true)
        })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn tls_port(&self) -> u16 {
        value_of(&self.arguments, "--tls-port").unwrap().parse().unwrap()
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("redis.sock")
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Opens a new connection, logged in as `default`.
    pub fn client(&self) -> Client {
        let mut client = Client::connect(self.port).unwrap();
        if let Some(password) = &self.password {
            client.command(&["AUTH", password]);
        }
        client
    }

    /// Runs one command over a new connection. Panics if the server returns an error.
    pub fn command(&self, parts: &[&str]) -> Value {
        self.client().command(parts)
    }

    /// Returns the reply to [`RedisServer::command`] as text.
    pub fn text(&self, parts: &[&str]) -> String {
        client::text(&self.command(parts))
    }

    /// Whether the server has this command.
    pub fn knows(&self, command: &str) -> bool {
        self.command(&["COMMAND", "INFO", command]) != Value::Array(vec![Value::Nil])
    }

    /// Returns the value of a field of `INFO`.
    pub fn info(&self, field: &str) -> Option<String> {
        let info = self.text(&["INFO"]);
        info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':').map(str::to_owned))
    }

    /// Returns the number of connections from the exporter in `CLIENT LIST`.
    pub fn exporter_connections(&self) -> usize {
        let list = self.text(&["CLIENT", "LIST"]);
        list.lines().filter(|line| line.contains("name=redis_lock_exporter")).count()
    }

    /// Stops the process: connections stay open, but the server does not answer.
    pub fn pause(&self) {
        self.signal("-STOP");
    }

    pub fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Kills the server, as a crash would.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts the server again after [`RedisServer::kill`], on the same port and in the same
    /// directory.
    pub fn restart(&mut self) {
        // The port may stay in use for a moment after a connection ends.
        eventually("the server to restart on the same port", || {
            self.child = spawn(&self.program, &self.arguments);
            self.wait_until_ready().then_some(())
        });
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(program: &str, arguments: &[String]) -> Child {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap_or_else(|error| panic!("{program}: {error}; scripts/install.sh installs it"))
}

fn value_of(arguments: &[String], name: &str) -> Option<String> {
    let at = arguments.iter().rposition(|argument| argument == name)?;
    arguments.get(at + 1).cloned()
}
