"""Alerts on how locks are taken, held, renewed and released: contention, expirations, takeovers,
margins, TTLs."""

from .builders import JOBS, SEEN, case, lost, usual
from .world import World, counter, gauge


def lifecycle():
    margin = "RenewalMarginShrinking/warning lock_namespace=jobs"

    def margins(world, *periods, renewals=20, **labels):
        """`periods`: (begin, end, upper bound of the bucket that contains all renewals)."""
        for bound in ("0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "+Inf"):
            segments = [(b, e, renewals) for b, e, le in periods if float(bound) >= le]
            world.put("redis_lock_renewal_margin_ratio_bucket", counter(world.minutes, *segments), le=bound, **{**SEEN, **labels})

    # The p10 of a bucket from 0.6 to 0.7 is 0.61. The margin must fall below three quarters of it
    # (0.4575) and below 0.5.
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
    # Slices from 10.5 on, the twenty-fourth at about 22.0. The last 30 minutes contain twenty-four
    # until about 70.
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
    loop_churn(churn, changes)
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
    # Every second interval of 2 minutes is bad, but only 18 % of half an hour.
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
    # Three or four slices per event: the tenth comes with the third or fourth event. The hour is
    # over at 95, keep_firing_for adds 15.
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

    # One exporter reads the logs and another one watches Redis: no cause is known, but locks are
    # found lost while locks expire.
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
    # Five lost and five expired, at different times, and all at once.
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

    # Above 50 % of 30 minutes after more than 30 busy attempts, when they outweigh the rest of the
    # window; `for` is 35.
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
    # 32 busy of 32 + 20 attempts. If the keyspace were added twice, it would be 44 %.
    w = World(110).exporter().exporter("b:9190").namespace().namespace(instance="b:9190")
    w.put("redis_lock_acquire_failures_total", counter(110, (10, 150, 16)), reason="busy", **JOBS)
    w.put("redis_lock_acquire_failures_total", counter(110, (10, 150, 16)), reason="busy", **{**JOBS, "instance": "b:9190"})
    case("lifecycle", "two exporters: busy attempts are added up, acquisitions are not", w, {100: [busy]})
    w = World(110).exporter().exporter("b:9190").namespace().namespace(instance="b:9190", redis="second", logs=False)
    w.put("redis_lock_acquire_failures_total", counter(110, (10, 150, 30)), reason="busy", **JOBS)
    case("lifecycle", "two Redis: 43 % of the attempts find the lock taken", w, {100: []})


def loop_churn(churn, changes):
    """A lock of style loop may change its owner once per TTL, by expiry."""

    def loop(minutes, ttl=30, held=1, **more):
        w = usual(minutes, style="loop", config={"ttl_seconds": ttl}, **more)
        w.put("redis_lock_held", gauge(minutes, (0, held)), **SEEN)
        return w

    # Six per TTL for a third of the half hour are two on average.
    w = loop(100)
    changes(w, (10, 50, 6), after="unknown")
    case("lifecycle", "a loop's lock changes its owner six times per TTL", w, {19: [], 22: [churn], 60: [churn], 70: [churn], 95: []})
    w = loop(60, source="scan")
    changes(w, (10, 60, 6), after="unknown")
    case("lifecycle", "a loop's lock changes its owner six times per TTL, as passes show it", w, {19: [], 22: [churn]})
    for per_ttl, fires in ((1, False), (1.75, False), (2.5, True)):
        w = loop(60)
        changes(w, (5, 60, per_ttl))
        case("lifecycle", f"a loop's lock changes its owner {per_ttl} times per TTL by expiry", w, {15: [], 45: [churn] if fires else [], 59: [churn] if fires else []})
    w = loop(60)
    changes(w, (5, 60, 1.25))
    changes(w, (5, 60, 1.25), after="unknown")
    changes(w, (5, 60, 20), after="release")
    case("lifecycle", "a loop's lock: expiry and unknown ends are added up", w, {15: [], 45: [churn]})
    w = loop(60)
    changes(w, (5, 60, 20), after="release")
    case("lifecycle", "a loop's lock is released each time", w, {30: [], 59: []})
    for held, fires in ((4, False), (2, True)):
        w = loop(60, held=held)
        changes(w, (5, 60, 6), after="unknown")
        case("lifecycle", f"{held} locks of a loop share six owner changes per TTL", w, {15: [], 45: [churn] if fires else []})
    # Half an hour after four locks were held at once, there is only one again.
    w = loop(60)
    w.put("redis_lock_held", gauge(60, (0, 1), (20, 4), (21, 1)), **SEEN)
    changes(w, (5, 60, 6), after="unknown")
    case("lifecycle", "four locks of a loop are held for a minute", w, {18: [churn], 34: [churn], 46: [], 59: [churn]})
    for ttl, fires in ((240, False), (900, True)):
        w = loop(60, ttl=ttl)
        changes(w, *[(5 + 2.5 * i, 5.5 + 2.5 * i, 1) for i in range(22)], after="unknown")
        case("lifecycle", f"a loop's lock with a TTL of {ttl} s changes its owner every 2.5 minutes", w, {15: [], 45: [churn] if fires else []})
    w = loop(60, ttl=900, held=100)
    changes(w, (10, 12, 100), (30, 32, 100), after="unknown")
    case("lifecycle", "two failovers move every lock of a loop four times", w, {m: [] for m in (13, 20, 32, 36, 40)})
    w = World(60).exporter().exporter("b:9190").namespace(style="loop", config={"ttl_seconds": 30}).namespace(style="loop", instance="b:9190", logs=False, config={"ttl_seconds": 30})
    for instance in ("a:9190", "b:9190"):
        w.put("redis_lock_held", gauge(60, (0, 1)), **{**SEEN, "instance": instance})
        changes(w, (5, 60, 1.75), after="unknown", instance=instance)
    case("lifecycle", "two exporters see the same 1.75 owner changes per TTL", w, {30: [], 59: []})
    w = World(60).exporter().exporter("b:9190").namespace(style="loop", config={"ttl_seconds": 30}).namespace(style="loop", instance="b:9190", redis="second", logs=False, config={"ttl_seconds": 30})
    for labels in (SEEN, {**SEEN, "instance": "b:9190", "redis": "second"}):
        w.put("redis_lock_held", gauge(60, (0, 1)), **labels)
        changes(w, (5, 60, 2.5), after="unknown", **labels)
    case("lifecycle", "two Redis: a loop's lock in each changes its owner 2.5 times per TTL", w, {15: [], 45: [churn]})
