//! The scenarios `stale-release`, `crash-takeover` and `blind-delete`: a worker outlives its TTL,
//! is killed while it holds a lock, or another worker deletes its lock.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::super::scenario_run::{IncidentClaim, ScenarioRun, seconds};
use super::super::worker::{DrillWorker, RedisRoute, RenewalResult};
use super::pause::Paused;
use super::{CAUSES, NOT_OWNED, judge_kept};
use crate::client::scrape::SeriesSelector;
use crate::rehearsal::fleet::End;

/// The exporter tolerates program clocks that are two seconds behind. With a release sooner than
/// this after a loss, the exporter could take the release for the cause.
const CLOCK_TOLERANCE: Duration = Duration::from_millis(2500);

pub(super) async fn stale_release(scenario_run: &ScenarioRun, round: u32) -> anyhow::Result<()> {
    let ttl = scenario_run.timing().ttl;
    let lock = scenario_run.lock_of(0, round);
    let mut first = DrillWorker::connect(scenario_run, "first", RedisRoute::Direct).await?;
    let mut second = DrillWorker::connect(scenario_run, "second", RedisRoute::Direct).await?;
    let hold = first.acquire(&lock).await?;
    first.note("works for longer than its TTL and does not renew");
    let next = second.wait_for(&lock).await?;
    hold.expired();
    scenario_run.judge_takeover(&hold);

    sleep_until(hold.acquired + ttl * 13 / 10).await;
    let found_out = Instant::now();
    let released = first.release(&hold).await?;
    let answer = if released { "it was accepted" } else { "it was refused" };
    scenario_run.expect("refused", !released, answer.to_owned());
    scenario_run.happened("the refused release", found_out, NOT_OWNED, 0);
    scenario_run.happened("its cause", found_out, CAUSES, 0);
    scenario_run.judge_overlap(&hold);
    judge_kept(scenario_run, &mut second, &next).await?;

    scenario_run.claim_refusals(0, 1, 0);
    scenario_run.claim_cause(0, "expired_never_renewed", 1);
    scenario_run.claim_takeover(0, true);
    scenario_run.claim_incident(IncidentClaim {
        lock_namespace: scenario_run.namespace(0),
        key: lock.key,
        operation: "release",
        cause: "expired_never_renewed",
        wants_next_owner: true,
        may_be_unknown: false,
    });
    Ok(())
}

pub(super) async fn crash_takeover(scenario_run: &ScenarioRun, round: u32) -> anyhow::Result<()> {
    let ttl = scenario_run.timing().ttl;
    let lock = scenario_run.lock_of(0, round);
    let mut crashing = Paused::start(scenario_run, &lock, round, None, RedisRoute::Direct).await?;
    let mut next_worker = DrillWorker::connect(scenario_run, "next", RedisRoute::Direct).await?;
    let crash = async {
        crashing.renewed(2).await?;
        crashing.kill().await
    };
    // The next worker tries during all of this time, not only when the lock can be free.
    let ((), next) = tokio::try_join!(crash, next_worker.wait_for(&lock))?;
    let hold = crashing.hold();
    hold.expired();
    scenario_run.judge_takeover(hold);
    scenario_run.judge_no_overlap(hold);
    scenario_run.happened("the expiry", hold.last_sign() + ttl, "redis_lock_expirations_total", 0);
    next_worker.work_until(&next, Instant::now() + scenario_run.timing().renew_every() * 3 / 2).await?;
    next_worker.release(&next).await?;

    let labels = [("lock_namespace", scenario_run.namespace(0))];
    scenario_run.claim_exactly("silence", "refused operations", SeriesSelector::new(NOT_OWNED, &labels), 0);
    scenario_run.claim_takeover(0, true);
    // The exporter measures the takeover from pushes, which arrive a little later than the replies
    // to the worker.
    let takeover = hold.takeover().unwrap_or_default().as_secs_f64();
    let measured = SeriesSelector::new("redis_lock_takeover_seconds_sum", &labels);
    scenario_run.claim_clear("takeover-seen", "seconds of takeovers", measured, takeover - 0.5, takeover + 0.5);
    Ok(())
}

pub(super) async fn blind_delete(scenario_run: &ScenarioRun, round: u32) -> anyhow::Result<()> {
    let lock = scenario_run.lock_of(0, round);
    let mut holder = DrillWorker::connect(scenario_run, "holding", RedisRoute::Direct).await?;
    let mut careless = DrillWorker::connect(scenario_run, "careless", RedisRoute::Direct).await?;
    let mut next_worker = DrillWorker::connect(scenario_run, "next", RedisRoute::Direct).await?;
    let hold = holder.acquire(&lock).await?;
    holder.work_until(&hold, hold.acquired + scenario_run.timing().renew_every() * 3 / 2).await?;

    // The careless worker never acquired the lock and deletes it anyway.
    let busy = careless.try_acquire(&lock).await?.is_none();
    let deleted_at = Instant::now();
    let deleted = careless.delete_blindly(&lock).await?;
    hold.ended(End::Deleted);
    scenario_run.happened("the deletion", deleted_at, "redis_lock_releases_total", 0);
    let measured = match (busy, deleted) {
        (true, true) => "DEL answered 1 to a worker that never had the lock",
        (true, false) => "DEL answered 0",
        (false, _) => "the lock was free",
    };
    scenario_run.expect("deleted", busy && deleted, measured.to_owned());
    // The exporter sees two changes of one lock separately only if there is some time between them,
    // and on a busy machine it needs more.
    sleep(scenario_run.timing().renew_every() / 2).await;
    let next = next_worker.wait_for(&lock).await?;
    sleep(scenario_run.timing().renew_every() / 2).await;

    let found_out = Instant::now();
    let renewal = holder.renew(&hold).await?;
    let released = holder.release(&hold).await?;
    let refused = renewal == RenewalResult::Refused && !released;
    let answer = format!(
        "renewal and release refused: {}, found out {} after the deletion",
        if refused { "yes" } else { "no" },
        seconds(found_out - deleted_at)
    );
    scenario_run.expect("refused", refused, answer);
    scenario_run.happened("the refused operations", found_out, NOT_OWNED, 0);
    scenario_run.happened("their cause", found_out, CAUSES, 0);
    scenario_run.judge_overlap(&hold);
    next_worker.work_until(&next, Instant::now() + CLOCK_TOLERANCE).await?;
    next_worker.release(&next).await?;

    scenario_run.claim_refusals(0, 1, 1);
    scenario_run.claim_cause(0, "deleted_early", 2);
    scenario_run.claim_incident(IncidentClaim {
        lock_namespace: scenario_run.namespace(0),
        key: lock.key,
        operation: "release",
        cause: "deleted_early",
        wants_next_owner: true,
        may_be_unknown: false,
    });
    Ok(())
}
