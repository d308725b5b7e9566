"""The three conditions under which a ratio counts as sustained: most operations fail (quick), a
steady share fails (steady), or failures come in bursts (recurrent).

The ratio of lost locks and the ratio of failed renewals share these conditions, so both run through
the same cases."""

from .builders import NOT_OWNED, case, failed_renewals, lost, released, renewed, usual
from .world import World


def tiers(file, page, fail, succeed, **more):
    """The three conditions, each number from both sides, for a ratio whose successes are 40 (lost
    locks) or 20 (renewals) every 30 s.

    `fail` and `succeed` are functions. They set the failures of a world, and all of its successes
    in equal parts."""
    full = 40 if succeed is operations else 20

    def pair(minutes, **config):
        w = World(minutes).exporter().exporter("b:9190").namespace(**more, traffic=0, renewals=0, config=config)
        return w.namespace(**more, instance="b:9190", traffic=0, renewals=0, config=config)

    def bursts(begin, every, number, amount, length=1):
        return [(begin + every * i, begin + every * i + length, amount) for i in range(number)]

    # Failures are added over exporters: each sees half, and half is too few. One condition after
    # the other.
    w = pair(20, min_failures=8)
    fail(w, *bursts(10, 1, 8, 1, 0.5))
    fail(w, *bursts(10.5, 1, 8, 1, 0.5), instance="b:9190")
    case(file, "two exporters see half of the failures each: everything fails", w, {14: [], 16: [page]})
    w = pair(25, min_failures=8)
    succeed(w, (0, 25, 1))
    fail(w, *bursts(10, 2, 8, 1, 0.5))
    fail(w, *bursts(11, 2, 8, 1, 0.5), instance="b:9190")
    case(file, "two exporters see half of the failures each: a third fails", w, {17: [], 19: [page]})
    w = pair(40, min_failures=8)
    fail(w, *bursts(10, 10, 3, 1))
    fail(w, *bursts(15, 10, 3, 1), instance="b:9190")
    case(file, "two exporters see half of the failures each: bursts", w, {25: [], 34: [page]})

    # Almost no operations: less than one operation in the window still gives a ratio.
    w = usual(20, **more, traffic=0, renewals=0, config={"min_failures": 0.1})
    fail(w, (10, 20, 1 / 32))
    case(file, "hardly anything, and it fails", w, {14: [], 15.5: [page]})
    w = usual(40, **more, traffic=0, renewals=0, config={"min_failures": 0.05})
    fail(w, *bursts(10, 5, 6, 1 / 32))
    case(file, "hardly anything, and it fails in bursts", w, {25: [], 34: [page]})

    # The quick condition uses 5 minutes. Here are ten slices, but five failures only within 10
    # minutes.
    w = usual(25, **more, traffic=0, renewals=0)
    fail(w, (10, 10.5, 3), *bursts(15, 2, 3, 1.3, 0.5))
    case(file, "five failures in 10 minutes, four in the last 5", w, {18: [], 19.5: [], 20: []})
    # Earlier successes do not count: failures come at half of the former rate, and nothing
    # succeeds.
    for part in [released, renewed] if succeed is operations else [renewed]:
        w = usual(20, **more, traffic=0, renewals=0)
        part(w, (0, 10, 20))
        fail(w, (10, 20, 7.5))
        case(file, f"nothing is {part.__name__} from now on", w, {14: [], 15: [page]})
    # 7 of 27 for 2.5 minutes, then all: 41 % of 5 minutes, or 47 % if a range excludes its first
    # sample (Prometheus 3).
    w = usual(20, **more)
    fail(w, (10, 20, full * 7 / 20))
    succeed(w, (0, 13, full))
    case(file, "41 % of 5 minutes fail", w, {15: [], 15.5: []})
    w = usual(20, **more)
    fail(w, (10, 15.5, full))
    case(file, "exactly half fails for 5.5 minutes", w, {14.5: [], 15.5: [page]})
    w = usual(25, **more)
    fail(w, (10, 11, 20 * full), (16, 18, 20 * full))
    case(file, "two failovers within 6 minutes", w, {17: [], 18: [], 18.5: [], 19: [], 20: [], 22: []})

    # The steady condition uses 10 minutes, not twice and not half of that.
    w = usual(30, **more)
    fail(w, (10, 13, full * 0.3), (22, 25, full * 0.3))
    case(file, "23 percent fail for 3 minutes, twice in 15", w, {15: [], 25.5: [], 26: [], 27: []})
    w = usual(25, **more)
    succeed(w, (0, 10, full), (10, 25, full * 0.3))
    fail(w, (10, 25, full / 40))
    case(file, "8 percent fail after traffic fell", w, {17: [], 21.5: [page]})
    # What exporters see: one Redis; two Redis, whose successes are added; two exporters on one
    # Redis, of which the larger number counts.
    second = {"instance": "b:9190", "logs": False, **more}
    for where, times, other in (("one Redis", 1, None), ("two Redis", 2, {"redis": "second"}), ("a twin that sees a fifth", 1, {"traffic": 4, "renewals": 4})):
        def watched(minutes):
            w = usual(minutes, **more)
            return w.exporter("b:9190", logs=False).namespace(**second, **other) if other else w

        # A spike every 2.5 minutes: 5.3 % of most slices, 4.3 % of the long window.
        w = watched(45)
        fail(w, *bursts(10, 2.5, 12, times * full * 9 / 40, 0.5))
        case(file, f"{where}: a little too much in most slices, not on the whole", w, {20: [], 25: [], 40: []})
        w = watched(75)
        fail(w, *bursts(10, 5, 12, times * full * 0.45))
        case(file, f"{where}: bursts of 8 % on the whole for an hour", w, {45: [], 60: [], 68: []})
        w = watched(20)
        fail(w, (10, 15.5, times * full * 0.75))
        case(file, f"{where}: 43 % fail for 5.5 minutes", w, {15.5: [], 17: []})
        # A spike every 10 minutes raises the long window to 10 %. The slices between the spikes
        # have 4.3 %.
        w = watched(32)
        fail(w, (10, 32, times * full * 0.045), *bursts(12, 10, 2, times * full * 1.5, 0.5))
        case(file, f"{where}: too much on the whole, not in most slices", w, {22: [], 24: [], 31: []})

    # The recurrent condition uses 30 minutes.
    w = usual(75, **more)
    fail(w, *bursts(40, 5, 7, full * 0.75))
    case(file, "bursts of 13 % on the whole, after 40 quiet minutes", w, {58: [], 67: [page]})
    w = usual(75, **more)
    fail(w, *bursts(10, 10, 6, 20 * full))
    case(file, "bursts of 60 s every 10 minutes", w, {35: [], 45: [], 62: [], 65: []})
    # After the incident there is one more bad slice with no other operations, so the incident is
    # not over yet.
    w = usual(60, **more)
    succeed(w, (0, 34, full), (36.5, 60, 20 * full))
    fail(w, (10, 20, full), (36, 36.5, 1))
    case(file, "a single bad slice after an incident", w, {32: [page], 46: [page], 58: []})
    # Single failures afterwards make no bad slices: the last bad slice is at 27.
    w = usual(60, **more)
    succeed(w, (0, 10, full), (25, 60, full))
    fail(w, (10, 25, full), (25, 60, full / 160))
    case(file, "strays after an incident do not prolong it", w, {36: [page], 45: [page], 48.5: [], 55: []})


def operations(world, *segments):
    """Releases and renewals, in equal parts."""
    half = [(begin, end, amount / 2) for begin, end, amount in segments]
    released(world, *half)
    renewed(world, *half)


def not_owned_tiers():
    tiers("not_owned", NOT_OWNED, lost, operations)


def renewal_tiers():
    tiers("renewal", "RenewalFailureRatioHigh/critical lock_namespace=jobs", failed_renewals, renewed, policy="continue")
