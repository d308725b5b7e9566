//! An error of a simulated service: its text as Cordum's lock store and Redis client write it, and
//! the reason that the exporter should report.

use super::NOT_OWNED;
use crate::rehearsal::fleet;

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

    pub(super) fn of(trouble: &fleet::UnknownResult) -> Self {
        let unavailable = |text: &str| Self { text: text.to_owned(), reason: "redis_unavailable" };
        let error = match trouble {
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
