//! The exact log messages of Cordum's services about their locks: texts, levels and attributes in
//! the order in which Cordum prints them. The log generator and the simulated services use them.

use std::time::Duration;

use super::{LineWriter, Nanos};

/// The error of a release or renewal whose lock was lost.
pub const NOT_OWNED: &str = "lock not owned";

/// A service of Cordum, named as in its logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    Scheduler,
    WorkflowEngine,
    Gateway,
}

impl Service {
    pub fn name(self) -> &'static str {
        match self {
            Self::Scheduler => "scheduler",
            Self::WorkflowEngine => "workflow-engine",
            Self::Gateway => "gateway",
        }
    }
}

/// Values must not need escaping, see `line.rs`.
#[derive(Clone, Copy, Debug)]
pub enum LogMessage<'a> {
    /// Logged by the lock store of any service.
    TokenMismatch {
        key: &'a str,
    },

    JobAcquisitionFailed {
        job: &'a str,
        error: &'a str,
    },
    JobRenewalFailed {
        job: &'a str,
        attempt: u32,
        error: &'a str,
    },
    JobAbandoned {
        job: &'a str,
        failures: u32,
        error: &'a str,
    },
    JobReleaseSkipped {
        job: &'a str,
    },
    JobReleaseFailed {
        job: &'a str,
        error: &'a str,
    },
    JobReleaseRetryFailed {
        job: &'a str,
        ttl: Duration,
        error: &'a str,
    },
    JobStateChanged {
        job: &'a str,
        state: &'a str,
    },
    JobStateRefused {
        job: &'a str,
        state: &'a str,
        error: &'a str,
    },
    /// Logged by the reconciler and the replayer. The error contains the key.
    LeaderAcquisitionFailed {
        error: &'a str,
    },
    ReconcilerRenewalFailed {
        error: &'a str,
    },
    SnapshotAcquireFailed {
        instance: &'a str,
        error: &'a str,
    },

    RunLocalOnly {
        run: &'a str,
        error: &'a str,
    },
    RunRenewalFailed {
        run: &'a str,
        error: &'a str,
    },
    RunReleaseFailed {
        run: &'a str,
        error: &'a str,
    },
    WorkflowReconcilerAcquisitionFailed {
        error: &'a str,
    },

    ApprovalAcquireFailed {
        job: &'a str,
        error: &'a str,
    },
    ApprovalBusy {
        job: &'a str,
        waited: Duration,
    },
    ApprovalReleaseFailed {
        job: &'a str,
        error: &'a str,
    },
    ResultReleaseFailed {
        run: &'a str,
        key: &'a str,
        error: &'a str,
    },
    AdmissionFailed {
        org: &'a str,
        error: &'a str,
    },
    AdmissionReleaseFailed {
        org: &'a str,
        error: &'a str,
    },
}

impl LogMessage<'_> {
    pub fn message(&self) -> &'static str {
        self.head().1
    }

    pub fn write(&self, out: &mut LineWriter, time: Nanos, service: Service) {
        let (level, message) = self.head();
        out.begin(time, service.name(), level, message);
        match *self {
            Self::TokenMismatch { key } => _ = out.text("key", key),
            Self::JobReleaseSkipped { job } => _ = out.text("job_id", job),
            Self::JobAcquisitionFailed { job, error }
            | Self::JobReleaseFailed { job, error }
            | Self::ApprovalAcquireFailed { job, error }
            | Self::ApprovalReleaseFailed { job, error } => _ = out.text("job_id", job).text("error", error),
            Self::JobRenewalFailed { job, attempt, error } => {
                out.text("job_id", job).number("attempt", attempt as usize).text("error", error);
            }
            Self::JobAbandoned { job, failures, error } => {
                out.text("job_id", job).number("failures", failures as usize).text("error", error);
            }
            Self::JobReleaseRetryFailed { job, ttl, error } => {
                out.text("job_id", job).duration("ttl", ttl).text("error", error);
            }
            Self::JobStateChanged { job, state } => _ = out.text("job_id", job).text("new_state", state),
            Self::JobStateRefused { job, state, error } => {
                out.text("job_id", job).text("state", state).text("error", error);
            }
            Self::LeaderAcquisitionFailed { error }
            | Self::ReconcilerRenewalFailed { error }
            | Self::WorkflowReconcilerAcquisitionFailed { error } => _ = out.text("error", error),
            Self::SnapshotAcquireFailed { instance, error } => {
                out.text("instance_id", instance).text("error", error);
            }
            // Cordum prints its own `component` attribute a second time on this line.
            Self::RunLocalOnly { run, error } => {
                out.text("component", "workflow").text("run_id", run).text("error", error);
            }
            Self::RunRenewalFailed { run, error } | Self::RunReleaseFailed { run, error } => {
                out.text("run_id", run).text("error", error);
            }
            Self::ApprovalBusy { job, waited } => {
                out.text("job_id", job).number("waited_ms", waited.as_millis() as usize);
            }
            Self::ResultReleaseFailed { run, key, error } => {
                out.text("run_id", run).text("lock_key", key).text("error", error);
            }
            Self::AdmissionFailed { org, error } | Self::AdmissionReleaseFailed { org, error } => {
                out.text("org_id", org).text("error", error);
            }
        }
        out.end();
    }

    fn head(&self) -> (&'static str, &'static str) {
        match self {
            Self::TokenMismatch { .. } => ("WARN", "lock release skipped: token mismatch"),
            Self::JobAcquisitionFailed { .. } => ("ERROR", "job lock acquisition failed"),
            Self::JobRenewalFailed { .. } => ("WARN", "job lock renewal failed"),
            Self::JobAbandoned { .. } => ("ERROR", "lock renewal abandoned, fencing critical section"),
            Self::JobReleaseSkipped { .. } => ("WARN", "skipping lock release after abandonment"),
            Self::JobReleaseFailed { .. } => ("WARN", "job lock release failed, retrying"),
            Self::JobReleaseRetryFailed { .. } => ("ERROR", "job lock release retry failed, lock will expire via TTL"),
            Self::JobStateChanged { .. } => ("INFO", "job state changed"),
            Self::JobStateRefused { .. } => ("ERROR", "failed to set job state"),
            Self::LeaderAcquisitionFailed { .. } => ("ERROR", "lock acquisition failed"),
            Self::ReconcilerRenewalFailed { .. } => ("WARN", "lock renewal failed"),
            Self::SnapshotAcquireFailed { .. } => ("WARN", "snapshot writer lock acquire failed"),
            Self::RunLocalOnly { .. } => {
                ("ERROR", "distributed lock failed — using local-only lock, cross-replica race possible")
            }
            Self::RunRenewalFailed { .. } => ("WARN", "run lock renewal failed"),
            Self::RunReleaseFailed { .. } => ("WARN", "distributed run lock release failed"),
            Self::WorkflowReconcilerAcquisitionFailed { .. } => ("ERROR", "reconciler lock acquisition failed"),
            Self::ApprovalAcquireFailed { .. } => ("ERROR", "approval lock acquire failed"),
            Self::ApprovalBusy { .. } => ("WARN", "approval lock busy"),
            Self::ApprovalReleaseFailed { .. } => ("WARN", "approval lock release failed"),
            Self::ResultReleaseFailed { .. } => ("WARN", "workflow result: lock release failed, will expire via TTL"),
            Self::AdmissionFailed { .. } => ("ERROR", "workflow admission lock failed"),
            Self::AdmissionReleaseFailed { .. } => ("ERROR", "release workflow admission lock failed"),
        }
    }
}
