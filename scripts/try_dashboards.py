#!/usr/bin/env python3
"""Runs every query of every panel, annotation and variable of dashboards/*.json in a real
Prometheus that scraped real exporters during a scripted incident (scripts/dashboards/scene.py).
Each query must return series with values and with the labels of its legend. Then checks some
results: the state of a lock namespace before and at the height of the incident, locks that two
exporters see, and failures that two exporters count.

usage: scripts/try_dashboards.py"""

import sys
import time

import dashboards
from dashboards import answers, queries
from dashboards.scene import Scene, Story

SPEED = 30
# Queries that correctly return nothing, and why. A query that returns series must not be in this
# list.
RIGHTLY_EMPTY = {
    ("namespace", "3", "C"): "a day before the scene there was nothing",
}


def main():
    started = time.time()
    with Scene(SPEED, Story(), lambda text: print(f"    {text}", file=sys.stderr)) as scene:
        scene.play()
        span = answers.Span(scene.moments["healthy"], scene.moments["end"], scene.services)
        count, found = 0, []
        for name in dashboards.ALL:
            asked, problems = try_dashboard(scene, name, span)
            count, found = count + asked, found + problems
        found += truths(scene, span)
    for problem in found:
        print(problem, file=sys.stderr)
    if found:
        sys.exit(f"{len(found)} problems with {count} queries")
    print(f"{count} queries of {len(dashboards.ALL)} dashboards are answered, {len(RIGHTLY_EMPTY)} rightly empty, in {time.time() - started:.0f} s")


def try_dashboard(scene, name, span):
    """Returns the number of queries, and the problems with them."""
    count, problems = 0, []
    for query in answers.queries(name):
        count += 1
        reason = RIGHTLY_EMPTY.get((name, query.place, query.ref))
        try:
            series = answers.answer(scene, query, span, scene.moments["peak"])
        except ValueError as error:
            problems.append(f"{query}: {error}\n{query.expr}")
            continue
        if reason and series:
            problems.append(f"{query}: is answered, although it should be empty because {reason}")
        elif not series and not reason:
            problems.append(f"{query}: no series with a value\n{span.fill(query.expr)}")
        for labels, _ in series:
            missing = answers.legend_labels(query) - labels.keys()
            if missing:
                problems.append(f"{query}: the legend {query.legend!r} wants {', '.join(sorted(missing))}, which {labels} has not")
                break
    for variable in answers.load(name)["templating"]["list"]:
        if variable["type"] == "query":
            count += 1
            if not answers.variable_values(scene, variable["definition"], span):
                problems.append(f"{name}, variable {variable['name']}: no values")
    return count, problems


def truths(scene, span):
    """Yields the differences between the displayed numbers and what the scene did."""
    def value(query, at, **labels):
        found = [float(series["value"][1]) for series in scene.ask(span.fill(query), at) if labels.items() <= series["metric"].items()]
        return found[0] if len(found) == 1 else None

    def check(what, real, least, most):
        if real is None or not least <= real <= most:
            yield f"{what}: {real}, not between {least} and {most}"

    moments = scene.moments
    columns = answers.namespace_columns()
    state, held, abandoned = (columns[title] for title in ("State", "Held", "Abandoned"))
    # A machine without free CPU time sometimes loses a lock, so one healthy moment is enough.
    healthy = [value(state, moments["failover"] - seconds, lock_namespace="workflow") for seconds in range(5)]
    yield from check("state of workflow in healthy time", min(healthy, key=lambda found: 9 if found is None else found), 0, 0)
    yield from check("state of workflow at the height of the incident", value(state, moments["peak"], lock_namespace="workflow"), 3, 3)
    yield from check("locks that two exporters see", value(held, moments["peak"], lock_namespace="eval"), 3, 3)
    # increase() extrapolates, so the result may differ a little.
    truth = scene.abandoned
    yield from check(f"abandonments, of which there were {truth} on three nodes", value(abandoned, moments["end"], lock_namespace="scheduler"), 0.8 * truth, 1.2 * truth)
    leader = queries.LEADER_STATE
    yield from check("leader before the incident", value(leader, moments["incident"], lock="cordum:wf:delay:poller"), 0, 0)
    yield from check("absent leader", value(leader, moments["peak"], lock="cordum:wf:delay:poller"), 2, 2)


main()
