"""Failures compared with their own past, for lock namespaces whose successes are not visible: lost
locks, failed renewals, failed acquisitions."""

from .builders import JOBS, case, failed_acquisitions, failed_renewals, lost, usual
from .world import World, gauge

# For lock namespaces without a denominator: what fails, its alert, how much of it is acceptable if
# all changes are visible, and whether bursts add up.
RATES = (
    ("not_owned_rate", lost, "NotOwnedRateHigh", 1.8, True, {}),
    ("renewal_rate", failed_renewals, "RenewalFailureRatioHigh", 0.9, True, {"policy": "continue"}),
    ("acquire_rate", failed_acquisitions, "AcquireFailing", 0.9, False, {}),
)


def rates():
    for args in RATES:
        rate(*args)
        rate_limits(*args)


def rate(file, fail, name, fine, bursts, policy):
    alert = f"{name}/critical lock_namespace=jobs"

    def logs_only(minutes, **more):
        return World(minutes).exporter(redis=False).namespace(redis=None, **policy, **more)

    w = logs_only(130)
    fail(w, (70, 130, 2))
    # 40 in 10 minutes; the floor is 10. Slices are bad from the second failure on.
    case(file, "only logs: 4 a minute after a quiet hour", w, {77: [], 79.5: [alert], 130: [alert]})
    w = logs_only(130)
    fail(w, (70, 90, 2))
    case(file, "only logs: resolves after the end", w, {90: [alert], 108: [alert], 115: []} if bursts else {90: [alert], 102: [alert], 106: []})
    w = logs_only(130)
    fail(w, *[(70 + i, 70.5 + i, 0.9) for i in range(60)])
    case(file, "only logs: 9 in 10 minutes are below the floor", w, {80: [], 100: [], 130: []})
    w = logs_only(130)
    fail(w, (70, 130, 0.65))
    case(file, "only logs: 13 in 10 minutes are above it", w, {77: [], 85: [alert]})
    w = logs_only(130, config={"min_failures": 20})
    fail(w, (70, 130, 1.6))
    case(file, "only logs: 32 in 10 minutes where min_failures is 20", w, {80: [], 130: []})
    w = logs_only(130, severity="ticket")
    fail(w, (70, 130, 2))
    case(file, "only logs: a namespace for tickets", w, {77: [], 79.5: [f"{name}/warning lock_namespace=jobs"]})
    w = logs_only(60)
    fail(w, (0, 60, 20))
    case(file, "only logs: no past, no alert", w, {30: [], 60: []})
    # Three times its own past: 40 in 10 minutes is usual, 100 is less than three times that, 150 is
    # more.
    for now, fires in ((5, False), (7.5, True)):
        w = logs_only(140)
        fail(w, (0, 100, 2), (100, 140, now))
        case(file, f"only logs: from 40 to {now * 20:.0f} in 10 minutes", w, {99: [], 107: [], 112: [alert] if fires else [], 140: [alert] if fires else []})
    for length in (1, 2):
        w = logs_only(130)
        fail(w, (70, 70 + length, 800))
        case(file, f"only logs: a failover of {length * 60} s", w, {m: [] for m in (71, 73, 75, 80, 100)})
    w = logs_only(150)
    fail(w, *[(70 + 5 * i, 71 + 5 * i, 30) for i in range(8)])
    case(file, "only logs: bursts of 60 s every 5 minutes", w, {82: [], 85: [], 97: [alert] if bursts else [], 105: [alert] if bursts else [], 135: []})
    # The same slices with too few failures for three times the limit of 10 minutes: 8 every 5
    # minutes are 48 in 30.
    for size, fires in ((2.0, False), (3.4, True)):
        w = logs_only(150)
        fail(w, *[(70 + 5 * i, 71 + 5 * i, size) for i in range(12)])
        case(file, f"only logs: bursts of {2 * size:.1f} every 5 minutes", w, {90: [], 102: [alert] if fires and bursts else [], 120: [alert] if fires and bursts else []})
    w = usual(110, **policy)
    fail(w, (70, 130, fine))
    case(file, "with all changes seen the ratio decides, and 4.3 % is fine", w, {80: [], 90: []})
    w = usual(110, source="scan", **policy)
    fail(w, (70, 130, 2))
    case(file, "passes only: the rate decides", w, {77: [], 79.5: [alert]})
    # The usual level is the median: failures in less than half of the past are not usual.
    w = logs_only(160)
    fail(w, (0, 20, 8), (120, 160, 2))
    case(file, "only logs: 20 minutes of trouble in the past is not the usual", w, {115: [], 132: [alert]})


