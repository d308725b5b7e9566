//! The scenarios `renewal-failure` and `combined`: renewals get no reply, and workers fence
//! themselves or carry on.

use tokio::time::Instant;

use super::super::scenario_run::{ScenarioRun, seconds};
use super::super::settings::RENEWAL_BUDGET;
use super::super::worker::{DrillWorker, RedisRoute, RenewalPolicy, RenewalResult};
use super::{CAUSES, NOT_OWNED, judge_kept};
use crate::client::scrape::SeriesSelector;
use crate::rehearsal::fleet::{LockSpec, Proxy, WorkerHold};

const FENCE: usize = 0;
const CONTINUE: usize = 1;
const FAILURES: &str = "redis_lock_renewal_failures_total";

/// Runs both policies at the same time, each with its own lock and its own proxy.
pub(super) async fn renewal_failure(scenario_run: &ScenarioRun, round: u32) -> anyhow::Result<()> {
    let (fence, carry_on) = (scenario_run.lock_of(FENCE, round), scenario_run.lock_of(CONTINUE, round));
    tokio::try_join!(fencing(scenario_run, &fence), carrying_on(scenario_run, &carry_on))?;
    Ok(())
}

async fn fencing(scenario_run: &ScenarioRun, lock: &LockSpec) -> anyhow::Result<()> {
    let ttl = scenario_run.timing().ttl;
    let proxy = Proxy::start(&scenario_run.context.address).await?;
    let mut worker = DrillWorker::connect(scenario_run, "fencing", RedisRoute::Proxy(proxy.port())).await?;
    let mut next_worker = DrillWorker::connect(scenario_run, "next fencing", RedisRoute::Direct).await?;
    let hold = start_and_block(scenario_run, &mut worker, lock, &proxy).await?;
    let last_sign = hold.last_sign();
    let blocked = Instant::now();
    let fence = async {
        // If the worker does not stop itself, it continues beyond its TTL.
        let failures = worker.fail_until(&hold, last_sign + ttl * 7 / 5, RenewalPolicy::Fence(RENEWAL_BUDGET)).await?;
        anyhow::Ok((failures, last_sign.elapsed()))
    };
    // The next worker tries during all of this time, not only after the first one has stopped.
    let ((failures, fenced_after), next) = tokio::try_join!(fence, next_worker.wait_for(lock))?;
    let measured = format!(
        "{failures} renewals failed, stopped itself {} after its last renewal, the TTL is {}",
        seconds(fenced_after),
        seconds(ttl)
    );
    scenario_run.measure("fenced_after", fenced_after);
    scenario_run.expect("fenced", failures == RENEWAL_BUDGET && fenced_after < ttl, measured);

    hold.expired();
    scenario_run.judge_takeover(&hold);
    scenario_run.judge_no_overlap(&hold);
    // On a busy machine the exporter could see a hold of milliseconds right after an expiration as
    // one change together with the expiration. So the next worker holds the lock longer.
    next_worker.work_until(&next, Instant::now() + scenario_run.timing().renew_every() * 3 / 2).await?;
    next_worker.release(&next).await?;
    drop(proxy);

    scenario_run.happened("the failed renewals", blocked + scenario_run.timing().answer(), FAILURES, FENCE);
    claim_failures(scenario_run, FENCE, "redis_unavailable", failures);
    let abandonments = |namespace: usize| {
        SeriesSelector::new("redis_lock_abandonments_total", &[("lock_namespace", scenario_run.namespace(namespace))])
    };
    scenario_run.claim_exactly("abandoned", "of the fenced one", abandonments(FENCE), 1);
    scenario_run.claim_exactly("abandoned", "of the other one", abandonments(CONTINUE), 0);
    scenario_run.claim_refusals(FENCE, 0, 0);
    Ok(())
}

