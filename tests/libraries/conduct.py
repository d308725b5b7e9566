#!/usr/bin/env python3
"""Runs lock libraries against its own Redis, and records their output and their keys.

    conduct.py record [PATTERN]     rewrites the fixtures in tests/fixtures/libraries whose names contain PATTERN
    conduct.py live BINARY          runs the libraries next to the exporter and compares its counts with their records;
                                    lists what is not installed
    conduct.py list                 lists the fixtures

A program reports its own failures through a pipe (python/witness.py), never through the log. A written fixture has
neutral paths and host names; nothing else is changed.
"""

import concurrent.futures
import json
import os
import re
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.append(str(ROOT / "scripts"))
from ports import start_on_free_port  # noqa: E402
FIXTURES = ROOT / "tests/fixtures/libraries"
PACKAGES = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "libraries"
DEADLINE = 300
# The programs mostly wait: for the exporter, which saves once a second, and for locks.
AT_ONCE = 5


class Redis:
    """A redis-server for these programs alone, and enough of its protocol to read keys, which may be binary."""

    def __init__(self):
        self.directory = tempfile.TemporaryDirectory()
        command = ["redis-server", "--bind", "127.0.0.1", "--save", "", "--dir", self.directory.name, "--port"]
        self.process, self.port = start_on_free_port(lambda port: subprocess.Popen([*command, str(port)], stdout=subprocess.DEVNULL))
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.socket = socket.create_connection(("127.0.0.1", self.port), 30)
        self.reader = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
        self.process.terminate()
        self.process.wait(10)
        self.directory.cleanup()

    def call(self, *words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
        return self._reply()

    def _reply(self):
        line = self.reader.readline().rstrip(b"\r\n")
        kind, rest = line[:1], line[1:]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            if rest == b"-1":
                return None
            data = self.reader.read(int(rest) + 2)
            return data[:-2]
        if kind == b"*":
            return [self._reply() for _ in range(int(rest))]
        return rest

    def clear(self):
        """Deletes keys one by one. After FLUSHALL an exporter rescans everything, and does not count the locks it finds as acquired."""
        for key in self.call("KEYS", "*"):
            self.call("DEL", key)

    def keys(self):
        """Returns every key of database 0: type, TTL in seconds (rounded up, None without TTL), and shape of its value."""
        shown = []
        for key in sorted(self.call("KEYS", "*")):
            kind = self.call("TYPE", key).decode()
            ttl = self.call("PTTL", key)
            if ttl == -2:
                continue
            if kind == "string":
                value = shape(self.call("GET", key) or b"")
            elif kind == "hash":
                pairs = self.call("HGETALL", key)
                value = {shape(field): shape(content) for field, content in zip(pairs[::2], pairs[1::2])}
            elif kind == "zset":
                value = sorted(shape(member) for member in self.call("ZRANGE", key, 0, -1))
            elif kind == "set":
                value = sorted(shape(member) for member in self.call("SMEMBERS", key))
            elif kind == "list":
                value = [shape(item) for item in self.call("LRANGE", key, 0, 9)]
            else:
                value = None
            shown.append({"key": key.decode(errors="replace"), "type": kind, "ttl": None if ttl < 0 else -(-ttl // 1000), "value": value})
        return shown


SHAPES = [
    ("uuid", rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
    ("{} digits", rb"[0-9]+"),
    ("{} hexadecimal digits", rb"[0-9a-f]+"),
    ("{} letters and digits", rb"[0-9A-Za-z]+"),
    ("{} characters of base64", rb"[0-9A-Za-z+/=_-]+"),
    ("text of {} characters", rb"[ -~]*"),
]


def shape(value):
    """Returns the kind of text of a value, because fixtures must not contain tokens."""
    if value in (b"__write__", b"mode", b"read", b"write", b"1") or len(value) < 8:
        return value.decode(errors="replace")
    for name, pattern in SHAPES:
        if re.fullmatch(pattern, value):
            return name.format(len(value))
    return f"{len(value)} bytes"


class Fixture:
    """One library in one version with one logging setup. Its scenarios run one after the other and share one log."""

    def __init__(self, preset, library, version, setup, command, scenarios, environment=None, told=None, checked="run"):
        self.preset, self.library, self.version, self.setup = preset, library, version, setup
        self.command, self.scenarios, self.environment = command, scenarios, environment or {}
        self.told, self.checked = told or {}, checked

    @property
    def name(self):
        return f"{self.preset}/{self.library}-{self.version}-{self.setup}"

    def lock_name(self, scenario):
        """Returns a unique name for each lock of all fixtures, so that replaying them together joins nothing."""
        return re.sub(r"[^a-z0-9-]", "-", f"{self.library}-{self.version}-{self.setup}-{scenario}".lower()).replace("--", "-").strip("-")

    @property
    def can_run(self):
        """Returns whether its dependencies are installed (scripts/install_libraries.sh)."""
        packages = self.environment.get("PACKAGES")
        return shutil.which(self.command[0]) is not None and (packages is None or Path(packages, "node_modules").is_dir())

    def run(self, redis, log, on_held=None):
        """Runs all scenarios and appends their output to the file `log`. Returns the failures and the observed keys."""
        failures, keys = [], []
        for scenario in self.scenarios:
            redis.clear()
            told = run_program(self, scenario, redis, log, on_held)
            failures += told[0]
            keys += told[1]
        return failures, keys


def run_program(fixture, scenario, redis, log, on_held):
    out_read, out_write = os.pipe()
    in_read, in_write = os.pipe()
    environment = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "NO_COLOR": "1",
        "REDIS_URL": redis.url,
        "SETUP": fixture.setup,
        "SCENARIO": scenario,
        "LOCK_NAME": fixture.lock_name(scenario),
        "WITNESS_OUT": str(out_write),
        "WITNESS_IN": str(in_read),
        **fixture.environment,
    }
    failures, keys = [], []
    process = subprocess.Popen(
        fixture.command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(out_write, in_read), cwd=HERE,
        start_new_session=True,
    )
    os.close(out_write)
    os.close(in_read)
    rest = b""
    until = time.monotonic() + DEADLINE
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(out_read, selectors.EVENT_READ)
            while True:
                if not selector.select(max(0, until - time.monotonic())):
                    raise SystemExit(f"{fixture.name}, {scenario}: not finished after {DEADLINE} s")
                piece = os.read(out_read, 65536)
                if not piece:
                    break
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    told = json.loads(line)
                    if "failed" in told:
                        failure = {"scenario": scenario, **told["failed"]}
                        # The log contains less than the program knows.
                        if scenario in fixture.told:
                            failure["told"] = fixture.told[scenario]
                        failures.append(failure)
                    else:
                        shown = redis.keys()
                        keys.append({"scenario": scenario, "state": told["held"], "keys": shown})
                        if on_held:
                            on_held(scenario, told["held"], shown)
                        try:
                            os.write(in_write, b"\n")
                        except BrokenPipeError:
                            raise SystemExit(f"{fixture.name}, {scenario}: the program ended while it was {told['held']}") from None
        process.wait(10)
    finally:
        os.close(out_read)
        os.close(in_write)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return failures, keys


def neutral(text):
    """Removes traces of the recording machine: paths of this checkout and the host name."""
    for path, name in ((PACKAGES, "/srv/packages"), (HERE, "/srv/app"), (ROOT, "/srv")):
        text = text.replace(str(path).encode(), name.encode())
    text = re.sub(rb"/root/\.pyenv/versions/[0-9.]+/lib/", b"/usr/lib/", text)
    text = re.sub(rb"/root/\.cargo/", b"/usr/local/cargo/", text)
    return text.replace(socket.gethostname().encode(), b"worker-1")


def record(pattern):
    with Redis() as redis:
        for fixture in fixtures():
            if pattern not in fixture.name:
                continue
            path = FIXTURES / (fixture.name + ".log")
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile() as log:
                failures, keys = fixture.run(redis, log)
                log.seek(0)
                text = neutral(log.read())
            path.write_bytes(text)
            about = {"preset": fixture.preset, "library": fixture.library, "version": fixture.version, "setup": fixture.setup,
                     "checked": fixture.checked, "events": failures, "keys": keys}
            path.with_suffix(".log").with_name(path.name[:-4] + ".json").write_text(json.dumps(about, indent=1) + "\n")
            print(f"{fixture.name}: {len(failures)} failures, {len(text)} bytes", flush=True)


def live(binary):
    passed = failed = skipped = 0
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        running = [pool.submit(live_one, binary, fixture) for fixture in fixtures() if fixture.preset != "near-misses"]
        for done in concurrent.futures.as_completed(running):
            result, text = done.result()
            passed, failed, skipped = passed + (result == "passed"), failed + (result == "failed"), skipped + (result == "skipped")
            print(text, flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


def live_one(binary, fixture):
    """Returns the result and a line that describes it."""
    import live as beside

    if not fixture.can_run:
        # For the summary of scripts/test.sh.
        with open(os.environ.get("SKIPPED_TESTS", os.devnull), "a") as summary:
            summary.write(f"{fixture.name}: {fixture.library} {fixture.version} is not installed\n")
        return "skipped", f"{fixture.name}: skipped, it is not installed"
    started = time.monotonic()
    try:
        with Redis() as redis:
            failures = beside.run(binary, fixture, redis)
    except SystemExit as problem:
        return "failed", f"{fixture.name}: FAILED: {problem}"
    return "passed", f"{fixture.name}: {failures} failures, all seen, {time.monotonic() - started:.1f} s"


def fixtures():
    from matrix import matrix

    return matrix(Fixture, HERE, PACKAGES)


def main(arguments):
    if arguments[:1] == ["record"]:
        record(arguments[1] if len(arguments) > 1 else "")
    elif arguments[:1] == ["live"] and len(arguments) > 1:
        return live(arguments[1])
    elif arguments[:1] == ["list"]:
        for fixture in fixtures():
            print(fixture.name)
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    sys.exit(main(sys.argv[1:]))
