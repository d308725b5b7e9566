"""Reads our rule files and runs promtool. It uses only the standard library, so it is not a YAML
parser: it knows the layout of alerts/*.rules.yml and rejects anything else."""

import json
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
ALERTS = ROOT / "alerts"
MAIN_RULES = ALERTS / "redis_lock.rules.yml"
CORDUM_RULES = ALERTS / "cordum.rules.yml"


def load_groups(path):
    return parse_groups(path.read_text(), path.name)


def parse_groups(file_text, file_name):
    """Returns [{name, interval, rules: [{alert or record, expr, for, keep_firing_for, labels,
    annotations}]}], in the order of the file."""
    groups, rule, block, anchors = [], None, None, {}
    for number, line in enumerate(file_text.splitlines(), 1):
        text, indent = line.strip(), len(line) - len(line.lstrip())
        if block is not None and (not text or indent > block["indent"]):
            block["lines"].append(text)
            continue
        block = None
        if not text or text.startswith("#") or text in ("groups:", "rules:"):
            continue
        match = re.fullmatch(r"(- )?(\w+):(?: (.*))?", text)
        if not match:
            raise ValueError(f"{file_name}:{number}: not the shape we write: {line!r}")
        dash, key, value = match.groups()
        if indent == 2 and dash and key == "name":
            groups.append({"name": value, "rules": []})
        elif indent == 4 and key == "interval":
            groups[-1]["interval"] = value
        elif indent == 6 and dash and key in ("alert", "record"):
            rule = {key: value, "line": number}
            groups[-1]["rules"].append(rule)
        elif indent == 8 and key == "annotations":
            if value and value.startswith("*"):
                rule["annotations"] = anchors[value[1:]]
            else:
                rule["annotations"] = {}
                if value:
                    anchors[value[1:]] = rule["annotations"]
        elif indent == 8 and key == "labels":
            rule["labels"] = dict((k, v.strip('"')) for k, v in re.findall(r'(\w+): ("[^"]*"|\w+)', value))
        elif indent == 8 and key in ("expr", "for", "keep_firing_for") or indent == 10 and "annotations" in rule:
            target = rule if indent == 8 else rule["annotations"]
            anchor, text = re.fullmatch(r"(?:&(\w+) )?(.*)", value or "").groups()
            if text in ("|", ">-"):
                block = target[key] = {"indent": indent, "lines": []}
            else:
                target[key] = anchors[text[1:]] if text.startswith("*") else text.strip("'")
            if anchor:
                anchors[anchor] = target[key]
        else:
            raise ValueError(f"{file_name}:{number}: not the shape we write: {line!r}")
    for group in groups:
        for rule in group["rules"]:
            for target in (rule, rule.get("annotations", {})):
                for key, value in target.items():
                    if isinstance(value, dict) and "lines" in value:
                        target[key] = " ".join(filter(None, value["lines"]))
    return groups


def cut_rules(path, names):
    """Returns the rules with these names exactly as in the file, without comments, annotations and
    empty groups."""
    kept, group_head, in_rule, in_annotations = ["groups:"], [], False, False
    for line in path.read_text().splitlines():
        text, indent = line.strip(), len(line) - len(line.lstrip())
        if not text or text.startswith("#") or text == "groups:":
            continue
        if indent <= 4:
            group_head = [line] if indent == 2 else [*group_head, line]
            in_rule = False
            continue
        if indent == 6:
            in_rule = text.split(": ")[1] in names
            if in_rule:
                kept += group_head
                group_head = []
        if indent <= 8:
            in_annotations = text.startswith("annotations:")
        if in_rule and not in_annotations:
            kept.append(line)
    cut = "\n".join(kept) + "\n"
    bare = lambda groups: [{k: v for k, v in rule.items() if k not in ("line", "annotations")} for group in groups for rule in group["rules"] if name_of(rule) in names]
    assert bare(parse_groups(cut, path.name)) == bare(load_groups(path)), "a cut changed a rule"
    return cut


def rules_as_yaml(groups, texts=False):
    """Returns the rules as JSON, which is also YAML, for mutants that only promtool reads.
    Annotations are included only with `texts`, because they take time."""
    keys = ("alert", "record", "expr", "for", "keep_firing_for", "labels", *(["annotations"] if texts else []))
    return json.dumps({"groups": [
        {"name": g["name"], "interval": g["interval"], "rules": [{k: r[k] for k in keys if k in r} for r in g["rules"]]} for g in groups
    ]})


def name_of(rule):
    return rule.get("alert") or rule["record"]


def run_lengths(values):
    """Returns values in promtool's notation: 7x3 is four sevens, 0+5x9 is a straight line of ten
    values, `stale` ends a series, `_` is no sample."""
    parts, i = [], 0
    while i < len(values):
        first, j = values[i], i + 1
        if first is None or first == "stale":
            while j < len(values) and values[j] == first:
                j += 1
            # One marker ends the series. More markers would change nothing.
            parts += ["stale"] + ([f"_x{j - i - 1}"] if j - i > 1 else []) if first == "stale" else [f"_x{j - i}"]
            i = j
            continue
        number = lambda k: k < len(values) and isinstance(values[k], (int, float))
        if not number(j):
            parts.append(f"{first:.10g}")
            i = j
            continue
        slope = values[j] - first
        while number(j) and abs(values[j] - first - slope * (j - i)) < 1e-9:
            j += 1
        if j - i == 2 and slope:
            parts.append(f"{first:.10g}")
            i += 1
            continue
        count = j - i - 1
        parts.append(f"{first:.10g}x{count}" if not slope else f"{first:.10g}{'+' if slope > 0 else '-'}{abs(slope):.10g}x{count}")
        i = j
    return " ".join(parts)


def selector(metric, labels):
    inner = ",".join(f"{k}={json.dumps(str(v))}" for k, v in sorted(labels.items()) if v is not None)
    return f"{metric}{{{inner}}}" if inner else metric


def run_promtool(promtool, test_file, cwd=None):
    """Returns (passed, output). Several run in parallel, so each one uses one processor. Rare
    garbage collection saves time."""
    quick = {**os.environ, "GOMAXPROCS": "1", "GOGC": "800"}
    done = subprocess.run([promtool, "test", "rules", str(test_file)], capture_output=True, text=True, cwd=cwd, check=False, env=quick)
    return done.returncode == 0, done.stdout + done.stderr
