"""python-redis-lock: an expired lock, a renewal thread that finds no lock to renew, and a lock that others hold."""

import time

import redis
import redis_lock
from logging_setups import logger, report
from witness import NAME, REDIS_URL, SCENARIO, SETUP, busy, held, release_refused, renewal_refused

client = redis.StrictRedis.from_url(REDIS_URL)
log = logger()
KEY = "lock:" + NAME


def lost(**options):
    lock = redis_lock.Lock(client, NAME, expire=60, **options)
    assert lock.acquire()
    held("held")
    client.set(KEY, "f" * 24, px=60000)
    held("taken")
    return lock


def release():
    lost().release()


def extend():
    lost().extend(10)


def renewal_thread():
    """The library's own thread ends with a traceback that no code catches."""
    lock = redis_lock.Lock(client, NAME, expire=6, auto_renewal=True)
    assert lock.acquire()
    held("held")
    client.delete(KEY)
    renewal_refused(KEY)
    thread = lock._lock_renewal_thread
    thread.join(30)
    assert not thread.is_alive()


def wait():
    """Without blocking, the library logs a warning and returns False."""
    client.set(KEY, "f" * 24, px=60000)
    assert not redis_lock.Lock(client, NAME, expire=60).acquire(blocking=False)


def wait_with():
    """`with` on a busy lock: the library warns, and then raises an error with the text of a lost lock."""
    client.set(KEY, "f" * 24, px=60000)
    with redis_lock.Lock(client, NAME, expire=60, blocking=False):
        pass


SCENARIOS = {
    "release": (release, release_refused),
    "extend": (extend, renewal_refused),
    "renewal_thread": (renewal_thread, None),
    "wait": (wait, busy),
    "wait_with": (wait_with, busy),
}

steps, told = SCENARIOS[SCENARIO]
if SETUP.startswith("uncaught") and SCENARIO in ("release", "extend", "wait_with"):
    told(KEY)
    steps()
else:
    try:
        steps()
        if SCENARIO == "wait":
            told(KEY)
    except redis_lock.NotAcquired as error:
        told(KEY)
        report(log, "could not book the invoice", error)
