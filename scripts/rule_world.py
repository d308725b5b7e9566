"""A small world to try the rules on: what healthy exporters show, as series of one value every 30 s (or oftener), and how to change some of it.

Times are minutes. A case is a world, and the exact set of alerts that fire at some moments."""

import json
import re

import rulelib

STEP = 0.5  # minutes between two samples

# Alerts that an ordinary failover may cause, as a user of the rules may rely on it.
FAILOVER_SENSITIVE = {
    "RedisLockAbandonedEvent", "RedisLockRenewalOverdue", "RedisLockRenewalMarginShrinking", "RedisLockTakeoverSlow",
    "RedisLockReleasedEarly", "RedisLockTrackingLost",
}


def counter(minutes, *segments, start=0, step=STEP):
    """Grows by `amount` a sample from minute `begin` (not included) to `end`, for each (begin, end, amount).

    In steps of 1/64: sums of such numbers are exact, and a rounding error would look like a counter that began again."""
    segments = [(begin, end, round(amount * 64) / 64) for begin, end, amount in segments]
    values, total = [], start
    for k in range(int(minutes / step) + 1):
        now = k * step
        total += sum(amount for begin, end, amount in segments if begin < now <= end)
        values.append(total)
    return values


def gauge(minutes, *changes, step=STEP):
    """The value of the last (since, value) that has come: None is no sample, "stale" is a series that ended."""
    return [[v for since, v in changes if since <= k * step][-1] for k in range(int(minutes / step) + 1)]


def clock(minutes, *changes, step=STEP):
    """A timestamp in seconds: (since, None) follows the time, (since, minute) stands still at that minute."""
    values = []
    for k in range(int(minutes / step) + 1):
        stands = [at for since, at in changes if since <= k * step][-1]
        values.append((k * step if stands is None else stands) * 60)
    return values


def growth(minutes, begin, seconds, amount, step=STEP):
    """A counter that grows by `amount` in so many seconds from minute `begin` on, whenever it is scraped."""
    return [round(amount * min(max((k * step - begin) * 60 / seconds, 0), 1)) for k in range(int(minutes / step) + 1)]


