"""Finds every query of the committed dashboards and runs it in Prometheus as Grafana would: with
variables replaced, at the time and in the steps of the scene."""

import json
import math
import pathlib
import re
from dataclasses import dataclass

from dashboards.fleet import Services

DIRECTORY = pathlib.Path(__file__).resolve().parent.parent.parent / "dashboards"
# What Grafana inserts for All.
ALL = {"cluster": ".*", "job": ".+", "instance": ".+", "lock_namespace": ".+"}


@dataclass(frozen=True)
class Query:
    dashboard: str
    place: str  # id of a panel, or name of an annotation
    ref: str
    expr: str
    legend: str
    instant: bool = False

    def __str__(self):
        return f"{self.dashboard}, {'panel' if self.place.isdigit() else 'annotation'} {self.place}, {self.ref}"


@dataclass
class Span:
    """The displayed time range, as in the time picker of a dashboard."""
    start: float
    end: float
    services: Services

    def step(self):
        return 30 / self.services.speed

    def fill(self, expr, variables=None):
        """Replaces variables as Grafana does. First divides the durations in the expression by the
        speed."""
        expr = self.services.scale(expr)
        # Four scrapes, and at least two seconds, because the exporter publishes once a second.
        windows = {"__rate_interval": max(60 / self.services.speed, 2), "__range": self.end - self.start}
        for name, length in windows.items():
            expr = expr.replace(f"${name}", f"{round(length * 1000)}ms")
        for name, value in (ALL | (variables or {})).items():
            expr = expr.replace(f"${name}", value)
        if "$" in expr.replace('"$1"', ""):
            raise ValueError(f"a variable that is not filled in: {expr}")
        return expr


def load(name):
    return json.loads((DIRECTORY / f"{name}.json").read_text())


def namespace_columns():
    """Returns the queries of the overview's table of lock namespaces, by the titles of their
    columns."""
    panel = next(panel for panel in load("overview")["panels"] if panel["id"] == 7)
    targets = {f"Value #{target['refId']}": target["expr"] for target in panel["targets"]}
    titles = {override["matcher"]["options"]: override["properties"][0]["value"] for override in panel["fieldConfig"]["overrides"]}
    return {title: targets[column] for column, title in titles.items() if column in targets}


def queries(name):
    """Yields the queries of panels and annotations. Those of variables are not PromQL."""
    dashboard = load(name)
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield Query(name, str(panel["id"]), target["refId"], target["expr"], target["legendFormat"], target["instant"])
    for annotation in dashboard["annotations"]["list"]:
        if "expr" in annotation:
            yield Query(name, annotation["name"], "title", annotation["expr"], annotation["titleFormat"])
            yield Query(name, annotation["name"], "text", annotation["expr"], annotation["textFormat"].replace("{{lock_namespace}}", ""))


def answer(scene, query, span, at, variables=None):
    """Returns series as [(labels, [(time, value), ...]), ...], without NaN and without series that
    contain only NaN."""
    expr = span.fill(query.expr, variables)
    if query.instant:
        found = [(series["metric"], [series["value"]]) for series in scene.ask(expr, at)]
    else:
        found = scene.api("query_range", query=expr, start=span.start, end=span.end, step=span.step())["result"]
        found = [(series["metric"], series["values"]) for series in found]
    found = [(labels, [(float(moment), float(value)) for moment, value in values if not math.isnan(float(value))]) for labels, values in found]
    return [(labels, values) for labels, values in found if values]


def legend_labels(query):
    return set(re.findall(r"{{\s*(\w+)\s*}}", query.legend))


def variable_values(scene, query, span):
    """Returns the values of label_values(SELECTOR, LABEL)."""
    selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", query).groups()
    return scene.api(f"label/{label}/values", **{"match[]": span.fill(selector)})


def everything(scene, span, at, variables):
    """Returns the results of all queries for drawing, in a form that JSON can store: {dashboard:
    {panel or annotation: {ref: series}}}."""
    found = {}
    for path in DIRECTORY.glob("*.json"):
        places = found.setdefault(path.stem, {})
        for query in queries(path.stem):
            places.setdefault(query.place, {})[query.ref] = answer(scene, query, span, at, variables.get(path.stem))
    return found
