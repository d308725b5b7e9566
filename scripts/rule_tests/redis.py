"""Alerts on Redis itself: not reachable, failed over, fails over repeatedly."""

from .builders import OWN, SEEN, case, lost, reached, usual
from .world import World, counter, gauge


def redis():
    down = "RedisDown/critical scope=all redis=main"
    w = usual(40)
    reached(w, gauge(40, (0, 1), (10, 0), (20, 1)), **OWN)
    # Not up during all of 3 minutes from 13 on (12.5 if ranges are left-open), and `for` adds 2.
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

    # A Redis Cluster of three primaries: as long as one is connected, only a part is unavailable.
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

    # After the last primary goes down, the partial outage still counts for 3 minutes, and
    # keep_firing_for adds 5.
    case("redis", "the last of three primaries goes down later: when", primaries((0, 3), (10, 1), (20, 0)), {21: [part], 24: [part], 26.5: [down, part]})
    w = World(25).exporter().exporter("b:9190", logs=False).namespace().namespace(instance="b:9190", logs=False)
    for instance, up in (("a:9190", 0), ("b:9190", 2)):
        own = {**OWN, "instance": instance}
        w.put("redis_lock_exporter_redis_nodes", gauge(25, (0, 3)), **own)
        w.put("redis_lock_exporter_redis_nodes_up", gauge(25, (0, 3), (10, up)), **own)
        w.put("redis_lock_exporter_redis_up", gauge(25, (0, 1), (10, 0)), **own)
    case("redis", "one of two exporters reaches two of three primaries, the other one none", w, {14: [], 15: [part], 24: [part]})

    # Several exporters: if two exporters count the same two failovers, that is not flapping.
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
