#!/usr/bin/env python3
"""Conventions of the alert rules, and that they name only metrics and labels that the exporter has, as docs/metrics.md says.

That page is compared with the code by a test of its own, so a metric that is renamed there leaves no dead rule here."""

import re
import sys

import rulelib
from rule_cases import CASES

TARGET_LABELS = {"cluster", "job", "instance"}


def documented():
    metrics = {"up": set()}
    for line in (rulelib.ROOT / "docs" / "metrics.md").read_text().splitlines():
        match = re.match(r"\| `(\w+)` \| (\w+) \| ([^|]*)\|", line)
        if match:
            name, kind, labels = match.groups()
            labels = set(re.findall(r"`(\w+)`", labels))
            metrics[name] = labels
            if kind == "histogram":
                metrics.update({f"{name}_{s}": labels for s in ("sum", "count")} | {f"{name}_bucket": labels | {"le"}})
    return metrics


def problems():
    metrics = documented()
    groups = rulelib.load_groups(rulelib.MAIN_RULES)
    rules = [rule for group in groups for rule in group["rules"]]
    recorded = {rule["record"] for rule in rules if "record" in rule}
    everything = " ".join(rule["expr"] + " ".join(rule.get("annotations", {}).values()) for rule in rules)
    for group in groups:
        if len(group["rules"]) > 20 or len(group["name"]) > 40 or group.get("interval") != "30s":
            yield f"group {group['name']}: at most 20 rules, 40 characters, and the interval that the counts are for"
    for rule in rules:
        name, expr = rulelib.name_of(rule), rule["expr"]
        texts = [expr] + [t for t in rule.get("annotations", {}).values()]
        for text in texts:
            for metric, labels in re.findall(r"(?<![\w:/-])((?:redis_lock_|up\b)\w*)(\{[^{}]*\})?", text.replace("redis_lock_exporter check", "").replace("redis_lock_exporter/", "")):
                if metric not in metrics and not (metric == "redis_lock_exporter" and text is not expr):
                    yield f"{name}: no such metric: {metric}"
                    continue
                for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", labels or ""):
                    if label not in metrics.get(metric, set()) | TARGET_LABELS:
                        yield f"{name}: {metric} has no label {label}"
        for series in re.findall(r"\b\w+:redis_lock_\w+:\w+", " ".join(texts)):
            if series not in recorded:
                yield f"{name}: nothing records {series}"
        if re.search(r"(?:increase|rate)\((?!redis_lock_\w+_(?:total|bucket|count)\b)", expr):
            yield f"{name}: increase() is for counters"
        if "record" in rule and everything.count(rule["record"]) == 0:
            yield f"{name}: nobody uses it"
    seen = {"fires": set(), "quiet": set()}
    for case in CASES:
        every = {alert["alertname"] for alerts in case.firing.values() for alert in alerts}
        seen["fires"] |= every
    for rule in rules:
        if "alert" not in rule:
            continue
        name, annotations = rule["alert"], rule["annotations"]
        if not re.fullmatch(r"RedisLock([A-Z][a-z0-9]+)+", name) or len(name) > 40:
            yield f"{name}: not CamelCase, or longer than 40 characters"
        if rule["labels"].get("severity") not in ("critical", "warning", "info") or rule["labels"].get("component") != "redis_lock":
            yield f"{name}: severity or component"
        if not re.fullmatch(r"[A-Z][^{}]*\.", annotations.get("summary", "")):
            yield f"{name}: the summary is one sentence without templates"
        if "First: " not in annotations.get("description", ""):
            yield f"{name}: the description says what to do first"
        if not annotations.get("runbook_url", "").endswith(f"/docs/runbooks/{name}.md") or not annotations.get("dashboard_url", "").startswith("/d/"):
            yield f"{name}: runbook_url or dashboard_url"
        if "exporter_url" not in annotations:
            yield f"{name}: exporter_url"
        if "$value" in str(rule["labels"]):
            yield f"{name}: a value in a label makes each value an alert of its own"
        if name not in seen["fires"]:
            yield f"{name}: no test lets it fire"


found = list(problems())
for problem in found:
    print(problem, file=sys.stderr)
sys.exit(1 if found else 0)
