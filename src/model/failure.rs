//! The kinds of failures that log lines report, and the causes of lost locks that Redis shows.
//!
//! `logs` and the ledger use these enums, and `exposition` uses their values as label values.

use std::fmt;

use crate::model::label::{Label, label_enum};

label_enum! {
    /// The operation that the program tried on its lock.
    Operation { Release = "release", Renew = "renew", Unknown = "unknown" }
}

label_enum! {
    /// Why an operation on a lock failed. `Canceled` on a renewal is the normal end of the work and
    /// is not a failure.
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
    /// Why the holder no longer owned its lock, according to what was observed in Redis.
    Cause {
        /// The TTL ran out and no renewal was observed.
        ExpiredNeverRenewed = "expired_never_renewed",
        /// The TTL ran out after at least one renewal.
        RenewalsStopped = "renewals_stopped",
        /// The key was deleted before its TTL ran out.
        DeletedEarly = "deleted_early",
        /// Another owner overwrote the key before its TTL ran out.
        TakenOver = "taken_over",
        /// The key was gone after a restart or failover of Redis.
        LostInFailover = "lost_in_failover",
        /// Nothing was observed that explains the loss.
        Unknown = "unknown",
    }
}
