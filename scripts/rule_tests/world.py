"""A small world to test the rules on: the series of healthy exporters, with a sample every 30 s or
more often, and functions to change them.

Times are minutes. A case is a world, and the exact set of alerts that fire at some moments."""

import itertools
import math

import rulelib

STEP = 0.5  # minutes between two samples

# Alerts that an ordinary failover may cause. Users of the rules may rely on this list.
FAILOVER_SENSITIVE = {
    "RedisLockAbandonedEvent", "RedisLockRenewalOverdue", "RedisLockRenewalMarginShrinking", "RedisLockTakeoverSlow",
    "RedisLockReleasedEarly", "RedisLockTrackingLost",
}


def counter(minutes, *segments, start=0, step=STEP):
    """Grows by `amount` per sample from minute `begin` (excluded) to `end`, for each (begin, end,
    amount).

    Amounts are multiples of 1/64, because sums of such numbers are exact. A rounding error would
    appear as a counter reset."""
    growth_of = [start] + [0] * int(minutes / step)
    for begin, end, amount in segments:
        for k in range(math.floor(begin / step) + 1, min(math.floor(end / step) + 1, len(growth_of))):
            growth_of[k] += round(amount * 64) / 64
    return list(itertools.accumulate(growth_of))


def gauge(minutes, *changes, step=STEP):
    """Has the value of the latest (since, value). None is no sample, "stale" is a series that
    ended."""
    values = [None] * (int(minutes / step) + 1)
    for since, value in changes:
        first = math.ceil(since / step)
        values[first:] = [value] * (len(values) - first)
    return values


def clock(minutes, *changes, step=STEP):
    """A timestamp in seconds. (since, None) follows the time, (since, minute) stays at that
    minute."""
    values = []
    for k in range(int(minutes / step) + 1):
        stands = [at for since, at in changes if since <= k * step][-1]
        values.append((k * step if stands is None else stands) * 60)
    return values


def growth(minutes, begin, seconds, amount, step=STEP):
    """A counter that grows evenly by `amount` during this many seconds after minute `begin`, at any
    scrape interval."""
    return [round(amount * min(max((k * step - begin) * 60 / seconds, 0), 1)) for k in range(int(minutes / step) + 1)]


class World:
    """`step`: minutes between two scrapes."""

    def __init__(self, minutes, step=STEP):
        self.minutes, self.step = minutes, step
        self.series = {}
        self.special = set()  # metrics that differ from those of healthy exporters

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
        """Series whose names contain `text` are not scraped from `begin` to `end`."""
        end = self.minutes + 1 if end is None else end
        self._touch(text)
        for key, values in self.series.items():
            if text in key:
                self.series[key] = ["stale" if begin <= k * self.step < end else v for k, v in enumerate(values)]

    def reset(self, at, text):
        """Counters start again from 0, as after a restart without a state directory."""
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
        """`traffic`: acquisitions and releases every 30 s. `renewals`: renewals every 30 s."""
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
    """`firing`: {minute: alerts}, each alert as "Name/severity key=value ...", without the prefix
    RedisLock. `holds`: expressions that are 1 at the end. Each reads one recorded series and
    contains CLUSTER instead of a matcher for the case's cluster.

    `every`: minutes between two evaluations of the rules. The default is 30 s as in production.
    Cases that take hours and count no slices evaluate less often."""

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
