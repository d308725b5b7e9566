//! How the ledger counts a failure once, however many lines report it.
//!
//! `ledger::Ledger` calls this for every log event. In reading order:
//!
//! * `joining`: several lines about one failure count once
//! * `final_states`: two final states of one piece of work are a conflict

pub(super) mod final_states;
pub(super) mod joining;
