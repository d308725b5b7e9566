//! Tests the worker that all simulations use, on a real Redis: what it records and when it stops.

use std::sync::Arc;
use std::time::Duration;

use redis::Client;
use redis_lock_exporter::rehearsal::fleet::{
    Kept, LockProgram, LockReply, LockSpec, Locker, OperationLog, PauseGate, RenewalAction, Truth, UnknownResult,
    Worker, WorkerHold,
};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::redis::RedisServer;

const PATIENCE: Duration = Duration::from_secs(30);
const TTL: Duration = Duration::from_secs(60);
const OFTEN: Duration = Duration::from_millis(10);

struct Stage {
    server: RedisServer,
    client: Client,
    record: Arc<OperationLog>,
    lock: LockSpec,
}

impl Stage {
    fn new() -> Self {
        let server = RedisServer::start(&[]);
        let client = Client::open(format!("redis://127.0.0.1:{}/", server.port())).unwrap();
        let record: Arc<OperationLog> = Arc::default();
        let lock = LockSpec { key: "jobs:lock:1".to_owned(), ttl: TTL, record: Arc::clone(&record) };
        Self { server, client, record, lock }
    }

    fn worker(&self) -> Worker {
        Worker::new(&self.client, PATIENCE)
    }

    /// Waits until the record meets the condition.
    async fn until(&self, what: &str, is_so: impl Fn(&Truth) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(&self.record.truth()) {
            assert!(Instant::now() < deadline, "timed out waiting for: {what}: {:?}", self.record.truth());
            sleep(OFTEN).await;
        }
    }
}

/// Renews often, and gives up after this many failures in a row.
struct GivesUpAfter {
    budget: u32,
    failures: u32,
}

impl LockProgram for GivesUpAfter {
    fn renew_after(&mut self) -> Option<Duration> {
        Some(OFTEN)
    }

    fn on_reply(&mut self, _: &WorkerHold, _: &LockReply, failures: u32) -> anyhow::Result<RenewalAction> {
        self.failures = failures;
        Ok(if failures < self.budget { RenewalAction::GoOn } else { RenewalAction::GiveUp })
    }
}

#[tokio::test]
async fn a_worker_that_lost_its_lock_is_refused_gives_up_and_is_recorded() {
    let stage = Stage::new();
    let mut worker = stage.worker();
    let hold = worker.take(&stage.lock).await.unwrap().unwrap();
    assert!(worker.take(&stage.lock).await.unwrap().is_none(), "another worker holds the lock");
    Locker::connect(&stage.client).await.unwrap().steal(&stage.lock.key, TTL).await.unwrap();

    let mut program = GivesUpAfter { budget: 3, failures: 0 };
    let kept = worker.keep(&hold, None, &CancellationToken::new(), &mut program).await.unwrap();
    assert_eq!((kept, program.failures), (Kept::GivenUp, 3));
    let truth = stage.record.truth();
    assert_eq!((truth.acquisitions, truth.renewals, truth.refused, truth.held), (1, 0, 3, 1));
    // The record shows no other end, so the TTL must have expired.
    assert!(matches!(worker.release(&hold).await, LockReply::Refused));
    let truth = stage.record.truth();
    assert_eq!((truth.refused, truth.releases, truth.expirations, truth.held), (4, 0, 1, 0));
}

#[tokio::test]
async fn a_worker_keeps_its_lock_until_it_is_stopped() {
    let stage = Stage::new();
    let mut worker = stage.worker();
    let hold = worker.take(&stage.lock).await.unwrap().unwrap();
    let end = CancellationToken::new();
    let keeping = async {
        let mut program = GivesUpAfter { budget: 1, failures: 0 };
        worker.keep(&hold, None, &end, &mut program).await.unwrap()
    };
    let ending = async {
        stage.until("three renewals", |truth| truth.renewals >= 3).await;
        end.cancel();
    };
    let (kept, ()) = tokio::join!(keeping, ending);
    assert_eq!(kept, Kept::Done);
    assert!(matches!(worker.release(&hold).await, LockReply::Done));
    let truth = stage.record.truth();
    assert_eq!((truth.refused, truth.releases, truth.held), (0, 1, 0));
}

#[tokio::test]
async fn a_paused_worker_records_the_operation_that_redis_completed() {
    let stage = Stage::new();
    let gate = PauseGate::default();
    gate.close(true);
    let (mut worker, lock) = (stage.worker().behind(&gate), stage.lock.clone());
    let taking = tokio::spawn(async move { worker.take(&lock).await.unwrap().is_some() });
    stage.until("the worker has the lock", |truth| truth.held == 1).await;
    assert!(!taking.is_finished(), "the worker's process is paused");
    gate.close(false);
    assert!(taking.await.unwrap());
}

#[tokio::test]
async fn without_a_reply_the_result_is_unknown_and_the_next_command_is_still_sent() {
    let mut stage = Stage::new();
    let mut worker = stage.worker();
    let hold = worker.take(&stage.lock).await.unwrap().unwrap();
    stage.server.pause();
    worker.wait_at_most(OFTEN);
    assert!(matches!(worker.renew(&hold).await, LockReply::Unanswered(UnknownResult::Late)));
    stage.server.resume();
    worker.wait_at_most(PATIENCE);
    assert!(matches!(worker.renew(&hold).await, LockReply::Done), "the worker must renew over the same connection");

    stage.server.kill();
    assert!(matches!(worker.renew(&hold).await, LockReply::Unanswered(UnknownResult::Failed(_))));
    stage.server.restart();
    assert!(
        matches!(worker.renew(&hold).await, LockReply::Refused),
        "the worker must reconnect, and the new Redis must be empty"
    );
    let truth = stage.record.truth();
    assert_eq!((truth.renewals, truth.refused), (1, 1));
}
