"""Controls the simulated services of the program (examples/cordum_fleet) from scripts: builds and
runs them, switches faults, and reads their failure counts."""

import functools
import json
import os
import subprocess

import rulelib


def build():
    """Builds the exporter and the services, and returns their paths."""
    subprocess.run(["cargo", "build", "--locked", "--quiet", "--bins", "--example", "cordum_fleet"], cwd=rulelib.ROOT, check=True)
    directory = rulelib.ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "debug"
    return directory / "redis_lock_exporter", directory / "examples" / "cordum_fleet"


class Services:
    """The running services. `binary` is examples/cordum_fleet. It ends when `stop` closes its
    standard input, also when this process ends."""

    def __init__(self, binary, speed):
        self.binary, self.speed, self.process = str(binary), speed, None
        self.scale = functools.cache(self._scale)

    def settings(self):
        """Returns the settings that exporters need in their configuration. More namespaces may be
        appended."""
        return self._ask("settings")

    def _scale(self, text):
        """Returns rules or queries with their durations divided by the speed."""
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
        """Returns how many of these failures happened so far, as the exporter should count them."""
        self.tell("failures")
        counts = json.loads(self.process.stdout.readline())
        return sum(count for series, count in counts.items() if series.startswith(f"redis_lock_{metric}_total{{"))

    def stop(self):
        """Stops the services. Locks that are never released expire first."""
        self.process.stdin.close()
        self.process.wait(90)
