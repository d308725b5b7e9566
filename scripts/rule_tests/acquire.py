"""RedisLockAcquireFailing: attempts to take a lock fail although the lock is free."""

from .builders import JOBS, SEEN, case, usual
from .world import World, counter


def acquire():
    page, ticket = "AcquireFailing/critical lock_namespace=jobs", "AcquireFailing/warning lock_namespace=jobs"

    def fail(world, *segments, reason="redis_unavailable", **labels):
        world.put("redis_lock_acquire_failures_total", counter(world.minutes, *segments), reason=reason, **{**JOBS, **labels})

    def acquired(world, *segments, **labels):
        world.put("redis_lock_acquisitions_total", counter(world.minutes, *segments), **{**SEEN, **labels})

    for severity, alert in (("page", page), ("ticket", ticket)):
        w = usual(60, severity=severity)
        fail(w, (10, 25, 20))
        acquired(w, (0, 10, 20), (25, 60, 20))
        more = [ticket] if severity == "page" else []
        # 15 slices at 17.5. After the end at 25, half of the attempts of 10 minutes count as failed
        # until 30, and 15 slices are left until 29.5. keep_firing_for adds 10.
        case("acquire", f"{severity}: nobody gets a lock: after 7.5 minutes, and it resolves", w, {17: [], 18: [alert], 28: [alert], 38: [alert], 41: [], 60: []})
        w = usual(40, severity=severity)
        fail(w, (10, 40, 10))
        case("acquire", f"{severity}: a third fails: a ticket", w, {17: [], 18: [ticket], 40: [ticket]})
    # Half of the attempts of 10 minutes is reached when the failures have lasted for 10 minutes.
    for share, alert in ((19, ticket), (20, page)):
        w = usual(40)
        fail(w, (5, 40, share))
        case("acquire", f"{share / (20 + share):.1%} fail, a page needs half", w, {12: [], 14: [ticket], 28: [alert], 40: [alert]})
    for share, fires in ((1, False), (1.125, True)):
        w = usual(45)
        fail(w, (10, 45, share))
        case("acquire", f"{share / (20 + share):.2%} fail, the threshold is 5 %", w, {17: [], 25: [ticket] if fires else [], 45: [ticket] if fires else []})
    w = usual(40, config={"renewal_failure_ratio": 0.4})
    fail(w, (10, 40, 10))
    w.namespace("strictly", config={"renewal_failure_ratio": 0.01})
    fail(w, (10, 40, 0.5), lock_namespace="strictly")
    case("acquire", "thresholds of the configuration: 33 % of 40 % allowed, 2.4 % of 1 %", w, {17: [], 20: ["AcquireFailing/warning lock_namespace=strictly"], 40: ["AcquireFailing/warning lock_namespace=strictly"]})
    for reason in ("busy", "canceled"):
        w = usual(35)
        fail(w, (10, 35, 100), reason=reason)
        case("acquire", f"{reason} is no failure", w, {18: [], 25: [], 35: []})
    w = usual(40)
    fail(w, (10, 40, 10), reason="denied")
    fail(w, (10, 40, 15), reason="failover")
    case("acquire", "all other reasons are added up", w, {17: [], 18: [page, ticket], 26: [page, ticket, "AccessDenied/warning lock_namespace=jobs"]})
    # Little traffic: the fifth failure within 10 minutes decides.
    for failures, fires in ((4, False), (6, True)):
        w = usual(40, traffic=0)
        fail(w, *[(10 + 2 * i, 10.5 + 2 * i, 1) for i in range(failures)])
        case("acquire", f"nothing else happens: {failures} failures", w, {17: [], 20: [page] if fires else [], 22: [page] if fires else []})
    w = usual(40, traffic=0, config={"min_failures": 2})
    fail(w, *[(10 + 1.5 * i, 10.5 + 1.5 * i, 0.6) for i in range(6)])
    case("acquire", "nothing else happens: 4 failures where 2 are enough", w, {15: [], 18.5: [page]})
    w = usual(40)
    fail(w, (10, 15, 10))
    case("acquire", "five minutes are no alert", w, {17: [], 18: [], 20: [], 30: []})
    w = usual(40)
    fail(w, (10, 12, 2000))
    acquired(w, (0, 10, 20), (12, 40, 20))
    case("acquire", "a failover of 120 s with a retry storm", w, {m: [] for m in (11, 13, 15, 17, 18, 20, 22, 30)})
    w = usual(40)
    fail(w, (10, 13, 10), (22, 25, 10))
    case("acquire", "a third for 3 minutes, twice in 15", w, {15: [], 25.5: [], 27: []})
    for what, world in (("only logs", World(40).exporter(redis=False).namespace(redis=None)), ("passes only", usual(40, source="scan"))):
        fail(world, (10, 40, 20))
        case("acquire", f"{what}: how many went well is not seen, and no past for the rate", world, {20: [], 40: []})
    # Slices of 2 minutes and the share of 10 minutes, each from both sides.
    w = usual(40)
    fail(w, (10, 13, 10), (13, 40, 0.9))
    case("acquire", "a third for 3 minutes, then 4.3 %", w, {18: [], 20: [], 22: []})
    for where, times, other in (("one Redis", 1, None), ("two Redis", 2, {"redis": "second"}), ("a twin that sees a fifth", 1, {"traffic": 4})):
        w = usual(40, config={"min_failures": 1})
        if other:
            w.exporter("b:9190", logs=False).namespace(instance="b:9190", logs=False, **other)
        fail(w, *[(10 + 2.5 * i, 10.5 + 2.5 * i, 4.6 * times) for i in range(12)])
        case("acquire", f"{where}: 5.4 % of most slices, 4.4 % on the whole", w, {20: [], 25: [], 38: []})
        w = usual(40, config={"min_failures": 1})
        if other:
            w.exporter("b:9190", logs=False).namespace(instance="b:9190", logs=False, **other)
        fail(w, (10, 40, 0.9 * times))
        case("acquire", f"{where}: 4.3 % fail", w, {20: [], 30: [], 40: []})
        w = usual(32)
        if other:
            w.exporter("b:9190", logs=False).namespace(instance="b:9190", logs=False, **other)
        fail(w, (10, 32, 0.9 * times), *[(12 + 10 * i, 12.5 + 10 * i, 30 * times) for i in range(2)])
        case("acquire", f"{where}: too much on the whole, not in most slices", w, {22: [], 24: [], 31: []})
    # A busy lock increases neither the slices nor the share of 10 minutes, whatever else fails.
    for name, segments in (("a spike every 10 minutes", [(12 + 10 * i, 12.5 + 10 * i, 30) for i in range(3)]), ("4.4 % on the whole", [(10 + 2.5 * i, 10.5 + 2.5 * i, 4.6) for i in range(12)])):
        w = usual(40)
        fail(w, *segments)
        fail(w, (10, 40, 5), reason="busy")
        case("acquire", f"busy beside {name}", w, {24: [], 31: [], 38: []})
    w = usual(25, traffic=0, config={"min_failures": 0.1})
    fail(w, (10, 25, 1 / 32))
    case("acquire", "hardly anything, and it fails", w, {16: [], 20: [page]})
    w = World(40).exporter().exporter("b:9190").namespace().namespace(instance="b:9190")
    for instance in ("a:9190", "b:9190"):
        fail(w, (10, 40, 0.7), instance=instance)
    case("acquire", "two exporters: logs are added up, the keyspace is not", w, {17: [], 25: [ticket]})
    w = usual(30, config={"min_failures": 1})
    acquired(w, (0, 10, 20), (10, 30, 6))
    fail(w, (10, 30, 0.5))
    # From 12 on, the window of 2 minutes contains only the new traffic, so the fifteenth slice is
    # at 18.
    case("acquire", "7.7 % fail after traffic fell", w, {16.5: [], 22: [ticket]})
