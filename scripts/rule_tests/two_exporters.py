"""Two exporters that watch the same locks, and alerts that resolve."""

from .builders import JOBS, NOT_OWNED, SEEN, case, failed_renewals, lost, released, renewed, usual
from .world import World, clock, counter, gauge


def twins():
    """Two exporters on one Redis, of which the second sees a fifth of what the first sees, for
    example because it was disconnected: the larger number counts. Also two exporters with different
    policies: the larger threshold and the more urgent severity count."""
    def pair(minutes, traffic=20, **more):
        w = World(minutes).exporter().exporter("b:9190").namespace(traffic=traffic, **more)
        return w.namespace(instance="b:9190", logs=False, traffic=traffic / 5, renewals=4, **{k: v for k, v in more.items() if k in ("policy", "style", "config")})

    w = pair(60)
    lost(w, (10, 60, 1.6))
    case("twins", "3.8 % lost: the slow burn alone", w, {20: [], 40: [], 60: ["FailureBudgetBurn/warning lock_namespace=jobs"]})
    w = pair(60)
    lost(w, (10, 15.5, 17))
    case("twins", "30 % lost for 5.5 minutes are not half", w, {15: [], 16: [], 18: []})
    w = pair(60)
    lost(w, *[(10 + 5 * i, 11 + 5 * i, 18) for i in range(6)])
    case("twins", "bursts of 8 % on the whole", w, {33: [], 40: []})
    w = pair(160)
    lost(w, (10, 160, 0.7))
    case("twins", "1.7 % for hours", w, {90: [], 160: []})
    w = pair(60, policy="continue")
    failed_renewals(w, (10, 60, 0.8))
    case("twins", "3.8 % of renewals fail", w, {20: [], 40: [], 60: []})
    w = pair(60, policy="continue")
    failed_renewals(w, (10, 15.5, 8))
    case("twins", "29 % of renewals fail for 5.5 minutes", w, {15: [], 16: [], 18: []})
    w = pair(60)
    failed_renewals(w, (10, 60, 8))
    case("twins", "29 % of renewals fail and work stops", w, {30: ["RenewalFailureRatioHigh/warning lock_namespace=jobs"]})
    w = pair(60, policy="continue")
    failed_renewals(w, *[(10 + 5 * i, 11 + 5 * i, 9) for i in range(6)])
    case("twins", "bursts of 8 % of renewals", w, {33: [], 40: []})
    w = pair(60)
    w.put("redis_lock_unlocked_work_total", counter(60, (10, 60, 0.15)), **JOBS)
    case("twins", "0.8 % of the work is unlocked", w, {30: [], 60: []})
    w = pair(100)
    w.put("redis_lock_owner_changes_total", counter(100, (10, 100, 1.6)), after="expiry", **SEEN)
    case("twins", "8 % change hands by expiry", w, {40: [], 100: []})
    w = pair(100)
    w.put("redis_lock_owner_changes_total", counter(100, (10, 100, 4)), after="expiry", **SEEN)
    w.put("redis_lock_owner_changes_total", counter(100, (10, 100, 0)), after="expiry", **{**SEEN, "instance": "b:9190"})
    case("twins", "one sees a fifth change hands", w, {21: [], 40: ["OwnerChurnHigh/warning lock_namespace=jobs"]})
    w = pair(100)
    w.put("redis_lock_expirations_total", counter(100, (10, 100, 20)), **SEEN)
    case("twins", "one sees half of the locks expire", w, {21: [], 40: ["ExpiryRatioHigh/warning lock_namespace=jobs"]})
    w = pair(100)
    for instance in ("a:9190", "b:9190"):
        w.put("redis_lock_expirations_total", counter(100, (10, 100, 3.5)), **{**SEEN, "instance": instance})
    case("twins", "15 % of the locks expire", w, {40: [], 100: []})
    w = World(50).exporter().exporter("b:9190")
    for instance in ("a:9190", "b:9190"):
        w.namespace(instance=instance, logs=instance == "a:9190", traffic=0, config={"min_failures": 20})
        w.put("redis_lock_expirations_total", counter(50, *[(5 + 2 * i, 5.5 + 2 * i, 1) for i in range(22)]), **{**SEEN, "instance": instance})
    case("twins", "both see the same 15 locks expire in half an hour where min_failures is 20", w, {30: [], 48: []})
    w = pair(110)
    for instance, share in (("a:9190", 1), ("b:9190", 0)):
        w.put("redis_lock_takeovers_total", counter(110, *[(10 + 5 * i, 10.5 + 5 * i, share) for i in range(6)]), within_slo="false", **{**SEEN, "instance": instance})
        w.put("redis_lock_early_releases_total", counter(110, *[(10 + 5 * i, 10.5 + 5 * i, share) for i in range(6)]), **{**SEEN, "instance": instance})
    case("twins", "one sees slow takeovers and early releases", w, {19: [], 45: ["TakeoverSlow/warning lock_namespace=jobs", "ReleasedEarly/warning lock_namespace=jobs"]})
    w = pair(110)
    for instance, share in (("a:9190", 0.6), ("b:9190", 0)):
        w.put("redis_lock_takeovers_total", counter(110, *[(10 + 5 * i, 10.5 + 5 * i, 1) for i in range(12)]), within_slo="false", **{**SEEN, "instance": instance})
        w.put("redis_lock_takeovers_total", counter(110, (0, 110, share * 4)), within_slo="true", **{**SEEN, "instance": instance})
    case("twins", "4 % slow takeovers, of which one sees no others", w, {70: [], 100: []})
    w = pair(110)
    w.put("redis_lock_acquire_failures_total", counter(110, (10, 110, 16)), reason="busy", **JOBS)
    case("twins", "44 % of the attempts find the lock taken", w, {75: [], 110: []})
    w = pair(60)
    w.put("redis_lock_fence_regressions_total", counter(60, (10, 10.5, 1)), **SEEN)
    w.put("redis_lock_fence_regressions_total", counter(60), **{**SEEN, "instance": "b:9190"})
    case("twins", "one sees a fence go backwards", w, {10: [], 11: ["FenceRegression/critical lock_namespace=jobs"]})
    w = pair(60)
    w.put("redis_lock_held", gauge(60, (0, 2)), **{**SEEN, "instance": "b:9190"})
    for instance in ("a:9190", "b:9190"):
        w.put("redis_lock_renewal_overdue", gauge(60, (0, 0), (10, 0.9)), **{**SEEN, "instance": instance})
    case("twins", "9 % overdue, of which one sees few others", w, {30: [], 60: []})

    one, other = {"not_owned_ratio": 0.4, "renewal_failure_ratio": 0.4, "min_failures": 5, "busy_ratio": 0.9, "leader_absent_seconds": 1800, "max_hold_seconds": 3000}, \
        {"not_owned_ratio": 0.01, "renewal_failure_ratio": 0.01, "min_failures": 1, "busy_ratio": 0.1, "leader_absent_seconds": 30, "max_hold_seconds": 60}
    w = World(110).exporter().exporter("b:9190").namespace(config=one, style="loop", policy="continue").namespace(instance="b:9190", config=other, style="loop", policy="continue")
    lost(w, (10, 40, 5))
    failed_renewals(w, (10, 40, 3))
    w.put("redis_lock_acquire_failures_total", counter(110, (10, 110, 60)), reason="busy", **JOBS)
    w.put("redis_lock_last_held_timestamp_seconds", clock(110, (0, None), (10, 10), (35, None)), lock="app:leader", **SEEN)
    w.put("redis_lock_oldest_acquired_timestamp_seconds", clock(110, (0, None), (10, 10), (45, None)), **SEEN)
    case("twins", "two configurations: the larger thresholds count", w, {20: [], 30: [], 40: [], 60: [], 90: [], 110: []})
    w = World(25).exporter().exporter("b:9190").namespace(traffic=0, renewals=0, config={"min_failures": 10}).namespace(instance="b:9190", traffic=0, renewals=0, config={"min_failures": 1})
    lost(w, (10, 13, 1), (15, 17.5, 0.2))
    case("twins", "two configurations: the larger min_failures counts", w, {15: [], 18: [], 20: []})
    w = World(25).exporter().exporter("b:9190").namespace(style="loop", config={"ttl_seconds": 60}).namespace(instance="b:9190", style="loop", logs=False, config={"ttl_seconds": 10})
    w.put("redis_lock_last_held_timestamp_seconds", clock(25, (0, None), (10, 10)), lock="app:leader", **SEEN)
    case("twins", "two configurations: nobody leads for twice the longer TTL and 2 minutes", w, {16: [], 16.5: ["LeaderAbsent/critical lock_namespace=jobs redis=main lock=app:leader"]})
    w = World(30).exporter().exporter("b:9190").namespace(config={"ttl_seconds": 30}).namespace(instance="b:9190", logs=False, config={"ttl_seconds": 10})
    w.put("redis_lock_oldest_acquired_timestamp_seconds", clock(30, (0, None), (10, 10)), **SEEN)
    case("twins", "two configurations: held for 20 times the longer TTL", w, {25: [], 25.5: ["HeldTooLong/warning lock_namespace=jobs redis=main"]})
    w = World(60).exporter().exporter("b:9190").namespace(severity="ticket", policy="fence", strict=0).namespace(instance="b:9190", severity="page", policy="continue", strict=1)
    failed_renewals(w, (10, 60, 8))
    w.put("redis_lock_abandonments_total", counter(60, (10, 10.5, 1)), **JOBS)
    case("twins", "two configurations: the louder policy counts", w, {11: ["AbandonedEvent/warning lock_namespace=jobs", "Abandoned/critical lock_namespace=jobs"], 40: ["RenewalFailureRatioHigh/critical lock_namespace=jobs"]})

    w = World(20).exporter().exporter("b:9190").namespace().namespace(instance="b:9190", severity="ticket")
    lost(w, (10, 20, 40))
    case("twins", "two configurations: a page, and no ticket beside it", w, {14: [], 16: [NOT_OWNED]})

    # Tickets resolve like pages.
    w = usual(60, severity="ticket")
    lost(w, (10, 25, 40))
    released(w, (0, 10, 20), (25, 60, 20))
    renewed(w, (0, 10, 20), (25, 60, 20))
    ticket = "NotOwnedRatioHigh/warning lock_namespace=jobs"
    case("twins", "a ticket resolves", w, {14.5: [], 15: [ticket], 36: [ticket], 44: [ticket], 46: []})
    w = usual(60, severity="ticket")
    failed_renewals(w, (10, 25, 20))
    renewed(w, (0, 10, 20), (25, 60, 20))
    ticket = "RenewalFailureRatioHigh/warning lock_namespace=jobs"
    case("twins", "a ticket about renewals resolves", w, {14.5: [], 15: [ticket], 44: [ticket], 46: []})
    w = usual(60, severity="ticket")
    w.put("redis_lock_unlocked_work_total", counter(60, (10, 25, 10)), **JOBS)
    ticket = "UnlockedWork/warning lock_namespace=jobs"
    case("twins", "a ticket about unlocked work resolves", w, {17: [], 18: [ticket], 35: [ticket], 38: [ticket], 43: []})
    w = usual(60, severity="ticket", traffic=2)
    w.put("redis_lock_abandonments_total", counter(60, (10, 30, 1)), **JOBS)
    event, ticket = "AbandonedEvent/warning lock_namespace=jobs", "Abandoned/warning lock_namespace=jobs"
    case("twins", "a ticket about abandonments resolves", w, {18.5: [event], 19.5: [event, ticket], 44: [event, ticket], 52: []})
    w = World(130).exporter(redis=False).namespace(redis=None, severity="ticket")
    lost(w, (70, 90, 2))
    ticket = "NotOwnedRateHigh/warning lock_namespace=jobs"
    case("twins", "a ticket about the rate resolves", w, {90: [ticket], 108: [ticket], 115: []})
