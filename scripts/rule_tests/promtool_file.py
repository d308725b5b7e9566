"""Writes cases as a test file for promtool."""

import json
import re

import rulelib

from .world import STEP

# Cases whose last moment is at most this many minutes share a world. In a longer world short cases
# would be evaluated for too long.
WORLD_MINUTES = (20, 30, 40, 50, 60, 80, 110, 160, 250, 400)


def duration(minutes):
    seconds = round(minutes * 60)
    minutes, rest = f"{seconds // 60}m" if seconds >= 60 else "", f"{seconds % 60}s" if seconds % 60 else ""
    return minutes + rest or "0s"


def merged(cases):
    """Puts cases into shared worlds: [(name, [(case, cluster)])].

    The rules keep clusters separate. So each case becomes a cluster, dozens of cases cost little
    more than one, and a rule that mixes clusters fails. A world without any exporter stays alone,
    because exporters of other clusters would end the absence. Tests of annotations stay alone as
    well, because promtool compares all alerts of a name."""
    worlds = {}
    for number, case in enumerate(cases):
        worlds.setdefault(world_name(case), []).append((case, "" if stays_alone(case) else f"{number:03}"))
    return list(worlds.items())


def world_name(case):
    """Returns the name of the world of a case. Cases with the same name share a world."""
    if stays_alone(case):
        return case.name
    limit = next((limit for limit in WORLD_MINUTES if case.last <= limit), None)
    name = f"up to {limit} minutes" if limit else "long ones"
    return name if case.world.step == STEP else f"{name}, scraped every {duration(case.world.step)}"


def stays_alone(case):
    return bool(case.text) or any(a.get("missing") == "all" for alerts in case.firing.values() for a in alerts)


def sample_count(case):
    """Returns the number of samples until shortly after the last moment that the case checks."""
    return int((case.last + case.world.step) / case.world.step) + 1


def with_cluster(text, cluster):
    """Puts the series into this cluster. If a case has its own clusters, their names get the
    cluster as a prefix."""
    if not cluster:
        return text
    if 'cluster="' in text:
        return text.replace('cluster="', f'cluster="{cluster}-', 1)
    return text.replace("{", f'{{cluster="{cluster}",', 1)


def as_yaml(cases, rule_file, groups, only=None, metrics=None, mutants=None, own=(), texts=True, silent=None):
    """Returns the text of a test file. All cases must have the same `every`.

    `only`: expect only alerts with these names. `metrics`: write only these series. Both are for
    reduced rule files. `mutants`: expect each alert that many times, with a number at the end of
    its name and in the label `mutant`. The expressions in `holds` of a case read the mutants' `own`
    records. `texts`: compare annotations. `silent`: {case: alerts that never fire in it}."""
    every = {case.every for case in cases}
    lines = [f"rule_files: [{json_text(rule_file)}]", f"evaluation_interval: {duration(every.pop())}", f"group_eval_order: [{', '.join(groups)}]", "tests:"]
    assert not every
    for name, members in merged(cases):
        lines += [f"  - name: {json_text(name)}", f"    interval: {duration(members[0][0].world.step)}", "    input_series:"]
        for case, cluster in members:
            lines.append(case_comment(case, cluster))
            samples = sample_count(case)
            for key, values in case.world.series.items():
                if metrics is None or key.split("{")[0] in metrics:
                    lines.append(f"      - {{series: '{with_cluster(key, cluster)}', values: '{rulelib.run_lengths(values[:samples])}'}}")
        lines.append("    promql_expr_test:")
        for case, cluster in members:
            lines.append(case_comment(case, cluster))
            of_cluster = f',cluster=~"{cluster}.*"' if cluster else ""
            for number in [None] if mutants is None else range(mutants):
                mutant = "" if number is None else f',mutant="{number}"'
                for minute, alerts in sorted(case.firing.items()):
                    lines.append(f"      - expr: 'ALERTS{{alertstate=\"firing\"{of_cluster}{mutant}}}'\n        eval_time: {duration(minute)}")
                    wanted = [numbered(a, number) for a in alerts if only is None or a["alertname"] in only]
                    lines.append("        exp_samples:" if wanted else "        exp_samples: []")
                    for alert in wanted:
                        lines.append(f"          - {{labels: '{with_cluster(rulelib.selector('ALERTS', alert), cluster)}', value: 1}}")
            if silent and silent[case]:
                window, names = duration(case.last + 1), "|".join(sorted(silent[case]))
                lines.append(f"      - expr: 'count_over_time(ALERTS{{alertstate=\"firing\"{of_cluster},alertname=~\"{names}\"}}[{window}])'")
                lines.append(f"        eval_time: {duration(case.last)}\n        exp_samples: []")
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


def case_comment(case, cluster):
    return f"      # cluster {cluster}: {case.file}: {case.name}" if cluster else f"      # {case.file}: {case.name}"


def numbered(alert, number):
    """Returns the name and labels of the copy of an alert that belongs to a mutant."""
    return alert if number is None else {**alert, "alertname": f"{alert['alertname']}__{number}", "mutant": str(number)}


def json_text(value):
    return json.dumps(value, ensure_ascii=False)
