"""Every number and duration of the lifecycle alerts, tested from both sides."""

from .builders import JOBS, SEEN, case, usual
from .world import World, counter, gauge


def lifecycle_limits():
    """Each number, window and duration of the lifecycle tickets, from both sides. Two Redis are
    added; of two exporters on one Redis the larger number counts."""
    w = usual(92)
    w.put("redis_lock_expirations_total", counter(92, (10, 92, 6)), **SEEN)
    case("lifecycle", "23 % of the locks expire, for longer than an hour", w, {20: [], 45: ["ExpiryRatioHigh/warning lock_namespace=jobs"], 90: ["ExpiryRatioHigh/warning lock_namespace=jobs"]})
    two = {"instance": "b:9190", "logs": False}

    def both(minutes, style="item", **more):
        """Two Redis, each watched by its own exporter."""
        return World(minutes).exporter().exporter("b:9190", logs=False).namespace(style=style, **more).namespace(style=style, redis="second", **two, **more)

    SECOND = {**SEEN, "redis": "second", "instance": "b:9190"}
    TWIN = {**SEEN, "instance": "b:9190"}
    margin, churn, expiry = (f"{name}/warning lock_namespace=jobs" for name in ("RenewalMarginShrinking", "OwnerChurnHigh", "ExpiryRatioHigh"))
    slow, early, short, busy = (f"{name}/warning lock_namespace=jobs" for name in ("TakeoverSlow", "ReleasedEarly", "TtlTooShort", "ContentionHigh"))

    def margins(world, *periods, **labels):
        """`periods`: (begin, end, upper bound of the bucket, renewals every 30 s)."""
        for bound in ("0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "+Inf"):
            segments = [(begin, end, amount) for begin, end, le, amount in periods if float(bound) >= le]
            world.put("redis_lock_renewal_margin_ratio_bucket", counter(world.minutes, *segments), le=bound, **{**SEEN, **labels})

    # A tenth of the last 30 minutes is late after 20 minutes, and `for` adds 15.
    w = usual(125)
    margins(w, (0, 75, 0.7, 20), (75, 125, 0.7, 17), (75, 125, 0.4, 3))
    case("lifecycle", "15 % of the renewals come late", w, {105: [], 115: [margin]})
    # A tenth is late after 22.2 minutes.
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
    # A tenth of 30 minutes is 3 minutes, and `for` adds 15.
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
    # The third last event, at minute 25, leaves the hour at 85.5; on Prometheus 3 its slices leave
    # four minutes earlier. keep_firing_for adds 15 minutes.
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
    # Below half of 30 minutes at 105, then 15 minutes more.
    case("lifecycle", "contention ends: 15 minutes after it is below", w, {104: [busy], 117: [busy], 128: []})
