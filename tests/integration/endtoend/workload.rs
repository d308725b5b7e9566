//! Programs that lock as Cordum's do, on a real Redis, and write Cordum's lines about what really went wrong.
//!
//! The workflow engine takes a lock for each run, renews it, and works on without it when it cannot be had. The gateway takes
//! a short admission lock without renewals. Four loops are led by one replica each. Nothing is made up: a line is written
//! when Redis refused an operation or could not be asked, and only then.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redis::{RedisError, RedisResult};
use redis_lock_exporter::fleet::{Locker, Random, Token};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::time::sleep;

use super::compression::Compression;
use crate::redis::sentinel::PRIMARY_NAME;

const N_ENGINES: u64 = 8;
const N_GATEWAYS: u64 = 4;
/// Loops of the preset: somebody always leads them. Key and TTL in seconds.
const LOOPS: [(&str, f64); 4] = [
    ("cordum:reconciler:default", 60.0),
    ("cordum:replayer:pending", 60.0),
    ("cordum:workflow-engine:reconciler:default", 10.0),
    ("cordum:wf:delay:poller", 10.0),
];

/// Where the programs look for Redis.
#[derive(Clone)]
pub(super) enum Place {
    Port(u16),
    /// `HOST:PORT` of Sentinels.
    Sentinels(Vec<String>),
}

/// What really happened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Truth {
    /// Releases that found the lock lost.
    pub(super) refused_admissions: u64,
    pub(super) refused_runs: u64,
    /// Operations that Redis did not answer.
    pub(super) unanswered: u64,
    first_failure: Option<Instant>,
    last_failure: Option<Instant>,
}

impl Truth {
    /// From the first failure to the last one.
    pub(super) fn burst(&self) -> Duration {
        self.first_failure.zip(self.last_failure).map_or(Duration::ZERO, |(first, last)| last - first)
    }
}

pub(super) struct Workload {
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

struct Shared {
    place: Place,
    compression: Compression,
    /// Handlers take longer than their lock's TTL.
    is_slow: AtomicBool,
    next: AtomicU64,
    log: Mutex<File>,
    truth: Mutex<Truth>,
}

impl Workload {
    pub(super) fn start(place: Place, compression: Compression, log: &Path) -> Self {
        let log = OpenOptions::new().create(true).append(true).open(log).unwrap();
        let shared = Arc::new(Shared {
            place,
            compression,
            is_slow: AtomicBool::new(false),
            next: AtomicU64::new(1),
            log: Mutex::new(log),
            truth: Mutex::default(),
        });
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let program = |number| Program { shared: Arc::clone(&shared), locker: None, random: Random::new(number) };
        for number in 0..N_ENGINES {
            let delay = compression.seconds(90.0 * number as f64 / N_ENGINES as f64);
            runtime.spawn(program(number).run_workflows(delay));
        }
        for number in 0..N_GATEWAYS {
            runtime.spawn(program(N_ENGINES + number).admit_runs());
        }
        for (key, ttl) in LOOPS {
            runtime.spawn(program(0).lead(key, shared.compression.seconds(ttl)));
        }
        Self { shared, runtime: Some(runtime) }
    }

    /// What a deployment with a slow handler does, and what its rollback ends.
    pub(super) fn slow_down(&self, is_slow: bool) {
        self.shared.is_slow.store(is_slow, Ordering::Relaxed);
    }

