//! Metrics about the failures that logs report, one for each kind. Each failure is counted once.
//!
//! Names and HELP texts are in `model/failure.rs`. A series that no rule can count is omitted until
//! it is counted once.

use super::{Metric, Numbers, counter};
use crate::model::failure::FailureKind;
use crate::model::label::Label;

pub(super) const METRICS: [Metric; FailureKind::ALL.len()] = {
    let mut metrics = [metric(FailureKind::ALL[0]); FailureKind::ALL.len()];
    let mut index = 1;
    while index < metrics.len() {
        metrics[index] = metric(FailureKind::ALL[index]);
        index += 1;
    }
    metrics
};

const fn metric(kind: FailureKind) -> Metric {
    let info = kind.info();
    counter(info.metric, info.help, Numbers::Failures(kind))
}
