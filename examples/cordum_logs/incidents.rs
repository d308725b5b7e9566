//! Lock failures: the lines Cordum prints about each, and what they should count as.
//!
//! A lost job lock prints four lines at release and four lines over 40 seconds at renewal; other losses print two (the
//! store's and the caller's). The truth counts the failure, not the lines.

use crate::line::{LineWriter, MILLISECOND, Nanos, SECOND};
use crate::random::{Random, Uuid};
use crate::truth::Truth;

const NOT_OWNED: &str = "lock not owned";
const JOB_KEY: &str = "cordum:scheduler:job:";
const RUN_KEY: &str = "cordum:wf:run:lock:";
const RECONCILER_KEY: &str = "cordum:reconciler:default";
const REFUSED: &str = "dial tcp 10.0.3.7:6379: connect: connection refused";
/// The job lock lives 60 s and is renewed every third of that.
const JOB_RENEWAL: Nanos = 20 * SECOND;
/// A reconciler line names no lock instance, so two within the joining window are one failure by definition.
const RECONCILER_SPACING: Nanos = 30 * SECOND;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    Scheduler,
    Gateway,
    WorkflowEngine,
}

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

/// A line that is due at a time. What it says follows from the incident and its number in it.
#[derive(Clone, Copy)]
pub(crate) struct Due {
    pub(crate) time: Nanos,
    kind: Kind,
    step: u8,
    id: Uuid,
}

/// Average number of lines of the incidents that `start` picks for all three services evenly.
pub(crate) const MEAN_LINES: f64 = 1.96;

pub(crate) struct Incidents {
    next_reconciler: Nanos,
}

impl Incidents {
    pub(crate) fn new() -> Self {
        Self { next_reconciler: Nanos::MIN }
    }

