"""Runs the libraries next to an exporter. Its counts from their log must equal the programs' records, and it must see their
locks in Redis. Used by conduct.py."""

import json
import re
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

from ports import start_on_free_port

SAMPLE = re.compile(r"^(redis_lock_\w+?)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
WAIT = 90

# Keys of libraries without a prefix, for which the user must name the keys. The programs use these
# names.
USER_KEYS = {
    "redis-py": ["{prefix}-{{lock_name}}", ":1:{prefix}-{{lock_name}}"],
    "node-redlock": ["{prefix}-{{lock_name}}"],
    "symfony-lock": ["{prefix}-{{lock_name}}"],
    "laravel": ["laravel_database_laravel_cache:{prefix}-{{lock_name}}"],
    "aioredlock": ["{prefix}-{{lock_name}}"],
    "rslock": ["{prefix}-{{lock_name}}"],
}


class Exporter:
    def __init__(self, binary, fixture, redis, directory):
        self.log = Path(directory) / "app.log"
        self.log.touch()
        config = {"presets": [fixture.preset], "logs": [{"path": str(self.log)}], "redis": {"url": redis.url}}
        if fixture.preset in USER_KEYS:
            keys = [key.format(prefix=fixture.lock_name("")) for key in USER_KEYS[fixture.preset]]
            config["namespaces"] = [{"name": fixture.preset, "keys": keys}]
        path = Path(directory) / "config.yaml"
        path.write_text(json.dumps(config))
        self.errors = open(Path(directory) / "exporter.log", "w+")
        command = [binary, "--config.file", str(path), "--web.listen-address"]
        self.process, port = start_on_free_port(lambda port: subprocess.Popen([*command, f"127.0.0.1:{port}"], stderr=self.errors))
        self.address = f"127.0.0.1:{port}"
        try:
            self.wait("it follows the log", lambda: self.sum("redis_lock_exporter_log_open_files") == 1)
            self.wait("it watches Redis", lambda: self.sum("redis_lock_observed_since_timestamp_seconds") > 0)
        except BaseException:
            self.stop()
            raise

    def stop(self):
        self.process.terminate()
        self.process.wait(20)
        self.errors.close()

    def samples(self):
        try:
            with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=30) as answer:
                text = answer.read().decode()
        except OSError as error:
            if self.process.poll() is not None:
                self.errors.seek(0)
                raise SystemExit(f"the exporter ended: {self.errors.read()}") from error
            return []
        found = (SAMPLE.match(line) for line in text.splitlines())
        return [(match[1], dict(LABEL.findall(match[2] or "")), float(match[3])) for match in found if match]

    def sum(self, name, **labels):
        return sum(value for found, its, value in self.samples() if found == name and labels.items() <= its.items())

    def wait(self, what, condition):
        until = time.monotonic() + WAIT
        while not condition():
            if time.monotonic() > until:
                raise SystemExit(f"not seen within {WAIT} s: {what}")
            time.sleep(0.05)


def wanted(failures):
    """Returns the counters, by name and label, that these failures must produce."""
    counts = {}
    for failure in failures:
        told = failure.get("told", failure)
        if told["reason"] == "not_owned":
            key = ("redis_lock_not_owned_total", "operation", told["operation"])
        else:
            key = ({"acquire": "redis_lock_acquire_failures_total", "renew": "redis_lock_renewal_failures_total",
                    "release": "redis_lock_release_failures_total"}[told["operation"]], "reason", told["reason"])
        counts[key] = counts.get(key, 0) + 1
    return counts


def counted(exporter):
    """Returns the same counters from the exporter. A lost lock also counts as a failed operation, which is not counted again here."""
    counts = {}
    for name, labels, value in exporter.samples():
        label = "operation" if name == "redis_lock_not_owned_total" else "reason"
        is_failure = name == "redis_lock_not_owned_total" or re.fullmatch(r"redis_lock_(acquire|renewal|release)_failures_total", name)
        if is_failure and value and not (label == "reason" and labels["reason"] == "not_owned"):
            key = (name, label, labels[label])
            counts[key] = counts.get(key, 0) + int(value)
    return counts


def run(binary, fixture, redis):
    """Raises SystemExit with a message if the exporter's counts differ from the programs' records."""
    with tempfile.TemporaryDirectory() as directory:
        exporter = Exporter(binary, fixture, redis, directory)
        try:
            seen = {"changes": 0, "acquisitions": 0}

            def on_held(scenario, state, _keys):
                if state == "held":
                    exporter.wait(f"{scenario}: the lock is held", lambda: exporter.sum("redis_lock_held") >= 1)
                    exporter.wait(f"{scenario}: it was taken", lambda: exporter.sum("redis_lock_acquisitions_total") > seen["acquisitions"])
                elif state == "taken":
                    exporter.wait(f"{scenario}: another owner has it", lambda: exporter.sum("redis_lock_owner_changes_total") > seen["changes"])
                elif state == "gone":
                    exporter.wait(f"{scenario}: nobody has it", lambda: exporter.sum("redis_lock_held") == 0)
                if exporter.sum("redis_lock_without_ttl") > 0:
                    raise SystemExit(f"{scenario}: a lock without TTL is reported, which is normal for {fixture.preset}")
                seen["changes"] = exporter.sum("redis_lock_owner_changes_total")
                seen["acquisitions"] = exporter.sum("redis_lock_acquisitions_total")

            with open(exporter.log, "ab", buffering=0) as log:
                failures, _ = fixture.run(redis, log, on_held)
            want = wanted(failures)
            exporter.wait("the log is read to its end", lambda: exporter.sum("redis_lock_exporter_log_bytes_total") >= exporter.log.stat().st_size)
            try:
                exporter.wait("what the programs know", lambda: counted(exporter) == want)
            except SystemExit:
                raise SystemExit(f"the programs know of {want}, the exporter of {counted(exporter)}") from None
            return sum(want.values())
        finally:
            exporter.stop()
