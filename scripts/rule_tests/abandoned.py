"""RedisLockAbandoned: the share of holders that give up their lock."""

from .builders import JOBS, SEEN, case, usual
from .world import World, counter, gauge


def abandoned_share():
    """All cases here have 18 bad slices and 3 abandonments, so the share decides. With 20
    acquisitions per sample and 10 locks held, 610 holders had a lock within 15 minutes."""
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
    # Hardly any lock is taken in the complete window, and hundreds are held: 15 of 306.
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
    # If not every lock is visible, abandonments page only if they were not usual before.
    for name, world in (("only logs", lambda minutes: World(minutes).exporter(redis=False).namespace(redis=None)), ("passes only", lambda minutes: usual(minutes, source="scan", traffic=0.25))):
        w = world(120)
        abandon(w, (90, 120, 1))
        case("abandoned", f"{name}: they begin after a quiet past", w, {89: [], 98.5: [event], 99.5: [event, page], 118: [event, page]})
        w = world(50)
        abandon(w, (30, 50, 1))
        quiet(f"{name}: no past, no page", w, 40, 48)
    for bad, fires in ((50, True), (70, False)):
        # This many of the 220 minutes until half an hour ago were bad.
        w = World(260).exporter(redis=False).namespace(redis=None)
        abandon(w, (20, 20 + bad, 1), (240, 260, 1))
        case("abandoned", f"only logs: {bad} bad minutes in three hours before", w, {220: [], 248.5: [event], 252: [event, *([page] if fires else [])], 258: [event, *([page] if fires else [])]})
    # Less than half an hour is not enough past. After that, 35 quiet minutes are more than 7 tenths
    # of the past until minute 80.
    w = World(120).exporter(redis=False).namespace(redis=None)
    abandon(w, (35, 120, 1))
    case("abandoned", "only logs: a past of half an hour, which they become a part of", w, {59: [event], 61.5: [event, page], 85: [event, page], 105: [event]})
    w = World(90).exporter(redis=False).namespace(redis=None)
    abandon(w, (5, 90, 1))
    quiet("only logs: from early on, but for a few minutes", w, 59, 62, 70, 89)
    # The past is one day, neither half a day nor two. These cases are in a separate file with the
    # other long ones, because they take a day of evaluations.
    w = World(842).exporter(redis=False).namespace(redis=None)
    abandon(w, (0, 270, 1), (825, 842, 1))
    case("past", "only logs: abandonments in a third of the last 13 hours", w, {838: [event], 841: [event]})
    w = World(1572).exporter(redis=False).namespace(redis=None)
    abandon(w, (0, 490, 1), (1556, 1572, 1))
    case("past", "only logs: abandonments in less than a third of a day, more of 25 hours", w, {1564: [event], 1569: [event, page]})
