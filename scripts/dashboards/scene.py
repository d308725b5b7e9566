"""A real Redis, three real exporters and a real Prometheus with the bundled rules, and a story: healthy time, a failover, an incident, recovery.

Time is compressed: at speed 30 what the rules call 30 s is 1 s, in rules, TTLs and queries alike. Exporters A and B look at the same
Redis, as for availability; each of the three reads the logs of its own node. Everything is on loopback and ends with the scene."""

import asyncio
import contextlib
import json
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass

import rulelib
from dashboards.services import Fleet, Log, Redis, Trouble

UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
# Namespaces of the preset that the services use, with its TTLs, renewal intervals and longest holds; the second list has leaders.
ITEMS = {"scheduler": (60, 20, 180), "workflow": (30, 10, 600), "admission": (10, None, None)}
LOOPS = {"reconciler": (60, 20, 600), "replayer": (60, None, None), "workflow_reconciler": (10, None, None), "delay_poller": (10, None, None)}


def seconds(duration):
    return sum(float(number) * UNITS[unit] for number, unit in re.findall(r"(\d+)(ms|[smhd])", duration))


def compress(expression, speed):
    """The same with windows and offsets divided by the speed."""
    def shorter(match):
        return f"{match[1]}{round(seconds(match[2]) / speed * 1000)}ms{match[3]}"
    return re.sub(r"(\[|offset )((?:\d+(?:ms|[smhd]))+)(\]|\b)", shorter, expression)


def compressed_rules(speed):
    groups = rulelib.load_groups(rulelib.MAIN_RULES)
    for group in groups:
        group["interval"] = compress(f"[{group['interval']}]", speed)[1:-1]
        for rule in group["rules"]:
            rule["expr"] = compress(rule["expr"], speed)
            for key in ("for", "keep_firing_for"):
                if key in rule:
                    rule[key] = compress(f"[{rule[key]}]", speed)[1:-1]
    return rulelib.rules_as_yaml(groups)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def exporter(arguments):
    """The binary that was given, or one that is built now."""
    if not arguments:
        subprocess.run(["cargo", "build", "--locked", "--quiet"], cwd=rulelib.ROOT, check=True)
        arguments = [rulelib.ROOT / "target" / "debug" / "redis_lock_exporter"]
    return pathlib.Path(arguments[0]).resolve(strict=True)


@dataclass
class Story:
    """Minutes as the rules see them. The incident lasts at least as long as given, and until a page fires."""
    healthy: float = 4
    calm: float = 4
    incident: float = 9
    recovery: float = 6


