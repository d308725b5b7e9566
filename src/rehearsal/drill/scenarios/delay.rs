//! The scenario `delay`: the network takes longer than the TTL, so a renewal that was sent in time
//! arrives too late.

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::super::scenario_run::{ScenarioRun, seconds};
use super::super::worker::{DrillWorker, RedisRoute, RenewalResult};
use super::{CAUSES, NOT_OWNED, judge_kept};
use crate::rehearsal::fleet::Proxy;

pub(super) async fn delay(scenario_run: &ScenarioRun, round: u32) -> anyhow::Result<()> {
    let ttl = scenario_run.timing().ttl;
    let lock = scenario_run.lock_of(0, round);
    let proxy = Proxy::start(&scenario_run.context.address).await?;
    let mut slow = DrillWorker::connect(scenario_run, "slow", RedisRoute::Proxy(proxy.port())).await?;
    let mut other = DrillWorker::connect(scenario_run, "other", RedisRoute::Direct).await?;
    let hold = slow.acquire(&lock).await?;
    proxy.delay(scenario_run.timing().delay());
    scenario_run.note("network", &format!("delays by {} each way", seconds(scenario_run.timing().delay())));

    // The slow worker sends its renewal in time, and it arrives too late. The other worker acquires
    // the lock in between and keeps it.
    let sent = hold.acquired + ttl / 2;
    let through = CancellationToken::new();
    let late = async {
        sleep_until(sent).await;
        slow.note("sends its renewal");
        let renewal = slow.renew(&hold).await?;
        let answered = Instant::now();
        let released = slow.release(&hold).await?;
        through.cancel();
        anyhow::Ok((renewal, answered, released))
    };
    let taking_over = async {
        let next = other.wait_for(&lock).await?;
        hold.expired();
        other.keep_until(&next, &through).await?;
        anyhow::Ok(next)
    };
    let ((renewal, answered, released), next) = tokio::try_join!(late, taking_over)?;
    let took = answered - sent;
    scenario_run.measure("answered", took);
    let measured = format!("the renewal was answered after {}, the TTL is {}", seconds(took), seconds(ttl));
    scenario_run.expect("delayed", took > ttl, measured);
    let measured = format!("renewal {renewal:?}, release {}", if released { "accepted" } else { "refused" });
    scenario_run.expect("refused", renewal == RenewalResult::Refused && !released, measured);
    scenario_run.happened("the refused operations", answered, NOT_OWNED, 0);
    scenario_run.happened("their cause", answered, CAUSES, 0);
    scenario_run.judge_takeover(&hold);
    scenario_run.judge_overlap(&hold);
    judge_kept(scenario_run, &mut other, &next).await?;

    scenario_run.claim_refusals(0, 1, 1);
    scenario_run.claim_cause(0, "expired_never_renewed", 2);
    Ok(())
}
