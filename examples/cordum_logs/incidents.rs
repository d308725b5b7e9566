//! Lock failures: the lines that Cordum prints for each one, and the expected counts.
//!
//! A lost job lock prints four lines at release, or four lines over 40 seconds at renewal. Other
//! losses print two lines, one from the store and one from the caller. The record counts the
//! failure, not the lines.

use std::time::Duration;

use redis_lock_exporter::rehearsal::fleet::cordum::{
    LineWriter, LogMessage, MILLISECOND, NOT_OWNED, Nanos, SECOND, Service,
};
use redis_lock_exporter::rehearsal::fleet::{Random, Uuid};

use crate::truth::Truth;

const JOB_KEY: &str = "cordum:scheduler:job:";
const RUN_KEY: &str = "cordum:wf:run:lock:";
const RECONCILER_KEY: &str = "cordum:reconciler:default";
const REFUSED: &str = "dial tcp 10.0.3.7:6379: connect: connection refused";
const JOB_TTL: Duration = Duration::from_secs(60);
/// A third of the TTL.
const JOB_RENEWAL: Nanos = 20 * SECOND;
/// A reconciler line does not name a lock instance, so two such lines within the joining window are
/// one failure by definition.
const RECONCILER_SPACING: Nanos = 30 * SECOND;

#[derive(Clone, Copy)]
enum Kind {
    JobReleaseLost,
    JobRenewalLost,
    JobRenewalRedisDown,
    ReconcilerRenewalLost,
    ReconcilerAcquireFailed,
    DuplicateTerminalState,
    ApprovalReleaseLost,
    ApprovalBusy,
    GatewayRunReleaseLost,
    EngineRunReleaseLost,
    EngineRunRenewalLost,
    EngineLocalOnly,
}

/// A line that is due at a time. The incident and the line's number in it determine the text.
#[derive(Clone, Copy)]
pub(crate) struct Due {
    pub(crate) time: Nanos,
    kind: Kind,
    step: u8,
    id: Uuid,
}

/// Average number of lines per incident, if `start` picks incidents evenly for all three services.
pub(crate) const MEAN_LINES: f64 = 1.96;

pub(crate) struct Incidents {
    next_reconciler: Nanos,
}

impl Incidents {
    pub(crate) fn new() -> Self {
        Self { next_reconciler: Nanos::MIN }
    }

