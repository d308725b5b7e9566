//! The kinds of failure that log lines report, and the causes that Redis shows for lost locks.

use std::fmt;

use crate::model::label::{Label, label_enum};

label_enum! {
    /// What the program tried to do with its lock.
    Operation { Release = "release", Renew = "renew", Unknown = "unknown" }
}

label_enum! {
    /// Why an operation on a lock failed. `Canceled` on a renewal is the normal end of the work and not a failure.
    Reason {
        NotOwned = "not_owned",
        Busy = "busy",
        RedisUnavailable = "redis_unavailable",
        Failover = "failover",
        Denied = "denied",
        Canceled = "canceled",
        Other = "other",
    }
}

label_enum! {
    /// How a write collided with the work of another holder.
    ConflictKind {
        DuplicateTerminalState = "duplicate_terminal_state",
        StaleWriteRejected = "stale_write_rejected",
        StateConflict = "state_conflict",
    }
}

label_enum! {
    /// Why a lock was not owned, as far as Redis was seen to tell.
    Cause {
        /// Its TTL ran out and no renewal was seen.
        ExpiredNeverRenewed = "expired_never_renewed",
        /// Its TTL ran out after renewals.
        RenewalsStopped = "renewals_stopped",
        /// Somebody deleted it before its time.
        DeletedEarly = "deleted_early",
        /// Another owner replaced it before its time.
        TakenOver = "taken_over",
        /// It was gone after a restart or failover of Redis.
        LostInFailover = "lost_in_failover",
        /// Nothing was seen that explains it.
        Unknown = "unknown",
    }
}