def rate_limits(file, fail, name, fine, bursts, policy):
    """The usual level and the floor, from both sides."""
    alert = f"{name}/critical lock_namespace=jobs"

    def logs_only(what, minutes, *segments, firing, into=file):
        w = World(minutes).exporter(redis=False).namespace(redis=None, **policy)
        fail(w, *segments)
        case(into, f"only logs: {what}", w, firing)

    # In steps of 1/64 every 30 s. Three times 4.1 is 12.2 and counts, three times 2.8 is less than
    # the floor of 10.
    logs_only("from 4 to 11 in 10 minutes", 100, (0, 70, 13 / 64), (70, 100, 35 / 64), firing={85: [], 98: []})
    logs_only("from 2.8 to 9 in 10 minutes", 100, (0, 70, 9 / 64), (70, 100, 29 / 64), firing={85: [], 98: []})
    logs_only("the past of two hours was mostly bad", 145, (0, 60, 2), (120, 145, 2), firing={132: [], 142: []})
    # A few minutes are not enough past: they happen to be quiet, and contain less than 10 minutes
    # to count in.
    logs_only("40 in 10 minutes, but for the first 8 minutes of all", 120, (8, 120, 2), firing={62: [], 69: [], 75: [], 90: [], 119: []})
    # A past needs half an hour, and the last half hour does not belong to it. So slices are bad
    # from minute 60 on.
    logs_only("the first hour is quiet", 75, (35, 75, 2), firing={50: [], 59: [], 66: [], 68: [alert]})
    # If the failures last as long as a young past was quiet, they are usual from then on.
    logs_only("trouble that lasts as long as the past", 230, (70, 230, 2), firing={80: [alert], 180: [alert], 205: [], 229: []})
    logs_only("20 at once, then 6 in 10 minutes", 85, (70, 71, 10), (71, 85, 0.3), firing={78: [], 79.5: []})
    logs_only("3 minutes, twice in 15", 90, (70, 73, 10), (82, 85, 10), firing={75: [], 85.5: [], 87: []})
    logs_only("bursts of 60 s every 10 minutes", 125, *[(70 + 10 * i, 71 + 10 * i, 30) for i in range(6)], firing={95: [], 105: [], 122: []})
    logs_only("bursts that are enough for an hour, not for half of it", 135, *[(70 + 5 * i, 71 + 5 * i, 2) for i in range(13)], firing={110: [], 132: []})
    # The past is one day: 6.75 of 13 hours are more than half, and 12 of 24 hours are not quite
    # half.
    logs_only("more than half of the last 13 hours was bad", 842, (0, 405, 2), (832, 842, 2), firing={840: [], 841.5: []}, into="past")
    logs_only("more than half of the last 25 hours was bad, less than half of a day", 1572, (0, 765, 2), (1561, 1572, 2), firing={1565: [], 1571: [alert]}, into="past")
    logs_only("strays after an incident do not prolong it", 120, (70, 90, 5), (90, 120, 0.1), firing={100: [alert], 109: [alert] if bursts else [], 114: [], 118: []})
    # One more bad slice prolongs it: the slice at 100.5, because the floor is far higher in the
    # following minutes.
    w = World(125).exporter(redis=False).namespace(redis=None, **policy)
    fail(w, (70, 90, 5), (100, 100.5, 6))
    w.put("redis_lock_config_min_failures", gauge(125, (0, 5), (101, 1000), (104, 5)), **JOBS)
    case(file, "only logs: a single bad slice after an incident", w, {95: [alert], 115: [alert] if bursts else [], 123: []})
    for severity in ("critical", "warning"):
        w = World(90).exporter(redis=False).namespace(redis=None, severity="page" if severity == "critical" else "ticket", config={"min_failures": 0.2}, **policy)
        fail(w, (70, 90, 3 / 64))
        case(file, f"only logs: {severity} for hardly any, where that is enough", w, {77: [], 85: [f"{name}/{severity} lock_namespace=jobs"]})
    # Failures are added over exporters, each of which sees too few.
    w = World(90).exporter(redis=False).exporter("b:9190", redis=False).namespace(redis=None, **policy).namespace(instance="b:9190", redis=None, **policy)
    for instance in ("a:9190", "b:9190"):
        fail(w, (70, 90, 0.4), instance=instance)
    case(file, "only logs: two exporters see 8 in 10 minutes each", w, {77: [], 85: [alert]})


def rates_beside():
    """What is not a failure, and whether the alert pages."""
    w = World(100).exporter(redis=False).namespace(redis=None)
    failed_renewals(w, (70, 100, 20))
    case("renewal_rate", "only logs: work that stops itself is a ticket", w, {77: [], 80: ["RenewalFailureRatioHigh/warning lock_namespace=jobs"]})
    w = World(100).exporter(redis=False).namespace(redis=None, policy="continue")
    failed_renewals(w, (70, 100, 20), reason="canceled")
    for reason in ("busy", "canceled"):
        failed_acquisitions(w, (70, 100, 20), reason=reason)
    case("renewal_rate", "only logs: what is broken off or taken is no failure", w, {80: [], 90: [], 100: []})
    # Redis is unavailable and everything is retried: 60 to 120 s do not page, 30 minutes do.
    for minutes in (1, 1.5, 2, 30):
        w = World(110).exporter(redis=False).namespace(redis=None, policy="continue")
        for fail in (failed_renewals, failed_acquisitions):
            fail(w, (70, 70 + minutes, 2000))
        fires = ["AcquireFailing/critical lock_namespace=jobs", "RenewalFailureRatioHigh/critical lock_namespace=jobs"] if minutes == 30 else []
        case("renewal_rate", f"only logs: Redis is away for {minutes * 60:.0f} s", w, {71: [], 73: [], 76: [], 78.5: fires, 85: fires, 100: fires})
    # Two kinds of failures that do not add up: ten slices of one and ten of the other.
    w = World(110).exporter(redis=False).namespace(redis=None, policy="continue")
    failed_renewals(w, (70, 72, 2000), (85, 87, 2000))
    failed_acquisitions(w, (70, 72, 2000), (85, 87, 2000))
    case("renewal_rate", "only logs: two failovers of 120 s within half an hour", w, {m: [] for m in (72, 75, 80, 87, 88, 90, 95, 100)})