    pub(super) fn truth(&self) -> Truth {
        *self.shared.truth.lock().unwrap()
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

struct Program {
    shared: Arc<Shared>,
    /// Nothing after a failure, until it is needed again.
    locker: Option<Locker>,
    random: Random,
}

/// What a program locks for, and how its lines name it.
struct Task {
    key: String,
    component: &'static str,
    id_field: &'static str,
    id: String,
}

impl Program {
    /// The workflow engine: 30 s, renewed every 10 s; without the lock it works all the same. Runs take longer than an outage of
    /// 45 s and begin one after the other, so that at any time some have most of their work still before them.
    async fn run_workflows(mut self, delay: Duration) {
        let (ttl, renewal) = (self.seconds(30.0), self.seconds(10.0));
        sleep(delay).await;
        loop {
            let id = format!("run-{}", self.number());
            let key = format!("cordum:wf:run:lock:{id}");
            let task = Task { key, component: "workflow-engine", id_field: "run_id", id };
            let work = self.random.between(self.seconds(80.0), self.seconds(90.0));
            match self.acquire(&task.key, ttl).await {
                Ok(Some(token)) => {
                    let begun = Instant::now();
                    while begun.elapsed() + renewal < work {
                        sleep(renewal).await;
                        let renewed = self.renew(&task.key, &token, ttl).await;
                        if let Some(error) = self.failure(&task, "renew", renewed) {
                            self.write(&task, "WARN", "run lock renewal failed", &error);
                        }
                    }
                    sleep(work.saturating_sub(begun.elapsed())).await;
                    self.release(&task, &token, "distributed run lock release failed", |truth| truth.refused_runs += 1)
                        .await;
                }
                Ok(None) => {}
                Err(error) => {
                    let error = self.unanswered(&task, "try acquire", &error);
                    let message = "distributed lock failed — using local-only lock, cross-replica race possible";
                    self.write(&task, "ERROR", message, &error);
                    sleep(work).await;
                }
            }
            sleep(self.random.between(self.seconds(1.0), self.seconds(3.0))).await;
        }
    }

    /// The gateway's admission of runs: 10 s, not renewed; without the lock nothing is admitted.
    async fn admit_runs(mut self) {
        loop {
            let id = format!("org-{}", self.number());
            let key = format!("cordum:wf:run:admission:{id}");
            let task = Task { key, component: "gateway", id_field: "org_id", id };
            match self.acquire(&task.key, self.seconds(10.0)).await {
                Ok(Some(token)) => {
                    let (shortest, longest) = match self.shared.is_slow.load(Ordering::Relaxed) {
                        false => (1.0, 4.0),
                        true => (13.0, 16.0),
                    };
                    sleep(self.random.between(self.seconds(shortest), self.seconds(longest))).await;
                    let message = "release workflow admission lock failed";
                    self.release(&task, &token, message, |truth| truth.refused_admissions += 1).await;
                }
                Ok(None) => {}
                Err(error) => {
                    let error = self.unanswered(&task, "try acquire", &error);
                    self.write(&task, "ERROR", "workflow admission lock failed", &error);
                }
            }
            sleep(self.random.between(self.seconds(1.0), self.seconds(2.0))).await;
        }
    }

    /// Leads a loop as long as it can, and waits for its turn otherwise.
    async fn lead(mut self, key: &'static str, ttl: Duration) {
        loop {
            if let Ok(Some(token)) = self.acquire(key, ttl).await {
                sleep(ttl / 3).await;
                while !matches!(self.renew(key, &token, ttl).await, Ok(false)) {
                    sleep(ttl / 3).await;
                }
            }
            sleep(ttl / 6).await;
        }
    }

    async fn acquire(&mut self, key: &str, ttl: Duration) -> RedisResult<Option<Token>> {
        let acquired = self.locker().await?.acquire(key, ttl).await;
        self.keep(acquired)
    }

    async fn renew(&mut self, key: &str, token: &Token, ttl: Duration) -> RedisResult<bool> {
        let renewed = self.locker().await?.renew(key, token, ttl).await;
        self.keep(renewed)
    }

    /// Releases, and writes what the lock store and its user say when that fails.
    async fn release(&mut self, task: &Task, token: &Token, message: &str, count: fn(&mut Truth)) {
        let released = match self.locker().await {
            Ok(locker) => locker.release(&task.key, token).await,
            Err(error) => Err(error),
        };
        let released = self.keep(released);
        if matches!(released, Ok(false)) {
            self.shared.failed(count);
            let line = json!({"msg": "lock release skipped: token mismatch", "key": task.key});
            self.write_line(task.component, "WARN", line);
        }
        if let Some(error) = self.failure(task, "release", released) {
            self.write(task, "WARN", message, &error);
        }
    }

    /// A connection to whoever is the primary now.
    async fn locker(&mut self) -> RedisResult<&mut Locker> {
        let locker = match self.locker.take() {
            Some(locker) => locker,
            None => {
                let port = self.shared.place.port().await?;
                Locker::connect(&redis::Client::open(format!("redis://127.0.0.1:{port}/"))?).await?
            }
        };
        Ok(self.locker.insert(locker))
    }

    /// A connection that failed is not used again.
    fn keep<T>(&mut self, result: RedisResult<T>) -> RedisResult<T> {
        if result.is_err() {
            self.locker = None;
        }
        result
    }

    /// The error as Cordum's store words it, if there was one.
    fn failure(&self, task: &Task, operation: &str, result: RedisResult<bool>) -> Option<String> {
        match result {
            Ok(true) => None,
            Ok(false) => {
                self.shared.failed(|_| {});
                Some("lock not owned".to_owned())
            }
            Err(error) => Some(self.unanswered(task, operation, &error)),
        }
    }

    fn unanswered(&self, task: &Task, operation: &str, error: &RedisError) -> String {
        self.shared.failed(|truth| truth.unanswered += 1);
        let why = match error.code() {
            Some(code) => format!("{code} {}", error.detail().unwrap_or_default()),
            None => "dial tcp 127.0.0.1:6379: connect: connection refused".to_owned(),
        };
        format!("job store {operation} lock {}: {why}", task.key)
    }

    fn write(&self, task: &Task, level: &str, message: &str, error: &str) {
        self.write_line(task.component, level, json!({"msg": message, task.id_field: task.id, "error": error}));
    }

    /// As Go's `slog` writes it.
    fn write_line(&self, component: &str, level: &str, mut line: Value) {
        line["time"] = jiff::Timestamp::now().to_string().into();
        line["level"] = level.into();
        line["component"] = component.into();
        self.shared.log.lock().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn number(&self) -> u64 {
        self.shared.next.fetch_add(1, Ordering::Relaxed)
    }

    fn seconds(&self, seconds: f64) -> Duration {
        self.shared.compression.seconds(seconds)
    }
}

impl Shared {
    fn failed(&self, count: impl FnOnce(&mut Truth)) {
        let mut truth = self.truth.lock().unwrap();
        count(&mut truth);
        let now = Instant::now();
        truth.first_failure.get_or_insert(now);
        truth.last_failure = Some(now);
    }
}

impl Place {
    async fn port(&self) -> RedisResult<u16> {
        let addresses = match self {
            Self::Port(port) => return Ok(*port),
            Self::Sentinels(addresses) => addresses,
        };
        let client = redis::Client::open(format!("redis://{}/", addresses[0]))?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        let mut command = redis::cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(PRIMARY_NAME);
        let (_, port): (String, u16) = command.query_async(&mut connection).await?;
        Ok(port)
    }
}
