//! The faults that the fleet can have, and the switches for those faults that the workers check
//! themselves.

use std::sync::atomic::{AtomicBool, Ordering};

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