    /// Begins a failure at `time`: its lines in order, and its place in the truth.
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
                truth.add("not_owned", "scheduler", r#"operation="renew""#);
                for _attempt in 0..3 {
                    truth.add("renewal_failures", "scheduler", r#"reason="not_owned""#);
                }
                truth.add("abandonments", "scheduler", "");
                let end = 2 * JOB_RENEWAL;
                vec![line(0, 0), line(1, JOB_RENEWAL), line(2, end), line(3, end + 5 * MILLISECOND)]
            }
            Kind::JobRenewalRedisDown => {
                truth.add("renewal_failures", "scheduler", r#"reason="redis_unavailable""#);
                vec![line(0, 0)]
            }
            Kind::ReconcilerRenewalLost => {
                truth.add("not_owned", "reconciler", r#"operation="renew""#);
                truth.add("renewal_failures", "reconciler", r#"reason="not_owned""#);
                vec![line(0, 0)]
            }
            Kind::ReconcilerAcquireFailed => {
                truth.add("acquire_failures", "reconciler", r#"reason="redis_unavailable""#);
                vec![line(0, 0)]
            }
            Kind::DuplicateTerminalState => {
                truth.add("conflicting_writes", "scheduler", r#"kind="duplicate_terminal_state""#);
                vec![line(0, 0), line(1, 5 * SECOND)]
            }
            Kind::ApprovalReleaseLost => {
                release_lost(truth, "approval");
                vec![line(0, 0), line(1, MILLISECOND)]
            }
            Kind::ApprovalBusy => {
                truth.add("acquire_failures", "approval", r#"reason="busy""#);
                vec![line(0, 0)]
            }
            Kind::GatewayRunReleaseLost | Kind::EngineRunReleaseLost => {
                release_lost(truth, "workflow");
                vec![line(0, 0), line(1, MILLISECOND)]
            }
            Kind::EngineRunRenewalLost => {
                truth.add("not_owned", "workflow", r#"operation="renew""#);
                truth.add("renewal_failures", "workflow", r#"reason="not_owned""#);
                vec![line(0, 0)]
            }
            Kind::EngineLocalOnly => {
                truth.add("acquire_failures", "workflow", r#"reason="redis_unavailable""#);
                truth.add("unlocked_work", "workflow", "");
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

/// A release that found the lock lost is both a lost lock and a failed release.
fn release_lost(truth: &mut Truth, namespace: &str) {
    truth.add("not_owned", namespace, r#"operation="release""#);
    truth.add("release_failures", namespace, r#"reason="not_owned""#);
}

impl Due {
    pub(crate) fn write(&self, out: &mut LineWriter, truth: &mut Truth) {
        let id = self.id;
        let mut begin = |component: &str, level: &str, message: &str| {
            truth.add_message(message);
            out.begin(self.time, component, level, message);
        };
        const TOKEN_MISMATCH: &str = "lock release skipped: token mismatch";
        match (self.kind, self.step) {
            (Kind::JobReleaseLost, 0 | 2) => {
                begin("scheduler", "WARN", TOKEN_MISMATCH);
                out.uuid("key", JOB_KEY, id);
            }
            (Kind::JobReleaseLost, 1) => {
                begin("scheduler", "WARN", "job lock release failed, retrying");
                out.uuid("job_id", "", id).text("error", NOT_OWNED);
            }
            (Kind::JobReleaseLost, _) => {
                begin("scheduler", "ERROR", "job lock release retry failed, lock will expire via TTL");
                out.uuid("job_id", "", id).duration("ttl", 60_000_000_000, "1m0s").text("error", NOT_OWNED);
            }
            (Kind::JobRenewalLost, step @ (0 | 1)) => {
                begin("scheduler", "WARN", "job lock renewal failed");
                out.uuid("job_id", "", id).number("attempt", u64::from(step) + 1).text("error", NOT_OWNED);
            }
            (Kind::JobRenewalLost, 2) => {
                begin("scheduler", "ERROR", "lock renewal abandoned, fencing critical section");
                out.uuid("job_id", "", id).number("failures", 3).text("error", NOT_OWNED);
            }
            (Kind::JobRenewalLost, _) => {
                begin("scheduler", "WARN", "skipping lock release after abandonment");
                out.uuid("job_id", "", id);
            }
            (Kind::JobRenewalRedisDown, _) => {
                begin("scheduler", "WARN", "job lock renewal failed");
                let error = format!("job store renew lock {JOB_KEY}{id}: context deadline exceeded");
                out.uuid("job_id", "", id).number("attempt", 1).text("error", &error);
            }
            (Kind::ReconcilerRenewalLost, _) => {
                begin("scheduler", "WARN", "lock renewal failed");
                out.text("error", NOT_OWNED);
            }
            (Kind::ReconcilerAcquireFailed, _) => {
                begin("scheduler", "ERROR", "lock acquisition failed");
                out.text("error", &format!("job store try acquire lock {RECONCILER_KEY}: {REFUSED}"));
            }
            (Kind::DuplicateTerminalState, step) => {
                begin("scheduler", "INFO", "job state changed");
                out.uuid("job_id", "", id).text("new_state", if step == 0 { "TIMEOUT" } else { "SUCCEEDED" });
            }
            (Kind::ApprovalReleaseLost, 0) => {
                begin("gateway", "WARN", TOKEN_MISMATCH);
                out.uuid("key", JOB_KEY, id);
            }
            (Kind::ApprovalReleaseLost, _) => {
                begin("gateway", "WARN", "approval lock release failed");
                out.uuid("job_id", "", id).text("error", NOT_OWNED);
            }
            (Kind::ApprovalBusy, _) => {
                begin("gateway", "WARN", "approval lock busy");
                out.uuid("job_id", "", id).number("waited_ms", 2003);
            }
            (Kind::GatewayRunReleaseLost, 0) => {
                begin("gateway", "WARN", TOKEN_MISMATCH);
                out.uuid("key", RUN_KEY, id);
            }
            (Kind::GatewayRunReleaseLost, _) => {
                begin("gateway", "WARN", "workflow result: lock release failed, will expire via TTL");
                out.uuid("run_id", "", id).uuid("lock_key", RUN_KEY, id).text("error", NOT_OWNED);
            }
            (Kind::EngineRunReleaseLost, 0) => {
                begin("workflow-engine", "WARN", TOKEN_MISMATCH);
                out.uuid("key", RUN_KEY, id);
            }
            (Kind::EngineRunReleaseLost, _) => {
                begin("workflow-engine", "WARN", "distributed run lock release failed");
                out.uuid("run_id", "", id).text("error", NOT_OWNED);
            }
            (Kind::EngineRunRenewalLost, _) => {
                begin("workflow-engine", "WARN", "run lock renewal failed");
                out.uuid("run_id", "", id).text("error", NOT_OWNED);
            }
            (Kind::EngineLocalOnly, _) => {
                let message = "distributed lock failed — using local-only lock, cross-replica race possible";
                begin("workflow-engine", "ERROR", message);
                // Cordum prints its own `component` attribute a second time on this line.
                let error = format!("job store try acquire lock {RUN_KEY}{id}: {REFUSED}");
                out.text("component", "workflow").uuid("run_id", "", id).text("error", &error);
            }
        }
        out.end();
    }
}
