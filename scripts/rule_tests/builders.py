"""What most cases are built from: the list of cases, the labels of the usual exporter and lock
namespace, and common failures.

By default, a lock namespace has 20 acquisitions, 20 releases and 20 renewals every 30 s. That makes
40 operations that can find a lock lost. Times are minutes."""

from .world import Case, World, counter

CASES = []


def case(file, name, world, firing, **more):
    CASES.append(Case(file, name, world, firing, **more))


def usual(minutes, **more):
    return World(minutes).exporter().namespace(**more)


JOBS = {"lock_namespace": "jobs", "instance": "a:9190", "job": "locks"}
SEEN = {"redis": "main", **JOBS}
OWN = {"instance": "a:9190", "job": "locks"}
SOURCE = {"source": "/var/log/app.log", **OWN}
NOT_OWNED = "NotOwnedRatioHigh/critical lock_namespace=jobs"


def lost(world, *segments, **labels):
    """Lost locks in these segments. A lost lock is not released."""
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
    """Whether all of Redis is connected, for a Redis with one primary."""
    world.put("redis_lock_exporter_redis_up", values, **labels)
    world.put("redis_lock_exporter_redis_nodes_up", values, **labels)
