//! What happens in one round of each scenario. Every failure is real, none is simulated by writing
//! its symptoms.
//!
//! `drill` calls [`round`]. In reading order:
//!
//! * `expiry`: a stale release, a crash, a deletion by another worker
//! * `renewal`: renewals that fail
//! * `pause`, `delay`: a stopped process, a slow network
//! * `leader`: a leader that is lost
//! * `failover`: Redis fails over

mod delay;
mod expiry;
mod failover;
mod leader;
mod pause;
mod renewal;

pub(super) use failover::Servers;

use tokio::time::Instant;

use super::scenario_run::{ScenarioRun, seconds};
use super::worker::DrillWorker;
use crate::cli::DrillScenario;
use crate::rehearsal::fleet::WorkerHold;

pub(super) const NOT_OWNED: &str = "redis_lock_not_owned_total";
pub(super) const CAUSES: &str = "redis_lock_not_owned_causes_total";

/// Runs one round. Only the failover scenario needs `servers`.
pub(super) async fn round(scenario_run: &ScenarioRun, round: u32, servers: Option<&mut Servers>) -> anyhow::Result<()> {
    match scenario_run.scenario.kind {
        DrillScenario::StaleRelease => expiry::stale_release(scenario_run, round).await,
        DrillScenario::RenewalFailure => renewal::renewal_failure(scenario_run, round).await,
        DrillScenario::Combined => renewal::combined(scenario_run, round).await,
        DrillScenario::Pause => pause::pause(scenario_run, round, false).await,
        DrillScenario::Delay => delay::delay(scenario_run, round).await,
        DrillScenario::PauseAndDelay => pause::pause(scenario_run, round, true).await,
        DrillScenario::CrashTakeover => expiry::crash_takeover(scenario_run, round).await,
        DrillScenario::BlindDelete => expiry::blind_delete(scenario_run, round).await,
        DrillScenario::LeaderLoss => leader::leader_loss(scenario_run).await,
        DrillScenario::RedisFailover => match servers {
            Some(servers) => failover::redis_failover(scenario_run, round, servers).await,
            None => anyhow::bail!("a failover without servers"),
        },
    }
}

impl ScenarioRun {
    /// Compares the takeover of this lock with the SLO.
    fn judge_takeover(&self, hold: &WorkerHold) {
        let Some(takeover) = hold.takeover() else {
            return self.expect("takeover", false, "nobody took over".to_owned());
        };
        let slo = self.timing().takeover_slo();
        self.measure("takeover", takeover);
        let measured = format!("takeover after {}, the SLO is {}", seconds(takeover), seconds(slo));
        self.expect("takeover", takeover <= slo, measured);
    }

    /// Two workers must have held the lock at the same time, and the overlap is measured.
    fn judge_overlap(&self, hold: &WorkerHold) {
        let overlap = hold.overlap();
        self.measure("overlap", overlap);
        let measured = format!("two workers believed to hold the lock for {}", seconds(overlap));
        self.expect("overlap", !overlap.is_zero(), measured);
    }

    fn judge_no_overlap(&self, hold: &WorkerHold) {
        let overlap = hold.overlap();
        let measured = format!("two workers believed to hold the lock for {}", seconds(overlap));
        self.expect("no-overlap", overlap.is_zero(), measured);
    }
}

/// Checks that the new owner kept its lock and can release it.
async fn judge_kept(scenario_run: &ScenarioRun, worker: &mut DrillWorker<'_>, hold: &WorkerHold) -> anyhow::Result<()> {
    let holds = worker.holds(hold).await?;
    worker.work_until(hold, Instant::now() + scenario_run.timing().renew_every() * 3 / 2).await?;
    let released = worker.release(hold).await?;
    let yes = |fact| if fact { "yes" } else { "no" };
    let measured = format!("still its owner: {}, could release: {}", yes(holds), yes(released));
    scenario_run.expect("kept", holds && released, measured);
    Ok(())
}
