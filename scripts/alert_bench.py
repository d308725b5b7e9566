#!/usr/bin/env python3
"""Measures the quality of the pages: plays scenarios, and evaluates the exporter's own series with
the real rule engine, for our rules and for other rules.

usage: alert_bench.py [--seeds N] [--only REGEX] [--split open|sealed|all] [--promtool PATH]
                      [--markdown FILE] [--results FILE] [--smoke]

Plays each scenario of alerts/scenarios/manifest.json with several seeds. examples/lock_history
simulates programs that use locks in virtual time and returns what the exporter's code exports at
each scrape. Each run is a separate cluster in promtool, with the bundled rules. For each cluster the
benchmark measures when the first page came, how often and for how long it paged, and which tickets
it had. A page is false if it comes before the start of an incident, in a quiet scenario, or from a
lock namespace that the incident does not concern.

The benchmark also plays bursts of growing length, and complete days. --smoke plays a few short
scenarios with a debug build. With --results, each evaluated run is appended to a file, and runs in
the file are not played again: an interrupted benchmark continues. The file does not depend on the
rules: start a new one when they change."""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time

import alert_bench_report as report
import rulelib

STEP = 15
HERE = rulelib.ALERTS / "scenarios"
# The limit for clusters times minutes in one promtool run. Larger batches are slower than several
# small ones, and can exceed the number of samples that promtool loads.
BATCH = 10 * 130
FIRING = 'alertstate="firing"'
# A failover mutes the tickets that it explains, as in alerts/alertmanager.yml.
TICKETS = ('ALERTS{alertstate="firing",component="redis_lock",severity="warning",failover_sensitive!="true"} '
           'or (ALERTS{alertstate="firing",component="redis_lock",severity="warning",failover_sensitive="true"} '
           'unless on (cluster) ALERTS{alertstate="firing",alertname="RedisLockFailoverObserved"})')


class Run:
    """One scenario with one seed, as a separate cluster."""

    def __init__(self, name, scenario, seed, minutes, purpose):
        self.name, self.scenario, self.seed, self.minutes, self.purpose = name, scenario, seed, minutes, purpose
        self.shift, self.burst, self.notation = 0.0, 0.0, {}
        self.first, self.last, self.episodes, self.pages, self.tickets = {}, {}, {}, [], {}
        self.strays = {}  # first page of a lock namespace that the incident is not about

    def key(self):
        return f"{self.scenario['id']} {self.seed}"

    def result(self):
        tickets = [[*labels, count] for labels, count in self.tickets.items()]
        return {"key": self.key(), "shift": self.shift, "burst": self.burst, "first": self.first, "strays": self.strays, "last": self.last, "episodes": self.episodes, "pages": self.pages, "tickets": tickets}

    def recall(self, result):
        self.shift, self.burst, self.pages = result["shift"], result["burst"], result["pages"]
        self.first, self.strays, self.last, self.episodes = result["first"], result["strays"], result["last"], result["episodes"]
        self.tickets = {(alert, namespace): count for alert, namespace, count in result["tickets"]}

    def order(self, metrics):
        return {"name": self.name, "seed": self.seed, "minutes": self.minutes, "metrics": metrics, "scenario": self.scenario}

    def onset(self):
        return self.scenario["onset"] + self.shift / 60

    def is_about(self, namespace):
        """Whether a page of this lock namespace belongs to the incident. "" is no lock namespace:
        the page is about Redis or an exporter. In a quiet run every page counts."""
        if self.scenario.get("truth") != "incident":
            return True
        return namespace in self.scenario["namespaces"] if namespace else self.scenario.get("redis", False)

    def end(self):
        return self.scenario["end"] + self.shift / 60 if "end" in self.scenario else None


def say(text):
    print(text, file=sys.stderr, flush=True)


def wanted_metrics():
    """Returns the names of the exporter's metrics that the rules read."""
    text = rulelib.MAIN_RULES.read_text() + json.dumps(competitor_rules())
    return sorted(set(re.findall(r"\bredis_lock_[a-z0-9_]+", text)))


def build(smoke):
    profile = [] if smoke else ["--release"]
    subprocess.run(["cargo", "build", "--locked", "--quiet", "--example", "lock_history", *profile], cwd=rulelib.ROOT, check=True)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", rulelib.ROOT / "target"))
    return target / ("debug" if smoke else "release") / "examples" / "lock_history"


