//! Counts each failure once, however many lines report it.
//!
//! `ledger::Ledger` calls this module for every log event. In reading order:
//!
//! * this file: what an event adds to the counters
//! * `joining`: several lines about one failure count once
//! * `final_states`: two final states of one piece of work are a conflict

pub(super) mod final_states;
pub(super) mod joining;

use std::sync::Arc;

use super::Ledger;
use crate::model::counters::FailureCounters;
use crate::model::failure::{ConflictKind, Failure, FailureKind, Operation, Reason};
use crate::model::log_event::{RuleId, Statement};
use crate::model::namespace::{Namespace, NamespaceId};
use crate::util::clock::TimeMs;
use joining::{LockHash, Window};

/// Each renewal after a loss reports the same loss again. Reports belong to one loss as long as the
/// time between two of them is at most this many renewal intervals.
const RENEWALS_OF_ONE_LOSS: f64 = 1.5;

/// Like [`Failure::join_topic`], for final states. Hashed into the state file: never change it.
const FINAL_STATE_TOPIC: &str = "final_state";

impl Ledger {
    /// Returns the new failure. If an event is several new failures, returns the gravest.
    pub(super) fn count_statement(&mut self, context: &EventContext, statement: &Statement) -> Option<Failure> {
        match statement {
            Statement::Failure(failure) => self.count_failure(context, *failure),
            Statement::FinalState { state, may_follow } => {
                self.count_final_state(context, state, may_follow.as_deref())
            }
        }
    }

    fn count_failure(&mut self, context: &EventContext, failure: Failure) -> Option<Failure> {
        if failure.is_normal_end() {
            return None;
        }
        let lost = failure.loss().and_then(|operation| self.count_loss(context, operation));
        let failed = match failure {
            Failure::NotOwned(_) => None,
            _ => self.count_operation(context, failure),
        };
        let implied = failure.implied().and_then(|implied| self.count_failure(context, implied));
        lost.or(failed).or(implied)
    }

    fn count_operation(&mut self, context: &EventContext, failure: Failure) -> Option<Failure> {
        let window = match failure.kind() {
            // Like a loss, it is reported again by later lines.
            FailureKind::Abandoned => context.loss_window(),
            _ => context.joining(),
        };
        self.is_new(context, failure.join_topic(), window).then(|| self.add(context, failure))
    }

    fn count_loss(&mut self, context: &EventContext, operation: Operation) -> Option<Failure> {
        let failure = Failure::NotOwned(operation);
        let topic = failure.join_topic();
        let is_new = match operation {
            Operation::Release => self.is_new_loss(context, topic, context.joining()),
            Operation::Renew => self.is_new_loss(context, topic, context.loss_window()),
            Operation::Unknown => !self.is_part_of_known(context) && self.is_new(context, topic, context.joining()),
        };
        is_new.then(|| {
            self.lost(context, operation);
            self.add(context, failure)
        })
    }

    fn count_final_state(&mut self, context: &EventContext, state: &str, may_follow: Option<&str>) -> Option<Failure> {
        let lock = context.hash(FINAL_STATE_TOPIC)?;
        let is_conflict = self.saved.finals.reached(lock, state, may_follow);
        is_conflict.then(|| self.add(context, Failure::ConflictingWrite(ConflictKind::DuplicateTerminalState)))
    }

    fn add(&mut self, context: &EventContext, failure: Failure) -> Failure {
        self.counters_of(context).increment(failure);
        if !failure.is_expected() {
            // The clock of the program may be ahead. No window covers a bucket in the future.
            self.recents[usize::from(context.id.0)].add_failure(failure.kind(), context.at.min(context.now));
        }
        failure
    }

    /// Whether the event starts a new failure of this topic. If not, it is one more line about the
    /// last failure. Events without a lock are never joined, because two such lines may be about
    /// two locks.
    fn is_new(&mut self, context: &EventContext, topic: &str, window: Window) -> bool {
        match context.hash(topic) {
            Some(lock) => self.saved.joined.begins(lock, context.at, context.now, window),
            None => true,
        }
    }

    /// Like `is_new`, for a loss: a line with an unknown operation may already have counted it.
    fn is_new_loss(&mut self, context: &EventContext, topic: &str, window: Window) -> bool {
        let counted_as_unknown = self.is_joined(context, Failure::NotOwned(Operation::Unknown), context.window);
        self.is_new(context, topic, window) && !counted_as_unknown
    }

    /// Whether a loss with an unknown operation repeats a release loss or a renewal loss that was
    /// already counted. If the rule sets `joins`, the line may also belong to a failed acquisition.
    fn is_part_of_known(&self, context: &EventContext) -> bool {
        let windows = [
            (Failure::NotOwned(Operation::Release), context.window),
            (Failure::NotOwned(Operation::Renew), context.window),
            (Failure::AcquireFailed(Reason::Busy), context.joins),
        ];
        windows.into_iter().any(|(failure, window)| self.is_joined(context, failure, window))
    }

    fn is_joined(&self, context: &EventContext, failure: Failure, window: TimeMs) -> bool {
        self.saved.joined.is_open(context.hash(failure.join_topic()), context.at, window)
    }

    fn counters_of(&mut self, context: &EventContext) -> &mut FailureCounters {
        self.saved.namespaces.entry(context.namespace.name.clone()).or_default()
    }
}

/// One event with its times, its lock and its lock namespace.
pub(super) struct EventContext<'a> {
    pub(super) at: TimeMs,
    pub(super) now: TimeMs,
    /// How far this line may be from a failure and still belong to it.
    pub(super) window: TimeMs,
    /// The join window that the rule asks for, or 0.
    pub(super) joins: TimeMs,
    pub(super) lock: Option<&'a str>,
    pub(super) rule: RuleId,
    pub(super) id: NamespaceId,
    pub(super) namespace: Arc<Namespace>,
}

impl EventContext<'_> {
    /// The window for all lines about one attempt.
    fn joining(&self) -> Window {
        Window::FromFirst(self.window)
    }

    /// The window for a loss, which every later renewal reports again.
    fn loss_window(&self) -> Window {
        Window::FromLast(self.window.max(renewal_window(&self.namespace)))
    }

    fn hash(&self, topic: &str) -> Option<LockHash> {
        self.lock.map(|lock| LockHash::new(&self.namespace.name, lock, topic))
    }
}

pub(super) fn renewal_window(namespace: &Namespace) -> TimeMs {
    namespace.renew_every.unwrap_or_default().mul_f64(RENEWALS_OF_ONE_LOSS).as_millis() as TimeMs
}
