//! Records what the workers really did, and computes the numbers that an exporter should show.
//! `worker` writes the record; drills, the demo and tests read it.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Released,
    /// Another program deleted the key without comparing the owner.
    Deleted,
    /// The holder crashed, or slept past its TTL.
    Expired,
    /// Another program overwrote the key.
    Stolen,
    /// Still held at the end of the run.
    Open,
}

/// One hold of one lock.
#[derive(Clone, Debug)]
struct RecordedOperation {
    key: String,
    acquired: Instant,
    ended: Option<Instant>,
    /// The time of the acquisition or of the last renewal.
    last_sign: Instant,
    /// Until when the holder worked as if it held the lock. `None`: until the end of the hold.
    believed_until: Option<Instant>,
    renewals: u64,
    end: End,
    /// Releases and renewals that were refused because the holder had lost its lock.
    refused: u64,
}

/// All workers of a run write to it.
#[derive(Debug, Default)]
pub struct OperationLog {
    operations: Mutex<Vec<RecordedOperation>>,
}

/// The numbers that follow from a record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Truth {
    pub acquisitions: u64,
    pub renewals: u64,
    pub releases: u64,
    pub expirations: u64,
    pub stolen: u64,
    pub held: u64,
    pub refused: u64,
    pub changes_after_release: u64,
    pub changes_after_expiry: u64,
    pub changes_after_unknown: u64,
    /// The sum over holds that were released, deleted or expired.
    pub hold_seconds: f64,
}

impl OperationLog {
    /// Begins a hold. Returns its number for later calls, and the time.
    pub fn acquired(&self, key: &str) -> (usize, Instant) {
        let now = Instant::now();
        let operation = RecordedOperation {
            key: key.to_owned(),
            acquired: now,
            ended: None,
            last_sign: now,
            believed_until: None,
            renewals: 0,
            end: End::Open,
            refused: 0,
        };
        let mut operations = self.lock();
        operations.push(operation);
        (operations.len() - 1, now)
    }

    fn change(&self, number: usize, change: impl FnOnce(&mut RecordedOperation)) {
        if let Some(operation) = self.lock().get_mut(number) {
            change(operation);
        }
    }

    pub fn ended(&self, number: usize, end: End) {
        self.change(number, |operation| {
            operation.end = end;
            operation.ended = Some(Instant::now());
        });
    }

    pub fn renewed(&self, number: usize) {
        self.change(number, |operation| {
            operation.renewals += 1;
            operation.last_sign = Instant::now();
        });
    }

    /// Redis refused a renewal or a release.
    pub fn refused(&self, number: usize) {
        self.change(number, |operation| operation.refused += 1);
    }

    /// The holder no longer has the lock. If no other end was recorded, its TTL ran out.
    pub fn lost(&self, number: usize) {
        self.change(number, |operation| {
            if operation.end == End::Open {
                (operation.end, operation.ended) = (End::Expired, Some(Instant::now()));
            }
        });
    }

    /// The TTL ran out, counted from the acquisition or the last renewal.
    pub fn expired(&self, number: usize, ttl: Duration) {
        self.change(number, |operation| {
            operation.end = End::Expired;
            operation.ended = Some(operation.last_sign + ttl);
        });
    }

    /// The holder no longer works as if it held the lock.
    pub fn let_go(&self, number: usize) {
        self.change(number, |operation| operation.believed_until = Some(Instant::now()));
    }

    /// For how long this holder and the next holder of the same lock both believed that they held
    /// it.
    pub fn overlap(&self, number: usize) -> Duration {
        let operations = self.lock();
        let Some((operation, next)) = with_next(&operations, number) else { return Duration::ZERO };
        let until = operation.believed_until.or(operation.ended).unwrap_or_else(Instant::now);
        until.saturating_duration_since(next.acquired)
    }

    /// The time from the last sign of life of a holder whose lock expired to the next acquisition.
    pub fn takeover(&self, number: usize) -> Option<Duration> {
        let operations = self.lock();
        let (operation, next) = with_next(&operations, number)?;
        (operation.end == End::Expired).then(|| next.acquired - operation.last_sign)
    }

    pub fn last_sign(&self, number: usize) -> Option<Instant> {
        self.lock().get(number).map(|operation| operation.last_sign)
    }

    pub fn truth(&self) -> Truth {
        let operations = self.lock();
        let mut truth = Truth::default();
        // Holds of one lock follow each other and are recorded in the order of their acquisitions.
        let mut last: BTreeMap<&str, End> = BTreeMap::new();
        for operation in operations.iter() {
            truth.acquisitions += 1;
            truth.renewals += operation.renewals;
            truth.refused += operation.refused;
            match operation.end {
                End::Released | End::Deleted => truth.releases += 1,
                End::Expired => truth.expirations += 1,
                End::Stolen => truth.stolen += 1,
                End::Open => truth.held += 1,
            }
            if matches!(operation.end, End::Released | End::Deleted | End::Expired) {
                let held = operation.ended.map_or(Duration::ZERO, |ended| ended - operation.acquired);
                truth.hold_seconds += held.as_secs_f64();
            }
            match last.insert(&operation.key, operation.end) {
                Some(End::Released | End::Deleted) => truth.changes_after_release += 1,
                Some(End::Expired) => truth.changes_after_expiry += 1,
                Some(End::Stolen | End::Open) => truth.changes_after_unknown += 1,
                None => {}
            }
        }
        truth
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<RecordedOperation>> {
        self.operations.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Returns a hold and the next hold of the same lock.
fn with_next(operations: &[RecordedOperation], number: usize) -> Option<(&RecordedOperation, &RecordedOperation)> {
    let operation = operations.get(number)?;
    let next = operations[number + 1..].iter().find(|next| next.key == operation.key)?;
    Some((operation, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each lock is separate: holds of another lock are no overlap.
    #[tokio::test(start_paused = true)]
    async fn overlap_and_takeover_of_one_hold() {
        let record = OperationLog::default();
        let second = Duration::from_secs(1);
        let pass = || tokio::time::advance(second);
        let (lost, _) = record.acquired("a");
        pass().await;
        let (after, _) = record.acquired("a");
        record.expired(lost, second);
        pass().await;
        record.let_go(lost);
        assert_eq!((record.overlap(lost), record.takeover(lost)), (second, Some(second)));
        assert_eq!((record.overlap(after), record.takeover(after)), (Duration::ZERO, None));
        let (good, _) = record.acquired("b");
        pass().await;
        record.ended(good, End::Released);
        pass().await;
        record.acquired("b");
        assert_eq!((record.overlap(good), record.takeover(good)), (Duration::ZERO, None));
    }
}