def play(program, runs):
    """Yields each run when its series are complete."""
    metrics, by_name = wanted_metrics(), {run.name: run for run in runs}
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        def order():
            # The longest first, so that no core is idle at the end.
            for run in sorted(runs, key=lambda run: -run.minutes):
                process.stdin.write(json.dumps(run.order(metrics)) + "\n")
            process.stdin.close()
        threading.Thread(target=order, daemon=True).start()
        for line in process.stdout:
            answer = json.loads(line)
            run = by_name.pop(answer["name"])
            run.shift, run.burst = answer["shift"], answer["burst"]
            for key, values in answer["series"].items():
                run.notation[key.replace("{", '{cluster="%s",' % run.name, 1)] = rulelib.run_lengths(gaps(values))
            yield run
    if process.returncode or by_name:
        raise RuntimeError(f"lock_history ended with {process.returncode} and left {len(by_name)} runs")


def gaps(values):
    """Marks a missing sample as stale if there were samples before it. Before the first sample
    there was no series."""
    seen, result = False, []
    for value in values:
        seen = seen or value is not None
        result.append("stale" if value is None and seen else value)
    # A series that is missing at the end was no longer scraped.
    return result + ["stale"]


def competitor_rules():
    """Returns rules with the ratios that most people would write."""
    rules = []
    keyspace = lambda metric, window: f"sum by (cluster, lock_namespace) (max by (cluster, redis, lock_namespace) (increase({metric}[{window}])))"
    for window in ("5m", "30m", "1h", "6h"):
        for name, bad, good in (("not_owned", "redis_lock_not_owned_total", ("redis_lock_releases_total", "redis_lock_renewals_total")),
                                ("renewal", "redis_lock_renewal_failures_total", ("redis_lock_renewals_total",))):
            failed = f"sum by (cluster, lock_namespace) (increase({bad}[{window}]))"
            rules.append({"record": f"ratio:{name}{window}", "expr": f"{failed} / ({failed} + {' + '.join(keyspace(m, window) for m in good)} > 0)"})
    ours = json.loads((HERE / "competitors.json").read_text())["groups"][0]
    return {"groups": [dict(ours, rules=rules + ours["rules"])]}


def questions(minutes):
    """Returns {(strategy, what): query}."""
    asked = {}
    for name, matcher in report.STRATEGIES.items():
        alerts = f"ALERTS{{{FIRING},{matcher}}}"
        asked[name, "first"] = f"min by (cluster, lock_namespace) (min_over_time(timestamp({alerts})[{minutes}m:30s]))"
        asked[name, "last"] = f"max by (cluster, lock_namespace) (max_over_time(timestamp({alerts})[{minutes}m:30s]))"
        asked[name, "episodes"] = episodes(alerts, "cluster", minutes)
    ours = f"ALERTS{{{FIRING},{report.STRATEGIES['ours']}}}"
    asked["ours", "pages"] = f"max by (cluster, lock_namespace, alertname) (max_over_time({ours}[{minutes}m]))"
    asked["tickets", "episodes"] = episodes(TICKETS, "cluster, alertname, lock_namespace", minutes)
    return asked


def episodes(alerts, by, minutes):
    """Returns a query for how many times something began to fire. A gap of less than 5 minutes is
    not an end: Alertmanager would not send a second notification."""
    firing = f"max by ({by}) ({alerts})"
    return f"sum by ({by}) (sum_over_time(({firing} unless max_over_time({firing}[5m:30s] offset 30s))[{minutes}m:30s]))"


def judge(options, batch):
    """Runs promtool for all runs of a batch, which have the same length, and stores the results in
    the runs."""
    minutes = int(batch[0].minutes)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "competitors.yml").write_text(json.dumps(competitor_rules()))
        groups = [g["name"] for g in rulelib.load_groups(rulelib.MAIN_RULES)] + ["competitors"]
        lines = [f"rule_files: [{rulelib.MAIN_RULES}, competitors.yml]", "evaluation_interval: 30s", f"group_eval_order: [{', '.join(groups)}]", "tests:", f"  - interval: {STEP}s", "    input_series:"]
        for run in batch:
            lines += [f"      - {{series: '{key}', values: '{values}'}}" for key, values in run.notation.items()]
            run.notation = {}
        lines.append("    promql_expr_test:")
        asked = questions(minutes)
        for query in asked.values():
            lines.append(f"      - expr: '{query}'\n        eval_time: {minutes}m\n        exp_samples: [{{labels: never, value: -1}}]")
        (folder / "test.yml").write_text("\n".join(lines) + "\n")
        _, output = rulelib.run_promtool(options.promtool, "test.yml", cwd=folder)
    got = re.findall(r"got: ?(.*)", output)
    if len(got) != len(asked):
        raise RuntimeError(output[-2000:])
    by_name = {run.name: run for run in batch}
    for (name, what), line in zip(asked, got):
        for labels, value in re.findall(r"\{([^{}]*)\} ([-+0-9.E]+)", line):
            labels = dict(re.findall(r'(\w+)=\\?"(.*?)\\?"', labels))
            run, value, namespace = by_name[labels["cluster"]], float(value), labels.get("lock_namespace", "")
            if name == "tickets":
                run.tickets[labels["alertname"], namespace] = value
            elif what == "pages":
                run.pages.append(f"{labels['alertname']} of {namespace}" if namespace else labels["alertname"])
            elif what == "episodes":
                run.episodes[name] = value
            elif what == "first":
                pages = run.first if run.is_about(namespace) else run.strays
                pages[name] = min(value / 60, pages.get(name, value / 60))
            elif run.is_about(namespace):
                run.last[name] = max(value / 60, run.last.get(name, 0))
    if options.results:
        with open(options.results, "a") as file:
            file.write("".join(json.dumps(run.result()) + "\n" for run in batch))


