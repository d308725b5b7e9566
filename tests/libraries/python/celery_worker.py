"""A Celery worker whose task loses its lock, with Celery's own log."""

import redis
from celery import Celery, signals
from celery.worker import state
from witness import NAME, REDIS_URL, SCENARIO, busy, held, release_refused, renewal_refused

app = Celery("billing", broker=REDIS_URL.rsplit("/", 1)[0] + "/1")
app.conf.broker_connection_retry_on_startup = True
app.conf.worker_hijack_root_logger = True
client = redis.Redis.from_url(REDIS_URL)
left = 2 if SCENARIO == "retry" else 1
LockError = redis.exceptions.LockError


def lost():
    lock = client.lock(NAME, timeout=60)
    client.delete(NAME)
    assert lock.acquire()
    held("held")
    client.set(NAME, "f" * 32, px=60000)
    held("taken")
    return lock


@app.task(name="billing.release")
def release():
    lost().release()


@app.task(name="billing.extend")
def extend():
    lost().extend(10)


@app.task(name="billing.wait")
def wait():
    client.set(NAME, "f" * 32, px=60000)
    with client.lock(NAME, timeout=60, blocking_timeout=0.2):
        pass


@app.task(name="billing.retry", autoretry_for=(LockError,), max_retries=1, default_retry_delay=0)
def retry():
    lost().release()


TASKS = {
    "release": (release, release_refused),
    "extend": (extend, renewal_refused),
    "wait": (wait, busy),
    "retry": (retry, release_refused),
}


@signals.worker_ready.connect
def send(**_):
    TASKS[SCENARIO][0].delay()


def count(**_):
    global left
    TASKS[SCENARIO][1]()
    left -= 1
    if left == 0:
        state.should_stop = 0


@signals.task_retry.connect
def count_retry(**_):
    """Celery logs the error in one line, with `repr(error)`, which is only the class."""
    global left
    release_refused(told={"event": "not_owned", "operation": "unknown", "reason": "not_owned"})
    left -= 1


signals.task_failure.connect(count)

app.worker_main(["worker", "--pool", "solo", "--loglevel", "INFO", "--without-gossip", "--without-mingle", "--without-heartbeat", "--hostname", "celery@worker-1"])