    /// Starts a failure at `time`: schedules its lines in order and records it.
    pub(crate) fn start(&mut self, service: Service, random: &mut Random, time: Nanos, truth: &mut Truth) -> Vec<Due> {
        let kind = self.pick(service, random, time);
        let id = random.uuid();
        let line = |step: u8, after: Nanos| Due { time: time + after, kind, step, id };
        match kind {
            Kind::JobReleaseLost => {
                release_lost(truth, "scheduler");
                vec![line(0, 0), line(1, MILLISECOND), line(2, 3 * MILLISECOND), line(3, 4 * MILLISECOND)]
            }
            Kind::JobRenewalLost => {
                truth.failures.add("not_owned", "scheduler", r#"operation="renew""#);
                for _attempt in 0..3 {
                    truth.failures.add("renewal_failures", "scheduler", r#"reason="not_owned""#);
                }
                truth.failures.add("abandonments", "scheduler", "");
                let end = 2 * JOB_RENEWAL;
                vec![line(0, 0), line(1, JOB_RENEWAL), line(2, end), line(3, end + 5 * MILLISECOND)]
            }
            Kind::JobRenewalRedisDown => {
                truth.failures.add("renewal_failures", "scheduler", r#"reason="redis_unavailable""#);
                vec![line(0, 0)]
            }
            Kind::ReconcilerRenewalLost => {
                truth.failures.add("not_owned", "reconciler", r#"operation="renew""#);
                truth.failures.add("renewal_failures", "reconciler", r#"reason="not_owned""#);
                vec![line(0, 0)]
            }
            Kind::ReconcilerAcquireFailed => {
                truth.failures.add("acquire_failures", "reconciler", r#"reason="redis_unavailable""#);
                vec![line(0, 0)]
            }
            Kind::DuplicateTerminalState => {
                truth.failures.add("conflicting_writes", "scheduler", r#"kind="duplicate_terminal_state""#);
                vec![line(0, 0), line(1, 5 * SECOND)]
            }
            Kind::ApprovalReleaseLost => {
                release_lost(truth, "approval");
                vec![line(0, 0), line(1, MILLISECOND)]
            }
            Kind::ApprovalBusy => {
                truth.failures.add("acquire_failures", "approval", r#"reason="busy""#);
                vec![line(0, 0)]
            }
            Kind::GatewayRunReleaseLost | Kind::EngineRunReleaseLost => {
                release_lost(truth, "workflow");
                vec![line(0, 0), line(1, MILLISECOND)]
            }
            Kind::EngineRunRenewalLost => {
                truth.failures.add("not_owned", "workflow", r#"operation="renew""#);
                truth.failures.add("renewal_failures", "workflow", r#"reason="not_owned""#);
                vec![line(0, 0)]
            }
            Kind::EngineLocalOnly => {
                truth.failures.add("acquire_failures", "workflow", r#"reason="redis_unavailable""#);
                truth.failures.add("unlocked_work", "workflow", "");
                vec![line(0, 0)]
            }
        }
    }

    fn pick(&mut self, service: Service, random: &mut Random, time: Nanos) -> Kind {
        match service {
            Service::Scheduler => match random.below(8) {
                0..=2 => Kind::JobReleaseLost,
                3 => Kind::JobRenewalLost,
                4 => Kind::DuplicateTerminalState,
                5 if time >= self.next_reconciler => {
                    self.next_reconciler = time + RECONCILER_SPACING;
                    if random.chance(0.5) { Kind::ReconcilerRenewalLost } else { Kind::ReconcilerAcquireFailed }
                }
                _ => Kind::JobRenewalRedisDown,
            },
            Service::Gateway => match random.below(4) {
                0 | 1 => Kind::ApprovalReleaseLost,
                2 => Kind::ApprovalBusy,
                _ => Kind::GatewayRunReleaseLost,
            },
            Service::WorkflowEngine => match random.below(4) {
                0 | 1 => Kind::EngineRunReleaseLost,
                2 => Kind::EngineRunRenewalLost,
                _ => Kind::EngineLocalOnly,
            },
        }
    }
}

/// A release of a lost lock is both a lost lock and a failed release.
fn release_lost(truth: &mut Truth, namespace: &str) {
    truth.failures.add("not_owned", namespace, r#"operation="release""#);
    truth.failures.add("release_failures", namespace, r#"reason="not_owned""#);
}

impl Due {
    pub(crate) fn write(&self, out: &mut LineWriter, truth: &mut Truth) {
        let id = self.id.to_string();
        let (job_key, run_key) = (format!("{JOB_KEY}{id}"), format!("{RUN_KEY}{id}"));
        let timed_out = format!("job store renew lock {job_key}: context deadline exceeded");
        let no_leader = format!("job store try acquire lock {RECONCILER_KEY}: {REFUSED}");
        let no_run = format!("job store try acquire lock {run_key}: {REFUSED}");
        let (job, run, error) = (id.as_str(), id.as_str(), NOT_OWNED);
        use Service::{Gateway, Scheduler, WorkflowEngine};
        let (service, said) = match (self.kind, self.step) {
            (Kind::JobReleaseLost, 0 | 2) => (Scheduler, LogMessage::TokenMismatch { key: &job_key }),
            (Kind::JobReleaseLost, 1) => (Scheduler, LogMessage::JobReleaseFailed { job, error }),
            (Kind::JobReleaseLost, _) => (Scheduler, LogMessage::JobReleaseRetryFailed { job, ttl: JOB_TTL, error }),
            (Kind::JobRenewalLost, step @ (0 | 1)) => {
                (Scheduler, LogMessage::JobRenewalFailed { job, attempt: u32::from(step) + 1, error })
            }
            (Kind::JobRenewalLost, 2) => (Scheduler, LogMessage::JobAbandoned { job, failures: 3, error }),
            (Kind::JobRenewalLost, _) => (Scheduler, LogMessage::JobReleaseSkipped { job }),
            (Kind::JobRenewalRedisDown, _) => {
                (Scheduler, LogMessage::JobRenewalFailed { job, attempt: 1, error: &timed_out })
            }
            (Kind::ReconcilerRenewalLost, _) => (Scheduler, LogMessage::ReconcilerRenewalFailed { error }),
            (Kind::ReconcilerAcquireFailed, _) => {
                (Scheduler, LogMessage::LeaderAcquisitionFailed { error: &no_leader })
            }
            (Kind::DuplicateTerminalState, step) => {
                let state = if step == 0 { "TIMEOUT" } else { "SUCCEEDED" };
                (Scheduler, LogMessage::JobStateChanged { job, state })
            }
            (Kind::ApprovalReleaseLost, 0) => (Gateway, LogMessage::TokenMismatch { key: &job_key }),
            (Kind::ApprovalReleaseLost, _) => (Gateway, LogMessage::ApprovalReleaseFailed { job, error }),
            (Kind::ApprovalBusy, _) => (Gateway, LogMessage::ApprovalBusy { job, waited: Duration::from_millis(2003) }),
            (Kind::GatewayRunReleaseLost, 0) => (Gateway, LogMessage::TokenMismatch { key: &run_key }),
            (Kind::GatewayRunReleaseLost, _) => {
                (Gateway, LogMessage::ResultReleaseFailed { run, key: &run_key, error })
            }
            (Kind::EngineRunReleaseLost, 0) => (WorkflowEngine, LogMessage::TokenMismatch { key: &run_key }),
            (Kind::EngineRunReleaseLost, _) => (WorkflowEngine, LogMessage::RunReleaseFailed { run, error }),
            (Kind::EngineRunRenewalLost, _) => (WorkflowEngine, LogMessage::RunRenewalFailed { run, error }),
            (Kind::EngineLocalOnly, _) => (WorkflowEngine, LogMessage::RunLocalOnly { run, error: &no_run }),
        };
        truth.add_message(said.message());
        said.write(out, self.time, service);
    }
}
