#!/usr/bin/env python3
"""Draws pictures of the dashboards for the documentation: plays the incident, runs every query of
every panel in Prometheus, and draws the results as docs/images/dashboard-*.svg. The pictures say
that they are drawn from the queries: no Grafana is involved.

usage: scripts/draw_dashboards.py
       scripts/draw_dashboards.py --again         draws the last results without playing"""

import json
import pathlib
import sys

import dashboards
from dashboards import answers
from dashboards.drawing import Picture
from dashboards.scene import Scene, Story

ROOT = pathlib.Path(__file__).resolve().parent.parent
KEPT = ROOT / "target" / "dashboard-answers.json"
# Slow enough for the bucket bounds of the exporter's histograms, which suit TTLs of at least 10 s.
# Takes 20 minutes.
SPEED = 3
STORY = Story(healthy=12, calm=14, incident=14, recovery=16)
# The selected values of the dashboard variables.
CHOSEN = {"namespace": {"lock_namespace": "workflow"}}


def play():
    with Scene(SPEED, STORY, lambda text: print(text, file=sys.stderr)) as scene:
        scene.play()
        span = answers.Span(scene.moments["healthy"], scene.moments["end"], scene.services)
        found = answers.everything(scene, span, scene.moments["peak"], CHOSEN)
    KEPT.write_text(json.dumps({"start": span.start, "end": span.end, "at": scene.moments["peak"], "speed": SPEED, "answers": found}))


def main():
    if "--again" not in sys.argv:
        play()
    kept = json.loads(KEPT.read_text())
    for name in dashboards.ALL:
        path = ROOT / "docs" / "images" / f"dashboard-{name}.svg"
        path.parent.mkdir(exist_ok=True)
        path.write_text(Picture(answers.load(name), kept["answers"][name], kept, CHOSEN.get(name, {})).draw())
        print(path.relative_to(ROOT))


main()
