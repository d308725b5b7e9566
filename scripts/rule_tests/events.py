"""Alerts on single events: abandoned locks, fence regressions, work that was finished twice."""

from .builders import JOBS, SEEN, case, usual
from .world import World, counter, gauge


def events():
    event, page, warn = "AbandonedEvent/warning lock_namespace=jobs", "Abandoned/critical lock_namespace=jobs", "Abandoned/warning lock_namespace=jobs"

    # So few locks that each abandonment is a large share. Here the counts decide.
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
    # Each single abandonment makes 3 or 4 bad slices.
    w = usual(60, **few)
    abandon(w, (10, 10.5, 1), (14, 14.5, 1))
    case("events", "two abandonments are no page", w, {15: [event], 18: [event], 24: [event]})
    w = usual(60, **few)
    abandon(w, *[(10 + 0.5 * i, 10.5 + 0.5 * i, 0.11) for i in range(24)])
    case("events", "18 slices with fewer than 3 are no page", w, {20: [event], 23: [event]})
    w = World(40).exporter().exporter("b:9190").namespace(**few).namespace(instance="b:9190", **few)
    abandon(w, (10, 10.5, 1), instance="b:9190")
    case("events", "an abandonment that another exporter saw", w, {10.5: [event]})
    # A series that begins with its first event.
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

    # An exporter that appeared 20 minutes ago is no longer new.
    w = usual(60, **few)
    w.drop("abandonments")
    w.put("redis_lock_abandonments_total", gauge(60, (0, None), (20, 1)), **JOBS)
    case("events", "the first abandonment, 20 minutes after the exporter came", w, {19.5: [], 22: [event], 34: [event], 36: []})
    # An event whose extrapolated increase is less than one still happened.
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

    # Work that was finished twice.
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
    # Slices from 10.5 on, the fifteenth at 17.5. The window of 30 minutes contains them until about
    # 43, then keep_firing_for applies.
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

    # Fence regressions.
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
