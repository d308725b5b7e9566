//! The latest incidents: reported losses with their causes.
//!
//! `ledger::keyspace_updates` adds them, and `ledger::queries` lists them for the API.
//! `ledger::memory` saves the latest.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{Explanation, Loss};

const CAPACITY: usize = 1000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::ledger) struct Incident {
    pub(in crate::ledger) loss: Loss,
    pub(in crate::ledger) finding: Explanation,
}

#[derive(Default)]
pub(in crate::ledger) struct IncidentLog(VecDeque<Incident>);

impl IncidentLog {
    pub(in crate::ledger) fn remember(&mut self, incident: Incident) {
        if self.0.len() == CAPACITY {
            self.0.pop_front();
        }
        self.0.push_back(incident);
    }

    pub(in crate::ledger) fn retain_mut(&mut self, keep: impl FnMut(&mut Incident) -> bool) {
        self.0.retain_mut(keep);
    }

    /// The latest first.
    pub(in crate::ledger) fn iter(&self) -> impl Iterator<Item = &Incident> {
        self.0.iter().rev()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::failure::Operation;
    use crate::model::log_event::RuleId;
    use crate::model::namespace::NamespaceId;

    #[test]
    fn the_oldest_is_forgotten() {
        let mut incidents = IncidentLog::default();
        for at in 0..CAPACITY as i64 + 5 {
            let (namespace, operation, rule) = (NamespaceId(0), Operation::Renew, RuleId(0));
            let loss = Loss { at, namespace, lock: None, operation, rule };
            incidents.remember(Incident { loss, finding: Explanation::NOTHING });
        }
        assert_eq!(incidents.iter().count(), CAPACITY);
        assert_eq!(incidents.iter().next().map(|incident| incident.loss.at), Some(CAPACITY as i64 + 4));
    }
}
