"""RedisLockUnlockedWork: work that runs without the lock."""

from .builders import JOBS, SEEN, case, usual
from .world import World, counter


def unlocked():
    page = "UnlockedWork/critical lock_namespace=jobs"

    def unlock(world, *segments, **labels):
        world.put("redis_lock_unlocked_work_total", counter(world.minutes, *segments), **{**JOBS, **labels})

    w = usual(60)
    unlock(w, (10, 25, 10))
    # The window of 10 minutes contains 15 slices until 4 to 5 minutes after the end at 25.
    # keep_firing_for adds 10.
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
    case("unlocked_work", "only logs: any is enough, if it goes on", w, {17: [], 20: [page], 25: [page], 45: [page], 49: []})
    w = World(60).exporter(redis=False).namespace(redis=None)
    unlock(w, (10, 12, 60))
    case("unlocked_work", "only logs: a burst of two minutes is no page", w, {m: [] for m in (11, 13, 15, 18, 20)})
    # 1.2 % if one of two exporters on the same keyspace counts. If both were added, it would be 0.6
    # %.
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
    # From 12 on, the window of 2 minutes contains only the new traffic: 15 slices at 19.
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
    rare(page, unlock)


def rare(page, unlock):
    """A small namespace: one run every few minutes, and half of them or more have no lock."""

    def every(minutes, begin, end, offset=0):
        """One event every so many minutes."""
        return [(at, at + 0.5, 1) for at in range(begin + offset, end, minutes)]

    # 10 and more bad slices of 20 in each 10 minutes. Five events at 26.5. The last one is at 46.5:
    # its slices leave the window of 10 minutes at 58, keep_firing_for adds 10.
    w = usual(75, traffic=0)
    unlock(w, *every(4, 10, 50))
    case("unlocked_work", "one run every 4 minutes, none has a lock", w, {20: [], 26: [], 36: [page], 46: [page], 62: [page], 70: []})
    w = usual(40, traffic=0, severity="ticket")
    unlock(w, *every(4, 10, 40))
    case("unlocked_work", "one run every 4 minutes, none has a lock, tickets", w, {26: [], 36: ["UnlockedWork/warning lock_namespace=jobs"]})
    for source in ("scan", None):
        w = usual(60, traffic=0, source=source) if source else World(60).exporter(redis=False).namespace(redis=None)
        unlock(w, *every(4, 10, 60))
        case("unlocked_work", f"one run every 4 minutes, seen by {source or 'logs only'}", w, {26: [], 36: [page], 60: [page]})
    w = World(60).exporter(redis=False).namespace(redis=None)
    unlock(w, (10, 12, 60), (30, 32, 60))
    case("unlocked_work", "only logs: two bursts of two minutes", w, {m: [] for m in (13, 20, 32, 34, 36, 40)})
    for acquired, fires in ((8, True), (2, False)):
        w = usual(60, traffic=0)
        w.put("redis_lock_acquisitions_total", counter(60, *every(acquired, 0, 60, offset=1)), **SEEN)
        unlock(w, *every(4, 10, 60))
        case("unlocked_work", f"one run every 4 minutes without a lock, one every {acquired} with it", w, {26: [], 40: [page] if fires else [], 59: [page] if fires else []})
    # 7.5 in half an hour, 15 in an hour.
    w = usual(90, traffic=0, config={"min_failures": 10})
    unlock(w, *every(4, 10, 90))
    case("unlocked_work", "one run every 4 minutes where ten failures are allowed", w, {40: [], 88: []})
    # 15 bad slices of 60 in half an hour, 30 in an hour.
    w = usual(90, traffic=0, config={"min_failures": 1})
    unlock(w, *every(8, 10, 90))
    case("unlocked_work", "one run every 8 minutes", w, {40: [], 88: []})
    w = usual(85, traffic=0)
    w.put("redis_lock_acquisitions_total", counter(85, (0, 45, 20)), **SEEN)
    unlock(w, *every(4, 20, 85))
    case("unlocked_work", "traffic ends, and what remains has no lock", w, {45: [], 62: [], 80: [page]})
    # As many runs have a lock as have none. If the twin were added, it would be a third.
    twins = World(60).exporter().exporter("b:9190", logs=False)
    twins.namespace(traffic=0).namespace(instance="b:9190", logs=False, traffic=0)
    for instance in ("a:9190", "b:9190"):
        twins.put("redis_lock_acquisitions_total", counter(60, (0, 60, 0.125)), **{**SEEN, "instance": instance})
    unlock(twins, (0, 60, 1 / 64), *every(4, 10, 60))
    case("unlocked_work", "two exporters see the same half of the runs", twins, {26: [], 45: [page]})
    # The twin sees no acquisition.
    w = World(60).exporter().exporter("b:9190", logs=False)
    w.namespace(traffic=0.25).namespace(instance="b:9190", logs=False, traffic=0)
    unlock(w, *every(4, 10, 60))
    case("unlocked_work", "two exporters: one of them sees that two of three runs have a lock", w, {45: [], 59: []})
    w = World(60).exporter().exporter("b:9190").namespace(traffic=0).namespace(instance="b:9190", traffic=0)
    unlock(w, *every(8, 10, 60))
    unlock(w, *every(8, 14, 60), instance="b:9190")
    case("unlocked_work", "one run every 4 minutes, in the logs of two exporters", w, {26: [], 36: [page]})
    w = World(60).exporter().exporter("b:9190", logs=False)
    w.namespace(traffic=0).namespace(instance="b:9190", redis="second", logs=False, traffic=0)
    w.put("redis_lock_acquisitions_total", counter(60, (0, 60, 0.09375)), **SEEN)
    w.put("redis_lock_acquisitions_total", counter(60, (0, 60, 0.09375)), **{**SEEN, "instance": "b:9190", "redis": "second"})
    unlock(w, *every(4, 10, 60))
    case("unlocked_work", "two Redis: two of three runs have a lock", w, {45: [], 59: []})
    # One more bad slice at 46, because acquisitions follow at once: half of 30 minutes is bad until
    # 52.
    w = usual(70, traffic=0)
    unlock(w, (10, 30, 100), (45.5, 46, 1))
    w.put("redis_lock_acquisitions_total", counter(70, (46, 46.5, 200)), **SEEN)
    case("unlocked_work", "a single bad slice after an incident", w, {30: [page], 49: [page], 57: [page], 66: []})
