//! The numbers of one lock namespace. They only ever grow, and they are what the state file keeps.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::event::{ConflictKind, Label, Operation, Reason};

/// One counter for each value of a label. Saved by label value, so that the order of the enum may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally<L> {
    counts: Vec<u64>,
    label: PhantomData<L>,
}

impl<L: Label> Tally<L> {
    pub fn increment(&mut self, label: L) {
        self.counts[label.index()] += 1;
    }

    pub fn get(&self, label: L) -> u64 {
        self.counts[label.index()]
    }

    /// Every label value with its count, zeros included.
    pub fn iter(&self) -> impl Iterator<Item = (L, u64)> + '_ {
        L::ALL.iter().copied().zip(self.counts.iter().copied())
    }
}

impl<L: Label> Default for Tally<L> {
    fn default() -> Self {
        Self { counts: vec![0; L::ALL.len()], label: PhantomData }
    }
}

impl<L: Label> Serialize for Tally<L> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let nonzero = self.iter().filter(|(_, count)| *count > 0);
        serializer.collect_map(nonzero.map(|(label, count)| (label.as_str(), count)))
    }
}

impl<'de, L: Label> Deserialize<'de> for Tally<L> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let saved = BTreeMap::<String, u64>::deserialize(deserializer)?;
        let mut tally = Self::default();
        for (text, count) in saved {
            let label =
                L::parse(&text).ok_or_else(|| serde::de::Error::custom(format!("unknown label value {text:?}")))?;
            tally.counts[label.index()] = count;
        }
        Ok(tally)
    }
}

/// What the logs said about one namespace, each failure counted once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogCounters {
    pub not_owned: Tally<Operation>,
    pub renewal_failures: Tally<Reason>,
    pub release_failures: Tally<Reason>,
    pub acquire_failures: Tally<Reason>,
    pub abandonments: u64,
    pub unlocked_work: u64,
    pub conflicting_writes: Tally<ConflictKind>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_is_saved_by_label_value_without_zeros() {
        let mut tally = Tally::<Reason>::default();
        tally.increment(Reason::NotOwned);
        tally.increment(Reason::Other);
        tally.increment(Reason::Other);
        let saved = serde_json::to_string(&tally).unwrap();
        assert_eq!(saved, r#"{"not_owned":1,"other":2}"#);
        assert_eq!(serde_json::from_str::<Tally<Reason>>(&saved).unwrap(), tally);
        assert_eq!(tally.iter().count(), Reason::ALL.len(), "zeros are shown");
        assert_eq!(serde_json::from_str::<Tally<Reason>>("{}").unwrap(), Tally::default());
    }

    #[test]
    fn a_tally_refuses_what_it_would_lose() {
        for bad in [r#"{"nothing":1}"#, r#"{"other":-1}"#, r#"{"other":1.5}"#, "[]", "null"] {
            assert!(serde_json::from_str::<Tally<Reason>>(bad).is_err(), "{bad}");
        }
        assert!(serde_json::from_str::<LogCounters>(r#"{"lost":1}"#).is_err());
        assert_eq!(serde_json::from_str::<LogCounters>("{}").unwrap(), LogCounters::default());
    }
}
