//! Counts the failures that the logs of the fleet report. Each failure counts once, however many
//! lines report it.
//!
//! A failure is what happens to one lock in one operation within the joining window. A lost lock is
//! one loss for as long as renewals notice it again. The exporter promises the same. This file
//! implements that promise a second time, from its description, so that tests can compare both
//! counts.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use super::worker::CordumLock;
use super::{MILLISECOND, Nanos, Totals};
use crate::rehearsal::fleet::Failures;

/// Renewals that notice the same loss may be this many intervals apart.
const INTERVALS_OF_ONE_LOSS: f64 = 1.5;

pub(super) struct FailureRecord {
    window: Nanos,
    entries: Mutex<FailureLog>,
}

#[derive(Default)]
struct FailureLog {
    failures: Failures,
    /// When each kind of failure of each lock was last counted or kept open.
    open: BTreeMap<(&'static str, String), Nanos>,
    unanswered: u64,
    /// When the last acquisition of each lock failed.
    last_refusals: BTreeMap<String, Nanos>,
    ambiguous: u64,
    first_failure: Option<Instant>,
    last_failure: Option<Instant>,
}

/// One failure: the lock, the time, and the reason that the exporter should report.
#[derive(Clone, Copy)]
pub(super) struct ReportedFailure<'a> {
    pub(super) lock: &'a CordumLock,
    pub(super) at: Nanos,
    pub(super) reason: &'static str,
}

impl FailureRecord {
    pub(super) fn new(window: Duration) -> Self {
        Self { window: nanos(window), entries: Mutex::default() }
    }

    pub(super) fn acquire_failed(&self, failure: ReportedFailure) {
        self.failed().once("acquire_failures", failure, self.window);
    }

    /// The service worked without the lock.
    pub(super) fn unlocked_work(&self, failure: ReportedFailure) {
        let mut entries = self.failed();
        entries.once("acquire_failures", failure, self.window);
        if entries.is_new("unlocked_work", failure, self.window) {
            entries.failures.add("unlocked_work", failure.lock.namespace, "");
        }
    }

    pub(super) fn release_failed(&self, failure: ReportedFailure) {
        let mut entries = self.failed();
        entries.once("release_failures", failure, self.window);
        if failure.reason == "not_owned" && entries.is_new("lost at release", failure, self.window) {
            entries.failures.add("not_owned", failure.lock.namespace, r#"operation="release""#);
        }
    }

    pub(super) fn renewal_failed(&self, failure: ReportedFailure, renew_every: Duration) {
        let mut entries = self.failed();
        entries.once("renewal_failures", failure, self.window);
        if failure.reason != "not_owned" {
            return;
        }
        let window = self.window.max(nanos(renew_every.mul_f64(INTERVALS_OF_ONE_LOSS)));
        if entries.is_new("lost at renewal", failure, window) {
            entries.failures.add("not_owned", failure.lock.namespace, r#"operation="renew""#);
        }
        // Each renewal that notices the loss extends its window.
        entries.open.insert(("lost at renewal", failure.lock.key().to_owned()), failure.at);
    }

    pub(super) fn abandoned(&self, lock: &CordumLock) {
        self.lock().failures.add("abandonments", lock.namespace, "");
    }

    pub(super) fn stale_write_rejected(&self, lock: &CordumLock) {
        self.lock().failures.add("conflicting_writes", lock.namespace, r#"kind="stale_write_rejected""#);
    }

    pub(super) fn unanswered(&self) {
        self.failed().unanswered += 1;
    }

    /// The counts of failures. The counts of locks are added elsewhere.
    pub(super) fn totals(&self) -> Totals {
        let entries = self.lock();
        let burst = entries.first_failure.zip(entries.last_failure).map(|(first, last)| last - first);
        Totals {
            failures: entries.failures.clone(),
            unanswered: entries.unanswered,
            ambiguous: entries.ambiguous,
            burst: burst.unwrap_or_default(),
            ..Totals::default()
        }
    }

    /// Locks the log to add a failure that happens now.
    fn failed(&self) -> std::sync::MutexGuard<'_, FailureLog> {
        let (mut entries, now) = (self.lock(), Instant::now());
        entries.first_failure.get_or_insert(now);
        entries.last_failure = Some(now);
        entries
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, FailureLog> {
        self.entries.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl FailureLog {
    /// Adds a failure with its reason, unless it belongs to one that was already counted.
    fn once(&mut self, metric: &'static str, failure: ReportedFailure, window: Nanos) {
        if metric == "acquire_failures" {
            let last = self.last_refusals.insert(failure.lock.key().to_owned(), failure.at);
            self.ambiguous += u64::from(last.is_some_and(|last| failure.at - last <= 2 * window));
        }
        if self.is_new(metric, failure, window) {
            let label = format!("reason=\"{}\"", failure.reason);
            self.failures.add(metric, failure.lock.namespace, &label);
        }
    }

    fn is_new(&mut self, kind: &'static str, failure: ReportedFailure, window: Nanos) -> bool {
        let place = (kind, failure.lock.key().to_owned());
        let is_new = self.open.get(&place).is_none_or(|first| failure.at - first > window);
        if is_new {
            self.open.insert(place, failure.at);
        }
        is_new
    }
}

fn nanos(duration: Duration) -> Nanos {
    duration.as_millis() as Nanos * MILLISECOND
}
