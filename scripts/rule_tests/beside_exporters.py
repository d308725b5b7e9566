"""Several exporters at the same time: in several clusters and jobs, and at several addresses."""

from .builders import JOBS, OWN, case, reached, usual
from .world import World, clock, counter, gauge


def beside_exporters():
    """Like beside_ratios.py, for exporters: of one job at different addresses, of different jobs at
    one address, and for log sources and Redis."""
    for where, second, third, fourth in (("of one job", {"instance": "b:9190"}, {"instance": "c:9190"}, {"instance": "x:9100"}), ("at one address", {"job": "second"}, {"job": "third"}, {"job": "node"})):
        second, third = {**OWN, **second}, {**OWN, **third}
        w = World(26).exporter().exporter(**second).exporter(**third).namespace()
        for number, labels in enumerate((OWN, second, third)):
            # Connected or not; tracking until 5 or never; passes until 2 or never; with or without
            # a state directory.
            reached(w, gauge(26, (0, int(number != 1))), **labels)
            w.put("redis_lock_exporter_tracking_up", gauge(26, (0, 0) if number == 2 else (0, 1), (5, 0)), **labels)
            w.put("redis_lock_exporter_scan_interval_seconds", gauge(26, (0, 15)), **labels)
            w.put("redis_lock_exporter_scan_last_success_timestamp_seconds", gauge(26, (0, None)) if number == 2 else clock(26, (0, None), (2, 2)), **labels)
            w.put("redis_lock_exporter_state_enabled", gauge(26, (0, int(number == 0))), **labels)
            w.put("redis_lock_exporter_state_durable", gauge(26, (0, 0)), **labels)
        alerts = [f"{name}/warning instance={labels['instance']} job={labels['job']}" for name, labels in (("ScanStale", OWN), ("ScanStale", third), ("TrackingLost", OWN), ("StateNotSaved", OWN))]
        # Unread bytes and errors, with and without bytes that are read, in one source and in each.
        for labels, source, lag, errors, read in (
            (OWN, "lags", 500, 0, 0), (OWN, "fails", 0, 1, 0), (OWN, "late", 500, 0, 3000), (OWN, "idle", 0, 0, 0), (second, "lags", 0, 1, 0), (second, "idle", 500, 0, 3000),
        ):
            of = {"source": source, **labels}
            w.put("redis_lock_exporter_log_open_files", gauge(26, (0, 1)), **of)
            w.put("redis_lock_exporter_log_lag_bytes", gauge(26, (0, lag)), **of)
            w.put("redis_lock_exporter_log_read_errors_total", counter(26, (0, 26, errors)), **of)
            w.put("redis_lock_exporter_log_bytes_total", counter(26, (0, 26, read)), **of)
        alerts += [f"LogTailStalled/warning instance={labels['instance']} job={labels['job']} source={source}" for labels, source in ((OWN, "lags"), (OWN, "fails"), (second, "lags"))]
        # An exporter is down, and so is a target that was never an exporter.
        w.exporter(**{**OWN, "instance": "d:9190"}, redis=False, logs=False)
        w.gone(3, text="d:9190")
        for labels in ({**OWN, "instance": "d:9190"}, {**OWN, "instance": "d:9190", **fourth}):
            w.put("up", gauge(26, (0, 0)) if labels["instance"] != "d:9190" or labels["job"] != "locks" else gauge(26, (0, 1), (3, 0)), **labels)
        alerts.append("ExporterAbsent/warning missing=target instance=d:9190 job=locks")
        # A Redis and a job without any exporter, next to others that still have one.
        w.exporter("e:9190", job="gone").namespace(instance="e:9190", job="gone", redis="gone", logs=False)
        w.gone(3, text="e:9190")
        alerts += ["ExporterAbsent/critical missing=redis redis=gone", "ExporterAbsent/critical missing=logs job=gone"]
        case("beside", f"exporters {where}", w, {2: [], 25: alerts})

        # One Redis is down completely, another one partly, and a third one fails over.
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
    # With several clusters it is still one alert and not one for each cluster.
    w = World(25)
    for cluster in ("east", "west"):
        w.exporter(cluster=cluster).namespace(cluster=cluster)
    w.gone(3)
    for cluster in ("east", "west"):
        w.put("up", gauge(25, (0, 1), (3, 0)), cluster=cluster, **OWN)
    case("beside", "no exporter in any cluster", w, {2: [], 24: ["ExporterAbsent/critical missing=all"]})
    # Prometheus sees one cluster for the first time, with old counts. It already knows the other
    # one.
    w = World(50).exporter(cluster="east").namespace(cluster="east").exporter(cluster="west").namespace(cluster="west")
    for metric, labels in (("abandonments", {}), ("conflicting_writes", {"kind": "duplicate_terminal_state"})):
        w.put(f"redis_lock_{metric}_total", gauge(50, (0, 7)), **labels, **JOBS, cluster="west")
    for key, values in w.series.items():
        if 'cluster="west"' in key:
            w.series[key] = [None if k < 70 else v for k, v in enumerate(values)]
    case("beside", "a cluster with old counts is seen for the first time", w, {34: [], 36: [], 49: []})
