"""The cases of alerts/tests/*.yml, which scripts/make_rule_tests.py writes. Each times are minutes; traffic is every 30 s.

With nothing else said a namespace has 20 acquisitions and releases and 20 renewals every 30 s, so 40 operations that can find a lock lost."""

from rule_texts import TEXTS
from rule_world import Case, World, clock, counter, gauge, growth, parse_alert

CASES = []


def case(file, name, world, firing, **more):
    CASES.append(Case(file, name, world, firing, **more))


def usual(minutes, **more):
    return World(minutes).exporter().namespace(**more)


JOBS = {"lock_namespace": "jobs", "instance": "a:9190", "job": "locks"}
SEEN = {"redis": "main", **JOBS}
OWN = {"instance": "a:9190", "job": "locks"}
SOURCE = {"source": "/var/log/app.log", **OWN}


def lost(world, *segments, **labels):
    """Lost locks in these segments; what is lost is not released."""
    world.put("redis_lock_not_owned_total", counter(world.minutes, *segments), operation="release", **{**JOBS, **labels})


def released(world, *segments, **labels):
    world.put("redis_lock_releases_total", counter(world.minutes, *segments), **{**SEEN, **labels})


def renewed(world, *segments, **labels):
    world.put("redis_lock_renewals_total", counter(world.minutes, *segments), **{**SEEN, **labels})


def failed_renewals(world, *segments, reason="redis_unavailable", **labels):
    world.put("redis_lock_renewal_failures_total", counter(world.minutes, *segments), reason=reason, **{**JOBS, **labels})


def failed_acquisitions(world, *segments, reason="redis_unavailable", **labels):
    world.put("redis_lock_acquire_failures_total", counter(world.minutes, *segments), reason=reason, **{**JOBS, **labels})


def reached(world, values, **labels):
    """Whether all of Redis is connected, where it has one primary."""
    world.put("redis_lock_exporter_redis_up", values, **labels)
    world.put("redis_lock_exporter_redis_nodes_up", values, **labels)


# ---------------------------------------------------------------------------------------------------------------- not_owned
NOT_OWNED = "NotOwnedRatioHigh/critical lock_namespace=jobs"


def not_owned():
    w = usual(60)
    # Everything that a deployment without trouble shows, and some noise far below every limit.
    lost(w, (5, 5.5, 1), (30, 30.5, 2))
    case("not_owned", "a healthy hour with single events", w, {5.5: [], 8: [], 30.5: [], 33: [], 60: []})

    w = usual(60)
    lost(w, (10, 25, 40))
    released(w, (0, 10, 20), (25, 60, 20))
    renewed(w, (0, 10, 20), (25, 60, 20))
    # Bad slices from 10.5 on, the tenth at 15.0. After the end at 25 the last way to fire wants failures within 10 minutes, until
    # 34.5, and keep_firing_for adds 10.
    case("not_owned", "everything fails: after 4.5 minutes, and resolved 20 minutes after the end", w,
         {14.5: [], 15: [NOT_OWNED], 36: [NOT_OWNED], 44: [NOT_OWNED], 46: [], 60: []})

    w = usual(40)
    lost(w, (10, 40, 17))
    case("not_owned", "30 percent fail: after 7 minutes", w, {17: [], 18: [NOT_OWNED], 40: [NOT_OWNED]})

    for share, fires in ((1.6, False), (3, True)):
        w = usual(45)
        lost(w, (10, 45, share))
        case("not_owned", f"{share / (40 + share):.1%} fail, the threshold is 5 %", w, {17: [], 20: [NOT_OWNED] if fires else [], 45: [NOT_OWNED] if fires else []})

    w = usual(45, config={"not_owned_ratio": 0.2})
    lost(w, (10, 45, 8))
    w.namespace("strictly", config={"not_owned_ratio": 0.01})
    lost(w, (10, 45, 1), lock_namespace="strictly")
    case("not_owned", "thresholds of the configuration: 17 % of 20 % allowed, 2.4 % of 1 %", w,
         {17: [], 20: ["NotOwnedRatioHigh/critical lock_namespace=strictly"], 45: ["NotOwnedRatioHigh/critical lock_namespace=strictly"]})

    w = usual(45, severity="ticket")
    lost(w, (10, 45, 17))
    case("not_owned", "a namespace for tickets", w, {17: [], 18: ["NotOwnedRatioHigh/warning lock_namespace=jobs"]})

    # Low traffic: nothing succeeds, one failure every two minutes. The fifth within 10 minutes decides, not the first.
    for failures, fires in ((4, False), (6, True)):
        w = usual(60, traffic=0, renewals=0)
        lost(w, *[(10 + 2 * i, 10.5 + 2 * i, 1) for i in range(failures)])
        case("not_owned", f"a tiny namespace fails completely: {failures} failures", w,
             {17: [], 20: [NOT_OWNED] if fires else [], 22: [NOT_OWNED] if fires else [], 24: [NOT_OWNED] if fires else [], 60: []})
    w = usual(60, traffic=0, renewals=0, config={"min_failures": 2})
    lost(w, *[(10 + 1.5 * i, 10.5 + 1.5 * i, 1) for i in range(4)])
    case("not_owned", "a tiny namespace with min_failures 2", w, {14: [], 17: [NOT_OWNED]})
    # Fast way: at least five failures within 5 minutes, one each minute; four are too few for every way.
    for failures, fires in ((4, False), (7, True)):
        w = usual(60, traffic=0, renewals=0)
        lost(w, *[(10 + i, 10.5 + i, 1) for i in range(failures)])
        case("not_owned", f"{failures} failures within 5 minutes and nothing else", w, {14.5: [], 16.5: [NOT_OWNED] if fires else [], 25: [NOT_OWNED] if fires else []})
    # Half of everything is the fast way's, less is not; 15 slices are not reached in 5.5 minutes.
    for share, fires in ((30, False), (60, True)):
        w = usual(50)
        lost(w, (10, 15.5, share))
        case("not_owned", f"{share / (40 + share):.0%} fail for 5.5 minutes", w, {14.5: [], 15.5: [NOT_OWNED] if fires else [], 18: [NOT_OWNED] if fires else [], 50: []})
    # Nine slices: a minute and a half of everything.
    # A tenth of everything for six minutes: 15 or 16 slices, below the sixteenth with the first and last not full.
    w = usual(50)
    lost(w, (10, 15, 12))
    case("not_owned", "23 percent fail for 5 minutes: 14 slices are no page", w, {14.5: [], 17: [], 18: [], 20: [], 50: []})
    w = usual(50)
    lost(w, (10, 17, 12))
    case("not_owned", "23 percent fail for 7 minutes: 15 slices are one", w, {17: [], 18: [NOT_OWNED], 20: [NOT_OWNED]})
    # Failovers: 60 s, 90 s and 120 s, with retries that make 20 failures of each lost lock.
    for length in (1, 1.5, 2):
        w = usual(60)
        lost(w, (20, 20 + length, 800))
        case("not_owned", f"a failover of {length * 60:.0f} s with a retry storm", w, {m: [] for m in (20.5, 21, 22, 23, 24, 25, 26, 30, 40, 60)})
    w = usual(60)
    lost(w, (10, 11, 800), (25, 26, 800))
    case("not_owned", "two failovers within half an hour", w, {m: [] for m in (11, 13, 26, 27, 28, 29, 35, 45)})
    w = usual(70)
    lost(w, *[(10 + 5 * i, 11 + 5 * i, 800) for i in range(6)])
    # A burst of 60 s leaves 4 to 6 bad slices (2 minutes less one sample or none, and the burst): the fourth or fifth burst is the twentieth slice.
    case("not_owned", "bursts of 60 s every 5 minutes are an incident", w, {22: [], 25: [], 33: [NOT_OWNED], 40: [NOT_OWNED], 47: [NOT_OWNED], 60: []})
    w = usual(70)
    lost(w, *[(10 + 8 * i, 10.5 + 8 * i, 800) for i in range(4)])
    case("not_owned", "four single moments within half an hour are none", w, {m: [] for m in (11, 19, 27, 35, 36, 37, 40, 50)})
    # The recurrent way wants a mean above the threshold and enough failures too.
    w = usual(70)
    lost(w, *[(10 + 5 * i, 11 + 5 * i, 18) for i in range(6)])
    case("not_owned", "small bursts every 5 minutes, 8 % on the whole where 10 % are twice the threshold", w, {30: [], 40: [], 45: []})
    w = usual(70, traffic=0, renewals=0)
    lost(w, *[(10 + 6.5 * i, 10.5 + 6.5 * i, 1) for i in range(4)])
    case("not_owned", "four failures within half an hour and nothing else", w, {30: [], 32: [], 35: [], 40: []})
    w = usual(70, traffic=0, renewals=0)
    lost(w, *[(10 + 3 * i, 10.5 + 3 * i, 1) for i in range(10)])
    case("not_owned", "a failure every 3 minutes and nothing else", w, {19: [], 34: [NOT_OWNED], 45: [NOT_OWNED]})

    # Who sees what.
    w = World(40).exporter(redis=False).namespace(redis=None)
    lost(w, (10, 40, 40))
    case("not_owned", "only logs are read: no ratio, and no past for the rate", w, {20: [], 40: []})
    w = usual(40, source="scan")
    lost(w, (10, 40, 40))
    case("not_owned", "only passes: successes are a lower bound, no ratio", w, {20: [], 40: []})
    w = World(40).exporter(logs=False).namespace(logs=False)
    case("not_owned", "only the keyspace: nothing is lost", w, {20: [], 40: []})
    w = World(40).exporter().exporter("b:9190", job="logs", redis=False).namespace()
    w.namespace(instance="b:9190", job="logs", redis=None)
    lost(w, (10, 40, 17), instance="b:9190", job="logs")
    case("not_owned", "logs and keyspace are watched by different jobs", w, {17: [], 18: [NOT_OWNED]})
    # 3.0 of 40 + 3.0 is 7 %; with the keyspace added up twice it would be 3.6 %, with one log left out as well.
    w = World(40).exporter().exporter("b:9190").namespace().namespace(instance="b:9190")
    lost(w, (10, 40, 1.5))
    lost(w, (10, 40, 1.5), instance="b:9190")
    case("not_owned", "two exporters: logs are added up, the keyspace is not", w, {16: [], 20: [NOT_OWNED]})
    # 3.0 of 80 + 3.0 is 3.6 %; with the largest alone it would be 7 %.
    w = World(40).exporter().exporter("b:9190").namespace().namespace(instance="b:9190", redis="second", logs=False)
    lost(w, (10, 40, 3))
    case("not_owned", "two Redis: their successes are added up", w, {20: [], 40: []})
    w = World(40).exporter().exporter("b:9190").namespace().namespace(instance="b:9190", redis="second", logs=False, source="scan")
    lost(w, (10, 40, 40))
    case("not_owned", "two Redis, one without all changes: no ratio", w, {20: [], 40: []})
    w = World(40).exporter().exporter("b:9190").namespace(source="scan").namespace(instance="b:9190", logs=False)
    lost(w, (10, 40, 17))
    case("not_owned", "two exporters on one Redis, one sees all changes", w, {17: [], 18: [NOT_OWNED]})
    w = World(40).exporter(cluster="east").exporter("b:9190", cluster="west").namespace(cluster="east").namespace(instance="b:9190", cluster="west")
    lost(w, (10, 40, 3), cluster="east")
    case("not_owned", "two clusters with the same namespace", w, {16: [], 20: ["NotOwnedRatioHigh/critical lock_namespace=jobs cluster=east"]})
    w = usual(40).namespace("calm").namespace("other", severity="ticket", redis=None)
    lost(w, (10, 40, 17))
    case("not_owned", "one of many namespaces", w, {17: [], 18: [NOT_OWNED]})

    # Interruptions.
    w = usual(50)
    lost(w, (0, 50, 1))
    w.reset(20, "_total")
    case("not_owned", "counters begin again: no failure", w, {20: [], 21: [], 25: [], 30: [], 50: []})
    w = usual(50)
    lost(w, (10, 50, 17))
    w.gone(16, 17.5)
    case("not_owned", "a gap of 90 s in an incident: later, not never", w, {18: [], 21: [NOT_OWNED], 50: [NOT_OWNED]})
    w = usual(50)
    lost(w, (0, 50, 40))
    case("not_owned", "Prometheus starts in the middle of an incident", w, {0.5: [], 1: [], 4: [], 8.5: [NOT_OWNED], 30: [NOT_OWNED], 50: [NOT_OWNED, "FailureBudgetBurn/warning lock_namespace=jobs"]})
    w = usual(60)
    lost(w, (10, 60, 17))
    w.gone(25)
    # keep_firing_for bridges the time until the absence itself is known: 10 minutes and one sample.
    case("not_owned", "the exporter dies in an incident", w,
         {24: [NOT_OWNED], 34: [NOT_OWNED], 35: ["ExporterAbsent/critical missing=all"], 60: ["ExporterAbsent/critical missing=all"]})


# -------------------------------------------------------------------------------------------------------------------- tiers
def tiers(file, page, fail, succeed, **more):
    """The three ways to last, each number from both sides, for a ratio whose successes are 40 (lost locks) or 20 (renewals) every 30 s.

    `fail` and `succeed` are functions that set the failures of a world, and all of its successes in equal parts."""
    full = 40 if succeed is operations else 20

    def pair(minutes, **config):
        w = World(minutes).exporter().exporter("b:9190").namespace(**more, traffic=0, renewals=0, config=config)
        return w.namespace(**more, instance="b:9190", traffic=0, renewals=0, config=config)

    def bursts(begin, every, number, amount, length=1):
        return [(begin + every * i, begin + every * i + length, amount) for i in range(number)]

    # Failures are added up over exporters: each sees half, and half is too few. One way to last after the other.
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

    # Where next to nothing happens: less than one operation in the window is still a ratio.
    w = usual(20, **more, traffic=0, renewals=0, config={"min_failures": 0.1})
    fail(w, (10, 20, 1 / 32))
    case(file, "hardly anything, and it fails", w, {14: [], 15.5: [page]})
    w = usual(40, **more, traffic=0, renewals=0, config={"min_failures": 0.05})
    fail(w, *bursts(10, 5, 6, 1 / 32))
    case(file, "hardly anything, and it fails in bursts", w, {25: [], 34: [page]})

    # The fast way looks at 5 minutes. Ten slices, but five failures only within 10 minutes.
    w = usual(25, **more, traffic=0, renewals=0)
    fail(w, (10, 10.5, 3), *bursts(15, 2, 3, 1.3, 0.5))
    case(file, "five failures in 10 minutes, four in the last 5", w, {18: [], 19.5: [], 20: []})
    # Successes of before are not counted: half of the former rate fails, nothing succeeds.
    for part in [released, renewed] if succeed is operations else [renewed]:
        w = usual(20, **more, traffic=0, renewals=0)
        part(w, (0, 10, 20))
        fail(w, (10, 20, 7.5))
        case(file, f"nothing is {part.__name__} from now on", w, {14: [], 15: [page]})
    # 7 of 27 for 2.5 minutes, then all: 41 % of 5 minutes, or 47 % where a range leaves out its first sample (Prometheus 3).
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

    # The steady way looks at 10 minutes: not at twice as much, nor at half of it.
    w = usual(30, **more)
    fail(w, (10, 13, full * 0.3), (22, 25, full * 0.3))
    case(file, "23 percent fail for 3 minutes, twice in 15", w, {15: [], 25.5: [], 26: [], 27: []})
    w = usual(25, **more)
    succeed(w, (0, 10, full), (10, 25, full * 0.3))
    fail(w, (10, 25, full / 40))
    case(file, "8 percent fail after traffic fell", w, {17: [], 21.5: [page]})
    # Who sees what: one Redis, two of them whose successes are added up, two exporters on one of which the larger counts.
    second = {"instance": "b:9190", "logs": False, **more}
    for where, times, other in (("one Redis", 1, None), ("two Redis", 2, {"redis": "second"}), ("a twin that sees a fifth", 1, {"traffic": 4, "renewals": 4})):
        def watched(minutes):
            w = usual(minutes, **more)
            return w.exporter("b:9190", logs=False).namespace(**second, **other) if other else w

        # A spike every 2.5 minutes: 5.3 % of most slices, 4.3 % on the whole.
        w = watched(45)
        fail(w, *bursts(10, 2.5, 12, times * full * 9 / 40, 0.5))
        case(file, f"{where}: a little too much in most slices, not on the whole", w, {20: [], 25: [], 40: []})
        w = watched(75)
        fail(w, *bursts(10, 5, 12, times * full * 0.45))
        case(file, f"{where}: bursts of 8 % on the whole for an hour", w, {45: [], 60: [], 68: []})
        w = watched(20)
        fail(w, (10, 15.5, times * full * 0.75))
        case(file, f"{where}: 43 % fail for 5.5 minutes", w, {15.5: [], 17: []})
        # A spike every 10 minutes lifts the whole to 10 %; the slices between have 4.3 %.
        w = watched(32)
        fail(w, (10, 32, times * full * 0.045), *bursts(12, 10, 2, times * full * 1.5, 0.5))
        case(file, f"{where}: too much on the whole, not in most slices", w, {22: [], 24: [], 31: []})

    # The recurrent way looks at 30 minutes.
    w = usual(75, **more)
    fail(w, *bursts(40, 5, 7, full * 0.75))
    case(file, "bursts of 13 % on the whole, after 40 quiet minutes", w, {58: [], 67: [page]})
    w = usual(75, **more)
    fail(w, *bursts(10, 10, 6, 20 * full))
    case(file, "bursts of 60 s every 10 minutes", w, {35: [], 45: [], 62: [], 65: []})
    # After the incident one more bad slice, and nothing beside it: the incident is not over yet.
    w = usual(60, **more)
    succeed(w, (0, 34, full), (36.5, 60, 20 * full))
    fail(w, (10, 20, full), (36, 36.5, 1))
    case(file, "a single bad slice after an incident", w, {32: [page], 46: [page], 58: []})
    # Strays after it are none: the last bad slice is that of 27.
    w = usual(60, **more)
    succeed(w, (0, 10, full), (25, 60, full))
    fail(w, (10, 25, full), (25, 60, full / 160))
    case(file, "strays after an incident do not prolong it", w, {36: [page], 45: [page], 48.5: [], 55: []})


def operations(world, *segments):
    """Releases and renewals, in equal parts."""
    half = [(begin, end, amount / 2) for begin, end, amount in segments]
    released(world, *half)
    renewed(world, *half)


# -------------------------------------------------------------------------------------------------------------------- burn
def not_owned_tiers():
    tiers("not_owned", NOT_OWNED, lost, operations)


def renewal_tiers():
    tiers("renewal", "RenewalFailureRatioHigh/critical lock_namespace=jobs", failed_renewals, renewed, policy="continue")


def burn():
    ticket = "FailureBudgetBurn/warning lock_namespace=jobs"
    for share, fires in ((0.9, False), (1.2, True)):
        w = usual(200)
        lost(w, (10, 200, share))
        case("not_owned", f"slow burn: {share / (40 + share):.1%} for hours, half the threshold is 2.5 %", w, {50: [], 90: [ticket] if fires else [], 150: [ticket] if fires else [], 200: [ticket] if fires else []})
    # 60 slices are half an hour: from 10.5 to 40.0, and `for` adds 15 minutes.
    w = usual(200, traffic=4, renewals=4)
    lost(w, (10, 130, 0.32))
    case("not_owned", "slow burn: when it begins and ends", w, {54.5: [], 58: [ticket], 130: [ticket], 150: [ticket], 195: []})
    w = usual(240)
    lost(w, (10, 11, 4000), (100, 101, 4000), (190, 191, 4000))
    case("not_owned", "slow burn: three failovers in hours are none", w, {m: [] for m in (12, 30, 60, 110, 150, 200, 215, 240)})
    # 18 failures within hours are fewer than 4 times min_failures, 25 are not.
    for every, fires in ((7, False), (5, True)):
        w = usual(140, traffic=0, renewals=0, config={"not_owned_ratio": 0.5})
        lost(w, *[(10 + every * i, 10.5 + every * i, 1) for i in range(int(126 / every))])
        case("not_owned", f"slow burn: one failure every {every} minutes", w, {60: [], 135: [ticket] if fires else []})
    # 2 % in most slices, and a spike every 30 minutes that lifts the whole to 3.5 %.
    w = usual(115)
    lost(w, (5, 115, 0.8), *[(10 + 30 * i, 10.5 + 30 * i, 40) for i in range(4)])
    case("not_owned", "slow burn: on the whole, but not in enough slices", w, {60: [], 90: [], 112: []})
    # It was bad for two hours and is over: the last 6 hours alone are no ticket.
    w = usual(200)
    lost(w, (10, 60, 1.8))
    case("not_owned", "slow burn: what is over for an hour is no ticket", w, {58: [ticket], 100: [ticket], 150: [], 200: []})


def long_burn():
    """Hours of it, looked at every 2.5 minutes: 6 hours have 144 slices then, and 60 of them are 2.5 hours."""
    ticket = "FailureBudgetBurn/warning lock_namespace=jobs"

    def hours(name, world, firing):
        case("not_owned", f"slow burn for hours: {name}", world, firing, every=2.5)

    def every_5_minutes(begin, end, amount):
        """In two minutes of five, so that every second slice is bad: 0.4 times the amount on the whole."""
        return [(minute, minute + 2, amount) for minute in range(begin, end, 5)]

    w = usual(585)
    lost(w, (10, 585, 1.25))
    case("not_owned", "slow burn for hours: 3 %", w, {150: [], 170: [], 182.5: [ticket], 575: [ticket]}, every=2.5)
    w = World(185).exporter().exporter("b:9190", redis=False).namespace().namespace(instance="b:9190", redis=None)
    lost(w, (10, 185, 0.7))
    lost(w, (10, 185, 0.7), instance="b:9190")
    hours("3.4 % by the logs of two exporters", w, {182.5: [ticket]})
    w = usual(460)
    lost(w, *every_5_minutes(10, 330, 4), (330, 460, 0.73))
    hours("3.8 % in every second slice, then 1.8 %", w, {250: [], 300: [], 328: [ticket], 372.5: [ticket], 390: [], 450: []})
    # Half an hour above, and less than 2.5 % in 6 hours.
    for where, times, other in (("one Redis", 1, None), ("two Redis", 2, {"redis": "second"}), ("a twin that sees a fifth", 1, {"traffic": 4, "renewals": 4})):
        w = usual(450)
        if other:
            w.exporter("b:9190", logs=False).namespace(instance="b:9190", logs=False, **other)
        lost(w, *every_5_minutes(10, 400, 2.25 * times), (400, 450, 1.45 * times))
        hours(f"{where}: 2.2 % in every second slice, then 3.5 %", w, {425: [], 448: []})
    w = usual(605)
    lost(w, (1, 60, 10), (420, 605, 1.25))
    hours("20 % ten hours ago, 3 % for 3 hours", w, {60: [], 600: []})
    w = usual(545)
    lost(w, (1, 60, 10), (420, 540, 4.5))
    hours("20 % nine hours ago, 10 % for 2 hours", w, {60: [], 538: []})
    w = usual(330, traffic=0, renewals=0, config={"min_failures": 0.01})
    lost(w, *[(minute + 1.5, minute + 2, 1 / 64) for minute in range(10, 330, 5)])
    hours("hardly anything, and it fails", w, {300: [], 327.5: [ticket]})


# Where no denominator is to be had: what fails, its alert, how much of it is fine where all changes are seen, and whether bursts add up.
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
    # 20 a 10 minutes; the floor is 10. Bad slices from the second failure on.
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
    # Three times its own past: 40 a 10 minutes is usual, 100 is not three times that, 150 is.
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
    # The same slices with too few failures for three times the limit of 10 minutes: 8 every 5 minutes are 48 in 30.
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
    # The median: trouble for less than half of the past is not what is usual.
    w = logs_only(160)
    fail(w, (0, 20, 8), (120, 160, 2))
    case(file, "only logs: 20 minutes of trouble in the past is not the usual", w, {115: [], 132: [alert]})


