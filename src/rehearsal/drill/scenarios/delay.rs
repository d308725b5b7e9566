//! The scenario `delay`: the network takes longer than the TTL, so a renewal that was sent in time
//! arrives too late.

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::super::stage::{ScenarioRun, seconds};
use super::super::worker::{DrillWorker, RedisRoute, RenewalResult};
use super::{CAUSES, NOT_OWNED, judge_kept};
use crate::rehearsal::fleet::Proxy;

pub(super) async fn delay(stage: &ScenarioRun, round: u32) -> anyhow::Result<()> {
    let ttl = stage.timing().ttl;
    let lock = stage.lock_of(0, round);
    let proxy = Proxy::start(&stage.ground.address).await?;
    let mut slow = DrillWorker::connect(stage, "slow", RedisRoute::Proxy(proxy.port())).await?;
    let mut other = DrillWorker::connect(stage, "other", RedisRoute::Direct).await?;
    let hold = slow.acquire(&lock).await?;
    proxy.delay(stage.timing().delay());
    stage.note("network", &format!("delays by {} each way", seconds(stage.timing().delay())));

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
    stage.measure("answered", took);
    let measured = format!("the renewal was answered after {}, the TTL is {}", seconds(took), seconds(ttl));
    stage.expect("delayed", took > ttl, measured);
    let measured = format!("renewal {renewal:?}, release {}", if released { "accepted" } else { "refused" });
    stage.expect("refused", renewal == RenewalResult::Refused && !released, measured);
    stage.happened("the refused operations", answered, NOT_OWNED, 0);
    stage.happened("their cause", answered, CAUSES, 0);
    stage.judge_takeover(&hold);
    stage.judge_overlap(&hold);
    judge_kept(stage, &mut other, &next).await?;

    stage.claim_refusals(0, 1, 1);
    stage.claim_cause(0, "expired_never_renewed", 2);
    Ok(())
}