def burst(kind, length):
    """A scenario in which everything fails for this many seconds. Handlers are short, so that the
    failures end when their cause ends."""
    service = {"kind": "workflow", "ops": 5, "work": [11, 14]} if kind == "late_renewals" else {"kind": "admission", "ops": 5, "work": [1, 3]}
    fault = {"fault": kind, "from": 35, "minutes": length / 60, "share": 1, "tries": 3}
    return {"id": f"burst-{kind}-{length}", "seconds": length, "services": [service], "faults": [fault], "noise": 0}


def all_runs(manifest, options):
    """Returns all runs of the benchmark."""
    runs = []
    def add(scenario, seed, minutes, purpose):
        runs.append(Run(f"r{len(runs):04}", scenario, seed, minutes, purpose))
    for seed in range(options.seeds):
        for scenario in manifest["scenarios"]:
            add(scenario, seed, manifest["minutes"], "corpus")
        for day in manifest["days"]:
            add(day, seed, 24 * 60, "day")
        for length in range(30, 241, 15):
            for kind in ("late_renewals", "stall"):
                add(burst(kind, length), seed, 60, "burst")
    return runs


def smoke_runs(manifest):
    """Returns a few scenarios, 55 minutes earlier and with less load."""
    runs = []
    for scenario in manifest["scenarios"]:
        if scenario["id"] in ("failover-60s-x5", "deploy-crash", "reset", "delete-0.5", "one-of-three"):
            scenario = json.loads(json.dumps(scenario))
            for item in scenario.get("faults", []):
                item["from"] -= 55
            for item in scenario.get("exporter", {}).get("restarts", []):
                item[0] -= 55
            for service in scenario["services"]:
                service["ops"] = min(1.0, service["ops"])
            scenario.update({key: scenario[key] - 55 for key in ("onset", "end") if key in scenario})
            runs.append(Run(f"r{len(runs):04}", scenario, 0, 35, "corpus"))
    return runs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", default="", help="regular expression over ids of scenarios, days and bursts")
    parser.add_argument("--split", choices=("open", "sealed", "all"), default="all")
    parser.add_argument("--promtool", default="promtool")
    parser.add_argument("--markdown")
    parser.add_argument("--results")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    manifest = json.loads((HERE / "manifest.json").read_text())
    runs = smoke_runs(manifest) if options.smoke else all_runs(manifest, options)
    runs = [run for run in runs if re.search(options.only, run.scenario["id"]) and (options.split == "all" or run.scenario.get("split", "open") == options.split)]
    known = {}
    if options.results and pathlib.Path(options.results).exists():
        results = map(json.loads, pathlib.Path(options.results).read_text().splitlines())
        known = {result["key"]: result for result in results}
    for run in runs:
        if run.key() in known:
            run.recall(known[run.key()])
    new = [run for run in runs if run.key() not in known]
    program, begun = build(options.smoke) if new else None, time.monotonic()
    n_cores = os.cpu_count() or 1
    waiting, futures = collections.defaultdict(list), []
    with concurrent.futures.ThreadPoolExecutor(n_cores) as pool:
        def enqueue(run):
            batch = waiting[run.minutes]
            batch.append(run)
            if len(batch) * run.minutes >= BATCH:
                futures.append(pool.submit(judge, options, waiting.pop(run.minutes)))
        for done, run in enumerate(play(program, new) if new else (), 1):
            enqueue(run)
            if done % 20 == 0:
                say(f"{time.monotonic() - begun:4.0f} s: played {done} of {len(new)}, judged {sum(f.done() for f in futures)} of {len(futures)} batches so far")
        futures += [pool.submit(judge, options, batch) for batch in waiting.values() if batch]
        for count, future in enumerate(concurrent.futures.as_completed(futures), 1):
            future.result()
            if count % 4 == 0:
                say(f"{time.monotonic() - begun:4.0f} s: judged {count} of {len(futures)} batches")
    text, failures = report.write(runs)
    print(text)
    say(f"{len(new)} runs in {time.monotonic() - begun:.0f} s")
    if options.markdown:
        pathlib.Path(options.markdown).write_text(text + "\n")
    for failure in failures:
        print("FAILED:", failure)
    raise SystemExit(1 if failures else 0)


if __name__ == "__main__":
    main()
