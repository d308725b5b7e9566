"""The program's own simulated services (examples/cordum_fleet), for scripts: built, run, told what goes wrong, and asked what they met."""

import functools
import json
import os
import subprocess

import rulelib


def build():
    """Where cargo puts the exporter and the services."""
    subprocess.run(["cargo", "build", "--locked", "--quiet", "--bins", "--example", "cordum_fleet"], cwd=rulelib.ROOT, check=True)
    directory = rulelib.ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "debug"
    return directory / "redis_lock_exporter", directory / "examples" / "cordum_fleet"


class Services:
    """`binary` is examples/cordum_fleet. Ends when it is told to, and with this process."""

    def __init__(self, binary, speed):
        self.binary, self.speed, self.process = str(binary), speed, None
        self.scale = functools.cache(self._scale)

    def settings(self):
        """What exporters must have in their configuration. More namespaces may follow."""
        return self._ask("settings")

    def _scale(self, text):
        """Rules or queries whose durations are shorter by the speed."""
        return self._ask("scale", text)

    def _ask(self, what, text=""):
        command = [self.binary, what, "--speed", str(self.speed)]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout

    def start(self, redis, logs, nodes, errors):
        command = [self.binary, "run", "--redis", redis, "--logs", str(logs), "--nodes", str(nodes), "--speed", str(self.speed)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, bufsize=1)

    def tell(self, *commands):
        for command in commands:
            self.process.stdin.write(f"{command}\n")

    def failures(self, metric):
        """How many of them were met so far, as a counter of the exporter should have it."""
        self.tell("failures")
        counts = json.loads(self.process.stdout.readline())
        return sum(count for series, count in counts.items() if series.startswith(f"redis_lock_{metric}_total{{"))

    def stop(self):
        """Locks that nobody releases expire first."""
        self.process.stdin.close()
        self.process.wait(90)