def rate_limits(file, fail, name, fine, bursts, policy):
    """What is usual, and the floor, from both sides."""
    alert = f"{name}/critical lock_namespace=jobs"

    def logs_only(what, minutes, *segments, firing, into=file):
        w = World(minutes).exporter(redis=False).namespace(redis=None, **policy)
        fail(w, *segments)
        case(into, f"only logs: {what}", w, firing)

    # In steps of 1/64 every 30 s. Three times 4.1 are 12.2 and count, three times 2.8 are less than the floor of 10.
    logs_only("from 4 to 11 in 10 minutes", 100, (0, 70, 13 / 64), (70, 100, 35 / 64), firing={85: [], 98: []})
    logs_only("from 2.8 to 9 in 10 minutes", 100, (0, 70, 9 / 64), (70, 100, 29 / 64), firing={85: [], 98: []})
    logs_only("the past of two hours was mostly bad", 145, (0, 60, 2), (120, 145, 2), firing={132: [], 142: []})
    # A few minutes are no past: they happen to be quiet, and have less than 10 minutes to count in.
    logs_only("40 in 10 minutes, but for the first 8 minutes of all", 120, (8, 120, 2), firing={62: [], 69: [], 75: [], 90: [], 119: []})
    # A past needs half an hour, and the last half hour is not the past: slices are bad from minute 60 on.
    logs_only("the first hour is quiet", 75, (35, 75, 2), firing={50: [], 59: [], 66: [], 68: [alert]})
    # What goes on for as long as a young past was quiet is usual from then on.
    logs_only("trouble that lasts as long as the past", 230, (70, 230, 2), firing={80: [alert], 180: [alert], 205: [], 229: []})
    logs_only("20 at once, then 6 in 10 minutes", 85, (70, 71, 10), (71, 85, 0.3), firing={78: [], 79.5: []})
    logs_only("3 minutes, twice in 15", 90, (70, 73, 10), (82, 85, 10), firing={75: [], 85.5: [], 87: []})
    logs_only("bursts of 60 s every 10 minutes", 125, *[(70 + 10 * i, 71 + 10 * i, 30) for i in range(6)], firing={95: [], 105: [], 122: []})
    logs_only("bursts that are enough for an hour, not for half of it", 135, *[(70 + 5 * i, 71 + 5 * i, 2) for i in range(13)], firing={110: [], 132: []})
    # The past is that of a day: 6.75 hours of 13, and 12 of 24, of which the half is not quite reached.
    logs_only("more than half of the last 13 hours was bad", 842, (0, 405, 2), (832, 842, 2), firing={840: [], 841.5: []}, into="past")
    logs_only("more than half of the last 25 hours was bad, less than half of a day", 1572, (0, 765, 2), (1561, 1572, 2), firing={1565: [], 1571: [alert]}, into="past")
    logs_only("strays after an incident do not prolong it", 120, (70, 90, 5), (90, 120, 0.1), firing={100: [alert], 109: [alert] if bursts else [], 114: [], 118: []})
    # One more bad slice does: that of 100.5, for the floor is far higher in the minutes that follow.
    w = World(125).exporter(redis=False).namespace(redis=None, **policy)
    fail(w, (70, 90, 5), (100, 100.5, 6))
    w.put("redis_lock_config_min_failures", gauge(125, (0, 5), (101, 1000), (104, 5)), **JOBS)
    case(file, "only logs: a single bad slice after an incident", w, {95: [alert], 115: [alert] if bursts else [], 123: []})
    for severity in ("critical", "warning"):
        w = World(90).exporter(redis=False).namespace(redis=None, severity="page" if severity == "critical" else "ticket", config={"min_failures": 0.2}, **policy)
        fail(w, (70, 90, 3 / 64))
        case(file, f"only logs: {severity} for hardly any, where that is enough", w, {77: [], 85: [f"{name}/{severity} lock_namespace=jobs"]})
    # Failures are added up over exporters, where none sees enough.
    w = World(90).exporter(redis=False).exporter("b:9190", redis=False).namespace(redis=None, **policy).namespace(instance="b:9190", redis=None, **policy)
    for instance in ("a:9190", "b:9190"):
        fail(w, (70, 90, 0.4), instance=instance)
    case(file, "only logs: two exporters see 8 in 10 minutes each", w, {77: [], 85: [alert]})


def rates_beside():
    """What is no failure, and who is woken."""
    w = World(100).exporter(redis=False).namespace(redis=None)
    failed_renewals(w, (70, 100, 20))
    case("renewal_rate", "only logs: work that stops itself is a ticket", w, {77: [], 80: ["RenewalFailureRatioHigh/warning lock_namespace=jobs"]})
    w = World(100).exporter(redis=False).namespace(redis=None, policy="continue")
    failed_renewals(w, (70, 100, 20), reason="canceled")
    for reason in ("busy", "canceled"):
        failed_acquisitions(w, (70, 100, 20), reason=reason)
    case("renewal_rate", "only logs: what is broken off or taken is no failure", w, {80: [], 90: [], 100: []})
    # Redis is away and everything is tried again and again: 60 to 120 s are no page, for good they are.
    for minutes in (1, 1.5, 2, 30):
        w = World(110).exporter(redis=False).namespace(redis=None, policy="continue")
        for fail in (failed_renewals, failed_acquisitions):
            fail(w, (70, 70 + minutes, 2000))
        fires = ["AcquireFailing/critical lock_namespace=jobs", "RenewalFailureRatioHigh/critical lock_namespace=jobs"] if minutes == 30 else []
        case("renewal_rate", f"only logs: Redis is away for {minutes * 60:.0f} s", w, {71: [], 73: [], 76: [], 78.5: fires, 85: fires, 100: fires})
    # Two ways that do not add up: ten slices here and ten there.
    w = World(110).exporter(redis=False).namespace(redis=None, policy="continue")
    failed_renewals(w, (70, 72, 2000), (85, 87, 2000))
    failed_acquisitions(w, (70, 72, 2000), (85, 87, 2000))
    case("renewal_rate", "only logs: two failovers of 120 s within half an hour", w, {m: [] for m in (72, 75, 80, 87, 88, 90, 95, 100)})


# ------------------------------------------------------------------------------------------------------------------ renewal
def renewal():
    page, ticket = "RenewalFailureRatioHigh/critical lock_namespace=jobs", "RenewalFailureRatioHigh/warning lock_namespace=jobs"
    w = usual(60, policy="continue")
    failed_renewals(w, (10, 25, 20))
    renewed(w, (0, 10, 20), (25, 60, 20))
    case("renewal", "everything fails: after 4.5 minutes, and resolved 20 minutes after the end", w, {14.5: [], 15: [page], 36: [page], 44: [page], 46: [], 60: []})
    w = usual(40, policy="continue")
    failed_renewals(w, (10, 40, 8))
    case("renewal", "29 percent fail and work goes on: a page after 7 minutes", w, {17: [], 18: [page], 40: [page]})
    w = usual(40)
    failed_renewals(w, (10, 40, 8))
    case("renewal", "29 percent fail and work stops: a ticket", w, {17: [], 18: [ticket], 40: [ticket]})
    w = usual(60)
    failed_renewals(w, (10, 60, 30))
    case("renewal", "60 percent fail and work stops: a page", w, {14.5: [], 15: [page], 60: [page]})
    w = usual(40, policy="continue", severity="ticket")
    failed_renewals(w, (10, 40, 30))
    case("renewal", "a namespace for tickets", w, {17.5: [ticket], 18: [ticket], 40: [ticket]})
    for share, fires in ((0.8, False), (1.4, True)):
        w = usual(45, policy="continue")
        failed_renewals(w, (10, 45, share))
        case("renewal", f"{share / (20 + share):.1%} fail, the threshold is 5 %", w, {17: [], 20: [page] if fires else [], 45: [page] if fires else []})
    w = usual(45, policy="continue", config={"renewal_failure_ratio": 0.3})
    failed_renewals(w, (10, 45, 6))
    case("renewal", "23 % of 30 % allowed", w, {20: [], 45: []})
    w = usual(45, policy="continue")
    failed_renewals(w, (10, 45, 20), reason="canceled")
    case("renewal", "canceled renewals are no failures", w, {20: [], 45: []})
    w = usual(45, policy="continue")
    failed_renewals(w, (10, 45, 0.8))
    failed_renewals(w, (10, 45, 0.8), reason="not_owned")
    case("renewal", "reasons are added up", w, {17: [], 20: [page]})
    for failures, fires in ((4, False), (6, True)):
        w = usual(60, policy="continue", traffic=0, renewals=0)
        failed_renewals(w, (10, 40, 20), reason="canceled")
        failed_renewals(w, *[(10 + 2 * i, 10.5 + 2 * i, 1) for i in range(failures)])
        case("renewal", f"a tiny namespace fails completely: {failures} failures", w, {17: [], 20: [page] if fires else [], 22: [page] if fires else [], 24: [page] if fires else [], 60: []})
    for failures, fires in ((4, False), (7, True)):
        w = usual(60, policy="continue", traffic=0, renewals=0)
        failed_renewals(w, (10, 40, 20), reason="canceled")
        failed_renewals(w, *[(10 + i, 10.5 + i, 1) for i in range(failures)])
        case("renewal", f"{failures} failures within 5 minutes and nothing else", w, {14.5: [], 16.5: [page] if fires else [], 25: [page] if fires else []})
    for share, fires in ((15, False), (30, True)):
        w = usual(50, policy="continue")
        failed_renewals(w, (10, 15.5, share))
        case("renewal", f"{share / (20 + share):.0%} fail for 5.5 minutes", w, {14.5: [], 15.5: [page] if fires else [], 18: [page] if fires else [], 50: []})
    w = usual(50, policy="continue")
    failed_renewals(w, (10, 15, 6))
    case("renewal", "23 percent fail for 5 minutes: 14 slices are no page", w, {17: [], 18: [], 20: [], 50: []})
    w = usual(50, policy="continue")
    failed_renewals(w, (10, 17, 6))
    case("renewal", "23 percent fail for 7 minutes: 15 slices are one", w, {17: [], 18: [page], 20: [page]})
    for length in (1, 2):
        w = usual(60, policy="continue")
        failed_renewals(w, (20, 20 + length, 400))
        renewed(w, (0, 20, 20), (20 + length, 60, 20))
        case("renewal", f"a failover of {length * 60} s with a retry storm", w, {m: [] for m in (20.5, 21, 22, 23, 24, 25, 26, 30, 40)})
    w = usual(70, policy="continue")
    failed_renewals(w, *[(10 + 5 * i, 11 + 5 * i, 400) for i in range(6)])
    case("renewal", "bursts of 60 s every 5 minutes are an incident", w, {22: [], 25: [], 33: [page], 40: [page], 47: [page], 60: []})
    w = usual(70, policy="continue")
    failed_renewals(w, *[(10 + 5 * i, 11 + 5 * i, 9) for i in range(6)])
    case("renewal", "small bursts every 5 minutes, 8 % on the whole where 10 % are twice the threshold", w, {30: [], 40: [], 45: []})
    w = usual(70, policy="continue", traffic=0, renewals=0)
    failed_renewals(w, (10, 40, 20), reason="canceled")
    failed_renewals(w, *[(10 + 6.5 * i, 10.5 + 6.5 * i, 1) for i in range(4)])
    case("renewal", "four failures within half an hour and nothing else", w, {30: [], 32: [], 35: [], 40: []})
    w = usual(70, policy="continue", traffic=0, renewals=0)
    failed_renewals(w, *[(10 + 3 * i, 10.5 + 3 * i, 1) for i in range(10)])
    case("renewal", "a failure every 3 minutes and nothing else", w, {19: [], 34: [page], 45: [page]})
    w = World(40).exporter(redis=False).namespace(redis=None, policy="continue")
    failed_renewals(w, (10, 40, 20))
    case("renewal", "only logs are read: no ratio, and no past for the rate", w, {20: [], 40: []})
    w = usual(40, policy="continue", source="scan")
    failed_renewals(w, (10, 40, 20))
    case("renewal", "only passes: no ratio, and no past for the rate", w, {20: [], 40: []})
    w = World(40).exporter().exporter("b:9190").namespace(policy="continue").namespace(policy="continue", instance="b:9190")
    failed_renewals(w, (10, 40, 0.8))
    failed_renewals(w, (10, 40, 0.8), instance="b:9190")
    case("renewal", "two exporters: logs are added up, the keyspace is not", w, {16: [], 20: [page]})
    w = World(40).exporter().exporter("b:9190").namespace(policy="continue").namespace(policy="continue", instance="b:9190", redis="second", logs=False)
    failed_renewals(w, (10, 40, 1.6))
    case("renewal", "two Redis: their successes are added up", w, {20: [], 40: []})
    w = World(40).exporter(cluster="east").exporter("b:9190", cluster="west").namespace(cluster="east", policy="continue").namespace(instance="b:9190", cluster="west", policy="continue")
    failed_renewals(w, (10, 40, 1.6), cluster="east")
    case("renewal", "two clusters with the same namespace", w, {16: [], 20: ["RenewalFailureRatioHigh/critical lock_namespace=jobs cluster=east"]})
    # What the caller broke off itself is no failure, whatever else fails.
    for name, segments in (("a spike every 10 minutes", [(12 + 10 * i, 12.5 + 10 * i, 30) for i in range(3)]), ("bursts of 8 % on the whole", [(10 + 5 * i, 11 + 5 * i, 9) for i in range(6)])):
        w = usual(40, policy="continue")
        failed_renewals(w, *segments)
        failed_renewals(w, (10, 40, 5), reason="canceled")
        case("renewal", f"canceled beside {name}", w, {24: [], 31: [], 38: []})


# ------------------------------------------------------------------------------------------------------------ unlocked work
def unlocked():
    page = "UnlockedWork/critical lock_namespace=jobs"

    def unlock(world, *segments, **labels):
        world.put("redis_lock_unlocked_work_total", counter(world.minutes, *segments), **{**JOBS, **labels})

    w = usual(60)
    unlock(w, (10, 25, 10))
    # The last of 15 slices within 10 minutes passes 4 to 5 minutes after the end at 25, keep_firing_for adds 10.
    case("unlocked_work", "a third of the work: after 7 minutes, and it resolves", w, {17: [], 18: [page], 35: [page], 38: [page], 43: [], 60: []})
    w = usual(60, severity="ticket")
    unlock(w, (10, 40, 10))
    case("unlocked_work", "a namespace for tickets", w, {17: [], 18: ["UnlockedWork/warning lock_namespace=jobs"]})
    for share, fires in ((0.16, False), (0.3, True)):
        w = usual(60)
        unlock(w, (10, 60, share))
        case("unlocked_work", f"{share / (20 + share):.1%} of the work, the limit is 1 %", w, {17: [], 30: [page] if fires else [], 60: [page] if fires else []})
    w = usual(60, traffic=0)
    unlock(w, *[(10 + 2 * i, 10.5 + 2 * i, 1) for i in range(4)])
    case("unlocked_work", "four times are no page", w, {17.5: [], 20: [], 24: [], 30: []})
    w = usual(60, traffic=0)
    unlock(w, *[(10 + 2 * i, 10.5 + 2 * i, 1) for i in range(6)])
    case("unlocked_work", "six times within 12 minutes are one", w, {17.5: [], 22: [page]})
    w = usual(60)
    unlock(w, (10, 15, 10))
    case("unlocked_work", "five minutes are no page", w, {17: [], 18: [], 20: [], 30: []})
    w = World(60).exporter(redis=False).namespace(redis=None)
    unlock(w, (10, 25, 0.6))
    case("unlocked_work", "only logs: any is enough, if it goes on", w, {17: [], 20: [page], 25: [page], 45: []})
    w = World(60).exporter(redis=False).namespace(redis=None)
    unlock(w, (10, 12, 60))
    case("unlocked_work", "only logs: a burst of two minutes is no page", w, {m: [] for m in (11, 13, 15, 18, 20)})
    # 1.2 % for one exporter of two that see the same keyspace; added up twice it would be 0.6 %.
    w = World(60).exporter().exporter("b:9190").namespace().namespace(instance="b:9190")
    unlock(w, (10, 60, 0.13))
    unlock(w, (10, 60, 0.13), instance="b:9190")
    case("unlocked_work", "two exporters: logs are added up, the keyspace is not", w, {17: [], 40: [page]})
    w = World(60).exporter().exporter("b:9190").namespace().namespace(instance="b:9190", redis="second", logs=False)
    unlock(w, (10, 60, 0.26))
    case("unlocked_work", "two Redis: acquisitions are added up", w, {20: [], 60: []})
    for where, times, other in (("one Redis", 1, None), ("two Redis", 2, {"redis": "second"}), ("a twin that sees a fifth", 1, {"traffic": 4})):
        w = usual(40, config={"min_failures": 1})
        if other:
            w.exporter("b:9190", logs=False).namespace(instance="b:9190", logs=False, **other)
        unlock(w, *[(10 + 2.5 * i, 10.5 + 2.5 * i, 0.9 * times) for i in range(12)])
        case("unlocked_work", f"{where}: 1.1 % of most slices, 0.9 % on the whole", w, {20: [], 25: [], 38: []})
        w = usual(32, config={"min_failures": 1})
        if other:
            w.exporter("b:9190", logs=False).namespace(instance="b:9190", logs=False, **other)
        unlock(w, (10, 32, 0.14 * times), *[(12 + 10 * i, 12.5 + 10 * i, 10 * times) for i in range(2)])
        case("unlocked_work", f"{where}: 3 % on the whole, 0.7 % of most slices", w, {22: [], 24: [], 31: []})
    w = usual(30, config={"min_failures": 1})
    w.put("redis_lock_acquisitions_total", counter(30, (0, 10, 20), (10, 30, 6)), **SEEN)
    unlock(w, (10, 30, 0.125))
    # From 12 on the window of 2 minutes has only the new traffic: 15 slices at 19.
    case("unlocked_work", "2 % of the work after traffic fell", w, {17: [], 20: [page]})
    w = usual(30)
    unlock(w, (10, 13, 2), (13, 30, 0.16))
    case("unlocked_work", "9 % of the work for 3 minutes, then 0.8 %", w, {18: [], 20: [], 22: []})
    w = usual(30)
    unlock(w, (10, 13, 4), (22, 25, 4))
    case("unlocked_work", "17 % of the work for 3 minutes, twice in 15", w, {15: [], 25.5: [], 27: []})
    w = World(25).exporter(redis=False).namespace(redis=None, config={"min_failures": 0.1})
    unlock(w, (10, 25, 1 / 32))
    case("unlocked_work", "only logs: hardly any, and it goes on", w, {17: [], 19: [page]})


# ---------------------------------------------------------------------------------------------------------- share of abandoned
def abandoned_share():
    """18 slices and 3 abandonments are there in all of these: the share decides. With 20 acquisitions a sample and 10 held, 610 had a lock within 15 minutes."""
    event, page, warn = "AbandonedEvent/warning lock_namespace=jobs", "Abandoned/critical lock_namespace=jobs", "Abandoned/warning lock_namespace=jobs"

    def abandon(world, *segments, **labels):
        world.put("redis_lock_abandonments_total", counter(world.minutes, *segments), **{**JOBS, **labels})

    def quiet(name, world, *minutes):
        case("abandoned", name, world, {minute: [event] for minute in minutes})

    w = usual(60)
    abandon(w, (0, 60, 0.14))
    quiet("strays of 0.7 % make every slice bad and are no page", w, 20, 40, 60)
    for per_sample, fires in ((1, False), (1.0625, True)):
        for severity, more in (("page", page), ("ticket", warn)):
            w = usual(40, severity=severity)
            abandon(w, (10, 40, per_sample))
            case("abandoned", f"{severity}: {per_sample * 30 / 610:.2%} give up, the threshold is 5 %", w, {19: [event], 28: [event, *([more] if fires else [])], 40: [event, *([more] if fires else [])]})
    w = usual(40, config={"renewal_failure_ratio": 0.2})
    abandon(w, (10, 40, 3.5))
    quiet("17 % give up where 20 % may", w, 20, 30, 40)
    w = usual(40, config={"renewal_failure_ratio": 0.01})
    abandon(w, (10, 40, 0.25))
    case("abandoned", "1.2 % give up where 1 % may", w, {18.5: [event], 30: [event, page]})
    # In the whole window hardly any is taken, and hundreds are held: 15 of 306.
    w = usual(40, traffic=0.25)
    w.put("redis_lock_held", gauge(40, (0, 300)), **SEEN)
    abandon(w, (10, 40, 0.5))
    quiet("5 % of locks that are held for long", w, 20, 30, 40)
    w = usual(40, traffic=0)
    w.put("redis_lock_held", gauge(40, (0, 0)), **SEEN)
    abandon(w, (10, 40, 0.2))
    case("abandoned", "nobody gets a lock any more, and the last ones give up", w, {18.5: [event], 26: [event, page]})
    w = World(40).exporter().exporter("b:9190", logs=False).namespace().namespace(instance="b:9190", logs=False, traffic=4)
    abandon(w, (10, 40, 0.9))
    quiet("two exporters on one Redis: the larger counts", w, 20, 30, 40)
    w = World(40).exporter().exporter("b:9190", logs=False).namespace().namespace(instance="b:9190", logs=False)
    abandon(w, (10, 40, 1.25))
    case("abandoned", "two exporters on one Redis: locks are not added up", w, {18.5: [event], 30: [event, page]})
    w = World(40).exporter().exporter("b:9190", logs=False).namespace().namespace(instance="b:9190", logs=False, redis="second")
    abandon(w, (10, 40, 1.8))
    quiet("two Redis: locks are added up", w, 20, 30, 40)

    w = usual(100)
    abandon(w, (80, 100, 0.9))
    quiet("where every lock is seen the share decides, not the past", w, 90, 99)
    # Where not every lock is seen, they must not have been usual.
    for name, world in (("only logs", lambda minutes: World(minutes).exporter(redis=False).namespace(redis=None)), ("passes only", lambda minutes: usual(minutes, source="scan", traffic=0.25))):
        w = world(120)
        abandon(w, (90, 120, 1))
        case("abandoned", f"{name}: they begin after a quiet past", w, {89: [], 98.5: [event], 99.5: [event, page], 118: [event, page]})
        w = world(50)
        abandon(w, (30, 50, 1))
        quiet(f"{name}: no past, no page", w, 40, 48)
    for bad, fires in ((50, True), (70, False)):
        # So many of the 220 minutes until half an hour ago were bad.
        w = World(260).exporter(redis=False).namespace(redis=None)
        abandon(w, (20, 20 + bad, 1), (240, 260, 1))
        case("abandoned", f"only logs: {bad} bad minutes in three hours before", w, {220: [], 248.5: [event], 252: [event, *([page] if fires else [])], 258: [event, *([page] if fires else [])]})
    # Less than half an hour is no past; from then on, 35 quiet minutes make more than 7 tenths of it until minute 80.
    w = World(120).exporter(redis=False).namespace(redis=None)
    abandon(w, (35, 120, 1))
    case("abandoned", "only logs: a past of half an hour, which they become a part of", w, {59: [event], 61.5: [event, page], 85: [event, page], 105: [event]})
    w = World(90).exporter(redis=False).namespace(redis=None)
    abandon(w, (5, 90, 1))
    quiet("only logs: from early on, but for a few minutes", w, 59, 62, 70, 89)
    # The past is that of a day, neither of half a day nor of two. In a file of its own with the other long ones, for that is a day of evaluations.
    w = World(842).exporter(redis=False).namespace(redis=None)
    abandon(w, (0, 270, 1), (825, 842, 1))
    case("past", "only logs: abandonments in a third of the last 13 hours", w, {838: [event], 841: [event]})
    w = World(1572).exporter(redis=False).namespace(redis=None)
    abandon(w, (0, 490, 1), (1556, 1572, 1))
    case("past", "only logs: abandonments in less than a third of a day, more of 25 hours", w, {1564: [event], 1569: [event, page]})