class World:
    """`step`: minutes between two scrapes."""

    def __init__(self, minutes, step=STEP):
        self.minutes, self.step = minutes, step
        self.series = {}
        self.special = set()  # metrics that are not as healthy exporters show them: what a case is about

    def put(self, metric, values, **labels):
        self.special.add(metric)
        self.healthy(metric, values, **labels)

    def healthy(self, metric, values, **labels):
        labels = {k: v for k, v in labels.items() if v is not None}
        self.series[rulelib.selector(metric, labels)] = values

    def _touch(self, text):
        self.special |= {key.split("{")[0] for key in self.series if text in key}

    def drop(self, text):
        self._touch(text)
        self.series = {k: v for k, v in self.series.items() if text not in k}

    def gone(self, begin, end=None, text=""):
        """The series whose name contains `text` are not scraped from `begin` to `end`."""
        end = self.minutes + 1 if end is None else end
        self._touch(text)
        for key, values in self.series.items():
            if text in key:
                self.series[key] = ["stale" if begin <= k * self.step < end else v for k, v in enumerate(values)]

    def reset(self, at, text):
        """Counters begin again from 0, as after a restart without a state directory."""
        self._touch(text)
        for key, values in self.series.items():
            if text in key:
                k = int(at / self.step)
                self.series[key] = values[:k] + [v - values[k] for v in values[k:]]

    def exporter(self, instance="a:9190", job="locks", cluster=None, redis=True, logs=True, version="1"):
        flat = lambda value: gauge(self.minutes, (0, value), step=self.step)
        own = {"instance": instance, "job": job, "cluster": cluster}
        self.healthy("up", flat(1), **own)
        self.healthy("redis_lock_exporter_build_info", flat(1), version=version, **own)
        self.healthy("redis_lock_exporter_start_time_seconds", flat(0), **own)
        if redis:
            self.healthy("redis_lock_exporter_redis_up", flat(1), **own)
            self.healthy("redis_lock_exporter_redis_nodes", flat(1), **own)
            self.healthy("redis_lock_exporter_redis_nodes_up", flat(1), **own)
            self.healthy("redis_lock_exporter_tracking_up", flat(1), **own)
            self.healthy("redis_lock_exporter_redis_failovers_total", flat(0), **own)
            self.healthy("redis_lock_exporter_scan_last_success_timestamp_seconds", clock(self.minutes, (0, None), step=self.step), **own)
            self.healthy("redis_lock_exporter_scan_interval_seconds", flat(300), **own)
            self.healthy("redis_lock_exporter_scan_duration_seconds", flat(1), **own)
        if logs:
            source = {"source": "/var/log/app.log", **own}
            self.healthy("redis_lock_exporter_log_open_files", flat(1), **source)
            self.healthy("redis_lock_exporter_log_lines_total", counter(self.minutes, (0, self.minutes, 60 * self.step), step=self.step), **source)
            self.healthy("redis_lock_exporter_log_bytes_total", counter(self.minutes, (0, self.minutes, 6000 * self.step), step=self.step), **source)
        return self

    def namespace(self, name="jobs", severity="page", policy="fence", style="item", instance="a:9190", job="locks", cluster=None,
                  redis="main", logs=True, source="watch", traffic=20, renewals=20, strict=0, config=None):
        """traffic and renewals: acquired and released, and renewed, every 30 s."""
        flat = lambda value: gauge(self.minutes, (0, value), step=self.step)
        base = {"lock_namespace": name, "instance": instance, "job": job, "cluster": cluster}
        self.healthy("redis_lock_namespace_info", flat(1), style=style, on_renewal_failure=policy, severity=severity, **base)
        self.healthy("redis_lock_config_strict", flat(strict), **base)
        for key, value in (config or {}).items():
            self.put(f"redis_lock_config_{key}", flat(value), **base)
        if logs:
            for metric, labels in (
                ("not_owned", {"operation": "release"}), ("not_owned", {"operation": "renew"}), ("unlocked_work", {}),
                ("renewal_failures", {"reason": "redis_unavailable"}), ("renewal_failures", {"reason": "not_owned"}), ("abandonments", {}),
                ("acquire_failures", {"reason": "redis_unavailable"}), ("conflicting_writes", {"kind": "duplicate_terminal_state"}),
            ):
                self.healthy(f"redis_lock_{metric}_total", flat(0), **labels, **base)
        if redis:
            seen = {"redis": redis, **base}
            self.healthy("redis_lock_operations_source", flat(1), source=source, **seen)
            self.healthy("redis_lock_held", flat(10), **seen)
            for metric, per_step in (("acquisitions", traffic), ("releases", traffic), ("renewals", renewals), ("expirations", 0)):
                self.healthy(f"redis_lock_{metric}_total", counter(self.minutes, (0, self.minutes, per_step / STEP * self.step), step=self.step), **seen)
        return self


class Case:
    """`firing`: {minute: alerts}, each alert as "Name/severity key=value ...", without the prefix RedisLock. `holds`: expressions that are 1
    at the end, each about one record, with CLUSTER for a matcher of the case's cluster.

    `every`: minutes between two evaluations of the rules. 30 s as in production, or what would take hours is looked at less often:
    only where no slices are counted."""

    def __init__(self, file, name, world, firing, rules="redis_lock.rules.yml", text=None, every=STEP, holds=()):
        self.file, self.name, self.world, self.rules, self.text, self.every = file, name, world, rules, text or [], every
        self.firing = {minute: [parse_alert(a) for a in alerts] for minute, alerts in firing.items()}
        self.holds = holds
        self.last = max([*self.firing, *(entry[0] for entry in self.text)])
        self.alerts = {a["alertname"] for alerts in self.firing.values() for a in alerts}


def parse_alert(text):
    head, *labels = text.split(" ")
    name, severity = head.split("/")
    name = "RedisLock" + name
    parsed = {"alertname": name, "severity": severity, "component": "redis_lock", "alertstate": "firing"}
    if name in FAILOVER_SENSITIVE:
        parsed["failover_sensitive"] = "true"
    for label in labels:
        key, _, value = label.partition("=")
        parsed[key] = value
    return parsed


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
