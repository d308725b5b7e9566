"""Alerts on the current state of locks: locks without a TTL, overdue renewals, leaders, long
holds."""

from .builders import OWN, SEEN, case, reached, usual
from .world import World, clock, gauge


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
    # Slices from 10.0 on: the sixteenth at 17.5, the twenty-fourth at 21.5. After the end, the last
    # 10 minutes contain sixteen until 32.
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
    # All samples of 10 minutes from 30 on (one less if ranges are left-open), and `for` adds 5.
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
    # Taken at 10, held too long from 20.5 on, and `for` adds 5.
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
