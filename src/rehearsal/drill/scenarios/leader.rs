//! The scenario `leader-loss`: the leader of a loop dies, and no other worker takes its lock for a
//! long time. The exporter must know since when.

use std::time::Duration;

use anyhow::Context as _;
use tokio::time::{Instant, sleep_until};

use super::super::scenario_run::{ScenarioRun, seconds};
use super::super::worker::{DrillWorker, RedisRoute};
use super::NOT_OWNED;
use crate::client::scrape::SeriesSelector;
use crate::rehearsal::fleet::LockSpec;
use crate::util::clock;

/// How precisely the exporter must know since when there is no leader.
const PRECISION_SECONDS: f64 = 1.0;

/// The result of reading the lock repeatedly.
#[derive(Default)]
struct Absence {
    n_looks: u32,
    /// The first read that found no holder.
    since: Option<Instant>,
    /// How many later reads found a holder.
    n_held: u32,
}

async fn watch(
    worker: &mut DrillWorker<'_>,
    lock: &LockSpec,
    until: Instant,
    every: Duration,
) -> anyhow::Result<Absence> {
    let mut absence = Absence::default();
    while Instant::now() < until {
        let is_held = worker.locker().await?.read(&lock.key).await.context("a GET failed")?.is_some();
        absence.n_looks += 1;
        match (is_held, absence.since) {
            (false, None) => absence.since = Some(Instant::now()),
            (true, Some(_)) => absence.n_held += 1,
            _ => {}
        }
        sleep_until(until.min(Instant::now() + every)).await;
    }
    Ok(absence)
}

/// In a sustained drill there is no leader for the complete duration.
pub(super) async fn leader_loss(scenario_run: &ScenarioRun) -> anyhow::Result<()> {
    let timing = *scenario_run.timing();
    let ttl = timing.ttl;
    let lock = scenario_run.fixed_lock(0);
    let mut leader = DrillWorker::connect(scenario_run, "leading", RedisRoute::Direct).await?;
    let mut follower = DrillWorker::connect(scenario_run, "following", RedisRoute::Direct).await?;
    let hold = leader.acquire(&lock).await?;
    leader.work_until(&hold, hold.acquired + timing.renew_every() * 9 / 4).await?;
    hold.let_go();
    drop(leader);
    scenario_run.note("leading worker", "died");
    let free = hold.last_sign() + ttl;
    let free_at = (clock::now() as f64) / 1000.0 + (free - Instant::now()).as_secs_f64();
    hold.expired();
    scenario_run.happened("the expiry", free, "redis_lock_expirations_total", 0);

    let absence = watch(&mut follower, &lock, free + timing.absence(), timing.poll()).await?;
    let samples = scenario_run.context.probe.scrape().await?;
    let labels = [("lock_namespace", scenario_run.namespace(0)), ("lock", lock.key.as_str())];
    let last_held = SeriesSelector::new("redis_lock_last_held_timestamp_seconds", &labels);
    let difference = samples.sum(&last_held) - free_at;
    let measured = match samples.has(&last_held) {
        true => format!("{difference:+.3} s off the truth"),
        false => "it shows nothing about this lock".to_owned(),
    };
    scenario_run.expect("absent-seen", difference.abs() <= PRECISION_SECONDS, measured);

    let next = follower.wait_for(&lock).await?;
    let free_for = absence.since.map(|since| next.acquired - since).unwrap_or_default();
    scenario_run.measure("absent", free_for);
    scenario_run.measure("takeover", next.acquired - hold.last_sign());
    let measured = format!(
        "nobody led for {}, of {} checks of the lock, {} found a holder after that; the TTL is {}",
        seconds(free_for),
        absence.n_looks,
        absence.n_held,
        seconds(ttl)
    );
    scenario_run.expect("absent", absence.n_held == 0 && free_for > ttl * 2, measured);
    // The lock of a loop is left to expire.
    sleep_until(next.last_sign() + ttl).await;
    next.expired();
    next.let_go();
    scenario_run.note("following worker", "let the lock expire, as loops do");

    let refused = SeriesSelector::new(NOT_OWNED, &labels[..1]);
    scenario_run.claim_exactly("silence", "refused operations", refused, 0);
    scenario_run.claim_takeover(0, false);
    Ok(())
}