# ---------------------------------------------------------------------------------------------------------------- acquire
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
        # 15 slices at 17.5. After the end at 25 half of the attempts of 10 minutes failed until 30; 15 slices are left until 29.5; keep_firing_for adds 10.
        case("acquire", f"{severity}: nobody gets a lock: after 7.5 minutes, and it resolves", w, {17: [], 18: [alert], 28: [alert], 38: [alert], 41: [], 60: []})
        w = usual(40, severity=severity)
        fail(w, (10, 40, 10))
        case("acquire", f"{severity}: a third fails: a ticket", w, {17: [], 18: [ticket], 40: [ticket]})
    # Half of 10 minutes' attempts is reached when everything of 10 minutes was so.
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
    # Slices of 2 minutes and the share of 10, each from both sides.
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
    # A taken lock lifts neither the slices nor the whole, whatever else fails.
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
    # From 12 on the window of 2 minutes has only the new traffic, which makes the fifteenth slice that of 18.
    case("acquire", "7.7 % fail after traffic fell", w, {16.5: [], 22: [ticket]})


# ------------------------------------------------------------------------------------------------------------------- events
def events():
    event, page, warn = "AbandonedEvent/warning lock_namespace=jobs", "Abandoned/critical lock_namespace=jobs", "Abandoned/warning lock_namespace=jobs"

    # So few locks that each abandonment is a large share: here the counts decide.
    few = {"traffic": 0.25}

    def abandon(world, *segments, **labels):
        world.put("redis_lock_abandonments_total", counter(world.minutes, *segments), **{**JOBS, **labels})

    w = usual(40, **few)
    abandon(w, (10, 10.5, 1))
    case("events", "one abandonment: a ticket for 15 minutes", w, {10: [], 10.5: [event], 24: [event], 26: []})
    w = usual(40, **few, strict=1)
    abandon(w, (10, 10.5, 1))
    case("events", "one abandonment in a strict namespace", w, {10: [], 10.5: [event, page], 24: [event, page], 34: [page], 36: []})
    w = usual(40, **few, strict=1, severity="ticket")
    abandon(w, (10, 10.5, 1))
    case("events", "strict pages whatever the severity", w, {10: [], 10.5: [event, page]})
    w = usual(40, **few)
    abandon(w, (10, 12, 50))
    case("events", "a failover of 120 s makes everybody give up: a ticket", w, {m: [event] for m in (10.5, 12, 14, 16, 20, 26)})
    w = usual(60, **few)
    abandon(w, (10, 40, 1))
    # Slices from 10.5 on, the eighteenth at 19.0.
    case("events", "abandonments that go on: after 8.5 minutes", w, {18.5: [event], 19.5: [event, page], 40: [event, page], 54: [event, page], 60: []})
    w = usual(60, **few, severity="ticket")
    abandon(w, (10, 40, 1))
    case("events", "abandonments that go on, for tickets", w, {18.5: [event], 19.5: [event, warn]})
    w = usual(60, **few, severity="ticket", strict=1)
    abandon(w, (10, 40, 1))
    case("events", "strict and for tickets: one page, no second ticket", w, {20: [event, page]})
    w = usual(60, **few)
    abandon(w, (10, 16, 50))
    case("events", "six minutes are one burst still", w, {m: [event] for m in (16, 17, 18, 19, 20, 24)})
    # Five single ones, 2.5 minutes apart: 3 or 4 slices each.
    w = usual(60, **few)
    abandon(w, (10, 10.5, 1), (14, 14.5, 1))
    case("events", "two abandonments are no page", w, {15: [event], 18: [event], 24: [event]})
    w = usual(60, **few)
    abandon(w, *[(10 + 0.5 * i, 10.5 + 0.5 * i, 0.11) for i in range(24)])
    case("events", "18 slices with fewer than 3 are no page", w, {20: [event], 23: [event]})
    w = World(40).exporter().exporter("b:9190").namespace(**few).namespace(instance="b:9190", **few)
    abandon(w, (10, 10.5, 1), instance="b:9190")
    case("events", "an abandonment that another exporter saw", w, {10.5: [event]})
    # A series that comes into being with its first event.
    w = usual(60, **few)
    w.drop("abandonments")
    w.put("redis_lock_abandonments_total", gauge(60, (0, None), (30, 1)), **JOBS)
    case("events", "the first abandonment of a namespace that has no series", w, {29.5: [], 30: [event], 44: [event], 46: []})
    w = usual(60, **few)
    w.gone(0, 30)
    w.put("redis_lock_abandonments_total", gauge(60, (0, None), (30, 7)), **JOBS)
    for key in w.series:
        w.series[key] = [None if v == "stale" else v for v in w.series[key]]
    case("events", "an exporter with old counts that Prometheus sees for the first time", w,
         {20: ["ExporterAbsent/critical missing=all"], 30: ["ExporterAbsent/critical missing=all"], 40: [], 50: []})

    # An exporter that came 20 minutes ago is not new any more.
    w = usual(60, **few)
    w.drop("abandonments")
    w.put("redis_lock_abandonments_total", gauge(60, (0, None), (20, 1)), **JOBS)
    case("events", "the first abandonment, 20 minutes after the exporter came", w, {19.5: [], 22: [event], 34: [event], 36: []})
    # What is extrapolated to less than one has happened all the same.
    w = usual(20, **few)
    abandon(w, (10, 10.5, 0.5))
    case("events", "a part of an abandonment", w, {10: [], 10.5: [event]})
    for severity, more in (("page", [page]), ("ticket", [warn])):
        w = World(25).exporter().exporter("b:9190").namespace(severity=severity, **few).namespace(severity=severity, instance="b:9190", **few)
        abandon(w, *[(10 + 2 * i, 10.5 + 2 * i, 0.4) for i in range(7)])
        abandon(w, *[(11 + 2 * i, 11.5 + 2 * i, 0.4) for i in range(7)], instance="b:9190")
        case("events", f"{severity}: two exporters see 2 abandonments each", w, {18: [event], 20.5: [event, *more]})
        w = usual(25, **few, severity=severity)
        abandon(w, *[(10 + 0.5 * i, 10.5 + 0.5 * i, 0.19) for i in range(24)])
        case("events", f"{severity}: 18 slices with 4 abandonments", w, {17: [event], 23: [event, *more]})
        w = usual(25, **few, severity=severity)
        abandon(w, *[(10 + 0.5 * i, 10.5 + 0.5 * i, 0.1) for i in range(24)])
        case("events", f"{severity}: 18 slices with 2 abandonments", w, {20: [event], 23: [event]})
        w = usual(40, **few, severity=severity)
        abandon(w, (10, 15, 2), (27, 32, 2))
        case("events", f"{severity}: two bursts of 5 minutes within 25", w, {17: [event], 31: [event], 33: [event]})
    w = usual(30, **few)
    abandon(w, *[(10 + 2 * i, 10.5 + 2 * i, 1) for i in range(9)])
    case("events", "an abandonment every 2 minutes", w, {17: [event], 26: [event, page]})
    w = usual(30, **few, severity="ticket")
    abandon(w, (10, 16, 50))
    case("events", "ticket: six minutes are one burst still", w, {17: [event], 18: [event], 24: [event]})
    w = World(25).exporter().exporter("b:9190").namespace(**few).namespace(instance="b:9190", **few)
    abandon(w, (10, 25, 1))
    case("events", "only one of two exporters sees abandonments", w, {18.5: [event], 19.5: [event, page]})

    # Finished twice.
    twice, twice_page = "DuplicateTerminalState/warning lock_namespace=jobs", "DuplicateTerminalState/critical lock_namespace=jobs"

    def duplicate(world, *segments, kind="duplicate_terminal_state", **labels):
        world.put("redis_lock_conflicting_writes_total", counter(world.minutes, *segments), kind=kind, **{**JOBS, **labels})

    w = usual(60)
    duplicate(w, (10, 10.5, 1))
    case("events", "work finished twice, once: a ticket for 30 minutes", w, {10: [], 10.5: [twice], 39: [twice], 41: []})
    w = usual(60)
    duplicate(w, (10, 12, 50))
    case("events", "many at once in a failover: a ticket", w, {m: [twice] for m in (10.5, 12, 14, 20, 30)})
    w = usual(60)
    duplicate(w, (10, 14, 50))
    case("events", "four minutes are one burst still", w, {m: [twice] for m in (14, 16, 18, 20, 30)})
    w = usual(80)
    duplicate(w, (10, 20, 1))
    # Slices from 10.5 on, the fifteenth at 17.5. The window of 30 minutes holds them until 43 or so, then keep_firing_for.
    case("events", "work finished twice again and again: a page", w, {17: [twice], 18: [twice_page], 40: [twice_page], 52: [twice_page], 60: []})
    w = usual(60, severity="ticket")
    duplicate(w, (10, 30, 1))
    case("events", "work finished twice, for tickets", w, {17: [twice], 18: [twice], 30: [twice]})
    w = usual(60)
    duplicate(w, *[(10 + 0.5 * i, 10.5 + 0.5 * i, 0.11) for i in range(24)])
    case("events", "15 slices with fewer than 3 are no page", w, {20: [twice], 23: [twice]})
    w = usual(60)
    duplicate(w, (10, 40, 1), kind="stale_write_rejected")
    case("events", "writes that were refused are no second final state", w, {20: [], 40: []})
    w = usual(100)
    w.drop("conflicting_writes")
    w.put("redis_lock_conflicting_writes_total", gauge(100, (0, None), (40, 1)), kind="duplicate_terminal_state", **JOBS)
    case("events", "the first double finish of a namespace that has no series", w, {39.5: [], 40: [twice], 69: [twice], 71: []})
    w = usual(100)
    w.gone(0, 30)
    w.put("redis_lock_conflicting_writes_total", gauge(100, (0, None), (30, 7)), kind="duplicate_terminal_state", **JOBS)
    for key in w.series:
        w.series[key] = [None if v == "stale" else v for v in w.series[key]]
    case("events", "old double finishes of a new exporter", w, {40: [], 50: [], 61: []})

    w = usual(60)
    w.drop("conflicting_writes")
    w.put("redis_lock_conflicting_writes_total", gauge(60, (0, None), (40, 1)), kind="duplicate_terminal_state", **JOBS)
    case("events", "the first double finish, 40 minutes after the exporter came", w, {39.5: [], 42: [twice]})
    w = usual(20)
    duplicate(w, (10, 10.5, 0.5))
    case("events", "a part of a double finish", w, {10: [], 10.5: [twice]})
    w = World(25).exporter().exporter("b:9190").namespace().namespace(instance="b:9190")
    duplicate(w, *[(10 + 2 * i, 10.5 + 2 * i, 0.4) for i in range(7)])
    duplicate(w, *[(11 + 2 * i, 11.5 + 2 * i, 0.4) for i in range(7)], instance="b:9190")
    case("events", "two exporters see 2 double finishes each", w, {17: [twice], 20.5: [twice_page]})
    w = usual(25)
    duplicate(w, *[(10 + 0.5 * i, 10.5 + 0.5 * i, 0.19) for i in range(24)])
    case("events", "15 slices with 4 double finishes", w, {16: [twice], 23: [twice_page]})
    w = usual(70)
    duplicate(w, (10, 13, 2), (48, 51, 2))
    case("events", "two bursts of 3 minutes within 40", w, {15: [twice], 50: [twice], 53: [twice]})
    w = usual(40)
    duplicate(w, (10, 13, 2), (30, 33, 2))
    case("events", "two bursts of 3 minutes within 25", w, {15: [twice], 35: [twice_page]})
    w = World(25).exporter().exporter("b:9190").namespace().namespace(instance="b:9190")
    duplicate(w, (10, 25, 1))
    case("events", "only one of two exporters sees double finishes", w, {17: [twice], 18: [twice_page]})

    # Fences.
    for severity in ("page", "ticket"):
        w = World(20).exporter().exporter("b:9190").namespace(severity=severity).namespace(severity=severity, instance="b:9190", logs=False)
        w.put("redis_lock_fence_regressions_total", counter(20, (10, 10.5, 0.5)), **SEEN)
        w.put("redis_lock_fence_regressions_total", counter(20), **{**SEEN, "instance": "b:9190"})
        alert = f"FenceRegression/{'critical' if severity == 'page' else 'warning'} lock_namespace=jobs"
        case("events", f"{severity}: one of two exporters sees a part of a fence that goes backwards", w, {10: [], 10.5: [alert]})
    w = usual(40)
    w.put("redis_lock_fence_regressions_total", counter(40, (10, 10.5, 1)), **SEEN)
    case("events", "a fence goes backwards: at once", w, {10: [], 10.5: ["FenceRegression/critical lock_namespace=jobs"], 34: ["FenceRegression/critical lock_namespace=jobs"], 36: []})
    w = usual(40, severity="ticket")
    w.put("redis_lock_fence_regressions_total", counter(40, (10, 10.5, 1)), **SEEN)
    case("events", "a fence goes backwards, for tickets", w, {10: [], 10.5: ["FenceRegression/warning lock_namespace=jobs"], 34: ["FenceRegression/warning lock_namespace=jobs"], 36: []})


# -------------------------------------------------------------------------------------------------------------------- state
def state():
    def leader(world, *changes, **labels):
        world.put("redis_lock_last_held_timestamp_seconds", clock(world.minutes, *changes), lock="app:leader", **{**SEEN, **labels})

    alert = "LeaderAbsent/critical lock_namespace=jobs redis=main lock=app:leader"
    w = usual(40, style="loop", config={"leader_absent_seconds": 180, "ttl_seconds": 10})
    leader(w, (0, None), (10, 10), (20, None))
    # Last held at 10.0, older than 3 minutes from 13.5 on, and `for` adds 2.
    case("state", "nobody leads: after leader_absent and 2 minutes", w, {15: [], 15.5: [alert], 20: [alert], 24.5: [alert], 26: []})
    w = usual(40, style="loop", severity="ticket", config={"leader_absent_seconds": 180})
    leader(w, (0, None), (10, 10), (20, None))
    case("state", "nobody leads, for tickets", w, {15: [], 15.5: ["LeaderAbsent/warning lock_namespace=jobs redis=main lock=app:leader"], 24.5: ["LeaderAbsent/warning lock_namespace=jobs redis=main lock=app:leader"], 26: []})
    w = usual(40, style="loop", config={"ttl_seconds": 60})
    leader(w, (0, None), (10, 10))
    case("state", "nobody leads: twice the TTL and 2 minutes where nothing is configured", w, {16: [], 16.5: [alert]})
    w = usual(40, style="item", config={"ttl_seconds": 60})
    leader(w, (0, None), (10, 10))
    case("state", "a fixed key of style item may be free", w, {16.5: [], 40: []})
    w = usual(40, style="loop", config={"leader_absent_seconds": 45})
    leader(w, (0, None), (10, 10), (12.5, None))
    case("state", "a failover that the leader survives", w, {m: [] for m in (11, 12, 12.5, 13, 15)})
    w = usual(40, style="loop", config={"leader_absent_seconds": 45})
    leader(w, (0, None), (10, 10))
    reached(w, gauge(40, (0, 1), (10, 0), (14, 1)), **OWN)
    case("state", "what was not seen is not absent", w, {13: [], 14: [], 15.5: [], 16: [alert]})
    w = World(40).exporter().exporter("b:9190").namespace(style="loop", config={"leader_absent_seconds": 45}).namespace(style="loop", instance="b:9190", logs=False)
    leader(w, (0, None), (10, 10))
    leader(w, (0, None), instance="b:9190")
    case("state", "one of two exporters sees the leader", w, {15: [], 40: []})
    w = World(20).exporter().exporter("b:9190").namespace(style="loop", severity="ticket", config={"leader_absent_seconds": 45}).namespace(style="loop", severity="ticket", instance="b:9190", logs=False)
    leader(w, (0, None), (10, 10))
    leader(w, (0, None), instance="b:9190")
    case("state", "one of two exporters sees the leader, for tickets", w, {15: [], 18: []})

    def overdue(world, held, *changes, **labels):
        world.put("redis_lock_held", gauge(world.minutes, (0, held)), **{**SEEN, **labels})
        world.put("redis_lock_renewal_overdue", gauge(world.minutes, *changes), **{**SEEN, **labels})

    mass, some = "MassRenewalOverdue/critical lock_namespace=jobs", "RenewalOverdue/warning lock_namespace=jobs"
    w = usual(60)
    overdue(w, 10, (0, 0), (10, 6), (30, 0))
    # Slices from 10.0 on: the sixteenth at 17.5, the twenty-fourth at 21.5. Afterwards the last sixteen of 10 minutes are left at 32.
    case("state", "60 % are overdue: a page after 7.5 minutes", w, {17: [], 17.5: [mass], 21: [mass], 21.5: [mass, some], 32: [mass, some], 41: [mass, some], 45: []})
    w = usual(60, severity="ticket")
    overdue(w, 10, (0, 0), (10, 6), (30, 0))
    case("state", "60 % are overdue, for tickets", w, {17: [], 17.5: ["MassRenewalOverdue/warning lock_namespace=jobs"], 41: ["MassRenewalOverdue/warning lock_namespace=jobs", some], 45: []})
    for held, late, expected in ((10, 4, [some]), (20, 1, []), (20, 3, [some]), (1, 1, [some]), (3, 2, [mass, some]), (4, 3, [mass, some])):
        w = usual(60)
        overdue(w, held, (0, 0), (10, late))
        case("state", f"{late} of {held} are overdue", w, {17: [], 30: expected})
    w = usual(60)
    overdue(w, 10, (0, 0), (10, 9), (14, 0), (30, 9), (34, 0))
    case("state", "overdue for 4 minutes, twice", w, {14: [], 17: [], 20: [], 34: [], 37: []})
    w = usual(60)
    overdue(w, 10, (0, 0), (10, 9), (20.5, 0))
    case("state", "overdue for 10.5 minutes: no ticket beside the page", w, {20: [mass], 21.5: [mass], 24: [mass]})
    w = usual(60)
    overdue(w, 10, (0, 0), (10, 9))
    reached(w, gauge(60, (0, 1), (10, 0)), **OWN)
    case("state", "overdue only because Redis is not seen", w, {18: ["RedisDown/critical scope=all redis=main"], 30: ["RedisDown/critical scope=all redis=main"]})
    w = World(60).exporter().exporter("b:9190").namespace().namespace(instance="b:9190")
    overdue(w, 10, (0, 0), (10, 6))
    overdue(w, 10, (0, 0), instance="b:9190")
    case("state", "one of two exporters sees them overdue: the larger counts", w, {17: [], 17.5: [mass]})
    w = World(60).exporter().exporter("b:9190").namespace().namespace(instance="b:9190", redis="second", logs=False)
    overdue(w, 10, (0, 0), (10, 6))
    overdue(w, 10, (0, 0), instance="b:9190", redis="second")
    case("state", "two Redis: 6 of 20 are overdue", w, {17.5: [], 30: [some]})
    w = World(60).exporter().exporter("b:9190").namespace().namespace(instance="b:9190", redis="second", logs=False)
    overdue(w, 10, (0, 0), (10, 6))
    overdue(w, 10, (0, 0), (10, 6), instance="b:9190", redis="second")
    case("state", "two Redis: 12 of 20 are overdue", w, {17: [], 17.5: [mass]})
    w = usual(60)
    overdue(w, 0, (0, 0))
    case("state", "nothing is held", w, {30: [], 60: []})

    without = "WithoutTtl/warning lock_namespace=jobs"
    w = usual(60)
    w.put("redis_lock_without_ttl", gauge(60, (0, 0), (20, 1), (40, 0)), **SEEN)
    # All samples of 10 minutes from 30 on (one less where ranges are left-open), and `for` adds 5.
    case("state", "a lock without TTL: after 15 minutes", w, {34: [], 35: [without], 44.5: [without], 46: []})
    w = usual(60)
    w.put("redis_lock_without_ttl", gauge(60, (0, 0), (20, 1), (32, 0)), **SEEN)
    case("state", "a lock without TTL for 12 minutes", w, {m: [] for m in (21, 31, 32, 35, 40)})
    w = usual(60)
    w.put("redis_lock_without_ttl", gauge(60, *[(m, m % 2) for m in range(60)]), **SEEN)
    case("state", "locks that get their TTL a moment later", w, {30: [], 60: []})
    w = usual(60)
    w.put("redis_lock_without_ttl", gauge(60, (0, 0), (5, 3)), **SEEN)
    reached(w, gauge(60, (0, 1), (6, 0)), **OWN)
    case("state", "without TTL when last seen", w, {30: ["RedisDown/critical scope=all redis=main"], 60: ["RedisDown/critical scope=all redis=main"]})
    w = World(60).exporter().exporter("b:9190").namespace().namespace(instance="b:9190")
    w.put("redis_lock_without_ttl", gauge(60, (0, 0), (20, 1)), **SEEN)
    w.put("redis_lock_without_ttl", gauge(60, (0, 0)), **{**SEEN, "instance": "b:9190"})
    case("state", "one of two exporters sees a lock without TTL", w, {34: [], 35: [without]})

    held = "HeldTooLong/warning lock_namespace=jobs redis=main"
    w = usual(60, config={"max_hold_seconds": 600, "ttl_seconds": 15})
    w.put("redis_lock_oldest_acquired_timestamp_seconds", clock(60, (0, None), (10, 10), (40, None)), **SEEN)
    # Taken at 10, too long from 20.5 on, and `for` adds 5.
    case("state", "held too long: max_hold and 5 minutes", w, {25: [], 25.5: [held], 44.5: [held], 46: []})
    w = usual(60, config={"ttl_seconds": 30})
    w.put("redis_lock_oldest_acquired_timestamp_seconds", clock(60, (0, None), (10, 10)), **SEEN)
    case("state", "held too long: 20 times the TTL where nothing is configured", w, {25: [], 25.5: [held]})
    w = usual(60, style="loop", config={"ttl_seconds": 30})
    w.put("redis_lock_oldest_acquired_timestamp_seconds", clock(60, (0, None), (10, 10)), **SEEN)
    case("state", "a loop may hold its lock for ever", w, {25.5: [], 60: []})
    w = World(60).exporter().exporter("b:9190").namespace(config={"max_hold_seconds": 600}).namespace(instance="b:9190")
    w.put("redis_lock_oldest_acquired_timestamp_seconds", clock(60, (0, None), (10, 10)), **SEEN)
    w.put("redis_lock_oldest_acquired_timestamp_seconds", clock(60, (0, None)), **{**SEEN, "instance": "b:9190"})
    case("state", "one of two exporters saw it being taken", w, {25: [], 25.5: [held]})
    w = usual(60, config={"max_hold_seconds": 600})
    w.put("redis_lock_oldest_acquired_timestamp_seconds", clock(60, (0, None), (10, 10)), **SEEN)
    reached(w, gauge(60, (0, 1), (15, 0)), **OWN)
    case("state", "held when last seen", w, {26: ["RedisDown/critical scope=all redis=main"], 40: ["RedisDown/critical scope=all redis=main"]})


