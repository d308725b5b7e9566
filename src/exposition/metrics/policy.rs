//! Metrics about the configuration, so that one static rule file serves every configuration. The
//! metric names show that the values are configured, so HELP does not repeat it.

use super::{Metric, Numbers, flag, gauge, info, real, seconds, whole};

pub(super) const METRICS: &[Metric] = &[
    info("redis_lock_namespace_info", "A configured lock namespace and its policy.", Numbers::Policy),
    gauge(
        "redis_lock_config_ttl_seconds",
        "Configured TTL of the locks.",
        Numbers::Namespace(|view| seconds(view.namespace.ttl)),
    ),
    gauge(
        "redis_lock_config_renew_interval_seconds",
        "Time between two renewals of a lock.",
        Numbers::Namespace(|view| seconds(view.namespace.renew_every)),
    ),
    gauge(
        "redis_lock_config_takeover_slo_seconds",
        "Time in which an expired lock should have a new owner.",
        Numbers::Namespace(|view| seconds(view.namespace.takeover_slo)),
    ),
    gauge(
        "redis_lock_config_renewal_failure_budget",
        "Consecutive failed renewals before a holder gives up.",
        Numbers::Namespace(|view| view.namespace.renewal_failure_budget.and_then(whole)),
    ),
    gauge(
        "redis_lock_config_max_hold_seconds",
        "Longest time a lock should be held.",
        Numbers::Namespace(|view| seconds(view.namespace.thresholds.max_hold)),
    ),
    gauge(
        "redis_lock_config_leader_absent_seconds",
        "How long nobody may hold a leader's lock.",
        Numbers::Namespace(|view| seconds(view.namespace.thresholds.leader_absent)),
    ),
    gauge(
        "redis_lock_config_not_owned_ratio",
        "Limit for the share of lost locks.",
        Numbers::Namespace(|view| real(view.namespace.thresholds.not_owned_ratio)),
    ),
    gauge(
        "redis_lock_config_renewal_failure_ratio",
        "Limit for the share of failed renewals.",
        Numbers::Namespace(|view| real(view.namespace.thresholds.renewal_failure_ratio)),
    ),
    gauge(
        "redis_lock_config_min_failures",
        "Fewer failures than this do not alert, whatever the ratio.",
        Numbers::Namespace(|view| view.namespace.thresholds.min_failures.and_then(whole)),
    ),
    gauge(
        "redis_lock_config_busy_ratio",
        "Limit for the share of attempts that find the lock busy.",
        Numbers::Namespace(|view| real(view.namespace.thresholds.busy_ratio)),
    ),
    gauge(
        "redis_lock_config_strict",
        "1 if the first abandonment should page.",
        Numbers::Namespace(|view| flag(view.namespace.thresholds.strict)),
    ),
];
