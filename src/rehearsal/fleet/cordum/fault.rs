//! What can go wrong with the fleet, and the switches of those faults that workers look at themselves.

use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Node b freezes beyond its TTLs, wakes up, and freezes again, as with long collections of garbage or a starved machine.
    Pauses,
    /// Every answer of Redis takes longer than services wait for it.
    SlowNetwork,
    /// The same on the last node alone, for longer than renewals may fail, again and again.
    Outages,
    /// Admissions take longer than their lock lives: a slow handler was deployed.
    SlowAdmissions,
    /// Renewals come late, but not too late: what is seen before locks are lost.
    LateRenewals,
    /// No replica tries to lead the delay poller.
    Leaderless,
}

/// Faults that are in what the services do, not in what is done to them.
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
