"""A scripted incident on real programs: a Redis, the simulated services of the program on three
nodes, three exporters, and a Prometheus with the bundled rules. The story is a healthy time, a
failover, an incident, and the recovery.

Time is compressed: at speed 30, what the rules call 30 s takes 1 s, in rules, TTLs and queries.
Exporters A and B watch the same Redis, as in a highly available setup. Each of the three reads the
logs of its own node. Everything listens on loopback and ends with the scene."""

import contextlib
import json
import pathlib
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass

import ports
import rulelib
from dashboards import answers, queries
from dashboards.fleet import Services, build


# A and B watch the same Redis.
EXPORTERS = "abc"


@dataclass
class Story:
    """Durations in minutes of the rules. The incident lasts at least this long, and until a page
    fires."""
    healthy: float = 4
    calm: float = 4
    incident: float = 9
    recovery: float = 6


class Scene(contextlib.ExitStack):
    def __init__(self, speed, story, say):
        super().__init__()
        self.speed, self.story, self.say = speed, story, say
        self.binary, services = build()
        self.services = Services(services, speed)
        self.directory = pathlib.Path(self.enter_context(tempfile.TemporaryDirectory(prefix="dashboards-")))
        (self.directory / "logs").mkdir()
        # By the name of the process. A port is chosen at the first start and kept at a restart.
        self.ports = {}
        self.processes = {}
        self.callback(self.stop_all)
        signal.signal(signal.SIGTERM, lambda *_: exit(1))
        self.moments = {}  # when each phase began

    # Processes.

    def start(self, name, command):
        """Starts a process and waits until it listens. command(port) returns the command line."""
        def popen(port):
            with open(self.directory / f"{name}.out", "ab") as log:
                return subprocess.Popen(command(port), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory)

        if name not in self.ports:
            self.processes[name], self.ports[name] = ports.start_on_free_port(popen)
            return
        self.processes[name] = popen(self.ports[name])
        if not ports.listens(self.processes[name], self.ports[name]):
            raise RuntimeError(f"{name} does not start again:\n{(self.directory / f'{name}.out').read_text()[-2000:]}")

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
        self.start("redis", lambda port: ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])

    def start_exporter(self, name):
        config = self.directory / f"{name}.yaml"
        config.write_text(self.configuration(name))
        words = [str(self.binary), "--config.file", str(config), "--web.listen-address"]
        self.start(f"exporter-{name}", lambda port: [*words, f"127.0.0.1:{port}"])

    def configuration(self, name):
        config = [f"logs: [{{path: 'logs/*-{name}.log', start_at: beginning}}]", f"state_dir: {self.directory}/state-{name}"]
        if name != "c":
            # Often enough that the scene contains a pass.
            config += [f"redis: {{url: '{self.redis_url()}'}}", "scan: {watched_interval: 5s}"]
        # The preset has no namespace with a fence counter.
        billing = "  - {name: billing, keys: ['billing:lock:{id}'], fence: 'billing:fence:{id}', ttl: 30s}"
        return "\n".join([*config, self.services.settings() + billing, ""])

    def redis_url(self):
        return f"redis://127.0.0.1:{self.ports['redis']}/"

    def redis(self, *words):
        """Runs a command with redis-cli. Repeats it while Redis restarts."""
        command = ["redis-cli", "-p", str(self.ports["redis"]), *map(str, words)]
        self.wait(" ".join(command), lambda: subprocess.run(command, capture_output=True).returncode == 0)

    def start_prometheus(self):
        (self.directory / "rules.yml").write_text(self.services.scale(rulelib.MAIN_RULES.read_text()))
        # Each exporter has the instance name that it would have on its node.
        targets = [{"targets": [f"127.0.0.1:{self.ports[f'exporter-{name}']}"], "labels": {"cluster": "harbor", "instance": f"node-{name}:9877"}} for name in EXPORTERS]
        config = {
            "global": {"scrape_interval": self.shorter(15), "scrape_timeout": self.shorter(15), "evaluation_interval": self.shorter(30)},
            "rule_files": ["rules.yml"],
            "scrape_configs": [{"job_name": "redis_lock_exporter", "static_configs": targets}],
        }
        (self.directory / "prometheus.yml").write_text(json.dumps(config))
        words = ["prometheus", f"--config.file={self.directory}/prometheus.yml", f"--storage.tsdb.path={self.directory}/tsdb", "--log.level=warn"]
        self.start("prometheus", lambda port: [*words, f"--web.listen-address=127.0.0.1:{port}"])

    def shorter(self, model_seconds):
        return f"{round(model_seconds / self.speed * 1000)}ms"

    # Prometheus.

    def api(self, path, **parameters):
        """Returns the data of a response. Raises ValueError with Prometheus's message if Prometheus
        refuses."""
        url = f"http://127.0.0.1:{self.ports['prometheus']}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(json.load(error).get("error", str(error))) from error

    def ask(self, expression, at=None):
        return self.api("query", query=expression, **({"time": at} if at else {}))["result"]

    def wait(self, what, condition, deadline=120.0):
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
            time.sleep(0.2)

    # The story.

    def play(self):
        """Plays the story. Afterwards Prometheus has all data, and `moments` contains the time of
        each phase."""
        self.start_redis()
        for name in EXPORTERS:
            self.start_exporter(name)
        self.start_prometheus()
        self.wait("all exporters to be scraped", lambda: len(self.ask("redis_lock_exporter_start_time_seconds")) == 3)
        with open(self.directory / "services.out", "ab") as errors:
            self.services.start(self.redis_url(), self.directory / "logs", len(EXPORTERS), errors)
        self.processes["services"] = self.services.process
        self.tell()
        self.services.stop()
        del self.processes["services"]

    def tell(self):
        services = self.services
        self.note("healthy")
        self.wait("ratios", lambda: len(self.ask("lock_namespace:redis_lock_not_owned_per_operation:ratio10m")) >= 3, 60 * 5 / self.speed + 120)
        # These locks are held all the time. Two exporters that see them must not count them twice.
        self.set_aside()
        self.minutes(self.story.healthy)

        # A machine without free CPU time sometimes loses a lock, so wait for a healthy moment.
        state = answers.namespace_columns()["State"]
        self.wait("the namespace workflow to be well", lambda: self.is_well(state, lock_namespace="workflow"), 120)
        self.note("failover")
        self.stop("redis")
        self.start_redis()
        self.wait("the failover to be seen", lambda: self.ask("sum(redis_lock_exporter_redis_failovers_total) >= 2"), 60 * 2 / self.speed + 120)
        self.set_aside()
        self.wait("Redis to be watched again", lambda: self.ask("min(redis_lock_exporter_tracking_up) == 1"), 60 * 2 / self.speed + 120)
        self.minutes(self.story.calm / 2)
        services.tell("late-renewals")  # a leading indicator of lost locks
        self.minutes(self.story.calm / 2)

        self.wait("a leader", lambda: self.is_well(queries.LEADER_STATE, lock="cordum:wf:delay:poller"), 120)
        self.note("incident")
        services.tell("pauses", "outages", "leaderless")
        self.redis("SET", "saga:wf-1:lock", "held", "NX")
        for fence in (7, 3):
            self.redis("SET", "billing:lock:1", "held", "PX", 1000)
            self.redis("SET", "billing:fence:1", fence)
            self.minutes(0.5)
        for _ in range(12):
            self.redis("DEL", "cordum:reconciler:default")
            self.minutes((self.story.incident - 1) / 12)
        pages = 'ALERTS{alertstate="firing",severity="critical",lock_namespace="workflow",alertname=~"RedisLock(NotOwned|RenewalFailure)RatioHigh"}'
        self.wait("a page", lambda: self.ask(pages), 60 * 15 / self.speed + 120)
        self.wait("an absent leader", lambda: self.ask('ALERTS{alertname="RedisLockLeaderAbsent",alertstate="firing"}'), 60 * 8 / self.speed + 120)
        self.wait("a holder that gave up", lambda: self.ask("sum(redis_lock_abandonments_total) > 0"), 60 * 15 / self.speed + 120)
        self.note("peak")

        services.tell("calm")
        self.redis("DEL", "saga:wf-1:lock")
        self.note("recovery")
        self.minutes(self.story.recovery / 2)
        self.stop("exporter-b")
        self.start_exporter("b")
        self.note("restart")
        self.wait("the restart to be scraped", lambda: self.ask("changes(redis_lock_exporter_start_time_seconds[5m]) > 0"), 60 * 2 / self.speed + 120)
        self.minutes(self.story.recovery / 2)
        bad = "lock_namespace:redis_lock_not_owned:slice_bad == 1"
        self.wait("recovery", lambda: not self.ask(bad), 60 * 10 / self.speed + 120)
        self.abandoned = services.failures("abandonments")
        self.note("end")

    def is_well(self, state, **labels):
        """Whether a panel that shows a state would show 0 now."""
        span = answers.Span(self.moments["healthy"], time.time(), self.services)
        found = [float(series["value"][1]) for series in self.ask(span.fill(state)) if labels.items() <= series["metric"].items()]
        return found == [0]

    def set_aside(self):
        for number in range(3):
            self.redis("SET", f"lock:eval:run:lock:tenant:{number}", "held", "PX", 3_600_000)

    def minutes(self, count):
        time.sleep(count * 60 / self.speed)

    def note(self, moment):
        self.moments[moment] = time.time()
        self.say(f"{moment}, after {time.time() - min(self.moments.values()):.0f} s")