class Scene(contextlib.ExitStack):
    def __init__(self, binary, speed, story, say):
        super().__init__()
        self.binary, self.speed, self.story, self.say = binary, speed, story, say
        self.directory = pathlib.Path(self.enter_context(tempfile.TemporaryDirectory(prefix="dashboards-")))
        (self.directory / "logs").mkdir()
        self.redis_port, self.prometheus_port = free_port(), free_port()
        self.exporter_ports = {name: free_port() for name in "abc"}
        self.processes = {}
        self.callback(self.stop_all)
        signal.signal(signal.SIGTERM, lambda *_: exit(1))
        self.moments = {}  # what happened when

    # Processes.

    def start(self, name, command):
        log = open(self.directory / f"{name}.out", "ab")
        self.processes[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory)

    def stop(self, name):
        process = self.processes.pop(name)
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def stop_all(self):
        for name in list(self.processes):
            self.stop(name)

    def start_redis(self):
        self.start("redis", ["redis-server", "--port", str(self.redis_port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])

    def start_exporter(self, name):
        config = self.directory / f"{name}.yaml"
        config.write_text(self.configuration(name))
        self.start(f"exporter-{name}", [str(self.binary), "--config.file", str(config), "--web.listen-address", f"127.0.0.1:{self.exporter_ports[name]}"])

    def configuration(self, name):
        def entry(namespace, ttl, renew_every, max_hold, absent=None):
            durations = {"ttl": ttl, "renew_every": renew_every, "max_hold": max_hold, "takeover_slo": 1.5 * ttl, "leader_absent": absent}
            return {"name": namespace} | {key: self.shorter(value) for key, value in durations.items() if value}
        namespaces = [entry(namespace, *ttl) for namespace, ttl in ITEMS.items()]
        # Three seconds at least: the exporter publishes once a second, at any speed.
        namespaces += [entry(namespace, *ttl, max(3 * ttl[0], 3 * self.speed)) for namespace, ttl in LOOPS.items()]
        # The preset has none with a fence counter.
        namespaces.append({"name": "billing", "keys": ["billing:lock:{id}"], "fence": "billing:fence:{id}", "ttl": "30s"})
        config = {"presets": ["cordum"], "namespaces": namespaces, "logs": [{"path": f"logs/node-{name}.log"}],
                  "state_dir": str(self.directory / f"state-{name}"), "join_window": self.shorter(2)}
        if name != "c":
            # Often enough that a pass is seen within the scene.
            config |= {"redis": {"url": f"redis://127.0.0.1:{self.redis_port}"}, "scan": {"watched_interval": "5s"}}
        return json.dumps(config)  # which is YAML

    def start_prometheus(self):
        (self.directory / "rules.yml").write_text(compressed_rules(self.speed))
        # Each has the name that it would have on its node.
        targets = [{"targets": [f"127.0.0.1:{port}"], "labels": {"cluster": "harbor", "instance": f"node-{name}:9877"}} for name, port in self.exporter_ports.items()]
        config = {
            "global": {"scrape_interval": self.shorter(15), "scrape_timeout": self.shorter(15), "evaluation_interval": self.shorter(30)},
            "rule_files": ["rules.yml"],
            "scrape_configs": [{"job_name": "redis_lock_exporter", "static_configs": targets}],
        }
        (self.directory / "prometheus.yml").write_text(json.dumps(config))
        self.start("prometheus", ["prometheus", f"--config.file={self.directory}/prometheus.yml", f"--storage.tsdb.path={self.directory}/tsdb",
                                  f"--web.listen-address=127.0.0.1:{self.prometheus_port}", "--log.level=warn"])

    def shorter(self, model_seconds):
        return f"{round(model_seconds / self.speed * 1000)}ms"

    # Prometheus.

    def api(self, path, **parameters):
        """The data of an answer; ValueError with Prometheus's words where it refuses."""
        url = f"http://127.0.0.1:{self.prometheus_port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(json.load(error).get("error", str(error))) from error

    def ask(self, expression, at=None):
        return self.api("query", query=expression, **({"time": at} if at else {}))["result"]

    async def wait(self, what, condition, deadline=30.0):
        end = time.time() + deadline
        while True:
            with contextlib.suppress(OSError, ValueError):
                if condition():
                    return
            for name, process in self.processes.items():
                if process.poll() is not None:
                    raise RuntimeError(f"{name} ended:\n{(self.directory / f'{name}.out').read_text()[-2000:]}")
            if time.time() > end:
                raise RuntimeError(f"waited {deadline:.0f} s in vain for {what}")
            await asyncio.sleep(0.2)

    # The story.

    async def play(self):
        """Afterwards Prometheus has it all, and `moments` say when what was."""
        self.start_redis()
        for name in self.exporter_ports:
            (self.directory / "logs" / f"node-{name}.log").touch()
            self.start_exporter(name)
        self.start_prometheus()
        await self.wait("all exporters to be scraped", lambda: len(self.ask("redis_lock_exporter_start_time_seconds")) == 3)
        trouble = Trouble()
        self.logs = [Log(self.directory / "logs" / f"node-{name}.log") for name in self.exporter_ports]
        fleet = asyncio.create_task(Fleet(self.redis_port, self.speed, trouble).run(self.logs))
        try:
            await self.tell(trouble, Redis(self.redis_port))
        finally:
            trouble.over = True
            await asyncio.wait_for(fleet, 30)

    async def tell(self, trouble, redis):
        self.note("healthy")
        await self.wait("ratios", lambda: len(self.ask("lock_namespace:redis_lock_not_owned_per_operation:ratio10m")) >= 3)
        # Held throughout: twins must not count them twice.
        await self.set_aside(redis)
        await self.minutes(self.story.healthy)

        self.note("failover")
        self.stop("redis")
        self.start_redis()
        await self.wait("the failover to be seen", lambda: self.ask("sum(redis_lock_exporter_redis_failovers_total) >= 2"))
        await self.set_aside(redis)
        await self.wait("Redis to be watched again", lambda: self.ask("min(redis_lock_exporter_tracking_up) == 1"))
        await self.minutes(self.story.calm / 2)
        trouble.late = 0.5  # the leading indicator
        await self.minutes(self.story.calm / 2)

        self.note("incident")
        trouble.late, trouble.stalls, trouble.timeouts, trouble.leaderless = 0.9, 0.3, 0.25, {"cordum:wf:delay:poller"}
        await redis.command("SET", "saga:wf-1:lock", "held", "NX")
        for fence in (7, 3):
            await redis.command("SET", "billing:lock:1", "held", "PX", 1000)
            await redis.command("SET", "billing:fence:1", fence)
            await self.minutes(0.5)
        for number in range(12):
            await redis.command("DEL", "cordum:reconciler:default")
            self.logs[0].write("scheduler", "job state changed", job_id=f"twice-{number}", new_state="SUCCEEDED")
            self.logs[1].write("scheduler", "job state changed", job_id=f"twice-{number}", new_state="FAILED")
            self.logs[1].write("scheduler", "job state changed", job_id=f"twice-{number}", new_state="SUCCEEDED")
            self.logs[2].write("workflow-engine", "distributed lock failed — using local-only lock, cross-replica race possible", run_id=f"run-{number}", error="i/o timeout")
            await self.minutes((self.story.incident - 1) / 12)
        pages = 'ALERTS{alertstate="firing",severity="critical",alertname=~"RedisLock(NotOwned|RenewalFailure)RatioHigh"}'
        await self.wait("a page", lambda: self.ask(pages), 60 * 15 / self.speed + 30)
        await self.wait("an absent leader", lambda: self.ask('ALERTS{alertname="RedisLockLeaderAbsent",alertstate="firing"}'), 60 * 8 / self.speed + 30)
        self.note("peak")

        trouble.late, trouble.stalls, trouble.timeouts, trouble.leaderless = 0.1, 0.0, 0.0, set()
        await redis.command("DEL", "saga:wf-1:lock")
        self.note("recovery")
        await self.minutes(self.story.recovery / 2)
        self.stop("exporter-b")
        self.start_exporter("b")
        self.note("restart")
        await self.wait("the restart to be scraped", lambda: self.ask("changes(redis_lock_exporter_start_time_seconds[5m]) > 0"))
        await self.minutes(self.story.recovery / 2)
        bad = "lock_namespace:redis_lock_not_owned:slice_bad == 1"
        await self.wait("recovery", lambda: not self.ask(bad), 60 * 10 / self.speed + 30)
        self.note("end")

    async def set_aside(self, redis):
        for number in range(3):
            await redis.command("SET", f"lock:eval:run:lock:tenant:{number}", "held", "PX", 3_600_000)

    async def minutes(self, count):
        await asyncio.sleep(count * 60 / self.speed)

    def note(self, moment):
        self.moments[moment] = time.time()
        self.say(f"{moment}, after {time.time() - min(self.moments.values()):.0f} s")
