"""Alerts on the exporter: absent, stale scans, lost tracking, stalled or silent logs, state,
configuration."""

from .builders import JOBS, OWN, SEEN, SOURCE, case, reached, usual
from .world import World, clock, counter, gauge


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
    # Not up during all of 5 minutes, and `for` adds 10.
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

    # 60 s, plus three times the interval (15 s or 5 minutes) and three times the duration of 1 s;
    # `for` adds 5 minutes.
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

    # Increases from 10.5 on, `for` 15. The window contains them until 45, and keep_firing_for adds
    # 15.
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
    """A day, evaluated every 5 minutes, and values just above the limits."""
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