# ---------------------------------------------------------------------------------------------------------------- lifecycle
def lifecycle():
    margin = "RenewalMarginShrinking/warning lock_namespace=jobs"

    def margins(world, *periods, renewals=20, **labels):
        """(begin, end, upper bound of the bucket in which all renewals fall)"""
        for bound in ("0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "+Inf"):
            segments = [(b, e, renewals) for b, e, le in periods if float(bound) >= le]
            world.put("redis_lock_renewal_margin_ratio_bucket", counter(world.minutes, *segments), le=bound, **{**SEEN, **labels})

    # p10 of a bucket from 0.6 to 0.7 is 0.61; 0.45 to come below three quarters of it (0.4575) and below 0.5.
    w = usual(125)
    margins(w, (0, 75, 0.7), (75, 125, 0.4))
    case("lifecycle", "renewals come with 31 % left instead of 61 %", w, {74: [], 89: [], 97: [margin], 123: [margin]})
    w = usual(125)
    margins(w, (0, 75, 0.7), (75, 125, 0.5))
    case("lifecycle", "renewals come with 41 % left instead of 61 %", w, {89: [], 115: [margin]})
    w = usual(125)
    margins(w, (0, 75, 0.6), (75, 125, 0.5))
    case("lifecycle", "renewals come with 41 % left instead of 51 %", w, {97: [], 123: []})
    w = usual(125)
    margins(w, (0, 75, 0.8), (75, 125, 0.6))
    case("lifecycle", "renewals come with 51 % left instead of 71 %", w, {97: [], 123: []})
    w = usual(125)
    margins(w, (0, 125, 0.2))
    case("lifecycle", "renewals always come late", w, {75: [], 125: []})
    w = usual(125)
    margins(w, (0, 75, 0.7), (75, 77, 0.1), (77, 125, 0.7))
    case("lifecycle", "renewals come late for 2 minutes", w, {m: [] for m in (78, 91, 95, 115)})
    for per_step, fires in ((0.3, False), (0.4, True)):
        w = usual(125, renewals=per_step)
        margins(w, (0, 75, 0.7), (75, 125, 0.2), renewals=per_step)
        case("lifecycle", f"renewals come late, {per_step * 60:.0f} in half an hour", w, {74: [], 120: [margin] if fires else []})
    w = usual(125)
    margins(w, (0, 75, 0.7), (75, 105, 0.4), (105, 125, 0.7))
    case("lifecycle", "renewals come late for half an hour: resolved when the window is over", w, {97: [margin], 123: [margin]})

    churn = "OwnerChurnHigh/warning lock_namespace=jobs"

    def changes(world, *segments, after="expiry", **labels):
        world.put("redis_lock_owner_changes_total", counter(world.minutes, *segments), after=after, **{**SEEN, **labels})

    w = usual(100)
    changes(w, (10, 50, 4))
    # Slices from 10.5 on, the twenty-fourth at 22.0 or a little later; twenty-four of the last 30 minutes are left until 70 or so.
    case("lifecycle", "a fifth of the locks change hands by expiry", w, {21: [], 23: [churn], 60: [churn], 80: [churn], 90: []})
    w = usual(100)
    changes(w, (10, 100, 1.1))
    changes(w, (10, 100, 1.1), after="unknown")
    case("lifecycle", "expiry and unknown ends are added up", w, {21: [], 30: [churn]})
    w = usual(100)
    changes(w, (10, 100, 1.6))
    case("lifecycle", "8 % change hands by expiry", w, {30: [], 100: []})
    w = usual(100)
    changes(w, (10, 100, 10), after="release")
    case("lifecycle", "after a release the next owner is welcome", w, {30: [], 100: []})
    w = usual(100, style="loop")
    changes(w, (10, 100, 10))
    case("lifecycle", "loops change hands by expiry", w, {30: [], 100: []})
    w = usual(100)
    changes(w, (10, 12, 400), (30, 32, 400), after="unknown")
    case("lifecycle", "two failovers move every lock", w, {m: [] for m in (13, 20, 32, 36, 40)})
    for per_step, fires in ((0.14, False), (0.2, True)):
        w = usual(100, traffic=1)
        changes(w, (10, 100, per_step))
        case("lifecycle", f"{per_step * 60:.0f} locks change hands in half an hour", w, {21: [], 60: [churn] if fires else []})
    w = World(100).exporter().exporter("b:9190").namespace().namespace(instance="b:9190", logs=False)
    changes(w, (10, 100, 2.6))
    changes(w, (10, 100, 2.6), instance="b:9190")
    case("lifecycle", "two exporters see the same 13 %", w, {21: [], 30: [churn]})
    w = usual(100, source="scan")
    changes(w, (10, 100, 10))
    case("lifecycle", "churn between passes is no share", w, {40: []})

    expiry = "ExpiryRatioHigh/warning lock_namespace=jobs"

    def expired(world, *segments, **labels):
        world.put("redis_lock_expirations_total", counter(world.minutes, *segments), **{**SEEN, **labels})

    w = usual(100)
    expired(w, (10, 50, 20))
    case("lifecycle", "half of the locks expire", w, {21.5: [], 23: [expiry], 60: [expiry], 78: [expiry], 95: []})
    for share, fires in ((4, False), (6.5, True)):
        w = usual(100)
        expired(w, (10, 100, share))
        case("lifecycle", f"{share / (20 + share):.0%} of the locks expire, the limit is 20 %", w, {21: [], 60: [expiry] if fires else []})
    w = usual(100, style="loop")
    expired(w, (10, 100, 20))
    case("lifecycle", "loops end by expiry", w, {40: []})
    w = usual(100, source="scan")
    expired(w, (10, 100, 20))
    case("lifecycle", "expiry between passes is no share", w, {40: []})
    w = usual(100)
    expired(w, (10, 12, 400))
    case("lifecycle", "a burst of expirations", w, {m: [] for m in (12, 14, 20, 30, 40)})
    for every, fires in ((8, False), (4, True)):
        w = usual(100, traffic=0)
        expired(w, *[(10 + every * i, 10.5 + every * i, 1) for i in range(int(88 / every))])
        case("lifecycle", f"one lock expires every {every} minutes, none is released", w, {21: [], 60: [expiry] if fires else []})
    # Every second 2 minutes are bad, but 18 % of half an hour.
    w = usual(100)
    expired(w, *[(10 + 4 * i, 12 + 4 * i, 8.5) for i in range(20)])
    case("lifecycle", "18 % of the locks expire in bursts", w, {40: [], 60: [], 80: []})
    w = World(100).exporter().exporter("b:9190").namespace().namespace(instance="b:9190", logs=False)
    expired(w, (10, 100, 3.5))
    expired(w, (10, 100, 3.5), instance="b:9190")
    case("lifecycle", "two exporters see the same 15 %", w, {40: [], 100: []})
    w = World(100).exporter().exporter("b:9190").namespace().namespace(instance="b:9190", redis="second", logs=False)
    expired(w, (10, 100, 6.5))
    case("lifecycle", "two Redis: 14 % of the locks expire", w, {40: [], 100: []})

    slow = "TakeoverSlow/warning lock_namespace=jobs"

    def takeovers(world, slow_segments, fast_segments, **labels):
        world.put("redis_lock_takeovers_total", counter(world.minutes, *slow_segments), within_slo="false", **{**SEEN, **labels})
        world.put("redis_lock_takeovers_total", counter(world.minutes, *fast_segments), within_slo="true", **{**SEEN, **labels})

    w = usual(160)
    takeovers(w, [(10 + 5 * i, 10.5 + 5 * i, 1) for i in range(6)], [(0, 160, 0.01)])
    # Three or four slices each: the tenth with the third or fourth. The hour is over at 95, keep_firing_for adds 15.
    case("lifecycle", "slow takeovers, every 5 minutes", w, {19: [], 28: [slow], 70: [slow], 80: [slow], 125: []})
    w = usual(160)
    takeovers(w, [(10, 12, 100)], [(0, 160, 0.01)])
    case("lifecycle", "slow takeovers of one failover", w, {m: [] for m in (12, 14, 20, 40)})
    w = usual(160)
    takeovers(w, [(10 + 5 * i, 10.5 + 5 * i, 1) for i in range(12)], [(0, 160, 2)])
    case("lifecycle", "5 % of the takeovers are slow", w, {70: [], 100: []})
    w = usual(160)
    takeovers(w, [(10 + 5 * i, 10.5 + 5 * i, 1) for i in range(12)], [(0, 160, 0.6)])
    case("lifecycle", "14 % of the takeovers are slow", w, {70: [slow]})
    w = usual(160)
    takeovers(w, [(10, 30, 0.05)], [(0, 160, 0)])
    case("lifecycle", "two slow takeovers, whatever the slices", w, {30: [], 40: []})
    w = World(160).exporter().exporter("b:9190").namespace().namespace(instance="b:9190", logs=False)
    for instance in ("a:9190", "b:9190"):
        takeovers(w, [(10 + 15 * i, 10.5 + 15 * i, 0.6) for i in range(4)], [(0, 160, 0)], instance=instance)
    case("lifecycle", "two exporters see the same two slow takeovers", w, {60: []})

    early = "ReleasedEarly/warning lock_namespace=jobs"

    def released_early(world, *segments, **labels):
        world.put("redis_lock_early_releases_total", counter(world.minutes, *segments), **{**SEEN, **labels})

    w = usual(160, style="loop")
    released_early(w, *[(10 + 5 * i, 10.5 + 5 * i, 1) for i in range(6)])
    case("lifecycle", "a loop's lock is deleted every 5 minutes", w, {19: [], 28: [early], 70: [early], 80: [early], 125: []})
    w = usual(160, style="loop")
    released_early(w, (10, 12, 100))
    case("lifecycle", "a loop's lock is deleted during 2 minutes", w, {m: [] for m in (12, 14, 20, 40)})
    w = usual(160, style="loop")
    released_early(w, (10, 30, 0.05))
    case("lifecycle", "two early releases, whatever the slices", w, {30: [], 40: []})
    w = World(160).exporter().exporter("b:9190").namespace(style="loop").namespace(style="loop", instance="b:9190", logs=False)
    for instance in ("a:9190", "b:9190"):
        released_early(w, (10, 30, 0.05), instance=instance)
    case("lifecycle", "two exporters see the same two early releases", w, {40: []})

    short = "TtlTooShort/warning lock_namespace=jobs"

    def causes(world, cause, *segments, **labels):
        world.put("redis_lock_not_owned_causes_total", counter(world.minutes, *segments), cause=cause, **{**JOBS, **labels})

    def advised(recommended, *segments, cause="expired_never_renewed", ttl=30):
        w = usual(160, config={"ttl_seconds": ttl})
        w.put("redis_lock_recommended_ttl_seconds", gauge(160, (0, recommended)), **SEEN)
        causes(w, cause, *segments)
        return w

    some = [(10 + 4 * i, 10.5 + 4 * i, 1) for i in range(8)]
    # Twelve slices with the third or fourth event, five events at 26.5; `for` adds 10.
    case("lifecycle", "locks expire and the TTL is shorter than advised", advised(60, *some), {30: [], 37: [short], 90: [short], 110: [short], 150: []})
    case("lifecycle", "renewals stop and the TTL is shorter than advised", advised(60, *some, cause="renewals_stopped"), {30: [], 37: [short]})
    case("lifecycle", "locks are deleted and the TTL is shorter than advised", advised(60, *some, cause="deleted_early"), {37: [], 60: []})
    case("lifecycle", "locks expire and the TTL is as advised", advised(30, *some), {37: [], 60: []})
    case("lifecycle", "four locks expire and the TTL is shorter than advised", advised(60, *some[:4]), {37: [], 60: []})
    case("lifecycle", "many locks expire at once and the TTL is shorter than advised", advised(60, (10, 12, 100)), {24: [], 40: []})
    w = advised(60)
    w.exporter("b:9190").namespace(instance="b:9190", config={"ttl_seconds": 30})
    causes(w, "expired_never_renewed", *some[:3])
    causes(w, "expired_never_renewed", *some[3:6], instance="b:9190")
    case("lifecycle", "locks expire by the logs of two exporters", w, {30: [], 45: [short]})

    # Another exporter reads the logs than sees Redis: no cause is known, but locks are found lost while locks expire.
    def apart(n_lost, n_expired, style="item", cause=None, recommended=60):
        w = World(60).exporter(logs=False).exporter("b:9190", redis=False, job="logs")
        w.namespace(logs=False, style=style, config={"ttl_seconds": 30}).namespace(instance="b:9190", job="logs", redis=None, style=style, config={"ttl_seconds": 30})
        w.put("redis_lock_recommended_ttl_seconds", gauge(60, (0, recommended)), **SEEN)
        lost(w, *some[:n_lost], instance="b:9190", job="logs")
        w.put("redis_lock_expirations_total", counter(60, *some[:n_expired]), **SEEN)
        causes(w, "unknown", *some, instance="b:9190", job="logs")
        if cause:
            causes(w, cause, (10, 10.5, 1), instance="b:9190", job="logs")
        return w

    for name, world, fires in (
        ("eight lost, eight expired", apart(8, 8), True), ("four lost, eight expired", apart(4, 8), False), ("eight lost, four expired", apart(8, 4), False),
        ("of a loop", apart(8, 8, style="loop"), False), ("one of them was deleted", apart(8, 8, cause="deleted_early"), False), ("the TTL is as advised", apart(8, 8, recommended=30), False),
    ):
        case("lifecycle", f"logs and Redis are seen by different exporters: {name}", world, {30: [], 40: [short] if fires else [], 59: [short] if fires else []})
    # Five lost and five expired, at different times; and all at once.
    w = apart(0, 0)
    lost(w, *some, instance="b:9190", job="logs")
    w.put("redis_lock_expirations_total", counter(60, *[(begin + 30, end + 30, amount) for begin, end, amount in some[:6]]), **SEEN)
    case("lifecycle", "logs and Redis are seen by different exporters: what expires is not what is lost", w, {30: [], 40: [], 59: []})
    w = apart(0, 0)
    lost(w, (10, 12, 100), instance="b:9190", job="logs")
    w.put("redis_lock_expirations_total", counter(60, (10, 12, 100)), **SEEN)
    case("lifecycle", "logs and Redis are seen by different exporters: all at once", w, {24: [], 40: []})

    busy = "ContentionHigh/warning lock_namespace=jobs"

    def contention(share, minutes=110, end=110, traffic=20, **more):
        w = usual(minutes, traffic=traffic, **more)
        w.put("redis_lock_acquire_failures_total", counter(minutes, (10, end, share)), reason="busy", **JOBS)
        return w

    # Above 50 % of 30 minutes once more than 30 busy attempts were made and the rest of the window is outweighed; `for` is 35.
    case("lifecycle", "two thirds of the attempts find the lock taken", contention(40), {54: [], 75: [busy], 110: [busy]})
    case("lifecycle", "44 % of the attempts find the lock taken", contention(16), {75: [], 110: []})
    case("lifecycle", "44 % where 30 % are allowed", contention(16, config={"busy_ratio": 0.3}), {80: [busy]})
    case("lifecycle", "a burst of busy locks for 5 minutes", contention(400, end=15), {m: [] for m in (20, 44, 46, 50, 60)})
    case("lifecycle", "25 busy attempts in half an hour", contention(0.42, traffic=0), {80: [], 110: []})
    case("lifecycle", "40 busy attempts in half an hour", contention(0.66, traffic=0), {90: [busy]})
    case("lifecycle", "contention between passes is no share", contention(40, source="scan"), {90: []})
    case("lifecycle", "contention ends", contention(40, minutes=160, end=90), {90: [busy], 110: [busy], 150: []})
    w = contention(40)
    w.put("redis_lock_acquire_failures_total", counter(110, (10, 150, 40)), reason="other", **JOBS)
    w.drop('reason="busy"')
    case("lifecycle", "attempts that fail otherwise are no contention", w, {90: ["AcquireFailing/critical lock_namespace=jobs"]})
    # 32 busy of 32 + 20 taken; were the keyspace added up twice it would be 44 %.
    w = World(110).exporter().exporter("b:9190").namespace().namespace(instance="b:9190")
    w.put("redis_lock_acquire_failures_total", counter(110, (10, 150, 16)), reason="busy", **JOBS)
    w.put("redis_lock_acquire_failures_total", counter(110, (10, 150, 16)), reason="busy", **{**JOBS, "instance": "b:9190"})
    case("lifecycle", "two exporters: busy attempts are added up, acquisitions are not", w, {100: [busy]})
    w = World(110).exporter().exporter("b:9190").namespace().namespace(instance="b:9190", redis="second", logs=False)
    w.put("redis_lock_acquire_failures_total", counter(110, (10, 150, 30)), reason="busy", **JOBS)
    case("lifecycle", "two Redis: 43 % of the attempts find the lock taken", w, {100: []})


def lifecycle_limits():
    """Each number, window and time of the tickets about how locks live, from both sides; two Redis are added up, of two exporters the larger counts."""
    w = usual(92)
    w.put("redis_lock_expirations_total", counter(92, (10, 92, 6)), **SEEN)
    case("lifecycle", "23 % of the locks expire, for longer than an hour", w, {20: [], 45: ["ExpiryRatioHigh/warning lock_namespace=jobs"], 90: ["ExpiryRatioHigh/warning lock_namespace=jobs"]})
    two = {"instance": "b:9190", "logs": False}

    def both(minutes, style="item", **more):
        """Two Redis, each seen by an exporter of its own."""
        return World(minutes).exporter().exporter("b:9190", logs=False).namespace(style=style, **more).namespace(style=style, redis="second", **two, **more)

    SECOND = {**SEEN, "redis": "second", "instance": "b:9190"}
    TWIN = {**SEEN, "instance": "b:9190"}
    margin, churn, expiry = (f"{name}/warning lock_namespace=jobs" for name in ("RenewalMarginShrinking", "OwnerChurnHigh", "ExpiryRatioHigh"))
    slow, early, short, busy = (f"{name}/warning lock_namespace=jobs" for name in ("TakeoverSlow", "ReleasedEarly", "TtlTooShort", "ContentionHigh"))

    def margins(world, *periods, **labels):
        """(begin, end, upper bound of the bucket, renewals every 30 s)"""
        for bound in ("0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "+Inf"):
            segments = [(begin, end, amount) for begin, end, le, amount in periods if float(bound) >= le]
            world.put("redis_lock_renewal_margin_ratio_bucket", counter(world.minutes, *segments), le=bound, **{**SEEN, **labels})

    # A tenth of the last 30 minutes is late after 20 minutes, and `for` adds 15.
    w = usual(125)
    margins(w, (0, 75, 0.7, 20), (75, 125, 0.7, 17), (75, 125, 0.4, 3))
    case("lifecycle", "15 % of the renewals come late", w, {105: [], 115: [margin]})
    # After 22.2 minutes.
    w = both(125)
    margins(w, (0, 75, 0.7, 20), (75, 125, 0.7, 18.5), (75, 125, 0.4, 1.5))
    margins(w, (75, 125, 0.7, 1.5), (75, 125, 0.4, 1.5), redis="second", instance="b:9190")
    case("lifecycle", "two Redis: 13 % of the renewals come late", w, {105: [], 118: [margin]})
    w = both(105, renewals=0.2)
    margins(w, (0, 75, 0.7, 0.2), (75, 105, 0.4, 0.2))
    margins(w, (0, 75, 0.7, 0.2), (75, 105, 0.4, 0.2), redis="second", instance="b:9190")
    case("lifecycle", "two Redis: 12 renewals each in half an hour come late", w, {102: [margin]})
    w = World(105).exporter().exporter("b:9190", logs=False).namespace().namespace(**two, renewals=0)
    margins(w, (0, 75, 0.7, 20), (75, 105, 0.4, 20))
    margins(w, (0, 105, 0.7, 0), instance="b:9190")
    # A tenth of 30 minutes are 3, and `for` adds 15.
    case("lifecycle", "one of two exporters sees renewals come late", w, {92.5: [], 95: [margin]})
    w = usual(135)
    margins(w, (0, 75, 0.7, 20), (75, 85, 0.4, 20), (85, 135, 0.7, 20))
    case("lifecycle", "renewals come late for 10 minutes: until the window and 15 minutes are over", w, {110: [margin], 124: [margin], 131: []})
    w = usual(125)
    margins(w, (0, 10, 0.8, 20), (10, 100, 0.5, 20), (100, 125, 0.4, 20))
    case("lifecycle", "renewals were better for 10 minutes", w, {122: []})
    w = usual(125)
    margins(w, (0, 40, 0.8, 20), (40, 45, 0.4, 20), (45, 100, 0.8, 20), (100, 125, 0.4, 20))
    case("lifecycle", "renewals were worse for 5 minutes", w, {90: [], 122: [margin]})
    w = usual(58)
    margins(w, (0, 35, 0.7, 20), (35, 58, 0.4, 20))
    case("lifecycle", "renewals come late, with a past of half an hour", w, {57: []})
    for name, better, change, end, expected in (("half of 13 hours", 405, 832, 870, [margin]), ("half of 25 hours and less of a day", 760, 1555, 1590, [])):
        w = usual(end)
        margins(w, (0, better, 0.6, 20), (better, change, 0.5, 20), (change, end, 0.4, 20))
        case("lifecycle", f"renewals were better for more than {name}", w, {change - 5: [], end: expected}, every=5)

    def changes(world, *segments, after="expiry", **labels):
        world.put("redis_lock_owner_changes_total", counter(world.minutes, *segments), after=after, **{**SEEN, **labels})

    w = both(35)
    changes(w, (5, 35, 2.2))
    changes(w, (5, 35, 2.2), **SECOND)
    case("lifecycle", "two Redis: 11 % change hands in each", w, {16: [], 30: [churn]})
    w = both(35)
    changes(w, (5, 35, 3))
    case("lifecycle", "two Redis: 15 % change hands in one, 7.5 % in both", w, {30: []})
    w = usual(35, traffic=1 / 8, config={"min_failures": 0.1})
    changes(w, (5, 35, 1 / 16))
    case("lifecycle", "hardly any lock, and half change hands", w, {16: [], 30: [churn]})
    w = both(45, traffic=0.5)
    changes(w, (5, 45, 7 / 64))
    changes(w, (5, 45, 7 / 64), **SECOND)
    case("lifecycle", "two Redis: 6.6 locks change hands in each", w, {40: [churn]})
    w = usual(45, traffic=0.5)
    changes(w, (5, 45, 7 / 64))
    changes(w, (5, 45, 7 / 64), after="unknown")
    case("lifecycle", "6.6 locks change hands by expiry and as many unseen", w, {40: [churn]})

    def expired(world, *segments, **labels):
        world.put("redis_lock_expirations_total", counter(world.minutes, *segments), **{**SEEN, **labels})

    w = both(40)
    expired(w, (5, 40, 6))
    expired(w, (5, 40, 6), **SECOND)
    case("lifecycle", "two Redis: 23 % of the locks expire in each", w, {16: [], 35: [expiry]})
    for where, times, other in (("one Redis", 1, None), ("two Redis", 2, {"redis": "second"}), ("a twin that sees a fifth", 1, {"traffic": 4})):
        def watched(minutes):
            w = usual(minutes)
            return w.exporter("b:9190", logs=False).namespace(**two, **other) if other else w

        w = watched(40)
        expired(w, (5, 11, 20 * times), (11, 40, 4 * times))
        case("lifecycle", f"{where}: half of the locks expire for 6 minutes, then 17 %", w, {30: [], 34: []})
        w = watched(65)
        expired(w, *[(10 + 4 * i, 12 + 4 * i, 9.5 * times) for i in range(13)])
        case("lifecycle", f"{where}: 19 % of the locks expire in bursts", w, {45: [], 60: []})
    w = usual(76)
    expired(w, (5, 13, 125), (40, 76, 6))
    case("lifecycle", "23 % of the locks expire, half an hour after a burst", w, {30: [], 75: [expiry]})
    w = usual(60)
    expired(w, (10, 17, 40), (47, 54, 40))
    case("lifecycle", "two bursts of 7 minutes in 45", w, {25: [], 55: [], 57: []})
    w = both(55, traffic=0, config={"min_failures": 10})
    expired(w, *[(5 + 4 * i, 5.5 + 4 * i, 1) for i in range(12)])
    expired(w, *[(7 + 4 * i, 7.5 + 4 * i, 1) for i in range(12)], **SECOND)
    case("lifecycle", "two Redis: 7 locks expire in each, none is released", w, {15: [], 50: [expiry]})
    w = usual(80, traffic=0, config={"min_failures": 20})
    expired(w, *[(5 + 2 * i, 5.5 + 2 * i, 1) for i in range(37)])
    case("lifecycle", "15 locks expire in half an hour where min_failures is 20", w, {50: [], 78: []})
    w = usual(35, traffic=0, config={"min_failures": 0.1})
    expired(w, (5, 35, 1 / 64))
    case("lifecycle", "hardly any lock, and all expire", w, {15: [], 30: [expiry]})

    def takeovers(world, late, fast, **labels):
        for segments, within in ((late, "false"), (fast, "true")):
            world.put("redis_lock_takeovers_total", counter(world.minutes, *segments), within_slo=within, **{**SEEN, **labels})

    def events(begin, number, every=5, amount=1):
        return [(begin + every * i, begin + every * i + 0.5, amount) for i in range(number)]

    w = usual(110)
    takeovers(w, events(10, 6), [])
    w.put("redis_lock_early_releases_total", counter(110, *events(10, 6)), **SEEN)
    # The third last, of minute 25, leaves the hour at 85.5, on Prometheus 3 its slices do four minutes before; then 15 minutes.
    case("lifecycle", "slow takeovers and early releases end", w, {80: [slow, early], 95: [slow, early], 106: []})
    w = usual(100)
    takeovers(w, [(5, 5.5, 2), (70, 90, 0.05)], [])
    w.put("redis_lock_early_releases_total", counter(100, (5, 5.5, 2), (70, 90, 0.05)), **SEEN)
    case("lifecycle", "two slow takeovers and early releases in an hour, four in two", w, {40: [], 92: []})
    w = usual(85)
    takeovers(w, [(5, 10, 0.05), (75, 76, 5)], [])
    w.put("redis_lock_early_releases_total", counter(85, (5, 10, 0.05), (75, 76, 5)), **SEEN)
    case("lifecycle", "slow takeovers and early releases at once, some before", w, {40: [], 78: [], 82: []})
    w = usual(125)
    takeovers(w, [(3, 4, 15), *events(66, 12)], [(62, 125, 2)])
    case("lifecycle", "5 % of the takeovers are slow, 30 were an hour before", w, {40: [], 122: []})
    w = usual(128)
    takeovers(w, events(62, 13), [(0, 60, 10), (60, 128, 0.6)])
    case("lifecycle", "14 % of the takeovers are slow, before there were many", w, {50: [], 125: [slow]})
    w = usual(85)
    takeovers(w, events(10, 15), [(10, 85, 1.3)])
    case("lifecycle", "7 % of the takeovers are slow", w, {60: [], 82: []})
    w = usual(85)
    takeovers(w, events(10, 15), [(0, 85, 60 / 64)])
    case("lifecycle", "9.6 % of the takeovers are slow", w, {60: [], 82: []})
    w = both(80)
    takeovers(w, events(10, 7, 10), [(10, 80, 0.34)])
    takeovers(w, events(15, 7, 10), [(10, 80, 0.34)], **SECOND)
    case("lifecycle", "two Redis: 13 % of the takeovers are slow", w, {75: [slow]})
    w = both(85)
    takeovers(w, events(10, 15), [(10, 85, 0.5)])
    takeovers(w, [], [(10, 85, 0.83)], **SECOND)
    case("lifecycle", "two Redis: 7 % of the takeovers are slow", w, {60: [], 82: []})
    w = both(50)
    takeovers(w, [(10, 30, 0.05)], [])
    takeovers(w, [(10, 30, 0.05)], [], **SECOND)
    for labels in (SEEN, SECOND):
        w.put("redis_lock_early_releases_total", counter(50, (10, 30, 0.05)), **labels)
    case("lifecycle", "two Redis: two slow takeovers and early releases in each", w, {40: [slow, early]})

    def advised(minutes, *segments, recommended=60, ttl=30):
        w = usual(minutes, config={"ttl_seconds": ttl})
        w.put("redis_lock_recommended_ttl_seconds", gauge(minutes, (0, recommended)), **SEEN)
        w.put("redis_lock_not_owned_causes_total", counter(minutes, *segments), cause="expired_never_renewed", **JOBS)
        return w

    case("lifecycle", "a TTL is too short: when it begins and ends", advised(130, *events(10, 8, 4)), {33: [], 37: [short], 109: [short], 118: []})
    case("lifecycle", "a TTL is too short: four locks in an hour, eight in two", advised(105, (5, 5.5, 4), (70, 90, 0.1)), {30: [], 102: []})
    case("lifecycle", "a TTL is too short: many locks at once, some before", advised(100, (5, 10, 0.1), (75, 76, 6)), {30: [], 97: []})
    case("lifecycle", "a TTL is too short: many locks within 2.5 minutes", advised(45, (10, 12.5, 20)), {28: [], 42: []})
    w = advised(50, *events(10, 8, 4)).exporter("b:9190", logs=False).namespace(**two, config={"ttl_seconds": 30})
    w.put("redis_lock_recommended_ttl_seconds", gauge(50, (0, 20)), **TWIN)
    case("lifecycle", "a TTL is too short: one of two exporters says so", w, {42: [short]})
    w = advised(45, *events(10, 8, 4)).exporter("b:9190", logs=False).namespace(**two, config={"ttl_seconds": 30})
    w.put("redis_lock_recommended_ttl_seconds", gauge(45, (0, 50)), **TWIN)
    case("lifecycle", "a TTL is too short: both exporters say so", w, {30: [], 42: [short]})
    w = advised(50, *events(10, 8, 4)).exporter("b:9190", logs=False).namespace(**two, config={"ttl_seconds": 90})
    case("lifecycle", "a TTL is too short in one of two configurations", w, {42: []})

    def contention(minutes, *segments, **more):
        w = World(minutes).exporter().exporter("b:9190").namespace(**more).namespace(instance="b:9190", **more)
        for instance in ("a:9190", "b:9190"):
            w.put("redis_lock_acquire_failures_total", counter(minutes, *segments), reason="busy", **{**JOBS, "instance": instance})
        return w

    case("lifecycle", "two exporters: 44 % of the attempts find the lock taken", contention(90, (10, 90, 8)), {60: [], 88: []})
    case("lifecycle", "two exporters: 20 busy attempts each in half an hour", contention(90, (10, 90, 0.33), traffic=0), {88: [busy]})
    w = usual(135)
    w.put("redis_lock_acquire_failures_total", counter(135, (10, 90, 40)), reason="busy", **JOBS)
    # Below half of 30 minutes at 105, then 15 minutes.
    case("lifecycle", "contention ends: 15 minutes after it is below", w, {104: [busy], 117: [busy], 128: []})


# -------------------------------------------------------------------------------------------------------------------- redis
def redis():
    down = "RedisDown/critical scope=all redis=main"
    w = usual(40)
    reached(w, gauge(40, (0, 1), (10, 0), (20, 1)), **OWN)
    # Not up for the whole of 3 minutes from 13 on (12.5 where ranges are left-open), and `for` adds 2.
    case("redis", "Redis is down: after 5 minutes", w, {14: [], 15: [down], 20: [down], 24.5: [down], 26: []})
    for length in (1, 2, 4):
        w = usual(40)
        reached(w, gauge(40, (0, 1), (10, 0), (10 + length, 1)), **OWN)
        w.put("redis_lock_operations_source", gauge(40, (0, 1), (10, "stale"), (10 + length, 1)), source="watch", **SEEN)
        w.put("redis_lock_operations_source", gauge(40, (0, None), (10, 1), (10 + length, "stale")), source="none", **SEEN)
        w.put("redis_lock_exporter_tracking_up", gauge(40, (0, 1), (10, 0), (10 + length, 1)), **OWN)
        w.put("redis_lock_exporter_redis_failovers_total", counter(40, (10 + length - 0.5, 10 + length, 1)), **OWN)
        lost(w, (10, 10 + length / 4, 300))
        failover = ["FailoverObserved/info redis=main"]
        case("redis", f"a failover of {length} minutes as a whole", w,
             {11: [], 10 + length: failover, 11 + length: failover, 14 + length: failover, 24 + length: failover, 26 + length: []})
    w = World(40).exporter().exporter("b:9190").namespace().namespace(instance="b:9190")
    reached(w, gauge(40, (0, 1), (10, 0)), **OWN)
    case("redis", "one of two exporters cannot reach Redis", w, {15: [], 40: []})
    w = World(40).exporter().exporter("b:9190").namespace().namespace(instance="b:9190", redis="second", logs=False)
    reached(w, gauge(40, (0, 1), (10, 0)), **OWN)
    case("redis", "one of two Redis is down", w, {14: [], 15: [down]})
    w = World(40).exporter(cluster="east").exporter("b:9190", cluster="west").namespace(cluster="east").namespace(cluster="west", instance="b:9190")
    reached(w, gauge(40, (0, 1), (10, 0)), cluster="east", **OWN)
    case("redis", "Redis is down in one of two clusters", w, {14: [], 15: ["RedisDown/critical scope=all redis=main cluster=east"]})

    # A Cluster of three primaries: as long as one is connected, it is a part that is away.
    part = "RedisDown/critical scope=part redis=main"

    def primaries(*changes):
        w = usual(60)
        w.put("redis_lock_exporter_redis_nodes", gauge(60, (0, 3)), **OWN)
        w.put("redis_lock_exporter_redis_nodes_up", gauge(60, *changes), **OWN)
        w.put("redis_lock_exporter_redis_up", gauge(60, *[(since, int(up == 3)) for since, up in changes]), **OWN)
        return w

    case("redis", "one of three primaries is down", primaries((0, 3), (10, 2), (30, 3)), {14: [], 15: [part], 30: [part], 34.5: [part], 36: []})
    case("redis", "the last of three primaries goes down later", primaries((0, 3), (10, 1), (30, 0)), {14: [], 15: [part], 31: [part], 35: [down, part], 41: [down]})
    case("redis", "all of three primaries are down, and one comes back", primaries((0, 3), (10, 0), (30, 1)), {14: [], 15: [down], 32: [down, part], 37: [part]})

    # One that was down with the others counts for 3 minutes as a part that is not, and then for 5 more.
    case("redis", "the last of three primaries goes down later: when", primaries((0, 3), (10, 1), (20, 0)), {21: [part], 24: [part], 26.5: [down, part]})
    w = World(25).exporter().exporter("b:9190", logs=False).namespace().namespace(instance="b:9190", logs=False)
    for instance, up in (("a:9190", 0), ("b:9190", 2)):
        own = {**OWN, "instance": instance}
        w.put("redis_lock_exporter_redis_nodes", gauge(25, (0, 3)), **own)
        w.put("redis_lock_exporter_redis_nodes_up", gauge(25, (0, 3), (10, up)), **own)
        w.put("redis_lock_exporter_redis_up", gauge(25, (0, 1), (10, 0)), **own)
    case("redis", "one of two exporters reaches two of three primaries, the other one none", w, {14: [], 15: [part], 24: [part]})

    # Failovers beside each other: two exporters that count the same two are no flapping.
    flapping, observed = "FailoverFlapping/warning redis=main", "FailoverObserved/info redis=main"
    w = usual(150)
    w.put("redis_lock_exporter_redis_failovers_total", counter(110, (10, 10.5, 1), (30, 30.5, 1), (50, 50.5, 1)), **OWN)
    case("redis", "three failovers within an hour", w, {10.5: [observed], 24: [observed], 26: [], 50.5: [observed], 54: [observed], 56: [observed, flapping], 80: [flapping], 84: [flapping], 90: []})
    w = World(100).exporter().exporter("b:9190").namespace().namespace(instance="b:9190")
    for instance in ("a:9190", "b:9190"):
        w.put("redis_lock_exporter_redis_failovers_total", counter(100, (10, 10.5, 1), (30, 30.5, 1)), instance=instance, job="locks")
    case("redis", "two exporters count the same two failovers", w, {10.5: [observed], 40: [observed], 46: []})
    w = World(30).exporter().exporter("b:9190").namespace().namespace(instance="b:9190")
    w.put("redis_lock_exporter_redis_failovers_total", counter(30, (4, 4.5, 1), (10, 10.5, 1), (16, 16.5, 1)), **OWN)
    case("redis", "one of two exporters counts three failovers", w, {4.5: [observed], 23: [observed, flapping]})


# ----------------------------------------------------------------------------------------------------------------- exporter
def exporter():
    absent = "ExporterAbsent/critical missing=all"
    w = usual(60)
    w.gone(10, 40)
    case("exporter", "no exporter at all", w, {19.5: [], 20: [absent], 39: [absent], 44: [absent], 46: []})
    w = usual(60)
    w.gone(10, 19)
    case("exporter", "an exporter restarts for 9 minutes", w, {m: [] for m in (11, 15, 19, 20, 30)})
    two = lambda minutes: World(minutes).exporter(logs=False).exporter("b:9190", job="logs", redis=False).namespace(logs=False).namespace(instance="b:9190", job="logs", redis=None)
    w = two(460)
    w.gone(10, text="a:9190")
    gone = "ExporterAbsent/critical missing=redis redis=main"
    case("exporter", "the keyspace side is gone, for 6 hours", w, {15: [], 20: [gone], 365: [gone], 380: []}, every=5)
    w = two(460)
    w.gone(10, text="b:9190")
    gone = "ExporterAbsent/critical missing=logs job=logs"
    case("exporter", "the log side is gone, for 6 hours", w, {15: [], 20: [gone], 365: [gone], 380: []}, every=5)
    for name, text, gone in (("keyspace", "a:9190", "redis redis=main"), ("log", "b:9190", "logs job=logs")):
        w = two(40)
        w.gone(10, 30, text=text)
        gone = f"ExporterAbsent/critical missing={gone}"
        case("exporter", f"the {name} side is gone and comes back", w, {19: [], 20: [gone], 30: [gone], 34: [gone], 36.5: []})
    w = two(60).exporter("c:9190", job="logs", redis=False)
    w.gone(10, text="c:9190")
    w.put("up", gauge(60, (0, 1), (10, 0), (40, 1)), instance="c:9190", job="logs")
    gone = "ExporterAbsent/warning missing=target instance=c:9190 job=logs"
    # Not up for the whole of 5 minutes, and `for` adds 10.
    case("exporter", "one node's log side is down", w, {24: [], 25: [gone], 44.5: [gone], 46: []})
    w = two(60)
    w.gone(10, text="a:9190")
    w.series['up{instance="a:9190",job="locks"}'] = gauge(60, (0, 1), (10, 0))
    case("exporter", "the keyspace side is down", w, {20: ["ExporterAbsent/critical missing=redis redis=main"], 25: ["ExporterAbsent/critical missing=redis redis=main", "ExporterAbsent/warning missing=target instance=a:9190 job=locks"]})
    w = usual(60)
    w.put("up", gauge(60, (0, 0)), instance="x:9100", job="node")
    case("exporter", "another target is down", w, {30: []})
    w = usual(60)
    w.gone(10)
    w.put("up", gauge(60, (0, 1), (10, 0)), **OWN)
    case("exporter", "the only exporter is down: one alert", w, {20: [absent], 30: [absent], 60: [absent]})

    stale = "ScanStale/warning instance=a:9190 job=locks"

    def scans(minutes, tracking, seconds, *changes, interval=None):
        w = usual(minutes, source="watch" if tracking else "scan")
        w.put("redis_lock_exporter_tracking_up", gauge(minutes, (0, tracking)), **OWN)
        w.put("redis_lock_exporter_scan_interval_seconds", gauge(minutes, (0, interval or (300 if tracking else 15))), **OWN)
        w.put("redis_lock_exporter_scan_duration_seconds", gauge(minutes, (0, seconds)), **OWN)
        w.put("redis_lock_exporter_scan_last_success_timestamp_seconds", clock(minutes, *changes), **OWN)
        return w

    # 60 s, three times the interval of 15 s or 5 minutes and the duration of 1 s; `for` adds 5.
    case("exporter", "no pass any more, changes not told of", scans(60, 0, 1, (0, None), (10, 10), (30, None)), {16.5: [], 17: [stale], 30: [stale], 34.5: [stale], 36: []})
    case("exporter", "no pass any more, changes told of", scans(60, 1, 1, (0, None), (10, 10)), {31: [], 31.5: [stale]})
    case("exporter", "passes take 10 minutes", scans(90, 0, 600, (0, None), (10, 10)), {46.5: [], 47: [stale]})
    for tracking in (0, 1):
        case("exporter", f"a pass every hour, changes {'' if tracking else 'not '}told of", scans(200, tracking, 1, (0, None), (10, 10), interval=3600), {20: [], 40: [], 196: [], 196.5: [stale]})
    case("exporter", "a pass every second, and one that is late by a minute", scans(40, 0, 1, (0, None), (10, 10), (11, None), interval=1), {m: [] for m in (11, 12, 16, 17)})
    w = scans(60, 0, 1, (0, None), (10, 10))
    reached(w, gauge(60, (0, 1), (12, 0)), **OWN)
    case("exporter", "no pass because Redis is down", w, {19: ["RedisDown/critical scope=all redis=main"], 40: ["RedisDown/critical scope=all redis=main"]})
    w = usual(60)
    w.drop("scan_last_success")
    case("exporter", "never a pass", w, {4.5: [], 5: [stale], 60: [stale]})

    lost_tracking = "TrackingLost/warning instance=a:9190 job=locks"
    w = usual(60)
    w.put("redis_lock_exporter_tracking_up", gauge(60, (0, 1), (10, 0), (40, 1)), **OWN)
    case("exporter", "changes are no longer told of", w, {24: [], 25: [lost_tracking], 44.5: [lost_tracking], 46: []})
    w = usual(60, source="scan")
    w.put("redis_lock_exporter_tracking_up", gauge(60, (0, 0)), **OWN)
    case("exporter", "changes never were told of", w, {30: [], 60: []})
    w = usual(60)
    w.put("redis_lock_exporter_tracking_up", gauge(60, (0, 1), (10, 0)), **OWN)
    reached(w, gauge(60, (0, 1), (10, 0)), **OWN)
    case("exporter", "changes are not told of because Redis is down", w, {30: ["RedisDown/critical scope=all redis=main"]})
    w = usual(60)
    w.put("redis_lock_exporter_tracking_up", gauge(60, (0, 1), (10, 0), (20, 1)), **OWN)
    case("exporter", "changes are not told of for 10 minutes", w, {m: [] for m in (19, 20, 25, 30)})

    stalled = "LogTailStalled/warning instance=a:9190 job=locks source=/var/log/app.log"

    def log(minutes, lag, bytes_segments, errors=()):
        w = usual(minutes)
        w.put("redis_lock_exporter_log_lag_bytes", gauge(minutes, *lag), **SOURCE)
        w.put("redis_lock_exporter_log_bytes_total", counter(minutes, *bytes_segments), **SOURCE)
        w.put("redis_lock_exporter_log_read_errors_total", counter(minutes, *errors), **SOURCE)
        return w

    case("exporter", "a log is not read any further", log(60, [(0, 0), (10, 500), (30, 0)], [(0, 10, 3000), (30, 60, 3000)]), {19: [], 20.5: [stalled], 30: [stalled], 34.5: [stalled], 37: []})
    case("exporter", "a log that nobody writes to", log(60, [(0, 0)], [(0, 10, 3000)]), {30: [], 60: []})
    case("exporter", "a log that is read late", log(60, [(0, 0), (10, 500)], [(0, 60, 3000)]), {30: [], 60: []})
    case("exporter", "a log that cannot be read", log(60, [(0, 0)], [(0, 10, 3000)], [(10, 60, 1)]), {19: [], 20.5: [stalled]})
    case("exporter", "a log that cannot be read beside others", log(60, [(0, 0)], [(0, 60, 3000)], [(10, 60, 1)]), {30: []})
    case("exporter", "a log that stands still now and then", log(60, [(m, 500 * (m % 4 > 0)) for m in range(60)], [(0, 10, 3000)]), {30: [], 60: []})

    silent = "LogSilent/warning source=/var/log/app.log"

    def lines(minutes, files, *segments, **more):
        w = usual(minutes, **more)
        w.put("redis_lock_exporter_log_open_files", gauge(minutes, *files), **SOURCE)
        w.put("redis_lock_exporter_log_lines_total", counter(minutes, *segments), **SOURCE)
        return w

    # An hour, and `for` adds 15 minutes.
    case("exporter", "a pattern that matches no file", lines(150, [(0, 1), (10, 0), (120, 1)], (0, 10, 30), (120, 150, 30)), {84: [], 85: [silent], 124.5: [silent], 126: []})
    w = lines(150, [(0, 0)], (0, 150, 0)).exporter("b:9190")
    case("exporter", "a pattern that matches on another node", w, {150: []})
    w = lines(460, [(0, 1)], (0, 10, 30))
    case("exporter", "no line for 6 hours while locks are taken", w, {380: [], 390: [silent]}, every=5)
    w = lines(460, [(0, 1)], (0, 10, 30), traffic=0)
    case("exporter", "no line for 6 hours while no locks are taken", w, {390: [], 460: []}, every=5)
    w = lines(460, [(0, 1)], (0, 10, 30)).exporter("b:9190")
    case("exporter", "lines on another node", w, {390: []}, every=5)
    w = lines(460, [(0, None), (100, 1)], (0, 460, 0))
    case("exporter", "a log source that was added 5 hours ago", w, {390: [], 440: []}, every=5)

    unsaved = "StateNotSaved/warning instance=a:9190 job=locks"
    for enabled, expected in ((1, [unsaved]), (0, [])):
        w = usual(60)
        w.put("redis_lock_exporter_state_enabled", gauge(60, (0, enabled)), **OWN)
        w.put("redis_lock_exporter_state_durable", gauge(60, (0, 1), (10, 0), (30, 1)), **OWN)
        case("exporter", f"nothing is saved, with{'' if enabled else 'out'} a state directory", w, {24: [], 25: expected, 34.5: expected, 36: []})
    w = usual(60)
    w.put("redis_lock_exporter_state_enabled", gauge(60, (0, 1)), **OWN)
    w.put("redis_lock_exporter_state_durable", gauge(60, *[(m, int(m % 3 == 0)) for m in range(60)]), **OWN)
    case("exporter", "saving fails now and then", w, {30: [], 60: []})

    # Increases from 10.5 on, `for` 15; the window holds them until 45, and keep_firing_for adds 15.
    w = usual(100)
    w.put("redis_lock_untracked_locks_total", counter(100, (10, 30, 5)), **SEEN)
    limit = "SeriesLimitHit/warning lock_namespace=jobs redis=main instance=a:9190 job=locks"
    case("exporter", "the table of locks is full", w, {25: [], 25.5: [limit], 44: [limit], 58: [limit], 61: []})
    w = usual(100)
    w.put("redis_lock_untracked_locks_total", counter(100, (10, 10.5, 5)), **SEEN)
    case("exporter", "the table of locks was full for a moment", w, {24: [], 25.5: [], 40: []})
    w = usual(100)
    w.put("redis_lock_exporter_table_evictions_total", counter(100, (10, 30, 5)), table="joined_lines", **OWN)
    w.put("redis_lock_exporter_table_evictions_total", counter(100, (10, 100, 5)), table="final_states", **OWN)
    limit = "SeriesLimitHit/warning table=joined_lines instance=a:9190 job=locks"
    case("exporter", "a table of the log side is full", w, {25: [], 25.5: [limit], 61: []})

    denied = "AccessDenied/warning command=CLIENT instance=a:9190 job=locks"
    w = usual(60)
    w.put("redis_lock_exporter_redis_permission_denied", gauge(60, (0, 0), (10, 1), (40, 0)), command="CLIENT", **OWN)
    case("exporter", "the exporter lacks a permission", w, {29: [], 30: [denied], 49: [denied], 51: []})
    denied = "AccessDenied/warning lock_namespace=jobs"
    for metric in ("renewal_failures", "release_failures", "acquire_failures"):
        w = usual(60)
        w.put(f"redis_lock_{metric}_total", counter(60, (10, 30, 0.5)), reason="denied", **JOBS)
        w.put(f"redis_lock_{metric}_total", counter(60, (0, 60, 0.1)), reason="other", **JOBS)
        extra = []
        case("exporter", f"programs are denied: {metric}", w, {20: [], 20.5: [denied] + extra, 39: [denied], 48: [denied], 51: []})

    refused = "ConfigReloadFailed/warning instance=a:9190 job=locks"
    w = usual(60)
    w.put("redis_lock_exporter_config_last_reload_successful", gauge(60, (0, 1), (10, 0), (30, 1)), **OWN)
    case("exporter", "a configuration is refused", w, {24: [], 25: [refused], 34.5: [refused], 36: []})
    w = usual(60)
    w.put("redis_lock_exporter_config_last_reload_successful", gauge(60, (0, 1), (10, 0), (20, 1)), **OWN)
    case("exporter", "a configuration is refused and corrected", w, {m: [] for m in (15, 20, 25, 30)})


def exporter_limits():
    """A day of it, looked at every 5 minutes, and what is just enough."""
    w = World(1490).exporter().exporter("c:9190").namespace()
    w.gone(10, text="c:9190")
    w.put("up", gauge(1490, (0, 1), (10, 0)), instance="c:9190", job="locks")
    gone = "ExporterAbsent/warning missing=target instance=c:9190 job=locks"
    case("exporter", "one exporter is down for more than a day", w, {20: [], 800: [gone], 1440: [gone], 1480: []}, every=5)
    w = usual(1490)
    w.put("redis_lock_exporter_tracking_up", gauge(1490, (0, 1), (10, 0)), **OWN)
    lost_tracking = "TrackingLost/warning instance=a:9190 job=locks"
    case("exporter", "changes are not told of for more than a day", w, {20: [], 800: [lost_tracking], 1440: [lost_tracking], 1480: []}, every=5)

    stalled = "LogTailStalled/warning instance=a:9190 job=locks source=/var/log/app.log"

    def log(lag, errors, firing, name):
        w = usual(40)
        w.put("redis_lock_exporter_log_lag_bytes", gauge(40, *lag), **SOURCE)
        w.put("redis_lock_exporter_log_bytes_total", counter(40, (0, 4, 3000)), **SOURCE)
        w.put("redis_lock_exporter_log_read_errors_total", counter(40, *errors), **SOURCE)
        case("exporter", name, w, firing)

    log([(0, 500)] + [(m + d, 500 * (d > 0)) for m in (10, 19, 28) for d in (0, 0.5)], [], {17: [], 18: [], 18.5: []}, "a log that is read every 9 minutes")
    log([(0, 0), (10, 1)], [], {19: [], 20.5: [stalled]}, "one byte of a log is not read")
    log([(0, 0)], [(10, 10.5, 1)], {15: [], 16: [], 18: []}, "a log that could not be read once")
    log([(0, 0)], [(10 + 4 * i, 10.5 + 4 * i, 1) for i in range(7)], {15: [], 25: [stalled]}, "a log that cannot be read every 4 minutes")

    silent = "LogSilent/warning source=/var/log/app.log"

    def lines(name, firing, acquisitions):
        w = usual(400, traffic=0).namespace("idle", traffic=0)
        w.put("redis_lock_exporter_log_lines_total", counter(400, (0, 10, 30)), **SOURCE)
        w.put("redis_lock_acquisitions_total", counter(400, *acquisitions), **SEEN)
        case("exporter", name, w, firing, every=5)

    lines("no line for 6 hours while a few locks are taken", {380: [], 390: [silent]}, [(100, 100.5, 0.5)])
    lines("no line for 6 hours, and locks were taken before", {380: [], 390: []}, [(0, 15, 5)])

    limit = "SeriesLimitHit/warning lock_namespace=jobs redis=main instance=a:9190 job=locks"
    w = usual(30)
    w.put("redis_lock_untracked_locks_total", counter(30, (5, 30, 1 / 64)), **SEEN)
    case("exporter", "the table of locks is a little too small", w, {20: [], 22: [limit]})
    limit = "SeriesLimitHit/warning table=joined_lines instance=a:9190 job=locks"
    w = usual(35)
    w.put("redis_lock_exporter_table_evictions_total", counter(35, *[(5 + 10 * i, 5.5 + 10 * i, 0.25) for i in range(3)]), table="joined_lines", **OWN)
    case("exporter", "a table of the log side is full every 10 minutes", w, {20: [], 24: [limit]})


# --------------------------------------------------------------------------------------------------------------- two exporters
def twins():
    """Two exporters on one Redis of which the second sees a fifth of what the first does (it was cut off, say): the larger counts. And
    two that disagree about the policy: the larger threshold and the louder severity count."""
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

    # Tickets resolve as pages do.
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


# ------------------------------------------------------------------------------------------------------------------- beside
def named(alerts):
    """"Name/severity" for each namespace: {"NotOwnedRatioHigh/critical": "all few"}."""
    return [f"{alert} lock_namespace={name}" for alert, names in alerts.items() for name in names.split()]


def beside():
    """Namespaces of one cluster beside each other: what fires, and for each condition one that lacks nothing else, which the others have. A join that
    forgets the namespace lets it fire, or two namespaces be one too many."""
    beside_ratios()
    beside_burn()
    beside_rates()
    beside_state()
    beside_lifecycle()
    beside_trends()
    beside_ttl()
    beside_exporters()


def beside_ratios():
    def namespace(w, name, *segments, policy="continue", stops=None, unlocked=True, abandoned=(), twice=(), **more):
        """`segments`: failures of each kind for 20 successes of it, which end at `stops`."""
        w.namespace(name, policy=policy, **more)
        here = {"lock_namespace": name}
        lost(w, *[(begin, end, 2 * amount) for begin, end, amount in segments], **here)
        failed_renewals(w, *segments, **here)
        failed_acquisitions(w, *segments, **here)
        for metric, of, labels in (("unlocked_work", segments if unlocked is True else unlocked or [], {}), ("abandonments", abandoned, {}), ("conflicting_writes", twice, {"kind": "duplicate_terminal_state"})):
            w.put(f"redis_lock_{metric}_total", gauge(36, (0, None), (20, 1)) if of == "new" else counter(36, *of), **labels, **JOBS | here)
        if stops:
            for metric in ("acquisitions", "releases", "renewals"):
                w.put(f"redis_lock_{metric}_total", counter(36, (0, stops, 20)), **SEEN | here)

    def every_5_minutes(amount):
        return [(10 + 5 * i, 11 + 5 * i, amount) for i in range(6)]

    w = World(36).exporter().exporter("b:9190")
    # Half of everything fails; 43 % of it, and not for long; too few; a third, where a fifth may; in each slice a little too much, not on the whole.
    namespace(w, "all", (10, 36, 20), stops=10, abandoned=[(10, 36, 1)], twice=[(10, 36, 1)])
    namespace(w, "part", (10, 15.5, 15), abandoned=[(10, 16, 50)], twice=[(10, 14, 50)])
    namespace(w, "few", (10, 36, 20), stops=10, config={"min_failures": 1e5}, abandoned="new", twice="new")
    namespace(w, "steady", (10, 36, 8.5), config={"not_owned_ratio": 0.2, "renewal_failure_ratio": 0.2})
    namespace(w, "spikes", *[(10 + 2.5 * i, 10.5 + 2.5 * i, 4.5) for i in range(10)], unlocked=None, abandoned=[(0, 36, 0.14)])
    # In bursts; not enough on the whole; until 20 and then strays, but only later are so few enough. One of each event, and nothing else.
    namespace(w, "bursts", *every_5_minutes(16))
    namespace(w, "small", *every_5_minutes(9), unlocked=None)
    namespace(w, "over", (10, 20, 20), (25, 36, 0.125), unlocked=None)
    w.put("redis_lock_config_min_failures", gauge(36, (0, 1e5), (33, 5)), **JOBS | {"lock_namespace": "over"})
    namespace(w, "calm", abandoned=[(12, 12.5, 1)], twice=[(12, 12.5, 1)])
    # Who is woken.
    namespace(w, "ticket", (10, 36, 8.5), severity="ticket", abandoned=[(10, 36, 2.5)], twice=[(10, 36, 1)])
    namespace(w, "stops", (10, 36, 8.5), policy="fence", strict=1, abandoned=[(15, 15.5, 1)])
    namespace(w, "fenced", (10, 36, 30), policy="fence")
    namespace(w, "strict", severity="ticket", strict=1, abandoned=[(10, 36, 2.5)])
    # What is not seen, or not all of it.
    namespace(w, "passes", (10, 36, 20), source="scan", unlocked=[(10, 36, 0.125)], config={"min_failures": 1}, abandoned=[(10, 36, 5)])
    namespace(w, "logs", (10, 36, 20), redis=None, unlocked=[(10, 36, 0.5)])
    # A second exporter sees the same in Redis, or has an older configuration. Another one sees what happened later.
    for name in ("fenced", "bursts", "strict"):
        w.namespace(name, instance="b:9190", logs=False, policy="fence" if name == "fenced" else "continue", severity="ticket" if name == "strict" else "page")
    namespace(w, "halves", abandoned=[(10, 15, 2.5)], twice=[(10, 13.5, 1)])
    w.put("redis_lock_abandonments_total", counter(36, (15, 20, 2.5)), **JOBS | {"lock_namespace": "halves", "instance": "b:9190"})
    w.put("redis_lock_conflicting_writes_total", counter(36, (13.5, 18, 1)), kind="duplicate_terminal_state", **JOBS | {"lock_namespace": "halves", "instance": "b:9190"})
    for name in ("stops", "ticket"):
        w.put("redis_lock_fence_regressions_total", counter(36, (30, 30.5, 1)), **SEEN | {"lock_namespace": name})
    n, r, a, u = "NotOwnedRatioHigh", "RenewalFailureRatioHigh", "AcquireFailing", "UnlockedWork"
    event, twice, pages = "AbandonedEvent/warning", "DuplicateTerminalState/warning", "DuplicateTerminalState/critical"
    ratios = {
        f"{n}/critical": "all fenced steady stops", f"{n}/warning": "ticket", f"{r}/critical": "all fenced steady", f"{r}/warning": "ticket stops", f"{a}/critical": "all fenced",
        f"{a}/warning": "steady ticket stops", f"{u}/critical": "all fenced steady stops passes logs", f"{u}/warning": "ticket",
    }
    abandoned = {"Abandoned/critical": "all stops strict halves", "Abandoned/warning": "ticket"}
    case("beside", "namespaces of one cluster: failures", w, {
        9: named({event: "spikes"}),
        15.5: named({f"{n}/critical": "all fenced", f"{r}/critical": "all fenced", event: "all part spikes calm ticket stops strict passes halves", "Abandoned/critical": "stops strict", twice: "all part calm ticket halves"}),
        18.5: named({**ratios, event: "all part spikes calm ticket stops strict passes halves", "Abandoned/critical": "stops strict", pages: "all halves", twice: "part calm ticket"}),
        25: named({**ratios, event: "all part spikes calm ticket stops strict passes few halves", **abandoned, pages: "all halves", twice: "part calm ticket"}),
        34: named({
            **ratios, f"{n}/critical": "all fenced steady stops bursts", f"{r}/critical": "all fenced steady bursts", event: "all spikes ticket strict passes few halves", **abandoned, pages: "all halves", twice: "part calm ticket few",
            "FenceRegression/critical": "stops", "FenceRegression/warning": "ticket",
        }),
    }, holds=[
        # Where not every success is seen there is no ratio: of 16 namespaces not for "passes" and "logs".
        f"count(lock_namespace:redis_lock_{ratio}{{CLUSTER}}) == bool 14"
        for of, minutes in (("not_owned_per_operation", (2, 5, 10, 30)), ("renewal_failures_per_renewal", (2, 5, 10, 30)), ("acquire_failures_per_attempt", (2, 10))) for ratio in (f"{of}:ratio{m}m" for m in minutes)
    ] + [f"max(lock_namespace:redis_lock_unlocked_work_per_start:ratio{m}m{{CLUSTER,lock_namespace=\"logs\"}}) == bool 1" for m in (2, 10)])

    # The same names elsewhere: everything fails.
    w, tickets = World(36).exporter(), "all fenced stops"
    pages_too = "part few steady spikes bursts small over calm ticket strict passes logs"
    for name in f"{tickets} {pages_too}".split():
        namespace(w, name, (10, 36, 20), stops=10, abandoned=[(10, 36, 1)], twice=[(10, 36, 1)], severity="ticket" if name in tickets.split() else "page", strict=int(name == "calm"),
                  config={"not_owned_ratio": 0.05, "renewal_failure_ratio": 0.05, "min_failures": 5})
    every = f"{tickets} {pages_too}"
    fails = {f"{n}/critical": pages_too, f"{n}/warning": tickets, f"{r}/critical": pages_too, f"{r}/warning": tickets, event: every, "Abandoned/critical": "calm", twice: every}
    case("beside", "namespaces of another cluster: failures", w, {
        9: [], 15.5: named(fails),
        **{minute: named({
            **fails, **{f"{name}/{severity}": names for name in (a, u, *(["Abandoned"] if minute > 20 else []), "DuplicateTerminalState") for severity, names in (("critical", pages_too), ("warning", tickets))},
        }) for minute in (18.5, 25, 34)},
    })


def beside_burn():
    w = World(225).exporter().exporter("b:9190", logs=False).namespace("burns", instance="b:9190", logs=False)
    for name, segments, config in (
        ("burns", [(10, 225, 1.25)], {}), ("few", [(10, 225, 1.25)], {"min_failures": 1e5}), ("spikes", [(5, 225, 0.8), *[(10 + 30 * i, 10.5 + 30 * i, 40) for i in range(8)]], {}), ("over", [(10, 165, 4.5)], {}), ("passes", [(10, 225, 1.25)], {}),
    ):
        w.namespace(name, config=config, source="scan" if name == "passes" else "watch")
        lost(w, *segments, lock_namespace=name)
    # It was enough before, but only now it counts.
    w.put("redis_lock_config_min_failures", gauge(225, (0, 1e5), (197.5, 5)), **JOBS | {"lock_namespace": "over"})
    case("beside", "namespaces of one cluster: slow burn", w, {170: [], 187.5: named({"FailureBudgetBurn/warning": "burns"}), 222.5: named({"FailureBudgetBurn/warning": "burns"})}, every=2.5,
         holds=["count(lock_namespace:redis_lock_not_owned_per_operation:ratio6h{CLUSTER}) == bool 4"])
    w = World(225).exporter()
    for name in ("few", "spikes", "over", "passes"):
        w.namespace(name)
        lost(w, (10, 225, 1.25), lock_namespace=name)
    case("beside", "namespaces of another cluster: slow burn", w, {170: [], 187.5: named({"FailureBudgetBurn/warning": "few spikes over passes"}), 222.5: named({"FailureBudgetBurn/warning": "few spikes over passes"})}, every=2.5)


def beside_rates():
    def namespace(w, name, *segments, since=0, redis=None, policy="continue", abandoned=(), times=1, **more):
        w.namespace(name, redis=redis, policy=policy, logs=not since, **more)
        for metric, labels, of in (
            ("not_owned", {"operation": "release"}, [(begin, end, times * amount) for begin, end, amount in segments]), ("renewal_failures", {"reason": "redis_unavailable"}, segments),
            ("acquire_failures", {"reason": "redis_unavailable"}, segments), ("abandonments", {}, abandoned),
        ):
            w.put(f"redis_lock_{metric}_total", [None if k / 2 < since else v for k, v in enumerate(counter(95, *of))], **labels, **JOBS | {"lock_namespace": name})

    w = World(95).exporter()
    # After a quiet hour; always; without half an hour of a past; at once; in most slices, but not on the whole; in bursts, and in smaller ones.
    namespace(w, "begins", (62, 95, 2), abandoned=[(62, 95, 1)])
    namespace(w, "again", (62, 95, 2), abandoned=[(62, 95, 1)])
    namespace(w, "ticket", (62, 95, 2), severity="ticket", abandoned=[(62, 95, 1)])
    namespace(w, "stops", (62, 95, 2), policy="fence")
    namespace(w, "always", (0, 95, 2), abandoned=[(0, 95, 1)])
    namespace(w, "young", (62, 95, 2), since=40, abandoned=[(62, 95, 1)])
    namespace(w, "once", (62, 63, 10))
    namespace(w, "spikes", *[(62 + 2.5 * i, 62.5 + 2.5 * i, 2.25) for i in range(12)])
    namespace(w, "bursts", *[(62 + 5 * i, 63 + 5 * i, 30) for i in range(6)])
    namespace(w, "small", *[(62 + 5 * i, 63 + 5 * i, 2) for i in range(6)])
    namespace(w, "over", *[(62 + 5 * i, 63.5 + 5 * i, 9) for i in range(4)], (80, 95, 1 / 32))
    w.put("redis_lock_config_min_failures", gauge(95, (0, 20), (91, 1)), **JOBS | {"lock_namespace": "over"})
    # Where every success is seen.
    namespace(w, "seen", (62, 95, 30), redis="main", times=2, abandoned=[(62, 95, 3)])
    n, r, a, event = "NotOwnedRateHigh", "RenewalFailureRatioHigh", "AcquireFailing", "AbandonedEvent/warning"
    frequent = {
        f"{n}/critical": "begins again stops", f"{n}/warning": "ticket", f"{r}/critical": "begins again seen", f"{r}/warning": "ticket stops", f"{a}/critical": "begins again stops seen", f"{a}/warning": "ticket", "NotOwnedRatioHigh/critical": "seen",
        event: "begins again ticket always young seen",
    }
    abandoned = {"Abandoned/critical": "begins again seen", "Abandoned/warning": "ticket"}
    bursts = {f"{n}/critical": "begins again stops bursts", f"{r}/critical": "begins again bursts seen"}
    case("beside", "namespaces of one cluster: rates", w, {
        60: named({event: "always"}), 71.5: named({**frequent, **abandoned}), 75: named({**frequent, **abandoned}), 86: named({**frequent, **abandoned, **bursts}), 92.5: named({**frequent, **abandoned, **bursts}),
    })

    # The same names elsewhere: seen whole, always so, or after a quiet hour.
    w, begun = World(95).exporter(), "young spikes once bursts over small always"
    for name in ("again", "ticket"):
        namespace(w, name, (62, 95, 30), redis="main", times=2, abandoned=[(62, 95, 3)])
    namespace(w, "begins", (0, 95, 2))
    namespace(w, "stops", (62, 95, 2), severity="ticket")
    for name in begun.split():
        namespace(w, name, (62, 95, 2), abandoned=[(62, 95, 1)])
    fails = {
        f"{n}/critical": begun, f"{n}/warning": "stops", f"{r}/critical": f"{begun} again ticket", f"{r}/warning": "stops", f"{a}/critical": f"{begun} again ticket", f"{a}/warning": "stops", "NotOwnedRatioHigh/critical": "again ticket",
        event: f"{begun} again ticket", "Abandoned/critical": f"{begun} again ticket",
    }
    case("beside", "namespaces of another cluster: rates", w, {60: [], **{minute: named(fails) for minute in (71.5, 75, 86, 92.5)}})


def beside_state():
    """What an exporter showed last when it lost Redis is not news: not where another one of its job is connected, nor one of another job at the same
    address. The two are clusters in which the same names mean something else."""
    for where, cut, swap in (("of one job", {"instance": "b:9190"}, False), ("at one address", {"job": "second"}, True)):
        w = World(26).exporter().exporter(**{**OWN, **cut}, logs=False)
        reached(w, gauge(26, (0, 1), (8, 0)), **{**OWN, **cut})
        page, ticket = {"severity": "ticket" if swap else "page"}, {"severity": "page" if swap else "ticket"}
        for name, here, there, more in (
            # What the connected one shows, what the other one showed.
            ("late", {"held": (0, 10), "renewal_overdue": (5, 6)}, {"held": (0, 100), "renewal_overdue": (0, 0)}, page),
            ("ticket", {"held": (0, 10), "renewal_overdue": (5, 6)}, {}, ticket),
            ("seldom", {"held": (0, 20), "renewal_overdue": (5, 12 if swap else 1)}, {"renewal_overdue": (5, 12 if swap else 20)}, {}),
            ("eternal", {"without_ttl": (5, 1)}, {}, {}),
            ("fleeting", {"without_ttl": (0, 0)}, {"without_ttl": (7.5, 3)}, {}),
        ):
            w.namespace(name, **more).namespace(name, logs=False, **cut, **more)
            for labels, shown in ((SEEN, here), ({**SEEN, **cut}, there)):
                for metric, (since, value) in shown.items():
                    w.put(f"redis_lock_{metric}", gauge(26, (0, 0), (since, value)), **{**labels, "lock_namespace": name})
        # Thresholds are the same, configured or by default.
        absent, held = [{"leader_absent_seconds": 180}, {"ttl_seconds": 30}], [{"max_hold_seconds": 300}, {"ttl_seconds": 15}]
        for name, oldest, since, there, more in (
            ("leads", None, 5, 8, {"style": "loop", "config": absent[swap], **page}), ("follows", None, 5, None, {"style": "loop", "config": absent[not swap], **ticket}),
            ("free", None, 25 if swap else 5, None, {"style": "loop" if swap else "item", "config": {"ttl_seconds": 30}}),
            ("holds", 5, None, None, {"config": held[swap]}), ("keeps", 5, None, None, {"config": held[not swap]}),
            ("loops", 25 if swap else 5, None, None, {"style": "item" if swap else "loop", "config": {"ttl_seconds": 15}}), ("took", 25, None, 1, {"config": {"max_hold_seconds": 300}}),
        ):
            w.namespace(name, **more).namespace(name, logs=False, **cut, **more)
            here = {"lock_namespace": name}
            if since:
                w.put("redis_lock_last_held_timestamp_seconds", clock(26, (0, None), (since, since)), lock="app:leader", **{**SEEN, **here})
                w.put("redis_lock_last_held_timestamp_seconds", clock(26, (0, None)), lock="app:other", **{**SEEN, **here})
                if there:
                    w.put("redis_lock_last_held_timestamp_seconds", clock(26, (0, None), (there, there)), lock="app:leader", **{**SEEN, **cut, **here})
            if oldest:
                w.put("redis_lock_oldest_acquired_timestamp_seconds", clock(26, (0, None), (oldest, oldest)), **{**SEEN, **here})
                if there:
                    w.put("redis_lock_oldest_acquired_timestamp_seconds", clock(26, (0, None), (there, there)), **{**SEEN, **cut, **here})
        loud, soft = ("warning", "critical") if swap else ("critical", "warning")
        leads, follows = (f"LeaderAbsent/{severity} lock_namespace={name} redis=main lock=app:leader" for severity, name in ((loud, "leads"), (soft, "follows")))
        long = [f"HeldTooLong/warning lock_namespace={name} redis=main" for name in ("holds", "keeps")]
        mass = [*named({f"MassRenewalOverdue/{loud}": "late", f"MassRenewalOverdue/{soft}": "ticket"}), *named({"MassRenewalOverdue/critical": "seldom", "RenewalOverdue/warning": "seldom"} if swap else {})]
        case("beside", f"namespaces of one cluster: states that two exporters {where} show", w, {
            5: [], 11: [leads, follows], 18: [leads, follows, *long, *mass, *named({"RenewalOverdue/warning": "ticket"})],
            25: [leads, follows, *long, *mass, *named({"RenewalOverdue/warning": "late ticket", "WithoutTtl/warning": "eternal"})],
        })


    # The same of pages and tickets about leaders, and of a ticket about few that are late.
    w = World(26).exporter().exporter("b:9190", logs=False).exporter(job="second", logs=False)
    for labels in ({**OWN, "instance": "b:9190"}, {**OWN, "job": "second"}):
        reached(w, gauge(26, (0, 1), (8, 0)), **labels)
    for name, cut, more in (("leads", {"job": "second"}, {}), ("follows", {"instance": "b:9190"}, {"severity": "ticket"})):
        w.namespace(name, style="loop", config={"ttl_seconds": 30}, **more).namespace(name, style="loop", logs=False, **cut, **more)
        for labels, since in ((SEEN, 5), ({**SEEN, **cut}, 8)):
            w.put("redis_lock_last_held_timestamp_seconds", clock(26, (0, None), (since, since)), lock="app:leader", **{**labels, "lock_namespace": name})
    for name, here, there, more in (("late", 1, 20, {"severity": "ticket"}), ("mass", 12, 12, {})):
        w.namespace(name, **more).namespace(name, job="second", logs=False, **more)
        for labels, value in ((SEEN, here), ({**SEEN, "job": "second"}, there)):
            w.put("redis_lock_held", gauge(26, (0, 20)), **{**labels, "lock_namespace": name})
            w.put("redis_lock_renewal_overdue", gauge(26, (0, 0), (7.5, value)), **{**labels, "lock_namespace": name})
    alerts = [f"LeaderAbsent/{severity} lock_namespace={name} redis=main lock=app:leader" for severity, name in (("critical", "leads"), ("warning", "follows"))]
    case("beside", "namespaces of one cluster: leaders that exporters saw before they lost Redis", w, {
        5: [], 11: alerts, 18: [*alerts, *named({"MassRenewalOverdue/critical": "mass"})], 25: [*alerts, *named({"MassRenewalOverdue/critical": "mass", "RenewalOverdue/warning": "mass"})],
    })
    w = World(26)
    for labels in ({**OWN, "instance": "b:9190"}, {**OWN, "job": "second"}):
        w.exporter(**labels, logs=False).namespace("calm", **labels)
        reached(w, gauge(26, (0, 1)), **labels)
    # One has never looked at the keyspace, and a target that is down never was an exporter.
    w.exporter(logs=False).drop("scan_last_success_timestamp_seconds{instance=\"a:9190\",job=\"locks\"}")
    w.put("up", gauge(26, (0, 0)), instance="d:9190", job="locks")
    case("beside", "exporters of the same names in another cluster", w, {4: [], 25: ["ScanStale/warning instance=a:9190 job=locks"]})


def beside_lifecycle():
    w = World(60).exporter().exporter("b:9190", logs=False).exporter("c:9190", logs=False)

    def events(*minutes, amount=1):
        return [(minute, minute + 0.5, amount) for minute in minutes]

    often, at_once, two = events(*range(5, 60, 4)), [(5, 7, 100)], [(5, 25, 0.05)]
    for name, changes, ended, slow, fast, more in (
        # Changes of owner every 30 s, which expire; slow takeovers and early releases; others.
        ("churns", [(5, 60, 4)], [(5, 60, 20)], often, [], {}), ("loops", [(5, 60, 10)], [(5, 60, 20)], [], [], {"style": "loop"}), ("passes", [(5, 60, 10)], [(5, 60, 20)], [], [], {"source": "scan"}),
        ("moved", [(5, 7, 400)], [(5, 7, 400)], at_once, [], {}), ("few", [(5, 60, 4)], [(5, 60, 20)], two, [], {"config": {"min_failures": 1e5}}), ("fast", [], [], often, [(0, 60, 2)], {}),
    ):
        here = {**SEEN, "lock_namespace": name}
        w.namespace(name, **more)
        w.put("redis_lock_owner_changes_total", counter(60, *changes), after="expiry", **here)
        w.put("redis_lock_expirations_total", counter(60, *ended), **here)
        w.put("redis_lock_early_releases_total", counter(60, *([] if name == "fast" else slow)), **here)
        for within, of in (("false", slow), ("true", fast)):
            w.put("redis_lock_takeovers_total", counter(60, *of), within_slo=within, **here)
    # Two Redis, of which each has half of it.
    for labels, minutes in ((SEEN, (5, 9)), ({**SEEN, "instance": "c:9190", "redis": "second"}, (13, 17))):
        w.namespace("halves", instance=labels["instance"], redis=labels["redis"], logs=labels is SEEN)
        for metric, within in (("early_releases", {}), ("takeovers", {"within_slo": "false"})):
            w.put(f"redis_lock_{metric}_total", counter(60, *events(*minutes)), **{**labels, "lock_namespace": "halves"}, **within)
    # A TTL that is too short: causes are known; or locks are found lost while they expire, of which an exporter on the same Redis sees nothing.
    apart, later = events(5, 13, 21, 29, 37, 45), events(2.5, 10.5, 18.5, 26.5, 34.5, 42.5)
    for name, causes, gone, ended, more in (
        ("short", often, [], [], {}), ("advised", often, [], [], {}), ("burst", at_once, [], [], {}), ("enough", often, [], [], {"config": {"ttl_seconds": 30, "min_failures": 1e5}}),
        ("unseen", [], often, often, {}), ("other", [], apart, later, {}), ("released", [], often, often[:4], {}), ("held", [], often[:4], often, {}), ("looped", [], often, often, {"style": "loop"}), ("deleted", [], often, often, {}),
    ):
        here = {**JOBS, "lock_namespace": name}
        w.namespace(name, **{"config": {"ttl_seconds": 30}, **more}).namespace(name, instance="b:9190", logs=False, **{"config": {"ttl_seconds": 30}, **more})
        w.put("redis_lock_recommended_ttl_seconds", gauge(60, (0, 30 if name == "advised" else 60)), redis="main", **here)
        w.put("redis_lock_not_owned_causes_total", counter(60, *causes), cause="expired_never_renewed", **here)
        w.put("redis_lock_not_owned_causes_total", counter(60, *(events(30) if name == "deleted" else ())), cause="deleted_early", **here)
        lost(w, *gone, lock_namespace=name)
        w.put("redis_lock_expirations_total", counter(60, *ended), redis="main", **here)
    w.put("redis_lock_expirations_total", counter(60, *often[:4]), **{**SEEN, "instance": "b:9190", "lock_namespace": "released"})
    w.namespace("known", config={"ttl_seconds": 30})
    w.put("redis_lock_recommended_ttl_seconds", gauge(60, (0, 60)), **{**SEEN, "lock_namespace": "known"})
    for instance, minutes in (("a:9190", (5, 9)), ("b:9190", (13, 17))):
        w.put("redis_lock_not_owned_causes_total", counter(60, *events(*minutes, amount=2)), cause="expired_never_renewed", **{**JOBS, "instance": instance, "lock_namespace": "known"})
    lived = {"OwnerChurnHigh/warning": "churns", "ExpiryRatioHigh/warning": "churns", "TakeoverSlow/warning": "churns halves", "ReleasedEarly/warning": "churns halves"}
    case("beside", "namespaces of one cluster: how locks live", w, {4: [], 22: named(lived), 48: named({**lived, "TtlTooShort/warning": "short unseen known"}), 59: named({**lived, "TtlTooShort/warning": "short unseen known"})})

    # Two exporters see the same in one Redis: it is not added up. It is another cluster, in which the same names mean something else.
    w = World(61).exporter().exporter("b:9190", logs=False)
    every = {"changes": [(5, 61, 4)], "ended": [(5, 61, 8)], "slow": often, "fast": [(0, 61, 0.8)], "early": often}
    for name, more in (
        ("churns", {"changes": [(5, 61, 1.6)]}), ("seldom", {"changes": [(5, 61, 0.14)], "ended": [(minute, minute + 0.5, 1) for minute in range(5, 61, 8)], "traffic": 0.5}),
        ("bursts", {"ended": [(5 + 4 * i, 7 + 4 * i, 9.5) for i in range(14)]}), ("loops", {"ended": [(5, 11, 20), (11, 61, 4)]}), ("passes", {"slow": often, "fast": [(0, 61, 1.5)]}), ("moved", every), ("few", every),
    ):
        for instance in ("a:9190", "b:9190"):
            here = {**SEEN, "instance": instance, "lock_namespace": name}
            w.namespace(name, instance=instance, logs=instance == "a:9190", traffic=more.get("traffic", 20))
            for metric, of, labels in (("owner_changes", "changes", {"after": "expiry"}), ("expirations", "ended", {}), ("takeovers", "slow", {"within_slo": "false"}), ("takeovers", "fast", {"within_slo": "true"}), ("early_releases", "early", {})):
                w.put(f"redis_lock_{metric}_total", counter(61, *more.get(of, ())), **labels, **here)
    # Of these the TTL is too short.
    for name in ("burst", "advised", "unseen", "looped", "released", "other"):
        here, known = {**JOBS, "lock_namespace": name}, name not in ("released", "other")
        w.namespace(name, config={"ttl_seconds": 30})
        w.put("redis_lock_recommended_ttl_seconds", gauge(61, (0, 60)), redis="main", **here)
        w.put("redis_lock_not_owned_causes_total", counter(61, *(often if known else ())), cause="expired_never_renewed", **here)
        lost(w, *(() if known else often), lock_namespace=name)
        w.put("redis_lock_expirations_total", counter(61, *(() if known else often)), redis="main", **here)
    lived = {f"{name}/warning": "moved few" for name in ("OwnerChurnHigh", "ExpiryRatioHigh", "TakeoverSlow", "ReleasedEarly")}
    case("beside", "two exporters see the same: how locks live", w, {
        4: [], 22: named(lived), 48: named({**lived, "TtlTooShort/warning": "burst advised unseen looped released other"}), 60: named({**lived, "TtlTooShort/warning": "burst advised unseen looped released other"}),
    })


def beside_trends():
    def margins(w, name, amount, before, after, instance="a:9190"):
        for bound in ("0.3", "0.4", "0.6", "0.7", "+Inf"):
            of = [(begin, end, amount) for begin, end, le in ((0, 75, before), (75, 125, after)) if float(bound) >= le]
            w.put("redis_lock_renewal_margin_ratio_bucket", counter(125, *of), le=bound, **{**SEEN, "instance": instance, "lock_namespace": name})

    w = World(125).exporter().exporter("b:9190", logs=False)
    for name, before, after, busy, more in (
        ("late", 0.7, 0.4, 40, {}), ("always", 0.4, 0.4, 16, {}), ("seldom", 0.7, 0.4, 0.42, {"traffic": 0, "renewals": 0.25}), ("passes", 0.7, 0.7, 40, {"source": "scan"}), ("allowed", 0.7, 0.7, 40, {"config": {"busy_ratio": 0.8}}),
        ("mixed", 0.7, 0.7, 0, {}),
    ):
        w.namespace(name, **more)
        margins(w, name, more.get("renewals", 20), before, after)
        failed_acquisitions(w, (5, 125, busy), reason="busy", lock_namespace=name)
    # Another exporter sees the same few, or only the late ones, which are a tenth of what the first one sees and less of the sum.
    w.namespace("seldom", instance="b:9190", logs=False, traffic=0, renewals=0.25).namespace("mixed", instance="b:9190", logs=False)
    margins(w, "seldom", 0.25, 0.7, 0.4, instance="b:9190")
    margins(w, "mixed", 2.125, 0.7, 0.4, instance="b:9190")
    busy = {"ContentionHigh/warning": "late"}
    case("beside", "namespaces of one cluster: trends", w, {35: [], 75: named(busy), 105: named({**busy, "RenewalMarginShrinking/warning": "late"}), 125: named({**busy, "RenewalMarginShrinking/warning": "late mixed"})}, every=5)
    w = World(125).exporter()
    for name in ("late", "always", "seldom", "passes"):
        w.namespace(name, config={"busy_ratio": 0.5})
        margins(w, name, 20, 0.7, 0.4)
        failed_acquisitions(w, (5, 125, 40), reason="busy", lock_namespace=name)
    late = "late always seldom passes"
    case("beside", "namespaces of another cluster: trends", w, {35: [], 75: named({"ContentionHigh/warning": late}), 125: named({"ContentionHigh/warning": late, "RenewalMarginShrinking/warning": late})}, every=5)


def beside_ttl():
    """Locks that are found lost while locks expire: each sum and each hour, from both sides. Every 2.5 minutes, so that an hour has 24 slices."""
    def losing(minutes, **namespaces):
        """(lost, expired, known causes) of each."""
        w = World(minutes).exporter().exporter("b:9190")
        for name, (gone, ended, known) in namespaces.items():
            here = {**JOBS, "lock_namespace": name}
            w.namespace(name, config={"ttl_seconds": 30})
            w.put("redis_lock_recommended_ttl_seconds", gauge(minutes, (0, 60)), redis="main", **here)
            lost(w, *gone, lock_namespace=name)
            w.put("redis_lock_expirations_total", counter(minutes, *ended), redis="main", **here)
            w.put("redis_lock_not_owned_causes_total", counter(minutes, *known), cause="deleted_early", **here)
        return w

    # 3.4 an hour are too few, 5.6 are enough. Four more were an hour before.
    few, enough, all_time, later = (65, 115, 3 / 64), (0, 115, 3 / 64), (0, 115, 0.5), (65, 115, 0.5)
    w = losing(
        115, lost_before=([(5, 5.5, 4), few], [later], []), expired_before=([later], [(5, 5.5, 4), few], []), few_lost=([enough], [all_time], []), few_expired=([all_time], [enough], []),
        known_before=([later], [later], [(5, 5.5, 1)]), known=([(50, 115, 0.5)], [(50, 115, 0.5)], [(47, 47.5, 1)]), nodes=([(0, 115, 1 / 32)], [all_time], []), redis=([all_time], [(0, 115, 1 / 32)], []),
    )
    # Two nodes and two Redis are added up.
    lost(w, (0, 115, 1 / 32), lock_namespace="nodes", instance="b:9190")
    w.namespace("redis", instance="b:9190", logs=False, redis="second")
    w.put("redis_lock_expirations_total", counter(115, (0, 115, 1 / 32)), **{**SEEN, "lock_namespace": "redis", "instance": "b:9190", "redis": "second"})
    short = "few_lost few_expired nodes redis"
    case("beside", "locks are lost while locks expire: an hour of it", w, {40: [], 80: named({"TtlTooShort/warning": short}), 100: named({"TtlTooShort/warning": short}), 115: named({"TtlTooShort/warning": f"{short} known_before"})}, every=2.5)
    # Four of them in an hour are 12 slices or more; many at once are fewer, and twice in two hours is no matter.
    rare, bursts = [(minute, minute + 0.5, 2) for minute in (5, 20, 35, 50)], [(5, 7, 3), (75, 77, 3)]
    case("beside", "locks are lost while locks expire: how often", losing(95, rare=(rare, rare, []), bursts=(bursts, bursts, [])), {40: [], 70: named({"TtlTooShort/warning": "rare"}), 93: named({"TtlTooShort/warning": "rare"})})


def beside_exporters():
    """The same of exporters: of one job at different addresses, of different jobs at one address, and of sources and Redis."""
    for where, second, third, fourth in (("of one job", {"instance": "b:9190"}, {"instance": "c:9190"}, {"instance": "x:9100"}), ("at one address", {"job": "second"}, {"job": "third"}, {"job": "node"})):
        second, third = {**OWN, **second}, {**OWN, **third}
        w = World(26).exporter().exporter(**second).exporter(**third).namespace()
        for number, labels in enumerate((OWN, second, third)):
            # Connected and not; told of changes until 5, or never; passes until 2, or never; a state directory, or none.
            reached(w, gauge(26, (0, int(number != 1))), **labels)
            w.put("redis_lock_exporter_tracking_up", gauge(26, (0, 0) if number == 2 else (0, 1), (5, 0)), **labels)
            w.put("redis_lock_exporter_scan_interval_seconds", gauge(26, (0, 15)), **labels)
            w.put("redis_lock_exporter_scan_last_success_timestamp_seconds", gauge(26, (0, None)) if number == 2 else clock(26, (0, None), (2, 2)), **labels)
            w.put("redis_lock_exporter_state_enabled", gauge(26, (0, int(number == 0))), **labels)
            w.put("redis_lock_exporter_state_durable", gauge(26, (0, 0)), **labels)
        alerts = [f"{name}/warning instance={labels['instance']} job={labels['job']}" for name, labels in (("ScanStale", OWN), ("ScanStale", third), ("TrackingLost", OWN), ("StateNotSaved", OWN))]
        # Bytes that are not read and errors, with and without something that is read, in one source and in each.
        for labels, source, lag, errors, read in (
            (OWN, "lags", 500, 0, 0), (OWN, "fails", 0, 1, 0), (OWN, "late", 500, 0, 3000), (OWN, "idle", 0, 0, 0), (second, "lags", 0, 1, 0), (second, "idle", 500, 0, 3000),
        ):
            of = {"source": source, **labels}
            w.put("redis_lock_exporter_log_open_files", gauge(26, (0, 1)), **of)
            w.put("redis_lock_exporter_log_lag_bytes", gauge(26, (0, lag)), **of)
            w.put("redis_lock_exporter_log_read_errors_total", counter(26, (0, 26, errors)), **of)
            w.put("redis_lock_exporter_log_bytes_total", counter(26, (0, 26, read)), **of)
        alerts += [f"LogTailStalled/warning instance={labels['instance']} job={labels['job']} source={source}" for labels, source in ((OWN, "lags"), (OWN, "fails"), (second, "lags"))]
        # An exporter is down, and so is a target that never was one.
        w.exporter(**{**OWN, "instance": "d:9190"}, redis=False, logs=False)
        w.gone(3, text="d:9190")
        for labels in ({**OWN, "instance": "d:9190"}, {**OWN, "instance": "d:9190", **fourth}):
            w.put("up", gauge(26, (0, 0)) if labels["instance"] != "d:9190" or labels["job"] != "locks" else gauge(26, (0, 1), (3, 0)), **labels)
        alerts.append("ExporterAbsent/warning missing=target instance=d:9190 job=locks")
        # A Redis and a job that nobody watches any more, beside those that somebody does.
        w.exporter("e:9190", job="gone").namespace(instance="e:9190", job="gone", redis="gone", logs=False)
        w.gone(3, text="e:9190")
        alerts += ["ExporterAbsent/critical missing=redis redis=gone", "ExporterAbsent/critical missing=logs job=gone"]
        case("beside", f"exporters {where}", w, {2: [], 25: alerts})

        # One Redis is down, of another a part; and one fails over.
        w = World(24).exporter().exporter(**second).exporter(**third).namespace().namespace(redis="second", logs=False, **second).namespace(redis="third", logs=False, **third)
        for labels, nodes, up in ((OWN, 1, 0), (second, 3, 2)):
            w.put("redis_lock_exporter_redis_nodes", gauge(24, (0, nodes)), **labels)
            w.put("redis_lock_exporter_redis_nodes_up", gauge(24, (0, nodes), (5, up)), **labels)
            w.put("redis_lock_exporter_redis_up", gauge(24, (0, 1), (5, 0)), **labels)
        w.put("redis_lock_exporter_redis_failovers_total", counter(24, (5, 5.5, 1), (8, 8.5, 1), (11, 11.5, 1)), **third)
        down = ["RedisDown/critical scope=all redis=main", "RedisDown/critical scope=part redis=second"]
        case("beside", f"Redis that exporters {where} see", w, {4: [], 7: ["FailoverObserved/info redis=third"], 22: [*down, "FailoverObserved/info redis=third", "FailoverFlapping/warning redis=third"]})

    w = usual(395)
    for source, files in (("none", (0, 0)), ("silent", (0, 1)), ("new", (100, 1))):
        w.put("redis_lock_exporter_log_open_files", gauge(395, (0, None), files), **OWN, source=source)
        w.put("redis_lock_exporter_log_lines_total", gauge(395, (0, None), (files[0], 0)), **OWN, source=source)
    case("beside", "sources of one exporter", w, {10: [], 200: ["LogSilent/warning source=none"], 390: ["LogSilent/warning source=none", "LogSilent/warning source=silent"]}, every=5)
    w = usual(395)
    w.put("redis_lock_exporter_log_open_files", gauge(395, (0, 0)), **OWN, source="silent")
    case("beside", "a source of the same name in another cluster", w, {10: [], 200: ["LogSilent/warning source=silent"], 390: ["LogSilent/warning source=silent"]}, every=5)
    # In clusters, too, that is one alert and not one for each of them.
    w = World(25)
    for cluster in ("east", "west"):
        w.exporter(cluster=cluster).namespace(cluster=cluster)
    w.gone(3)
    for cluster in ("east", "west"):
        w.put("up", gauge(25, (0, 1), (3, 0)), cluster=cluster, **OWN)
    case("beside", "no exporter in any cluster", w, {2: [], 24: ["ExporterAbsent/critical missing=all"]})
    # A cluster that Prometheus sees for the first time, with old counts; another one it knows.
    w = World(50).exporter(cluster="east").namespace(cluster="east").exporter(cluster="west").namespace(cluster="west")
    for metric, labels in (("abandonments", {}), ("conflicting_writes", {"kind": "duplicate_terminal_state"})):
        w.put(f"redis_lock_{metric}_total", gauge(50, (0, 7)), **labels, **JOBS, cluster="west")
    for key, values in w.series.items():
        if 'cluster="west"' in key:
            w.series[key] = [None if k < 70 else v for k, v in enumerate(values)]
    case("beside", "a cluster with old counts is seen for the first time", w, {34: [], 36: [], 49: []})


# --------------------------------------------------------------------------------------------------------------- arithmetic
def arithmetic():
    """A burst shorter than 150 s cannot page. First 30 s to 120 s with scrapes every 30 s, alone or with everything failing, in every namespace
    that may page, with 1 and with 10 000 failures a sample; then up to 149 s with scrapes every 15 s, begun at different moments between
    two of them, and the number of bad slices itself."""
    quiet = {minute / 2: [] for minute in range(38, 80, 4)}
    event = "AbandonedEvent/warning lock_namespace=jobs"
    twice = "DuplicateTerminalState/warning lock_namespace=jobs"
    for samples in (1, 2, 3, 4):
        for per_sample in (1, 10000):
            for stops in (False, True):
                end = 20 + samples * 0.5
                w = usual(40, policy="continue")
                burst = (20, end, per_sample)
                lost(w, burst)
                failed_renewals(w, burst)
                w.put("redis_lock_unlocked_work_total", counter(40, burst), **JOBS)
                if stops:
                    released(w, (0, 20, 20), (end, 40, 20))
                    renewed(w, (0, 20, 20), (end, 40, 20))
                case("arithmetic", f"a burst of {samples * 30} s, {per_sample} failures a sample{', nothing succeeds' if stops else ''}", w, quiet)
    most = lambda series, window: f"max(max_over_time(sum_over_time({series}{{CLUSTER}}[{window}])[25m:30s]))"
    few = lambda series, window="5m30s": f"({most(series, window)} >= bool 3) * ({most(series, window)} <= bool 9)"
    losses = ("not_owned_total", {"operation": "release"}), ("renewal_failures_total", {"reason": "redis_unavailable"}), ("unlocked_work_total", {}), ("acquire_failures_total", {"reason": "redis_unavailable"})
    for seconds in (105, 149):
        for phase in (0, 0.1, 0.2, 0.3, 0.45):
            for amount in (7, 100000):
                w = World(45, step=0.25).exporter().namespace(policy="continue", traffic=0, renewals=0)
                for metric, labels in losses:
                    w.put(f"redis_lock_{metric}", growth(45, 20 + phase, seconds, amount, step=0.25), **labels, **JOBS)
                slices = [few(f"lock_namespace:redis_lock_{kind}:slice_bad") for kind in ("not_owned", "renewal_failures", "unlocked_work", "acquire_failures")]
                case("arithmetic", f"{seconds} s from {phase * 60:.0f} s after a scrape on, {amount} failures and nothing else", w, quiet, holds=slices)
    # Only logs: the same against a quiet past.
    for phase in (0, 0.2, 0.45):
        w = World(95, step=0.25).exporter(redis=False).namespace(redis=None, policy="continue")
        for metric, labels in losses:
            w.put(f"redis_lock_{metric}", growth(95, 75 + phase, 149, 100000, step=0.25), **labels, **JOBS)
        slices = [few(f"lock_namespace:redis_lock_{kind}:slice_frequent", "10m") for kind in ("not_owned", "renewal_failures", "acquire_failures")]
        case("arithmetic", f"only logs: 149 s from {phase * 60:.0f} s after a scrape on", w, {minute / 2: [] for minute in range(150, 191, 4)}, holds=slices)
    # Events too: tickets, and no page.
    w = usual(40, policy="continue")
    w.put("redis_lock_abandonments_total", counter(40, (20, 22.5, 1000)), **JOBS)
    w.put("redis_lock_conflicting_writes_total", counter(40, (20, 22.5, 1000)), kind="duplicate_terminal_state", **JOBS)
    case("arithmetic", "a burst of 150 s of abandonments and double work", w, {m: [event, twice] for m in (21, 23, 25, 27, 30)})
    # Longer ones can.
    w = usual(40)
    lost(w, (20, 24, 10000))
    released(w, (0, 20, 20), (24, 40, 20))
    renewed(w, (0, 20, 20), (24, 40, 20))
    case("arithmetic", "a burst of 240 s in which nothing succeeds can page", w, {24: [], 25.5: ["NotOwnedRatioHigh/critical lock_namespace=jobs"]})


# --------------------------------------------------------------------------------------------------------------------- text
RUNBOOKS = "https://github.com/redis-lock-exporter/redis_lock_exporter/blob/main/docs/runbooks/"


def say(name, world, minute):
    """A case for the texts of rule_texts.TEXTS[name]: these alerts fire, no others, and this is what they say."""
    entries = []
    for alert, summary, description, dashboard, page in TEXTS[name]:
        labels = {k: v for k, v in parse_alert(alert).items() if k != "alertstate"}
        alertname = labels.pop("alertname")
        links = {"runbook_url": f"{RUNBOOKS}{alertname}.md", "dashboard_url": dashboard, "exporter_url": page}
        entries.append((minute, alertname, labels, {"summary": summary, "description": description, **links}))
    case("text", name, world, {minute: [entry[0] for entry in TEXTS[name]]}, text=entries)


def text():
    """Every alert once, with the words that people read."""
    east = {"cluster": "east"}
    one = {"instance": "a:9190", "job": "locks", **east}

    def put(world, name, metric, values, redis=None, **labels):
        world.put(f"redis_lock_{metric}", values, lock_namespace=name, redis=redis, **labels, **one)

    w = World(40).exporter(cluster="east").exporter("b:9190", cluster="east", logs=False)
    for name, more in (
        ("lost", {}), ("renew", {"policy": "continue"}), ("stop", {"severity": "ticket"}), ("bare", {}), ("stuck", {"traffic": 5}), ("quit", {"traffic": 5}), ("fence", {}), ("twice", {}),
        ("leader", {"style": "loop", "config": {"leader_absent_seconds": 180}}), ("late", {}), ("eternal", {}),
        ("slow", {"config": {"max_hold_seconds": 600}}), ("churn", {}), ("expire", {}), ("short", {"config": {"ttl_seconds": 30}}),
        ("early", {"style": "loop"}), ("takeover", {}),
    ):
        w.namespace(name, cluster="east", **more)
    w.namespace("far", cluster="east", instance="b:9190", redis="second", logs=False)
    steady = counter(40, (10, 40, 1))
    put(w, "lost", "not_owned_total", counter(40, (10, 40, 17)), operation="release")
    put(w, "lost", "not_owned_causes_total", counter(40, (10, 40, 15)), cause="renewals_stopped")
    put(w, "lost", "not_owned_causes_total", counter(40, (10, 40, 3)), cause="taken_over")
    put(w, "lost", "not_owned_causes_total", counter(40, (10, 40, 40)), cause="unknown")
    # Of another cluster, so no cause of this one.
    w.put("redis_lock_not_owned_causes_total", counter(40, (10, 40, 90)), cause="lost_in_failover", lock_namespace="lost", instance="w:9190", job="locks", cluster="west")
    put(w, "renew", "renewal_failures_total", counter(40, (10, 40, 8)), reason="redis_unavailable")
    put(w, "stop", "renewal_failures_total", counter(40, (10, 40, 8)), reason="failover")
    put(w, "bare", "unlocked_work_total", counter(40, (10, 40, 10)))
    put(w, "bare", "acquire_failures_total", counter(40, (10, 40, 10)), reason="redis_unavailable")
    put(w, "bare", "acquire_failures_total", counter(40, (10, 40, 50)), reason="busy")
    put(w, "bare", "acquire_failures_total", counter(40, (10, 40, 50)), reason="canceled")
    put(w, "stuck", "acquire_failures_total", counter(40, (10, 40, 15)), reason="failover")
    put(w, "stuck", "acquire_failures_total", counter(40, (10, 40, 40)), reason="busy")
    put(w, "quit", "abandonments_total", steady)
    put(w, "fence", "fence_regressions_total", counter(40, (28, 28.5, 1)), redis="main")
    put(w, "twice", "conflicting_writes_total", steady, kind="duplicate_terminal_state")
    put(w, "leader", "last_held_timestamp_seconds", clock(40, (0, None), (10, 10)), redis="main", lock="app:leader")
    put(w, "late", "renewal_overdue", gauge(40, (0, 0), (10, 6)), redis="main")
    put(w, "eternal", "without_ttl", gauge(40, (0, 0), (5, 2)), redis="main")
    put(w, "slow", "oldest_acquired_timestamp_seconds", clock(40, (0, None), (10, 10)), redis="main")
    put(w, "churn", "owner_changes_total", counter(40, (5, 40, 4)), redis="main", after="expiry")
    put(w, "expire", "expirations_total", counter(40, (5, 40, 20)), redis="main")
    put(w, "short", "not_owned_causes_total", counter(40, (10, 40, 0.5)), cause="expired_never_renewed")
    put(w, "short", "recommended_ttl_seconds", gauge(40, (0, 90)), redis="main")
    put(w, "short", "recommended_renew_interval_seconds", gauge(40, (0, 30)), redis="main")
    put(w, "short", "takeover_bound_seconds", gauge(40, (0, 30)), redis="main")
    put(w, "early", "early_releases_total", counter(40, (10, 40, 0.5)), redis="main")
    put(w, "takeover", "takeovers_total", counter(40, (10, 40, 0.5)), redis="main", within_slo="false")
    put(w, "takeover", "takeovers_total", counter(40, (10, 40, 1.5)), redis="main", within_slo="true")
    w.put("redis_lock_exporter_redis_failovers_total", counter(40, (5, 5.5, 1), (12, 12.5, 1), (20, 20.5, 1), (28, 28.5, 1)), **one)
    reached(w, gauge(40, (0, 1), (10, 0)), **{**one, "instance": "b:9190"})
    say("what alerts about namespaces and Redis say", w, 30)

    # Logs and Redis are seen by different exporters: the links lead to the one that sees Redis, and the texts tell what it saw.
    w = World(40).exporter(cluster="east", redis=False).exporter("b:9190", cluster="east", logs=False)
    for name in ("lost", "short"):
        w.namespace(name, cluster="east", redis=None, config={"ttl_seconds": 30}).namespace(name, cluster="east", instance="b:9190", logs=False, config={"ttl_seconds": 30})
    sees = {"redis": "main", **one, "instance": "b:9190"}
    put(w, "lost", "not_owned_total", counter(40, (10, 40, 17)), operation="release")
    put(w, "short", "not_owned_total", counter(40, (10, 40, 0.5)), operation="release")
    for name, expired in (("lost", 4), ("short", 0.5)):
        put(w, name, "not_owned_causes_total", counter(40, (10, 40, 17)), cause="unknown")
        w.put("redis_lock_expirations_total", counter(40, (10, 40, expired)), lock_namespace=name, **sees)
        w.put("redis_lock_owner_changes_total", counter(40, (10, 40, 0.25)), lock_namespace=name, after="release", **sees)
        w.put("redis_lock_owner_changes_total", counter(40, (10, 40, 0.5)), lock_namespace=name, after="unknown", **sees)
    w.put("redis_lock_recommended_ttl_seconds", gauge(40, (0, 90)), lock_namespace="short", **sees)
    w.put("redis_lock_exporter_redis_failovers_total", counter(40, (10, 10.5, 1)), **{**one, "instance": "b:9190"})
    say("what alerts say where logs and Redis are seen by different exporters", w, 30)

    # Several see Redis: of two exporters the larger number counts, those of two Redis are added up, and what is older than half an hour is over. Others are
    # of another cluster, or have the same name in another job.
    w = World(50).exporter(cluster="east", redis=False).namespace("lost", cluster="east", redis=None)
    put(w, "lost", "not_owned_total", counter(50, (10, 50, 17)), operation="release")
    for instance, job, cluster, redis, expired, moved, failovers in (
        ("b:9190", "locks", "east", "main", 4, 0.25, 1), ("c:9190", "locks", "east", "main", 1, 0.125, 0), ("b:9190", "other", "east", "second", 2, 0.5, 1), ("b:9190", "locks", "west", "main", 3, 1, 1),
    ):
        sees = {"instance": instance, "job": job, "cluster": cluster}
        w.exporter(**sees, logs=False).namespace("lost", **sees, redis=redis, logs=False)
        w.put("redis_lock_expirations_total", counter(50, (0, 10, 20), (10, 50, expired)), lock_namespace="lost", redis=redis, **sees)
        for after, times in (("release", 1), ("unknown", 2)):
            w.put("redis_lock_owner_changes_total", counter(50, (0, 10, 20), (10, 50, times * moved)), lock_namespace="lost", redis=redis, after=after, **sees)
        w.put("redis_lock_exporter_redis_failovers_total", counter(50, (5, 5.5, 1), (30, 30.5, failovers)), **sees)
        # Two of one Redis see the same one or two, and there is more in the second.
        fences, w = counter(50, (40, 40.5, 2 if redis == "second" else 1)), w.namespace("quiet", **sees, redis=redis, logs=False, severity="ticket")
        for name, metric, values in (("lost", "fence_regressions_total", fences), ("quiet", "fence_regressions_total", fences), ("lost", "without_ttl", gauge(50, (0, 0), (25, 2 if redis == "second" else 1)))):
            w.put(f"redis_lock_{metric}", values if cluster == "east" else counter(50), lock_namespace=name, redis=redis, **sees)
    # Logs of two nodes are added up, also where their series come into being.
    for instance, node in (("a:9190", 1), ("d:9190", 2)):
        own = {"lock_namespace": "lost", "instance": instance, "job": "locks", "cluster": "east"}
        for metric in ("renewal_failures", "release_failures", "acquire_failures"):
            w.namespace(metric, cluster="east", redis=None)
            w.put(f"redis_lock_{metric}_total", counter(50, (15, 50, node)), reason="denied", **{**own, "lock_namespace": metric})
        for metric, labels in (("abandonments", {}), ("conflicting_writes", {"kind": "duplicate_terminal_state"})):
            w.put(f"redis_lock_{metric}_total", gauge(50, (0, None), (40, node)), **labels, **own)
    say("what is said of Redis that several exporters see", w, 46)

    # A Cluster of which a part is away.
    w = World(40).exporter(cluster="east").namespace(cluster="east")
    w.put("redis_lock_exporter_redis_nodes", gauge(40, (0, 3)), **one)
    w.put("redis_lock_exporter_redis_nodes_up", gauge(40, (0, 3), (10, 2)), **one)
    w.put("redis_lock_exporter_redis_up", gauge(40, (0, 1), (10, 0)), **one)
    say("what is said of a part of Redis", w, 30)

    # What takes an hour of past, with the links of links.rules.yml.
    w = World(90).exporter(cluster="east").namespace("busy", cluster="east").namespace("rate", cluster="east", redis=None, policy="continue").namespace("margin", cluster="east").namespace("burn", cluster="east")
    w.put("redis_lock:links", gauge(90, (0, 1)), grafana_url="https://grafana.example", exporter_url="https://locks.example")
    put(w, "busy", "acquire_failures_total", counter(90, (5, 90, 40)), reason="busy")
    put(w, "rate", "not_owned_total", counter(90, (70, 90, 2)), operation="release")
    put(w, "rate", "renewal_failures_total", counter(90, (0, 70, 0.125), (70, 90, 3)), reason="redis_unavailable")
    put(w, "rate", "acquire_failures_total", counter(90, (70, 90, 4)), reason="failover")
    for bound in ("0.3", "0.4", "0.6", "0.7", "+Inf"):
        put(w, "margin", "renewal_margin_ratio_bucket", counter(90, (0, 60, 20 if float(bound) >= 0.7 else 0), (60, 90, 20 if float(bound) >= 0.4 else 0)), redis="main", le=bound)
    put(w, "burn", "not_owned_total", counter(90, (5, 90, 1.5)), operation="release")
    say("what alerts that know the past say, with links", w, 84)

    w = World(40).exporter(cluster="east").namespace(cluster="east")
    w.exporter("c:9190", cluster="east", redis=False).exporter("d:9190", cluster="east", logs=False).exporter("e:9190", cluster="east", job="logs", redis=False)
    w.namespace("third", cluster="east", instance="d:9190", redis="third", logs=False)
    w.gone(5, text="c:9190")
    w.gone(5, text="d:9190")
    w.gone(5, text="e:9190")
    w.put("up", gauge(40, (0, 1), (5, 0)), **{**one, "instance": "c:9190"})
    w.put("redis_lock_exporter_tracking_up", gauge(40, (0, 1), (5, 0)), **one)
    w.put("redis_lock_exporter_scan_last_success_timestamp_seconds", clock(40, (0, None), (5, 5)), **one)
    w.put("redis_lock_exporter_log_lag_bytes", gauge(40, (0, 0), (5, 500)), source="/var/log/app.log", **one)
    w.put("redis_lock_exporter_log_bytes_total", counter(40, (0, 5, 3000)), source="/var/log/app.log", **one)
    w.put("redis_lock_exporter_log_open_files", gauge(40, (0, 0)), source="/var/log/none.log", **one)
    w.put("redis_lock_exporter_state_enabled", gauge(40, (0, 1)), **one)
    w.put("redis_lock_exporter_state_durable", gauge(40, (0, 0)), **one)
    put(w, "jobs", "untracked_locks_total", counter(40, (5, 40, 5)), redis="main")
    w.put("redis_lock_exporter_table_evictions_total", counter(40, (5, 40, 2)), table="joined_lines", **one)
    w.put("redis_lock_exporter_redis_permission_denied", gauge(40, (0, 1)), command="CLIENT", **one)
    put(w, "jobs", "release_failures_total", counter(40, (5, 40, 1)), reason="denied")
    w.put("redis_lock_exporter_config_last_reload_successful", gauge(40, (0, 0)), **one)
    say("what alerts about exporters say", w, 30)

    w = World(30).exporter().namespace()
    w.gone(5)
    say("what is said when nothing watches", w, 20)


# ------------------------------------------------------------------------------------------------------------------- cordum
def cordum():
    own = {"job": "cordum", "instance": "s:9090"}

    def add(name, values_by_series, firing):
        w = World(250)
        for metric, labels, values in values_by_series:
            w.put(metric, values, **labels, **own)
        case("cordum", name, w, firing, rules="cordum.rules.yml")

    wait = "cordum_scheduler_scheduler_job_lock_wait_seconds"
    # p99 of a bucket from 0.025 to 0.05 is 0.04975, of one from 0.1 to 0.25 0.2485, of one from 0.05 to 0.1 0.0995.
    for name, later, per_step, fires in (("0.25", 0.25, 10, True), ("0.1", 0.1, 10, False), ("0.25, few", 0.25, 0.5, False)):
        series = [(wait + "_bucket", {"le": le}, counter(250, (0, 200, per_step if float(le) >= 0.05 else 0), (200, 250, per_step if float(le) >= later else 0)))
                  for le in ("0.025", "0.05", "0.1", "0.25", "1", "+Inf")]
        series.append((wait + "_count", {}, counter(250, (0, 250, per_step))))
        add(f"waits of up to {name} s after 0.05 s", series, {199: [], 214: [], 245: ["CordumWaitGrowing/warning job=cordum"] if fires else []})
    for before, after, fires in ((1, 8, True), (1, 3, False), (6, 10, False)):
        add(f"from {before} stale jobs to {after}", [("cordum_scheduler_scheduler_stale_jobs", {"state": "running"}, gauge(250, (0, before), (200, after)))],
            {199: [], 212: [], 248: ["CordumStaleJobsGrowing/warning job=cordum"] if fires else []})
    for before, after, fires in ((0, 1, True), (0, 0.125, False), (0.5, 0.75, False)):
        add(f"from {before * 60:.0f} replays in half an hour to {after * 60:.0f}", [("cordum_scheduler_scheduler_orphan_replayed_total", {"topic": "t"}, counter(250, (0, 200, before), (200, 250, after)))],
            {199: [], 235: [], 249: ["CordumReplaysGrowing/warning job=cordum"] if fires else []})
    add("a burst of replays", [("cordum_scheduler_scheduler_orphan_replayed_total", {"topic": "t"}, counter(250, (200, 201, 100)))], {m: [] for m in (205, 229, 232, 240, 249)})


def cordum_limits():
    """Each number and time of the three trends, from both sides. `waits`, `stale` and `replays` make the series of periods (begin, end, level)."""
    def series(metric, labels, values, instance="s:9090"):
        return metric, {"job": "cordum", "instance": instance, **labels}, values

    def waits(minutes, *periods, per_sample=10, **where):
        bounds = ("0.025", "0.05", "0.1", "0.12", "0.25", "1", "+Inf")
        name = "cordum_scheduler_scheduler_job_lock_wait_seconds"
        buckets = [series(f"{name}_bucket", {"le": le}, counter(minutes, *[(begin, end, per_sample if float(le) >= bound else 0) for begin, end, bound in periods]), **where) for le in bounds]
        return [*buckets, series(f"{name}_count", {}, counter(minutes, *[(begin, end, per_sample) for begin, end, _ in periods]), **where)]

    def stale(minutes, *periods, state="running", **where):
        return [series("cordum_scheduler_scheduler_stale_jobs", {"state": state}, gauge(minutes, (0, 0), *[(begin, value) for begin, _, value in periods]), **where)]

    def replays(minutes, *periods, topic="t", **where):
        """Levels are replays in half an hour."""
        return [series("cordum_scheduler_scheduler_orphan_replayed_total", {"topic": topic}, counter(minutes, *[(begin, end, level / 60) for begin, end, level in periods]), **where)]

    def add(name, every, parts, firing):
        w = World(max(firing) + 1)
        for metric, labels, values in parts:
            w.put(metric, values, **labels)
        case("cordum", name, w, firing, rules="cordum.rules.yml", every=every)

    # Of each: its alert; usual, what is twice that and what is less; below and above the floor; minutes until it counts, `for`, and until it does not count any more.
    for kind, alert, low, high, less, below, above, begins, lasts, ends in (
        (waits, "CordumWaitGrowing", 0.1, 0.25, 0.12, 0.1, 0.12, 1, 15, 30),
        (stale, "CordumStaleJobsGrowing", 8, 18, 14, 4.5, 5.5, 19, 15, 11),
        (replays, "CordumReplaysGrowing", 15, 37.5, 26.25, 9.375, 11.25, 10, 35, 20),
    ):
        fires = [f"{alert}/warning job=cordum"]
        word = alert.removeprefix("Cordum").removesuffix("Growing").lower()
        nothing = 0.025 if kind is waits else 0
        # From nothing to so much that the floor is soon reached.
        sudden = {waits: 0.25, stale: 8, replays: 30}[kind]
        fired, ended = 100 + begins + lasts, 200 + ends + 15
        add(f"{word}: when it begins and ends", 0.5, kind(250, (0, 100, nothing), (100, 200, sudden), (200, 250, nothing)),
            {fired - 4: [], fired + 3: fires, ended - 4: fires, ended + 3: []})
        add(f"{word}: twice the usual", 2.5, kind(230, (0, 150, low), (150, 230, high)), {150: [], 225: fires})
        add(f"{word}: less than twice the usual", 2.5, kind(230, (0, 150, low), (150, 230, less)), {150: [], 225: []})
        add(f"{word}: below the floor", 2.5, kind(230, (0, 150, nothing), (150, 230, below)), {150: [], 225: []})
        add(f"{word}: above the floor", 2.5, kind(230, (0, 150, nothing), (150, 230, above)), {150: [], 225: fires})
        # What is usual is the median.
        add(f"{word}: a third of the past was as bad", 2.5, kind(310, (0, 60, high), (60, 240, low), (240, 310, high)), {235: [], 305: fires})
        add(f"{word}: three fifths of the past were as bad", 2.5, kind(310, (0, 150, high), (150, 240, low), (240, 310, high)), {235: [], 305: []})
        # Of a day, an hour ago: not of half a day, nor of two.
        add(f"{word}: more than half of 20 hours were as bad", 5, kind(1300, (0, 700, high), (700, 1230, low), (1230, 1300, high)), {1225: [], 1300: []})
        add(f"{word}: more than half of 36 hours were as bad, less than half of a day", 5, kind(2200, (0, 1250, high), (1250, 2130, low), (2130, 2200, high)), {2125: [], 2200: fires})
        add(f"{word}: a past of an hour and a half", 2.5, kind(117.5, (0, 40, low), (40, 117.5, high)), {60: [], 115: fires})
        add(f"{word}: a past of ten minutes, not of forty", 2.5, kind(70, (0, 20, low), (20, 70, high)), {55: [], 70: []})

    # Who adds up what.
    fires = ["CordumWaitGrowing/warning job=cordum"]
    add("waits: of two replicas, the one with little to do is slow", 2.5, waits(200, (0, 200, 0.05), per_sample=19) + waits(200, (0, 150, 0.05), (150, 200, 0.25), per_sample=1, instance="r:9090"), {150: [], 195: fires})
    add("waits: two replicas have 30 in half an hour each", 2.5, [part for instance in ("s:9090", "r:9090") for part in waits(200, (0, 150, 0.05), (150, 200, 0.25), per_sample=0.5, instance=instance)], {150: [], 195: fires})
    add("replays: 6 in half an hour of each of two topics", 2.5, replays(230, (150, 230, 5.625)) + replays(230, (150, 230, 5.625), topic="u"), {150: [], 225: ["CordumReplaysGrowing/warning job=cordum"]})
    add("stale jobs: 4 of each of two states", 2.5, stale(230, (150, 230, 4)) + stale(230, (150, 230, 4), state="queued"), {150: [], 225: ["CordumStaleJobsGrowing/warning job=cordum"]})
    add("stale jobs: two replicas count the same 4", 2.5, stale(230, (150, 230, 4)) + stale(230, (150, 230, 4), instance="r:9090"), {150: [], 225: []})
    # Jobs beside each other: what grows, what always was so, and what waits too seldom.
    def of_job(job, parts):
        return [(metric, {**labels, "job": job}, values) for metric, labels, values in parts]

    add("jobs beside each other", 2.5, [part for job, before, after, per_sample in (("grows", 0, 1, 10), ("always", 1, 1, 10), ("seldom", 0, 1, 0.5)) for part in of_job(job, [
        *waits(230, (0, 150, (0.05, 0.25)[before]), (150, 230, (0.05, 0.25)[after]), per_sample=per_sample), *stale(230, (0, 150, 8 * before), (150, 230, 8 * after)), *replays(230, (0, 150, 30 * before), (150, 230, 30 * after)),
    ])], {150: [], 225: [f"Cordum{word}Growing/warning job={job}" for word, jobs in (("Wait", "grows"), ("StaleJobs", "grows seldom"), ("Replays", "grows seldom")) for job in jobs.split()]})
    add("stale jobs: one of two replicas counts them", 2.5, stale(230, (150, 230, 8)) + stale(230, (0, 230, 0), instance="r:9090"), {150: [], 225: ["CordumStaleJobsGrowing/warning job=cordum"]})


for make in (not_owned, not_owned_tiers, burn, long_burn, rates, rates_beside, renewal, renewal_tiers, unlocked, acquire, events, abandoned_share, state, lifecycle, lifecycle_limits, redis, exporter, exporter_limits, twins, beside, arithmetic, text, cordum, cordum_limits):
    make()
