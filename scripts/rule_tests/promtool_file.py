"""Writes cases as a test file for promtool."""

import json
import re

import rulelib

from .world import STEP


def duration(minutes):
    seconds = round(minutes * 60)
    minutes, rest = f"{seconds // 60}m" if seconds >= 60 else "", f"{seconds % 60}s" if seconds % 60 else ""
    return minutes + rest or "0s"


def merged(cases):
    """Cases of a file in worlds that can be had together: [(name, [(case, cluster)])].

    Rules keep clusters apart, so each case becomes a cluster of its own and dozens of them cost little more than one (and a rule
    that mixes up clusters fails). Without any exporter a world stays alone, since that is absence for all clusters, and so do
    tests of texts, which ask for all alerts of a name."""
    worlds = {}
    for number, case in enumerate(cases):
        if case.text or any(a.get("missing") == "all" for alerts in case.firing.values() for a in alerts):
            worlds[case.name] = [(case, "")]
        else:
            limit = next(limit for limit in (20, 30, 40, 50, 60, 80, 110, 160, 250, 400, 1e9) if case.last <= limit)
            name = f"up to {limit:.0f} minutes" if limit < 1e9 else "long ones"
            if case.world.step != STEP:
                name += f", scraped every {duration(case.world.step)}"
            worlds.setdefault((case.file, name), []).append((case, f"{number:03}"))
    return [(name if isinstance(name, str) else name[1], members) for name, members in worlds.items()]


def with_cluster(text, cluster):
    """A case that has clusters itself has them within its own."""
    if not cluster:
        return text
    if 'cluster="' in text:
        return text.replace('cluster="', f'cluster="{cluster}-', 1)
    return text.replace("{", f'{{cluster="{cluster}",', 1)


def as_yaml(cases, rule_file, groups, only=None, metrics=None, mutants=None, own=(), texts=True):
    """`only`: expect just the alerts of these names, `metrics`: give just these, for rule files that were cut down. `mutants`: expect
    each alert that many times, with a number at the end of its name and as the label `mutant`, and what holds of their `own` records. `texts`: compare annotations. All cases have the same `every`."""
    every = {case.every for case in cases}
    lines = [f"rule_files: [{rule_file}]", f"evaluation_interval: {duration(every.pop())}", f"group_eval_order: [{', '.join(groups)}]", "tests:"]
    assert not every
    for name, members in merged(cases):
        step = members[0][0].world.step
        lines += [f"  - name: {json_text(name)}", f"    interval: {duration(step)}", "    input_series:"]
        for case, cluster in members:
            lines.append(f"      # cluster {cluster}: {case.name}" if cluster else f"      # {case.name}")
            samples = int((case.last + step) / step) + 1
            for key, values in case.world.series.items():
                if metrics is None or key.split("{")[0] in metrics:
                    lines.append(f"      - {{series: '{with_cluster(key, cluster)}', values: '{rulelib.run_lengths(values[:samples])}'}}")
        lines.append("    promql_expr_test:")
        for case, cluster in members:
            lines.append(f"      # cluster {cluster}: {case.name}" if cluster else f"      # {case.name}")
            inner = 'alertstate="firing"' + (f',cluster=~"{cluster}.*"' if cluster else "")
            for number in [None] if mutants is None else range(mutants):
                mutant = "" if number is None else f',mutant="{number}"'
                for minute, alerts in sorted(case.firing.items()):
                    lines.append(f"      - expr: 'ALERTS{{{inner}{mutant}}}'\n        eval_time: {duration(minute)}")
                    wanted = [numbered(a, number) for a in alerts if only is None or a["alertname"] in only]
                    lines.append("        exp_samples:" if wanted else "        exp_samples: []")
                    for alert in wanted:
                        lines.append(f"          - {{labels: '{with_cluster(rulelib.selector('ALERTS', alert), cluster)}', value: 1}}")
            for expression in case.holds:
                asked = expression.replace("CLUSTER", f'cluster=~"{cluster}.*"')
                record = re.search(r"\w+:[\w:]+", asked)[0]
                for number in [None] if mutants is None else range(mutants) if record in own else ():
                    text = asked if number is None else asked.replace(record, f"{record}__{number}")
                    lines.append(f"      - expr: '{text}'\n        eval_time: {duration(case.last)}")
                    lines.append("        exp_samples: [{value: 1}]")
        text = [entry for case, _ in members for entry in case.text if only is None or entry[1] in only] if texts else []
        if text:
            lines.append("    alert_rule_test:")
        for number in [None] if mutants is None else range(mutants):
            for minute, alertname in dict.fromkeys(entry[:2] for entry in text):
                head = numbered({"alertname": alertname}, number)
                lines += [f"      - alertname: {head.pop('alertname')}", f"        eval_time: {duration(minute)}", "        exp_alerts:"]
                for labels, annotations in (entry[2:] for entry in text if entry[:2] == (minute, alertname)):
                    lines.append(f"          - exp_labels: {json_text({**labels, **head})}")
                    lines.append("            exp_annotations:")
                    lines += [f"              {k}: {json_text(v)}" for k, v in annotations.items()]
    return "\n".join(lines) + "\n"


def numbered(alert, number):
    """As the copy of an alert for a mutant is called."""
    return alert if number is None else {**alert, "alertname": f"{alert['alertname']}__{number}", "mutant": str(number)}


def json_text(value):
    return json.dumps(value, ensure_ascii=False)
