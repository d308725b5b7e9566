"""pottery's Redlock."""

import redis
from logging_setups import logger, report
from pottery import ExtendUnlockedLock, QuorumNotAchieved, Redlock, ReleaseUnlockedLock
from witness import NAME, REDIS_URL, SCENARIO, SETUP, busy, held, release_refused, renewal_refused

client = redis.Redis.from_url(REDIS_URL)
log = logger()
KEY = "redlock:" + NAME


def lost():
    lock = Redlock(key=NAME, masters={client}, auto_release_time=60)
    assert lock.acquire()
    held("held")
    client.set(KEY, "f" * 36, px=60000)
    held("taken")
    return lock


def wait():
    client.set(KEY, "f" * 36, px=60000)
    with Redlock(key=NAME, masters={client}, auto_release_time=60, context_manager_blocking=True, context_manager_timeout=0.3):
        pass


SCENARIOS = {
    "release": (lambda: lost().release(), release_refused),
    "extend": (lambda: lost().extend(), renewal_refused),
    "wait": (wait, busy),
}

steps, told = SCENARIOS[SCENARIO]
if SETUP == "uncaught":
    told(KEY)
    steps()
else:
    try:
        steps()
    except (ReleaseUnlockedLock, ExtendUnlockedLock, QuorumNotAchieved) as error:
        told(KEY)
        report(log, "could not book the invoice", error)
