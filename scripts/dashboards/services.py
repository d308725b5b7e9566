"""Services that lock as Cordum's do: replicas that really take, renew and release locks in a real Redis, and write Cordum's log lines about
what fails. What goes wrong, and how much, is told by `Trouble`, which the scene changes as its story goes on.

All durations are those of the `cordum` preset divided by the speed of the scene."""

import asyncio
import datetime
import json
import random
import uuid
from dataclasses import dataclass, field

RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
RENEW = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0"
NOT_OWNED = "lock not owned"


@dataclass
class Trouble:
    """Shares between 0 and 1."""
    late: float = 0.0  # how far renewals are behind their time
    stalls: float = 0.0  # pauses longer than the TTL, for each wait
    timeouts: float = 0.0  # renewals that Redis does not answer in time
    leaderless: set = field(default_factory=set)  # keys that nobody tries to take
    over: bool = False


@dataclass
class Work:
    """One kind of item lock. Lines are (message, name of the field with the id)."""
    key: str
    component: str
    id_field: str
    ttl: float
    renew_every: float | None
    longest: float  # work, in TTLs
    fences: bool
    renewal_line: str | None
    release_line: str
    busy_line: tuple  # message, error


SCHEDULER = Work("cordum:scheduler:job:{}", "scheduler", "job_id", 60, 20, 1.6, True, "job lock renewal failed", "job lock release failed, retrying",
                 ("replay job failed", "job lock busy"))
WORKFLOW = Work("cordum:wf:run:lock:{}", "workflow-engine", "run_id", 30, 10, 1.8, False, "run lock renewal failed", "distributed run lock release failed",
                ("workflow result: run lock contended, deferring to NATS retry", ""))
ADMISSION = Work("cordum:wf:run:admission:{}", "gateway", "org_id", 10, None, 0.6, False, None, "release workflow admission lock failed",
                 ("workflow admission lock failed", "context deadline exceeded"))
# key, TTL
LEADERS = [("cordum:reconciler:default", 60), ("cordum:replayer:pending", 60), ("cordum:workflow-engine:reconciler:default", 10), ("cordum:wf:delay:poller", 10)]


class Log:
    """A log file as Go's slog writes it; counts the lines by message."""

    def __init__(self, path):
        self.file = open(path, "a", buffering=1, encoding="utf-8")
        self.counts = {}

    def write(self, component, message, **attributes):
        now = datetime.datetime.now(datetime.timezone.utc).isoformat().replace("+00:00", "Z")
        level = "WARN" if attributes.get("error") else "INFO"
        self.file.write(json.dumps({"time": now, "level": level, "msg": message, "component": component, **attributes}, ensure_ascii=False) + "\n")
        self.counts[message] = self.counts.get(message, 0) + 1


class Redis:
    """One connection. While Redis is away, a command waits for it to come back, as clients with retries do."""

    def __init__(self, port):
        self.port, self.reader, self.writer = port, None, None

    async def command(self, *words):
        while True:
            try:
                if self.writer is None:
                    self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
                parts = [str(word).encode() for word in words]
                self.writer.write(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts))
                return await self._reply()
            except (OSError, asyncio.IncompleteReadError):
                self.writer = None
                await asyncio.sleep(0.05)

    async def _reply(self):
        line = await self.reader.readuntil(b"\r\n")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b"$":
            if rest == b"-1":
                return None
            return (await self.reader.readexactly(int(rest) + 2))[:-2].decode()
        if kind == b":":
            return int(rest)
        if kind == b"+":
            return rest.decode()
        raise RuntimeError(f"an answer that no lock gives: {line!r}")


class Fleet:
    def __init__(self, port, speed, trouble, seed=7):
        self.port, self.speed, self.trouble, self.random = port, speed, trouble, random.Random(seed)

    async def run(self, logs):
        """Until the trouble is over. logs: one for each node; replicas are spread over them."""
        tasks = []
        for work, ids, replicas in ((SCHEDULER, 5, 8), (WORKFLOW, 6, 9), (ADMISSION, 4, 5)):
            names = [f"{work.id_field[:-3]}-{number}" for number in range(ids)]
            tasks += [self.replica(work, names, logs[replica % len(logs)]) for replica in range(replicas)]
        tasks += [self.leader(key, ttl / self.speed) for key, ttl in LEADERS for _ in range(2)]
        await asyncio.gather(*tasks)

    async def leader(self, key, ttl):
        """Takes the lock whenever it is free, and lets it run out."""
        redis, token = Redis(self.port), uuid.uuid4().hex
        while not self.trouble.over:
            if key not in self.trouble.leaderless:
                await redis.command("SET", key, token, "NX", "PX", int(ttl * 1000))
            await asyncio.sleep(ttl * self.random.uniform(0.2, 0.4))

    async def replica(self, work, ids, log):
        redis, ttl = Redis(self.port), work.ttl / self.speed
        while not self.trouble.over:
            name, token = self.random.choice(ids), uuid.uuid4().hex
            key = work.key.format(name)
            if await redis.command("SET", key, token, "NX", "PX", int(ttl * 1000)):
                if await self.hold(redis, work, key, name, token, log) and await redis.command("EVAL", RELEASE, 1, key, token) == 0:
                    log.write(work.component, work.release_line, **{work.id_field: name}, error=NOT_OWNED)
            elif self.random.random() < 0.15:
                message, error = work.busy_line
                log.write(work.component, message, **{work.id_field: name}, error=error)
            await asyncio.sleep(ttl * self.random.uniform(0.1, 0.5))

    async def hold(self, redis, work, key, name, token, log):
        """Works, and renews. Whether the lock is to be released at the end: not by one who gave up."""
        ttl, trouble, clock = work.ttl / self.speed, self.trouble, asyncio.get_running_loop().time
        end, strikes = clock() + ttl * self.random.uniform(0.1, work.longest), 0
        while True:
            wait = work.renew_every / self.speed * (1 + 1.6 * trouble.late * self.random.random()) if work.renew_every else end - clock()
            if self.random.random() < trouble.stalls:
                # Hangs for longer than the lock lives, and knows nothing of it.
                await asyncio.sleep(ttl * self.random.uniform(1.05, 1.4))
            elif clock() + wait >= end:
                await asyncio.sleep(max(0, end - clock()))
                return True
            else:
                await asyncio.sleep(wait)
            if not work.renew_every:
                return True
            timed_out = self.random.random() < trouble.timeouts
            if not timed_out and await redis.command("EVAL", RENEW, 1, key, token, int(ttl * 1000)):
                strikes = 0
                continue
            strikes += 1
            error = f"job store renew lock {key}: read tcp 10.0.0.2:4->10.0.3.7:6379: i/o timeout" if timed_out else NOT_OWNED
            log.write(work.component, work.renewal_line, **{work.id_field: name}, attempt=strikes, error=error)
            if timed_out and strikes < 3:
                continue
            if work.fences:
                log.write(work.component, "lock renewal abandoned, fencing critical section", **{work.id_field: name}, error=error)
            return not work.fences
