//! Counts each failure once, however many lines report it.
//!
//! `ledger::Ledger` calls this module for every log event. In reading order:
//!
//! * `joining`: several lines about one failure count once
//! * `final_states`: two final states of one piece of work are a conflict

pub(super) mod final_states;
pub(super) mod joining;
