"""Scenarios that are drawn here, not played: operations and failures as Poisson numbers every 15 s, which is how they are scraped; and the bursts
of the sweep. Part of alert_bench.py."""

import math
import random

import rulelib

STEP = 15


def burst(kind, length):
    """A scenario of examples/lock_history: everything fails for so many seconds. Handlers are short, so that the failures end with their cause."""
    service = {"kind": "workflow", "ops": 5, "work": [11, 14]} if kind == "timeout" else {"kind": "admission", "ops": 5, "work": [1, 3]}
    fault = {"fault": kind, "from": 35, "minutes": length / 60, "share": 1, "tries": 3}
    return {"id": f"burst-{kind}-{length}", "kind": kind, "seconds": length, "services": [service], "faults": [fault], "noise": 0}


def notation(scenario, minutes, cluster, seed):
    """{series: values} of one run, in promtool's notation."""
    return {key: rulelib.run_lengths(values) for key, values in simulate(scenario, minutes, cluster, seed).items()}


def poisson(rng, mean):
    if mean <= 0:
        return 0
    if mean > 50:
        return max(0, round(rng.gauss(mean, math.sqrt(mean))))
    limit, product, count = math.exp(-mean), rng.random(), 0
    while product > limit:
        product *= rng.random()
        count += 1
    return count


def simulate(scenario, minutes, cluster, seed):
    """{series: values} of one run."""
    rng = random.Random(f"{scenario['id']} {seed}")
    shift = rng.uniform(0, 1)  # minutes: not every burst begins with a scrape
    counts = {k: 0 for k in ("not_owned", "renewal_failures", "abandonments", "releases", "renewals", "acquisitions", "failovers")}
    rows, down_before = [], False
    for k in range(minutes * 60 // STEP + 1):
        begin, end = (k - 1) * STEP / 60 - shift, k * STEP / 60 - shift
        noise, down = scenario.get("noise", 0.0005), False
        n = poisson(rng, scenario["ops"] * STEP)
        share, tries = noise, 1
        for at, length, fail, retries in scenario.get("phases", []):
            overlap = max(0, min(end, at + length) - max(begin, at)) / (end - begin)
            if overlap > 0:
                share, tries = share + fail * overlap, retries
                down = down or bool(scenario.get("redis_down"))
        if "ramp" in scenario:
            at, length, top = scenario["ramp"]
            share += top * min(1, max(0, (end - at) / length))
        failed = sum(rng.random() < share for _ in range(n)) if n < 400 else min(n, poisson(rng, n * min(1, share)))
        bad = poisson(rng, failed * tries) if tries > 1 else failed
        for at, amount in scenario.get("events", []):
            bad += amount if begin < at <= end else 0
        lost = round(bad * scenario.get("not_owned", 0.5))
        counts["not_owned"] += lost
        counts["renewal_failures"] += bad - lost
        counts["abandonments"] += round((bad - lost) * 0.1)
        counts["releases"] += (n - failed) // 2
        counts["renewals"] += (n - failed) - (n - failed) // 2
        counts["acquisitions"] += n // 2
        counts["failovers"] += 1 if down_before and not down else 0
        rows.append(dict(counts, down=down))
        down_before = down
    if "reset" in scenario:
        at = int(scenario["reset"] * 60 / STEP)
        base = dict(rows[at])
        for row in rows[at:]:
            for key in counts:
                row[key] -= base[key]
    series = {}

    def put(metric, values, instance="a:9190", **labels):
        if "gap" in scenario:
            first = int(scenario["gap"][0] * 60 / STEP)
            last = first + int(scenario["gap"][1] * 60 / STEP)
            values = ["stale" if first <= k < last else v for k, v in enumerate(values)]
        series[rulelib.selector(metric, {"cluster": cluster, "instance": instance, "job": "locks", **labels})] = values

    def namespace(name, rows, instance="a:9190", logs=True):
        flat = lambda value: [value] * len(rows)
        column = lambda key: [row[key] for row in rows]
        base = {"lock_namespace": name, "instance": instance}
        put("redis_lock_namespace_info", flat(1), style="item", on_renewal_failure=scenario.get("policy", "continue"), severity="page", **base)
        put("redis_lock_config_strict", flat(0), **base)
        if logs:
            put("redis_lock_not_owned_total", column("not_owned"), operation="release", **base)
            put("redis_lock_renewal_failures_total", column("renewal_failures"), reason="redis_unavailable", **base)
            put("redis_lock_abandonments_total", column("abandonments"), **base)
            put("redis_lock_unlocked_work_total", flat(0), **base)
        if not scenario.get("logs_only"):
            seen = {"redis": "main", **base}
            source = scenario.get("seen_by", "watch")
            put("redis_lock_operations_source", ["stale" if row["down"] else 1 for row in rows], source=source, **seen)
            if scenario.get("redis_down"):
                put("redis_lock_operations_source", [1 if row["down"] else "stale" for row in rows], source="none", **seen)
            put("redis_lock_held", flat(10), **seen)
            put("redis_lock_expirations_total", flat(0), **seen)
            for key in ("releases", "renewals", "acquisitions"):
                put(f"redis_lock_{key}_total", column(key), **seen)

    def exporter(instance="a:9190"):
        flat = lambda value: [value] * len(rows)
        put("up", flat(1), instance)
        put("redis_lock_exporter_build_info", flat(1), instance)
        put("redis_lock_exporter_start_time_seconds", flat(0), instance)
        if not scenario.get("logs_only"):
            put("redis_lock_exporter_redis_up", [0 if row["down"] else 1 for row in rows], instance)
            put("redis_lock_exporter_redis_failovers_total", [row["failovers"] for row in rows], instance)
            put("redis_lock_exporter_scan_last_success_timestamp_seconds", [k * STEP for k in range(len(rows))], instance)

    exporter()
    namespace("jobs", rows)
    if scenario.get("twin"):
        exporter("b:9190")
        namespace("jobs", rows, "b:9190", logs=False)
    for i in range(scenario.get("neighbours", 0)):
        calm = simulate_rows(scenario["ops"], len(rows), random.Random(f"{seed} {i}"))
        namespace(f"calm{i}", calm)
    return series


def simulate_rows(ops, length, rng):
    rows, releases, renewals, lost = [], 0, 0, 0
    for _ in range(length):
        n = poisson(rng, ops * STEP)
        bad = sum(rng.random() < 0.005 for _ in range(n))
        lost, releases, renewals = lost + bad, releases + (n - bad) // 2, renewals + (n - bad) // 2
        rows.append({"not_owned": lost, "renewal_failures": 0, "abandonments": 0, "releases": releases, "renewals": renewals, "acquisitions": releases, "failovers": 0, "down": False})
    return rows
