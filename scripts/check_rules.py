#!/usr/bin/env python3
"""Checks the conventions of the alert rules, and that the rules use only metrics and labels that
docs/metrics.md documents.

Another test compares that page with the code, so a renamed metric cannot leave a dead rule behind.
The conventions are those of the Prometheus community's linters (mixtool, pint), as far as they fit.
Prints a line for each problem and exits with status 1."""

import re
import sys

import rulelib
from rule_graph import RuleGraph
from rule_tests import CASES

TARGET_LABELS = {"cluster", "job", "instance"}
SCRAPE_SECONDS = 30
# Alerts whose description needs no label: when they fire, no series exists that could have one.
UNTEMPLATED = {"RedisLockExporterAbsent"}
# Alerts about a Redis or an exporter, not about a lock namespace.
NO_NAMESPACE = {
    "RedisLockRedisDown", "RedisLockFailoverObserved", "RedisLockFailoverFlapping", "RedisLockExporterAbsent", "RedisLockScanStale",
    "RedisLockTrackingLost", "RedisLockLogTailStalled", "RedisLockLogSilent", "RedisLockStateNotSaved", "RedisLockConfigReloadFailed",
}
EXPERIMENTAL = r"\b(?:limitk|limit_ratio|mad_over_time|ts_of_\w+|sort_by_label\w*|info|double_exponential_smoothing|holt_winters|histogram_quantiles)\s*\("
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


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


def seconds(duration):
    return sum(int(n) * SECONDS[u] for n, u in re.findall(r"(\d+)([smhd])", duration))


def operand(text):
    """Returns the parenthesized expression at the start of `text`, or its first word."""
    depth = 0
    for i, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth == 0 and letter in ") ":
            return text[:i + 1]
    return text


def dead_names(name, rule, metrics, recorded):
    texts = [rule["expr"], *rule.get("annotations", {}).values()]
    for text in texts:
        for metric, labels in re.findall(r"(?<![\w:/-])((?:redis_lock_|up\b)\w*)(\{[^{}]*\})?", text.replace("redis_lock_exporter check", "").replace("redis_lock_exporter/", "")):
            if metric not in metrics and not (metric == "redis_lock_exporter" and text is not rule["expr"]):
                yield f"{name}: no such metric: {metric}"
                continue
            for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", labels or ""):
                if label not in metrics.get(metric, set()) | TARGET_LABELS:
                    yield f"{name}: {metric} has no label {label}"
    for series in re.findall(r"\b\w+:redis_lock_\w+:\w+", " ".join(texts)):
        if series not in recorded:
            yield f"{name}: nothing records {series}"


def expression(name, expr):
    if re.search(r"(?:increase|rate)\((?!(?:redis_lock|cordum)_\w+_(?:total|bucket|count)\b)", expr):
        yield f"{name}: increase() is for counters"
    for window in re.findall(r"\[(\w+)\]", expr):
        if seconds(window) < 4 * SCRAPE_SECONDS:
            yield f"{name}: a range of {window} holds too few scrapes"
    for match in re.finditer(r" / (?!\d)(?:on \([^)]*\) )?", expr):
        if "> 0" not in operand(expr[match.end():]):
            yield f"{name}: nothing keeps a division from dividing by 0"
    if re.search(r"\b(?:and|unless) (?!on \()", expr):
        yield f"{name}: and, unless without on (...)"
    if re.search(r"(?:[<>]=?|==|!=) (?:bool )?(?!on \(|bool |[\d.]+)(?=[^\"])", re.sub(r"\{[^}]*\}", "", expr)):
        yield f"{name}: two vectors are compared without on (...)"
    if re.search(EXPERIMENTAL, expr):
        yield f"{name}: a function that is experimental or gone in some Prometheus"
    if not re.search(r"(?:[<>]=?|==|!=)|\babsent\(|\bunless\b", expr) and name.startswith("RedisLock"):
        yield f"{name}: compares nothing, so it always fires"


def alert_rule(rule):
    name, annotations = rule["alert"], rule["annotations"]
    if not re.fullmatch(r"RedisLock([A-Z][a-z0-9]+)+", name) or len(name) > 40:
        yield f"{name}: not CamelCase, or longer than 40 characters"
    if rule["labels"].get("severity") not in ("critical", "warning", "info") or rule["labels"].get("component") != "redis_lock":
        yield f"{name}: severity or component"
    if "$value" in str(rule["labels"]):
        yield f"{name}: a value in a label makes each value an alert of its own"
    if not re.fullmatch(r"[A-Z][^{}]*\.", annotations.get("summary", "")):
        yield f"{name}: the summary is one sentence without templates"
    description = annotations.get("description", "")
    if "First: " not in description:
        yield f"{name}: the description says what to do first"
    if "{{" not in description and name not in UNTEMPLATED:
        yield f"{name}: the description says about which lock, Redis or exporter"
    if not annotations.get("runbook_url", "").endswith(f"/docs/runbooks/{name}.md"):
        yield f"{name}: runbook_url"
    runbook = rulelib.ROOT / "docs" / "runbooks" / f"{name}.md"
    if not runbook.exists() or not runbook.read_text().startswith(f"# {name}\n"):
        yield f"{name}: no runbook with this title"
    if not re.search(r"(?:^|\{\{ end -\}\} )/d/redis-lock-(?:overview|namespace|exporter)\b", annotations.get("dashboard_url", "")):
        yield f"{name}: dashboard_url"
    if "absent(" in rule["expr"] and seconds(rule.get("for", "0s")) < 2 * SCRAPE_SECONDS:
        yield f"{name}: one missed scrape is no absence"


def problems(path, metrics):
    groups = rulelib.load_groups(path)
    rules = [rule for group in groups for rule in group["rules"]]
    recorded = {rule["record"] for rule in rules if "record" in rule}
    everything = " ".join(rule["expr"] + " ".join(rule.get("annotations", {}).values()) for rule in rules)
    graph, cases = RuleGraph(groups), [case for case in CASES if case.rules == path.name]
    for group in groups:
        if len(group["rules"]) > 20 or len(group["name"]) > 40 or group.get("interval") != "30s":
            yield f"group {group['name']}: at most 20 rules, 40 characters, and the interval that the counts are for"
    for rule in rules:
        name = rulelib.name_of(rule)
        yield from expression(name, rule["expr"])
        if path == rulelib.MAIN_RULES:
            yield from dead_names(name, rule, metrics, recorded)
            keeps = name in NO_NAMESPACE or name.startswith("redis:")
            if not keeps and any("lock_namespace" not in by for by in re.findall(r"\bby \(([^)]*)\)", rule["expr"])):
                yield f"{name}: sums the namespaces up"
            if "alert" in rule and "exporter_url" not in rule["annotations"]:
                yield f"{name}: exporter_url"
        if "record" in rule and everything.count(name) == 0:
            yield f"{name}: nobody uses it"
        if "alert" in rule:
            yield from alert_rule(rule)
    for alert in graph.alerts:
        about = [case for case in cases if graph.concerns(case, alert)]
        if not any(alert in case.alerts for case in about):
            yield f"{alert}: no test lets it fire"
        if not any(alert not in case.alerts for case in about):
            yield f"{alert}: no test keeps it quiet although something happens"


found = [f"{path.name}: {problem}" for path in (rulelib.MAIN_RULES, rulelib.CORDUM_RULES) for problem in problems(path, documented())]
for problem in dict.fromkeys(found):
    print(problem, file=sys.stderr)
sys.exit(1 if found else 0)
