#!/usr/bin/env python3
"""Runs every query of every panel, annotation and variable of dashboards/*.json against a real Prometheus that scraped real exporters during
a scripted incident (scripts/dashboards/scene.py): it must be answered, with series that have values and the labels of its legend. Then looks
whether the answers are right: the state of a namespace before and at the height of the incident, locks that two exporters see, failures that
two exporters count.

usage: scripts/try_dashboards.py"""

import sys
import time

import dashboards
from dashboards import answers, queries
from dashboards.scene import Scene, Story

SPEED = 30
# Rightly without an answer, and why. One that is answered all the same does not belong here.
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
    """How many queries there were, and what is wrong with them."""
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
    """What the numbers on the screen must be, given what the scene did."""
    def value(query, at, **labels):
        found = [float(series["value"][1]) for series in scene.ask(span.fill(query), at) if labels.items() <= series["metric"].items()]
        return found[0] if len(found) == 1 else None

    def check(what, real, least, most):
        if real is None or not least <= real <= most:
            yield f"{what}: {real}, not between {least} and {most}"

    moments = scene.moments
    columns = answers.namespace_columns()
    state, held, abandoned = (columns[title] for title in ("State", "Held", "Abandoned"))
    # A machine that is short of time loses a lock now and then, but not always.
    healthy = [value(state, moments["failover"] - seconds, lock_namespace="workflow") for seconds in range(5)]
    yield from check("state of workflow in healthy time", min(healthy, key=lambda found: 9 if found is None else found), 0, 0)
    yield from check("state of workflow at the height of the incident", value(state, moments["peak"], lock_namespace="workflow"), 3, 3)
    yield from check("locks that two exporters see", value(held, moments["peak"], lock_namespace="eval"), 3, 3)
    # increase() extrapolates.
    truth = scene.abandoned
    yield from check(f"abandonments, of which there were {truth} on three nodes", value(abandoned, moments["end"], lock_namespace="scheduler"), 0.8 * truth, 1.2 * truth)
    leader = queries.LEADER_STATE
    yield from check("leader before the incident", value(leader, moments["incident"], lock="cordum:wf:delay:poller"), 0, 0)
    yield from check("absent leader", value(leader, moments["peak"], lock="cordum:wf:delay:poller"), 2, 2)


main()
