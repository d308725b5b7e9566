#!/usr/bin/env python3
"""How good are the pages? Simulated scenarios, the real rule engine, our rules beside others.

usage: alert_bench.py [--seeds N] [--promtool PATH] [--markdown FILE]

Each scenario of alerts/scenarios/manifest.json is drawn with several seeds: operations and failures as Poisson numbers every 15 s, which
is how they are scraped. All runs go to promtool as clusters of their own, with the rules as shipped. Asked is when each cluster was first
paged, how often, and how many tickets it had. A page before the onset of an incident, or in a quiet scenario, is false."""

import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import random
import re
import tempfile

import rulelib

STEP = 15
HERE = rulelib.ALERTS / "scenarios"
STRATEGIES = {
    "ours": 'component="redis_lock",severity="critical"',
    "ratio5m > 5 % for 5m": 'strategy="ratio5m"',
    "burn rate 14.4 and 6": 'strategy="burn"',
}


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
            source = scenario.get("source", "watch")
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


def competitor_rules():
    """The ratios as most people would write them."""
    rules = []
    keyspace = lambda metric, window: f"sum by (cluster, lock_namespace) (max by (cluster, redis, lock_namespace) (increase({metric}[{window}])))"
    for window in ("5m", "30m", "1h", "6h"):
        for name, bad, good in (("not_owned", "redis_lock_not_owned_total", ("redis_lock_releases_total", "redis_lock_renewals_total")),
                                ("renewal", "redis_lock_renewal_failures_total", ("redis_lock_renewals_total",))):
            failed = f"sum by (cluster, lock_namespace) (increase({bad}[{window}]))"
            rules.append({"record": f"ratio:{name}{window}", "expr": f"{failed} / ({failed} + {' + '.join(keyspace(m, window) for m in good)} > 0)"})
    ours = json.loads((HERE / "competitors.json").read_text())["groups"][0]
    return {"groups": [dict(ours, rules=rules + ours["rules"])]}


