//! The scenario `redis-failover`: a primary fails before it has replicated a lock.
//!
//! The scenario uses its own two servers and a proxy that leads to the current primary, like a
//! floating address, a load balancer or a DNS name. It never fails over the Redis that the drill
//! was given.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::super::report::ScenarioFailure;
use super::super::scenario_run::{IncidentClaim, ScenarioRun};
use super::super::worker::{DrillWorker, RedisRoute};
use super::{CAUSES, NOT_OWNED};
use crate::client::scrape::SeriesSelector;
use crate::rehearsal::fleet::{End, Proxy, Server};

/// How long the holder of the lost lock works until it notices the loss.
const STILL_WORKING: Duration = Duration::from_millis(500);
/// How soon an exporter shows a lock.
const SEEN_WITHIN: Duration = Duration::from_secs(5);

pub(in super::super) struct Servers {
    proxy: Proxy,
    primary: Server,
    replica: Server,
}

impl Servers {
    pub(in super::super) async fn start() -> anyhow::Result<Self> {
        let primary = Server::start().await?;
        let replica = Server::start_replica(&primary).await?;
        let proxy = Proxy::start(&primary.address()).await?;
        Ok(Self { proxy, primary, replica })
    }

    /// The address of the proxy, which leads to the current primary.
    pub(in super::super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.proxy.port())
    }

    /// Starts a new replica, because the next failover needs one.
    async fn renew_replica(&mut self) -> anyhow::Result<()> {
        let replica = Server::start_replica(&self.replica).await?;
        self.primary = std::mem::replace(&mut self.replica, replica);
        Ok(())
    }
}

pub(super) async fn redis_failover(
    scenario_run: &ScenarioRun,
    round: u32,
    servers: &mut Servers,
) -> anyhow::Result<()> {
    if round > 1 {
        servers.renew_replica().await?;
    }
    let suffix = scenario_run.namespace(0);
    let key = |name: &str| scenario_run.context.key_scope.key(&format!("r{round}-{name}:{suffix}"));
    let (survives, vanishes) = (scenario_run.lock_at(0, key("replicated")), scenario_run.lock_at(0, key("lost")));
    let mut first = DrillWorker::connect(scenario_run, "first", RedisRoute::Direct).await?;
    let mut careful = DrillWorker::connect(scenario_run, "careful", RedisRoute::Direct).await?;
    let kept = careful.acquire(&survives).await?;
    let replicas: i64 = servers.primary.ask(redis::cmd("WAIT").arg(1).arg(5000)).await?;
    anyhow::ensure!(replicas >= 1, "the replica does not follow its primary");

    // Simulate a partition: the replica was promoted, and clients still write to the old primary.
    let () = servers.replica.ask(redis::cmd("REPLICAOF").arg("NO").arg("ONE")).await?;
    let hold = first.acquire(&vanishes).await?;
    wait_until_seen(scenario_run, 2 * u64::from(round) + u64::from(round - 1)).await;
    servers.primary.kill().await?;
    scenario_run.note("primary", "died; its replica had been promoted before it got the second lock");
    servers.proxy.redirect(&servers.replica.address());
    hold.ended(End::Stolen);

    let mut first = DrillWorker::connect(scenario_run, "first", RedisRoute::Direct).await?;
    let mut careful = DrillWorker::connect(scenario_run, "careful", RedisRoute::Direct).await?;
    let mut second = DrillWorker::connect(scenario_run, "second", RedisRoute::Direct).await?;
    let next = second.try_acquire(&vanishes).await?;
    let measured = match next {
        Some(_) => "the new primary gave it to another worker",
        None => "the new primary has it",
    };
    scenario_run.expect("lost", next.is_some(), measured.to_owned());
    let Some(next) = next else {
        return Err(ScenarioFailure("the lock was replicated although its primary was cut off".to_owned()).into());
    };
    sleep(STILL_WORKING).await;

    let found_out = Instant::now();
    let released = first.release(&hold).await?;
    let answer = if released { "it was accepted" } else { "it was refused" };
    scenario_run.expect("refused", !released, answer.to_owned());
    scenario_run.judge_overlap(&hold);
    let held = careful.holds(&kept).await?;
    let released = careful.release(&kept).await?;
    let yes = |fact| if fact { "yes" } else { "no" };
    let measured = format!("still its owner: {}, could release: {}", yes(held), yes(released));
    scenario_run.expect("survived", held && released, measured);
    second.release(&next).await?;

    scenario_run.happened("the refused release", found_out, NOT_OWNED, 0);
    scenario_run.happened("its cause", found_out, CAUSES, 0);
    let failovers = SeriesSelector::new("redis_lock_exporter_redis_failovers_total", &[]);
    scenario_run.claim("failover-seen", "failovers", failovers, 1.0, 2.0);
    scenario_run.claim_refusals(0, 1, 0);
    scenario_run.claim_cause(0, "lost_in_failover", 1);
    scenario_run.claim_incident(IncidentClaim {
        lock_namespace: scenario_run.namespace(0),
        key: vanishes.key,
        operation: "release",
        cause: "lost_in_failover",
        wants_next_owner: false,
        may_be_unknown: false,
    });
    Ok(())
}

/// Waits until the exporter has seen the locks, because it cannot know that a lock was lost if it
/// never saw the lock. Gives up after 5 seconds. In that case the expectation fails later.
async fn wait_until_seen(scenario_run: &ScenarioRun, acquisitions: u64) {
    let selector =
        SeriesSelector::new("redis_lock_acquisitions_total", &[("lock_namespace", scenario_run.namespace(0))]);
    let deadline = Instant::now() + SEEN_WITHIN;
    while scenario_run.context.probe.now().sum(&selector) < acquisitions as f64 && Instant::now() < deadline {
        sleep(Duration::from_millis(20)).await;
    }
}
