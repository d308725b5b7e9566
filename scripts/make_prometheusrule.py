#!/usr/bin/env python3
"""Writes alerts/prometheus-operator.yml: the rules of alerts/redis_lock.rules.yml as a
PrometheusRule manifest.

usage: make_prometheusrule.py [--check]

With --check, writes nothing and exits with status 1 if the committed manifest is stale. The rules
are copied as text, so comments stay and no YAML library is needed.
"""

import pathlib
import sys

ALERTS = pathlib.Path(__file__).resolve().parent.parent / "alerts"
TARGET = ALERTS / "prometheus-operator.yml"
HEAD = """\
# Generated from redis_lock.rules.yml by scripts/make_prometheusrule.py. Change that file instead.
# By default, kube-prometheus-stack uses only objects with the label `release: <name of its release>`:
# add it.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: redis-lock
  labels:
    app.kubernetes.io/name: redis-lock-exporter
spec:
"""


def manifest():
    lines = (ALERTS / "redis_lock.rules.yml").read_text().splitlines()
    return HEAD + "".join(f"  {line}\n" if line else "\n" for line in lines)


def main():
    if sys.argv[1:] == ["--check"]:
        if not TARGET.exists() or TARGET.read_text() != manifest():
            sys.exit(f"{TARGET.name} is out of date: run scripts/make_prometheusrule.py")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        TARGET.write_text(manifest())


if __name__ == "__main__":
    main()