def run_batch(promtool, batch, minutes):
    """{(cluster, strategy): (first page in minutes, episodes)}, and {cluster: tickets}."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "competitors.yml").write_text(json.dumps(competitor_rules()))
        groups = [g["name"] for g in rulelib.load_groups(rulelib.MAIN_RULES)] + ["competitors"]
        lines = [f"rule_files: [{rulelib.MAIN_RULES}, competitors.yml]", "evaluation_interval: 30s", f"group_eval_order: [{', '.join(groups)}]", "tests:", f"  - interval: {STEP}s", "    input_series:"]
        for scenario, seed, cluster in batch:
            for key, values in simulate(scenario, minutes, cluster, seed).items():
                lines.append(f"      - {{series: '{key}', values: '{rulelib.run_lengths(values)}'}}")
        lines.append("    promql_expr_test:")
        queries = {}
        firing = 'alertstate="firing",'
        for name, matcher in {**STRATEGIES, "tickets": 'component="redis_lock",severity="warning"'}.items():
            by = "cluster, alertname" if name == "tickets" else "cluster"
            alerts = f"max by ({by}) (ALERTS{{{firing}{matcher}}})"
            before = f"max by ({by}) (ALERTS{{{firing}{matcher}}} offset 30s)"
            queries[name, "first"] = f"min by (cluster) (min_over_time(timestamp(ALERTS{{{firing}{matcher}}})[{minutes}m:30s]))"
            queries[name, "episodes"] = f"sum by (cluster) (sum_over_time(({alerts} unless {before})[{minutes}m:30s]))"
        for query in queries.values():
            lines.append(f"      - expr: '{query}'\n        eval_time: {minutes}m\n        exp_samples: [{{labels: never, value: -1}}]")
        (folder / "test.yml").write_text("\n".join(lines) + "\n")
        _, output = rulelib.run_promtool(promtool, "test.yml", cwd=folder)
    answers = {}
    got = [line for line in re.findall(r"got: ?(.*)", output)]
    if len(got) != len(queries):
        raise RuntimeError(output[-2000:])
    for (name, what), line in zip(queries, got):
        for cluster, value in re.findall(r'\{cluster=\\?"(\w+)\\?"\} ([0-9.E+]+)', line):
            answers[cluster, name, what] = float(value)
    return answers


def wilson(hits, total):
    if not total:
        return "-"
    z, p = 1.96, hits / total
    middle, spread = p + z * z / (2 * total), z * math.sqrt(p * (1 - p) / total + z * z / (4 * total * total))
    low, high = (middle - spread) / (1 + z * z / total), (middle + spread) / (1 + z * z / total)
    return f"{p:.3f} [{max(0, low):.3f}, {min(1, high):.3f}]"


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, math.ceil(share * len(values)) - 1)] if values else float("nan")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--promtool", default="promtool")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--markdown")
    options = parser.parse_args()
    manifest = json.loads((HERE / "manifest.json").read_text())
    runs = [(s, seed, f"r{i:03}x{seed}") for seed in range(options.seeds) for i, s in enumerate(manifest["scenarios"])]
    batches = [runs[i:i + options.batch] for i in range(0, len(runs), options.batch)]
    answers = {}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for answer in pool.map(lambda b: run_batch(options.promtool, b, manifest["minutes"]), batches):
            answers.update(answer)
    lines, failures = [], []
    for split in ("open", "opened", "sealed", "all"):
        part = [r for r in runs if split in (r[0]["split"], "all")]
        quiet, incidents = [r for r in part if r[0]["truth"] == "quiet"], [r for r in part if r[0]["truth"] == "incident"]
        lines += [f"### {split.capitalize()}: {len(quiet)} quiet runs, {len(incidents)} incidents", "",
                  "| rule | quiet runs paged | precision | recall | minutes to page: median, p95, max | episodes an incident |", "|---|---|---|---|---|---|"]
        for name in STRATEGIES:
            false = [r for r in quiet if (r[2], name, "first") in answers]
            times, missed, episodes, early = [], [], 0, []
            for scenario, seed, cluster in incidents:
                first = answers.get((cluster, name, "first"))
                if first is None:
                    missed.append((scenario["id"], seed))
                elif first / 60 < scenario["onset"]:
                    early.append((scenario["id"], seed))
                else:
                    times.append(first / 60 - scenario["onset"])
                    episodes += answers[cluster, name, "episodes"]
            wrong = len(false) + len(early)
            lines.append(f"| {name} | {len(false)} | {wilson(len(times), len(times) + wrong)} | {wilson(len(times), len(incidents))} | "
                         f"{percentile(times, 0.5):.1f}, {percentile(times, 0.95):.1f}, {max(times, default=float('nan')):.1f} | {episodes / max(1, len(times)):.2f} |")
            if name == "ours" and split == "all":
                failures = [f"paged: {r[0]['id']} (seed {r[1]})" for r in false] + [f"early: {e}" for e in early] + [f"missed: {m}" for m in missed]
                if percentile(times, 0.5) >= 10 or percentile(times, 0.95) >= 25:
                    failures.append("too slow")
        tickets = sum(answers.get((r[2], "tickets", "episodes"), 0) for r in quiet)
        hours = len(quiet) * manifest["minutes"] / 60
        lines += ["", f"Tickets in quiet runs: {tickets:.0f} in {hours:.0f} hours, each with its disturbance.", ""]
    lines += ["### By class", "", "| class | truth | runs | ours | ratio5m for 5m | burn rate |", "|---|---|---|---|---|---|"]
    for key in sorted({(s["truth"], s["class"]) for s in manifest["scenarios"]}):
        part = [r for r in runs if (r[0]["truth"], r[0]["class"]) == key]
        cells = [str(sum((r[2], name, "first") in answers for r in part)) for name in STRATEGIES]
        lines.append(f"| {key[1]} | {key[0]} | {len(part)} | {' | '.join(cells)} |")
    report = "\n".join(lines)
    print(report)
    if options.markdown:
        pathlib.Path(options.markdown).write_text(report + "\n")
    for failure in failures:
        print("FAILED:", failure)
    raise SystemExit(1 if failures else 0)


if __name__ == "__main__":
    main()
