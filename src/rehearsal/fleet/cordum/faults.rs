//! The faults that the fleet can have, the switches for those faults that the workers check
//! themselves, and the errors of the services.

use std::sync::atomic::{AtomicBool, Ordering};

use super::NOT_OWNED;
use crate::rehearsal::fleet;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Node b repeatedly freezes for longer than its TTLs and wakes up again, like a program with
    /// long garbage collections or a machine without free CPU time.
    Pauses,
    /// Every reply of Redis takes longer than services wait for it.
    SlowNetwork,
    /// Like `SlowNetwork`, but only on the last node. Repeats, each time for longer than a holder
    /// tolerates failed renewals.
    Outages,
    /// Admissions take longer than the TTL of their lock, as if a slow handler was deployed.
    SlowAdmissions,
    /// Renewals come late, but in time. Such delays show before locks are lost.
    LateRenewals,
    /// No replica tries to lead the delay poller.
    Leaderless,
}

/// The switches for faults in the behavior of the services. The other faults act from outside.
#[derive(Default)]
pub(super) struct Faults {
    slow_admissions: AtomicBool,
    late_renewals: AtomicBool,
    leaderless: AtomicBool,
}

impl Faults {
    pub(super) fn set(&self, fault: Fault, is_on: bool) {
        if let Some(switch) = self.switch(fault) {
            switch.store(is_on, Ordering::Relaxed);
        }
    }

    pub(super) fn has(&self, fault: Fault) -> bool {
        self.switch(fault).is_some_and(|switch| switch.load(Ordering::Relaxed))
    }

    fn switch(&self, fault: Fault) -> Option<&AtomicBool> {
        match fault {
            Fault::SlowAdmissions => Some(&self.slow_admissions),
            Fault::LateRenewals => Some(&self.late_renewals),
            Fault::Leaderless => Some(&self.leaderless),
            Fault::Pauses | Fault::SlowNetwork | Fault::Outages => None,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct SimulatedError {
    pub(super) text: String,
    /// The reason that the exporter should report.
    pub(super) reason: &'static str,
}

impl SimulatedError {
    pub(super) fn not_owned() -> Self {
        Self { text: NOT_OWNED.to_owned(), reason: "not_owned" }
    }

    pub(super) fn of(error: &fleet::UnknownResult) -> Self {
        let unavailable = |text: &str| Self { text: text.to_owned(), reason: "redis_unavailable" };
        let error = match error {
            fleet::UnknownResult::Late => return unavailable("context deadline exceeded"),
            fleet::UnknownResult::Failed(error) => error,
        };
        match error.code() {
            Some(code @ ("LOADING" | "READONLY" | "MASTERDOWN")) => {
                Self { text: format!("{code} {}", error.detail().unwrap_or_default()), reason: "failover" }
            }
            _ if error.is_timeout() => unavailable("i/o timeout"),
            _ => unavailable("EOF"),
        }
    }
}
