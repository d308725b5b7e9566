//! How complete the watching of one connection is: up to when all changes have been reported, and
//! which changes never will be. `session` owns it and sends the events that it returns.

use crate::model::namespace::NamespaceId;
use crate::model::sighting::LinkEvent;
use crate::util::clock::TimeMs;

/// Minimum progress of the caught-up time before it is reported again.
const CAUGHT_UP_STEP: TimeMs = 200;

#[derive(Debug)]
pub(super) struct WatchProgress {
    is_watching: bool,
    /// Time of the last `CaughtUp` event.
    reported_up_to: TimeMs,
    /// A `Gap` event was sent, and no pass has completed since.
    gap_reported: bool,
    /// When a change was last skipped, and the lock namespaces with skipped changes. Reported
    /// together with the next progress.
    skipped: Option<(TimeMs, Vec<NamespaceId>)>,
}

impl WatchProgress {
    pub(super) fn new(is_watching: bool) -> Self {
        Self { is_watching, reported_up_to: 0, gap_reported: false, skipped: None }
    }

    /// Whether changes are pushed on this connection.
    pub(super) fn is_watching(&self) -> bool {
        self.is_watching
    }

    /// All changes before `caught_up` have been pushed. `reported_up_to` returns up to when all
    /// pushed changes have been reported as well; it is expensive and is called only if needed.
    pub(super) fn advance(&mut self, caught_up: TimeMs, reported_up_to: impl FnOnce() -> TimeMs) -> Option<LinkEvent> {
        let enough = self.reported_up_to + CAUGHT_UP_STEP;
        if !self.is_watching || caught_up < enough {
            return None;
        }
        let at = reported_up_to();
        (at >= enough).then(|| {
            self.reported_up_to = at;
            LinkEvent::CaughtUp { at }
        })
    }

    /// Pushes were lost. A gap is reported once until a pass has completed.
    pub(super) fn lose_pushes(&mut self, at: TimeMs) -> Option<LinkEvent> {
        (!std::mem::replace(&mut self.gap_reported, true)).then_some(LinkEvent::Gap { at })
    }

    pub(super) fn complete_pass(&mut self) {
        self.gap_reported = false;
    }

    /// A change of a lock in one of these namespaces will not be reported.
    pub(super) fn skip(&mut self, namespaces: impl Iterator<Item = NamespaceId>, at: TimeMs) {
        let (last, skipped) = self.skipped.get_or_insert_default();
        *last = at;
        for namespace in namespaces {
            if !skipped.contains(&namespace) {
                skipped.push(namespace);
            }
        }
    }

    /// Returns the skipped changes since the last call, as one event.
    pub(super) fn take_skipped(&mut self) -> Option<LinkEvent> {
        self.skipped.take().map(|(at, namespaces)| LinkEvent::Skipped { at, namespaces })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_reported_in_steps() {
        let mut progress = WatchProgress::new(true);
        assert_eq!(progress.advance(1000, || 900), Some(LinkEvent::CaughtUp { at: 900 }));
        assert_eq!(progress.advance(1099, || panic!("not needed")), None);
        assert_eq!(progress.advance(1200, || 1000), None, "a push of this time still waits for its read");
        assert_eq!(progress.advance(1200, || 1200), Some(LinkEvent::CaughtUp { at: 1200 }));
        assert_eq!(WatchProgress::new(false).advance(1000, || 1000), None);
    }

    #[test]
    fn a_gap_is_reported_once_until_a_pass_has_completed() {
        let mut progress = WatchProgress::new(true);
        let gaps = [1, 2].map(|at| progress.lose_pushes(at));
        assert_eq!(gaps, [Some(LinkEvent::Gap { at: 1 }), None]);
        progress.complete_pass();
        assert_eq!(progress.lose_pushes(3), Some(LinkEvent::Gap { at: 3 }));
    }

    #[test]
    fn skipped_changes_are_gathered() {
        let mut progress = WatchProgress::new(true);
        assert_eq!(progress.take_skipped(), None);
        for (namespace, at) in [(4, 10), (2, 11), (4, 12)] {
            progress.skip([NamespaceId(namespace)].into_iter(), at);
        }
        let namespaces = vec![NamespaceId(4), NamespaceId(2)];
        assert_eq!(progress.take_skipped(), Some(LinkEvent::Skipped { at: 12, namespaces }));
        assert_eq!(progress.take_skipped(), None);
    }
}
