//! What went wrong, in the words of Cordum's lock store and its Redis client, and in the exporter's.

use super::NOT_OWNED;
use crate::rehearsal::fleet;

#[derive(Clone, Debug)]
pub(super) struct SimulatedError {
    pub(super) text: String,
    /// What the exporter calls it.
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