async fn carrying_on(scenario_run: &ScenarioRun, lock: &LockSpec) -> anyhow::Result<()> {
    let ttl = scenario_run.timing().ttl;
    let proxy = Proxy::start(&scenario_run.context.address).await?;
    let mut worker = DrillWorker::connect(scenario_run, "continuing", RedisRoute::Proxy(proxy.port())).await?;
    let mut next_worker = DrillWorker::connect(scenario_run, "next continuing", RedisRoute::Direct).await?;
    let hold = start_and_block(scenario_run, &mut worker, lock, &proxy).await?;
    let late = hold.last_sign() + ttl * 7 / 5;
    let (failures, next) =
        tokio::try_join!(worker.fail_until(&hold, late, RenewalPolicy::Continue), next_worker.wait_for(lock))?;
    hold.expired();
    proxy.unblock();
    let mut worker = DrillWorker::connect(scenario_run, "continuing", RedisRoute::Proxy(proxy.port())).await?;
    let found_out = Instant::now();
    worker.release(&hold).await?;
    scenario_run.judge_takeover(&hold);
    scenario_run.judge_overlap(&hold);
    next_worker.release(&next).await?;

    scenario_run.happened("the refused release", found_out, NOT_OWNED, CONTINUE);
    scenario_run.happened("its cause", found_out, CAUSES, CONTINUE);
    claim_failures(scenario_run, CONTINUE, "redis_unavailable", failures);
    scenario_run.claim_refusals(CONTINUE, 1, 0);
    scenario_run.claim_cause(CONTINUE, "renewals_stopped", 1);
    Ok(())
}

pub(super) async fn combined(scenario_run: &ScenarioRun, round: u32) -> anyhow::Result<()> {
    let ttl = scenario_run.timing().ttl;
    let lock = scenario_run.lock_of(0, round);
    let proxy = Proxy::start(&scenario_run.context.address).await?;
    let mut first = DrillWorker::connect(scenario_run, "first", RedisRoute::Proxy(proxy.port())).await?;
    let mut second = DrillWorker::connect(scenario_run, "second", RedisRoute::Direct).await?;
    let hold = start_and_block(scenario_run, &mut first, &lock, &proxy).await?;
    let blocked = Instant::now();
    let late = hold.last_sign() + ttl * 7 / 5;
    let (failures, next) =
        tokio::try_join!(first.fail_until(&hold, late, RenewalPolicy::Continue), second.wait_for(&lock))?;
    hold.expired();
    scenario_run.judge_takeover(&hold);
    scenario_run.happened("the failed renewals", blocked + scenario_run.timing().answer(), FAILURES, 0);

    proxy.unblock();
    scenario_run.note("network", "is back");
    let mut first = DrillWorker::connect(scenario_run, "first", RedisRoute::Proxy(proxy.port())).await?;
    let found_out = Instant::now();
    let renewal = first.renew(&hold).await?;
    scenario_run.expect("renewal-refused", renewal == RenewalResult::Refused, format!("{renewal:?}"));
    let released = first.release(&hold).await?;
    let answer = if released { "it was accepted" } else { "it was refused" };
    scenario_run.expect("release-refused", !released, answer.to_owned());
    scenario_run.happened("the refused operations", found_out, NOT_OWNED, 0);
    scenario_run.happened("their cause", found_out, CAUSES, 0);
    scenario_run.judge_overlap(&hold);
    judge_kept(scenario_run, &mut second, &next).await?;

    let selector = SeriesSelector::new(FAILURES, &[("lock_namespace", scenario_run.namespace(0))]);
    scenario_run.claim("failures", "failed renewals", selector, 1.0, f64::from(failures + 1));
    scenario_run.claim_refusals(0, 1, 1);
    scenario_run.claim_cause(0, "renewals_stopped", 2);
    Ok(())
}

/// Takes the lock and renews it twice. Then the proxy blocks all traffic.
async fn start_and_block(
    scenario_run: &ScenarioRun,
    worker: &mut DrillWorker<'_>,
    lock: &LockSpec,
    proxy: &Proxy,
) -> anyhow::Result<WorkerHold> {
    let hold = worker.acquire(lock).await?;
    worker.work_until(&hold, hold.acquired + scenario_run.timing().renew_every() * 9 / 4).await?;
    proxy.block();
    worker.wait_at_most(scenario_run.timing().answer());
    scenario_run.note("network", &format!("no longer forwards anything ({})", lock.key));
    Ok(hold)
}

fn claim_failures(scenario_run: &ScenarioRun, namespace: usize, reason: &str, failures: u32) {
    let lock_namespace = scenario_run.namespace(namespace);
    let selector = SeriesSelector::new(FAILURES, &[("lock_namespace", lock_namespace), ("reason", reason)]);
    scenario_run.claim("failures", &format!("{lock_namespace} {reason}"), selector, 1.0, f64::from(failures));
}
