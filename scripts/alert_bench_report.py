"""Writes the results of alert_bench.py as Markdown, and lists the limits that were exceeded. Part
of alert_bench.py."""

import collections
import math

STRATEGIES = {
    "ours": 'component="redis_lock",severity="critical"',
    "ratio5m > 5 % for 5m": 'strategy="ratio5m"',
    "burn rate 14.4 and 6": 'strategy="burn"',
}
# The promised limits: minutes to page (median, 95th percentile), and seconds of the shortest burst
# that may page.
MEDIAN, P95, SHORTEST_PAGE = 10, 25, 150


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


def spread(values):
    return f"{percentile(values, 0.5):.1f}, {percentile(values, 0.95):.1f}, {max(values, default=float('nan')):.1f}" if values else "-"


def write(runs):
    """Returns (Markdown, list of failures)."""
    corpus = [run for run in runs if run.purpose == "corpus"]
    lines, failures = [], []
    for split in ("open", "sealed"):
        part = [run for run in corpus if run.scenario["split"] == split]
        if part:
            lines += table(split.capitalize(), part, failures)
    if len({run.scenario["split"] for run in corpus}) > 1:
        lines += table("All", corpus, None)
    lines += classes(corpus)
    lines += bursts([run for run in runs if run.purpose == "burst"], failures)
    lines += days([run for run in runs if run.purpose == "day"], failures)
    return "\n".join(lines), failures


def table(title, part, failures):
    quiet = [run for run in part if run.scenario["truth"] == "quiet"]
    incidents = [run for run in part if run.scenario["truth"] == "incident"]
    lines = [f"### {title}: {len(quiet)} quiet runs, {len(incidents)} incidents", "",
             "| rule | quiet runs paged | precision | recall | minutes to page: median, p95, max | minutes to resolve: median, p95, max | episodes an incident |",
             "|---|---|---|---|---|---|---|"]
    for name in STRATEGIES:
        false = [run for run in quiet if name in run.first]
        early = [run for run in incidents if name in run.first and run.first[name] < run.onset()]
        found = [run for run in incidents if name in run.first and run not in early]
        stray = [run for run in incidents if name in run.strays and run not in early]
        missed = [run for run in incidents if name not in run.first]
        times = [run.first[name] - run.onset() for run in found]
        ended = [run.last[name] - run.end() for run in found if run.end() is not None and run.last[name] < run.minutes - 1]
        times_to_resolve = [max(0, minutes) for minutes in ended]
        episodes = sum(run.episodes[name] for run in found) / max(1, len(found))
        lines.append(f"| {name} | {len(false)} | {wilson(len(found), len(found) + len(false) + len(early) + len(stray))} | {wilson(len(found), len(incidents))} | "
                     f"{spread(times)} | {spread(times_to_resolve)} | {episodes:.2f} |")
        if name == "ours" and failures is not None:
            describe = lambda run: f"{run.scenario['id']} (seed {run.seed}): {', '.join(run.pages)}"
            failures += [f"{title}: paged: {describe(run)}" for run in false] + [f"{title}: early: {describe(run)}" for run in early]
            failures += [f"{title}: paged for another namespace: {describe(run)}" for run in stray]
            failures += [f"{title}: missed: {describe(run)}" for run in missed]
            if times and (percentile(times, 0.5) >= MEDIAN or percentile(times, 0.95) >= P95):
                failures.append(f"{title}: too slow")
    return [*lines, ""]


def classes(corpus):
    if not corpus:
        return []
    lines = ["### By class", "", "Runs that were paged.", "", "| class | truth | runs | ours | ratio5m for 5m | burn rate |", "|---|---|---|---|---|---|"]
    key = lambda run: (run.scenario["truth"], run.scenario["class"])
    for group in sorted({key(run) for run in corpus}):
        part = [run for run in corpus if key(run) == group]
        cells = [str(sum(name in run.first for run in part)) for name in STRATEGIES]
        lines.append(f"| {group[1]} | {group[0]} | {len(part)} | {' | '.join(cells)} |")
    return lines + [""]


def bursts(runs, failures):
    if not runs:
        return []
    lines = ["### Bursts", "", "Everything fails for so many seconds. Measured is the time from the first failure to the last one, as the programs' lines tell it.", "",
             "| seconds | runs | measured | ours | ratio5m for 5m | burn rate |", "|---|---|---|---|---|---|"]
    for length in sorted({run.scenario["seconds"] for run in runs}):
        part = [run for run in runs if run.scenario["seconds"] == length]
        cells = [str(sum(name in run.first for run in part)) for name in STRATEGIES]
        measured = [run.burst for run in part]
        lines.append(f"| {length} | {len(part)} | {min(measured):.0f} to {max(measured):.0f} | {' | '.join(cells)} |")
    failures += [f"a burst of {run.burst:.0f} s paged: {run.scenario['id']} (seed {run.seed}): {', '.join(run.pages)}" for run in runs if "ours" in run.first and run.burst < SHORTEST_PAGE]
    paged = [run.burst for run in runs if "ours" in run.first]
    lines += ["", f"The shortest burst that paged lasted {min(paged):.0f} s." if paged else "None of them paged.", ""]
    return lines


def days(runs, failures):
    if not runs:
        return []
    lines = ["### Days", "", "Tickets as Alertmanager would let them through: not those that a failover explains.", "",
             "| day | days | pages | tickets a day | which |", "|---|---|---|---|---|"]
    for name in dict.fromkeys(run.scenario["id"] for run in runs):
        part = [run for run in runs if run.scenario["id"] == name]
        counts = collections.Counter()
        for run in part:
            for (alert, namespace), count in run.tickets.items():
                counts[f"{alert.removeprefix('RedisLock')} of {namespace}" if namespace else alert.removeprefix("RedisLock")] += count
        paged = [run for run in part if "ours" in run.first]
        failures += [f"a day was paged: {name} (seed {run.seed}): {', '.join(run.pages)}" for run in paged]
        which = ", ".join(f"{alert} {count / len(part):.1f}" for alert, count in counts.most_common())
        lines.append(f"| {name} | {len(part)} | {len(paged)} | {sum(counts.values()) / len(part):.1f} | {which or 'none'} |")
    return lines + [""]
